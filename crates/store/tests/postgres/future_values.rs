//! Rows that a newer version wrote, while nodes of both versions use one database.

use posthaste_core::delivery::OrderingKey;
use posthaste_core::id::DeliveryId;
use posthaste_core::lane::Fetched;
use posthaste_store::{DeliveryFilter, Lists, NewEvent, PageRequest, Store, StoreError};

use crate::engines::Database;
use crate::fixture::{HERE, NOW, acme, event, node, run};

#[test]
fn an_unknown_enum_value_is_an_error_and_no_panic() {
    let database = Database::create();
    let node = node(&database, 1);
    node.create_tenant_and_endpoint();
    let strange = node.accept(event(None)).event.deliveries[0].id;
    database.run("UPDATE waiting SET trigger = 77");
    let plain = node.accept(event(None)).event.deliveries[0].id;
    let unreadable = |error: StoreError| match error {
        StoreError::Unreadable(_) => true,
        StoreError::Unavailable(_)
        | StoreError::Full
        | StoreError::Overloaded
        | StoreError::DatabaseTooNew(_)
        | StoreError::Closed => false,
    };
    // More often than there are readers, to show that each continues to read.
    for _ in 0..9 {
        let refused = run(node.store.delivery(acme(), strange));
        assert!(refused.is_err_and(unreadable));
        let refused = run(node.store.retry(NOW, acme(), strange));
        assert!(refused.is_err_and(unreadable));
        let page = PageRequest {
            limit: 9,
            before: None,
        };
        let listed = run(node
            .store
            .deliveries(acme(), DeliveryFilter::default(), page));
        assert!(listed.is_err());
    }
    assert!(run(node.store.delivery(acme(), plain)).is_ok_and(|found| found.is_some()));
    assert!(run(node.store.endpoint(HERE)).is_ok_and(|found| found.is_some()));
}

#[test]
fn a_fetch_passes_over_unreadable_rows() {
    let database = Database::create();
    let node = node(&database, 1);
    node.create_tenant_and_endpoint();
    let keyed = |key| NewEvent {
        ordering: Some(OrderingKey(key)),
        ..event(None)
    };
    let damaged: Vec<DeliveryId> = (0..3)
        .map(|_| node.accept(keyed(1)).event.deliveries[0].id)
        .collect();
    database.run("UPDATE waiting SET granted = 'rubbish'");
    let behind = node.accept(keyed(1)).event.deliveries[0].id;
    let sound = node.accept(keyed(2)).event.deliveries[0].id;
    let fetch =
        |limit, ordered| run(node.store.fetch(HERE, NOW, limit, ordered)).expect("it reads");
    let ids = |fetched: &Fetched| -> Vec<DeliveryId> {
        fetched.deliveries.iter().map(|it| it.id()).collect()
    };
    // Twice: the due watermark must not hide them.
    for _ in 0..2 {
        // The unreadable rows alone fill the window of the first.
        for limit in [1, 2, 9] {
            let fetched = fetch(limit, false);
            assert_eq!(ids(&fetched), [behind, sound][..limit.min(2)]);
            assert_eq!(fetched.unreadable, damaged);
        }
        let fetched = fetch(9, true);
        assert_eq!(ids(&fetched), [sound]);
        assert!(fetched.blocked, "those behind an unreadable row wait");
    }
}

#[test]
fn an_unreadable_event_does_not_prevent_a_fetch() {
    let database = Database::create();
    let node = node(&database, 1);
    node.create_tenant_and_endpoint();
    let delivery = node.accept(event(None)).event.deliveries[0].id;
    database.run("UPDATE events SET trace = 'rubbish'");
    let fetched = run(node.store.fetch(HERE, NOW, 9, false)).expect("it reads");
    assert_eq!(fetched.deliveries[0].id(), delivery);
    let content = run(node.store.content(fetched.deliveries[0].facts().event));
    assert!(matches!(content, Err(StoreError::Unreadable(_))));
}
