//! The receivers of the virtual world, kind and unkind.

use posthaste_core::classify::{Fault, HttpStatus, Outcome};
use posthaste_core::dice::Dice;
use posthaste_core::time::Span;

/// How long the world waits for an answer.
pub const TIMEOUT_MS: u64 = 30_000;

/// How a receiver behaves until the world is healed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Climate {
    /// Takes everything, quickly.
    Healthy,
    /// Takes everything, after seconds.
    Slow,
    /// Is up and down by turns.
    Flapping {
        /// How long each turn lasts.
        turn_ms: u64,
    },
    /// Answers 410 from a certain time on.
    Gone {
        /// From when.
        from_ms: u64,
    },
    /// Answers 429 to what comes too fast.
    Throttling {
        /// What is too fast.
        per_second: u64,
        /// What it asks for, if anything.
        retry_after: Option<Span>,
    },
    /// Answers 503 and asks for a while, now and then.
    Resting {
        /// What it asks for.
        retry_after: Span,
    },
    /// Refuses every payload for good.
    Refusing,
    /// Does not know the path.
    Lost,
    /// Never answers.
    Hanging,
    /// Resets some connections.
    Resetting,
    /// Is down for a while.
    Down {
        /// From when.
        from_ms: u64,
        /// Until when.
        until_ms: u64,
    },
    /// Answers anything at all.
    Mad,
}

/// One receiver.
#[derive(Clone, Debug)]
pub struct Receiver {
    climate: Climate,
    second: u64,
    taken: u64,
}

impl Receiver {
    /// A receiver of this climate.
    pub fn new(climate: Climate) -> Receiver {
        Receiver {
            climate,
            second: 0,
            taken: 0,
        }
    }

    /// Makes it well. One that refuses or is gone stays that way: that is no illness.
    pub fn heal(&mut self) {
        match self.climate {
            Climate::Gone { .. } | Climate::Refusing => {}
            Climate::Healthy
            | Climate::Slow
            | Climate::Flapping { .. }
            | Climate::Throttling { .. }
            | Climate::Resting { .. }
            | Climate::Lost
            | Climate::Hanging
            | Climate::Resetting
            | Climate::Down { .. }
            | Climate::Mad => self.climate = Climate::Healthy,
        }
    }

    /// How long a request at this time takes, and what comes of it.
    pub fn answer(&mut self, at_ms: u64, dice: &mut Dice) -> (u64, Outcome) {
        let quick = dice.between(5, 60);
        match self.climate {
            Climate::Healthy => (quick, status(200)),
            Climate::Slow => (dice.between(2_000, 25_000), status(202)),
            Climate::Flapping { turn_ms } if (at_ms / turn_ms).is_multiple_of(2) => {
                (quick, status(200))
            }
            Climate::Flapping { .. } => (quick, status(502)),
            Climate::Gone { from_ms } if at_ms >= from_ms => (quick, status(410)),
            Climate::Gone { .. } => (quick, status(200)),
            Climate::Throttling {
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
            Climate::Resting { retry_after } if dice.chance(1, 10) => {
                (quick, with_retry_after(503, Some(retry_after)))
            }
            Climate::Resting { .. } => (quick, status(200)),
            Climate::Refusing => (quick, status(*dice.pick(&[400, 401, 403, 422, 301]))),
            Climate::Lost => (quick, status(404)),
            Climate::Hanging => (TIMEOUT_MS, Outcome::Failed(Fault::Timeout)),
            Climate::Resetting if dice.chance(1, 3) => {
                let fault = *dice.pick(&[Fault::Connection, Fault::Tls, Fault::Dns]);
                (quick, Outcome::Failed(fault))
            }
            Climate::Resetting => (quick, status(200)),
            Climate::Down { from_ms, until_ms } if (from_ms..until_ms).contains(&at_ms) => {
                (quick, Outcome::Failed(Fault::Connection))
            }
            Climate::Down { .. } => (quick, status(204)),
            Climate::Mad => (dice.between(1, TIMEOUT_MS), mad(dice)),
        }
    }
}

fn status(code: u16) -> Outcome {
    with_retry_after(code, None)
}

fn with_retry_after(code: u16, retry_after: Option<Span>) -> Outcome {
    Outcome::Answered {
        status: HttpStatus::new(code).expect("a status"),
        retry_after,
    }
}

fn mad(dice: &mut Dice) -> Outcome {
    if dice.chance(1, 4) {
        return Outcome::Failed(*dice.pick(&Fault::ALL));
    }
    // Not 410: that would end the endpoint, and with it everything else this one could do.
    let code = match dice.between(100, 599) as u16 {
        410 => 500,
        code @ (100..410 | 411..600) => code,
        0..100 | 600.. => unreachable!("statuses are 100 to 599"),
    };
    let asked = dice
        .chance(1, 5)
        .then(|| Span::from_secs(dice.between(0, 7_200)));
    with_retry_after(code, asked)
}
