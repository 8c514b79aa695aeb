//! Lanes: opening, maintaining and forgetting them.
//!
//! [`Lane`] is the dispatcher's state of one endpoint. [`Dispatcher::update_lane`] is called after every change of a
//! lane. It applies a requested status, sweeps, fetches, queues the lane for its turn, sets its timers, and forgets
//! it when idle.

use std::collections::VecDeque;
use std::sync::Arc;

use super::command::{Command, EndpointChange, EndpointSnapshot};
use super::quarantine::Quarantine;
use super::{Dispatcher, MAX_FETCHES, Phase};
use crate::delivery::{DeadReason, Delivery};
use crate::id::{DeliveryId, EndpointId};
use crate::lane::{
    Admission, Backlog, Breaker, EndpointStatus, Gate, Health, LaneSettings, LimitedSince,
    RateLimit, StoredTrip,
};
use crate::time::{Now, Span, Tick, Timestamp};

/// Time before the gate opens from which the lane's deliveries are fetched ahead.
const FETCH_AHEAD: Span = Span::from_secs(1);

/// Maximum number of deliveries of one lane that may wait after internal faults. At this number the lane starts no
/// more attempts. Each further waiting period without a success halves the limit.
pub(super) const MAX_WAITING_AFTER_FAULT: usize = 64;
/// Lower bound of that limit, so that one delivery which always causes a fault does not block the others.
pub(super) const MIN_WAITING_AFTER_FAULT: usize = 4;
/// Waiting time of a delivery after an internal fault.
const FAULT_PAUSE: Span = Span::from_secs(1);
/// Maximum waiting time after repeated internal faults.
pub(super) const MAX_FAULT_DELAY: Span = Span::from_secs(30);

/// Maximum number of late deliveries of one lane whose end is being recorded. Each is a transaction of its own on
/// PostgreSQL, in the queue that all tenants share.
const MAX_DROPS: usize = 16;

/// The state of one endpoint that has work, or had work a moment ago.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) endpoint: EndpointId,
    /// `None` until the endpoint's configuration has been loaded.
    pub(super) config: Option<LaneConfig>,
    pub(super) gate: Gate,
    pub(super) health: Health,
    pub(super) backlog: Backlog,
    /// True while the lane is queued for its turn.
    pub(super) queued: bool,
    pub(super) sweep: Sweep,
    /// The requested endpoint status, which takes effect when the configuration is loaded and no sweep is in
    /// progress.
    pub(super) requested_status: Option<EndpointStatus>,
    /// True if the health in memory has not been written to the store.
    pub(super) unsaved: bool,
    /// Number of late deliveries whose end is being recorded.
    pub(super) drops: usize,
    /// Changes that happened without an attempt. The next record carries them.
    pub(super) unrecorded_changes: Vec<EndpointChange>,
    /// Time at which the deliveries that ended were last asked for.
    pub(super) counted_at: Option<Tick>,
    /// After a failed fetch: no fetch before this time.
    pub(super) no_fetch_before: Tick,
    /// True while the lane is queued for a fetch.
    pub(super) in_fetch_queue: bool,
    /// Deliveries taken back after internal faults, with the end of their waiting time.
    pub(super) waiting_after_fault: VecDeque<(Tick, Delivery)>,
    pub(super) faults: FaultBackoff,
    /// Deliveries that are quarantined after repeated internal faults, and the faults that may lead to that.
    pub(super) quarantine: Quarantine,
    /// True while the lane is being released to another node.
    pub(super) is_revoked: bool,
    /// The time since which limits have held deliveries back.
    pub(super) limited_since: LimitedSince,
    armed_tick: Option<Tick>,
    armed_due: Option<Timestamp>,
}

/// Counts internal faults since the last attempt that ended normally. The cause of a fault (an unreachable proxy, a
/// missing key) often persists, so the waiting time grows. Otherwise all waiting deliveries would retry in a tight
/// loop.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FaultBackoff {
    /// Number of waiting periods since the last attempt that ended normally, including the current one.
    rests: u32,
    /// End of the current waiting period.
    until: Tick,
}

