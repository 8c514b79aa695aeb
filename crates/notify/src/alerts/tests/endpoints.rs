//! Tests of endpoint alerts, which follow the notifications.

use posthaste_core::alert::AlertName;
use posthaste_core::lane::{DisableCause, EndpointStatus, Health, StoredTrip, TripReason};
use posthaste_core::time::Span;
use posthaste_store::{DisabledReason, Notification, SubjectScope};
use serde_json::json;

use super::{Fixture, HOOK};

const ENDPOINT: SubjectScope = SubjectScope::Endpoint(HOOK);
const TRIPPED: AlertName = AlertName::BreakerTripped;
const WARNED: AlertName = AlertName::DisableWarning;
const DISABLED: AlertName = AlertName::EndpointDisabled;

fn notification(fixture: &Fixture, number: u64, name: &str) -> Notification {
    Notification {
        number,
        scope: ENDPOINT,
        at: fixture.now(),
        name: name.to_owned(),
        detail: json!({ "reason": "consecutive_failures" }),
    }
}

async fn apply(fixture: &Fixture, number: u64, name: &str) {
    fixture.advance(Span::from_secs(1));
    let endpoint_alerts = fixture.endpoint_alerts(&fixture.settings);
    let notification = notification(fixture, number, name);
    endpoint_alerts
        .apply(&notification)
        .await
        .expect("the notification is applied");
}

async fn set_status(fixture: &Fixture, status: EndpointStatus, health: Health) {
    let reason = DisabledReason::Automatic(DisableCause::Gone);
    let reason = (status == EndpointStatus::Disabled).then_some(reason);
    let written =
        fixture
            .store
            .set_endpoint_status(fixture.now(), HOOK, status, reason, Some(health));
    assert_eq!(written.await, Ok(true));
}

fn tripped(revision: u64) -> Health {
    Health {
        revision,
        warned_of_days_at: Some(super::Timestamp(1)),
        trip: Some(StoredTrip {
            until: super::Timestamp(0),
            reason: TripReason::ConsecutiveFailures,
            failed_probes: 0,
        }),
        ..Health::default()
    }
}

fn healthy(revision: u64) -> Health {
    Health {
        revision,
        ..Health::default()
    }
}

async fn open_names(fixture: &Fixture) -> Vec<AlertName> {
    let open = fixture.open().await.into_iter();
    open.map(|(name, _)| name).collect()
}

#[tokio::test]
async fn a_short_trip_raises_an_alert_and_repeated_notifications_change_nothing() {
    let fixture = Fixture::new().await;
    let names = [
        "endpoint.breaker_tripped",
        "endpoint.recovered",
        "delivery.failed",
        "endpoint.breaker_tripped",
        "endpoint.disable_warning",
        "endpoint.disabled",
    ];
    let mut applied = Vec::new();
    let endpoint_alerts = fixture.endpoint_alerts(&fixture.settings);
    for (number, name) in (1..).zip(names) {
        fixture.advance(Span::from_secs(1));
        applied.push(notification(&fixture, number, name));
        // After a crash the notification dispatcher repeats notifications, starting at any position.
        for first in 0..applied.len() {
            for notification in &applied[first..] {
                endpoint_alerts
                    .apply(notification)
                    .await
                    .expect("the notification is applied");
            }
        }
        let open = open_names(&fixture).await;
        let expected: &[AlertName] = match number {
            1..=4 => &[TRIPPED],
            5 => &[TRIPPED, WARNED],
            _ => &[DISABLED],
        };
        assert_eq!(open, expected, "after {number}");
    }
    assert_eq!(fixture.notified(TRIPPED, &ENDPOINT).await, (1, 1));
    assert_eq!(fixture.notified(WARNED, &ENDPOINT).await, (1, 1));
    assert_eq!(fixture.notified(DISABLED, &ENDPOINT).await, (1, 0));
}

#[tokio::test]
async fn a_clock_that_is_set_back_hides_no_trip() {
    let fixture = Fixture::new().await;
    apply(&fixture, 1, "endpoint.breaker_tripped").await;
    fixture.advance(Span::from_hours(24));
    apply(&fixture, 2, "endpoint.disabled").await;
    assert_eq!(fixture.notified(TRIPPED, &ENDPOINT).await, (1, 1));
    // After the clock was set back, the first alert would still be open by its times.
    let back = Span::from_hours(12);
    fixture.environment().passed_ms -= back.as_millis();
    apply(&fixture, 3, "endpoint.breaker_tripped").await;
    assert_eq!(fixture.notified(TRIPPED, &ENDPOINT).await, (2, 1));
}

