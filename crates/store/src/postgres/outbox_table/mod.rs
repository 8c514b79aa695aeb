//! The outbox of an application: a table in the application's own PostgreSQL database.
//!
//! [`OutboxTable`] is a connection to it. [`begin`](OutboxTable::begin) locks a batch of waiting rows,
//! [`finish`](OutboxTable::finish) removes the accepted ones, notes the errors of the others and commits. Between the two
//! the rows are stored as events. If anything fails in between, the transaction is rolled back and the rows are read
//! again.
//!
//! - **One reader.** Each batch holds an advisory lock of the application's database until its transaction ends. So even
//!   two readers that both believe to be the only one never accept rows at the same time.
//! - **No waiting.** Rows that other transactions have locked are skipped (`FOR UPDATE SKIP LOCKED`).
//! - **Bounded.** A batch has a maximum number of rows and of payload bytes. A payload or another text above its limit is
//!   not transferred.

mod check;
mod row;
mod sql;
mod table_name;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use posthaste_core::outbox::SkippedKeys;
use posthaste_core::time::{Span, Tick};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::connection::{ANSWER_TIMEOUT, PgConnection, connect, drive_with_notifications};
use super::db_error::DbError;
use super::{Dial, PostgresSettings, ServerUrl};

pub use check::{CheckState, OutboxCheck, check};
pub use row::OutboxRow;
pub use sql::setup_sql;
pub use table_name::{DEFAULT_TABLE, TableName, TableNameError};

use sql::Statements;

/// Channel on which the trigger of an outbox table notifies. Applications have the trigger in their databases, so the
/// name never changes.
const CHANNEL: &str = "posthaste_outbox";
/// Maximum number of ordering keys of skipped rows that are read.
const MAX_SKIPPED_KEYS: i64 = 1_000;
/// Time limit for closing a transaction whose rows are not needed.
const ROLLBACK_TIMEOUT: Duration = Duration::from_secs(2);

/// The location of an outbox table.
#[derive(Clone)]
pub struct OutboxSource {
    /// The application's database.
    pub server: ServerUrl,
    /// Opens connections to it.
    pub dial: Arc<dyn Dial>,
    /// The table.
    pub table: TableName,
    /// True if accepted rows are kept and marked. False if they are deleted.
    pub keep: bool,
}

impl fmt::Debug for OutboxSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("OutboxSource")
            .field("server", &self.server)
            .field("table", &self.table)
            .field("keep", &self.keep)
            .finish_non_exhaustive()
    }
}

/// The outbox table cannot be used now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OutboxError(String);

impl From<DbError> for OutboxError {
    fn from(fault: DbError) -> OutboxError {
        OutboxError(fault.to_string())
    }
}

/// The rows to read.
#[derive(Clone, Debug)]
pub struct BatchRequest {
    /// Only rows with a greater id.
    pub after: i64,
    /// No rows of these tenants.
    pub without_tenants: Vec<String>,
    /// Maximum number of rows.
    pub max_rows: i64,
    /// Maximum size of all payloads together. A single row may have more.
    pub max_bytes: i64,
    /// Size above which a payload is not transferred.
    pub max_payload_bytes: i64,
}

/// Locked rows. The transaction stays open until they are finished.
#[derive(Debug)]
pub struct OutboxBatch {
    /// The rows, in the order of their ids.
    pub rows: Vec<OutboxRow>,
    /// Ordering keys that earlier rows, which could not be locked, have.
    pub skipped: SkippedKeys,
    /// Time since the oldest row that could be read was created, by the clock of the database. Absent if the batch is
    /// empty.
    pub oldest_age: Option<Span>,
}

/// The answer to a request for rows.
#[derive(Debug)]
pub enum BeginResult {
    /// The rows are locked.
    Locked(OutboxBatch),
    /// Another reader has locked the outbox. No transaction is open.
    OtherReader,
}

/// The outcome of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowOutcome {
    /// It is stored as the event with this id.
    Accepted(String),
    /// It cannot be accepted, for this reason.
    Refused(String),
}

/// A connection to an outbox table.
pub struct OutboxTable {
    conn: PgConnection,
    driver: AbortHandle,
    statements: Statements,
    /// Signalled when rows were committed, and when the connection is lost.
    notified: Arc<Notify>,
}

impl Drop for OutboxTable {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl OutboxTable {
    /// Connects, finds the table, and listens for new rows.
    pub async fn open(source: &OutboxSource) -> Result<OutboxTable, OutboxError> {
        let clock = Arc::new(Tick::default);
        let settings = PostgresSettings::new(source.server.clone(), source.dial.clone(), clock);
        let connected = connect(&settings, &source.server).await;
        let (conn, driver) = connected.map_err(|why| OutboxError(why.to_string()))?;
        conn.set_time_limit(ANSWER_TIMEOUT);
        let notified = Arc::new(Notify::new());
        // The name is known only when the driver runs, because a statement asks for it.
        let own_name = Arc::new(OnceLock::<String>::new());
        let (name, wake) = (own_name.clone(), notified.clone());
        let driver = tokio::spawn(async move {
            let receive = |payload: &str| {
                if name.get().is_none_or(|name| name == payload) {
                    wake.notify_one();
                }
            };
            drive_with_notifications(driver, receive).await;
            wake.notify_one();
        });
        let table = OutboxTable {
            conn,
            driver: driver.abort_handle(),
            statements: Statements::new(&source.table, source.keep),
            notified,
        };
        let found = table.find(&source.table).await?;
        own_name.get_or_init(|| found);
        Ok(table)
    }

