//! Whose is it?

use posthaste_core::id::{DeliveryId, EndpointId, EventId};

/// Something that belongs to a tenant, by its name alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// A delivery.
    Delivery(DeliveryId),
    /// An event.
    Event(EventId),
    /// An endpoint.
    Endpoint(EndpointId),
}
