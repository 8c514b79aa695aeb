//! The dispatcher: decides which delivery is attempted next, over all endpoints.
//!
//! [`Dispatcher::handle`] takes one [`Input`] at a time and returns [`Command`]s. It does no I/O and never waits:
//! the engine executes the commands and reports the results as further inputs. The dispatcher guarantees:
//!
//! - Deliveries are fetched per endpoint, and only if the endpoint's gate is open or opens when an attempt ends.
//!   Memory grows with the number of busy endpoints, never with the backlog.
//! - A delivery that was just accepted goes to its lane directly, without a store read.
//! - Tenants take turns, and so do the lanes of one tenant. No endpoint can block another.
//! - A tenant has no more attempts in flight than its limit. An attempt counts until its result is recorded.
//! - A result is kept until it is recorded. While the store fails, no new attempts start, except single
//!   attempts.
//! - An internal fault of posthaste does not count as an attempt. A delivery that causes one again and again is held.
//! - A delivery whose turn comes after its deadline is dropped without an attempt, if its policy says so.
//! - No attempt starts after its endpoint was disabled, paused or deleted, or its delivery was cancelled.
//! - An endpoint that is being released to another node starts no more attempts. Its release is reported when none
//!   of its attempts is in flight.
//! - A late or repeated input changes nothing.
//! - When nothing can be done now, [`Dispatcher::wake`] returns the time of the next tick that is needed, or some
//!   result is still outstanding.

mod attempts;
mod command;
mod exhausted;
mod held_back;
mod in_flight;
mod lanes;
mod quarantine;
mod recently_settled;
mod release;
mod scheduler;
mod timers;
mod unwritten;

pub use command::{
    Attempt, AttemptEnd, AttemptRecord, Command, EndpointChange, EndpointNotification,
    EndpointSnapshot, Input, InternalFaultScope, Record, Ticket, Wake,
};
pub use held_back::LimitedEndpoint;
pub use quarantine::{
    FAULTS_TO_QUARANTINE, MAX_QUARANTINED_LISTED, MAX_QUARANTINED_PER_LANE, QuarantinedDelivery,
};
pub use scheduler::TenantDemand;

use std::collections::{BTreeSet, VecDeque};

use rustc_hash::{FxHashMap, FxHashSet};
use slab::Slab;

use self::in_flight::{InFlight, InFlightTable, Stage};
use self::lanes::Lane;
use self::quarantine::EndedAttempts;
use self::recently_settled::RecentlySettled;
use self::scheduler::FairScheduler;
use self::timers::Timers;
use self::unwritten::{RecordCounts, RecordFailures};
use crate::delivery::Delivery;
use crate::id::{DeliveryId, EndpointId, TenantId};
use crate::lane::{BreakerState, ClaimResult, EndpointStatus, Health, HeldBack, LimitsInForce};
use crate::rng::Rng;
use crate::time::{Now, Span, Tick, Timestamp};

/// Maximum number of timers that one call handles. The remaining ones are already due, so the next call comes at
/// once.
const TIMERS_PER_CALL: usize = 1_024;
/// Delay before a failed write to or read from the store is retried.
pub const STORE_PAUSE: Span = Span::from_millis(500);
/// Maximum delay between two single attempts while records cannot be written.
pub const MAX_SINGLE_ATTEMPT_DELAY: Span = Span::from_secs(32);
/// Maximum number of concurrent fetches. Further lanes wait in a queue.
pub const MAX_FETCHES: usize = 64;

/// Resource limits of a dispatcher.
#[derive(Clone, Copy, Debug)]
pub struct DispatcherLimits {
    /// Maximum number of attempts in flight over all endpoints. An attempt counts until its result is recorded.
    pub max_in_flight: usize,
    /// Maximum number of ready deliveries that each lane keeps in memory.
    pub ready_per_lane: usize,
}

