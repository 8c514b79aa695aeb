//! Stats: counters of attempts and deliveries, by scope and time bucket.
//!
//! A store counts in the transaction that records an attempt or ends a delivery, so its stats are always those of its
//! rows: nothing is lost with a killed node, and nothing is counted twice. [`StatChanges`] sums what one transaction
//! counts, so that the transaction changes each bucket once. Each count goes into one bucket of every [`BucketWidth`],
//! by the time at which the attempt ended or the delivery was dead-lettered. Retention runs delete old buckets.

use std::collections::BTreeMap;
use std::time::Duration;

use posthaste_core::classify::Classification;
use posthaste_core::delivery::{Delivery, State, Status};
use posthaste_core::dispatcher::AttemptRecord;
use posthaste_core::time::{Span, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{Answer, SubjectScope};

/// Maximum number of entries that one call adds.
pub const MAX_STAT_ENTRIES: usize = 2_000;

/// Counters of one period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatCounters {
    /// Attempts made.
    pub attempts: u64,
    /// Attempts that were not the first of their round. A round starts when a delivery is accepted or replayed.
    /// A refused probe is not an attempt of the round, so it is included here whenever it was made.
    pub retries: u64,
    /// Deliveries that need a retry: the first attempt of the round failed and another one follows. Counted with the
    /// first attempt, so never more than the first attempts of the same period.
    pub retried_deliveries: u64,
    /// Attempts that were the second of their round.
    pub second_attempts: u64,
    /// Second attempts that succeeded.
    pub second_successes: u64,
    /// Deliveries that succeeded.
    pub succeeded: u64,
    /// Attempts that these deliveries took, in the round in which they succeeded. Counted with the success.
    pub success_attempts: u64,
    /// Deliveries that failed for good.
    pub failed: u64,
    /// Total duration of all attempts, in microseconds.
    pub latency_micros: u64,
    /// Duration of the slowest attempt, in microseconds.
    pub slowest_micros: u64,
}

impl StatCounters {
    /// Returns the number of attempts that were the first of their round.
    pub fn first_attempts(&self) -> u64 {
        self.attempts.saturating_sub(self.retries)
    }

    /// Adds the counters of another period.
    pub fn add(&mut self, other: &StatCounters) {
        let fields = [
            (&mut self.attempts, other.attempts),
            (&mut self.retries, other.retries),
            (&mut self.retried_deliveries, other.retried_deliveries),
            (&mut self.second_attempts, other.second_attempts),
            (&mut self.second_successes, other.second_successes),
            (&mut self.succeeded, other.succeeded),
            (&mut self.success_attempts, other.success_attempts),
            (&mut self.failed, other.failed),
            (&mut self.latency_micros, other.latency_micros),
        ];
        for (sum, more) in fields {
            *sum = sum.saturating_add(more);
        }
        self.slowest_micros = self.slowest_micros.max(other.slowest_micros);
    }
}

/// Returns the counters of one attempt, including the end of its delivery.
pub fn of_attempt(attempt: &AttemptRecord, latency: Duration) -> StatCounters {
    let settlement = &attempt.settlement;
    let status = attempt.delivery.status();
    let spent = attempt.delivery.facts().spent;
    // A refused probe is not an attempt of its round.
    let round_number = (!settlement.is_refused_probe()).then_some(spent);
    let is_first = round_number == Some(1);
    let is_second = round_number == Some(2);
    let has_failed = match settlement.meaning {
        Classification::Success => false,
        Classification::Failure(_) => true,
    };
    let has_succeeded = status == Status::Succeeded;
    let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
    StatCounters {
        attempts: 1,
        retries: u64::from(!is_first),
        retried_deliveries: u64::from(is_first && has_failed && !status.is_terminal()),
        second_attempts: u64::from(is_second),
        second_successes: u64::from(is_second && !has_failed),
        succeeded: u64::from(has_succeeded),
        success_attempts: if has_succeeded { u64::from(spent) } else { 0 },
        failed: u64::from(status == Status::Failed),
        latency_micros: micros,
        slowest_micros: micros,
    }
}

