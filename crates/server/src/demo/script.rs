//! The script of the demo: receivers, their behaviour over time, and traffic.
//!
//! All times are for tempo 1. At tempo 3 everything happens three times as early, with three times the traffic, so
//! that the same changes occur.

use std::time::Duration;

use posthaste_core::lane::BreakerSettings;
use posthaste_core::time::Span;
use serde_json::{Value, json};

use crate::listener::{Answer, Behaviour, FailureCondition};

/// The tenant that the receivers' endpoints belong to.
pub const TENANT: &str = "demo";
/// Default number of events per second.
pub const DEFAULT_PER_SECOND: f64 = 20.0;
/// Maximum number of events per second. Higher rates are a case for the benchmark.
pub const MAX_PER_SECOND: f64 = 200.0;
/// Maximum tempo.
pub const MAX_TEMPO: f64 = 10.0;

/// Start of the flaky receiver's outage.
const DARK_FROM_MS: u64 = 3_000;
/// End of the outage.
const DARK_UNTIL_MS: u64 = 8_000;
/// After the outage the receiver is healthy until this time, so that the complete recovery is visible.
const WELL_UNTIL_MS: u64 = 25_000;
/// Time for which the receiver `down` refuses connections.
const DOWN_MS: u64 = 60_000;
/// Time at which everything has been shown.
const SHOWN_MS: u64 = 90_000;
/// Share of the traffic after that.
const AFTERWARDS: f64 = 0.25;
/// Interval between two snapshots.
const LOOK_EVERY_MS: u64 = 1_000;
/// Failure rate of the flaky receiver, in percent.
const FLAKY_PERCENT: f64 = 10.0;
/// Refusals of the healthy receiver per 10,000 requests: dead letters occur, but few.
const REFUSED_IN_TEN_THOUSAND: u32 = 100;
/// Rate limit of the limited receiver, as a share of the traffic. Half of the events go to it, so the limit is a
/// little higher than its average traffic, but lower than a burst.
const LIMITED_SHARE: f64 = 0.75;
/// Time of the first burst of events.
const FIRST_BUNCH_MS: u64 = 5_000;
/// Interval between bursts.
const BUNCH_EVERY: Duration = Duration::from_secs(10);
/// Size of a burst, as seconds of normal traffic.
const BUNCH_SECONDS: f64 = 1.25;
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
pub enum Role {
    /// Accepts requests, and refuses a few permanently.
    Healthy,
    /// Fails now and then, and has one outage.
    Flaky,
    /// Accepts a limited number of requests per second.
    Limited,
    /// Refuses connections for the first minute.
    Down,
}

impl Role {
    /// All roles, in the order in which they are shown.
    pub const ALL: [Role; 4] = [Role::Healthy, Role::Flaky, Role::Limited, Role::Down];

    /// Returns the name of the role.
    pub fn name(self) -> &'static str {
        match self {
            Role::Healthy => "healthy",
            Role::Flaky => "flaky",
            Role::Limited => "limited",
            Role::Down => "down",
        }
    }

    /// Returns the subscription of its endpoint.
    pub fn event_types(self) -> &'static [&'static str] {
        match self {
            Role::Healthy | Role::Flaky => &[],
            Role::Limited => &["invoice.*"],
            Role::Down => &["order.*"],
        }
    }
}

/// Tempo and traffic of the demo.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Script {
    /// Speed factor; 1 is normal.
    pub tempo: f64,
    /// Events per second at tempo 1.
    pub per_second: f64,
}

impl Script {
    fn span(&self, ms: u64) -> Span {
        Span::from_millis(((ms as f64 / self.tempo).round() as u64).max(1))
    }

    fn duration(&self, ms: u64) -> Duration {
        Duration::from_millis(self.span(ms).as_millis())
    }

    /// Returns the interval between two snapshots.
    pub fn look_every(&self) -> Duration {
        self.duration(LOOK_EVERY_MS)
    }

    /// Returns the flaky receiver's behaviours and the time since the start at which each ends. After the last one it
    /// returns to the first behaviour.
    pub fn flaky_acts(&self) -> [(Behaviour, Duration); 3] {
        let dark = Behaviour {
            fails: FailureCondition::Always,
            ..Behaviour::healthy()
        };
        [
            (self.behaviour(Role::Flaky), self.duration(DARK_FROM_MS)),
            (dark, self.duration(DARK_UNTIL_MS)),
            (Behaviour::healthy(), self.duration(WELL_UNTIL_MS)),
        ]
    }

    /// Returns the time of the next burst after `elapsed`, and its size.
    pub fn next_burst(&self, elapsed: Duration) -> (Duration, u32) {
        let first = self.duration(FIRST_BUNCH_MS);
        let mut at = first;
        if elapsed >= first {
            let passed = (elapsed - first).as_millis() / BUNCH_EVERY.as_millis() + 1;
            at += BUNCH_EVERY * u32::try_from(passed).unwrap_or(u32::MAX);
        }
        (at, (self.traffic(at) * BUNCH_SECONDS).round() as u32)
    }

