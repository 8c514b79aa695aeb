//! The simulated world of one process: applications, operators, receivers, a disk, and a process that may crash
//! at any moment.
//!
//! A run has two phases. The fault phase has traffic, operator actions and faults. In the recovery phase there
//! are no faults, and every delivery must end in bounded time. Everything is determined by one seed. A run that
//! violates a guarantee is repeated with a trace of its last events; see [`run`] and [`FailedRun`].

mod engine;
mod workload;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use posthaste_core::classify::Outcome;
use posthaste_core::delivery::{DeadReason, Delivery};
use posthaste_core::dispatcher::{Attempt, Dispatcher, DispatcherLimits, Input, Record, Ticket};
use posthaste_core::id::{DeliveryId, EndpointId, EventId, IdGenerator};
use posthaste_core::ingest::Fingerprint;
use posthaste_core::lane::{EndpointStatus, Health};
use posthaste_core::rng::Rng;
use posthaste_core::time::{Now, Tick, Timestamp};

use crate::disk::{Disk, EndpointRow, Epoch};
use crate::guarantee_checker::GuaranteeChecker;
use crate::mutations::Mutation;
use crate::oracle::BrokenGuarantee;
use crate::receiver::SimulatedReceiver;
use crate::scenario::{FAULT_PHASE_MS, RECOVERY_PHASE_MS, SimEndpoint, SimScenario};
use posthaste_core::event_queue::EventQueue;

/// Number of last events that a failure shows.
const TRACE_LINES: usize = 60;
/// Wall clock time at the start of the simulation.
const EPOCH: u64 = 1_800_000_000_000;

/// A run that violated a guarantee.
#[derive(Clone, Debug)]
pub struct FailedRun {
    /// The seed, which reproduces the run exactly.
    pub seed: u64,
    /// The violated guarantee and the observation.
    pub broken: BrokenGuarantee,
    /// Virtual time of the violation.
    pub at_ms: u64,
    /// The last events.
    pub trace: Vec<String>,
}

impl fmt::Display for FailedRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BrokenGuarantee { oracle, detail } = &self.broken;
        for line in &self.trace {
            writeln!(f, "  {line}")?;
        }
        write!(
            f,
            "seed {}: {oracle:?} broken at {} ms: {detail}",
            self.seed, self.at_ms
        )
    }
}

/// Statistics of a run without violations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Number of accepted deliveries.
    pub deliveries: usize,
    /// Number of attempts.
    pub attempts: u64,
    /// Number of process crashes.
    pub crashes: u32,
    /// Number of simulated events.
    pub events: u64,
    /// Virtual time until the last delivery ended.
    pub ended_ms: u64,
}

impl Summary {
    /// Returns the sums of both; the time is the maximum.
    pub fn plus(self, other: Summary) -> Summary {
        Summary {
            deliveries: self.deliveries + other.deliveries,
            attempts: self.attempts + other.attempts,
            crashes: self.crashes + other.crashes,
            events: self.events + other.events,
            ended_ms: self.ended_ms.max(other.ended_ms),
        }
    }
}

/// Runs the simulation of `seed`, with a mutation if one is given.
pub fn run(seed: u64, mutation: Option<Mutation>) -> Result<Summary, Box<FailedRun>> {
    match World::new(seed, mutation, false).run() {
        Ok(summary) => Ok(summary),
        Err(_) => World::new(seed, mutation, true).run(),
    }
}

enum Event {
    Produce,
    Intervene,
    HandOver {
        epoch: Epoch,
        deliveries: Vec<Delivery>,
    },
    Deliver {
        epoch: Epoch,
        input: Input,
    },
    Read {
        epoch: Epoch,
        query: Query,
    },
    Arrive {
        epoch: Epoch,
        attempt: Attempt,
    },
    Reply {
        epoch: Epoch,
        attempt: Attempt,
        outcome: Outcome,
    },
    Write {
        epoch: Epoch,
        ticket: Ticket,
        record: Record,
    },
    Sweep {
        epoch: Epoch,
        ticket: u64,
        endpoint: EndpointId,
        reason: DeadReason,
        except: Vec<DeliveryId>,
    },
    Alarm {
        epoch: Epoch,
    },
    Kill,
    Stop,
    Start,
    JumpClock,
    Heal,
}

#[derive(Clone, Copy)]
struct Query {
    ticket: u64,
    endpoint: EndpointId,
    due_by: Timestamp,
    limit: usize,
    ordered: bool,
}

struct Process {
    epoch: Epoch,
    dispatcher: Dispatcher,
    started_ms: u64,
    alarm_ms: Option<u64>,
    stopping: bool,
}

