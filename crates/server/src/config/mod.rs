//! How the server is set up.
//!
//! Every setting has a default, a key in the configuration file, an environment variable and a flag:
//! `limits.body_bytes` is `POSTHASTE_LIMITS_BODY_BYTES` and `--set limits.body_bytes=…`; those one often
//! needs have flags of their own, as `--listen`. What is said later in this list wins. It promises:
//!
//! - every mistake is told at once, each with the line, variable or flag it stands in, and what would be
//!   right, also where a later source overrides it;
//! - an unknown key or flag is a mistake: a setting that is misspelt must not be without effect. An unknown
//!   variable is told as a warning, because others may use names that begin like ours;
//! - no message and no `Debug` shows a key.
//!
//! `config.default.toml` holds every setting with its default, and says what it does.

mod alerts;
mod error;
mod file;
mod layer;
mod mail;
mod metrics;
mod notices;
mod otlp;
mod pages;
mod plans;
mod read;
mod role;
mod secret;
mod settings;
mod store;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use posthaste_core::address::EgressRules;
use posthaste_core::dispatcher;
use posthaste_core::lane::{BreakerSettings, RETRY_AFTER_CAP};
use posthaste_core::policy::{MAX_ATTEMPTS, Preset, RetryPolicy};
use posthaste_core::time::Span;
use posthaste_egress::{Proxy, Roots};
use posthaste_store::Limits;
use posthaste_store::postgres::DEFAULT_LEASE;
use serde_json::{Value, json};

pub use error::{ConfigError, ConfigMistake};
pub use metrics::MetricSettings;
pub use plans::MAX_PLAN_NAME_CHARS;
pub use role::Role;
pub use secret::Secret;
pub use settings::{Kind, SETTINGS, Setting};
pub use store::{DatabaseUrl, StoreLocation};

use crate::alerts::AlertSettings;
use crate::api::settings::{ApiSettings, Pace};
use crate::chance::hash_key;
use crate::cli::serve_args::ServeArgs;
use crate::dashboard::DashboardSettings;
use crate::logging::LogSettings;
use crate::notices::NoticeSettings;
use crate::notices::mail::{MailSettings, SmtpPost};
use crate::telemetry::OtlpSettings;
use crate::vault::{KeySource, key_file_beside};

/// Where the server listens, unless told otherwise.
pub const DEFAULT_PORT: u16 = 8420;

/// Everything that can be set.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where the API is served. Port 0 picks a free one.
    pub listen: SocketAddr,
    /// Where events and deliveries are kept.
    pub store: StoreLocation,
    /// What this node does for the others on the same store.
    pub role: Role,
    /// How long a node's silence is borne before its work is another's.
    pub lease: Span,
    /// Where notices are listened for, if not where the store is.
    pub store_listen: Option<DatabaseUrl>,
    /// How many connections read from a database.
    pub store_connections: u32,
    /// A key that reaches everything. Without one the first start makes one.
    pub admin_key: Option<Secret>,
    /// What secrets are sealed with.
    pub master_key: MasterKey,
    /// Proxies that are believed when they say for whom they ask.
    pub trusted_proxies: Vec<IpNet>,
    /// Where webhooks may go.
    pub egress: EgressRules,
    /// Certificate authorities that are believed beside the public ones.
    pub ca_bundle: Option<PathBuf>,
    /// The proxy through which everything is sent, if there is one.
    pub egress_proxy: Option<Proxy>,
    /// It resolves names, and vets what they mean.
    pub egress_proxy_resolves: bool,
    /// The retry policy where neither the endpoint nor its tenant has one.
    pub retry_policy: RetryPolicy,
    /// The same as the API shows it: a preset by its name, or as it was written.
    pub retry_policy_written: Value,
    /// How long what is finished is kept, where the tenant's limits do not say.
    pub retention: Span,
    /// How long what events carry is kept, if less long than the rest.
    pub payload_retention: Option<Span>,
    /// How long all attempts of a delivery but the last are kept, if less long than the rest.
    pub attempt_retention: Option<Span>,
    /// How long a stop waits for what is in flight.
    pub grace: Span,
    /// What a caller of the API may ask of the server.
    pub limits: RequestLimits,
    /// What a tenant may do where neither its own limits nor its plan say.
    pub tenant_limits: TenantLimits,
    /// Named sets of limits.
    pub plans: BTreeMap<String, Limits>,
    /// What the pages look like, and who may see them.
    pub dashboard: DashboardSettings,
    /// How much is sent at once.
    pub engine: EngineSettings,
    /// When endpoints are left alone.
    pub breaker: BreakerSettings,
    /// When somebody is to be told that something is wrong.
    pub alerts: AlertSettings,
    /// Who is told of what without asking.
    pub notices: NoticeSettings,
    /// Who is told by mail, and through which server.
    pub mail: MailSettings,
    /// What is told to Prometheus.
    pub metrics: MetricSettings,
    /// What is logged, and how.
    pub log: LogSettings,
    /// What a collector is told.
    pub otlp: OtlpSettings,
    /// Variables that look like settings, and are none.
    pub strange_variables: Vec<String>,
}

