//! The inbox table in SQLite, together with a side effect.

use std::path::Path;
use std::time::Duration;

use posthaste_receiver::{Begin, SqliteInbox};
use rusqlite::{Connection, TransactionBehavior};

use crate::fixture::at;

fn open(path: &Path) -> Connection {
    let database = Connection::open(path).expect("a database");
    let settings = "PRAGMA journal_mode = WAL; PRAGMA busy_timeout = 0;";
    database.execute_batch(settings).expect("settings");
    database
}

/// Processes a webhook: counts it, and commits if it is told to.
fn process(database: &mut Connection, id: &str, commit: bool) -> Begin {
    let transaction = database.transaction_with_behavior(TransactionBehavior::Immediate);
    let transaction = transaction.expect("a transaction");
    let begun = SqliteInbox::new().begin(&transaction, id, at(0));
    let begun = begun.expect("an answer");
    if begun == Begin::New(()) {
        let count = transaction.execute("UPDATE effects SET count = count + 1", []);
        assert_eq!(count.expect("counted"), 1);
        if commit {
            transaction.commit().expect("committed");
        }
    }
    begun
}

fn effects(database: &Connection) -> i64 {
    let count = database.query_row("SELECT count FROM effects", [], |row| row.get(0));
    count.expect("a count")
}

fn prepared(path: &Path) -> Connection {
    let database = open(path);
    SqliteInbox::new().create_table(&database).expect("a table");
    // A second time, as at the next start of the application.
    SqliteInbox::new().create_table(&database).expect("a table");
    let effects = "CREATE TABLE effects (count INTEGER); INSERT INTO effects VALUES (0);";
    database.execute_batch(effects).expect("a table");
    database
}

#[test]
fn effect_and_mark_are_committed_together() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("app.db");
    let mut database = prepared(&path);
    assert_eq!(process(&mut database, "dlv_1", false), Begin::New(()));
    assert_eq!(effects(&database), 0);
    assert_eq!(process(&mut database, "dlv_1", true), Begin::New(()));
    assert_eq!(process(&mut database, "dlv_1", true), Begin::Duplicate);
    assert_eq!(process(&mut database, "dlv_2", true), Begin::New(()));
    drop(database);
    // After a restart the marks are still there.
    let mut database = open(&path);
    assert_eq!(process(&mut database, "dlv_1", true), Begin::Duplicate);
    assert_eq!(effects(&database), 2);
}

#[test]
fn a_webhook_that_another_connection_processes_is_in_progress() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("app.db");
    let mut first = prepared(&path);
    let mut second = open(&path);
    let inbox = SqliteInbox::new();

    let writing = first.transaction().expect("a transaction");
    assert_eq!(inbox.begin(&writing, "dlv_1", at(0)), Ok(Begin::New(())));
    let waiting = second.transaction().expect("a transaction");
    assert_eq!(inbox.begin(&waiting, "dlv_1", at(0)), Ok(Begin::InProgress));
    drop(waiting);
    writing.commit().expect("committed");
    let again = second.transaction().expect("a transaction");
    assert_eq!(inbox.begin(&again, "dlv_1", at(0)), Ok(Begin::Duplicate));
}

#[test]
fn expired_marks_are_deleted_oldest_first() {
    let mut database = Connection::open_in_memory().expect("a database");
    let attach = "ATTACH ':memory:' AS side";
    database.execute_batch(attach).expect("attached");
    let inbox = SqliteInbox::in_table("side.received").expect("a name");
    inbox.create_table(&database).expect("a table");
    let mut begin = |id: &str, second: u64| {
        let transaction = database.transaction().expect("a transaction");
        let begun = inbox
            .begin(&transaction, id, at(second))
            .expect("an answer");
        transaction.commit().expect("committed");
        begun
    };
    for (id, second) in [("c", 12), ("a", 10), ("b", 11), ("d", 20)] {
        assert_eq!(begin(id, second), Begin::New(()));
    }
    let minute = Duration::from_secs(60);
    let delete = |now: u64, limit: u32| {
        let deleted = inbox.delete_expired(&database, at(now), minute, limit);
        deleted.expect("deleted")
    };
    assert_eq!(delete(70, 100), 0, "a is exactly as old as the retention");
    assert_eq!(delete(79, 2), 2);
    assert_eq!(delete(79, 2), 1);
    assert_eq!(delete(79, 2), 0);
    let left: String = database
        .query_row("SELECT group_concat(id) FROM side.received", [], |row| {
            row.get(0)
        })
        .expect("the rest");
    assert_eq!(left, "d");
}
