//! A copy from a file to a database is complete and written once, even if it is interrupted.

#![allow(
    clippy::disallowed_methods,
    reason = "tests reach their own server by their own way"
)]

#[allow(dead_code, reason = "only the way to the server is wanted")]
mod engines;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use engines::{IgnoreClusterEvents, PlainDial};
use posthaste_core::id::EndpointId;
use posthaste_core::rng::Rng;
use posthaste_core::time::Timestamp;
use posthaste_store::copy::{
    CopyDestination, CopyError, RowCounts, copy, copy_master_keys, shared_keys, verify,
};
use posthaste_store::postgres::PostgresStore;
use posthaste_store::sqlite::SqliteStore;
use posthaste_store::{
    ConfirmationRequest, ConfirmationResult, Content, HandOver, Idempotency, KeyHash, NewEvent,
    OpenError, OwnerEmailLimits, OwnerEmails, Store, StoreSettings, Tenant,
};
use posthaste_store_testing::NoHandOver;
use posthaste_store_testing::contract::comparison::assert_agree;
use posthaste_store_testing::contract::{Harness, run};
use posthaste_testbed::{Database, Direction, TcpProxy};

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime").block_on(future)
}

/// A file that is not deleted when the store is dropped.
struct Kept(PathBuf);

impl Harness for Kept {
    fn open(&self, settings: StoreSettings, hand_over: Arc<dyn HandOver>) -> Arc<dyn Store> {
        Arc::new(SqliteStore::open(&self.0, settings, hand_over).expect("it opens"))
    }
}

/// Creates a file after hundreds of operations of every kind.
fn eventful(seed: u64) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("posthaste.db");
    assert_agree(seed..seed + 1, || Kept(path.clone()));
    (directory, path)
}

/// Creates a file with this number of events, whose payloads have `bytes` bytes.
fn filled(events: usize, bytes: usize) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("posthaste.db");
    let settings = StoreSettings::new(Rng::seeded(1));
    let store = SqliteStore::open(&path, settings, Arc::new(NoHandOver)).expect("it opens");
    let now = Timestamp(1_700_000_000_000);
    let tenant = Tenant::new("acme".parse().expect("an id"), "Acme".to_owned(), now);
    block_on(store.create_tenant(now, tenant)).expect("it is made");
    let event = |number: usize| NewEvent {
        idempotency: Some(Idempotency {
            key: format!("key {number}"),
            fingerprint: posthaste_core::ingest::Fingerprint::of(&[&number.to_le_bytes()]),
        }),
        ..NewEvent::new(
            "acme".parse().expect("an id"),
            Content::new(
                "a.b".parse().expect("a type"),
                Bytes::from(vec![number as u8; bytes]),
            ),
        )
    };
    // Over several days, so that there are several partitions.
    for (piece, numbers) in (0..events).collect::<Vec<_>>().chunks(500).enumerate() {
        let at = Timestamp(now.0 + piece as u64 * 40_000_000);
        let piece = numbers.iter().map(|number| event(*number)).collect();
        block_on(store.accept(at, piece)).expect("they are accepted");
    }
    block_on(store.close()).expect("it closes");
    (directory, path)
}

/// Adds a confirmation that waits, which the random operations do not make.
fn request_confirmation(path: &Path) {
    let settings = StoreSettings::new(Rng::seeded(1));
    let store = SqliteStore::open(path, settings, Arc::new(NoHandOver)).expect("it opens");
    let now = Timestamp(1_700_000_000_000);
    let tenant = Tenant::new(
        "confirming".parse().expect("an id"),
        "Confirming".to_owned(),
        now,
    );
    let request = ConfirmationRequest {
        tenant: tenant.id.clone(),
        recipient: "Owner@example.com".to_owned(),
        endpoint: EndpointId(1),
    };
    block_on(store.create_tenant(now, tenant)).expect("it is made");
    let limits = OwnerEmailLimits {
        emails: 1,
        recipients: 1,
    };
    let requested = block_on(store.request_confirmation(now, request, limits));
    assert_eq!(requested, Ok(ConfirmationResult::Queued));
    let token = KeyHash([7; 32]);
    let claimed = block_on(store.claim_confirmations(now, now, vec![token]));
    assert_eq!(claimed.map(|claimed| claimed.len()), Ok(1));
    block_on(store.close()).expect("it closes");
}

