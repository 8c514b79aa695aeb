//! Configuration of the server.
//!
//! [`Config::load`] builds a [`Config`] from four sources. From weakest to strongest: the default, the
//! configuration file, the environment variable, the flag. `limits.body_bytes` is also
//! `POSTHASTE_LIMITS_BODY_BYTES` and `--set limits.body_bytes=…`. Frequently used settings have a flag of
//! their own, such as `--listen`. Guarantees:
//!
//! - All errors are reported at once ([`ConfigError`]), each with its line, variable or flag and the accepted
//!   values. This includes values that a stronger source overrides.
//! - An unknown key or flag is an error, so that a misspelt setting is never ignored silently. An unknown
//!   variable is only a warning, because other programs may use the same prefix.
//! - No message and no `Debug` output shows a key ([`Secret`]).
//!
//! `config.default.toml` lists and explains every setting with its default.

mod alerts;
mod error;
mod file;
mod mail;
mod metrics;
mod notifications;
mod otlp;
mod pages;
mod plans;
mod read;
mod role;
mod settings;
mod sources;
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
use posthaste_core::secret::Secret;
use posthaste_core::time::Span;
use posthaste_egress::{Proxy, Roots};
use posthaste_store::Limits;
use posthaste_store::postgres::DEFAULT_LEASE;
use serde_json::{Value, json};

pub use error::{ConfigError, ConfigMistake};
pub use metrics::MetricSettings;
pub use plans::MAX_PLAN_NAME_CHARS;
pub use role::Role;
pub use settings::{Kind, SETTINGS, Setting};
pub use store::{DatabaseUrl, StoreLocation};

use crate::cli::serve_args::ServeArgs;
use posthaste_api::hash_key;
use posthaste_api::settings::{ApiSettings, Pace};
use posthaste_dashboard::DashboardSettings;
use posthaste_engine::vault::{KeySource, key_file_beside};
use posthaste_notify::alerts::AlertSettings;
use posthaste_notify::notifications::NotificationSettings;
use posthaste_notify::notifications::mail::{MailSettings, SmtpMailer};
use posthaste_telemetry::logging::LogSettings;
use posthaste_telemetry::traces::OtlpSettings;

/// Default port of the API.
pub const DEFAULT_PORT: u16 = 8420;

/// All settings of the server.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Address that the API listens on. Port 0 picks a free port.
    pub listen: SocketAddr,
    /// Location of the store.
    pub store: StoreLocation,
    /// Role of this node among the nodes that share the store.
    pub role: Role,
    /// Lease duration. Other nodes take over a node's shards when it has not renewed its lease for this long.
    pub lease: Span,
    /// Database URL of the listener connection, if it differs from that of the store.
    pub store_listen: Option<DatabaseUrl>,
    /// Number of connections that read from a PostgreSQL database.
    pub store_connections: u32,
    /// The admin key. If it is not set, the server creates one at its first start.
    pub admin_key: Option<Secret>,
    /// Master keys that encrypt stored secrets.
    pub master_key: MasterKey,
    /// Networks of trusted reverse proxies, whose `X-Forwarded-For` is honoured.
    pub trusted_proxies: Vec<IpNet>,
    /// Destinations that deliveries may be sent to.
    pub egress: EgressRules,
    /// File with certificate authorities that are trusted in addition to the public ones.
    pub ca_bundle: Option<PathBuf>,
    /// HTTP proxy for all outbound requests, if there is one.
    pub egress_proxy: Option<Proxy>,
    /// Leaves name resolution to the proxy, which must then refuse private addresses itself.
    pub egress_proxy_resolves: bool,
    /// Retry policy of endpoints that have none, neither their own nor their tenant's.
    pub retry_policy: RetryPolicy,
    /// The same policy as the API shows it: the name of a preset, or the policy as it was written.
    pub retry_policy_written: Value,
    /// Retention of finished data, unless the limits of the tenant set another.
    pub retention: Span,
    /// Retention of payloads, if shorter than `retention`.
    pub payload_retention: Option<Span>,
    /// Retention of all attempts of a delivery except the last, if shorter than `retention`.
    pub attempt_retention: Option<Span>,
    /// Maximum time that a shutdown waits for requests in flight.
    pub grace: Span,
    /// Limits for requests to the API.
    pub limits: RequestLimits,
    /// Limits of a tenant for which neither the tenant nor its plan has a value.
    pub tenant_limits: TenantLimits,
    /// Limits of each plan, by the plan's name.
    pub plans: BTreeMap<String, Limits>,
    /// Settings of the dashboard and the portal.
    pub dashboard: DashboardSettings,
    /// Limits of the engine.
    pub engine: EngineSettings,
    /// Settings of the breaker.
    pub breaker: BreakerSettings,
    /// Settings of the alerts.
    pub alerts: AlertSettings,
    /// Settings of notifications.
    pub notices: NotificationSettings,
    /// Recipients of emails, and the SMTP server.
    pub mail: MailSettings,
    /// Settings of the metrics.
    pub metrics: MetricSettings,
    /// Format and level of the log.
    pub log: LogSettings,
    /// Settings of the OTLP export.
    pub otlp: OtlpSettings,
    /// One message for each unknown variable that begins with `POSTHASTE_`. Reported as warnings.
    pub strange_variables: Vec<String>,
}

