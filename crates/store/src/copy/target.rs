//! The database that a store is copied to.
//!
//! [`TargetDatabase`] opens it, finds out if it is in use or not empty, and writes the pieces. The position of each
//! stage is stored in the same transaction as its rows.

use std::time::Duration;

use super::stages::Rows;
use super::{CopyDestination, CopyError};
use crate::postgres::{COPIED_FROM, COPY_DONE, CopyConnection, DbError, Id, Params};
use crate::sqlite::Export;

/// Prefix of the names in `meta` under which the position of each stage is stored.
const REACHED: &str = "copied ";
/// Time to watch for the heartbeat of a node, which comes every second.
const HEARTBEAT_WATCH: Duration = Duration::from_secs(3);

/// The state of copies into a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CopyState {
    /// There was none.
    None,
    /// A copy of the file with this fingerprint was started.
    Begun(i64),
    /// A copy of the file with this fingerprint is complete.
    Done(i64),
}

/// The database that a store is copied to.
pub(super) struct TargetDatabase {
    conn: CopyConnection,
    /// Holds the lock that excludes nodes and other copies while it is open.
    _lock_connection: Option<CopyConnection>,
    server: String,
}

impl TargetDatabase {
    /// Opens it for writing, migrates it to the newest schema version, and excludes all other users.
    pub(super) async fn open(to: &CopyDestination) -> Result<TargetDatabase, CopyError> {
        let conn = CopyConnection::open(&to.server, &to.dial).await?;
        let mut target = TargetDatabase {
            conn,
            _lock_connection: None,
            server: to.server.to_string(),
        };
        if target.has_live_node().await? {
            return Err(target.in_use());
        }
        let lock_connection = CopyConnection::open(&to.server, &to.dial).await?;
        let kept = lock_connection
            .batch("SET idle_in_transaction_session_timeout = 0; BEGIN; LOCK TABLE nodes IN EXCLUSIVE MODE NOWAIT")
            .await;
        if kept.is_err() {
            return Err(target.in_use());
        }
        target._lock_connection = Some(lock_connection);
        Ok(target)
    }

    /// Opens it for reading, without excluding other users. Migrates it as well.
    pub(super) async fn inspect(to: &CopyDestination) -> Result<TargetDatabase, CopyError> {
        Ok(TargetDatabase {
            conn: CopyConnection::open(&to.server, &to.dial).await?,
            _lock_connection: None,
            server: to.server.to_string(),
        })
    }

    /// Returns whether a node is alive, by its heartbeat. A node that was killed left its row behind and does not
    /// count.
    async fn has_live_node(&self) -> Result<bool, CopyError> {
        let sum =
            "SELECT coalesce(sum(b.beat), 0)::bigint FROM beats b JOIN nodes n ON n.no = b.node";
        if self.number("SELECT count(*) FROM nodes").await? == 0 {
            return Ok(false);
        }
        let before = self.number(sum).await?;
        tokio::time::sleep(HEARTBEAT_WATCH).await;
        Ok(self.number(sum).await? != before)
    }

    /// Runs a query that returns one number.
    pub(super) async fn number(&self, sql: &str) -> Result<i64, CopyError> {
        let row = self.conn.query_one(sql, &[]).await;
        Ok(row.map_err(|fault| self.refused(&fault))?.get(0))
    }

    async fn named(&self, name: &str) -> Result<Option<i64>, CopyError> {
        let sql = "SELECT value FROM meta WHERE name = $1";
        let row = self.conn.query_opt(sql, &[&name]).await;
        let row = row.map_err(|fault| self.refused(&fault))?;
        Ok(row.map(|row| row.get(0)))
    }

    /// Returns the state of copies into it.
    pub(super) async fn copy_state(&self) -> Result<CopyState, CopyError> {
        let Some(from) = self.named(COPIED_FROM).await? else {
            return Ok(CopyState::None);
        };
        Ok(match self.named(COPY_DONE).await? {
            Some(_) => CopyState::Done(from),
            None => CopyState::Begun(from),
        })
    }

