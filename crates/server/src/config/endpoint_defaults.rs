//! Reads `[endpoint_defaults]`: the limits of endpoints for which neither the endpoint nor its tenant sets any.
//!
//! The two values of the rate limit are settings of their own, so that a variable or a flag can change one of them.
//! Without a burst, the burst follows from the rate, as in the API.

use posthaste_core::lane::{
    EndpointLimits, LimitOverrides, MAX_BURST, MAX_PER_SECOND, MIN_PER_SECOND, RateLimit,
};
use posthaste_core::time::Span;
use posthaste_core::validation::Fields;

use super::fields::set;

/// Limits of endpoints for which neither the endpoint nor its tenant sets any.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EndpointDefaults {
    /// Maximum duration of an attempt.
    pub timeout: Span,
    /// Maximum number of attempts in flight.
    pub max_in_flight: u32,
    /// Sustained rate, in requests per second.
    pub per_second: f64,
    /// Burst size, if it is not the requests of two seconds.
    pub burst: Option<u32>,
}

impl Default for EndpointDefaults {
    fn default() -> EndpointDefaults {
        let usual = EndpointLimits::default();
        EndpointDefaults {
            timeout: usual.timeout,
            max_in_flight: usual.max_in_flight,
            per_second: usual.rate_limit.per_second,
            burst: None,
        }
    }
}

impl EndpointDefaults {
    /// Returns these limits in the form that the engine and the API take.
    pub fn limits(&self) -> EndpointLimits {
        let usual_burst = RateLimit::usual_burst(self.per_second);
        EndpointLimits {
            timeout: self.timeout,
            max_in_flight: self.max_in_flight,
            rate_limit: RateLimit {
                per_second: self.per_second,
                burst: self.burst.unwrap_or(usual_burst),
            },
        }
    }
}

/// Sets the limits that the section contains.
pub(super) fn read(defaults: &mut EndpointDefaults, mut fields: Fields<'_, '_>) {
    let mut given = LimitOverrides::default();
    given.change_attempts(&mut fields);
    set(&mut defaults.timeout, given.timeout);
    set(&mut defaults.max_in_flight, given.max_in_flight);
    if let Some(mut rate) = fields.object("rate_limit") {
        let per_second = rate.number("per_second", MIN_PER_SECOND, MAX_PER_SECOND);
        set(&mut defaults.per_second, per_second);
        defaults.burst = rate.count("burst", 1, MAX_BURST).or(defaults.burst);
        rate.finish();
    }
    fields.finish();
}
