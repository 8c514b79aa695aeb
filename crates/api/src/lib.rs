//! The HTTP API.
//!
//! ```text
//!  connection ─▶ router ─▶ authenticate ─▶ find tenant ─▶ handler ─▶ response
//!   (serve)     (routes)     (auth)         (auth)     (tenants, endpoints, …)
//! ```
//!
//! Guarantees:
//!
//! - **One route table.** [`routes`] lists every route with its request and response types. The router, the
//!   OpenAPI document and the documentation page are generated from it.
//! - **One type for each resource.** [`resources`] has the types of all responses, with their schemas. Clients
//!   deserialize the same types.
//! - **Strict.** A request that is not understood is refused before anything is done. The response lists all
//!   errors at once, each with its field and the accepted values.
//! - **Isolated tenants.** Data of another tenant is answered exactly like data that does not exist.
//! - **Bounded.** Bodies, heads, queries, lists, connections, caches and waits have named limits.
//! - **Audited.** Every change is recorded in the audit log, for every caller and every interface; see `audit_writer`.
//! - **Uniform errors.** Every error is `application/problem+json` with a stable code.

pub mod accept_watch;
mod alerts;
mod attention;
mod audit;
pub mod audit_writer;
pub mod auth;
pub mod body;
pub mod body_budget;
pub(crate) mod body_fields;
pub mod cache;
pub mod call;
pub mod clock_check;
pub mod code;
pub mod dead_letters;
pub mod deliveries;
mod docs;
mod endpoints;
pub mod events;
mod failed_authentications;
mod held_back;
pub mod in_process;
pub mod json_indent;
mod key_hash;
mod keys;
pub mod limits;
pub mod metrics;
mod nodes;
pub mod openapi;
mod operational_event_docs;
pub mod owner_confirmation;
pub mod paging;
pub mod policies;
mod policy_schema;
mod portal_links;
mod probes;
pub mod problem;
pub mod quota;
mod quota_rejection;
pub mod rate;
pub mod rate_limit;
mod replays;
pub mod reports;
pub mod request_source;
mod requests;
pub mod resources;
pub mod route;
pub mod routes;
mod schedules;
#[cfg(test)]
mod schema_agreement;
pub mod serve;
pub mod settings;
mod single_flight;
pub mod stats;
mod tenant_of_id;
mod tenant_rates;
mod tenants;
mod usage;

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use posthaste_core::id::{IdGenerator, TenantId};
use posthaste_core::rng::Rng;
use posthaste_engine::Engine;
use posthaste_engine::owner_router::OwnerRouter;
use posthaste_engine::vault::Vault;
use posthaste_store::{KeyHash, Store, StoreError};
use posthaste_system::clock::Clock;
use posthaste_telemetry::metrics::{Gauges, Metrics};
use posthaste_telemetry::queue_age::CachedQueueAge;
use posthaste_telemetry::traces::Telemetry;
use rustc_hash::FxHashMap;
use tokio::sync::Notify;

use accept_watch::AcceptWatch;
use auth::{CachedKey, CachedTenant, MAX_KNOWN_KEYS, MAX_KNOWN_TENANTS};
use body_budget::BodyBudget;
use cache::Cache;
use failed_authentications::FailedAuthentications;
use rate_limit::RateLimiter;
use single_flight::SingleFlight;
use tenant_rates::TenantRates;

pub use key_hash::hash_key;
pub use routes::{probes_only, router};
pub use settings::ApiSettings;

