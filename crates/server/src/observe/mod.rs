//! What is seen of the server's work, in figures.
//!
//! Promises:
//!
//! - **Cheap to tell.** Counters and histograms are atomics. What is remembered by time, tenant and
//!   endpoint lies behind one lock that is held for a few array writes, and allocates only when a tenant
//!   or an endpoint is seen for the first time, or in more minutes than ever before.
//! - **Bounded.** So many tenants, so many endpoints, so many minutes; whoever was active least recently
//!   is forgotten first.
//! - **Never in the way.** Figures are kept in memory and begin anew with the process. They tell of the
//!   work; nothing depends on them.
//!
//! | module | keeps |
//! |---|---|
//! | [`histogram`] | how long things took, for Prometheus |
//! | [`tally`] | what happened in a minute, in an hour, in a day |
//! | [`series`] | the same bucket by bucket, for charts |
//! | [`health`] | what those figures mean: healthy, warning, alert |
//! | [`endpoint`] | how one endpoint answered lately |
//! | [`remembered`] | a bounded map that forgets whoever was quiet longest |
//! | [`machine`] | what the process and the disk below the store have |
//! | [`metric`] | one metric, whoever reads it |
//! | [`exposition`] | all of it as Prometheus reads it |

pub mod endpoint;
pub mod exposition;
pub mod health;
pub mod histogram;
pub mod machine;
pub mod metric;
pub mod remembered;
pub mod series;
pub mod tally;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use posthaste_core::classify::FailureKind;
use posthaste_core::delivery::Status;
use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::time::{Now, Tick, Timestamp};

pub use endpoint::{EndpointFigures, LastFailure, Lately};
pub use exposition::Gauges;
pub use health::HealthReport;
pub use series::Series;

use endpoint::LatelySeen;
use histogram::Histogram;
use metric::Metric;
use remembered::Remembered;
use tally::{History, Tally, Window};

use crate::notices::NoticeFigures;

/// How many tenants have a history of their own: at most 8 KB each.
pub const MAX_TENANTS_SEEN: usize = 1_000;
/// How many endpoints have figures of their own: 1 KB each, and at most 6 KB if they are called every
/// minute of an hour and every hour of a day.
pub const MAX_ENDPOINTS_SEEN: usize = 10_000;

/// Of what figures are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everything.
    All,
    /// One tenant.
    Tenant(TenantId),
    /// One endpoint.
    Endpoint(EndpointId),
}

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
    /// By how many milliseconds the wall clock was ahead of the steady one when something was first seen.
    ahead_ms: OnceLock<i64>,
    ledger: Mutex<Ledger>,
}

/// What is remembered by time, tenant and endpoint.
#[derive(Debug)]
struct Ledger {
    all: History,
    tenants: Remembered<TenantId, History>,
    endpoints: Remembered<EndpointId, EndpointSeen>,
}

impl Ledger {
    fn history(&self, scope: &Scope) -> Option<&History> {
        match scope {
            Scope::All => Some(&self.all),
            Scope::Tenant(tenant) => self.tenants.peek(tenant),
            Scope::Endpoint(endpoint) => {
                let seen = self.endpoints.peek(endpoint);
                seen.map(|seen| &seen.history)
            }
        }
    }
}

/// What is remembered of an endpoint.
#[derive(Debug)]
struct EndpointSeen {
    tenant: Option<TenantId>,
    lately: LatelySeen,
    history: History,
}

