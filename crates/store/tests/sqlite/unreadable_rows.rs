//! Rows of deliveries that cannot be read: a fetch passes over them.

use posthaste_core::delivery::{DeadReason, OrderingKey};
use posthaste_core::id::{DeliveryId, EndpointId};
use posthaste_core::lane::Fetched;
use posthaste_store::{AcceptResult, Lists, NewEvent, Store, StoreError};

use crate::fixture::{Fixture, NOW, event, id, run};

fn accept(fixture: &Fixture, ordering: Option<u64>) -> DeliveryId {
    let event = NewEvent {
        ordering: ordering.map(OrderingKey),
        ..event("acme", 3)
    };
    match run(fixture.store.accept(NOW, vec![event])).unwrap() {
        AcceptResult::Done(done) => done[0].event.deliveries[0].id,
        refused @ (AcceptResult::Conflict(_)
        | AcceptResult::NoSuchTenant
        | AcceptResult::NoSuchEndpoint
        | AcceptResult::TooManyDeliveries { .. }
        | AcceptResult::OverLimit { .. }) => panic!("{refused:?}"),
    }
}

/// Damages the rows of all deliveries so far.
fn damage(fixture: &Fixture) {
    let conn = rusqlite::Connection::open(fixture.path()).unwrap();
    conn.execute("UPDATE deliveries SET granted = 'rubbish'", [])
        .unwrap();
}

fn fetch(fixture: &Fixture, limit: usize, ordered: bool) -> Result<Fetched, StoreError> {
    run(fixture.store.fetch(EndpointId(1), NOW, limit, ordered))
}

fn ids(fetched: &Fetched) -> Vec<DeliveryId> {
    fetched.deliveries.iter().map(|it| it.id()).collect()
}

#[test]
fn a_fetch_passes_over_unreadable_rows() {
    let fixture = Fixture::acme();
    let damaged = vec![accept(&fixture, None), accept(&fixture, None)];
    damage(&fixture);
    let sound = [accept(&fixture, None), accept(&fixture, None)];
    for limit in [1, 2, 9] {
        let fetched = fetch(&fixture, limit, false).unwrap();
        assert_eq!(ids(&fetched), sound[..limit.min(2)]);
        assert_eq!(fetched.unreadable, damaged);
        assert_eq!(fetched.next_due.is_some(), limit < 2);
    }
    let refused = run(fixture.store.delivery(id("acme"), damaged[0]));
    assert!(matches!(refused, Err(StoreError::Unreadable(_))));
}

#[test]
fn deliveries_behind_an_unreadable_row_wait() {
    let fixture = Fixture::acme();
    let damaged = accept(&fixture, Some(1));
    damage(&fixture);
    accept(&fixture, Some(1));
    let other = accept(&fixture, Some(2));
    let fetched = fetch(&fixture, 9, true).unwrap();
    assert_eq!(ids(&fetched), [other]);
    assert_eq!(fetched.unreadable, [damaged]);
    assert!(fetched.blocked);
}

#[test]
fn a_sweep_passes_over_unreadable_rows() {
    let fixture = Fixture::acme();
    let damaged = accept(&fixture, None);
    damage(&fixture);
    accept(&fixture, None);
    accept(&fixture, None);
    let conn = rusqlite::Connection::open(fixture.path()).unwrap();
    let waiting = "UPDATE deliveries SET last = 'rubbish' WHERE granted IS NOT 'rubbish'";
    conn.execute(waiting, []).unwrap();
    let reason = DeadReason::EndpointDisabled;
    let swept = run(fixture
        .store
        .sweep(NOW, EndpointId(1), reason, [].into(), 9))
    .unwrap();
    assert_eq!((swept.ended, swept.more), (2, false));
    let fetched = fetch(&fixture, 9, false).unwrap();
    assert_eq!(
        (ids(&fetched), fetched.unreadable),
        (Vec::new(), vec![damaged])
    );
}

#[test]
fn a_store_with_very_many_unreadable_rows_is_an_error() {
    let fixture = Fixture::acme();
    for _ in 0..257 {
        accept(&fixture, None);
    }
    damage(&fixture);
    let refused = fetch(&fixture, 9, false);
    assert!(matches!(refused, Err(StoreError::Unreadable(_))));
}
