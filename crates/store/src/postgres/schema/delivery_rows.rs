//! Deliveries as rows: in `waiting` until they have ended, in `ended` from then on.
//!
//! [`DeliveryRow`] is a delivery with what its row has besides. Both tables are read with the same columns, in the same
//! order, so one function reads them.

use std::sync::Arc;

use posthaste_core::classify::FailureKind;
use posthaste_core::classify::VerdictRow as Rule;
use posthaste_core::delivery::{
    Delivery, DeliveryData, OrderingKey, ScheduledAttempt, State, Trigger,
};
use posthaste_core::id::{DeliveryId, EndpointId, EventId};
use posthaste_core::time::{Span, Timestamp};
use tokio_postgres::Row;

use super::columns::{Id, from_json, to_json, word};
use crate::AttemptEntry;
use crate::codes::{RowStatus, at};
use crate::postgres::db_error::DbError;

/// The columns that [`read`] expects, for a waiting delivery `w` and its endpoint `e`.
pub(in crate::postgres) const WAITING: &str = "w.id, w.event_id, w.endpoint_no, w.tenant_no, w.created_at, \
    w.first_due, w.give_up_at, w.delay_ms, w.ordering, w.attempts, w.spent, w.status, w.type, \
    w.granted, w.last, e.id, w.due, w.trigger, NULL::bigint, NULL::smallint, \
    CASE WHEN e.is_origin THEN (SELECT q.request FROM events q WHERE q.id = w.event_id) END";
/// The same columns for a delivery `d` that has ended.
pub(in crate::postgres) const ENDED: &str = "d.id, d.event_id, d.endpoint_no, d.tenant_no, d.created_at, \
    d.first_due, d.give_up_at, d.delay_ms, d.ordering, d.attempts, d.spent, d.status, d.type, \
    d.granted, d.last, e.id, NULL::bigint, NULL::smallint, d.ended_at, d.reason, \
    CASE WHEN e.is_origin THEN (SELECT q.request FROM events q WHERE q.id = d.event_id) END";
/// Number of these columns.
pub(in crate::postgres) const COLUMN_COUNT: usize = 21;
/// Position of the due time in [`WAITING`].
pub(in crate::postgres) const DUE_COLUMN: usize = 16;

/// A delivery as stored in its row.
#[derive(Clone, Debug)]
pub(in crate::postgres) struct DeliveryRow {
    pub(in crate::postgres) delivery: Delivery,
    pub(in crate::postgres) endpoint_no: i64,
    pub(in crate::postgres) tenant_no: i64,
    /// Time at which its event was accepted.
    pub(in crate::postgres) created_at: Timestamp,
    /// Type of its event, as text.
    pub(in crate::postgres) event_type: String,
    pub(in crate::postgres) status: RowStatus,
    /// The last attempt, as stored JSON.
    pub(in crate::postgres) last: Option<String>,
}

impl DeliveryRow {
    /// Parses the last attempt.
    pub(in crate::postgres) fn last_attempt(&self) -> Result<Option<AttemptEntry>, DbError> {
        self.last.as_deref().map(from_json).transpose()
    }

    /// Returns the failure kind of the last attempt. An attempt that cannot be read has none: a damaged value must not
    /// keep the delivery from ending.
    pub(in crate::postgres) fn last_error_kind(&self) -> Option<FailureKind> {
        self.last_attempt().ok().flatten()?.error_kind
    }
}

/// Reads a delivery from a row that starts with [`WAITING`] or [`ENDED`].
pub(in crate::postgres) fn read(row: &Row) -> Result<DeliveryRow, DbError> {
    let status = word(row, 11)?;
    let facts = DeliveryData {
        id: DeliveryId(row.get::<_, Id>(0).0),
        event: EventId(row.get::<_, Id>(1).0),
        endpoint: EndpointId(row.get::<_, Id>(15).0),
        ordering: row
            .get::<_, Option<i64>>(8)
            .map(|key| OrderingKey(key as u64)),
        due_at: at(row.get(5)),
        give_up_at: at(row.get(6)),
        attempts: row.get::<_, i32>(9) as u32,
        spent: row.get::<_, i32>(10) as u32,
        previous_delay: row
            .get::<_, Option<i64>>(7)
            .map(|ms| Span::from_millis(ms as u64)),
        granted: match row.get::<_, Option<&str>>(13) {
            Some(text) => from_json::<Vec<(Rule, u32)>>(text)?,
            None => Vec::new(),
        },
        request: match row.get::<_, Option<&str>>(20) {
            Some(text) => Some(Arc::new(from_json(text)?)),
            None => None,
        },
    };
    let turn = || -> Result<ScheduledAttempt, DbError> {
        Ok(ScheduledAttempt {
            at: at(row.get(16)),
            trigger: word::<Trigger>(row, 17)?,
        })
    };
    let ended = || at(row.get(18));
    let state = match status {
        RowStatus::Pending => State::Pending(turn()?),
        RowStatus::Retrying => State::Retrying(turn()?),
        RowStatus::Succeeded => State::Succeeded { at: ended() },
        RowStatus::Failed => State::Failed {
            at: ended(),
            reason: word(row, 19)?,
        },
        RowStatus::Cancelled => State::Cancelled { at: ended() },
    };
    Ok(DeliveryRow {
        delivery: Delivery::restore(facts, state),
        endpoint_no: row.get(2),
        tenant_no: row.get(3),
        created_at: at(row.get(4)),
        event_type: row.get(12),
        status,
        last: row.get(14),
    })
}

/// The retries used by each classification row with its own limit, as stored JSON.
pub(in crate::postgres) fn granted(facts: &DeliveryData) -> Option<String> {
    (!facts.granted.is_empty()).then(|| to_json(&facts.granted))
}
