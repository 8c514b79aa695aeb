//! The same guarantees with much data.
//!
//! Stores do large operations in steps, and nothing may be lost between two steps. The cases read long lists with
//! every filter, fetch behind a long queue of one ordering key, and run a replay and a sweep of thousands of
//! deliveries.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use posthaste_core::delivery::{DeadReason, OrderingKey};
use posthaste_core::id::{DeliveryId, EndpointId, EventId};
use posthaste_core::time::Timestamp;

use super::Harness;
use super::fixture::{StoreFixture, all, at, endpoint, event, id, keyed, kind, ordered, set};
use posthaste_store::{
    AcceptResult, AcceptedOrStored, Content, DeliveryFilter, EventFilter, MAX_DELIVERIES_OF_STORED,
    NewEvent, ReplayStatus, StoredStatus,
};

const BATCH: usize = 1_000;
/// More than any store keeps or reads in one step.
const BATCHES: u64 = 24;
const PAGE: usize = 250;

/// Accepts a batch and returns its deliveries.
async fn accept(
    world: &StoreFixture<'_>,
    now: Timestamp,
    events: Vec<NewEvent>,
) -> Vec<DeliveryId> {
    let ingested = world.accept_all(now, events).await;
    let events = ingested.into_iter().map(|it| it.event);
    events
        .flat_map(|event| event.deliveries)
        .map(|delivery| delivery.id)
        .collect()
}

async fn found(world: &StoreFixture<'_>, filter: &DeliveryFilter) -> Vec<DeliveryId> {
    let found = all(PAGE, |page| {
        world.store.deliveries(id("acme"), filter.clone(), page)
    })
    .await;
    found.iter().map(|it| it.delivery.id()).collect()
}

/// The deliveries of the large store, newest first.
struct Lists {
    everything: Vec<DeliveryId>,
    rare: Vec<DeliveryId>,
    refused: Vec<DeliveryId>,
    late: Vec<DeliveryId>,
}

/// Filters, each with the deliveries that it matches.
fn delivery_filters(
    often: EndpointId,
    seldom: EndpointId,
    lists: &Lists,
) -> Vec<(DeliveryFilter, &[DeliveryId])> {
    let none = DeliveryFilter::default;
    vec![
        (none(), &lists.everything),
        (
            DeliveryFilter {
                event_type: Some(kind("seldom")),
                ..none()
            },
            &lists.rare,
        ),
        (
            DeliveryFilter {
                endpoint: Some(seldom),
                ..none()
            },
            &lists.rare,
        ),
        (
            DeliveryFilter {
                status: Some(StoredStatus::Failed),
                ..none()
            },
            &lists.refused,
        ),
        (
            DeliveryFilter {
                status: Some(StoredStatus::Failed),
                endpoint: Some(often),
                ..none()
            },
            &lists.refused,
        ),
        (
            DeliveryFilter {
                since: Some(at((BATCHES - 2) * 1_000)),
                ..none()
            },
            &lists.late,
        ),
        (
            DeliveryFilter {
                status: Some(StoredStatus::Cancelled),
                ..none()
            },
            &[],
        ),
    ]
}