fn to(url: &str) -> CopyDestination {
    CopyDestination {
        server: url.parse().expect("a URL"),
        dial: Arc::new(PlainDial),
    }
}

fn carry(from: &Path, to: &CopyDestination) -> Result<Vec<RowCounts>, CopyError> {
    copy(from, to, |_| {})
}

#[track_caller]
fn assert_all_there(compared: &[RowCounts]) {
    assert!(compared.iter().all(RowCounts::agrees), "{compared:#?}");
}

#[test]
fn everything_is_copied() {
    let mut carried = std::collections::BTreeMap::new();
    for seed in 0..6 {
        let (_directory, from) = eventful(seed);
        request_confirmation(&from);
        let database = Database::empty();
        let there = to(&database.url());
        let compared = carry(&from, &there).expect("it is copied");
        assert_all_there(&compared);
        assert_all_there(&verify(&from, &there).expect("it is verified"));
        for kind in compared {
            *carried.entry(kind.what).or_insert(0) += kind.from;
        }
        // The stored counts agree with the rows.
        for (sum, counted) in [
            ("sum(waiting)", "SELECT count(*) FROM waiting"),
            ("sum(dead)", "SELECT count(*) FROM ended WHERE status = 3"),
        ] {
            let everywhere = format!("SELECT {sum}::bigint FROM tally WHERE endpoint_no = 0");
            let each =
                format!("SELECT coalesce({sum}, 0)::bigint FROM tally WHERE endpoint_no > 0");
            assert_eq!(database.number(&everywhere), database.number(counted));
            assert_eq!(database.number(&each), database.number(counted));
        }
        // The last attempt of a waiting delivery is also among its attempts.
        let astray = "SELECT count(*) FROM waiting w WHERE last IS NOT NULL AND NOT EXISTS \
                      (SELECT 1 FROM attempts a WHERE a.delivery_id = w.id AND a.number = w.attempts)";
        assert_eq!(database.number(astray), 0);
    }
    for (what, count) in carried {
        assert!(count > 0, "no {what} were there to be carried");
    }
}

#[test]
fn an_interrupted_copy_is_resumed() {
    let (_directory, from) = filled(5_000, 200);
    let database = Database::empty();
    let proxy = TcpProxy::to(database.address());
    let there = to(&database.url_via_proxy(&proxy));
    let mut cuts = 0;
    let mut reached = 0;
    loop {
        // Cuts a little later each time, so that every stage is interrupted.
        proxy.cut_after(Direction::ToDatabase, 100_000 + cuts * 40_000);
        match carry(&from, &there) {
            Ok(compared) => {
                assert_all_there(&compared);
                break;
            }
            Err(CopyError::Write { why, .. }) => assert!(!why.is_empty()),
            Err(CopyError::Open(OpenError::Unreachable { .. } | OpenError::Server { .. })) => {}
            Err(other) => panic!("{other}"),
        }
        cuts += 1;
        assert!(cuts < 100, "it does not get on");
        let tables = database.number("SELECT count(*) FROM pg_class WHERE relname = 'events'");
        if tables == 1 {
            let events = database.number("SELECT count(*) FROM events");
            assert!(events >= reached, "what was there is still there");
            reached = events;
        }
    }
    assert!(cuts > 3, "only {cuts} cuts");
    assert_eq!(database.number("SELECT count(*) FROM events"), 5_000);
    let marks = "SELECT count(*) FROM meta WHERE name LIKE 'copied %'";
    assert_eq!(database.number(marks), 0);
}