impl Default for DispatcherLimits {
    fn default() -> DispatcherLimits {
        DispatcherLimits {
            max_in_flight: 4_096,
            ready_per_lane: 64,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    Draining,
    Drained,
}

/// Decides which delivery is attempted next. See the [module documentation](self).
#[derive(Debug)]
pub struct Dispatcher {
    limits: DispatcherLimits,
    rng: Rng,
    phase: Phase,
    /// True while no attempt may start.
    suspended: bool,
    lanes: Slab<Lane>,
    by_endpoint: FxHashMap<EndpointId, usize>,
    turns: FairScheduler,
    in_flight: InFlightTable,
    ticks: Timers<Tick>,
    dues: Timers<Timestamp>,
    next_ticket: u64,
    /// Records that could not be written, with the time of their next try.
    unwritten: BTreeSet<(Tick, Ticket)>,
    records: RecordCounts,
    /// Set while records cannot be written. Results might be lost, so only a single attempt is sent now and
    /// then, in case the fault was in the one record and not in the store.
    single_attempt: Option<SingleAttempt>,
    recent: RecentlySettled,
    /// Tickets of the fetches in progress.
    fetches: FxHashSet<u64>,
    /// Lanes that wait for a free fetch.
    fetch_queue: VecDeque<usize>,
    /// The attempts that have ended, over all lanes.
    ended: EndedAttempts,
    /// True if a delivery was held or released since the flag was last taken.
    quarantine_changed: bool,
}

/// The time of the next single attempt, and the current delay between two of them.
#[derive(Clone, Copy, Debug)]
struct SingleAttempt {
    at: Tick,
    pause: Span,
}

/// Number of endpoints by breaker state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BreakerCounts {
    /// All attempts pass.
    pub passing: usize,
    /// No attempt passes.
    pub tripped: usize,
    /// One probe is in flight to find out if the destination is back.
    pub probing: usize,
}

/// A snapshot of one lane, for callers outside the dispatcher.
#[derive(Clone, Debug, PartialEq)]
pub struct LaneView {
    /// The breaker's state.
    pub breaker: BreakerState,
    /// The endpoint status.
    pub status: EndpointStatus,
    /// Number of attempts in flight.
    pub in_flight: u32,
    /// Number of ready deliveries in memory.
    pub ready: usize,
    /// True while deliveries to the endpoint are held: it is paused or its breaker has tripped.
    pub holds: bool,
    /// End of the pause that the receiver asked for with `Retry-After`.
    pub quiet_until: Tick,
    /// The earliest time at which a delivery in the store may be due.
    pub stored_due: Option<Timestamp>,
    /// True while the waiting deliveries of the endpoint are being swept, or are about to be.
    pub sweeping: bool,
    /// The endpoint health.
    pub health: Health,
    /// The reason why a due delivery of the endpoint is not sent now.
    pub obstacle: Option<HeldBack>,
    /// The same, if deliveries wait for it.
    pub held_back: Option<HeldBack>,
    /// The limits in force; `None` until the endpoint's configuration has been loaded.
    pub limits: Option<LimitsInForce>,
}

impl Dispatcher {
    /// Creates a dispatcher without lanes.
    pub fn new(limits: DispatcherLimits, rng: Rng) -> Dispatcher {
        Dispatcher {
            limits,
            rng,
            phase: Phase::Running,
            suspended: false,
            lanes: Slab::new(),
            by_endpoint: FxHashMap::default(),
            turns: FairScheduler::default(),
            in_flight: InFlightTable::new(limits.max_in_flight),
            ticks: Timers::new(),
            dues: Timers::new(),
            next_ticket: 0,
            unwritten: BTreeSet::new(),
            records: RecordCounts::default(),
            single_attempt: None,
            recent: RecentlySettled::default(),
            fetches: FxHashSet::default(),
            fetch_queue: VecDeque::new(),
            ended: EndedAttempts::default(),
            quarantine_changed: false,
        }
    }

    /// Divides the concurrency limits of tenants among several nodes: a tenant with a limit starts no attempt until
    /// [`grant`](Dispatcher::grant) gives this node a concurrency share.
    pub fn limit_tenants_by_share(&mut self) {
        self.turns = FairScheduler::sharing(true);
    }

    /// Returns the number of attempts that a tenant has in flight on this node.
    pub fn in_flight_of(&self, tenant: &TenantId) -> usize {
        self.turns.in_flight_of(tenant)
    }

    /// Returns the in-flight attempts and the demand on this node of every tenant with a concurrency limit.
    pub fn tenant_demands(&self) -> Vec<TenantDemand> {
        self.turns.tenant_demands()
    }

    /// Returns true if, since the last call, a tenant has started to wait for a larger concurrency share although
    /// its limit allows more. Resets the flag.
    pub fn has_unmet_demand(&mut self) -> bool {
        self.turns.take_share_wanted()
    }

