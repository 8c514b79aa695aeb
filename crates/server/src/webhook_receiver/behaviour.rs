//! Decides how a receiver answers: a pure function of the request and the RNG.
//!
//! [`Behaviour`] is configured by arguments or by the demo's scenario: the condition under which it fails, and both
//! answers. An [`Answer`] says what to send and when.

use posthaste_core::rng::Rng;
use posthaste_core::time::Span;

/// The answer of a receiver to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A response.
    Reply {
        /// Its status.
        status: u16,
        /// Time before it is sent.
        delay: Span,
        /// Value of its `Retry-After` header.
        retry_after: Option<Span>,
    },
    /// Accepts the request and never answers.
    Hang,
}

impl Answer {
    /// Returns an immediate response with this status.
    pub const fn status(status: u16) -> Answer {
        Answer::Reply {
            status,
            delay: Span::ZERO,
            retry_after: None,
        }
    }

    /// Delays a response by this much more.
    pub fn delayed(self, by: Span) -> Answer {
        match self {
            Answer::Reply {
                status,
                delay,
                retry_after,
            } => Answer::Reply {
                status,
                delay: delay.plus(by),
                retry_after,
            },
            Answer::Hang => self,
        }
    }

    /// Adds a `Retry-After` header to a response.
    pub fn retry_after(self, span: Span) -> Answer {
        match self {
            Answer::Reply { status, delay, .. } => Answer::Reply {
                status,
                delay,
                retry_after: Some(span),
            },
            Answer::Hang => self,
        }
    }

    /// Returns true if the sender takes it for a success.
    pub fn is_success(self) -> bool {
        match self {
            Answer::Reply { status, .. } => (200..300).contains(&status),
            Answer::Hang => false,
        }
    }
}

/// The condition under which a receiver fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureCondition {
    /// Never.
    Never,
    /// Always.
    Always,
    /// At random.
    Chance {
        /// Probability in hundredths of a per cent; at most 10,000.
        in_ten_thousand: u32,
    },
    /// On the first attempts of each delivery, this many. If the sender does not number its attempts, on the
    /// first requests of all.
    FirstAttempts(u32),
    /// On requests above a rate.
    Above {
        /// Number of requests per second that succeed.
        per_second: u32,
    },
}

/// The behaviour of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behaviour {
    /// The condition under which it fails.
    pub fails: FailureCondition,
    /// The answer if it fails.
    pub failure: Answer,
    /// The answer otherwise.
    pub success: Answer,
}

/// The facts about a request that decide the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestInfo {
    /// Number of the request, from 1.
    pub number: u64,
    /// Number of the attempt, if the sender gives it.
    pub attempt: Option<u32>,
    /// Number of the request within this second, from 1.
    pub in_this_second: u32,
}

impl Behaviour {
    /// Always succeeds.
    pub const fn healthy() -> Behaviour {
        Behaviour {
            fails: FailureCondition::Never,
            failure: Answer::status(503),
            success: Answer::status(200),
        }
    }

    /// Fails at random.
    ///
    /// # Panics
    /// If `percent` is not from 0 to 100.
    pub fn flaky(percent: f64) -> Behaviour {
        assert!((0.0..=100.0).contains(&percent), "{percent} % of failures");
        Behaviour {
            fails: FailureCondition::Chance {
                in_ten_thousand: (percent * 100.0).round() as u32,
            },
            ..Behaviour::healthy()
        }
    }

    /// Accepts this many requests per second, and answers 429 with `Retry-After` to the rest.
    pub const fn rate_limiting(per_second: u32, retry_after: Span) -> Behaviour {
        Behaviour {
            fails: FailureCondition::Above { per_second },
            failure: Answer::Reply {
                status: 429,
                delay: Span::ZERO,
                retry_after: Some(retry_after),
            },
            ..Behaviour::healthy()
        }
    }

    /// Decides the answer to a request. Uses the RNG only for [`FailureCondition::Chance`].
    pub fn answer(&self, request: RequestInfo, rng: &mut Rng) -> Answer {
        let fails = match self.fails {
            FailureCondition::Never => false,
            FailureCondition::Always => true,
            FailureCondition::Chance { in_ten_thousand } => {
                rng.random_ratio(in_ten_thousand.min(10_000), 10_000)
            }
            FailureCondition::FirstAttempts(count) => {
                let nth = request.attempt.map_or(request.number, u64::from);
                nth <= u64::from(count)
            }
            FailureCondition::Above { per_second } => request.in_this_second > per_second,
        };
        if fails { self.failure } else { self.success }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(number: u64) -> RequestInfo {
        RequestInfo {
            number,
            attempt: None,
            in_this_second: 1,
        }
    }

    fn status(behaviour: Behaviour, request: RequestInfo) -> u16 {
        match behaviour.answer(request, &mut Rng::seeded(1)) {
            Answer::Reply { status, .. } => status,
            Answer::Hang => 0,
        }
    }

    #[test]
    fn the_first_attempts_of_each_delivery_fail() {
        let behaviour = Behaviour {
            fails: FailureCondition::FirstAttempts(2),
            ..Behaviour::healthy()
        };
        let attempt = |attempt| RequestInfo {
            attempt: Some(attempt),
            ..request(100)
        };
        assert_eq!(
            [1, 2, 3].map(|n| status(behaviour, attempt(n))),
            [503, 503, 200]
        );
        // Requests without an attempt number are counted instead.
        assert_eq!(
            [1, 2, 3].map(|n| status(behaviour, request(n))),
            [503, 503, 200]
        );
    }

    #[test]
    fn chance_matches_the_failure_rate() {
        let mut rng = Rng::seeded(7);
        let mut failures = |percent| {
            let behaviour = Behaviour::flaky(percent);
            (0..10_000)
                .filter(|n| !behaviour.answer(request(*n), &mut rng).is_success())
                .count()
        };
        assert_eq!(failures(0.0), 0);
        assert_eq!(failures(100.0), 10_000);
        assert!((2_700..3_300).contains(&failures(30.0)));
    }

    #[test]
    fn requests_above_the_rate_get_a_retry_after() {
        let behaviour = Behaviour::rate_limiting(5, Span::from_secs(2));
        let nth = |in_this_second| RequestInfo {
            in_this_second,
            ..request(99)
        };
        assert_eq!(status(behaviour, nth(5)), 200);
        let refused = behaviour.answer(nth(6), &mut Rng::seeded(1));
        assert_eq!(refused, Answer::status(429).retry_after(Span::from_secs(2)));
    }
}