impl Default for EndpointSeen {
    fn default() -> EndpointSeen {
        EndpointSeen {
            tenant: None,
            lately: LatelySeen::default(),
            history: History::coarse(),
        }
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
            ahead_ms: OnceLock::new(),
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
    pub fn attempt(&self, now: Now, seen: &AttemptSeen<'_>) {
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
        let failure = seen.failure.map(|kind| LastFailure {
            at: now.wall,
            kind,
            status_code: seen.status_code,
        });
        let moment = self.moment(now);
        let mut ledger = self.ledger();
        ledger.all.add(moment, &tally);
        ledger.tenants.of(seen.tenant).add(moment, &tally);
        let endpoint = ledger.endpoints.of(&seen.endpoint);
        if endpoint.tenant.is_none() {
            endpoint.tenant = Some(seen.tenant.clone());
        }
        endpoint.history.add(moment, &tally);
        endpoint.lately.add(now.wall, seen.latency, failure);
    }

    /// A fault of this machine's kept an attempt from being made.
    pub fn not_made(&self) {
        self.not_made.fetch_add(1, Relaxed);
    }

    /// So many deliveries of a tenant to an endpoint were given up without an attempt.
    pub fn swept(&self, now: Now, tenant: &TenantId, endpoint: EndpointId, given_up: u64) {
        self.count_ended(Status::Failed, given_up);
        let tally = Tally::ended(Status::Failed, given_up);
        let moment = self.moment(now);
        let mut ledger = self.ledger();
        ledger.all.add(moment, &tally);
        ledger.tenants.of(tenant).add(moment, &tally);
        ledger.endpoints.of(&endpoint).history.add(moment, &tally);
    }

    /// A delivery was called off, which says nothing about health.
    pub fn called_off(&self) {
        self.count_ended(Status::Cancelled, 1);
    }

    /// Forgets a tenant that is gone: another one may get its id, and is not to be judged by it.
    pub fn forget(&self, tenant: &TenantId) {
        self.ledger().tenants.forget(tenant);
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

    /// What was seen, over each window by its name.
    pub fn tallies(&self, now: Now, scope: &Scope) -> Vec<(String, Tally)> {
        let moment = self.moment(now);
        let ledger = self.ledger();
        let history = ledger.history(scope);
        let over = |window: Window| {
            let tally = history.map(|history| history.over(moment, window));
            (window.name().to_owned(), tally.unwrap_or_default())
        };
        Window::ALL.map(over).into()
    }

    /// What was seen, bucket by bucket.
    pub fn series(&self, now: Now, scope: &Scope, window: Window) -> Series {
        let moment = self.moment(now);
        let strip = match self.ledger().history(scope) {
            Some(history) => history.strip(moment, window),
            None => match scope {
                Scope::All | Scope::Tenant(_) => History::fine().strip(moment, window),
                Scope::Endpoint(_) => History::coarse().strip(moment, window),
            },
        };
        // Somebody may have set the wall clock since.
        let ahead_ms = i128::from(now.wall.0) - i128::from(moment.0);
        let stamp = |(began, tally): (Tick, Tally)| {
            let began = series::nearest(i128::from(began.0) + ahead_ms, strip.bucket);
            (began, tally)
        };
        Series {
            bucket: strip.bucket,
            buckets: strip.buckets.into_iter().map(stamp).collect(),
        }
    }

    /// The health of everything, of one tenant or of one endpoint, over each window, as this process has
    /// seen it. `retrying_over_24h` is what the store counted.
    pub fn health(&self, now: Now, scope: &Scope, retrying_over_24h: u64) -> HealthReport {
        let tallies = self.tallies(now, scope);
        let tally = |window: Window| {
            let told = tallies.iter().find(|(name, _)| name == window.name());
            told.map(|(_, tally)| *tally).unwrap_or_default()
        };
        HealthReport::new(tally, retrying_over_24h)
    }

    /// Every metric, for whoever reads it.
    pub fn metrics(&self, now: Now, gauges: &Gauges) -> Vec<Metric> {
        exposition::metrics(self, now, gauges)
    }

    /// Everything as Prometheus reads it.
    pub fn render(&self, now: Now, gauges: &Gauges) -> String {
        exposition::render(&self.metrics(now, gauges))
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

    /// The steady clock, set by the wall clock once: its minutes are those that people see, and none
    /// comes twice or never because somebody sets the wall clock.
    fn moment(&self, now: Now) -> Tick {
        let ahead_ms = self.ahead_ms.get_or_init(|| {
            let ahead = i128::from(now.wall.0) - i128::from(now.tick.0);
            i64::try_from(ahead).unwrap_or_default()
        });
        Tick(now.tick.0.saturating_add_signed(*ahead_ms))
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
