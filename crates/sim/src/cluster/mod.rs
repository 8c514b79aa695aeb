//! Simulation of several nodes over one shared table, each with its own membership state machine and clock.
//!
//! In the fault phase nodes join, leave, crash and freeze; links are slow, responses are slow or lost, and a request that timed
//! out may still be executed much later. Clocks start at any value and run up to 0.1 % too fast or too slow.
//! Then the faults end, and all shards must be owned, evenly distributed and stable. After that one node
//! crashes, one joins, one gets a slow link and one leaves, and the same must hold soon after each. [`run_cluster`] returns a
//! [`ClusterFailure`] if a [`ClusterOracle`] is violated.

mod checks;
mod mutations;
mod node;
mod slow_links;
mod table;

pub use mutations::{ClusterMutation, ClusterOracle};

use std::fmt;

use posthaste_core::cluster::{Command, Input, NodeNo, OwnedShard, Timings};
use posthaste_core::rng::Rng;
use posthaste_core::time::Tick;

use self::node::Node;
use self::slow_links::{Link, RECOVERED_WITHIN_MS};
use self::table::Table;
use posthaste_core::event_queue::EventQueue;

/// Duration of the fault phase, in milliseconds.
const FAULT_PHASE_MS: u64 = 90_000;
/// Maximum delay with which a timed-out request may still be executed.
const LATEST_MS: u64 = 15_000;
/// Maximum time until all shards are owned again: the lease and a few heartbeats.
const OWNED_WITHIN_MS: u64 = 9_000;
/// Maximum time until shards are evenly distributed, once all are owned.
const EVEN_WITHIN_MS: u64 = 5_000;
/// Time during which no shard may move.
const STILL_MS: u64 = 25_000;
/// Maximum time until a revoked shard has no attempts in flight: in the fault phase, and afterwards.
const UNDER_WAY_MS: (u64, u64) = (4_000, 500);
/// Maximum number of nodes.
const MOST_NODES: usize = 7;
/// Number of last events that a failure shows.
const TRACE_LINES: usize = 80;

/// A run that violated a guarantee.
#[derive(Clone, Debug)]
pub struct ClusterFailure {
    /// The seed, which reproduces the run exactly.
    pub seed: u64,
    /// The violated guarantee.
    pub oracle: ClusterOracle,
    /// The observation.
    pub detail: String,
    /// The last events.
    pub trace: Vec<String>,
}

impl fmt::Display for ClusterFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.trace {
            writeln!(f, "  {line}")?;
        }
        write!(f, "seed {}: {:?}: {}", self.seed, self.oracle, self.detail)
    }
}

/// Statistics of a run without violations.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClusterSummary {
    /// Number of granted shards.
    pub grants: u64,
    /// Number of expired leases.
    pub expiries: u64,
    /// Number of times a node learned that it had been removed from the table.
    pub expelled_nodes: u64,
    /// Number of requests without a known result.
    pub lost: u64,
    /// Number of times a node changed its capacity, because its link was slow or quick again.
    pub capacity_changes: u64,
}

/// Runs one simulation.
pub fn run_cluster(
    seed: u64,
    mutation: Option<ClusterMutation>,
) -> Result<ClusterSummary, ClusterFailure> {
    let mut simulation = World::new(seed, mutation);
    match simulation.live() {
        Ok(()) => Ok(simulation.summary),
        Err((oracle, detail)) => Err(ClusterFailure {
            seed,
            oracle,
            detail,
            trace: simulation.trace,
        }),
    }
}

type CheckResult = Result<(), (ClusterOracle, String)>;

#[derive(Clone, Debug)]
enum Event {
    /// A membership state machine asked to be woken.
    Wake { node: usize, life: u64 },
    /// The table executes a node's request.
    Apply {
        node: usize,
        me: Option<NodeNo>,
        request: Command,
        answer_in: Option<(u64, u64)>,
    },
    /// An input arrives at a node.
    Reach {
        node: usize,
        life: u64,
        input: Input,
        answers: Option<u64>,
    },
    /// A revoked shard has no attempts in flight any more.
    RevokeDone {
        node: usize,
        life: u64,
        holding: OwnedShard,
    },
    /// A frozen node resumes.
    Thaw { node: usize, life: u64 },
    /// A random fault happens, or a node joins.
    InjectFault,
}

struct World {
    rng: Rng,
    event_queue: EventQueue<Event>,
    table: Table,
    nodes: Vec<Node>,
    mutation: Option<ClusterMutation>,
    has_faults: bool,
    has_notifications: bool,
    timings: Timings,
    requests: u64,
    summary: ClusterSummary,
    trace: Vec<String>,
}

