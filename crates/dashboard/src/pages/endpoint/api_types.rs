//! An endpoint as the API returns it, and its description in words.

use maud::{Markup, html};
use posthaste_charts::words;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::components::{BadgeKind, badge, to_the_second};

/// An endpoint.
#[derive(Deserialize)]
pub(in crate::pages) struct Endpoint {
    pub(in crate::pages) id: String,
    pub(in crate::pages) url: String,
    pub(in crate::pages) description: String,
    pub(in crate::pages) event_types: Vec<String>,
    pub(in crate::pages) status: String,
    pub(in crate::pages) disabled_reason: Option<String>,
    pub(in crate::pages) retry_policy: Value,
    pub(in crate::pages) retry_policy_from: String,
    pub(in crate::pages) timeout: String,
    pub(in crate::pages) max_in_flight: u32,
    pub(in crate::pages) rate_limit: Rate,
    pub(in crate::pages) ordered: bool,
    pub(in crate::pages) headers: Map<String, Value>,
    pub(in crate::pages) signature_style: String,
    pub(in crate::pages) auth: Option<Value>,
    pub(in crate::pages) client_certificate: Option<Value>,
    pub(in crate::pages) owner_email: Option<String>,
    pub(in crate::pages) created_at: String,
}

#[derive(Deserialize)]
pub(in crate::pages) struct Rate {
    pub(in crate::pages) per_second: f64,
    pub(in crate::pages) burst: u32,
}

/// The health of an endpoint.
#[derive(Deserialize)]
pub(in crate::pages) struct Health {
    pub(in crate::pages) breaker: Breaker,
    pub(in crate::pages) pending: u64,
    pub(in crate::pages) in_flight: u32,
    pub(in crate::pages) next_attempt_at: Option<String>,
    pub(in crate::pages) consecutive_failures: u32,
    success_ratio: f64,
    latency_ms: Latency,
}

#[derive(Deserialize)]
pub(in crate::pages) struct Breaker {
    state: String,
    until: Option<String>,
    reason: Option<String>,
}

#[derive(Deserialize)]
struct Latency {
    p50: Option<f64>,
    p99: Option<f64>,
}

impl Endpoint {
    /// Returns its subscription in words.
    pub(in crate::pages) fn types(&self) -> String {
        match self.event_types.is_empty() {
            true => "all types".to_owned(),
            false => self.event_types.join(", "),
        }
    }

    /// Returns its rate limit in words.
    pub(in crate::pages) fn rate(&self) -> String {
        let rate = &self.rate_limit;
        format!(
            "{}, up to {} at once after a pause",
            words::rate(rate.per_second),
            words::count(u64::from(rate.burst))
        )
    }

    /// Returns the origin of its retry policy.
    pub(in crate::pages) fn policy_from(&self) -> &'static str {
        match self.retry_policy_from.as_str() {
            "endpoint" => "set for this endpoint",
            "tenant" => "the tenant's default",
            _ => "the server's default",
        }
    }

    /// Renders its status and its breaker as badges.
    pub(in crate::pages) fn badges(&self, health: &Health) -> Markup {
        let (kind, word) = match self.status.as_str() {
            "enabled" => (BadgeKind::Good, "enabled"),
            "paused" => (BadgeKind::Warning, "paused"),
            _ => (BadgeKind::Bad, "disabled"),
        };
        html! {
            (badge(kind, word))
            @match health.breaker.state.as_str() {
                "tripped" => { " " (badge(BadgeKind::Bad, "breaker tripped")) }
                "probing" => { " " (badge(BadgeKind::Busy, "breaker probing")) }
                _ => { @if health.is_failing() { " " (badge(BadgeKind::Warning, "failing")) } }
            }
        }
    }

    /// Returns the meaning of its status in a sentence.
    pub(in crate::pages) fn state_in_words(&self, health: &Health) -> &'static str {
        match (self.status.as_str(), self.disabled_reason.as_deref()) {
            ("enabled", _) if !health.breaker.is_passing() => {
                "It is enabled, and its breaker holds deliveries back: none is lost."
            }
            ("enabled", _) => "Events it wants are delivered to it.",
            ("paused", _) => {
                "Somebody paused it. Deliveries are held, and none is lost; resume it to let them go."
            }
            (_, Some("gone")) => {
                "It was disabled because the receiver answered 410 Gone: nothing is there any more. Nothing is sent to it."
            }
            (_, Some("permanent_failures")) => {
                "It was disabled because the receiver refused too many deliveries in a row for good. Nothing is sent to it."
            }
            (_, Some("failing_for_days")) => {
                "It was disabled because it did nothing but fail for days. Nothing is sent to it."
            }
            (_, Some(_) | None) => "Somebody disabled it. Nothing is sent to it.",
        }
    }
}

