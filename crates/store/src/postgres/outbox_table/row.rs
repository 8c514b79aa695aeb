//! One row of an outbox table.
//!
//! [`OutboxRow`] is a row of a batch, with its [`OutboxFields`] or the reason why it cannot be read. One unreadable
//! row does not fail the batch.

use posthaste_core::time::{Span, Timestamp};
use tokio_postgres::Row;

use super::sql::MAX_TEXT_BYTES;

/// A row that waits in an outbox table. The debug output hides its content.
pub struct OutboxRow {
    /// Its id.
    pub id: i64,
    /// Its tenant, if it names one.
    pub tenant: Option<String>,
    /// The time at which it was created, in microseconds since 1970.
    pub created_at_us: i64,
    /// The size of its payload.
    pub payload_bytes: i64,
    /// The fields of its event, or the column that cannot be read and the reason.
    pub fields: Result<OutboxFields, String>,
    /// Its ordering key.
    pub ordering_key: Option<String>,
}

/// The fields of the event that a row describes.
pub struct OutboxFields {
    /// Type of the event.
    pub event_type: Option<String>,
    /// The payload as JSON. Absent if it is too large or the row has none.
    pub payload: Option<String>,
    /// The earliest time of delivery.
    pub deliver_at: Option<Timestamp>,
    /// The idempotency key that the application chose.
    pub idempotency_key: Option<String>,
}

impl std::fmt::Debug for OutboxRow {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("OutboxRow")
            .field("id", &self.id)
            .field("payload_bytes", &self.payload_bytes)
            .finish_non_exhaustive()
    }
}

impl OutboxRow {
    /// Reads a row of the batch statement. A text that is too long, or is not UTF-8, which a database with the encoding
    /// `SQL_ASCII` can contain, makes the row unreadable and not the batch.
    pub(super) fn read(row: Row) -> OutboxRow {
        let text = |column: &'static str| {
            row.try_get::<_, Option<String>>(column)
                .map_err(|_| format!("{column} is not text in UTF-8"))
        };
        let fields = || {
            if let Some(column) = row.get::<_, Option<&str>>("too_long") {
                return Err(format!(
                    "{column} is longer than {MAX_TEXT_BYTES} bytes: shorten it"
                ));
            }
            Ok(OutboxFields {
                event_type: text("type")?,
                payload: text("payload")?,
                deliver_at: row
                    .get::<_, Option<i64>>("deliver_at_ms")
                    .map(|ms| Timestamp(ms.max(0) as u64)),
                idempotency_key: text("idempotency_key")?,
            })
        };
        let (tenant, ordering_key) = (text("tenant"), text("ordering_key"));
        let unreadable = [&tenant, &ordering_key];
        let unreadable = unreadable
            .into_iter()
            .find_map(|it| it.as_ref().err().cloned());
        OutboxRow {
            id: row.get("id"),
            created_at_us: row.get::<_, Option<i64>>("created_at_us").unwrap_or(0),
            payload_bytes: row.get::<_, Option<i64>>("payload_bytes").unwrap_or(0),
            fields: unreadable.map_or_else(fields, Err),
            tenant: tenant.unwrap_or_default(),
            ordering_key: ordering_key.unwrap_or_default(),
        }
    }

    /// Returns true if its order among other rows matters.
    pub(super) fn has_ordering_key(&self) -> bool {
        self.ordering_key.is_some()
    }
}

/// Returns the tenant and the ordering key of a skipped row, if they are UTF-8.
pub(super) fn ordering_key(row: &Row) -> Option<(String, String)> {
    Some((row.try_get(0).ok()?, row.try_get(1).ok()?))
}

/// Returns the age of a row.
pub(super) fn age(row: &Row) -> Span {
    let age_ms: Option<i64> = row.get("age_ms");
    Span::from_millis(age_ms.unwrap_or(0).max(0) as u64)
}
