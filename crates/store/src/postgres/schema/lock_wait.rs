//! Waits for long transactions of others, such as a backup, before a migration locks their tables.
//!
//! A statement that waits for a table lock makes every later statement on that table wait behind it. So a migration waits
//! for a lock only briefly. If it does not get it, [`LockWait`] waits without asking for a lock, until the transactions that
//! are in the way have ended. If it finds none, each wait is longer than the one before, so that the tries block the running
//! nodes less and less of the time.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::MIGRATIONS;
use crate::postgres::connection::PgConnection;
use crate::postgres::db_error::DbError;

/// Log target of this module.
const LOG_TARGET: &str = "posthaste_store::postgres::migrate";

/// Time between two looks at the transactions. The transactions of nodes usually end within it.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum time before the next try of a step if nothing was found in its way.
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// Time between two log lines about the same wait.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum number of transactions that a log line names.
const MAX_NAMED: usize = 5;

/// Selects the transactions of others that have locked one of the tables $1 or a partition of one. The server itself ends
/// an autovacuum that is in the way, except one to prevent wraparound. Sessions of other users have no start time, name and
/// type for users without the role `pg_monitor`: an autovacuum then counts as a transaction.
const OTHERS: &str = "SELECT DISTINCT coalesce(l.pid, 0), l.virtualtransaction, \
     coalesce(to_char(a.xact_start AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"'), ''), \
     coalesce(a.application_name, '') \
     FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_namespace n ON n.oid = c.relnamespace \
     LEFT JOIN pg_inherits i ON i.inhrelid = c.oid LEFT JOIN pg_class p ON p.oid = i.inhparent \
     LEFT JOIN pg_stat_activity a ON a.pid = l.pid \
     WHERE l.locktype = 'relation' AND l.granted AND n.nspname = ANY (current_schemas(false)) \
     AND coalesce(p.relname, c.relname) = ANY ($1) \
     AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
     AND l.pid IS DISTINCT FROM pg_backend_pid() \
     AND (a.backend_type = 'autovacuum worker' AND a.query NOT LIKE '%(to prevent wraparound)%') IS NOT TRUE \
     ORDER BY 1, 2";

/// Returns the names of all tables that the migrations create. Other tables of the schema belong to others.
fn own_tables() -> Vec<&'static str> {
    let lines = MIGRATIONS.iter().flat_map(|it| it.lines());
    let names = lines.filter_map(|line| {
        let created = line
            .strip_prefix("CREATE TABLE ")
            .or_else(|| line.strip_prefix("CREATE UNLOGGED TABLE "))?;
        created.split([' ', '(']).next()
    });
    names.collect()
}

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

/// The waits of one migration.
pub(super) struct LockWait {
    /// Time of the next wait that finds nothing in the way.
    pause: Duration,
}

impl LockWait {
    pub(super) fn new() -> LockWait {
        LockWait {
            pause: LOOK_INTERVAL,
        }
    }

    /// Waits after a step that was blocked, until every transaction that uses a table now has ended. If each ends within
    /// [`LOOK_INTERVAL`], the wait is the pause. Returns at the latest at `until`.
    pub(super) async fn wait_for_others(
        &mut self,
        conn: &PgConnection,
        until: Instant,
    ) -> Result<(), DbError> {
        let began = Instant::now();
        let mut in_the_way = others(conn).await?;
        let mut logged_at: Option<Instant> = None;
        loop {
            sleep(LOOK_INTERVAL).await;
            let present = others(conn).await?;
            in_the_way.retain(|it| present.contains(it));
            let now = Instant::now();
            if in_the_way.is_empty() || now >= until {
                let next_try = match logged_at {
                    Some(_) => now,
                    None => began + self.pause,
                };
                self.found(logged_at.is_some());
                sleep_until(next_try.min(until)).await;
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

    /// Sets the next pause, after a wait that found something in the way or not.
    fn found(&mut self, in_the_way: bool) {
        self.pause = match in_the_way {
            true => LOOK_INTERVAL,
            false => (self.pause * 2).min(MAX_PAUSE),
        };
    }
}

async fn others(conn: &PgConnection) -> Result<Vec<Transaction>, DbError> {
    let rows = conn.query(OTHERS, &[&own_tables()]).await?;
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
    fn pauses_grow_while_nothing_is_found_in_the_way() {
        let mut wait = LockWait::new();
        let mut seconds = Vec::new();
        for _ in 0..8 {
            seconds.push(wait.pause.as_secs());
            wait.found(false);
        }
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60]);
        wait.found(true);
        assert_eq!(wait.pause, LOOK_INTERVAL);
    }

    #[test]
    fn every_table_of_the_migrations_is_found() {
        let tables = own_tables();
        let created =
            |kind: &str| -> usize { MIGRATIONS.iter().map(|it| it.matches(kind).count()).sum() };
        let all = created("CREATE TABLE") + created("CREATE UNLOGGED TABLE");
        assert_eq!(tables.len(), all, "{tables:?}");
        assert!(
            tables.contains(&"tenants") && tables.contains(&"mail"),
            "{tables:?}"
        );
    }

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
