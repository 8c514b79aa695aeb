//! Attempts: starting them, evaluating their results and recording them.
//!
//! `start_attempts` serves the lanes in turn while there are free slots. `finished` applies the result of an
//! attempt to its delivery and to its endpoint (gate, breaker, health) and issues the record. `recorded` frees the
//! slot.
//!
//! A delivery whose turn comes after its deadline is not sent if its policy drops late deliveries: it is recorded as
//! expired instead.
//!
//! A slot is occupied until the result is recorded. `unwritten` repeats records that failed; while they do, only single
//! attempts start. An internal fault takes the attempt back: it is not recorded and not counted.

use std::sync::Arc;

use super::command::{
    Attempt, AttemptEnd, AttemptRecord, Command, EndpointChange, EndpointNotification,
    InternalFaultScope, Record, Ticket,
};
use super::in_flight::{InFlight, Stage};
use super::lanes::Sweep;
use super::unwritten::RecordFailures;
use super::{Dispatcher, MAX_SINGLE_ATTEMPT_DELAY, Phase, STORE_PAUSE};
use crate::classify::{Classification, FailureScope, Outcome};
use crate::delivery::{Delivery, OneOffRequest, RetrySettings, SettledAttempt};
use crate::lane::{
    Admission, AttemptFeedback, Breaker, BreakerChange, BreakerState, DisableCause, EndpointStatus,
    HealthVerdict, LaneSettings, Signal, StoredTrip,
};
use crate::time::{Now, Tick, Timestamp};

/// The start of an attempt that is being made.
#[derive(Clone, Copy)]
struct AttemptOrigin {
    /// True if it is the probe of a tripped breaker.
    probe: bool,
    started_at: Tick,
}

impl Dispatcher {
    /// Returns the request of the one-off delivery that an attempt in flight is for; `None` for other deliveries.
    pub fn one_off_request(&self, ticket: Ticket) -> Option<Arc<OneOffRequest>> {
        match &self.in_flight.get(ticket)?.stage {
            Stage::Sending { delivery, .. } => delivery.facts().request.clone(),
            Stage::Recording(_) => None,
        }
    }

    /// Starts attempts while there are free slots and a lane is waiting for its turn.
    pub(super) fn start_attempts(&mut self, now: Now, commands: &mut Vec<Command>) {
        while self.phase == Phase::Running && !self.suspended && self.in_flight.free() > 0 {
            if self
                .single_attempt
                .is_some_and(|single_attempt| single_attempt.at > now.tick)
            {
                break;
            }
            let Some(lane) = self.turns.next(self.in_flight.spare()) else {
                break;
            };
            self.lanes[lane].queued = false;
            let sent = self.send_one(now, lane, commands);
            self.update_lane(now, lane, commands);
            if sent && let Some(single_attempt) = &mut self.single_attempt {
                single_attempt.pause = single_attempt.pause.times(2).min(MAX_SINGLE_ATTEMPT_DELAY);
                single_attempt.at = now.tick.after(single_attempt.pause);
            }
        }
    }

    /// Starts the next attempt of a lane if its gate admits one, or drops the delivery if it is late. Returns true if
    /// a slot was taken.
    fn send_one(&mut self, now: Now, lane: usize, commands: &mut Vec<Command>) -> bool {
        let entry = &mut self.lanes[lane];
        let Some(config) = &entry.config else {
            return false;
        };
        // The lane may have changed while it waited for its turn.
        if !entry.backlog.has_ready() || !entry.may_start() {
            return false;
        }
        match entry.gate.check(now.tick) {
            Admission::Admit { .. } => {}
            Admission::Wait(_) | Admission::Full | Admission::Shut => return false,
        }
        let mut delivery = entry
            .backlog
            .take()
            .expect("the backlog has a ready delivery");
        let policy = delivery.policy(&config.settings.policy);
        if delivery.is_dropped_at(now.wall, &policy) {
            let tenant = config.tenant;
            self.drop_late(now, lane, tenant, delivery, commands);
            return true;
        }
        let Admission::Admit { probe } = entry.gate.admit(now.tick) else {
            unreachable!("the gate was open when it was checked");
        };
        let trigger = delivery
            .begin(now.wall, probe)
            .expect("a ready delivery is waiting");
        self.turns.attempt_started(config.tenant);
        let (endpoint, id, event, number) = (
            entry.endpoint,
            delivery.id(),
            delivery.facts().event,
            delivery.attempt_number(),
        );
        let ticket = self.in_flight.begin(InFlight {
            lane,
            stage: Stage::Sending {
                delivery,
                probe,
                started_at: now.tick,
            },
            failures: RecordFailures::default(),
            attempted: None,
        });
        commands.push(Command::Send(Attempt {
            ticket,
            endpoint,
            delivery: id,
            event,
            number,
            trigger,
        }));
        true
    }