    /// Finds the table, prepares the statements, and listens. Returns the name that the trigger sends.
    async fn find(&self, table: &TableName) -> Result<String, OutboxError> {
        let row = self
            .conn
            .query_opt(sql::FIND_TABLE, &[&table.quoted()])
            .await?;
        let Some(row) = row else {
            return Err(OutboxError(format!(
                "there is no table {table}: create it with `posthaste outbox sql`"
            )));
        };
        self.conn.prepare_all(&self.statements.all()).await?;
        self.conn.batch(&format!("LISTEN {CHANNEL}")).await?;
        Ok(row.get(0))
    }

    /// Waits until rows were committed, or the connection is lost.
    pub async fn notified(&self) {
        self.notified.notified().await;
    }

    /// Begins a transaction and locks rows in it.
    pub async fn begin(&self, request: &BatchRequest) -> Result<BeginResult, OutboxError> {
        let conn = &self.conn;
        let rows = [
            &request.after as &(dyn tokio_postgres::types::ToSql + Sync),
            &request.without_tenants,
            &request.max_rows,
            &request.max_bytes,
            &request.max_payload_bytes,
        ];
        // All three are sent before the first is answered. Each sees what was committed before it, so the rows are read
        // after the lock was taken.
        let (began, locked, rows) = tokio::join! {
            biased;
            conn.batch("BEGIN ISOLATION LEVEL READ COMMITTED"),
            conn.query_one(&self.statements.lock, &[]),
            conn.query(&self.statements.read, &rows),
        };
        began?;
        let is_locked: bool = locked?.get(0);
        let rows = rows?;
        if !is_locked {
            self.roll_back().await?;
            return Ok(BeginResult::OtherReader);
        }
        let oldest_age = rows.first().map(row::age);
        let rows: Vec<OutboxRow> = rows.into_iter().map(OutboxRow::read).collect();
        let skipped = self.skipped_keys(request, &rows).await?;
        Ok(BeginResult::Locked(OutboxBatch {
            rows,
            skipped,
            oldest_age,
        }))
    }

    /// Reads the ordering keys of the rows before the end of the batch that are not in it.
    async fn skipped_keys(
        &self,
        request: &BatchRequest,
        rows: &[OutboxRow],
    ) -> Result<SkippedKeys, OutboxError> {
        let Some(last) = rows.iter().rfind(|row| row.has_ordering_key()) else {
            return Ok(SkippedKeys::none());
        };
        let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
        let found = self
            .conn
            .query(
                &self.statements.skipped,
                &[
                    &request.after,
                    &last.id,
                    &ids,
                    &request.without_tenants,
                    &MAX_SKIPPED_KEYS,
                ],
            )
            .await?;
        let keys = found.iter().filter_map(row::ordering_key);
        let keys: Vec<(String, String)> = keys.collect();
        // Of a key that is not UTF-8 it is unknown which rows have it.
        let is_complete = keys.len() == found.len() && found.len() < MAX_SKIPPED_KEYS as usize;
        Ok(SkippedKeys::of(keys, is_complete))
    }

    /// Removes or marks the accepted rows, notes the errors of the refused ones, and commits. Rows that are not listed
    /// stay as they are.
    pub async fn finish(&self, outcomes: &[(i64, RowOutcome)]) -> Result<(), OutboxError> {
        let (mut accepted, mut events) = (Vec::new(), Vec::new());
        let (mut refused, mut errors) = (Vec::new(), Vec::new());
        for (id, outcome) in outcomes {
            match outcome {
                RowOutcome::Accepted(event) => {
                    accepted.push(*id);
                    events.push(event.as_str());
                }
                RowOutcome::Refused(error) => {
                    refused.push(*id);
                    errors.push(error.as_str());
                }
            }
        }
        let conn = &self.conn;
        let statements = &self.statements;
        let (accept, refuse, committed) = tokio::join! {
            biased;
            async {
                match (accepted.is_empty(), statements.keep) {
                    (true, _) => Ok(0),
                    (false, true) => conn.execute(&statements.accept, &[&accepted, &events]).await,
                    (false, false) => conn.execute(&statements.accept, &[&accepted]).await,
                }
            },
            async {
                match refused.is_empty() {
                    true => Ok(0),
                    false => conn.execute(&statements.refuse, &[&refused, &errors]).await,
                }
            },
            conn.batch("COMMIT"),
        };
        let changed = (accept?, refuse?);
        committed?;
        // A rule, a trigger or row-level security kept the table as it was: the same rows would come again and again.
        let expected = (accepted.len() as u64, refused.len() as u64);
        if changed != expected {
            return Err(OutboxError(format!(
                "{} of {} rows were changed: a rule, a trigger or row-level security prevents other changes",
                changed.0 + changed.1,
                expected.0 + expected.1
            )));
        }
        Ok(())
    }

    /// Ends the transaction without a change.
    pub async fn roll_back(&self) -> Result<(), OutboxError> {
        let usual = self.conn.replace_time_limit(Some(ROLLBACK_TIMEOUT));
        let ended = self.conn.batch("ROLLBACK").await;
        self.conn.replace_time_limit(usual);
        Ok(ended?)
    }

    /// Returns the age of the oldest row that waits, of any tenant.
    pub async fn oldest_age(&self) -> Result<Option<Span>, OutboxError> {
        let row = self.conn.query_opt(&self.statements.oldest, &[]).await?;
        Ok(row.as_ref().map(row::age))
    }
}
