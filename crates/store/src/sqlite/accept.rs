//! Accepts events: checks idempotency keys and quotas, and stores events with their deliveries.
//!
//! [`AcceptTask`] is the operation. The payloads of a large request are stored before its events, in pieces (see
//! [`StagedPayloads`]). A request with many deliveries stores them after its events, in pieces (see [`FanOut`]), and the
//! caller is answered after the last one.

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
use super::staged_payloads::{self, PayloadNo, StagedPayloads};
use super::{advances, delivery_rows, event_rows};
use crate::accept_plan::{EventDecision, check_deliveries, plan};
use crate::codes::ms;
use crate::delivery_state::status_of;
use crate::reply::{AcceptReply, Reply};
use crate::{
    AcceptResult, AcceptedDelivery, AcceptedEvent, AcceptedOrStored, AdvanceResult, Done,
    HandedOver, NewEvent, Quotas, ScheduleAdvance, StoreError,
};

/// Size that an event adds to a transaction besides its payload, in bytes. Without it, a group of many empty events
/// would have no size limit.
const EVENT_BYTES: usize = 1_024;
/// Number of entries in the list of a stored event that take as long to read as it takes to write a row.
const LISTED_DELIVERIES_PER_ROW: u64 = 1_000;

/// The result of a run.
enum Accepted {
    Answer(AcceptResult, Option<FanOut>),
    /// The schedule has changed since it was decided about.
    Superseded,
    /// A piece of the payloads is stored, and the request continues.
    Staged(StagedPayloads),
}

/// The operation that accepts events of one tenant.
pub(super) struct AcceptTask {
    now: Timestamp,
    events: Vec<NewEvent>,
    quotas: Quotas,
    /// The decision about a schedule that the events belong to.
    advance: Option<ScheduleAdvance>,
    /// Payloads that are stored before the events, as of the last commit.
    staged: Option<StagedPayloads>,
    accepted: Option<Accepted>,
    reply: AcceptReply,
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
            advance: None,
            staged: None,
            accepted: None,
            reply: AcceptReply::Accept(Reply::new(done)),
        }
    }

    /// Creates an operation that records a decision about a schedule, with its events.
    pub(super) fn advance(
        now: Timestamp,
        advance: ScheduleAdvance,
        quotas: Quotas,
        done: Done<AdvanceResult>,
    ) -> AcceptTask {
        AcceptTask {
            now,
            events: advance.events(),
            quotas,
            advance: Some(advance),
            staged: None,
            accepted: None,
            reply: AcceptReply::Advance(Reply::new(done)),
        }
    }

    /// Stores the next piece of the payloads. Returns `None` if the events can be accepted or refused now.
    fn stage(&self, context: &WriteContext<'_>) -> rusqlite::Result<Option<Accepted>> {
        let mut staged = match &self.staged {
            Some(staged) if staged.is_complete() => return Ok(None),
            Some(staged) => staged.clone(),
            None if !staged_payloads::is_needed(&self.events) => return Ok(None),
            None => match self.new_events(context)? {
                Some(is_new) => StagedPayloads::begin(context.conn, &is_new)?,
                None => return Ok(None),
            },
        };
        staged.store_piece(context.conn, &self.events)?;
        Ok(Some(Accepted::Staged(staged)))
    }

    /// Returns which of the events are new. `None` if there are none, or if the request would be refused.
    fn new_events(&self, context: &WriteContext<'_>) -> rusqlite::Result<Option<Vec<bool>>> {
        let Ok(checked) = check(context, &self.events)? else {
            return Ok(None);
        };
        if let Some(advance) = &self.advance
            && advances::find_advanced(context.conn, checked.tenant.no, advance)?.is_none()
        {
            return Ok(None);
        }
        let is_new: Vec<bool> = checked.plans.iter().map(EventDecision::is_new).collect();
        let new = is_new.iter().filter(|is_new| **is_new).count() as u64;
        let (tenant_no, quotas) = (checked.tenant.no, self.quotas);
        let usage = context
            .meters
            .check(context.conn, tenant_no, self.now, quotas, new)?;
        Ok((new > 0 && usage.is_ok()).then_some(is_new))
    }

    /// Accepts or refuses the events.
    fn accept(&self, context: &mut WriteContext<'_>) -> rusqlite::Result<Accepted> {
        let accepted = match &self.advance {
            Some(advance) => self.accept_advance(context, advance)?,
            None => {
                let mut fan_out = None;
                let answer = self.accept_events(context, &mut fan_out)?;
                Accepted::Answer(answer, fan_out)
            }
        };
        if let (Some(staged), Accepted::Answer(AcceptResult::Done(_), _)) =
            (&self.staged, &accepted)
        {
            staged.keep(context.conn)?;
        }
        Ok(accepted)
    }

    /// Accepts the events of a decision, and writes it.
    fn accept_advance(
        &self,
        context: &mut WriteContext<'_>,
        advance: &ScheduleAdvance,
    ) -> rusqlite::Result<Accepted> {
        let Some(tenant_no) = context
            .routes
            .tenant(&advance.tenant)
            .map(|routes| routes.no)
        else {
            return Ok(Accepted::Superseded);
        };
        let Some(found) = advances::find_advanced(context.conn, tenant_no, advance)? else {
            return Ok(Accepted::Superseded);
        };
        let mut fan_out = None;
        let ingest = self.accept_events(context, &mut fan_out)?;
        if let AcceptResult::Done(accepted) = &ingest {
            let events: Vec<EventId> = accepted.iter().map(|it| it.event.id).collect();
            advances::advance(context.conn, self.now, &found, advance, &events)?;
            context.effects.other_work += advance.runs.len() as u64;
        }
        Ok(Accepted::Answer(ingest, fan_out))
    }
}

