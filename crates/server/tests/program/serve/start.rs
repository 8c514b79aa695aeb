//! Starts that fail, and their messages: a file that is not a store, a missing master key, an address in use. Checks of
//! the configuration without a start.
//!
//! Fixture: the built program and a [`TestServer`].

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Output;

use super::fixture::{TestServer, posthaste};

fn refused(store: &Path) -> Output {
    let store = format!("sqlite:{}", store.display());
    posthaste()
        .args(["serve", "--listen", "127.0.0.1:0", "--store", &store])
        .output()
        .expect("the program can be started")
}

#[test]
fn a_file_that_is_not_a_store_is_reported_and_unchanged() {
    let directory = tempfile::tempdir().expect("a directory");
    let notes = directory.path().join("notes.txt");
    fs::write(&notes, "nothing to see here").expect("a file");
    let output = refused(&notes);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("is not a posthaste store"), "{said}");
    assert!(said.contains("--store"), "{said}");
    let left = fs::read_to_string(&notes).expect("a file");
    assert_eq!(left, "nothing to see here");
    let output = refused(directory.path());
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("irectory"), "{said}");
}

#[test]
fn a_store_without_its_master_key_is_an_error() {
    let mut server = TestServer::start(&[]);
    assert!(server.stop().success());
    let store = server.directory().join("posthaste.db");
    fs::remove_file(server.directory().join("posthaste.db.key")).expect("a key file");
    let output = refused(&store);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("posthaste.db.key is missing"), "{said}");
}

fn entries(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a directory");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    names
        .map(|name| name.to_string_lossy().into_owned())
        .collect()
}

#[test]
fn a_start_that_fails_leaves_no_files() {
    let directory = tempfile::tempdir().expect("a directory");
    let in_use = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = in_use.local_addr().expect("an address").to_string();
    let output = posthaste()
        .args(["serve", "--listen", &address])
        .current_dir(directory.path())
        .output()
        .expect("the program can be started");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("cannot listen on"), "{said}");
    assert_eq!(entries(directory.path()), [""; 0]);
}

#[test]
fn a_missing_directory_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let missing = directory.path().join("no/such/dir");
    let output = refused(&missing.join("x.db"));
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let named = format!("the directory {} of the store", missing.display());
    assert!(said.contains(&named) && !said.contains("x.db"), "{said}");
    assert_eq!(entries(directory.path()), [""; 0]);
}

#[test]
fn a_configuration_is_checked_without_a_start() {
    let directory = tempfile::tempdir().expect("a directory");
    let check = |arguments: &[&str]| {
        posthaste()
            .args(["serve", "--check"])
            .args(arguments)
            .current_dir(directory.path())
            .output()
            .expect("the program can be started")
    };
    // The port is in use, which a check does not notice.
    let in_use = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = in_use.local_addr().expect("an address").to_string();
    let valid = check(&["--listen", &address]);
    assert_eq!(valid.status.code(), Some(0));
    let said = String::from_utf8_lossy(&valid.stdout).into_owned();
    assert!(said.contains("valid") && said.contains(&address), "{said}");
    let file = directory.path().join("posthaste.toml");
    fs::write(&file, "listn = \"127.0.0.1:0\"\n[limits]\nconections = 5\n").expect("a file");
    let wrong = check(&["--config", "posthaste.toml"]);
    assert_eq!(wrong.status.code(), Some(2));
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(said.contains("did you mean listen?"), "{said}");
    assert!(said.contains("did you mean connections?"), "{said}");
    let missing = check(&["--store", "sqlite:/no/such/dir/x.db"]);
    assert_eq!(missing.status.code(), Some(1));
    assert_eq!(entries(directory.path()), ["posthaste.toml"]);
}
