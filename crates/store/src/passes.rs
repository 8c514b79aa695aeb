//! Passes: what lets somebody in for a while without a key, as a session or a link does.

use posthaste_core::id::{PassId, TenantId};
use posthaste_core::time::Timestamp;

use crate::KeyHash;

/// A pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pass {
    /// Its id, which tells nothing.
    pub id: PassId,
    /// What it is recognised by: the hash of a secret that is nowhere.
    pub hash: KeyHash,
    /// As whom it lets in.
    pub holder: Holder,
    /// When it was made.
    pub created_at: Timestamp,
    /// From then on it lets nobody in.
    pub expires_at: Timestamp,
}

/// As whom a pass lets in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// As whoever has the key with this hash, for as long as there is one. The key may be one that the server was
    /// started with, and in no store.
    Key(KeyHash),
    /// As this tenant.
    Tenant(TenantId),
}
