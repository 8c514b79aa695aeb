//! Large requests, whose payloads are stored in pieces before their events: crashes, full disks, refusals and retention.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use posthaste_core::id::{EndpointId, EventId};
use posthaste_core::ingest::Fingerprint;
use posthaste_core::lane::EndpointStatus;
use posthaste_core::quota::Quotas;
use posthaste_core::time::{Span, Timestamp};
use posthaste_store::{
    AcceptResult, AcceptedOrStored, Content, CreateResult, DisabledReason, EventFilter,
    Idempotency, Lists, NewEvent, PageRequest, Retention, Store, StoreError,
};

use crate::fixture::{Fixture, NOW, event, id, open, run, tenant};

const EVENTS: usize = 12;
const PAYLOAD_BYTES: usize = 256 * 1_024;
/// Payloads that one transaction stores.
const PIECE: usize = 4;
const PIECES: usize = EVENTS / PIECE;
/// Maximum growth of the write-ahead log with one transaction: a piece, and pages of tables and indexes.
const MAX_LOG_BYTES: u64 = 1_024 * 1_024 + 128 * 1_024;

fn payload(number: usize) -> Bytes {
    Bytes::from(vec![number as u8; PAYLOAD_BYTES])
}

fn large(tenant: &str) -> Vec<NewEvent> {
    let keyed = |number| {
        let event = event(tenant, 0);
        let content = Content {
            payload: payload(number),
            ..Content::clone(&event.content)
        };
        NewEvent {
            content: Arc::new(content),
            idempotency: Some(Idempotency {
                key: format!("key-{number}"),
                fingerprint: Fingerprint::of(&[&number.to_le_bytes()]),
            }),
            ..event
        }
    };
    (0..EVENTS).map(keyed).collect()
}

fn accepted(answer: Result<AcceptResult, StoreError>) -> Vec<AcceptedOrStored> {
    match answer {
        Ok(AcceptResult::Done(accepted)) => accepted,
        other => panic!("{other:?}"),
    }
}

fn number(path: &Path, sql: &str) -> usize {
    let conn = rusqlite::Connection::open(path).unwrap();
    let number: i64 = conn.query_row(sql, [], |row| row.get(0)).unwrap();
    number as usize
}

/// Returns the number of rows with payloads, and of requests that are not accepted yet.
fn staged(path: &Path) -> (usize, usize) {
    let rows = number(path, "SELECT count(*) FROM payloads");
    (rows, number(path, "SELECT count(*) FROM staged_payloads"))
}

fn events(store: &dyn Lists) -> Vec<EventId> {
    let page = PageRequest {
        limit: 100,
        before: None,
    };
    let page = run(store.events(id("acme"), EventFilter::default(), page)).unwrap();
    page.items.iter().rev().map(|it| it.event.id).collect()
}

fn assert_payloads(store: &dyn Store, accepted: &[AcceptedOrStored]) {
    for (number, event) in accepted.iter().enumerate() {
        let (_, content) = run(store.content(event.event.id)).unwrap().unwrap();
        assert!(content.payload == payload(number), "{number}");
    }
}

/// Copies the files of a store after every commit, as a crash at that time would leave them.
fn copy_every_commit(fixture: &Fixture) -> Arc<Mutex<Vec<PathBuf>>> {
    let copies = Arc::new(Mutex::new(Vec::new()));
    let (made, path) = (copies.clone(), fixture.path());
    fixture.faults.after_commit(move || {
        let mut made = made.lock().unwrap();
        let copy = path.with_file_name(format!("copy-{}.db", made.len()));
        for end in ["", "-wal"] {
            let from = format!("{}{end}", path.display());
            std::fs::copy(from, format!("{}{end}", copy.display())).unwrap();
        }
        made.push(copy);
    });
    copies
}

