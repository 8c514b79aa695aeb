//! Files: ownership, migrations, damage and backups.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use posthaste_core::id::EndpointId;
use posthaste_core::lane::{EndpointLimits, LimitOverrides};
use posthaste_core::sign::SignatureStyle;
use posthaste_store::sqlite::{backup, recognise};
use posthaste_store::{Notifications, OpenError, ReplaceResult, Store};

use crate::fixture::{Fixture, NOW, WITHOUT_OWNER_EMAILS, event, id, open, run};

/// Environment variable with the path of the store that another process tries to open.
const STORE: &str = "POSTHASTE_TEST_STORE";

#[test]
fn one_process_at_a_time() {
    let fixture = Fixture::acme();
    let refused = open(&fixture.path()).err().unwrap();
    assert!(matches!(refused, OpenError::InUse { .. }), "{refused}");
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "files::another_process", "--nocapture"])
        .env(STORE, fixture.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout).into_owned();
    assert!(said.contains("in use by another posthaste"), "{said}");
    assert!(run(fixture.store.close()).is_ok());
    assert!(open(&fixture.path()).is_ok(), "it is free again");
}

/// Run by the test above, as another process.
#[test]
fn another_process() {
    if let Ok(path) = std::env::var(STORE) {
        println!("{}", open(Path::new(&path)).err().unwrap());
    }
}

#[test]
fn only_the_owner_can_read_the_files() {
    let fixture = Fixture::acme();
    assert!(recognise(&fixture.path()).is_ok(), "also while it is open");
    for name in ["posthaste.db", "posthaste.db-wal", "posthaste.db.lock"] {
        let meta = std::fs::metadata(fixture.directory.path().join(name)).unwrap();
        assert_eq!(meta.permissions().mode() & 0o777, 0o600, "{name}");
    }
}

#[test]
fn foreign_files_are_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let text = directory.path().join("notes.txt");
    std::fs::write(&text, "nothing to see here").unwrap();
    let refused = open(&text).err().unwrap();
    assert!(matches!(refused, OpenError::Foreign { .. }), "{refused}");
    assert_eq!(
        std::fs::read_to_string(&text).unwrap(),
        "nothing to see here"
    );
    let theirs = directory.path().join("theirs.db");
    let conn = rusqlite::Connection::open(&theirs).unwrap();
    conn.execute_batch("CREATE TABLE mine (a)").unwrap();
    drop(conn);
    let before = std::fs::read(&theirs).unwrap();
    let refused = open(&theirs).err().unwrap();
    assert!(matches!(refused, OpenError::Foreign { .. }), "{refused}");
    for theirs in [&theirs, &text] {
        let refused = recognise(theirs).unwrap_err();
        assert!(matches!(refused, OpenError::Foreign { .. }), "{refused}");
    }
    assert_eq!(std::fs::read(&theirs).unwrap(), before);
    let nowhere = directory.path().join("nowhere/posthaste.db");
    let refused = open(&nowhere).err().unwrap();
    assert!(matches!(refused, OpenError::Other { .. }), "{refused}");
}

#[test]
fn an_older_schema_is_migrated_with_its_data() {
    let fixture = Fixture::acme();
    assert!(run(fixture.accept(10)).is_ok());
    let id = EndpointId(1);
    let before = run(fixture.store.endpoint(id)).unwrap().unwrap().endpoint;
    run(fixture.store.close()).unwrap();
    // In the first schema version, endpoints had neither signature style nor credentials.
    let conn = rusqlite::Connection::open(fixture.path()).unwrap();
    conn.execute_batch(WITHOUT_OWNER_EMAILS).unwrap();
    conn.execute_batch(WITHOUT_FAN_OUTS).unwrap();
    conn.execute_batch(WITHOUT_PROTECTION).unwrap();
    conn.execute_batch(WITHOUT_NIGHT).unwrap();
    conn.execute_batch(WITHOUT_PEOPLE).unwrap();
    conn.execute_batch(
        "ALTER TABLE endpoints DROP COLUMN signature_style;
         ALTER TABLE endpoints DROP COLUMN sealed_credentials;",
    )
    .unwrap();
    conn.pragma_update(None, "user_version", 1).unwrap();
    drop(conn);
    let store = open(&fixture.path()).unwrap();
    let mut endpoint = run(store.endpoint(id)).unwrap().unwrap().endpoint;
    assert_eq!(endpoint.signature_style, SignatureStyle::Standard);
    assert!(endpoint.sealed_credentials.is_empty());
    let mut expected = before;
    // An endpoint of before keeps the limits that it had, whatever the defaults are later.
    assert_eq!(expected.limits, LimitOverrides::default());
    let usual = EndpointLimits::default();
    expected.limits = LimitOverrides {
        timeout: Some(usual.timeout),
        max_in_flight: Some(usual.max_in_flight),
        rate_limit: Some(usual.rate_limit),
    };
    expected.signature_style = SignatureStyle::Standard;
    expected.sealed_credentials = Vec::new();
    assert_eq!(endpoint, expected);
    assert_eq!(run(store.counts()).unwrap().pending, 1);
    let fetched = run(store.fetch(id, NOW, 99, false)).unwrap();
    assert_eq!(fetched.deliveries.len(), 1);
    // The new columns can be written, and are still there after the next opening.
    endpoint.signature_style = SignatureStyle::Stripe;
    endpoint.sealed_credentials = b"sealed".to_vec();
    endpoint.limits = LimitOverrides::default();
    endpoint.protection.breaker.refusals = Some(3);
    let replaced = run(store.replace_endpoint(NOW, endpoint.clone())).unwrap();
    assert_eq!(replaced, ReplaceResult::Done);
    run(store.close()).unwrap();
    drop(store);
    let store = open(&fixture.path()).unwrap();
    let read = run(store.endpoint(id)).unwrap().unwrap().endpoint;
    assert_eq!(read.signature_style, SignatureStyle::Stripe);
    assert_eq!(read.sealed_credentials, b"sealed");
    assert_eq!(read.limits, LimitOverrides::default());
    assert_eq!(read.protection.breaker.refusals, Some(3));
}

