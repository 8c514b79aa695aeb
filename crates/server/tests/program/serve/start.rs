//! Starts that fail, and their messages: a file that is not a store, a missing master key.
//!
//! Fixture: the built program and a [`TestServer`].

use std::fs;
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
