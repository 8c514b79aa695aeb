//! Forecasts the course of an outage of one endpoint, for `posthaste policy simulate` and the retry lab.
//!
//! [`forecast`] runs the real dispatcher, lane and retry policy through the outage in virtual time. For comparison
//! it also simulates a naive sender, which sends everything again every minute, all at once. The receiver refuses
//! every connection during the outage. Afterwards it accepts a limited number of requests per second and
//! answers 503 to the others.

use std::collections::BTreeMap;
use std::sync::Arc;

use self::delivery_table::DeliveryTable;
use crate::classify::{HttpStatus, Outcome, TransportError};
use crate::delivery::{Delivery, State};
use crate::dispatcher::{
    Attempt, AttemptEnd, Command, Dispatcher, DispatcherLimits, EndpointSnapshot, Input, Record,
    Ticket,
};
use crate::event_queue::EventQueue;
use crate::id::{DeliveryId, EndpointId, EventId};
use crate::lane::{EndpointStatus, Health, LaneSettings, RateLimit};
use crate::policy::{Preset, RetryPolicy};
use crate::rng::Rng;
use crate::time::{Now, Span, Tick, Timestamp};

mod delivery_table;

/// Maximum number of deliveries of a scenario.
pub const MAX_PENDING: u32 = 1_000_000;
/// Maximum duration of an outage.
pub const MAX_OUTAGE: Span = Span::from_days(30);
/// Retry interval of the naive sender.
pub const NAIVE_INTERVAL: Span = Span::from_secs(60);
/// Time after which the naive sender stops retrying.
pub const NAIVE_GIVES_UP_AFTER: Span = Span::from_hours(72);

/// Time until a connection is refused during the outage.
const CONNECTION_ERROR_MS: u64 = 5;
/// Response time after the outage.
const ANSWER_MS: u64 = 20;
/// Time until a result is persisted.
const WRITE_MS: u64 = 1;
/// Wall-clock time at the start of a simulation. Not 0, so that arithmetic errors become visible.
const EPOCH: Timestamp = Timestamp(1_800_000_000_000);
const ENDPOINT: EndpointId = EndpointId(1);

/// The parameters of an outage simulation.
#[derive(Clone, Debug)]
pub struct OutageScenario {
    /// The endpoint's retry policy.
    pub policy: RetryPolicy,
    /// Number of deliveries that are due when the outage begins.
    pub pending: u32,
    /// Duration of the outage.
    pub outage: Span,
    /// Number of requests per second that the receiver accepts after the outage.
    pub capacity_per_second: f64,
    /// In-flight limit of the endpoint.
    pub max_in_flight: u32,
    /// Rate limit of the endpoint.
    pub rate: RateLimit,
    /// Seed of the RNG.
    pub seed: u64,
}

impl OutageScenario {
    /// Creates a scenario with the recommended policy, the default rate limit, 10 requests in flight, and a receiver
    /// that accepts 50 requests per second.
    pub fn with_defaults(pending: u32, outage: Span) -> OutageScenario {
        OutageScenario {
            policy: Preset::Recommended.policy(),
            pending,
            outage,
            capacity_per_second: 50.0,
            max_in_flight: 10,
            rate: RateLimit::default(),
            seed: 1,
        }
    }
}

/// The course of one simulation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SenderOutcome {
    /// Number of requests.
    pub attempts: u64,
    /// Number of successful deliveries.
    pub delivered: u64,
    /// Number of dead-lettered deliveries.
    pub dead_lettered: u64,
    /// Number of dead letters by the name of the reason. Empty for the naive sender, which has no reasons.
    pub dead_letter_reasons: BTreeMap<&'static str, u64>,
    /// Maximum number of requests in any second after the outage.
    pub peak_per_second: u64,
    /// Time from the beginning of the outage until the last delivery ended.
    pub drained_ms: u64,
    /// Requests by second, for seconds that had any.
    pub arrivals: BTreeMap<u64, Arrivals>,
}

/// The requests of one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrivals {
    /// Number of requests.
    pub total: u64,
    /// Number of failed requests.
    pub failed: u64,
}

/// Both simulations.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    /// With posthaste.
    pub posthaste: SenderOutcome,
    /// With a naive sender.
    pub naive: SenderOutcome,
}

