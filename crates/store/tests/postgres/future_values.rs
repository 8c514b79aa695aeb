//! Rows that a newer version wrote, while nodes of both versions use one database.

use posthaste_store::{DeliveryFilter, PageRequest, Store, StoreError};

use crate::engines::Database;
use crate::fixture::{HERE, NOW, acme, event, node, run};

#[test]
fn an_unknown_enum_value_is_an_error_and_no_panic() {
    let database = Database::create();
    let node = node(&database, 1);
    node.furnish();
    let strange = node.accept(event(None)).event.deliveries[0].id;
    database.run("UPDATE waiting SET trigger = 77");
    let plain = node.accept(event(None)).event.deliveries[0].id;
    let unreadable = |error: StoreError| match error {
        StoreError::Unavailable(why) => why.contains("cannot be read"),
        StoreError::Full | StoreError::Overloaded | StoreError::Closed => false,
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
