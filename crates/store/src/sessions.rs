//! Sessions: time-limited logins without an API key, of the dashboard or of a portal link.

use posthaste_core::id::{SessionId, TenantId};
use posthaste_core::time::Timestamp;

use crate::KeyHash;

/// A session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginSession {
    /// Its id, which is not secret.
    pub id: SessionId,
    /// The hash that authenticates it. The secret itself is not stored.
    pub hash: KeyHash,
    /// The identity that it logs in as.
    pub holder: SessionIdentity,
    /// The time of its creation.
    pub created_at: Timestamp,
    /// The time from which it is no longer valid.
    pub expires_at: Timestamp,
}

/// The identity that a session logs in as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionIdentity {
    /// The holder of the API key with this hash, while that key is valid. The key may come from the server's
    /// configuration and not be in the store.
    Key(KeyHash),
    /// This tenant.
    Tenant(TenantId),
}
