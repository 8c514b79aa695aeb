//! Tests of alert rounds, on a store in memory and with a simulated clock.

mod endpoints;
mod figures;
mod machine;
mod runbook;

use std::path::Path;
use std::sync::{Arc, Mutex};

use posthaste_core::alert::{AlertName, Bound};
use posthaste_core::dice::Dice;
use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::lane::{DEFAULT_MAX_IN_FLIGHT, RateLimit};
use posthaste_core::sign::SignatureStyle;
use posthaste_core::time::{Now, Span, Tick, Timestamp};
use posthaste_store::sqlite::SqliteStore;
use posthaste_store::{
    AlertFilter, CreateResult, Endpoint, HandOver, HandedOver, Limits, PageRequest, Scope, Store,
    StoreError, StoreSettings, Tenant,
};
use posthaste_store_testing::model::ModelStore;
use posthaste_system::clock::Clock;

use super::{AlertChecker, AlertSettings, Hearing};
use crate::notifications::Audience;

/// Start time of the tests.
const START: u64 = 1_700_000_000_000;
/// An endpoint of tenant acme.
const HOOK: EndpointId = EndpointId(7);

struct Nobody;

impl HandOver for Nobody {
    fn accepted(&self, _: Vec<HandedOver>) {}

    fn broken(&self, why: &StoreError) {
        panic!("{why}");
    }
}

/// State of the simulated environment.
#[derive(Default)]
struct Outside {
    /// Time passed.
    passed_ms: u64,
    /// Time that passes with every reading of the clock.
    lag_ms: u64,
    queue_age: Option<Span>,
}

struct World {
    store: Arc<dyn Store>,
    outside: Arc<Mutex<Outside>>,
    settings: AlertSettings,
    audience: Audience,
    watch: AlertChecker,
}

impl World {
    /// Starts with a store in memory that has tenant acme with endpoint [`HOOK`].
    async fn new() -> World {
        let settings = StoreSettings::new(Dice::seeded(1));
        let store = ModelStore::new(settings, Arc::new(Nobody));
        World::on(Arc::new(store)).await
    }

    /// Starts with a SQLite store.
    async fn in_file(folder: &Path) -> World {
        let settings = StoreSettings::new(Dice::seeded(1));
        let store = SqliteStore::open(folder.join("a.db"), settings, Arc::new(Nobody));
        World::on(Arc::new(store.expect("it opens"))).await
    }

    async fn on(store: Arc<dyn Store>) -> World {
        let outside = Arc::new(Mutex::new(Outside::default()));
        let mut settings = AlertSettings::default();
        // No notifications are dispatched here, and only one test is about that.
        settings.bounds.remove(&AlertName::NotificationsStuck);
        let audience = Audience {
            tenant: None,
            letters: None,
        };
        let watch = watch(&store, &outside, &settings, &audience, 1);
        let world = World {
            store,
            outside,
            settings,
            audience,
            watch,
        };
        world.add_tenant("acme").await;
        let made = world.store.create_endpoint(world.now(), hook(), 10).await;
        assert_eq!(made, Ok(CreateResult::Created));
        world
    }

    async fn add_tenant(&self, id: &str) {
        self.add_tenant_at(id, self.now()).await;
    }

    async fn add_tenant_at(&self, id: &str, created_at: Timestamp) {
        let tenant = Tenant {
            plan: None,
            id: id.parse().expect("an id"),
            name: id.to_owned(),
            default_retry_policy: None,
            limits: Limits::default(),
            created_at,
            revision: 0,
        };
        let made = self.store.create_tenant(self.now(), tenant).await;
        assert_eq!(made, Ok(CreateResult::Created));
    }

    fn now(&self) -> Timestamp {
        let outside = self.outside.lock().expect("nobody panics");
        Timestamp(START + outside.passed_ms)
    }

    /// Returns a processor of notifications with these settings.
    fn hearing(&self, settings: &AlertSettings) -> Hearing {
        let clock = clock(&self.outside);
        Hearing::new(self.store.clone(), clock, settings.clone())
    }

    fn pass(&self, time: Span) {
        self.outside.lock().expect("nobody panics").passed_ms += time.as_millis();
    }

    /// Continues as a new process with the current settings.
    fn restart(&mut self) {
        let (settings, audience) = (&self.settings, &self.audience);
        self.watch = watch(&self.store, &self.outside, settings, audience, 2);
    }

    /// Turns off all alerts except this one, with this threshold.
    fn only(&mut self, name: AlertName, bound: Bound) {
        self.settings.bounds = [(name, bound)].into();
        self.restart();
    }

    /// Runs rounds for this time, every 15 seconds.
    async fn watch_for(&mut self, time: Span) {
        let rounds = time.as_millis() / self.settings.every.as_millis();
        for _ in 0..rounds {
            self.pass(self.settings.every);
            self.watch.round().await.expect("it looks");
        }
    }

    /// Returns the open alerts.
    async fn open(&self) -> Vec<(AlertName, Scope)> {
        let filter = AlertFilter {
            open: Some(true),
            ..AlertFilter::default()
        };
        let page = PageRequest {
            limit: 1_000,
            before: None,
        };
        let found = self.store.alerts(filter, page).await.expect("it reads");
        let mut open: Vec<_> = found
            .items
            .into_iter()
            .map(|alert| (alert.name, alert.scope))
            .collect();
        open.sort();
        open
    }

    /// Returns the number of notifications that this alert was raised, and that it was resolved.
    async fn told(&self, name: AlertName, scope: &Scope) -> (usize, usize) {
        let notices = self.store.notices(0, 10_000).await.expect("it reads");
        let count = |kind: &str| {
            let of = notices.iter().filter(|notice| {
                notice.name == kind
                    && notice.scope == *scope
                    && notice.detail["name"] == name.name()
            });
            of.count()
        };
        (count("alert.raised"), count("alert.resolved"))
    }
}

/// Returns the simulated clock.
fn clock(outside: &Arc<Mutex<Outside>>) -> Clock {
    let outside = outside.clone();
    Clock::told(move || {
        let mut outside = outside.lock().expect("nobody panics");
        outside.passed_ms += outside.lag_ms;
        Now {
            wall: Timestamp(START + outside.passed_ms),
            tick: Tick(outside.passed_ms),
        }
    })
}

fn watch(
    store: &Arc<dyn Store>,
    outside: &Arc<Mutex<Outside>>,
    settings: &AlertSettings,
    audience: &Audience,
    seed: u64,
) -> AlertChecker {
    let clock = clock(outside);
    let outside = outside.clone();
    let queue_age = Box::new(move || {
        let age = outside.lock().expect("nobody panics").queue_age;
        Box::pin(std::future::ready(age)) as _
    });
    let dice = Dice::seeded(seed);
    let (store, settings) = (store.clone(), settings.clone());
    AlertChecker::with(store, clock, settings, queue_age, audience.clone(), dice)
}

fn acme() -> TenantId {
    "acme".parse().expect("an id")
}

fn hook() -> Endpoint {
    Endpoint {
        id: HOOK,
        tenant: acme(),
        url: "https://example.com/hook".to_owned(),
        description: String::new(),
        event_types: vec!["*".parse().expect("a pattern")],
        retry_policy: None,
        timeout: Span::from_secs(30),
        max_in_flight: DEFAULT_MAX_IN_FLIGHT,
        rate: RateLimit::default(),
        ordered: false,
        sealed_headers: Vec::new(),
        sealed_keys: Vec::new(),
        signature_style: SignatureStyle::Standard,
        sealed_credentials: Vec::new(),
        owner_email: None,
        created_at: Timestamp(START),
        revision: 0,
    }
}
