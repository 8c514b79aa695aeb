//! What is seen of the server's work, in figures.
//!
//! Promises:
//!
//! - **Cheap to tell.** Counters and histograms are atomics. What is remembered by time, tenant and
//!   endpoint lies behind one lock that is held for a few writes, and allocates only when a tenant
//!   or an endpoint is seen for the first time since the last flush.
//! - **The store is the truth.** What happened by time is written down every two seconds, and at a stop; memory
//!   holds only what is not written yet. So figures are right after a restart, and the same on every node. A kill
//!   costs what was not written.
//! - **Bounded.** So much waits to be written, so many endpoints are remembered; whoever was active least
//!   recently is forgotten first.
//! - **Nothing is told of the telling.** What happens to the tenant that gets the operational events counts for that
//!   tenant and its endpoints, and for nothing else: a receiver of notices that fails would make more of them.
//! - **Never in the way.** They tell of the work; nothing depends on them. While the store is away, what happened
//!   waits, and whoever asks is told that it cannot be said.
//!
//! | module | keeps |
//! |---|---|
//! | [`histogram`] | how long things took, for Prometheus |
//! | [`tally`] | one thing that happened |
//! | [`pending`] | what happened and is not in the store yet |
//! | [`flush`] | writes that down |
//! | [`window`] | what happened within five minutes, an hour, a day |
//! | [`series`] | the same bucket by bucket, for charts |
//! | [`health`] | what those figures mean: healthy, warning, alert |
//! | [`endpoint`] | how one endpoint answered lately |
//! | [`remembered`] | a bounded map that forgets whoever was quiet longest |
//! | [`busy`] | attempts of single endpoints, where the operator wants to see them |
//! | [`gauges`] | what others know at the moment |
//! | [`retrying`] | how much of everything has been in retry for long |
//! | [`machine`] | what the machine says of the process and the disk |
//! | [`metric`] | one metric, whoever reads it |
//! | [`exposition`] | all of it as Prometheus reads it |

pub mod busy;
pub mod endpoint;
pub mod exposition;
pub mod flush;
pub mod gauges;
pub mod health;
pub mod histogram;
pub mod machine;
pub mod metric;
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

pub use endpoint::{EndpointFigures, LastFailure, Lately};
pub use gauges::{EndpointPending, Gauges};
pub use health::HealthReport;
pub use series::Series;

use busy::{Busy, Counted};
use endpoint::LatelySeen;
use histogram::Histogram;
use metric::Metric;
use pending::Pending;
use remembered::Remembered;

use crate::notices::NoticeFigures;

/// Of how many endpoints the last attempts are remembered: 1 KB each.
pub const MAX_ENDPOINTS_SEEN: usize = 10_000;

/// One attempt, as far as figures are made of it.
#[derive(Clone, Copy, Debug)]
pub struct AttemptSeen<'a> {
    /// Whose it was.
    pub tenant: &'a TenantId,
    /// Where it went.
    pub endpoint: EndpointId,
    /// Which attempt of its round it was; the first is 1. A replay begins a new round.
    pub round_number: u32,
    /// What went wrong; nothing if it succeeded.
    pub failure: Option<FailureKind>,
    /// What the receiver answered, if it did.
    pub status_code: Option<u16>,
    /// How long it took.
    pub latency: Duration,
    /// From when the event was accepted, or due, to the first byte sent; only of a first attempt.
    pub first_attempt_lag: Option<Duration>,
    /// How its delivery ended, if it did.
    pub ended: Option<Status>,
}

/// Sees all that happens, and can say how it went.
#[derive(Debug)]
pub struct Observatory {
    /// Nothing that happens to events and deliveries is counted.
    is_blind: bool,
    /// Whose deliveries are no part of everything.
    apart: Option<TenantId>,
    events_accepted: AtomicU64,
    succeeded: AtomicU64,
    failed: AtomicU64,
    cancelled: AtomicU64,
    successes: AtomicU64,
    failures: [AtomicU64; FailureKind::ALL.len()],
    not_made: AtomicU64,
    /// What is told of it to people.
    pub notices: NoticeFigures,
    attempt: Histogram,
    first_attempt_lag: Histogram,
    commit: Histogram,
    ledger: Mutex<Ledger>,
    /// Held by whoever takes something out of the ledger until it is in the store.
    writing: RwLock<()>,
    /// How many pieces have been written.
    flushes: AtomicU64,
}

/// What is remembered by time, tenant and endpoint.
#[derive(Debug)]
struct Ledger {
    pending: Pending,
    endpoints: Remembered<EndpointId, EndpointSeen>,
    busy: Busy,
}

/// What is remembered of an endpoint.
#[derive(Debug, Default)]
struct EndpointSeen {
    tenant: Option<TenantId>,
    lately: LatelySeen,
}

/// What this node has not written yet. While it is held, nothing is on its way to the store.
#[derive(Debug)]
pub struct Still<'a> {
    observe: &'a Observatory,
    _nobody_writes: RwLockReadGuard<'a, ()>,
}

impl Still<'_> {
    /// What happened to a scope and is not written yet, by minute.
    pub fn pending(&self, scope: &Scope) -> Vec<(Timestamp, Tally)> {
        self.observe.ledger().pending.of(scope)
    }

    /// How many pieces have been written: as long as this stays the same, what is pending was not written.
    pub fn flushes(&self) -> u64 {
        self.observe.flushes.load(SeqCst)
    }
}

impl Default for Observatory {
    fn default() -> Observatory {
        Observatory::new()
    }
}

