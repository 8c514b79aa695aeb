//! The directory: tenants, their API keys and their endpoints.
//!
//! [`Tenant`] and [`Endpoint`] have a revision, so that a change that is based on an older one is refused. Secrets
//! arrive encrypted, and keys as hashes.

use posthaste_core::id::{EndpointId, KeyId, TenantId};
use posthaste_core::lane::{
    DisableCause, EndpointStatus, Health, LimitOverrides, ProtectionOverrides, holds,
};
use posthaste_core::policy::RetryPolicy;
use posthaste_core::sign::SignatureStyle;
use posthaste_core::subscription::Pattern;
use posthaste_core::time::{Span, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A tenant.
#[derive(Clone, Debug, PartialEq)]
pub struct Tenant {
    /// Its id, which the caller may have chosen.
    pub id: TenantId,
    /// Display name.
    pub name: String,
    /// The retry policy of endpoints without their own, as the caller wrote it; valid.
    pub default_retry_policy: Option<Value>,
    /// Its own keys, encrypted: they sign its one-off requests. Empty until they are first needed.
    pub sealed_keys: Vec<u8>,
    /// The name of its plan in the configuration.
    pub plan: Option<String>,
    /// Limits that override those of its plan.
    pub limits: Limits,
    /// Limits of its endpoints that set none.
    pub endpoint_defaults: LimitOverrides,
    /// Thresholds of its endpoints that override those of the server.
    pub protection: ProtectionOverrides,
    /// The time of its creation.
    pub created_at: Timestamp,
    /// Counts its changes, so that two concurrent changes cannot overwrite each other.
    pub revision: u64,
}

impl Tenant {
    /// Returns a new tenant without a plan and without limits, policies and keys of its own.
    pub fn new(id: TenantId, name: String, created_at: Timestamp) -> Tenant {
        Tenant {
            id,
            name,
            default_retry_policy: None,
            sealed_keys: Vec::new(),
            plan: None,
            limits: Limits::default(),
            endpoint_defaults: LimitOverrides::default(),
            protection: ProtectionOverrides::default(),
            created_at,
            revision: 0,
        }
    }
}

/// The limits of a tenant. An absent limit comes from the tenant's plan, or else from the server's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Maximum number of endpoints.
    pub endpoints: Option<u32>,
    /// Maximum number of events per second.
    pub events_per_second: Option<u32>,
    /// Maximum number of deliveries made per second on each node.
    pub deliveries_per_second: Option<u32>,
    /// Maximum number of events per month.
    pub events_per_month: Option<u64>,
    /// Maximum size of a payload, in bytes.
    pub payload_bytes: Option<u64>,
    /// Maximum number of attempts that a retry policy may ask for.
    pub max_attempts: Option<u32>,
    /// Retention period of finished events and deliveries.
    pub retention: Option<Span>,
    /// Retention period of the payloads of finished events, if shorter.
    pub payload_retention: Option<Span>,
    /// Retention period of all attempts but the last of a finished delivery, if shorter.
    pub attempt_retention: Option<Span>,
    /// Maximum number of attempts in flight.
    pub in_flight: Option<u32>,
}

impl Limits {
    /// Returns the policy with at most the allowed number of attempts. A policy can be older than the plan, or be the
    /// server's default, and so exceed the limit.
    pub fn bound(&self, mut policy: RetryPolicy) -> RetryPolicy {
        if let Some(most) = self.max_attempts {
            policy.max_attempts = policy.max_attempts.min(most);
        }
        policy
    }
}

/// SHA-256 hash of an API key. The key itself is not stored anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyHash(pub [u8; 32]);

/// An API key or admin key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKey {
    /// Its id.
    pub id: KeyId,
    /// The tenant that it belongs to; `None` for an admin key.
    pub tenant: Option<TenantId>,
    /// Display name.
    pub name: String,
    /// The hash that authenticates it.
    pub hash: KeyHash,
    /// The time of its creation.
    pub created_at: Timestamp,
}

