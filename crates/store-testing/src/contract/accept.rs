//! Accepting events: each once, batches all or nothing.
//!
//! An accepted event makes one delivery for each subscribed endpoint that is not disabled or deleted. The cases check batches,
//! idempotency keys (also of concurrent callers), test events, scheduled events, and the hand-over of deliveries in order.

use std::sync::Arc;

use bytes::Bytes;
use posthaste_core::delivery::{ScheduledAttempt, State, Status, Trigger};
use posthaste_core::id::{EndpointId, EventId};
use posthaste_core::lane::EndpointStatus;
use posthaste_core::policy::RetryPolicy;
use posthaste_core::time::Span;

use super::fixture::{StoreFixture, at, endpoint, event, id, keyed, kind, policy, set, trace};
use super::{Harness, block_on};
use posthaste_store::{
    AcceptResult, AcceptedEvent, AcceptedOrStored, Content, DeliveryFilter, Endpoint, EventFilter,
    NewEvent, Quotas, StoreSettings, StoredEvent, Tenant,
};

fn goes_to(event: &AcceptedEvent) -> Vec<u128> {
    let ids = event.deliveries.iter().map(|delivery| delivery.endpoint.0);
    set(ids).into_iter().collect()
}

pub(super) async fn events_go_to_subscribed_endpoints(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_tenant("other").await;
    world.add(endpoint(1, "acme", &[])).await;
    world.add(endpoint(2, "acme", &["invoice.*"])).await;
    world
        .add(endpoint(3, "acme", &["invoice.paid", "user.created"]))
        .await;
    world.add(endpoint(4, "acme", &["*"])).await;
    world.add(endpoint(5, "other", &[])).await;
    for (event_type, expected) in [
        ("invoice.paid", vec![1, 2, 3, 4]),
        ("invoice.line.added", vec![1, 2, 4]),
        ("invoice", vec![1, 4]),
        ("invoices.paid", vec![1, 4]),
        ("user.created", vec![1, 3, 4]),
    ] {
        let accepted = world.accept(at(1), event("acme", event_type)).await;
        assert_eq!(goes_to(&accepted), expected, "{event_type}");
        assert_eq!(accepted.event_type, kind(event_type));
        assert_eq!(accepted.created_at, at(1));
        for delivery in &accepted.deliveries {
            let stored = world.delivery(delivery.id).await;
            assert_eq!(stored.facts().endpoint, delivery.endpoint);
            assert_eq!(stored.facts().event, accepted.id);
        }
    }
    let none = world.accept(at(1), event("other", "x.y")).await;
    assert_eq!(goes_to(&none), [5]);
}

pub(super) async fn paused_endpoints_get_events_and_disabled_ones_do_not(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let made = world.add_endpoint(1).await;
    for (status, expected) in [
        (EndpointStatus::Paused, 1),
        (EndpointStatus::Disabled, 0),
        (EndpointStatus::Enabled, 1),
        (EndpointStatus::Deleted, 0),
    ] {
        world.set_status(made, status).await;
        let accepted = world.accept(at(1), event("acme", "a.b")).await;
        assert_eq!(accepted.deliveries.len(), expected, "{status:?}");
        let found = world.store.event(id("acme"), accepted.id).await.unwrap();
        assert_eq!(
            found.map(|found| found.event),
            Some(accepted),
            "the event is stored in any case"
        );
    }
}

pub(super) async fn changed_patterns_apply_to_the_next_event(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add(endpoint(1, "acme", &["a.*"])).await;
    assert_eq!(
        goes_to(&world.accept(at(1), event("acme", "b.c")).await),
        [0; 0]
    );
    let changed = endpoint(1, "acme", &["b.*"]);
    world.store.replace_endpoint(at(2), changed).await.unwrap();
    assert_eq!(
        goes_to(&world.accept(at(3), event("acme", "b.c")).await),
        [1]
    );
    assert_eq!(
        goes_to(&world.accept(at(3), event("acme", "a.c")).await),
        [0; 0]
    );
}