#[test]
fn large_payloads_are_copied_in_small_pieces() {
    let (_directory, from) = filled(40, 1 << 20);
    let database = Database::empty();
    let mut pieces = 0;
    let compared = copy(&from, &to(&database.url()), |progress| {
        pieces += usize::from(progress.what == "events" && progress.done > 0);
    });
    assert_all_there(&compared.expect("it is copied"));
    assert!(pieces >= 5, "{pieces} pieces of 8 MiB");
}

#[test]
fn a_finished_copy_is_not_repeated() {
    let (_directory, from) = filled(10, 10);
    let database = Database::empty();
    let there = to(&database.url());
    carry(&from, &there).expect("it is copied");
    database.query("DELETE FROM events WHERE id = (SELECT min(id::text)::uuid FROM events)");
    let compared = carry(&from, &there).expect("it is only compared");
    let events = compared.iter().find(|kind| kind.what == "events");
    let events = events.expect("events are counted");
    assert_eq!((events.from, events.to, events.agrees()), (10, 9, false));
}

#[test]
fn quota_usage_is_copied() {
    let (_directory, from) = filled(10, 10);
    let database = Database::empty();
    let there = to(&database.url());
    assert_all_there(&carry(&from, &there).expect("it is copied"));
    let differ = || {
        let compared = verify(&from, &there).expect("it is verified");
        let differ = compared.iter().filter(|kind| !kind.agrees());
        differ
            .map(|kind| (kind.what, kind.from, kind.to))
            .collect::<Vec<_>>()
    };
    database.query("UPDATE usage SET events = events - 1");
    assert_eq!(differ(), [("events of usage", 10, 9)]);
    database.query("DELETE FROM usage");
    let none = [("months of usage", 1, 0), ("events of usage", 10, 0)];
    assert_eq!(differ(), none);
    // A copy that was started before the usage changed is a different one.
    rusqlite::Connection::open(&from)
        .and_then(|file| file.execute("UPDATE usage SET events = events + 1", []))
        .expect("it is changed");
    let refused = carry(&from, &there);
    assert!(matches!(refused, Err(CopyError::AnotherCopy { .. })));
}

#[test]
fn a_copy_needs_an_empty_database() {
    let (_directory, from) = filled(10, 10);
    let database = Database::empty();
    let there = to(&database.url());
    let nothing = verify(&from, &there);
    assert!(matches!(nothing, Err(CopyError::NotBegun { .. })));
    database.query("INSERT INTO tenants VALUES (1, 'other', 'Other', NULL, '{}', 0, 0, false)");
    let refused = carry(&from, &there);
    assert!(matches!(
        refused,
        Err(CopyError::NotEmpty {
            what: "tenants",
            ..
        })
    ));
}

#[test]
fn a_copy_of_another_file_is_not_resumed() {
    let (_one, first) = filled(600, 10);
    let (_other, second) = filled(601, 10);
    let database = Database::empty();
    let there = to(&database.url());
    carry(&first, &there).expect("it is copied");
    let refused = carry(&second, &there);
    assert!(matches!(refused, Err(CopyError::AnotherCopy { .. })));
    // The same for a copy that is not complete.
    database.query("DELETE FROM meta WHERE name = 'copy_done'");
    let refused = carry(&second, &there);
    assert!(matches!(refused, Err(CopyError::AnotherCopy { .. })));
}

