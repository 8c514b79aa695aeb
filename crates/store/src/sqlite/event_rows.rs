//! Events and their payloads as rows.
//!
//! [`DeliveryList`] is the list of an event's deliveries, stored in its row, so that no index of deliveries by event is
//! needed.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use bytes::Bytes;
use posthaste_core::id::{DeliveryId, EndpointId, EventId, TenantId};
use posthaste_core::time::Timestamp;
use posthaste_core::trace::TraceContext;
use rusqlite::{Connection, OptionalExtension, Row};
use rustc_hash::FxHashMap;

use super::delivery_rows::{endpoint_id, parse};
use super::directory::live_tenant;
use super::row_keys::{Key, id_at, key_of, look_up, tail_of};
use super::schedules::scheduled_run;
use crate::codes::at;
use crate::{AcceptedDelivery, AcceptedEvent, Content, MAX_DELIVERIES_OF_STORED, StoredEvent};

/// The columns that [`read`] needs.
pub(super) const COLUMNS: &str = "key, tail, type, created_at, deliver_at, content_type, \
    idempotency_key, deliveries, ifnull((SELECT p.payload FROM payloads p WHERE p.no = payload_no), payload), \
    tenant_no, trace, payload_removed_at, schedule, scheduled_for";
/// The same without the payload, for lists: a page of payloads would take much memory.
pub(super) const COLUMNS_OF_LIST: &str = "key, tail, type, created_at, deliver_at, content_type, \
    idempotency_key, deliveries, x'', tenant_no, trace, payload_removed_at, schedule, scheduled_for";

/// The deliveries of an event, as stored in its row: key, tail and endpoint number of each. So no index of deliveries
/// by event is needed.
///
/// Deliveries that a replay added later are marked: they are not part of the accepted event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DeliveryList(Vec<u8>);

const ENTRY_BYTES: usize = 24;

/// One delivery of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) id: DeliveryId,
    pub(crate) endpoint_no: i64,
    pub(crate) added_later: bool,
}

impl DeliveryList {
    /// Wraps a stored list.
    pub(super) fn from_bytes(bytes: Vec<u8>) -> DeliveryList {
        DeliveryList(bytes)
    }

    /// Adds a delivery.
    pub(super) fn push(&mut self, listed: Listed) {
        // Endpoint numbers are positive, so the sign can hold the mark.
        let marked = if listed.added_later {
            -listed.endpoint_no
        } else {
            listed.endpoint_no
        };
        for part in [key_of(listed.id.0), tail_of(listed.id.0), marked] {
            self.0.extend_from_slice(&part.to_le_bytes());
        }
    }

    /// Iterates over the deliveries that the event was accepted with.
    pub(super) fn accepted(&self) -> impl Iterator<Item = Listed> {
        self.iter().filter(|listed| !listed.added_later)
    }

    /// Returns the stored form.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Iterates over the deliveries.
    pub(super) fn iter(&self) -> impl Iterator<Item = Listed> {
        self.0.chunks_exact(ENTRY_BYTES).map(|entry| {
            let part = |index: usize| {
                let bytes = &entry[index * 8..index * 8 + 8];
                i64::from_le_bytes(bytes.try_into().expect("eight bytes"))
            };
            Listed {
                id: DeliveryId(id_at(part(0), part(1))),
                endpoint_no: part(2).abs(),
                added_later: part(2) < 0,
            }
        })
    }
}

/// Endpoints by number that were read already, because events of one request or page mostly have the same.
pub(super) type KnownEndpoints = FxHashMap<i64, EndpointId>;

/// Reads an event from a row of [`COLUMNS`] or [`COLUMNS_OF_LIST`].
pub(super) fn read(
    conn: &Connection,
    row: &Row<'_>,
    known: &mut KnownEndpoints,
) -> rusqlite::Result<StoredEvent> {
    let event_type: posthaste_core::subscription::EventType = parse(row.get_ref(2)?.as_str()?)?;
    let list = DeliveryList::from_bytes(row.get(7)?);
    Ok(StoredEvent {
        event: AcceptedEvent {
            id: EventId(id_at(row.get(0)?, row.get(1)?)),
            event_type: event_type.clone(),
            created_at: at(row.get(3)?),
            delivery_count: list.accepted().count(),
            deliveries: first_with_endpoints(conn, &list, known)?,
        },
        deliver_at: row.get::<_, Option<i64>>(4)?.map(at),
        content: Arc::new(Content {
            event_type,
            content_type: row.get(5)?,
            payload: Bytes::from(row.get::<_, Vec<u8>>(8)?),
            trace: trace(row, 10)?,
            scheduled_run: scheduled_run(row, 12)?,
        }),
        payload_removed_at: row.get::<_, Option<i64>>(11)?.map(at),
        idempotency_key: row.get(6)?,
    })
}