    /// Returns the name of a table that is not empty, if there is one.
    pub(super) async fn non_empty_table(&self) -> Result<Option<&'static str>, CopyError> {
        for table in [
            "tenants",
            "keys",
            "endpoints",
            "events",
            "waiting",
            "ended",
            "replays",
            "audit",
            "alerts",
        ] {
            let sql = format!("SELECT count(*) FROM (SELECT 1 FROM {table} LIMIT 1) AS found");
            if self.number(&sql).await? > 0 {
                return Ok(Some(table));
            }
        }
        Ok(None)
    }

    /// Returns the key up to which a stage is copied.
    pub(super) async fn position(&self, stage: &str) -> Result<i64, CopyError> {
        let position = self.named(&format!("{REACHED}{stage}")).await?;
        Ok(position.unwrap_or(0))
    }

    /// Marks the database as the copy of a file.
    pub(super) async fn begin(&self, fingerprint: i64) -> Result<(), CopyError> {
        self.set(COPIED_FROM, fingerprint).await
    }

    async fn set(&self, name: &str, value: i64) -> Result<(), CopyError> {
        let sql = "INSERT INTO meta (name, value) VALUES ($1, $2) \
                   ON CONFLICT (name) DO UPDATE SET value = excluded.value";
        self.execute(sql, &[&name, &value]).await
    }

    async fn execute(&self, sql: &str, params: Params<'_>) -> Result<(), CopyError> {
        let done = self.conn.execute(sql, params).await;
        done.map(|_| ()).map_err(|fault| self.refused(&fault))
    }

    async fn batch(&self, sql: &str) -> Result<(), CopyError> {
        let done = self.conn.batch(sql).await;
        done.map_err(|fault| self.refused(&fault))
    }

    /// Writes the rows of a range and the position that it reaches, in one transaction.
    pub(super) async fn write(
        &mut self,
        stage: &str,
        up_to: i64,
        parts: Vec<Rows>,
    ) -> Result<(), CopyError> {
        self.batch("BEGIN").await?;
        for rows in parts.iter().filter(|rows| rows.count > 0) {
            self.make_partitions(rows).await?;
            let params: Vec<_> = rows.columns.iter().map(|column| column.as_sql()).collect();
            self.execute(&insert(rows), &params).await?;
        }
        self.set(&format!("{REACHED}{stage}"), up_to).await?;
        self.batch("COMMIT").await
    }

    /// Creates the partitions for these rows.
    async fn make_partitions(&mut self, rows: &Rows) -> Result<(), CopyError> {
        let made = match rows.columns.first() {
            Some(super::columns::Column::Id(ids)) => {
                let ids: Vec<Id> = ids.iter().flatten().copied().collect();
                self.conn.make_partitions(rows.table, &ids).await
            }
            Some(_) | None => Ok(()),
        };
        made.map_err(|fault| self.refused(&fault))
    }

    /// Writes the counts and numbers that depend on all rows, and marks the copy as complete.
    pub(super) async fn finish(&self, export: &Export) -> Result<(), CopyError> {
        self.batch("BEGIN").await?;
        self.batch(COUNT_ROWS).await?;
        let last_no = export.number("SELECT value FROM meta WHERE name = 'last_no'")?;
        let sql =
            "UPDATE directory SET last_no = greatest(last_no, $1), last_change = last_change + 1";
        self.execute(sql, &[&last_no]).await?;
        let last_schedule = "SELECT seq FROM sqlite_sequence WHERE name = 'schedules'";
        let last_schedule = export.number(last_schedule)?.max(1);
        self.execute("SELECT setval('schedule_numbers', $1)", &[&last_schedule])
            .await?;
        for (name, sql) in NUMBERS {
            let value = export.number(sql)?;
            let sql = "INSERT INTO meta AS m (name, value) VALUES ($1, $2) \
                       ON CONFLICT (name) DO UPDATE SET value = greatest(m.value, excluded.value)";
            self.execute(sql, &[&name, &value]).await?;
        }
        let reached = format!("{REACHED}%");
        self.execute("DELETE FROM meta WHERE name LIKE $1", &[&reached])
            .await?;
        self.set(COPY_DONE, 1).await?;
        self.batch("COMMIT").await?;
        // The query planner has no statistics about the copied rows yet.
        self.batch("ANALYZE tenants, keys, endpoints, healths, events, idempotency, waiting, ended, attempts, tally, usage, audit, alerts, schedules, schedule_runs")
            .await
    }

    /// Returns the master keys that the nodes of the database share.
    pub(super) async fn shared_keys(&self) -> Result<Option<String>, CopyError> {
        let row = self.conn.query_opt("SELECT keys FROM vault", &[]).await;
        let row = row.map_err(|fault| self.refused(&fault))?;
        Ok(row.map(|row| row.get(0)))
    }

    /// Stores master keys, if there are none. Returns whether it did.
    pub(super) async fn place_keys(&self, keys: &str) -> Result<bool, CopyError> {
        let sql = "INSERT INTO vault (keys) VALUES ($1) ON CONFLICT DO NOTHING";
        let placed = self.conn.execute(sql, &[&keys]).await;
        Ok(placed.map_err(|fault| self.refused(&fault))? > 0)
    }

    fn refused(&self, fault: &DbError) -> CopyError {
        CopyError::Write {
            server: self.server.clone(),
            why: fault.to_string(),
        }
    }

    pub(super) fn holds_already(&self, what: &'static str) -> CopyError {
        CopyError::NotEmpty {
            server: self.server.clone(),
            what,
        }
    }

    pub(super) fn another_copy(&self) -> CopyError {
        CopyError::AnotherCopy {
            server: self.server.clone(),
        }
    }

    pub(super) fn not_begun(&self) -> CopyError {
        CopyError::NotBegun {
            server: self.server.clone(),
        }
    }

    fn in_use(&self) -> CopyError {
        CopyError::InUse {
            server: self.server.clone(),
        }
    }
}

