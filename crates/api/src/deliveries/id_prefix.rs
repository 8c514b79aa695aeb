//! Finds deliveries by an id or its first characters.
//!
//! Often only the start of an id is known, for example from a truncated log line or a telephone call. Ids
//! grow with time, so a prefix is a range of ids, and the search reads only that range. The number of events
//! with the same prefix is bounded; above it, the caller must give more characters.

use std::ops::RangeInclusive;
use std::str::FromStr;

use posthaste_core::id::{
    DeliveryId, EndpointId, EventId, TenantId, first_sequence, id_of, sequence_of,
};
use posthaste_core::time::Timestamp;
use posthaste_store::{DeliveryFilter, EventFilter, Page, PageRequest, StoredDelivery};

use super::matching::{matches, stored_status};
use crate::App;
use crate::problem::Problem;

/// Minimum number of characters after the type prefix.
pub(super) const MIN_CHARS: usize = 4;
/// Maximum number of events with the same prefix.
const MAX_EVENTS: usize = 50;

/// The deliveries that the text of an id stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum IdQuery {
    /// Deliveries in a range of ids.
    Deliveries(RangeInclusive<DeliveryId>),
    /// The deliveries of events in a range of ids.
    Events(RangeInclusive<EventId>),
    /// The deliveries to this endpoint.
    Endpoint(EndpointId),
}

/// The text is not an id or the start of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be an id (dlv_…, evt_…, ep_…), or the beginning of a delivery or event id with at least {MIN_CHARS} characters after the prefix"
)]
pub(super) struct NamedError;

impl FromStr for IdQuery {
    type Err = NamedError;

    fn from_str(text: &str) -> Result<IdQuery, NamedError> {
        let (prefix, rest) = text.split_once('_').ok_or(NamedError)?;
        if rest.len() < MIN_CHARS {
            return Err(NamedError);
        }
        let named = match prefix {
            "dlv" => DeliveryId::beginning(text).map(IdQuery::Deliveries),
            "evt" => EventId::beginning(text).map(IdQuery::Events),
            "ep" => text.parse().map(IdQuery::Endpoint),
            _ => return Err(NamedError),
        };
        named.map_err(|_| NamedError)
    }
}

impl IdQuery {
    /// Returns true if it includes this delivery.
    pub(super) fn names(&self, stored: &StoredDelivery) -> bool {
        let facts = stored.delivery.facts();
        match self {
            IdQuery::Deliveries(ids) => ids.contains(&facts.id),
            IdQuery::Events(ids) => ids.contains(&facts.event),
            IdQuery::Endpoint(id) => facts.endpoint == *id,
        }
    }
}

/// Returns a page of the included deliveries that match the filter.
pub(super) async fn find(
    app: &App,
    tenant: &TenantId,
    named: &IdQuery,
    filter: &DeliveryFilter,
    page: PageRequest<DeliveryId>,
) -> Result<Page<StoredDelivery, DeliveryId>, Problem> {
    match named {
        IdQuery::Deliveries(ids) if ids.start() == ids.end() => {
            let found = app.store.delivery(tenant.clone(), *ids.start()).await?;
            let items = found.map(|(stored, _)| stored).into_iter();
            let is_meant = |stored: &StoredDelivery| {
                let is_below = page.before.is_none_or(|it| stored.delivery.id() < it);
                is_below && has_status(filter, stored) && matches(filter, stored)
            };
            Ok(Page {
                items: items.filter(is_meant).collect(),
                next: None,
            })
        }
        IdQuery::Deliveries(ids) => among(app, tenant, ids, filter, page).await,
        IdQuery::Events(ids) => {
            let events = events(app, tenant, ids).await?;
            of_events(app, tenant, &events, filter, page).await
        }
        IdQuery::Endpoint(id) => {
            if filter.endpoint.is_some_and(|wanted| wanted != *id) {
                return Ok(nothing());
            }
            let filter = DeliveryFilter {
                endpoint: Some(*id),
                ..filter.clone()
            };
            Ok(app.store.deliveries(tenant.clone(), filter, page).await?)
        }
    }
}

fn nothing() -> Page<StoredDelivery, DeliveryId> {
    Page {
        items: Vec::new(),
        next: None,
    }
}

fn has_status(filter: &DeliveryFilter, stored: &StoredDelivery) -> bool {
    let status = stored.shown_status();
    filter
        .status
        .is_none_or(|wanted| stored_status(status) == Some(wanted))
}

