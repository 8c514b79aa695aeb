//! Trips the breaker of an endpoint whose deliveries use up all their attempts.
//!
//! Ten dead-lettered deliveries within a day can mean that the destination is down, or that a few payloads out of
//! thousands cannot be delivered. Before it trips, the dispatcher asks how many deliveries ended within the day
//! ([`Command::CountEnded`]), and trips only if fewer than half of them succeeded.

use super::Dispatcher;
use super::attempts::stored_trip;
use super::command::{Command, EndpointChange, EndpointNotification};
use crate::delivery::{DeadReason, Delivery, State};
use crate::id::EndpointId;
use crate::lane::{BreakerState, EndpointStatus, LaneSettings, TripReason};
use crate::time::{Now, Span};

/// Minimum time between two questions about the same endpoint.
const MIN_QUERY_INTERVAL: Span = Span::from_mins(1);

impl Dispatcher {
    /// Notes a delivery that was dead-lettered after failures of the destination. Asks how many deliveries ended if there
    /// are now enough of them to trip the breaker.
    pub(super) fn note_if_exhausted(
        &mut self,
        now: Now,
        lane: usize,
        delivery: &Delivery,
        settings: &LaneSettings,
        commands: &mut Vec<Command>,
    ) {
        match delivery.state() {
            State::Failed {
                reason: DeadReason::Exhausted | DeadReason::Expired,
                ..
            } => {}
            State::Failed { .. }
            | State::Pending(_)
            | State::Retrying(_)
            | State::Held(_)
            | State::InProgress { .. }
            | State::Succeeded { .. }
            | State::Cancelled { .. } => return,
        }
        let entry = &mut self.lanes[lane];
        let enough = settings.breaker.exhausted_deliveries;
        let asked_recently = entry
            .counted_at
            .is_some_and(|since| now.tick.since(since) < MIN_QUERY_INTERVAL);
        if !entry.health.note_exhausted(now.wall, enough)
            || entry.gate.breaker().state() != BreakerState::Passing
            || asked_recently
        {
            return;
        }
        entry.counted_at = Some(now.tick);
        commands.push(Command::CountEnded(entry.endpoint));
    }

    /// Trips the breaker if enough deliveries were dead-lettered, and fewer than half of those that ended succeeded.
    pub(super) fn ended_counted(
        &mut self,
        now: Now,
        endpoint: EndpointId,
        succeeded: u64,
        failed: u64,
        commands: &mut Vec<Command>,
    ) {
        let Some(lane) = self.find(endpoint) else {
            return;
        };
        let entry = &mut self.lanes[lane];
        let Some(config) = &entry.config else {
            return;
        };
        let settings = config.settings.clone();
        let exhausted = entry.health.exhausted_within_window(now.wall);
        // The counts may not include the latest deliveries.
        let failed = failed.max(u64::from(exhausted));
        let is_enough = exhausted >= settings.breaker.exhausted_deliveries;
        if !is_enough || succeeded >= failed || entry.gate.status() != EndpointStatus::Enabled {
            return;
        }
        let reason = TripReason::ExhaustedDeliveries;
        let change = entry
            .gate
            .trip(now.tick, reason, &settings.breaker, &mut self.rng);
        if change.is_none() {
            return;
        }
        entry.backlog.drop_ready();
        let change = EndpointChange::BreakerTripped(reason);
        commands.push(Command::Notify(EndpointNotification { endpoint, change }));
        // No attempt carries the notification. The next one does: at the latest the probe.
        entry.unrecorded_changes.push(change);
        entry.health.is_trip_unannounced = true;
        entry.health.trip = stored_trip(now, entry.gate.breaker(), entry.health.trip);
        entry.health.revision += 1;
        if entry.requested_status.is_none() {
            commands.push(Command::PersistStatus {
                endpoint,
                status: entry.gate.status(),
                health: Some(entry.health.clone()),
            });
        } else {
            entry.unsaved = true;
        }
        self.update_lane(now, lane, commands);
    }
}
