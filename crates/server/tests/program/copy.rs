//! `posthaste store copy`, through the built program: killed and resumed, with correct counts and error messages.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use bytes::Bytes;
use posthaste_core::rng::Rng;
use posthaste_core::time::Timestamp;
use posthaste_store::sqlite::SqliteStore;
use posthaste_store::{Content, NewEvent, Store, StoreSettings, Tenant};
use posthaste_store_testing::NoHandOver;
use posthaste_testbed::{Database, without_settings};

const EVENTS: usize = 20_000;

/// Creates a store file with this number of events.
async fn filled(directory: &Path, events: usize) -> PathBuf {
    let path = directory.join("posthaste.db");
    let settings = StoreSettings::new(Rng::seeded(1));
    let store = SqliteStore::open(&path, settings, Arc::new(NoHandOver)).expect("the store opens");
    let now = Timestamp(1_700_000_000_000);
    let tenant = Tenant::new("acme".parse().expect("an id"), "Acme".to_owned(), now);
    store
        .create_tenant(now, tenant)
        .await
        .expect("the tenant is created");
    let event = |number: usize| {
        NewEvent::new(
            "acme".parse().expect("an id"),
            Content::new(
                "a.b".parse().expect("a type"),
                Bytes::from(vec![number as u8; 100]),
            ),
        )
    };
    for piece in (0..events).collect::<Vec<_>>().chunks(1_000) {
        let piece = piece.iter().map(|number| event(*number)).collect();
        store
            .accept(now, piece)
            .await
            .expect("the events are accepted");
    }
    store.close().await.expect("the store closes");
    path
}

fn copy(from: &Path, to: &str, more: &[&str]) -> Command {
    let mut command = without_settings(Command::new(env!("CARGO_BIN_EXE_posthaste")));
    let from = format!("sqlite:{}", from.display());
    command.args(["store", "copy", &from, to]).args(more);
    command
}

fn said(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_copy_continues_and_counts_the_same() {
    let directory = tempfile::tempdir().expect("a directory");
    let from = filled(directory.path(), EVENTS).await;
    let database = Database::empty();
    for wanted in ["events: 2", "events: 6,", "events: 12,"] {
        let mut killed = copy(&from, &database.url(), &[])
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("the program starts");
        let lines = BufReader::new(killed.stderr.take().expect("a piped stream")).lines();
        let mut lines = lines.map_while(Result::ok);
        let reached = lines.find(|line| line.contains(wanted));
        killed.kill().expect("the program runs");
        killed.wait().expect("the process ends");
        assert!(reached.is_some(), "never received {wanted}");
        let copied = database.number("SELECT count(*) FROM events");
        assert!(copied > 0 && copied < EVENTS as i64, "{copied}");
    }
    // The database session of a killed process may end a moment later.
    let mut finished = said(
        &copy(&from, &database.url(), &[])
            .output()
            .expect("the program runs"),
    );
    for _ in 0..100 {
        if finished.0 == Some(0) || !finished.2.contains("in use") {
            break;
        }
        finished = said(
            &copy(&from, &database.url(), &[])
                .output()
                .expect("the program runs"),
        );
    }
    let (code, table, remarks) = finished;
    assert_eq!(code, Some(0), "{remarks}");
    assert!(
        table.contains("events") && table.contains("20,000"),
        "{table}"
    );
    assert!(!table.contains("differs"), "{table}");
    assert!(table.contains("--place-key"), "{table}");
    assert_eq!(
        database.number("SELECT count(*) FROM events"),
        EVENTS as i64
    );
    let different = "SELECT count(DISTINCT id)::bigint FROM events";
    assert_eq!(database.number(different), EVENTS as i64);

    database.query("DELETE FROM events WHERE id = (SELECT min(id::text)::uuid FROM events)");
    let verify = copy(&from, &database.url(), &["--verify", "--json"]);
    let (code, document, complaint) = said(&{ verify }.output().expect("the program runs"));
    assert_eq!(code, Some(1), "{complaint}");
    let document: serde_json::Value = serde_json::from_str(&document).expect("JSON");
    assert_eq!(document["agrees"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_master_key_is_stored_for_all_nodes_and_wrong_usage_is_reported() {
    let directory = tempfile::tempdir().expect("a directory");
    let from = filled(directory.path(), 10).await;
    let database = Database::empty();
    let key = directory.path().join("posthaste.db.key");
    let missing = copy(&from, &database.url(), &["--place-key", "nowhere.key"])
        .output()
        .expect("the program runs");
    let (code, _, complaint) = said(&missing);
    assert_eq!(code, Some(1), "{complaint}");
    // A key in the server's format, readable only by its owner.
    let line = "3VQ2XvOO5vTyuJ0qFv3bNUWnAG3bdI9ZZ8lD6mYtFQE=\n";
    std::fs::write(&key, line).expect("a key");
    use std::os::unix::fs::PermissionsExt;
    let private = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&key, private).expect("the own process may do it");
    let key = key.to_str().expect("UTF-8");
    let placed = copy(&from, &database.url(), &["--place-key", key])
        .output()
        .expect("the program runs");
    let (code, printed, complaint) = said(&placed);
    assert_eq!(code, Some(0), "{complaint}");
    assert!(printed.contains("were copied to the database"), "{printed}");
    let kept = database.query("SELECT keys FROM vault");
    let kept = kept[0][0].clone().expect("keys");
    assert!(kept.contains(line.trim()), "the keys as they were");
    assert!(!printed.contains(line.trim()), "the output contains no key");

    let elsewhere = copy(&from, "sqlite:other.db", &[])
        .output()
        .expect("the program runs");
    assert_eq!(said(&elsewhere).0, Some(2));
}
