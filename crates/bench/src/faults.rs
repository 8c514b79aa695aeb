//! Faults of receivers: which requests an endpoint refuses, and when.
//!
//! A [`FaultInjector`] decides the answer to each request from its [`Faults`], the time of arrival, the event's number and
//! a seeded random number generator, and keeps every [`Answer`]. So a run is counted where the requests arrive, and its
//! failures can be drawn again from the same seed.

use std::time::Duration;

use http::StatusCode;
use posthaste_core::rng::Rng;

/// Maximum number of answers that an injector keeps; later ones are not counted.
pub const MAX_ANSWERS: usize = 10_000_000;
const SECOND_NS: u64 = 1_000_000_000;

/// The requests that an endpoint does not accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Faults {
    /// Fails requests at random, independently of each other.
    Random {
        /// Share of the requests that fail.
        percent: u32,
        /// Status of their answers.
        status: StatusCode,
    },
    /// Accepts so many requests in each second of the clock, and refuses the others.
    Capacity {
        /// Requests that are accepted in a second.
        per_second: u32,
        /// Status of the other answers.
        status: StatusCode,
    },
    /// Refuses all requests for a while after the first one.
    Wave {
        /// Time from the first request to the end of the refusals.
        duration: Duration,
        /// Status of the answers.
        status: StatusCode,
    },
    /// Refuses all requests.
    Always {
        /// Status of the answers.
        status: StatusCode,
    },
    /// Refuses certain events, each time they arrive.
    Poison {
        /// Every event whose number is a multiple of this one is refused.
        one_in: usize,
        /// Status of the answers.
        status: StatusCode,
    },
}

impl Faults {
    /// Accepts all requests.
    pub const NONE: Faults = Faults::Random {
        percent: 0,
        status: StatusCode::OK,
    };

    /// Returns true if every request of this event is refused.
    pub fn is_poison(&self, number: usize) -> bool {
        match self {
            Faults::Random { .. } | Faults::Capacity { .. } | Faults::Wave { .. } => false,
            Faults::Always { .. } => true,
            Faults::Poison { one_in, .. } => number.is_multiple_of(*one_in),
        }
    }
}

/// An answer that was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Time of arrival, in nanoseconds since the recorder was created.
    pub arrived_at: u64,
    /// Number of the event.
    pub number: usize,
    /// True if the answer was 200.
    pub accepted: bool,
}

/// Decides the answers of one endpoint and keeps them.
#[derive(Debug)]
pub struct FaultInjector {
    faults: Faults,
    latency: Duration,
    rng: Rng,
    first_at: Option<u64>,
    /// The current second, and the number of requests accepted in it.
    second: (u64, u32),
    answers: Vec<Answer>,
}

impl FaultInjector {
    /// Creates an injector. Each answer takes `latency`.
    pub fn new(faults: Faults, latency: Duration, rng: Rng) -> FaultInjector {
        FaultInjector {
            faults,
            latency,
            rng,
            first_at: None,
            second: (0, 0),
            answers: Vec::new(),
        }
    }

    /// Returns the time that each answer takes.
    pub fn latency(&self) -> Duration {
        self.latency
    }

    /// Returns the answers so far, in order.
    pub fn answers(&self) -> &[Answer] {
        &self.answers
    }

    /// Decides the answer to a request.
    pub fn answer(&mut self, arrived_at: u64, number: usize) -> StatusCode {
        let rejection = self.rejection(arrived_at, number);
        if self.answers.len() < MAX_ANSWERS {
            self.answers.push(Answer {
                arrived_at,
                number,
                accepted: rejection.is_none(),
            });
        }
        rejection.unwrap_or(StatusCode::OK)
    }

    fn rejection(&mut self, arrived_at: u64, number: usize) -> Option<StatusCode> {
        let first_at = *self.first_at.get_or_insert(arrived_at);
        match self.faults {
            Faults::Random { percent, status } => {
                self.rng.random_ratio(percent, 100).then_some(status)
            }
            Faults::Capacity { per_second, status } => {
                let second = arrived_at / SECOND_NS;
                if self.second.0 != second {
                    self.second = (second, 0);
                }
                if self.second.1 == per_second {
                    return Some(status);
                }
                self.second.1 += 1;
                None
            }
            Faults::Wave { duration, status } => {
                let elapsed = Duration::from_nanos(arrived_at.saturating_sub(first_at));
                (elapsed < duration).then_some(status)
            }
            Faults::Always { status } => Some(status),
            Faults::Poison { status, .. } => self.faults.is_poison(number).then_some(status),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSED: StatusCode = StatusCode::TOO_MANY_REQUESTS;

    fn injector(faults: Faults, seed: u64) -> FaultInjector {
        FaultInjector::new(faults, Duration::ZERO, Rng::seeded(seed))
    }

    /// Returns which requests are accepted that arrive at these times, in milliseconds.
    fn accepted(faults: Faults, times_ms: &[u64]) -> Vec<bool> {
        let mut injector = injector(faults, 1);
        for (number, time) in times_ms.iter().enumerate() {
            injector.answer(time * 1_000_000, number);
        }
        let answers = injector.answers().iter();
        answers.map(|answer| answer.accepted).collect()
    }

    #[test]
    fn the_share_of_random_failures_is_kept_and_depends_on_the_seed_only() {
        let draw = |seed| {
            let faults = Faults::Random {
                percent: 20,
                status: REFUSED,
            };
            let mut injector = injector(faults, seed);
            let statuses = (0..10_000).map(|number| injector.answer(0, number));
            statuses.collect::<Vec<_>>()
        };
        let refused = draw(1).iter().filter(|status| **status == REFUSED).count();
        assert!((1_800..2_200).contains(&refused), "{refused}");
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        assert!(accepted(Faults::NONE, &[0; 1_000]).iter().all(|ok| *ok));
    }

    #[test]
    fn capacity_is_renewed_each_second() {
        let faults = Faults::Capacity {
            per_second: 2,
            status: REFUSED,
        };
        let times = [100, 200, 300, 999, 1_000, 1_001, 1_002];
        let expected = [true, true, false, false, true, true, false];
        assert_eq!(accepted(faults, &times), expected);
    }

    #[test]
    fn a_wave_begins_with_the_first_request() {
        let faults = Faults::Wave {
            duration: Duration::from_secs(3),
            status: REFUSED,
        };
        let times = [5_000, 7_999, 8_000, 60_000];
        assert_eq!(accepted(faults, &times), [false, false, true, true]);
    }

    #[test]
    fn poison_events_are_refused_each_time() {
        let poison = Faults::Poison {
            one_in: 20,
            status: REFUSED,
        };
        let mut injector = injector(poison, 1);
        for (number, expected) in [(20, REFUSED), (20, REFUSED), (21, StatusCode::OK)] {
            assert_eq!(injector.answer(0, number), expected, "event {number}");
        }
        let always = Faults::Always { status: REFUSED };
        assert_eq!(accepted(always, &[0, 1]), [false, false]);
    }
}
