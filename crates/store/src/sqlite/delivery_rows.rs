//! Conversion between deliveries and their rows.
//!
//! [`COLUMNS`] and [`read`] belong together: every query that returns deliveries begins with these columns. A row that
//! cannot be read is an error of that row only.

use std::sync::Arc;

use posthaste_core::classify::{FailureKind, VerdictRow as Rule};
use posthaste_core::delivery::{
    DeadReason, Delivery, DeliveryData, OrderingKey, ScheduledAttempt, State, Trigger,
};
use posthaste_core::id::{DeliveryId, EndpointId, EventId};
use posthaste_core::time::Span;
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::codes::{Code, RowStatus};
use super::row_keys::{Key, id_at, key_of, look_up, tail_of};
use crate::AttemptEntry;
use crate::codes::{at, ms};
use crate::delivery_state::stored_state;

/// The columns that [`read`] needs, of a delivery `d` and its endpoint `e`.
pub(super) const COLUMNS: &str = "d.key, d.tail, d.event_key, d.event_tail, d.status, d.due, \
    d.trigger, d.first_due, d.give_up_at, d.attempts, d.spent, d.delay_ms, d.granted, d.ordering, \
    d.ended_at, d.reason, e.id, d.endpoint_no, d.last, \
    CASE WHEN e.is_origin = 1 THEN (SELECT q.request FROM events q WHERE q.key = d.event_key) END";
/// The number of those columns.
pub(super) const COLUMN_COUNT: usize = 20;

/// A delivery as read from its row.
#[derive(Clone, Debug)]
pub(super) struct DeliveryRow {
    pub(super) delivery: Delivery,
    pub(super) endpoint_no: i64,
    pub(super) status: RowStatus,
    /// The last attempt, as stored.
    pub(super) last: Option<String>,
}

impl DeliveryRow {
    /// Returns the last attempt.
    pub(super) fn last_attempt(&self) -> rusqlite::Result<Option<AttemptEntry>> {
        self.last.as_deref().map(from_json).transpose()
    }

    /// Returns the failure kind of the last attempt. An attempt that cannot be read has none: a damaged value must not
    /// keep the delivery from ending.
    pub(super) fn last_error_kind(&self) -> Option<FailureKind> {
        self.last_attempt().ok().flatten()?.error_kind
    }
}

/// Reads a delivery from a row that begins with [`COLUMNS`].
pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<DeliveryRow> {
    let status = row.get::<_, Code<RowStatus>>(4)?.0;
    let facts = DeliveryData {
        id: DeliveryId(id_at(row.get(0)?, row.get(1)?)),
        event: EventId(id_at(row.get(2)?, row.get(3)?)),
        endpoint: endpoint_id(row, 16)?,
        ordering: row
            .get::<_, Option<i64>>(13)?
            .map(|key| OrderingKey(key as u64)),
        due_at: at(row.get(7)?),
        give_up_at: at(row.get(8)?),
        attempts: row.get(9)?,
        spent: row.get(10)?,
        previous_delay: row
            .get::<_, Option<i64>>(11)?
            .map(|ms| Span::from_millis(ms as u64)),
        granted: match row.get_ref(12)?.as_str_or_null()? {
            Some(text) => from_json::<Vec<(Rule, u32)>>(text)?,
            None => Vec::new(),
        },
        request: match row.get_ref(19)?.as_str_or_null()? {
            Some(text) => Some(Arc::new(from_json(text)?)),
            None => None,
        },
    };
    let state = match status {
        RowStatus::Pending => State::Pending(turn(row)?),
        RowStatus::Retrying => State::Retrying(turn(row)?),
        RowStatus::Succeeded => State::Succeeded {
            at: at(row.get(14)?),
        },
        RowStatus::Failed => State::Failed {
            at: at(row.get(14)?),
            reason: row.get::<_, Code<DeadReason>>(15)?.0,
        },
        RowStatus::Cancelled => State::Cancelled {
            at: at(row.get(14)?),
        },
    };
    Ok(DeliveryRow {
        delivery: Delivery::restore(facts, state),
        endpoint_no: row.get(17)?,
        status,
        last: row.get(18)?,
    })
}

fn turn(row: &Row<'_>) -> rusqlite::Result<ScheduledAttempt> {
    Ok(ScheduledAttempt {
        at: at(row.get(5)?),
        trigger: row.get::<_, Code<Trigger>>(6)?.0,
    })
}

