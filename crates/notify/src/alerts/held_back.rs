//! Values of the alert about deliveries that a limit holds back.
//!
//! [`readings`] returns one value for each endpoint with an open alert, and for the endpoints that limits hold back for
//! longest, up to [`MAX_OPEN`] in all. A node that did not answer may know of such an endpoint, so without its answer nothing counts as normal.
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

/// Computes the values, in seconds: of the endpoints with an open alert, and of those that are limited for longest.
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
    let mut others: Vec<(Span, EndpointId)> = limited
        .endpoints
        .iter()
        .filter(|(endpoint, _)| !with_open_alert.contains(*endpoint))
        .map(|(endpoint, report)| (report.duration(), *endpoint))
        .collect();
    others.sort_unstable_by_key(|(duration, endpoint)| (Reverse(*duration), *endpoint));
    others.truncate(MAX_OPEN.saturating_sub(with_open_alert.len()));
    let others = others.into_iter();
    of_open
        .chain(
            others.map(|(duration, endpoint)| (endpoint, Reading::value(duration.as_secs_f64()))),
        )
        .collect()
}
