//! The deliveries of a forecast, in place of a store.
//!
//! [`DeliveryTable`] fulfils what the dispatcher expects of a store for one endpoint without ordering keys: fetching what
//! is due, recording attempts, and failing what waits when the endpoint is disabled.

use std::collections::{BTreeMap, BTreeSet};

use crate::delivery::Delivery;
use crate::dispatcher::Record;
use crate::id::DeliveryId;
use crate::lane::Fetched;
use crate::time::Timestamp;

#[derive(Default)]
pub(super) struct DeliveryTable {
    deliveries: BTreeMap<DeliveryId, Delivery>,
    waiting: BTreeSet<(Timestamp, DeliveryId)>,
}

impl FromIterator<Delivery> for DeliveryTable {
    fn from_iter<I: IntoIterator<Item = Delivery>>(deliveries: I) -> DeliveryTable {
        let mut table = DeliveryTable::default();
        for delivery in deliveries {
            table.put(delivery);
        }
        table
    }
}

impl DeliveryTable {
    pub(super) fn deliveries(&self) -> impl Iterator<Item = &Delivery> {
        self.deliveries.values()
    }

    /// Returns the number of deliveries that have not ended.
    pub(super) fn unfinished(&self) -> usize {
        self.waiting.len()
    }

    /// Returns up to `limit` deliveries that are due, the earliest first.
    pub(super) fn fetch(&self, due_by: Timestamp, limit: usize) -> Fetched {
        let due = self.waiting.iter().take_while(|(at, _)| *at <= due_by);
        let deliveries: Vec<Delivery> = due
            .take(limit)
            .map(|(_, id)| self.deliveries[id].clone())
            .collect();
        let next = self.waiting.iter().nth(deliveries.len());
        Fetched {
            next_due: next.map(|(at, _)| *at),
            deliveries,
            blocked: false,
            unreadable: Vec::new(),
        }
    }

    pub(super) fn record(&mut self, record: &Record) {
        match record {
            Record::Attempt(attempt) => self.put(attempt.delivery.clone()),
            Record::Expire(delivery) => self.put((**delivery).clone()),
            Record::Cancel { .. } => unreachable!("a forecast cancels no delivery"),
        }
    }

    /// Fails all waiting deliveries except `except`, because the endpoint was disabled.
    pub(super) fn disable(&mut self, except: &[DeliveryId], now: Timestamp) {
        let waiting: Vec<DeliveryId> = self.waiting.iter().map(|(_, id)| *id).collect();
        for id in waiting.iter().filter(|id| !except.contains(id)) {
            let mut delivery = self.deliveries[id].clone();
            delivery
                .disable(now)
                .expect("a waiting delivery can be failed");
            self.put(delivery);
        }
    }

    fn put(&mut self, delivery: Delivery) {
        let id = delivery.id();
        let before = self.deliveries.get(&id).and_then(Delivery::next_attempt_at);
        if let Some(at) = before {
            self.waiting.remove(&(at, id));
        }
        if let Some(at) = delivery.next_attempt_at() {
            self.waiting.insert((at, id));
        }
        self.deliveries.insert(id, delivery);
    }
}