#[test]
fn both_stores_are_locked_during_a_copy() {
    let (_directory, from) = filled(10, 10);
    let database = Database::empty();
    let there = to(&database.url());
    let settings = StoreSettings::new(Rng::seeded(1));
    let running = SqliteStore::open(&from, settings, Arc::new(NoHandOver)).expect("it opens");
    let refused = carry(&from, &there);
    assert!(matches!(
        refused,
        Err(CopyError::Open(OpenError::InUse { .. }))
    ));
    block_on(running.close()).expect("it closes");
    drop(running);

    let (held, hold) = std::sync::mpsc::channel::<()>();
    let (begun, wait) = std::sync::mpsc::channel();
    let (path, first) = (from.clone(), there.clone());
    let copying = std::thread::spawn(move || {
        copy(&path, &first, |_| {
            let _ = begun.send(());
            let _ = hold.recv();
        })
    });
    wait.recv().expect("it begins");
    let locked = "SELECT count(*) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation \
                  WHERE c.relname = 'nodes' AND l.mode = 'ExclusiveLock' AND l.granted \
                  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    assert_eq!(database.number(locked), 1, "no node can register");
    drop(held);
    assert_all_there(&copying.join().expect("it ends").expect("it is copied"));
}

#[test]
fn master_keys_are_placed_once() {
    let database = Database::empty();
    let there = to(&database.url());
    assert_eq!(shared_keys(&there).expect("it can be asked"), None);
    assert!(copy_master_keys(&there, "one").expect("it can be placed"));
    assert!(!copy_master_keys(&there, "two").expect("it can be asked"));
    assert_eq!(
        shared_keys(&there).expect("it can be asked").as_deref(),
        Some("one")
    );
}

/// Opens a file first, and from the second time on the database that it was copied to.
struct Carried {
    directory: tempfile::TempDir,
    database: Database,
    opened: AtomicUsize,
}

impl Carried {
    fn new() -> Carried {
        Carried {
            directory: tempfile::tempdir().expect("a directory"),
            database: Database::empty(),
            opened: AtomicUsize::new(0),
        }
    }
}

impl Harness for Carried {
    fn keeps_stats(&self) -> bool {
        false
    }

    fn open(&self, store: StoreSettings, hand_over: Arc<dyn HandOver>) -> Arc<dyn Store> {
        let path = self.directory.path().join("posthaste.db");
        let opened = self.opened.fetch_add(1, Ordering::SeqCst);
        if opened == 0 {
            return Arc::new(SqliteStore::open(path, store, hand_over).expect("it opens"));
        }
        let there = to(&self.database.url());
        if opened == 1 {
            // On a separate thread, because the caller may be inside a runtime.
            let there = there.clone();
            let carrying = std::thread::spawn(move || carry(&path, &there));
            let compared = carrying.join().expect("it ends");
            assert_all_there(&compared.expect("it is copied"));
        }
        let settings = engines::settings(there.server);
        let store = PostgresStore::open(settings, store, hand_over, Arc::new(IgnoreClusterEvents));
        Arc::new(store.expect("it opens"))
    }
}

#[test]
fn a_partial_copy_cannot_be_served() {
    let (_directory, from) = filled(10, 10);
    let database = Database::empty();
    let there = to(&database.url());
    carry(&from, &there).expect("it is copied");
    let open = || {
        let settings = engines::settings(there.server.clone());
        let store = StoreSettings::new(Rng::seeded(1));
        PostgresStore::open(
            settings,
            store,
            Arc::new(NoHandOver),
            Arc::new(IgnoreClusterEvents),
        )
    };
    database.query("DELETE FROM meta WHERE name = 'copy_done'");
    let refused = open().err().expect("it is not whole");
    assert!(matches!(refused, OpenError::HalfCopied { .. }), "{refused}");
    database.query("INSERT INTO meta (name, value) VALUES ('copy_done', 1)");
    let store = open().expect("it is whole");
    block_on(store.close()).expect("it closes");
}

#[test]
fn a_copied_store_behaves_like_the_model() {
    assert_agree(0..4, Carried::new);
}

/// These cases close the store and open it again: here, as a copy.
#[test]
fn one_off_requests_and_the_keys_of_tenants_are_copied() {
    for case in [
        "an_origin_endpoint_is_found_by_its_url_only",
        "a_request_is_read_back_with_its_delivery",
        "the_keys_of_a_tenant_are_read_back",
    ] {
        run("one_off_requests", case, &Carried::new());
    }
}