/// What secrets are sealed with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MasterKey {
    /// The keys of the file beside the database, which is made with it.
    BesideStore,
    /// The keys of this file.
    File(PathBuf),
    /// These keys.
    Text {
        /// The keys.
        text: Secret,
        /// Where they stand.
        origin: String,
    },
}

/// What a caller of the API may ask of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLimits {
    /// The longest body of a request, and the longest payload where a tenant's limits do not say.
    pub body_bytes: u32,
    /// The longest body of a batch of events.
    pub batch_body_bytes: u32,
    /// How many connections may be open at once.
    pub connections: u32,
    /// How long the head of a request may take to arrive.
    pub header_read_time: Span,
    /// How many requests a second each key may make.
    pub requests_per_second: u32,
    /// How many of them at once after a quiet time.
    pub request_burst: u32,
}

impl Default for RequestLimits {
    fn default() -> RequestLimits {
        RequestLimits {
            body_bytes: 1 << 20,
            batch_body_bytes: 16 << 20,
            connections: 4_096,
            header_read_time: Span::from_secs(10),
            requests_per_second: 50_000,
            request_burst: 100_000,
        }
    }
}

/// What a tenant may do where neither its own limits nor its plan say. How long its data are kept is
/// [`Config::retention`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantLimits {
    /// How many endpoints.
    pub endpoints: u32,
    /// How many events a second; nothing means any number.
    pub events_per_second: Option<u32>,
    /// How many events a calendar month; nothing means any number.
    pub events_per_month: Option<u64>,
    /// How many attempts a retry policy may ask for.
    pub max_attempts: u32,
    /// How many attempts under way at once, over all nodes; nothing means any number.
    pub in_flight: Option<u32>,
}

impl Default for TenantLimits {
    fn default() -> TenantLimits {
        TenantLimits {
            endpoints: 1_000,
            events_per_second: None,
            events_per_month: None,
            max_attempts: MAX_ATTEMPTS,
            in_flight: None,
        }
    }
}

/// How much is sent at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineSettings {
    /// Attempts under way at once, over all endpoints.
    pub max_in_flight: u32,
    /// Deliveries kept ready in memory for each endpoint.
    pub ready_per_lane: u32,
    /// The longest `Retry-After` that is honoured.
    pub retry_after_cap: Span,
}

impl Default for EngineSettings {
    fn default() -> EngineSettings {
        EngineSettings {
            max_in_flight: 4_096,
            ready_per_lane: 64,
            retry_after_cap: RETRY_AFTER_CAP,
        }
    }
}

