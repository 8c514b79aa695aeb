//! Values of the alert about deliveries that a limit holds back.
//!
//! [`readings`] returns one value for each endpoint that limits hold back for long, and one for each endpoint with an
//! open alert. A node that did not answer may know of such an endpoint, so without its answer nothing counts as normal.
//! Pure.

use posthaste_core::alert::Seen;
use posthaste_core::id::EndpointId;
use posthaste_engine::owner_router::LimitedEndpoints;

/// Computes the values, in seconds: of the limited endpoints, and of those with an open alert.
pub(super) fn readings(
    limited: &LimitedEndpoints,
    with_open_alert: impl Iterator<Item = EndpointId>,
) -> Vec<(EndpointId, Seen)> {
    let absent = match limited.is_complete {
        true => Seen::Nothing,
        false => Seen::Unknown,
    };
    let of_limited = limited.endpoints.iter().map(|(endpoint, report)| {
        let seconds = report.duration().as_secs_f64();
        (*endpoint, Seen::value(seconds))
    });
    let others = with_open_alert.filter(|endpoint| !limited.endpoints.contains_key(endpoint));
    of_limited
        .chain(others.map(|endpoint| (endpoint, absent)))
        .collect()
}
