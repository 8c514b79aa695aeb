//! Replays: many deliveries are sent again.
//!
//! The targets are fixed when the replay is created: ended deliveries that match a filter, or events that an
//! endpoint missed. Steps make them due, each once, also across a restart. Deliveries that changed meanwhile and
//! endpoints that cannot receive are skipped, and a cancelled replay stops.

use posthaste_core::classify::FailureKind;
use posthaste_core::delivery::Status;
use posthaste_core::id::{DeliveryId, EndpointId, ReplayId};
use posthaste_core::lane::EndpointStatus;
use posthaste_core::time::Timestamp;

use super::Harness;
use super::fixture::{StoreFixture, all, answered, at, endpoint, event, id, kind, set};
use posthaste_store::{
    DeliveryFilter, Replay, ReplayFilter, ReplayScope, ReplayStatus, ReplayStep, RetryResult,
    StoredStatus, Written,
};

fn ended(status: StoredStatus) -> ReplayFilter {
    ReplayFilter {
        endpoint: None,
        event_type: None,
        error_kind: None,
        since: None,
        until: None,
        scope: ReplayScope::Ended(status),
    }
}

pub(super) fn missed(endpoint: EndpointId, since: Timestamp) -> ReplayFilter {
    ReplayFilter {
        endpoint: Some(endpoint),
        since: Some(since),
        scope: ReplayScope::Missed,
        ..ended(StoredStatus::Failed)
    }
}

/// Starts a replay of acme's failed deliveries.
pub(super) async fn failed(world: &StoreFixture<'_>, now: Timestamp) -> Replay {
    begin(world, now, ended(StoredStatus::Failed)).await
}

/// Starts a replay of the events that an endpoint of acme never got.
pub(super) async fn missed_by(
    world: &StoreFixture<'_>,
    now: Timestamp,
    endpoint: EndpointId,
) -> Replay {
    begin(world, now, missed(endpoint, at(0))).await
}

pub(super) async fn begin(
    world: &StoreFixture<'_>,
    now: Timestamp,
    filter: ReplayFilter,
) -> Replay {
    let counted = world.store.count_replay(id("acme"), filter.clone()).await;
    let counted = counted.expect("the targets are counted");
    let replay = world
        .store
        .create_replay(now, id("acme"), filter.clone())
        .await;
    let replay = replay.expect("the replay is created");
    assert_eq!(replay.total, counted, "the count is that of the replay");
    assert_eq!(
        (&replay.filter, replay.created_at, replay.replayed),
        (&filter, now, 0)
    );
    assert_eq!(read(world, replay.id).await, replay);
    replay
}

async fn read(world: &StoreFixture<'_>, replay: ReplayId) -> Replay {
    let found = world.store.replay(id("acme"), replay).await;
    found
        .expect("the store can be read")
        .expect("the row exists")
}

async fn step(
    world: &StoreFixture<'_>,
    now: Timestamp,
    replay: ReplayId,
    limit: usize,
) -> ReplayStep {
    let step = world.store.step_replay(now, replay, limit).await;
    let step = step.expect("the replay continues").expect("the row exists");
    assert_eq!(read(world, replay).await, step.replay);
    step
}

/// Steps to the end. Returns the endpoints that have new waiting deliveries.
pub(super) async fn finish(
    world: &StoreFixture<'_>,
    now: Timestamp,
    replay: ReplayId,
) -> (Replay, Vec<EndpointId>) {
    let mut endpoints = Vec::new();
    for _ in 0..100 {
        let step = step(world, now, replay, 2).await;
        endpoints.extend(step.endpoints);
        if step.replay.status == ReplayStatus::Done {
            assert_eq!(step.replay.finished_at, Some(now));
            assert_eq!(world.store.running_replays().await, Ok(Vec::new()));
            return (step.replay, set(endpoints).into_iter().collect());
        }
        assert_eq!(step.replay.status, ReplayStatus::Running);
    }
    panic!("the replay does not end");
}

async fn failed_ones(world: &StoreFixture<'_>, count: u64) -> Vec<DeliveryId> {
    let mut sent = Vec::new();
    for ms in 0..count {
        let delivery = world.send(at(ms), "a.b").await;
        world.fail(delivery, at(100)).await;
        sent.push(delivery);
    }
    sent
}