pub(super) async fn a_change_of_one_of_many_endpoints_applies_to_the_next_event(
    harness: &dyn Harness,
) {
    let world = StoreFixture::with_acme(harness).await;
    for number in 1..=20 {
        world.add(endpoint(number, "acme", &["a.*"])).await;
    }
    let others: Vec<u128> = (3..=20).collect();
    let goes_to = async |expected: &[u128]| {
        let accepted = world.accept(at(1), event("acme", "a.b")).await;
        assert_eq!(goes_to(&accepted), [expected, &others].concat());
    };
    goes_to(&[1, 2]).await;
    let changed = endpoint(1, "acme", &["c.*"]);
    world.store.replace_endpoint(at(2), changed).await.unwrap();
    goes_to(&[2]).await;
    world
        .set_status(EndpointId(2), EndpointStatus::Disabled)
        .await;
    goes_to(&[]).await;
    world
        .set_status(EndpointId(2), EndpointStatus::Enabled)
        .await;
    goes_to(&[2]).await;
    world
        .set_status(EndpointId(2), EndpointStatus::Deleted)
        .await;
    goes_to(&[]).await;
    world.add(endpoint(21, "acme", &[])).await;
    let accepted = world.accept(at(3), event("acme", "a.b")).await;
    assert!(accepted.deliveries.iter().any(|it| it.endpoint.0 == 21));
}

pub(super) async fn a_test_event_goes_to_its_endpoint_only(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_tenant("other").await;
    world.add(endpoint(1, "acme", &["unrelated"])).await;
    world.add_endpoint(2).await;
    world.add(endpoint(3, "other", &[])).await;
    let only = |number| NewEvent {
        only: Some(EndpointId(number)),
        ..event("acme", "a.b")
    };
    assert_eq!(goes_to(&world.accept(at(1), only(1)).await), [1]);
    world
        .set_status(EndpointId(1), EndpointStatus::Paused)
        .await;
    assert_eq!(goes_to(&world.accept(at(1), only(1)).await), [1]);
    let count = world.events("acme", EventFilter::default()).await.len();
    for status in [EndpointStatus::Disabled, EndpointStatus::Deleted] {
        world.set_status(EndpointId(1), status).await;
        let refused = world.store.accept(at(1), vec![only(1)]).await;
        assert_eq!(refused, Ok(AcceptResult::NoSuchEndpoint), "{status:?}");
    }
    for number in [3, 77] {
        let refused = world.store.accept(at(1), vec![only(number)]).await;
        assert_eq!(refused, Ok(AcceptResult::NoSuchEndpoint), "{number}");
    }
    assert_eq!(
        world.events("acme", EventFilter::default()).await.len(),
        count
    );
}

pub(super) async fn an_event_is_read_back_byte_for_byte(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_endpoint(1).await;
    for (payload, content_type) in [
        (&b"{ \"b\":1,  \"a\":1e2 }\n"[..], None),
        (&[0, 159, 146, 150][..], Some("application/octet-stream")),
        (&b""[..], Some("text/plain; charset=utf-8")),
    ] {
        let new = NewEvent {
            content: Arc::new(Content {
                content_type: content_type.map(str::to_owned),
                ..Content::new(kind("a.b"), Bytes::from_static(payload))
            }),
            deliver_at: Some(at(50)),
            ..keyed("acme", &format!("key {payload:?}"), "content")
        };
        let accepted = world.accept(at(1), new.clone()).await;
        let expected = StoredEvent {
            event: accepted.clone(),
            deliver_at: Some(at(50)),
            content: new.content.clone(),
            payload_removed_at: None,
            idempotency_key: new.idempotency.map(|it| it.key),
        };
        let found = world.store.event(id("acme"), accepted.id).await;
        assert_eq!(found, Ok(Some(expected)));
        let content = world.store.content(accepted.id).await;
        assert_eq!(content, Ok(Some((at(1), new.content))));
    }
    assert_eq!(world.store.content(EventId(7)).await, Ok(None));
    assert_eq!(world.store.event(id("acme"), EventId(7)).await, Ok(None));
}

