//! Accepts events: turns a batch of requests into rows, as columns for array statements.
//!
//! [`AcceptedRows`] collects the rows, the answers and the deliveries to hand over. It decides in memory, from the
//! routing table and the known idempotency keys; the statements at the end of this file write the result.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::ops::Range;

use posthaste_core::delivery::Delivery;
use posthaste_core::id::{EndpointId, EventId, IdGenerator};
use posthaste_core::ingest::Fingerprint;
use posthaste_core::time::Timestamp;
use posthaste_core::trace::TraceContext;
use rustc_hash::{FxHashMap, FxHashSet};

use super::count_changes::CountChanges;
use super::notify::NewWork;
use super::operation::AcceptOperation;
use super::routing_table::{EndpointRoute, RoutingTable, TenantRoutes};
use super::usage::UsageMeters;
use crate::accept_plan::{EventDecision, check_deliveries, plan};
use crate::codes::{RowStatus, at, ms};
use crate::postgres::connection::PgConnection;
use crate::postgres::db_error::DbError;
use crate::postgres::schema::clock_skew::clock_skew_of;
use crate::postgres::schema::columns::{Id, parse, to_json};
use crate::postgres::schema::event_rows::{list_length, read_list, write_list};
use crate::postgres::schema::partitions::Day;
use crate::{
    AcceptResult, AcceptedDelivery, AcceptedEvent, AcceptedOrStored, HandedOver, NewEvent,
};

/// Stored events by tenant number and idempotency key.
pub(in crate::postgres) type StoredEvents = FxHashMap<(i64, String), (AcceptedEvent, Fingerprint)>;

/// The result of accepting a batch of events.
#[derive(Default)]
pub(super) struct AcceptedRows<'a> {
    /// The answer to each request.
    pub(in crate::postgres) answers: Vec<AcceptResult>,
    pub(in crate::postgres) events: EventColumns<'a>,
    pub(in crate::postgres) waiting: WaitingColumns<'a>,
    pub(in crate::postgres) keys: KeyColumns<'a>,
    /// Every new delivery, with its payload.
    pub(super) handed_over: Vec<HandedOver>,
    pub(in crate::postgres) work: NewWork,
    pub(in crate::postgres) days: BTreeSet<Day>,
    /// The clock skews of event ids and of delivery ids (see `clock_skew`).
    pub(in crate::postgres) clock_skews: (i64, i64),
}

/// Rows of `events`.
#[derive(Default)]
pub(super) struct EventColumns<'a> {
    pub(in crate::postgres) ids: Vec<Id>,
    pub(in crate::postgres) tenants: Vec<i64>,
    pub(super) created: Vec<i64>,
    pub(in crate::postgres) deliver_at: Vec<Option<i64>>,
    pub(super) orderings: Vec<Option<i64>>,
    pub(in crate::postgres) tests: Vec<bool>,
    pub(in crate::postgres) types: Vec<&'a str>,
    pub(super) content_types: Vec<Option<&'a str>>,
    pub(in crate::postgres) keys: Vec<Option<&'a str>>,
    pub(in crate::postgres) deliveries: Vec<Vec<u8>>,
    pub(in crate::postgres) payloads: Vec<&'a [u8]>,
    pub(super) traces: Vec<Option<String>>,
    pub(super) requests: Vec<Option<String>>,
}

/// Rows of `waiting`.
#[derive(Default)]
pub(super) struct WaitingColumns<'a> {
    pub(in crate::postgres) ids: Vec<Id>,
    pub(in crate::postgres) events: Vec<Id>,
    pub(in crate::postgres) endpoints: Vec<i64>,
    pub(in crate::postgres) tenants: Vec<i64>,
    pub(super) created: Vec<i64>,
    pub(super) dues: Vec<i64>,
    pub(super) give_ups: Vec<i64>,
    pub(super) orderings: Vec<Option<i64>>,
    pub(in crate::postgres) types: Vec<&'a str>,
}

/// Rows of `idempotency`.
#[derive(Default)]
pub(super) struct KeyColumns<'a> {
    pub(in crate::postgres) tenants: Vec<i64>,
    pub(in crate::postgres) keys: Vec<&'a str>,
    pub(super) fingerprints: Vec<&'a [u8]>,
    pub(in crate::postgres) events: Vec<Id>,
}

