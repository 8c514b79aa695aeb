//! Settings of the API, with all its limits.
//!
//! [`ApiSettings`] is read from the configuration by the program. Memory, connections, rates and waits of the API all
//! have a limit here; limits of one peer or tenant default to a share of the limit of the server.

use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use posthaste_core::address::EgressRules;
use posthaste_core::lane::EndpointLimits;
use posthaste_core::policy::RetryPolicy;
use posthaste_notify::alerts::AlertSettings;
use posthaste_notify::notifications::mail::MailSettings;
use posthaste_notify::notifications::mail::address::AllowedDomains;
use posthaste_store::{KeyHash, OwnerEmailLimits, Plans};
use serde_json::Value;

/// Settings of the API.
#[derive(Clone, Debug)]
pub struct ApiSettings {
    /// Maximum body size of an ordinary request, and of a payload if the tenant has no own limit.
    pub body_bytes: u64,
    /// Maximum body size of a batch.
    pub batch_bytes: u64,
    /// Maximum time for the head of a request to arrive.
    pub head_timeout: Duration,
    /// Maximum time for a body to arrive.
    pub body_timeout: Duration,
    /// Maximum time for which the write of a response may make no progress.
    pub write_timeout: Duration,
    /// Minimum time for which an idle connection is kept open.
    pub idle_timeout: Duration,
    /// Maximum number of open connections. Further connections are served only health checks.
    pub max_connections: usize,
    /// Maximum number of them from one peer; `None` means a quarter of all.
    pub max_connections_per_peer: Option<usize>,
    /// Maximum memory of request bodies.
    pub body_memory_bytes: u64,
    /// Maximum memory of request bodies of one tenant; `None` means a quarter of all.
    pub tenant_body_memory_bytes: Option<u64>,
    /// Maximum time for requests in progress to finish during a shutdown.
    pub grace: Duration,
    /// Rate limit of each key.
    pub key_rate: RequestRate,
    /// Hashes of the admin keys in the configuration.
    pub admin_keys: Vec<KeyHash>,
    /// Networks of trusted reverse proxies, whose `X-Forwarded-For` is honoured.
    pub trusted_proxies: Vec<IpNet>,
    /// Destinations that endpoints may have.
    pub egress_rules: EgressRules,
    /// URL under which browsers reach this server: scheme, host and port. If unset, the `Host` of the request is used.
    pub public_url: Option<String>,
    /// The plans, and the limits without one.
    pub plans: Arc<Plans>,
    /// Owners of endpoints get emails about their endpoints.
    pub sends_emails: bool,
    /// Settings of emails to owners of endpoints.
    pub owner_emails: OwnerEmailSettings,
    /// Retry policy if neither endpoint nor tenant has one, and its form in the API.
    pub default_policy: (RetryPolicy, Value),
    /// Limits of endpoints for which neither the endpoint nor its tenant sets any.
    pub endpoint_defaults: EndpointLimits,
    /// Rules of alerts, to show when an open one clears.
    pub alerts: AlertSettings,
}

/// Settings of emails to owners of endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerEmailSettings {
    /// Domains whose addresses get emails without a confirmation.
    pub allowed_domains: AllowedDomains,
    /// Limits per tenant and day.
    pub limits: OwnerEmailLimits,
    /// True if confirmation emails are sent: there is a mail server, and a URL for their links.
    pub sends_confirmations: bool,
}

/// A rate limit of API requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRate {
    /// Sustained requests per second.
    pub per_second: u32,
    /// Burst size: requests allowed at once after an idle period.
    pub burst: u32,
}

/// Share of a limit of the server that one peer or one tenant has, unless a setting says otherwise.
const SHARE_OF_ONE: usize = 4;

impl ApiSettings {
    /// Returns the maximum number of connections of one peer.
    pub fn connections_per_peer(&self) -> usize {
        let share = self.max_connections.div_ceil(SHARE_OF_ONE);
        self.max_connections_per_peer.unwrap_or(share)
    }

    /// Returns the maximum memory of request bodies of one tenant.
    pub fn body_memory_per_tenant(&self) -> u64 {
        let share = self.body_memory_bytes.div_ceil(SHARE_OF_ONE as u64);
        self.tenant_body_memory_bytes.unwrap_or(share)
    }
}

impl Default for ApiSettings {
    fn default() -> ApiSettings {
        let mail = MailSettings::default();
        ApiSettings {
            body_bytes: 1 << 20,
            batch_bytes: 16 << 20,
            head_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(75),
            max_connections: 4_096,
            max_connections_per_peer: None,
            body_memory_bytes: 256 << 20,
            tenant_body_memory_bytes: None,
            grace: Duration::from_secs(10),
            key_rate: RequestRate {
                per_second: 50_000,
                burst: 100_000,
            },
            admin_keys: Vec::new(),
            trusted_proxies: Vec::new(),
            egress_rules: EgressRules::default(),
            public_url: None,
            plans: Arc::default(),
            sends_emails: false,
            owner_emails: OwnerEmailSettings {
                allowed_domains: mail.allowed_domains,
                limits: mail.tenant_limits,
                sends_confirmations: false,
            },
            default_policy: (
                RetryPolicy::default(),
                serde_json::json!({"preset": "recommended"}),
            ),
            endpoint_defaults: EndpointLimits::default(),
            alerts: AlertSettings::default(),
        }
    }
}
