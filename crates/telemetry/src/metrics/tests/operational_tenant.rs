//! Tests of the tenant that receives the operational events: its deliveries are left out of the totals.

use posthaste_core::delivery::Status;
use posthaste_core::id::EndpointId;

use super::{AttemptEvent, Metrics, at, everything_known, retry, success, tenant, value};

#[test]
fn deliveries_of_the_operational_tenant_are_left_out_of_the_totals() {
    let (operator, acme) = (tenant("operator"), tenant("acme"));
    let metrics = Metrics::new()
        .with_endpoint_counters(9)
        .with_operational_tenant(Some(operator.clone()));
    metrics.attempt(at(0), &success(&acme));
    let own = EndpointId(8);
    for _ in 0..5 {
        let failed = AttemptEvent {
            endpoint: own,
            ..retry(&operator, 2, Some(Status::Failed))
        };
        metrics.attempt(at(0), &failed);
    }
    metrics.dead_lettered(&operator, 3);
    assert_eq!(metrics.endpoint_stats(own).success_ratio, 0.0);
    let text = metrics.render(&everything_known());
    for (name, expected) in [
        ("posthaste_deliveries_total{status=\"failed\"}", 0.0),
        ("posthaste_attempts_total{outcome=\"success\"}", 1.0),
        ("posthaste_attempts_total{outcome=\"timeout\"}", 0.0),
        ("posthaste_attempt_seconds_count", 1.0),
    ] {
        assert_eq!(value(&text, name), expected, "{name}");
    }
}
