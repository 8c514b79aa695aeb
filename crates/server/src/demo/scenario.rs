//! The scenario of the demo: receivers, their behaviour over time, and traffic.
//!
//! All times are for speed 1. At speed 3 everything happens three times as early, with three times the traffic, so
//! that the same changes occur.

use std::time::Duration;

use posthaste_core::lane::BreakerSettings;
use posthaste_core::time::Span;
use serde_json::{Value, json};

use crate::webhook_receiver::{Answer, Behaviour, FailureCondition};

/// The tenant that the receivers' endpoints belong to.
pub const TENANT: &str = "demo";
/// Default number of events per second.
pub const DEFAULT_PER_SECOND: f64 = 20.0;
/// Maximum number of events per second. Higher rates are a case for the benchmark.
pub const MAX_PER_SECOND: f64 = 200.0;
/// Maximum speed.
pub const MAX_SPEED: f64 = 10.0;

/// Start of the flaky receiver's outage.
const OUTAGE_FROM_MS: u64 = 3_000;
/// End of the outage.
const OUTAGE_UNTIL_MS: u64 = 8_000;
/// After the outage the receiver is healthy until this time, so that the complete recovery is visible.
const HEALTHY_UNTIL_MS: u64 = 25_000;
/// Time for which the receiver `down` refuses connections.
const DOWN_MS: u64 = 60_000;
/// Time at which everything has been shown.
const FULL_TRAFFIC_MS: u64 = 90_000;
/// Share of the traffic after that.
const TRAFFIC_SHARE_AFTERWARDS: f64 = 0.25;
/// Interval between two snapshots.
const POLL_INTERVAL_MS: u64 = 1_000;
/// Failure rate of the flaky receiver, in percent.
const FLAKY_PERCENT: f64 = 10.0;
/// Refusals of the healthy receiver per 10,000 requests: dead letters occur, but few.
const REFUSED_IN_TEN_THOUSAND: u32 = 100;
/// Rate limit of the limited receiver, as a share of the traffic. Half of the events go to it, so the limit is a
/// little higher than its average traffic, but lower than a burst.
const LIMITED_SHARE: f64 = 0.75;
/// Time of the first burst of events.
const FIRST_BURST_MS: u64 = 5_000;
/// Interval between bursts.
const BURST_INTERVAL: Duration = Duration::from_secs(10);
/// Size of a burst, as seconds of normal traffic.
const BURST_SECONDS: f64 = 1.25;
/// Rate limit of every endpoint, as a share of the traffic.
const LIMIT_SHARE: f64 = 2.5;

/// The types of the events, with equal probability.
pub const EVENT_TYPES: [&str; 4] = [
    "order.placed",
    "order.shipped",
    "invoice.sent",
    "invoice.paid",
];

/// The part that a receiver plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiverKind {
    /// Accepts requests, and refuses a few permanently.
    Healthy,
    /// Fails now and then, and has one outage.
    Flaky,
    /// Accepts a limited number of requests per second.
    Limited,
    /// Refuses connections for the first minute.
    Down,
}

impl ReceiverKind {
    /// All roles, in the order in which they are shown.
    pub const ALL: [ReceiverKind; 4] = [
        ReceiverKind::Healthy,
        ReceiverKind::Flaky,
        ReceiverKind::Limited,
        ReceiverKind::Down,
    ];

    /// Returns the name of the role.
    pub fn name(self) -> &'static str {
        match self {
            ReceiverKind::Healthy => "healthy",
            ReceiverKind::Flaky => "flaky",
            ReceiverKind::Limited => "limited",
            ReceiverKind::Down => "down",
        }
    }

    /// Returns the subscription of its endpoint.
    pub fn event_types(self) -> &'static [&'static str] {
        match self {
            ReceiverKind::Healthy | ReceiverKind::Flaky => &[],
            ReceiverKind::Limited => &["invoice.*"],
            ReceiverKind::Down => &["order.*"],
        }
    }
}

/// Tempo and traffic of the demo.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DemoScenario {
    /// Speed factor; 1 is normal.
    pub speed: f64,
    /// Events per second at speed 1.
    pub events_per_second: f64,
}

