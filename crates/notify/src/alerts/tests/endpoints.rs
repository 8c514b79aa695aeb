//! Tests of endpoint alerts, which follow the notifications.

use posthaste_core::alert::AlertName;
use posthaste_core::lane::{DisableCause, Health, Standing, StoredTrip, TripReason};
use posthaste_core::time::Span;
use posthaste_store::{DisabledReason, Notification, Scope};
use serde_json::json;

use super::{HOOK, World};

const ENDPOINT: Scope = Scope::Endpoint(HOOK);
const TRIPPED: AlertName = AlertName::BreakerTripped;
const WARNED: AlertName = AlertName::DisableWarning;
const DISABLED: AlertName = AlertName::EndpointDisabled;

fn notice(world: &World, number: u64, name: &str) -> Notification {
    Notification {
        number,
        scope: ENDPOINT,
        at: world.now(),
        name: name.to_owned(),
        detail: json!({ "reason": "consecutive_failures" }),
    }
}

async fn hear(world: &World, number: u64, name: &str) {
    world.pass(Span::from_secs(1));
    let hearing = world.hearing(&world.settings);
    let notice = notice(world, number, name);
    hearing.follow(&notice).await.expect("it is heard");
}

async fn stand(world: &World, standing: Standing, health: Health) {
    let reason = DisabledReason::Automatic(DisableCause::Gone);
    let reason = (standing == Standing::Disabled).then_some(reason);
    let stood = world
        .store
        .set_standing(world.now(), HOOK, standing, reason, Some(health));
    assert_eq!(stood.await, Ok(true));
}

fn tripped(revision: u64) -> Health {
    Health {
        revision,
        warned_of_refusals: true,
        trip: Some(StoredTrip {
            until: super::Timestamp(0),
            reason: TripReason::ConsecutiveFailures,
            failed_probes: 0,
        }),
        ..Health::default()
    }
}

fn well(revision: u64) -> Health {
    Health {
        revision,
        ..Health::default()
    }
}

#[tokio::test]
async fn a_short_trip_is_told_and_what_is_heard_again_changes_nothing() {
    let world = World::new().await;
    let story = [
        "endpoint.breaker_tripped",
        "endpoint.recovered",
        "delivery.failed",
        "endpoint.breaker_tripped",
        "endpoint.disable_warning",
        "endpoint.disabled",
    ];
    let mut heard = Vec::new();
    let hearing = world.hearing(&world.settings);
    for (number, name) in (1..).zip(story) {
        world.pass(Span::from_secs(1));
        heard.push(notice(&world, number, name));
        // After a crash the notification dispatcher repeats notifications, starting at any position.
        for first in 0..heard.len() {
            for notice in &heard[first..] {
                hearing.follow(notice).await.expect("it is heard");
            }
        }
        let open: Vec<AlertName> = world
            .open()
            .await
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        let expected: &[AlertName] = match number {
            1..=4 => &[TRIPPED],
            5 => &[TRIPPED, WARNED],
            _ => &[DISABLED],
        };
        assert_eq!(open, expected, "after {number}");
    }
    assert_eq!(world.told(TRIPPED, &ENDPOINT).await, (1, 1));
    assert_eq!(world.told(WARNED, &ENDPOINT).await, (1, 1));
    assert_eq!(world.told(DISABLED, &ENDPOINT).await, (1, 0));
}

#[tokio::test]
async fn a_clock_that_is_put_back_hides_no_trip() {
    let world = World::new().await;
    hear(&world, 1, "endpoint.breaker_tripped").await;
    world.pass(Span::from_hours(24));
    hear(&world, 2, "endpoint.disabled").await;
    assert_eq!(world.told(TRIPPED, &ENDPOINT).await, (1, 1));
    // After the clock was set back, the first alert would still be open by its times.
    let back = Span::from_hours(12);
    world.outside.lock().expect("nobody panics").passed_ms -= back.as_millis();
    hear(&world, 3, "endpoint.breaker_tripped").await;
    assert_eq!(world.told(TRIPPED, &ENDPOINT).await, (2, 1));
}

