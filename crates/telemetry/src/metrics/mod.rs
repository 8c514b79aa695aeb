//! Metrics and stats of the server's work.
//!
//! [`Metrics`] counts. It guarantees:
//!
//! - **Cheap counting.** Counters and histograms are atomics. Counters by time, tenant and endpoint are behind one lock
//!   that is held for a few writes. It allocates only when a tenant or an endpoint is seen for the first time since the
//!   last flush.
//! - **The store is authoritative.** Counters are written to the store every two seconds and at a shutdown; memory
//!   holds only what is not written yet. So stats are correct after a restart and the same on every node. A killed
//!   process loses what it had not written.
//! - **Bounded memory.** The number of unwritten counters and of remembered endpoints is limited. The least recently
//!   active endpoint is forgotten first.
//! - **No feedback.** Deliveries of the operational tenant, which receives the operational events, count only for that
//!   tenant and its endpoints. Otherwise a failing receiver of notifications would cause more notifications.
//! - **No dependency.** Sending does not depend on metrics. While the store is unavailable, counters wait in memory,
//!   and requests for stats are answered with an error.
//!
//! | module | purpose |
//! |---|---|
//! | [`histogram`] | histograms of durations, for Prometheus |
//! | [`tally`] | counters of one attempt |
//! | [`pending`] | counters that are not in the store yet |
//! | [`flush`] | writes them to the store |
//! | [`window`] | sums over five minutes, an hour, a day |
//! | [`series`] | the same by time bucket, for charts |
//! | [`health`] | ratios with their ranges: healthy, warning, alert |
//! | [`endpoint`] | recent attempts of one endpoint |
//! | [`remembered`] | bounded map that evicts the least recently used |
//! | [`busy`] | attempts of single endpoints, for operators that enable them |
//! | [`gauges`] | values that are read at the time of the request |
//! | [`retrying`] | number of deliveries that have been in retry for long |
//! | [`machine`] | resource usage of the process and the disk |
//! | [`notification_counters`] | counters of notifications and emails |
//! | [`metric`] | one metric, independent of the output format |
//! | [`exposition`] | all metrics in the Prometheus format |

pub mod busy;
pub mod endpoint;
pub mod exposition;
pub mod flush;
pub mod gauges;
pub mod health;
pub mod histogram;
pub mod machine;
pub mod metric;
pub mod notification_counters;
pub mod pending;
pub mod remembered;
pub mod retrying;
pub mod series;
pub mod tally;
pub mod window;

use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use posthaste_core::classify::FailureKind;
use posthaste_core::delivery::Status;
use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::time::{Now, Timestamp};
use posthaste_store::{Scope, Tally};
use tokio::sync::{RwLock, RwLockReadGuard};

use notification_counters::NotificationCounters;

pub use endpoint::{EndpointStats, LastFailure, RecentAttempts};
pub use gauges::{EndpointPending, Gauges};
pub use health::HealthReport;
pub use series::Series;

use busy::{Counted, EndpointCounters};
use endpoint::RecentAttemptBuffer;
use histogram::Histogram;
use metric::Metric;
use pending::Pending;
use remembered::LruMap;

/// Maximum number of endpoints whose recent attempts are kept: 1 KB each.
pub const MAX_ENDPOINTS_SEEN: usize = 10_000;

/// One attempt, as it is counted.
#[derive(Clone, Copy, Debug)]
pub struct AttemptSeen<'a> {
    /// The tenant.
    pub tenant: &'a TenantId,
    /// The endpoint.
    pub endpoint: EndpointId,
    /// Number of the attempt within its round, starting at 1. A replay starts a new round.
    pub round_number: u32,
    /// Kind of the failure; `None` for a success.
    pub failure: Option<FailureKind>,
    /// HTTP status of the response, if there was one.
    pub status_code: Option<u16>,
    /// Duration of the attempt.
    pub latency: Duration,
    /// Time from the acceptance of the event, or from the due time, to the first byte sent. Only for a first attempt.
    pub first_attempt_lag: Option<Duration>,
    /// Final status of the delivery, if this attempt ended it.
    pub ended: Option<Status>,
}

/// Counts everything that happens, and provides the metrics.
#[derive(Debug)]
pub struct Metrics {
    /// True if events and deliveries are not counted.
    is_blind: bool,
    /// The operational tenant, whose deliveries are left out of the totals.
    apart: Option<TenantId>,
    events_accepted: AtomicU64,
    succeeded: AtomicU64,
    failed: AtomicU64,
    cancelled: AtomicU64,
    successes: AtomicU64,
    failures: [AtomicU64; FailureKind::ALL.len()],
    not_made: AtomicU64,
    /// Counters of notifications.
    pub notices: NotificationCounters,
    attempt: Histogram,
    first_attempt_lag: Histogram,
    commit: Histogram,
    ledger: Mutex<CountersByTime>,
    /// Held for writing from when counters are taken out of the ledger until they are in the store.
    writing: RwLock<()>,
    /// Number of pieces that have been written.
    flushes: AtomicU64,
}

