//! The lanes: opening, looking after, and forgetting them.

use std::sync::Arc;

use super::command::{Command, Introduction};
use super::{Dispatcher, Phase};
use crate::delivery::DeadReason;
use crate::id::EndpointId;
use crate::lane::{
    Admission, Backlog, Breaker, Gate, Health, LaneSettings, RateLimit, Standing, StoredTrip,
};
use crate::time::{Now, Span, Tick, Timestamp};

/// A lane that must wait no longer than this has its deliveries fetched ahead.
const FETCH_AHEAD: Span = Span::from_secs(1);

/// One endpoint that has work, or had some a moment ago.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) endpoint: EndpointId,
    /// Nothing until the endpoint has been introduced.
    pub(super) known: Option<Known>,
    pub(super) gate: Gate,
    pub(super) health: Health,
    pub(super) backlog: Backlog,
    /// It stands in line for its turn.
    pub(super) queued: bool,
    pub(super) sweep: Sweep,
    /// What somebody wants its standing to be: as soon as it is introduced and swept.
    wanted_standing: Option<Standing>,
    armed_tick: Option<Tick>,
    armed_due: Option<Timestamp>,
}

/// How far a disabled or deleted endpoint is from having nothing left that waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sweep {
    /// Nothing is under way.
    Idle,
    /// It may begin once it is on disk that the endpoint is disabled.
    AwaitsRecord,
    /// What waits is being failed on disk. Nothing may go until that is done.
    UnderWay,
}

#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) tenant: usize,
    pub(super) settings: Arc<LaneSettings>,
}

impl Dispatcher {
    pub(super) fn find_or_open(
        &mut self,
        endpoint: EndpointId,
        commands: &mut Vec<Command>,
    ) -> usize {
        if let Some(lane) = self.find(endpoint) {
            return lane;
        }
        let lane = self.lanes.insert(Lane {
            endpoint,
            known: None,
            gate: Gate::new(Standing::Paused, 1, RateLimit::default()),
            health: Health::default(),
            backlog: Backlog::new(self.limits.ready_per_lane),
            queued: false,
            sweep: Sweep::Idle,
            wanted_standing: None,
            armed_tick: None,
            armed_due: None,
        });
        self.by_endpoint.insert(endpoint, lane);
        commands.push(Command::Introduce(endpoint));
        lane
    }

    pub(super) fn introduced(
        &mut self,
        now: Now,
        introduction: Introduction,
        commands: &mut Vec<Command>,
    ) {
        let Some(lane) = self.find(introduction.endpoint) else {
            return;
        };
        let settings = introduction.settings;
        let entry = &mut self.lanes[lane];
        entry.backlog.set_ordered(settings.ordered, now.wall);
        match &mut entry.known {
            Some(known) => {
                // News of a change. What we know of its health is fresher than what is stored, and
                // its standing changes by `Stand` alone.
                entry
                    .gate
                    .set_limits(settings.max_in_flight, settings.rate, now.tick);
                known.settings = settings;
            }
            None => {
                // What somebody said in the meantime is newer than the introduction, and what is
                // being swept stays shut.
                let mut health = introduction.health;
                let standing = if entry.sweep != Sweep::Idle {
                    entry.gate.standing()
                } else if let Some(wanted) = entry.wanted_standing.take() {
                    if wanted == Standing::Enabled {
                        health.note_recovered();
                    }
                    wanted
                } else {
                    introduction.standing
                };
                entry.gate = Gate::new(standing, settings.max_in_flight, settings.rate);
                if let Some(trip) = health.trip {
                    let breaker = restored(now, trip, settings.breaker.longest_wait);
                    entry.gate.restore_breaker(breaker);
                }
                if let Some(quiet_until) = health.quiet_until {
                    let asked = quiet_until.since(now.wall).min(settings.retry_after_cap);
                    entry.gate.keep_quiet(now.tick, asked);
                }
                entry.health = health;
                let tenant = self.turns.join(&introduction.tenant);
                entry.known = Some(Known { tenant, settings });
            }
        }
        self.attend(now, lane, commands);
    }

    pub(super) fn no_such_endpoint(
        &mut self,
        now: Now,
        endpoint: EndpointId,
        commands: &mut Vec<Command>,
    ) {
        let Some(lane) = self.find(endpoint) else {
            return;
        };
        let entry = &mut self.lanes[lane];
        if entry.known.is_none() {
            entry.gate.stand(Standing::Deleted, now.tick);
            self.attend(now, lane, commands);
        }
    }

    pub(super) fn stand(
        &mut self,
        now: Now,
        endpoint: EndpointId,
        standing: Standing,
        commands: &mut Vec<Command>,
    ) {
        let lane = self.find_or_open(endpoint, commands);
        let entry = &mut self.lanes[lane];
        entry.wanted_standing = Some(standing);
        match standing {
            // To shut is done at once, whatever else is under way.
            Standing::Paused | Standing::Disabled | Standing::Deleted => {
                let stays_shut = entry.sweep != Sweep::Idle && standing == Standing::Paused;
                if !stays_shut {
                    entry.gate.stand(standing, now.tick);
                }
                entry.backlog.spill();
            }
            Standing::Enabled => {}
        }
        self.attend(now, lane, commands);
    }

    pub(super) fn swept(&mut self, now: Now, endpoint: EndpointId, commands: &mut Vec<Command>) {
        if let Some(lane) = self.find(endpoint) {
            let entry = &mut self.lanes[lane];
            if entry.sweep == Sweep::UnderWay {
                entry.sweep = Sweep::Idle;
            }
            self.attend(now, lane, commands);
        }
    }

