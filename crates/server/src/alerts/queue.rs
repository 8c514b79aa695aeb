//! How long something has been waiting that could be sent.

use std::sync::Arc;

use posthaste_core::id::EndpointId;
use posthaste_core::lane::Standing;
use posthaste_core::time::{Span, Timestamp};
use posthaste_store::{EndpointRow, Store, StoreError};

use super::watch::QueueAge;
use crate::clock::Clock;

/// So many endpoints are looked at whose work is overdue, those first that have waited longest. Whatever is held comes
/// before what could be sent, so one cannot stop at the first.
const MAX_ENDPOINTS: usize = 200;

/// Asks the store.
pub fn queue_age(store: Arc<dyn Store>, clock: Clock) -> QueueAge {
    Box::new(move || {
        let (store, now) = (store.clone(), clock.wall());
        Box::pin(async move { oldest(&*store, now).await.ok() })
    })
}

/// How long the delivery has been due that could have been sent longest ago.
async fn oldest(store: &dyn Store, now: Timestamp) -> Result<Span, StoreError> {
    let mut work: Vec<(EndpointId, Timestamp)> = store.unfinished_work().await?;
    work.retain(|(_, due)| *due < now);
    work.sort_unstable_by_key(|(endpoint, due)| (*due, *endpoint));
    for (endpoint, due) in work.into_iter().take(MAX_ENDPOINTS) {
        if let Some(row) = store.endpoint(endpoint).await?
            && may_be_sent_to(&row, now)
        {
            return Ok(now.since(due));
        }
    }
    Ok(Span::ZERO)
}

/// Whether nothing but our own pace keeps work from going to an endpoint.
fn may_be_sent_to(row: &EndpointRow, now: Timestamp) -> bool {
    let asked_for_quiet = row.health.quiet_until.is_some_and(|until| until > now);
    row.standing == Standing::Enabled && row.health.trip.is_none() && !asked_for_quiet
}
