//! Number of deliveries that have been in retry for long.

use posthaste_core::id::TenantId;
use posthaste_core::time::{Span, Timestamp};
use posthaste_store::TenantSelection;

/// Deliveries in retry for longer than this are counted.
pub const LONG_IN_RETRY: Span = Span::from_hours(24);
/// Upper limit of the count. More than 100 is already in the alert range.
pub const MAX_RETRYING_COUNTED: usize = 10_000;

/// Returns the time before which a delivery in retry must first have been due to be counted.
pub fn long_ago(now: Timestamp) -> Timestamp {
    Timestamp(now.0.saturating_sub(LONG_IN_RETRY.as_millis()))
}

/// Selects the tenants of the total: all but the operational tenant `apart`, whose deliveries report on those of others.
pub fn counted_tenants(apart: Option<&TenantId>) -> TenantSelection {
    match apart {
        None => TenantSelection::All,
        Some(tenant) => TenantSelection::Except(tenant.clone()),
    }
}