#[tokio::test]
async fn an_endpoint_that_trips_again_and_again_is_told_once() {
    let mut world = World::new().await;
    let mut number = 0;
    for _ in 0..10 {
        number += 2;
        stand(&world, Standing::Enabled, tripped(number)).await;
        hear(&world, number, "endpoint.breaker_tripped").await;
        world.watch_for(Span::from_mins(1)).await;
        stand(&world, Standing::Enabled, well(number + 1)).await;
        hear(&world, number + 1, "endpoint.recovered").await;
        world.watch_for(Span::from_mins(4)).await;
    }
    assert_eq!(world.told(TRIPPED, &ENDPOINT).await, (1, 0));
    world.watch_for(Span::from_mins(2)).await;
    assert_eq!(world.told(TRIPPED, &ENDPOINT).await, (1, 1));
    // A later trip raises a new alert.
    hear(&world, number + 2, "endpoint.breaker_tripped").await;
    assert_eq!(world.told(TRIPPED, &ENDPOINT).await, (2, 1));
}

#[tokio::test]
async fn what_goes_on_at_the_endpoint_goes_on_and_what_is_over_there_is_over() {
    for (standing, health, left) in [
        (Standing::Enabled, tripped(2), &[TRIPPED, WARNED][..]),
        (Standing::Enabled, well(2), &[]),
        (Standing::Paused, tripped(2), &[WARNED]),
        (Standing::Disabled, tripped(2), &[DISABLED]),
        (Standing::Deleted, tripped(2), &[]),
    ] {
        let mut world = World::new().await;
        stand(&world, Standing::Enabled, tripped(1)).await;
        hear(&world, 1, "endpoint.breaker_tripped").await;
        hear(&world, 2, "endpoint.disable_warning").await;
        if standing == Standing::Disabled {
            // As if the other two notifications had not been processed.
            let mut only = world.settings.clone();
            only.bounds.retain(|name, _| *name == DISABLED);
            let hearing = world.hearing(&only);
            let notice = Notification {
                scope: ENDPOINT,
                ..notice(&world, 0, "endpoint.disabled")
            };
            hearing.follow(&notice).await.expect("it is heard");
        }
        stand(&world, standing, health).await;
        world.watch_for(Span::from_mins(10)).await;
        world.restart();
        world.watch_for(Span::from_mins(10)).await;
        let open: Vec<AlertName> = world
            .open()
            .await
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(open, left, "{standing:?}");
        for name in [TRIPPED, WARNED] {
            let ends = usize::from(!left.contains(&name));
            assert_eq!(
                world.told(name, &ENDPOINT).await,
                (1, ends),
                "{standing:?} {name}"
            );
        }
    }
}

#[tokio::test]
async fn an_endpoint_that_is_enabled_again_is_disabled_no_more() {
    let mut world = World::new().await;
    stand(&world, Standing::Disabled, well(1)).await;
    hear(&world, 1, "endpoint.disabled").await;
    world.watch_for(Span::from_hours(1)).await;
    assert_eq!(world.told(DISABLED, &ENDPOINT).await, (1, 0));
    stand(&world, Standing::Enabled, well(2)).await;
    world.watch_for(Span::from_mins(1)).await;
    assert_eq!(world.told(DISABLED, &ENDPOINT).await, (1, 1));
}

#[tokio::test]
async fn what_is_off_is_not_heard() {
    let mut world = World::new().await;
    world.settings.bounds.remove(&TRIPPED);
    hear(&world, 1, "endpoint.breaker_tripped").await;
    hear(&world, 2, "endpoint.disable_warning").await;
    assert_eq!(world.told(TRIPPED, &ENDPOINT).await, (0, 0));
    assert_eq!(world.told(WARNED, &ENDPOINT).await, (1, 0));
}
