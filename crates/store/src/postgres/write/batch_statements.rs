//! The statements that write the plan of a batch, in the order in which they are sent.
//!
//! [`BatchStatements`] turns a plan into one array parameter for each column, so that a statement writes all rows of
//! its table. They are sent in one pipeline; a statement without rows is left out.

use super::accept::{self, AcceptedRows};
use super::batch::BatchPlan;
use super::record::{self, RecordedRows};
use super::stats::{self, ChangeColumns};
use super::usage::{self, UsageColumns};
use super::write_context::{GUARD, WriteContext};
use super::{advances, count_changes, notifications, notify};
use crate::postgres::connection::{Params, PgConnection};
use crate::postgres::db_error::DbError;
use crate::postgres::pipeline::Pipeline;
use crate::postgres::schema::columns::Id;
use crate::postgres::schema::meta;

/// Raises a number in `meta`; never lowers it.
const RAISE: &str = "UPDATE meta SET value = $2 WHERE name = $1 AND value < $2";

/// Number of deliveries that one statement of a large accept inserts.
const ROWS_PER_PIECE: usize = 1_000;

/// The parameters of all statements of a batch. A statement without rows is left out.
pub(super) struct BatchStatements<'p> {
    context: &'p WriteContext,
    accepted: &'p AcceptedRows<'p>,
    recorded: &'p RecordedRows,
    /// Changes of the delivery counts, for [`count_changes::COUNT`].
    counted: Option<(Vec<i64>, Vec<i64>, Vec<i64>)>,
    /// Counters of the records, for [`stats::COUNT`].
    stats: Option<&'p ChangeColumns>,
    /// Events by month and tenant, for [`usage::COUNT`].
    used: Option<UsageColumns>,
    /// Rate meters, for [`usage::SET`].
    set: Option<(Vec<i64>, Vec<i64>)>,
    /// Endpoints of other nodes that have new work, and the statement that notifies their owners.
    notified: Option<(Vec<i16>, Vec<Id>, Vec<i64>)>,
    notify_sql: String,
    /// Numbers in `meta` that are raised.
    raised: Vec<(&'static str, i64)>,
}

