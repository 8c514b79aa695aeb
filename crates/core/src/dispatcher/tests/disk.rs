//! In-memory store of the tests.
//!
//! [`Disk`] keeps each delivery as it was last committed and is small enough to be obviously correct. A record is
//! written only if the delivery has not changed since, a fetch for an ordered lane returns only the oldest
//! unfinished delivery of each key, and a sweep fails the waiting deliveries of an endpoint.

use std::collections::{BTreeMap, BTreeSet};

use crate::delivery::{DeadReason, Delivery, Status};
use crate::dispatcher::{AttemptRecord, Record};
use crate::id::{DeliveryId, EndpointId};
use crate::lane::Fetched;
use crate::time::Timestamp;

/// Every delivery as it was last committed.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    rows: BTreeMap<DeliveryId, Delivery>,
}

impl Disk {
    pub(super) fn put(&mut self, delivery: Delivery) {
        self.rows.insert(delivery.id(), delivery);
    }

    pub(super) fn row(&self, id: DeliveryId) -> &Delivery {
        &self.rows[&id]
    }

    pub(super) fn row_mut(&mut self, id: DeliveryId) -> &mut Delivery {
        self.rows.get_mut(&id).expect("the delivery was committed")
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = &Delivery> {
        self.rows.values()
    }

    pub(super) fn status(&self, id: DeliveryId) -> Status {
        self.rows[&id].status()
    }

    pub(super) fn waits(&self, id: DeliveryId) -> bool {
        self.rows[&id].next_attempt_at().is_some()
    }

    /// Returns the unfinished deliveries of the same endpoint and key that are older than this one.
    pub(super) fn older_of_its_key(&self, id: DeliveryId) -> Vec<DeliveryId> {
        let facts = self.rows[&id].facts();
        self.rows
            .range(..id)
            .map(|(_, row)| row)
            .filter(|row| row.next_attempt_at().is_some())
            .filter(|row| row.facts().endpoint == facts.endpoint)
            .filter(|row| facts.ordering.is_some() && row.facts().ordering == facts.ordering)
            .map(Delivery::id)
            .collect()
    }

    pub(super) fn fetch(
        &self,
        endpoint: EndpointId,
        due_by: Timestamp,
        limit: usize,
        ordered: bool,
    ) -> Fetched {
        let mut keys = BTreeSet::new();
        let mut blocked = false;
        let mut open: Vec<(Timestamp, &Delivery)> = Vec::new();
        for row in self.rows.values() {
            let Some(at) = row.next_attempt_at() else {
                continue;
            };
            if row.facts().endpoint != endpoint {
                continue;
            }
            match row.facts().ordering {
                Some(key) if ordered && !keys.insert(key) => blocked = true,
                Some(_) | None => open.push((at, row)),
            }
        }
        open.sort_by_key(|(at, row)| (*at, row.id()));
        let due = open.partition_point(|(at, _)| *at <= due_by).min(limit);
        Fetched {
            deliveries: open[..due].iter().map(|(_, row)| (*row).clone()).collect(),
            next_due: open.get(due).map(|(at, _)| *at),
            blocked,
            unreadable: Vec::new(),
        }
    }

    /// Writes a record if the row has not changed since.
    pub(super) fn write(&mut self, record: &Record) -> bool {
        match record {
            Record::Attempt(record) => self.write_attempt(record),
            Record::Expire(after) => {
                let row = self.row_mut(after.id());
                let is_current = row.facts().attempts == after.facts().attempts;
                is_current
                    && after
                        .state()
                        .ended_at()
                        .is_some_and(|at| row.expire(at).is_ok())
            }
            Record::Cancel { delivery, at } => {
                let row = self
                    .rows
                    .get_mut(delivery)
                    .expect("the delivery was committed");
                row.cancel(*at).is_ok()
            }
        }
    }

    fn write_attempt(&mut self, record: &AttemptRecord) -> bool {
        let row = self.row_mut(record.delivery.id());
        let is_current = row.next_attempt_at().is_some()
            && row.facts().attempts + 1 == record.delivery.facts().attempts;
        if is_current {
            *row = record.delivery.clone();
        }
        is_current
    }

    pub(super) fn sweep(
        &mut self,
        endpoint: EndpointId,
        reason: DeadReason,
        except: &[DeliveryId],
        now: Timestamp,
    ) {
        for row in self.rows.values_mut() {
            let spared = except.contains(&row.id());
            if row.facts().endpoint != endpoint || row.next_attempt_at().is_none() || spared {
                continue;
            }
            let swept = if reason == DeadReason::EndpointDeleted {
                row.delete(now)
            } else {
                row.disable(now)
            };
            swept.expect("the delivery is waiting");
        }
    }
}
