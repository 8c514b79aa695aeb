//! Everything that can be seen of a store.

use std::fmt::Write;

use posthaste_core::dice::Dice;
use posthaste_core::id::EndpointId;

use super::operation::{STATUSES, Search, TENANTS};
use super::side::Side;
use crate::contract::given::{all, at, id};
use posthaste_store::{AlertFilter, AuditFilter, AuditOf, Named, Scope, Width};

/// Longer than any list here.
const ENOUGH: usize = 100_000;

impl Side<'_> {
    /// All of it as text, a thing to a line. The dice say how long pages are.
    pub(super) async fn view(&mut self, mut dice: Dice, keeps_figures: bool) -> String {
        let mut view = String::new();
        let mut put = |text: String| writeln!(view, "{text}").expect("memory");
        let mut limit = || dice.between(1, 40) as usize;
        let mut scopes = vec![Scope::Everything];
        put(self.tell(&all(limit(), |page| self.store.tenants(page)).await));
        let mut work = self.store.unfinished_work().await.expect("it reads");
        work.sort();
        put(self.tell(&work));
        for number in 0..11 {
            let endpoint = EndpointId(number << 64);
            let row = self.store.endpoint(endpoint).await;
            put(self.tell(&(row, self.store.pending(endpoint).await.expect("a count"))));
            put(self.tell(&self.store.whose(Named::Endpoint(endpoint)).await));
            scopes.push(Scope::Endpoint(endpoint));
        }
        put(self.tell(&self.store.troubled(None, limit()).await));
        let running = self.store.running_replays().await.expect("it reads");
        put(self.tell_sorted(&running));
        let notices = self.store.notices(0, ENOUGH).await.expect("it reads");
        put(self.tell(&(notices, self.store.told().await)));
        let everybody = AuditFilter::default();
        put(self.tell(&all(limit(), |page| self.store.audit(everybody.clone(), page)).await));
        let alerts = AlertFilter::default();
        put(self.tell(&all(limit(), |page| self.store.alerts(alerts.clone(), page)).await));
        for tenant in TENANTS {
            let name = || id(tenant);
            put(format!("of {tenant}"));
            put(self.tell(&self.store.tenant(name()).await));
            scopes.push(Scope::Tenant(name()));
            let keys = all(limit(), |page| self.store.keys(Some(name()), page)).await;
            put(self.tell(&keys));
            let endpoints = all(limit(), |page| self.store.endpoints(name(), page)).await;
            put(self.tell(&endpoints));
            put(self.tell(&self.store.troubled(Some(name()), limit()).await));
            let dead = all(limit(), |page| self.store.dead_groups(name(), None, page)).await;
            put(self.tell(&dead));
            let replays = all(limit(), |page| self.store.replays(name(), page)).await;
            put(self.tell(&replays));
            let theirs = AuditFilter {
                of: AuditOf::Tenant(name()),
                ..AuditFilter::default()
            };
            put(self.tell(&all(limit(), |page| self.store.audit(theirs.clone(), page)).await));
            let alerts = AlertFilter {
                tenant: Some(name()),
                ..AlertFilter::default()
            };
            put(self.tell(&all(limit(), |page| self.store.alerts(alerts.clone(), page)).await));
            let anything = Search::default();
            for event in self.events(tenant, &anything, limit()).await {
                put(self.tell(&event));
                let content = self.store.content(event.event.id).await;
                put(self.tell(&content));
            }
            let everything = self.deliveries(tenant, &anything, limit()).await;
            put(self.tell_sorted(&everything));
            let mut attempts = Vec::new();
            for stored in &everything {
                let found = self.store.delivery(name(), stored.delivery.id()).await;
                attempts.push(found);
            }
            put(self.tell_sorted(&attempts));
            for status in STATUSES {
                let search = Search {
                    status: Some(status),
                    ..Search::default()
                };
                let found = self.deliveries(tenant, &search, limit()).await;
                put(self.tell_sorted(&found));
            }
        }
        for scope in scopes.into_iter().filter(|_| keeps_figures) {
            put(self.figures(scope).await);
        }
        view
    }

    /// What happened to a scope, and whether it is among those in which something went wrong.
    async fn figures(&self, scope: Scope) -> String {
        let mut told = Vec::new();
        for width in Width::ALL {
            let buckets = self.store.figures(scope.clone(), width, at(0)).await;
            let failing = self.store.failing_figures(width, at(0), ENOUGH).await;
            let failing = failing.expect("it reads").into_iter();
            let theirs: Vec<_> = failing.filter(|(it, _)| *it == scope).collect();
            told.push((buckets, theirs));
        }
        self.tell(&told)
    }
}
