//! Plans an accept: which events of a request are new, and if their deliveries are too many.
//!
//! The idempotency keys are checked by [`ingest::plan`].

use std::collections::HashMap;

pub(crate) use posthaste_core::ingest::EventDecision;
use posthaste_core::ingest::{self, AcceptPlan, Fingerprint};

use crate::{AcceptResult, NewEvent};

/// Decides about every event of a request by its idempotency key. `stored_under` returns the event that is stored
/// under a key.
pub(crate) fn plan<T, E>(
    events: &[NewEvent],
    stored_under: impl FnMut(&str) -> Result<Option<(T, Fingerprint)>, E>,
) -> Result<AcceptPlan<T>, E> {
    let keys = events.iter().map(|event| {
        let idempotency = event.idempotency.as_ref()?;
        Some((idempotency.key.as_str(), idempotency.fingerprint))
    });
    ingest::plan(keys, stored_under)
}

/// Number of deliveries up to which their exact number is not needed.
const FEW_DELIVERIES: u64 = 256;

/// Returns the number of deliveries of the new events of a request, or refuses the request if they are more than
/// `limit`. A small number is an upper bound. `deliveries_of` counts the deliveries of an event; it is called only if
/// the tenant has so many endpoints that the number can be large.
pub(crate) fn check_deliveries<T>(
    events: &[NewEvent],
    plans: &[EventDecision<T>],
    (endpoints, limit): (usize, u64),
    mut deliveries_of: impl FnMut(&NewEvent) -> u64,
) -> Result<u64, AcceptResult> {
    let planned = events.iter().zip(plans);
    let fresh = planned.filter_map(|(event, plan)| plan.is_new().then_some(event));
    let at_most = (fresh.clone().count() as u64).saturating_mul(endpoints as u64);
    if at_most <= limit.min(FEW_DELIVERIES) {
        return Ok(at_most);
    }
    let mut by_type: HashMap<&str, u64> = HashMap::new();
    let deliveries = fresh.map(|event| match event.only {
        Some(_) => 1,
        None => *by_type
            .entry(event.content.event_type.as_str())
            .or_insert_with(|| deliveries_of(event)),
    });
    let deliveries: u64 = deliveries.sum();
    if deliveries > limit {
        return Err(AcceptResult::TooManyDeliveries { deliveries, limit });
    }
    Ok(deliveries)
}