struct World {
    seed: u64,
    mutation: Option<Mutation>,
    rng: Rng,
    id_generator: IdGenerator,
    scenario: SimScenario,
    event_queue: EventQueue<Event>,
    wall_offset_ms: i64,
    disk: Disk,
    keys: BTreeMap<u64, (EventId, Fingerprint)>,
    receivers: BTreeMap<EndpointId, SimulatedReceiver>,
    process: Option<Process>,
    checker: GuaranteeChecker,
    /// Deliveries whose cancellation was requested and not acknowledged yet.
    cancelling: Vec<DeliveryId>,
    produced: u32,
    burst_left: u64,
    last_hand_over_ms: u64,
    healed: bool,
    summary: Summary,
    trace: Option<VecDeque<String>>,
}

impl World {
    fn new(seed: u64, mutation: Option<Mutation>, traced: bool) -> World {
        let mut rng = Rng::seeded(seed);
        let scenario = SimScenario::draw(&mut rng);
        let mut disk = Disk::default();
        for SimEndpoint {
            endpoint,
            tenant,
            settings,
            ..
        } in &scenario.sites
        {
            let row = EndpointRow {
                tenant: tenant.clone(),
                settings: settings.clone(),
                status: EndpointStatus::Enabled,
                health: Health::default(),
            };
            disk.put_endpoint(*endpoint, row);
        }
        let receivers = scenario.sites.iter();
        let receivers =
            receivers.map(|site| (site.endpoint, SimulatedReceiver::new(site.behaviour)));
        World {
            seed,
            mutation,
            id_generator: IdGenerator::new(rng.split()),
            event_queue: EventQueue::default(),
            wall_offset_ms: 0,
            disk,
            keys: BTreeMap::new(),
            receivers: receivers.collect(),
            process: None,
            checker: GuaranteeChecker::new(&scenario.sites),
            cancelling: Vec::new(),
            produced: 0,
            burst_left: 0,
            last_hand_over_ms: 0,
            healed: false,
            summary: Summary::default(),
            trace: traced.then(VecDeque::new),
            rng,
            scenario,
        }
    }

    fn run(mut self) -> Result<Summary, Box<FailedRun>> {
        self.plan_fault_phase();
        while let Some(event) = self.event_queue.advance(FAULT_PHASE_MS + RECOVERY_PHASE_MS) {
            self.summary.events += 1;
            let wall = self.now().wall;
            self.checker.wall(wall);
            self.process_event(event);
            if self.checker.broken().is_some() {
                return Err(self.failure());
            }
            if self.healed && self.disk.unfinished() == 0 {
                break;
            }
        }
        self.checker.close(&self.disk);
        if self.checker.broken().is_some() {
            return Err(self.failure());
        }
        self.summary.deliveries = self.checker.accepted_count();
        self.summary.attempts = self.checker.send_count();
        self.summary.ended_ms = self.event_queue.now_ms();
        Ok(self.summary)
    }

    fn plan_fault_phase(&mut self) {
        self.event_queue.schedule(0, Event::Start);
        self.event_queue.schedule(1, Event::Produce);
        let faults = self.scenario.faults;
        let planned = [
            (
                self.scenario.interventions,
                (|| Event::Intervene) as fn() -> Event,
            ),
            (faults.kills, || Event::Kill),
            (faults.stops, || Event::Stop),
            (faults.clock_jumps, || Event::JumpClock),
        ];
        for (count, event) in planned {
            for _ in 0..count {
                let at_ms = self.rng.between(0, FAULT_PHASE_MS);
                self.event_queue.schedule(at_ms, event());
            }
        }
        self.event_queue.schedule(FAULT_PHASE_MS, Event::Heal);
    }

    fn process_event(&mut self, event: Event) {
        match event {
            Event::Produce => self.produce(),
            Event::Intervene => self.act_as_operator(),
            Event::HandOver { epoch, deliveries } => self.hand_over(epoch, deliveries),
            Event::Deliver { epoch, input } => self.deliver(epoch, input),
            Event::Read { epoch, query } => self.read(epoch, query),
            Event::Arrive { epoch, attempt } => self.arrive(epoch, attempt),
            Event::Reply {
                epoch,
                attempt,
                outcome,
            } => self.reply(epoch, attempt, outcome),
            Event::Write {
                epoch,
                ticket,
                record,
            } => self.write(epoch, ticket, record),
            Event::Sweep {
                epoch,
                ticket,
                endpoint,
                reason,
                except,
            } => {
                self.sweep(epoch, ticket, endpoint, reason, &except);
            }
            Event::Alarm { epoch } => self.alarm(epoch),
            Event::Kill => self.crash(),
            Event::Stop => self.stop(),
            Event::Start => self.start(),
            Event::JumpClock => self.jump_clock(),
            Event::Heal => self.heal(),
        }
    }