    /// Sets this node's concurrency share of a tenant. Takes effect with the next input. Returns false if the
    /// tenant has no lanes here, so that the share is of no use.
    pub fn grant(&mut self, tenant: &TenantId, usable: u32) -> bool {
        self.turns.grant(tenant, usable as usize)
    }

    /// Handles one input and appends the resulting commands to `commands`.
    pub fn handle(&mut self, now: Now, input: Input, commands: &mut Vec<Command>) {
        match input {
            Input::Accepted(deliveries) => self.accepted(now, deliveries, commands),
            Input::Work { endpoint, due } => self.work(now, endpoint, due, commands),
            Input::EndpointLoaded(snapshot) => self.endpoint_loaded(now, snapshot, commands),
            Input::NoSuchEndpoint(endpoint) => self.no_such_endpoint(now, endpoint, commands),
            Input::SetStatus { endpoint, status } => {
                self.set_status(now, endpoint, status, commands)
            }
            Input::Fetched {
                ticket,
                endpoint,
                fetched,
            } => {
                self.fetches.remove(&ticket);
                if let Some(lane) = self.find(endpoint) {
                    self.release_retried(now, lane, &fetched);
                    if self.lanes[lane].backlog.end_fetch(ticket, fetched) {
                        self.update_lane(now, lane, commands);
                    }
                }
            }
            Input::FetchFailed { ticket, endpoint } => {
                // Due at any clock reading, so that the lane fetches again as soon as the pause is over.
                let again = Timestamp::default();
                self.fetches.remove(&ticket);
                if let Some(lane) = self.find(endpoint)
                    && self.lanes[lane].backlog.fail_fetch(ticket, again)
                {
                    self.lanes[lane].no_fetch_before = now.tick.after(STORE_PAUSE);
                    self.update_lane(now, lane, commands);
                }
            }
            Input::Finished { ticket, finish } => self.finished(now, ticket, finish, commands),
            Input::Recorded { ticket } => self.recorded(now, ticket, commands),
            Input::RecordFailed { ticket } => self.record_failed(now, ticket, commands),
            Input::Cancel { endpoint, delivery } => self.cancel(now, endpoint, delivery, commands),
            Input::Swept { ticket, endpoint } => self.swept(now, ticket, endpoint, commands),
            Input::EndedCounted {
                endpoint,
                succeeded,
                failed,
            } => self.ended_counted(now, endpoint, succeeded, failed, commands),
            Input::Revoke(endpoint) => self.revoke(now, endpoint, commands),
            Input::Lost => self.forget_all(),
            Input::Suspend => self.suspended = true,
            Input::Resume => self.suspended = false,
            Input::Tick => {}
            Input::Shutdown => {
                if self.phase == Phase::Running {
                    self.phase = Phase::Draining;
                }
            }
        }
        self.look_at_timers(now, commands);
        self.serve_fetch_line(now, commands);
        self.start_attempts(now, commands);
        if self.phase == Phase::Draining && self.in_flight.is_empty() {
            self.phase = Phase::Drained;
            commands.push(Command::Drained);
        }
    }

    /// Returns true while the result of this attempt or record is awaited. False after [`Input::RecordFailed`] means that the
    /// record is given up: its delivery is held, or its endpoint is no longer owned.
    pub fn awaits(&self, ticket: Ticket) -> bool {
        self.in_flight.contains(ticket)
    }

    /// Returns when the dispatcher needs [`Input::Tick`] if no other input arrives before.
    pub fn wake(&self) -> Wake {
        let unwritten = self.unwritten.first().map(|(at, _)| *at);
        let ticks = [self.ticks.earliest(), unwritten];
        let tick = ticks.into_iter().flatten().min();
        Wake {
            tick,
            wall: self.dues.earliest(),
        }
    }

    /// Returns the endpoints that have a lane.
    pub fn endpoints(&self) -> impl Iterator<Item = EndpointId> {
        self.by_endpoint.keys().copied()
    }

    /// Returns the number of lanes.
    pub fn lane_count(&self) -> usize {
        self.lanes.len()
    }

    /// Returns the number of attempts and cancellations that are in flight or being recorded.
    pub fn in_flight_count(&self) -> usize {
        self.in_flight.len()
    }

