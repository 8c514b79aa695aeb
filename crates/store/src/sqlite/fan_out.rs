//! Stores the deliveries of a large request in pieces, so that no transaction takes long.
//!
//! The transaction that accepts the request stores its events, whose rows already list every delivery, and a row in the
//! table `fan_outs`. [`FanOut`] is the operation that then stores and hands over the deliveries, in the order of their
//! keys, one piece in each transaction. Between two pieces the writer serves other classes; operations of the same
//! tenant wait. The last piece deletes the row, and the caller is answered.
//!
//! A request that was interrupted is completed when the store is opened again ([`resume`]), or, after a full disk, as soon
//! as writes succeed again. A delivery to an endpoint that was disabled or deleted meanwhile is stored as failed,
//! as the sweep of that endpoint would have left it.

use std::sync::Arc;
use std::time::Instant;

use posthaste_core::delivery::{DeadReason, Delivery, OneOffRequest, OrderingKey};
use posthaste_core::id::{EndpointId, EventId, TenantId};
use posthaste_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};
use rustc_hash::FxHashMap;

use super::accept::add;
use super::delivery_rows::{DeliveryRow, endpoint_id, from_json, parse};
use super::event_rows::{self, DeliveryList, Listed};
use super::group_commit::{Operation, WriteContext};
use super::record::put;
use super::routing_table::TenantRoutes;
use super::row_keys::{Key, id_at, key_of};
use crate::codes::at;
use crate::delivery_state::{fail_waiting, status_of};
use crate::reply::AcceptReply;
use crate::{AcceptResult, Content, HandedOver, NewEvent, StoreError};

/// Maximum number of deliveries that a request stores in one transaction, and size of a piece.
pub(super) const MAX_ROWS_AT_ONCE: u64 = 512;

/// An accepted request whose deliveries are being stored.
pub(super) struct FanOut {
    tenant_no: i64,
    /// The contents of its events by key. Empty after a restart: they are read again.
    contents: FxHashMap<Key, (Arc<Content>, Option<Instant>)>,
    events: Option<(Key, Key)>,
    is_complete: bool,
    reply: Option<(AcceptReply, AcceptResult)>,
}

impl FanOut {
    /// Begins the request of a tenant.
    pub(super) fn begin(tenant_no: i64) -> FanOut {
        FanOut {
            tenant_no,
            contents: FxHashMap::default(),
            events: None,
            is_complete: false,
            reply: None,
        }
    }

    /// Adds an event. Its deliveries are those in the list that is stored with it.
    pub(super) fn add(&mut self, key: Key, event: &NewEvent) {
        let (first, _) = self.events.unwrap_or((key, key));
        self.events = Some((first, key));
        self.contents
            .insert(key, (event.content.clone(), event.received));
    }

    /// Stores the row that makes sure that the request is completed.
    pub(super) fn insert(&self, context: &WriteContext<'_>) -> rusqlite::Result<()> {
        let (first, last) = self.events.expect("it has many deliveries");
        context
            .conn
            .prepare_cached(
                "INSERT INTO fan_outs (first_event, last_event, last_key, tenant_no, stored_up_to) \
                 VALUES (?1, ?2, ?3, ?4, ?1)",
            )?
            .execute((first, last, context.key_generator.last(), self.tenant_no))?;
        Ok(())
    }

    /// Sets the caller that is answered at the end.
    pub(super) fn answering(mut self, reply: AcceptReply, ingest: AcceptResult) -> FanOut {
        self.reply = Some((reply, ingest));
        self
    }