    fn now(&self) -> Now {
        let ms = self.event_queue.now_ms();
        let started_ms = self
            .process
            .as_ref()
            .map_or(0, |process| process.started_ms);
        Now {
            wall: Timestamp((EPOCH + ms).saturating_add_signed(self.wall_offset_ms)),
            tick: Tick(ms - started_ms),
        }
    }

    /// Returns true with a probability of `per_mille`/1,000 during the fault phase.
    fn fault_occurs(&mut self, per_mille: u32) -> bool {
        !self.healed && per_mille > 0 && self.rng.random_ratio(per_mille, 1_000)
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        let at_ms = self.event_queue.now_ms();
        if let Some(trace) = &mut self.trace {
            if trace.len() >= TRACE_LINES {
                trace.pop_front();
            }
            trace.push_back(format!("{at_ms:>10} ms  {}", line()));
        }
    }

    fn failure(&self) -> Box<FailedRun> {
        Box::new(FailedRun {
            seed: self.seed,
            broken: self.checker.broken().expect("an oracle has failed").clone(),
            at_ms: self.event_queue.now_ms(),
            trace: self.trace.iter().flatten().cloned().collect(),
        })
    }

    fn start(&mut self) {
        if self.process.is_some() {
            return;
        }
        let epoch = self.disk.open();
        let limits = DispatcherLimits {
            max_in_flight: self.scenario.max_flights,
            ready_per_lane: self.scenario.ready_per_lane,
        };
        self.process = Some(Process {
            epoch,
            dispatcher: Dispatcher::new(limits, self.rng.split()),
            started_ms: self.event_queue.now_ms(),
            alarm_ms: None,
            stopping: false,
        });
        self.note(|| format!("process {} starts", epoch.0));
        let (at_ms, wall) = (self.event_queue.now_ms(), self.now().wall);
        self.checker.restarted(&self.disk, at_ms, wall);
        self.checker.settled_at(self.event_queue.now_ms() + 2_000);
        for (endpoint, due) in self.disk.unfinished_work() {
            let forgotten = self.mutation == Some(Mutation::ForgetsAfterRestart)
                && endpoint.0.is_multiple_of(2);
            if !forgotten {
                self.deliver(epoch, Input::Work { endpoint, due });
            }
        }
    }

    fn crash(&mut self) {
        let Some(process) = self.process.take() else {
            return;
        };
        self.note(|| format!("process {} dies", process.epoch.0));
        self.summary.crashes += 1;
        self.checker.crashed();
        self.end_process();
    }

    /// Schedules the next start after a process has ended for any reason.
    fn end_process(&mut self) {
        self.cancelling.clear();
        // Sometimes the next process crashes soon after its start.
        if !self.healed && self.rng.random_ratio(1, 5) {
            let again_ms = self.rng.between(1, 2_000);
            self.event_queue.schedule(again_ms, Event::Start);
            self.event_queue
                .schedule(again_ms + self.rng.between(0, 200), Event::Kill);
        } else {
            let after_ms = self.rng.between(1, 30_000);
            self.event_queue.schedule(after_ms, Event::Start);
        }
    }

    fn stop(&mut self) {
        if let Some(process) = &mut self.process {
            process.stopping = true;
            let epoch = process.epoch;
            self.note(|| format!("process {} is asked to stop", epoch.0));
            self.checker.disturbed(u64::MAX);
            if self.mutation == Some(Mutation::DrainsTooSoon) {
                self.drained();
            } else {
                self.deliver(epoch, Input::Shutdown);
            }
        }
    }

    fn jump_clock(&mut self) {
        const DAY_MS: i64 = 24 * 60 * 60 * 1_000;
        let by_ms = self.rng.between(0, 2 * DAY_MS as u64) as i64 - DAY_MS;
        self.wall_offset_ms += by_ms;
        self.checker.clock_jumped();
        self.note(|| format!("the wall clock jumps by {by_ms} ms"));
        // The engine reads the clock at least once a second.
        if let Some(process) = &self.process {
            let (epoch, input) = (process.epoch, Input::Tick);
            let delay_ms = self.rng.between(0, 1_000);
            self.event_queue
                .schedule(delay_ms, Event::Deliver { epoch, input });
        }
    }

    fn heal(&mut self) {
        self.note(|| "the world is well".to_owned());
        self.healed = true;
        for receiver in self.receivers.values_mut() {
            receiver.heal();
        }
        if self.process.is_none() {
            self.start();
        }
        self.resume_everything();
    }
}
