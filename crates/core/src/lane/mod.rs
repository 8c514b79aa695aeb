//! The lane of an endpoint: everything that decides whether, and what, it is sent next.
//!
//! The unit of scheduling is the endpoint, not the delivery. A lane holds its gate (breaker, rate,
//! window), its health, a short list of deliveries that are ready, and what it knows of the backlog
//! on disk: when something there is due. Ten million waiting deliveries therefore cost no memory.

mod backlog;
mod breaker;
mod gate;
mod health;
mod rate;
mod window;

pub use backlog::{Backlog, Claim, Fetched};
pub use breaker::{Breaker, BreakerSettings, BreakerState, Signal, TripReason, Turnover};
pub use gate::{Admission, Back, Gate, Standing};
pub use health::{
    Concern, DisableCause, EXHAUSTED_WINDOW, FAILING_TO_DISABLE, FAILING_TO_WARN, Health,
    MAX_EXHAUSTED, PERMANENT_FAILURES_TO_DISABLE, PERMANENT_FAILURES_TO_WARN, StoredTrip,
    WARNING_LEAD,
};
pub use rate::{MAX_BURST, MAX_PER_SECOND, MIN_PER_SECOND, RateBucket, RateLimit};
pub use window::{MAX_IN_FLIGHT, Window};

use crate::policy::RetryPolicy;
use crate::time::Span;

/// The longest `Retry-After` that is honoured, unless the operator says otherwise.
pub const RETRY_AFTER_CAP: Span = Span::from_hours(24);

/// How many requests an endpoint may have in flight, unless it says otherwise.
pub const DEFAULT_MAX_IN_FLIGHT: u32 = 10;

/// What an endpoint has been promised.
#[derive(Clone, Debug, PartialEq)]
pub struct LaneSettings {
    /// When to try again, and when to stop.
    pub policy: RetryPolicy,
    /// The longest `Retry-After` that is honoured.
    pub retry_after_cap: Span,
    /// At most so many at once.
    pub max_in_flight: u32,
    /// At most so many of its tenant's at once, over all endpoints that the tenant has here; nothing means any number.
    pub tenant_in_flight: Option<u32>,
    /// At most so many a second.
    pub rate: RateLimit,
    /// Deliveries with the same ordering key go one after the other.
    pub ordered: bool,
    /// When its breaker trips.
    pub breaker: BreakerSettings,
}

/// Whether deliveries to an endpoint are shown as held, going by what is stored of it: it is paused,
/// or its breaker has tripped.
pub fn holds(standing: Standing, health: &Health) -> bool {
    standing == Standing::Paused || health.trip.is_some()
}

impl Default for LaneSettings {
    fn default() -> LaneSettings {
        LaneSettings {
            policy: RetryPolicy::default(),
            retry_after_cap: RETRY_AFTER_CAP,
            max_in_flight: DEFAULT_MAX_IN_FLIGHT,
            tenant_in_flight: None,
            rate: RateLimit::default(),
            ordered: false,
            breaker: BreakerSettings::default(),
        }
    }
}