impl World {
    fn new(seed: u64, mutation: Option<ClusterMutation>) -> World {
        let mut rng = Rng::seeded(seed);
        let has_notifications = rng.random_ratio(3, 4);
        World {
            rng,
            event_queue: EventQueue::default(),
            table: Table::new(mutation),
            nodes: Vec::new(),
            mutation,
            has_faults: true,
            has_notifications,
            timings: Timings::default(),
            requests: 0,
            summary: ClusterSummary::default(),
            trace: Vec::new(),
        }
    }

    fn live(&mut self) -> CheckResult {
        for _ in 0..self.rng.between(1, 4) {
            self.join(true)?;
        }
        if self.rng.random_ratio(1, 3) {
            self.join(false)?;
        }
        self.event_queue.schedule(500, Event::InjectFault);
        self.pass(FAULT_PHASE_MS)?;
        self.heal()?;
        self.settle("after the storm", true)?;
        self.join(true)?;
        self.settle("after a join", false)?;
        if let Some(victim) = self.pick(|node| node.wants_shards && node.stays) {
            self.note(|| format!("recovery phase: node {victim} dies"));
            self.nodes[victim].crash();
            self.settle("after a death", false)?;
        }
        self.join(true)?;
        self.settle("after another join", false)?;
        self.live_with_slow_links()?;
        if let Some(leaver) = self.pick(|node| node.wants_shards && node.stays) {
            self.note(|| format!("recovery phase: node {leaver} retires"));
            self.nodes[leaver].stays = false;
            self.handle(leaver, Input::Retire)?;
            self.settle("after a leave", false)?;
        }
        Ok(())
    }

    /// Returns a random running node for which `wanted` returns true.
    fn pick(&mut self, wanted: impl Fn(&Node) -> bool) -> Option<usize> {
        let running: Vec<usize> = (0..self.nodes.len())
            .filter(|at| self.nodes[*at].runs() && wanted(&self.nodes[*at]))
            .collect();
        (!running.is_empty()).then(|| *self.rng.pick(&running))
    }

    fn join(&mut self, wants_shards: bool) -> CheckResult {
        let origin = self.rng.between(0, 1_000_000);
        let parts_per_million = self.rng.between(0, 2_000) as i64 - 1_000;
        let mut node = Node::new(wants_shards, origin, parts_per_million, self.timings);
        node.start(self.event_queue.now_ms(), self.timings);
        self.nodes.push(node);
        self.handle(self.nodes.len() - 1, Input::Tick)
    }

    /// Processes all events of the next `for_ms` milliseconds.
    fn pass(&mut self, for_ms: u64) -> CheckResult {
        let until_ms = self.event_queue.now_ms() + for_ms;
        while let Some(event) = self.event_queue.advance(until_ms) {
            self.happen(event)?;
        }
        Ok(())
    }

    fn happen(&mut self, event: Event) -> CheckResult {
        match event {
            Event::Wake { node, life } => {
                let now_ms = self.event_queue.now_ms();
                let woken =
                    self.nodes[node].is_current_life(life) && self.nodes[node].take_wake(now_ms);
                if woken {
                    self.handle(node, Input::Tick)?;
                }
                Ok(())
            }
            Event::Apply {
                node,
                me,
                request,
                answer_in,
            } => self.apply(node, me, &request, answer_in),
            Event::Reach {
                node,
                life,
                input,
                answers,
            } => self.reach(node, life, input, answers),
            Event::RevokeDone {
                node,
                life,
                holding,
            } => {
                if !self.nodes[node].is_current_life(life) {
                    return Ok(());
                }
                if self.nodes[node].frozen {
                    let again = Event::RevokeDone {
                        node,
                        life,
                        holding,
                    };
                    self.event_queue.schedule(100, again);
                    return Ok(());
                }
                self.nodes[node].held.remove(&holding);
                self.handle(node, Input::RevokeFinished(holding))
            }
            Event::Thaw { node, life } => {
                if self.nodes[node].is_current_life(life) && self.nodes[node].frozen {
                    self.note(|| format!("node {node} thaws"));
                    self.nodes[node].frozen = false;
                    // It may immediately send for its shards, if its clock allows it.
                    self.check_one_owner()?;
                    self.handle(node, Input::Tick)?;
                }
                Ok(())
            }
            Event::InjectFault => self.inject_fault(),
        }
    }

