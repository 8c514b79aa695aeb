//! Who is sent to next, over all endpoints.
//!
//! [`Dispatcher::handle`] takes one [`Input`] at a time and returns what to do as [`Command`]s. It
//! never waits and touches nothing: the shell acts, and reports back. It promises:
//!
//! - work is asked for per endpoint, only where its gate has room or will have it as soon as something
//!   comes back; memory grows with busy endpoints, never with the backlog;
//! - what was just accepted goes straight to its lane, without a detour over the disk;
//! - tenants, and the lanes of each, take turns; no endpoint can keep another waiting;
//! - of a tenant's no more are under way at once than it is allowed, counted until they are on disk;
//! - a result is held until it is on disk, and while the disk fails nothing new is sent;
//! - a fault of our own spends no attempt;
//! - no attempt begins after an endpoint was disabled, paused or deleted, or a delivery called off;
//! - what is to be given up to another node begins nothing more, and is told of when nothing of it is under
//!   way;
//! - an input that comes late or twice changes nothing;
//! - whenever nothing can be done now, it says when or after what to look again.

mod attempts;
mod command;
mod disown;
mod flights;
mod lanes;
mod recent;
mod timers;
mod turns;

pub use command::{
    Attempt, AttemptRecord, Command, Finish, Input, Introduction, News, Notice, Record, Ticket,
    Wake,
};
pub use turns::Crowd;

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};
use slab::Slab;

use self::flights::{Flight, Flights, Stage};
use self::lanes::Lane;
use self::recent::Recent;
use self::timers::Timers;
use self::turns::Turns;
use crate::delivery::Delivery;
use crate::dice::Dice;
use crate::id::{DeliveryId, EndpointId, TenantId};
use crate::lane::{BreakerState, Claim, Health, Standing};
use crate::time::{Now, Span, Tick, Timestamp};

/// How many timers one call looks at. The rest are due at once, so the next call comes at once.
const TIMERS_PER_CALL: usize = 1_024;
/// How long to wait before a failed write or read is tried again.
pub const STORE_PAUSE: Span = Span::from_millis(500);
/// The longest pause between two sends on trial while records cannot be written.
pub const LONGEST_TRIAL_PAUSE: Span = Span::from_secs(32);
/// How many fetches may be under way at once. The others stand in line.
pub const MAX_FETCHES: usize = 64;

/// What a dispatcher may use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Attempts under way at once, over all endpoints, counted until their results are on disk.
    pub max_flights: usize,
    /// Deliveries each lane keeps ready in memory.
    pub ready_per_lane: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_flights: 4_096,
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

/// Decides who is sent to next.
#[derive(Debug)]
pub struct Dispatcher {
    limits: Limits,
    dice: Dice,
    phase: Phase,
    /// Nothing may begin.
    suspended: bool,
    lanes: Slab<Lane>,
    by_endpoint: FxHashMap<EndpointId, usize>,
    turns: Turns,
    flights: Flights,
    ticks: Timers<Tick>,
    dues: Timers<Timestamp>,
    next_ticket: u64,
    /// Records that could not be written, and when to try them again.
    unwritten: VecDeque<(Tick, Ticket)>,
    /// Set while records cannot be written: results might be lost, so only now and then one attempt
    /// is sent on trial, in case it was the record that was at fault and not the disk.
    trial: Option<Trial>,
    recent: Recent,
    /// Fetches under way, by ticket.
    fetches: FxHashSet<u64>,
    /// Lanes that want to fetch and may not yet.
    fetch_line: VecDeque<usize>,
}

/// When the next attempt may be sent on trial.
#[derive(Clone, Copy, Debug)]
struct Trial {
    at: Tick,
    pause: Span,
}

/// How many endpoints have their breaker in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BreakerCensus {
    /// Everything passes.
    pub passing: usize,
    /// Nothing passes.
    pub tripped: usize,
    /// One request is under way to see whether the destination is back.
    pub probing: usize,
}

