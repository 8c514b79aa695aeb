//! Dead letters by endpoint and failure kind, and endpoints that need attention, in the model.
//!
//! Both are computed from all deliveries and endpoints at each call. The count of a group is bounded as in the
//! other stores.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::lane::EndpointStatus;

use super::tables::{Tables, page};
use posthaste_store::for_other_stores::rank;
use posthaste_store::{
    BoundedCount, DeadLetterGroup, DeadLetterGroupKey, DeliveryFilter, DisabledReason, EndpointRow,
    Page, PageRequest, StoredDelivery, StoredStatus,
};

impl Tables {
    pub(super) fn dead_letter_groups(
        &self,
        tenant: &TenantId,
        endpoint: Option<EndpointId>,
        request: PageRequest<DeadLetterGroupKey>,
    ) -> Page<DeadLetterGroup, DeadLetterGroupKey> {
        let filter = DeliveryFilter {
            status: Some(StoredStatus::Failed),
            endpoint,
            ..DeliveryFilter::default()
        };
        // The first key in the list is the greatest.
        let position = |(endpoint, kind): DeadLetterGroupKey| (endpoint, Reverse(rank(kind)));
        let mut groups: BTreeMap<_, Vec<StoredDelivery>> = BTreeMap::new();
        for stored in self.matching(tenant, &filter) {
            let key = (stored.delivery.facts().endpoint, stored.error_kind());
            groups.entry(position(key)).or_default().push(stored);
        }
        let rows = groups
            .into_iter()
            .rev()
            .filter_map(|(position, dead_letters)| Some((position, self.group(&dead_letters)?)));
        let cut = page(
            rows,
            PageRequest {
                limit: request.limit,
                before: request.before.map(position),
            },
        );
        let last = cut.items.last();
        let next = last.map(|last| (last.endpoint, last.error_kind));
        Page {
            next: cut.next.and(next),
            items: cut.items,
        }
    }

    /// Returns the group of these dead letters, which are ordered oldest first.
    fn group(&self, dead_letters: &[StoredDelivery]) -> Option<DeadLetterGroup> {
        let (oldest, newest) = (dead_letters.first()?, dead_letters.last()?);
        let endpoint = newest.delivery.facts().endpoint;
        let row = &self.endpoints.get(&endpoint)?.row;
        Some(DeadLetterGroup {
            endpoint,
            url: row.endpoint.url.clone(),
            status: row.status,
            error_kind: newest.error_kind(),
            count: BoundedCount::of(dead_letters.len()),
            newest: newest.clone(),
            oldest_at: oldest.created_at,
        })
    }

    pub(super) fn attention_list(
        &self,
        tenant: Option<&TenantId>,
        limit: usize,
    ) -> Vec<EndpointRow> {
        let owner = tenant.map(|tenant| self.owner(tenant));
        let endpoints = self.endpoints.values().rev();
        let mut attention_list: Vec<&EndpointRow> = endpoints
            .filter(|owned| owner.is_none_or(|owner| owner == Some(owned.owner)))
            .map(|owned| &owned.row)
            .filter(|row| !row.endpoint.is_origin)
            .filter(|row| match row.status {
                EndpointStatus::Enabled => row.health.trip.is_some(),
                EndpointStatus::Paused => true,
                EndpointStatus::Disabled => match row.disabled_reason {
                    Some(DisabledReason::Automatic(_)) => true,
                    Some(DisabledReason::Manual) | None => false,
                },
                EndpointStatus::Deleted => false,
            })
            .collect();
        attention_list.sort_by_key(|row| row.status == EndpointStatus::Paused);
        attention_list.into_iter().take(limit).cloned().collect()
    }
}