/// Counters by time, tenant and endpoint.
#[derive(Debug)]
struct CountersByTime {
    pending: Pending,
    endpoints: LruMap<EndpointId, EndpointSeen>,
    busy: EndpointCounters,
}

/// Recent attempts of an endpoint.
#[derive(Debug, Default)]
struct EndpointSeen {
    tenant: Option<TenantId>,
    lately: RecentAttemptBuffer,
}

/// View of the counters that this node has not written yet. No write to the store is in progress while it is held.
#[derive(Debug)]
pub struct UnwrittenCounters<'a> {
    observe: &'a Metrics,
    _nobody_writes: RwLockReadGuard<'a, ()>,
}

impl UnwrittenCounters<'_> {
    /// Returns the unwritten counters of a scope, by minute.
    pub fn pending(&self, scope: &Scope) -> Vec<(Timestamp, Tally)> {
        self.observe.ledger().pending.of(scope)
    }

    /// Returns the number of pieces written. As long as it stays the same, no pending counters were written.
    pub fn flushes(&self) -> u64 {
        self.observe.flushes.load(SeqCst)
    }
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

impl Metrics {
    /// Creates an instance with all counters at zero.
    pub fn new() -> Metrics {
        Metrics {
            is_blind: false,
            apart: None,
            events_accepted: AtomicU64::new(0),
            succeeded: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            cancelled: AtomicU64::new(0),
            successes: AtomicU64::new(0),
            failures: [const { AtomicU64::new(0) }; FailureKind::ALL.len()],
            not_made: AtomicU64::new(0),
            notices: NotificationCounters::default(),
            attempt: Histogram::new(),
            first_attempt_lag: Histogram::new(),
            commit: Histogram::new(),
            ledger: Mutex::new(CountersByTime {
                pending: Pending::default(),
                endpoints: LruMap::new(MAX_ENDPOINTS_SEEN),
                busy: EndpointCounters::default(),
            }),
            writing: RwLock::new(()),
            flushes: AtomicU64::new(0),
        }
    }

    /// Disables the counting of events and deliveries, to measure the cost of counting.
    pub fn blind(mut self) -> Metrics {
        self.is_blind = true;
        self
    }

    /// Sets the operational tenant. Its deliveries report on those of other tenants, so they are left out of the
    /// totals.
    pub fn with_operational_tenant(mut self, tenant: Option<TenantId>) -> Metrics {
        self.apart = tenant;
        self
    }

    /// Returns the operational tenant, whose deliveries are left out of the totals.
    pub fn apart(&self) -> Option<&TenantId> {
        self.apart.as_ref()
    }

    /// Enables attempt counters for at most `most` single endpoints.
    pub fn by_endpoint(self, most: usize) -> Metrics {
        self.ledger().busy = EndpointCounters::new(most);
        self
    }

    /// Returns the endpoints with their own counters; `None` if these counters are disabled.
    pub fn busy(&self) -> Option<Vec<(EndpointId, Counted)>> {
        self.ledger().busy.told().map(|(told, _)| told)
    }

    /// Records the time that the store took for a commit, including the wait in the write queue.
    pub fn committed(&self, took: Duration) {
        if self.is_blind {
            return;
        }
        self.commit.observe(took);
    }

    /// Counts newly accepted events. Duplicates are not included.
    pub fn accepted(&self, events: u64) {
        self.events_accepted.fetch_add(events, Relaxed);
    }

    /// Counts an attempt that was made and recorded.
    pub fn attempt(&self, now: Now, seen: &AttemptSeen<'_>) {
        if self.is_blind {
            return;
        }
        let is_apart = self.apart() == Some(seen.tenant);
        if !is_apart {
            self.count_attempt(seen);
        }
        let tally = tally::of_attempt(seen);
        let failure = seen.failure.map(|kind| LastFailure {
            at: now.wall,
            kind,
            status_code: seen.status_code,
        });
        let mut ledger = self.ledger();
        let pending = &mut ledger.pending;
        match is_apart {
            true => pending.add_without_totals(now.wall, seen.tenant, seen.endpoint, &tally),
            false => pending.add(now.wall, seen.tenant, seen.endpoint, &tally),
        }
        let (tenant, ok) = (seen.tenant, seen.failure.is_none());
        ledger.busy.count(now.wall, tenant, seen.endpoint, ok);
        let endpoint = ledger.endpoints.of(&seen.endpoint);
        if endpoint.tenant.is_none() {
            endpoint.tenant = Some(seen.tenant.clone());
        }
        endpoint.lately.add(now.wall, seen.latency, failure);
    }

    /// Counts an attempt that an internal error prevented.
    pub fn not_made(&self) {
        self.not_made.fetch_add(1, Relaxed);
    }

