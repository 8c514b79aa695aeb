//! Counts and retention in the model.
//!
//! Counts are computed from all rows at each call. A retention step checks a limited number of events from where
//! the last one stopped, removes payloads, attempts and whole events that have expired, and starts over at the end.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use posthaste_core::delivery::Status;
use posthaste_core::id::{EndpointId, EventId, ReplayId, TenantId};
use posthaste_core::time::{Span, Timestamp};

use super::tables::{ReplayRow, Tables, TenantVersion};
use posthaste_store::for_other_stores::has_expired;
use posthaste_store::{
    Content, Counts, Retention, RetentionPeriods, RetentionStepResult, TenantSelection,
};

impl Tables {
    pub(super) fn counts(&self) -> Counts {
        let count = |wanted: fn(Status) -> bool| {
            let rows = self.deliveries.values();
            rows.filter(|row| wanted(row.delivery.status())).count() as u64
        };
        Counts {
            pending: count(|status| !status.is_terminal()),
            dead_letters: count(|status| status == Status::Failed),
        }
    }

    pub(super) fn pending(&self, endpoint: EndpointId) -> u64 {
        self.waiting(endpoint).len() as u64
    }

    /// A delivery counts as retrying since its first due time in this round.
    pub(super) fn retrying_since(
        &self,
        tenants: &TenantSelection,
        since: Timestamp,
        limit: usize,
    ) -> u64 {
        let is_selected = |event: &EventId| {
            let owner = Some(self.events[event].owner);
            match tenants {
                TenantSelection::All => true,
                TenantSelection::Only(tenant) => owner == self.owner(tenant),
                TenantSelection::Except(tenant) => owner != self.owner(tenant),
            }
        };
        let rows = self.deliveries.values().filter(|row| {
            let facts = row.delivery.facts();
            row.delivery.status() == Status::Retrying
                && facts.due_at < since
                && is_selected(&facts.event)
        });
        rows.take(limit).count() as u64
    }

    /// Checks the next events in the order of their ids. After the last event, the next step starts again with
    /// the first.
    pub(super) fn step_retention(
        &mut self,
        now: Timestamp,
        retention: &Retention,
    ) -> RetentionStepResult {
        let start = self
            .retention_position
            .map_or(Bound::Unbounded, Bound::Excluded);
        let rest = self.events.range((start, Bound::Unbounded));
        let looked_at: Vec<EventId> = rest.map(|(id, _)| *id).take(retention.step).collect();
        let more = looked_at.len() == retention.step;
        self.retention_position = looked_at.last().copied().filter(|_| more);
        let mut step = RetentionStepResult::default();
        for event in looked_at {
            let kept = self.kept(retention, event);
            if self.is_old(now, kept.deliveries, event) {
                self.remove(event);
                step.events += 1;
                continue;
            }
            if self.is_old(now, kept.payloads, event) {
                step.payloads += usize::from(self.remove_payload(now, event));
            }
            step.attempts += self.remove_attempts(now, kept.attempts, event);
        }
        if !more {
            self.remove_replays(now, retention);
            self.delete_expired_runs(now, retention);
        }
        let people = self.delete_expired_sessions(now, retention.step);
        let alerts = self.delete_expired_alerts(now, retention.step);
        let stats = self.delete_expired_stats(now, retention.step);
        step.more = more || people || alerts || stats;
        step
    }

    fn remove_replays(&mut self, now: Timestamp, retention: &Retention) {
        let is_old = |row: &ReplayRow| {
            let kept = self.kept_for(retention, &row.replay.tenant, row.owner);
            let ended_at = row.replay.finished_at;
            ended_at.is_some_and(|ended_at| has_expired(ended_at, kept.deliveries, now))
        };
        let rows = self.replays.iter().filter(|(_, row)| is_old(row));
        let old: Vec<ReplayId> = rows.map(|(id, _)| *id).collect();
        for replay in old {
            self.replays.remove(&replay);
        }
    }

    /// Returns the retention periods of a tenant. The data of a deleted tenant is kept for the server's
    /// default.
    pub(super) fn kept_for(
        &self,
        retention: &Retention,
        tenant: &TenantId,
        owner: TenantVersion,
    ) -> RetentionPeriods {
        let row = self.tenants.get(tenant);
        match row.filter(|row| row.owner == owner) {
            Some(row) => retention.of(&row.tenant.limits, row.tenant.plan.as_deref()),
            None => retention.of_deleted_tenant(),
        }
    }

    fn kept(&self, retention: &Retention, event: EventId) -> RetentionPeriods {
        let row = &self.events[&event];
        self.kept_for(retention, &row.tenant, row.owner)
    }

    /// Returns true if the event and all its deliveries ended at least `keep` ago.
    fn is_old(&self, now: Timestamp, keep: Span, event: EventId) -> bool {
        let row = &self.events[&event];
        let deliveries = self.deliveries.values().map(|row| &row.delivery);
        let mut ends = deliveries
            .filter(|delivery| delivery.facts().event == event)
            .map(|delivery| delivery.state().ended_at())
            .chain([Some(row.created_at)]);
        ends.all(|end| end.is_some_and(|end| has_expired(end, keep, now)))
    }

    /// Returns false if the payload is already removed.
    fn remove_payload(&mut self, now: Timestamp, event: EventId) -> bool {
        let row = self
            .events
            .get_mut(&event)
            .expect("the event was read above");
        if row.payload_removed_at.is_some() {
            return false;
        }
        row.payload_removed_at = Some(now);
        row.content = Arc::new(Content {
            payload: Bytes::new(),
            ..Content::clone(&row.content)
        });
        true
    }

    /// Removes all attempts but the last of the event's deliveries that ended at least `keep` ago. Returns the
    /// number of deliveries from which attempts were removed.
    fn remove_attempts(&mut self, now: Timestamp, keep: Span, event: EventId) -> usize {
        let rows = self.deliveries.values_mut();
        let ended = rows.filter(|row| {
            let ended_at = row.delivery.state().ended_at();
            row.delivery.facts().event == event
                && ended_at.is_some_and(|end| has_expired(end, keep, now))
        });
        let mut removed = 0;
        for row in ended.filter(|row| row.attempts.len() > 1) {
            row.attempts.drain(..row.attempts.len() - 1);
            removed += 1;
        }
        removed
    }

    fn remove(&mut self, event: EventId) {
        let row = self
            .events
            .remove(&event)
            .expect("the event was read above");
        if let Some(key) = row.idempotency_key {
            self.idempotency.remove(&(row.owner, key));
        }
        self.deliveries
            .retain(|_, row| row.delivery.facts().event != event);
    }
}
