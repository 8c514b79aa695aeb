//! Accepts events: checks idempotency keys and quotas, and stores events with their deliveries.
//!
//! [`AcceptTask`] is the operation. A request with many deliveries is stored in pieces (see [`FanOut`]): its
//! transaction stores the events, and the caller is answered after the last piece.

use std::sync::Arc;

use posthaste_core::delivery::Delivery;
use posthaste_core::id::{EventId, first_sequence};
use posthaste_core::ingest::Fingerprint;
use posthaste_core::time::Timestamp;
use posthaste_core::trace::TraceContext;
use rusqlite::{Connection, OptionalExtension, params};

use super::fan_out::{FanOut, MAX_ROWS_AT_ONCE};
use super::group_commit::{Operation, WriteContext, number, set_number};
use super::routing_table::{EndpointRoute, TenantRoutes};
use super::row_keys::{Key, id_at, key_of, tail_of};
use super::schema::meta;
use super::{delivery_rows, event_rows};
use crate::accept_plan::{EventDecision, check_deliveries, plan};
use crate::codes::ms;
use crate::delivery_state::status_of;
use crate::reply::Reply;
use crate::{
    AcceptResult, AcceptedDelivery, AcceptedEvent, AcceptedOrStored, Done, HandedOver, NewEvent,
    Quotas, StoreError,
};

/// Size that an event adds to a transaction besides its payload, in bytes. Without it, a group of many empty events
/// would have no size limit.
const EVENT_BYTES: usize = 1_024;
/// Number of entries in the list of a stored event that take as long to read as it takes to write a row.
const LISTED_DELIVERIES_PER_ROW: u64 = 1_000;

/// The operation that accepts events of one tenant.
pub(super) struct AcceptTask {
    now: Timestamp,
    events: Vec<NewEvent>,
    quotas: Quotas,
    accepted: Option<(AcceptResult, Option<FanOut>)>,
    reply: Reply<AcceptResult>,
}

impl AcceptTask {
    /// Creates an operation that accepts all of these events or none.
    pub(super) fn new(
        now: Timestamp,
        events: Vec<NewEvent>,
        quotas: Quotas,
        done: Done<AcceptResult>,
    ) -> AcceptTask {
        AcceptTask {
            now,
            events,
            quotas,
            accepted: None,
            reply: Reply::new(done),
        }
    }
}

impl Operation for AcceptTask {
    fn run(&mut self, context: &mut WriteContext<'_>) -> rusqlite::Result<()> {
        let mut fan_out = None;
        let ingest = accept(context, self.now, &self.events, self.quotas, &mut fan_out)?;
        let tenant = self.events.first().map(|event| &event.tenant);
        if let Some(routes) = tenant.and_then(|tenant| context.routes.tenant(tenant)) {
            context.effects.other_work += routes.take_index_cost();
        }
        self.accepted = Some((ingest, fan_out));
        Ok(())
    }

    fn committed(self: Box<Self>) -> Option<Box<dyn Operation>> {
        let (ingest, fan_out) = self.accepted.expect("what is committed was run");
        match fan_out {
            Some(fan_out) => Some(Box::new(fan_out.answering(self.reply, ingest))),
            None => {
                self.reply.send(Ok(ingest));
                None
            }
        }
    }

    fn failed(self: Box<Self>, why: StoreError) -> Option<Box<dyn Operation>> {
        self.reply.send(Err(why));
        None
    }

    fn continues(&self) -> bool {
        matches!(self.accepted, Some((_, Some(_))))
    }

    fn bytes(&self) -> usize {
        let events = self.events.iter();
        events
            .map(|event| EVENT_BYTES + event.content.payload.len())
            .sum()
    }
}

