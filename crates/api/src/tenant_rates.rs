//! The part of a tenant's rates that it has spent on this node.
//!
//! [`TenantRates`] has a limiter for each rate that this node enforces in memory: events and deliveries per second. The
//! cached tenant carries it, so that a request needs no second look-up; module `quota` charges and checks it.

use super::rate_limit::PostpaidLimiter;

/// The part of a tenant's rates that was spent on this node.
#[derive(Debug, Default)]
pub(super) struct TenantRates {
    pub(super) events: PostpaidLimiter,
    pub(super) deliveries: PostpaidLimiter,
}
