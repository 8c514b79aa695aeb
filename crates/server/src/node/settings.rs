//! The settings of a node, and how they follow from the configuration.
//!
//! [`NodeSettings`] has the settings of every part that a node starts. Tests start a node from them without a
//! configuration.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use posthaste_api::ApiSettings;
use posthaste_core::dispatcher::DispatcherLimits;
use posthaste_core::lane::{EndpointLimits, Protection};
use posthaste_core::time::Span;
use posthaste_dashboard::DashboardSettings;
use posthaste_egress::{Proxy, Roots};
use posthaste_engine::database::with_password;
use posthaste_engine::vault::KeySource;
use posthaste_notify::alerts::AlertSettings;
use posthaste_notify::notifications::Channels;
use posthaste_notify::notifications::mail::SendEmail;
use posthaste_outbox::OutboxSettings;
use posthaste_store::{Retention, StoreSettings};
use posthaste_system::random;
use posthaste_telemetry::traces::OtlpSettings;

use super::error::StartError;
use super::shared_store::SharedStore;
use crate::config::{Config, MetricSettings, Role, StoreLocation};

/// Settings of a node.
pub struct NodeSettings {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// The store.
    pub store: StoreBackend,
    /// Role among the nodes on the same store.
    pub role: Role,
    /// Settings of the store.
    pub store_settings: StoreSettings,
    /// Source of the master keys; `None` if the nodes share one through their store.
    pub master_keys: Option<KeySource>,
    /// Settings of the API; its egress rules also apply to deliveries.
    pub api: ApiSettings,
    /// Appearance and access of the dashboard.
    pub dashboard: DashboardSettings,
    /// Trusted root certificates.
    pub roots: Roots,
    /// Proxy for all outbound requests, if there is one.
    pub proxy: Option<Proxy>,
    /// Limits of the dispatcher.
    pub limits: DispatcherLimits,
    /// Limits of endpoints for which neither the endpoint nor its tenant sets any.
    pub endpoint_defaults: EndpointLimits,
    /// Thresholds of endpoints for which neither the endpoint nor its tenant sets any.
    pub protection: Protection,
    /// Channels of notifications.
    pub channels: Channels,
    /// Longest `Retry-After` that is honoured.
    pub retry_after_cap: Span,
    /// Settings of metrics.
    pub metrics: MetricSettings,
    /// Retention periods.
    pub retention: Retention,
    /// Settings of alerts.
    pub alerts: AlertSettings,
    /// Outboxes to read events from.
    pub outboxes: Vec<OutboxSettings>,
    /// Time to wait for attempts in flight when stopping.
    pub grace: Duration,
    /// Settings of the export to a collector.
    pub otlp: OtlpSettings,
}

/// The database of a node.
pub enum StoreBackend {
    /// A SQLite file of this node.
    Sqlite(PathBuf),
    /// A PostgreSQL database that nodes share.
    Postgres(Box<SharedStore>),
}

impl NodeSettings {
    /// Derives the settings of a node from the configuration.
    pub fn from_config(config: &Config) -> Result<NodeSettings, StartError> {
        config.check_role()?;
        config.check_mail()?;
        Ok(NodeSettings {
            listen: config.listen,
            store: store_backend(config),
            role: config.role,
            store_settings: StoreSettings {
                default_policy: config.retry_policy.clone(),
                plans: Arc::new(config.plans()),
                max_deliveries_per_request: config.limits.max_deliveries_per_request.into(),
                operational_tenant: config.notices.tenant.clone(),
                ..StoreSettings::new(random::seed())
            },
            master_keys: config.key_source(),
            api: config.api_settings(),
            dashboard: DashboardSettings {
                min_samples: u64::from(config.alerts.min_attempts),
                ..config.dashboard.clone()
            },
            roots: config.roots().map_err(StartError::Roots)?,
            proxy: config.proxy(),
            limits: config.engine.dispatcher_limits(),
            endpoint_defaults: config.endpoint_defaults.limits(),
            protection: Protection {
                breaker: config.breaker.clone(),
                disable: config.disable.clone(),
            },
            channels: channels(config).map_err(StartError::Roots)?,
            retry_after_cap: config.engine.retry_after_cap,
            metrics: config.metrics,
            retention: Retention {
                payloads: config.payload_retention,
                attempts: config.attempt_retention,
                plans: Arc::new(config.plans.clone()),
                ..Retention::all(config.retention, 0)
            },
            alerts: config.alerts.clone(),
            outboxes: config.outbox_settings(),
            grace: Duration::from_millis(config.grace.as_millis()),
            otlp: config.otlp.clone(),
        })
    }
}

/// Returns the channels for notifications.
fn channels(config: &Config) -> Result<Channels, String> {
    let mailer = config.mailer()?;
    Ok(Channels {
        settings: config.notices.clone(),
        mail: config.mail.clone(),
        mailer: mailer.map(|mailer| Arc::new(mailer) as Arc<dyn SendEmail>),
        base_url: config.dashboard.public_url.clone(),
    })
}

fn store_backend(config: &Config) -> StoreBackend {
    match &config.store {
        StoreLocation::Sqlite(path) => StoreBackend::Sqlite(path.clone()),
        StoreLocation::Postgres(url) => {
            let listen = config.store_listen.as_ref();
            StoreBackend::Postgres(Box::new(SharedStore {
                server: with_password(url.server()),
                listen: listen.map(|url| with_password(url.server())),
                role: config.role,
                lease: config.lease,
                finish_upgrade_after: config.finish_upgrade_after,
                connections: config.store_connections,
            }))
        }
    }
}