pub(super) async fn a_trace_stays_with_its_event(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_endpoint(1).await;
    let traced = |trace| {
        let plain = keyed("acme", "key", "content");
        NewEvent {
            content: Arc::new(Content {
                trace,
                scheduled_run: None,
                ..(*plain.content).clone()
            }),
            ..plain
        }
    };
    let mut stored = Vec::new();
    for given in [None, Some(trace(1, false)), Some(trace(2, true))] {
        let unkeyed = NewEvent {
            idempotency: None,
            ..traced(given.clone())
        };
        let accepted = world.accept(at(1), unkeyed).await;
        let handed_over = world.recorder.take().remove(0);
        assert_eq!(handed_over.content.trace, given);
        stored.push((accepted.id, given));
    }
    let first = world.accept(at(2), traced(Some(trace(3, true)))).await;
    stored.push((first.id, Some(trace(3, true))));
    // A repeated request has another trace; the event keeps the first one.
    let again = world.accept(at(3), traced(Some(trace(4, false)))).await;
    assert_eq!(again, first);
    let world = world.reopened().await;
    for (event, trace) in stored {
        let content = world
            .store
            .content(event)
            .await
            .unwrap()
            .expect("the content can be read");
        assert_eq!(content.1.trace, trace);
        let found = world.store.event(id("acme"), event).await.unwrap();
        assert_eq!(found.expect("the event exists").content.trace, trace);
    }
}

pub(super) async fn events_of_an_unknown_tenant_are_refused(harness: &dyn Harness) {
    let world = StoreFixture::open(harness);
    let refused = world
        .store
        .accept(at(1), vec![event("nobody", "a.b")])
        .await;
    assert_eq!(refused, Ok(AcceptResult::NoSuchTenant));
    assert_eq!(
        world.store.accept(at(1), Vec::new()).await,
        Ok(AcceptResult::Done(Vec::new()))
    );
    assert!(world.recorder.take().is_empty());
}

pub(super) async fn a_batch_is_all_or_nothing(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_endpoint(1).await;
    world.accept(at(1), keyed("acme", "old", "content")).await;
    world.recorder.take();
    let batch = vec![
        event("acme", "a.b"),
        keyed("acme", "old", "other"),
        keyed("acme", "new", "content"),
        keyed("acme", "new", "other"),
        keyed("acme", "old", "content"),
        keyed("acme", "new", "content"),
    ];
    let refused = world.store.accept(at(2), batch).await;
    assert_eq!(refused, Ok(AcceptResult::Conflict(vec![1, 3])));
    assert_eq!(world.events("acme", EventFilter::default()).await.len(), 1);
    assert_eq!(world.listed(DeliveryFilter::default()).await.len(), 1);
    assert!(world.recorder.take().is_empty());
    assert_eq!(
        world
            .store
            .counts()
            .await
            .expect("the counts can be read")
            .pending,
        1
    );
    // The key of an event that was not accepted stays free.
    let batch: Vec<NewEvent> = (0..300)
        .map(|number| keyed("acme", &format!("new{}", number % 299), "other"))
        .collect();
    let ingested = world.accept_all(at(3), batch).await;
    let fresh: Vec<bool> = ingested.iter().map(|ingested| ingested.is_new).collect();
    assert_eq!(fresh.iter().filter(|fresh| **fresh).count(), 299);
    assert!(!ingested[299].is_new);
    assert_eq!(ingested[299].event, ingested[0].event);
    let ids: Vec<EventId> = ingested[..299].iter().map(|it| it.event.id).collect();
    assert!(
        ids.is_sorted_by(|a, b| a < b),
        "the results are in the order of the events"
    );
}

