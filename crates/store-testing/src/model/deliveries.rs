//! Deliveries in the model: fetching, recording, retrying, sweeping and listing.
//!
//! A record is applied only if the delivery is still waiting and has as many attempts as when the attempt started.
//! All lists are computed from all rows at each call.

use std::collections::{BTreeMap, BTreeSet};

use posthaste_core::classify::FailureKind;
use posthaste_core::delivery::{DeadReason, Delivery, DeliveryData, Status};
use posthaste_core::dispatcher::{AttemptRecord, Record};
use posthaste_core::id::{DeliveryId, EndpointId, TenantId};
use posthaste_core::lane::{EndpointStatus, Fetched};
use posthaste_core::time::Timestamp;

use super::events::within;
use super::tables::{DeliveryRow, Tables, older, page};
use posthaste_store::for_other_stores::of_attempt;
use posthaste_store::{
    AttemptDetail, AttemptEntry, DeliveryFilter, DisabledReason, Page, PageRequest, RetryResult,
    StoredDelivery, StoredStatus, SweepResult, Written,
};

impl DeliveryRow {
    /// Returns the kind of the last failure, or of the reason why it was dead-lettered.
    fn error_kind(&self) -> Option<FailureKind> {
        let given_up = self.delivery.state().dead_reason();
        let last = self.attempts.last().and_then(|last| last.error_kind);
        given_up.and_then(DeadReason::kind).or(last)
    }
}

impl Tables {
    fn stored_delivery(&self, row: &DeliveryRow) -> StoredDelivery {
        let facts = row.delivery.facts();
        let event = &self.events[&facts.event];
        let endpoint = self.endpoints.get(&facts.endpoint);
        StoredDelivery {
            delivery: row.delivery.clone(),
            tenant: event.tenant.clone(),
            event_type: event.content.event_type.clone(),
            created_at: event.created_at,
            is_held_by_endpoint: endpoint.is_some_and(|endpoint| endpoint.row.holds()),
            last_attempt: row.attempts.last().cloned(),
        }
    }

    /// Returns true if a delivery belongs to the tenant that has this id now.
    fn is_owned(&self, tenant: &TenantId, row: &DeliveryRow) -> bool {
        let owner = self.events[&row.delivery.facts().event].owner;
        self.owner(tenant) == Some(owner)
    }

    pub(super) fn delivery(
        &self,
        tenant: &TenantId,
        delivery: DeliveryId,
    ) -> Option<(StoredDelivery, Vec<AttemptEntry>)> {
        let row = self.deliveries.get(&delivery)?;
        self.is_owned(tenant, row)
            .then(|| (self.stored_delivery(row), row.attempts.clone()))
    }

    pub(super) fn deliveries(
        &self,
        tenant: &TenantId,
        filter: &DeliveryFilter,
        request: PageRequest<DeliveryId>,
    ) -> Page<StoredDelivery, DeliveryId> {
        let rows = older(&self.deliveries, request.before)
            .filter(|(_, row)| self.is_owned(tenant, row))
            .map(|(id, row)| (*id, self.stored_delivery(row)))
            .filter(|(_, delivery)| matches(filter, delivery));
        page(rows, request)
    }

    /// A waiting delivery of a disabled or deleted endpoint is not made due either.
    pub(super) fn retry(
        &mut self,
        now: Timestamp,
        tenant: &TenantId,
        delivery: DeliveryId,
    ) -> RetryResult {
        let Some(row) = self
            .deliveries
            .get(&delivery)
            .filter(|row| self.is_owned(tenant, row))
        else {
            return RetryResult::NoSuchDelivery;
        };
        let endpoint = row.delivery.facts().endpoint;
        match self.status(endpoint) {
            EndpointStatus::Enabled | EndpointStatus::Paused => {}
            EndpointStatus::Disabled => return RetryResult::EndpointDisabled,
            EndpointStatus::Deleted => return RetryResult::EndpointDeleted,
        }
        let give_up_after = self.give_up_after(endpoint);
        let row = self
            .deliveries
            .get_mut(&delivery)
            .expect("the delivery was found above");
        if row.delivery.make_due(now).is_ok() {
            return RetryResult::DueNow { endpoint };
        }
        let event = &self.events[&row.delivery.facts().event];
        if event.payload_removed_at.is_some() {
            return RetryResult::PayloadDeleted;
        }
        row.delivery
            .replay(now, give_up_after)
            .expect("a delivery that is not waiting has ended");
        RetryResult::Replayed { endpoint }
    }

