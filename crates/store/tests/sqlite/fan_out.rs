//! Large requests, whose deliveries are stored in pieces: fairness, crashes, full disks, and changes meanwhile.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use posthaste_core::delivery::{DeadReason, State};
use posthaste_core::id::{DeliveryId, EndpointId};
use posthaste_core::ingest::Fingerprint;
use posthaste_core::lane::EndpointStatus;
use posthaste_core::time::{Span, Timestamp};
use posthaste_store::{
    AcceptResult, AcceptedDelivery, AcceptedOrStored, Answer, CreateResult, DeliveryFilter,
    DisabledReason, Idempotency, Lists, NewEvent, PageRequest, Retention, Store, StoreError,
    StoreSettings,
};

use crate::fixture::{BlockingHandOver, Fixture, NOW, event, id, open_with, run, settings, tenant};

/// More than two pieces, cut within an event.
const EVENTS: usize = 100;
const ENDPOINTS: usize = 13;
const DELIVERIES: usize = EVENTS * ENDPOINTS;
const PIECE: usize = 512;
/// The rows of a full group, and of an operation that was taken before it was full.
const MAX_ROWS: u64 = 2_048 + 1_100;

fn large(events: usize) -> Vec<NewEvent> {
    let keyed = |number| NewEvent {
        idempotency: Some(Idempotency {
            key: format!("key-{number}"),
            fingerprint: Fingerprint::of(&[b"same"]),
        }),
        ..event("acme", 20)
    };
    (0..events).map(keyed).collect()
}

fn with_endpoints(settings: StoreSettings) -> Fixture {
    let fixture = Fixture::acme_with(settings);
    for number in 2..=ENDPOINTS {
        fixture.add_endpoint(number as u128, "acme");
    }
    for (number, name) in [(100, "other"), (101, "third")] {
        let made = fixture.store.create_tenant(NOW, tenant(name));
        assert_eq!(run(made), Ok(CreateResult::Created));
        fixture.add_endpoint(number, name);
    }
    fixture
}

/// A store that has stored the events of a large request and `stored` of its deliveries, and waits in a hand-over.
fn begun(stored: usize) -> (Fixture, Answer<AcceptResult>) {
    let fixture = with_endpoints(settings());
    fixture.hand.shut();
    let other = fixture.store.accept(NOW, vec![event("other", 1)]);
    fixture.hand.await_writer();
    // It is in the transaction that stores the events, so that there is a hand-over to wait in.
    let third = fixture.store.accept(NOW, vec![event("third", 1)]);
    let answer = fixture.store.accept(NOW, large(EVENTS));
    fixture.hand.pass();
    let passed = stored.div_ceil(PIECE);
    (0..passed).for_each(|_| fixture.hand.pass());
    assert!(run(other).is_ok());
    if passed > 0 {
        assert!(run(third).is_ok());
    }
    assert_eq!(rows(&fixture.path(), "fan_outs"), 1);
    assert_eq!(rows(&fixture.path(), "deliveries"), 2 + stored as i64);
    (fixture, answer)
}

fn rows(path: &Path, table: &str) -> i64 {
    let conn = rusqlite::Connection::open(path).unwrap();
    let sql = format!("SELECT count(*) FROM {table}");
    conn.query_row(&sql, [], |row| row.get(0)).unwrap()
}

fn is_answered(answer: &mut Answer<AcceptResult>) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    matches!(answer.as_mut().poll(&mut context), Poll::Ready(_))
}

fn ingested(answer: Result<AcceptResult, StoreError>) -> Vec<AcceptedOrStored> {
    match answer {
        Ok(AcceptResult::Done(ingested)) => ingested,
        other => panic!("{other:?}"),
    }
}

/// Returns the deliveries of a request.
fn deliveries(ingested: &[AcceptedOrStored]) -> Vec<AcceptedDelivery> {
    let events = ingested.iter().map(|it| &it.event);
    events.flat_map(|event| event.deliveries.clone()).collect()
}

fn ids(deliveries: &[AcceptedDelivery]) -> Vec<DeliveryId> {
    let mut ids: Vec<DeliveryId> = deliveries.iter().map(|it| it.id).collect();
    ids.sort_unstable();
    ids
}

