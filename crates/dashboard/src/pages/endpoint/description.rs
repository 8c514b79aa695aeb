//! An endpoint and its health in words.
//!
//! The functions are pure: they take the resources of the API and return text or badges. Pages of an endpoint and lists
//! of endpoints use the same words.

use maud::{Markup, html};
use posthaste_api::resources::{
    BreakerState, DisabledReason, Endpoint, EndpointBreaker, EndpointHealth, EndpointStatus,
    SettingOrigin, held_back_text,
};
use posthaste_charts::format;
use posthaste_core::lane::TripReason;

use crate::components::{BadgeKind, badge, rounded_duration, to_the_second};

/// An endpoint with a lower success ratio counts as failing, regardless of its last attempt.
const FAILING_BELOW_RATIO: f64 = 0.9;

/// Returns the subscription of an endpoint in words.
pub(in crate::pages) fn subscription_text(endpoint: &Endpoint) -> String {
    match endpoint.event_types.is_empty() {
        true => "all types".to_owned(),
        false => endpoint.event_types.join(", "),
    }
}

/// Returns the rate limit of an endpoint in words.
pub(super) fn rate_text(endpoint: &Endpoint) -> String {
    let rate = &endpoint.rate_limit;
    format!(
        "{}, burst {}",
        format::rate(rate.per_second),
        format::count(u64::from(rate.burst))
    )
}

/// Returns the origin of a retry policy in words.
pub(super) fn policy_origin_text(origin: SettingOrigin) -> &'static str {
    match origin {
        SettingOrigin::Endpoint => "set for this endpoint",
        SettingOrigin::Tenant => "tenant default",
        SettingOrigin::Server => "server default",
    }
}

/// Renders the status of an endpoint and of its breaker as badges.
pub(in crate::pages) fn badges(endpoint: &Endpoint, health: &EndpointHealth) -> Markup {
    let (kind, word) = match endpoint.status {
        EndpointStatus::Enabled => (BadgeKind::Good, "enabled"),
        EndpointStatus::Paused => (BadgeKind::Warning, "paused"),
        EndpointStatus::Disabled | EndpointStatus::Deleted => (BadgeKind::Bad, "disabled"),
    };
    html! {
        (badge(kind, word))
        @match health.breaker.state {
            BreakerState::Tripped => { " " (badge(BadgeKind::Bad, "breaker tripped")) }
            BreakerState::Probing => { " " (badge(BadgeKind::Busy, "breaker probing")) }
            BreakerState::Passing => { @if is_failing(health) { " " (badge(BadgeKind::Warning, "failing")) } }
        }
    }
}

/// Returns the meaning of an endpoint's status in a sentence.
pub(super) fn status_text(endpoint: &Endpoint, health: &EndpointHealth) -> &'static str {
    match (endpoint.status, endpoint.disabled_reason) {
        (EndpointStatus::Enabled, _) if !is_passing(&health.breaker) => {
            "Enabled, but its breaker is tripped: deliveries are held and none are lost."
        }
        (EndpointStatus::Enabled, _) => "Enabled: matching events are delivered.",
        (EndpointStatus::Paused, _) => {
            "Paused manually. Deliveries are held and none are lost; resume the endpoint to send them."
        }
        (_, Some(DisabledReason::Gone)) => {
            "Disabled because the receiver responded with 410 Gone. Nothing is sent."
        }
        (_, Some(DisabledReason::PermanentFailures)) => {
            "Disabled because the receiver permanently rejected too many deliveries in a row. Nothing is sent."
        }
        (_, Some(DisabledReason::FailingForDays)) => {
            "Disabled because all attempts failed for days. Nothing is sent."
        }
        (_, Some(DisabledReason::Manual) | None) => "Disabled manually. Nothing is sent.",
    }
}

/// Returns whether a breaker lets attempts through.
pub(super) fn is_passing(breaker: &EndpointBreaker) -> bool {
    breaker.state == BreakerState::Passing
}

/// Returns the state of a breaker and its reason in words. `is_sending` is false while the endpoint is paused or
/// disabled, so that nothing is sent anyway.
pub(super) fn breaker_text(breaker: &EndpointBreaker, is_sending: bool) -> Markup {
    let why = match breaker.reason {
        Some(TripReason::FailureRatio) => "too many recent attempts failed",
        Some(TripReason::ConsecutiveFailures) => "too many attempts in a row failed",
        Some(TripReason::ExhaustedDeliveries) => "too many deliveries failed within a day",
        Some(TripReason::Refusals) => "the receiver rejected too many deliveries in a row",
        None => "the receiver kept failing",
    };
    html! {
        @match breaker.state {
            BreakerState::Tripped if !is_sending => {
                "Tripped: " (why) ". Neither deliveries nor probes are sent until the endpoint is enabled or resumed."
            }
            BreakerState::Tripped => {
                "Tripped: " (why) ". Deliveries are held"
                @if let Some(until) = &breaker.until { " until " (to_the_second(until)) }
                "; then one is sent as a probe. If it succeeds, the others are sent gradually."
            }
            BreakerState::Probing => {
                "Probing: " (why) ". One delivery is sent as a probe. If it succeeds, the others are sent gradually."
            }
            BreakerState::Passing => { "Passing: attempts are sent when due." }
        }
    }
}