pub(super) async fn the_same_idempotency_key_makes_one_event(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_tenant("other").await;
    let first = world.add_endpoint(1).await;
    let accepted = world.accept(at(1), keyed("acme", "k", "content")).await;
    world.fail(accepted.deliveries[0].id, at(2)).await;
    // Changes in between do not change the response.
    world.add_endpoint(2).await;
    world.set_status(first, EndpointStatus::Disabled).await;
    world.recorder.take();
    let again = world
        .accept_all(at(3), vec![keyed("acme", "k", "content")])
        .await;
    let expected = AcceptedOrStored {
        is_new: false,
        event: accepted.clone(),
    };
    assert_eq!(again, [expected]);
    assert!(
        world.recorder.take().is_empty(),
        "the repeated event makes no delivery"
    );
    let conflict = world
        .store
        .accept(at(3), vec![keyed("acme", "k", "other")])
        .await;
    assert_eq!(conflict, Ok(AcceptResult::Conflict(vec![0])));
    let others = world
        .accept_all(at(3), vec![keyed("other", "k", "other")])
        .await;
    assert!(
        others[0].is_new,
        "the same key of another tenant makes a new event"
    );
    for key in ["K", "k ", ""] {
        let fresh = world
            .accept_all(at(3), vec![keyed("acme", key, "other")])
            .await;
        assert!(fresh[0].is_new, "{key:?} is a different key");
    }
    let world = world.reopened().await;
    let again = world
        .accept_all(at(4), vec![keyed("acme", "k", "content")])
        .await;
    assert_eq!((again[0].is_new, &again[0].event), (false, &accepted));
}

pub(super) async fn concurrent_events_with_the_same_key_make_one_event(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_endpoint(1).await;
    const CALLERS: usize = 8;
    let accept = |caller: usize| {
        let store = world.store.clone();
        move || {
            block_on(async {
                let content = if caller == 0 { "other" } else { "content" };
                let calls: Vec<_> = (0..4)
                    .map(|_| store.accept(at(1), vec![keyed("acme", "k", content)]))
                    .collect();
                let mut answers = Vec::new();
                for call in calls {
                    answers.push(call.await.expect("the store answers"));
                }
                answers
            })
        }
    };
    let answers: Vec<AcceptResult> = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| scope.spawn(accept(caller)))
            .collect();
        let joined = callers
            .into_iter()
            .map(|caller| caller.join().expect("the task does not panic"));
        joined.flatten().collect()
    });
    let mut fresh = 0;
    let mut ids = Vec::new();
    for answer in answers {
        match answer {
            AcceptResult::Done(ingested) => {
                fresh += usize::from(ingested[0].is_new);
                ids.push(ingested[0].event.id);
            }
            AcceptResult::Conflict(which) => assert_eq!(which, [0]),
            AcceptResult::NoSuchTenant
            | AcceptResult::NoSuchEndpoint
            | AcceptResult::TooManyDeliveries { .. }
            | AcceptResult::OverLimit { .. } => {
                panic!("the event was refused")
            }
        }
    }
    assert_eq!((fresh, set(ids).len()), (1, 1));
    assert_eq!(world.events("acme", EventFilter::default()).await.len(), 1);
    assert_eq!(world.recorder.take().len(), 1);
}

pub(super) async fn a_scheduled_event_waits_for_its_time(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let made = world.add_endpoint(1).await;
    let due = |deliver_at| NewEvent {
        deliver_at: Some(deliver_at),
        ..event("acme", "a.b")
    };
    let later = world.accept(at(10), due(at(500))).await.deliveries[0].id;
    let past = world.accept(at(10), due(at(5))).await.deliveries[0].id;
    let later = world.delivery(later).await;
    assert_eq!(later.facts().due_at, at(500));
    let give_up_after = RetryPolicy::default().give_up_after;
    assert_eq!(later.facts().give_up_at, at(500).after(give_up_after));
    let turn = |at| {
        State::Pending(ScheduledAttempt {
            at,
            trigger: Trigger::Automatic,
        })
    };
    assert_eq!(later.state(), turn(at(500)));
    assert_eq!(
        world.delivery(past).await.state(),
        turn(at(10)),
        "a time in the past is due now"
    );
    let fetched = world.fetch(made, at(499), 10, false).await;
    assert_eq!(fetched.deliveries.len(), 1);
    assert_eq!(fetched.next_due, Some(at(500)));
    assert_eq!(
        world.fetch(made, at(500), 10, false).await.deliveries.len(),
        2
    );
}