    /// Ends a delivery whose turn came after its deadline. It spends nothing of the endpoint's limits, but a slot and
    /// one of the tenant's attempts in flight until it is recorded, so that a tenant with many of them delays no other.
    fn drop_late(
        &mut self,
        now: Now,
        lane: usize,
        tenant: usize,
        mut delivery: Delivery,
        commands: &mut Vec<Command>,
    ) {
        delivery
            .expire(now.wall)
            .expect("a late delivery can expire");
        self.turns.attempt_started(tenant);
        self.lanes[lane].drops += 1;
        let record = Record::Expire(Box::new(delivery));
        let ticket = self.in_flight.begin(InFlight {
            lane,
            stage: Stage::Recording(record.clone()),
            failures: RecordFailures::default(),
            attempted: None,
        });
        commands.push(Command::Record { ticket, record });
    }

    pub(super) fn finished(
        &mut self,
        now: Now,
        ticket: Ticket,
        finish: AttemptEnd,
        commands: &mut Vec<Command>,
    ) {
        let Some(flight) = self.in_flight.get_mut(ticket) else {
            return;
        };
        let lane = flight.lane;
        let (delivery, origin) = match &mut flight.stage {
            Stage::Sending {
                delivery,
                probe,
                started_at,
            } => {
                let (probe, started_at) = (*probe, *started_at);
                (delivery, AttemptOrigin { probe, started_at })
            }
            // The result is already known; this is a repetition.
            Stage::Recording(_) => return,
        };
        match finish {
            AttemptEnd::InternalFault(scope) => {
                let mut delivery = delivery.clone();
                delivery.abandon().expect("the delivery is in progress");
                self.in_flight.end(ticket);
                self.undo_attempt(now, lane, origin);
                let is_held = match scope {
                    InternalFaultScope::Delivery => {
                        self.quarantine_after_fault(now, lane, &delivery)
                    }
                    InternalFaultScope::Content => self.quarantine_unreadable(lane, &delivery),
                    InternalFaultScope::Shared => false,
                };
                if !is_held {
                    let entry = &mut self.lanes[lane];
                    let until = entry.faults.add(now.tick);
                    entry.waiting_after_fault.push_back((until, delivery));
                }
            }
            AttemptEnd::Completed(outcome) => {
                let mut delivery = delivery.clone();
                self.lanes[lane].reset_faults(now.tick);
                self.note_normal_end(lane, delivery.id());
                let record = self.settle(now, lane, &mut delivery, outcome, origin, commands);
                let record = Record::Attempt(Box::new(record));
                let flight = self
                    .in_flight
                    .get_mut(ticket)
                    .expect("the flight was found by the same ticket above");
                let sent = std::mem::replace(&mut flight.stage, Stage::Recording(record.clone()));
                flight.attempted = match sent {
                    Stage::Sending { delivery, .. } => Some(delivery),
                    Stage::Recording(_) => None,
                };
                commands.push(Command::Record { ticket, record });
            }
        }
        self.update_lane(now, lane, commands);
    }

    /// Takes back an attempt that an internal fault ended.
    fn undo_attempt(&mut self, now: Now, lane: usize, origin: AttemptOrigin) {
        let entry = &mut self.lanes[lane];
        let config = entry
            .config
            .as_ref()
            .expect("attempts are made only to loaded endpoints");
        let back = AttemptFeedback {
            signal: Signal::NoEvidence,
            probe: origin.probe,
            started_at: origin.started_at,
            failures_in_a_row: entry.health.consecutive_failures,
            refusals_in_a_row: entry.health.refusals,
            overloaded: false,
        };
        entry
            .gate
            .leave(now.tick, back, &config.settings.breaker, &mut self.rng);
        let tenant = config.tenant;
        self.turns.attempt_ended(tenant, self.in_flight.spare());
    }

