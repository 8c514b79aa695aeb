//! Simulation of the nodes' clocks: every node corrects its clock by that of the database.
//!
//! Monotonic clocks of nodes run too fast or too slow, wall clocks of nodes show anything, and the clock of the database
//! drifts and jumps by up to an hour in either direction. Answers are slow or lost, nodes start and stop. All the while
//! nodes accept deliveries with a due time, and any other node must find them due in time ([`ClockOracle`]).
//! Each [`ClockMutation`] is a bug that an oracle must detect.

use std::fmt;

use posthaste_core::event_queue::EventQueue;
use posthaste_core::rng::Rng;
use posthaste_core::time::{ClockReading, ClockSync, CorrectedTime, StoredClock, Tick, Timestamp};

/// Duration of a run, in milliseconds.
const RUN_MS: u64 = 600_000;
/// The real time at the start of a run.
const EPOCH_MS: u64 = 1_800_000_000_000;
const HOUR_MS: u64 = 3_600_000;
/// Interval between two heartbeats.
const BEAT_MS: u64 = 1_000;
/// An answer that takes longer than this is lost.
const ANSWER_TIMEOUT_MS: u64 = 2_000;
/// Maximum delay of a message each way, on a link that is slow at that moment.
const SLOW_MS: u64 = 600;
/// The same otherwise.
const FAST_MS: u64 = 20;
/// Maximum time for which a node is cut off. Past its lease it owns nothing.
const CUT_OFF_MS: u64 = 6_000;
/// Smallest jump of the database's clock. Smaller ones are drift.
const MIN_JUMP_MS: u64 = 1_500;
/// Maximum waiting time of a delivery.
const MAX_WAIT_MS: u64 = 60_000;
/// Maximum lateness: two heartbeats over a slow link, and the drift of a node that was cut off.
const MAX_LATENESS_MS: u64 = 3_500;
/// A delivery may wait longer by one part in this number while the nodes' time is ahead of the database's.
const SLOWER_PART: u64 = 18;
/// Maximum difference of two nodes' times that have both read the clock over a fast link within [`RECENT_MS`]: a lead shrinks by
/// 50 ms per second meanwhile, and a node that had slow answers only may have been ahead by half of what they took.
const MAX_DISAGREEMENT_MS: u64 = 400;
const RECENT_MS: u64 = 3_000;
/// Time after the start of a node, a cut-off, a jump or a change of the lead in which its time may differ.
const SETTLE_MS: u64 = 6_000;
const MAX_NODES: usize = 5;

/// A guarantee about the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockOracle {
    /// A delivery that one node accepts is due for every other node in time.
    OnTime,
    /// Nodes agree on the time.
    Agreement,
}

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockMutation {
    /// Nodes use their own wall clocks.
    TrustsOwnClock,
    /// Nodes follow a database whose clock is set back.
    FollowsBack,
    /// The lead is not stored.
    StoresNothing,
    /// The answer counts as the present time, however long it took.
    IgnoresRoundTrip,
}

impl ClockMutation {
    /// Every mutation, with an oracle that must detect it.
    pub const ALL: [(ClockMutation, ClockOracle); 4] = [
        (ClockMutation::TrustsOwnClock, ClockOracle::OnTime),
        (ClockMutation::FollowsBack, ClockOracle::OnTime),
        (ClockMutation::StoresNothing, ClockOracle::Agreement),
        (ClockMutation::IgnoresRoundTrip, ClockOracle::Agreement),
    ];
}

/// A run that violated a guarantee.
#[derive(Clone, Debug)]
pub struct ClockFailure {
    /// The seed, which reproduces the run exactly.
    pub seed: u64,
    /// The violated guarantee.
    pub oracle: ClockOracle,
    /// The observation.
    pub detail: String,
}

impl fmt::Display for ClockFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: {:?}: {}", self.seed, self.oracle, self.detail)
    }
}

/// Statistics of a run without violations.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClockSummary {
    /// Number of jumps of the database's clock.
    pub jumps: u64,
    /// Number of deliveries that were found due in time.
    pub on_time: u64,
    /// Number of comparisons of two nodes.
    pub comparisons: u64,
    /// Number of answers that were lost.
    pub lost: u64,
}