pub(super) async fn the_deadline_comes_from_the_nearest_policy(harness: &dyn Harness) {
    let world = StoreFixture::open(harness);
    let acme = Tenant {
        default_retry_policy: Some(policy("2h")),
        ..super::fixture::tenant("acme")
    };
    world.store.create_tenant(at(0), acme).await.unwrap();
    world.add_tenant("other").await;
    let own = Endpoint {
        retry_policy: Some(policy("3h")),
        ..endpoint(1, "acme", &["own"])
    };
    world.add(own).await;
    world.add(endpoint(2, "acme", &["tenants"])).await;
    world.add(endpoint(3, "other", &[])).await;
    let servers = RetryPolicy::default().give_up_after;
    for (tenant, event_type, expected) in [
        ("acme", "own", Span::from_hours(3)),
        ("acme", "tenants", Span::from_hours(2)),
        ("other", "servers", servers),
    ] {
        world.accept(at(1), event(tenant, event_type)).await;
        let handed_over = world.recorder.take().remove(0).delivery;
        let give_up_at = handed_over.facts().give_up_at;
        assert_eq!(give_up_at, at(1).after(expected), "{event_type}");
    }
}

pub(super) async fn deliveries_are_handed_over_in_order_before_the_acknowledgement(
    harness: &dyn Harness,
) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_endpoint(1).await;
    world.add_endpoint(2).await;
    // Each event is handed over before its response.
    for ms in 0..5 {
        let accepted = world.accept(at(ms), event("acme", "a.b")).await;
        let handed_over = world.recorder.take();
        let ids = set(handed_over.iter().map(|it| it.delivery.id()));
        assert_eq!(ids, set(accepted.deliveries.iter().map(|it| it.id)));
        for it in handed_over {
            assert_eq!(it.accepted_at, at(ms));
            assert_eq!(it.content.event_type, kind("a.b"));
            assert_eq!(it.delivery.status(), Status::Pending);
            assert_eq!(it.delivery, world.delivery(it.delivery.id()).await);
        }
    }
    // Concurrent events are handed over in the order of their ids, even if the clock moves back.
    let calls: Vec<_> = (0..50)
        .map(|number| {
            let now = at(1_000 - number * 10);
            world
                .store
                .accept(now, vec![event("acme", "a.b"), event("acme", "c.d")])
        })
        .collect();
    let mut answered = Vec::new();
    for call in calls {
        let Ok(AcceptResult::Done(ingested)) = call.await else {
            panic!("the event was not accepted");
        };
        answered.extend(ingested.into_iter().map(|it| it.event));
    }
    assert!(
        answered.is_sorted_by(|a, b| a.id < b.id),
        "hand-overs are in the order of the calls"
    );
    let handed_over: Vec<_> = world
        .recorder
        .take()
        .iter()
        .map(|it| it.delivery.id())
        .collect();
    assert!(handed_over.is_sorted_by(|a, b| a < b));
    assert_eq!(handed_over.len(), 200);
}