/// Returns deliveries of a range. Starts reading at the end of the range, because lists are newest first, and
/// stops at its start.
async fn among(
    app: &App,
    tenant: &TenantId,
    ids: &RangeInclusive<DeliveryId>,
    filter: &DeliveryFilter,
    mut page: PageRequest<DeliveryId>,
) -> Result<Page<StoredDelivery, DeliveryId>, Problem> {
    let end = first_id_after(ids.end().0).map(DeliveryId);
    page.before = match (page.before, end) {
        (Some(before), Some(end)) => Some(before.min(end)),
        (before, end) => before.or(end),
    };
    let found = app.store.deliveries(tenant.clone(), filter.clone(), page);
    let mut found = found.await?;
    found
        .items
        .retain(|item| ids.contains(&item.delivery.facts().id));
    found.next = found.next.filter(|next| next > ids.start());
    Ok(found)
}

/// Returns the events of a range. Fails if there are too many.
async fn events(
    app: &App,
    tenant: &TenantId,
    ids: &RangeInclusive<EventId>,
) -> Result<Vec<EventId>, Problem> {
    if ids.start() == ids.end() {
        return Ok(vec![*ids.start()]);
    }
    let page = PageRequest {
        limit: MAX_EVENTS + 1,
        before: first_id_after(ids.end().0).map(EventId),
    };
    let filter = EventFilter::default();
    let found = app.store.events(tenant.clone(), filter, page).await?;
    let events = found.items.iter().map(|stored| stored.event.id);
    let events: Vec<EventId> = events.filter(|id| ids.contains(id)).collect();
    if events.len() > MAX_EVENTS {
        let message = format!("matches more than {MAX_EVENTS} events; enter more characters");
        return Err(Problem::invalid_field("id", message));
    }
    Ok(events)
}

/// Returns deliveries of a few events, the newest first.
async fn of_events(
    app: &App,
    tenant: &TenantId,
    events: &[EventId],
    filter: &DeliveryFilter,
    page: PageRequest<DeliveryId>,
) -> Result<Page<StoredDelivery, DeliveryId>, Problem> {
    let mut items: Vec<StoredDelivery> = Vec::new();
    let mut has_more = false;
    let is_meant = |event: &EventId| filter.event.is_none_or(|wanted| wanted == *event);
    for event in events.iter().copied().filter(is_meant) {
        let filter = DeliveryFilter {
            event: Some(event),
            ..filter.clone()
        };
        let found = app.store.deliveries(tenant.clone(), filter, page).await?;
        has_more |= found.next.is_some();
        items.extend(found.items);
    }
    items.sort_unstable_by_key(|item| std::cmp::Reverse(item.delivery.id()));
    has_more |= items.len() > page.limit;
    items.truncate(page.limit);
    let last = items.last().map(|last| last.delivery.id());
    Ok(Page {
        items,
        next: last.filter(|_| has_more),
    })
}

/// Returns the smallest id of the moment after that of `id`, or `None` after the last moment. A store may
/// keep only the moment of an id.
fn first_id_after(id: u128) -> Option<u128> {
    let moment = sequence_of(id) + 1;
    // A millisecond contains as many moments as the counter in an id has values.
    let end = first_sequence(Timestamp(u64::MAX)) | (first_sequence(Timestamp(1)) - 1);
    (moment <= end).then(|| id_of(moment, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_text_is_parsed_by_its_prefix() {
        let whole = DeliveryId(42);
        assert_eq!(
            whole.to_string().parse(),
            Ok(IdQuery::Deliveries(whole..=whole))
        );
        let Ok(IdQuery::Events(ids)) = "evt_01jd".parse() else {
            panic!("events");
        };
        assert!(ids.start() < ids.end());
        let endpoint = EndpointId(7);
        assert_eq!(
            endpoint.to_string().parse(),
            Ok(IdQuery::Endpoint(endpoint))
        );
        for text in [
            "",
            "01jd",
            "dlv_",
            "dlv_01j",
            "ep_01jd2k",
            "key_01jd",
            "evt_ab!d",
        ] {
            assert_eq!(text.parse::<IdQuery>(), Err(NamedError), "{text}");
        }
    }

    #[test]
    fn first_id_after_is_the_smallest_id_of_the_next_tick() {
        let id = id_of(first_sequence(Timestamp(5_000)) + 3, u64::MAX);
        let past = first_id_after(id).expect("there is one");
        assert_eq!(sequence_of(past), sequence_of(id) + 1);
        assert_eq!(past as u64, 0);
        let end = id_of(first_sequence(Timestamp(5_000)) + 4_095, 0);
        let next = first_id_after(end).expect("there is one");
        assert_eq!(sequence_of(next), first_sequence(Timestamp(5_001)));
        assert_eq!(first_id_after(u128::MAX), None);
    }
}
