//! Deletes events row by row, with all rows that belong to them.
//!
//! Used where a partition cannot be dropped as a whole. Events and ended deliveries are locked first, so that no replay
//! can start from them; rows that another transaction has locked are left for the next run.

use posthaste_core::id::{DeliveryId, sequence_of};
use posthaste_core::time::Timestamp;
use rustc_hash::FxHashSet;

use super::run::ScannedEvent;
use crate::codes::ms;
use crate::postgres::connection::PgConnection;
use crate::postgres::db_error::DbError;
use crate::postgres::schema::columns::Id;
use crate::postgres::schema::meta;
use crate::postgres::write::write_context::WriteContext;

/// Adds the deliveries that were added later to the lists of these events.
pub(super) async fn name_added(
    conn: &PgConnection,
    events: &mut [ScannedEvent],
    of: &[Id],
) -> Result<(), DbError> {
    if of.is_empty() {
        return Ok(());
    }
    let rows = conn
        .query(
            "SELECT event_id, delivery_id FROM added WHERE event_id = ANY($1)",
            &[&of],
        )
        .await?;
    for row in &rows {
        let (event, delivery): (Id, Id) = (row.get(0), row.get(1));
        if let Ok(index) = events.binary_search_by_key(&event, |event| event.id)
            && !events[index].deliveries.contains(&delivery)
        {
            events[index].deliveries.push(delivery);
        }
    }
    Ok(())
}

/// Deliveries, and the range of their ids.
pub(super) struct DeliverySet {
    pub(in crate::postgres) ids: Vec<Id>,
    pub(in crate::postgres) first: Id,
    pub(in crate::postgres) last: Id,
}

impl DeliverySet {
    /// Returns the deliveries of these events, or `None` if there are none.
    pub(in crate::postgres) fn of<'a>(
        events: impl IntoIterator<Item = &'a ScannedEvent>,
    ) -> Option<DeliverySet> {
        let of_each = |event: &'a ScannedEvent| event.deliveries.iter().copied();
        DeliverySet::these(events.into_iter().flat_map(of_each).collect())
    }

    /// Creates the set of these deliveries, or returns `None` if there are none.
    pub(super) fn these(mut ids: Vec<Id>) -> Option<DeliverySet> {
        ids.sort_unstable();
        Some(DeliverySet {
            first: *ids.first()?,
            last: *ids.last()?,
            ids,
        })
    }
}

/// Locks these events and the ended ones of these deliveries until the commit. Removes events from the list that are
/// deleted already or that another transaction has locked: the next writes of this node wait for this step, so this
/// step must not wait. Returns the deliveries that are locked.
pub(in crate::postgres) async fn lock_rows(
    conn: &PgConnection,
    events: &mut Vec<ScannedEvent>,
    deliveries: Option<DeliverySet>,
) -> Result<FxHashSet<Id>, DbError> {
    let ids: Vec<Id> = events.iter().map(|event| event.id).collect();
    let (Some(first), Some(last)) = (ids.first(), ids.last()) else {
        return Ok(FxHashSet::default());
    };
    let rows = conn
        .query(
            "SELECT id FROM events WHERE id = ANY($1) AND id >= $2 AND id <= $3 \
             ORDER BY id FOR UPDATE SKIP LOCKED",
            &[&ids, first, last],
        )
        .await?;
    let held: FxHashSet<Id> = rows.iter().map(|row| row.get(0)).collect();
    events.retain(|event| held.contains(&event.id));
    match deliveries {
        Some(deliveries) => lock_ended(conn, &deliveries).await,
        None => Ok(FxHashSet::default()),
    }
}

