//! Metrics and stats of the server's work.
//!
//! [`Metrics`] counts. It guarantees:
//!
//! - **Cheap counting.** Counters and histograms are atomics. Recent attempts are behind one lock that is held for a few
//!   writes.
//! - **Stats are in the store.** It counts in the transactions that record attempts, so they are the same on every node
//!   and lose nothing with a killed process. Memory holds only the metrics of this process.
//! - **Bounded memory.** The number of remembered endpoints is limited. The least recently active endpoint is forgotten
//!   first.
//! - **No feedback.** Deliveries of the operational tenant, which receives the operational events, count only for that
//!   tenant and its endpoints. Otherwise a failing receiver of notifications would cause more notifications.
//! - **No dependency.** Sending does not depend on metrics. While the store is unavailable, requests for stats are answered
//!   with an error.
//!
//! | module | purpose |
//! |---|---|
//! | [`histogram`] | histograms of durations, for Prometheus |
//! | [`window`] | sums over five minutes, an hour, a day |
//! | [`series`] | the same by time bucket, for charts |
//! | [`health`] | ratios with their ranges: healthy, warning, alert |
//! | `recent_attempts` | recent attempts of one endpoint |
//! | `lru_map` | bounded map that evicts the least recently used |
//! | [`authentication_counters`] | counters of failed authentications |
//! | `endpoint_counters` | attempts of single endpoints, for operators that enable them |
//! | [`gauges`] | values that are read at the time of the request |
//! | [`retrying`] | number of deliveries that have been in retry for long |
//! | [`process_usage`] | resource usage of the process and the disk |
//! | [`notification_counters`] | counters of notifications and emails |
//! | [`outbox_counters`] | counters of rows from outboxes |
//! | [`schedule_counters`] | counters of runs of schedules |
//! | [`request_counters`] | counters of connections, request bodies and accepts |
//! | [`metric`] | one metric, independent of the output format |
//! | [`exposition`] | all metrics in the Prometheus format |

pub mod authentication_counters;
mod endpoint_counters;
pub mod exposition;
pub mod gauges;
pub mod health;
pub mod histogram;
mod lru_map;
pub mod metric;
pub mod notification_counters;
pub mod outbox_counters;
pub mod process_usage;
mod recent_attempts;
pub mod request_counters;
pub mod retrying;
pub mod schedule_counters;
pub mod series;
pub mod window;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use posthaste_core::classify::FailureKind;
use posthaste_core::delivery::Status;
use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::time::{Now, Timestamp};

use authentication_counters::AuthenticationCounters;
use notification_counters::NotificationCounters;
use outbox_counters::OutboxCounters;
use request_counters::RequestCounters;
use schedule_counters::ScheduleCounters;

use crate::AttemptEvent;

pub use gauges::{EndpointPending, Gauges};
pub use health::HealthReport;
pub use recent_attempts::{EndpointStats, LastFailure, RecentAttempts};
pub use series::Series;

use endpoint_counters::{EndpointCount, EndpointCounters};
use histogram::Histogram;
use lru_map::LruMap;
use metric::Metric;
use recent_attempts::RecentAttemptBuffer;

/// Maximum number of endpoints whose recent attempts are kept: 1 KB each.
pub const MAX_RECENT_ENDPOINTS: usize = 10_000;

/// Counts everything that happens, and provides the metrics.
#[derive(Debug)]
pub struct Metrics {
    /// True if deliveries are not counted.
    is_disabled: bool,
    /// The operational tenant, whose deliveries are left out of the totals.
    operational_tenant: Option<TenantId>,
    events_accepted: AtomicU64,
    succeeded: AtomicU64,
    failed: AtomicU64,
    cancelled: AtomicU64,
    successes: AtomicU64,
    failures: [AtomicU64; FailureKind::ALL.len()],
    attempts_prevented: AtomicU64,
    held_after_faults: AtomicU64,
    /// Counters of failed authentications.
    pub authentications: AuthenticationCounters,
    /// Counters of notifications.
    pub notifications: NotificationCounters,
    /// Counters of outboxes.
    pub outboxes: OutboxCounters,
    /// Counters of runs of schedules.
    pub schedules: ScheduleCounters,
    /// Counters of the API.
    pub requests: RequestCounters,
    attempt_seconds: Histogram,
    first_attempt_lag: Histogram,
    commit: Histogram,
    endpoints: Mutex<Endpoints>,
}