/// Runs both simulations.
pub fn forecast(scenario: &OutageScenario) -> Forecast {
    Forecast {
        posthaste: OutageSimulation::new(scenario).run(),
        naive: naive(scenario),
    }
}

impl SenderOutcome {
    fn count(&mut self, at_ms: u64, requests: u64, failed: u64, outage: Span) {
        self.attempts += requests;
        let second = self.arrivals.entry(at_ms / 1_000).or_default();
        second.total += requests;
        second.failed += failed;
        if at_ms >= outage.as_millis() {
            self.peak_per_second = self.peak_per_second.max(second.total);
        }
    }
}

/// The simulated receiver with its capacity per second.
struct ReceiverCapacity {
    outage_ms: u64,
    per_second: f64,
    second: u64,
    taken: u64,
}

impl ReceiverCapacity {
    fn new(scenario: &OutageScenario) -> ReceiverCapacity {
        ReceiverCapacity {
            outage_ms: scenario.outage.as_millis(),
            per_second: scenario.capacity_per_second,
            second: 0,
            taken: 0,
        }
    }

    /// Returns the number of `requests` that it accepts at this time; `None` during the outage.
    fn take(&mut self, at_ms: u64, requests: u64) -> Option<u64> {
        if at_ms < self.outage_ms {
            return None;
        }
        if self.second != at_ms / 1_000 {
            self.second = at_ms / 1_000;
            self.taken = 0;
        }
        let taken = requests.min(self.capacity().saturating_sub(self.taken));
        self.taken += taken;
        Some(taken)
    }

    /// Returns the capacity of the current second. If the rate is a fraction, some seconds have one more.
    fn capacity(&self) -> u64 {
        let until = |second: u64| (second as f64 * self.per_second).floor() as u64;
        until(self.second + 1) - until(self.second)
    }
}

fn naive(scenario: &OutageScenario) -> SenderOutcome {
    let mut course = SenderOutcome::default();
    let mut receiver = ReceiverCapacity::new(scenario);
    let mut left = u64::from(scenario.pending);
    let waves = NAIVE_GIVES_UP_AFTER.as_millis() / NAIVE_INTERVAL.as_millis();
    for wave in 0..=waves {
        if left == 0 {
            break;
        }
        let at_ms = wave * NAIVE_INTERVAL.as_millis();
        let taken = receiver.take(at_ms, left).unwrap_or(0);
        course.count(at_ms, left, left - taken, scenario.outage);
        course.delivered += taken;
        left -= taken;
        course.drained_ms = at_ms;
    }
    course.dead_lettered = left;
    course
}

enum Event {
    Answered { ticket: Ticket, outcome: Outcome },
    Written { ticket: Ticket, record: Record },
    Wake,
}

struct OutageSimulation<'a> {
    scenario: &'a OutageScenario,
    events: EventQueue<Event>,
    dispatcher: Dispatcher,
    endpoint: EndpointSnapshot,
    table: DeliveryTable,
    receiver: ReceiverCapacity,
    course: SenderOutcome,
    wakes_at_ms: Option<u64>,
}