    /// An unknown endpoint counts as deleted.
    pub(super) fn status(&self, endpoint: EndpointId) -> EndpointStatus {
        self.endpoints
            .get(&endpoint)
            .map_or(EndpointStatus::Deleted, |endpoint| endpoint.row.status)
    }

    pub(super) fn record(
        &mut self,
        now: Timestamp,
        record: Record,
        detail: AttemptDetail,
    ) -> Written {
        match record {
            Record::Attempt(attempt) => self.record_attempt(now, *attempt, detail),
            Record::Expire(expired) => self.expire(&expired),
            Record::Cancel { delivery, at } => {
                let row = self.deliveries.get_mut(&delivery);
                match row.map(|row| row.delivery.cancel(at)) {
                    Some(Ok(())) => Written::Applied,
                    Some(Err(_)) | None => Written::Superseded,
                }
            }
        }
    }

    fn expire(&mut self, expired: &Delivery) -> Written {
        let (Some(row), Some(at)) = (
            self.deliveries.get_mut(&expired.id()),
            expired.state().ended_at(),
        ) else {
            return Written::Superseded;
        };
        let is_current = row.delivery.facts().attempts == expired.facts().attempts;
        if !is_current || row.delivery.expire(at).is_err() {
            return Written::Superseded;
        }
        let endpoint = row.delivery.facts().endpoint;
        self.failures
            .note(endpoint, &row.delivery, row.error_kind());
        self.count_failed(endpoint, at);
        Written::Applied
    }

    fn record_attempt(
        &mut self,
        now: Timestamp,
        attempt: AttemptRecord,
        detail: AttemptDetail,
    ) -> Written {
        let counters = of_attempt(&attempt, detail.latency);
        let after = attempt.delivery;
        let endpoint = after.facts().endpoint;
        let is_current = |before: &Delivery| {
            before.next_attempt_at().is_some()
                && before.facts().attempts + 1 == after.facts().attempts
        };
        let row = self.deliveries.get_mut(&after.id());
        let Some(row) = row.filter(|row| is_current(&row.delivery)) else {
            return Written::Superseded;
        };
        // A late record of an attempt of an earlier round does not restore that round's times.
        let round = row.delivery.facts();
        let facts = DeliveryData {
            due_at: round.due_at,
            give_up_at: round.give_up_at,
            ..after.facts().clone()
        };
        row.delivery = Delivery::restore(facts, after.state());
        row.attempts
            .push(AttemptEntry::new(&attempt.settlement, detail));
        self.failures
            .note(endpoint, &row.delivery, row.error_kind());
        self.count(endpoint, attempt.settlement.finished_at, &counters);
        if let Some(owned) = self.endpoints.get_mut(&endpoint) {
            if let Some(health) = &attempt.health {
                owned.row.health.update(health);
            }
            if let Some(cause) = attempt.disable {
                let reason = DisabledReason::Automatic(cause);
                super::directory::set_status(
                    &mut owned.row,
                    EndpointStatus::Disabled,
                    Some(reason),
                );
            }
        }
        for change in attempt.endpoint_changes {
            self.add_endpoint_change(now, endpoint, change);
        }
        Written::Applied
    }

    pub(super) fn unfinished_work(&self) -> Vec<(EndpointId, Timestamp)> {
        let mut earliest: BTreeMap<EndpointId, Timestamp> = BTreeMap::new();
        for row in self.deliveries.values() {
            if let Some(at) = row.delivery.next_attempt_at() {
                let due = earliest.entry(row.delivery.facts().endpoint).or_insert(at);
                *due = at.min(*due);
            }
        }
        earliest.into_iter().collect()
    }

