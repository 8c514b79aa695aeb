//! Changes one delivery without an attempt: locks its row, and writes it to the table of its new state.
//!
//! Retries by hand, cancellations, replays and sweeps use it. [`find_for_update`] locks the row, and [`write_changed`]
//! moves it to the table of the new state and adjusts the counts.

use posthaste_core::classify::FailureKind;
use posthaste_core::delivery::Delivery;
use posthaste_core::id::DeliveryId;

use super::write_context::WriteContext;
use crate::codes::ms;
use crate::delivery_state::{failed_with, status_of, stored_state};
use crate::postgres::connection::PgConnection;
use crate::postgres::db_error::DbError;
use crate::postgres::schema::columns::{EnumCode, Id};
use crate::postgres::schema::delivery_rows::{DeliveryRow, ENDED, WAITING, granted, read};

/// Returns the delivery with this id and locks its row until the commit.
pub(super) async fn find_for_update(
    conn: &PgConnection,
    id: DeliveryId,
) -> Result<Option<DeliveryRow>, DbError> {
    let waiting = format!(
        "SELECT {WAITING} FROM waiting w JOIN endpoints e ON e.no = w.endpoint_no WHERE w.id = $1 \
         FOR UPDATE OF w"
    );
    let ended = format!(
        "SELECT {ENDED} FROM ended d JOIN endpoints e ON e.no = d.endpoint_no WHERE d.id = $1 \
         FOR UPDATE OF d"
    );
    // The row may move from one table to the other while this statement waits for the lock.
    for sql in [&waiting, &ended, &waiting, &ended] {
        if let Some(row) = conn.query_opt(sql, &[&Id(id.0)]).await? {
            return read(&row).map(Some);
        }
    }
    Ok(None)
}

/// Writes a delivery that changed without an attempt, to the table that its new state belongs to, and updates the
/// counts. The caller must hold the row's lock, by [`find_for_update`].
pub(super) async fn write_changed(
    context: &mut WriteContext,
    before: &DeliveryRow,
    after: &Delivery,
) -> Result<(), DbError> {
    let conn = context.conn.clone();
    let id = Id(after.id().0);
    let status = status_of(after);
    let table = if before.status.is_waiting() {
        "waiting"
    } else {
        "ended"
    };
    let sql = format!("DELETE FROM {table} WHERE id = $1");
    conn.execute(&sql, &[&id]).await?;
    if status.is_waiting() {
        if !before.status.is_waiting() {
            keep_last(&conn, before).await?;
        }
        insert_waiting(&conn, before, after).await?;
    } else {
        insert_ended(&conn, before, after).await?;
    }
    context.count(before.endpoint_no, Some(before.status), Some(status));
    context.count_dead_letter(before, after).await?;
    Ok(())
}

/// Copies the last attempt of an ended delivery to `attempts`. Until then it is stored only in the delivery's row.
async fn keep_last(conn: &PgConnection, before: &DeliveryRow) -> Result<(), DbError> {
    let (Some(entry), Some(last)) = (&before.last, before.last_attempt()?) else {
        return Ok(());
    };
    conn.execute(
        "INSERT INTO attempts (delivery_id, number, entry) VALUES ($1, $2, $3) \
         ON CONFLICT DO NOTHING",
        &[&Id(before.delivery.id().0), &(last.number as i32), entry],
    )
    .await?;
    Ok(())
}

async fn insert_waiting(
    conn: &PgConnection,
    row: &DeliveryRow,
    after: &Delivery,
) -> Result<(), DbError> {
    let facts = after.facts();
    let (status, due, trigger) = stored_state(after);
    let kind = shown_kind(row, after)?;
    conn.execute(
        "INSERT INTO waiting (id, event_id, endpoint_no, tenant_no, created_at, due, first_due, \
         give_up_at, delay_ms, ordering, attempts, spent, status, trigger, kind, type, granted, last) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)",
        &[
            &Id(facts.id.0),
            &Id(facts.event.0),
            &row.endpoint_no,
            &row.tenant_no,
            &ms(row.created_at),
            &due,
            &ms(facts.due_at),
            &ms(facts.give_up_at),
            &facts.previous_delay.map(|delay| delay.as_millis() as i64),
            &facts.ordering.map(|key| key.0 as i64),
            &(facts.attempts as i32),
            &(facts.spent as i32),
            &EnumCode(status),
            &EnumCode(trigger),
            &kind.map(EnumCode),
            &row.event_type,
            &granted(facts),
            &row.last,
        ],
    )
    .await?;
    Ok(())
}

async fn insert_ended(
    conn: &PgConnection,
    row: &DeliveryRow,
    after: &Delivery,
) -> Result<(), DbError> {
    let facts = after.facts();
    let state = after.state();
    let kind = shown_kind(row, after)?;
    conn.execute(
        "INSERT INTO ended (id, event_id, endpoint_no, tenant_no, created_at, ended_at, first_due, \
         give_up_at, delay_ms, ordering, attempts, spent, status, reason, kind, type, granted, last) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)",
        &[
            &Id(facts.id.0),
            &Id(facts.event.0),
            &row.endpoint_no,
            &row.tenant_no,
            &ms(row.created_at),
            &state.ended_at().map(ms),
            &ms(facts.due_at),
            &ms(facts.give_up_at),
            &facts.previous_delay.map(|delay| delay.as_millis() as i64),
            &facts.ordering.map(|key| key.0 as i64),
            &(facts.attempts as i32),
            &(facts.spent as i32),
            &EnumCode(status_of(after)),
            &state.dead_reason().map(EnumCode),
            &kind.map(EnumCode),
            &row.event_type,
            &granted(facts),
            &row.last,
        ],
    )
    .await?;
    Ok(())
}

fn shown_kind(row: &DeliveryRow, after: &Delivery) -> Result<Option<FailureKind>, DbError> {
    let last = row.last_error_kind();
    Ok(failed_with(after, last))
}