/// Recent attempts and counters of single endpoints.
#[derive(Debug)]
struct Endpoints {
    recent: LruMap<EndpointId, RecentEndpoint>,
    by_endpoint: EndpointCounters,
}

/// Recent attempts of an endpoint.
#[derive(Debug, Default)]
struct RecentEndpoint {
    tenant: Option<TenantId>,
    attempts: RecentAttemptBuffer,
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
            is_disabled: false,
            operational_tenant: None,
            events_accepted: AtomicU64::new(0),
            succeeded: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            cancelled: AtomicU64::new(0),
            successes: AtomicU64::new(0),
            failures: [const { AtomicU64::new(0) }; FailureKind::ALL.len()],
            attempts_prevented: AtomicU64::new(0),
            held_after_faults: AtomicU64::new(0),
            authentications: AuthenticationCounters::default(),
            notifications: NotificationCounters::default(),
            outboxes: OutboxCounters::default(),
            schedules: ScheduleCounters::default(),
            requests: RequestCounters::default(),
            attempt_seconds: Histogram::new(),
            first_attempt_lag: Histogram::new(),
            commit: Histogram::new(),
            endpoints: Mutex::new(Endpoints {
                recent: LruMap::new(MAX_RECENT_ENDPOINTS),
                by_endpoint: EndpointCounters::default(),
            }),
        }
    }

    /// Disables the counting of events and deliveries, to measure the cost of counting.
    pub fn blind(mut self) -> Metrics {
        self.is_disabled = true;
        self
    }

    /// Sets the operational tenant. Its deliveries report on those of other tenants, so they are left out of the
    /// totals.
    pub fn with_operational_tenant(mut self, tenant: Option<TenantId>) -> Metrics {
        self.operational_tenant = tenant;
        self
    }

    /// Returns the operational tenant, whose deliveries are left out of the totals.
    pub fn operational_tenant(&self) -> Option<&TenantId> {
        self.operational_tenant.as_ref()
    }

    /// Enables attempt counters for at most `most` single endpoints.
    pub fn with_endpoint_counters(self, most: usize) -> Metrics {
        self.endpoints().by_endpoint = EndpointCounters::new(most);
        self
    }

    /// Returns the endpoints with their own counters; `None` if these counters are disabled.
    pub fn endpoint_counters(&self) -> Option<Vec<(EndpointId, EndpointCount)>> {
        self.endpoints()
            .by_endpoint
            .snapshot()
            .map(|(counted, _)| counted)
    }

    /// Records the time that the store took for a commit, including the wait in the write queue.
    pub fn committed(&self, took: Duration) {
        if self.is_disabled {
            return;
        }
        self.commit.observe(took);
    }

    /// Counts newly accepted events. Duplicates are not included.
    pub fn accepted(&self, events: u64) {
        self.events_accepted.fetch_add(events, Relaxed);
    }

    /// Counts an attempt that was made and recorded.
    pub fn attempt(&self, now: Now, attempt: &AttemptEvent) {
        if self.is_disabled {
            return;
        }
        let is_operational = self.operational_tenant() == Some(&attempt.tenant);
        if !is_operational {
            self.count_attempt(attempt);
        }
        let failure = attempt.failure.map(|kind| LastFailure {
            at: now.wall,
            kind,
            status_code: attempt.status_code,
        });
        let (tenant, endpoint) = (&attempt.tenant, attempt.endpoint);
        let mut endpoints = self.endpoints();
        endpoints
            .by_endpoint
            .count(now.wall, tenant, endpoint, attempt.failure.is_none());
        let recent = endpoints.recent.get_or_default(&endpoint);
        if recent.tenant.is_none() {
            recent.tenant = Some(tenant.clone());
        }
        recent.attempts.add(now.wall, attempt.latency, failure);
    }

    /// Sets the number of deliveries that this node holds after internal errors, or cannot read.
    pub fn held_after_faults(&self, deliveries: u64) {
        self.held_after_faults.store(deliveries, Relaxed);
    }

    /// Counts an attempt that an internal error prevented.
    pub fn attempt_prevented(&self) {
        self.attempts_prevented.fetch_add(1, Relaxed);
    }

    /// Counts deliveries of a tenant that were dead-lettered without an attempt.
    pub fn dead_lettered(&self, tenant: &TenantId, deliveries: u64) {
        if !self.is_disabled && self.operational_tenant() != Some(tenant) {
            self.count_ended(Status::Failed, deliveries);
        }
    }

    /// Counts a cancelled delivery, which does not affect health.
    pub fn cancelled(&self) {
        self.count_ended(Status::Cancelled, 1);
    }

    /// Returns success ratio and latencies of an endpoint's recent attempts.
    pub fn endpoint_stats(&self, endpoint: EndpointId) -> EndpointStats {
        // Computed on a copy, so that other threads do not wait for the sorting.
        let endpoints = self.endpoints();
        let recent = endpoints.recent.peek(&endpoint);
        let attempts = recent.map(|recent| recent.attempts.clone());
        drop(endpoints);
        attempts.unwrap_or_default().stats()
    }

    /// Returns summaries of these endpoints' recent attempts, as far as they are remembered.
    pub fn recent_attempts(&self, endpoints: &[EndpointId]) -> Vec<(EndpointId, RecentAttempts)> {
        let known = self.endpoints();
        let summary = |endpoint: &EndpointId| {
            let recent = known.recent.peek(endpoint)?;
            Some((*endpoint, recent.attempts.summary()))
        };
        endpoints.iter().filter_map(summary).collect()
    }

    /// Returns failing endpoints of all tenants or of one, lowest success ratio first, at most `limit`. Checks every
    /// remembered endpoint, which takes a fraction of a millisecond.
    pub fn failing_endpoints(
        &self,
        now: Timestamp,
        tenant: Option<&TenantId>,
        limit: usize,
    ) -> Vec<(EndpointId, RecentAttempts)> {
        let is_of_tenant =
            |recent: &RecentEndpoint| tenant.is_none() || recent.tenant.as_ref() == tenant;
        let endpoints = self.endpoints();
        let recent = endpoints.recent.iter();
        let mut failing: Vec<(EndpointId, RecentAttempts)> = recent
            .filter(|(_, recent)| is_of_tenant(recent))
            .map(|(endpoint, recent)| (*endpoint, recent.attempts.summary()))
            .filter(|(_, summary)| summary.is_failing(now))
            .collect();
        drop(endpoints);
        failing.sort_unstable_by(|(one, a), (other, b)| {
            let by_ratio = a.success_ratio().total_cmp(&b.success_ratio());
            by_ratio.then_with(|| one.cmp(other))
        });
        failing.truncate(limit);
        failing
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
    fn count_attempt(&self, attempt: &AttemptEvent) {
        match attempt.failure {
            None => self.successes.fetch_add(1, Relaxed),
            Some(kind) => self.failures[index_of(kind)].fetch_add(1, Relaxed),
        };
        self.attempt_seconds.observe(attempt.latency);
        if let Some(lag) = attempt.first_attempt_lag {
            self.first_attempt_lag.observe(lag);
        }
        if let Some(status) = attempt.ended {
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

    fn endpoints(&self) -> MutexGuard<'_, Endpoints> {
        // A panic while the lock was held can only leave inexact counts, so a poisoned lock is ignored.
        self.endpoints
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Returns the index of a failure kind in `failures`.
fn index_of(kind: FailureKind) -> usize {
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

/// Returns counters with this number of attempts, for tests.
#[cfg(test)]
fn attempts(count: u64) -> posthaste_store::StatCounters {
    posthaste_store::StatCounters {
        attempts: count,
        ..Default::default()
    }
}

#[cfg(test)]
mod tests;
