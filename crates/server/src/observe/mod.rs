//! What is seen of the server's work, in figures.
//!
//! Promises:
//!
//! - **Cheap to tell.** Counters and histograms are atomics. What is remembered by time, tenant and
//!   endpoint lies behind one lock that is held for a few array writes, and allocates only when a tenant
//!   or an endpoint is seen for the first time.
//! - **Bounded.** So many tenants, so many endpoints, so many minutes; whoever was active least recently
//!   is forgotten first.
//! - **Never in the way.** Figures are kept in memory and begin anew with the process. They tell of the
//!   work; nothing depends on them.
//!
//! | module | keeps |
//! |---|---|
//! | [`histogram`] | how long things took, for Prometheus |
//! | [`tally`] | what happened in a minute, in an hour, in a day |
//! | [`health`] | what those figures mean: healthy, warning, alert |
//! | [`endpoint`] | how one endpoint answered lately |
//! | [`remembered`] | a bounded map that forgets whoever was quiet longest |
//! | [`exposition`] | all of it as Prometheus reads it |

pub mod endpoint;
pub mod exposition;
pub mod health;
pub mod histogram;
pub mod remembered;
pub mod tally;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use posthaste_core::classify::FailureKind;
use posthaste_core::delivery::Status;
use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::time::Tick;

pub use endpoint::EndpointFigures;
pub use exposition::Gauges;
pub use health::HealthReport;

use endpoint::LatelySeen;
use histogram::Histogram;
use remembered::Remembered;
use tally::{History, Tally, Window};

/// How many tenants have a history of their own: 5 KB each.
pub const MAX_TENANTS_SEEN: usize = 1_000;
/// How many endpoints have figures of their own: 0.6 KB each.
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
    events_accepted: AtomicU64,
    succeeded: AtomicU64,
    failed: AtomicU64,
    cancelled: AtomicU64,
    successes: AtomicU64,
    failures: [AtomicU64; FailureKind::ALL.len()],
    not_made: AtomicU64,
    attempt: Histogram,
    first_attempt_lag: Histogram,
    ledger: Mutex<Ledger>,
}

/// What is remembered by time, tenant and endpoint.
#[derive(Debug)]
struct Ledger {
    all: History,
    tenants: Remembered<TenantId, History>,
    endpoints: Remembered<EndpointId, LatelySeen>,
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
            events_accepted: AtomicU64::new(0),
            succeeded: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            cancelled: AtomicU64::new(0),
            successes: AtomicU64::new(0),
            failures: [const { AtomicU64::new(0) }; FailureKind::ALL.len()],
            not_made: AtomicU64::new(0),
            attempt: Histogram::new(),
            first_attempt_lag: Histogram::new(),
            ledger: Mutex::new(Ledger {
                all: History::default(),
                tenants: Remembered::new(MAX_TENANTS_SEEN),
                endpoints: Remembered::new(MAX_ENDPOINTS_SEEN),
            }),
        }
    }

    /// So many events were accepted that were not there before.
    pub fn accepted(&self, events: u64) {
        self.events_accepted.fetch_add(events, Relaxed);
    }

    /// An attempt was made and written down.
    pub fn attempt(&self, now: Tick, seen: &AttemptSeen<'_>) {
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
        let tally = Tally::of(seen);
        let mut ledger = self.ledger();
        ledger.all.add(now, &tally);
        ledger.tenants.of(seen.tenant).add(now, &tally);
        let succeeded = seen.failure.is_none();
        let endpoint = ledger.endpoints.of(&seen.endpoint);
        endpoint.add(seen.latency, succeeded);
    }

    /// A fault of this machine's kept an attempt from being made.
    pub fn not_made(&self) {
        self.not_made.fetch_add(1, Relaxed);
    }

    /// So many deliveries of a tenant ended without an attempt: called off, or swept.
    pub fn ended(&self, now: Tick, tenant: &TenantId, status: Status, deliveries: u64) {
        self.count_ended(status, deliveries);
        let tally = Tally::ended(status, deliveries);
        let mut ledger = self.ledger();
        ledger.all.add(now, &tally);
        ledger.tenants.of(tenant).add(now, &tally);
    }

    /// Forgets a tenant that is gone: another one may get its id, and is not to be judged by it.
    pub fn forget(&self, tenant: &TenantId) {
        self.ledger().tenants.forget(tenant);
    }

    /// How an endpoint answered lately.
    pub fn endpoint(&self, endpoint: EndpointId) -> EndpointFigures {
        // The figures are worked out on a copy, so that nobody waits for the sorting.
        let lately = self.ledger().endpoints.peek(&endpoint).cloned();
        lately.unwrap_or_default().figures()
    }

    /// What was seen of everything, or of one tenant, over each window by its name.
    pub fn tallies(&self, now: Tick, tenant: Option<&TenantId>) -> Vec<(String, Tally)> {
        let ledger = self.ledger();
        let history = match tenant {
            None => Some(&ledger.all),
            Some(tenant) => ledger.tenants.peek(tenant),
        };
        let over = |window: Window| {
            let tally = history.map(|history| history.over(now, window));
            (window.name().to_owned(), tally.unwrap_or_default())
        };
        Window::ALL.map(over).into()
    }

    /// The health of everything, or of one tenant, over each window, as this process has seen it.
    /// `retrying_over_24h` is what the store counted.
    pub fn health(
        &self,
        now: Tick,
        tenant: Option<&TenantId>,
        retrying_over_24h: u64,
    ) -> HealthReport {
        let tallies = self.tallies(now, tenant);
        let tally = |window: Window| {
            let told = tallies.iter().find(|(name, _)| name == window.name());
            told.map(|(_, tally)| *tally).unwrap_or_default()
        };
        HealthReport::new(tally, retrying_over_24h)
    }

    /// Everything as Prometheus reads it.
    pub fn render(&self, now: Tick, gauges: &Gauges) -> String {
        exposition::render(self, now, gauges)
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