pub(super) async fn long_lists_are_complete(harness: &dyn Harness) {
    let mut world = StoreFixture::with_acme(harness).await;
    world.add_tenant("other").await;
    let often = world.add(endpoint(1, "acme", &["often"])).await;
    let seldom = world.add(endpoint(2, "acme", &["seldom"])).await;
    world.add(endpoint(3, "other", &[])).await;
    let (mut everything, mut rare, mut refused, mut late) = (vec![], vec![], vec![], vec![]);
    for batch in 0..BATCHES {
        let now = at(batch * 1_000);
        let many = vec![event("acme", "often"); BATCH];
        let sent = accept(&world, now, many).await;
        accept(&world, now, vec![event("other", "often"); 10]).await;
        let one = accept(&world, now, vec![event("acme", "seldom")]).await;
        world.fail(sent[7], now).await;
        refused.push(sent[7]);
        if batch >= BATCHES - 2 {
            late.extend(sent.iter().chain(&one).copied());
        }
        everything.extend(sent.iter().chain(&one).copied());
        rare.extend(one);
    }
    for list in [&mut everything, &mut rare, &mut refused, &mut late] {
        list.reverse();
    }
    let lists = Lists {
        everything,
        rare,
        refused,
        late,
    };
    for _ in 0..2 {
        for (filter, expected) in delivery_filters(often, seldom, &lists) {
            assert!(found(&world, &filter).await == expected, "{filter:?}");
        }
        let filter = EventFilter {
            event_type: Some(kind("seldom")),
            ..EventFilter::default()
        };
        let events = all(PAGE, |page| {
            world.store.events(id("acme"), filter.clone(), page)
        })
        .await;
        assert_eq!(events.len(), lists.rare.len());
        let events = all(PAGE, |page| {
            world.store.events(id("acme"), EventFilter::default(), page)
        })
        .await;
        assert_eq!(events.len(), lists.everything.len());
        assert!(events.is_sorted_by(|a, b| a.event.id > b.event.id));
        world = world.reopened().await;
    }
    assert_eq!(
        world
            .store
            .counts()
            .await
            .expect("the counts can be read")
            .dead_letters,
        BATCHES
    );
    assert_eq!(
        world
            .store
            .pending(often)
            .await
            .expect("the count can be read"),
        BATCHES * (BATCH as u64 - 1)
    );
}

pub(super) async fn a_long_queue_of_one_key_does_not_hide_other_keys(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let made = world.add_endpoint(1).await;
    let mut first = None;
    for batch in 0..5 {
        let sent = accept(&world, at(batch), vec![ordered("acme", 1); BATCH]).await;
        first.get_or_insert(sent[0]);
    }
    let other = NewEvent {
        ordering: Some(OrderingKey(u64::MAX)),
        ..event("acme", "a.b")
    };
    let behind = accept(
        &world,
        at(10),
        vec![other.clone(), event("acme", "a.b"), other],
    )
    .await;
    let heads = [
        first.expect("a delivery was accepted"),
        behind[0],
        behind[1],
    ];
    for limit in 1..=4 {
        let fetched = world.fetch(made, at(10), limit, true).await;
        let ids: Vec<DeliveryId> = fetched.deliveries.iter().map(|it| it.id()).collect();
        assert_eq!(ids, heads[..limit.min(3)], "at most {limit}");
        assert!(fetched.blocked);
        assert_eq!(
            fetched.next_due,
            (limit < 3).then_some(at(10)),
            "at most {limit}"
        );
    }
    let early = world.fetch(made, at(9), 9, true).await;
    assert_eq!((early.deliveries.len(), early.next_due), (1, Some(at(10))));
    world.succeed(heads[0], at(20)).await;
    world.succeed(heads[1], at(20)).await;
    let fetched = world.fetch(made, at(20), 9, true).await;
    let ids: Vec<DeliveryId> = fetched.deliveries.iter().map(|it| it.id()).collect();
    assert_eq!(ids[1..], [behind[1], behind[2]]);
    assert!(fetched.blocked);
}

