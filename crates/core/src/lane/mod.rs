//! The lane of an endpoint: the state that decides when an attempt starts, and of which delivery.
//!
//! The dispatcher schedules endpoints, not deliveries. A lane holds its [`Gate`] (breaker, rate limit, in-flight
//! window), its [`Health`] and its [`Backlog`]: a short list of ready deliveries, and the time at which the next
//! delivery in the store is due. Ten million waiting deliveries therefore need no memory.

mod backlog;
mod backpressure;
mod breaker;
mod gate;
mod health;
mod limits;
mod protection;
mod rate;
mod window;

pub use backlog::{Backlog, ClaimResult, Fetched};
pub use backpressure::{Adjustment, Backpressure, LoadResult};
pub use breaker::{
    Breaker, BreakerChange, BreakerEvidence, BreakerSettings, BreakerState, Signal, TripReason,
};
pub use gate::{
    Admission, AttemptFeedback, EndpointStatus, Gate, HeldBack, HeldBackBy, LimitedSince,
    LimitsInForce,
};
pub use health::{
    DisableCause, DisableSettings, EXHAUSTED_WINDOW, Health, HealthVerdict, MAX_EXHAUSTED,
    StoredTrip,
};
pub use limits::{
    DEFAULT_MAX_IN_FLIGHT, DEFAULT_TIMEOUT, EndpointLimits, LimitOverrides, MAX_TIMEOUT,
    MIN_TIMEOUT,
};
pub use protection::{
    BreakerOverrides, DisableOverrides, MAX_BREAKER_SPAN, MAX_THRESHOLD, MIN_FAILURE_RATIO,
    MIN_WAIT, MIN_WINDOW, Protection, ProtectionOverrides,
};
pub use rate::{MAX_BURST, MAX_PER_SECOND, MIN_PER_SECOND, RateBucket, RateLimit};
pub use window::{InFlightWindow, MAX_IN_FLIGHT};

use crate::policy::RetryPolicy;
use crate::time::Span;

/// Default maximum `Retry-After` that is honoured. The operator can change it.
pub const RETRY_AFTER_CAP: Span = Span::from_hours(24);

/// Settings of an endpoint that its lane needs.
#[derive(Clone, Debug, PartialEq)]
pub struct LaneSettings {
    /// The retry policy.
    pub policy: RetryPolicy,
    /// Maximum `Retry-After` that is honoured.
    pub retry_after_cap: Span,
    /// Maximum number of attempts in flight to this endpoint.
    pub max_in_flight: u32,
    /// Maximum number of attempts in flight to all endpoints of the tenant; `None` means no limit.
    pub tenant_in_flight: Option<u32>,
    /// The rate limit.
    pub rate: RateLimit,
    /// True if deliveries with the same ordering key are sent one after the other.
    pub ordered: bool,
    /// Thresholds and waiting times of the breaker.
    pub breaker: BreakerSettings,
    /// When the endpoint is disabled automatically.
    pub disable: DisableSettings,
}

/// Returns true if deliveries to an endpoint are shown as held, according to its stored state: it is paused, or its
/// breaker has tripped.
pub fn holds(status: EndpointStatus, health: &Health) -> bool {
    status == EndpointStatus::Paused || health.trip.is_some()
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
            disable: DisableSettings::default(),
        }
    }
}
