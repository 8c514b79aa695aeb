//! Lists and retention runs over rows on both sides of the history mark.

use std::collections::BTreeSet;

use posthaste_core::id::{DeliveryId, EndpointId};
use posthaste_core::time::{Span, Timestamp};
use posthaste_store::{
    AcceptResult, CreateResult, DeliveryFilter, EventFilter, Lists, PageRequest, Retention, Store,
    StoredStatus,
};

use crate::fixture::{Fixture, NOW, event, id, open, run, succeed, tenant};

/// More than one part of the history contains.
const EVENTS: usize = 20_000;
const BATCH: usize = 1_000;

fn mark(fixture: &Fixture) -> i64 {
    let conn = rusqlite::Connection::open(fixture.path()).unwrap();
    conn.query_row(
        "SELECT value FROM meta WHERE name = 'deliveries_up_to'",
        [],
        |row| row.get(0),
    )
    .unwrap()
}

/// Returns all deliveries that a filter finds, page by page.
fn listed(fixture: &dyn Store, tenant: &str, filter: &DeliveryFilter) -> Vec<DeliveryId> {
    let mut found = Vec::new();
    let mut before = None;
    loop {
        let page = PageRequest {
            limit: 5_000,
            before,
        };
        let page = run(fixture.deliveries(id(tenant), filter.clone(), page)).unwrap();
        found.extend(page.items.iter().map(|item| item.delivery.id()));
        match page.next {
            Some(next) => before = Some(next),
            None => return found,
        }
    }
}

#[test]
fn lists_continue_beyond_the_history_mark() {
    let fixture = Fixture::acme();
    let other = fixture.store.create_tenant(NOW, tenant("other"));
    assert_eq!(run(other), Ok(CreateResult::Created));
    fixture.add_endpoint(2, "acme");
    fixture.add_endpoint(3, "other");
    let mut events = 0;
    for batch in 0..EVENTS / BATCH {
        let owner = ["acme", "other"][batch % 2];
        let list = (0..BATCH).map(|_| event(owner, 1)).collect();
        let at = Timestamp(NOW.0 + batch as u64);
        let Ok(AcceptResult::Done(done)) = run(fixture.store.accept(at, list)) else {
            panic!("it is not accepted");
        };
        events += done.len();
    }
    let sent: Vec<_> = fixture.hand.taken.lock().unwrap().clone();
    for _ in 0..1_000 {
        if mark(&fixture) > 0 {
            break;
        }
        run(fixture.store.probe(NOW)).unwrap();
    }
    assert!(mark(&fixture) > 0, "the history was never written");
    // Deliveries that have ended, on both sides of the mark.
    let ended: Vec<_> = sent.iter().step_by(97).collect();
    let written: Vec<_> = ended
        .iter()
        .map(|handed| succeed(&fixture.store, &handed.delivery))
        .collect();
    for written in written {
        assert!(written.recv().unwrap().is_ok());
    }
    let newest_first = |wanted: &dyn Fn(u128) -> bool| -> Vec<DeliveryId> {
        let deliveries = sent.iter().rev().map(|handed| &handed.delivery);
        let wanted = deliveries.filter(|it| wanted(it.facts().endpoint.0));
        wanted.map(|it| it.id()).collect()
    };
    let everything = DeliveryFilter::default();
    let to = |number| DeliveryFilter {
        endpoint: Some(EndpointId(number)),
        ..DeliveryFilter::default()
    };
    let store = &*fixture.store;
    assert_eq!(
        listed(store, "acme", &everything),
        newest_first(&|no| no != 3)
    );
    assert_eq!(listed(store, "acme", &to(2)), newest_first(&|no| no == 2));
    assert_eq!(listed(store, "other", &to(3)), newest_first(&|no| no == 3));
    assert_eq!(listed(store, "other", &to(1)), []);
    let succeeded = DeliveryFilter {
        status: Some(StoredStatus::Succeeded),
        ..to(1)
    };
    let found: BTreeSet<_> = listed(store, "acme", &succeeded).into_iter().collect();
    let to_first = ended
        .iter()
        .filter(|it| it.delivery.facts().endpoint == EndpointId(1));
    assert_eq!(found, to_first.map(|it| it.delivery.id()).collect());
    let mut found = 0;
    for owner in ["acme", "other"] {
        let mut before = None;
        loop {
            let page = PageRequest {
                limit: EVENTS,
                before,
            };
            let page = run(store.events(id(owner), EventFilter::default(), page)).unwrap();
            found += page.items.len();
            before = page.next;
            if before.is_none() {
                break;
            }
        }
    }
    assert_eq!(found, events);

    // A retention run leaves no trace of what it deletes.
    let retention = Retention::all(Span::from_millis(1), 5_000);
    let mut removed = 0;
    for _ in 0..2 * EVENTS / retention.step {
        let now = Timestamp(NOW.0 + 1_000_000);
        removed += run(store.step_retention(now, retention.clone()))
            .unwrap()
            .events;
    }
    assert!(removed > 0);
    let before = run(store.counts()).unwrap();
    run(fixture.store.close()).unwrap();
    assert_eq!(
        run(open(&fixture.path()).unwrap().counts()).unwrap(),
        before
    );
    let conn = rusqlite::Connection::open(fixture.path()).unwrap();
    for orphans in [
        "SELECT count(*) FROM delivery_history WHERE key NOT IN (SELECT key FROM deliveries)",
        "SELECT count(*) FROM event_history WHERE key NOT IN (SELECT key FROM events)",
        "SELECT count(*) FROM deliveries WHERE event_key NOT IN (SELECT key FROM events)",
    ] {
        let count: i64 = conn.query_row(orphans, [], |row| row.get(0)).unwrap();
        assert_eq!(count, 0, "{orphans}");
    }
}