fn is_failing(health: &EndpointHealth) -> bool {
    let tried = health.latency_ms.p50.is_some();
    health.consecutive_failures > 0 || (tried && health.success_ratio < FAILING_BELOW_RATIO)
}

/// Returns the share of recent attempts that succeeded.
pub(in crate::pages) fn success_text(health: &EndpointHealth) -> String {
    match health.latency_ms.p50 {
        Some(_) => format!("{} %", (health.success_ratio * 1_000.0).round() / 10.0),
        // Without attempts the ratio means nothing.
        None => "no data".to_owned(),
    }
}

/// Returns the latency of attempts in words.
pub(super) fn latency_text(health: &EndpointHealth) -> Option<String> {
    let ms = |ms: f64| rounded_duration(ms.ceil() as u64);
    let (p50, p99) = (health.latency_ms.p50?, health.latency_ms.p99?);
    Some(format!("p50 {} · p99 {}", ms(p50), ms(p99)))
}

/// Returns the size of the backlog in words.
pub(in crate::pages) fn backlog_text(health: &EndpointHealth) -> String {
    let waiting = match health.pending {
        0 => "empty".to_owned(),
        count => format!("{} waiting", format::count(count)),
    };
    match health.in_flight {
        0 => waiting,
        count => format!("{waiting}, {} in flight", format::count(u64::from(count))),
    }
}

/// Renders what holds deliveries of the endpoint back, and until when, if anything does.
pub(super) fn held_back(health: &EndpointHealth) -> Option<Markup> {
    let by = health.held_back_by?;
    Some(html! {
        (held_back_text(by, Some(&health.limits_in_force)))
        @if let Some(until) = &health.held_back_until { ", until " (to_the_second(until)) }
    })
}

/// Returns the limits in force, if adaptive protection has lowered them.
pub(super) fn lowered_limits_text(endpoint: &Endpoint, health: &EndpointHealth) -> Option<String> {
    let limits = &health.limits_in_force;
    let is_lowered = limits.in_flight < endpoint.max_in_flight
        || limits.per_second < endpoint.rate_limit.per_second;
    is_lowered.then(|| {
        format!(
            "{}, {} in flight; lowered by backpressure (configured: {}, {} in flight)",
            format::rate(limits.per_second),
            limits.in_flight,
            format::rate(endpoint.rate_limit.per_second),
            endpoint.max_in_flight,
        )
    })
}

