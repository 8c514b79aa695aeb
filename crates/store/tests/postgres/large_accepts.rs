//! Requests that make many deliveries, and long operations, do not block other writes.

use std::sync::Arc;

use posthaste_core::delivery::DeadReason;
use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::ingest::Fingerprint;
use posthaste_core::time::Timestamp;
use posthaste_store::{
    AcceptResult, Content, CreateResult, Idempotency, LimitName, NewEvent, Quotas, Retention,
    Store, SweepResult,
};

use crate::engines::Database;
use crate::fixture::{HERE, NOW, Node, acme, endpoint, event, node, one, run, wait_for_lock};

/// Endpoints of the tenant, and events of a large request: more than 1,000 deliveries.
const ENDPOINTS: u128 = 30;
const EVENTS: usize = 40;
const DELIVERIES: usize = ENDPOINTS as usize * EVENTS;

/// Creates a tenant with many endpoints, and one with a single endpoint.
fn create_many_endpoints(node: &Node) {
    node.create_tenant_and_endpoint();
    for number in 2..=ENDPOINTS {
        add_endpoint(node, number);
    }
    node.create_tenant(globex());
}

fn add_endpoint(node: &Node, number: u128) {
    let made = node
        .store
        .create_endpoint(NOW, endpoint(EndpointId(number)), 999);
    assert_eq!(run(made), Ok(CreateResult::Created));
}

fn globex() -> TenantId {
    "globex".parse().expect("a name")
}

/// Returns the events of a large request. The first has an idempotency key.
fn large(key: &str) -> Vec<NewEvent> {
    (0..EVENTS)
        .map(|number| event((number == 0).then_some(key)))
        .collect()
}

/// Accepts an event of the other tenant.
fn accept_beside(node: &Node) {
    let beside = NewEvent {
        tenant: globex(),
        ..event(None)
    };
    assert!(node.accept(beside).is_new);
}

fn deliveries_of(ingest: AcceptResult) -> Vec<EndpointId> {
    match ingest {
        AcceptResult::Done(done) => done
            .iter()
            .flat_map(|ingested| &ingested.event.deliveries)
            .map(|delivery| delivery.endpoint)
            .collect(),
        refused @ (AcceptResult::Conflict(_)
        | AcceptResult::NoSuchTenant
        | AcceptResult::NoSuchEndpoint
        | AcceptResult::TooManyDeliveries { .. }
        | AcceptResult::OverLimit { .. }) => panic!("it was refused: {refused:?}"),
    }
}

#[test]
fn other_tenants_do_not_wait_for_a_large_request() {
    let database = Database::create();
    let node = node(&database, 1);
    create_many_endpoints(&node);
    // Blocks the last statement of the large request.
    let held = database.hold("LOCK TABLE idempotency IN SHARE MODE");
    let waits = node.store.accept(NOW, large("k"));
    wait_for_lock(&database, "INTO idempotency");
    for _ in 0..3 {
        accept_beside(&node);
    }
    // The tenant's own small requests do not wait either.
    assert!(node.accept(event(None)).is_new);
    let counts = run(node.store.counts()).expect("counts");
    assert_eq!(counts.pending, ENDPOINTS as u64, "nothing of it is visible");
    wait_for_lock(&database, "INTO idempotency");
    held.finish();
    let deliveries = deliveries_of(run(waits).expect("it is written"));
    assert_eq!(deliveries.len(), DELIVERIES);
}