pub(super) async fn a_long_replay_is_complete(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let made = world.add_endpoint(1).await;
    let mut sent = BTreeSet::new();
    for batch in 0..5 {
        sent.extend(accept(&world, at(batch), vec![event("acme", "a.b"); BATCH]).await);
    }
    loop {
        let reason = DeadReason::EndpointDisabled;
        let swept = world
            .store
            .sweep(at(10), made, reason, [].into(), 1_700)
            .await;
        if !swept.expect("the sweep succeeds").more {
            break;
        }
    }
    assert_eq!(
        world
            .store
            .counts()
            .await
            .expect("the counts can be read")
            .dead_letters,
        5 * BATCH as u64
    );
    let replay = super::replays::failed(&world, at(20)).await;
    assert_eq!(replay.total, 5 * BATCH as u64);
    let mut status = replay.status;
    let mut steps = 0;
    while status == ReplayStatus::Running {
        let step = world.store.step_replay(at(21), replay.id, 700).await;
        status = step
            .expect("the replay continues")
            .expect("the row exists")
            .replay
            .status;
        steps += 1;
        assert!(steps < 20, "the replay does not end");
    }
    let filter = DeliveryFilter {
        status: Some(StoredStatus::Pending),
        ..DeliveryFilter::default()
    };
    assert!(
        set(found(&world, &filter).await) == sent,
        "all deliveries are replayed exactly once"
    );
    assert_eq!(
        world
            .store
            .counts()
            .await
            .expect("the counts can be read")
            .dead_letters,
        0
    );
}

pub(super) async fn a_request_with_many_deliveries_is_complete(harness: &dyn Harness) {
    let mut world = StoreFixture::with_acme(harness).await;
    world.add_tenant("other").await;
    for number in 1..=12 {
        world.add_endpoint(number).await;
    }
    world.add(endpoint(99, "other", &[])).await;
    let large = || {
        let keyed = |number| keyed("acme", &format!("key {number}"), "{}");
        (0..200).map(keyed).collect::<Vec<NewEvent>>()
    };
    // None of the answers is awaited before the next call.
    let first = world.store.accept(at(1), large());
    let between = world.store.accept(at(1), vec![event("other", "a.b")]);
    let repeated = world.store.accept(at(2), large());
    assert!(matches!(between.await, Ok(AcceptResult::Done(_))));
    let Ok(AcceptResult::Done(repeated)) = repeated.await else {
        panic!("the repeated request is not accepted");
    };
    let handed_over = world.recorder.take();
    let Ok(AcceptResult::Done(first)) = first.await else {
        panic!("the request is not accepted");
    };
    assert!(first.iter().all(|it| it.is_new));
    assert!(repeated.iter().all(|it| !it.is_new));
    let accepted = |ingested: &[AcceptedOrStored]| -> Vec<DeliveryId> {
        let deliveries = ingested.iter().flat_map(|it| &it.event.deliveries);
        deliveries.map(|delivery| delivery.id).collect()
    };
    let ids = accepted(&first);
    assert_eq!(ids.len(), 2_400);
    assert_eq!(accepted(&repeated), ids);
    let of_acme = handed_over
        .iter()
        .map(|it| it.delivery.id())
        .filter(|id| ids.contains(id));
    let of_acme: Vec<DeliveryId> = of_acme.collect();
    assert_eq!(of_acme, ids, "each is handed over once, in order");
    for round in 0..2 {
        let mut found = found(&world, &DeliveryFilter::default()).await;
        found.reverse();
        assert_eq!(found, ids, "round {round}");
        let counts = world.store.counts().await.unwrap();
        assert_eq!(counts.pending, 2_401, "round {round}");
        for number in [1, 12] {
            let waiting = world.store.pending(EndpointId(number)).await;
            assert_eq!(waiting, Ok(200), "round {round}");
        }
        world = world.reopened().await;
    }
}

