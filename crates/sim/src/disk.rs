//! Simulated store: its contents survive a crash.
//!
//! [`Disk`] fulfils the contract that the dispatcher expects of a store, in the simplest possible way. A record
//! is written only if its row has not changed since; writes of a replaced process are refused (fence); a fetch
//! for an ordered endpoint returns only the oldest unfinished delivery of each ordering key.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use posthaste_core::delivery::{DeadReason, Delivery, IllegalTransition, OrderingKey, Status};
use posthaste_core::dispatcher::{AttemptRecord, EndpointSnapshot, Record};
use posthaste_core::id::{DeliveryId, EndpointId, TenantId};
use posthaste_core::lane::{EndpointStatus, Fetched, Health, LaneSettings};
use posthaste_core::time::{Tick, Timestamp};

/// The number of the process that owns the disk. Only the newest may write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(pub u64);

/// A stored endpoint.
#[derive(Clone, Debug)]
pub struct EndpointRow {
    /// The tenant that it belongs to.
    pub tenant: TenantId,
    /// Its limits and retry policy.
    pub settings: Arc<LaneSettings>,
    /// Its endpoint status.
    pub status: EndpointStatus,
    /// Its endpoint health.
    pub health: Health,
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// Written.
    Applied,
    /// The row has changed since; nothing was written.
    Superseded,
    /// The writer was replaced; nothing was written.
    Fenced,
}

/// The contents of the disk.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    epoch: Epoch,
    endpoints: BTreeMap<EndpointId, EndpointRow>,
    deliveries: BTreeMap<DeliveryId, Delivery>,
    waiting: BTreeMap<EndpointId, BTreeSet<(Timestamp, DeliveryId)>>,
    unfinished: BTreeMap<(EndpointId, OrderingKey), BTreeSet<DeliveryId>>,
}

impl Disk {
    /// Opens the disk for a new process and returns its epoch.
    pub fn open(&mut self) -> Epoch {
        self.epoch.0 += 1;
        self.epoch
    }

    /// Stores an endpoint.
    pub fn put_endpoint(&mut self, id: EndpointId, row: EndpointRow) {
        self.endpoints.insert(id, row);
    }

    /// Returns an endpoint.
    pub fn endpoint(&self, id: EndpointId) -> Option<&EndpointRow> {
        self.endpoints.get(&id)
    }

    /// Returns an endpoint for modification.
    pub fn endpoint_mut(&mut self, id: EndpointId) -> Option<&mut EndpointRow> {
        self.endpoints.get_mut(&id)
    }

    /// Returns every endpoint.
    pub fn endpoints(&self) -> impl Iterator<Item = (&EndpointId, &EndpointRow)> {
        self.endpoints.iter()
    }

    /// Returns the endpoint in the form that the dispatcher needs.
    pub fn snapshot(&self, endpoint: EndpointId) -> Option<EndpointSnapshot> {
        let row = self.endpoints.get(&endpoint)?;
        Some(EndpointSnapshot {
            endpoint,
            tenant: row.tenant.clone(),
            settings: row.settings.clone(),
            status: row.status,
            health: row.health.clone(),
            owned_since: Tick::START,
        })
    }

    /// Stores a new delivery.
    pub fn accept(&mut self, delivery: Delivery) {
        let fresh = !self.deliveries.contains_key(&delivery.id());
        assert!(fresh, "{} was accepted twice", delivery.id());
        self.put(delivery);
    }

    /// Returns a delivery.
    pub fn delivery(&self, id: DeliveryId) -> Option<&Delivery> {
        self.deliveries.get(&id)
    }

    /// Returns every delivery.
    pub fn deliveries(&self) -> impl Iterator<Item = &Delivery> {
        self.deliveries.values()
    }

    /// Returns the endpoints with waiting deliveries, each with its earliest due time.
    pub fn unfinished_work(&self) -> Vec<(EndpointId, Timestamp)> {
        self.waiting
            .iter()
            .filter_map(|(endpoint, waiting)| Some((*endpoint, waiting.first()?.0)))
            .collect()
    }

    /// Returns the due deliveries of an endpoint.
    pub fn fetch(
        &self,
        endpoint: EndpointId,
        due_by: Timestamp,
        limit: usize,
        ordered: bool,
    ) -> Fetched {
        let mut fetched = Fetched {
            deliveries: Vec::new(),
            next_due: None,
            blocked: false,
            unreadable: Vec::new(),
        };
        for (next_attempt_at, id) in self.waiting.get(&endpoint).into_iter().flatten() {
            let delivery = &self.deliveries[id];
            if ordered && !self.is_oldest_of_its_key(delivery) {
                fetched.blocked = true;
            } else if *next_attempt_at <= due_by && fetched.deliveries.len() < limit {
                fetched.deliveries.push(delivery.clone());
            } else {
                fetched.next_due = Some(*next_attempt_at);
                break;
            }
        }
        // If the scan stopped early, later deliveries may be blocked.
        fetched.blocked |= ordered && fetched.next_due.is_some();
        fetched
    }