impl<'p> BatchStatements<'p> {
    /// Turns a plan into parameters.
    pub(super) fn of(context: &'p WriteContext, plan: &'p BatchPlan<'p>) -> BatchStatements<'p> {
        let (skews, known) = (plan.accepted.clock_skews, context.clock_skews);
        let raised = [
            (meta::EVENT_CLOCK_SKEW, skews.0, known.0),
            (meta::DELIVERY_CLOCK_SKEW, skews.1, known.1),
        ];
        let raised = raised.into_iter().filter(|(_, skew, known)| skew > known);
        BatchStatements {
            accepted: &plan.accepted,
            recorded: &plan.recorded,
            counted: plan.count_changes.columns(),
            stats: plan.stats.as_ref(),
            used: plan.meters.to_count(),
            set: plan.meters.to_set(),
            notified: plan
                .accepted
                .work
                .columns(|endpoint| context.owned_shards.owns(endpoint)),
            notify_sql: notify::notify_sql(),
            raised: raised.map(|(name, skew, _)| (name, skew)).collect(),
            context,
        }
    }

    /// Returns the SQL of all statements, to prepare them.
    pub(super) fn sql(&self) -> Vec<&str> {
        let (accepted, recorded) = (self.accepted, self.recorded);
        let wanted = [
            (true, GUARD),
            (!accepted.keys.keys.is_empty(), accept::INSERT_KEYS),
            (!accepted.events.ids.is_empty(), accept::INSERT_EVENTS),
            (!accepted.waiting.ids.is_empty(), accept::INSERT_WAITING),
            (!accepted.advances.is_empty(), advances::ADVANCE),
            (self.notified.is_some(), self.notify_sql.as_str()),
            (!recorded.ended.ids.is_empty(), record::MOVE_ENDED),
            (!recorded.waiting.ids.is_empty(), record::UPDATE_WAITING),
            (!recorded.healths.is_empty(), record::WRITE_HEALTHS),
            (!recorded.failed.is_empty(), notifications::FAIL),
            (
                !recorded.notifications.is_empty(),
                notifications::NOTIFICATION,
            ),
            (self.counted.is_some(), count_changes::COUNT),
            (self.stats.is_some(), stats::COUNT),
            (self.used.is_some(), usage::COUNT),
            (self.set.is_some(), usage::SET),
            (!self.raised.is_empty(), RAISE),
        ];
        let wanted = wanted.into_iter().filter(|(wanted, _)| *wanted);
        wanted.map(|(_, sql)| sql).collect()
    }

    /// Inserts the rows of a large accept that no other transaction waits for, in pieces.
    pub(super) async fn insert_rows_in_pieces(&self, conn: &PgConnection) -> Result<(), DbError> {
        let slot = self.context.slot();
        accept::insert_events(conn, &self.accepted.events).await?;
        let rows = self.accepted.waiting.ids.len();
        for first in (0..rows).step_by(ROWS_PER_PIECE) {
            let piece = first..rows.min(first + ROWS_PER_PIECE);
            accept::insert_waiting_piece(conn, &self.accepted.waiting, piece).await?;
        }
        if let Some((endpoints, waiting, dead)) = &self.counted {
            let params: Params<'_> = &[endpoints, waiting, dead, &slot];
            conn.execute(count_changes::COUNT, params).await?;
        }
        Ok(())
    }

    /// Returns the SQL of the statements of [`write_last`](BatchStatements::write_last).
    pub(super) fn last_sql(&self) -> Vec<&str> {
        let wanted = [
            (true, GUARD),
            (!self.accepted.keys.keys.is_empty(), accept::INSERT_KEYS),
            (!self.accepted.advances.is_empty(), advances::ADVANCE),
            (self.used.is_some(), usage::COUNT),
            (self.notified.is_some(), self.notify_sql.as_str()),
            (self.set.is_some(), usage::SET),
            (!self.raised.is_empty(), RAISE),
        ];
        let wanted = wanted.into_iter().filter(|(wanted, _)| *wanted);
        wanted.map(|(_, sql)| sql).collect()
    }

    /// Adds the statements of a large accept that other transactions could wait for, and its usage: until then the
    /// usage is that of the other requests, with which it is compared.
    pub(super) fn write_last(&'p self, conn: &'p PgConnection, pipeline: &mut Pipeline<'p>) {
        if !self.accepted.keys.keys.is_empty() {
            pipeline.then(accept::insert_keys(conn, &self.accepted.keys));
        }
        if !self.accepted.advances.is_empty() {
            pipeline.then(advances::write(conn, &self.accepted.advances));
        }
        self.write_shared_effects(conn, pipeline);
    }

    /// Adds the statements for accepted events and recorded attempts.
    pub(super) fn write_rows(&'p self, conn: &'p PgConnection, pipeline: &mut Pipeline<'p>) {
        let (accepted, recorded) = (self.accepted, self.recorded);
        if !accepted.keys.keys.is_empty() {
            pipeline.then(accept::insert_keys(conn, &accepted.keys));
        }
        if !accepted.events.ids.is_empty() {
            pipeline.then(accept::insert_events(conn, &accepted.events));
        }
        if !accepted.waiting.ids.is_empty() {
            pipeline.then(accept::insert_waiting(conn, &accepted.waiting));
        }
        if !accepted.advances.is_empty() {
            pipeline.then(advances::write(conn, &accepted.advances));
        }
        if !recorded.ended.ids.is_empty() {
            pipeline.then(record::end(conn, &recorded.ended));
        }
        if !recorded.waiting.ids.is_empty() {
            pipeline.then(record::update_waiting(conn, &recorded.waiting));
        }
        if !recorded.healths.is_empty() {
            pipeline.then(record::remember(conn, &recorded.healths));
        }
        if !recorded.failed.is_empty() {
            pipeline.then(notifications::fail(conn, &recorded.failed));
        }
        if !recorded.notifications.is_empty() {
            pipeline.then(notifications::write_notifications(
                conn,
                &recorded.notifications,
            ));
        }
    }

    /// Adds the statements for counts, stats, usage, clock skews and notifications.
    pub(super) fn write_effects(&'p self, conn: &'p PgConnection, pipeline: &mut Pipeline<'p>) {
        let slot = self.context.slot();
        if let Some((endpoints, waiting, dead)) = &self.counted {
            pipeline.then(async move {
                let params: Params<'_> = &[endpoints, waiting, dead, &slot];
                conn.execute(count_changes::COUNT, params).await?;
                Ok(())
            });
        }
        if let Some(changes) = self.stats {
            pipeline.then(changes.add(conn, slot));
        }
        self.write_shared_effects(conn, pipeline);
    }

    /// Adds the statements for usage, meters, clock skews and notifications.
    fn write_shared_effects(&'p self, conn: &'p PgConnection, pipeline: &mut Pipeline<'p>) {
        let slot = self.context.slot();
        if let Some((months, tenants, events)) = &self.used {
            pipeline.then(async move {
                let params: Params<'_> = &[months, tenants, events, &slot];
                conn.execute(usage::COUNT, params).await?;
                Ok(())
            });
        }
        if let Some((tenants, arrivals)) = &self.set {
            pipeline.then(async move {
                conn.execute(usage::SET, &[tenants, arrivals]).await?;
                Ok(())
            });
        }
        for (name, skew) in &self.raised {
            pipeline.then(async move {
                conn.execute(RAISE, &[name, skew]).await?;
                Ok(())
            });
        }
        if let Some((shards, ids, dues)) = &self.notified {
            let me = self.context.owned_shards.me().0 as i64;
            pipeline.then(async move {
                let params: Params<'_> = &[shards, ids, dues, &me];
                conn.execute(&self.notify_sql, params).await?;
                Ok(())
            });
        }
    }
}