/// Returns all deliveries of acme, or those to one endpoint, as lists show them.
fn listed(store: &dyn Store, endpoint: Option<u128>) -> Vec<DeliveryId> {
    let filter = DeliveryFilter {
        endpoint: endpoint.map(EndpointId),
        ..DeliveryFilter::default()
    };
    let mut found = Vec::new();
    let mut before = None;
    loop {
        let page = PageRequest {
            limit: 5_000,
            before,
        };
        let page = run(store.deliveries(id("acme"), filter.clone(), page)).unwrap();
        found.extend(page.items.iter().map(|item| item.delivery.id()));
        match page.next {
            Some(next) => before = Some(next),
            None => break,
        }
    }
    found.sort_unstable();
    found
}

fn handed_over_to_acme(hand: &BlockingHandOver) -> Vec<DeliveryId> {
    let taken = hand.taken.lock().unwrap();
    let to_acme = taken
        .iter()
        .filter(|it| it.delivery.facts().endpoint < EndpointId(100));
    to_acme.map(|it| it.delivery.id()).collect()
}

#[test]
fn others_are_served_between_the_pieces() {
    let (fixture, mut answer) = begun(0);
    let mut repeated = fixture.store.accept(NOW, large(EVENTS));
    fixture.hand.pass();
    for piece in 1..=2 {
        let between = fixture.store.accept(NOW, vec![event("other", 1)]);
        fixture.hand.pass();
        // It was written with the next piece, or before it.
        if piece == 2 {
            fixture.hand.open();
        } else {
            fixture.hand.pass();
        }
        assert!(run(between).is_ok());
        if piece == 1 {
            assert!(!is_answered(&mut answer), "a part is still missing");
            assert!(!is_answered(&mut repeated), "it waits for the first");
        }
    }
    let first = ingested(run(answer));
    assert!(first.iter().all(|it| it.is_new));
    let accepted = ids(&deliveries(&first));
    assert_eq!(accepted.len(), DELIVERIES);
    let again = ingested(run(repeated));
    assert!(again.iter().all(|it| !it.is_new));
    assert_eq!(ids(&deliveries(&again)), accepted);
    let handed_over = handed_over_to_acme(&fixture.hand);
    assert_eq!(handed_over, accepted, "each once, in order");
    assert_eq!(listed(&*fixture.store, None), accepted);
    assert_eq!(rows(&fixture.path(), "fan_outs"), 0);
    let (most_rows, _) = fixture.faults.take_largest();
    assert!(most_rows <= MAX_ROWS, "{most_rows}");
}

/// Copies the files of a store, as a crash would leave them.
fn crashed(fixture: &Fixture, name: &str) -> PathBuf {
    let copy = fixture.directory.path().join(name);
    for end in ["", "-wal"] {
        let from = format!("{}{end}", fixture.path().display());
        std::fs::copy(from, format!("{}{end}", copy.display())).unwrap();
    }
    copy
}

#[test]
fn a_large_request_is_completed_after_a_crash() {
    for stored in [0, PIECE, 2 * PIECE] {
        let (fixture, answer) = begun(stored);
        let copy = crashed(&fixture, "copy.db");
        let hand = Arc::new(BlockingHandOver::default());
        let store = open_with(&copy, hand.clone());
        // The request is completed before further operations of the tenant.
        let again = ingested(run(store.accept(NOW, large(EVENTS))));
        assert!(again.iter().all(|it| !it.is_new), "{stored}");
        let accepted = ids(&deliveries(&again));
        assert_eq!(accepted.len(), DELIVERIES);
        assert_eq!(listed(&store, None), accepted, "{stored}");
        assert_eq!(handed_over_to_acme(&hand), accepted[stored..]);
        assert_eq!(run(store.counts()).unwrap().pending, 2 + DELIVERIES as u64);
        let contents = hand.taken.lock().unwrap().clone();
        assert!(contents.iter().all(|it| it.content.payload.len() == 20));
        // Its ids are not given again, even if the clock went back.
        let later = Timestamp(NOW.0 - 1_000);
        let next = ingested(run(store.accept(later, vec![event("acme", 1)])));
        assert!(
            deliveries(&next)
                .iter()
                .all(|it| it.id > accepted[DELIVERIES - 1])
        );
        run(store.close()).unwrap();
        assert_eq!(rows(&copy, "fan_outs"), 0);
        // The store that did not crash has accepted the same.
        fixture.hand.open();
        assert_eq!(ids(&deliveries(&ingested(run(answer)))), accepted);
    }
}