/// Removes what schema version 6 added.
const WITHOUT_FAN_OUTS: &str = "DROP TABLE fan_outs;";

/// Removes what schema version 5 added.
const WITHOUT_PROTECTION: &str = "
    ALTER TABLE tenants DROP COLUMN protection;
    ALTER TABLE tenants DROP COLUMN endpoint_defaults;
    ALTER TABLE endpoints DROP COLUMN protection;
    ALTER TABLE endpoints DROP COLUMN inherited;";

/// Removes what schema version 4 added.
const WITHOUT_NIGHT: &str = "
    ALTER TABLE tenants DROP COLUMN plan;
    ALTER TABLE events DROP COLUMN trace;
    ALTER TABLE events DROP COLUMN payload_removed_at;
    ALTER TABLE replays DROP COLUMN skipped;
    ALTER TABLE notices RENAME COLUMN scope TO endpoint_no;
    DROP TABLE figures;
    DROP TABLE alerts;
    DROP TABLE failures;
    DROP TABLE letters;
    DROP TABLE usage;
    DELETE FROM meta WHERE name = 'told';";

/// Removes what schema version 3 added.
const WITHOUT_PEOPLE: &str =
    "DROP TABLE passes; DROP TABLE audit; DROP INDEX dead_by_kind; DROP INDEX troubled;";

/// Returns the schema of a file, however the file was made.
fn layout(path: &Path) -> Vec<String> {
    let conn = rusqlite::Connection::open(path).unwrap();
    let sql = "SELECT name || ': ' || sql FROM sqlite_schema WHERE sql IS NOT NULL \
               AND name NOT LIKE 'sqlite_%' ORDER BY name";
    let mut statement = conn.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    rows.map(|row| row.unwrap()).collect()
}

#[test]
fn the_second_schema_is_migrated_to_the_newest() {
    let fixture = Fixture::acme();
    assert!(run(fixture.accept(10)).is_ok());
    run(fixture.store.close()).unwrap();
    let new = layout(&fixture.path());
    let conn = rusqlite::Connection::open(fixture.path()).unwrap();
    conn.execute_batch(WITHOUT_OWNER_EMAILS).unwrap();
    conn.execute_batch(WITHOUT_FAN_OUTS).unwrap();
    conn.execute_batch(WITHOUT_PROTECTION).unwrap();
    conn.execute_batch(WITHOUT_NIGHT).unwrap();
    conn.execute_batch(WITHOUT_PEOPLE).unwrap();
    conn.execute_batch(
        "INSERT INTO notices (number, endpoint_no, at, name, detail) \
         VALUES (6, 1, 5, 'endpoint.recovered', '{}'), (7, 1, 5, 'endpoint.recovered', '{}')",
    )
    .unwrap();
    conn.pragma_update(None, "user_version", 2).unwrap();
    drop(conn);
    assert_ne!(layout(&fixture.path()), new);
    let store = open(&fixture.path()).unwrap();
    assert_eq!(
        run(store.last_processed_notification()),
        Ok(7),
        "what is old is no news"
    );
    assert_eq!(run(store.counts()).unwrap().pending, 1);
    run(store.close()).unwrap();
    assert_eq!(layout(&fixture.path()), new);
}

#[test]
fn a_newer_format_is_refused() {
    let fixture = Fixture::acme();
    run(fixture.store.close()).unwrap();
    let conn = rusqlite::Connection::open(fixture.path()).unwrap();
    conn.pragma_update(None, "user_version", 999).unwrap();
    drop(conn);
    let refused = open(&fixture.path()).err().unwrap();
    assert!(
        matches!(refused, OpenError::TooNew { found: 999, known, .. } if known < 999),
        "{refused}"
    );
}

