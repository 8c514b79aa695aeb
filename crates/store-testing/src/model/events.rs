//! Events in the model: accepting, reading and listing.
//!
//! A batch is checked completely before anything is stored: tenant, endpoints, idempotency keys, quotas. Then
//! events and deliveries are stored together, and the new deliveries are returned for the hand-over.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use posthaste_core::delivery::Delivery;
use posthaste_core::id::{EndpointId, EventId, TenantId};
use posthaste_core::ingest::Fingerprint;
use posthaste_core::lane::EndpointStatus;
use posthaste_core::quota::QuotaUsage;
use posthaste_core::subscription::wants;
use posthaste_core::time::{Month, Timestamp};

use super::tables::{DeliveryRow, EventRow, Tables, TenantVersion, older, page};
use posthaste_store::{
    AcceptResult, AcceptedDelivery, AcceptedEvent, AcceptedOrStored, Content, EndpointRow,
    EventFilter, HandedOver, NewEvent, Page, PageRequest, Quotas, StoredEvent, Usage,
};

impl Tables {
    pub(super) fn accept(
        &mut self,
        now: Timestamp,
        events: Vec<NewEvent>,
        quotas: Quotas,
    ) -> (AcceptResult, Vec<HandedOver>) {
        let refused = |ingest| (ingest, Vec::new());
        let Some(tenant) = events.first().map(|event| event.tenant.clone()) else {
            return refused(AcceptResult::Done(Vec::new()));
        };
        let Some(owner) = self.owner(&tenant) else {
            return refused(AcceptResult::NoSuchTenant);
        };
        let conflicts = self.conflicts(owner, &events);
        if !conflicts.is_empty() {
            return refused(AcceptResult::Conflict(conflicts));
        }
        let unreachable = |event: &NewEvent| {
            let known = self.stored_under(owner, event).is_some();
            !known && event.only.is_some() && self.routes(owner, event).is_empty()
        };
        if events.iter().any(unreachable) {
            return refused(AcceptResult::NoSuchEndpoint);
        }
        let deliveries = self.new_deliveries(owner, &events);
        let limit = self.settings.max_deliveries_per_request;
        if deliveries > limit {
            return refused(AcceptResult::TooManyDeliveries { deliveries, limit });
        }
        let month = (owner, Month::of(now));
        let used = QuotaUsage {
            arrival_ns: self.arrivals.get(&owner).copied().unwrap_or(0),
            this_month: self.usage.get(&month).copied().unwrap_or(0),
        };
        match quotas.take(now, used, self.fresh(owner, &events).len() as u64) {
            Ok(used) => {
                self.arrivals.insert(owner, used.arrival_ns);
                self.usage.insert(month, used.this_month);
            }
            Err(over) => return refused(over.into()),
        }
        let mut handed_over = Vec::new();
        let ingested = events
            .into_iter()
            .map(|event| match self.stored_under(owner, &event) {
                Some((id, _)) => AcceptedOrStored {
                    is_new: false,
                    event: self.accepted(id).repeated(),
                },
                None => AcceptedOrStored {
                    is_new: true,
                    event: self.store_event(now, owner, event, &mut handed_over),
                },
            })
            .collect();
        (AcceptResult::Done(ingested), handed_over)
    }

