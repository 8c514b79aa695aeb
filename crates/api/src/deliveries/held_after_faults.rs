//! Deliveries that are held after repeated internal errors, in lists.
//!
//! Only their owners know them, so the store lists them as pending or retrying. [`add_held`] adds them to a page of held
//! deliveries.

use posthaste_core::id::{DeliveryId, TenantId};
use posthaste_store::{Page, PageRequest, StoredDelivery};

use super::filter::DeliveryQuery;
use super::{App, MAX_PARALLEL_READS};
use crate::problem::Problem;

/// Adds the deliveries of the tenant that are held after repeated internal errors to a page of held deliveries, in their
/// place. Each owner bounds their number.
pub(super) async fn add_held(
    app: &App,
    tenant: &TenantId,
    query: &DeliveryQuery,
    request: PageRequest<DeliveryId>,
    mut page: Page<StoredDelivery, DeliveryId>,
) -> Result<Page<StoredDelivery, DeliveryId>, Problem> {
    let mut held = app.owner_router.all_quarantined().await;
    let is_listed = |id: &DeliveryId| page.items.iter().any(|item| item.delivery.id() == *id);
    held.retain(|id| {
        request.before.is_none_or(|before| *id < before)
            && page.next.is_none_or(|next| *id > next)
            && !is_listed(id)
    });
    for ids in held.chunks(MAX_PARALLEL_READS) {
        let read = |id: &DeliveryId| app.store.delivery(tenant.clone(), *id);
        let reads: Vec<_> = ids.iter().map(read).collect();
        for found in reads {
            let found = found.await?.map(|(stored, _)| stored);
            let waits = |stored: &StoredDelivery| !stored.delivery.status().is_terminal();
            page.items
                .extend(found.filter(|stored| waits(stored) && query.matches(stored)));
        }
    }
    page.items
        .sort_unstable_by_key(|item| std::cmp::Reverse(item.delivery.id()));
    if page.items.len() > request.limit {
        page.items.truncate(request.limit);
        page.next = page.items.last().map(|last| last.delivery.id());
    }
    Ok(page)
}
