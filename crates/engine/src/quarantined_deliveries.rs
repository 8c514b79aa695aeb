//! Deliveries that this node does not attempt because of its own faults.
//!
//! The dispatcher quarantines a delivery after repeated internal faults, and the store passes over a delivery whose row
//! cannot be read. [`QuarantinedDeliveries`] is the copy of both that the rest of the program reads: for the API, the
//! alert and the metric. It is kept in memory only; the next owner of an endpoint finds out for itself. Each delivery
//! is logged once.

use posthaste_core::dispatcher::{
    FAULTS_TO_QUARANTINE, MAX_QUARANTINED_LISTED, QuarantinedDelivery,
};
use posthaste_core::id::{DeliveryId, EndpointId};
use rustc_hash::FxHashMap;

/// Log target of this module.
const LOG_TARGET: &str = "posthaste::engine::held_deliveries";

/// Number of fetches in a row that must not meet an unreadable delivery until it is forgotten. A fetch reads the earliest due
/// deliveries, which such a delivery soon belongs to, so further fetches would meet it if it still could not be read.
const MISSES_TO_FORGET: u32 = 10;

/// A delivery whose row cannot be read.
#[derive(Debug)]
struct Unreadable {
    endpoint: EndpointId,
    /// Number of fetches since that did not meet it.
    misses: u32,
}

/// The quarantined and the unreadable deliveries of this node.
#[derive(Debug, Default)]
pub(super) struct QuarantinedDeliveries {
    quarantined: FxHashMap<DeliveryId, EndpointId>,
    /// At most [`MAX_QUARANTINED_LISTED`].
    unreadable: FxHashMap<DeliveryId, Unreadable>,
}

impl QuarantinedDeliveries {
    /// Returns true if the delivery is quarantined after repeated internal faults.
    pub(super) fn contains(&self, delivery: DeliveryId) -> bool {
        self.quarantined.contains_key(&delivery)
    }

    /// Returns the deliveries that are quarantined after repeated internal faults.
    pub(super) fn list(&self) -> Vec<DeliveryId> {
        self.quarantined.keys().copied().collect()
    }

    /// Returns the number of quarantined and unreadable deliveries.
    pub(super) fn count(&self) -> usize {
        self.quarantined.len() + self.unreadable.len()
    }

    /// Replaces the quarantined deliveries.
    pub(super) fn set(&mut self, now_held: Vec<QuarantinedDelivery>) {
        let before = std::mem::take(&mut self.quarantined);
        for QuarantinedDelivery { endpoint, delivery } in now_held {
            self.quarantined.insert(delivery, endpoint);
            if !before.contains_key(&delivery) {
                tracing::error!(target: LOG_TARGET, %endpoint, %delivery, min_faults = FAULTS_TO_QUARANTINE,
                    "delivery held after repeated internal errors; retry or cancel it manually");
            }
        }
        for (delivery, endpoint) in before {
            if !self.quarantined.contains_key(&delivery) {
                tracing::info!(target: LOG_TARGET, %endpoint, %delivery, "held delivery released");
            }
        }
    }

    /// Adds the unreadable deliveries that a fetch of an endpoint met. If the fetch was `complete`, there are no others;
    /// otherwise one that ten fetches in a row did not meet can be read again, or has ended. Returns true if anything changed.
    pub(super) fn fetched(
        &mut self,
        endpoint: EndpointId,
        unreadable: &[DeliveryId],
        complete: bool,
    ) -> bool {
        let before = self.unreadable.len();
        let mut is_new = false;
        self.unreadable.retain(|delivery, known| {
            if known.endpoint != endpoint {
                return true;
            }
            known.misses = match unreadable.contains(delivery) {
                true => 0,
                false if complete => return false,
                false => known.misses + 1,
            };
            known.misses < MISSES_TO_FORGET
        });
        for delivery in unreadable {
            let is_full = self.unreadable.len() >= MAX_QUARANTINED_LISTED;
            let known = Unreadable {
                endpoint,
                misses: 0,
            };
            if !is_full && self.unreadable.insert(*delivery, known).is_none() {
                is_new = true;
                tracing::error!(target: LOG_TARGET, %endpoint, %delivery,
                    "cannot read the row of a delivery; skipping it");
            }
        }
        is_new || self.unreadable.len() != before
    }

    /// Keeps only the deliveries of endpoints for which `is_owned` returns true.
    pub(super) fn retain(&mut self, is_owned: impl Fn(EndpointId) -> bool) {
        self.unreadable.retain(|_, known| is_owned(known.endpoint));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreadable_deliveries_are_bounded_and_forgotten_when_they_can_be_read() {
        let mut deliveries = QuarantinedDeliveries::default();
        let (one, other) = (EndpointId(1), EndpointId(2));
        let ids = [DeliveryId(1), DeliveryId(2)];
        deliveries.fetched(one, &ids, true);
        deliveries.fetched(other, &[DeliveryId(3)], true);
        assert_eq!(deliveries.count(), 3);
        // A fetch that was cut off says little about the others.
        for _ in 1..MISSES_TO_FORGET {
            deliveries.fetched(one, &[], false);
            assert_eq!(deliveries.count(), 3);
        }
        deliveries.fetched(one, &ids, false);
        for _ in 1..MISSES_TO_FORGET {
            assert!(!deliveries.fetched(one, &ids[1..], false));
        }
        assert_eq!(deliveries.count(), 3);
        assert!(deliveries.fetched(one, &ids[1..], false));
        assert_eq!(deliveries.count(), 2);
        deliveries.fetched(one, &ids, true);
        deliveries.fetched(one, &ids[1..], true);
        assert_eq!(deliveries.count(), 2);
        deliveries.retain(|endpoint| endpoint == other);
        assert_eq!(deliveries.count(), 1);
        let many: Vec<DeliveryId> = (10..3_000).map(DeliveryId).collect();
        deliveries.fetched(one, &many, false);
        assert_eq!(deliveries.count(), MAX_QUARANTINED_LISTED);
    }
}
