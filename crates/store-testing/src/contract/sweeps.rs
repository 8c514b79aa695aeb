//! Sweeps: waiting deliveries of a disabled or deleted endpoint are failed.
//!
//! A sweep works in steps of a limited size and reports whether more is left. Deliveries in flight, which the
//! caller names, are spared. The stored reason tells whether the endpoint was disabled or deleted.

use std::sync::Arc;

use posthaste_core::classify::FailureKind;
use posthaste_core::delivery::{DeadReason, Status};
use posthaste_core::id::DeliveryId;

use super::Harness;
use super::fixture::{StoreFixture, at, endpoint, event, set};
use posthaste_store::{DeliveryFilter, StoredStatus};

pub(super) async fn a_sweep_works_in_steps_and_spares_deliveries_in_flight(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let made = world.add(endpoint(1, "acme", &["swept"])).await;
    let other = world.add(endpoint(2, "acme", &["spared"])).await;
    let mut sent = Vec::new();
    for ms in 0..10 {
        sent.push(world.send(at(ms), "swept").await);
    }
    world.fail_retryably(sent[4], at(20)).await;
    world.succeed(sent[5], at(20)).await;
    let elsewhere = world
        .accept(at(1), event("acme", "spared"))
        .await
        .deliveries[0]
        .id;
    let except: Arc<[DeliveryId]> = Arc::new([sent[0], sent[9], elsewhere]);
    let reason = DeadReason::EndpointDisabled;
    let mut ended = 0;
    for step in 1.. {
        let swept = world
            .store
            .sweep(at(30), made, reason, except.clone(), 3)
            .await;
        let swept = swept.unwrap();
        assert!(swept.ended <= 3);
        ended += swept.ended;
        if step <= 2 {
            assert_eq!((swept.ended, swept.more), (3, true));
        }
        if !swept.more {
            break;
        }
        assert!(step < 9, "the sweep does not end");
    }
    assert_eq!(ended, 7);
    let failed = DeliveryFilter {
        status: Some(StoredStatus::Failed),
        ..DeliveryFilter::default()
    };
    let expected = set(sent[1..9].iter().copied().filter(|id| *id != sent[5]));
    assert_eq!(set(world.listed(failed).await), expected);
    for spared in [sent[0], sent[9], elsewhere] {
        assert_eq!(world.status(spared).await, Status::Pending);
    }
    assert_eq!(
        (
            world
                .store
                .pending(made)
                .await
                .expect("the count can be read"),
            world
                .store
                .pending(other)
                .await
                .expect("the count can be read")
        ),
        (2, 1)
    );
    assert_eq!(
        world
            .store
            .counts()
            .await
            .expect("the counts can be read")
            .dead_letters,
        7
    );
}

pub(super) async fn a_sweep_stores_its_reason(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let made = world.add_endpoint(1).await;
    for reason in [DeadReason::EndpointDisabled, DeadReason::EndpointDeleted] {
        let fresh = world.send(at(1), "a.b").await;
        let tried = world.send(at(1), "a.b").await;
        world.fail_retryably(tried, at(2)).await;
        world.sweep(at(9), made, reason).await;
        for sent in [fresh, tried] {
            let stored = world.find(sent).await.0;
            let state = stored.delivery.state();
            assert_eq!(state.dead_reason(), Some(reason));
            assert_eq!(state.ended_at(), Some(at(9)));
            assert_eq!(stored.error_kind(), Some(FailureKind::WebhookDisabled));
        }
        assert_eq!(world.find(tried).await.1.len(), 1);
    }
}
