//! Goodput of one endpoint whose receiver fails in part.
//!
//! [`run`] sends a constant rate of events through the dispatcher to a [`PartialReceiver`] without any other fault, and
//! counts what was delivered ([`Goodput`]). The oracle ([`Goodput::check`]) is guarantee K: an endpoint that succeeds for
//! most requests is delivered to at nearly the offered rate, and an overloaded one at nearly its capacity.

use std::sync::Arc;

use posthaste_core::classify::{HttpStatus, Outcome, TransportError};
use posthaste_core::delivery::{Delivery, Status};
use posthaste_core::dispatcher::{
    AttemptEnd, Command, Dispatcher, DispatcherLimits, EndpointChange, EndpointSnapshot, Input,
    Record, Ticket,
};
use posthaste_core::event_queue::EventQueue;
use posthaste_core::id::{DeliveryId, EndpointId, EventId};
use posthaste_core::lane::{EndpointStatus, Health, LaneSettings};
use posthaste_core::rng::Rng;
use posthaste_core::time::{Now, Span, Tick, Timestamp};

use crate::disk::{Disk, EndpointRow, Epoch};

const ENDPOINT: EndpointId = EndpointId(1);
/// The wall-clock time at which a run starts.
const START: Timestamp = Timestamp(1_800_000_000_000);
/// Duration of a write to the disk.
const WRITE_MS: u64 = 2;

/// A receiver that fails in part, or is overloaded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PartialReceiver {
    /// Fails a share of the requests at random, with this status.
    Random {
        /// The share, in percent.
        percent: u32,
        /// The status.
        status: u16,
    },
    /// One replica behind a load balancer refuses connections.
    BrokenReplica {
        /// Number of replicas.
        replicas: u64,
    },
    /// Accepts a number of requests per second, and answers this status above it.
    Capacity {
        /// Requests per second.
        per_second: u64,
        /// The status.
        status: u16,
    },
    /// Handles a number of requests at once. Above it, the latency grows with the square of the load, up to a timeout.
    GrowingLatency {
        /// Number of requests at once.
        workers: u64,
    },
    /// Is up and down in turns, with 503 while it is down.
    Flapping {
        /// Duration of the time up.
        up: Span,
        /// Duration of the time down.
        down: Span,
    },
}

/// Latency of a request to a receiver that is not overloaded.
const LATENCY_MS: u64 = 20;
/// Time limit of a request.
const TIMEOUT_MS: u64 = 5_000;

struct ReceiverState {
    kind: PartialReceiver,
    second: u64,
    taken: u64,
}

impl ReceiverState {
    /// Returns the duration in milliseconds and the outcome of a request. `in_progress` includes it.
    fn answer(&mut self, at_ms: u64, in_progress: u64, rng: &mut Rng) -> (u64, Outcome) {
        match self.kind {
            PartialReceiver::Random { percent, status } => {
                let code = if rng.random_ratio(percent, 100) {
                    status
                } else {
                    200
                };
                (LATENCY_MS, answer(code))
            }
            PartialReceiver::BrokenReplica { replicas } => {
                if rng.between(1, replicas) == 1 {
                    (1, Outcome::Failed(TransportError::Connection))
                } else {
                    (LATENCY_MS, answer(200))
                }
            }
            PartialReceiver::Capacity { per_second, status } => {
                if self.second != at_ms / 1_000 {
                    (self.second, self.taken) = (at_ms / 1_000, 0);
                }
                self.taken += 1;
                let code = if self.taken > per_second { status } else { 200 };
                (LATENCY_MS, answer(code))
            }
            PartialReceiver::GrowingLatency { workers } => {
                let latency_ms = LATENCY_MS * in_progress.div_ceil(workers).pow(2);
                if latency_ms > TIMEOUT_MS {
                    (TIMEOUT_MS, Outcome::Failed(TransportError::Timeout))
                } else {
                    (latency_ms, answer(200))
                }
            }
            PartialReceiver::Flapping { up, down } => {
                let turn = at_ms % up.plus(down).as_millis();
                let code = if turn < up.as_millis() { 200 } else { 503 };
                (LATENCY_MS, answer(code))
            }
        }
    }
}