/// The shared state of all handlers.
pub struct App {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The engine of this node.
    pub engine: Engine,
    /// Passes requests to the node that owns an endpoint.
    pub owner_router: Arc<OwnerRouter>,
    /// Encrypts and decrypts secrets.
    pub vault: Arc<Vault>,
    /// Metrics and counters.
    pub metrics: Arc<Metrics>,
    /// Sends traces to a collector.
    pub telemetry: Telemetry,
    /// The clock.
    pub clock: Clock,
    /// The age of the oldest waiting delivery.
    pub queue_age: Arc<CachedQueueAge>,
    /// Settings of the API.
    pub settings: ApiSettings,
    /// Wakes the replay task when a replay is created.
    pub replay_wakeup: Arc<Notify>,
    /// Accepts in progress.
    pub accepts: Arc<AcceptWatch>,
    /// Memory budgets of request bodies.
    pub body_budget: BodyBudget,
    admin_keys: FxHashMap<KeyHash, RateLimiter>,
    keys: Cache<KeyHash, Arc<CachedKey>>,
    failed_authentications: FailedAuthentications,
    /// Rate-limit state of log lines about failed authentications.
    failure_log_limiter: RateLimiter,
    tenants: Cache<TenantId, Arc<CachedTenant>>,
    /// Rate-limit state of each tenant's audited requests.
    audited_limiters: Cache<TenantId, Arc<RateLimiter>>,
    /// The part of its rates that each tenant has spent, of those that this node enforces.
    tenant_rates: Cache<TenantId, Arc<TenantRates>>,
    id_generator: Mutex<IdGenerator>,
    documentation: Documentation,
    /// The check that the store can write, of `/readyz`.
    store_probe: SingleFlight<Result<(), StoreError>>,
    /// The gauges of `/metrics`.
    gauges: SingleFlight<Gauges>,
}

/// Generators of the documentation. The routes that return it are part of the routes that it is generated from.
struct Documentation {
    /// Returns the OpenAPI document.
    openapi: fn() -> Bytes,
    /// Returns the page that describes every route and every error.
    page: fn() -> Bytes,
    /// Returns the page that describes every error.
    errors_page: fn() -> Bytes,
    /// Returns the page of a guide.
    guide: fn(&str) -> Option<Bytes>,
    /// Returns the page with the results of a search.
    search: fn(&str) -> Bytes,
}

impl App {
    /// Creates the API. `rng` is the RNG for the ids of keys and endpoints.
    pub fn new(
        store: Arc<dyn Store>,
        engine: Engine,
        vault: Arc<Vault>,
        metrics: Arc<Metrics>,
        clock: Clock,
        rng: Rng,
        settings: ApiSettings,
    ) -> App {
        let admin_keys = settings.admin_keys.iter();
        let owner_router = OwnerRouter::new(
            engine.clone(),
            metrics.clone(),
            clock.clone(),
            store.clone(),
            store.cluster(),
        );
        let queue_age = CachedQueueAge::new(store.clone(), clock.clone());
        let body_budget = BodyBudget::new(
            settings.body_memory_bytes,
            settings.body_memory_per_tenant(),
            metrics.clone(),
        );
        App {
            store,
            engine,
            owner_router: Arc::new(owner_router),
            vault,
            metrics,
            telemetry: Telemetry::off(),
            queue_age: Arc::new(queue_age),
            clock,
            admin_keys: admin_keys
                .map(|hash| (*hash, RateLimiter::default()))
                .collect(),
            settings,
            keys: Cache::new(MAX_KNOWN_KEYS),
            failed_authentications: FailedAuthentications::new(),
            failure_log_limiter: RateLimiter::default(),
            tenants: Cache::new(MAX_KNOWN_TENANTS),
            audited_limiters: Cache::new(MAX_KNOWN_TENANTS),
            tenant_rates: Cache::new(MAX_KNOWN_TENANTS),
            id_generator: Mutex::new(IdGenerator::new(rng)),
            documentation: Documentation {
                openapi: openapi::document_bytes,
                page: docs::page_bytes,
                errors_page: docs::errors_page_bytes,
                guide: docs::guide_bytes,
                search: docs::search_bytes,
            },
            replay_wakeup: Arc::new(Notify::new()),
            accepts: Arc::default(),
            body_budget,
            store_probe: SingleFlight::default(),
            gauges: SingleFlight::default(),
        }
    }

    /// Sets the telemetry that traces are sent with.
    pub fn with_telemetry(mut self, telemetry: Telemetry) -> App {
        self.telemetry = telemetry;
        self
    }

    /// Generates a new id.
    pub fn new_id<T: From<u128>>(&self) -> T {
        let now = self.clock.wall();
        let mut id_generator = self
            .id_generator
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        id_generator.next(now)
    }
}