impl Operation for AcceptTask {
    fn run(&mut self, context: &mut WriteContext<'_>) -> rusqlite::Result<()> {
        self.accepted = Some(match self.stage(context)? {
            Some(staged) => staged,
            None => self.accept(context)?,
        });
        let tenant = self.events.first().map(|event| &event.tenant);
        if let Some(routes) = tenant.and_then(|tenant| context.routes.tenant(tenant)) {
            context.effects.other_work += routes.take_index_cost();
        }
        Ok(())
    }

    fn committed(mut self: Box<Self>) -> Option<Box<dyn Operation>> {
        match self.accepted.take().expect("what is committed was run") {
            Accepted::Staged(staged) => {
                self.staged = Some(staged);
                Some(self)
            }
            Accepted::Superseded => {
                self.reply.supersede();
                discard(self.staged)
            }
            Accepted::Answer(ingest, Some(fan_out)) => {
                Some(Box::new(fan_out.answering(self.reply, ingest)))
            }
            Accepted::Answer(ingest @ AcceptResult::Done(_), None) => {
                self.reply.send(Ok(ingest));
                None
            }
            Accepted::Answer(refused, None) => {
                self.reply.send(Ok(refused));
                discard(self.staged)
            }
        }
    }

    fn failed(self: Box<Self>, why: StoreError) -> Option<Box<dyn Operation>> {
        self.reply.send(Err(why));
        discard(self.staged)
    }

    fn continues(&self) -> bool {
        match &self.accepted {
            Some(Accepted::Staged(_) | Accepted::Answer(_, Some(_))) => true,
            Some(Accepted::Answer(_, None) | Accepted::Superseded) | None => false,
        }
    }

    fn bytes(&self) -> usize {
        let overhead = self.events.len() * EVENT_BYTES;
        match &self.staged {
            Some(staged) if staged.is_complete() => overhead,
            Some(staged) => staged.next_bytes(&self.events),
            None if staged_payloads::is_needed(&self.events) => {
                staged_payloads::first_bytes(&self.events)
            }
            None => {
                let payloads = self.events.iter().map(|event| event.content.payload.len());
                overhead + payloads.sum::<usize>()
            }
        }
    }
}

/// Returns the operation that deletes the payloads of a request that was not accepted.
fn discard(staged: Option<StagedPayloads>) -> Option<Box<dyn Operation>> {
    Some(Box::new(staged?.discard()))
}

/// A request that is not refused, unless it exceeds a quota.
struct Checked {
    tenant: Arc<TenantRoutes>,
    plans: Vec<EventDecision<EventId>>,
    /// Number of deliveries; a small number is an upper bound.
    deliveries: u64,
}

