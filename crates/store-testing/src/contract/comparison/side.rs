//! One of the two compared stores.
//!
//! [`ComparedStore`] holds an open store, the deliveries that it handed over and the names of its ids. It prints
//! answers, reads lists in pages and checks their order. [`ComparedStore::reopen`] closes the store and opens it again,
//! as the next process would.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use posthaste_core::delivery::Delivery;
use posthaste_core::id::DeliveryId;
use posthaste_core::rng::Rng;
use posthaste_core::time::Timestamp;

use super::names::Names;
use super::operation::{Search, TENANTS};
use crate::contract::fixture::{all, id, kind};
use crate::contract::{Harness, Recorder};
use posthaste_store::{
    DeliveryFilter, EventFilter, HandedOver, Store, StoreSettings, StoredDelivery, StoredEvent,
    TenantSelection,
};

pub(super) struct ComparedStore<'a> {
    harness: &'a dyn Harness,
    seed: u64,
    pub(super) store: Arc<dyn Store>,
    pub(super) recorder: Arc<Recorder>,
    pub(super) names: Names,
    /// Deliveries as they were when last seen waiting.
    pub(super) seen: BTreeMap<DeliveryId, Delivery>,
}

impl<'a> ComparedStore<'a> {
    pub(super) fn open(harness: &'a dyn Harness, seed: u64) -> ComparedStore<'a> {
        let recorder = Arc::new(Recorder::default());
        let settings = StoreSettings::new(Rng::seeded(seed));
        ComparedStore {
            harness,
            seed,
            store: harness.open(settings, recorder.clone()),
            recorder,
            names: Names::default(),
            seen: BTreeMap::new(),
        }
    }

    /// Closes the store and opens it again, as the next process would.
    pub(super) async fn reopen(&mut self) {
        self.store.close().await.expect("the store closes");
        self.seed += 1_000_000;
        let settings = StoreSettings::new(Rng::seeded(self.seed));
        self.store = self.harness.open(settings, self.recorder.clone());
    }

    /// Formats a result with names instead of ids.
    pub(super) fn describe(&self, answer: &impl Debug) -> String {
        self.names.translate(&format!("{answer:?}"))
    }

    /// Formats results whose order does not matter.
    pub(super) fn describe_sorted<T: Debug>(&self, answers: &[T]) -> String {
        let mut described: Vec<String> =
            answers.iter().map(|answer| self.describe(answer)).collect();
        described.sort();
        described.join("\n")
    }

    /// Returns the deliveries that were handed over since the last call, and checks that they are in the order
    /// of ids.
    pub(super) fn handed_over(&mut self) -> String {
        let handed_over: Vec<HandedOver> = self.recorder.take();
        let in_order = handed_over.is_sorted_by_key(|it| it.delivery.id());
        assert!(in_order, "deliveries were handed over out of order");
        for it in &handed_over {
            self.names.learn(&it.delivery);
            self.seen.insert(it.delivery.id(), it.delivery.clone());
        }
        self.describe_sorted(&handed_over)
    }

    pub(super) async fn deliveries(
        &self,
        tenant: &str,
        search: &Search,
        limit: usize,
    ) -> Vec<StoredDelivery> {
        let filter = DeliveryFilter {
            status: search.status,
            endpoint: search.endpoint,
            event: search.event.map(|number| self.event(number)),
            event_type: search.event_type.map(kind),
            error_kind: search.error_kind,
            since: search.since,
            until: search.until,
        };
        let found = all(limit, |page| {
            self.store.deliveries(id(tenant), filter.clone(), page)
        })
        .await;
        let in_order = found.is_sorted_by(|a, b| a.delivery.id() > b.delivery.id());
        assert!(in_order, "{filter:?} is not listed newest first");
        found
    }

    /// Counts the deliveries in retry: of all tenants, or of one tenant and of all others.
    pub(super) async fn retrying_since(
        &self,
        tenant: Option<&str>,
        since: Timestamp,
        limit: usize,
    ) -> String {
        let selections = match tenant.map(id) {
            None => vec![TenantSelection::All],
            Some(it) => vec![
                TenantSelection::Only(it.clone()),
                TenantSelection::Except(it),
            ],
        };
        let mut counts = Vec::new();
        for tenants in selections {
            counts.push(self.store.retrying_since(tenants, since, limit).await);
        }
        self.describe(&counts)
    }

    pub(super) async fn events(
        &self,
        tenant: &str,
        search: &Search,
        limit: usize,
    ) -> Vec<StoredEvent> {
        let filter = EventFilter {
            event_type: search.event_type.map(kind),
            since: search.since,
            until: search.until,
        };
        let mut found = all(limit, |page| {
            self.store.events(id(tenant), filter.clone(), page)
        })
        .await;
        for it in &mut found {
            it.event
                .deliveries
                .sort_by_key(|delivery| delivery.endpoint);
        }
        found
    }

    /// Returns the id of the event with this index; an index past the last gives an unknown id.
    pub(super) fn event(&self, number: usize) -> posthaste_core::id::EventId {
        let none = posthaste_core::id::EventId(7);
        self.names.events.get(number).copied().unwrap_or(none)
    }

    /// Learns the ids of deliveries that a replay has made, which appear only in lists.
    pub(super) async fn learn_deliveries(&mut self) {
        for tenant in TENANTS {
            for stored in self.deliveries(tenant, &Search::default(), 50).await {
                self.names.learn(&stored.delivery);
            }
        }
    }
}
