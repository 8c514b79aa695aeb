//! All readable data of a store.
//!
//! [`ComparedStore::view`] reads every list and every row and returns them as text, one item per line. Lists are read
//! in pages of random length, so that paging is compared too. [`Extent`] chooses whether every event and delivery is
//! also read individually.

use std::fmt::Write;

use posthaste_core::id::EndpointId;
use posthaste_core::rng::Rng;

use super::operation::{STATUSES, Search, TENANTS};
use super::side::ComparedStore;
use crate::contract::fixture::{all, at, id};
use posthaste_store::{
    AlertFilter, AuditFilter, AuditScope, BucketWidth, SubjectScope, TenantObject,
};

/// Longer than any list in the comparison.
const ENOUGH: usize = 100_000;
/// One list in this many is read in short pages.
const SHORT_PAGES_IN: u64 = 4;

/// The parts of a store that a view reads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// Lists and counts.
    Lists,
    /// Also every event and every delivery individually. Between two views this data only grows.
    Everything,
}

/// Draws the page lengths.
struct PageLengths(Rng);

impl PageLengths {
    fn limit(&mut self) -> usize {
        match self.0.between(1, SHORT_PAGES_IN) {
            1 => self.0.between(1, 20) as usize,
            _ => self.0.between(20, 200) as usize,
        }
    }
}

impl ComparedStore<'_> {
    /// Reads the store and returns its contents as text, one item per line. The RNG chooses the page lengths.
    pub(super) async fn view(&mut self, rng: Rng, extent: Extent, keeps_stats: bool) -> String {
        let mut view = String::new();
        let mut put = |text: String| {
            writeln!(view, "{text}").expect("writing to a string cannot fail");
        };
        let mut pages = PageLengths(rng);
        let mut scopes = vec![SubjectScope::Everything];
        put(self.describe(&all(pages.limit(), |page| self.store.tenants(page)).await));
        let mut work = self
            .store
            .unfinished_work()
            .await
            .expect("the store can be read");
        work.sort();
        put(self.describe(&work));
        for number in 0..11 {
            let endpoint = EndpointId(number << 64);
            let row = self.store.endpoint(endpoint).await;
            put(self.describe(&(
                row,
                self.store
                    .pending(endpoint)
                    .await
                    .expect("the count can be read"),
            )));
            put(self.describe(&self.store.tenant_of(TenantObject::Endpoint(endpoint)).await));
            scopes.push(SubjectScope::Endpoint(endpoint));
        }
        put(self.describe(&self.store.attention_list(None, pages.limit()).await));
        let running = self
            .store
            .running_replays()
            .await
            .expect("the store can be read");
        put(self.describe_sorted(&running));
        let notifications = self
            .store
            .notifications(0, ENOUGH)
            .await
            .expect("the store can be read");
        put(self.describe(&(
            notifications,
            self.store.last_processed_notification().await,
        )));
        let everybody = AuditFilter::default();
        put(self.describe(
            &all(pages.limit(), |page| {
                self.store.audit(everybody.clone(), page)
            })
            .await,
        ));
        put(self.view_due().await);
        let alerts = AlertFilter::default();
        put(self.describe(
            &all(pages.limit(), |page| {
                self.store.alerts(alerts.clone(), page)
            })
            .await,
        ));
        for tenant in TENANTS {
            put(self.view_tenant(tenant, &mut pages, extent).await);
            scopes.push(SubjectScope::Tenant(id(tenant)));
        }
        if keeps_stats {
            put(self.stats(&scopes).await);
        }
        view
    }

    /// Reads everything of one tenant.
    async fn view_tenant(
        &mut self,
        tenant: &'static str,
        pages: &mut PageLengths,
        extent: Extent,
    ) -> String {
        let mut view = String::new();
        let mut put = |text: String| {
            writeln!(view, "{text}").expect("writing to a string cannot fail");
        };
        let name = || id(tenant);
        put(format!("of {tenant}"));
        put(self.describe(&self.store.tenant(name()).await));
        let keys = all(pages.limit(), |page| self.store.keys(Some(name()), page)).await;
        put(self.describe(&keys));
        let endpoints = all(pages.limit(), |page| self.store.endpoints(name(), page)).await;
        put(self.describe(&endpoints));
        put(self.describe(&self.store.attention_list(Some(name()), pages.limit()).await));
        let dead = all(pages.limit(), |page| {
            self.store.dead_letter_groups(name(), None, page)
        })
        .await;
        put(self.describe(&dead));
        let replays = all(pages.limit(), |page| self.store.replays(name(), page)).await;
        put(self.describe(&replays));
        put(self.view_schedules(tenant, pages.limit()).await);
        let theirs = AuditFilter {
            of: AuditScope::Tenant(name()),
            ..AuditFilter::default()
        };
        put(self.describe(&all(pages.limit(), |page| self.store.audit(theirs.clone(), page)).await));
        let alerts = AlertFilter {
            tenant: Some(name()),
            ..AlertFilter::default()
        };
        put(self.describe(
            &all(pages.limit(), |page| {
                self.store.alerts(alerts.clone(), page)
            })
            .await,
        ));
        let anything = Search::default();
        for event in self.events(tenant, &anything, pages.limit()).await {
            put(self.describe(&event));
            if extent == Extent::Everything {
                let content = self.store.content(event.event.id).await;
                put(self.describe(&content));
            }
        }
        let everything = self.deliveries(tenant, &anything, pages.limit()).await;
        put(self.describe_sorted(&everything));
        if extent == Extent::Everything {
            let mut attempts = Vec::new();
            for stored in &everything {
                let found = self.store.delivery(name(), stored.delivery.id()).await;
                attempts.push(found);
            }
            put(self.describe_sorted(&attempts));
        }
        for status in STATUSES {
            let search = Search {
                status: Some(status),
                ..Search::default()
            };
            let found = self.deliveries(tenant, &search, pages.limit()).await;
            put(self.describe_sorted(&found));
        }
        view
    }

    /// Reads the stats of each scope, and which of the scopes had failures.
    async fn stats(&self, scopes: &[SubjectScope]) -> String {
        let mut stats = Vec::new();
        for width in BucketWidth::ALL {
            let failing = self.store.failing_stats(width, at(0), ENOUGH).await;
            let failing = failing.expect("the store can be read");
            for scope in scopes {
                let buckets = self.store.stats(scope.clone(), width, at(0)).await;
                let theirs = failing.iter().filter(|(it, _)| it == scope);
                stats.push((buckets, theirs.cloned().collect::<Vec<_>>()));
            }
        }
        self.describe(&stats)
    }
}
