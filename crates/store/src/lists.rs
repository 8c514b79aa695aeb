//! Events and deliveries as people see them: one by its id, lists, and dead letters in groups.

use posthaste_core::id::{DeliveryId, EndpointId, EventId, TenantId};

use crate::{
    Answer, AttemptEntry, DeadLetterGroup, DeadLetterGroupKey, DeliveryFilter, EventFilter, Page,
    PageRequest, StoredDelivery, StoredEvent,
};

/// Shows events and deliveries of a tenant.
pub trait Lists {
    /// Returns an event.
    fn event(&self, tenant: TenantId, event: EventId) -> Answer<Option<StoredEvent>>;

    /// Lists events of a tenant, without their payloads.
    fn events(
        &self,
        tenant: TenantId,
        filter: EventFilter,
        page: PageRequest<EventId>,
    ) -> Answer<Page<StoredEvent, EventId>>;

    /// Returns a delivery and its attempts, in order.
    fn delivery(
        &self,
        tenant: TenantId,
        delivery: DeliveryId,
    ) -> Answer<Option<(StoredDelivery, Vec<AttemptEntry>)>>;

    /// Lists deliveries of a tenant.
    fn deliveries(
        &self,
        tenant: TenantId,
        filter: DeliveryFilter,
        page: PageRequest<DeliveryId>,
    ) -> Answer<Page<StoredDelivery, DeliveryId>>;

    /// Groups the dead letters of a tenant by endpoint and failure kind, for one endpoint or for all, including
    /// deleted ones: endpoints by descending id, within an endpoint the failure kinds in the order of their codes,
    /// those without a kind last. A group is counted up to [`MAX_GROUP_COUNT`](crate::MAX_GROUP_COUNT).
    ///
    /// The cost depends on the number of endpoints visited and groups returned, not on the number of dead letters.
    fn dead_letter_groups(
        &self,
        tenant: TenantId,
        endpoint: Option<EndpointId>,
        page: PageRequest<DeadLetterGroupKey>,
    ) -> Answer<Page<DeadLetterGroup, DeadLetterGroupKey>>;
}