async fn waiting(world: &StoreFixture<'_>) -> Vec<DeliveryId> {
    let pending = DeliveryFilter {
        status: Some(StoredStatus::Pending),
        ..DeliveryFilter::default()
    };
    world.listed(pending).await
}

pub(super) async fn failed_deliveries_are_replayed_once(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let made = world.add_endpoint(1).await;
    let sent = failed_ones(&world, 5).await;
    let succeeded = world.send(at(6), "a.b").await;
    world.succeed(succeeded, at(100)).await;
    world.recorder.take();
    let replay = failed(&world, at(200)).await;
    assert_eq!((replay.total, replay.status), (5, ReplayStatus::Running));
    assert_eq!(world.store.running_replays().await, Ok(vec![replay.id]));
    assert_eq!(
        waiting(&world).await,
        [],
        "nothing is due before the first step"
    );
    let first = step(&world, at(300), replay.id, 2).await;
    assert_eq!((first.replay.replayed, first.endpoints), (2, vec![made]));
    assert_eq!(waiting(&world).await.len(), 2);
    let (replay, endpoints) = finish(&world, at(400), replay.id).await;
    assert_eq!((replay.replayed, endpoints), (5, vec![made]));
    assert_eq!(set(waiting(&world).await), set(sent.iter().copied()));
    for delivery in sent {
        let (stored, attempts) = world.find(delivery).await;
        assert_eq!((stored.delivery.facts().spent, attempts.len()), (0, 1));
    }
    assert_eq!(world.status(succeeded).await, Status::Succeeded);
    assert_eq!(
        world
            .store
            .counts()
            .await
            .expect("the counts can be read")
            .dead_letters,
        0
    );
    // Nothing is handed over: the response names the endpoints with due deliveries.
    assert!(world.recorder.take().is_empty());
    let after = step(&world, at(500), replay.id, 2).await;
    assert_eq!((after.replay, after.endpoints), (replay, vec![]));
    let nowhere = world.store.step_replay(at(500), ReplayId(7), 2).await;
    assert_eq!(nowhere, Ok(None));
}

/// Filters, each with the number of deliveries that it matches in
/// [`only_matching_deliveries_are_replayed`].
fn replay_filters() -> Vec<(ReplayFilter, u64)> {
    let endpoint = EndpointId(2);
    vec![
        (ended(StoredStatus::Failed), 12),
        (ended(StoredStatus::Succeeded), 6),
        (ended(StoredStatus::Cancelled), 6),
        (
            ReplayFilter {
                endpoint: Some(endpoint),
                ..ended(StoredStatus::Failed)
            },
            6,
        ),
        (
            ReplayFilter {
                endpoint: Some(EndpointId(3)),
                ..ended(StoredStatus::Failed)
            },
            0,
        ),
        (
            ReplayFilter {
                event_type: Some(kind("c")),
                ..ended(StoredStatus::Failed)
            },
            6,
        ),
        (
            ReplayFilter {
                error_kind: Some(FailureKind::Http),
                ..ended(StoredStatus::Failed)
            },
            12,
        ),
        (
            ReplayFilter {
                error_kind: Some(FailureKind::Dns),
                ..ended(StoredStatus::Failed)
            },
            0,
        ),
        (
            ReplayFilter {
                since: Some(at(5)),
                ..ended(StoredStatus::Failed)
            },
            6,
        ),
        (
            ReplayFilter {
                until: Some(at(5)),
                ..ended(StoredStatus::Failed)
            },
            6,
        ),
        (
            ReplayFilter {
                since: Some(at(1)),
                until: Some(at(5)),
                event_type: Some(kind("a.b")),
                endpoint: Some(endpoint),
                ..ended(StoredStatus::Failed)
            },
            1,
        ),
    ]
}

/// Ends a delivery: the time of its event decides how.
async fn end(world: &StoreFixture<'_>, ms: u64, delivery: DeliveryId, now: Timestamp) {
    match ms % 4 {
        0 | 1 => world.fail(delivery, now).await,
        2 => world.succeed(delivery, now).await,
        3.. => assert_eq!(world.cancel(delivery, now).await, Written::Applied),
    }
}