impl EngineSettings {
    /// The same for the dispatcher.
    pub fn dispatcher_limits(&self) -> dispatcher::Limits {
        dispatcher::Limits {
            max_flights: self.max_in_flight as usize,
            ready_per_lane: self.ready_per_lane as usize,
        }
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, DEFAULT_PORT)),
            store: StoreLocation::default(),
            role: Role::default(),
            lease: DEFAULT_LEASE,
            store_listen: None,
            store_connections: 3,
            admin_key: None,
            master_key: MasterKey::BesideStore,
            trusted_proxies: Vec::new(),
            egress: EgressRules::default(),
            ca_bundle: None,
            egress_proxy: None,
            egress_proxy_resolves: false,
            retry_policy: RetryPolicy::default(),
            retry_policy_written: json!({"preset": Preset::Recommended.name()}),
            retention: Span::from_days(30),
            payload_retention: None,
            attempt_retention: None,
            grace: Span::from_secs(25),
            limits: RequestLimits::default(),
            tenant_limits: TenantLimits::default(),
            plans: BTreeMap::new(),
            dashboard: DashboardSettings::default(),
            engine: EngineSettings::default(),
            breaker: BreakerSettings::default(),
            alerts: AlertSettings::default(),
            notices: NoticeSettings::default(),
            mail: MailSettings::default(),
            metrics: MetricSettings::default(),
            log: LogSettings::default(),
            otlp: OtlpSettings::default(),
            strange_variables: Vec::new(),
        }
    }
}