/// Checks everything but the quotas of a request. Returns the answer if nothing is to be stored.
fn check(
    context: &WriteContext<'_>,
    events: &[NewEvent],
) -> rusqlite::Result<Result<Checked, AcceptResult>> {
    let Some(first) = events.first() else {
        return Ok(Err(AcceptResult::Done(Vec::new())));
    };
    let Some(tenant) = context.routes.tenant(&first.tenant).cloned() else {
        return Ok(Err(AcceptResult::NoSuchTenant));
    };
    let plans = match plan(events, |key| stored_under(context.conn, tenant.no, key))? {
        Ok(plans) => plans,
        Err(conflicts) => return Ok(Err(AcceptResult::Conflict(conflicts))),
    };
    for (event, plan) in events.iter().zip(&plans) {
        if let (EventDecision::Store, Some(only)) = (plan, event.only)
            && !tenant
                .endpoint(only)
                .is_some_and(|route| route.accepts_deliveries())
        {
            return Ok(Err(AcceptResult::NoSuchEndpoint));
        }
    }
    let limits = (
        tenant.endpoints.len(),
        context.settings.max_deliveries_per_request,
    );
    let checked = check_deliveries(events, &plans, limits, |event| {
        tenant.count_routes(&event.content.event_type)
    });
    Ok(checked.map(|deliveries| Checked {
        tenant,
        plans,
        deliveries,
    }))
}

impl AcceptTask {
    /// Accepts the events, all or none. Sets `fan_out` if their deliveries are stored in pieces.
    fn accept_events(
        &self,
        context: &mut WriteContext<'_>,
        fan_out: &mut Option<FanOut>,
    ) -> rusqlite::Result<AcceptResult> {
        let now = self.now;
        let Checked {
            tenant,
            plans,
            deliveries,
        } = match check(context, &self.events)? {
            Ok(checked) => checked,
            Err(refused) => return Ok(refused),
        };
        let fresh = plans.iter().filter(|plan| plan.is_new()).count() as u64;
        let taken = context
            .meters
            .take(context.conn, tenant.no, now, self.quotas, fresh)?;
        if let Err(over) = taken {
            return Ok(over.into());
        }
        let mut pieces = (deliveries > MAX_ROWS_AT_ONCE).then(|| FanOut::begin(tenant.no));
        let mut done: Vec<AcceptedOrStored> = Vec::with_capacity(plans.len());
        let mut known_endpoints = event_rows::KnownEndpoints::default();
        for (index, plan) in plans.into_iter().enumerate() {
            let ingested = match plan {
                EventDecision::Store => AcceptedOrStored {
                    is_new: true,
                    event: store(
                        context,
                        now,
                        &tenant,
                        self.new_event(index),
                        pieces.as_mut(),
                    )?,
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

    /// Returns the event at this position, with the number of its payload if that is stored already.
    fn new_event(&self, index: usize) -> (&NewEvent, Option<PayloadNo>) {
        let payload_no = self.staged.as_ref().and_then(|staged| staged.number(index));
        (&self.events[index], payload_no)
    }
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
    (event, payload_no): (&NewEvent, Option<PayloadNo>),
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
    insert_event(context.conn, now, tenant.no, id, (event, payload_no), &list)?;
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
    (event, payload_no): (&NewEvent, Option<PayloadNo>),
    list: &event_rows::DeliveryList,
) -> rusqlite::Result<()> {
    let payload = match payload_no {
        Some(_) => &[],
        None => event.content.payload.as_ref(),
    };
    let scheduled_run = event.content.scheduled_run.as_ref();
    conn.prepare_cached(
        "INSERT INTO events (key, tail, tenant_no, type, created_at, deliver_at, ordering, test, \
         content_type, idempotency_key, deliveries, payload, trace, request, schedule, scheduled_for, \
         payload_no) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
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
        payload,
        event.content.trace.as_ref().map(TraceContext::to_string),
        event.request.as_deref().map(delivery_rows::to_json),
        scheduled_run.map(|it| it.schedule.as_str()),
        scheduled_run.map(|it| ms(it.scheduled_for)),
        payload_no,
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