    /// Writes a record, if its writer still owns the disk and its row has not changed since.
    pub fn record(&mut self, epoch: Epoch, record: &Record) -> Written {
        if epoch != self.epoch {
            return Written::Fenced;
        }
        match record {
            Record::Attempt(attempt) => {
                let after = &attempt.delivery;
                let before = &self.deliveries[&after.id()];
                let is_current = before.next_attempt_at().is_some()
                    && before.facts().attempts + 1 == after.facts().attempts;
                if !is_current {
                    return Written::Superseded;
                }
                if let Some(row) = self.endpoints.get_mut(&after.facts().endpoint) {
                    if let Some(health) = &attempt.health {
                        row.health.update(health);
                    }
                    if attempt.disable.is_some() && row.status != EndpointStatus::Deleted {
                        row.status = EndpointStatus::Disabled;
                    }
                }
                self.put(after.clone());
                Written::Applied
            }
            Record::Expire(expired) => {
                let before = &self.deliveries[&expired.id()];
                if before.facts().attempts != expired.facts().attempts {
                    return Written::Superseded;
                }
                let at = expired.state().ended_at().expect("it has ended");
                match self.change(expired.id(), |delivery| delivery.expire(at)) {
                    Ok(()) => Written::Applied,
                    Err(_) => Written::Superseded,
                }
            }
            Record::Cancel { delivery, at } => {
                match self.change(*delivery, |delivery| delivery.cancel(*at)) {
                    Ok(()) => Written::Applied,
                    Err(_) => Written::Superseded,
                }
            }
        }
    }

    /// Writes a record without any check; used by a mutation.
    pub(crate) fn overwrite(&mut self, attempt: &AttemptRecord) {
        self.put(attempt.delivery.clone());
    }

    /// Fails all waiting deliveries of an endpoint except `except`, and returns their ids.
    pub fn sweep(
        &mut self,
        epoch: Epoch,
        endpoint: EndpointId,
        reason: DeadReason,
        except: &[DeliveryId],
        now: Timestamp,
    ) -> Vec<DeliveryId> {
        if epoch != self.epoch {
            return Vec::new();
        }
        let waiting = self.waiting.get(&endpoint).into_iter().flatten();
        let ids: Vec<DeliveryId> = waiting
            .map(|(_, id)| *id)
            .filter(|id| !except.contains(id))
            .collect();
        for id in &ids {
            self.change(*id, |delivery| match reason {
                DeadReason::EndpointDeleted => delivery.delete(now),
                DeadReason::EndpointDisabled
                | DeadReason::Permanent
                | DeadReason::Exhausted
                | DeadReason::Expired
                | DeadReason::UnsafeDestination => delivery.disable(now),
            })
            .expect("a waiting delivery can be failed");
        }
        ids
    }

    /// Applies a state transition to one delivery.
    pub fn change(
        &mut self,
        id: DeliveryId,
        transition: impl FnOnce(&mut Delivery) -> Result<(), IllegalTransition>,
    ) -> Result<(), IllegalTransition> {
        let mut delivery = self.deliveries[&id].clone();
        transition(&mut delivery)?;
        self.put(delivery);
        Ok(())
    }

    /// Returns the number of deliveries that have not ended.
    pub fn unfinished(&self) -> usize {
        self.waiting.values().map(BTreeSet::len).sum()
    }

    /// Returns the unfinished deliveries of one ordering key, in the order of acceptance.
    pub fn unfinished_of_key(
        &self,
        endpoint: EndpointId,
        key: OrderingKey,
    ) -> impl Iterator<Item = DeliveryId> {
        let ids = self.unfinished.get(&(endpoint, key));
        ids.into_iter().flatten().copied()
    }

    fn is_oldest_of_its_key(&self, delivery: &Delivery) -> bool {
        let facts = delivery.facts();
        let Some(key) = facts.ordering else {
            return true;
        };
        self.unfinished_of_key(facts.endpoint, key)
            .next()
            .is_none_or(|oldest| oldest == facts.id)
    }

    fn put(&mut self, delivery: Delivery) {
        if let Some(before) = self.deliveries.get(&delivery.id()) {
            let (id, endpoint) = (before.id(), before.facts().endpoint);
            if let Some(at) = before.next_attempt_at() {
                self.waiting.entry(endpoint).or_default().remove(&(at, id));
            }
            if let Some(key) = before.facts().ordering {
                let unfinished = self.unfinished.entry((endpoint, key)).or_default();
                unfinished.remove(&id);
            }
        }
        let facts = delivery.facts();
        let status = delivery.status();
        assert_ne!(
            status,
            Status::InProgress,
            "deliveries in progress are never stored"
        );
        if let Some(at) = delivery.next_attempt_at() {
            let waiting = self.waiting.entry(facts.endpoint).or_default();
            waiting.insert((at, facts.id));
            if let Some(key) = facts.ordering {
                let unfinished = self.unfinished.entry((facts.endpoint, key)).or_default();
                unfinished.insert(facts.id);
            }
        }
        self.deliveries.insert(facts.id, delivery);
    }
}