/// Renders the time of the next attempt, or the reason why there is none.
pub(in crate::pages) fn next_attempt(endpoint: &Endpoint, health: &EndpointHealth) -> Markup {
    let has_backlog = health.pending > 0;
    html! {
        @match (&health.next_attempt_at, endpoint.status) {
            (Some(at), _) => { (to_the_second(at)) }
            (None, EndpointStatus::Paused) if has_backlog => { "after resuming" }
            (None, EndpointStatus::Enabled) if has_backlog => { "unknown" }
            (None, EndpointStatus::Enabled | EndpointStatus::Paused) => { "none scheduled" }
            (None, EndpointStatus::Disabled | EndpointStatus::Deleted) => { "none (disabled)" }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::{Value, json};

    pub(in crate::pages) fn endpoint(change: &Value) -> Endpoint {
        let mut shown = json!({
            "id": "ep_01jd2kq8z3w5x7y9a1b2c3d4e5", "url": "https://example.com/hooks", "description": "",
            "event_types": [], "status": "enabled", "disabled_reason": null,
            "retry_policy": {"preset": "recommended"}, "retry_policy_from": "server", "timeout": "30s",
            "timeout_from": "server", "max_in_flight": 10, "max_in_flight_from": "tenant",
            "rate_limit": {"per_second": 50, "burst": 100}, "rate_limit_from": "endpoint",
            "protection": {"breaker": {"refusals": 20, "min_samples": 7}}, "ordered": false,
            "headers": {"X-Team": "billing"}, "signature_style": "standard", "auth": null,
            "client_certificate": null, "owner_email": null, "created_at": "2026-01-02T03:04:05.678Z",
        });
        for (name, value) in change.as_object().into_iter().flatten() {
            shown[name] = value.clone();
        }
        serde_json::from_value(shown).expect("an endpoint")
    }

    fn health(change: &Value) -> EndpointHealth {
        let mut shown = json!({
            "breaker": {"state": "passing", "until": null, "reason": null}, "pending": 0, "in_flight": 0,
            "next_attempt_at": null, "consecutive_failures": 0, "success_ratio": 1.0,
            "latency_ms": {"p50": null, "p99": null}, "held_back_by": null, "held_back_until": null,
            "limits_in_force": {"in_flight": 10, "per_second": 50.0}, "quiet_until": null,
        });
        for (name, value) in change.as_object().into_iter().flatten() {
            shown[name] = value.clone();
        }
        serde_json::from_value(shown).expect("health")
    }

    #[test]
    fn the_breaker_says_until_when_and_why() {
        let tripped = json!({"breaker": {
            "state": "tripped", "until": "2026-01-02T03:04:05.678Z", "reason": "consecutive_failures",
        }});
        let text = breaker_text(&health(&tripped).breaker, true).0;
        assert!(text.starts_with(
            "Tripped: too many attempts in a row failed. Deliveries are held until <time"
        ));
        let shown = badges(&endpoint(&json!({})), &health(&tripped)).0;
        assert!(
            shown.contains("enabled") && shown.contains("breaker tripped"),
            "{shown}"
        );
        let failing = health(&json!({"consecutive_failures": 2}));
        assert!(
            badges(&endpoint(&json!({})), &failing)
                .0
                .contains("failing")
        );
        let often = json!({"success_ratio": 0.7, "latency_ms": {"p50": 1.0, "p99": 2.0}});
        let shown = badges(&endpoint(&json!({})), &health(&often)).0;
        assert!(shown.contains("failing"), "{shown}");
        let words = status_text(&endpoint(&json!({})), &health(&tripped));
        assert!(words.contains("breaker is tripped"), "{words}");
    }

    #[test]
    fn without_attempts_no_success_is_claimed() {
        assert_eq!(success_text(&health(&json!({}))), "no data");
        let busy =
            health(&json!({"success_ratio": 0.9876, "latency_ms": {"p50": 12.2, "p99": 80.0}}));
        assert_eq!(success_text(&busy), "98.8 %");
        assert_eq!(
            latency_text(&busy).as_deref(),
            Some("p50 13 ms · p99 80 ms")
        );
    }

    #[test]
    fn changing_milliseconds_do_not_change_a_page() {
        let at =
            |ms: &str| health(&json!({"next_attempt_at": format!("2026-01-02T03:04:05.{ms}Z")}));
        let endpoint = endpoint(&json!({}));
        let shown = next_attempt(&endpoint, &at("720")).0;
        assert_eq!(shown, next_attempt(&endpoint, &at("721")).0);
        assert!(shown.contains("\"2026-01-02T03:04:05Z\""), "{shown}");
    }

    #[test]
    fn what_holds_deliveries_back_is_shown_with_its_end() {
        assert!(held_back(&health(&json!({}))).is_none());
        let limited = health(&json!({
            "held_back_by": "rate_limit", "held_back_until": "2026-01-02T03:04:05.678Z",
        }));
        let shown = held_back(&limited).expect("a reason").0;
        assert!(
            shown.starts_with("rate limit (50/s), until <time"),
            "{shown}"
        );
        let paused = health(&json!({"held_back_by": "paused"}));
        assert_eq!(held_back(&paused).expect("a reason").0, "endpoint paused");
    }

    #[test]
    fn limits_are_shown_only_while_they_are_lowered() {
        let endpoint = endpoint(&json!({}));
        assert_eq!(lowered_limits_text(&endpoint, &health(&json!({}))), None);
        let lowered = health(&json!({"limits_in_force": {"in_flight": 1, "per_second": 10.0}}));
        assert_eq!(
            lowered_limits_text(&endpoint, &lowered).as_deref(),
            Some("10/s, 1 in flight; lowered by backpressure (configured: 50/s, 10 in flight)")
        );
    }

    #[test]
    fn the_next_attempt_or_its_absence_is_explained() {
        let waiting = health(&json!({"pending": 3}));
        let paused = endpoint(&json!({"status": "paused"}));
        assert_eq!(next_attempt(&paused, &waiting).0, "after resuming");
        let disabled = endpoint(&json!({"status": "disabled", "disabled_reason": "gone"}));
        assert_eq!(next_attempt(&disabled, &waiting).0, "none (disabled)");
        assert!(status_text(&disabled, &waiting).contains("410 Gone"));
        assert_eq!(
            next_attempt(&endpoint(&json!({})), &health(&json!({}))).0,
            "none scheduled"
        );
        assert_eq!(backlog_text(&waiting), "3 waiting");
    }
}