    /// Triggers a random fault and schedules the next one.
    fn inject_fault(&mut self) -> CheckResult {
        if !self.has_faults {
            return Ok(());
        }
        let running = self.nodes.iter().filter(|node| node.runs()).count();
        match self.rng.between(0, 9) {
            0 | 1 if running < MOST_NODES => {
                let wants_shards = self.rng.random_ratio(4, 5);
                self.join(wants_shards)?;
            }
            2 => {
                if let Some(victim) = self.pick(|_| true) {
                    self.note(|| format!("node {victim} dies"));
                    self.nodes[victim].crash();
                }
            }
            3 => {
                if let Some(leaver) = self.pick(|node| !node.frozen) {
                    self.note(|| format!("node {leaver} retires"));
                    self.nodes[leaver].stays = false;
                    self.handle(leaver, Input::Retire)?;
                }
            }
            4..=6 => {
                if let Some(victim) = self.pick(|node| !node.frozen) {
                    self.note(|| format!("node {victim} freezes"));
                    let life = self.nodes[victim].life;
                    self.nodes[victim].frozen = true;
                    let for_ms = self.rng.between(100, 12_000);
                    self.event_queue
                        .schedule(for_ms, Event::Thaw { node: victim, life });
                }
            }
            _ => {
                if let Some(victim) = self.pick(|_| true) {
                    self.note(|| format!("node {victim} is cut off"));
                    let for_ms = self.rng.between(500, 10_000);
                    self.nodes[victim].cut_off_until_ms = self.event_queue.now_ms() + for_ms;
                }
                let links = [
                    Link::Quick,
                    Link::Quick,
                    Link::Slow,
                    Link::SlowReads,
                    Link::FailingWrites,
                ];
                if let Some(victim) = self.pick(|_| true) {
                    self.nodes[victim].link = *self.rng.pick(&links);
                }
            }
        }
        let next_ms = self.rng.between(200, 6_000);
        self.event_queue.schedule(next_ms, Event::InjectFault);
        Ok(())
    }

    /// Ends the fault phase and all current faults.
    fn heal(&mut self) -> CheckResult {
        self.note(|| "the world is well".to_owned());
        self.has_faults = false;
        self.set_all(Link::Quick);
        for at in 0..self.nodes.len() {
            self.nodes[at].cut_off_until_ms = 0;
            let life = self.nodes[at].life;
            self.happen(Event::Thaw { node: at, life })?;
        }
        if self.pick(|node| node.wants_shards && node.stays).is_none() {
            self.join(true)?;
        }
        // Timed-out requests may still be executed, and nodes that were slow take their shards back; the guarantees are
        // checked after that.
        self.pass(LATEST_MS + RECOVERED_WITHIN_MS)
    }

    /// Passes an input to a node and executes its commands.
    fn handle(&mut self, at: usize, input: Input) -> CheckResult {
        let now_ms = self.event_queue.now_ms();
        let now = self.nodes[at].clock(now_ms);
        let commands = self.nodes[at].handle(now, input);
        for command in commands {
            self.execute(at, now, command)?;
        }
        let life = self.nodes[at].life;
        if let Some(in_ms) = self.nodes[at].schedule_wake(now_ms) {
            self.event_queue
                .schedule(in_ms, Event::Wake { node: at, life });
        }
        Ok(())
    }

    fn execute(&mut self, at: usize, now: Tick, command: Command) -> CheckResult {
        self.note_command(at, &command);
        match command {
            Command::Register
            | Command::Heartbeat { .. }
            | Command::Fence { .. }
            | Command::Claim { .. }
            | Command::Release(_)
            | Command::Leave => {
                self.send(at, command);
                Ok(())
            }
            Command::SetLease {
                begin_by: _,
                end_by,
            } => {
                self.nodes[at].end_by =
                    if self.mutation == Some(ClusterMutation::LeaseFromTheAnswer) {
                        now.after(self.timings.end_within)
                    } else {
                        end_by
                    };
                self.check_one_owner()
            }
            Command::Grant(holdings) => {
                self.summary.grants += holdings.len() as u64;
                self.nodes[at].held.extend(holdings);
                self.check_one_owner()
            }
            Command::Revoke(holding) => {
                let most_ms = if self.has_faults {
                    UNDER_WAY_MS.0
                } else {
                    UNDER_WAY_MS.1
                };
                let in_ms = self.rng.between(0, most_ms);
                let life = self.nodes[at].life;
                let done = Event::RevokeDone {
                    node: at,
                    life,
                    holding,
                };
                if self.mutation == Some(ClusterMutation::ReleasesTooSoon) {
                    let reach = Event::Reach {
                        node: at,
                        life,
                        input: Input::RevokeFinished(holding),
                        answers: None,
                    };
                    self.event_queue.schedule(0, reach);
                }
                self.event_queue.schedule(in_ms, done);
                Ok(())
            }
            Command::CapacityChanged(_) => {
                self.summary.capacity_changes += 1;
                Ok(())
            }
            Command::Expire => {
                self.summary.expiries += 1;
                let keeps = [
                    ClusterMutation::IgnoresLeaseEnd,
                    ClusterMutation::LeaseFromTheAnswer,
                ];
                if !self
                    .mutation
                    .is_some_and(|mutation| keeps.contains(&mutation))
                {
                    self.nodes[at].held.clear();
                }
                Ok(())
            }
            Command::Retired => self.check_leave(at),
        }
    }