/// Reads the trace context of an event.
fn trace(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<TraceContext>> {
    let text = row.get_ref(column)?.as_str_or_null()?;
    text.map(parse).transpose()
}

/// Returns the first deliveries that an event was accepted with.
fn first_with_endpoints(
    conn: &Connection,
    list: &DeliveryList,
    known: &mut KnownEndpoints,
) -> rusqlite::Result<Vec<AcceptedDelivery>> {
    let mut query = conn.prepare_cached("SELECT id FROM endpoints WHERE no = ?1")?;
    list.accepted()
        .take(MAX_DELIVERIES_OF_STORED)
        .map(|listed| {
            let endpoint = match known.entry(listed.endpoint_no) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(entry) => {
                    let id = query.query_row([listed.endpoint_no], |row| endpoint_id(row, 0))?;
                    *entry.insert(id)
                }
            };
            Ok(AcceptedDelivery {
                id: listed.id,
                endpoint,
            })
        })
        .collect()
}

/// Returns an event that is known to exist.
pub(super) fn accepted(
    conn: &Connection,
    id: EventId,
    known: &mut KnownEndpoints,
) -> rusqlite::Result<AcceptedEvent> {
    conn.prepare_cached("SELECT type, created_at, deliveries FROM events WHERE key = ?1")?
        .query_row([key_of(id.0)], |row| {
            let list = DeliveryList::from_bytes(row.get(2)?);
            Ok(AcceptedEvent {
                id,
                event_type: parse(row.get_ref(0)?.as_str()?)?,
                created_at: at(row.get(1)?),
                delivery_count: list.accepted().count(),
                deliveries: first_with_endpoints(conn, &list, known)?,
            })
        })
}

/// Returns an event of a tenant.
pub(super) fn event(
    conn: &Connection,
    tenant: &TenantId,
    id: EventId,
) -> rusqlite::Result<Option<StoredEvent>> {
    let (Some(tenant_no), Some((key, tail))) = (live_tenant(conn, tenant)?, look_up(id.0)) else {
        return Ok(None);
    };
    conn.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM events WHERE key = ?1 AND tail = ?2 AND tenant_no = ?3"
    ))?
    .query_row((key, tail, tenant_no), |row| {
        read(conn, row, &mut KnownEndpoints::default())
    })
    .optional()
}

/// Returns the deliveries of an event of a tenant.
pub(super) fn deliveries_of(
    conn: &Connection,
    tenant_no: i64,
    id: EventId,
) -> rusqlite::Result<Vec<Key>> {
    let Some((key, tail)) = look_up(id.0) else {
        return Ok(Vec::new());
    };
    let list = conn
        .prepare_cached(
            "SELECT deliveries FROM events WHERE key = ?1 AND tail = ?2 AND tenant_no = ?3",
        )?
        .query_row((key, tail, tenant_no), |row| row.get(0))
        .optional()?
        .map(DeliveryList::from_bytes)
        .unwrap_or_default();
    let keys = list.iter().map(|listed| key_of(listed.id.0)).collect();
    Ok(keys)
}

/// Returns whether the payload of an event has been deleted; `None` if there is no such event.
pub(super) fn payload_gone(conn: &Connection, key: Key) -> rusqlite::Result<Option<bool>> {
    conn.prepare_cached("SELECT payload_removed_at IS NOT NULL FROM events WHERE key = ?1")?
        .query_row([key], |row| row.get(0))
        .optional()
}

/// Returns the content of an event, and the time of its acceptance.
pub(super) fn content(
    conn: &Connection,
    id: EventId,
) -> rusqlite::Result<Option<(Timestamp, Arc<Content>)>> {
    let Some((key, tail)) = look_up(id.0) else {
        return Ok(None);
    };
    conn.prepare_cached(
        "SELECT created_at, type, content_type, \
         ifnull((SELECT p.payload FROM payloads p WHERE p.no = payload_no), payload), \
         trace, schedule, scheduled_for FROM events WHERE key = ?1 AND tail = ?2 \
         AND payload_removed_at IS NULL",
    )?
    .query_row((key, tail), |row| {
        let content = Content {
            event_type: parse(row.get_ref(1)?.as_str()?)?,
            content_type: row.get(2)?,
            payload: Bytes::from(row.get::<_, Vec<u8>>(3)?),
            trace: trace(row, 4)?,
            scheduled_run: scheduled_run(row, 5)?,
        };
        Ok((at(row.get(0)?), Arc::new(content)))
    })
    .optional()
}