pub(super) async fn a_request_with_many_bytes_is_complete(harness: &dyn Harness) {
    let mut world = StoreFixture::with_acme(harness).await;
    world.add_tenant("other").await;
    world.add_endpoint(1).await;
    world.add(endpoint(99, "other", &[])).await;
    let payload = |number: usize| Bytes::from(vec![number as u8; 300_000 + number]);
    let large = |first: usize| -> Vec<NewEvent> {
        let numbers = first..first + 16;
        let with_payload = |number| {
            let content = Content {
                payload: payload(number),
                ..Content::clone(&event("acme", "a.b").content)
            };
            NewEvent {
                content: Arc::new(content),
                ..keyed("acme", &format!("key {number}"), "{}")
            }
        };
        numbers.map(with_payload).collect()
    };
    // None of the answers is awaited before the next call.
    let first = world.store.accept(at(1), large(0));
    let between = world.store.accept(at(1), vec![event("other", "a.b")]);
    let repeated = world.store.accept(at(2), large(0));
    assert!(matches!(between.await, Ok(AcceptResult::Done(_))));
    let Ok(AcceptResult::Done(first)) = first.await else {
        panic!("the request is not accepted");
    };
    let Ok(AcceptResult::Done(repeated)) = repeated.await else {
        panic!("the repeated request is not accepted");
    };
    assert!(first.iter().all(|it| it.is_new));
    assert!(repeated.iter().all(|it| !it.is_new));
    let ids = |accepted: &[AcceptedOrStored]| -> Vec<EventId> {
        accepted.iter().map(|it| it.event.id).collect()
    };
    let mut stored = ids(&first);
    assert_eq!(ids(&repeated), stored);
    assert_eq!(world.recorder.take().len(), 17);
    // Half of the events are stored already.
    let overlapping = world.accept_all(at(3), large(8)).await;
    assert!(overlapping[..8].iter().all(|it| !it.is_new));
    assert!(overlapping[8..].iter().all(|it| it.is_new));
    stored.extend(&ids(&overlapping)[8..]);
    // The last event has a key of other content, so none of them is stored.
    let mut conflicting = large(24);
    conflicting[15] = keyed("acme", "key 0", "other content");
    let refused = world.store.accept(at(4), conflicting).await;
    assert_eq!(refused, Ok(AcceptResult::Conflict(vec![15])));
    for round in 0..2 {
        for (number, id) in stored.iter().enumerate() {
            let (_, content) = world.store.content(*id).await.unwrap().expect("it exists");
            assert!(
                content.payload == payload(number),
                "{number}, round {round}"
            );
        }
        let mut listed = world.events("acme", EventFilter::default()).await;
        listed.reverse();
        let listed: Vec<EventId> = listed.iter().map(|it| it.event.id).collect();
        assert_eq!(listed, stored, "round {round}");
        let waiting = world.store.pending(EndpointId(1)).await;
        assert_eq!(waiting, Ok(24), "round {round}");
        world = world.reopened().await;
    }
}

pub(super) async fn a_repeated_event_names_its_first_deliveries(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let endpoints = MAX_DELIVERIES_OF_STORED + 30;
    for number in 1..=endpoints {
        world.add_endpoint(number as u128).await;
    }
    let new = world.accept(at(1), keyed("acme", "a", "content")).await;
    assert_eq!(
        (new.delivery_count, new.deliveries.len()),
        (endpoints, endpoints)
    );
    let again = ["b", "a", "b", "a"].map(|key| keyed("acme", key, "content"));
    let ingested = world.accept_all(at(2), again.to_vec()).await;
    let is_new: Vec<bool> = ingested.iter().map(|it| it.is_new).collect();
    assert_eq!(is_new, [true, false, false, false]);
    assert_eq!(ingested[0].event.deliveries.len(), endpoints);
    for (position, event) in [(1, &new), (2, &ingested[0].event), (3, &new)] {
        assert_eq!(ingested[position].event, event.repeated(), "{position}");
    }
    let repeated = &ingested[1].event;
    assert_eq!(repeated.delivery_count, endpoints);
    assert_eq!(
        repeated.deliveries,
        new.deliveries[..MAX_DELIVERIES_OF_STORED]
    );
    let listed = world.events("acme", EventFilter::default()).await;
    assert_eq!(listed[1].event, new.repeated());
    assert!(listed.iter().all(|it| it.content.payload.is_empty()));
    let read = world.store.event(id("acme"), new.id).await;
    let read = read.unwrap().expect("it is stored");
    assert_eq!(read.event, new.repeated());
    assert!(!read.content.payload.is_empty());
}