impl<'a> OutageSimulation<'a> {
    fn new(scenario: &'a OutageScenario) -> OutageSimulation<'a> {
        assert!(scenario.pending <= MAX_PENDING && scenario.outage <= MAX_OUTAGE);
        let settings = LaneSettings {
            policy: scenario.policy.clone(),
            max_in_flight: scenario.max_in_flight,
            rate: scenario.rate,
            ..LaneSettings::default()
        };
        let deliveries = (1..=u128::from(scenario.pending)).map(|number| {
            Delivery::schedule(
                DeliveryId(number),
                EventId(number),
                ENDPOINT,
                None,
                EPOCH,
                scenario.policy.give_up_after,
            )
        });
        OutageSimulation {
            scenario,
            events: EventQueue::default(),
            dispatcher: Dispatcher::new(DispatcherLimits::default(), Rng::seeded(scenario.seed)),
            endpoint: EndpointSnapshot {
                endpoint: ENDPOINT,
                tenant: "simulated"
                    .parse()
                    .expect("\"simulated\" is a valid tenant id"),
                settings: Arc::new(settings),
                status: EndpointStatus::Enabled,
                health: Health::default(),
                owned_since: Tick::START,
            },
            table: deliveries.collect(),
            receiver: ReceiverCapacity::new(scenario),
            course: SenderOutcome::default(),
            wakes_at_ms: None,
        }
    }

    fn run(mut self) -> SenderOutcome {
        if self.scenario.pending > 0 {
            self.handle(Input::Work {
                endpoint: ENDPOINT,
                due: EPOCH,
            });
        }
        while self.table.unfinished() > 0 {
            let event = self.events.advance(u64::MAX);
            match event.expect("something is planned while a delivery is unfinished") {
                Event::Answered { ticket, outcome } => self.handle(Input::Finished {
                    ticket,
                    finish: AttemptEnd::Completed(outcome),
                }),
                Event::Written { ticket, record } => {
                    self.table.record(&record);
                    if let Record::Attempt(attempt) = &record
                        && let Some(health) = &attempt.health
                    {
                        self.endpoint.health.update(health);
                    }
                    self.course.drained_ms = self.events.now_ms();
                    self.handle(Input::Recorded { ticket });
                }
                Event::Wake => {
                    self.wakes_at_ms = None;
                    self.handle(Input::Tick);
                }
            }
        }
        for delivery in self.table.deliveries() {
            match delivery.state() {
                State::Succeeded { .. } => self.course.delivered += 1,
                State::Failed { reason, .. } => {
                    self.course.dead_lettered += 1;
                    let count = self.course.dead_letter_reasons.entry(reason.name());
                    *count.or_default() += 1;
                }
                State::Pending(_)
                | State::Retrying(_)
                | State::Held(_)
                | State::InProgress { .. }
                | State::Cancelled { .. } => unreachable!("every delivery has ended"),
            }
        }
        self.course
    }

    fn now(&self) -> Now {
        let ms = self.events.now_ms();
        Now {
            wall: EPOCH.after(Span::from_millis(ms)),
            tick: Tick(ms),
        }
    }

    /// Passes an input to the dispatcher and executes its commands.
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
            Command::LoadEndpoint(_) => inputs.push(Input::EndpointLoaded(self.endpoint.clone())),
            Command::Fetch {
                ticket,
                endpoint,
                due_by,
                limit,
                ordered: _,
            } => inputs.push(Input::Fetched {
                ticket,
                endpoint,
                fetched: self.table.fetch(due_by, limit),
            }),
            Command::Send(attempt) => self.send(attempt),
            Command::Record { ticket, record } => {
                self.events
                    .schedule(WRITE_MS, Event::Written { ticket, record });
            }
            Command::Sweep {
                ticket,
                endpoint,
                reason: _,
                except,
            } => {
                self.table.disable(&except, self.now().wall);
                inputs.push(Input::Swept { ticket, endpoint });
            }
            Command::Notify(_) | Command::PersistStatus { .. } | Command::CountEnded(_) => {}
            Command::TooLateToCancel(_) | Command::ReadyToRelease(_) | Command::Drained => {
                unreachable!(
                    "a forecast neither cancels deliveries, nor loses ownership, nor shuts down"
                )
            }
        }
    }

    fn send(&mut self, attempt: Attempt) {
        let at_ms = self.events.now_ms();
        let taken = self.receiver.take(at_ms, 1);
        let (delay_ms, outcome) = match taken {
            None => (
                CONNECTION_ERROR_MS,
                Outcome::Failed(TransportError::Connection),
            ),
            Some(0) => (ANSWER_MS, answer(503)),
            Some(_) => (ANSWER_MS, answer(200)),
        };
        let failed = u64::from(taken != Some(1));
        self.course.count(at_ms, 1, failed, self.scenario.outage);
        let ticket = attempt.ticket;
        self.events
            .schedule(delay_ms, Event::Answered { ticket, outcome });
    }

    fn set_alarm(&mut self) {
        let now = self.now();
        let wake = self.dispatcher.wake();
        let by_wall = wake.wall.map(|at| now.tick_at(at));
        let wanted = match (wake.tick, by_wall) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        if let Some(Tick(at_ms)) = wanted
            && self.wakes_at_ms.is_none_or(|planned| at_ms < planned)
        {
            self.wakes_at_ms = Some(at_ms);
            let delay_ms = at_ms.saturating_sub(self.events.now_ms());
            self.events.schedule(delay_ms, Event::Wake);
        }
    }
}