/// Accepts events of one tenant, all or none. Sets `fan_out` if their deliveries are stored in pieces.
fn accept(
    context: &mut WriteContext<'_>,
    now: Timestamp,
    events: &[NewEvent],
    quotas: Quotas,
    fan_out: &mut Option<FanOut>,
) -> rusqlite::Result<AcceptResult> {
    let Some(first) = events.first() else {
        return Ok(AcceptResult::Done(Vec::new()));
    };
    let Some(tenant) = context.routes.tenant(&first.tenant).cloned() else {
        return Ok(AcceptResult::NoSuchTenant);
    };
    let plans = match plan(events, |key| stored_under(context.conn, tenant.no, key))? {
        Ok(plans) => plans,
        Err(conflicts) => return Ok(AcceptResult::Conflict(conflicts)),
    };
    for (event, plan) in events.iter().zip(&plans) {
        if let (EventDecision::Store, Some(only)) = (plan, event.only)
            && !tenant
                .endpoint(only)
                .is_some_and(|route| route.accepts_deliveries())
        {
            return Ok(AcceptResult::NoSuchEndpoint);
        }
    }
    let limits = (
        tenant.endpoints.len(),
        context.settings.max_deliveries_per_request,
    );
    let checked = check_deliveries(events, &plans, limits, |event| {
        tenant.count_routes(&event.content.event_type)
    });
    let deliveries = match checked {
        Ok(deliveries) => deliveries,
        Err(refused) => return Ok(refused),
    };
    let fresh = plans.iter().filter(|plan| plan.is_new()).count() as u64;
    let taken = context
        .meters
        .take(context.conn, tenant.no, now, quotas, fresh)?;
    if let Err(over) = taken {
        return Ok(over.into());
    }
    let mut pieces = (deliveries > MAX_ROWS_AT_ONCE).then(|| FanOut::begin(tenant.no));
    let mut done: Vec<AcceptedOrStored> = Vec::with_capacity(events.len());
    let mut known_endpoints = event_rows::KnownEndpoints::default();
    for (event, plan) in events.iter().zip(plans) {
        let ingested = match plan {
            EventDecision::Store => AcceptedOrStored {
                is_new: true,
                event: store(context, now, &tenant, event, pieces.as_mut())?,
            },
            EventDecision::Stored(id) => {
                let event = event_rows::accepted(context.conn, id, &mut known_endpoints)?;
                context.effects.other_work +=
                    1 + event.delivery_count as u64 / LISTED_DELIVERIES_PER_ROW;
                AcceptedOrStored {
                    is_new: false,
                    event,
                }
            }
            EventDecision::SameAs(index) => AcceptedOrStored {
                is_new: false,
                event: done[index].event.repeated(),
            },
        };
        done.push(ingested);
    }
    if let Some(pieces) = &pieces {
        pieces.insert(context)?;
    }
    *fan_out = pieces;
    Ok(AcceptResult::Done(done))
}

fn stored_under(
    conn: &Connection,
    tenant_no: i64,
    key: &str,
) -> rusqlite::Result<Option<(EventId, Fingerprint)>> {
    conn.prepare_cached(
        "SELECT event_key, event_tail, fingerprint FROM idempotency \
         WHERE tenant_no = ?1 AND key = ?2",
    )?
    .query_row((tenant_no, key), |row| {
        let id = EventId(id_at(row.get(0)?, row.get(1)?));
        Ok((id, Fingerprint::from_bytes(row.get(2)?)))
    })
    .optional()
}

/// Stores an event. Its deliveries are stored and handed over now, or else added to `pieces`.
fn store(
    context: &mut WriteContext<'_>,
    now: Timestamp,
    tenant: &TenantRoutes,
    event: &NewEvent,
    mut pieces: Option<&mut FanOut>,
) -> rusqlite::Result<AcceptedEvent> {
    let id: EventId = context.key_generator.next(now);
    if let Some(pieces) = &mut pieces {
        pieces.add(key_of(id.0), event);
    }
    let due_at = event.deliver_at.map_or(now, |at| at.max(now));
    let mut routes: Vec<&Arc<EndpointRoute>> = match event.only {
        Some(only) => tenant.endpoint(only).into_iter().collect(),
        None => tenant.routes(&event.content.event_type),
    };
    routes.sort_unstable_by_key(|route| route.id);
    let mut deliveries = Vec::new();
    let mut list = event_rows::DeliveryList::default();
    for route in routes {
        let delivery = Delivery::schedule(
            context.key_generator.next(now),
            id,
            route.id,
            event.ordering,
            due_at,
            route.give_up_after,
        )
        .with_request(event.request.clone());
        list.push(event_rows::Listed {
            id: delivery.id(),
            endpoint_no: route.no,
            added_later: false,
        });
        deliveries.push(AcceptedDelivery {
            id: delivery.id(),
            endpoint: route.id,
        });
        if pieces.is_some() {
            continue;
        }
        add(context, &delivery, route.no)?;
        context.effects.handed_over.push(HandedOver {
            delivery,
            accepted_at: now,
            content: event.content.clone(),
            received: event.received,
        });
    }
    insert_event(context.conn, now, tenant.no, id, event, &list)?;
    context.effects.new_rows += 1;
    if let Some(idempotency) = &event.idempotency {
        context
            .conn
            .prepare_cached(
                "INSERT INTO idempotency (tenant_no, key, fingerprint, event_key, event_tail) \
                 VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![
                tenant.no,
                idempotency.key,
                idempotency.fingerprint.as_bytes(),
                key_of(id.0),
                tail_of(id.0),
            ])?;
    }
    let last = context.key_generator.last();
    store_clock_skew(context, now, key_of(id.0), last)?;
    Ok(AcceptedEvent {
        id,
        event_type: event.content.event_type.clone(),
        created_at: now,
        delivery_count: deliveries.len(),
        deliveries,
    })
}