/// The state that accepting events uses.
pub(super) struct PlanContext<'s> {
    pub(in crate::postgres) routes: &'s RoutingTable,
    pub(in crate::postgres) id_generator: &'s mut IdGenerator,
    pub(in crate::postgres) count_changes: &'s mut CountChanges,
    /// Usage of tenants, for their limits.
    pub(super) meters: &'s mut UsageMeters,
    /// Maximum number of deliveries that one request may create.
    pub(super) max_deliveries: u64,
    /// Events that are stored under idempotency keys, or that this batch stores.
    pub(in crate::postgres) known: StoredEvents,
}

impl<'a> AcceptedRows<'a> {
    /// Adds one request. Accepts all of its events or none.
    pub(in crate::postgres) fn add(
        &mut self,
        plan_context: &mut PlanContext<'_>,
        accepting: &'a AcceptOperation,
    ) {
        let answer = self.accept(plan_context, accepting);
        self.answers.push(answer);
    }

    fn accept(
        &mut self,
        plan_context: &mut PlanContext<'_>,
        accepting: &'a AcceptOperation,
    ) -> AcceptResult {
        let (now, events) = (accepting.now, &accepting.events);
        let Some(first) = events.first() else {
            return AcceptResult::Done(Vec::new());
        };
        let Some(tenant) = plan_context.routes.tenant(&first.tenant).cloned() else {
            return AcceptResult::NoSuchTenant;
        };
        let known = &plan_context.known;
        let planned = plan(events, |key| {
            Ok::<_, Infallible>(known.get(&(tenant.no, key.to_owned())).cloned())
        });
        let plans = match planned {
            Ok(Ok(plans)) => plans,
            Ok(Err(conflicts)) => return AcceptResult::Conflict(conflicts),
            Err(never) => match never {},
        };
        for (event, plan) in events.iter().zip(&plans) {
            if let (EventDecision::Store, Some(only)) = (plan, event.only)
                && !tenant
                    .endpoint(only)
                    .is_some_and(EndpointRoute::accepts_deliveries)
            {
                return AcceptResult::NoSuchEndpoint;
            }
        }
        let limits = (tenant.endpoints.len(), plan_context.max_deliveries);
        let checked = check_deliveries(events, &plans, limits, |event| {
            tenant.count_routes(&event.content.event_type)
        });
        if let Err(refused) = checked {
            return refused;
        }
        let fresh = plans.iter().filter(|plan| plan.is_new()).count() as u64;
        let taken = plan_context
            .meters
            .take(tenant.no, now, accepting.quotas, fresh);
        if let Err(over) = taken {
            return over.into();
        }
        let mut done: Vec<AcceptedOrStored> = Vec::with_capacity(events.len());
        for (event, plan) in events.iter().zip(plans) {
            let (fresh, event) = match plan {
                EventDecision::Store => (true, self.store(plan_context, now, &tenant, event)),
                EventDecision::Stored(event) => (false, event),
                EventDecision::SameAs(index) => (false, done[index].event.repeated()),
            };
            done.push(AcceptedOrStored {
                is_new: fresh,
                event,
            });
        }
        AcceptResult::Done(done)
    }

    /// Stores an event with its deliveries, and registers them for the hand-over.
    fn store(
        &mut self,
        plan_context: &mut PlanContext<'_>,
        now: Timestamp,
        tenant: &TenantRoutes,
        event: &'a NewEvent,
    ) -> AcceptedEvent {
        let id: EventId = plan_context.id_generator.next(now);
        let due_at = event.deliver_at.map_or(now, |at| at.max(now));
        let routes = match event.only {
            Some(only) => tenant.endpoint(only).into_iter().collect(),
            None => tenant.routes(&event.content.event_type),
        };
        let mut deliveries = Vec::with_capacity(routes.len());
        for route in routes {
            let delivery = Delivery::schedule(
                plan_context.id_generator.next(now),
                id,
                route.id,
                event.ordering,
                due_at,
                route.give_up_after,
            )
            .with_request(event.request.clone());
            deliveries.push(AcceptedDelivery {
                id: delivery.id(),
                endpoint: route.id,
            });
            plan_context
                .count_changes
                .count(route.no, None, Some(RowStatus::Pending));
            self.wait(now, tenant.no, route.no, event, &delivery);
        }
        let accepted = AcceptedEvent {
            id,
            event_type: event.content.event_type.clone(),
            created_at: now,
            delivery_count: deliveries.len(),
            deliveries,
        };
        self.keep(now, tenant.no, event, &accepted);
        if let Some(idempotency) = &event.idempotency {
            let key = (tenant.no, idempotency.key.clone());
            plan_context
                .known
                .insert(key, (accepted.repeated(), idempotency.fingerprint));
        }
        accepted
    }

