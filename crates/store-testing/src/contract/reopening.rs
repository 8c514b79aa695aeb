//! Closing and reopening.
//!
//! A closed store finishes the operations in progress and refuses later ones. All acknowledged data is there after
//! it is opened again, nothing is handed over twice, and ids continue to increase even if the clock goes back.

use posthaste_core::delivery::Status;
use posthaste_core::id::{DeliveryId, EndpointId, EventId, KeyId, ReplayId};
use posthaste_core::lane::EndpointStatus;

use super::Harness;
use super::fixture::{
    StoreFixture, all, answered, at, attempt, detail, endpoint, event, id, key, ordered, record,
    tenant,
};
use posthaste_store::{DeliveryFilter, EventFilter, PageRequest, StoreError};

pub(super) async fn a_closed_store_returns_closed(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_endpoint(1).await;
    let sent = world.send(at(1), "a.b").await;
    let waiting = world.delivery(sent).await;
    // An operation that is in progress when the store is closed is still written.
    let last = world.store.accept(at(2), vec![event("acme", "a.b")]);
    assert_eq!(world.store.close().await, Ok(()));
    assert!(last.await.is_ok());
    let closed = || StoreError::Closed;
    let store = &world.store;
    assert_eq!(store.create_tenant(at(3), tenant("b")).await, Err(closed()));
    assert_eq!(
        store.accept(at(3), vec![event("acme", "a.b")]).await,
        Err(closed())
    );
    assert_eq!(store.retry(at(3), id("acme"), sent).await, Err(closed()));
    let settled = attempt(&waiting, at(3), answered(200));
    let settled = posthaste_core::dispatcher::Record::Attempt(Box::new(settled));
    assert_eq!(
        record(&**store, at(3), settled, detail()).await,
        Err(closed())
    );
    assert_eq!(store.tenant(id("acme")).await, Err(closed()));
    assert_eq!(store.content(EventId(1)).await, Err(closed()));
    assert_eq!(
        store.fetch(EndpointId(1), at(3), 9, false).await,
        Err(closed())
    );
    assert_eq!(store.unfinished_work().await, Err(closed()));
    assert_eq!(
        store.step_replay(at(3), ReplayId(1), 9).await,
        Err(closed())
    );
    assert_eq!(store.revoke_key(at(3), None, KeyId(1)).await, Err(closed()));
    assert_eq!(store.probe(at(3)).await, Err(closed()));
    let found = store.deliveries(
        id("acme"),
        DeliveryFilter::default(),
        PageRequest {
            limit: 9,
            before: None,
        },
    );
    assert_eq!(found.await.map(|page| page.items.len()), Err(closed()));
}

pub(super) async fn all_data_survives_a_restart(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let ordered_one = posthaste_store::Endpoint {
        ordered: true,
        ..endpoint(1, "acme", &["a.*"])
    };
    world.add(ordered_one).await;
    world.add_endpoint(2).await;
    world.add_endpoint(3).await;
    world
        .set_status(EndpointId(3), EndpointStatus::Disabled)
        .await;
    world
        .store
        .create_key(at(0), key(1, Some("acme")))
        .await
        .unwrap();
    for ms in 0..6 {
        let accepted = world.accept(at(ms), ordered("acme", ms % 2)).await;
        let sent = accepted.deliveries[0].id;
        match ms {
            0 => world.succeed(sent, at(10)).await,
            1 => world.fail(sent, at(10)).await,
            2 => world.fail_retryably(sent, at(10)).await,
            3.. => {}
        }
    }
    let replay = super::replays::failed(&world, at(20)).await;
    let before = whole(&world).await;
    let world = world.reopened().await;
    assert_eq!(whole(&world).await, before);
    assert_eq!(
        world.store.replay(id("acme"), replay.id).await,
        Ok(Some(replay))
    );
    assert_eq!(
        world.store.key(key(1, None).hash).await,
        Ok(Some(key(1, Some("acme"))))
    );
    assert!(
        world.recorder.take().is_empty(),
        "nothing is handed over again after a restart"
    );
    // Work continues: routing and order are unchanged.
    let accepted = world.accept(at(30), event("acme", "a.b")).await;
    assert_eq!(accepted.deliveries.len(), 2);
    let fetched = world.fetch(EndpointId(1), at(40), 99, true).await;
    assert!(fetched.blocked);
}

async fn whole(world: &StoreFixture<'_>) -> String {
    let events = world.events("acme", EventFilter::default()).await;
    let endpoints = all(9, |page| world.store.endpoints(id("acme"), page)).await;
    let mut deliveries = Vec::new();
    for delivery in world.listed(DeliveryFilter::default()).await {
        deliveries.push(world.find(delivery).await);
    }
    let tenant = world.store.tenant(id("acme")).await;
    let counts = world.store.counts().await.expect("the counts can be read");
    let mut work = world.store.unfinished_work().await.unwrap();
    work.sort();
    let fetched = world.fetch(EndpointId(2), at(10), 99, false).await;
    format!("{tenant:#?}{endpoints:#?}{events:#?}{deliveries:#?}{counts:#?}{work:#?}{fetched:#?}")
}

pub(super) async fn ids_increase_even_if_the_clock_goes_back(harness: &dyn Harness) {
    let mut world = StoreFixture::with_acme(harness).await;
    world.add_endpoint(1).await;
    let mut last = (EventId(0), DeliveryId(0), ReplayId(0));
    let mut step = 0;
    for round in 0..5 {
        for ms in [1_000_000, 999_999, 5, 5] {
            let accepted = world.accept(at(ms), event("acme", "a.b")).await;
            let sent = accepted.deliveries[0].id;
            assert_eq!(
                accepted.created_at,
                at(ms),
                "the creation time is that of the clock"
            );
            let replay = super::replays::failed(&world, at(ms)).await;
            let next = (accepted.id, sent, replay.id);
            assert!(
                next.0 > last.0 && next.1 > last.1 && next.2 > last.2,
                "in round {round}"
            );
            last = next;
            world.succeed(sent, at(10)).await;
            assert_eq!(world.status(sent).await, Status::Succeeded);
        }
        // Ids are not reused, not even those of removed events.
        if round % 2 == 1 {
            step += world
                .step_retention(at(1_000 * super::fixture::DAY), 1)
                .await;
        }
        world = world.reopened().await;
    }
    assert_eq!(step, 16);
}

pub(super) async fn a_probe_writes_to_the_store(harness: &dyn Harness) {
    let world = StoreFixture::open(harness);
    assert_eq!(world.store.probe(at(1)).await, Ok(()));
    assert_eq!(world.store.probe(at(1)).await, Ok(()));
    let world = world.reopened().await;
    assert_eq!(world.store.probe(at(0)).await, Ok(()));
}
