//! Who there is: tenants, their keys, their endpoints.

use posthaste_core::id::{EndpointId, KeyId, TenantId};
use posthaste_core::lane::{DisableCause, Health, RateLimit, Standing, holds};
use posthaste_core::policy::RetryPolicy;
use posthaste_core::sign::SignatureStyle;
use posthaste_core::subscription::Pattern;
use posthaste_core::time::{Span, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A tenant.
#[derive(Clone, Debug, PartialEq)]
pub struct Tenant {
    /// Its id, which its caller may have chosen.
    pub id: TenantId,
    /// What people call it.
    pub name: String,
    /// The retry policy of endpoints that have none of their own, as it was written; valid.
    pub default_retry_policy: Option<Value>,
    /// The plan it is on, by its name in the configuration.
    pub plan: Option<String>,
    /// What it is allowed otherwise than by its plan.
    pub limits: Limits,
    /// When it came.
    pub created_at: Timestamp,
    /// Counts its changes, so that of two changes made at once the second is not lost.
    pub revision: u64,
}

/// What a tenant is allowed. What is absent is as its plan says, or else as the server's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// How many endpoints.
    pub endpoints: Option<u32>,
    /// How many events a second.
    pub events_per_second: Option<u32>,
    /// How many events a month.
    pub events_per_month: Option<u64>,
    /// How large a payload.
    pub payload_bytes: Option<u64>,
    /// How many attempts a retry policy may ask for.
    pub max_attempts: Option<u32>,
    /// How long what is finished is kept.
    pub retention: Option<Span>,
    /// How long what events carry is kept once they are finished, if less long than the rest.
    pub payload_retention: Option<Span>,
    /// How long all attempts but the last are kept once their delivery is finished, if less long than the rest.
    pub attempt_retention: Option<Span>,
    /// How many attempts may be under way at once.
    pub in_flight: Option<u32>,
}

impl Limits {
    /// A policy as far as the plan allows it: it may be older than the plan, or come from the server.
    pub fn bound(&self, mut policy: RetryPolicy) -> RetryPolicy {
        if let Some(most) = self.max_attempts {
            policy.max_attempts = policy.max_attempts.min(most);
        }
        policy
    }
}

/// SHA-256 of a key. The key itself is nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyHash(pub [u8; 32]);

/// A key to the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKey {
    /// Its id.
    pub id: KeyId,
    /// Whose it is. A key of nobody is an admin key.
    pub tenant: Option<TenantId>,
    /// What people call it.
    pub name: String,
    /// What it is recognised by.
    pub hash: KeyHash,
    /// When it was made.
    pub created_at: Timestamp,
}

/// An endpoint, as people configure it.
///
/// What must not be read from the disk comes sealed: the store neither can nor needs to open it.
#[derive(Clone, Debug, PartialEq)]
pub struct Endpoint {
    /// Its id.
    pub id: EndpointId,
    /// Whose it is.
    pub tenant: TenantId,
    /// Where it is; valid.
    pub url: String,
    /// What people say of it.
    pub description: String,
    /// What it wants; empty means everything.
    pub event_types: Vec<Pattern>,
    /// Its own retry policy, as it was written; valid.
    pub retry_policy: Option<Value>,
    /// How long one attempt may take.
    pub timeout: Span,
    /// At most so many at once.
    pub max_in_flight: u32,
    /// At most so many a second.
    pub rate: RateLimit,
    /// Deliveries with the same ordering key go one after the other.
    pub ordered: bool,
    /// Its custom headers, sealed.
    pub sealed_headers: Vec<u8>,
    /// Its signing keys, sealed.
    pub sealed_keys: Vec<u8>,
    /// How its requests are signed, besides the signature that every request has.
    pub signature_style: SignatureStyle,
    /// What it is called with beside signatures, a password, a token or a certificate, sealed; empty if
    /// there is nothing.
    pub sealed_credentials: Vec<u8>,
    /// Who is told when something is wrong with it.
    pub owner_email: Option<String>,
    /// When it came.
    pub created_at: Timestamp,
    /// Counts changes of the above, so that of two changes made at once the second is not lost.
    pub revision: u64,
}

/// Why an endpoint is disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DisabledReason {
    /// Somebody did it.
    Manual,
    /// posthaste did it.
    Automatic(DisableCause),
}

/// An endpoint, and what became of it.
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointRow {
    /// As people configure it.
    pub endpoint: Endpoint,
    /// Whether it takes part.
    pub standing: Standing,
    /// Why it does not, if it is disabled.
    pub disabled_reason: Option<DisabledReason>,
    /// What is remembered of it.
    pub health: Health,
}

impl EndpointRow {
    /// Whether deliveries that wait for it are shown as held.
    pub fn holds(&self) -> bool {
        holds(self.standing, &self.health)
    }
}

/// What came of creating something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insertion {
    /// It is there.
    Created,
    /// There is one of that id already.
    Taken,
    /// There is no such tenant.
    NoSuchTenant,
    /// The tenant has as many as it may have.
    TooMany,
}

/// What came of changing something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// It is changed, and its revision is one more.
    Done,
    /// Somebody else changed it first: read it again.
    Outdated,
    /// There is no such thing.
    Gone,
}
