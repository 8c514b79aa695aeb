//! What something is about.

use posthaste_core::id::{EndpointId, TenantId};

/// What figures, alerts and notices are about.
///
/// Engines keep it as one number: 0 for everything, else the number of the tenant or of the endpoint, which
/// share a sequence. So a later tenant of the same id sees nothing of what was about the earlier.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Everything.
    Everything,
    /// One tenant.
    Tenant(TenantId),
    /// One endpoint.
    Endpoint(EndpointId),
}