/// Returns the counters of a delivery that was dead-lettered without an attempt, and the time at which it was. `None`
/// for a delivery in any other state: a cancelled delivery does not affect health.
pub fn of_dead_letter(delivery: &Delivery) -> Option<(Timestamp, StatCounters)> {
    match delivery.state() {
        State::Failed { at, .. } => {
            let failed = StatCounters {
                failed: 1,
                ..StatCounters::default()
            };
            Some((at, failed))
        }
        State::Pending(_)
        | State::Retrying(_)
        | State::Held(_)
        | State::InProgress { .. }
        | State::Succeeded { .. }
        | State::Cancelled { .. } => None,
    }
}

/// The scopes that deliveries to an endpoint are counted in. `S` is how a store names a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedScopes<S> {
    /// The scope of everything; `None` for the operational tenant, whose deliveries report on those of others.
    pub everything: Option<S>,
    /// The endpoint's tenant.
    pub tenant: S,
    /// The endpoint.
    pub endpoint: S,
}

/// The counters that one transaction adds, by minute and scope. A transaction writes its rows in the order of this map,
/// so that two transactions that count in the same buckets lock the rows in the same order and cannot deadlock.
#[derive(Debug)]
pub struct StatChanges<S> {
    sums: BTreeMap<(Timestamp, S), StatCounters>,
}

impl<S> Default for StatChanges<S> {
    fn default() -> StatChanges<S> {
        StatChanges {
            sums: BTreeMap::new(),
        }
    }
}

impl<S: Ord + Copy> StatChanges<S> {
    /// Adds counters to the minute that contains `at`.
    pub fn add(&mut self, at: Timestamp, scopes: CountedScopes<S>, counters: &StatCounters) {
        let minute = BucketWidth::Minute.begin(at);
        let scopes = [
            scopes.everything,
            Some(scopes.tenant),
            Some(scopes.endpoint),
        ];
        for scope in scopes.into_iter().flatten() {
            self.sums.entry((minute, scope)).or_default().add(counters);
        }
    }

    /// Returns whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.sums.is_empty()
    }

    /// Returns the sums by bucket and scope, for every width, in their order.
    pub fn into_buckets(self) -> BTreeMap<(BucketWidth, Timestamp, S), StatCounters> {
        let mut buckets: BTreeMap<(BucketWidth, Timestamp, S), StatCounters> = BTreeMap::new();
        for ((minute, scope), counters) in self.sums {
            for width in BucketWidth::ALL {
                let bucket = (width, width.begin(minute), scope);
                buckets.entry(bucket).or_default().add(&counters);
            }
        }
        buckets
    }
}

/// The width of time buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BucketWidth {
    /// One minute; kept for 2 hours.
    Minute,
    /// 15 minutes; kept for 25 hours.
    Quarter,
}

impl BucketWidth {
    /// Every width.
    pub const ALL: [BucketWidth; 2] = [BucketWidth::Minute, BucketWidth::Quarter];

    /// The length of a bucket.
    pub const fn bucket(self) -> Span {
        match self {
            BucketWidth::Minute => Span::from_mins(1),
            BucketWidth::Quarter => Span::from_mins(15),
        }
    }

    /// The retention period of buckets.
    pub const fn kept(self) -> Span {
        match self {
            BucketWidth::Minute => Span::from_hours(2),
            BucketWidth::Quarter => Span::from_hours(25),
        }
    }

    /// Returns the start of the bucket that contains `at`.
    pub fn begin(self, at: Timestamp) -> Timestamp {
        Timestamp(at.0 - at.0 % self.bucket().as_millis())
    }

    /// Returns the retention limit: buckets that start before it can be deleted.
    pub fn first_kept(self, now: Timestamp) -> Timestamp {
        Timestamp(now.0.saturating_sub(self.kept().as_millis()))
    }