pub(super) async fn writes_of_a_class_take_effect_in_the_order_of_the_calls(harness: &dyn Harness) {
    let world = StoreFixture::open(harness);
    let store = &world.store;
    // The responses of the first calls are not awaited.
    drop(store.create_tenant(at(0), super::fixture::tenant("acme")));
    drop(store.create_endpoint(at(0), endpoint(1, "acme", &[]), 9));
    drop(store.accept(at(1), vec![event("acme", "first")]));
    drop(store.replace_endpoint(at(2), endpoint(1, "acme", &["none"])));
    drop(store.accept(at(3), vec![event("acme", "second")]));
    let every_type = Endpoint {
        revision: 1,
        ..endpoint(1, "acme", &[])
    };
    drop(store.replace_endpoint(at(4), every_type));
    let third = world.accept(at(5), event("acme", "third")).await;
    assert_eq!(third.deliveries.len(), 1);
    let found = world.events("acme", EventFilter::default()).await;
    let routed: Vec<(String, usize)> = found
        .iter()
        .map(|it| (it.event.event_type.to_string(), it.event.deliveries.len()))
        .collect();
    let expected = [("third", 1), ("second", 0), ("first", 1)];
    assert_eq!(
        routed,
        expected.map(|(name, count)| (name.to_owned(), count))
    );
    // Internal writes have an order of their own.
    let status = |status| store.set_endpoint_status(at(6), EndpointId(1), status, None, None);
    drop(status(EndpointStatus::Disabled));
    drop(status(EndpointStatus::Enabled));
    assert_eq!(status(EndpointStatus::Paused).await, Ok(true));
    let row = store.endpoint(EndpointId(1)).await.unwrap();
    assert_eq!(row.map(|row| row.status), Some(EndpointStatus::Paused));
    drop(status(EndpointStatus::Disabled));
    assert_eq!(status(EndpointStatus::Enabled).await, Ok(true));
    let fourth = world.accept(at(7), event("acme", "fourth")).await;
    assert_eq!(fourth.deliveries.len(), 1);
}

pub(super) async fn a_request_with_too_many_deliveries_is_refused(harness: &dyn Harness) {
    let settings = StoreSettings {
        max_deliveries_per_request: 6,
        ..super::fixture::settings()
    };
    let world = StoreFixture::open_with(harness, settings);
    world.add_tenant("acme").await;
    for number in 1..=3 {
        world.add(endpoint(number, "acme", &[])).await;
    }
    world.add(endpoint(4, "acme", &["many"])).await;
    let accept = |events| world.store.accept(at(1), events);
    let known = world.accept(at(1), keyed("acme", "known", "{}")).await;
    assert_eq!(known.deliveries.len(), 3);
    // Events that are stored, or that are repeated in the list, make no deliveries.
    let repeated = keyed("acme", "repeated", "{}");
    let events = vec![
        keyed("acme", "known", "{}"),
        repeated.clone(),
        repeated.clone(),
        event("acme", "few"),
    ];
    assert!(matches!(accept(events).await, Ok(AcceptResult::Done(_))));
    let once = Quotas {
        per_second: Some(2),
        per_month: Some(2),
    };
    let new = Quotas {
        per_second: None,
        per_month: Some(6),
    };
    let refused = |deliveries| {
        Ok(AcceptResult::TooManyDeliveries {
            deliveries,
            limit: 6,
        })
    };
    let events = vec![event("acme", "few"), event("acme", "many")];
    assert_eq!(accept(events.clone()).await, refused(7));
    let within = |quotas| world.store.accept_within(at(1), events.clone(), quotas);
    // It precedes the quotas, and uses none.
    assert_eq!(within(once).await, refused(7));
    assert_eq!(within(new).await, refused(7));
    let usage = world.store.usage(at(1), id("acme")).await.unwrap();
    assert_eq!(usage.map(|usage| usage.events_this_month), Some(3));
    let only = |number| NewEvent {
        only: Some(EndpointId(number)),
        ..event("acme", "many")
    };
    let tests = vec![only(1), only(2), only(4), event("acme", "few")];
    assert!(matches!(accept(tests).await, Ok(AcceptResult::Done(_))));
    let found = world.events("acme", EventFilter::default()).await;
    assert_eq!(found.len(), 7);
}