    fn keep(
        &mut self,
        now: Timestamp,
        tenant_no: i64,
        event: &'a NewEvent,
        accepted: &AcceptedEvent,
    ) {
        let id = Id(accepted.id.0);
        let to = &mut self.events;
        to.ids.push(id);
        to.tenants.push(tenant_no);
        to.created.push(ms(now));
        to.deliver_at.push(event.deliver_at.map(ms));
        to.orderings.push(event.ordering.map(|key| key.0 as i64));
        to.tests.push(event.only.is_some());
        to.types.push(event.content.event_type.as_str());
        to.content_types.push(event.content.content_type.as_deref());
        to.keys
            .push(event.idempotency.as_ref().map(|it| it.key.as_str()));
        to.deliveries.push(write_list(&accepted.deliveries));
        to.payloads.push(&event.content.payload);
        to.traces
            .push(event.content.trace.as_ref().map(TraceContext::to_string));
        to.requests.push(event.request.as_deref().map(to_json));
        if let Some(idempotency) = &event.idempotency {
            self.keys.tenants.push(tenant_no);
            self.keys.keys.push(&idempotency.key);
            self.keys
                .fingerprints
                .push(idempotency.fingerprint.as_bytes());
            self.keys.events.push(id);
        }
        self.days.insert(Day::of(id.0));
        self.clock_skews.0 = self.clock_skews.0.max(clock_skew_of(id.0, now));
    }

    fn wait(
        &mut self,
        now: Timestamp,
        tenant_no: i64,
        endpoint_no: i64,
        event: &'a NewEvent,
        delivery: &Delivery,
    ) {
        let facts = delivery.facts();
        let to = &mut self.waiting;
        to.ids.push(Id(facts.id.0));
        to.events.push(Id(facts.event.0));
        to.endpoints.push(endpoint_no);
        to.tenants.push(tenant_no);
        to.created.push(ms(now));
        to.dues.push(ms(facts.due_at));
        to.give_ups.push(ms(facts.give_up_at));
        to.orderings.push(facts.ordering.map(|key| key.0 as i64));
        to.types.push(event.content.event_type.as_str());
        self.days.insert(Day::of(facts.id.0));
        self.clock_skews.1 = self.clock_skews.1.max(clock_skew_of(facts.id.0, now));
        self.work.add(facts.endpoint, facts.due_at);
        self.handed_over.push(HandedOver {
            delivery: delivery.clone(),
            accepted_at: now,
            content: event.content.clone(),
            received: event.received,
        });
    }

    /// Returns the deliveries to hand over to this node: those whose endpoints it owns.
    pub(in crate::postgres) fn own(
        &mut self,
        owns: impl Fn(EndpointId) -> bool,
    ) -> Vec<HandedOver> {
        let mut all = std::mem::take(&mut self.handed_over);
        all.retain(|handed| owns(handed.delivery.facts().endpoint));
        all
    }
}

/// Returns the events that are stored under the idempotency keys of these requests.
pub(super) async fn look_up(
    conn: &PgConnection,
    routes: &RoutingTable,
    accepts: &[AcceptOperation],
) -> Result<StoredEvents, DbError> {
    let (mut tenants, mut keys): (Vec<i64>, Vec<&str>) = (Vec::new(), Vec::new());
    let mut seen = FxHashSet::default();
    for event in accepts.iter().flat_map(|accepting| &accepting.events) {
        if let (Some(tenant), Some(idempotency)) =
            (routes.tenant(&event.tenant), &event.idempotency)
            && seen.insert((tenant.no, idempotency.key.as_str()))
        {
            tenants.push(tenant.no);
            keys.push(&idempotency.key);
        }
    }
    let mut known = StoredEvents::default();
    if keys.is_empty() {
        return Ok(known);
    }
    let rows = conn
        .query(
            "SELECT i.tenant_no, i.key, i.fingerprint, v.id, v.type, v.created_at, \
             substring(v.deliveries FROM 1 FOR 3200), octet_length(v.deliveries) \
             FROM unnest($1::bigint[], $2::text[]) AS g (tenant_no, key) \
             JOIN idempotency i ON i.tenant_no = g.tenant_no AND i.key = g.key \
             JOIN events v ON v.id = i.event_id",
            &[&tenants, &keys],
        )
        .await?;
    for row in &rows {
        let fingerprint: [u8; 32] = row
            .get::<_, &[u8]>(2)
            .try_into()
            .map_err(|_| DbError::Corrupt("a fingerprint has another length".to_owned()))?;
        let event = AcceptedEvent {
            id: EventId(row.get::<_, Id>(3).0),
            event_type: parse(row.get(4))?,
            created_at: at(row.get(5)),
            delivery_count: list_length(row.get(7)),
            deliveries: read_list(row.get(6)),
        };
        let key = (row.get(0), row.get(1));
        known.insert(key, (event, Fingerprint::from_bytes(fingerprint)));
    }
    Ok(known)
}

