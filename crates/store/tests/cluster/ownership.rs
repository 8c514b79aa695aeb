//! Writes that require ownership, and notifications to the owner about new deliveries.

use bytes::Bytes;
use posthaste_core::classify::{HttpStatus, Outcome};
use posthaste_core::cluster::Shard;
use posthaste_core::delivery::{Delivery, RetrySettings};
use posthaste_core::dispatcher::{AttemptRecord, Record};
use posthaste_core::id::EndpointId;
use posthaste_core::lane::{EndpointStatus, RETRY_AFTER_CAP};
use posthaste_core::policy::RetryPolicy;
use posthaste_core::rng::Rng;
use posthaste_core::sign::SignatureStyle;
use posthaste_core::time::{Span, Timestamp};
use posthaste_store::{
    AcceptResult, Answer, AttemptDetail, Content, Endpoint, NewEvent, Owner, Store, Tenant, Written,
};

use crate::fixture::{ClusterEvent, Fixture, Node, wait};

const LONG: u64 = 20_000;
const SHORT: u64 = 3_000;
pub(crate) const NOW: Timestamp = Timestamp(1_800_000_000_000);

pub(crate) fn make(node: &Node, endpoint: EndpointId) {
    let tenant = Tenant::new("acme".parse().expect("a name"), "Acme".to_owned(), NOW);
    let endpoint = Endpoint {
        event_types: vec!["*".parse().expect("a pattern")],
        signature_style: SignatureStyle::GitHub,
        owner_email_confirmed: true,
        ..Endpoint::new(
            endpoint,
            tenant.id.clone(),
            "https://example.com/hook".to_owned(),
            NOW,
        )
    };
    wait(node.store.create_tenant(NOW, tenant)).expect("a tenant");
    wait(node.store.create_endpoint(NOW, endpoint, 10)).expect("an endpoint");
}

pub(crate) fn accept(node: &Node) {
    let event = NewEvent::new(
        "acme".parse().expect("a name"),
        Content::new("a.b".parse().expect("a type"), Bytes::from_static(b"{}")),
    );
    let ingest = wait(node.store.accept(NOW, vec![event])).expect("it is accepted");
    assert!(matches!(ingest, AcceptResult::Done(_)), "{ingest:?}");
}

pub(crate) fn waiting(node: &Node, endpoint: EndpointId) -> Vec<Delivery> {
    let fetched = wait(node.store.fetch(endpoint, NOW, 10, false));
    fetched.expect("it reads").deliveries
}

pub(crate) fn succeeded(delivery: &Delivery) -> Record {
    let mut delivery = delivery.clone();
    let policy = RetryPolicy::default();
    let terms = RetrySettings {
        policy: &policy,
        retry_after_cap: RETRY_AFTER_CAP,
    };
    let outcome = Outcome::Answered {
        status: HttpStatus::new(200).expect("a status"),
        retry_after: None,
    };
    delivery.begin(NOW, false).expect("it waits");
    let settlement = delivery
        .settle(NOW, outcome, terms, &mut Rng::seeded(1))
        .expect("it was begun");
    Record::Attempt(Box::new(AttemptRecord {
        delivery,
        settlement,
        health: None,
        disable: None,
        endpoint_changes: Vec::new(),
    }))
}

/// The record of a delivery that was dropped because it was late.
fn expired(delivery: &Delivery) -> Record {
    let mut delivery = delivery.clone();
    let late = delivery.facts().give_up_at.after(Span::from_millis(1));
    delivery.expire(late).expect("it is late");
    Record::Expire(Box::new(delivery))
}

pub(crate) fn record(node: &Node, record: Record) -> Answer<Written> {
    let (answer, answered) = tokio::sync::oneshot::channel();
    let done = Box::new(move |result| {
        // The test may have ended.
        let _ = answer.send(result);
    });
    node.store
        .record(NOW, record, AttemptDetail::default(), done);
    Box::pin(async move { answered.await.expect("every record is answered") })
}