    /// Returns the events per second at this time since the start.
    pub fn traffic(&self, elapsed: Duration) -> f64 {
        let share = if elapsed < self.duration(SHOWN_MS) {
            1.0
        } else {
            AFTERWARDS
        };
        self.per_second * self.tempo * share
    }

    /// Returns the rate limit of the limited receiver, in requests per second.
    pub fn limited_per_second(&self) -> u32 {
        ((self.per_second * self.tempo * LIMITED_SHARE).round() as u32).max(1)
    }

    /// Returns the rate limit of every endpoint, in requests per second.
    pub fn limit_per_second(&self) -> f64 {
        (self.per_second * self.tempo * LIMIT_SHARE).max(1.0)
    }

    /// Returns the behaviour of a receiver at the start.
    pub fn behaviour(&self, role: Role) -> Behaviour {
        match role {
            Role::Healthy => Behaviour {
                fails: FailureCondition::Chance {
                    in_ten_thousand: REFUSED_IN_TEN_THOUSAND,
                },
                failure: Answer::status(422),
                ..Behaviour::healthy()
            },
            Role::Flaky => Behaviour {
                failure: Answer::status(500),
                ..Behaviour::flaky(FLAKY_PERCENT)
            },
            Role::Limited => {
                Behaviour::rate_limiting(self.limited_per_second(), Span::from_secs(1))
            }
            Role::Down => Behaviour::healthy(),
        }
    }

    /// Returns the time for which a receiver refuses connections after the start.
    pub fn opens_after(&self, role: Role) -> Span {
        match role {
            Role::Healthy | Role::Flaky | Role::Limited => Span::ZERO,
            Role::Down => self.span(DOWN_MS),
        }
    }

    /// Returns the seed of a receiver's RNG. With these seeds the healthy receiver refuses a request early.
    pub fn seed(&self, role: Role) -> u64 {
        match role {
            Role::Healthy => 10,
            Role::Flaky => 2,
            Role::Limited | Role::Down => 1,
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
    pub fn promise(&self, role: Role) -> String {
        let second = |ms| format!("{}", self.span(ms).as_millis() as f64 / 1_000.0);
        match role {
            Role::Healthy => {
                "takes what it is sent; one in a hundred it refuses for good (422)".to_owned()
            }
            Role::Flaky => format!(
                "one in ten fails (500); dark from second {} to {} (503), then well until {}",
                second(DARK_FROM_MS),
                second(DARK_UNTIL_MS),
                second(WELL_UNTIL_MS)
            ),
            Role::Limited => format!(
                "takes {} a second, answers 429 to the rest",
                self.limited_per_second()
            ),
            Role::Down => format!("refuses connections for the first {} s", second(DOWN_MS)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listener::Asked;
    use posthaste_core::dice::Dice;
    use posthaste_core::policy::RetryPolicy;

    const NATURAL: Script = Script {
        tempo: 1.0,
        per_second: DEFAULT_PER_SECOND,
    };

    #[test]
    fn a_payload_is_refused_within_the_first_seconds() {
        let behaviour = NATURAL.behaviour(Role::Healthy);
        let mut dice = Dice::seeded(NATURAL.seed(Role::Healthy));
        let asked = |number| Asked {
            number,
            attempt: Some(1),
            in_this_second: 1,
            uptime: Span::ZERO,
        };
        let refused = (1..=1_000).find(|n| !behaviour.answer(asked(*n), &mut dice).is_success());
        // Five seconds of traffic.
        assert!(refused.is_some_and(|number| number <= 100), "{refused:?}");
    }

    #[test]
    fn at_another_tempo_the_same_happens_sooner() {
        let faster = Script {
            tempo: 3.0,
            ..NATURAL
        };
        assert_eq!(faster.opens_after(Role::Down), Span::from_secs(20));
        let dark_from = faster.flaky_acts()[0].1;
        assert_eq!(dark_from, Duration::from_secs(1));
        assert_eq!(faster.traffic(Duration::ZERO), 60.0);
        assert_eq!(faster.traffic(Duration::from_secs(30)), 15.0);
        assert_eq!(faster.limited_per_second(), 45);
    }

    #[test]
    fn bunches_come_again_and_are_more_than_the_limited_one_takes() {
        let second = Duration::from_secs;
        let (first, count) = NATURAL.next_burst(Duration::ZERO);
        assert_eq!((first, count), (second(5), 25));
        // Half of the burst goes to it, in addition to its usual traffic.
        let half_a_bunch = f64::from(count) / 2.0 + NATURAL.per_second / 2.0;
        assert!(half_a_bunch > f64::from(NATURAL.limited_per_second()));
        assert_eq!(NATURAL.next_burst(second(5)).0, second(15));
        assert_eq!(NATURAL.next_burst(second(14)).0, second(15));
        assert_eq!(NATURAL.next_burst(second(15)).0, second(25));
    }

    #[test]
    fn the_policy_is_one_at_every_tempo() {
        for tempo in [1.0, 3.0, 7.3, MAX_TEMPO] {
            let script = Script { tempo, ..NATURAL };
            let policy = RetryPolicy::from_json(&script.policy());
            assert!(policy.is_ok(), "{policy:?}");
        }
    }
}
