//! Tenants, keys and endpoints in the model.
//!
//! A change is applied only to the revision that the caller has read. Deleting a tenant deletes its keys, sessions
//! and endpoints; its events and deliveries stay until their retention ends. Each tenant has a version that tells
//! it from an earlier one with the same id.

use std::collections::BTreeSet;

use posthaste_core::id::{EndpointId, KeyId, TenantId};
use posthaste_core::lane::{EndpointStatus, Health};
use posthaste_core::time::Timestamp;

use super::tables::{OwnedEndpoint, Tables, TenantRow, TenantVersion, page};
use posthaste_store::{
    ApiKey, CreateResult, DisabledReason, Endpoint, EndpointRow, KeyHash, Page, PageRequest,
    ReplaceResult, Tenant,
};

impl Tables {
    pub(super) fn create_tenant(&mut self, tenant: Tenant) -> CreateResult {
        if self.tenants.contains_key(&tenant.id) {
            return CreateResult::Taken;
        }
        self.last_owner = TenantVersion(self.last_owner.0 + 1);
        let row = TenantRow {
            owner: self.last_owner,
            tenant: Tenant {
                revision: 0,
                ..tenant
            },
        };
        self.tenants.insert(row.tenant.id.clone(), row);
        CreateResult::Created
    }

    pub(super) fn replace_tenant(&mut self, tenant: Tenant) -> ReplaceResult {
        let Some(row) = self.tenants.get_mut(&tenant.id) else {
            return ReplaceResult::NotFound;
        };
        if row.tenant.revision != tenant.revision {
            return ReplaceResult::Outdated;
        }
        row.tenant = Tenant {
            created_at: row.tenant.created_at,
            revision: tenant.revision + 1,
            ..tenant
        };
        ReplaceResult::Done
    }

    /// Returns the endpoints that this call deleted, without those that were deleted before.
    pub(super) fn delete_tenant(&mut self, tenant: &TenantId) -> Option<Vec<EndpointId>> {
        let owner = self.tenants.remove(tenant)?.owner;
        let keys = self.keys.values();
        let theirs = keys.filter(|key| key.tenant.as_ref() == Some(tenant));
        for key in theirs.map(|key| key.hash).collect::<Vec<_>>() {
            self.end_sessions_with(key);
        }
        self.end_sessions_of(owner);
        self.schedules.retain(|row| row.owner != owner);
        self.keys
            .retain(|_, key| key.tenant.as_ref() != Some(tenant));
        let mut deleted = Vec::new();
        for (id, endpoint) in &mut self.endpoints {
            if endpoint.owner == owner && endpoint.row.status != EndpointStatus::Deleted {
                set_status(&mut endpoint.row, EndpointStatus::Deleted, None);
                deleted.push(*id);
            }
        }
        Some(deleted)
    }

    pub(super) fn tenant(&self, tenant: &TenantId) -> Option<Tenant> {
        self.tenants.get(tenant).map(|row| row.tenant.clone())
    }

    pub(super) fn tenants(
        &self,
        request: PageRequest<(Timestamp, TenantId)>,
    ) -> Page<Tenant, (Timestamp, TenantId)> {
        let key = |row: &TenantRow| (row.tenant.created_at, row.tenant.id.clone());
        let mut rows: Vec<_> = self
            .tenants
            .values()
            .map(|row| (key(row), row.tenant.clone()))
            .collect();
        rows.sort_by(|(a, _), (b, _)| b.cmp(a));
        page(rows.into_iter(), request)
    }

    /// A known hash is refused like a known id: a key must identify one caller.
    pub(super) fn create_key(&mut self, key: ApiKey) -> CreateResult {
        if let Some(tenant) = &key.tenant
            && !self.tenants.contains_key(tenant)
        {
            return CreateResult::NoSuchTenant;
        }
        if self.keys.contains_key(&key.id) || self.key(key.hash).is_some() {
            return CreateResult::Taken;
        }
        self.keys.insert(key.id, key);
        CreateResult::Created
    }

    pub(super) fn revoke_key(&mut self, tenant: Option<&TenantId>, key: KeyId) -> bool {
        let owned = self
            .keys
            .get(&key)
            .is_some_and(|key| key.tenant.as_ref() == tenant);
        let revoked = owned.then(|| self.keys.remove(&key)).flatten();
        if let Some(key) = &revoked {
            self.end_sessions_with(key.hash);
        }
        revoked.is_some()
    }

    pub(super) fn key(&self, hash: KeyHash) -> Option<ApiKey> {
        self.keys.values().find(|key| key.hash == hash).cloned()
    }

    pub(super) fn keys(
        &self,
        tenant: Option<&TenantId>,
        request: PageRequest<KeyId>,
    ) -> Page<ApiKey, KeyId> {
        let keys = self.keys.iter().rev();
        let owned = keys.filter(|(_, key)| key.tenant.as_ref() == tenant);
        page(owned.map(|(id, key)| (*id, key.clone())), request)
    }