impl Breaker {
    /// Returns whether the breaker lets attempts through.
    pub(in crate::pages) fn is_passing(&self) -> bool {
        self.state == "passing"
    }

    /// Returns the state of the breaker and its reason in words. `lets_go` is false while the endpoint is paused or
    /// disabled, so that nothing is sent anyway.
    pub(in crate::pages) fn in_words(&self, lets_go: bool) -> Markup {
        let why = match self.reason.as_deref() {
            Some("failure_ratio") => "too large a share of the latest attempts failed",
            Some("consecutive_failures") => "too many attempts in a row failed",
            Some("exhausted_deliveries") => "too many deliveries were given up within a day",
            Some(_) | None => "the receiver kept failing",
        };
        html! {
            @match self.state.as_str() {
                "tripped" if !lets_go => {
                    "Tripped: " (why) ". Nothing is sent, as a probe neither, until the endpoint takes part again."
                }
                "tripped" => {
                    "Tripped: " (why) ". Deliveries are held"
                    @if let Some(until) = &self.until { " until " (to_the_second(until)) }
                    "; then one is sent as a probe, and if it succeeds the rest follows, gently."
                }
                "probing" => {
                    "Probing: " (why) ". One delivery is sent as a probe; if it succeeds the rest follows, gently."
                }
                _ => { "Passing: attempts go through as they come due." }
            }
        }
    }
}

/// An endpoint with a lower success ratio counts as failing, regardless of its last attempt.
const FAILING_BELOW_RATIO: f64 = 0.9;

impl Health {
    fn is_failing(&self) -> bool {
        let tried = self.latency_ms.p50.is_some();
        self.consecutive_failures > 0 || (tried && self.success_ratio < FAILING_BELOW_RATIO)
    }

    /// Returns the share of recent attempts that succeeded.
    pub(in crate::pages) fn success(&self) -> String {
        match self.latency_ms.p50 {
            Some(_) => format!("{} %", (self.success_ratio * 1_000.0).round() / 10.0),
            // Without attempts the ratio means nothing.
            None => "nothing was sent lately".to_owned(),
        }
    }

    /// Returns the latency of attempts in words.
    pub(in crate::pages) fn latency(&self) -> Option<String> {
        let ms = |ms: f64| words::duration(ms.ceil() as u64);
        let (p50, p99) = (self.latency_ms.p50?, self.latency_ms.p99?);
        Some(format!(
            "half within {}, 99 of 100 within {}",
            ms(p50),
            ms(p99)
        ))
    }

    /// Returns the size of the backlog in words.
    pub(in crate::pages) fn backlog(&self) -> String {
        let waiting = match self.pending {
            0 => "nothing waits".to_owned(),
            count => format!("{} waiting", words::count(count)),
        };
        match self.in_flight {
            0 => waiting,
            count => format!("{waiting}, {} being sent", words::count(u64::from(count))),
        }
    }

