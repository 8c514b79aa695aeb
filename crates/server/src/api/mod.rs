//! The HTTP API.
//!
//! ```text
//!  connection ─▶ router ─▶ who calls? ─▶ whose is it? ─▶ handler ─▶ answer
//!   (serve)      (routes)   (auth, pace)  (auth)          (tenants, endpoints, …)
//! ```
//!
//! It promises:
//!
//! - **One table.** [`routes`] lists every route with what it takes and gives; the router, the OpenAPI
//!   document and the page of documentation are made from it.
//! - **Strict.** What is not understood is refused, with the field and the remedy, every mistake at
//!   once; and refused before anything is done.
//! - **Apart.** What belongs to another tenant is answered exactly as what does not exist.
//! - **Bounded.** Bodies, heads, queries, lists, connections, caches and waits have named limits.
//! - **Known later.** What changes something leaves a trail in the audit, whoever did it and whichever
//!   way; see `trail`.
//! - **Problems in one shape.** Every error is `application/problem+json` with a stable code.

mod alerts;
mod attention;
mod audit;
pub mod auth;
pub mod body;
pub(crate) mod cache;
pub mod call;
pub mod code;
pub mod dead_letters;
pub mod deliveries;
pub mod delivery_view;
mod docs;
mod endpoints;
pub mod events;
mod find;
pub(crate) mod form;
pub mod inside;
mod keys;
pub(crate) mod metrics;
pub mod openapi;
mod operational;
pub mod origin;
pub(crate) mod pace;
pub mod paging;
pub mod policies;
mod portal_links;
mod probes;
pub mod problem;
pub mod quota;
mod replays;
pub mod route;
pub mod routes;
pub mod serve;
pub mod settings;
pub mod stats;
mod tenants;
pub(crate) mod trail;
mod usage;

use std::sync::{Arc, Mutex, PoisonError};

use posthaste_core::dice::Dice;
use posthaste_core::id::{Mint, TenantId};
use posthaste_store::{KeyHash, Store};
use rustc_hash::FxHashMap;
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::engine::Engine;
use crate::observe::Observatory;
use crate::queue_age::KeptAge;
use crate::switchboard::Switchboard;
use crate::telemetry::Telemetry;
use crate::vault::Vault;
use auth::{KnownKey, KnownTenant, MAX_KNOWN_KEYS, MAX_KNOWN_TENANTS};
use cache::Cache;
use pace::Meter;

pub use routes::{probes_only, router};
pub use settings::ApiSettings;

/// What the API is made of.
pub struct App {
    /// Where everything is kept.
    pub store: Arc<dyn Store>,
    /// What sends.
    pub engine: Engine,
    /// What finds whoever sends to an endpoint.
    pub switchboard: Arc<Switchboard>,
    /// What seals.
    pub vault: Arc<Vault>,
    /// What counts and measures.
    pub observe: Arc<Observatory>,
    /// What tells a collector.
    pub telemetry: Telemetry,
    /// What tells the time.
    pub clock: Clock,
    /// What tells how long the oldest delivery has been waiting.
    pub queue_age: Arc<KeptAge>,
    /// What the operator decided.
    pub settings: ApiSettings,
    /// Rings when a replay begins.
    pub replay_bell: Arc<Notify>,
    admin_keys: FxHashMap<KeyHash, Meter>,
    keys: Cache<KeyHash, Arc<KnownKey>>,
    tenants: Cache<TenantId, Arc<KnownTenant>>,
    /// How much tenants did lately that left a trail.
    acts: Cache<TenantId, Arc<Meter>>,
    mint: Mutex<Mint>,
}

impl App {
    /// Puts the API together. `dice` make the ids of keys and endpoints.
    pub fn new(
        store: Arc<dyn Store>,
        engine: Engine,
        vault: Arc<Vault>,
        observe: Arc<Observatory>,
        clock: Clock,
        dice: Dice,
        settings: ApiSettings,
    ) -> App {
        let admin_keys = settings.admin_keys.iter();
        let switchboard = Switchboard::new(
            engine.clone(),
            observe.clone(),
            clock.clone(),
            store.clone(),
            store.cluster(),
        );
        let queue_age = KeptAge::new(store.clone(), clock.clone());
        App {
            store,
            engine,
            switchboard: Arc::new(switchboard),
            vault,
            observe,
            telemetry: Telemetry::off(),
            queue_age: Arc::new(queue_age),
            clock,
            admin_keys: admin_keys.map(|hash| (*hash, Meter::default())).collect(),
            settings,
            keys: Cache::new(MAX_KNOWN_KEYS),
            tenants: Cache::new(MAX_KNOWN_TENANTS),
            acts: Cache::new(MAX_KNOWN_TENANTS),
            mint: Mutex::new(Mint::new(dice)),
            replay_bell: Arc::new(Notify::new()),
        }
    }

    /// The same, telling a collector.
    pub fn telling(mut self, telemetry: Telemetry) -> App {
        self.telemetry = telemetry;
        self
    }

    /// A new id.
    pub fn mint<T: From<u128>>(&self) -> T {
        let now = self.clock.wall();
        let mut mint = self.mint.lock().unwrap_or_else(PoisonError::into_inner);
        mint.next(now)
    }
}
