//! Events and deliveries, as people look at them.

use posthaste_core::id::{DeliveryId, EventId, TenantId};

use super::fault::Fault;
use super::link::Link;
use super::scene::missing;
use crate::{
    AttemptEntry, DeliveryFilter, EventFilter, Page, PageRequest, StoredDelivery, StoredEvent,
};

/// An event of a tenant.
pub(super) async fn event(
    _link: &Link,
    _tenant: &TenantId,
    _event: EventId,
) -> Result<Option<StoredEvent>, Fault> {
    missing()
}

/// Events of a tenant.
pub(super) async fn events(
    _link: &Link,
    _tenant: &TenantId,
    _filter: &EventFilter,
    _page: PageRequest<EventId>,
) -> Result<Page<StoredEvent, EventId>, Fault> {
    missing()
}

/// A delivery of a tenant, and its attempts in order.
pub(super) async fn delivery(
    _link: &Link,
    _tenant: &TenantId,
    _delivery: DeliveryId,
) -> Result<Option<(StoredDelivery, Vec<AttemptEntry>)>, Fault> {
    missing()
}

/// Deliveries of a tenant.
pub(super) async fn deliveries(
    _link: &Link,
    _tenant: &TenantId,
    _filter: &DeliveryFilter,
    _page: PageRequest<DeliveryId>,
) -> Result<Page<StoredDelivery, DeliveryId>, Fault> {
    missing()
}