#[test]
fn a_large_request_is_stored_whole_and_once() {
    let database = Database::create();
    let node = node(&database, 1);
    create_many_endpoints(&node);
    let accepted = run(node.store.accept(NOW, large("k"))).expect("it is written");
    assert_eq!(deliveries_of(accepted.clone()).len(), DELIVERIES);
    assert_eq!(node.hand.take().len(), DELIVERIES);
    let counts = run(node.store.counts()).expect("counts");
    assert_eq!(counts.pending, DELIVERIES as u64);
    assert_eq!(
        database.run("SELECT count(*) FROM waiting"),
        [DELIVERIES.to_string()]
    );
    assert_eq!(run(node.store.pending(HERE)), Ok(EVENTS as u64));
    let usage = run(node.store.usage(NOW, acme())).expect("it is read");
    assert_eq!(usage.expect("a tenant").events_this_month, EVENTS as u64);
    // The same keys find the same events, and other content under one of them is a conflict.
    let keyed: Vec<NewEvent> = (0..EVENTS)
        .map(|number| event(Some(&format!("k{number}"))))
        .collect();
    let first = run(node.store.accept(NOW, keyed.clone())).expect("it is written");
    let AcceptResult::Done(again) = run(node.store.accept(NOW, keyed.clone())).expect("it is read")
    else {
        panic!("it was refused");
    };
    assert!(again.iter().all(|ingested| !ingested.is_new));
    let again: Vec<_> = again.into_iter().map(|it| it.event).collect();
    let AcceptResult::Done(first) = first else {
        panic!("it was refused");
    };
    let first: Vec<_> = first.into_iter().map(|it| it.event).collect();
    assert_eq!(again, first);
    let mut other = keyed;
    other[7] = NewEvent {
        content: Arc::new(Content {
            payload: "[]".into(),
            ..(*other[7].content).clone()
        }),
        idempotency: Some(Idempotency {
            key: "k7".to_owned(),
            fingerprint: Fingerprint::of(&[b"[]"]),
        }),
        ..other[7].clone()
    };
    let conflict = run(node.store.accept(NOW, other));
    assert_eq!(conflict, Ok(AcceptResult::Conflict(vec![7])));
    assert_eq!(
        database.run("SELECT count(*) FROM waiting"),
        [(2 * DELIVERIES).to_string()]
    );
}

#[test]
fn a_large_request_is_routed_by_the_endpoints_at_its_commit() {
    let database = Database::create();
    let node = node(&database, 1);
    create_many_endpoints(&node);
    // The rows cannot be inserted yet, but the directory can be changed.
    let held = database.hold("LOCK TABLE waiting IN SHARE MODE");
    let waits = node.store.accept(NOW, large("k"));
    wait_for_lock(&database, "INTO waiting");
    let added = ENDPOINTS + 1;
    add_endpoint(&node, added);
    held.finish();
    let endpoints = deliveries_of(run(waits).expect("it is written"));
    assert_eq!(endpoints.len(), EVENTS * added as usize);
    assert!(endpoints.contains(&EndpointId(added)));
    let counts = run(node.store.counts()).expect("counts");
    assert_eq!(counts.pending, endpoints.len() as u64);
    assert_eq!(node.hand.take().len(), endpoints.len());
}

#[test]
fn a_change_of_another_tenant_does_not_disturb_a_large_request() {
    let database = Database::create();
    let node = node(&database, 1);
    create_many_endpoints(&node);
    // A rollback does not take back what a sequence counts.
    database.run(
        "CREATE SEQUENCE inserts; CREATE FUNCTION count_inserts() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN PERFORM nextval('inserts'); RETURN NULL; END $$; \
         CREATE TRIGGER count_inserts AFTER INSERT ON waiting EXECUTE FUNCTION count_inserts()",
    );
    let held = database.hold("LOCK TABLE waiting IN SHARE MODE");
    let waits = node.store.accept(NOW, large("k"));
    wait_for_lock(&database, "INTO waiting");
    node.create_tenant("initech".parse().expect("a name"));
    held.finish();
    let deliveries = deliveries_of(run(waits).expect("it is written"));
    assert_eq!(deliveries.len(), DELIVERIES);
    let inserts = DELIVERIES.div_ceil(1_000);
    assert_eq!(
        database.run("SELECT last_value FROM inserts"),
        [inserts.to_string()],
        "they are inserted once"
    );
}

