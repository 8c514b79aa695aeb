//! Tests of the tenant that receives the operational events: its deliveries are left out of the totals.

use posthaste_core::delivery::Status;
use posthaste_core::id::EndpointId;
use posthaste_store::Scope;

use super::{AttemptSeen, Metrics, at, everything_known, retry, seen, tenant, value};

#[test]
fn what_happens_to_the_operators_own_notices_is_theirs_alone() {
    let (operator, acme) = (tenant("operator"), tenant("acme"));
    let observatory = Metrics::new()
        .by_endpoint(9)
        .with_operational_tenant(Some(operator.clone()));
    observatory.attempt(at(0), &seen(&acme));
    let own = EndpointId(8);
    for _ in 0..5 {
        let failed = AttemptSeen {
            endpoint: own,
            ..retry(&operator, 2, Some(Status::Failed))
        };
        observatory.attempt(at(0), &failed);
    }
    observatory.swept(at(0), &operator, own, 3);
    let counted = |scope: &Scope| {
        let pending = observatory.ledger().pending.of(scope);
        let counted = pending.iter().map(|(_, it)| (it.attempts, it.failed));
        counted.collect::<Vec<_>>()
    };
    assert_eq!(counted(&Scope::Everything), [(1, 0)]);
    assert_eq!(counted(&Scope::Tenant(operator)), [(5, 8)]);
    assert_eq!(counted(&Scope::Endpoint(own)), [(5, 8)]);
    assert_eq!(observatory.endpoint(own).success_ratio, 0.0);
    let text = observatory.render(&everything_known());
    for (name, expected) in [
        ("posthaste_deliveries_total{status=\"failed\"}", 0.0),
        ("posthaste_attempts_total{outcome=\"success\"}", 1.0),
        ("posthaste_attempts_total{outcome=\"timeout\"}", 0.0),
        ("posthaste_attempt_seconds_count", 1.0),
    ] {
        assert_eq!(value(&text, name), expected, "{name}");
    }
}