/// Inserts rows into `events`.
pub(super) const INSERT_EVENTS: &str = "INSERT INTO events (id, tenant_no, created_at, deliver_at, \
    ordering, test, type, content_type, idempotency_key, deliveries, payload, trace, request) \
    SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], \
    $6::boolean[], $7::text[], $8::text[], $9::text[], $10::bytea[], $11::bytea[], $12::text[], \
    $13::text[])";

/// Inserts rows into `waiting`.
pub(super) const INSERT_WAITING: &str = "INSERT INTO waiting (id, event_id, endpoint_no, tenant_no, \
    created_at, due, first_due, give_up_at, ordering, attempts, spent, status, trigger, type) \
    SELECT id, event_id, endpoint_no, tenant_no, created_at, due, due, give_up_at, ordering, 0, 0, 0, \
    0, type FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::bigint[], $5::bigint[], \
    $6::bigint[], $7::bigint[], $8::bigint[], $9::text[]) \
    AS g (id, event_id, endpoint_no, tenant_no, created_at, due, give_up_at, ordering, type)";

/// Inserts rows into `idempotency`. A key that exists already aborts the transaction. The rows are sorted in the same
/// order on all nodes, because an insert waits for other transactions that insert the same key.
pub(super) const INSERT_KEYS: &str = "INSERT INTO idempotency (tenant_no, key, fingerprint, event_id) \
    SELECT * FROM unnest($1::bigint[], $2::text[], $3::bytea[], $4::uuid[]) \
    AS k (tenant_no, key, fingerprint, event_id) ORDER BY tenant_no, key COLLATE \"C\"";

/// Inserts idempotency keys.
pub(super) async fn insert_keys(conn: &PgConnection, it: &KeyColumns<'_>) -> Result<(), DbError> {
    let sql = INSERT_KEYS;
    conn.execute(sql, &[&it.tenants, &it.keys, &it.fingerprints, &it.events])
        .await?;
    Ok(())
}

/// Inserts events.
pub(super) async fn insert_events(
    conn: &PgConnection,
    it: &EventColumns<'_>,
) -> Result<(), DbError> {
    conn.execute(
        INSERT_EVENTS,
        &[
            &it.ids,
            &it.tenants,
            &it.created,
            &it.deliver_at,
            &it.orderings,
            &it.tests,
            &it.types,
            &it.content_types,
            &it.keys,
            &it.deliveries,
            &it.payloads,
            &it.traces,
            &it.requests,
        ],
    )
    .await?;
    Ok(())
}

/// Inserts waiting deliveries.
pub(super) async fn insert_waiting(
    conn: &PgConnection,
    it: &WaitingColumns<'_>,
) -> Result<(), DbError> {
    insert_waiting_piece(conn, it, 0..it.ids.len()).await
}

/// Inserts some of the waiting deliveries.
pub(super) async fn insert_waiting_piece(
    conn: &PgConnection,
    it: &WaitingColumns<'_>,
    piece: Range<usize>,
) -> Result<(), DbError> {
    conn.execute(
        INSERT_WAITING,
        &[
            &&it.ids[piece.clone()],
            &&it.events[piece.clone()],
            &&it.endpoints[piece.clone()],
            &&it.tenants[piece.clone()],
            &&it.created[piece.clone()],
            &&it.dues[piece.clone()],
            &&it.give_ups[piece.clone()],
            &&it.orderings[piece.clone()],
            &&it.types[piece],
        ],
    )
    .await?;
    Ok(())
}