#[test]
fn large_requests_of_a_limited_tenant_are_counted_exactly() {
    let database = Database::create();
    let node = node(&database, 1);
    create_many_endpoints(&node);
    let quotas = Quotas {
        per_second: None,
        per_month: Some(EVENTS as u64 * 2 + 1),
    };
    let at = |seconds: u64| Timestamp(NOW.0 + seconds * 1_000);
    for number in 0..2 {
        let accepted = node
            .store
            .accept_within(at(number), large(&format!("k{number}")), quotas);
        assert_eq!(
            deliveries_of(run(accepted).expect("it is written")).len(),
            DELIVERIES
        );
    }
    let refused = run(node.store.accept_within(at(2), large("k2"), quotas));
    let Ok(AcceptResult::OverLimit { limit, .. }) = refused else {
        panic!("it was not refused: {refused:?}");
    };
    assert_eq!(limit, LimitName::EventsPerMonth);
    // Repeating what is stored costs nothing, and the last event fits.
    let one_more = node.store.accept_within(at(3), vec![event(None)], quotas);
    assert!(one(run(one_more).expect("it is written")).is_new);
    let usage = run(node.store.usage(NOW, acme())).expect("it is read");
    let used = usage.expect("a tenant").events_this_month;
    assert_eq!(used, EVENTS as u64 * 2 + 1);
    let waiting = 2 * DELIVERIES + ENDPOINTS as usize;
    assert_eq!(
        database.run("SELECT count(*) FROM waiting"),
        [waiting.to_string()]
    );
}

#[test]
fn a_limit_that_was_used_up_meanwhile_refuses_a_large_request() {
    let database = Database::create();
    let node = node(&database, 1);
    create_many_endpoints(&node);
    let quotas = Quotas {
        per_second: None,
        per_month: Some(EVENTS as u64 + 1),
    };
    let held = database.hold("LOCK TABLE waiting IN SHARE MODE");
    let waits = node.store.accept_within(NOW, large("k"), quotas);
    wait_for_lock(&database, "INTO waiting");
    // Another node accepts two events meanwhile.
    database.run(
        "INSERT INTO usage (month, tenant_no, slot, events) SELECT m, no, 31, 2 FROM tenants, \
         (SELECT (extract(year FROM t) * 12 + extract(month FROM t) - 1)::integer AS m \
         FROM (SELECT to_timestamp(1700000000) AT TIME ZONE 'UTC' AS t) t) t WHERE id = 'acme'",
    );
    held.finish();
    let refused = run(waits);
    assert!(
        matches!(refused, Ok(AcceptResult::OverLimit { .. })),
        "{refused:?}"
    );
    assert_eq!(database.run("SELECT count(*) FROM waiting"), ["0"]);
    assert_eq!(database.run("SELECT count(*) FROM events"), ["0"]);
    assert_eq!(run(node.store.counts()).expect("counts").pending, 0);
}

#[test]
fn large_requests_are_written_before_the_store_closes() {
    let database = Database::create();
    let node = node(&database, 1);
    create_many_endpoints(&node);
    let answers: Vec<_> = (0..4)
        .map(|number| node.store.accept(NOW, large(&format!("k{number}"))))
        .collect();
    assert_eq!(run(node.store.close()), Ok(()));
    for answer in answers {
        assert_eq!(
            deliveries_of(run(answer).expect("it is written")).len(),
            DELIVERIES
        );
    }
    assert_eq!(
        database.run("SELECT count(*) FROM waiting"),
        [(4 * DELIVERIES).to_string()]
    );
}

#[test]
fn accepts_do_not_wait_for_sweeps_and_retention_steps() {
    let database = Database::create();
    let node = node(&database, 1);
    create_many_endpoints(&node);
    node.accept(event(None));
    // Accepting events does not use this table.
    let held = database.hold("LOCK TABLE ended IN ACCESS EXCLUSIVE MODE");
    let sweep = node
        .store
        .sweep(NOW, HERE, DeadReason::EndpointDisabled, [].into(), 9);
    let retention = Retention::all(posthaste_core::time::Span::from_days(1), 100);
    let step = node.store.step_retention(NOW, retention);
    wait_for_lock(&database, "INTO ended");
    for _ in 0..3 {
        accept_beside(&node);
    }
    wait_for_lock(&database, "INTO ended");
    held.finish();
    let swept = SweepResult {
        ended: 1,
        more: false,
    };
    assert_eq!(run(sweep), Ok(swept));
    assert!(run(step).is_ok());
}
