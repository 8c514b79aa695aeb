//! What the operator decides about the API. Every limit has its name here.

use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use posthaste_core::address::EgressRules;
use posthaste_core::lane::RateLimit;
use posthaste_core::policy::RetryPolicy;
use posthaste_core::time::Span;
use posthaste_store::{KeyHash, Plans};
use serde_json::Value;

/// What the operator decides about the API.
#[derive(Clone, Debug)]
pub struct ApiSettings {
    /// The largest body of an ordinary request, and the largest payload where a tenant has no limit of
    /// its own.
    pub body_bytes: u64,
    /// The largest body of a batch.
    pub batch_bytes: u64,
    /// How long the head of a request may take to arrive.
    pub head_timeout: Duration,
    /// How long a body may take to arrive.
    pub body_timeout: Duration,
    /// How many connections may be open at once. Further ones wait to be taken.
    pub max_connections: usize,
    /// How long requests under way may take once the server is told to stop.
    pub grace: Duration,
    /// How many requests one key may make.
    pub key_rate: Pace,
    /// Hashes of the admin keys that the configuration names.
    pub admin_keys: Vec<KeyHash>,
    /// Proxies in front of this server that are believed when they say for whom they ask.
    pub trusted_proxies: Vec<IpNet>,
    /// Which destinations may be registered.
    pub egress_rules: EgressRules,
    /// How browsers reach this server: scheme, host and port. Without it, what a request was sent to is
    /// believed.
    pub public_url: Option<String>,
    /// What plans there are, and what is allowed without one.
    pub plans: Arc<Plans>,
    /// Owners of endpoints are told by mail what happens to them.
    pub sends_letters: bool,
    /// The retry policy where neither endpoint nor tenant has one, and how it was written.
    pub default_policy: (RetryPolicy, Value),
    /// How long one attempt may take, where an endpoint does not say.
    pub timeout: Span,
    /// How many may be in flight to an endpoint that does not say.
    pub max_in_flight: u32,
    /// How many a second an endpoint takes that does not say.
    pub rate_limit: RateLimit,
}

/// So many a second, and so many at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Sustained, per second.
    pub per_second: u32,
    /// At once, after a quiet time.
    pub burst: u32,
}

impl Default for ApiSettings {
    fn default() -> ApiSettings {
        ApiSettings {
            body_bytes: 1 << 20,
            batch_bytes: 16 << 20,
            head_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(30),
            max_connections: 4_096,
            grace: Duration::from_secs(10),
            key_rate: Pace {
                per_second: 50_000,
                burst: 100_000,
            },
            admin_keys: Vec::new(),
            trusted_proxies: Vec::new(),
            egress_rules: EgressRules::default(),
            public_url: None,
            plans: Arc::default(),
            sends_letters: false,
            default_policy: (
                RetryPolicy::default(),
                serde_json::json!({"preset": "recommended"}),
            ),
            timeout: Span::from_secs(30),
            max_in_flight: posthaste_core::lane::DEFAULT_MAX_IN_FLIGHT,
            rate_limit: RateLimit::default(),
        }
    }
}