impl Config {
    /// Puts together what the file, the environment and the flags say.
    pub fn load(
        args: &ServeArgs,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Config, ConfigError> {
        let mut error = ConfigError::default();
        let environment = layer::environment(environment, &mut error);
        let flags = layer::flags(args, &mut error);
        let file = match (&args.config, environment.file) {
            (Some(path), _) => file::layer(path, "--config", &mut error),
            (None, Some(path)) => file::layer(&path, "POSTHASTE_CONFIG", &mut error),
            (None, None) => None,
        };
        let mut config = Config {
            strange_variables: environment.strange,
            ..Config::default()
        };
        for layer in file.iter().chain([&environment.layer, &flags]) {
            layer.apply(&mut config, &mut error);
        }
        config.check_together(&mut error);
        error.unless_empty(config)
    }

    /// Notes what no source gets wrong alone.
    fn check_together(&self, error: &mut ConfigError) {
        let (first, longest) = (self.breaker.first_wait, self.breaker.longest_wait);
        if first > longest {
            error.note(
                "breaker.longest_wait",
                format!(
                    "must not be below breaker.first_wait: it is {longest}, and that is {first}"
                ),
            );
        }
        self.check_plans(error);
        let (asked, allowed) = (
            self.retry_policy.max_attempts,
            self.tenant_limits.max_attempts,
        );
        if asked > allowed {
            error.note(
                "retry_policy",
                format!(
                    "asks for {asked} attempts, and tenant_limits.max_attempts allows {allowed}: \
                     change one of them"
                ),
            );
        }
    }

    /// Whether this node can have its role on its store.
    pub fn check_role(&self) -> Result<(), ConfigError> {
        let mut error = ConfigError::default();
        let alone = matches!(self.store, StoreLocation::Sqlite(_));
        if alone && self.role != Role::All {
            error.note(
                "role",
                format!(
                    "is \"{}\", which is for nodes that share a PostgreSQL database: a SQLite file has one \
                     server, which does everything",
                    self.role
                ),
            );
        }
        error.unless_empty(())
    }

    /// Whether letters can be sent as they are meant.
    pub fn check_mail(&self) -> Result<(), ConfigError> {
        let mut error = ConfigError::default();
        for (key, message) in self.mail.mistakes() {
            error.note(key, message);
        }
        error.unless_empty(())
    }

    /// What to open the vault with; nothing if nodes share a key through their store. Ask before a file is
    /// opened, and so made.
    pub fn key_source(&self) -> Option<KeySource> {
        match (&self.master_key, &self.store) {
            (MasterKey::Text { text, origin }, _) => Some(KeySource::Text {
                text: text.reveal().to_owned(),
                origin: origin.clone(),
            }),
            (MasterKey::File(path), StoreLocation::Sqlite(database)) => {
                Some(KeySource::for_database(path.clone(), database))
            }
            // Which node comes first is chance, so none of them makes a file that the others lack.
            (MasterKey::File(path), StoreLocation::Postgres(_)) => Some(KeySource::File {
                path: path.clone(),
                may_create: false,
            }),
            (MasterKey::BesideStore, StoreLocation::Sqlite(database)) => {
                let beside = key_file_beside(database);
                Some(KeySource::for_database(beside, database))
            }
            (MasterKey::BesideStore, StoreLocation::Postgres(_)) => None,
        }
    }

    /// Whose certificates are believed: the public authorities, and those of the bundle.
    pub fn roots(&self) -> Result<Roots, String> {
        self.ca_bundle
            .as_ref()
            .map_or_else(|| Ok(Roots::mozilla()), read_bundle)
    }

    /// Whoever hands letters to the mail server, if there is one. Links in them lead to the pages, if those are shown.
    pub fn post(&self) -> Result<Option<SmtpPost>, String> {
        let shown = self.dashboard.enabled;
        let page = self.dashboard.public_url.clone().filter(|_| shown);
        Ok(self.mail.post(page, self.roots()?))
    }

    /// The proxy through which everything is sent.
    pub fn proxy(&self) -> Option<Proxy> {
        let proxy = self.egress_proxy.clone();
        proxy.map(|proxy| proxy.resolving(self.egress_proxy_resolves))
    }

    /// What the API has to know.
    pub fn api_settings(&self) -> ApiSettings {
        let limits = &self.limits;
        let admin_key = self.admin_key.iter();
        ApiSettings {
            body_bytes: limits.body_bytes.into(),
            batch_bytes: limits.batch_body_bytes.into(),
            head_timeout: Duration::from_millis(limits.header_read_time.as_millis()),
            max_connections: limits.connections as usize,
            grace: Duration::from_millis(self.grace.as_millis()),
            key_rate: Pace {
                per_second: limits.requests_per_second,
                burst: limits.request_burst,
            },
            admin_keys: admin_key.map(|key| hash_key(key.reveal())).collect(),
            trusted_proxies: self.trusted_proxies.clone(),
            egress_rules: self.egress.clone(),
            public_url: self.dashboard.public_url.clone(),
            plans: Arc::new(self.plans()),
            sends_letters: self.mail.server.is_some(),
            default_policy: (self.retry_policy.clone(), self.retry_policy_written.clone()),
            ..ApiSettings::default()
        }
    }

    /// What is allowed, and still deserves a word when the server starts.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = self.strange_variables.clone();
        let is_short = |key: &Secret| key.reveal().len() < SHORT_KEY_CHARS;
        if self.admin_key.as_ref().is_some_and(is_short) {
            warnings.push(format!(
                "the admin key is shorter than {SHORT_KEY_CHARS} characters and can be guessed: \
                 leave it out, and the server makes a good one"
            ));
        }
        if self.egress_proxy_resolves {
            warnings.push(match &self.egress_proxy {
                Some(proxy) => format!(
                    "names are resolved by {proxy}, and their addresses are not vetted here: see that \
                     it refuses private ones"
                ),
                None => "egress_proxy_resolves has no effect without egress_proxy".to_owned(),
            });
        }
        warnings.extend(self.mail.warning());
        if !self.listen.ip().is_loopback() {
            warnings.push(format!(
                "listening on {} without TLS: put a proxy that speaks TLS in front of it",
                self.listen
            ));
        }
        warnings
    }
}

/// A key shorter than this can be guessed by trying.
const SHORT_KEY_CHARS: usize = 16;

/// The largest bundle that is read: the whole public list has a quarter of a MiB.
const MAX_BUNDLE_BYTES: u64 = 16 << 20;

fn read_bundle(path: &PathBuf) -> Result<Roots, String> {
    let shown = path.display();
    let unreadable = |error| format!("cannot read {shown}: {error}");
    let length_bytes = fs::metadata(path).map_err(unreadable)?.len();
    if length_bytes > MAX_BUNDLE_BYTES {
        return Err(format!(
            "{shown} is too large to be a bundle of certificates"
        ));
    }
    let pem = fs::read(path).map_err(unreadable)?;
    Roots::mozilla()
        .with_bundle(&pem)
        .map_err(|error| format!("{shown}: {error}"))
}
