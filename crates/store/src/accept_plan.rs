//! Decides by idempotency key which events of a request are new.

use std::collections::HashMap;

use posthaste_core::ingest::Fingerprint;

use crate::{Ingest, NewEvent};

/// The decision about one event of a request. `T` names a stored event.
pub(crate) enum EventDecision<T> {
    /// Store it.
    Store,
    /// It is stored already.
    Stored(T),
    /// It is the same event as the one at this index of the request.
    SameAs(usize),
}

impl<T> EventDecision<T> {
    /// Returns whether the event is new.
    pub(crate) fn is_new(&self) -> bool {
        matches!(self, EventDecision::Store)
    }
}

/// The decisions about the events of a request, or the indexes of those whose key is used for another event.
pub(crate) type AcceptPlan<T> = Result<Vec<EventDecision<T>>, Vec<usize>>;

/// Decides about every event of a request by its idempotency key. `stored_under` returns the event that is stored
/// under a key.
pub(crate) fn plan<T, E>(
    events: &[NewEvent],
    mut stored_under: impl FnMut(&str) -> Result<Option<(T, Fingerprint)>, E>,
) -> Result<AcceptPlan<T>, E> {
    let mut plans = Vec::with_capacity(events.len());
    let mut conflicts = Vec::new();
    let mut earlier: HashMap<&str, (usize, Fingerprint)> = HashMap::new();
    for (index, event) in events.iter().enumerate() {
        let Some(idempotency) = &event.idempotency else {
            plans.push(EventDecision::Store);
            continue;
        };
        let key = idempotency.key.as_str();
        let offered = idempotency.fingerprint;
        let (decision, content) = if let Some((first, content)) = earlier.get(key) {
            (EventDecision::SameAs(*first), *content)
        } else if let Some((stored, content)) = stored_under(key)? {
            (EventDecision::Stored(stored), content)
        } else {
            earlier.insert(key, (index, offered));
            (EventDecision::Store, offered)
        };
        if content != offered {
            conflicts.push(index);
        }
        plans.push(decision);
    }
    Ok(if conflicts.is_empty() {
        Ok(plans)
    } else {
        Err(conflicts)
    })
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
) -> Result<u64, Ingest> {
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
        return Err(Ingest::TooManyDeliveries { deliveries, limit });
    }
    Ok(deliveries)
}