    /// Returns the events that are neither stored nor repeated within the list.
    fn fresh<'a>(&self, owner: TenantVersion, events: &'a [NewEvent]) -> Vec<&'a NewEvent> {
        let mut offered: BTreeSet<&str> = BTreeSet::new();
        let mut is_fresh = |event: &'a NewEvent| match &event.idempotency {
            None => true,
            Some(idempotency) => {
                self.stored_under(owner, event).is_none() && offered.insert(&idempotency.key)
            }
        };
        events.iter().filter(|event| is_fresh(event)).collect()
    }

    /// Returns the number of deliveries of the new events.
    fn new_deliveries(&self, owner: TenantVersion, events: &[NewEvent]) -> u64 {
        let fresh = self.fresh(owner, events).into_iter();
        fresh
            .map(|event| self.routes(owner, event).len() as u64)
            .sum()
    }

    pub(super) fn usage(&self, now: Timestamp, tenant: &TenantId) -> Option<Usage> {
        let owner = self.owner(tenant)?;
        let events = self.usage.get(&(owner, Month::of(now)));
        Some(Usage {
            endpoints: self
                .existing_endpoints_of(owner)
                .filter(|row| !row.endpoint.is_origin)
                .count() as u64,
            events_this_month: events.copied().unwrap_or(0),
            schedules: self
                .schedules
                .iter()
                .filter(|row| row.owner == owner)
                .count() as u64,
        })
    }

    /// Returns the indexes of events whose idempotency key was used with other content, stored or earlier in
    /// the list.
    fn conflicts(&self, owner: TenantVersion, events: &[NewEvent]) -> Vec<usize> {
        let mut offered: BTreeMap<&str, Fingerprint> = BTreeMap::new();
        let mut conflicts = Vec::new();
        for (index, event) in events.iter().enumerate() {
            let Some(idempotency) = &event.idempotency else {
                continue;
            };
            let key = idempotency.key.as_str();
            let stored = self.stored_under(owner, event).map(|(_, content)| content);
            match stored.or(offered.get(key).copied()) {
                None => {
                    offered.insert(key, idempotency.fingerprint);
                }
                Some(content) if content == idempotency.fingerprint => {}
                Some(_) => conflicts.push(index),
            }
        }
        conflicts
    }

    fn stored_under(
        &self,
        owner: TenantVersion,
        event: &NewEvent,
    ) -> Option<(EventId, Fingerprint)> {
        let key = event.idempotency.as_ref()?.key.clone();
        self.idempotency.get(&(owner, key)).copied()
    }

    /// Returns the endpoints that get an event.
    fn routes(&self, owner: TenantVersion, event: &NewEvent) -> Vec<EndpointId> {
        let takes_part = |row: &&EndpointRow| match row.status {
            EndpointStatus::Enabled | EndpointStatus::Paused => true,
            EndpointStatus::Disabled | EndpointStatus::Deleted => false,
        };
        let wanted = |row: &&EndpointRow| match event.only {
            Some(only) => row.endpoint.id == only,
            None => {
                let patterns = &row.endpoint.event_types;
                !row.endpoint.is_origin && wants(patterns, &event.content.event_type)
            }
        };
        let routes = self
            .existing_endpoints_of(owner)
            .filter(takes_part)
            .filter(wanted);
        let mut routes: Vec<EndpointId> = routes.map(|row| row.endpoint.id).collect();
        routes.sort();
        routes
    }

    fn store_event(
        &mut self,
        now: Timestamp,
        owner: TenantVersion,
        event: NewEvent,
        handed_over: &mut Vec<HandedOver>,
    ) -> AcceptedEvent {
        let id: EventId = self.id_generator.next(now);
        let routes = self.routes(owner, &event);
        let received = event.received;
        let row = EventRow {
            owner,
            tenant: event.tenant,
            created_at: now,
            content: event.content,
            payload_removed_at: None,
            deliver_at: event.deliver_at,
            ordering: event.ordering,
            only: event.only,
            request: event.request,
            idempotency_key: event.idempotency.as_ref().map(|it| it.key.clone()),
            accepted: Vec::new(),
        };
        if let Some(idempotency) = event.idempotency {
            let content = (id, idempotency.fingerprint);
            self.idempotency.insert((owner, idempotency.key), content);
        }
        self.events.insert(id, row);
        for endpoint in routes {
            let delivery = self.make_delivery(now, id, endpoint);
            let row = self
                .events
                .get_mut(&id)
                .expect("the event was stored above");
            row.accepted.push(AcceptedDelivery {
                id: delivery.id(),
                endpoint,
            });
            handed_over.push(HandedOver {
                delivery,
                accepted_at: row.created_at,
                content: row.content.clone(),
                received,
            });
        }
        self.accepted(id)
    }

    /// Creates a delivery of a stored event, due now or at the event's later delivery time.
    pub(super) fn make_delivery(
        &mut self,
        now: Timestamp,
        event: EventId,
        endpoint: EndpointId,
    ) -> Delivery {
        let row = &self.events[&event];
        let due_at = row.deliver_at.map_or(now, |at| at.max(now));
        let (ordering, request) = (row.ordering, row.request.clone());
        let delivery = Delivery::schedule(
            self.id_generator.next(now),
            event,
            endpoint,
            ordering,
            due_at,
            self.give_up_after(endpoint),
        )
        .with_request(request);
        let row = DeliveryRow {
            delivery: delivery.clone(),
            attempts: Vec::new(),
        };
        self.deliveries.insert(delivery.id(), row);
        delivery
    }

    fn accepted(&self, event: EventId) -> AcceptedEvent {
        let row = &self.events[&event];
        AcceptedEvent {
            id: event,
            event_type: row.content.event_type.clone(),
            created_at: row.created_at,
            delivery_count: row.accepted.len(),
            deliveries: row.accepted.clone(),
        }
    }

    fn stored_event(&self, event: EventId, row: &EventRow) -> StoredEvent {
        StoredEvent {
            event: self.accepted(event).repeated(),
            deliver_at: row.deliver_at,
            content: row.content.clone(),
            payload_removed_at: row.payload_removed_at,
            idempotency_key: row.idempotency_key.clone(),
        }
    }

    pub(super) fn event(&self, tenant: &TenantId, event: EventId) -> Option<StoredEvent> {
        let owner = self.owner(tenant)?;
        let row = self.events.get(&event).filter(|row| row.owner == owner)?;
        Some(self.stored_event(event, row))
    }

    pub(super) fn events(
        &self,
        tenant: &TenantId,
        filter: &EventFilter,
        request: PageRequest<EventId>,
    ) -> Page<StoredEvent, EventId> {
        let owner = self.owner(tenant);
        let wanted = |row: &EventRow| {
            Some(row.owner) == owner
                && filter
                    .event_type
                    .as_ref()
                    .is_none_or(|wanted| *wanted == row.content.event_type)
                && within(filter.since, filter.until, row.created_at)
        };
        let rows = older(&self.events, request.before).filter(|(_, row)| wanted(row));
        page(
            rows.map(|(id, row)| (*id, without_payload(self.stored_event(*id, row)))),
            request,
        )
    }

    pub(super) fn content(&self, event: EventId) -> Option<(Timestamp, Arc<Content>)> {
        let row = self.events.get(&event)?;
        if row.payload_removed_at.is_some() {
            return None;
        }
        Some((row.created_at, row.content.clone()))
    }
}

/// Returns an event as it is in lists.
fn without_payload(event: StoredEvent) -> StoredEvent {
    let content = Content {
        payload: Bytes::new(),
        ..Content::clone(&event.content)
    };
    StoredEvent {
        content: Arc::new(content),
        ..event
    }
}

/// Returns true if a time is at `since` or later, and before `until`.
pub(super) fn within(since: Option<Timestamp>, until: Option<Timestamp>, at: Timestamp) -> bool {
    since.is_none_or(|since| since <= at) && until.is_none_or(|until| at < until)
}
