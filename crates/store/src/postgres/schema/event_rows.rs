//! Events as rows.

use std::sync::Arc;

use bytes::Bytes;
use posthaste_core::id::{DeliveryId, EndpointId, EventId};
use posthaste_core::subscription::EventType;
use posthaste_core::time::Timestamp;
use tokio_postgres::Row;

use super::columns::{Id, parse};
use crate::codes::at;
use crate::postgres::db_error::DbError;
use crate::{AcceptedDelivery, AcceptedEvent, Content, MAX_DELIVERIES_OF_STORED, StoredEvent};

/// The columns that [`read`] expects, for an event `v`.
pub(in crate::postgres) const COLUMNS: &str = "v.id, v.type, v.created_at, v.deliver_at, v.content_type, \
    v.idempotency_key, substring(v.deliveries FROM 1 FOR 3200), v.payload, v.tenant_no, v.trace, \
    v.payload_removed_at, octet_length(v.deliveries)";

/// The same without the payload, for lists: a page of payloads would take much memory.
pub(in crate::postgres) const COLUMNS_OF_LIST: &str = "v.id, v.type, v.created_at, v.deliver_at, v.content_type, \
    v.idempotency_key, substring(v.deliveries FROM 1 FOR 3200), ''::bytea, v.tenant_no, v.trace, \
    v.payload_removed_at, octet_length(v.deliveries)";

/// Size of one delivery in a list.
const ENTRY_BYTES: usize = 32;
const _: () = assert!(MAX_DELIVERIES_OF_STORED * ENTRY_BYTES == 3_200);

/// Returns the number of deliveries in a list of this size.
pub(in crate::postgres) fn list_length(list_bytes: i32) -> usize {
    usize::try_from(list_bytes).unwrap_or_default() / ENTRY_BYTES
}

/// Encodes the deliveries that an event was accepted with, as stored in its row: the delivery's id and its endpoint's
/// id. Deliveries that a replay adds later are in the table `added`.
pub(in crate::postgres) fn write_list(deliveries: &[AcceptedDelivery]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(deliveries.len() * ENTRY_BYTES);
    for delivery in deliveries {
        bytes.extend_from_slice(&delivery.id.0.to_be_bytes());
        bytes.extend_from_slice(&delivery.endpoint.0.to_be_bytes());
    }
    bytes
}

/// Decodes such a list.
pub(in crate::postgres) fn read_list(bytes: &[u8]) -> Vec<AcceptedDelivery> {
    let id = |bytes: &[u8]| u128::from_be_bytes(bytes.try_into().expect("sixteen bytes"));
    let entries = bytes.chunks_exact(ENTRY_BYTES);
    entries
        .map(|entry| AcceptedDelivery {
            id: DeliveryId(id(&entry[..16])),
            endpoint: EndpointId(id(&entry[16..])),
        })
        .collect()
}

/// Reads an event from a row of [`COLUMNS`] or [`COLUMNS_OF_LIST`].
pub(in crate::postgres) fn read(row: &Row) -> Result<StoredEvent, DbError> {
    let event_type: EventType = parse(row.get(1))?;
    Ok(StoredEvent {
        event: AcceptedEvent {
            id: EventId(row.get::<_, Id>(0).0),
            event_type: event_type.clone(),
            created_at: at(row.get(2)),
            delivery_count: list_length(row.get(11)),
            deliveries: read_list(row.get(6)),
        },
        deliver_at: row.get::<_, Option<i64>>(3).map(at),
        content: Arc::new(Content {
            event_type,
            content_type: row.get(4),
            payload: Bytes::copy_from_slice(row.get(7)),
            trace: row.get::<_, Option<&str>>(9).map(parse).transpose()?,
        }),
        payload_removed_at: row.get::<_, Option<i64>>(10).map(at),
        idempotency_key: row.get(5),
    })
}

/// Reads an event's payload and the time at which it was accepted, from five columns: time, type, content type,
/// payload, trace.
pub(in crate::postgres) fn read_content(
    row: &Row,
    from: usize,
) -> Result<(Timestamp, Arc<Content>), DbError> {
    let content = Content {
        event_type: parse(row.get(from + 1))?,
        content_type: row.get(from + 2),
        payload: Bytes::copy_from_slice(row.get(from + 3)),
        trace: row
            .get::<_, Option<&str>>(from + 4)
            .map(parse)
            .transpose()?,
    };
    Ok((at(row.get(from)), Arc::new(content)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_read_as_they_were_written() {
        let delivery = |n: u128| AcceptedDelivery {
            id: DeliveryId(n << 70 | 5),
            endpoint: EndpointId(n << 90),
        };
        let list = [delivery(1), delivery(2)];
        assert_eq!(read_list(&write_list(&list)), list);
        assert_eq!(read_list(&[]), []);
    }
}
