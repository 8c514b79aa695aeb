//! A disk for the virtual world: what is written here survives a crash.
//!
//! It keeps the promises that a store must keep towards the dispatcher, in the simplest way that
//! could be right: a record is written only if its row still stands where it stood, writes of a
//! process that has been replaced are refused, a fetch of an ordered endpoint hands out only the
//! oldest unfinished delivery of each key.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use posthaste_core::delivery::{DeadReason, Delivery, IllegalTransition, OrderingKey, Status};
use posthaste_core::dispatcher::{AttemptRecord, Introduction, Record};
use posthaste_core::id::{DeliveryId, EndpointId, TenantId};
use posthaste_core::lane::{Fetched, Health, LaneSettings, Standing};
use posthaste_core::time::{Tick, Timestamp};

/// Counts the processes that have owned the disk. Only the newest may write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(pub u64);

/// An endpoint, as stored.
#[derive(Clone, Debug)]
pub struct EndpointRow {
    /// Whose it is.
    pub tenant: TenantId,
    /// What it has been promised.
    pub settings: Arc<LaneSettings>,
    /// Whether it takes part.
    pub standing: Standing,
    /// What is remembered of it.
    pub health: Health,
}

/// What came of an attempt to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// It is on disk.
    Applied,
    /// The row has moved on; nothing was changed.
    Superseded,
    /// The writer has been replaced; nothing was changed.
    Fenced,
}

/// Everything that is on disk.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    epoch: Epoch,
    endpoints: BTreeMap<EndpointId, EndpointRow>,
    deliveries: BTreeMap<DeliveryId, Delivery>,
    waiting: BTreeMap<EndpointId, BTreeSet<(Timestamp, DeliveryId)>>,
    unfinished: BTreeMap<(EndpointId, OrderingKey), BTreeSet<DeliveryId>>,
}

impl Disk {
    /// A new process takes the disk over.
    pub fn open(&mut self) -> Epoch {
        self.epoch.0 += 1;
        self.epoch
    }

    /// Stores an endpoint.
    pub fn put_endpoint(&mut self, id: EndpointId, row: EndpointRow) {
        self.endpoints.insert(id, row);
    }

    /// An endpoint.
    pub fn endpoint(&self, id: EndpointId) -> Option<&EndpointRow> {
        self.endpoints.get(&id)
    }

    /// An endpoint, to be changed.
    pub fn endpoint_mut(&mut self, id: EndpointId) -> Option<&mut EndpointRow> {
        self.endpoints.get_mut(&id)
    }

    /// Every endpoint.
    pub fn endpoints(&self) -> impl Iterator<Item = (&EndpointId, &EndpointRow)> {
        self.endpoints.iter()
    }

    /// What the dispatcher is told of an endpoint.
    pub fn introduction(&self, endpoint: EndpointId) -> Option<Introduction> {
        let row = self.endpoints.get(&endpoint)?;
        Some(Introduction {
            endpoint,
            tenant: row.tenant.clone(),
            settings: row.settings.clone(),
            standing: row.standing,
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

    /// A delivery.
    pub fn delivery(&self, id: DeliveryId) -> Option<&Delivery> {
        self.deliveries.get(&id)
    }

    /// Every delivery.
    pub fn deliveries(&self) -> impl Iterator<Item = &Delivery> {
        self.deliveries.values()
    }

    /// Endpoints for which something waits, and when the earliest of it is due.
    pub fn unfinished_work(&self) -> Vec<(EndpointId, Timestamp)> {
        self.waiting
            .iter()
            .filter_map(|(endpoint, waiting)| Some((*endpoint, waiting.first()?.0)))
            .collect()
    }

    /// Reads what is due for an endpoint.
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
        };
        for (wanted_at, id) in self.waiting.get(&endpoint).into_iter().flatten() {
            let delivery = &self.deliveries[id];
            if ordered && !self.is_oldest_of_its_key(delivery) {
                fetched.blocked = true;
            } else if *wanted_at <= due_by && fetched.deliveries.len() < limit {
                fetched.deliveries.push(delivery.clone());
            } else {
                fetched.next_due = Some(*wanted_at);
                break;
            }
        }
        // Where the rest was not looked at, others may well be blocked.
        fetched.blocked |= ordered && fetched.next_due.is_some();
        fetched
    }

    /// Writes a record, if its writer still owns the disk and its row still stands where it stood.
    pub fn record(&mut self, epoch: Epoch, record: &Record) -> Written {
        if epoch != self.epoch {
            return Written::Fenced;
        }
        match record {
            Record::Attempt(attempt) => {
                let after = &attempt.delivery;
                let before = &self.deliveries[&after.id()];
                let stands = before.wanted_at().is_some()
                    && before.facts().attempts + 1 == after.facts().attempts;
                if !stands {
                    return Written::Superseded;
                }
                if let Some(row) = self.endpoints.get_mut(&after.facts().endpoint) {
                    if let Some(health) = &attempt.health {
                        row.health.update(health);
                    }
                    if attempt.disable.is_some() && row.standing != Standing::Deleted {
                        row.standing = Standing::Disabled;
                    }
                }
                self.put(after.clone());
                Written::Applied
            }
            Record::Cancel { delivery, at } => {
                match self.change(*delivery, |delivery| delivery.cancel(*at)) {
                    Ok(()) => Written::Applied,
                    Err(_) => Written::Superseded,
                }
            }
        }
    }

    /// Writes a record whatever its row looks like: a bug to be planted.
    pub(crate) fn overwrite(&mut self, attempt: &AttemptRecord) {
        self.put(attempt.delivery.clone());
    }

    /// Fails what waits for an endpoint. Says which.
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
            .expect("what waits can be failed");
        }
        ids
    }

    /// Changes one delivery by one of its transitions.
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

    /// How many deliveries have not ended.
    pub fn unfinished(&self) -> usize {
        self.waiting.values().map(BTreeSet::len).sum()
    }

    /// Unfinished deliveries of one key, in the order they were accepted.
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
            if let Some(at) = before.wanted_at() {
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
            "what is being sent is not written down as such"
        );
        if let Some(at) = delivery.wanted_at() {
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
