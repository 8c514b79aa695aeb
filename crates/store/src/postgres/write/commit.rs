//! Begins and commits the transaction of a cold operation.
//!
//! The last writes of an operation, its side effects and the commit go to the server in one pipeline. Locks that other
//! nodes may wait for are taken there, so they are held for no round trip.
//!
//! An operation that changes the directory calls [`WriteContext::plan_directory_change`]. On a quick link that locks the
//! directory, so concurrent changes take turns. On a slow link the operation reads without a lock,
//! and the pipeline locks the directory and checks that it has not changed since; if it has, the operation runs again.
//! An operation whose writes check the few rows that it relies on calls [`WriteContext::lock_directory_last`] instead. So
//! changes of other tenants do not make it run again.

use std::future::{poll_fn, ready};
use std::rc::Rc;
use std::task::Poll;

use super::changelog;
use super::count_changes;
use super::notify;
use super::stats::{self, ChangeColumns};
use super::write_context::{LOCK_DIRECTORY, WriteContext};
use crate::postgres::connection::PgConnection;
use crate::postgres::db_error::DbError;
use crate::postgres::pipeline::{Pipeline, Step};
use crate::postgres::schema::lock;

/// Locks the directory exclusively, and checks that its last change is the one that this node knows.
const CHECK_DIRECTORY: &str = "SELECT check_directory($1, $2)";

/// Statements that an operation sends with its commit.
#[derive(Default)]
pub(in crate::postgres) struct LastStatements {
    writes: Vec<(&'static str, Step<'static>)>,
    /// The last change of the directory that the operation relies on, if the directory is checked with the commit.
    pub(super) directory: Option<i64>,
    /// The answer to the `BEGIN` that was sent before the first statement. `None` if the transaction begins with the
    /// pipeline.
    begun: Option<Step<'static>>,
}

impl LastStatements {
    /// Drops all statements, after a rollback.
    pub(super) fn clear(&mut self) {
        self.writes.clear();
        self.directory = None;
        self.begun = None;
    }
}

impl WriteContext {
    /// Begins a transaction. Sends the statement without waiting for its answer, which the commit checks: if there is
    /// no transaction, the connection is lost, and the next statement fails.
    pub(super) async fn begin(&mut self) {
        self.last.clear();
        let conn = self.conn.clone();
        let mut begun: Step<'static> = Box::pin(async move { conn.batch("BEGIN").await });
        // The first poll sends it.
        let answered = poll_fn(|context| Poll::Ready(begun.as_mut().poll(context))).await;
        self.last.begun = Some(match answered {
            Poll::Pending => begun,
            Poll::Ready(result) => Box::pin(ready(result)),
        });
    }

    /// Makes the directory ready for a change: locks it, or on a slow link remembers its state, which the commit checks.
    /// After this the operation may read, and must write with [`WriteContext::write_last`] only.
    pub(in crate::postgres) async fn plan_directory_change(&mut self) -> Result<(), DbError> {
        if !self.round_trips.is_slow() {
            return self.lock_directory().await;
        }
        // Without a transaction, so that no lock outlives its statement.
        let conn = self.conn.clone();
        let mut pipeline = Pipeline::default();
        if let Some(begun) = self.last.begun.take() {
            pipeline.then(begun);
        }
        pipeline.then(conn.batch("ROLLBACK"));
        pipeline.then(self.routes.refresh(&conn, &self.settings));
        pipeline.await?;
        self.last.directory = Some(self.routes.known());
        Ok(())
    }

    /// Locks the directory exclusively with the commit. What the operation has read may have changed until then, so each
    /// write that is registered after this must check what it relies on (`demand`); otherwise the operation runs again.
    pub(in crate::postgres) fn lock_directory_last(&mut self) {
        self.write_last(LOCK_DIRECTORY, |conn| async move {
            conn.execute(LOCK_DIRECTORY, &[&lock::DIRECTORY]).await?;
            Ok(())
        });
    }

    /// Registers a statement that is sent with the commit, after those registered before.
    pub(in crate::postgres) fn write_last<F>(
        &mut self,
        sql: &'static str,
        write: impl FnOnce(Rc<PgConnection>) -> F,
    ) where
        F: Future<Output = Result<(), DbError>> + 'static,
    {
        let step = Box::pin(write(self.conn.clone()));
        self.last.writes.push((sql, step));
    }

    /// Sends the last statements, the side effects and the commit.
    pub(super) async fn commit(&mut self) -> Result<(), DbError> {
        let conn = self.conn.clone();
        let writes = std::mem::take(&mut self.last.writes);
        let counted = self.effects.count_changes.columns();
        let added = ChangeColumns::of(std::mem::take(&mut self.effects.stats));
        let changes = std::mem::take(&mut self.effects.changes);
        let owned_shards = self.owned_shards.clone();
        let notified = self.effects.work.columns(|it| owned_shards.owns(it));
        let (slot, me) = (self.slot(), owned_shards.me().0 as i64);
        let notify_sql = notify::notify_sql();
        let mut statements: Vec<&str> = writes.iter().map(|(sql, _)| *sql).collect();
        let effects = [
            (self.last.directory.is_some(), CHECK_DIRECTORY),
            (counted.is_some(), count_changes::COUNT),
            (added.is_some(), stats::COUNT),
            (!changes.is_empty(), changelog::APPEND),
            (!changes.is_empty(), changelog::NOTIFY),
            (notified.is_some(), &notify_sql),
        ];
        statements.extend(effects.iter().filter(|(sent, _)| *sent).map(|(_, sql)| sql));
        // Preparing a statement needs a round trip, so all statements are prepared before the pipeline starts.
        conn.prepare_all(&statements).await?;
        let mut pipeline = Pipeline::default();
        match self.last.begun.take() {
            Some(begun) => pipeline.then(begun),
            None => pipeline.then(conn.batch("BEGIN")),
        }
        if let Some(known) = self.last.directory {
            let conn = &conn;
            pipeline.then(async move {
                conn.execute(CHECK_DIRECTORY, &[&lock::DIRECTORY, &known])
                    .await?;
                Ok(())
            });
        }
        for (_, write) in writes {
            pipeline.then(write);
        }
        if let Some((endpoints, waiting, dead)) = &counted {
            let conn = &conn;
            pipeline.then(async move {
                conn.execute(count_changes::COUNT, &[endpoints, waiting, dead, &slot])
                    .await?;
                Ok(())
            });
        }
        if let Some(added) = &added {
            pipeline.then(added.add(&conn, slot));
        }
        if !changes.is_empty() {
            changelog::append(&conn, &changes, &mut pipeline);
        }
        if let Some((shards, ids, dues)) = &notified {
            let (conn, sql) = (&conn, &notify_sql);
            pipeline.then(async move {
                conn.execute(sql, &[shards, ids, dues, &me]).await?;
                Ok(())
            });
        }
        pipeline.then(conn.batch("COMMIT"));
        let committed = pipeline.await;
        self.effects.changes = changes;
        committed
    }
}
