//! The health of an endpoint: its breaker, its backlog and its recent results.

use axum::body::Body;
use http::{Response, StatusCode};
use posthaste_core::lane::{EndpointStatus, TripReason};
use posthaste_core::time::Timestamp;
use posthaste_engine::owner_router::{BreakerReport, LaneReport};
use posthaste_store::EndpointRow;

use super::find;
use crate::body;
use crate::problem::Problem;
use crate::resources::{BreakerState, EndpointBreaker, EndpointHealth, LatencyQuantiles};
use crate::route::Call;

/// The breaker of an endpoint, which may have no lane at the moment.
enum Breaker {
    Passing,
    Tripped(Timestamp, TripReason),
    Probing(TripReason),
}

impl Breaker {
    fn of(lane: Option<&LaneReport>, row: &EndpointRow) -> Breaker {
        match (lane.map(|lane| lane.breaker), row.health.trip) {
            (Some(BreakerReport::Passing), _) | (None, None) => Breaker::Passing,
            (Some(BreakerReport::Tripped { until, reason }), _) => Breaker::Tripped(until, reason),
            (Some(BreakerReport::Probing { reason }), _) => Breaker::Probing(reason),
            (None, Some(trip)) => Breaker::Tripped(trip.until, trip.reason),
        }
    }

    fn report(&self) -> EndpointBreaker {
        let (state, until, reason) = match self {
            Breaker::Passing => (BreakerState::Passing, None, None),
            Breaker::Tripped(until, reason) => (BreakerState::Tripped, Some(*until), Some(*reason)),
            Breaker::Probing(reason) => (BreakerState::Probing, None, Some(*reason)),
        };
        EndpointBreaker {
            state,
            until: until.map(|at| at.to_string()),
            reason,
        }
    }
}

pub(super) async fn show(call: Call) -> Result<Response<Body>, Problem> {
    let app = &call.app;
    let row = find(&call).await?;
    let endpoint = &row.endpoint;
    let (lane, stats) = app.owner_router.look(endpoint.id).await?;
    let now = app.clock.wall();
    let breaker = Breaker::of(lane.as_ref(), &row);
    // At time zero nothing is due, so `next_due` is the earliest due time of all waiting deliveries.
    let ordered = endpoint.ordered;
    let waiting = app.store.fetch(endpoint.id, Timestamp(0), 1, ordered);
    let due = waiting.await?.next_due;
    let stored_failures = row.health.consecutive_failures;
    let failures = lane.as_ref().map(|lane| lane.consecutive_failures);
    let health = EndpointHealth {
        breaker: breaker.report(),
        pending: app.store.pending(endpoint.id).await?,
        in_flight: lane.as_ref().map_or(0, |lane| lane.in_flight),
        next_attempt_at: due
            .and_then(|due| next_attempt(due, &row, lane.as_ref(), &breaker, now))
            .map(|at| at.to_string()),
        consecutive_failures: failures.unwrap_or(stored_failures),
        success_ratio: stats.success_ratio,
        latency_ms: LatencyQuantiles {
            p50: stats.p50_ms,
            p99: stats.p99_ms,
        },
    };
    Ok(body::answer(StatusCode::OK, &health))
}

/// Returns the time of the next attempt for a delivery due at `due`: not before the breaker allows a probe,
/// and not before the receiver's `Retry-After` is over. Returns `None` while the endpoint is paused, disabled
/// or deleted.
fn next_attempt(
    due: Timestamp,
    row: &EndpointRow,
    lane: Option<&LaneReport>,
    breaker: &Breaker,
    now: Timestamp,
) -> Option<Timestamp> {
    match row.status {
        EndpointStatus::Enabled => {}
        EndpointStatus::Paused | EndpointStatus::Disabled | EndpointStatus::Deleted => return None,
    }
    let quiet = match lane {
        Some(lane) => lane.quiet_until,
        None => row.health.quiet_until.unwrap_or(due),
    };
    let allowed = match breaker {
        Breaker::Passing | Breaker::Probing(_) => due,
        Breaker::Tripped(until, _) => *until,
    };
    let quiet = if quiet > now { quiet } else { due };
    Some(due.max(quiet).max(allowed))
}
