//! The scope of stats, alerts and notifications, and selections of tenants.

use posthaste_core::id::{EndpointId, TenantId};

/// The object that stats, alerts and notifications are about.
///
/// Stores keep it as one number: 0 for everything, otherwise the number of the tenant or endpoint, which come from
/// the same sequence. So a later tenant with the same id sees nothing of an earlier one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SubjectScope {
    /// Everything.
    Everything,
    /// One tenant.
    Tenant(TenantId),
    /// One endpoint.
    Endpoint(EndpointId),
}

/// The tenants whose deliveries are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TenantSelection {
    /// All tenants.
    All,
    /// One tenant.
    Only(TenantId),
    /// All tenants but one.
    Except(TenantId),
}