/// Locks ended deliveries until the commit, so that they cannot be replayed. Returns those that are locked; those
/// that another transaction is replaying are not.
pub(super) async fn lock_ended(
    conn: &PgConnection,
    deliveries: &DeliverySet,
) -> Result<FxHashSet<Id>, DbError> {
    let rows = conn
        .query(
            "SELECT id FROM ended WHERE id = ANY($1) AND id >= $2 AND id <= $3 \
             ORDER BY id FOR UPDATE SKIP LOCKED",
            &[&deliveries.ids, &deliveries.first, &deliveries.last],
        )
        .await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Deletes events that are locked.
pub(in crate::postgres) async fn remove(
    context: &mut WriteContext,
    events: &[ScannedEvent],
) -> Result<(), DbError> {
    let Some(last) = events.last() else {
        return Ok(());
    };
    let mut greatest = last.id;
    if let Some(deliveries) = DeliverySet::of(events.iter()) {
        greatest = greatest.max(deliveries.last);
        let ids: Vec<DeliveryId> = deliveries.ids.iter().map(|id| DeliveryId(id.0)).collect();
        remove_deliveries(context, &ids).await?;
    }
    let conn = context.conn.clone();
    let keyed = events
        .iter()
        .filter_map(|event| Some((event.tenant_no, event.idempotency_key.as_deref()?, event.id)));
    let (mut tenants, mut keys, mut of) = (Vec::new(), Vec::new(), Vec::new());
    for (tenant_no, key, event) in keyed {
        tenants.push(tenant_no);
        keys.push(key);
        of.push(event);
    }
    if !keys.is_empty() {
        conn.execute(
            "DELETE FROM idempotency i USING unnest($1::bigint[], $2::text[], $3::uuid[]) \
             AS gone (tenant_no, key, event_id) WHERE i.tenant_no = gone.tenant_no \
             AND i.key = gone.key AND i.event_id = gone.event_id",
            &[&tenants, &keys, &of],
        )
        .await?;
    }
    let ids: Vec<Id> = events.iter().map(|event| event.id).collect();
    conn.execute("DELETE FROM added WHERE event_id = ANY($1)", &[&ids])
        .await?;
    conn.execute(
        "DELETE FROM events WHERE id = ANY($1) AND id >= $2 AND id <= $3",
        &[&ids, &events[0].id, &last.id],
    )
    .await?;
    store_last_id(&conn, greatest).await
}

/// Deletes the payloads of events that are locked. Returns their number.
pub(super) async fn remove_payloads(
    conn: &PgConnection,
    now: Timestamp,
    ids: &[Id],
) -> Result<usize, DbError> {
    let (Some(first), Some(last)) = (ids.iter().min(), ids.iter().max()) else {
        return Ok(0);
    };
    let emptied = conn
        .execute(
            "UPDATE events SET payload = '', payload_removed_at = $4 \
             WHERE id = ANY($1) AND id >= $2 AND id <= $3 AND payload_removed_at IS NULL",
            &[&ids, first, last, &ms(now)],
        )
        .await?;
    Ok(emptied as usize)
}

/// Deletes the attempts of deliveries that are locked. The last attempt of each is in the delivery's own row.
pub(super) async fn remove_attempts(conn: &PgConnection, ids: &[Id]) -> Result<(), DbError> {
    let (Some(first), Some(last)) = (ids.iter().min(), ids.iter().max()) else {
        return Ok(());
    };
    conn.execute(
        "DELETE FROM attempts WHERE delivery_id = ANY($1) AND delivery_id >= $2 AND delivery_id <= $3",
        &[&ids, first, last],
    )
    .await?;
    Ok(())
}

/// Deletes ended deliveries with their attempts, and updates the count of failed ones.
pub(super) async fn remove_deliveries(
    context: &mut WriteContext,
    ids: &[DeliveryId],
) -> Result<(), DbError> {
    let mut ids: Vec<Id> = ids.iter().map(|id| Id(id.0)).collect();
    ids.sort_unstable();
    let (Some(first), Some(last)) = (ids.first(), ids.last()) else {
        return Ok(());
    };
    let conn = context.conn.clone();
    let rows = conn
        .query(
            "WITH gone AS (DELETE FROM ended WHERE id = ANY($1) AND id >= $2 AND id <= $3 \
             RETURNING endpoint_no, status) \
             SELECT endpoint_no, count(*) FROM gone WHERE status = 3 GROUP BY endpoint_no",
            &[&ids, first, last],
        )
        .await?;
    for row in &rows {
        context
            .effects
            .count_changes
            .add(row.get(0), 0, -row.get::<_, i64>(1));
    }
    remove_attempts(&conn, &ids).await
}

/// Stores that no id up to this one may be generated again.
pub(super) async fn store_last_id(conn: &PgConnection, gone: Id) -> Result<(), DbError> {
    conn.execute(
        "UPDATE meta SET value = $2 WHERE name = $1 AND value < $2",
        &[&meta::LAST_ID_TIME, &(sequence_of(gone.0) as i64)],
    )
    .await?;
    Ok(())
}
