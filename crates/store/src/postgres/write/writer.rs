//! The writer task. A node runs one for each [`WriterRole`].
//!
//! The writer takes operations from its queue in their turns. It commits hot operations together, in one transaction and
//! one round trip, and each cold operation in its own transaction. A batch ends when nothing waits any more or when it
//! is large enough ([`BatchWeight`]), so that no operation waits long for those before it. There is no timer: the next
//! operations collect while a commit runs. After the commit the writer hands over the accepted deliveries and answers
//! the callers.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::batch::Batch;
use super::batch_weight::{AcceptCost, BatchWeight, ROWS_PER_RECORD, rows_in};
use super::operation::{ColdOperation, Operation};
use super::write_context::WriteContext;
use super::write_queue::WriteQueue;
use super::writer_role::WriterRole;
use crate::HandOver;
use crate::fair_queue::DequeuedItem;
use crate::postgres::connection::{
    COLD_WRITE_TIMEOUT, Connector, NotConnected, QUICK_ANSWER_TIMEOUT,
};
use crate::postgres::db_error::{DbError, ErrorKind};

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste_store::postgres::writer";

/// Maximum number of tries of one operation or batch.
pub(in crate::postgres) const MAX_TRIES: usize = 10;
/// Number of tries of a change that finds the directory changed, however long they take: on a slow link one try may take
/// longer than [`RETRY_TIMEOUT`].
const MIN_OUTDATED_TRIES: usize = 3;
/// Maximum time for the retries of one operation, because all others wait behind it.
pub(super) const RETRY_TIMEOUT: Duration = Duration::from_secs(5);

/// A writer task.
pub(in crate::postgres) struct Writer {
    pub(in crate::postgres) queue: Arc<WriteQueue>,
    /// The queue that large accepts are passed on to.
    pub(in crate::postgres) large_accepts: Arc<WriteQueue>,
    pub(in crate::postgres) connector: Connector,
    pub(in crate::postgres) context: WriteContext,
    pub(in crate::postgres) hand_over: Arc<dyn HandOver>,
    /// Number of batches that still look up idempotency keys before inserting them.
    pub(in crate::postgres) key_lookups: u32,
}

impl Writer {
    /// Writes until the queue is closed and empty.
    pub(in crate::postgres) async fn work(&mut self) {
        while self.queue.wait().await {
            let written = match self.queue.next() {
                None => Ok(()),
                Some(DequeuedItem {
                    class,
                    item: Operation::Accept(accepting),
                    ..
                }) if self.context.role == WriterRole::Large => {
                    let began = Instant::now();
                    let written = self.write_large(accepting).await;
                    self.queue.charge(&class, rows_in(began.elapsed()));
                    written
                }
                Some(first) => self.write_from(first).await,
            };
            if let Err(NotConnected { tried_at, why }) = written {
                self.queue.refuse_older(tried_at, &why);
            }
        }
    }

    /// Writes a batch that begins with this operation, or the operation alone if it is cold. If the database cannot be
    /// reached, one attempt to connect answers everything that was queued before it.
    async fn write_from(&mut self, first: DequeuedItem<Operation>) -> Result<(), NotConnected> {
        if matches!(first.item, Operation::Accept(_)) {
            self.refresh_routes().await;
        }
        let mut next = Some(first);
        let mut batch = Batch::default();
        let mut weight = BatchWeight::default();
        while let Some(popped) = next {
            let DequeuedItem { class, since, item } = popped;
            match item {
                Operation::Accept(accepting) => {
                    if batch.advances_already(&accepting) {
                        let item = Operation::Accept(accepting);
                        self.queue.put_back(DequeuedItem { class, since, item });
                        break;
                    }
                    let cost = AcceptCost::of(&self.context.routes, &accepting);
                    let most = self.context.settings.max_deliveries_per_request;
                    if self.context.role.passes_large_accepts_on()
                        && cost.is_large(&accepting, most)
                    {
                        self.large_accepts.push(class, Operation::Accept(accepting));
                    } else {
                        let rows = cost.rows(most);
                        if !batch.is_empty() && weight.exceeds(rows, accepting.bytes) {
                            let item = Operation::Accept(accepting);
                            self.queue.put_back(DequeuedItem { class, since, item });
                            break;
                        }
                        self.queue.charge(&class, rows.saturating_sub(1));
                        weight.add(rows, accepting.bytes);
                        batch.accept(accepting);
                    }
                }
                Operation::Record(recording) => {
                    if batch.records_already(&recording)
                        && let Err(failed) = self.write_batch(std::mem::take(&mut batch)).await
                    {
                        recording.reply.send(Err(failed.why.clone()));
                        return Err(failed);
                    }
                    self.queue.charge(&class, ROWS_PER_RECORD - 1);
                    weight.add(ROWS_PER_RECORD, 0);
                    batch.record(*recording);
                }
                Operation::Cold(cold) => {
                    if let Err(failed) = self.write_batch(batch).await {
                        cold.answer(Err(failed.why.clone()));
                        return Err(failed);
                    }
                    let began = Instant::now();
                    let written = self.write_cold(cold).await;
                    self.queue.charge(&class, rows_in(began.elapsed()));
                    return written;
                }
                Operation::Barrier(pass) => {
                    let written = self.write_batch(batch).await;
                    pass();
                    return written;
                }
            }
            if weight.is_full() {
                break;
            }
            next = self.queue.next();
        }
        self.write_batch(batch).await
    }

    /// Brings the routing table up to date, so that the size of accepts can be judged. A failure is left to the batch,
    /// which does the same.
    async fn refresh_routes(&mut self) {
        if !self.context.routes.is_stale() || self.connect().await.is_err() {
            return;
        }
        let conn = self.context.conn.clone();
        conn.set_time_limit(QUICK_ANSWER_TIMEOUT);
        let refreshed = self.context.routes.refresh(&conn, &self.context.settings);
        if let Err(fault) = refreshed.await {
            self.roll_back(&fault).await;
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
    async fn write_cold(&mut self, mut cold: Box<dyn ColdOperation>) -> Result<(), NotConnected> {
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
                ErrorKind::Outdated if tried < MIN_OUTDATED_TRIES => {}
                ErrorKind::Blocked
                | ErrorKind::Outdated
                | ErrorKind::Duplicate
                | ErrorKind::NoPartition
                | ErrorKind::Superseded
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
            tracing::warn!(target: LOG_TARGET, %fault, "lost the connection to PostgreSQL");
            self.connector.drop_connection();
        }
    }
}

/// Runs a cold operation in one transaction.
async fn commit_cold(
    context: &mut WriteContext,
    cold: &mut dyn ColdOperation,
) -> Result<(), DbError> {
    context.begin().await;
    cold.run(context).await?;
    context.commit().await
}