/// A look at one lane from outside.
#[derive(Clone, Debug, PartialEq)]
pub struct LaneView {
    /// Its breaker.
    pub breaker: BreakerState,
    /// Its standing.
    pub standing: Standing,
    /// How many are in flight.
    pub in_flight: u32,
    /// How many are ready in memory.
    pub ready: usize,
    /// True while deliveries to it are held.
    pub holds: bool,
    /// Until when it asked to be left alone.
    pub quiet_until: Tick,
    /// When something that waits for it on disk may be due.
    pub stored_due: Option<Timestamp>,
    /// What waits for it is being failed on disk.
    pub sweeping: bool,
    /// What is remembered of it.
    pub health: Health,
}

impl Dispatcher {
    /// A dispatcher that has heard of nothing yet.
    pub fn new(limits: Limits, dice: Dice) -> Dispatcher {
        Dispatcher {
            limits,
            dice,
            phase: Phase::Running,
            suspended: false,
            lanes: Slab::new(),
            by_endpoint: FxHashMap::default(),
            turns: Turns::default(),
            flights: Flights::new(limits.max_flights),
            ticks: Timers::new(),
            dues: Timers::new(),
            next_ticket: 0,
            unwritten: VecDeque::new(),
            trial: None,
            recent: Recent::default(),
            fetches: FxHashSet::default(),
            fetch_line: VecDeque::new(),
        }
    }

    /// What tenants may have under way at once is shared with other nodes: of whoever is limited nothing begins before
    /// [`grant`](Dispatcher::grant) allows it.
    pub fn share_room(&mut self) {
        self.turns = Turns::sharing(true);
    }

    /// How many attempts a tenant has under way here.
    pub fn under_way(&self, tenant: &TenantId) -> usize {
        self.turns.under_way(tenant)
    }

    /// What limited tenants have under way here, and what they want.
    pub fn crowds(&self) -> Vec<Crowd> {
        self.turns.crowds()
    }

    /// Whether a tenant has begun to wait for a grant since this was last asked, though it is allowed more.
    pub fn lacks_room(&mut self) -> bool {
        self.turns.takes_note_of_lack()
    }

    /// This node may have so many of a tenant's under way. Takes effect with the next input. Says false if it has no use
    /// for them.
    pub fn grant(&mut self, tenant: &TenantId, usable: u32) -> bool {
        self.turns.grant(tenant, usable as usize)
    }