/// Runs one simulation.
pub fn run_clocks(
    seed: u64,
    mutation: Option<ClockMutation>,
) -> Result<ClockSummary, ClockFailure> {
    let mut world = World::new(seed, mutation);
    match world.run() {
        Ok(()) => Ok(world.summary),
        Err((oracle, detail)) => Err(ClockFailure {
            seed,
            oracle,
            detail,
        }),
    }
}

type CheckResult = Result<(), (ClockOracle, String)>;

#[derive(Clone, Debug)]
enum Event {
    /// A node sends a heartbeat.
    Beat { node: u64 },
    /// The database executes a heartbeat.
    Execute {
        node: u64,
        sent: Tick,
        to_store: Option<(StoredClock, StoredClock)>,
        back_ms: u64,
    },
    /// An answer arrives.
    Answer {
        node: u64,
        sent: Tick,
        reference: Timestamp,
        stored: StoredClock,
    },
    /// The clock of the database jumps.
    Jump,
    /// A node starts, stops or is cut off.
    Fault,
    /// A node accepts a delivery.
    Accept,
    /// A delivery must be due for every node.
    CheckDue { due_at: Timestamp, accepted_by: u64 },
    /// The nodes' times are compared.
    Compare,
}

struct Node {
    id: u64,
    started_at_ms: u64,
    /// Speed of the monotonic clock, in parts per million.
    ppm: i64,
    /// Error of the wall clock, which only a mutation uses.
    own_offset_ms: i64,
    sync: ClockSync,
    time: Option<CorrectedTime>,
    to_store: Option<(StoredClock, StoredClock)>,
    cut_off_until_ms: u64,
    /// Time since which the node has read the clock without a long gap.
    settled_since_ms: u64,
    last_answer_ms: u64,
    last_fast_answer_ms: u64,
}

impl Node {
    fn tick(&self, now_ms: u64) -> Tick {
        let passed = (now_ms - self.started_at_ms) as i64;
        Tick((passed + passed * self.ppm / 1_000_000) as u64)
    }
}

struct World {
    rng: Rng,
    events: EventQueue<Event>,
    nodes: Vec<Node>,
    started: u64,
    /// Error of the database's clock.
    reference_offset_ms: i64,
    reference_ppm: i64,
    /// Time of the last jump of the database's clock, or of the last change of the lead.
    last_jump_ms: u64,
    stored: StoredClock,
    mutation: Option<ClockMutation>,
    summary: ClockSummary,
}

impl World {
    fn new(seed: u64, mutation: Option<ClockMutation>) -> World {
        let mut rng = Rng::seeded(seed);
        let reference_ppm = rng.between(0, 200) as i64 - 100;
        World {
            rng,
            events: EventQueue::default(),
            nodes: Vec::new(),
            started: 0,
            reference_offset_ms: 0,
            reference_ppm,
            last_jump_ms: 0,
            stored: StoredClock::default(),
            mutation,
            summary: ClockSummary::default(),
        }
    }

    fn run(&mut self) -> CheckResult {
        for _ in 0..2 {
            self.start_node();
        }
        for event in [Event::Jump, Event::Fault, Event::Accept, Event::Compare] {
            self.events.schedule(SETTLE_MS, event);
        }
        while let Some(event) = self.events.advance(RUN_MS) {
            self.happen(event)?;
        }
        Ok(())
    }

    fn start_node(&mut self) {
        self.started += 1;
        let now_ms = self.events.now_ms();
        self.nodes.push(Node {
            id: self.started,
            started_at_ms: now_ms,
            ppm: self.rng.between(0, 1_000) as i64 - 500,
            own_offset_ms: self.rng.between(0, 2 * HOUR_MS) as i64 - HOUR_MS as i64,
            sync: ClockSync::default(),
            time: None,
            to_store: None,
            cut_off_until_ms: 0,
            settled_since_ms: now_ms,
            last_answer_ms: 0,
            last_fast_answer_ms: 0,
        });
        self.events.schedule(0, Event::Beat { node: self.started });
    }

    fn happen(&mut self, event: Event) -> CheckResult {
        match event {
            Event::Beat { node } => self.beat(node),
            Event::Execute {
                node,
                sent,
                to_store,
                back_ms,
            } => self.execute(node, sent, to_store, back_ms),
            Event::Answer {
                node,
                sent,
                reference,
                stored,
            } => self.answer(node, sent, reference, stored),
            Event::Jump => self.jump(),
            Event::Fault => self.inject_fault(),
            Event::Accept => self.accept(),
            Event::CheckDue {
                due_at,
                accepted_by,
            } => return self.check_due(due_at, accepted_by),
            Event::Compare => return self.compare(),
        }
        Ok(())
    }