/// The configuration of an endpoint.
///
/// Secrets are already encrypted. The store cannot decrypt them and does not need to.
#[derive(Clone, Debug, PartialEq)]
pub struct Endpoint {
    /// Its id.
    pub id: EndpointId,
    /// The tenant that it belongs to.
    pub tenant: TenantId,
    /// Its URL; valid.
    pub url: String,
    /// Free text for people.
    pub description: String,
    /// Its subscription; empty means all event types.
    pub event_types: Vec<Pattern>,
    /// Its own retry policy, as the caller wrote it; valid.
    pub retry_policy: Option<Value>,
    /// Its own limits. Others come from the defaults of its tenant, or else of the server.
    pub limits: LimitOverrides,
    /// Thresholds that override those of its tenant and of the server.
    pub protection: ProtectionOverrides,
    /// True if deliveries with the same ordering key are sent one after the other.
    pub ordered: bool,
    /// Its custom headers, encrypted.
    pub sealed_headers: Vec<u8>,
    /// Its signing keys, encrypted.
    pub sealed_keys: Vec<u8>,
    /// The signature format of its requests, in addition to the signature that every request has.
    pub signature_style: SignatureStyle,
    /// Its credentials for the receiver (a password, a token or a certificate), encrypted; empty if there are none.
    pub sealed_credentials: Vec<u8>,
    /// True for an origin endpoint: its URL is an origin (scheme, host and port), it gets no events, and one-off requests
    /// to that origin are its deliveries. It is not listed, and does not count as an endpoint of its tenant.
    pub is_origin: bool,
    /// The email address for alerts about it.
    pub owner_email: Option<String>,
    /// True if that address was set by an admin key, or if its owner has confirmed it.
    pub owner_email_confirmed: bool,
    /// The time of its creation.
    pub created_at: Timestamp,
    /// Counts changes of the fields above, so that two concurrent changes cannot overwrite each other.
    pub revision: u64,
}

impl Endpoint {
    /// Returns a new endpoint that gets all event types. It sets no limits, and has no secrets and no owner yet.
    pub fn new(id: EndpointId, tenant: TenantId, url: String, created_at: Timestamp) -> Endpoint {
        Endpoint {
            id,
            tenant,
            url,
            description: String::new(),
            event_types: Vec::new(),
            retry_policy: None,
            limits: LimitOverrides::default(),
            protection: ProtectionOverrides::default(),
            ordered: false,
            sealed_headers: Vec::new(),
            sealed_keys: Vec::new(),
            signature_style: SignatureStyle::Standard,
            sealed_credentials: Vec::new(),
            is_origin: false,
            owner_email: None,
            owner_email_confirmed: false,
            created_at,
            revision: 0,
        }
    }
}

/// The reason why an endpoint is disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DisabledReason {
    /// A person disabled it.
    Manual,
    /// posthaste disabled it.
    Automatic(DisableCause),
}

/// An endpoint with its configuration, status and health.
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointRow {
    /// Its configuration.
    pub endpoint: Endpoint,
    /// Its status.
    pub status: EndpointStatus,
    /// The reason, if it is disabled.
    pub disabled_reason: Option<DisabledReason>,
    /// Its health.
    pub health: Health,
}

impl EndpointRow {
    /// Returns whether deliveries that wait for it are shown as held.
    pub fn holds(&self) -> bool {
        holds(self.status, &self.health)
    }
}

/// The result of creating an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateResult {
    /// It has been created.
    Created,
    /// The id is already in use.
    Taken,
    /// There is no such tenant.
    NoSuchTenant,
    /// The tenant has reached its limit.
    TooMany,
}

/// The result of replacing an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplaceResult {
    /// It has been replaced, and its revision is one higher.
    Done,
    /// Another caller changed it first: read it again.
    Outdated,
    /// There is no such object.
    NotFound,
}
