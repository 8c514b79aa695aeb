//! Waits for long transactions of others, such as a backup, before a migration locks their tables.
//!
//! A statement that waits for a table lock makes every later statement on that table wait behind it. So a migration waits
//! for a lock only briefly. If it does not get it, [`wait_for_others`] waits without asking for a lock, until the
//! transactions that are in the way have ended.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::postgres::connection::PgConnection;
use crate::postgres::db_error::DbError;

/// Log target of this module.
const LOG_TARGET: &str = "posthaste_store::postgres::migrate";

/// Time between two looks at the transactions. The transactions of nodes usually end within it.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two log lines about the same wait.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum number of transactions that a log line names.
const MAX_NAMED: usize = 5;

/// Selects the transactions of others that have locked a table of this database. The server itself ends an autovacuum that
/// is in the way. Sessions of other users have no start time and no name for users without the role `pg_monitor`.
const OTHERS: &str = "SELECT DISTINCT coalesce(l.pid, 0), l.virtualtransaction, \
     coalesce(to_char(a.xact_start AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"'), ''), \
     coalesce(a.application_name, '') \
     FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_namespace n ON n.oid = c.relnamespace \
     LEFT JOIN pg_stat_activity a ON a.pid = l.pid \
     WHERE l.locktype = 'relation' AND l.granted AND n.nspname = ANY (current_schemas(false)) \
     AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
     AND l.pid IS DISTINCT FROM pg_backend_pid() \
     AND a.backend_type IS DISTINCT FROM 'autovacuum worker' ORDER BY 1, 2";

/// A transaction that has locked a table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Transaction {
    /// Process of the database server; 0 for a prepared transaction.
    pid: i32,
    /// Its number, which no later transaction of the process has.
    number: String,
    /// Its start, if the user may see it.
    since: String,
    /// The name of the application, if the user may see it.
    application: String,
}

/// Waits until every transaction that uses a table now has ended, unless it ends within [`LOOK_INTERVAL`] anyway. Returns
/// at the latest at `until`.
pub(super) async fn wait_for_others(conn: &PgConnection, until: Instant) -> Result<(), DbError> {
    let mut in_the_way = others(conn).await?;
    let mut logged_at: Option<Instant> = None;
    loop {
        sleep(LOOK_INTERVAL).await;
        let present = others(conn).await?;
        in_the_way.retain(|it| present.contains(it));
        let now = Instant::now();
        if in_the_way.is_empty() || now >= until {
            return Ok(());
        }
        if logged_at.is_none_or(|at| now.duration_since(at) >= LOG_INTERVAL) {
            logged_at = Some(now);
            tracing::warn!(target: LOG_TARGET,
                transactions = %named(&in_the_way),
                "the migration waits for other transactions that use its tables, for example a backup; nodes that run are not affected"
            );
        }
    }
}

async fn others(conn: &PgConnection) -> Result<Vec<Transaction>, DbError> {
    let rows = conn.query(OTHERS, &[]).await?;
    let transactions = rows.iter().map(|row| Transaction {
        pid: row.get(0),
        number: row.get(1),
        since: row.get(2),
        application: row.get(3),
    });
    Ok(transactions.collect())
}

/// Names the first transactions for the operator.
fn named(transactions: &[Transaction]) -> String {
    let name = |it: &Transaction| {
        let mut name = format!("pid {}", it.pid);
        if !it.application.is_empty() {
            name.push_str(&format!(" ({})", it.application));
        }
        if !it.since.is_empty() {
            name.push_str(&format!(" since {}", it.since));
        }
        name
    };
    let names: Vec<String> = transactions.iter().take(MAX_NAMED).map(name).collect();
    let mut named = names.join(", ");
    if transactions.len() > MAX_NAMED {
        named.push_str(&format!(" and {} more", transactions.len() - MAX_NAMED));
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_line_names_a_few_transactions() {
        let transaction = |pid: i32, since: &str, application: &str| Transaction {
            pid,
            number: format!("3/{pid}"),
            since: since.to_owned(),
            application: application.to_owned(),
        };
        let backup = transaction(17, "2026-01-02T03:04:05Z", "pg_dump");
        let mut all = vec![backup, transaction(18, "", "")];
        assert_eq!(
            named(&all),
            "pid 17 (pg_dump) since 2026-01-02T03:04:05Z, pid 18"
        );
        all.extend((0..5).map(|pid| transaction(pid, "", "")));
        assert!(named(&all).ends_with("pid 2 and 2 more"), "{}", named(&all));
    }
}
