//! What happened, by time.

use posthaste_core::time::{Span, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{Answer, Scope};

/// The most tallies that one call adds.
pub const MAX_TALLIES_ADDED: usize = 2_000;

/// What happened within some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tally {
    /// Attempts made.
    pub attempts: u64,
    /// Of those, attempts that were not the first of their round.
    pub retries: u64,
    /// Of those, attempts that were the second of their round.
    pub second_attempts: u64,
    /// Of those, the ones that succeeded.
    pub second_successes: u64,
    /// Deliveries that succeeded.
    pub succeeded: u64,
    /// Deliveries that were given up.
    pub failed: u64,
    /// How long all attempts took together.
    pub latency_micros: u64,
    /// How long the slowest of them took.
    pub slowest_micros: u64,
}

impl Tally {
    /// Adds another one.
    pub fn add(&mut self, other: &Tally) {
        let fields = [
            (&mut self.attempts, other.attempts),
            (&mut self.retries, other.retries),
            (&mut self.second_attempts, other.second_attempts),
            (&mut self.second_successes, other.second_successes),
            (&mut self.succeeded, other.succeeded),
            (&mut self.failed, other.failed),
            (&mut self.latency_micros, other.latency_micros),
        ];
        for (sum, more) in fields {
            *sum = sum.saturating_add(more);
        }
        self.slowest_micros = self.slowest_micros.max(other.slowest_micros);
    }
}

/// How long the stretches of time are that are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Width {
    /// Minutes, kept for two hours.
    Minute,
    /// Quarters of an hour, kept for a day and an hour.
    Quarter,
}

impl Width {
    /// Every width.
    pub const ALL: [Width; 2] = [Width::Minute, Width::Quarter];

    /// How long a bucket is.
    pub const fn bucket(self) -> Span {
        match self {
            Width::Minute => Span::from_mins(1),
            Width::Quarter => Span::from_mins(15),
        }
    }

    /// How long buckets are kept.
    pub const fn kept(self) -> Span {
        match self {
            Width::Minute => Span::from_hours(2),
            Width::Quarter => Span::from_hours(25),
        }
    }

    /// When the bucket began in which this moment lies.
    pub fn begin(self, at: Timestamp) -> Timestamp {
        Timestamp(at.0 - at.0 % self.bucket().as_millis())
    }
}

/// What happened to something at some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happened {
    /// To what.
    pub scope: Scope,
    /// When: any moment of the minute.
    pub at: Timestamp,
    /// What.
    pub tally: Tally,
}

/// Keeps what happened in buckets of time.
pub trait Figures {
    /// Adds what happened to its buckets of every width, at most [`MAX_TALLIES_ADDED`] at once. What happened to a
    /// tenant that is gone, or to an endpoint that nobody knows, is passed over.
    fn add_figures(&self, happened: Vec<Happened>) -> Answer<()>;

    /// The buckets of a scope in which something happened and that begin at `since` or later, the oldest first, each
    /// with when it began.
    fn figures(
        &self,
        scope: Scope,
        width: Width,
        since: Timestamp,
    ) -> Answer<Vec<(Timestamp, Tally)>>;

    /// The scopes in which something was tried again or given up in buckets that begin at `since` or later, with all
    /// that happened to each in them; at most `limit`, those first in which most was.
    fn failing_figures(
        &self,
        width: Width,
        since: Timestamp,
        limit: usize,
    ) -> Answer<Vec<(Scope, Tally)>>;
}