#[test]
fn a_damaged_file_is_refused() {
    let fixture = Fixture::acme();
    assert!(run(fixture.accept(10)).is_ok());
    run(fixture.store.close()).unwrap();
    let whole = std::fs::read(fixture.path()).unwrap();
    // Truncated, and overwritten except for its first page.
    let mut overwritten = whole.clone();
    overwritten[4_096..].fill(0xee);
    for damaged in [&whole[..whole.len() / 2], &overwritten] {
        std::fs::write(fixture.path(), damaged).unwrap();
        let refused = open(&fixture.path()).err().unwrap();
        assert!(matches!(refused, OpenError::Corrupt { .. }), "{refused}");
    }
    std::fs::write(fixture.path(), &whole).unwrap();
    assert_eq!(
        run(open(&fixture.path()).unwrap().counts())
            .unwrap()
            .pending,
        1
    );
}

#[test]
fn an_interrupted_creation_is_repeated() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("posthaste.db");
    std::fs::write(&path, "").unwrap();
    drop(open(&path).unwrap());
    assert!(open(&path).is_ok());
}

#[test]
fn acknowledged_writes_survive_a_power_cut() {
    let fixture = Fixture::acme();
    for _ in 0..20 {
        assert!(run(fixture.accept(10)).is_ok());
    }
    // The files as they are on disk now, without closing the store.
    let later = tempfile::tempdir().unwrap();
    for name in ["posthaste.db", "posthaste.db-wal"] {
        std::fs::copy(fixture.directory.path().join(name), later.path().join(name)).unwrap();
    }
    let store = open(&later.path().join("posthaste.db")).unwrap();
    assert_eq!(run(store.counts()).unwrap().pending, 20);
    let fetched = run(store.fetch(EndpointId(1), NOW, 99, false)).unwrap();
    assert_eq!(fetched.deliveries.len(), 20);
    let accepted = run(store.accept(NOW, vec![event("acme", 1)])).unwrap();
    drop(accepted);
    let taken = fixture.hand.taken.lock().unwrap();
    let last = taken.last().unwrap().delivery.id();
    let fetched = run(store.fetch(EndpointId(1), NOW, 99, false)).unwrap();
    assert!(
        fetched.deliveries.last().unwrap().id() > last,
        "ids go on growing"
    );
}

#[test]
fn a_backup_contains_all_acknowledged_writes() {
    let fixture = Fixture::acme();
    for _ in 0..50 {
        assert!(run(fixture.accept(5_000)).is_ok());
    }
    let copy = fixture.directory.path().join("copy.db");
    let mut last = (0, 0);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            for _ in 0..50 {
                assert!(run(fixture.accept(5_000)).is_ok());
            }
        });
        backup(&fixture.path(), &copy, |done, total| last = (done, total)).unwrap();
        writing.join().unwrap();
    });
    assert!(last.0 == last.1 && last.1 > 0, "{last:?}");
    let refused = backup(&fixture.path(), &copy, |_, _| {}).unwrap_err();
    assert!(refused.to_string().contains("already exists"), "{refused}");
    assert_eq!(
        run(fixture.store.counts()).unwrap().pending,
        100,
        "the store was not hurt"
    );
    let restored = open(&copy).unwrap();
    let pending = run(restored.counts()).unwrap().pending;
    assert!((50..=100).contains(&pending), "{pending}");
    let fetched = run(restored.fetch(EndpointId(1), NOW, 999, false)).unwrap();
    assert_eq!(fetched.deliveries.len() as u64, pending);
    for delivery in &fetched.deliveries {
        let content = run(restored.content(delivery.facts().event)).unwrap();
        assert_eq!(content.unwrap().1.payload.len(), 5_000);
    }
    let left: Vec<_> = std::fs::read_dir(fixture.directory.path())
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().into_string().ok())
        .filter(|name| name.contains(".part"))
        .collect();
    assert_eq!(left, Vec::<String>::new());
}

#[test]
fn a_closed_store_can_be_backed_up() {
    let fixture = Fixture::acme();
    assert!(run(fixture.accept(10)).is_ok());
    run(fixture.store.close()).unwrap();
    let copy = fixture.directory.path().join("copy.db");
    backup(&fixture.path(), &copy, |_, _| {}).unwrap();
    let restored = open(&copy).unwrap();
    assert_eq!(run(restored.counts()).unwrap().pending, 1);
    assert!(run(restored.tenant(id("acme"))).unwrap().is_some());
    let text = fixture.directory.path().join("notes.txt");
    std::fs::write(&text, "nothing to see here").unwrap();
    let target = fixture.directory.path().join("other.db");
    assert!(backup(&text, &target, |_, _| {}).is_err());
    assert!(!target.exists());
}