pub(super) async fn only_matching_deliveries_are_replayed(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_tenant("other").await;
    for (number, owner) in [(1, "acme"), (2, "acme"), (3, "other")] {
        world.add(endpoint(number, owner, &[])).await;
    }
    let mut deliveries = Vec::new();
    for ms in 0..12 {
        let name = ["a.b", "c"][ms as usize % 2];
        world.accept(at(ms), event("other", name)).await;
        for delivery in world.accept(at(ms), event("acme", name)).await.deliveries {
            end(&world, ms, delivery.id, at(100)).await;
            deliveries.push((ms, name, delivery));
        }
    }
    for (filter, expected) in replay_filters() {
        let replay = begin(&world, at(200), filter.clone()).await;
        assert_eq!(replay.total, expected, "{filter:?}");
        let before = world.store.counts().await.expect("the counts can be read");
        let (replay, _) = finish(&world, at(201), replay.id).await;
        assert_eq!(replay.replayed, expected, "{filter:?}");
        let going = waiting(&world).await;
        assert_eq!(going.len() as u64, expected, "{filter:?}");
        assert_eq!(
            world
                .store
                .counts()
                .await
                .expect("the counts can be read")
                .pending,
            before.pending + expected
        );
        // Restore the earlier state.
        for delivery in going {
            let (ms, _, _) = deliveries
                .iter()
                .find(|(_, _, it)| it.id == delivery)
                .unwrap();
            end(&world, *ms, delivery, at(300)).await;
        }
    }
}

pub(super) async fn a_delivery_that_fails_again_is_not_replayed_twice(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_endpoint(1).await;
    let sent = failed_ones(&world, 6).await;
    let replay = failed(&world, at(200)).await;
    for now in 0..10 {
        step(&world, at(300 + now), replay.id, 1).await;
        for delivery in waiting(&world).await {
            world.fail(delivery, at(300 + now)).await;
        }
    }
    assert_eq!(read(&world, replay.id).await.status, ReplayStatus::Done);
    assert_eq!(read(&world, replay.id).await.replayed, 6);
    for delivery in sent {
        assert_eq!(
            world.find(delivery).await.1.len(),
            2,
            "each delivery was sent once more"
        );
    }
}

pub(super) async fn deliveries_retried_meanwhile_are_skipped(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let made = world.add_endpoint(1).await;
    let sent = failed_ones(&world, 4).await;
    for filter in [ended(StoredStatus::Failed), missed(made, at(0))] {
        let replay = begin(&world, at(200), filter).await;
        assert_eq!(replay.total, 4);
        // Changed manually: one succeeded meanwhile, one was cancelled, one still waits.
        for delivery in &sent[..3] {
            let retried = world.store.retry(at(201), id("acme"), *delivery).await;
            assert_eq!(retried, Ok(RetryResult::Replayed { endpoint: made }));
        }
        world.succeed(sent[0], at(202)).await;
        assert_eq!(world.cancel(sent[1], at(202)).await, Written::Applied);
        let (replay, endpoints) = finish(&world, at(300), replay.id).await;
        assert_eq!((replay.replayed, endpoints), (4, vec![made]));
        assert_eq!(world.status(sent[0]).await, Status::Succeeded);
        assert_eq!(world.status(sent[1]).await, Status::Cancelled);
        assert_eq!(
            world.delivery(sent[2]).await.next_attempt_at(),
            Some(at(201))
        );
        assert_eq!(
            world.delivery(sent[3]).await.next_attempt_at(),
            Some(at(300))
        );
        // Restore the earlier state.
        for delivery in &sent[..2] {
            let retried = world.store.retry(at(400), id("acme"), *delivery).await;
            assert_eq!(retried, Ok(RetryResult::Replayed { endpoint: made }));
        }
        for delivery in &sent {
            world.fail(*delivery, at(401)).await;
        }
    }
}

pub(super) async fn failures_after_the_start_are_not_replayed(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_endpoint(1).await;
    let early = world.send(at(0), "a.b").await;
    failed_ones(&world, 3).await;
    let replay = failed(&world, at(200)).await;
    assert_eq!(replay.total, 3);
    // One was accepted before the replay started, and one after.
    world.fail(early, at(250)).await;
    let late = world.send(at(251), "a.b").await;
    world.fail(late, at(252)).await;
    let (replay, _) = finish(&world, at(300), replay.id).await;
    assert_eq!((replay.total, replay.replayed), (3, 3));
    assert_eq!(world.status(early).await, Status::Failed);
    assert_eq!(world.status(late).await, Status::Failed);
}