    /// Looks after a lane: fetches, puts it in line, sets its timers, or forgets it.
    pub(super) fn attend(&mut self, now: Now, lane: usize, commands: &mut Vec<Command>) {
        self.settle_standing(now, lane);
        let entry = &mut self.lanes[lane];
        match entry.gate.standing() {
            Standing::Disabled => {
                self.sweep_if_needed(lane, DeadReason::EndpointDisabled, commands);
            }
            Standing::Deleted => {
                self.sweep_if_needed(lane, DeadReason::EndpointDeleted, commands);
            }
            Standing::Enabled | Standing::Paused => {}
        }
        let entry = &mut self.lanes[lane];
        let Some(known) = entry.known.clone() else {
            self.look_again(now, lane, None, None);
            return;
        };
        let outlook = entry.gate.outlook(now.tick);
        let (soon, again_at) = match outlook {
            Admission::Admit { .. } | Admission::Full => (true, None),
            Admission::Wait(until) => (until.since(now.tick) <= FETCH_AHEAD, Some(until)),
            Admission::Shut => (false, None),
        };
        if soon && self.phase == Phase::Running && entry.backlog.wants_fetch(now.wall) {
            let ticket = self.next_fetch;
            self.next_fetch += 1;
            commands.push(Command::Fetch {
                ticket,
                endpoint: entry.endpoint,
                due_by: now.wall,
                limit: entry.backlog.begin_fetch(ticket),
                ordered: known.settings.ordered,
            });
        }
        let ready = entry.backlog.has_ready();
        if ready && matches!(outlook, Admission::Admit { .. }) && !entry.queued {
            entry.queued = true;
            self.turns.enqueue(known.tenant, lane);
        }
        let due = entry.backlog.stored_due();
        let has_due_work = ready || due.is_some_and(|due| due <= now.wall);
        let again_at = again_at.filter(|_| has_due_work);
        let later = due.filter(|due| *due > now.wall);
        self.look_again(now, lane, again_at, later);
    }

    /// Sets a lane's timers. One that has nothing to do is forgotten in time.
    fn look_again(&mut self, now: Now, lane: usize, tick: Option<Tick>, due: Option<Timestamp>) {
        let entry = &mut self.lanes[lane];
        let rests_at = if entry.is_idle() {
            entry.gate.rests_at()
        } else {
            None
        };
        self.dues.arm(lane, &mut entry.armed_due, due);
        self.ticks
            .arm(lane, &mut entry.armed_tick, tick.or(rests_at));
        if rests_at.is_some_and(|rests_at| rests_at <= now.tick) {
            self.forget(lane);
        }
    }

    /// Applies the standing that somebody asked for, once nothing stands in its way.
    fn settle_standing(&mut self, now: Now, lane: usize) {
        let entry = &mut self.lanes[lane];
        if entry.known.is_none() || entry.sweep != Sweep::Idle {
            return;
        }
        let Some(wanted) = entry.wanted_standing.take() else {
            return;
        };
        let was = entry.gate.standing();
        let returns = wanted == Standing::Enabled || wanted == Standing::Paused;
        if returns && (was == Standing::Disabled || was == Standing::Deleted) {
            // A fresh start: the old failures must not disable it again at the first new one.
            entry.health.start_afresh();
            entry.backlog.note_stored(now.wall);
        }
        if wanted == Standing::Enabled {
            entry.health.note_recovered();
        }
        entry.gate.stand(wanted, now.tick);
    }

    /// Fails what waits for a lane that is disabled or deleted, if anything does.
    fn sweep_if_needed(&mut self, lane: usize, reason: DeadReason, commands: &mut Vec<Command>) {
        let entry = &self.lanes[lane];
        let waits = entry.backlog.stored_due().is_some() || entry.backlog.ready_len() > 0;
        if entry.sweep == Sweep::Idle && waits {
            self.sweep(lane, reason, commands);
        }
    }

    /// Fails what waits for a lane on disk.
    pub(super) fn sweep(&mut self, lane: usize, reason: DeadReason, commands: &mut Vec<Command>) {
        let entry = &mut self.lanes[lane];
        entry.sweep = Sweep::UnderWay;
        entry.backlog.clear_stored();
        commands.push(Command::Sweep {
            endpoint: entry.endpoint,
            reason,
            except: entry.backlog.taken(),
        });
    }

    fn forget(&mut self, lane: usize) {
        let entry = &mut self.lanes[lane];
        self.ticks.arm(lane, &mut entry.armed_tick, None);
        self.dues.arm(lane, &mut entry.armed_due, None);
        let entry = self.lanes.remove(lane);
        self.by_endpoint.remove(&entry.endpoint);
        if let Some(known) = entry.known {
            self.turns.part(known.tenant);
        }
    }
}

impl Lane {
    /// True when it has nothing to do and waits for no answer.
    fn is_idle(&self) -> bool {
        let introduced = self.known.is_some() || self.gate.standing() == Standing::Deleted;
        introduced
            && self.backlog.is_idle()
            && !self.queued
            && self.sweep == Sweep::Idle
            && self.wanted_standing.is_none()
    }
}

/// A breaker that had tripped before the process began. The wall clock may have been moved since, so
/// it never waits longer than it could have been told to.
fn restored(now: Now, trip: StoredTrip, longest_wait: Span) -> Breaker {
    let until = now.tick_at(trip.until).min(now.tick.after(longest_wait));
    Breaker::tripped(until, trip.reason, trip.failed_probes)
}
