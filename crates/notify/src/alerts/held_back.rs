//! Values of the alert about deliveries that a limit holds back.
//!
//! [`readings`] returns one value for each endpoint with an open alert, and for others that limits hold back, up to [`MAX_OPEN`]
//! in all: first the endpoint of each tenant that has been held back for longest, then the second of each tenant, and so on,
//! up to [`MAX_RANK`]. A node that did not answer may know of such an endpoint, so without its answer nothing counts as normal.
//! Pure.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use posthaste_core::alert::Reading;
use posthaste_core::id::EndpointId;
use posthaste_core::time::Span;
use posthaste_engine::owner_router::LimitedEndpoints;

/// Maximum number of endpoints with an open alert. One limit of a tenant or the server can hold back thousands of
/// endpoints: a few alerts tell as much as one for each.
const MAX_OPEN: usize = 20;

/// Maximum number of endpoints of one tenant and node for which alerts are raised, so that one tenant cannot occupy all.
const MAX_RANK: usize = 5;

/// Computes the values, in seconds: of the endpoints with an open alert, and of others that are limited.
pub(super) fn readings(
    limited: &LimitedEndpoints,
    with_open_alert: &BTreeSet<EndpointId>,
) -> Vec<(EndpointId, Reading)> {
    let absent = match limited.is_complete {
        true => Reading::Nothing,
        false => Reading::Unknown,
    };
    let of_open = with_open_alert.iter().map(|endpoint| {
        let report = limited.endpoints.get(endpoint);
        let seen = report.map_or(absent, |report| {
            Reading::value(report.duration().as_secs_f64())
        });
        (*endpoint, seen)
    });
    let mut others: Vec<(usize, Span, EndpointId)> = limited
        .endpoints
        .iter()
        .filter(|(endpoint, _)| !with_open_alert.contains(*endpoint))
        .filter(|(_, report)| report.rank < MAX_RANK)
        .map(|(endpoint, report)| (report.rank, report.duration(), *endpoint))
        .collect();
    others
        .sort_unstable_by_key(|(rank, duration, endpoint)| (*rank, Reverse(*duration), *endpoint));
    others.truncate(MAX_OPEN.saturating_sub(with_open_alert.len()));
    let others = others.into_iter();
    of_open
        .chain(
            others
                .map(|(_, duration, endpoint)| (endpoint, Reading::value(duration.as_secs_f64()))),
        )
        .collect()
}

#[cfg(test)]
mod tests {
    use posthaste_core::lane::HeldBackBy;
    use posthaste_engine::owner_router::LimitedReport;

    use super::*;

    #[test]
    fn one_tenant_cannot_occupy_all_alerts() {
        let mut limited = LimitedEndpoints {
            is_complete: true,
            ..LimitedEndpoints::default()
        };
        let mut add = |id, rank, minutes| {
            let report = LimitedReport {
                by: HeldBackBy::RateLimit,
                duration_ms: Span::from_mins(minutes).as_millis(),
                rank,
            };
            limited.endpoints.insert(EndpointId(id), report);
        };
        // Thirty endpoints of one tenant, and one of another that was held back later.
        for rank in 0..30 {
            add(rank as u128, rank, 100 - rank as u64);
        }
        add(1_000, 0, 6);
        let found = readings(&limited, &BTreeSet::new());
        assert_eq!(found.len(), MAX_RANK + 1);
        assert!(found.iter().any(|(endpoint, _)| endpoint.0 == 1_000));
        assert!(found.iter().any(|(endpoint, _)| endpoint.0 == 0));
        // Open alerts keep their values.
        let open: BTreeSet<EndpointId> = (10..29).map(EndpointId).collect();
        let found = readings(&limited, &open);
        assert_eq!(found.len(), MAX_OPEN);
        assert_eq!(found[19].0, EndpointId(0));
    }
}
