//! Inserts many rows into `waiting`.
//!
//! [`NewWaitingRows`] collects rows as columns, so that one statement inserts all of them. Replays use it; accepted
//! events have columns of their own.

use posthaste_core::classify::FailureKind;
use posthaste_core::delivery::Delivery;
use tokio_postgres::types::ToSql;

use crate::codes::{Coded, ms};
use crate::delivery_state::stored_state;
use crate::postgres::connection::PgConnection;
use crate::postgres::db_error::DbError;
use crate::postgres::schema::columns::Id;
use crate::postgres::schema::delivery_rows::{DeliveryRow, granted};

/// Rows to insert into `waiting`, as columns.
#[derive(Debug, Default)]
pub(super) struct NewWaitingRows {
    ids: Vec<Id>,
    events: Vec<Id>,
    endpoints: Vec<i64>,
    tenants: Vec<i64>,
    created: Vec<i64>,
    dues: Vec<i64>,
    first_dues: Vec<i64>,
    give_ups: Vec<i64>,
    delays: Vec<Option<i64>>,
    orderings: Vec<Option<i64>>,
    attempts: Vec<i32>,
    spent: Vec<i32>,
    statuses: Vec<i16>,
    triggers: Vec<i16>,
    kinds: Vec<Option<i16>>,
    types: Vec<String>,
    granted: Vec<Option<String>>,
    lasts: Vec<Option<String>>,
}

/// Inserts rows into `waiting`.
const ADD_WAITING: &str = "INSERT INTO waiting (id, event_id, endpoint_no, tenant_no, \
    created_at, due, first_due, give_up_at, delay_ms, ordering, attempts, spent, status, trigger, kind, \
    type, granted, last) SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::bigint[], \
    $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::integer[], \
    $12::integer[], $13::smallint[], $14::smallint[], $15::smallint[], $16::text[], $17::text[], \
    $18::text[])";

impl NewWaitingRows {
    /// Adds a waiting delivery: `before` is its row before the change, or as it would have been, `after` its new
    /// state. Its last attempt failed with `kind`.
    pub(in crate::postgres) fn push(
        &mut self,
        before: DeliveryRow,
        after: &Delivery,
        kind: Option<FailureKind>,
    ) {
        let facts = after.facts();
        let (status, due, trigger) = stored_state(after);
        self.ids.push(Id(facts.id.0));
        self.events.push(Id(facts.event.0));
        self.endpoints.push(before.endpoint_no);
        self.tenants.push(before.tenant_no);
        self.created.push(ms(before.created_at));
        self.dues.push(due.expect("only what waits is added"));
        self.first_dues.push(ms(facts.due_at));
        self.give_ups.push(ms(facts.give_up_at));
        let delay = facts.previous_delay.map(|delay| delay.as_millis() as i64);
        self.delays.push(delay);
        self.orderings.push(facts.ordering.map(|key| key.0 as i64));
        self.attempts.push(facts.attempts as i32);
        self.spent.push(facts.spent as i32);
        self.statuses.push(status.code() as i16);
        self.triggers.push(trigger.code() as i16);
        self.kinds.push(kind.map(|kind| kind.code() as i16));
        self.types.push(before.event_type);
        self.granted.push(granted(facts));
        self.lasts.push(before.last);
    }

    fn params(&self) -> [&(dyn ToSql + Sync); 18] {
        [
            &self.ids,
            &self.events,
            &self.endpoints,
            &self.tenants,
            &self.created,
            &self.dues,
            &self.first_dues,
            &self.give_ups,
            &self.delays,
            &self.orderings,
            &self.attempts,
            &self.spent,
            &self.statuses,
            &self.triggers,
            &self.kinds,
            &self.types,
            &self.granted,
            &self.lasts,
        ]
    }

    /// Inserts the rows.
    pub(in crate::postgres) async fn insert(&self, conn: &PgConnection) -> Result<(), DbError> {
        if !self.ids.is_empty() {
            conn.execute(ADD_WAITING, &self.params()).await?;
        }
        Ok(())
    }
}