    /// Returns the time of the next attempt, or the reason why there is none.
    pub(in crate::pages) fn next(&self, endpoint: &Endpoint) -> Markup {
        html! {
            @match (&self.next_attempt_at, endpoint.status.as_str()) {
                (Some(at), _) => { (to_the_second(at)) }
                (None, "paused") if self.pending > 0 => { "when it is resumed" }
                (None, "enabled") if self.pending > 0 => { "not known right now" }
                (None, "enabled" | "paused") => { "none is due" }
                (None, _) => { "none: it is disabled" }
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::json;

    pub(in crate::pages) fn endpoint(change: &Value) -> Endpoint {
        let mut shown = json!({
            "id": "ep_01jd2kq8z3w5x7y9a1b2c3d4e5", "url": "https://example.com/hooks", "description": "",
            "event_types": [], "status": "enabled", "disabled_reason": null,
            "retry_policy": {"preset": "recommended"}, "retry_policy_from": "server", "timeout": "30s",
            "max_in_flight": 10, "rate_limit": {"per_second": 50, "burst": 100}, "ordered": false,
            "headers": {"X-Team": "billing"}, "signature_style": "standard", "auth": null,
            "client_certificate": null, "owner_email": null, "created_at": "2026-01-02T03:04:05.678Z",
        });
        for (name, value) in change.as_object().into_iter().flatten() {
            shown[name] = value.clone();
        }
        serde_json::from_value(shown).expect("an endpoint")
    }

    fn health(change: &Value) -> Health {
        let mut shown = json!({
            "breaker": {"state": "passing", "until": null, "reason": null}, "pending": 0, "in_flight": 0,
            "next_attempt_at": null, "consecutive_failures": 0, "success_ratio": 1.0,
            "latency_ms": {"p50": null, "p99": null},
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
        let told = health(&tripped).breaker.in_words(true).0;
        assert!(told.starts_with(
            "Tripped: too many attempts in a row failed. Deliveries are held until <time"
        ));
        let badges = endpoint(&json!({})).badges(&health(&tripped)).0;
        assert!(
            badges.contains("enabled") && badges.contains("breaker tripped"),
            "{badges}"
        );
        let failing = health(&json!({"consecutive_failures": 2}));
        assert!(endpoint(&json!({})).badges(&failing).0.contains("failing"));
        let often = json!({"success_ratio": 0.7, "latency_ms": {"p50": 1.0, "p99": 2.0}});
        let badges = endpoint(&json!({})).badges(&health(&often)).0;
        assert!(badges.contains("failing"), "{badges}");
        let words = endpoint(&json!({})).state_in_words(&health(&tripped));
        assert!(words.contains("breaker holds"), "{words}");
    }

    #[test]
    fn without_attempts_no_success_is_claimed() {
        assert_eq!(health(&json!({})).success(), "nothing was sent lately");
        let busy =
            health(&json!({"success_ratio": 0.9876, "latency_ms": {"p50": 12.2, "p99": 80.0}}));
        assert_eq!(busy.success(), "98.8 %");
        assert_eq!(
            busy.latency().as_deref(),
            Some("half within 13ms, 99 of 100 within 80ms")
        );
    }

    #[test]
    fn milliseconds_that_come_and_go_do_not_change_a_page() {
        let at =
            |ms: &str| health(&json!({"next_attempt_at": format!("2026-01-02T03:04:05.{ms}Z")}));
        let endpoint = endpoint(&json!({}));
        let shown = at("720").next(&endpoint).0;
        assert_eq!(shown, at("721").next(&endpoint).0);
        assert!(shown.contains("\"2026-01-02T03:04:05Z\""), "{shown}");
    }

    #[test]
    fn when_the_next_attempt_comes_is_told_or_why_none_does() {
        let waiting = health(&json!({"pending": 3}));
        let paused = endpoint(&json!({"status": "paused"}));
        assert_eq!(waiting.next(&paused).0, "when it is resumed");
        let disabled = endpoint(&json!({"status": "disabled", "disabled_reason": "gone"}));
        assert_eq!(waiting.next(&disabled).0, "none: it is disabled");
        assert!(disabled.state_in_words(&waiting).contains("410 Gone"));
        assert_eq!(
            health(&json!({})).next(&endpoint(&json!({}))).0,
            "none is due"
        );
        assert_eq!(waiting.backlog(), "3 waiting");
    }
}
