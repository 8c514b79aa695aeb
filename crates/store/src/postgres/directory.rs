//! Tenants and keys.

use posthaste_core::id::{EndpointId, KeyId, TenantId};
use posthaste_core::time::Timestamp;

use super::fault::Fault;
use super::link::Link;
use super::scene::{Scene, missing};
use crate::{ApiKey, Insertion, KeyHash, Page, PageRequest, Replaced, Tenant};

/// Adds a tenant.
pub(super) async fn create_tenant(
    _scene: &mut Scene,
    _tenant: &Tenant,
) -> Result<Insertion, Fault> {
    missing()
}

/// Changes a tenant.
pub(super) async fn replace_tenant(
    _scene: &mut Scene,
    _tenant: &Tenant,
) -> Result<Replaced, Fault> {
    missing()
}

/// Removes a tenant, with its keys and endpoints.
pub(super) async fn delete_tenant(
    _scene: &mut Scene,
    _tenant: &TenantId,
) -> Result<Option<Vec<EndpointId>>, Fault> {
    missing()
}

/// A tenant.
pub(super) async fn tenant(_link: &Link, _tenant: &TenantId) -> Result<Option<Tenant>, Fault> {
    missing()
}

/// Tenants, the newest first.
pub(super) async fn tenants(
    _link: &Link,
    _page: &PageRequest<(Timestamp, TenantId)>,
) -> Result<Page<Tenant, (Timestamp, TenantId)>, Fault> {
    missing()
}

/// Adds a key.
pub(super) async fn create_key(_scene: &mut Scene, _key: &ApiKey) -> Result<Insertion, Fault> {
    missing()
}

/// Revokes a key.
pub(super) async fn revoke_key(
    _scene: &mut Scene,
    _tenant: Option<&TenantId>,
    _key: KeyId,
) -> Result<bool, Fault> {
    missing()
}

/// The key with this hash.
pub(super) async fn key(_link: &Link, _hash: KeyHash) -> Result<Option<ApiKey>, Fault> {
    missing()
}

/// Keys.
pub(super) async fn keys(
    _link: &Link,
    _tenant: Option<&TenantId>,
    _page: PageRequest<KeyId>,
) -> Result<Page<ApiKey, KeyId>, Fault> {
    missing()
}
