//! Replays in the model.
//!
//! The list of targets is made when the replay is created, so later changes cannot add any. Each step makes the
//! next targets due and skips those that have changed since or whose endpoint cannot receive.

use std::collections::BTreeSet;

use posthaste_core::delivery::{Delivery, ScheduledAttempt, State, Trigger};
use posthaste_core::id::{EndpointId, ReplayId, TenantId};
use posthaste_core::lane::EndpointStatus;
use posthaste_core::subscription::wants;
use posthaste_core::time::Timestamp;

use super::deliveries::named;
use super::events::within;
use super::tables::{ReplayRow, Tables, Target, page};
use posthaste_store::{
    DeliveryFilter, Page, PageRequest, Replay, ReplayFilter, ReplayScope, ReplayStatus, ReplayStep,
    StoredStatus,
};

impl Tables {
    /// A replay for a tenant that does not exist is done immediately, and is not stored.
    pub(super) fn create_replay(
        &mut self,
        now: Timestamp,
        tenant: TenantId,
        filter: ReplayFilter,
    ) -> Replay {
        let targets = self.targets(&tenant, &filter);
        let id: ReplayId = self.id_generator.next(now);
        let mut replay = Replay {
            id,
            tenant,
            filter,
            status: ReplayStatus::Running,
            total: targets.len() as u64,
            replayed: 0,
            skipped: 0,
            created_at: now,
            finished_at: None,
        };
        let Some(owner) = self.owner(&replay.tenant) else {
            replay.status = ReplayStatus::Done;
            replay.finished_at = Some(now);
            return replay;
        };
        let row = ReplayRow {
            owner,
            replay: replay.clone(),
            left: targets.into_iter().collect(),
        };
        self.replays.insert(id, row);
        replay
    }

    /// Returns the number of targets that a replay would have.
    pub(super) fn count_replay(&self, tenant: &TenantId, filter: &ReplayFilter) -> u64 {
        match self.owner(tenant) {
            Some(_) => self.targets(tenant, filter).len() as u64,
            None => 0,
        }
    }

    /// Returns the targets of a replay, the oldest event first.
    fn targets(&self, tenant: &TenantId, filter: &ReplayFilter) -> BTreeSet<Target> {
        let status = filter.scope.status();
        let ended = match status {
            StoredStatus::Succeeded | StoredStatus::Failed | StoredStatus::Cancelled => true,
            StoredStatus::Pending | StoredStatus::Retrying | StoredStatus::Held => false,
        };
        let search = DeliveryFilter {
            status: Some(status),
            endpoint: filter.endpoint,
            event: None,
            event_type: filter.event_type.clone(),
            error_kind: filter.error_kind,
            since: filter.since,
            until: filter.until,
        };
        let mut targets = BTreeSet::new();
        if ended && (filter.scope != ReplayScope::Missed || filter.endpoint.is_some()) {
            let found = self.matching(tenant, &search);
            targets.extend(found.iter().map(|stored| Target {
                event: stored.delivery.facts().event,
                endpoint: stored.delivery.facts().endpoint,
            }));
        }
        match (filter.scope, filter.endpoint) {
            // A delivery that was never attempted has no failure kind.
            (ReplayScope::Missed, Some(endpoint)) if filter.error_kind.is_none() => {
                targets.extend(self.never_tried(tenant, endpoint, filter));
            }
            (ReplayScope::Missed | ReplayScope::Ended(_), _) => {}
        }
        targets
    }

    /// Returns the events that an endpoint subscribes to now and that have no delivery to it. Test events for
    /// other endpoints are not included.
    fn never_tried(
        &self,
        tenant: &TenantId,
        endpoint: EndpointId,
        filter: &ReplayFilter,
    ) -> Vec<Target> {
        let Some(owner) = self.owner(tenant) else {
            return Vec::new();
        };
        let owned = self.endpoints.get(&endpoint);
        let Some(row) = owned
            .filter(|owned| owned.owner == owner)
            .map(|owned| &owned.row)
        else {
            return Vec::new();
        };
        let wanted = |event_type| {
            wants(&row.endpoint.event_types, event_type)
                && filter
                    .event_type
                    .as_ref()
                    .is_none_or(|only| only == event_type)
        };
        self.events
            .iter()
            .filter(|(_, event)| event.owner == owner && event.only.is_none())
            .filter(|(_, event)| within(filter.since, filter.until, event.created_at))
            .filter(|(_, event)| wanted(&event.content.event_type))
            .filter(|(id, _)| self.delivery_of(**id, endpoint).is_none())
            .map(|(id, _)| Target {
                event: *id,
                endpoint,
            })
            .collect()
    }

