//! Enqueues the operations and reads of a [`PostgresStore`].
//!
//! A write goes to the queue of its tenant's class, to that of internal operations, or to the background writer. A read
//! goes to the readers; one with several statements sees one snapshot. Dropping the store ends its thread.

use std::sync::PoisonError;

use posthaste_core::id::TenantId;

use super::PostgresStore;
use crate::Answer;
use crate::fair_queue::QueueClass;
use crate::postgres::connection::PgConnection;
use crate::postgres::db_error::DbError;
use crate::postgres::write::operation::Task;
use crate::postgres::write::write_context::WriteContext;
use crate::read_duration::ReadDuration;
use crate::reply::reply_channel;

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste_store::postgres::store";

impl PostgresStore {
    /// Enqueues an internal cold operation. It runs in its own transaction.
    pub(in crate::postgres) fn write<T, F>(&self, run: F) -> Answer<T>
    where
        T: Send + 'static,
        F: AsyncFnMut(&mut WriteContext) -> Result<T, DbError> + Send + 'static,
    {
        self.write_of(None, run)
    }

    /// Enqueues a cold operation of a tenant; without one, an internal operation.
    pub(super) fn write_of<'t, T, F>(
        &self,
        tenant: impl Into<Option<&'t TenantId>>,
        run: F,
    ) -> Answer<T>
    where
        T: Send + 'static,
        F: AsyncFnMut(&mut WriteContext) -> Result<T, DbError> + Send + 'static,
    {
        let (done, answer) = reply_channel();
        let class = QueueClass::of(tenant.into());
        self.shared.queue.push(class, Task::boxed(run, done));
        answer
    }

    /// Enqueues a long cold operation that no request waits for. It runs beside all other writes.
    pub(super) fn write_in_background<T, F>(&self, run: F) -> Answer<T>
    where
        T: Send + 'static,
        F: AsyncFnMut(&mut WriteContext) -> Result<T, DbError> + Send + 'static,
    {
        let (done, answer) = reply_channel();
        let operation = Task::boxed(run, done);
        self.shared.background.push(QueueClass::Internal, operation);
        answer
    }

    /// Reads with a single statement.
    pub(super) fn read<T, F>(&self, duration: ReadDuration, read: F) -> Answer<T>
    where
        T: Send + 'static,
        F: AsyncFn(&PgConnection) -> Result<T, DbError> + Send + 'static,
    {
        let (done, answer) = reply_channel();
        self.shared.readers.read(duration, false, read, done);
        answer
    }

    /// Reads with several statements that see one snapshot, so a row that moves from one table to another in between
    /// is neither missed nor returned twice.
    pub(super) fn read_whole<T, F>(&self, duration: ReadDuration, read: F) -> Answer<T>
    where
        T: Send + 'static,
        F: AsyncFn(&PgConnection) -> Result<T, DbError> + Send + 'static,
    {
        let (done, answer) = reply_channel();
        self.shared.readers.read(duration, true, read, done);
        answer
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.shared.close_queues();
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!(target: LOG_TARGET, "the store thread panicked");
        }
    }
}