fn insert_event(
    conn: &Connection,
    now: Timestamp,
    tenant_no: i64,
    id: EventId,
    event: &NewEvent,
    list: &event_rows::DeliveryList,
) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "INSERT INTO events (key, tail, tenant_no, type, created_at, deliver_at, ordering, test, \
         content_type, idempotency_key, deliveries, payload, trace, request) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
    )?
    .execute(params![
        key_of(id.0),
        tail_of(id.0),
        tenant_no,
        event.content.event_type.as_str(),
        ms(now),
        event.deliver_at.map(ms),
        event.ordering.map(|key| key.0 as i64),
        event.only.is_some(),
        event.content.content_type,
        event.idempotency.as_ref().map(|it| it.key.as_str()),
        list.as_bytes(),
        event.content.payload.as_ref(),
        event.content.trace.as_ref().map(TraceContext::to_string),
        event.request.as_deref().map(delivery_rows::to_json),
    ])?;
    Ok(())
}

/// Inserts a new delivery, and counts it.
pub(super) fn add(
    context: &mut WriteContext<'_>,
    delivery: &Delivery,
    endpoint_no: i64,
) -> rusqlite::Result<()> {
    delivery_rows::insert(context.conn, delivery, endpoint_no)?;
    let facts = delivery.facts();
    let status = status_of(delivery);
    context.effects.count_changes.add(facts.endpoint, status);
    context.effects.new_rows += 1;
    Ok(())
}

/// Updates the stored skew: the time that keys are ahead of the acceptance time of their events. It is 0 unless the
/// clock was set back, very many events came at once, or a replay created a delivery of an old event.
pub(super) fn store_clock_skew(
    context: &mut WriteContext<'_>,
    accepted_at: Timestamp,
    event: Key,
    delivery: Key,
) -> rusqlite::Result<()> {
    let conn = context.conn;
    let (events, deliveries) = match context.cache.clock_skews {
        Some(clock_skews) => clock_skews,
        None => (
            number(conn, meta::EVENT_CLOCK_SKEW)?,
            number(conn, meta::DELIVERY_CLOCK_SKEW)?,
        ),
    };
    let wanted = (
        events.max(clock_skew_of(event, accepted_at)),
        deliveries.max(clock_skew_of(delivery, accepted_at)),
    );
    if wanted.0 > events {
        set_number(conn, meta::EVENT_CLOCK_SKEW, wanted.0)?;
    }
    if wanted.1 > deliveries {
        set_number(conn, meta::DELIVERY_CLOCK_SKEW, wanted.1)?;
    }
    context.cache.clock_skews = Some(wanted);
    Ok(())
}

/// Returns how many milliseconds a key is ahead of a time, rounded up to a power of two so that it seldom changes.
fn clock_skew_of(key: Key, at: Timestamp) -> i64 {
    let moments = key.saturating_sub(first_sequence(at) as Key).max(0);
    let millis = moments >> 12;
    match millis {
        0 => 0,
        some => (some as u64).next_power_of_two() as i64,
    }
}
