//! Starts that fail, and their messages.

use std::fs;
use std::path::Path;
use std::process::Output;

use super::support::{Server, posthaste};

fn refused(store: &Path) -> Output {
    let store = format!("sqlite:{}", store.display());
    posthaste()
        .args(["serve", "--listen", "127.0.0.1:0", "--store", &store])
        .output()
        .expect("the program can be started")
}

#[test]
fn what_is_no_store_is_called_that_and_left_alone() {
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
fn a_store_without_its_key_is_told_so() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut server = Server::start(directory.path(), &[]);
    assert!(server.stop().success());
    let store = directory.path().join("posthaste.db");
    fs::remove_file(directory.path().join("posthaste.db.key")).expect("a key file");
    let output = refused(&store);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("posthaste.db.key is missing"), "{said}");
}
