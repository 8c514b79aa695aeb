//! Tests of alert rounds, on a store in memory and with a simulated clock.

mod counters;
mod endpoints;
mod held_back;
mod runbook;
mod server;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use posthaste_core::alert::{AlertName, Bound};
use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::rng::Rng;
use posthaste_core::time::{Now, Span, Tick, Timestamp};
use posthaste_engine::owner_router::{LimitedEndpoints, LimitedReport};
use posthaste_store::sqlite::SqliteStore;
use posthaste_store::{AlertFilter, CreateResult, PageRequest, Store, StoreSettings, SubjectScope};
use posthaste_store_testing::NoHandOver;
use posthaste_store_testing::model::ModelStore;
use posthaste_system::clock::Clock;

use super::checker::Sources;
use super::{AlertChecker, AlertSettings, EndpointAlerts};
use crate::notifications::Audience;
use crate::shard_owner_task::ShardOwnerTask;
use crate::testing;

/// Start time of the tests.
const START: u64 = 1_700_000_000_000;
/// An endpoint of tenant acme.
const HOOK: EndpointId = EndpointId(7);

/// State of the simulated environment.
#[derive(Default)]
struct Environment {
    /// Time passed.
    passed_ms: u64,
    /// Time that passes with every reading of the clock.
    lag_ms: u64,
    queue_age: Option<Span>,
    /// Endpoints that a limit holds back, as all nodes report them.
    limited: LimitedEndpoints,
    held_after_faults: u64,
    unreachable_outbox: Option<Span>,
}

struct Fixture {
    store: Arc<dyn Store>,
    environment: Arc<Mutex<Environment>>,
    settings: AlertSettings,
    audience: Audience,
    checker: AlertChecker,
}

impl Fixture {
    /// Starts with a store in memory that has tenant acme with endpoint [`HOOK`].
    async fn new() -> Fixture {
        let settings = StoreSettings::new(Rng::seeded(1));
        let store = ModelStore::new(settings, Arc::new(NoHandOver));
        Fixture::on(Arc::new(store)).await
    }

    /// Starts with a SQLite store.
    async fn in_file(folder: &Path) -> Fixture {
        let settings = StoreSettings::new(Rng::seeded(1));
        let store = SqliteStore::open(folder.join("a.db"), settings, Arc::new(NoHandOver));
        Fixture::on(Arc::new(store.expect("the store opens"))).await
    }

    async fn on(store: Arc<dyn Store>) -> Fixture {
        let environment = Arc::new(Mutex::new(Environment::default()));
        let mut settings = AlertSettings::default();
        // No notifications are dispatched here, and only one test is about that.
        settings.bounds.remove(&AlertName::NotificationsStuck);
        let audience = Audience {
            tenant: None,
            operator_emails: None,
            allowed_domains: Default::default(),
        };
        let checker = checker(&store, &environment, &settings, &audience, 1);
        let fixture = Fixture {
            store,
            environment,
            settings,
            audience,
            checker,
        };
        fixture.add_tenant("acme").await;
        let hook = testing::endpoint(HOOK, "acme", fixture.now());
        let made = fixture.store.create_endpoint(fixture.now(), hook, 10).await;
        assert_eq!(made, Ok(CreateResult::Created));
        fixture
    }

    async fn add_tenant(&self, id: &str) {
        self.add_tenant_at(id, self.now()).await;
    }

    async fn add_tenant_at(&self, id: &str, created_at: Timestamp) {
        let tenant = testing::tenant(id, created_at);
        let made = self.store.create_tenant(self.now(), tenant).await;
        assert_eq!(made, Ok(CreateResult::Created));
    }

    fn now(&self) -> Timestamp {
        Timestamp(START + self.environment().passed_ms)
    }

    /// Returns a processor of notifications with these settings.
    fn endpoint_alerts(&self, settings: &AlertSettings) -> EndpointAlerts {
        let clock = clock(&self.environment);
        EndpointAlerts::new(self.store.clone(), clock, settings.clone())
    }