#[test]
fn ids_that_are_listed_and_not_stored_are_not_given_again() {
    let (fixture, answer) = begun(0);
    let copy = crashed(&fixture, "copy.db");
    let hand = Arc::new(BlockingHandOver::default());
    hand.shut();
    let store = open_with(&copy, hand.clone());
    hand.await_writer();
    // The clock went back, and only a part of the deliveries is stored.
    let other = store.accept(Timestamp(NOW.0 - 1_000), vec![event("other", 1)]);
    hand.open();
    let other = deliveries(&ingested(run(other)));
    let again = ingested(run(store.accept(NOW, large(EVENTS))));
    let accepted = ids(&deliveries(&again));
    assert!(other[0].id > accepted[DELIVERIES - 1]);
    fixture.hand.open();
    assert!(run(answer).is_ok());
}

#[test]
fn a_closed_store_has_completed_its_large_requests() {
    let (fixture, answer) = begun(PIECE);
    let closed = fixture.store.close();
    fixture.hand.open();
    assert_eq!(run(closed), Ok(()));
    assert_eq!(deliveries(&ingested(run(answer))).len(), DELIVERIES);
    assert_eq!(rows(&fixture.path(), "fan_outs"), 0);
    assert_eq!(rows(&fixture.path(), "deliveries"), 2 + DELIVERIES as i64);
}

#[test]
fn deliveries_to_endpoints_that_were_disabled_meanwhile_end() {
    let (fixture, answer) = begun(PIECE);
    let store = &fixture.store;
    let statuses = [
        (1, EndpointStatus::Disabled, Some(DisabledReason::Manual)),
        (2, EndpointStatus::Deleted, None),
        (3, EndpointStatus::Paused, None),
    ];
    let changed = statuses.map(|(endpoint, status, reason)| {
        store.set_endpoint_status(NOW, EndpointId(endpoint), status, reason, None)
    });
    fixture.hand.open();
    for changed in changed {
        assert_eq!(run(changed), Ok(true));
    }
    let accepted = deliveries(&ingested(run(answer)));
    // The first piece was committed before the change.
    let expected = [
        (1, DeadReason::EndpointDisabled),
        (2, DeadReason::EndpointDeleted),
    ];
    let mut failed_in_all = 0;
    for (endpoint, reason) in expected {
        let endpoint = EndpointId(endpoint);
        let mut waiting = 0;
        let to_it = accepted.iter().filter(|it| it.endpoint == endpoint);
        for delivery in to_it.map(|it| it.id) {
            let read = run(store.delivery(id("acme"), delivery)).unwrap();
            match read.unwrap().0.delivery.state() {
                State::Pending(_) => waiting += 1,
                State::Failed { reason: why, .. } => {
                    assert_eq!(why, reason);
                    failed_in_all += 1;
                }
                other @ (State::InProgress { .. }
                | State::Retrying(_)
                | State::Held(_)
                | State::Succeeded { .. }
                | State::Cancelled { .. }) => panic!("{other:?}"),
            }
        }
        assert_eq!(run(store.pending(endpoint)), Ok(waiting));
        assert_eq!(waiting, PIECE as u64 / ENDPOINTS as u64 + 1);
        let swept = run(store.sweep(NOW, endpoint, reason, Arc::new([]), 1_000));
        assert_eq!(swept.map(|swept| swept.ended as u64), Ok(waiting));
        assert_eq!(run(store.pending(endpoint)), Ok(0));
        failed_in_all += waiting;
    }
    assert_eq!(run(store.pending(EndpointId(3))), Ok(EVENTS as u64));
    assert_eq!(failed_in_all, 2 * EVENTS as u64);
    assert_eq!(run(store.counts()).unwrap().dead_letters, failed_in_all);
    // What is dead was not handed over.
    let handed_over = handed_over_to_acme(&fixture.hand);
    let late = handed_over[PIECE..].iter();
    let owner: BTreeMap<_, _> = accepted.iter().map(|it| (it.id, it.endpoint)).collect();
    assert!(late.clone().count() > 0);
    assert!(late.into_iter().all(|id| owner[id].0 >= 3));
}