/// Returns the delivery with this id.
pub(super) fn find(conn: &Connection, id: DeliveryId) -> rusqlite::Result<Option<DeliveryRow>> {
    let Some((key, tail)) = look_up(id.0) else {
        return Ok(None);
    };
    let row = at_key(conn, key)?;
    Ok(row.filter(|row| tail_of(row.delivery.id().0) == tail))
}

/// Returns the delivery with this key.
pub(super) fn at_key(conn: &Connection, key: Key) -> rusqlite::Result<Option<DeliveryRow>> {
    conn.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM deliveries d JOIN endpoints e ON e.no = d.endpoint_no WHERE d.key = ?1"
    ))?
    .query_row([key], read)
    .optional()
}

/// Inserts a delivery that has just been scheduled.
pub(super) fn insert(
    conn: &Connection,
    delivery: &Delivery,
    endpoint_no: i64,
) -> rusqlite::Result<()> {
    let facts = delivery.facts();
    let (status, due, trigger) = stored_state(delivery);
    conn.prepare_cached(
        "INSERT INTO deliveries (key, tail, endpoint_no, event_key, event_tail, status, due, \
         trigger, first_due, give_up_at, attempts, spent, ordering) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, 0, 0, ?11)",
    )?
    .execute(params![
        key_of(facts.id.0),
        tail_of(facts.id.0),
        endpoint_no,
        key_of(facts.event.0),
        tail_of(facts.event.0),
        Code(status),
        due,
        Code(trigger),
        ms(facts.due_at),
        ms(facts.give_up_at),
        facts.ordering.map(|key| key.0 as i64),
    ])?;
    Ok(())
}

/// A parameter of [`update`]: may the change start a new round of attempts, with new times?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RoundChange {
    /// An attempt never starts a round, not even one of an earlier round that is recorded late.
    GoesOn,
    /// A replay starts a round.
    MayBegin,
}

/// Updates the row of a delivery. `last` is its last attempt, `failed_with` the failure kind.
pub(super) fn update(
    conn: &Connection,
    delivery: &Delivery,
    last: Option<&str>,
    failed_with: Option<FailureKind>,
    round: RoundChange,
) -> rusqlite::Result<()> {
    let facts = delivery.facts();
    let (first_due, give_up_at) = match round {
        RoundChange::GoesOn => (None, None),
        RoundChange::MayBegin => (Some(ms(facts.due_at)), Some(ms(facts.give_up_at))),
    };
    let state = delivery.state();
    let (status, due, trigger) = stored_state(delivery);
    let granted = (!facts.granted.is_empty()).then(|| to_json(&facts.granted));
    conn.prepare_cached(
        "UPDATE deliveries SET status = ?2, due = ?3, trigger = ?4, first_due = coalesce(?5, first_due), \
         give_up_at = coalesce(?6, give_up_at), \
         attempts = ?7, spent = ?8, delay_ms = ?9, granted = ?10, ended_at = ?11, reason = ?12, \
         kind = ?13, last = ?14 WHERE key = ?1",
    )?
    .execute(params![
        key_of(facts.id.0),
        Code(status),
        due,
        Code(trigger),
        first_due,
        give_up_at,
        facts.attempts,
        facts.spent,
        facts.previous_delay.map(|delay| delay.as_millis() as i64),
        granted,
        state.ended_at().map(ms),
        state.dead_reason().map(Code),
        failed_with.map(Code),
        last,
    ])?;
    Ok(())
}

/// Reads the id of an endpoint from this column.
pub(super) fn endpoint_id(row: &Row<'_>, column: usize) -> rusqlite::Result<EndpointId> {
    row.get::<_, [u8; 16]>(column)
        .map(|bytes| EndpointId(u128::from_be_bytes(bytes)))
}

/// Parses stored JSON.
pub(super) fn from_json<T: DeserializeOwned>(text: &str) -> rusqlite::Result<T> {
    serde_json::from_str(text).map_err(|error| unreadable(Box::new(error)))
}

/// Converts a value to JSON. Never fails for the types stored here.
/// Reads JSON. Without any, returns the default.
pub(super) fn json_or_default<T: DeserializeOwned + Default>(
    text: Option<&str>,
) -> rusqlite::Result<T> {
    text.map_or_else(|| Ok(T::default()), from_json)
}

pub(super) fn to_json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("what we store has a form in JSON")
}

/// Parses stored text.
pub(super) fn parse<T>(text: &str) -> rusqlite::Result<T>
where
    T: std::str::FromStr<Err: std::error::Error + Send + Sync + 'static>,
{
    text.parse()
        .map_err(|error: T::Err| unreadable(Box::new(error)))
}

fn unreadable(error: Box<dyn std::error::Error + Send + Sync>) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, Type::Text, error)
}
