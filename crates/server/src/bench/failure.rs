//! What keeps a benchmark from ending with figures.

use std::io;

use thiserror::Error;

use crate::picture::words::count;

/// What keeps a benchmark from ending with figures. Each says what to look at.
#[derive(Debug, Error)]
pub enum Failure {
    /// It was asked for in a way that cannot be.
    #[error("{0}")]
    Usage(String),
    /// What is to be measured did not start.
    #[error("the {who} did not start: {why}{}", last_words(.said))]
    NotStarted {
        /// The relay or the server.
        who: &'static str,
        /// What went wrong.
        why: String,
        /// What it last said on standard error.
        said: Vec<String>,
    },
    /// It did not answer.
    #[error("{what}: {why}")]
    Unanswered {
        /// What was asked.
        what: String,
        /// What went wrong.
        why: String,
    },
    /// It answered, and not as it should.
    #[error("{what} was answered {status}: {answer}")]
    Refused {
        /// What was asked.
        what: String,
        /// The status of the answer.
        status: u16,
        /// The answer, cut short.
        answer: String,
    },
    /// Something did not come to an end.
    #[error("{what} did not happen within {seconds} s{}", last_words(.said))]
    Stalled {
        /// What was waited for.
        what: String,
        /// How long nothing happened.
        seconds: u64,
        /// What the process last said on standard error.
        said: Vec<String>,
    },
    /// Not everything arrived exactly once.
    #[error(
        "not every event arrived exactly once: {} missing, {} repeated, {} that were never sent, \
         {} with a wrong signature{}",
        count(*.missing), count(*.repeated), count(*.strays), count(*.unsigned),
        .told.iter().map(|line| format!("\n{line}")).collect::<String>()
    )]
    Astray {
        /// Accepted, and never seen.
        missing: u64,
        /// Seen again.
        repeated: u64,
        /// Seen, and never sent.
        strays: u64,
        /// Not signed as agreed.
        unsigned: u64,
        /// The first few of them.
        told: Vec<String>,
    },
    /// A promise that the scenario is there to see was not kept.
    #[error("{0}")]
    Broken(String),
    /// The machine refused something.
    #[error("{what}: {error}")]
    Machine {
        /// What was tried.
        what: &'static str,
        /// What it said.
        error: io::Error,
    },
}

impl Failure {
    /// For `map_err`: what was tried when the machine refused.
    pub fn machine(what: &'static str) -> impl FnOnce(io::Error) -> Failure {
        move |error| Failure::Machine { what, error }
    }

    /// 2 for what the person who asked can put right by asking differently, else 1.
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Usage(_) => 2,
            Failure::NotStarted { .. }
            | Failure::Unanswered { .. }
            | Failure::Refused { .. }
            | Failure::Stalled { .. }
            | Failure::Astray { .. }
            | Failure::Broken(_)
            | Failure::Machine { .. } => 1,
        }
    }
}

fn last_words(said: &[String]) -> String {
    if said.is_empty() {
        return String::new();
    }
    let lines: String = said.iter().map(|line| format!("\n  {line}")).collect();
    format!("\nits last words were:{lines}")
}
