//! All settings of the server with their defaults.
//!
//! [`Config`] is read from file, environment and flags by the modules beside this one. Settings that belong to one
//! component have its own settings type, so that their defaults are defined once.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use ipnet::IpNet;
use posthaste_core::address::EgressRules;
use posthaste_core::cluster::DEFAULT_FINISH_UPGRADE_AFTER;
use posthaste_core::dispatcher;
use posthaste_core::lane::{BreakerSettings, DisableSettings, RETRY_AFTER_CAP};
use posthaste_core::policy::{MAX_ATTEMPTS, Preset, RetryPolicy};
use posthaste_core::schedule::MIN_INTERVAL;
use posthaste_core::secret::Secret;
use posthaste_core::time::Span;
use posthaste_dashboard::DashboardSettings;
use posthaste_egress::Proxy;
use posthaste_notify::alerts::AlertSettings;
use posthaste_notify::notifications::NotificationSettings;
use posthaste_notify::notifications::mail::MailSettings;
use posthaste_store::Limits;
use posthaste_store::postgres::DEFAULT_LEASE;
use posthaste_telemetry::logging::LogSettings;
use posthaste_telemetry::traces::OtlpSettings;
use serde_json::{Value, json};

use super::endpoint_defaults::EndpointDefaults;
use super::metrics::MetricSettings;
use super::outboxes::OutboxConfig;
use super::role::Role;
use super::store::{DatabaseUrl, StoreLocation};

/// Default port of the API.
const DEFAULT_PORT: u16 = 8420;

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
    /// Time without a node of an earlier version after which an upgrade is finished.
    pub finish_upgrade_after: Span,
    /// Database URL of the listener connection, if it differs from that of the store.
    pub store_listen: Option<DatabaseUrl>,
    /// Number of connections that read from a PostgreSQL database.
    pub store_connections: u32,
    /// The admin key. If it is not set, the server creates one at its first start.
    pub admin_key: Option<Secret>,
    /// Master keys that encrypt stored secrets.
    pub master_key: MasterKeySource,
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
    /// Outboxes to read events from.
    pub outboxes: Vec<OutboxConfig>,
    /// Settings of the dashboard and the portal.
    pub dashboard: DashboardSettings,
    /// Limits of the engine.
    pub engine: EngineSettings,
    /// Limits of endpoints for which neither the endpoint nor its tenant sets any.
    pub endpoint_defaults: EndpointDefaults,
    /// Settings of the breaker.
    pub breaker: BreakerSettings,
    /// When endpoints are disabled automatically.
    pub disable: DisableSettings,
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
    pub unknown_variables: Vec<String>,
}

/// Source of the master keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MasterKeySource {
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
    /// Maximum number of open connections of one peer; `None` means a quarter of `connections`.
    pub connections_per_peer: Option<u32>,
    /// Maximum memory of request bodies.
    pub body_memory_bytes: u32,
    /// Maximum memory of request bodies of one tenant; `None` means a quarter of `body_memory_bytes`.
    pub tenant_body_memory_bytes: Option<u32>,
    /// Maximum time for the head of a request to arrive.
    pub header_read_time: Span,
    /// Maximum time for which the write of a response may make no progress.
    pub write_time: Span,
    /// Minimum time for which an idle connection is kept open.
    pub idle_time: Span,
    /// Maximum number of requests per second for each key.
    pub requests_per_second: u32,
    /// Burst size: requests that a key may make at once after an idle period.
    pub request_burst: u32,
    /// Maximum number of deliveries that one request may make.
    pub max_deliveries_per_request: u32,
}

impl Default for RequestLimits {
    fn default() -> RequestLimits {
        RequestLimits {
            body_bytes: 1 << 20,
            batch_body_bytes: 16 << 20,
            connections: 4_096,
            connections_per_peer: None,
            body_memory_bytes: 256 << 20,
            tenant_body_memory_bytes: None,
            header_read_time: Span::from_secs(10),
            write_time: Span::from_secs(30),
            idle_time: Span::from_secs(75),
            requests_per_second: 50_000,
            request_burst: 100_000,
            max_deliveries_per_request: 10_000,
        }
    }
}

/// A limit per second that may be left out or switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateSetting {
    /// Left out: each node enforces a high default by itself.
    Protective,
    /// Switched off: no limit.
    Unlimited,
    /// This limit.
    PerSecond(u32),
}

impl RateSetting {
    /// Returns the limit that is set.
    pub fn limit(self) -> Option<u32> {
        match self {
            RateSetting::Protective | RateSetting::Unlimited => None,
            RateSetting::PerSecond(limit) => Some(limit),
        }
    }

    /// Returns the default that each node enforces, if the setting is left out.
    pub fn node_default(self, default: u32) -> Option<u32> {
        match self {
            RateSetting::Protective => Some(default),
            RateSetting::Unlimited | RateSetting::PerSecond(_) => None,
        }
    }
}

/// Limits of a tenant for which neither the tenant nor its plan has a value. The retention period is in
/// [`Config::retention`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantLimits {
    /// Maximum number of endpoints.
    pub endpoints: u32,
    /// Maximum number of events per second.
    pub events_per_second: RateSetting,
    /// Maximum number of deliveries made per second, on each node.
    pub deliveries_per_second: RateSetting,
    /// Maximum number of events per calendar month; `None` means unlimited.
    pub events_per_month: Option<u64>,
    /// Maximum number of attempts that a retry policy may have.
    pub max_attempts: u32,
    /// Maximum number of attempts in flight on all nodes; `None` means unlimited.
    pub in_flight: Option<u32>,
    /// Maximum number of schedules.
    pub schedules: u32,
    /// Shortest interval between two occurrences of a schedule.
    pub shortest_schedule_interval: Span,
}

impl Default for TenantLimits {
    fn default() -> TenantLimits {
        TenantLimits {
            endpoints: 1_000,
            events_per_second: RateSetting::Protective,
            deliveries_per_second: RateSetting::Protective,
            events_per_month: None,
            max_attempts: MAX_ATTEMPTS,
            in_flight: None,
            schedules: 1_000,
            shortest_schedule_interval: MIN_INTERVAL,
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
    pub fn dispatcher_limits(&self) -> dispatcher::DispatcherLimits {
        dispatcher::DispatcherLimits {
            max_in_flight: self.max_in_flight as usize,
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
            finish_upgrade_after: DEFAULT_FINISH_UPGRADE_AFTER,
            store_listen: None,
            store_connections: 3,
            admin_key: None,
            master_key: MasterKeySource::BesideStore,
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
            outboxes: Vec::new(),
            dashboard: DashboardSettings::default(),
            engine: EngineSettings::default(),
            endpoint_defaults: EndpointDefaults::default(),
            breaker: BreakerSettings::default(),
            disable: DisableSettings::default(),
            alerts: AlertSettings::default(),
            notices: NotificationSettings::default(),
            mail: MailSettings::default(),
            metrics: MetricSettings::default(),
            log: LogSettings::default(),
            otlp: OtlpSettings::default(),
            unknown_variables: Vec::new(),
        }
    }
}