#[test]
fn a_full_disk_delays_the_rest_of_a_large_request() {
    let (fixture, answer) = begun(PIECE);
    fixture.faults.limit_pages(1);
    fixture.hand.open();
    // The first piece is in its hand-over already, and the second finds no room.
    let failed = run(answer);
    assert!(
        matches!(failed, Err(StoreError::Unavailable(_))),
        "{failed:?}"
    );
    assert_eq!(rows(&fixture.path(), "fan_outs"), 1);
    // Other operations of the tenant do not wait for it.
    let again = ingested(run(fixture.store.accept(NOW, large(EVENTS))));
    assert!(again.iter().all(|it| !it.is_new));
    fixture.faults.limit_pages(0);
    fixture.hand.await_taken(2 + DELIVERIES);
    assert_eq!(handed_over_to_acme(&fixture.hand), ids(&deliveries(&again)));
    run(fixture.store.close()).unwrap();
    assert_eq!(rows(&fixture.path(), "fan_outs"), 0);
}

#[test]
fn retention_keeps_events_whose_deliveries_are_not_stored_yet() {
    let (fixture, answer) = begun(0);
    let much_later = Timestamp(NOW.0 + 86_400_000);
    let retention = Retention::all(Span::from_hours(1), 1_000);
    let step = fixture.store.step_retention(much_later, retention);
    fixture.hand.open();
    assert_eq!(run(step).map(|step| step.events), Ok(0));
    let accepted = ids(&deliveries(&ingested(run(answer))));
    assert_eq!(rows(&fixture.path(), "events"), 2 + EVENTS as i64);
    assert_eq!(listed(&*fixture.store, None), accepted);
}

const OTHERS: u128 = 8;

#[test]
fn deliveries_are_listed_although_the_history_was_written_past_them() {
    let fixture = with_endpoints(StoreSettings {
        max_deliveries_per_request: 1_000 * ENDPOINTS as u64,
        ..settings()
    });
    let name = |number: u128| format!("other-{number}");
    for number in 0..OTHERS {
        let made = fixture.store.create_tenant(NOW, tenant(&name(number)));
        assert_eq!(run(made), Ok(CreateResult::Created));
        fixture.add_endpoint(200 + number, &name(number));
    }
    fixture.hand.shut();
    let answer = fixture.store.accept(NOW, large(1_000));
    fixture.hand.await_writer();
    // Tenants take turns, so many others write most of the rows meanwhile.
    let batch = |number| (0..500).map(|_| event(&name(number), 1)).collect();
    let others: Vec<_> = (0..64)
        .map(|number| fixture.store.accept(NOW, batch(number % OTHERS)))
        .collect();
    fixture.hand.open();
    for other in others {
        assert_eq!(ingested(run(other)).len(), 500);
    }
    let accepted = deliveries(&ingested(run(answer)));
    let mark = "SELECT value FROM meta WHERE name = 'deliveries_up_to'";
    let conn = rusqlite::Connection::open(fixture.path()).unwrap();
    let mark: i64 = conn.query_row(mark, [], |row| row.get(0)).unwrap();
    let greatest = "SELECT max(key) FROM deliveries WHERE endpoint_no = \
                    (SELECT min(no) FROM endpoints)";
    let greatest: i64 = conn.query_row(greatest, [], |row| row.get(0)).unwrap();
    assert!(mark > greatest, "the history was never ahead");
    assert_eq!(listed(&*fixture.store, None), ids(&accepted));
    for endpoint in [1, ENDPOINTS as u128] {
        let to_it = accepted.iter().filter(|it| it.endpoint.0 == endpoint);
        let to_it: Vec<_> = to_it.copied().collect();
        assert_eq!(listed(&*fixture.store, Some(endpoint)), ids(&to_it));
    }
}
