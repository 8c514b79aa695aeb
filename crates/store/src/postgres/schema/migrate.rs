//! Opens a database: migrates the schema, and explains failures to the operator as [`OpenError`].
//!
//! Several nodes may start at once: one migrates, the others wait. A database of a newer version, of another program,
//! or with an unfinished copy is refused and left as it is.

use std::time::Duration;

use posthaste_core::cluster::{SchemaCheck, SchemaVersions, check};
use tokio::time::Instant;
use tokio_postgres::error::SqlState;

use super::lock_wait::LockWait;
use super::{FORMAT, MIGRATIONS, OLDEST_FORMAT, lock, meta};
use crate::OpenError;
use crate::postgres::connection::{ConnectError, MIN_SERVER_VERSION, PgConnection};
use crate::postgres::db_error::{DbError, ErrorKind};
use crate::postgres::dial::ServerUrl;

/// Log target of this module.
const LOG_TARGET: &str = "posthaste_store::postgres::migrate";

/// Time limit for a step of a migration, including the wait for a step by another node.
const MIGRATION: Duration = Duration::from_secs(3_600);
/// Maximum time for which a migration waits for transactions that use its tables: longer than most backups take.
const MAX_LOCK_WAIT: Duration = Duration::from_secs(24 * 3_600);
/// Ends a step that waits for a table for longer than this, which is as long as the running nodes may wait for it. The step
/// is tried again. Longer than the server's `deadlock_timeout`, after which the server ends an autovacuum that is in the way.
const LIMIT_LOCK_WAITS: &str = "SET LOCAL lock_timeout = '2s'";

/// Migrates the database to the newest schema version, and returns the version that a node must know. Several nodes may
/// call this at once: one migrates, the others wait for it.
///
/// Nodes of the version before may be running. Each step is a transaction of its own, so that they wait only a short time,
/// and a start that was interrupted continues with the step that is missing. While another transaction uses a table, such as
/// that of a backup, the migration waits, at most [`MAX_LOCK_WAIT`], and the nodes that run do not.
pub(in crate::postgres) async fn migrate(
    conn: &PgConnection,
    url: &ServerUrl,
) -> Result<u32, OpenError> {
    let explain = |fault: DbError| explain(url, &fault);
    let found = versions(conn).await.map_err(explain)?;
    match check(found, OLDEST_FORMAT..=FORMAT) {
        SchemaCheck::Ready => return Ok(found.required),
        SchemaCheck::Migrate => {}
        SchemaCheck::TooNew => {
            return Err(OpenError::DatabaseTooNew {
                server: url.to_string(),
                found: found.required,
                known: FORMAT,
            });
        }
        SchemaCheck::TooOld => {
            return Err(OpenError::DatabaseTooOld {
                server: url.to_string(),
                found: found.reached,
                oldest: OLDEST_FORMAT,
                known: FORMAT,
            });
        }
    }
    // Building an index over a large table takes longer than any other statement.
    let usual = conn.replace_time_limit(Some(MIGRATION));
    let until = Instant::now() + MAX_LOCK_WAIT;
    let mut lock_wait = LockWait::new();
    let migrated = loop {
        let fault = match step(conn).await {
            Ok(done) if done.reached >= FORMAT => break Ok(done.required),
            Ok(_) => continue,
            Err(fault) => fault,
        };
        // If the connection is lost, there is nothing to roll back.
        let _ = conn.batch("ROLLBACK").await;
        // A deadlock with a transaction of a running node, or a table that a long transaction uses.
        if fault.kind() != ErrorKind::Blocked {
            break Err(explain(fault));
        }
        if Instant::now() >= until {
            break Err(OpenError::Server {
                server: url.to_string(),
                why: format!(
                    "the migration has waited {} h for transactions that use its tables; end them and start again ({fault})",
                    MAX_LOCK_WAIT.as_secs() / 3_600
                ),
            });
        }
        if let Err(fault) = lock_wait.wait_for_others(conn, until).await {
            break Err(explain(fault));
        }
    };
    conn.replace_time_limit(usual);
    migrated
}

/// Runs the next migration, or all of them in an empty database, which no node of an earlier version uses. Returns the
/// versions after it.
async fn step(conn: &PgConnection) -> Result<SchemaVersions, DbError> {
    conn.batch("BEGIN; SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0")
        .await?;
    conn.execute("SELECT pg_advisory_xact_lock($1)", &[&lock::FORMAT])
        .await?;
    // A change of a table that waits for a long transaction, such as a backup, makes all statements of the running nodes
    // wait behind it.
    conn.batch(LIMIT_LOCK_WAITS).await?;
    // Another node may have migrated while this one waited for the lock.
    let found = versions(conn).await?;
    if found.reached >= FORMAT {
        conn.batch("COMMIT").await?;
        return Ok(found);
    }
    let (reached, required) = match found.reached {
        0 => (FORMAT, FORMAT),
        before => (before + 1, found.required),
    };
    for migration in &MIGRATIONS[found.reached as usize..reached as usize] {
        conn.batch(migration).await?;
    }
    for (name, version) in [(meta::FORMAT, required), (meta::SCHEMA, reached)] {
        let sql = "INSERT INTO meta (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = $2";
        conn.execute(sql, &[&name, &i64::from(version)]).await?;
    }
    conn.batch("COMMIT").await?;
    tracing::info!(target: LOG_TARGET, reached, "migrated the database");
    Ok(SchemaVersions { required, reached })
}