fn answer(code: u16) -> Outcome {
    Outcome::Answered {
        status: HttpStatus::new(code).expect("the status code is valid"),
        retry_after: None,
    }
}

/// The load of a run.
#[derive(Clone, Debug)]
pub struct Load {
    /// Events per second.
    pub offered_per_second: u64,
    /// Duration for which events are sent.
    pub duration: Span,
    /// Settings of the endpoint.
    pub settings: LaneSettings,
}

/// The outcome of a run, at the end of the time in which events were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Goodput {
    /// Number of events.
    pub offered: u64,
    /// Number of events that were delivered.
    pub delivered: u64,
    /// Number of requests.
    pub requests: u64,
    /// Number of requests that failed.
    pub failed: u64,
    /// Number of times that the breaker tripped.
    pub trips: u64,
    /// Number of deliveries that failed for good.
    pub dead_lettered: u64,
}

impl Goodput {
    /// Returns an error unless at least `least` of what was offered was delivered, or `least` of `capacity` if that is
    /// less than what was offered.
    pub fn check(&self, capacity: Option<u64>, least: f64) -> Result<(), String> {
        let possible = capacity.map_or(self.offered, |capacity| capacity.min(self.offered));
        let share = self.delivered as f64 / possible as f64;
        if share < least {
            return Err(format!("{share:.2} of {possible} delivered: {self:?}"));
        }
        Ok(())
    }

    /// Returns the share of events that were delivered.
    pub fn delivered_share(&self) -> f64 {
        self.delivered as f64 / self.offered.max(1) as f64
    }

    /// Returns the share of requests that failed.
    pub fn failed_share(&self) -> f64 {
        self.failed as f64 / self.requests.max(1) as f64
    }
}

enum Event {
    Accept,
    Answered { ticket: Ticket, outcome: Outcome },
    Write { ticket: Ticket, record: Record },
    Wake,
}

struct Run {
    queue: EventQueue<Event>,
    rng: Rng,
    dispatcher: Dispatcher,
    disk: Disk,
    epoch: Epoch,
    receiver: ReceiverState,
    in_progress: u64,
    wakes_at_ms: Option<u64>,
    goodput: Goodput,
    settings: Arc<LaneSettings>,
}

/// Runs a load against a receiver. The same seed gives the same result.
pub fn run(load: &Load, receiver: PartialReceiver, seed: u64) -> Goodput {
    let mut rng = Rng::seeded(seed);
    let settings = Arc::new(load.settings.clone());
    let mut disk = Disk::default();
    disk.put_endpoint(
        ENDPOINT,
        EndpointRow {
            tenant: "goodput".parse().expect("the tenant name is valid"),
            settings: settings.clone(),
            status: EndpointStatus::Enabled,
            health: Health::default(),
        },
    );
    let epoch = disk.open();
    let mut run = Run {
        queue: EventQueue::default(),
        dispatcher: Dispatcher::new(DispatcherLimits::default(), rng.split()),
        rng,
        disk,
        epoch,
        receiver: ReceiverState {
            kind: receiver,
            second: 0,
            taken: 0,
        },
        in_progress: 0,
        wakes_at_ms: None,
        goodput: Goodput::default(),
        settings,
    };
    run.queue.schedule(0, Event::Accept);
    let end_ms = load.duration.as_millis();
    while let Some(event) = run.queue.advance(end_ms) {
        run.process(event, 1_000 / load.offered_per_second);
    }
    let count = |status| {
        let deliveries = run.disk.deliveries();
        deliveries.filter(|row| row.status() == status).count() as u64
    };
    Goodput {
        delivered: count(Status::Succeeded),
        dead_lettered: count(Status::Failed),
        ..run.goodput
    }
}

impl Run {
    fn now(&self) -> Now {
        let ms = self.queue.now_ms();
        Now {
            wall: START.after(Span::from_millis(ms)),
            tick: Tick(ms),
        }
    }

