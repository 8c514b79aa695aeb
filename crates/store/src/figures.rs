//! What happened, by time.

use std::collections::BTreeMap;

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

    /// Buckets that begin before this have been kept for long enough.
    pub fn first_kept(self, now: Timestamp) -> Timestamp {
        Timestamp(now.0.saturating_sub(self.kept().as_millis()))
    }

    /// How it is stored.
    pub(crate) const fn code(self) -> i16 {
        match self {
            Width::Minute => 0,
            Width::Quarter => 1,
        }
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

/// Adds up what happened by bucket and scope, for every width. In this order rows are written, so that nodes that do
/// it at once wait for one another and never in a circle.
///
/// # Panics
/// If it is more than one call may add.
pub fn by_bucket(happened: Vec<Happened>) -> BTreeMap<(Width, Timestamp, Scope), Tally> {
    assert!(happened.len() <= MAX_TALLIES_ADDED, "added piece by piece");
    let mut buckets: BTreeMap<(Width, Timestamp, Scope), Tally> = BTreeMap::new();
    for it in happened {
        for width in Width::ALL {
            let bucket = (width, width.begin(it.at), it.scope.clone());
            buckets.entry(bucket).or_default().add(&it.tally);
        }
    }
    buckets
}

/// A number as it is stored: far from where sums of sums would overflow.
pub(crate) fn stored(count: u64) -> i64 {
    const MOST: u64 = 1 << 53;
    count.min(MOST) as i64
}

impl Tally {
    /// How many columns it takes.
    pub(crate) const COLUMNS: usize = 8;

    /// Its numbers, in the order of their columns: the last one is a maximum, all others are sums.
    pub(crate) fn columns(&self) -> [i64; Tally::COLUMNS] {
        [
            self.attempts,
            self.retries,
            self.second_attempts,
            self.second_successes,
            self.succeeded,
            self.failed,
            self.latency_micros,
            self.slowest_micros,
        ]
        .map(stored)
    }

    /// The tally with these columns.
    pub(crate) fn from_columns(columns: [i64; Tally::COLUMNS]) -> Tally {
        let [
            attempts,
            retries,
            second_attempts,
            second_successes,
            succeeded,
            failed,
            latency_micros,
            slowest_micros,
        ] = columns.map(|count| count.max(0) as u64);
        Tally {
            attempts,
            retries,
            second_attempts,
            second_successes,
            succeeded,
            failed,
            latency_micros,
            slowest_micros,
        }
    }
}

/// Keeps what happened in buckets of time, and lets go of them with [`tidy`](crate::Store::tidy).
///
/// What happened to a tenant that is gone, or to an endpoint that is deleted, is nobody's: it is neither added nor
/// found, and a later tenant of the same id sees nothing of it. What they did stays part of everything.
pub trait Figures {
    /// Adds what happened to its buckets of every width, at most [`MAX_TALLIES_ADDED`] at once.
    ///
    /// Whoever adds counts how often, from 1 on, for as long as the store is open. What was added under this number already,
    /// or under a later one, is not added again: so after an error, when nobody knows whether it was, the same is simply
    /// added under the same number.
    fn add_figures(&self, number: u64, happened: Vec<Happened>) -> Answer<()>;

    /// The buckets of a scope in which something happened and that begin at `since` or later, the oldest first, each
    /// with when it began.
    fn figures(
        &self,
        scope: Scope,
        width: Width,
        since: Timestamp,
    ) -> Answer<Vec<(Timestamp, Tally)>>;

    /// The scopes in which something was tried again or given up in buckets that begin at `since` or later, with all
    /// that happened to each in them; at most `limit`, those first in which most was. Costs a look at each bucket in
    /// which something went wrong, and none at the others.
    fn failing_figures(
        &self,
        width: Width,
        since: Timestamp,
        limit: usize,
    ) -> Answer<Vec<(Scope, Tally)>>;
}
