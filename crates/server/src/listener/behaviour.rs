//! How a receiver answers: a pure function of what is asked and of the dice.

use posthaste_core::dice::Dice;
use posthaste_core::time::Span;

/// What a receiver does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It answers.
    Reply {
        /// With this status.
        status: u16,
        /// After this long.
        delay: Span,
        /// Asking to be left alone for so long.
        retry_after: Option<Span>,
    },
    /// It takes the request and never answers.
    Hang,
    /// It takes the request and closes the connection.
    HangUp,
}

impl Answer {
    /// An answer with this status, at once.
    pub const fn status(status: u16) -> Answer {
        Answer::Reply {
            status,
            delay: Span::ZERO,
            retry_after: None,
        }
    }

    /// The same answer, this much later.
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
            Answer::Hang | Answer::HangUp => self,
        }
    }

    /// The same answer, asking to be left alone for so long.
    pub fn retry_after(self, span: Span) -> Answer {
        match self {
            Answer::Reply { status, delay, .. } => Answer::Reply {
                status,
                delay,
                retry_after: Some(span),
            },
            Answer::Hang | Answer::HangUp => self,
        }
    }

    /// Whether the sender takes it for a success.
    pub fn is_success(self) -> bool {
        match self {
            Answer::Reply { status, .. } => (200..300).contains(&status),
            Answer::Hang | Answer::HangUp => false,
        }
    }
}

/// When a receiver fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Never.
    Never,
    /// Always.
    Always,
    /// By chance, so many times in ten thousand.
    Chance {
        /// Hundredths of a per cent; at most 10,000.
        in_ten_thousand: u32,
    },
    /// On the first so many attempts of each delivery; on the first requests at all, where the sender
    /// does not count its attempts.
    FirstAttempts(u32),
    /// On whatever comes in one second beyond so many.
    Above {
        /// How many it takes in a second.
        per_second: u32,
    },
    /// For a while, counted from its start.
    During {
        /// From then.
        from: Span,
        /// Until then.
        until: Span,
    },
}

/// How a receiver behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behaviour {
    /// When it fails.
    pub fails: When,
    /// How it fails.
    pub failure: Answer,
    /// What it does otherwise.
    pub success: Answer,
}

/// What a receiver knows of a request when it decides how to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The how manieth request it is, from 1.
    pub number: u64,
    /// The how manieth attempt, if the sender says so.
    pub attempt: Option<u32>,
    /// The how manieth request of this second, from 1.
    pub in_this_second: u32,
    /// How long the receiver has been there.
    pub uptime: Span,
}

impl Behaviour {
    /// Takes everything.
    pub const fn healthy() -> Behaviour {
        Behaviour {
            fails: When::Never,
            failure: Answer::status(503),
            success: Answer::status(200),
        }
    }

    /// Fails by chance.
    ///
    /// # Panics
    /// Above a hundred per cent.
    pub fn flaky(percent: f64) -> Behaviour {
        assert!((0.0..=100.0).contains(&percent), "{percent} % of failures");
        Behaviour {
            fails: When::Chance {
                in_ten_thousand: (percent * 100.0).round() as u32,
            },
            ..Behaviour::healthy()
        }
    }

    /// Takes so many a second, and asks to be left alone when more come.
    pub const fn rate_limiting(per_second: u32, retry_after: Span) -> Behaviour {
        Behaviour {
            fails: When::Above { per_second },
            failure: Answer::Reply {
                status: 429,
                delay: Span::ZERO,
                retry_after: Some(retry_after),
            },
            ..Behaviour::healthy()
        }
    }

    /// Answers 503 for a while.
    pub const fn down(from: Span, until: Span) -> Behaviour {
        Behaviour {
            fails: When::During { from, until },
            ..Behaviour::healthy()
        }
    }

    /// What it does with a request. The dice are thrown only where chance decides.
    pub fn answer(&self, asked: Asked, dice: &mut Dice) -> Answer {
        let fails = match self.fails {
            When::Never => false,
            When::Always => true,
            When::Chance { in_ten_thousand } => dice.chance(in_ten_thousand.min(10_000), 10_000),
            When::FirstAttempts(count) => {
                let nth = asked.attempt.map_or(asked.number, u64::from);
                nth <= u64::from(count)
            }
            When::Above { per_second } => asked.in_this_second > per_second,
            When::During { from, until } => (from..until).contains(&asked.uptime),
        };
        if fails { self.failure } else { self.success }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(number: u64) -> Asked {
        Asked {
            number,
            attempt: None,
            in_this_second: 1,
            uptime: Span::ZERO,
        }
    }

    fn status(behaviour: Behaviour, asked: Asked) -> u16 {
        match behaviour.answer(asked, &mut Dice::seeded(1)) {
            Answer::Reply { status, .. } => status,
            Answer::Hang | Answer::HangUp => 0,
        }
    }

    #[test]
    fn the_first_attempts_of_each_delivery_fail() {
        let behaviour = Behaviour {
            fails: When::FirstAttempts(2),
            ..Behaviour::healthy()
        };
        let attempt = |attempt| Asked {
            attempt: Some(attempt),
            ..asked(100)
        };
        assert_eq!(
            [1, 2, 3].map(|n| status(behaviour, attempt(n))),
            [503, 503, 200]
        );
        // A sender that does not count is counted.
        assert_eq!(
            [1, 2, 3].map(|n| status(behaviour, asked(n))),
            [503, 503, 200]
        );
    }

    #[test]
    fn chance_fails_as_often_as_it_should() {
        let mut dice = Dice::seeded(7);
        let mut failures = |percent| {
            let behaviour = Behaviour::flaky(percent);
            (0..10_000)
                .filter(|n| !behaviour.answer(asked(*n), &mut dice).is_success())
                .count()
        };
        assert_eq!(failures(0.0), 0);
        assert_eq!(failures(100.0), 10_000);
        assert!((2_700..3_300).contains(&failures(30.0)));
    }

    #[test]
    fn what_comes_too_fast_is_told_to_wait() {
        let behaviour = Behaviour::rate_limiting(5, Span::from_secs(2));
        let nth = |in_this_second| Asked {
            in_this_second,
            ..asked(99)
        };
        assert_eq!(status(behaviour, nth(5)), 200);
        let refused = behaviour.answer(nth(6), &mut Dice::seeded(1));
        assert_eq!(refused, Answer::status(429).retry_after(Span::from_secs(2)));
    }

    #[test]
    fn an_outage_begins_and_ends() {
        let behaviour = Behaviour::down(Span::from_secs(10), Span::from_secs(60));
        let at = |seconds| Asked {
            uptime: Span::from_secs(seconds),
            ..asked(1)
        };
        assert_eq!(
            [9, 10, 59, 60].map(|at_s| status(behaviour, at(at_s))),
            [200, 503, 503, 200]
        );
    }
}