#[test]
fn a_crash_between_two_pieces_leaves_nothing_of_the_request() {
    let fixture = Fixture::acme();
    let copies = copy_every_commit(&fixture);
    let original = accepted(run(fixture.store.accept(NOW, large("acme"))));
    let copies = copies.lock().unwrap().clone();
    assert_eq!(copies.len(), PIECES + 1);
    for (piece, copy) in copies.iter().enumerate() {
        let is_accepted = piece == PIECES;
        let expected = match is_accepted {
            false => ((piece + 1) * PIECE, 1),
            true => (EVENTS, 0),
        };
        assert_eq!(staged(copy), expected);
        let store = open(copy).unwrap();
        let found = events(&store);
        let pending = run(store.counts()).unwrap().pending;
        if is_accepted {
            let ids: Vec<EventId> = original.iter().map(|it| it.event.id).collect();
            assert_eq!((found, pending), (ids, EVENTS as u64));
        } else {
            assert_eq!((found, pending), (Vec::new(), 0), "after piece {piece}");
        }
        // The caller got no answer, and sends the request again.
        let again = accepted(run(store.accept(NOW, large("acme"))));
        assert!(again.iter().all(|it| it.is_new != is_accepted), "{piece}");
        assert_payloads(&store, &again);
        assert_eq!(run(store.counts()).unwrap().pending, EVENTS as u64);
        run(store.close()).unwrap();
        assert_eq!(staged(copy), (EVENTS, 0), "the rest of piece {piece}");
    }
}

#[test]
fn others_are_served_between_two_pieces() {
    let fixture = Fixture::acme();
    let made = fixture.store.create_tenant(NOW, tenant("other"));
    assert_eq!(run(made), Ok(CreateResult::Created));
    fixture.add_endpoint(100, "other");
    let wal = format!("{}-wal", fixture.path().display());
    let log_bytes = move || std::fs::metadata(&wal).unwrap().len();
    let (mut before, store) = (log_bytes(), fixture.store.clone());
    let others = Arc::new(Mutex::new(Vec::new()));
    let (sizes, sent) = (Arc::new(Mutex::new(Vec::new())), others.clone());
    let grown = sizes.clone();
    fixture.faults.after_commit(move || {
        let after = log_bytes();
        grown.lock().unwrap().push(after - before);
        before = after;
        let mut sent = sent.lock().unwrap();
        if sent.len() < PIECES {
            sent.push(store.accept(NOW, vec![event("other", 10)]));
        }
    });
    let acme = accepted(run(fixture.store.accept(NOW, large("acme"))));
    for other in std::mem::take(&mut *others.lock().unwrap()) {
        accepted(run(other));
    }
    let taken = fixture.hand.taken.lock().unwrap();
    let endpoints: Vec<u128> = taken
        .iter()
        .map(|it| it.delivery.facts().endpoint.0)
        .collect();
    assert_eq!(endpoints[..PIECES], [100; PIECES], "before the last piece");
    assert_eq!(endpoints.len(), PIECES + EVENTS);
    assert_payloads(&*fixture.store, &acme);
    let largest = sizes.lock().unwrap().iter().max().copied();
    assert!(largest.unwrap() <= MAX_LOG_BYTES, "{largest:?}");
    // The next group must not own the store.
    fixture.faults.after_commit(|| ());
}

#[test]
fn a_refused_request_stores_no_payloads() {
    let fixture = Fixture::acme();
    let quotas = Quotas {
        per_month: Some(EVENTS as u64 - 1),
        ..Quotas::UNLIMITED
    };
    let mut conflicting = large("acme");
    let first = vec![conflicting[0].clone()];
    accepted(run(fixture.store.accept(NOW, first)));
    conflicting[0].idempotency.as_mut().unwrap().fingerprint = Fingerprint::of(&[b"other"]);
    let mut large_to_none = large("acme");
    large_to_none[1].only = Some(EndpointId(77));
    let rows = number(&fixture.path(), "SELECT count(*) FROM payloads");
    assert_eq!(rows, 0, "a single payload is in the row of its event");
    let commits = fixture.faults.commits();
    let refused = run(fixture.store.accept(NOW, conflicting));
    assert_eq!(refused, Ok(AcceptResult::Conflict(vec![0])));
    let refused = run(fixture.store.accept(NOW, large_to_none));
    assert_eq!(refused, Ok(AcceptResult::NoSuchEndpoint));
    let refused = run(fixture.store.accept_within(NOW, large("acme"), quotas));
    assert!(matches!(refused, Ok(AcceptResult::OverLimit { .. })));
    let refused = run(fixture.store.accept(NOW, large("nobody")));
    assert_eq!(refused, Ok(AcceptResult::NoSuchTenant));
    assert_eq!(fixture.faults.commits() - commits, 4);
    assert_eq!(staged(&fixture.path()), (0, 0));
}