    fn process(&mut self, event: Event, interval_ms: u64) {
        match event {
            Event::Accept => {
                self.queue.schedule(interval_ms, Event::Accept);
                self.goodput.offered += 1;
                let number = u128::from(self.goodput.offered);
                let delivery = Delivery::schedule(
                    DeliveryId(number),
                    EventId(number),
                    ENDPOINT,
                    None,
                    self.now().wall,
                    self.settings.policy.give_up_after,
                );
                self.disk.accept(delivery.clone());
                self.handle(Input::Accepted(vec![delivery]));
            }
            Event::Answered { ticket, outcome } => {
                self.in_progress -= 1;
                let delivered = outcome.status().is_some_and(|status| status.class() == 2);
                self.goodput.failed += u64::from(!delivered);
                let finish = AttemptEnd::Completed(outcome);
                self.handle(Input::Finished { ticket, finish });
            }
            Event::Write { ticket, record } => {
                self.disk.record(self.epoch, &record);
                self.handle(Input::Recorded { ticket });
            }
            Event::Wake => {
                self.wakes_at_ms = None;
                self.handle(Input::Tick);
            }
        }
    }

    fn handle(&mut self, input: Input) {
        let mut inputs = vec![input];
        let mut commands = Vec::new();
        while let Some(input) = inputs.pop() {
            self.dispatcher.handle(self.now(), input, &mut commands);
            for command in commands.drain(..) {
                self.execute(command, &mut inputs);
            }
        }
        self.set_alarm();
    }

    fn execute(&mut self, command: Command, inputs: &mut Vec<Input>) {
        match command {
            Command::LoadEndpoint(endpoint) => {
                let snapshot: EndpointSnapshot =
                    self.disk.snapshot(endpoint).expect("the endpoint exists");
                inputs.push(Input::EndpointLoaded(snapshot));
            }
            Command::Fetch {
                ticket,
                endpoint,
                due_by,
                limit,
                ordered,
            } => inputs.push(Input::Fetched {
                ticket,
                endpoint,
                fetched: self.disk.fetch(endpoint, due_by, limit, ordered),
            }),
            Command::Send(attempt) => {
                self.goodput.requests += 1;
                self.in_progress += 1;
                let at_ms = self.queue.now_ms();
                let (latency_ms, outcome) =
                    self.receiver.answer(at_ms, self.in_progress, &mut self.rng);
                let ticket = attempt.ticket;
                self.queue
                    .schedule(latency_ms, Event::Answered { ticket, outcome });
            }
            Command::Record { ticket, record } => {
                self.queue
                    .schedule(WRITE_MS, Event::Write { ticket, record });
            }
            Command::CountEnded(endpoint) => {
                let count = |status| {
                    let deliveries = self.disk.deliveries();
                    deliveries.filter(|row| row.status() == status).count() as u64
                };
                inputs.push(Input::EndedCounted {
                    endpoint,
                    succeeded: count(Status::Succeeded),
                    failed: count(Status::Failed),
                });
            }
            Command::Notify(notification) => match notification.change {
                EndpointChange::BreakerTripped(_) => self.goodput.trips += 1,
                EndpointChange::Recovered
                | EndpointChange::DisableWarning(_)
                | EndpointChange::Disabled(_) => {}
            },
            Command::PersistStatus { .. } => {}
            Command::Sweep { .. }
            | Command::TooLateToCancel(_)
            | Command::ReadyToRelease(_)
            | Command::Drained => {
                unreachable!(
                    "the endpoint is neither disabled nor released, and nothing is cancelled"
                )
            }
        }
    }

    fn set_alarm(&mut self) {
        let wake = self.dispatcher.wake();
        let now = self.now();
        let at_wall = wake.wall.map(|wall| now.tick_at(wall));
        let at = [wake.tick, at_wall].into_iter().flatten().min();
        if let Some(Tick(at_ms)) = at
            && self.wakes_at_ms.is_none_or(|planned| at_ms < planned)
        {
            self.wakes_at_ms = Some(at_ms);
            let delay_ms = at_ms.saturating_sub(self.queue.now_ms());
            self.queue.schedule(delay_ms, Event::Wake);
        }
    }
}