/// Refuses to open a database whose copy was started and not finished, because a part of the data is missing.
pub(in crate::postgres) async fn refuse_half_copied(
    conn: &PgConnection,
    url: &ServerUrl,
) -> Result<(), OpenError> {
    let sql =
        "SELECT count(*) FILTER (WHERE name = $1) > count(*) FILTER (WHERE name = $2) FROM meta";
    let row = conn
        .query_one(sql, &[&meta::COPIED_FROM, &meta::COPY_DONE])
        .await;
    let row = row.map_err(|fault| explain(url, &fault))?;
    if row.get(0) {
        let server = url.to_string();
        return Err(OpenError::HalfCopied { server });
    }
    Ok(())
}

/// Returns the schema versions of the database. Both are 0 if it has no posthaste tables yet.
async fn versions(conn: &PgConnection) -> Result<SchemaVersions, DbError> {
    // Queries the catalog tables instead of calling `to_regclass`, which uses the server process's catalog cache. The
    // cache may not show a table that another node created while this one waited for the lock.
    let sql = "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_class c \
               JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
               WHERE c.relname = 'meta' AND n.nspname = ANY (current_schemas(false)))";
    let row = conn.query_one(sql, &[]).await?;
    if !row.get::<_, bool>(0) {
        return Ok(SchemaVersions {
            required: 0,
            reached: 0,
        });
    }
    let sql = "SELECT name, value FROM meta WHERE name IN ($1, $2)";
    let rows = conn.query(sql, &[&meta::FORMAT, &meta::SCHEMA]).await?;
    let number = |name: &str| {
        let row = rows.iter().find(|row| row.get::<_, &str>(0) == name);
        row.map(|row| row.get::<_, i64>(1) as u32)
    };
    let required = number(meta::FORMAT).unwrap_or(0);
    let reached = number(meta::SCHEMA).unwrap_or(0).max(required);
    Ok(SchemaVersions { required, reached })
}

/// Converts a failed connection attempt to an error for the operator.
pub(in crate::postgres) fn explain_not_connected(
    url: &ServerUrl,
    not_connected: &ConnectError,
) -> OpenError {
    let server = url.to_string();
    match not_connected {
        ConnectError::Unreachable { why, .. } => OpenError::Unreachable {
            server,
            why: why.clone(),
        },
        ConnectError::Refused(fault) => explain(url, fault),
        ConnectError::Standby(_) => OpenError::Server {
            server,
            why: format!("{not_connected}; use the URL of the primary"),
        },
        ConnectError::TooOld(version) => OpenError::ServerTooOld {
            server,
            found: version / 10_000,
            needed: MIN_SERVER_VERSION / 10_000,
        },
    }
}

/// Converts a database error to an error for the operator.
pub(in crate::postgres) fn explain(url: &ServerUrl, fault: &DbError) -> OpenError {
    let server = url.to_string();
    let user = url.user().to_owned();
    let why = fault.to_string();
    let state = match fault {
        DbError::Server(error) => error.code(),
        DbError::TimedOut(_) | DbError::Corrupt(_) => None,
    };
    match state {
        Some(state) if is_refusal(state) => OpenError::WrongPassword { server, user, why },
        Some(state) if *state == SqlState::INVALID_CATALOG_NAME => OpenError::NoSuchDatabase {
            server,
            database: url.database().to_owned(),
        },
        Some(state) if *state == SqlState::INSUFFICIENT_PRIVILEGE => {
            OpenError::LacksRights { server, user, why }
        }
        Some(state) if is_taken(state) => OpenError::ForeignDatabase { server, why },
        None if !url.has_password() && why.contains("password missing") => {
            OpenError::WrongPassword { server, user, why }
        }
        Some(_) | None => OpenError::Server { server, why },
    }
}

fn is_refusal(state: &SqlState) -> bool {
    [
        SqlState::INVALID_PASSWORD,
        SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
    ]
    .contains(state)
}

fn is_taken(state: &SqlState) -> bool {
    [
        SqlState::DUPLICATE_TABLE,
        SqlState::DUPLICATE_OBJECT,
        SqlState::UNDEFINED_COLUMN,
    ]
    .contains(state)
}