    /// Applies the result of an attempt to its delivery and to its endpoint.
    fn settle(
        &mut self,
        now: Now,
        lane: usize,
        delivery: &mut Delivery,
        outcome: Outcome,
        origin: AttemptOrigin,
        commands: &mut Vec<Command>,
    ) -> AttemptRecord {
        let entry = &mut self.lanes[lane];
        let config = entry
            .config
            .as_ref()
            .expect("attempts are made only to loaded endpoints");
        let settings = config.settings.clone();
        let policy = delivery.policy(&settings.policy);
        let terms = RetrySettings {
            policy: &policy,
            retry_after_cap: settings.retry_after_cap,
        };
        let mut settlement = delivery
            .settle(now.wall, outcome, terms, &mut self.rng)
            .expect("the delivery is in progress");
        let health_before = entry.health.clone();
        let commands_before = commands.len();
        let disable = self.update_endpoint(now, lane, &settlement, &settings, origin, commands);
        self.end_if_endpoint_ended(now, lane, delivery, &mut settlement);
        if signal(settlement.meaning) == Signal::Down {
            // A refused payload is no evidence about the destination, even after many attempts.
            self.note_if_exhausted(now, lane, delivery, &settings, commands);
        }
        let entry = &mut self.lanes[lane];
        entry.health.trip = stored_trip(now, entry.gate.breaker(), entry.health.trip);
        let quiet_until = entry.gate.quiet_until();
        let quiet_until = (quiet_until > now.tick).then(|| now.wall_at(quiet_until));
        entry.health.quiet_until = match (entry.health.quiet_until, quiet_until) {
            (Some(stored), Some(now)) if is_about(stored, now) => Some(stored),
            (_, quiet_until) => quiet_until,
        };
        let mut endpoint_changes = std::mem::take(&mut entry.unrecorded_changes);
        entry.health.is_trip_unannounced = false;
        endpoint_changes.extend(commands[commands_before..].iter().filter_map(change_of));
        let unsaved = std::mem::take(&mut entry.unsaved);
        let changed = unsaved || entry.health != health_before;
        let health = changed.then(|| {
            entry.health.revision += 1;
            entry.health.clone()
        });
        AttemptRecord {
            delivery: delivery.clone(),
            settlement,
            health,
            disable,
            endpoint_changes,
        }
    }

    /// Updates the endpoint's gate and health with the result of an attempt. Returns the cause if the endpoint is
    /// now disabled.
    fn update_endpoint(
        &mut self,
        now: Now,
        lane: usize,
        settlement: &SettledAttempt,
        settings: &LaneSettings,
        origin: AttemptOrigin,
        commands: &mut Vec<Command>,
    ) -> Option<DisableCause> {
        let entry = &mut self.lanes[lane];
        let endpoint = entry.endpoint;
        let mut notify =
            |change| commands.push(Command::Notify(EndpointNotification { endpoint, change }));
        let overloaded = match settlement.meaning {
            Classification::Success => false,
            Classification::Failure(failure) => failure.overloaded,
        };
        let is_overload_only = entry
            .gate
            .is_overload_only(now.tick, overloaded, origin.probe);
        let health_verdict = entry.health.note(
            now.wall,
            settlement.meaning,
            is_overload_only,
            &settings.disable,
        );
        let back = AttemptFeedback {
            signal: signal(settlement.meaning),
            probe: origin.probe,
            started_at: origin.started_at,
            failures_in_a_row: entry.health.consecutive_failures,
            refusals_in_a_row: entry.health.refusals,
            overloaded,
        };
        let breaker_change = entry
            .gate
            .leave(now.tick, back, &settings.breaker, &mut self.rng);
        match breaker_change {
            Some(BreakerChange::Tripped(reason)) => {
                entry.backlog.drop_ready();
                notify(EndpointChange::BreakerTripped(reason));
            }
            Some(BreakerChange::Recovered) => {
                entry.health.note_recovered();
                notify(EndpointChange::Recovered);
            }
            None => {}
        }
        if let Some(asked) = settlement.retry_after {
            entry.gate.pause_for(now.tick, asked);
        }
        if entry.gate.status() == EndpointStatus::Disabled
            || entry.gate.status() == EndpointStatus::Deleted
        {
            return None;
        }
        let cause = match health_verdict {
            HealthVerdict::Healthy => return None,
            HealthVerdict::Warn(cause) => {
                notify(EndpointChange::DisableWarning(cause));
                return None;
            }
            HealthVerdict::Disable(cause) => cause,
        };
        notify(EndpointChange::Disabled(cause));
        entry.gate.set_status(EndpointStatus::Disabled, now.tick);
        entry.sweep = Sweep::AwaitsRecord;
        Some(cause)
    }