    /// Takes in what happened; adds what is to be done to `commands`.
    pub fn handle(&mut self, now: Now, input: Input, commands: &mut Vec<Command>) {
        match input {
            Input::Accepted(deliveries) => self.accepted(now, deliveries, commands),
            Input::Work { endpoint, due } => self.work(now, endpoint, due, commands),
            Input::Introduced(introduction) => self.introduced(now, introduction, commands),
            Input::NoSuchEndpoint(endpoint) => self.no_such_endpoint(now, endpoint, commands),
            Input::Stand { endpoint, standing } => self.stand(now, endpoint, standing, commands),
            Input::Fetched {
                ticket,
                endpoint,
                fetched,
            } => {
                self.fetches.remove(&ticket);
                if let Some(lane) = self.find(endpoint)
                    && self.lanes[lane].backlog.end_fetch(ticket, fetched)
                {
                    self.attend(now, lane, commands);
                }
            }
            Input::FetchFailed { ticket, endpoint } => {
                // Whatever is there counts as due, by any clock: the next fetch will tell.
                let again = Timestamp::default();
                self.fetches.remove(&ticket);
                if let Some(lane) = self.find(endpoint)
                    && self.lanes[lane].backlog.fail_fetch(ticket, again)
                {
                    self.lanes[lane].no_fetch_before = now.tick.after(STORE_PAUSE);
                    self.attend(now, lane, commands);
                }
            }
            Input::Finished { ticket, finish } => self.finished(now, ticket, finish, commands),
            Input::Recorded { ticket } => self.recorded(now, ticket, commands),
            Input::RecordFailed { ticket } => self.record_failed(now, ticket),
            Input::Cancel { endpoint, delivery } => self.cancel(now, endpoint, delivery, commands),
            Input::Swept { ticket, endpoint } => self.swept(now, ticket, endpoint, commands),
            Input::Disown(endpoint) => self.disown(now, endpoint, commands),
            Input::Lost => self.lose_everything(),
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
        self.take_turns(now, commands);
        if self.phase == Phase::Draining && self.flights.is_empty() {
            self.phase = Phase::Drained;
            commands.push(Command::Drained);
        }
    }

    /// When the dispatcher wants to hear [`Input::Tick`] if nothing else happens before.
    pub fn wake(&self) -> Wake {
        let unwritten = self.unwritten.front().map(|(at, _)| *at);
        let ticks = [self.ticks.earliest(), unwritten];
        let tick = ticks.into_iter().flatten().min();
        Wake {
            tick,
            wall: self.dues.earliest(),
        }
    }

    /// The endpoints it keeps in mind.
    pub fn endpoints(&self) -> impl Iterator<Item = EndpointId> {
        self.by_endpoint.keys().copied()
    }

    /// How many endpoints it keeps in mind.
    pub fn lane_count(&self) -> usize {
        self.lanes.len()
    }

    /// How many attempts are under way or being recorded.
    pub fn flight_count(&self) -> usize {
        self.flights.len()
    }

    /// How the breakers of the endpoints it keeps in mind are.
    pub fn breakers(&self) -> BreakerCensus {
        let mut census = BreakerCensus::default();
        for (_, lane) in &self.lanes {
            match lane.gate.breaker().state() {
                BreakerState::Passing => census.passing += 1,
                BreakerState::Tripped { .. } => census.tripped += 1,
                BreakerState::Probing { .. } => census.probing += 1,
            }
        }
        census
    }

    /// A look at one lane, if it is in mind.
    pub fn lane(&self, endpoint: EndpointId) -> Option<LaneView> {
        let lane = &self.lanes[self.find(endpoint)?];
        Some(LaneView {
            breaker: lane.gate.breaker().state(),
            standing: lane.gate.standing(),
            in_flight: lane.gate.in_flight(),
            ready: lane.backlog.ready_len(),
            holds: lane.gate.holds(),
            quiet_until: lane.gate.quiet_until(),
            stored_due: lane.backlog.stored_due(),
            sweeping: lane.is_sweeping(),
            health: lane.health.clone(),
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
            self.attend(now, lane, commands);
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
        self.attend(now, lane, commands);
    }

    fn cancel(
        &mut self,
        now: Now,
        endpoint: EndpointId,
        delivery: DeliveryId,
        commands: &mut Vec<Command>,
    ) {
        let lane = self.find_or_open(endpoint, commands);
        self.wake_rested(now, lane, delivery);
        match self.lanes[lane].backlog.claim(delivery) {
            Claim::Claimed => {}
            Claim::Repeated => return,
            Claim::Taken => {
                commands.push(Command::TooLateToCancel(delivery));
                return;
            }
        }
        let record = Record::Cancel {
            delivery,
            at: now.wall,
        };
        let ticket = self.flights.begin(Flight {
            lane,
            stage: Stage::Recording(record.clone()),
            retries: false,
        });
        commands.push(Command::Record { ticket, record });
    }

    /// Lets lanes fetch that stood in line, as far as there is room.
    fn serve_fetch_line(&mut self, now: Now, commands: &mut Vec<Command>) {
        while self.fetches.len() < MAX_FETCHES
            && let Some(lane) = self.fetch_line.pop_front()
        {
            self.lanes[lane].in_fetch_line = false;
            self.attend(now, lane, commands);
        }
    }

    fn look_at_timers(&mut self, now: Now, commands: &mut Vec<Command>) {
        for _ in 0..TIMERS_PER_CALL {
            let Some(lane) = self.ticks.due(now.tick).or_else(|| self.dues.due(now.wall)) else {
                break;
            };
            self.attend(now, lane, commands);
        }
        while let Some((_, ticket)) = self.unwritten.pop_front_if(|(at, _)| *at <= now.tick) {
            if let Some(Flight {
                stage: Stage::Recording(record),
                retries,
                ..
            }) = self.flights.get_mut(ticket)
            {
                *retries = false;
                let record = record.clone();
                commands.push(Command::Record { ticket, record });
            }
        }
    }
}

#[cfg(test)]
mod tests;