    pub(super) fn create_endpoint(&mut self, endpoint: Endpoint, at_most: u32) -> CreateResult {
        let Some(owner) = self.owner(&endpoint.tenant) else {
            return CreateResult::NoSuchTenant;
        };
        if self.endpoints.contains_key(&endpoint.id) {
            return CreateResult::Taken;
        }
        if endpoint.is_origin
            && self
                .origin_endpoint(&endpoint.tenant, &endpoint.url)
                .is_some()
        {
            return CreateResult::Taken;
        }
        let same_kind = self.existing_endpoints_of(owner);
        let same_kind = same_kind.filter(|row| row.endpoint.is_origin == endpoint.is_origin);
        if same_kind.count() >= at_most as usize {
            return CreateResult::TooMany;
        }
        let row = EndpointRow {
            endpoint: Endpoint {
                revision: 0,
                ..endpoint
            },
            status: EndpointStatus::Enabled,
            disabled_reason: None,
            health: Health::default(),
        };
        self.endpoints
            .insert(row.endpoint.id, OwnedEndpoint { owner, row });
        CreateResult::Created
    }

    pub(super) fn replace_endpoint(&mut self, endpoint: Endpoint) -> ReplaceResult {
        let Some(row) = self
            .endpoints
            .get_mut(&endpoint.id)
            .map(|owned| &mut owned.row)
            .filter(|row| row.status != EndpointStatus::Deleted)
        else {
            return ReplaceResult::NotFound;
        };
        if row.endpoint.revision != endpoint.revision {
            return ReplaceResult::Outdated;
        }
        row.endpoint = Endpoint {
            tenant: row.endpoint.tenant.clone(),
            created_at: row.endpoint.created_at,
            revision: endpoint.revision + 1,
            ..endpoint
        };
        ReplaceResult::Done
    }

    pub(super) fn endpoint(&self, endpoint: EndpointId) -> Option<EndpointRow> {
        self.endpoints.get(&endpoint).map(|owned| owned.row.clone())
    }

    pub(super) fn origin_endpoint(&self, tenant: &TenantId, url: &str) -> Option<EndpointId> {
        let mut existing = self.existing_endpoints_of(self.owner(tenant)?);
        let found = existing.find(|row| row.endpoint.is_origin && row.endpoint.url == url);
        found.map(|row| row.endpoint.id)
    }

    pub(super) fn delete_idle_origins(
        &mut self,
        created_before: Timestamp,
        limit: usize,
    ) -> Vec<EndpointId> {
        let used: BTreeSet<EndpointId> = self
            .deliveries
            .values()
            .map(|row| row.delivery.facts().endpoint)
            .collect();
        let idle = self.endpoints.iter_mut().filter(|(id, owned)| {
            let endpoint = &owned.row.endpoint;
            endpoint.is_origin
                && owned.row.status != EndpointStatus::Deleted
                && endpoint.created_at < created_before
                && !used.contains(id)
        });
        let mut deleted = Vec::new();
        for (id, owned) in idle.take(limit) {
            set_status(&mut owned.row, EndpointStatus::Deleted, None);
            deleted.push(*id);
        }
        deleted
    }

    pub(super) fn endpoints(
        &self,
        tenant: &TenantId,
        request: PageRequest<EndpointId>,
    ) -> Page<EndpointRow, EndpointId> {
        let rows = self
            .owner(tenant)
            .into_iter()
            .flat_map(|owner| self.existing_endpoints_of(owner))
            .filter(|row| !row.endpoint.is_origin);
        page(rows.map(|row| (row.endpoint.id, row.clone())), request)
    }

    pub(super) fn set_endpoint_status(
        &mut self,
        endpoint: EndpointId,
        status: EndpointStatus,
        reason: Option<DisabledReason>,
        health: Option<Health>,
    ) -> bool {
        let Some(owned) = self.endpoints.get_mut(&endpoint) else {
            return false;
        };
        set_status(&mut owned.row, status, reason);
        if let Some(health) = health {
            owned.row.health.update(&health);
        }
        true
    }

    /// Returns the endpoints of a tenant that are not deleted, newest first.
    pub(super) fn existing_endpoints_of(
        &self,
        owner: TenantVersion,
    ) -> impl Iterator<Item = &EndpointRow> {
        let owned = self.endpoints.values().rev();
        owned
            .filter(move |endpoint| endpoint.owner == owner)
            .map(|endpoint| &endpoint.row)
            .filter(|row| row.status != EndpointStatus::Deleted)
    }
}

/// Sets the status of an endpoint; a deleted endpoint stays deleted. Only a disabled one has a reason.
pub(super) fn set_status(
    row: &mut EndpointRow,
    status: EndpointStatus,
    reason: Option<DisabledReason>,
) {
    if row.status == EndpointStatus::Deleted {
        return;
    }
    row.status = status;
    row.disabled_reason = match status {
        EndpointStatus::Disabled => reason,
        EndpointStatus::Enabled | EndpointStatus::Paused | EndpointStatus::Deleted => None,
    };
}