pub(super) async fn disabled_and_deleted_endpoints_are_skipped(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let mut sent = Vec::new();
    for number in 1..=4 {
        world.add_endpoint(number).await;
    }
    for delivery in world.accept(at(1), event("acme", "a.b")).await.deliveries {
        world.fail(delivery.id, at(2)).await;
        sent.push(delivery);
    }
    let replay = failed(&world, at(3)).await;
    assert_eq!(replay.total, 4);
    for (number, status) in [
        (1, EndpointStatus::Disabled),
        (2, EndpointStatus::Deleted),
        (3, EndpointStatus::Paused),
    ] {
        world.set_status(EndpointId(number), status).await;
    }
    let (replay, endpoints) = finish(&world, at(4), replay.id).await;
    assert_eq!(replay.replayed, 4, "skipped deliveries are counted");
    assert_eq!(set(endpoints), set([EndpointId(3), EndpointId(4)]));
    for delivery in sent {
        let expected = match delivery.endpoint.0 {
            1 | 2 => Status::Failed,
            3 => Status::Held,
            0 | 4.. => Status::Pending,
        };
        assert_eq!(world.status(delivery.id).await, expected);
    }
}

pub(super) async fn a_replay_survives_a_restart(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_endpoint(1).await;
    let sent = failed_ones(&world, 4).await;
    let replay = failed(&world, at(200)).await;
    step(&world, at(300), replay.id, 1).await;
    for delivery in waiting(&world).await {
        world.fail(delivery, at(301)).await;
    }
    let world = world.reopened().await;
    assert_eq!(world.store.running_replays().await, Ok(vec![replay.id]));
    assert_eq!(read(&world, replay.id).await.replayed, 1);
    let (replay, _) = finish(&world, at(400), replay.id).await;
    assert_eq!(replay.replayed, 4);
    assert_eq!(waiting(&world).await.len(), 3);
    for delivery in waiting(&world).await {
        world.try_once(delivery, at(500), answered(200)).await;
    }
    for delivery in sent {
        assert_eq!(
            world.find(delivery).await.1.len(),
            2,
            "each delivery was sent once more"
        );
    }
}

pub(super) async fn a_cancelled_replay_stops(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_tenant("other").await;
    world.add_endpoint(1).await;
    failed_ones(&world, 3).await;
    let replay = failed(&world, at(200)).await;
    step(&world, at(300), replay.id, 1).await;
    let cancel = |tenant| world.store.cancel_replay(at(400), id(tenant), replay.id);
    assert_eq!(cancel("other").await, Ok(None));
    let cancelled = cancel("acme").await.unwrap().unwrap();
    assert_eq!(
        (cancelled.status, cancelled.replayed),
        (ReplayStatus::Cancelled, 1)
    );
    assert_eq!(cancelled.finished_at, Some(at(400)));
    let after = step(&world, at(500), replay.id, 9).await;
    assert_eq!((after.replay, after.endpoints), (cancelled.clone(), vec![]));
    assert_eq!(waiting(&world).await.len(), 1);
    assert_eq!(world.store.running_replays().await, Ok(Vec::new()));
    assert_eq!(cancel("acme").await, Ok(Some(cancelled)));
    let done = failed(&world, at(600)).await;
    let (done, _) = finish(&world, at(601), done.id).await;
    let late = world
        .store
        .cancel_replay(at(700), id("acme"), done.id)
        .await;
    assert_eq!(
        late,
        Ok(Some(done)),
        "deliveries that were replayed before the cancel stay replayed"
    );
}

pub(super) async fn replays_belong_to_their_tenant(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_tenant("other").await;
    let mut mine = Vec::new();
    for ms in 0..5 {
        mine.push(failed(&world, at(ms)).await);
        let filter = ended(StoredStatus::Failed);
        world
            .store
            .create_replay(at(ms), id("other"), filter)
            .await
            .unwrap();
    }
    mine.reverse();
    for limit in 1..=6 {
        let found = all(limit, |page| world.store.replays(id("acme"), page)).await;
        assert_eq!(found, mine, "pages of {limit}");
    }
    assert_eq!(world.store.replay(id("other"), mine[0].id).await, Ok(None));
    let running = world.store.running_replays().await.unwrap();
    assert_eq!(running.len(), 10);
}