    /// Counts deliveries to an endpoint that were dead-lettered without an attempt.
    pub fn swept(&self, now: Now, tenant: &TenantId, endpoint: EndpointId, given_up: u64) {
        if self.is_blind {
            return;
        }
        let tally = tally::of_ended(Status::Failed, given_up);
        let pending = &mut self.ledger().pending;
        if self.apart() == Some(tenant) {
            pending.add_without_totals(now.wall, tenant, endpoint, &tally);
            return;
        }
        self.count_ended(Status::Failed, given_up);
        pending.add(now.wall, tenant, endpoint, &tally);
    }

    /// Counts a cancelled delivery, which does not affect health.
    pub fn called_off(&self) {
        self.count_ended(Status::Cancelled, 1);
    }

    /// Removes the unwritten counters of a deleted tenant, so that a new tenant with the same id starts at zero.
    pub fn forget(&self, tenant: &TenantId) {
        self.ledger().pending.forget(tenant);
    }

    /// Returns success ratio and latencies of an endpoint's recent attempts.
    pub fn endpoint(&self, endpoint: EndpointId) -> EndpointStats {
        // Computed on a copy, so that other threads do not wait for the sorting.
        let ledger = self.ledger();
        let lately = ledger.endpoints.peek(&endpoint);
        let lately = lately.map(|seen| seen.lately.clone());
        drop(ledger);
        lately.unwrap_or_default().figures()
    }

    /// Returns summaries of these endpoints' recent attempts, as far as they are remembered.
    pub fn lately(&self, endpoints: &[EndpointId]) -> Vec<(EndpointId, RecentAttempts)> {
        let ledger = self.ledger();
        let look = |endpoint: &EndpointId| {
            let seen = ledger.endpoints.peek(endpoint)?;
            Some((*endpoint, seen.lately.lately()))
        };
        endpoints.iter().filter_map(look).collect()
    }

    /// Returns failing endpoints of all tenants or of one, lowest success ratio first, at most `limit`. Checks every
    /// remembered endpoint, which takes a fraction of a millisecond.
    pub fn failing(
        &self,
        now: Timestamp,
        tenant: Option<&TenantId>,
        limit: usize,
    ) -> Vec<(EndpointId, RecentAttempts)> {
        let is_meant = |seen: &EndpointSeen| tenant.is_none() || seen.tenant.as_ref() == tenant;
        let ledger = self.ledger();
        let seen = ledger.endpoints.iter().filter(|(_, seen)| is_meant(seen));
        let mut failing: Vec<(EndpointId, RecentAttempts)> = seen
            .map(|(endpoint, seen)| (*endpoint, seen.lately.lately()))
            .filter(|(_, lately)| lately.is_failing(now))
            .collect();
        drop(ledger);
        failing.sort_unstable_by(|(one, a), (other, b)| {
            let by_ratio = a.success_ratio().total_cmp(&b.success_ratio());
            by_ratio.then_with(|| one.cmp(other))
        });
        failing.truncate(limit);
        failing
    }

    /// Waits until no write is in progress, and returns a view of the unwritten counters.
    pub async fn still(&self) -> UnwrittenCounters<'_> {
        UnwrittenCounters {
            _nobody_writes: self.writing.read().await,
            observe: self,
        }
    }

    /// Returns every metric.
    pub fn metrics(&self, gauges: &Gauges) -> Vec<Metric> {
        exposition::metrics(self, gauges)
    }

    /// Returns all metrics in the Prometheus text format.
    pub fn render(&self, gauges: &Gauges) -> String {
        exposition::render(&self.metrics(gauges))
    }

    /// Adds an attempt to the totals.
    fn count_attempt(&self, seen: &AttemptSeen<'_>) {
        match seen.failure {
            None => self.successes.fetch_add(1, Relaxed),
            Some(kind) => self.failures[place_of(kind)].fetch_add(1, Relaxed),
        };
        self.attempt.observe(seen.latency);
        if let Some(lag) = seen.first_attempt_lag {
            self.first_attempt_lag.observe(lag);
        }
        if let Some(status) = seen.ended {
            self.count_ended(status, 1);
        }
    }

    fn count_ended(&self, status: Status, deliveries: u64) {
        let counter = match status {
            Status::Succeeded => &self.succeeded,
            Status::Failed => &self.failed,
            Status::Cancelled => &self.cancelled,
            Status::Pending | Status::Retrying | Status::Held | Status::InProgress => return,
        };
        counter.fetch_add(deliveries, Relaxed);
    }

    fn ledger(&self) -> MutexGuard<'_, CountersByTime> {
        // A panic while the lock was held can only leave inexact counts, so a poisoned lock is ignored.
        self.ledger
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Returns the index of a failure kind in `failures`.
fn place_of(kind: FailureKind) -> usize {
    match kind {
        FailureKind::Http => 0,
        FailureKind::Timeout => 1,
        FailureKind::Dns => 2,
        FailureKind::Tls => 3,
        FailureKind::Connection => 4,
        FailureKind::Validation => 5,
        FailureKind::WebhookDisabled => 6,
        FailureKind::Unknown => 7,
    }
}

#[cfg(test)]
mod tests;