    /// Stores the next piece. Returns whether it was the last.
    fn store_piece(&self, context: &mut WriteContext<'_>) -> rusqlite::Result<bool> {
        let (first, last) = self.events.expect("it has many deliveries");
        let mut stored_up_to: Key = context
            .conn
            .prepare_cached("SELECT stored_up_to FROM fan_outs WHERE first_event = ?1")?
            .query_row([first], |row| row.get(0))?;
        let routes = routes(context, self.tenant_no)?;
        let indexed_up_to = context.history.covers_up_to(context.conn)?;
        let mut room = MAX_ROWS_AT_ONCE;
        let mut next = event_before(context.conn, first, stored_up_to)?;
        while let Some(event) = stored_event(context.conn, next, last)? {
            let above = stored_up_to;
            let accepted = event.list.iter().filter(|listed| !listed.added_later);
            for listed in accepted.filter(|listed| key_of(listed.id.0) > above) {
                if room == 0 {
                    context
                        .conn
                        .prepare_cached(
                            "UPDATE fan_outs SET stored_up_to = ?2 WHERE first_event = ?1",
                        )?
                        .execute((first, stored_up_to))?;
                    return Ok(false);
                }
                room -= 1;
                stored_up_to = key_of(listed.id.0);
                self.store(context, &event, routes.as_deref(), listed)?;
                if stored_up_to <= indexed_up_to {
                    index(context, listed, self.tenant_no)?;
                }
            }
            next = event.key + 1;
        }
        context
            .conn
            .prepare_cached("DELETE FROM fan_outs WHERE first_event = ?1")?
            .execute([first])?;
        Ok(true)
    }

    /// Stores a delivery, and hands it over unless its endpoint gets none any more.
    fn store(
        &self,
        context: &mut WriteContext<'_>,
        event: &StoredEvent,
        routes: Option<&TenantRoutes>,
        listed: Listed,
    ) -> rusqlite::Result<()> {
        let route = routes.and_then(|routes| routes.endpoint_no(listed.endpoint_no));
        let schedule = |endpoint, give_up_after| {
            let due_at = event
                .deliver_at
                .map_or(event.created_at, |at| at.max(event.created_at));
            let ordering = event.ordering;
            Delivery::schedule(
                listed.id,
                event.id,
                endpoint,
                ordering,
                due_at,
                give_up_after,
            )
            .with_request(event.request.clone())
        };
        let Some(route) = route.filter(|route| route.accepts_deliveries()) else {
            let endpoint = endpoint_of(context.conn, listed.endpoint_no)?;
            let give_up_after = context.settings.default_policy.give_up_after;
            let reason = match route {
                Some(_) => DeadReason::EndpointDisabled,
                None => DeadReason::EndpointDeleted,
            };
            let delivery = schedule(endpoint, give_up_after);
            add(context, &delivery, listed.endpoint_no)?;
            return fail(
                context,
                event.created_at,
                delivery,
                (listed.endpoint_no, reason),
            );
        };
        let delivery = schedule(route.id, route.give_up_after);
        add(context, &delivery, route.no)?;
        let (content, received) = self.content(context.conn, event)?;
        context.effects.handed_over.push(HandedOver {
            delivery,
            accepted_at: event.created_at,
            content,
            received,
        });
        Ok(())
    }

    fn content(
        &self,
        conn: &Connection,
        event: &StoredEvent,
    ) -> rusqlite::Result<(Arc<Content>, Option<Instant>)> {
        if let Some(content) = self.contents.get(&event.key) {
            return Ok(content.clone());
        }
        let stored = event_rows::content(conn, event.id)?;
        let (_, content) = stored.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
        Ok((content, None))
    }
}

impl Operation for FanOut {
    fn run(&mut self, context: &mut WriteContext<'_>) -> rusqlite::Result<()> {
        self.is_complete = self.store_piece(context)?;
        Ok(())
    }

    fn committed(mut self: Box<Self>) -> Option<Box<dyn Operation>> {
        if !self.is_complete {
            return Some(self);
        }
        if let Some((reply, ingest)) = self.reply.take() {
            reply.send(Ok(ingest));
        }
        None
    }

    fn failed(mut self: Box<Self>, why: StoreError) -> Option<Box<dyn Operation>> {
        if let Some((reply, _)) = self.reply.take() {
            let why =
                format!("the events are stored, and their deliveries are created later: {why}");
            reply.send(Err(StoreError::Unavailable(why)));
        }
        Some(self)
    }

    fn continues(&self) -> bool {
        !self.is_complete
    }

    fn bytes(&self) -> usize {
        0
    }
}

/// Returns the requests that were not complete when the store was closed, with their tenants.
pub(super) fn resume(conn: &Connection) -> rusqlite::Result<Vec<(TenantId, FanOut)>> {
    let mut statement = conn.prepare(
        "SELECT t.id, f.tenant_no, f.first_event, f.last_event FROM fan_outs f \
         JOIN tenants t ON t.no = f.tenant_no ORDER BY f.first_event",
    )?;
    let rows = statement.query_map([], |row| {
        let mut fan_out = FanOut::begin(row.get(1)?);
        fan_out.events = Some((row.get(2)?, row.get(3)?));
        Ok((parse(row.get_ref(0)?.as_str()?)?, fan_out))
    })?;
    rows.collect()
}

