//! Errors of a benchmark run.
//!
//! A [`BenchError`] ends the benchmark without results. It names the operation that failed and, where a child process is
//! involved, the last lines of its standard error. [`BenchError::exit_code`] tells invalid arguments from other errors.

use std::io;

use posthaste_charts::format::count;
use thiserror::Error;

/// An error that ends a benchmark without results. Each message names what to look at.
#[derive(Debug, Error)]
pub enum BenchError {
    /// The arguments are invalid.
    #[error("{0}")]
    Usage(String),
    /// The relay or the server did not start.
    #[error("the {process} did not start: {why}{}", stderr_text(.stderr_tail))]
    NotStarted {
        /// Relay or server.
        process: &'static str,
        /// The cause.
        why: String,
        /// Its last lines on standard error.
        stderr_tail: Vec<String>,
    },
    /// No response arrived.
    #[error("{what}: {why}")]
    Unanswered {
        /// The request.
        what: String,
        /// The cause.
        why: String,
    },
    /// The response has an error status.
    #[error("{what} was answered {status}: {answer}")]
    Refused {
        /// The request.
        what: String,
        /// The status of the response.
        status: u16,
        /// The response, shortened.
        answer: String,
    },
    /// An expected change did not happen in time.
    #[error("{what} did not happen within {seconds} s{}", stderr_text(.stderr_tail))]
    Stalled {
        /// The expected change.
        what: String,
        /// The time without a change, in seconds.
        seconds: u64,
        /// The process's last lines on standard error.
        stderr_tail: Vec<String>,
    },
    /// Not every event arrived exactly once.
    #[error(
        "not every event arrived exactly once: {} missing, {} repeated, {} that were never sent, \
         {} with a wrong signature{}",
        count(*.missing), count(*.repeated), count(*.unexpected), count(*.bad_signatures),
        .examples.iter().map(|line| format!("\n{line}")).collect::<String>()
    )]
    Inconsistent {
        /// Accepted, but never received.
        missing: u64,
        /// Received more than once.
        repeated: u64,
        /// Received, but never sent.
        unexpected: u64,
        /// Received without a valid signature.
        bad_signatures: u64,
        /// The first few of these errors.
        examples: Vec<String>,
    },
    /// A guarantee that the scenario checks did not hold.
    #[error("{0}")]
    Broken(String),
    /// A system call failed.
    #[error("{what}: {error}")]
    Machine {
        /// The operation.
        what: &'static str,
        /// The error.
        error: io::Error,
    },
}

impl BenchError {
    /// Returns a closure for `map_err` that names the failed operation.
    pub fn machine(what: &'static str) -> impl FnOnce(io::Error) -> BenchError {
        move |error| BenchError::Machine { what, error }
    }

    /// Returns 2 for errors that the user can fix with other arguments, else 1.
    pub fn exit_code(&self) -> u8 {
        match self {
            BenchError::Usage(_) => 2,
            BenchError::NotStarted { .. }
            | BenchError::Unanswered { .. }
            | BenchError::Refused { .. }
            | BenchError::Stalled { .. }
            | BenchError::Inconsistent { .. }
            | BenchError::Broken(_)
            | BenchError::Machine { .. } => 1,
        }
    }
}

fn stderr_text(stderr_tail: &[String]) -> String {
    if stderr_tail.is_empty() {
        return String::new();
    }
    let lines: String = stderr_tail
        .iter()
        .map(|line| format!("\n  {line}"))
        .collect();
    format!("\nits last words were:{lines}")
}