    fn node(&mut self, id: u64) -> Option<&mut Node> {
        self.nodes.iter_mut().find(|node| node.id == id)
    }

    fn delay_ms(&mut self) -> u64 {
        let most = match self.rng.random_ratio(1, 6) {
            true => SLOW_MS,
            false => FAST_MS,
        };
        self.rng.between(0, most)
    }

    fn beat(&mut self, id: u64) {
        let now_ms = self.events.now_ms();
        let (there_ms, back_ms) = (self.delay_ms(), self.delay_ms());
        let Some(node) = self.node(id) else {
            return;
        };
        let execute = Event::Execute {
            node: id,
            sent: node.tick(now_ms),
            to_store: node.to_store,
            back_ms,
        };
        self.events.schedule(there_ms, execute);
    }

    fn reference(&self) -> Timestamp {
        let now_ms = self.events.now_ms() as i64;
        let drift_ms = now_ms * self.reference_ppm / 1_000_000;
        let error_ms = self.reference_offset_ms + drift_ms;
        Timestamp((EPOCH_MS + self.events.now_ms()).saturating_add_signed(error_ms))
    }

    fn execute(
        &mut self,
        id: u64,
        sent: Tick,
        to_store: Option<(StoredClock, StoredClock)>,
        back_ms: u64,
    ) {
        let answer = Event::Answer {
            node: id,
            sent,
            reference: self.reference(),
            stored: self.stored,
        };
        // A statement does not see what it has changed itself.
        if let Some((found, new)) = to_store
            && found.lead_until == self.stored.lead_until
            && self.mutation != Some(ClockMutation::StoresNothing)
        {
            if new.lead_until != self.stored.lead_until {
                self.last_jump_ms = self.events.now_ms();
            }
            self.stored = new;
        }
        self.events.schedule(back_ms, answer);
    }

    fn answer(&mut self, id: u64, sent: Tick, reference: Timestamp, stored: StoredClock) {
        let now_ms = self.events.now_ms();
        let mutation = self.mutation;
        let Some(node) = self.node(id) else {
            return;
        };
        let received = node.tick(now_ms);
        let took_ms = received.since(sent).as_millis();
        // One request at a time.
        let next_ms = BEAT_MS.saturating_sub(took_ms);
        self.events.schedule(next_ms, Event::Beat { node: id });
        let Some(node) = self.node(id) else {
            return;
        };
        if node.cut_off_until_ms > now_ms || took_ms > ANSWER_TIMEOUT_MS {
            self.summary.lost += 1;
            return;
        }
        let mut reading = ClockReading {
            sent,
            received,
            reference,
        };
        let mut stored = stored;
        match mutation {
            Some(ClockMutation::IgnoresRoundTrip) => reading.sent = received,
            Some(ClockMutation::FollowsBack) => {
                node.sync = ClockSync::default();
                stored = StoredClock::default();
            }
            Some(ClockMutation::TrustsOwnClock | ClockMutation::StoresNothing) | None => {}
        }
        let update = node.sync.handle(reading, stored);
        node.to_store = update.store.map(|new| (stored, new));
        node.time = Some(match mutation {
            Some(ClockMutation::TrustsOwnClock) => {
                let start = EPOCH_MS + node.started_at_ms;
                CorrectedTime {
                    at_start: Timestamp(start.saturating_add_signed(node.own_offset_ms)),
                    ..update.time
                }
            }
            Some(
                ClockMutation::FollowsBack
                | ClockMutation::StoresNothing
                | ClockMutation::IgnoresRoundTrip,
            )
            | None => update.time,
        });
        if now_ms - node.last_answer_ms > ANSWER_TIMEOUT_MS + BEAT_MS {
            node.settled_since_ms = now_ms;
        }
        node.last_answer_ms = now_ms;
        if took_ms <= 2 * FAST_MS {
            node.last_fast_answer_ms = now_ms;
        }
    }

