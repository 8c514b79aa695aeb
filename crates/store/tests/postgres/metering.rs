//! Tenants with a quota do not block other tenants.

use posthaste_core::id::TenantId;
use posthaste_store::{AcceptResult, NewEvent, Quotas, Store, Written};

use crate::engines::Database;
use crate::fixture::{NOW, acme, event, node, one, run, succeed};

const LIMITED: Quotas = Quotas {
    per_second: Some(100),
    per_month: Some(100),
};

fn globex() -> TenantId {
    "globex".parse().expect("a name")
}

fn of(tenant: TenantId) -> NewEvent {
    NewEvent {
        tenant,
        ..event(None)
    }
}

#[test]
fn unlimited_tenants_do_not_wait_for_a_locked_meter() {
    let database = Database::create();
    let node = node(&database, 1);
    node.create_tenant_and_endpoint();
    node.create_tenant(globex());
    let taken = run(node.store.accept_within(NOW, vec![event(None)], LIMITED));
    assert!(one(taken.expect("it is accepted")).is_new);
    let delivery = node.hand.take().pop().expect("it is handed over").delivery;
    let held = database.hold("SELECT 1 FROM meters FOR UPDATE");
    let waits = node.store.accept_within(NOW, vec![event(None)], LIMITED);
    let beside = node.store.accept(NOW, vec![of(globex())]);
    assert!(one(run(beside).expect("it is accepted")).is_new);
    let waiting = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() \
                   AND wait_event_type = 'Lock' AND query LIKE '%FROM meters%'";
    while database.run(waiting).is_empty() {
        std::thread::yield_now();
    }
    // Neither do operations that come while it waits.
    let beside = node.store.accept(NOW, vec![of(globex())]);
    assert!(one(run(beside).expect("it is accepted")).is_new);
    assert_eq!(succeed(&node.store, &delivery), Ok(Written::Applied));
    assert!(!database.run(waiting).is_empty(), "it still waits");
    held.finish();
    assert!(matches!(run(waits), Ok(AcceptResult::Done(_))));
    for (tenant, events) in [(acme(), 2), (globex(), 2)] {
        let usage = run(node.store.usage(NOW, tenant)).expect("it is read");
        assert_eq!(usage.expect("a tenant").events_this_month, events);
    }
    assert_eq!(run(node.store.counts()).expect("counts").pending, 1);
}

#[test]
fn metered_writes_are_written_before_the_store_closes() {
    let database = Database::create();
    let node = node(&database, 1);
    node.create_tenant_and_endpoint();
    let answers: Vec<_> = (0..20)
        .map(|_| node.store.accept_within(NOW, vec![event(None)], LIMITED))
        .collect();
    assert_eq!(run(node.store.close()), Ok(()));
    for answer in answers {
        assert!(matches!(run(answer), Ok(AcceptResult::Done(_))));
    }
    assert_eq!(database.run("SELECT count(*) FROM waiting"), ["20"]);
}