#[test]
fn a_request_that_is_refused_after_its_payloads_were_stored_leaves_nothing() {
    let fixture = Fixture::acme();
    let mut to_one = large("acme");
    for event in &mut to_one {
        event.only = Some(EndpointId(1));
    }
    let (store, mut changed) = (fixture.store.clone(), None);
    fixture.faults.after_commit(move || {
        changed.get_or_insert_with(|| {
            let (disabled, manual) = (EndpointStatus::Disabled, Some(DisabledReason::Manual));
            store.set_endpoint_status(NOW, EndpointId(1), disabled, manual, None)
        });
    });
    let refused = run(fixture.store.accept(NOW, to_one));
    assert_eq!(refused, Ok(AcceptResult::NoSuchEndpoint));
    // Operations of the tenant wait until the payloads are deleted.
    accepted(run(fixture.accept(10)));
    assert_eq!(staged(&fixture.path()), (0, 0));
    let counted = number(&fixture.path(), "SELECT sum(events) FROM usage");
    assert_eq!(counted, 1, "only the accepted event counts");
    fixture.faults.after_commit(|| ());
}

#[test]
fn a_full_disk_between_two_pieces_leaves_nothing() {
    let fixture = Fixture::acme();
    let faults = fixture.faults.clone();
    let path = fixture.path();
    fixture.faults.after_commit({
        let faults = Arc::downgrade(&faults);
        move || {
            let pages = number(&path, "PRAGMA page_count") as u32;
            if let Some(faults) = faults.upgrade() {
                faults.limit_pages(pages + 10);
            }
        }
    });
    let refused = run(fixture.store.accept(NOW, large("acme")));
    assert_eq!(refused, Err(StoreError::Full));
    assert!(events(&*fixture.store).is_empty());
    run(fixture.store.close()).unwrap();
    let store = open(&fixture.path()).unwrap();
    let again = accepted(run(store.accept(NOW, large("acme"))));
    assert!(again.iter().all(|it| it.is_new));
    assert_payloads(&store, &again);
    run(store.close()).unwrap();
    assert_eq!(staged(&fixture.path()), (EVENTS, 0));
}

#[test]
fn retention_deletes_payloads_that_were_stored_before_their_events() {
    let fixture = Fixture::acme();
    let made = fixture.store.create_tenant(NOW, tenant("quiet"));
    assert_eq!(run(made), Ok(CreateResult::Created));
    // Without endpoints the events have finished at once.
    let stored = accepted(run(fixture.store.accept(NOW, large("quiet"))));
    assert_eq!(staged(&fixture.path()), (EVENTS, 0));
    let step = |hours: u64, payloads| {
        let retention = Retention {
            payloads,
            ..Retention::all(Span::from_hours(10), 5)
        };
        let now = Timestamp(NOW.0 + hours * 3_600_000);
        while run(fixture.store.step_retention(now, retention.clone()))
            .unwrap()
            .more
        {}
    };
    step(1, Some(Span::from_hours(2)));
    assert_payloads(&*fixture.store, &stored);
    step(3, Some(Span::from_hours(2)));
    assert_eq!(staged(&fixture.path()), (0, 0));
    assert!(
        run(fixture.store.content(stored[0].event.id))
            .unwrap()
            .is_none()
    );
    let again = accepted(run(fixture.store.accept(NOW, large("quiet"))));
    assert!(
        again.iter().all(|it| !it.is_new),
        "the events are still stored"
    );
    step(11, None);
    let again = accepted(run(fixture.store.accept(NOW, large("quiet"))));
    assert!(again.iter().all(|it| it.is_new));
    assert_eq!(staged(&fixture.path()), (EVENTS, 0));
    step(11, None);
    assert_eq!(staged(&fixture.path()), (0, 0), "deleted with their events");
}