impl DemoScenario {
    fn span(&self, ms: u64) -> Span {
        Span::from_millis(((ms as f64 / self.speed).round() as u64).max(1))
    }

    fn duration(&self, ms: u64) -> Duration {
        Duration::from_millis(self.span(ms).as_millis())
    }

    /// Returns the interval between two snapshots.
    pub fn poll_interval(&self) -> Duration {
        self.duration(POLL_INTERVAL_MS)
    }

    /// Returns the flaky receiver's behaviours and the time since the start at which each ends. After the last one it
    /// returns to the first behaviour.
    pub fn flaky_phases(&self) -> [(Behaviour, Duration); 3] {
        let outage = Behaviour {
            fails: FailureCondition::Always,
            ..Behaviour::healthy()
        };
        [
            (
                self.behaviour(ReceiverKind::Flaky),
                self.duration(OUTAGE_FROM_MS),
            ),
            (outage, self.duration(OUTAGE_UNTIL_MS)),
            (Behaviour::healthy(), self.duration(HEALTHY_UNTIL_MS)),
        ]
    }

    /// Returns the time of the next burst after `elapsed`, and its size.
    pub fn next_burst(&self, elapsed: Duration) -> (Duration, u32) {
        let first = self.duration(FIRST_BURST_MS);
        let mut at = first;
        if elapsed >= first {
            let passed = (elapsed - first).as_millis() / BURST_INTERVAL.as_millis() + 1;
            at += BURST_INTERVAL * u32::try_from(passed).unwrap_or(u32::MAX);
        }
        (at, (self.traffic(at) * BURST_SECONDS).round() as u32)
    }

    /// Returns the events per second at this time since the start.
    pub fn traffic(&self, elapsed: Duration) -> f64 {
        let share = if elapsed < self.duration(FULL_TRAFFIC_MS) {
            1.0
        } else {
            TRAFFIC_SHARE_AFTERWARDS
        };
        self.events_per_second * self.speed * share
    }

    /// Returns the rate limit of the limited receiver, in requests per second.
    pub fn limited_per_second(&self) -> u32 {
        ((self.events_per_second * self.speed * LIMITED_SHARE).round() as u32).max(1)
    }

    /// Returns the rate limit of every endpoint, in requests per second.
    pub fn limit_per_second(&self) -> f64 {
        (self.events_per_second * self.speed * LIMIT_SHARE).max(1.0)
    }

    /// Returns the behaviour of a receiver at the start.
    pub fn behaviour(&self, kind: ReceiverKind) -> Behaviour {
        match kind {
            ReceiverKind::Healthy => Behaviour {
                fails: FailureCondition::Chance {
                    in_ten_thousand: REFUSED_IN_TEN_THOUSAND,
                },
                failure: Answer::status(422),
                ..Behaviour::healthy()
            },
            ReceiverKind::Flaky => Behaviour {
                failure: Answer::status(500),
                ..Behaviour::flaky(FLAKY_PERCENT)
            },
            ReceiverKind::Limited => {
                Behaviour::rate_limiting(self.limited_per_second(), Span::from_secs(1))
            }
            ReceiverKind::Down => Behaviour::healthy(),
        }
    }

    /// Returns the time for which a receiver refuses connections after the start.
    pub fn opens_after(&self, kind: ReceiverKind) -> Span {
        match kind {
            ReceiverKind::Healthy | ReceiverKind::Flaky | ReceiverKind::Limited => Span::ZERO,
            ReceiverKind::Down => self.span(DOWN_MS),
        }
    }

    /// Returns the seed of a receiver's RNG. With these seeds the healthy receiver refuses a request early.
    pub fn seed(&self, kind: ReceiverKind) -> u64 {
        match kind {
            ReceiverKind::Healthy => 10,
            ReceiverKind::Flaky => 2,
            ReceiverKind::Limited | ReceiverKind::Down => 1,
        }
    }

