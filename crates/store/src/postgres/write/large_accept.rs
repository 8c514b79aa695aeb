//! Accepts a request that makes many deliveries, in one transaction beside the other writers.
//!
//! The rows are inserted first, in pieces. The locks that others could wait for come last, shortly before the commit:
//! the meter of a limited tenant, the directory, the idempotency keys. What the plan assumed is checked under these
//! locks: the transaction is rolled back and planned again if the tenant's endpoints have changed, or refused if the
//! tenant has exceeded a limit in the meantime.

use tokio::time::Instant;

use super::accept;
use super::batch::{
    Batch, BatchPlan, MAX_OUTDATED, apply_accepted, guard, make_partitions, plan as plan_batch,
};
use super::batch_statements::BatchStatements;
use super::operation::AcceptOperation;
use super::usage::UsageMeters;
use super::writer::{MAX_TRIES, RETRY_TIMEOUT, Writer};
use crate::postgres::connection::{NotConnected, QUICK_ANSWER_TIMEOUT};
use crate::postgres::db_error::{DbError, ErrorKind};
use crate::postgres::pipeline::Pipeline;
use crate::{AcceptResult, HandedOver, StoreError};

/// The result of one try.
enum LargeTry {
    /// The request was committed or refused: the answer, and the deliveries to hand over.
    Answered(Vec<AcceptResult>, Vec<HandedOver>),
    /// The directory or the partitions have changed.
    Outdated,
}

impl Writer {
    /// Writes a request alone, and answers it. Fails if the database cannot be reached.
    pub(super) async fn write_large(
        &mut self,
        accepting: AcceptOperation,
    ) -> Result<(), NotConnected> {
        let mut batch = Batch::default();
        batch.accept(accepting);
        let until = Instant::now() + RETRY_TIMEOUT;
        let mut outdated = 0;
        for _ in 0..MAX_TRIES {
            if let Err(failed) = self.connect().await {
                batch.refuse(&failed.why);
                return Err(failed);
            }
            self.context.conn.set_time_limit(QUICK_ANSWER_TIMEOUT);
            let fault = match self.try_large(&batch, outdated >= MAX_OUTDATED).await {
                Ok(LargeTry::Answered(ingests, own)) => {
                    if !own.is_empty() {
                        self.hand_over.accepted(own);
                    }
                    batch.answer(ingests);
                    return Ok(());
                }
                Ok(LargeTry::Outdated) => {
                    outdated += 1;
                    self.context.routes.mark_stale();
                    None
                }
                Err(fault) => Some(fault),
            };
            match &fault {
                Some(fault) => self.roll_back(fault).await,
                None => self.roll_back_outdated().await,
            }
            if let Some(fault) = fault {
                match fault.kind() {
                    ErrorKind::Fenced | ErrorKind::Superseded if batch.is_advance() => {
                        batch.supersede(0);
                        batch.answer(vec![AcceptResult::Done(Vec::new())]);
                        return Ok(());
                    }
                    // Events alone claim no ownership.
                    ErrorKind::Lost
                    | ErrorKind::Refused
                    | ErrorKind::Fenced
                    | ErrorKind::Superseded => {
                        batch.refuse(&fault.into_store_error());
                        return Ok(());
                    }
                    ErrorKind::Outdated
                    | ErrorKind::Duplicate
                    | ErrorKind::Blocked
                    | ErrorKind::NoPartition
                    | ErrorKind::Unprepared => {}
                }
            }
            if Instant::now() >= until {
                break;
            }
        }
        let why = "lock timeout".to_owned();
        batch.refuse(&StoreError::Unavailable(why));
        Ok(())
    }