    fn jump(&mut self) {
        let size_ms = match self.rng.random_ratio(1, 2) {
            true => self.rng.between(MIN_JUMP_MS, 20_000),
            false => self.rng.between(MIN_JUMP_MS, HOUR_MS),
        } as i64;
        let sign = if self.rng.random_ratio(1, 2) { 1 } else { -1 };
        self.reference_offset_ms += sign * size_ms;
        self.last_jump_ms = self.events.now_ms();
        self.summary.jumps += 1;
        let next_ms = self.rng.between(1_000, 60_000);
        self.events.schedule(next_ms, Event::Jump);
    }

    fn inject_fault(&mut self) {
        let now_ms = self.events.now_ms();
        let at = self.rng.between(0, self.nodes.len() as u64 - 1) as usize;
        match self.rng.between(0, 3) {
            0 if self.nodes.len() < MAX_NODES => self.start_node(),
            // One node that knows the time stays.
            1 if self.nodes.len() > 2 && at > 0 => {
                self.nodes.remove(at);
            }
            _ if at > 0 => {
                let for_ms = self.rng.between(1_000, CUT_OFF_MS);
                self.nodes[at].cut_off_until_ms = now_ms + for_ms;
            }
            _ => {}
        }
        let next_ms = self.rng.between(1_000, 20_000);
        self.events.schedule(next_ms, Event::Fault);
    }

    /// Returns true for a node that has read the clock regularly for some time. It can own shards.
    fn is_settled(&self, node: &Node) -> bool {
        let now_ms = self.events.now_ms();
        node.time.is_some()
            && now_ms - node.last_answer_ms <= ANSWER_TIMEOUT_MS + BEAT_MS
            && now_ms - node.settled_since_ms >= SETTLE_MS
    }

    /// Returns the time of each settled node.
    fn times(&self) -> Vec<(&Node, Timestamp)> {
        let now_ms = self.events.now_ms();
        let settled = self.nodes.iter().filter(|node| self.is_settled(node));
        let with_time = settled.filter_map(|node| {
            let time = node.time?;
            Some((node, time.at(node.tick(now_ms))))
        });
        with_time.collect()
    }

    fn accept(&mut self) {
        let wait_ms = match self.rng.random_ratio(1, 3) {
            true => 0,
            false => self.rng.between(0, MAX_WAIT_MS),
        };
        let number = self.rng.bits() as usize;
        let times = self.times();
        let accepted = (!times.is_empty()).then(|| times[number % times.len()]);
        let accepted = accepted.map(|(node, now)| Event::CheckDue {
            due_at: Timestamp(now.0 + wait_ms),
            accepted_by: node.id,
        });
        if let Some(check) = accepted {
            let latest_ms = wait_ms + wait_ms / SLOWER_PART + MAX_LATENESS_MS;
            self.events.schedule(latest_ms, check);
        }
        self.events.schedule(200, Event::Accept);
    }

    fn check_due(&mut self, due_at: Timestamp, accepted_by: u64) -> CheckResult {
        let late = self.times().into_iter().find(|(_, now)| *now < due_at);
        if let Some((node, now)) = late {
            let detail = format!(
                "at {} ms, node {} has {} ms to wait for a delivery of node {accepted_by}",
                self.events.now_ms(),
                node.id,
                due_at.0 - now.0
            );
            return Err((ClockOracle::OnTime, detail));
        }
        self.summary.on_time += 1;
        Ok(())
    }

    fn compare(&mut self) -> CheckResult {
        self.events.schedule(500, Event::Compare);
        let now_ms = self.events.now_ms();
        if now_ms - self.last_jump_ms < SETTLE_MS {
            return Ok(());
        }
        let since_ms = self.last_jump_ms.max(now_ms - RECENT_MS);
        let mut times = self.times();
        times.retain(|(node, _)| node.last_fast_answer_ms > since_ms);
        let earliest = times.iter().min_by_key(|(_, now)| *now);
        let latest = times.iter().max_by_key(|(_, now)| *now);
        if let (Some((slow, earliest)), Some((fast, latest))) = (earliest, latest)
            && latest.since(*earliest).as_millis() > MAX_DISAGREEMENT_MS
        {
            let detail = format!(
                "at {now_ms} ms, node {} is {} ms ahead of node {}",
                fast.id,
                latest.0 - earliest.0,
                slow.id
            );
            return Err((ClockOracle::Agreement, detail));
        }
        self.summary.comparisons += times.len().saturating_sub(1) as u64;
        Ok(())
    }
}
