//! Number of deliveries that have been in retry for long.

use posthaste_core::id::TenantId;
use posthaste_core::time::{Span, Timestamp};
use posthaste_store::{Store, StoreError};

/// Deliveries in retry for longer than this are counted.
pub const LONG_IN_RETRY: Span = Span::from_hours(24);
/// Upper limit of the count. More than 100 is already in the alert range.
pub const MAX_RETRYING_COUNTED: usize = 10_000;

/// Returns the time before which a delivery in retry must first have been due to be counted.
pub fn long_ago(now: Timestamp) -> Timestamp {
    Timestamp(now.0.saturating_sub(LONG_IN_RETRY.as_millis()))
}

/// Returns the number of deliveries of all tenants that have been in retry since before `since`, without those of the
/// operational tenant `apart`. Counts at most up to `limit`.
pub async fn retrying_of_everything(
    store: &dyn Store,
    apart: Option<&TenantId>,
    since: Timestamp,
    limit: usize,
) -> Result<u64, StoreError> {
    let theirs = match apart {
        None => 0,
        Some(tenant) => {
            let counted = store.retrying_since(Some(tenant.clone()), since, MAX_RETRYING_COUNTED);
            counted.await?
        }
    };
    let all = store
        .retrying_since(None, since, limit.saturating_add(theirs as usize))
        .await?;
    Ok(all.saturating_sub(theirs))
}