    /// Sends a request to the table. It may arrive late, or be executed without a response.
    fn send(&mut self, at: usize, request: Command) {
        self.requests += 1;
        let number = self.requests;
        let cut_off = self.nodes[at].cut_off_until_ms > self.event_queue.now_ms();
        let (there_ms, back_ms) = self.delays_ms(at);
        let lost = self.has_faults && (cut_off || self.rng.random_ratio(1, 60));
        let patience_ms = self.timings.lease.as_millis() / 3;
        let answered = !lost && there_ms + back_ms < patience_ms;
        let node = &mut self.nodes[at];
        node.asked = Some(number);
        let (life, me) = (node.life, node.number);
        if !answered {
            self.summary.lost += 1;
            let failed = Event::Reach {
                node: at,
                life,
                input: Input::Failed,
                answers: Some(number),
            };
            let after_ms = self.rng.between(1, patience_ms);
            self.event_queue.schedule(after_ms, failed);
        }
        // A request without a response may never have arrived, or may be executed at any later time.
        let arrives = answered || self.rng.random_ratio(1, 2);
        let there_ms = if answered {
            there_ms
        } else {
            self.rng.between(0, LATEST_MS - 1)
        };
        if arrives {
            let apply = Event::Apply {
                node: at,
                me,
                request,
                answer_in: answered.then_some((back_ms, number)),
            };
            self.event_queue.schedule(there_ms, apply);
        }
    }

    fn apply(
        &mut self,
        at: usize,
        me: Option<NodeNo>,
        request: &Command,
        answer_in: Option<(u64, u64)>,
    ) -> CheckResult {
        let done = self.table.apply(me, request, self.timings.lease);
        if let Some((in_ms, number)) = answer_in {
            let life = self.nodes[at].life;
            let reach = Event::Reach {
                node: at,
                life,
                input: done.answer,
                answers: Some(number),
            };
            self.event_queue.schedule(in_ms, reach);
        }
        if done.notifies && self.has_notifications {
            for other in (0..self.nodes.len()).filter(|other| *other != at) {
                if self.has_faults && self.rng.random_ratio(1, 5) {
                    continue;
                }
                let in_ms = self.rng.between(1, 20);
                let life = self.nodes[other].life;
                let reach = Event::Reach {
                    node: other,
                    life,
                    input: Input::TableChanged,
                    answers: None,
                };
                self.event_queue.schedule(in_ms, reach);
            }
        }
        Ok(())
    }

    fn reach(&mut self, at: usize, life: u64, input: Input, answers: Option<u64>) -> CheckResult {
        let node = &mut self.nodes[at];
        if !node.is_current_life(life) {
            return Ok(());
        }
        if node.frozen {
            let again = Event::Reach {
                node: at,
                life,
                input,
                answers,
            };
            self.event_queue.schedule(50, again);
            return Ok(());
        }
        if answers.is_some() {
            if node.asked != answers {
                return Ok(());
            }
            node.asked = None;
        }
        match &input {
            Input::Registered(number) => node.number = Some(*number),
            Input::Expelled => {
                self.summary.expelled_nodes += 1;
                node.number = None;
            }
            Input::Tick
            | Input::HeartbeatDone(_)
            | Input::Fenced
            | Input::Claimed(_)
            | Input::Released
            | Input::Left
            | Input::Failed
            | Input::RoundTrip(..)
            | Input::RoundTripFailed(_)
            | Input::TooOld
            | Input::RevokeFinished(_)
            | Input::TableChanged
            | Input::Retire => {}
        }
        self.report_round_trips(at, &input)?;
        let node = &self.nodes[at];
        let input = match self.mutation {
            Some(mutation) => {
                mutation.tamper(input, node.number, |holding| node.held.contains(&holding))
            }
            None => input,
        };
        self.handle(at, input)
    }

    fn note_command(&mut self, at: usize, command: &Command) {
        self.note(|| match command {
            Command::Grant(holdings) => format!("node {at}: is granted {}", holdings.len()),
            Command::Release(holdings) => format!("node {at}: Release of {holdings:?}"),
            Command::Claim { own, free } => {
                format!("node {at}: Claim of {} own, {free} free", own.len())
            }
            Command::Register
            | Command::Heartbeat { .. }
            | Command::Fence { .. }
            | Command::Leave
            | Command::SetLease { .. }
            | Command::Revoke(_)
            | Command::CapacityChanged(_)
            | Command::Expire
            | Command::Retired => format!("node {at}: {command:?}"),
        });
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        if self.trace.len() >= 2 * TRACE_LINES {
            self.trace.drain(..TRACE_LINES);
        }
        let line = format!("{:>7} {}", self.event_queue.now_ms(), line());
        self.trace.push(line);
    }
}
