//! Sessions, the audit log and tenant lookup in the model.
//!
//! Sessions are found by hash until they expire, and end with their key or tenant. Audit entries are written first
//! and completed once. The owner of an id is looked up in the rows of its kind.

use posthaste_core::id::{AuditId, SessionId, TenantId};
use posthaste_core::lane::EndpointStatus;
use posthaste_core::time::Timestamp;

use super::tables::{AuditRow, SessionRow, Tables, TenantVersion, page};
use posthaste_store::for_other_stores::{first_kept, fitted};
use posthaste_store::{
    AuditCompletion, AuditEntry, AuditFilter, AuditOutcome, AuditScope, CreateResult, KeyHash,
    LoginSession, Page, PageRequest, SessionIdentity, TenantObject,
};

impl Tables {
    pub(super) fn create_session(&mut self, session: LoginSession) -> CreateResult {
        let owner = match &session.holder {
            SessionIdentity::Key(_) => None,
            SessionIdentity::Tenant(tenant) => match self.owner(tenant) {
                None => return CreateResult::NoSuchTenant,
                owner @ Some(_) => owner,
            },
        };
        let known = self
            .sessions
            .values()
            .any(|row| row.session.hash == session.hash);
        if known || self.sessions.contains_key(&session.id) {
            return CreateResult::Taken;
        }
        self.sessions
            .insert(session.id, SessionRow { owner, session });
        CreateResult::Created
    }

    pub(super) fn session(&self, now: Timestamp, hash: KeyHash) -> Option<LoginSession> {
        let found = self.sessions.values().find(|row| row.session.hash == hash);
        found
            .map(|row| row.session.clone())
            .filter(|session| session.expires_at > now)
    }

    pub(super) fn sessions(
        &self,
        now: Timestamp,
        tenant: &TenantId,
        request: PageRequest<SessionId>,
    ) -> Page<LoginSession, SessionId> {
        let owner = self.owner(tenant);
        let rows = self.sessions.iter().rev().filter(|(_, row)| {
            owner.is_some() && row.owner == owner && row.session.expires_at > now
        });
        page(rows.map(|(id, row)| (*id, row.session.clone())), request)
    }

    pub(super) fn end_session(
        &mut self,
        now: Timestamp,
        tenant: Option<&TenantId>,
        session: SessionId,
    ) -> bool {
        let owner = tenant.map(|tenant| self.owner(tenant));
        let found = self.sessions.get(&session).is_some_and(|row| {
            let theirs = owner.is_none_or(|owner| owner.is_some() && row.owner == owner);
            theirs && row.session.expires_at > now
        });
        found && self.sessions.remove(&session).is_some()
    }

    /// Ends the sessions of a deleted tenant.
    pub(super) fn end_sessions_of(&mut self, owner: TenantVersion) {
        self.sessions.retain(|_, row| row.owner != Some(owner));
    }

    /// Ends the sessions of a revoked key.
    pub(super) fn end_sessions_with(&mut self, key: KeyHash) {
        self.sessions
            .retain(|_, row| row.session.holder != SessionIdentity::Key(key));
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
        let entry = entry.truncated();
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
    pub(super) fn tenant_of(&self, named: TenantObject) -> Option<TenantId> {
        let (owner, tenant) = match named {
            TenantObject::Endpoint(endpoint) => {
                let found = self.endpoints.get(&endpoint)?;
                if found.row.status == EndpointStatus::Deleted || found.row.endpoint.is_origin {
                    return None;
                }
                (found.owner, &found.row.endpoint.tenant)
            }
            TenantObject::Event(event) => {
                let found = self.events.get(&event)?;
                (found.owner, &found.tenant)
            }
            TenantObject::Delivery(delivery) => {
                let found = self.deliveries.get(&delivery)?;
                let event = &self.events[&found.delivery.facts().event];
                (event.owner, &event.tenant)
            }
        };
        (self.owner(tenant) == Some(owner)).then(|| tenant.clone())
    }

    /// Removes a few expired sessions and old audit entries. Returns true if there may be more.
    pub(super) fn delete_expired_sessions(&mut self, now: Timestamp, step: usize) -> bool {
        let sessions = self.sessions.iter();
        let over = sessions.filter(|(_, row)| row.session.expires_at <= now);
        let over: Vec<SessionId> = over.map(|(id, _)| *id).take(step).collect();
        let kept = AuditId(first_kept(now));
        let old: Vec<AuditId> = self
            .audit
            .range(..kept)
            .map(|(id, _)| *id)
            .take(step)
            .collect();
        for session in &over {
            self.sessions.remove(session);
        }
        for entry in &old {
            self.audit.remove(entry);
        }
        step > 0 && over.len().max(old.len()) == step
    }
}
