//! Compares deliveries with a filter.

use posthaste_core::delivery::Status;
use posthaste_store::{DeliveryFilter, StoredDelivery, StoredStatus};

/// Returns the stored status; `None` for deliveries in flight, which the store does not know.
pub(super) fn stored_status(status: Status) -> Option<StoredStatus> {
    match status {
        Status::Pending => Some(StoredStatus::Pending),
        Status::Retrying => Some(StoredStatus::Retrying),
        Status::Held => Some(StoredStatus::Held),
        Status::InProgress => None,
        Status::Succeeded => Some(StoredStatus::Succeeded),
        Status::Failed => Some(StoredStatus::Failed),
        Status::Cancelled => Some(StoredStatus::Cancelled),
    }
}

/// Returns true if a delivery matches all filters of the store except the status.
pub(super) fn matches(filter: &DeliveryFilter, stored: &StoredDelivery) -> bool {
    fn fits<T: PartialEq>(wanted: &Option<T>, is: &T) -> bool {
        wanted.as_ref().is_none_or(|wanted| wanted == is)
    }
    let facts = stored.delivery.facts();
    fits(&filter.endpoint, &facts.endpoint)
        && fits(&filter.event, &facts.event)
        && fits(&filter.event_type, &stored.event_type)
        && filter
            .error_kind
            .is_none_or(|kind| stored.error_kind() == Some(kind))
        && filter.since.is_none_or(|since| stored.created_at >= since)
        && filter.until.is_none_or(|until| stored.created_at < until)
}
