//! The inbox in PostgreSQL.
//!
//! [`PostgresInbox`] marks a webhook in the transaction of the application. A transaction that processes a webhook holds an
//! advisory lock on its id until it ends, so that a second one does not wait for it: it learns [`Begin::InProgress`].

use std::time::{Duration, SystemTime};

use tokio_postgres::{Error, GenericClient, Transaction};

use super::Begin;
use super::table::{DEFAULT_TABLE, TableName, TableNameError};

/// Remembers processed webhooks in a table of the application's PostgreSQL database.
///
/// Begin the transaction with the default isolation, `READ COMMITTED`. With a stricter one, a duplicate can end in a
/// serialization failure; answer that with 503, and the next attempt is recognised.
///
/// ```
/// use std::time::SystemTime;
/// use posthaste_receiver::{Begin, PostgresInbox, Reply};
/// use tokio_postgres::{Client, Error};
///
/// async fn pay(database: &mut Client, inbox: &PostgresInbox, id: &str, invoice: i64) -> Result<Reply, Error> {
///     let transaction = database.transaction().await?;
///     match inbox.begin(&transaction, id, SystemTime::now()).await? {
///         Begin::New(()) => {
///             transaction.execute("UPDATE invoices SET paid = true WHERE id = $1", &[&invoice]).await?;
///             // The mark and the payment are committed together, or neither is.
///             transaction.commit().await?;
///             Ok(Reply::processed())
///         }
///         Begin::Duplicate => Ok(Reply::duplicate()),
///         Begin::InProgress => Ok(Reply::in_progress()),
///     }
/// }
/// ```
#[derive(Debug, Clone)]
pub struct PostgresInbox {
    table: TableName,
}

impl PostgresInbox {
    /// Uses the table `webhook_inbox`, in the first schema of the search path.
    pub fn new() -> PostgresInbox {
        PostgresInbox::in_table(DEFAULT_TABLE).expect("the default name is valid")
    }

    /// Uses another table: `table` or `schema.table`.
    pub fn in_table(name: &str) -> Result<PostgresInbox, TableNameError> {
        let table = TableName::parse(name)?;
        Ok(PostgresInbox { table })
    }

    /// Returns the statements that create the table and its index if they do not exist: for a migration of the application.
    pub fn create_sql(&self) -> String {
        let (table, index) = (self.table.quoted(), self.table.index());
        format!(
            "CREATE TABLE IF NOT EXISTS {table} (
    id text COLLATE \"C\" PRIMARY KEY,
    processed_at timestamptz NOT NULL
);
CREATE INDEX IF NOT EXISTS {index} ON {table} (processed_at);
"
        )
    }

    /// Creates the table and its index if they do not exist.
    pub async fn create_table(&self, database: &impl GenericClient) -> Result<(), Error> {
        database.batch_execute(&self.create_sql()).await
    }

    /// Marks a webhook as processed, in the transaction that also has its effect. Committing the transaction completes it,
    /// rolling back releases it.
    pub async fn begin(
        &self,
        transaction: &Transaction<'_>,
        id: &str,
        now: SystemTime,
    ) -> Result<Begin, Error> {
        let table = self.table.quoted();
        // Taking the lock again in the same session succeeds, so that a second `begin` in one transaction is a duplicate.
        let sql = format!(
            "WITH attempt AS MATERIALIZED (
                 SELECT pg_try_advisory_xact_lock(hashtextextended('{table}' || $1::text, 0)) AS is_locked
             ), mark AS (
                 INSERT INTO {table} (id, processed_at)
                 SELECT $1, $2 FROM attempt WHERE is_locked
                 ON CONFLICT (id) DO NOTHING RETURNING id
             )
             SELECT is_locked, EXISTS (SELECT FROM mark) FROM attempt"
        );
        let row = transaction.query_one(&sql, &[&id, &now]).await?;
        match (row.try_get(0)?, row.try_get(1)?) {
            (true, true) => Ok(Begin::New(())),
            (true, false) => Ok(Begin::Duplicate),
            (false, _) => Ok(Begin::InProgress),
        }
    }

    /// Deletes at most `limit` marks that are older than the retention period, the oldest first. Returns how many it has
    /// deleted. Keep marks for longer than the sender retries and replays.
    pub async fn delete_expired(
        &self,
        database: &impl GenericClient,
        now: SystemTime,
        retention: Duration,
        limit: u32,
    ) -> Result<u64, Error> {
        let table = self.table.quoted();
        let sql = format!(
            "DELETE FROM {table} WHERE id = ANY (ARRAY(
                 SELECT id FROM {table} WHERE processed_at < $1 ORDER BY processed_at LIMIT $2
                 FOR UPDATE SKIP LOCKED))"
        );
        let before = now.checked_sub(retention).unwrap_or(SystemTime::UNIX_EPOCH);
        database.execute(&sql, &[&before, &i64::from(limit)]).await
    }
}

impl Default for PostgresInbox {
    fn default() -> PostgresInbox {
        PostgresInbox::new()
    }
}
