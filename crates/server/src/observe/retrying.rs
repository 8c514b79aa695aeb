//! How much of everything has been in retry for long.

use posthaste_core::id::TenantId;
use posthaste_core::time::{Span, Timestamp};
use posthaste_store::{Store, StoreError};

/// Deliveries in retry for longer than this are counted.
pub const LONG_IN_RETRY: Span = Span::from_hours(24);
/// They are counted no further than this: a hundred is alarming already.
pub const MAX_RETRYING_COUNTED: usize = 10_000;

/// Before this, whatever is in retry now has been for long.
pub fn long_ago(now: Timestamp) -> Timestamp {
    Timestamp(now.0.saturating_sub(LONG_IN_RETRY.as_millis()))
}

/// How many deliveries of everything have been waiting for another attempt since before `since`, those of the tenant
/// that stands apart left out; counts no further than `limit`.
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
