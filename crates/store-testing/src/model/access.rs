//! Sessions, the audit log and owner lookup in the model.
//!
//! Sessions are found by hash until they expire, and end with their key or tenant. Audit entries are written first
//! and completed once. The owner of an id is looked up in the rows of its kind.

use posthaste_core::id::{AuditId, PassId, TenantId};
use posthaste_core::lane::EndpointStatus;
use posthaste_core::time::Timestamp;

use super::tables::{AuditRow, SessionRow, Tables, TenantVersion, page};
use posthaste_store::rules::{first_kept, fitted};
use posthaste_store::{
    AuditCompletion, AuditEntry, AuditFilter, AuditOutcome, AuditScope, CreateResult, KeyHash,
    OwnedObject, Page, PageRequest, Pass, SessionIdentity,
};

impl Tables {
    pub(super) fn create_pass(&mut self, pass: Pass) -> CreateResult {
        let owner = match &pass.holder {
            SessionIdentity::Key(_) => None,
            SessionIdentity::Tenant(tenant) => match self.owner(tenant) {
                None => return CreateResult::NoSuchTenant,
                owner @ Some(_) => owner,
            },
        };
        let known = self.passes.values().any(|row| row.pass.hash == pass.hash);
        if known || self.passes.contains_key(&pass.id) {
            return CreateResult::Taken;
        }
        self.passes.insert(pass.id, SessionRow { owner, pass });
        CreateResult::Created
    }

    pub(super) fn pass(&self, now: Timestamp, hash: KeyHash) -> Option<Pass> {
        let found = self.passes.values().find(|row| row.pass.hash == hash);
        found
            .map(|row| row.pass.clone())
            .filter(|pass| pass.expires_at > now)
    }

    pub(super) fn passes(
        &self,
        now: Timestamp,
        tenant: &TenantId,
        request: PageRequest<PassId>,
    ) -> Page<Pass, PassId> {
        let owner = self.owner(tenant);
        let rows =
            self.passes.iter().rev().filter(|(_, row)| {
                owner.is_some() && row.owner == owner && row.pass.expires_at > now
            });
        page(rows.map(|(id, row)| (*id, row.pass.clone())), request)
    }

    pub(super) fn end_pass(
        &mut self,
        now: Timestamp,
        tenant: Option<&TenantId>,
        pass: PassId,
    ) -> bool {
        let owner = tenant.map(|tenant| self.owner(tenant));
        let found = self.passes.get(&pass).is_some_and(|row| {
            let theirs = owner.is_none_or(|owner| owner.is_some() && row.owner == owner);
            theirs && row.pass.expires_at > now
        });
        found && self.passes.remove(&pass).is_some()
    }

    /// Ends the sessions of a deleted tenant.
    pub(super) fn end_passes_of(&mut self, owner: TenantVersion) {
        self.passes.retain(|_, row| row.owner != Some(owner));
    }

    /// Ends the sessions of a revoked key.
    pub(super) fn end_passes_with(&mut self, key: KeyHash) {
        self.passes
            .retain(|_, row| row.pass.holder != SessionIdentity::Key(key));
    }

    pub(super) fn begin_audit(&mut self, entry: AuditEntry) -> CreateResult {
        let owner = entry.tenant.as_ref().and_then(|tenant| self.owner(tenant));
        self.add_audit(owner, entry)
    }

    /// Adds an entry of this tenant.
    pub(super) fn add_audit(
        &mut self,
        owner: Option<TenantVersion>,
        entry: AuditEntry,
    ) -> CreateResult {
        if self.audit.contains_key(&entry.id) {
            return CreateResult::Taken;
        }
        let entry = entry.fitted();
        self.audit.insert(entry.id, AuditRow { owner, entry });
        CreateResult::Created
    }

    pub(super) fn finish_audit(
        &mut self,
        entry: AuditId,
        outcome: AuditOutcome,
        made: Option<String>,
    ) -> AuditCompletion {
        let Some(row) = self.audit.get_mut(&entry) else {
            return AuditCompletion::NoSuchEntry;
        };
        if row.entry.outcome.is_some() {
            return AuditCompletion::Already;
        }
        row.entry.outcome = Some(outcome.fitted());
        if let Some(made) = fitted(made) {
            row.entry.resource = made;
        }
        AuditCompletion::Done
    }

    pub(super) fn audit(
        &self,
        filter: &AuditFilter,
        request: PageRequest<AuditId>,
    ) -> Page<AuditEntry, AuditId> {
        let (from, below) = filter.range(None);
        let rows = self.audit.iter().rev().filter(|(id, row)| {
            let theirs = match &filter.of {
                AuditScope::All => true,
                AuditScope::AnyWithId(tenant) => row.entry.tenant.as_ref() == Some(tenant),
                AuditScope::Tenant(tenant) => {
                    row.owner.is_some() && row.owner == self.owner(tenant)
                }
            };
            theirs && (from..below).contains(&id.0)
        });
        page(rows.map(|(id, row)| (*id, row.entry.clone())), request)
    }

    /// Deleted objects belong to no tenant, and neither do the objects of a deleted tenant.
    pub(super) fn whose(&self, named: OwnedObject) -> Option<TenantId> {
        let (owner, tenant) = match named {
            OwnedObject::Endpoint(endpoint) => {
                let found = self.endpoints.get(&endpoint)?;
                if found.row.standing == EndpointStatus::Deleted {
                    return None;
                }
                (found.owner, &found.row.endpoint.tenant)
            }
            OwnedObject::Event(event) => {
                let found = self.events.get(&event)?;
                (found.owner, &found.tenant)
            }
            OwnedObject::Delivery(delivery) => {
                let found = self.deliveries.get(&delivery)?;
                let event = &self.events[&found.delivery.facts().event];
                (event.owner, &event.tenant)
            }
        };
        (self.owner(tenant) == Some(owner)).then(|| tenant.clone())
    }

    /// Removes a few expired sessions and old audit entries. Returns true if there may be more.
    pub(super) fn tidy_people(&mut self, now: Timestamp, step: usize) -> bool {
        let passes = self.passes.iter();
        let over = passes.filter(|(_, row)| row.pass.expires_at <= now);
        let over: Vec<PassId> = over.map(|(id, _)| *id).take(step).collect();
        let kept = AuditId(first_kept(now));
        let old: Vec<AuditId> = self
            .audit
            .range(..kept)
            .map(|(id, _)| *id)
            .take(step)
            .collect();
        for pass in &over {
            self.passes.remove(pass);
        }
        for entry in &old {
            self.audit.remove(entry);
        }
        step > 0 && over.len().max(old.len()) == step
    }
}