#[tokio::test]
async fn an_endpoint_that_trips_repeatedly_notifies_once() {
    let mut fixture = Fixture::new().await;
    let mut number = 0;
    for _ in 0..10 {
        number += 2;
        set_status(&fixture, EndpointStatus::Enabled, tripped(number)).await;
        apply(&fixture, number, "endpoint.breaker_tripped").await;
        fixture.run_for(Span::from_mins(1)).await;
        set_status(&fixture, EndpointStatus::Enabled, healthy(number + 1)).await;
        apply(&fixture, number + 1, "endpoint.recovered").await;
        fixture.run_for(Span::from_mins(4)).await;
    }
    assert_eq!(fixture.notified(TRIPPED, &ENDPOINT).await, (1, 0));
    fixture.run_for(Span::from_mins(2)).await;
    assert_eq!(fixture.notified(TRIPPED, &ENDPOINT).await, (1, 1));
    // A later trip raises a new alert.
    apply(&fixture, number + 2, "endpoint.breaker_tripped").await;
    assert_eq!(fixture.notified(TRIPPED, &ENDPOINT).await, (2, 1));
}

#[tokio::test]
async fn an_alert_follows_the_state_of_its_endpoint() {
    for (status, health, left) in [
        (EndpointStatus::Enabled, tripped(2), &[TRIPPED, WARNED][..]),
        (EndpointStatus::Enabled, healthy(2), &[]),
        (EndpointStatus::Paused, tripped(2), &[WARNED]),
        (EndpointStatus::Disabled, tripped(2), &[DISABLED]),
        (EndpointStatus::Deleted, tripped(2), &[]),
    ] {
        let mut fixture = Fixture::new().await;
        set_status(&fixture, EndpointStatus::Enabled, tripped(1)).await;
        apply(&fixture, 1, "endpoint.breaker_tripped").await;
        apply(&fixture, 2, "endpoint.disable_warning").await;
        if status == EndpointStatus::Disabled {
            // As if the other two notifications had not been processed.
            let mut only = fixture.settings.clone();
            only.bounds.retain(|name, _| *name == DISABLED);
            let endpoint_alerts = fixture.endpoint_alerts(&only);
            let notification = Notification {
                scope: ENDPOINT,
                ..notification(&fixture, 0, "endpoint.disabled")
            };
            endpoint_alerts
                .apply(&notification)
                .await
                .expect("the notification is applied");
        }
        set_status(&fixture, status, health).await;
        fixture.run_for(Span::from_mins(10)).await;
        fixture.restart();
        fixture.run_for(Span::from_mins(10)).await;
        let open = open_names(&fixture).await;
        assert_eq!(open, left, "{status:?}");
        for name in [TRIPPED, WARNED] {
            let ends = usize::from(!left.contains(&name));
            assert_eq!(
                fixture.notified(name, &ENDPOINT).await,
                (1, ends),
                "{status:?} {name}"
            );
        }
    }
}

#[tokio::test]
async fn the_alert_of_a_disabled_endpoint_is_resolved_when_it_is_enabled() {
    let mut fixture = Fixture::new().await;
    set_status(&fixture, EndpointStatus::Disabled, healthy(1)).await;
    apply(&fixture, 1, "endpoint.disabled").await;
    fixture.run_for(Span::from_hours(1)).await;
    assert_eq!(fixture.notified(DISABLED, &ENDPOINT).await, (1, 0));
    set_status(&fixture, EndpointStatus::Enabled, healthy(2)).await;
    fixture.run_for(Span::from_mins(1)).await;
    assert_eq!(fixture.notified(DISABLED, &ENDPOINT).await, (1, 1));
}

#[tokio::test]
async fn an_alert_that_is_off_is_not_raised() {
    let mut fixture = Fixture::new().await;
    fixture.settings.bounds.remove(&TRIPPED);
    apply(&fixture, 1, "endpoint.breaker_tripped").await;
    apply(&fixture, 2, "endpoint.disable_warning").await;
    assert_eq!(fixture.notified(TRIPPED, &ENDPOINT).await, (0, 0));
    assert_eq!(fixture.notified(WARNED, &ENDPOINT).await, (1, 0));
}