    /// `blocked` is exact here: true if any delivery of the whole backlog waits for another of its ordering
    /// key. A store that did not read the whole backlog may return true without knowing.
    pub(super) fn fetch(
        &self,
        endpoint: EndpointId,
        due_by: Timestamp,
        limit: usize,
        ordered: bool,
    ) -> Fetched {
        let waiting = self.waiting(endpoint);
        let mut oldest = BTreeMap::new();
        for (_, delivery) in &waiting {
            if let Some(key) = delivery.facts().ordering {
                let least = oldest.entry(key).or_insert(delivery.id());
                *least = delivery.id().min(*least);
            }
        }
        let free = |delivery: &Delivery| {
            let key = delivery.facts().ordering;
            !ordered || key.is_none_or(|key| oldest[&key] == delivery.id())
        };
        let mut fetched = Fetched {
            deliveries: Vec::new(),
            next_due: None,
            blocked: false,
            unreadable: Vec::new(),
        };
        for (at, delivery) in waiting {
            if !free(delivery) {
                fetched.blocked = true;
            } else if at <= due_by && fetched.deliveries.len() < limit {
                fetched.deliveries.push(delivery.clone());
            } else if fetched.next_due.is_none() {
                fetched.next_due = Some(at);
            }
        }
        fetched
    }

    /// Ends the earliest deliveries first.
    pub(super) fn sweep(
        &mut self,
        now: Timestamp,
        endpoint: EndpointId,
        reason: DeadReason,
        except: &[DeliveryId],
        limit: usize,
    ) -> SweepResult {
        let spared: BTreeSet<DeliveryId> = except.iter().copied().collect();
        let waiting = self.waiting(endpoint).into_iter();
        let doomed: Vec<DeliveryId> = waiting
            .map(|(_, delivery)| delivery.id())
            .filter(|id| !spared.contains(id))
            .collect();
        let ended = doomed.len().min(limit);
        for id in &doomed[..ended] {
            let row = self
                .deliveries
                .get_mut(id)
                .expect("the delivery is waiting");
            let delivery = &mut row.delivery;
            let failed = match reason {
                DeadReason::EndpointDeleted => delivery.delete(now),
                DeadReason::EndpointDisabled
                | DeadReason::Permanent
                | DeadReason::Exhausted
                | DeadReason::Expired
                | DeadReason::UnsafeDestination => delivery.disable(now),
            };
            failed.expect("a waiting delivery can be failed");
            self.failures
                .note(endpoint, &row.delivery, row.error_kind());
            self.count_failed(endpoint, now);
        }
        SweepResult {
            ended,
            more: ended < doomed.len(),
        }
    }
}

fn matches(filter: &DeliveryFilter, stored: &StoredDelivery) -> bool {
    let facts = stored.delivery.facts();
    filter
        .status
        .is_none_or(|status| is_shown_as(stored, status))
        && filter
            .endpoint
            .is_none_or(|endpoint| endpoint == facts.endpoint)
        && filter.event.is_none_or(|event| event == facts.event)
        && filter
            .event_type
            .as_ref()
            .is_none_or(|event_type| *event_type == stored.event_type)
        && filter
            .error_kind
            .is_none_or(|kind| stored.error_kind() == Some(kind))
        && within(filter.since, filter.until, stored.created_at)
}

pub(super) fn is_shown_as(stored: &StoredDelivery, status: StoredStatus) -> bool {
    stored.shown_status() == named(status)
}

/// Returns the status that a filter selects.
pub(super) fn named(status: StoredStatus) -> Status {
    match status {
        StoredStatus::Pending => Status::Pending,
        StoredStatus::Retrying => Status::Retrying,
        StoredStatus::Held => Status::Held,
        StoredStatus::Succeeded => Status::Succeeded,
        StoredStatus::Failed => Status::Failed,
        StoredStatus::Cancelled => Status::Cancelled,
    }
}

impl Tables {
    /// Returns the matching deliveries of a tenant, the oldest first.
    pub(super) fn matching(
        &self,
        tenant: &TenantId,
        filter: &DeliveryFilter,
    ) -> Vec<StoredDelivery> {
        let everything = PageRequest {
            limit: usize::MAX,
            before: None,
        };
        let mut items = self.deliveries(tenant, filter, everything).items;
        items.reverse();
        items
    }
}