#[test]
fn the_owner_is_notified_of_accepted_events_and_only_it_may_record() {
    let fixture = Fixture::new();
    let api = fixture.node_with("api", LONG, |settings| settings.wants_shards = false);
    let worker = fixture.node("worker", LONG);
    // Changes from before its first read would be reported as missed.
    fixture.until("being informed", || worker.cluster.is_up_to_date());
    let endpoint = EndpointId(7);
    make(&api, endpoint);
    accept(&api);
    fixture.until("work", || {
        fixture.has_received("worker", |event| {
            *event == ClusterEvent::Work(vec![(endpoint, NOW)])
        })
    });
    let deliveries = waiting(&worker, endpoint);
    assert_eq!(deliveries.len(), 1);
    let outside = wait(record(&api, succeeded(&deliveries[0])));
    assert_eq!(outside, Ok(Written::Superseded));
    let outside = wait(record(&api, expired(&deliveries[0])));
    assert_eq!(outside, Ok(Written::Superseded));
    assert_eq!(waiting(&worker, endpoint).len(), 1);
    let owner = wait(record(&worker, succeeded(&deliveries[0])));
    assert_eq!(owner, Ok(Written::Applied));
    assert!(waiting(&worker, endpoint).is_empty());
    fixture.until("the tenant and the endpoint", || {
        fixture.has_received("worker", |event| matches!(event, ClusterEvent::Changed(_)))
    });
}

#[test]
fn records_of_a_frozen_node_are_superseded() {
    let fixture = Fixture::new();
    let a = fixture.node("a", SHORT);
    let b = fixture.node("b", SHORT);
    fixture.until("an even share", || a.owns() == 128 && b.owns() == 128);
    let mut ids = (1..).map(EndpointId);
    let endpoint = ids.find(|id| a.cluster.owner(Shard::of(*id)) == Owner::Me);
    let endpoint = endpoint.expect("it owns half of them");
    make(&a, endpoint);
    accept(&a);
    let deliveries = waiting(&a, endpoint);
    fixture.freeze("a");
    fixture.announce_work(&a, 9);
    // The moment at which the node blocks is unknown, and a record before it is not the subject of this test.
    fixture.until("all of it", || b.owns() == 256);
    let late = record(&a, succeeded(&deliveries[0]));
    fixture.resume();
    assert_eq!(wait(late), Ok(Written::Superseded));
    fixture.until("an end", || {
        fixture.has_received("a", |event| *event == ClusterEvent::Expired)
    });
    let found = waiting(&b, endpoint);
    assert_eq!(found, deliveries, "as if the frozen node had never tried");
}

#[test]
fn only_the_owner_sets_the_status_of_an_endpoint() {
    let fixture = Fixture::new();
    let worker = fixture.node("worker", LONG);
    let api = fixture.node_with("api", LONG, |settings| settings.wants_shards = false);
    let endpoint = EndpointId(7);
    make(&api, endpoint);
    let set_status = |node: &Node, status| {
        wait(
            node.store
                .set_endpoint_status(NOW, endpoint, status, None, None),
        )
    };
    assert_eq!(set_status(&worker, EndpointStatus::Disabled), Ok(true));
    let why = set_status(&api, EndpointStatus::Enabled).expect_err("it is another's to say");
    assert!(why.to_string().contains("own"), "{why}");
    let row = wait(api.store.endpoint(endpoint)).expect("it reads");
    assert_eq!(row.map(|row| row.status), Some(EndpointStatus::Disabled));
}

#[test]
fn any_node_may_set_the_status_or_cancel_without_an_owner() {
    let fixture = Fixture::new();
    let api = fixture.node_with("api", LONG, |settings| settings.wants_shards = false);
    let endpoint = EndpointId(7);
    make(&api, endpoint);
    accept(&api);
    let set_status = |endpoint, status| {
        let changed = api.cluster.set_unowned_status(NOW, endpoint, status, None);
        wait(changed).expect("it is written")
    };
    assert_eq!(set_status(endpoint, EndpointStatus::Paused), Some(true));
    assert_eq!(
        set_status(EndpointId(8), EndpointStatus::Paused),
        Some(false)
    );
    let row = wait(api.store.endpoint(endpoint)).expect("it reads");
    assert_eq!(row.map(|row| row.status), Some(EndpointStatus::Paused));
    let delivery = waiting(&api, endpoint)[0].id();
    let cancel = || {
        let cancelled = api.cluster.cancel_unowned(NOW, endpoint, delivery);
        wait(cancelled).expect("it is written")
    };
    assert_eq!(cancel(), Some(Written::Applied));
    assert_eq!(cancel(), Some(Written::Superseded));
    let worker = fixture.node("worker", LONG);
    assert_eq!(worker.owns(), 256);
    assert_eq!(set_status(endpoint, EndpointStatus::Enabled), None);
    assert_eq!(cancel(), None);
    let row = wait(api.store.endpoint(endpoint)).expect("it reads");
    assert_eq!(row.map(|row| row.status), Some(EndpointStatus::Paused));
}
