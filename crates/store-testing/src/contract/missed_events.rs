//! Replays of missed events.
//!
//! An endpoint missed an event if it would have got a delivery but was disabled, or did not exist yet. The replay makes
//! a new delivery for each missed event since a given time and sends failed deliveries again. Events that the endpoint
//! got, and test events of other endpoints, are not missed.

use posthaste_core::classify::FailureKind;
use posthaste_core::delivery::{State, Status, Trigger};
use posthaste_core::id::EndpointId;
use posthaste_core::lane::EndpointStatus;
use posthaste_core::time::Timestamp;

use super::Harness;
use super::fixture::{StoreFixture, at, endpoint, event, id};
use super::replays::{begin, finish, missed};
use posthaste_store::{DeliveryFilter, NewEvent, ReplayFilter};

/// The deliveries of an event to an endpoint.
fn of(endpoint: EndpointId, event: &posthaste_store::AcceptedEvent) -> DeliveryFilter {
    DeliveryFilter {
        endpoint: Some(endpoint),
        event: Some(event.id),
        ..DeliveryFilter::default()
    }
}

/// Checks that the event has one delivery to the endpoint, which is new and due at `due`.
async fn assert_sent_as_new(
    world: &StoreFixture<'_>,
    endpoint: EndpointId,
    event: &posthaste_store::AcceptedEvent,
    due: Timestamp,
) {
    let found = world.deliveries("acme", of(endpoint, event)).await;
    assert_eq!(found.len(), 1);
    let delivery = &found[0].delivery;
    assert!(
        event.deliveries.iter().all(|it| it.id < delivery.id()),
        "the replayed delivery is a new one"
    );
    assert_eq!(
        delivery.next_attempt_at(),
        Some(due),
        "a scheduled delivery keeps its due time"
    );
    match delivery.state() {
        State::Pending(turn) => assert_eq!(turn.trigger, Trigger::Manual),
        other @ (State::Retrying(_)
        | State::Held(_)
        | State::InProgress { .. }
        | State::Succeeded { .. }
        | State::Failed { .. }
        | State::Cancelled { .. }) => panic!("expected a pending delivery, got {other:?}"),
    }
    assert_eq!(found[0].created_at, event.created_at);
}

/// Without an endpoint nothing counts as missed, and only an attempted delivery has a failure kind.
async fn assert_nothing_else_is_missed(world: &StoreFixture<'_>, late: EndpointId) {
    let replay = begin(
        world,
        at(99),
        ReplayFilter {
            endpoint: None,
            ..missed(late, at(5))
        },
    )
    .await;
    assert_eq!(replay.total, 0);
    finish(world, at(99), replay.id).await;
    let http = ReplayFilter {
        error_kind: Some(FailureKind::Http),
        ..missed(late, at(5))
    };
    let replay = begin(world, at(99), http).await;
    assert_eq!(replay.total, 1);
    world
        .store
        .cancel_replay(at(99), id("acme"), replay.id)
        .await
        .unwrap();
}

pub(super) async fn missed_events_are_sent(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add(endpoint(1, "acme", &["a.*"])).await;
    let before = world.accept(at(0), event("acme", "a.b")).await;
    let early = world.accept(at(5), event("acme", "a.b")).await;
    world.accept(at(5), event("acme", "unwanted")).await;
    let late = world.add(endpoint(2, "acme", &["a.*"])).await;
    let got = world.accept(at(10), event("acme", "a.b")).await;
    let refused = world.accept(at(11), event("acme", "a.b")).await;
    let waits = world.accept(at(12), event("acme", "a.b")).await;
    let to_late = |event: &posthaste_store::AcceptedEvent| {
        let mut deliveries = event.deliveries.iter();
        deliveries.find(|it| it.endpoint == late).map(|it| it.id)
    };
    world.succeed(to_late(&got).unwrap(), at(13)).await;
    world.fail(to_late(&refused).unwrap(), at(13)).await;
    world.set_status(late, EndpointStatus::Disabled).await;
    let disabled = world.accept(at(20), event("acme", "a.c")).await;
    let scheduled = NewEvent {
        deliver_at: Some(at(9_000)),
        ..event("acme", "a.c")
    };
    let scheduled = world.accept(at(21), scheduled).await;
    world.set_status(late, EndpointStatus::Enabled).await;
    world.recorder.take();

    assert_nothing_else_is_missed(&world, late).await;
    let replay = begin(&world, at(100), missed(late, at(5))).await;
    assert_eq!(replay.total, 4);
    let (replay, endpoints) = finish(&world, at(101), replay.id).await;
    assert_eq!((replay.replayed, endpoints), (4, vec![late]));
    assert_eq!(
        world.listed(of(late, &before)).await,
        [],
        "events before the start time are not replayed"
    );
    for (event, due) in [(&early, 101), (&disabled, 101), (&scheduled, 9_000)] {
        assert_sent_as_new(&world, late, event, at(due)).await;
    }
    assert_eq!(
        world.status(to_late(&refused).unwrap()).await,
        Status::Pending
    );
    assert_eq!(
        world.status(to_late(&got).unwrap()).await,
        Status::Succeeded
    );
    assert_eq!(
        world
            .delivery(to_late(&waits).unwrap())
            .await
            .next_attempt_at(),
        Some(at(12))
    );
    assert_eq!(
        world
            .store
            .pending(late)
            .await
            .expect("the count can be read"),
        5
    );
    // Now nothing is missing any more.
    let again = begin(&world, at(200), missed(late, at(5))).await;
    assert_eq!(again.total, 0);
    assert!(world.recorder.take().is_empty());
}

pub(super) async fn a_test_event_of_another_endpoint_is_not_missed(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let first = world.add_endpoint(1).await;
    let second = world.add_endpoint(2).await;
    let test = NewEvent {
        only: Some(first),
        ..event("acme", "a.b")
    };
    world.accept(at(1), test).await;
    let replay = begin(&world, at(9), missed(second, at(0))).await;
    assert_eq!(replay.total, 0);
}
