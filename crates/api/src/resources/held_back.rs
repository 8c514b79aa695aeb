//! The reasons that hold deliveries back, in words, for the dashboard and the command line.

use posthaste_charts::format;
use posthaste_core::lane::HeldBackBy;

use super::LimitsInForce;

/// Returns a reason in words, with the limits in force if they are known.
pub fn held_back_text(by: HeldBackBy, limits: Option<&LimitsInForce>) -> String {
    let at_once = |limits: &LimitsInForce| format!("{} in flight", limits.in_flight);
    let rate = |limits: &LimitsInForce| format::rate(limits.per_second);
    let (name, detail) = match by {
        HeldBackBy::RateLimit => ("rate limit", limits.map(rate)),
        HeldBackBy::InFlight => ("in-flight limit", limits.map(at_once)),
        HeldBackBy::Backpressure => (
            "backpressure because of the receiver's responses",
            limits.map(|limits| format!("{}, {}", rate(limits), at_once(limits))),
        ),
        HeldBackBy::RetryAfter => ("wait requested by the receiver (Retry-After)", None),
        HeldBackBy::Breaker => ("circuit breaker tripped", None),
        HeldBackBy::Paused => ("endpoint paused", None),
        HeldBackBy::Disabled => ("endpoint disabled", None),
        HeldBackBy::TenantInFlight => ("tenant in-flight limit", None),
        HeldBackBy::ServerInFlight => ("server in-flight limit", None),
    };
    match detail {
        Some(detail) => format!("{name} ({detail})"),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_shown_with_the_reasons_that_they_explain() {
        let limits = LimitsInForce {
            in_flight: 4,
            per_second: 100.0,
        };
        let text = |by| held_back_text(by, Some(&limits));
        assert_eq!(text(HeldBackBy::RateLimit), "rate limit (100/s)");
        assert_eq!(text(HeldBackBy::InFlight), "in-flight limit (4 in flight)");
        assert_eq!(text(HeldBackBy::Breaker), "circuit breaker tripped");
        assert!(text(HeldBackBy::Backpressure).ends_with("responses (100/s, 4 in flight)"));
        assert_eq!(held_back_text(HeldBackBy::RateLimit, None), "rate limit");
    }
}