/// Returns the statement that inserts all rows at once.
fn insert(rows: &Rows) -> String {
    let names: Vec<&str> = rows.names.iter().map(|(name, _)| *name).collect();
    let arrays = rows.names.iter().enumerate();
    let arrays: Vec<String> = arrays
        .map(|(index, (_, kind))| format!("${}::{}", index + 1, kind.array()))
        .collect();
    format!(
        "INSERT INTO {} ({}) SELECT * FROM unnest({})",
        rows.table,
        names.join(", "),
        arrays.join(", ")
    )
}

/// Computes the number of waiting and dead-lettered deliveries, by endpoint and in total.
const COUNT_ROWS: &str = "
DELETE FROM tally;
INSERT INTO tally (endpoint_no, slot, waiting, dead)
SELECT endpoint_no, 0, sum(waiting), sum(dead) FROM (
    SELECT endpoint_no, count(*) AS waiting, 0 AS dead FROM waiting GROUP BY endpoint_no
    UNION ALL
    SELECT endpoint_no, 0, count(*) FROM ended WHERE status = 3 GROUP BY endpoint_no
) AS counted GROUP BY endpoint_no;
INSERT INTO tally (endpoint_no, slot, waiting, dead)
SELECT 0, 0, coalesce(sum(waiting), 0), coalesce(sum(dead), 0) FROM tally;
";

/// Named numbers: the name in the database, and the query for the file.
const NUMBERS: [(&str, &str); 5] = [
    (
        "last_moment",
        "SELECT value FROM meta WHERE name = 'last_key'",
    ),
    (
        "event_lead",
        "SELECT value FROM meta WHERE name = 'event_lead'",
    ),
    (
        "delivery_lead",
        "SELECT value FROM meta WHERE name = 'delivery_lead'",
    ),
    (
        "last_notice",
        "SELECT seq FROM sqlite_sequence WHERE name = 'notices'",
    ),
    ("told", "SELECT value FROM meta WHERE name = 'told'"),
];