    /// Ends a delivery that would be retried although its endpoint was disabled or deleted while the attempt was in
    /// flight. The attempt itself counts.
    fn end_if_endpoint_ended(
        &self,
        now: Now,
        lane: usize,
        delivery: &mut Delivery,
        settlement: &mut SettledAttempt,
    ) {
        if delivery.next_attempt_at().is_none() {
            return;
        }
        let ended = match self.lanes[lane].gate.status() {
            EndpointStatus::Enabled | EndpointStatus::Paused => return,
            EndpointStatus::Disabled => delivery.disable(now.wall),
            EndpointStatus::Deleted => delivery.delete(now.wall),
        };
        ended.expect("the delivery is waiting");
        settlement.next_attempt_at = None;
    }

    pub(super) fn recorded(&mut self, now: Now, ticket: Ticket, commands: &mut Vec<Command>) {
        let recording = self
            .in_flight
            .get_mut(ticket)
            .is_some_and(|flight| matches!(flight.stage, Stage::Recording(_)));
        if !recording {
            return;
        }
        let Some(InFlight {
            lane,
            stage: Stage::Recording(record),
            ..
        }) = self.in_flight.end(ticket)
        else {
            return;
        };
        self.note_written();
        let entry = &mut self.lanes[lane];
        match record {
            Record::Attempt(record) => {
                if entry.backlog.settled(&record.delivery, now.wall) {
                    self.recent.remember(record.delivery.id());
                }
                let config = entry
                    .config
                    .as_ref()
                    .expect("attempts are made only to loaded endpoints");
                let tenant = config.tenant;
                let awaited = record.disable.is_some() && entry.sweep == Sweep::AwaitsRecord;
                self.turns.attempt_ended(tenant, self.in_flight.spare());
                if awaited {
                    self.sweep(now, lane, commands);
                }
            }
            Record::Expire(delivery) => {
                entry.drops -= 1;
                if entry.backlog.settled(&delivery, now.wall) {
                    self.recent.remember(delivery.id());
                }
                // The delivery may have been replayed or retried by hand since.
                entry.backlog.note_stored(now.wall);
                let config = entry
                    .config
                    .as_ref()
                    .expect("deliveries are dropped only on loaded endpoints");
                let tenant = config.tenant;
                self.turns.attempt_ended(tenant, self.in_flight.spare());
            }
            Record::Cancel { delivery, .. } => {
                entry.backlog.release_claim(delivery, now.wall);
                self.recent.remember(delivery);
                self.turns.slot_freed(self.in_flight.spare());
            }
        }
        self.update_lane(now, lane, commands);
    }
}

fn change_of(command: &Command) -> Option<EndpointChange> {
    match command {
        Command::Notify(notification) => Some(notification.change),
        Command::LoadEndpoint(_)
        | Command::Fetch { .. }
        | Command::Send(_)
        | Command::Record { .. }
        | Command::PersistStatus { .. }
        | Command::CountEnded(_)
        | Command::TooLateToCancel(_)
        | Command::Sweep { .. }
        | Command::ReadyToRelease(_)
        | Command::Drained => None,
    }
}

/// Returns the signal about the destination that follows from the meaning of an attempt.
fn signal(meaning: Classification) -> Signal {
    match meaning {
        Classification::Success => Signal::Up,
        Classification::Failure(failure) => match failure.scope {
            FailureScope::Destination => Signal::Down,
            FailureScope::Delivery => Signal::Refused,
        },
    }
}

/// Returns a tripped breaker as it is stored. The stored value stays unchanged if the times differ by less than
/// [`STORE_PAUSE`], so that a small difference between the two clocks causes no write.
pub(super) fn stored_trip(
    now: Now,
    breaker: &Breaker,
    stored: Option<StoredTrip>,
) -> Option<StoredTrip> {
    let (until, reason) = match breaker.state() {
        BreakerState::Passing => return None,
        BreakerState::Tripped { until, reason } => (now.wall_at(until), reason),
        BreakerState::Probing { reason } => (now.wall, reason),
    };
    let failed_probes = breaker.failed_probes();
    let until = match stored {
        Some(trip) if is_about(trip.until, until) => trip.until,
        Some(_) | None => until,
    };
    Some(StoredTrip {
        until,
        reason,
        failed_probes,
    })
}

/// Returns true if the two points in time differ only because two clocks were read.
fn is_about(a: Timestamp, b: Timestamp) -> bool {
    a.0.abs_diff(b.0) < STORE_PAUSE.as_millis()
}