    /// Plans and writes the request. With `locks_first` the directory is locked before it is planned, so that the next
    /// change waits for it.
    async fn try_large(&mut self, batch: &Batch, locks_first: bool) -> Result<LargeTry, DbError> {
        let conn = self.context.conn.clone();
        let meters = if locks_first {
            conn.batch("BEGIN").await?;
            // Before the directory, so that a transaction that waits for a meter never blocks the one that holds it.
            let held = UsageMeters::hold(&conn, true, &self.context.routes, batch.accepts());
            let meters = held.await?;
            self.context.lock_directory_shared().await?;
            meters
        } else {
            if self.context.routes.is_stale() {
                self.context
                    .routes
                    .refresh(&conn, &self.context.settings)
                    .await?;
            }
            // Reads the usage without keeping the locks, so that a request over a limit inserts no rows.
            let held = UsageMeters::hold(&conn, false, &self.context.routes, batch.accepts());
            let meters = held.await?;
            if meters.is_some() {
                conn.batch("ROLLBACK").await?;
            }
            meters
        };
        let is_metered = meters.is_some();
        let tenant = batch.tenant().and_then(|id| self.context.tenant(id));
        let known = accept::look_up(&conn, &self.context.routes, batch.accepts()).await?;
        let meters = meters.unwrap_or_default();
        let mut plan = plan_batch(&mut self.context, batch, &Default::default(), known, meters);
        if plan.accepted.events.ids.is_empty() {
            if locks_first {
                conn.batch("ROLLBACK").await?;
            }
            let answers = std::mem::take(&mut plan.accepted.answers);
            return Ok(LargeTry::Answered(answers, Vec::new()));
        }
        if make_partitions(&mut self.context, &plan.accepted, locks_first).await? {
            return Ok(LargeTry::Outdated);
        }
        if !locks_first {
            conn.batch("BEGIN").await?;
        }
        BatchStatements::of(&self.context, &plan)
            .insert_rows_in_pieces(&conn)
            .await?;
        if !locks_first {
            if is_metered && let Some(over) = self.take_quota_again(batch, &mut plan).await? {
                conn.batch("ROLLBACK").await?;
                return Ok(LargeTry::Answered(vec![over], Vec::new()));
            }
            self.context.lock_directory_shared().await?;
            if batch.tenant().and_then(|id| self.context.tenant(id)) != tenant {
                return Ok(LargeTry::Outdated);
            }
        }
        commit(self, batch, &plan).await?;
        let mut accepted = plan.accepted;
        let answers = std::mem::take(&mut accepted.answers);
        let own = apply_accepted(&mut self.context, accepted);
        Ok(LargeTry::Answered(answers, own))
    }

    /// Locks the meter of the tenant until the commit and takes the events from its limits as they are now. Returns the
    /// limit that they exceed if they do not fit any more.
    async fn take_quota_again(
        &self,
        batch: &Batch,
        plan: &mut BatchPlan<'_>,
    ) -> Result<Option<AcceptResult>, DbError> {
        let (conn, routes) = (&self.context.conn, &self.context.routes);
        let held = UsageMeters::hold(conn, true, routes, batch.accepts()).await?;
        let (Some(mut meters), Some(accepting)) = (held, batch.accepts().first()) else {
            return Ok(None);
        };
        let events = &plan.accepted.events;
        let (tenant_no, count) = (events.tenants[0], events.ids.len() as u64);
        let taken = meters.take(tenant_no, accepting.now, accepting.quotas, count);
        plan.meters = meters;
        Ok(taken.err().map(AcceptResult::from))
    }

    /// Rolls back a transaction that was planned with an old directory.
    async fn roll_back_outdated(&mut self) {
        self.context.discard_effects();
        if self.context.conn.batch("ROLLBACK").await.is_err() {
            self.connector.drop_connection();
        }
    }
}

/// Writes what others could wait for, and commits, in one round trip.
async fn commit(writer: &Writer, batch: &Batch, plan: &BatchPlan<'_>) -> Result<(), DbError> {
    let conn = &*writer.context.conn;
    let statements = BatchStatements::of(&writer.context, plan);
    conn.prepare_all(&statements.last_sql()).await?;
    let mut pipeline = Pipeline::default();
    if batch.is_advance() {
        pipeline.then(guard(&writer.context, batch));
    }
    statements.write_last(conn, &mut pipeline);
    pipeline.then(conn.batch("COMMIT"));
    pipeline.await
}
