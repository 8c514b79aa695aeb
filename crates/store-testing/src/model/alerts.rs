//! Alerts in the model.
//!
//! Implements [`Alerts`] for [`ModelStore`]: raising and resolving with their notifications, listing, and the ages
//! of waiting notifications and emails. An alert remembers the version of its tenant, so that a later tenant with
//! the same id does not see it.

use std::collections::BTreeMap;

use posthaste_core::alert::AlertName;
use posthaste_core::id::{AlertId, TenantId};
use posthaste_core::lane::EndpointStatus;
use posthaste_core::time::Timestamp;

use super::tables::{AlertRow, Tables, TenantVersion, page};
use super::{ModelStore, answer};
use posthaste_store::for_other_stores::{RAISED, RESOLVED};
use posthaste_store::{
    ALERT_RETENTION, Alert, AlertFilter, Alerts, Answer, CreateResult, Page, PageRequest,
    SubjectScope,
};

impl Alerts for ModelStore {
    fn raise_alert(&self, now: Timestamp, alert: Alert) -> Answer<CreateResult> {
        answer(self.write(|tables| tables.raise_alert(now, alert)))
    }

    fn resolve_alert(&self, now: Timestamp, alert: AlertId) -> Answer<Option<Alert>> {
        answer(self.write(|tables| tables.resolve_alert(now, alert)))
    }

    fn alerts(
        &self,
        filter: AlertFilter,
        page: PageRequest<AlertId>,
    ) -> Answer<Page<Alert, AlertId>> {
        answer(self.read(|tables| tables.alerts(&filter, page)))
    }

    fn open_alerts(&self) -> Answer<BTreeMap<AlertName, u64>> {
        answer(self.read(Tables::open_alerts))
    }

    /// The model is in memory and has no size on disk.
    fn stored_bytes(&self) -> Answer<Option<u64>> {
        answer(self.read(|_| None))
    }

    fn oldest_pending_notification(&self) -> Answer<Option<Timestamp>> {
        answer(self.read(|tables| tables.notifications.first().map(|row| row.notification.at)))
    }

    fn unsent_since(&self, recipients: Vec<String>) -> Answer<Option<Timestamp>> {
        answer(self.read(|tables| {
            let emails = tables.emails.values().map(|kept| &kept.email);
            let tried = emails.filter(|it| it.tries > 0 && recipients.contains(&it.recipient));
            tried.map(|it| it.first_at).min()
        }))
    }
}

impl Tables {
    /// Returns the tenant of an existing scope; `None` if the scope does not exist.
    fn owner_of(&self, scope: &SubjectScope) -> Option<Option<TenantVersion>> {
        match scope {
            SubjectScope::Everything => Some(None),
            SubjectScope::Tenant(tenant) => self.owner(tenant).map(Some),
            SubjectScope::Endpoint(endpoint) => {
                let endpoint = self.endpoints.get(endpoint)?;
                (endpoint.row.status != EndpointStatus::Deleted).then_some(Some(endpoint.owner))
            }
        }
    }

    fn tenant_of_scope(&self, scope: &SubjectScope) -> Option<TenantId> {
        match scope {
            SubjectScope::Everything => None,
            SubjectScope::Tenant(tenant) => Some(tenant.clone()),
            SubjectScope::Endpoint(endpoint) => {
                let endpoint = self.endpoints.get(endpoint)?;
                Some(endpoint.row.endpoint.tenant.clone())
            }
        }
    }

    /// Returns true if the subject of an alert was deleted since.
    fn is_gone(&self, scope: &SubjectScope, owner: Option<TenantVersion>) -> bool {
        match scope {
            SubjectScope::Everything => false,
            SubjectScope::Tenant(tenant) => self.owner(tenant) != owner,
            SubjectScope::Endpoint(_) => self.owner_of(scope).is_none(),
        }
    }

