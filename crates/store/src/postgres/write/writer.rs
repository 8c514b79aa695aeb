//! The writer task. A node runs two: one for the events of limited tenants, which may have to wait for other nodes, and
//! one for all other operations.
//!
//! The writer takes everything that is in its queue and commits it in order: consecutive hot operations in one
//! transaction and one round trip, each cold operation in its own transaction. There is no timer: the next group
//! collects while a commit runs. After the commit the writer hands over the accepted deliveries and answers the
//! callers.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::batch::Batch;
use super::operation::{Cold, Operation};
use super::write_context::WriteContext;
use super::write_queue::WriteQueue;
use crate::HandOver;
use crate::postgres::connection::{COLD_WRITE_TIMEOUT, Connector, NotConnected};
use crate::postgres::db_error::{DbError, ErrorKind};

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste_store::postgres::writer";

/// Maximum number of tries of one operation or batch.
pub(in crate::postgres) const MAX_TRIES: usize = 10;
/// No more retries after this time, because all other operations wait behind this one.
pub(super) const RETRY_TIMEOUT: Duration = Duration::from_secs(5);

/// A writer task.
pub(in crate::postgres) struct Writer {
    pub(in crate::postgres) queue: Arc<WriteQueue>,
    pub(in crate::postgres) connector: Connector,
    pub(in crate::postgres) context: WriteContext,
    pub(in crate::postgres) hand_over: Arc<dyn HandOver>,
    /// Number of batches that still look up idempotency keys before inserting them.
    pub(in crate::postgres) key_lookups: u32,
}

impl Writer {
    /// Writes until the queue is closed and empty.
    pub(in crate::postgres) async fn work(&mut self) {
        while let Some(group) = self.queue.take().await {
            self.write_group(group).await;
        }
    }

    /// Writes operations that were queued together, in their order. If the database cannot be reached, one attempt to
    /// connect answers all of them, and everything that was queued before it.
    async fn write_group(&mut self, group: Vec<Operation>) {
        let mut rest = group.into_iter();
        let mut batch = Batch::default();
        let failed = loop {
            let Some(operation) = rest.next() else {
                break self.write_batch(std::mem::take(&mut batch)).await.err();
            };
            let written = match operation {
                Operation::Accept(accepting) => {
                    batch.accept(accepting);
                    Ok(())
                }
                Operation::Record(recording) if !batch.records_already(&recording) => {
                    batch.record(*recording);
                    Ok(())
                }
                Operation::Record(recording) => {
                    let written = self.write_batch(std::mem::take(&mut batch)).await;
                    batch.record(*recording);
                    written
                }
                Operation::Cold(cold) => match self.write_batch(std::mem::take(&mut batch)).await {
                    Ok(()) => self.write_cold(cold).await,
                    Err(failed) => {
                        cold.answer(Err(failed.why.clone()));
                        Err(failed)
                    }
                },
            };
            if let Err(failed) = written {
                break Some(failed);
            }
        };
        if let Some(NotConnected { tried_at, why }) = failed {
            batch.refuse(&why);
            for operation in rest {
                operation.refuse(why.clone());
            }
            self.queue.refuse_older(tried_at, &why);
        }
    }

    /// Makes sure that there is a connection that is not known to be broken.
    pub(in crate::postgres) async fn connect(&mut self) -> Result<(), NotConnected> {
        let conn = self.connector.conn().await?;
        if !std::rc::Rc::ptr_eq(&conn, &self.context.conn) {
            self.context.conn = conn;
            self.context.reset_caches();
        }
        Ok(())
    }

    /// Runs an operation in its own transaction, and answers it. Fails if the database cannot be reached.
    async fn write_cold(&mut self, mut cold: Box<dyn Cold>) -> Result<(), NotConnected> {
        let until = Instant::now() + RETRY_TIMEOUT;
        for tried in 1..=MAX_TRIES {
            if let Err(failed) = self.connect().await {
                cold.answer(Err(failed.why.clone()));
                return Err(failed);
            }
            self.context.conn.set_time_limit(COLD_WRITE_TIMEOUT);
            let fault = match commit_cold(&mut self.context, &mut *cold).await {
                Ok(()) => {
                    self.context.apply_effects();
                    cold.answer(Ok(()));
                    return Ok(());
                }
                Err(fault) => fault,
            };
            self.roll_back(&fault).await;
            match fault.kind() {
                ErrorKind::Fenced => {
                    self.context.owned_shards.report_fenced();
                    let answer = match cold.fenced() {
                        true => Ok(()),
                        false => Err(fault.into_store_error()),
                    };
                    cold.answer(answer);
                    return Ok(());
                }
                ErrorKind::Blocked
                | ErrorKind::Outdated
                | ErrorKind::Duplicate
                | ErrorKind::NoPartition
                | ErrorKind::Unprepared
                    if tried < MAX_TRIES && Instant::now() < until => {}
                ErrorKind::Blocked
                | ErrorKind::Outdated
                | ErrorKind::Duplicate
                | ErrorKind::NoPartition
                | ErrorKind::Unprepared
                | ErrorKind::Superseded
                | ErrorKind::Lost
                | ErrorKind::Refused => {
                    cold.answer(Err(fault.into_store_error()));
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Rolls back a failed transaction, and drops the connection if it is unusable.
    pub(super) async fn roll_back(&mut self, fault: &DbError) {
        self.context.discard_effects();
        let kind = fault.kind();
        if kind == ErrorKind::NoPartition {
            self.context.partitions.forget();
        }
        let unfit = matches!(kind, ErrorKind::Lost | ErrorKind::Unprepared);
        let lost = unfit || self.context.conn.batch("ROLLBACK").await.is_err();
        if lost {
            tracing::warn!(target: LOG_TARGET, %fault, "the connection to the database is lost");
            self.connector.drop_connection();
        }
    }
}

/// Runs a cold operation in one transaction.
async fn commit_cold(context: &mut WriteContext, cold: &mut dyn Cold) -> Result<(), DbError> {
    context.conn.batch("BEGIN").await?;
    cold.run(context).await?;
    context.write_effects().await?;
    context.conn.batch("COMMIT").await
}