    /// Counts the lanes by breaker state.
    pub fn breakers(&self) -> BreakerCounts {
        let mut census = BreakerCounts::default();
        for (_, lane) in &self.lanes {
            match lane.gate.breaker().state() {
                BreakerState::Passing => census.passing += 1,
                BreakerState::Tripped { .. } => census.tripped += 1,
                BreakerState::Probing { .. } => census.probing += 1,
            }
        }
        census
    }

    /// Returns true if the endpoint has a lane.
    pub fn has_lane(&self, endpoint: EndpointId) -> bool {
        self.find(endpoint).is_some()
    }

    /// Returns the status of an endpoint that has a lane.
    pub fn endpoint_status(&self, endpoint: EndpointId) -> Option<EndpointStatus> {
        let lane = &self.lanes[self.find(endpoint)?];
        Some(lane.gate.status())
    }

    /// Returns a snapshot of the endpoint's lane, or `None` if it has no lane.
    pub fn lane(&self, now: Now, endpoint: EndpointId) -> Option<LaneView> {
        let lane = &self.lanes[self.find(endpoint)?];
        Some(LaneView {
            breaker: lane.gate.breaker().state(),
            status: lane.gate.status(),
            in_flight: lane.gate.in_flight(),
            ready: lane.backlog.ready_len(),
            holds: lane.gate.holds(),
            quiet_until: lane.gate.quiet_until(),
            stored_due: lane.backlog.stored_due(),
            sweeping: lane.is_sweeping(),
            health: lane.health.clone(),
            obstacle: self.obstacle(now, lane),
            held_back: self.held_back(now, lane),
            limits: lane.limits_in_force(),
        })
    }

    fn next_ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }

    fn find(&self, endpoint: EndpointId) -> Option<usize> {
        self.by_endpoint.get(&endpoint).copied()
    }

    fn accepted(&mut self, now: Now, deliveries: Vec<Delivery>, commands: &mut Vec<Command>) {
        for delivery in deliveries {
            if self.recent.contains(delivery.id()) {
                continue;
            }
            let lane = self.find_or_open(delivery.facts().endpoint, commands);
            self.lanes[lane].backlog.offer(delivery, now.wall);
            self.update_lane(now, lane, commands);
        }
    }

    fn work(
        &mut self,
        now: Now,
        endpoint: EndpointId,
        due: Timestamp,
        commands: &mut Vec<Command>,
    ) {
        let lane = self.find_or_open(endpoint, commands);
        self.lanes[lane].backlog.note_stored(due);
        self.update_lane(now, lane, commands);
    }

    fn cancel(
        &mut self,
        now: Now,
        endpoint: EndpointId,
        delivery: DeliveryId,
        commands: &mut Vec<Command>,
    ) {
        let lane = self.find_or_open(endpoint, commands);
        self.end_wait(now, lane, delivery);
        self.release_quarantined(now, lane, delivery);
        match self.lanes[lane].backlog.claim(delivery) {
            ClaimResult::Claimed => {}
            ClaimResult::Repeated => return,
            ClaimResult::Taken => {
                commands.push(Command::TooLateToCancel(delivery));
                return;
            }
        }
        let record = Record::Cancel {
            delivery,
            at: now.wall,
        };
        let ticket = self.in_flight.begin(InFlight {
            lane,
            stage: Stage::Recording(record.clone()),
            failures: RecordFailures::default(),
            attempted: None,
        });
        commands.push(Command::Record { ticket, record });
    }

    /// Lets waiting lanes fetch, up to [`MAX_FETCHES`] fetches at once.
    fn serve_fetch_line(&mut self, now: Now, commands: &mut Vec<Command>) {
        while self.fetches.len() < MAX_FETCHES
            && let Some(lane) = self.fetch_queue.pop_front()
        {
            self.lanes[lane].in_fetch_queue = false;
            self.update_lane(now, lane, commands);
        }
    }

    fn look_at_timers(&mut self, now: Now, commands: &mut Vec<Command>) {
        for _ in 0..TIMERS_PER_CALL {
            let Some(lane) = self.ticks.due(now.tick).or_else(|| self.dues.due(now.wall)) else {
                break;
            };
            self.update_lane(now, lane, commands);
        }
        self.repeat_records(now, commands);
    }
}

#[cfg(test)]
mod tests;