    /// Counts every processed target as replayed, and as skipped too if nothing is sent: its endpoint is
    /// disabled or deleted, its status has changed since, or it or its payload was removed.
    pub(super) fn step_replay(
        &mut self,
        now: Timestamp,
        replay: ReplayId,
        limit: usize,
    ) -> Option<ReplayStep> {
        let row = self.replays.get_mut(&replay)?;
        let scope = row.replay.filter.scope;
        let mut endpoints = BTreeSet::new();
        if row.replay.status == ReplayStatus::Running {
            let step = limit.min(row.left.len());
            let targets: Vec<Target> = row.left.drain(..step).collect();
            row.replay.replayed += targets.len() as u64;
            if row.left.is_empty() {
                row.replay.status = ReplayStatus::Done;
                row.replay.finished_at = Some(now);
            }
            let mut skipped = 0;
            for target in targets {
                if self.start_delivery(now, scope, target) {
                    endpoints.insert(target.endpoint);
                } else {
                    skipped += 1;
                }
            }
            let row = self
                .replays
                .get_mut(&replay)
                .expect("the replay was found above");
            row.replay.skipped += skipped;
        }
        Some(ReplayStep {
            replay: self.replays[&replay].replay.clone(),
            endpoints: endpoints.into_iter().collect(),
        })
    }

    /// Returns true if a delivery now waits for the endpoint that did not wait before.
    fn start_delivery(&mut self, now: Timestamp, scope: ReplayScope, target: Target) -> bool {
        match self.status(target.endpoint) {
            EndpointStatus::Enabled | EndpointStatus::Paused => {}
            EndpointStatus::Disabled | EndpointStatus::Deleted => return false,
        }
        let event = self.events.get(&target.event);
        if event.is_none_or(|event| event.payload_removed_at.is_some()) {
            return false;
        }
        let made = self.delivery_of(target.event, target.endpoint);
        let Some(id) = made.map(|delivery| delivery.id()) else {
            let made = self.make_delivery(now, target.event, target.endpoint);
            let turn = ScheduledAttempt {
                at: made.facts().due_at,
                trigger: Trigger::Manual,
            };
            let row = self
                .deliveries
                .get_mut(&made.id())
                .expect("the delivery was created above");
            row.delivery = Delivery::restore(made.facts().clone(), State::Pending(turn));
            return true;
        };
        let give_up_after = self.give_up_after(target.endpoint);
        let row = self
            .deliveries
            .get_mut(&id)
            .expect("the replay was found above");
        if row.delivery.status() != named(scope.status()) {
            return false;
        }
        let replayed = row.delivery.replay(now, give_up_after);
        replayed.expect("the targets of a replay have ended");
        true
    }

    pub(super) fn cancel_replay(
        &mut self,
        now: Timestamp,
        tenant: &TenantId,
        replay: ReplayId,
    ) -> Option<Replay> {
        let owner = self.owner(tenant)?;
        let row = self.replays.get_mut(&replay)?;
        if row.owner != owner {
            return None;
        }
        match row.replay.status {
            ReplayStatus::Running => {
                row.replay.status = ReplayStatus::Cancelled;
                row.replay.finished_at = Some(now);
                row.left.clear();
            }
            ReplayStatus::Done | ReplayStatus::Cancelled => {}
        }
        Some(row.replay.clone())
    }

    pub(super) fn replay(&self, tenant: &TenantId, replay: ReplayId) -> Option<Replay> {
        let owner = self.owner(tenant)?;
        let row = self.replays.get(&replay)?;
        (row.owner == owner).then(|| row.replay.clone())
    }

    pub(super) fn replays(
        &self,
        tenant: &TenantId,
        request: PageRequest<ReplayId>,
    ) -> Page<Replay, ReplayId> {
        let owner = self.owner(tenant);
        let rows = self.replays.iter().rev();
        let owned = rows.filter(|(_, row)| Some(row.owner) == owner);
        page(owned.map(|(id, row)| (*id, row.replay.clone())), request)
    }

    pub(super) fn running_replays(&self) -> Vec<ReplayId> {
        let rows = self.replays.values().map(|row| &row.replay);
        rows.filter(|replay| replay.status == ReplayStatus::Running)
            .map(|replay| replay.id)
            .collect()
    }
}
