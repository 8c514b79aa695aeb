//! Simulated receivers, healthy and faulty.
//!
//! A [`SimulatedReceiver`] answers requests according to its [`Behaviour`]: fast, slow, flapping, throttling, hanging, and
//! so on. [`SimulatedReceiver::answer`] returns the duration and outcome of one request. When the fault phase ends,
//! [`SimulatedReceiver::heal`] makes it healthy, unless its answers are not a fault (410, refused payloads).

use posthaste_core::classify::{HttpStatus, Outcome, TransportError};
use posthaste_core::rng::Rng;
use posthaste_core::time::Span;

/// Timeout of a simulated request, in milliseconds.
pub const TIMEOUT_MS: u64 = 30_000;

/// The behaviour of a receiver until the recovery phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// Accepts everything, quickly.
    Healthy,
    /// Accepts everything, after seconds.
    Slow,
    /// Is up and down in turns.
    Flapping {
        /// Duration of each turn.
        turn_ms: u64,
    },
    /// Answers 410 from a certain time on.
    Gone {
        /// Start time.
        from_ms: u64,
    },
    /// Answers 429 above a rate.
    Throttling {
        /// The rate, in requests per second.
        per_second: u64,
        /// The `Retry-After` of the response, if any.
        retry_after: Option<Span>,
    },
    /// Sometimes answers 503 with `Retry-After`.
    Unavailable {
        /// The `Retry-After` of the response.
        retry_after: Span,
    },
    /// Rejects every payload permanently.
    Refusing,
    /// Answers 404.
    NotFound,
    /// Never answers.
    Hanging,
    /// Breaks some connections.
    Resetting,
    /// Is down for a period.
    Down {
        /// Start time.
        from_ms: u64,
        /// End time.
        until_ms: u64,
    },
    /// Answers with a random status or failure.
    Random,
}

/// One receiver.
#[derive(Clone, Debug)]
pub struct SimulatedReceiver {
    behaviour: Behaviour,
    second: u64,
    taken: u64,
}

impl SimulatedReceiver {
    /// Creates a receiver with this behaviour.
    pub fn new(behaviour: Behaviour) -> SimulatedReceiver {
        SimulatedReceiver {
            behaviour,
            second: 0,
            taken: 0,
        }
    }

    /// Makes it healthy. A receiver that rejects payloads or answers 410 stays that way: that is not a fault.
    pub fn heal(&mut self) {
        match self.behaviour {
            Behaviour::Gone { .. } | Behaviour::Refusing => {}
            Behaviour::Healthy
            | Behaviour::Slow
            | Behaviour::Flapping { .. }
            | Behaviour::Throttling { .. }
            | Behaviour::Unavailable { .. }
            | Behaviour::NotFound
            | Behaviour::Hanging
            | Behaviour::Resetting
            | Behaviour::Down { .. }
            | Behaviour::Random => self.behaviour = Behaviour::Healthy,
        }
    }

    /// Returns the duration in milliseconds and the outcome of a request at this time.
    pub fn answer(&mut self, at_ms: u64, rng: &mut Rng) -> (u64, Outcome) {
        let quick = rng.between(5, 60);
        match self.behaviour {
            Behaviour::Healthy => (quick, status(200)),
            Behaviour::Slow => (rng.between(2_000, 25_000), status(202)),
            Behaviour::Flapping { turn_ms } if (at_ms / turn_ms).is_multiple_of(2) => {
                (quick, status(200))
            }
            Behaviour::Flapping { .. } => (quick, status(502)),
            Behaviour::Gone { from_ms } if at_ms >= from_ms => (quick, status(410)),
            Behaviour::Gone { .. } => (quick, status(200)),
            Behaviour::Throttling {
                per_second,
                retry_after,
            } => {
                if self.second != at_ms / 1_000 {
                    self.second = at_ms / 1_000;
                    self.taken = 0;
                }
                self.taken += 1;
                if self.taken > per_second {
                    (quick, with_retry_after(429, retry_after))
                } else {
                    (quick, status(200))
                }
            }
            Behaviour::Unavailable { retry_after } if rng.random_ratio(1, 10) => {
                (quick, with_retry_after(503, Some(retry_after)))
            }
            Behaviour::Unavailable { .. } => (quick, status(200)),
            Behaviour::Refusing => (quick, status(*rng.pick(&[400, 401, 403, 422, 301]))),
            Behaviour::NotFound => (quick, status(404)),
            Behaviour::Hanging => (TIMEOUT_MS, Outcome::Failed(TransportError::Timeout)),
            Behaviour::Resetting if rng.random_ratio(1, 3) => {
                let fault = *rng.pick(&[
                    TransportError::Connection,
                    TransportError::Tls,
                    TransportError::Dns,
                ]);
                (quick, Outcome::Failed(fault))
            }
            Behaviour::Resetting => (quick, status(200)),
            Behaviour::Down { from_ms, until_ms } if (from_ms..until_ms).contains(&at_ms) => {
                (quick, Outcome::Failed(TransportError::Connection))
            }
            Behaviour::Down { .. } => (quick, status(204)),
            Behaviour::Random => (rng.between(1, TIMEOUT_MS), random_outcome(rng)),
        }
    }
}

fn status(code: u16) -> Outcome {
    with_retry_after(code, None)
}

fn with_retry_after(code: u16, retry_after: Option<Span>) -> Outcome {
    Outcome::Answered {
        status: HttpStatus::new(code).expect("the status code is valid"),
        retry_after,
    }
}

fn random_outcome(rng: &mut Rng) -> Outcome {
    if rng.random_ratio(1, 4) {
        return Outcome::Failed(*rng.pick(&TransportError::ALL));
    }
    // Not 410: it would disable the endpoint and end all other behaviour of this receiver.
    let code = match rng.between(100, 599) as u16 {
        410 => 500,
        code @ (100..410 | 411..600) => code,
        0..100 | 600.. => unreachable!("the drawn status is between 100 and 599"),
    };
    let asked = rng
        .random_ratio(1, 5)
        .then(|| Span::from_secs(rng.between(0, 7_200)));
    with_retry_after(code, asked)
}
