//! The reasons why the deliveries in one response are held back.
//!
//! [`DeliveryHolds::look_up`] asks the owner of each endpoint once, at most one request per node. An owner that does
//! not answer in time delays the response by a second at most; then the stored state of its endpoints decides.

use posthaste_core::id::EndpointId;
use posthaste_core::time::Timestamp;
use posthaste_store::StoredDelivery;
use rustc_hash::FxHashMap;

use super::Policies;
use crate::App;
use crate::held_back::{DeliveryHold, EndpointHold};

/// The holds of the endpoints in one response.
pub(super) struct DeliveryHolds {
    now: Timestamp,
    holds: FxHashMap<EndpointId, EndpointHold>,
}

impl DeliveryHolds {
    /// Asks the owners of these deliveries' endpoints. Deliveries that have ended are ignored. The endpoints must have
    /// been looked up in `policies`.
    pub(super) async fn look_up<'a>(
        app: &App,
        policies: &Policies<'_>,
        deliveries: impl IntoIterator<Item = &'a StoredDelivery>,
    ) -> DeliveryHolds {
        let waiting = deliveries.into_iter().map(|stored| &stored.delivery);
        let waiting = waiting.filter(|delivery| !delivery.status().is_terminal());
        let mut endpoints: Vec<EndpointId> = waiting.map(|it| it.facts().endpoint).collect();
        endpoints.sort_unstable();
        endpoints.dedup();
        let lanes = app.owner_router.lanes(&endpoints).await;
        let now = app.clock.wall();
        let mut holds = FxHashMap::default();
        for endpoint in endpoints {
            if let Some(row) = policies.row_of(endpoint) {
                let hold = EndpointHold::of(lanes.get(&endpoint), row, now);
                holds.insert(endpoint, hold);
            }
        }
        DeliveryHolds { now, holds }
    }

    /// Returns the time at which the owners were asked.
    pub(super) fn now(&self) -> Timestamp {
        self.now
    }

    /// Returns what holds a delivery back.
    pub(super) fn of(&self, stored: &StoredDelivery, in_flight: bool) -> DeliveryHold {
        let due = stored.delivery.next_attempt_at().filter(|_| !in_flight);
        match self.holds.get(&stored.delivery.facts().endpoint) {
            Some(hold) => hold.for_delivery(due, self.now),
            None => DeliveryHold::none(self.now),
        }
    }
}
