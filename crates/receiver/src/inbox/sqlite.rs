//! The inbox in SQLite.
//!
//! [`SqliteInbox`] marks a webhook in the transaction of the application. SQLite has one writer at a time: while another
//! transaction writes, which may process the same webhook, the answer is [`Begin::InProgress`].

use std::time::{Duration, SystemTime};

use rusqlite::{Connection, ErrorCode, Transaction, params};

use super::Begin;
use super::table::{DEFAULT_TABLE, TableName, TableNameError};

/// Remembers processed webhooks in a table of the application's SQLite database.
///
/// Begin the transaction with [`rusqlite::TransactionBehavior::Immediate`], so that it waits for other writers at its begin
/// (for as long as the connection's `busy_timeout`) and not in the middle.
///
/// ```
/// use std::time::SystemTime;
/// use posthaste_receiver::{Begin, Reply, SqliteInbox};
/// use rusqlite::{Connection, TransactionBehavior};
///
/// fn pay(database: &mut Connection, inbox: &SqliteInbox, id: &str, invoice: i64) -> rusqlite::Result<Reply> {
///     let transaction = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
///     match inbox.begin(&transaction, id, SystemTime::now())? {
///         Begin::New(()) => {
///             transaction.execute("UPDATE invoices SET paid = paid + 1 WHERE id = ?1", [invoice])?;
///             // The mark and the payment are committed together, or neither is.
///             transaction.commit()?;
///             Ok(Reply::processed())
///         }
///         Begin::Duplicate => Ok(Reply::duplicate()),
///         Begin::InProgress => Ok(Reply::in_progress()),
///     }
/// }
///
/// let mut database = Connection::open_in_memory()?;
/// database.execute_batch("CREATE TABLE invoices (id INTEGER, paid INTEGER); INSERT INTO invoices VALUES (7, 0)")?;
/// let inbox = SqliteInbox::new();
/// inbox.create_table(&database)?;
/// assert_eq!(pay(&mut database, &inbox, "dlv_1", 7)?, Reply::processed());
/// assert_eq!(pay(&mut database, &inbox, "dlv_1", 7)?, Reply::duplicate());
/// let paid: i64 = database.query_row("SELECT paid FROM invoices", [], |row| row.get(0))?;
/// assert_eq!(paid, 1);
/// # Ok::<(), rusqlite::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct SqliteInbox {
    table: TableName,
}

impl SqliteInbox {
    /// Uses the table `webhook_inbox`.
    pub fn new() -> SqliteInbox {
        SqliteInbox::in_table(DEFAULT_TABLE).expect("the default name is valid")
    }

    /// Uses another table: `table`, or `schema.table` for an attached database.
    pub fn in_table(name: &str) -> Result<SqliteInbox, TableNameError> {
        let table = TableName::parse(name)?;
        Ok(SqliteInbox { table })
    }

    /// Creates the table and its index if they do not exist.
    pub fn create_table(&self, database: &Connection) -> rusqlite::Result<()> {
        let (table, index) = (self.table.quoted(), self.table.index());
        let (schema, unqualified) = (self.table.prefix(), self.table.quoted_table());
        database.execute_batch(&format!(
            "CREATE TABLE IF NOT EXISTS {table} (
                 id TEXT NOT NULL PRIMARY KEY,
                 processed_at INTEGER NOT NULL -- milliseconds since 1970
             ) WITHOUT ROWID;
             CREATE INDEX IF NOT EXISTS {schema}{index} ON {unqualified} (processed_at);"
        ))
    }

    /// Marks a webhook as processed, in the transaction that also has its effect. Committing the transaction completes it,
    /// rolling back releases it.
    pub fn begin(
        &self,
        transaction: &Transaction<'_>,
        id: &str,
        now: SystemTime,
    ) -> rusqlite::Result<Begin> {
        let sql = format!(
            "INSERT INTO {} (id, processed_at) VALUES (?1, ?2) ON CONFLICT (id) DO NOTHING",
            self.table.quoted()
        );
        match transaction.execute(&sql, params![id, unix_ms(now)]) {
            Ok(0) => Ok(Begin::Duplicate),
            Ok(_) => Ok(Begin::New(())),
            Err(error) if is_locked(&error) => Ok(Begin::InProgress),
            Err(error) => Err(error),
        }
    }

    /// Deletes at most `limit` marks that are older than the retention period, the oldest first. Returns how many it has
    /// deleted. Keep marks for longer than the sender retries and replays.
    pub fn delete_expired(
        &self,
        database: &Connection,
        now: SystemTime,
        retention: Duration,
        limit: u32,
    ) -> rusqlite::Result<usize> {
        let table = self.table.quoted();
        let sql = format!(
            "DELETE FROM {table} WHERE id IN
                 (SELECT id FROM {table} WHERE processed_at < ?1 ORDER BY processed_at LIMIT ?2)"
        );
        let retention = i64::try_from(retention.as_millis()).unwrap_or(i64::MAX);
        let before = unix_ms(now).saturating_sub(retention);
        database.execute(&sql, params![before, limit])
    }
}

impl Default for SqliteInbox {
    fn default() -> SqliteInbox {
        SqliteInbox::new()
    }
}

/// Returns whether another connection writes at this moment.
fn is_locked(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    code == Some(ErrorCode::DatabaseBusy) || code == Some(ErrorCode::DatabaseLocked)
}

fn unix_ms(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    })
}