    fn environment(&self) -> MutexGuard<'_, Environment> {
        self.environment.lock().expect("the lock is not poisoned")
    }

    fn advance(&self, time: Span) {
        self.environment().passed_ms += time.as_millis();
    }

    /// Continues as a new process with the current settings.
    fn restart(&mut self) {
        let (settings, audience) = (&self.settings, &self.audience);
        self.checker = checker(&self.store, &self.environment, settings, audience, 2);
    }

    /// Turns off all alerts except this one, with this threshold.
    fn only(&mut self, name: AlertName, bound: Bound) {
        self.settings.bounds = [(name, bound)].into();
        self.restart();
    }

    /// Runs rounds for this time, every 15 seconds.
    async fn run_for(&mut self, time: Span) {
        let rounds = time.as_millis() / self.settings.every.as_millis();
        for _ in 0..rounds {
            self.advance(self.settings.every);
            self.checker.round().await.expect("the round succeeds");
        }
    }

    /// Returns the open alerts.
    async fn open(&self) -> Vec<(AlertName, SubjectScope)> {
        let filter = AlertFilter {
            open: Some(true),
            ..AlertFilter::default()
        };
        let page = PageRequest {
            limit: 1_000,
            before: None,
        };
        let found = self
            .store
            .alerts(filter, page)
            .await
            .expect("the store reads");
        let mut open: Vec<_> = found
            .items
            .into_iter()
            .map(|alert| (alert.name, alert.scope))
            .collect();
        open.sort();
        open
    }

    /// Returns the number of notifications that this alert was raised, and that it was resolved.
    async fn notified(&self, name: AlertName, scope: &SubjectScope) -> (usize, usize) {
        let notifications = self
            .store
            .notifications(0, 10_000)
            .await
            .expect("the store reads");
        let count = |kind: &str| {
            let of = notifications.iter().filter(|notification| {
                notification.name == kind
                    && notification.scope == *scope
                    && notification.detail["name"] == name.name()
            });
            of.count()
        };
        (count("alert.raised"), count("alert.resolved"))
    }
}

/// Returns the simulated clock.
fn clock(environment: &Arc<Mutex<Environment>>) -> Clock {
    let environment = environment.clone();
    Clock::from_fn(move || {
        let mut environment = environment.lock().expect("the lock is not poisoned");
        environment.passed_ms += environment.lag_ms;
        Now {
            wall: Timestamp(START + environment.passed_ms),
            tick: Tick(environment.passed_ms),
        }
    })
}

fn checker(
    store: &Arc<dyn Store>,
    environment: &Arc<Mutex<Environment>>,
    settings: &AlertSettings,
    audience: &Audience,
    seed: u64,
) -> AlertChecker {
    let clock = clock(environment);
    let of_limits = environment.clone();
    let limited = Box::new(move |at_least: Span| {
        let environment = of_limits.lock().expect("the lock is not poisoned");
        let mut limited = environment.limited.clone();
        let is_long = |report: &LimitedReport| report.duration() >= at_least;
        limited.endpoints.retain(|_, report| is_long(report));
        Box::pin(std::future::ready(limited)) as _
    });
    let environment = environment.clone();
    let holding = environment.clone();
    let of_outboxes = environment.clone();
    let queue_age = Box::new(move || {
        let age = environment
            .lock()
            .expect("the lock is not poisoned")
            .queue_age;
        Box::pin(std::future::ready(age)) as _
    });
    let rng = Rng::seeded(seed);
    let (store, settings) = (store.clone(), settings.clone());
    let held_count = Box::new(move || {
        let environment = holding.lock().expect("the lock is not poisoned");
        Box::pin(std::future::ready(environment.held_after_faults)) as _
    });
    let unreachable_outboxes = Box::new(move || {
        let environment = of_outboxes.lock().expect("the lock is not poisoned");
        Box::pin(std::future::ready(environment.unreachable_outbox)) as _
    });
    let sources = Sources {
        queue_age,
        limited,
        held_count,
        unreachable_outboxes,
    };
    AlertChecker::with_rng(store, clock, settings, sources, audience.clone(), rng)
}

fn acme() -> TenantId {
    testing::tenant_id("acme")
}
