//! Objects whose tenant can be looked up by their id alone.

use posthaste_core::id::{DeliveryId, EndpointId, EventId};

/// An object that belongs to a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TenantObject {
    /// A delivery.
    Delivery(DeliveryId),
    /// An event.
    Event(EventId),
    /// An endpoint.
    Endpoint(EndpointId),
}