/// Returns the ranges of the events whose deliveries are not all stored.
pub(super) fn incomplete_events(conn: &Connection) -> rusqlite::Result<Vec<(Key, Key)>> {
    conn.prepare_cached("SELECT first_event, last_event FROM fan_outs")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect()
}

/// An event whose deliveries are being stored.
struct StoredEvent {
    key: Key,
    id: EventId,
    created_at: Timestamp,
    deliver_at: Option<Timestamp>,
    ordering: Option<OrderingKey>,
    request: Option<Arc<OneOffRequest>>,
    list: DeliveryList,
}

/// Returns the key of the event that the last stored delivery belongs to; at first the first event.
fn event_before(conn: &Connection, first: Key, stored_up_to: Key) -> rusqlite::Result<Key> {
    conn.prepare_cached(
        "SELECT key FROM events WHERE key >= ?1 AND key <= ?2 ORDER BY key DESC LIMIT 1",
    )?
    .query_row((first, stored_up_to), |row| row.get(0))
}

fn stored_event(conn: &Connection, from: Key, last: Key) -> rusqlite::Result<Option<StoredEvent>> {
    conn.prepare_cached(
        "SELECT key, tail, created_at, deliver_at, ordering, deliveries, request FROM events \
         WHERE key >= ?1 AND key <= ?2 ORDER BY key LIMIT 1",
    )?
    .query_row((from, last), |row| {
        let key = row.get(0)?;
        let ordering = row.get::<_, Option<i64>>(4)?;
        Ok(StoredEvent {
            key,
            id: EventId(id_at(key, row.get(1)?)),
            created_at: at(row.get(2)?),
            deliver_at: row.get::<_, Option<i64>>(3)?.map(at),
            ordering: ordering.map(|key| OrderingKey(key as u64)),
            list: DeliveryList::from_bytes(row.get(5)?),
            request: match row.get_ref(6)?.as_str_or_null()? {
                Some(text) => Some(Arc::new(from_json(text)?)),
                None => None,
            },
        })
    })
    .optional()
}

/// Returns the endpoints of a tenant, unless it was deleted.
fn routes(
    context: &WriteContext<'_>,
    tenant_no: i64,
) -> rusqlite::Result<Option<Arc<TenantRoutes>>> {
    let tenant: Option<String> = context
        .conn
        .prepare_cached("SELECT id FROM tenants WHERE no = ?1 AND deleted = 0")?
        .query_row([tenant_no], |row| row.get(0))
        .optional()?;
    let Some(tenant) = tenant else {
        return Ok(None);
    };
    Ok(context.routes.tenant(&parse(&tenant)?).cloned())
}

fn endpoint_of(conn: &Connection, endpoint_no: i64) -> rusqlite::Result<EndpointId> {
    conn.prepare_cached("SELECT id FROM endpoints WHERE no = ?1")?
        .query_row([endpoint_no], |row| endpoint_id(row, 0))
}

/// Fails a delivery that was just stored.
fn fail(
    context: &mut WriteContext<'_>,
    now: Timestamp,
    delivery: Delivery,
    (endpoint_no, reason): (i64, DeadReason),
) -> rusqlite::Result<()> {
    let after = fail_waiting(&delivery, now, reason);
    let before = DeliveryRow {
        endpoint_no,
        status: status_of(&delivery),
        last: None,
        delivery,
    };
    put(context, &before, &after)
}

/// Adds a delivery to the part of the history that is complete already.
fn index(context: &mut WriteContext<'_>, listed: Listed, tenant_no: i64) -> rusqlite::Result<()> {
    let key = key_of(listed.id.0);
    let mut insert = context
        .conn
        .prepare_cached("INSERT OR IGNORE INTO delivery_history (scope, key) VALUES (?1, ?2)")?;
    insert.execute(params![listed.endpoint_no, key])?;
    insert.execute(params![tenant_no, key])?;
    context.effects.new_rows -= 1;
    Ok(())
}
