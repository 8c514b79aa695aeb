//! The health of an endpoint: its breaker, its backlog and its recent results.

use axum::body::Body;
use http::{Response, StatusCode};
use posthaste_core::id::EndpointId;
use posthaste_core::lane::EndpointStatus;
use posthaste_core::time::Timestamp;
use posthaste_store::EndpointRow;

use super::find;
use super::response::configured_limits;
use crate::App;
use crate::body;
use crate::held_back::{Breaker, EndpointHold, limits_in_force};
use crate::problem::Problem;
use crate::resources::{
    BreakerState, EndpointBreaker, EndpointHealth, LatencyQuantiles, LimitsInForce,
};
use crate::route::Call;

/// Maximum number of deliveries in flight that are told from waiting ones. With more in flight, due deliveries are taken for
/// waiting ones.
const MAX_IN_FLIGHT_READ: usize = 16;

impl Breaker {
    fn report(self) -> EndpointBreaker {
        let (state, until, reason) = match self {
            Breaker::Passing => (BreakerState::Passing, None, None),
            Breaker::Tripped(until, reason) => (BreakerState::Tripped, Some(until), Some(reason)),
            Breaker::Probing(reason) => (BreakerState::Probing, None, Some(reason)),
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
    let (lane, stats) = app.owner_router.lane_and_stats(endpoint.id).await?;
    let now = app.clock.wall();
    let breaker = Breaker::of(lane.as_ref(), &row);
    let in_flight = lane.as_ref().map_or(0, |lane| lane.in_flight);
    let due = earliest_due(app, endpoint.id, endpoint.ordered, in_flight, now).await?;
    let pending = app.store.pending(endpoint.id).await?;
    // Deliveries in flight are pending too. If there are no others, no next attempt is known.
    let due = due.filter(|_| pending > u64::from(in_flight));
    let stored_failures = row.health.consecutive_failures;
    let failures = lane.as_ref().map(|lane| lane.consecutive_failures);
    let hold = EndpointHold::of(lane.as_ref(), &row, now);
    let held_back = hold.for_endpoint(lane.as_ref(), due, now);
    let configured = configured_limits(app, &call.tenant().tenant, endpoint);
    let limits = limits_in_force(lane.as_ref(), &configured);
    let health = EndpointHealth {
        breaker: breaker.report(),
        pending,
        in_flight,
        next_attempt_at: due
            .and_then(|due| next_attempt(due, &row, &hold, breaker, now))
            .map(|at| at.to_string()),
        consecutive_failures: failures.unwrap_or(stored_failures),
        success_ratio: stats.success_ratio,
        latency_ms: LatencyQuantiles {
            p50: stats.p50_ms,
            p99: stats.p99_ms,
        },
        held_back_by: held_back.map(|it| it.by),
        held_back_until: held_back.and_then(|it| it.until).map(|at| at.to_string()),
        limits_in_force: LimitsInForce {
            in_flight: limits.in_flight,
            per_second: limits.per_second,
        },
        quiet_until: hold.quiet_until().map(|at| at.to_string()),
    };
    Ok(body::answer(StatusCode::OK, &health))
}

/// Returns the due time of the earliest waiting delivery that is not in flight. Deliveries in flight wait in the store too,
/// and were due before.
async fn earliest_due(
    app: &App,
    endpoint: EndpointId,
    ordered: bool,
    in_flight: u32,
    now: Timestamp,
) -> Result<Option<Timestamp>, Problem> {
    let in_flight = in_flight as usize;
    // At time zero nothing is due, so `next_due` is the earliest due time of all waiting deliveries.
    let due_by = match in_flight {
        0 => Timestamp(0),
        1.. => now,
    };
    let limit = in_flight.min(MAX_IN_FLIGHT_READ) + 1;
    let fetched = app.store.fetch(endpoint, due_by, limit, ordered).await?;
    let others_are_due = fetched.deliveries.len() > in_flight.min(MAX_IN_FLIGHT_READ);
    let first = fetched.deliveries.first();
    let first_due = first.and_then(|delivery| delivery.next_attempt_at());
    Ok(match others_are_due {
        true => first_due,
        false => fetched.next_due,
    })
}

/// Returns the time of the next attempt for a delivery due at `due`: not in the past, not before the breaker allows a
/// probe, not before the receiver's `Retry-After` is over, and not before a limit allows it. Returns `None` while the
/// endpoint is paused, disabled or deleted.
fn next_attempt(
    due: Timestamp,
    row: &EndpointRow,
    hold: &EndpointHold,
    breaker: Breaker,
    now: Timestamp,
) -> Option<Timestamp> {
    match row.status {
        EndpointStatus::Enabled => {}
        EndpointStatus::Paused | EndpointStatus::Disabled | EndpointStatus::Deleted => return None,
    }
    let allowed = hold.for_delivery(Some(due), now).not_before;
    let next = match breaker {
        Breaker::Passing | Breaker::Probing(_) => due,
        // The next attempt is the probe, also if the delivery is due before.
        Breaker::Tripped(until, _) => until,
    };
    Some(next.max(due).max(allowed))
}
