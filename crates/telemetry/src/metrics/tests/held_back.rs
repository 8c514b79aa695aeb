//! Tests of the metric about endpoints that are held back.

use posthaste_core::lane::HeldBackBy;

use super::*;

#[test]
fn every_reason_has_its_number_of_endpoints() {
    let gauges = Gauges {
        held_back: Some(vec![(HeldBackBy::Paused, 3), (HeldBackBy::RateLimit, 2)]),
        ..everything_known()
    };
    let text = Metrics::new().render(&gauges);
    for by in HeldBackBy::ALL {
        let expected = match by {
            HeldBackBy::Paused => 3.0,
            HeldBackBy::RateLimit => 2.0,
            HeldBackBy::InFlight
            | HeldBackBy::Backpressure
            | HeldBackBy::RetryAfter
            | HeldBackBy::Breaker
            | HeldBackBy::Disabled
            | HeldBackBy::TenantInFlight
            | HeldBackBy::ServerInFlight => 0.0,
        };
        let name = format!("posthaste_held_back{{reason=\"{}\"}}", by.name());
        assert_eq!(value(&text, &name), expected, "{name}");
    }
    let unknown = Metrics::new().render(&Gauges::default());
    assert!(!unknown.contains("posthaste_held_back"));
}