/// Source of the master keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MasterKey {
    /// The key file next to the SQLite database, created together with it. PostgreSQL nodes share a key in
    /// the database instead.
    BesideStore,
    /// This file.
    File(PathBuf),
    /// Keys given as text.
    Text {
        /// The keys.
        text: Secret,
        /// The setting that holds them, for messages.
        origin: String,
    },
}

/// Limits for requests to the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLimits {
    /// Maximum size of a request body, and of a payload if the tenant has no own limit.
    pub body_bytes: u32,
    /// Maximum size of the body of an event batch.
    pub batch_body_bytes: u32,
    /// Maximum number of open connections.
    pub connections: u32,
    /// Maximum time for the head of a request to arrive.
    pub header_read_time: Span,
    /// Maximum number of requests per second for each key.
    pub requests_per_second: u32,
    /// Burst size: requests that a key may make at once after an idle period.
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

/// Limits of a tenant for which neither the tenant nor its plan has a value. The retention period is in
/// [`Config::retention`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantLimits {
    /// Maximum number of endpoints.
    pub endpoints: u32,
    /// Maximum number of events per second; `None` means unlimited.
    pub events_per_second: Option<u32>,
    /// Maximum number of events per calendar month; `None` means unlimited.
    pub events_per_month: Option<u64>,
    /// Maximum number of attempts that a retry policy may have.
    pub max_attempts: u32,
    /// Maximum number of attempts in flight on all nodes; `None` means unlimited.
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

/// Limits of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineSettings {
    /// Maximum number of attempts in flight to all endpoints together.
    pub max_in_flight: u32,
    /// Maximum number of deliveries that are kept ready in memory for each endpoint.
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
    /// Returns these limits in the form the dispatcher takes.
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
            notices: NotificationSettings::default(),
            mail: MailSettings::default(),
            metrics: MetricSettings::default(),
            log: LogSettings::default(),
            otlp: OtlpSettings::default(),
            strange_variables: Vec::new(),
        }
    }
}

impl Config {
    /// Loads the configuration from the file, the environment and the flags. Reports all errors at once.
    pub fn load(
        args: &ServeArgs,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Config, ConfigError> {
        let mut error = ConfigError::default();
        let environment = sources::environment(environment, &mut error);
        let flags = sources::flags(args, &mut error);
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
        config.check_consistency(&mut error);
        error.into_result(config)
    }

    /// Reports settings that are valid alone and contradict each other.
    fn check_consistency(&self, error: &mut ConfigError) {
        let (first, longest) = (self.breaker.first_wait, self.breaker.longest_wait);
        if first > longest {
            error.add(
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
            error.add(
                "retry_policy",
                format!(
                    "asks for {asked} attempts, and tenant_limits.max_attempts allows {allowed}: \
                     change one of them"
                ),
            );
        }
    }

    /// Checks that the store supports this node's role: SQLite has only the role `all`.
    pub fn check_role(&self) -> Result<(), ConfigError> {
        let mut error = ConfigError::default();
        let alone = matches!(self.store, StoreLocation::Sqlite(_));
        if alone && self.role != Role::All {
            error.add(
                "role",
                format!(
                    "is \"{}\", which is for nodes that share a PostgreSQL database: a SQLite file has one \
                     server, which does everything",
                    self.role
                ),
            );
        }
        error.into_result(())
    }

    /// Checks that the email settings are complete and consistent.
    pub fn check_mail(&self) -> Result<(), ConfigError> {
        let mut error = ConfigError::default();
        for (key, message) in self.mail.mistakes() {
            error.add(key, message);
        }
        error.into_result(())
    }

    /// Returns the source of the master keys, or `None` if the nodes share a key in their database. Call it
    /// before the database file is opened and thereby created: a key file is created only for a new database.
    pub fn key_source(&self) -> Option<KeySource> {
        match (&self.master_key, &self.store) {
            (MasterKey::Text { text, origin }, _) => Some(KeySource::Text {
                text: text.reveal().to_owned(),
                origin: origin.clone(),
            }),
            (MasterKey::File(path), StoreLocation::Sqlite(database)) => {
                Some(KeySource::for_database(path.clone(), database))
            }
            // Any node may start first. If the first one created a key file, the other nodes would lack it.
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

    /// Returns the trusted certificate authorities: the public ones and those of the bundle.
    pub fn roots(&self) -> Result<Roots, String> {
        self.ca_bundle
            .as_ref()
            .map_or_else(|| Ok(Roots::mozilla()), read_bundle)
    }

    /// Returns the client that sends emails, if an SMTP server is set. Emails link to the dashboard, if that
    /// is enabled.
    pub fn post(&self) -> Result<Option<SmtpMailer>, String> {
        let shown = self.dashboard.enabled;
        let page = self.dashboard.public_url.clone().filter(|_| shown);
        Ok(self.mail.post(page, self.roots()?))
    }

    /// Returns the proxy for all outbound requests.
    pub fn proxy(&self) -> Option<Proxy> {
        let proxy = self.egress_proxy.clone();
        proxy.map(|proxy| proxy.resolving(self.egress_proxy_resolves))
    }

    /// Returns the settings of the API.
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

    /// Returns warnings to log at the start: settings that are valid, but risky or without effect.
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

/// Below this length, an admin key can be guessed by trying.
const SHORT_KEY_CHARS: usize = 16;

/// Maximum size of a certificate bundle. The complete public list is about 256 KiB.
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
