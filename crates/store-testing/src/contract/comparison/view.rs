//! All readable data of a store.
//!
//! [`Side::view`] reads every list and every row and returns them as text, one item per line. Lists are read in
//! pages of random length, so that paging is compared too. [`Extent`] chooses whether every event and delivery is
//! also read individually.

use std::fmt::Write;

use posthaste_core::dice::Dice;
use posthaste_core::id::EndpointId;

use super::operation::{STATUSES, Search, TENANTS};
use super::side::Side;
use crate::contract::fixture::{all, at, id};
use posthaste_store::{AlertFilter, AuditFilter, AuditScope, BucketWidth, OwnedObject, Scope};

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
struct PageLengths(Dice);

impl PageLengths {
    fn limit(&mut self) -> usize {
        match self.0.between(1, SHORT_PAGES_IN) {
            1 => self.0.between(1, 20) as usize,
            _ => self.0.between(20, 200) as usize,
        }
    }
}

impl Side<'_> {
    /// Reads the store and returns its contents as text, one item per line. The RNG chooses the page lengths.
    pub(super) async fn view(&mut self, dice: Dice, extent: Extent, keeps_figures: bool) -> String {
        let mut view = String::new();
        let mut put = |text: String| {
            writeln!(view, "{text}").expect("writing to a string cannot fail");
        };
        let mut pages = PageLengths(dice);
        let mut scopes = vec![Scope::Everything];
        put(self.tell(&all(pages.limit(), |page| self.store.tenants(page)).await));
        let mut work = self
            .store
            .unfinished_work()
            .await
            .expect("the store can be read");
        work.sort();
        put(self.tell(&work));
        for number in 0..11 {
            let endpoint = EndpointId(number << 64);
            let row = self.store.endpoint(endpoint).await;
            put(self.tell(&(
                row,
                self.store
                    .pending(endpoint)
                    .await
                    .expect("the count can be read"),
            )));
            put(self.tell(&self.store.whose(OwnedObject::Endpoint(endpoint)).await));
            scopes.push(Scope::Endpoint(endpoint));
        }
        put(self.tell(&self.store.troubled(None, pages.limit()).await));
        let running = self
            .store
            .running_replays()
            .await
            .expect("the store can be read");
        put(self.tell_sorted(&running));
        let notices = self
            .store
            .notices(0, ENOUGH)
            .await
            .expect("the store can be read");
        put(self.tell(&(notices, self.store.told().await)));
        let everybody = AuditFilter::default();
        put(self.tell(
            &all(pages.limit(), |page| {
                self.store.audit(everybody.clone(), page)
            })
            .await,
        ));
        let alerts = AlertFilter::default();
        put(self.tell(
            &all(pages.limit(), |page| {
                self.store.alerts(alerts.clone(), page)
            })
            .await,
        ));
        for tenant in TENANTS {
            put(self.view_tenant(tenant, &mut pages, extent).await);
            scopes.push(Scope::Tenant(id(tenant)));
        }
        if keeps_figures {
            put(self.figures(&scopes).await);
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
        put(self.tell(&self.store.tenant(name()).await));
        let keys = all(pages.limit(), |page| self.store.keys(Some(name()), page)).await;
        put(self.tell(&keys));
        let endpoints = all(pages.limit(), |page| self.store.endpoints(name(), page)).await;
        put(self.tell(&endpoints));
        put(self.tell(&self.store.troubled(Some(name()), pages.limit()).await));
        let dead = all(pages.limit(), |page| {
            self.store.dead_groups(name(), None, page)
        })
        .await;
        put(self.tell(&dead));
        let replays = all(pages.limit(), |page| self.store.replays(name(), page)).await;
        put(self.tell(&replays));
        let theirs = AuditFilter {
            of: AuditScope::Tenant(name()),
            ..AuditFilter::default()
        };
        put(self.tell(&all(pages.limit(), |page| self.store.audit(theirs.clone(), page)).await));
        let alerts = AlertFilter {
            tenant: Some(name()),
            ..AlertFilter::default()
        };
        put(self.tell(
            &all(pages.limit(), |page| {
                self.store.alerts(alerts.clone(), page)
            })
            .await,
        ));
        let anything = Search::default();
        for event in self.events(tenant, &anything, pages.limit()).await {
            put(self.tell(&event));
            if extent == Extent::Everything {
                let content = self.store.content(event.event.id).await;
                put(self.tell(&content));
            }
        }
        let everything = self.deliveries(tenant, &anything, pages.limit()).await;
        put(self.tell_sorted(&everything));
        if extent == Extent::Everything {
            let mut attempts = Vec::new();
            for stored in &everything {
                let found = self.store.delivery(name(), stored.delivery.id()).await;
                attempts.push(found);
            }
            put(self.tell_sorted(&attempts));
        }
        for status in STATUSES {
            let search = Search {
                status: Some(status),
                ..Search::default()
            };
            let found = self.deliveries(tenant, &search, pages.limit()).await;
            put(self.tell_sorted(&found));
        }
        view
    }

    /// Reads the stats of each scope, and which of the scopes had failures.
    async fn figures(&self, scopes: &[Scope]) -> String {
        let mut figures = Vec::new();
        for width in BucketWidth::ALL {
            let failing = self.store.failing_figures(width, at(0), ENOUGH).await;
            let failing = failing.expect("the store can be read");
            for scope in scopes {
                let buckets = self.store.figures(scope.clone(), width, at(0)).await;
                let theirs = failing.iter().filter(|(it, _)| it == scope);
                figures.push((buckets, theirs.cloned().collect::<Vec<_>>()));
            }
        }
        self.tell(&figures)
    }
}