    /// Returns the breaker settings: the defaults, with short waits between probes.
    pub fn breaker(&self) -> BreakerSettings {
        BreakerSettings {
            first_wait: self.span(2_000),
            longest_wait: self.span(8_000),
            ..BreakerSettings::default()
        }
    }

    /// Returns the retry policy. Its delays are short, because users watch only for minutes.
    pub fn policy(&self) -> Value {
        json!({
            "backoff": {
                "kind": "exponential",
                "base": self.span(500).to_string(),
                "factor": 2,
                "cap": self.span(8_000).to_string(),
            },
            "jitter": {"kind": "equal"},
            "max_attempts": 8,
            "give_up_after": "10m",
        })
    }

    /// Returns the description of a receiver.
    pub fn description(&self, kind: ReceiverKind) -> String {
        let second = |ms| format!("{}", self.span(ms).as_millis() as f64 / 1_000.0);
        match kind {
            ReceiverKind::Healthy => "healthy; rejects 1 % permanently (422)".to_owned(),
            ReceiverKind::Flaky => format!(
                "10 % fail (500); down from second {} to {} (503), then healthy until {}",
                second(OUTAGE_FROM_MS),
                second(OUTAGE_UNTIL_MS),
                second(HEALTHY_UNTIL_MS)
            ),
            ReceiverKind::Limited => format!(
                "accepts {} per second, 429 for the rest",
                self.limited_per_second()
            ),
            ReceiverKind::Down => {
                format!("refuses connections for the first {} s", second(DOWN_MS))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::webhook_receiver::RequestInfo;
    use posthaste_core::policy::RetryPolicy;
    use posthaste_core::rng::Rng;

    const NORMAL: DemoScenario = DemoScenario {
        speed: 1.0,
        events_per_second: DEFAULT_PER_SECOND,
    };

    #[test]
    fn the_healthy_receiver_refuses_a_request_early() {
        let behaviour = NORMAL.behaviour(ReceiverKind::Healthy);
        let mut rng = Rng::seeded(NORMAL.seed(ReceiverKind::Healthy));
        let request = |number| RequestInfo {
            number,
            attempt: Some(1),
            in_this_second: 1,
        };
        let refused = (1..=1_000).find(|n| !behaviour.answer(request(*n), &mut rng).is_success());
        // Five seconds of traffic.
        assert!(refused.is_some_and(|number| number <= 100), "{refused:?}");
    }

    #[test]
    fn a_higher_speed_shortens_all_times() {
        let faster = DemoScenario {
            speed: 3.0,
            ..NORMAL
        };
        assert_eq!(faster.opens_after(ReceiverKind::Down), Span::from_secs(20));
        let outage_from = faster.flaky_phases()[0].1;
        assert_eq!(outage_from, Duration::from_secs(1));
        assert_eq!(faster.traffic(Duration::ZERO), 60.0);
        assert_eq!(faster.traffic(Duration::from_secs(30)), 15.0);
        assert_eq!(faster.limited_per_second(), 45);
    }

    #[test]
    fn bursts_repeat_and_exceed_the_rate_limit_of_the_limited_receiver() {
        let second = Duration::from_secs;
        let (first, count) = NORMAL.next_burst(Duration::ZERO);
        assert_eq!((first, count), (second(5), 25));
        // Half of the burst goes to it, in addition to its usual traffic.
        let half_a_burst = f64::from(count) / 2.0 + NORMAL.events_per_second / 2.0;
        assert!(half_a_burst > f64::from(NORMAL.limited_per_second()));
        assert_eq!(NORMAL.next_burst(second(5)).0, second(15));
        assert_eq!(NORMAL.next_burst(second(14)).0, second(15));
        assert_eq!(NORMAL.next_burst(second(15)).0, second(25));
    }

    #[test]
    fn the_policy_is_valid_at_every_speed() {
        for speed in [1.0, 3.0, 7.3, MAX_SPEED] {
            let scenario = DemoScenario { speed, ..NORMAL };
            let policy = RetryPolicy::from_json(&scenario.policy());
            assert!(policy.is_ok(), "{policy:?}");
        }
    }
}