    fn open_alerts(&self) -> BTreeMap<AlertName, u64> {
        let mut open = BTreeMap::new();
        let rows = self.alerts.values();
        for row in rows.filter(|row| row.alert.resolved_at.is_none()) {
            *open.entry(row.alert.name).or_insert(0) += 1;
        }
        open
    }

    fn raise_alert(&mut self, now: Timestamp, alert: Alert) -> CreateResult {
        let Some(owner) = self.owner_of(&alert.scope) else {
            return CreateResult::NoSuchTenant;
        };
        let goes_on = |row: &AlertRow| {
            let same = row.alert.name == alert.name && row.alert.scope == alert.scope;
            same && row.owner == owner && row.alert.resolved_at.is_none()
        };
        if self.alerts.contains_key(&alert.id) || self.alerts.values().any(goes_on) {
            return CreateResult::Taken;
        }
        self.notify(now, RAISED, &alert, owner);
        let tenant = self.tenant_of_scope(&alert.scope);
        let alert = Alert { tenant, ..alert };
        self.alerts.insert(alert.id, AlertRow { owner, alert });
        CreateResult::Created
    }

    fn resolve_alert(&mut self, now: Timestamp, alert: AlertId) -> Option<Alert> {
        let row = self.alerts.get_mut(&alert)?;
        if row.alert.resolved_at.is_some() {
            return None;
        }
        row.alert.resolved_at = Some(now);
        let (alert, owner) = (row.alert.clone(), row.owner);
        self.notify(now, RESOLVED, &alert, owner);
        let is_gone = self.is_gone(&alert.scope, owner);
        Some(Alert { is_gone, ..alert })
    }

    fn notify(&mut self, at: Timestamp, name: &str, alert: &Alert, owner: Option<TenantVersion>) {
        self.add_notification(
            at,
            (alert.scope.clone(), owner),
            name,
            alert.notification_detail(),
        );
    }

    fn alerts(&self, filter: &AlertFilter, request: PageRequest<AlertId>) -> Page<Alert, AlertId> {
        let matches = |row: &AlertRow| {
            let alert = &row.alert;
            let theirs = |tenant: &TenantId| row.owner.is_some() && row.owner == self.owner(tenant);
            let about = |scope: &SubjectScope| {
                let same = match scope {
                    SubjectScope::Tenant(tenant) => theirs(tenant),
                    SubjectScope::Everything | SubjectScope::Endpoint(_) => true,
                };
                same && alert.scope == *scope
            };
            filter
                .open
                .is_none_or(|open| open == alert.resolved_at.is_none())
                && filter.name.is_none_or(|name| name == alert.name)
                && filter.tenant.as_ref().is_none_or(theirs)
                && filter.scope.as_ref().is_none_or(about)
                && filter.since.is_none_or(|since| alert.raised_at >= since)
                && filter.until.is_none_or(|until| alert.raised_at < until)
        };
        let rows = self.alerts.iter().rev().filter(|(_, row)| matches(row));
        let shown = |(id, row): (&AlertId, &AlertRow)| {
            let is_gone = self.is_gone(&row.alert.scope, row.owner);
            let alert = row.alert.clone();
            (*id, Alert { is_gone, ..alert })
        };
        page(rows.map(shown), request)
    }

    /// Removes a few alerts whose retention period has passed. Returns true if there may be more.
    pub(super) fn delete_expired_alerts(&mut self, now: Timestamp, step: usize) -> bool {
        let rows = self.alerts.iter();
        let over = rows.filter_map(|(id, row)| {
            let end = row.alert.resolved_at?;
            (end.after(ALERT_RETENTION) <= now).then_some((end, *id))
        });
        let mut over: Vec<(Timestamp, AlertId)> = over.collect();
        over.sort_unstable();
        over.truncate(step);
        for (_, alert) in &over {
            self.alerts.remove(alert);
        }
        step > 0 && over.len() == step
    }
}