fn answer(code: u16) -> Outcome {
    Outcome::Answered {
        status: HttpStatus::new(code).expect("a status"),
        retry_after: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(pending: u32, outage: Span) -> OutageScenario {
        OutageScenario {
            policy: Preset::Recommended.policy(),
            pending,
            outage,
            capacity_per_second: 50.0,
            max_in_flight: 10,
            rate: RateLimit {
                per_second: 50.0,
                burst: 100,
            },
            seed: 1,
        }
    }

    #[test]
    fn a_short_outage_loses_nothing_and_makes_no_herd() {
        let Forecast { posthaste, naive } = forecast(&scenario(10_000, Span::from_mins(30)));
        assert_eq!(posthaste.delivered + posthaste.dead_lettered, 10_000);
        assert_eq!(posthaste.dead_lettered, 0);
        assert!(
            posthaste.peak_per_second <= 51,
            "{}",
            posthaste.peak_per_second
        );
        assert_eq!(naive.peak_per_second, 10_000);
        assert!(posthaste.attempts < naive.attempts / 10);
        assert!(posthaste.drained_ms < naive.drained_ms);
    }

    #[test]
    fn a_receiver_that_takes_less_than_the_limit_is_not_overrun() {
        let mut slow = scenario(2_000, Span::from_mins(10));
        slow.capacity_per_second = 10.0;
        let posthaste = forecast(&slow).posthaste;
        assert_eq!(posthaste.delivered, 2_000);
        // The in-flight window is increased from time to time as a test: at most one refused attempt in five.
        assert!(
            posthaste.attempts <= 2_500,
            "{} attempts",
            posthaste.attempts
        );
        assert!(
            posthaste.peak_per_second <= 20,
            "{} in a second",
            posthaste.peak_per_second
        );
    }

    #[test]
    fn a_capacity_may_be_a_fraction() {
        let mut slow = scenario(60, Span::ZERO);
        slow.capacity_per_second = 0.5;
        slow.rate = RateLimit {
            per_second: 0.4,
            burst: 1,
        };
        let posthaste = forecast(&slow).posthaste;
        assert_eq!(posthaste.delivered, 60);
        assert!(
            posthaste.drained_ms >= 118_000,
            "{} ms",
            posthaste.drained_ms
        );
    }

    #[test]
    fn the_same_seed_plays_the_same() {
        let scenario = scenario(500, Span::from_mins(5));
        assert_eq!(forecast(&scenario), forecast(&scenario));
    }

    #[test]
    fn an_outage_beyond_the_policy_ends_in_dead_letters() {
        let mut scenario = scenario(30, Span::from_days(4));
        scenario.policy = Preset::Brisk.policy();
        let posthaste = forecast(&scenario).posthaste;
        assert_eq!(posthaste.delivered + posthaste.dead_lettered, 30);
        assert!(posthaste.dead_lettered > 0);
        let reasons: u64 = posthaste.dead_letter_reasons.values().sum();
        assert_eq!(reasons, posthaste.dead_lettered);
    }

    #[test]
    fn an_outage_of_weeks_disables_the_endpoint() {
        let posthaste = forecast(&scenario(1_000, Span::from_days(20))).posthaste;
        assert_eq!(posthaste.dead_lettered, 1_000);
        let disabled = posthaste.dead_letter_reasons.get("endpoint_disabled");
        assert!(
            disabled.is_some_and(|count| *count > 100),
            "{:?}",
            posthaste.dead_letter_reasons
        );
    }

    #[test]
    fn without_an_outage_everything_is_delivered_at_once() {
        let posthaste = forecast(&scenario(100, Span::ZERO)).posthaste;
        assert_eq!((posthaste.delivered, posthaste.attempts), (100, 100));
    }

    #[test]
    fn nothing_pending_is_nothing_to_do() {
        assert_eq!(
            forecast(&scenario(0, Span::from_mins(1))).posthaste,
            SenderOutcome::default()
        );
    }
}