    /// Its number in stored rows.
    pub(crate) const fn code(self) -> i16 {
        match self {
            BucketWidth::Minute => 0,
            BucketWidth::Quarter => 1,
        }
    }
}

/// Counters of one scope at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatEntry {
    /// The scope that they belong to.
    pub scope: SubjectScope,
    /// Any time within the minute.
    pub at: Timestamp,
    /// The counters.
    pub counters: StatCounters,
}

/// Sums counters by bucket and scope, for every width.
///
/// # Panics
/// If there are more entries than [`MAX_STAT_ENTRIES`].
pub fn by_bucket(
    happened: Vec<StatEntry>,
) -> BTreeMap<(BucketWidth, Timestamp, SubjectScope), StatCounters> {
    assert!(happened.len() <= MAX_STAT_ENTRIES, "added piece by piece");
    let mut buckets: BTreeMap<(BucketWidth, Timestamp, SubjectScope), StatCounters> =
        BTreeMap::new();
    for it in happened {
        for width in BucketWidth::ALL {
            let bucket = (width, width.begin(it.at), it.scope.clone());
            buckets.entry(bucket).or_default().add(&it.counters);
        }
    }
    buckets
}

/// Converts a counter to its stored form, limited so that sums of sums cannot overflow.
pub(crate) fn stored(count: u64) -> i64 {
    const MOST: u64 = 1 << 53;
    count.min(MOST) as i64
}

impl StatCounters {
    /// The number of columns.
    pub(crate) const COLUMNS: usize = 10;

    /// Returns the values in column order: the last one is a maximum, all others are sums.
    pub(crate) fn columns(&self) -> [i64; StatCounters::COLUMNS] {
        [
            self.attempts,
            self.retries,
            self.second_attempts,
            self.second_successes,
            self.succeeded,
            self.failed,
            self.retried_deliveries,
            self.success_attempts,
            self.latency_micros,
            self.slowest_micros,
        ]
        .map(stored)
    }

    /// Restores the counters from their columns.
    pub(crate) fn from_columns(columns: [i64; StatCounters::COLUMNS]) -> StatCounters {
        let [
            attempts,
            retries,
            second_attempts,
            second_successes,
            succeeded,
            failed,
            retried_deliveries,
            success_attempts,
            latency_micros,
            slowest_micros,
        ] = columns.map(|count| count.max(0) as u64);
        StatCounters {
            attempts,
            retries,
            second_attempts,
            second_successes,
            succeeded,
            failed,
            retried_deliveries,
            success_attempts,
            latency_micros,
            slowest_micros,
        }
    }
}

/// Reads the stats. [`record`](crate::Store::record) and [`sweep`](crate::Store::sweep) count in their own transactions,
/// into time buckets, which [`step_retention`](crate::Store::step_retention) deletes when they
/// expire.
///
/// Stats of a deleted tenant or endpoint are neither added nor returned, so a later tenant with the same id sees
/// nothing of them. They remain part of [`SubjectScope::Everything`].
pub trait StatsStore {
    /// Adds counters to their buckets of every width, beside those that the store counts itself: at most
    /// [`MAX_STAT_ENTRIES`] at once. For tests of what reads stats.
    fn add_stats(&self, happened: Vec<StatEntry>) -> Answer<()>;

    /// Returns the non-empty buckets of a scope that start at `since` or later, oldest first, each with its start
    /// time.
    fn stats(
        &self,
        scope: SubjectScope,
        width: BucketWidth,
        since: Timestamp,
    ) -> Answer<Vec<(Timestamp, StatCounters)>>;

    /// Returns up to `limit` scopes with retries or failed deliveries in buckets that start at `since` or later, each
    /// with its total over those buckets; scopes with most of them first. The cost is proportional to the number of
    /// buckets with retries or failures.
    fn failing_stats(
        &self,
        width: BucketWidth,
        since: Timestamp,
        limit: usize,
    ) -> Answer<Vec<(SubjectScope, StatCounters)>>;
}