impl FaultBackoff {
    /// Counts a fault and returns the end of the waiting time. Attempts that were in flight at the same time wait
    /// equally long.
    pub(super) fn add(&mut self, now: Tick) -> Tick {
        if self.rests == 0 || now >= self.until {
            let doublings = self.rests.min(8);
            let pause = FAULT_PAUSE.times(1 << doublings).min(MAX_FAULT_DELAY);
            self.rests = self.rests.saturating_add(1);
            self.until = now.after(pause);
        }
        self.until
    }

    fn max_waiting(&self) -> usize {
        let halvings = self.rests.saturating_sub(1).min(8);
        (MAX_WAITING_AFTER_FAULT >> halvings).max(MIN_WAITING_AFTER_FAULT)
    }
}

/// Progress of the sweep of a disabled or deleted endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sweep {
    /// No sweep is in progress.
    Idle,
    /// The sweep starts when the record that disables the endpoint is persisted.
    AwaitsRecord,
    /// The store is failing the waiting deliveries, under this ticket. No attempt may start until it is done.
    UnderWay(u64),
}

#[derive(Clone, Debug)]
pub(super) struct LaneConfig {
    pub(super) tenant: usize,
    pub(super) settings: Arc<LaneSettings>,
}

/// Returns the tenant's in-flight limit.
fn most_of(settings: &LaneSettings) -> Option<usize> {
    settings.tenant_in_flight.map(|most| most as usize)
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
            config: None,
            gate: Gate::new(EndpointStatus::Paused, 1, RateLimit::default()),
            health: Health::default(),
            backlog: Backlog::new(self.limits.ready_per_lane),
            queued: false,
            sweep: Sweep::Idle,
            requested_status: None,
            unsaved: false,
            drops: 0,
            unrecorded_changes: Vec::new(),
            counted_at: None,
            no_fetch_before: Tick::START,
            in_fetch_queue: false,
            waiting_after_fault: VecDeque::new(),
            faults: FaultBackoff::default(),
            quarantine: Quarantine::default(),
            is_revoked: false,
            limited_since: LimitedSince::default(),
            armed_tick: None,
            armed_due: None,
        });
        self.by_endpoint.insert(endpoint, lane);
        commands.push(Command::LoadEndpoint(endpoint));
        lane
    }

    pub(super) fn endpoint_loaded(
        &mut self,
        now: Now,
        snapshot: EndpointSnapshot,
        commands: &mut Vec<Command>,
    ) {
        let Some(lane) = self.find(snapshot.endpoint) else {
            return;
        };
        let settings = snapshot.settings;
        let entry = &mut self.lanes[lane];
        entry.backlog.set_ordered(settings.ordered, now.wall);
        match &mut entry.config {
            Some(config) => {
                // An update after a change. The health in memory is newer than the stored one, and the status
                // changes only through `SetStatus`.
                entry
                    .gate
                    .set_limits(settings.max_in_flight, settings.rate, now.tick);
                self.turns.allow(config.tenant, most_of(&settings));
                config.settings = settings;
                // The change may have removed the cause of their faults.
                self.release_all_quarantined(now, lane);
            }
            None => {
                // A status that was requested in the meantime is newer than the loaded one, and an endpoint that is
                // being swept stays closed.
                let health = snapshot.health;
                let status = match entry.sweep {
                    Sweep::Idle => snapshot.status,
                    Sweep::AwaitsRecord | Sweep::UnderWay(_) => entry.gate.status(),
                };
                entry.gate = Gate::new(status, settings.max_in_flight, settings.rate);
                entry.gate.exhaust_rate(snapshot.owned_since);
                if let Some(trip) = health.trip {
                    let breaker = restored(now, trip, settings.breaker.longest_wait);
                    entry.gate.restore_breaker(breaker);
                    if health.is_trip_unannounced {
                        let change = EndpointChange::BreakerTripped(trip.reason);
                        entry.unrecorded_changes.push(change);
                    }
                }
                if let Some(quiet_until) = health.quiet_until {
                    let asked = quiet_until.since(now.wall).min(settings.retry_after_cap);
                    entry.gate.pause_for(now.tick, asked);
                }
                entry.health = health;
                let tenant = self.turns.add_lane(&snapshot.tenant);
                self.turns.allow(tenant, most_of(&settings));
                entry.config = Some(LaneConfig { tenant, settings });
            }
        }
        self.update_lane(now, lane, commands);
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
        if entry.config.is_none() {
            entry.gate.set_status(EndpointStatus::Deleted, now.tick);
            entry.requested_status = None;
            self.update_lane(now, lane, commands);
        }
    }

    pub(super) fn set_status(
        &mut self,
        now: Now,
        endpoint: EndpointId,
        status: EndpointStatus,
        commands: &mut Vec<Command>,
    ) {
        let lane = self.find_or_open(endpoint, commands);
        let entry = &mut self.lanes[lane];
        let shuts = match status {
            EndpointStatus::Disabled | EndpointStatus::Deleted => true,
            EndpointStatus::Paused => entry.gate.status() == EndpointStatus::Enabled,
            EndpointStatus::Enabled => false,
        };
        // Closing takes effect at once, in any state of the lane. Opening waits until it is possible.
        if shuts {
            entry.gate.set_status(status, now.tick);
            entry.backlog.drop_ready();
        }
        if shuts && entry.config.is_some() {
            entry.requested_status = None;
            commands.push(Command::PersistStatus {
                endpoint,
                status,
                health: None,
            });
        } else {
            entry.requested_status = Some(status);
        }
        self.update_lane(now, lane, commands);
    }

    pub(super) fn swept(
        &mut self,
        now: Now,
        ticket: u64,
        endpoint: EndpointId,
        commands: &mut Vec<Command>,
    ) {
        let Some(lane) = self.find(endpoint) else {
            return;
        };
        let entry = &mut self.lanes[lane];
        if entry.sweep == Sweep::UnderWay(ticket) {
            entry.sweep = Sweep::Idle;
            // Deliveries that arrived in the meantime may have been swept with the others.
            entry.backlog.drop_ready();
            self.update_lane(now, lane, commands);
        }
    }

    /// Brings a lane up to date: fetches, queues it for its turn, sets its timers, or forgets it.
    pub(super) fn update_lane(&mut self, now: Now, lane: usize, commands: &mut Vec<Command>) {
        self.apply_requested_status(now, lane, commands);
        if self.lanes[lane].is_revoked {
            self.release_lane(now, lane, commands);
            return;
        }
        self.release_waiting(now, lane);
        self.sweep_if_needed(now, lane, commands);
        let entry = &mut self.lanes[lane];
        let Some(config) = entry.config.clone() else {
            self.set_timers(now, lane, None, None);
            return;
        };
        let admission = entry.gate.check(now.tick);
        let (soon, again_at) = match admission {
            Admission::Admit { .. } | Admission::Full => (true, None),
            Admission::Wait(until) => (until.since(now.tick) <= FETCH_AHEAD, Some(until)),
            Admission::Shut => (false, None),
        };
        let allowed = self.phase == Phase::Running && entry.no_fetch_before <= now.tick;
        if soon && allowed && entry.backlog.wants_fetch(now.wall) {
            self.fetch(now, lane, config.settings.ordered, commands);
        }
        let entry = &mut self.lanes[lane];
        let ready = entry.backlog.has_ready();
        let may_go = matches!(admission, Admission::Admit { .. }) && entry.may_start();
        if ready && may_go && !entry.queued {
            entry.queued = true;
            self.turns.enqueue(config.tenant, lane);
        }
        let due = entry.backlog.stored_due();
        let has_due_work = ready || due.is_some_and(|due| due <= now.wall);
        entry.note_held_back(now);
        let gate_opens = again_at.filter(|_| has_due_work);
        let disk_opens = Some(entry.no_fetch_before).filter(|at| has_due_work && *at > now.tick);
        let rested = entry.waiting_after_fault.front().map(|(at, _)| *at);
        let again_at = [gate_opens, disk_opens, rested].into_iter().flatten().min();
        let later = due.filter(|due| *due > now.wall);
        self.set_timers(now, lane, again_at, later);
    }

    /// Issues a fetch for a lane, or queues the lane if [`MAX_FETCHES`] fetches are in progress.
    fn fetch(&mut self, now: Now, lane: usize, ordered: bool, commands: &mut Vec<Command>) {
        if self.fetches.len() >= MAX_FETCHES {
            if !std::mem::replace(&mut self.lanes[lane].in_fetch_queue, true) {
                self.fetch_queue.push_back(lane);
            }
            return;
        }
        let ticket = self.next_ticket();
        self.fetches.insert(ticket);
        let entry = &mut self.lanes[lane];
        commands.push(Command::Fetch {
            ticket,
            endpoint: entry.endpoint,
            due_by: now.wall,
            limit: entry.backlog.begin_fetch(ticket),
            ordered,
        });
    }

    /// Sets a lane's timers. An idle lane is forgotten when its gate no longer needs to be remembered.
    fn set_timers(&mut self, now: Now, lane: usize, tick: Option<Tick>, due: Option<Timestamp>) {
        let entry = &mut self.lanes[lane];
        let rests_at = if entry.is_idle() {
            entry.gate.idle_at()
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

    /// Applies the requested endpoint status, if the configuration is loaded and no sweep is in progress.
    fn apply_requested_status(&mut self, now: Now, lane: usize, commands: &mut Vec<Command>) {
        let entry = &mut self.lanes[lane];
        if entry.config.is_none() || entry.sweep != Sweep::Idle {
            return;
        }
        let Some(status) = entry.requested_status.take() else {
            return;
        };
        if status == EndpointStatus::Enabled {
            self.release_all_quarantined(now, lane);
        }
        let entry = &mut self.lanes[lane];
        let health = (status == EndpointStatus::Enabled).then(|| {
            // The failure history is cleared, so that old failures do not disable the endpoint again at the next
            // failure.
            entry.health.start_afresh();
            entry.unsaved = true;
            entry.backlog.note_stored(now.wall);
            entry.health.clone()
        });
        entry.gate.set_status(status, now.tick);
        commands.push(Command::PersistStatus {
            endpoint: entry.endpoint,
            status,
            health,
        });
    }

    /// Returns deliveries to the backlog whose waiting time after an internal fault is over.
    fn release_waiting(&mut self, now: Now, lane: usize) {
        let entry = &mut self.lanes[lane];
        while let Some((_, delivery)) = entry
            .waiting_after_fault
            .pop_front_if(|(at, _)| *at <= now.tick)
        {
            entry.backlog.return_unsent(&delivery, now.wall);
        }
    }

    /// Ends the waiting time of one delivery early, because it is to be cancelled.
    pub(super) fn end_wait(&mut self, now: Now, lane: usize, id: DeliveryId) {
        let entry = &mut self.lanes[lane];
        let index = entry
            .waiting_after_fault
            .iter()
            .position(|(_, waiting_after_fault)| waiting_after_fault.id() == id);
        if let Some((_, delivery)) = index.and_then(|index| entry.waiting_after_fault.remove(index))
        {
            entry.backlog.return_unsent(&delivery, now.wall);
        }
    }

    /// Starts a sweep if the endpoint is disabled or deleted and deliveries wait for it.
    fn sweep_if_needed(&mut self, now: Now, lane: usize, commands: &mut Vec<Command>) {
        let entry = &self.lanes[lane];
        let waits = entry.backlog.stored_due().is_some()
            || entry.backlog.ready_len() > 0
            || !entry.waiting_after_fault.is_empty()
            || entry.quarantine.has_deliveries();
        if !is_open(entry.gate.status()) && entry.sweep == Sweep::Idle && waits {
            self.sweep(now, lane, commands);
        }
    }

    /// Starts a sweep: the store fails all waiting deliveries of the lane.
    pub(super) fn sweep(&mut self, now: Now, lane: usize, commands: &mut Vec<Command>) {
        if self.lanes[lane].is_revoked {
            // The next owner finds the waiting deliveries and the status, and sweeps.
            self.lanes[lane].sweep = Sweep::Idle;
            return;
        }
        let ticket = self.next_ticket();
        self.release_all_quarantined(now, lane);
        let entry = &mut self.lanes[lane];
        entry.sweep = Sweep::UnderWay(ticket);
        while let Some((_, delivery)) = entry.waiting_after_fault.pop_front() {
            entry.backlog.return_unsent(&delivery, now.wall);
        }
        entry.backlog.forget_stored();
        commands.push(Command::Sweep {
            ticket,
            endpoint: entry.endpoint,
            reason: if entry.gate.status() == EndpointStatus::Deleted {
                DeadReason::EndpointDeleted
            } else {
                DeadReason::EndpointDisabled
            },
            except: entry.backlog.taken(),
        });
    }

    /// Removes a lane's timers.
    pub(super) fn disarm(&mut self, lane: usize) {
        let entry = &mut self.lanes[lane];
        self.ticks.arm(lane, &mut entry.armed_tick, None);
        self.dues.arm(lane, &mut entry.armed_due, None);
    }

    pub(super) fn forget(&mut self, lane: usize) {
        self.disarm(lane);
        let entry = self.lanes.remove(lane);
        self.by_endpoint.remove(&entry.endpoint);
        if let Some(config) = entry.config {
            self.turns.remove_lane(config.tenant);
        }
    }
}

impl Lane {
    /// Returns true while the waiting deliveries are being swept, or are about to be.
    pub(super) fn is_sweeping(&self) -> bool {
        self.sweep != Sweep::Idle
    }

    /// Returns false while too many deliveries wait after internal faults. This bounds the memory that they take.
    pub(super) fn may_start(&self) -> bool {
        self.waiting_after_fault.len() < self.faults.max_waiting() && self.drops < MAX_DROPS
    }

    /// Resets the fault count after an attempt that ended normally: waiting deliveries wait no longer than after a
    /// first fault.
    pub(super) fn reset_faults(&mut self, now: Tick) {
        self.faults = FaultBackoff::default();
        let soon = now.after(FAULT_PAUSE);
        for (until, _) in &mut self.waiting_after_fault {
            *until = soon.min(*until);
        }
    }

    /// Returns true if the probe of the lane's breaker will record a change that happened without an attempt.
    fn awaits_record(&self) -> bool {
        !self.unrecorded_changes.is_empty() && is_open(self.gate.status())
    }

    /// Returns true if the lane has nothing to do and waits for no answer.
    fn is_idle(&self) -> bool {
        let endpoint_loaded =
            self.config.is_some() || self.gate.status() == EndpointStatus::Deleted;
        endpoint_loaded
            && self.backlog.is_idle()
            && !self.queued
            && !self.in_fetch_queue
            && self.sweep == Sweep::Idle
            && self.requested_status.is_none()
            && !self.awaits_record()
    }
}

/// Returns true if deliveries may wait for an endpoint with this status.
fn is_open(status: EndpointStatus) -> bool {
    match status {
        EndpointStatus::Enabled | EndpointStatus::Paused => true,
        EndpointStatus::Disabled | EndpointStatus::Deleted => false,
    }
}

/// Restores a breaker that had tripped before the process started. The wall clock may have been changed since, so
/// the wait is limited to the longest one that the settings allow.
fn restored(now: Now, trip: StoredTrip, longest_wait: Span) -> Breaker {
    let until = now.tick_at(trip.until).min(now.tick.after(longest_wait));
    Breaker::tripped(until, trip.reason, trip.failed_probes)
}