impl Observatory {
    /// One that has seen nothing yet.
    pub fn new() -> Observatory {
        Observatory {
            is_blind: false,
            apart: None,
            events_accepted: AtomicU64::new(0),
            succeeded: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            cancelled: AtomicU64::new(0),
            successes: AtomicU64::new(0),
            failures: [const { AtomicU64::new(0) }; FailureKind::ALL.len()],
            not_made: AtomicU64::new(0),
            notices: NoticeFigures::default(),
            attempt: Histogram::new(),
            first_attempt_lag: Histogram::new(),
            commit: Histogram::new(),
            ledger: Mutex::new(Ledger {
                pending: Pending::default(),
                endpoints: Remembered::new(MAX_ENDPOINTS_SEEN),
                busy: Busy::default(),
            }),
            writing: RwLock::new(()),
            flushes: AtomicU64::new(0),
        }
    }

    /// One that counts nothing of what happens to events and deliveries: what counting costs can be seen beside it.
    pub fn blind(mut self) -> Observatory {
        self.is_blind = true;
        self
    }

    /// The same, to which the deliveries of this tenant are no part of everything: they tell of the others.
    pub fn setting_apart(mut self, tenant: Option<TenantId>) -> Observatory {
        self.apart = tenant;
        self
    }

    /// Whose deliveries are no part of everything.
    pub fn apart(&self) -> Option<&TenantId> {
        self.apart.as_ref()
    }

    /// The same, with attempts counted for so many single endpoints.
    pub fn by_endpoint(self, most: usize) -> Observatory {
        self.ledger().busy = Busy::new(most);
        self
    }

    /// The endpoints whose attempts are counted one by one; nothing if nobody wants to see them.
    pub fn busy(&self) -> Option<Vec<(EndpointId, Counted)>> {
        self.ledger().busy.told().map(|(told, _)| told)
    }

    /// It took the store so long to say that something is written, waiting for its turn included.
    pub fn committed(&self, took: Duration) {
        if self.is_blind {
            return;
        }
        self.commit.observe(took);
    }

    /// So many events were accepted that were not there before.
    pub fn accepted(&self, events: u64) {
        self.events_accepted.fetch_add(events, Relaxed);
    }

    /// An attempt was made and written down.
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
            true => pending.add_apart(now.wall, seen.tenant, seen.endpoint, &tally),
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

    /// A fault of this machine's kept an attempt from being made.
    pub fn not_made(&self) {
        self.not_made.fetch_add(1, Relaxed);
    }

    /// So many deliveries of a tenant to an endpoint were given up without an attempt.
    pub fn swept(&self, now: Now, tenant: &TenantId, endpoint: EndpointId, given_up: u64) {
        if self.is_blind {
            return;
        }
        let tally = tally::of_ended(Status::Failed, given_up);
        let pending = &mut self.ledger().pending;
        if self.apart() == Some(tenant) {
            pending.add_apart(now.wall, tenant, endpoint, &tally);
            return;
        }
        self.count_ended(Status::Failed, given_up);
        pending.add(now.wall, tenant, endpoint, &tally);
    }

    /// A delivery was called off, which says nothing about health.
    pub fn called_off(&self) {
        self.count_ended(Status::Cancelled, 1);
    }

    /// Forgets a tenant that is gone: another one may get its id, and is not to be judged by it.
    pub fn forget(&self, tenant: &TenantId) {
        self.ledger().pending.forget(tenant);
    }

    /// How an endpoint answered lately.
    pub fn endpoint(&self, endpoint: EndpointId) -> EndpointFigures {
        // The figures are worked out on a copy, so that nobody waits for the sorting.
        let ledger = self.ledger();
        let lately = ledger.endpoints.peek(&endpoint);
        let lately = lately.map(|seen| seen.lately.clone());
        drop(ledger);
        lately.unwrap_or_default().figures()
    }

    /// How these endpoints did lately, as far as they are remembered.
    pub fn lately(&self, endpoints: &[EndpointId]) -> Vec<(EndpointId, Lately)> {
        let ledger = self.ledger();
        let look = |endpoint: &EndpointId| {
            let seen = ledger.endpoints.peek(endpoint)?;
            Some((*endpoint, seen.lately.lately()))
        };
        endpoints.iter().filter_map(look).collect()
    }

    /// Endpoints that fail lately, of everybody or of one tenant, those that fail most first, at most
    /// `limit`. Costs a look at each that is remembered: a fraction of a millisecond.
    pub fn failing(
        &self,
        now: Timestamp,
        tenant: Option<&TenantId>,
        limit: usize,
    ) -> Vec<(EndpointId, Lately)> {
        let is_meant = |seen: &EndpointSeen| tenant.is_none() || seen.tenant.as_ref() == tenant;
        let ledger = self.ledger();
        let seen = ledger.endpoints.iter().filter(|(_, seen)| is_meant(seen));
        let mut failing: Vec<(EndpointId, Lately)> = seen
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

    /// What is not written yet, once nothing is on its way to the store.
    pub async fn still(&self) -> Still<'_> {
        Still {
            _nobody_writes: self.writing.read().await,
            observe: self,
        }
    }

    /// Every metric, for whoever reads it.
    pub fn metrics(&self, gauges: &Gauges) -> Vec<Metric> {
        exposition::metrics(self, gauges)
    }

    /// Everything as Prometheus reads it.
    pub fn render(&self, gauges: &Gauges) -> String {
        exposition::render(&self.metrics(gauges))
    }

    /// Counts an attempt as one of all.
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

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // Figures that a panic left half written are still figures.
        self.ledger
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Where a kind of failure is counted.
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
