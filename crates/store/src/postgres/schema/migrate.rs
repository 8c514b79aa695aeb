//! Opens a database: migrates the schema, and explains failures to the operator as [`OpenError`].
//!
//! Several nodes may start at once: one migrates, the others wait. A database of a newer version, of another program,
//! or with an unfinished copy is refused and left as it is.

use std::time::Duration;

use tokio_postgres::error::SqlState;

use super::{FORMAT, MIGRATIONS, lock, meta};
use crate::OpenError;
use crate::postgres::connection::{ConnectError, MIN_SERVER_VERSION, PgConnection};
use crate::postgres::db_error::DbError;
use crate::postgres::dial::ServerUrl;

/// Time limit for a migration, including the wait for a migration by another node.
const MIGRATION: Duration = Duration::from_secs(3_600);

/// Migrates the database to the newest schema version. Several nodes may call this at once: one migrates, the others
/// wait for it.
pub(in crate::postgres) async fn migrate(
    conn: &PgConnection,
    url: &ServerUrl,
) -> Result<(), OpenError> {
    let found = format(conn).await.map_err(|fault| explain(url, &fault))?;
    if found == FORMAT {
        return Ok(());
    }
    // Building an index over a large table takes longer than any other statement.
    let usual = conn.replace_time_limit(Some(MIGRATION));
    let migrated = async {
        conn.batch("BEGIN; SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0")
            .await?;
        conn.execute("SELECT pg_advisory_xact_lock($1)", &[&lock::FORMAT])
            .await?;
        let found = format(conn).await?;
        for step in found..FORMAT {
            conn.batch(MIGRATIONS[step as usize]).await?;
            let sql = format!(
                "UPDATE meta SET value = {} WHERE name = '{}'",
                step + 1,
                meta::FORMAT
            );
            conn.batch(&sql).await?;
        }
        conn.batch("COMMIT").await?;
        Ok(found)
    };
    let migrated = migrated.await;
    conn.replace_time_limit(usual);
    let found = match migrated {
        Ok(found) => found,
        Err(fault) => {
            // If the connection is lost, there is nothing to roll back.
            let _ = conn.batch("ROLLBACK").await;
            return Err(explain(url, &fault));
        }
    };
    if found > FORMAT {
        return Err(OpenError::DatabaseTooNew {
            server: url.to_string(),
            found,
            known: FORMAT,
        });
    }
    Ok(())
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

/// Returns the schema version of the database, or 0 if it has no posthaste tables yet.
async fn format(conn: &PgConnection) -> Result<u32, DbError> {
    // Queries the catalog tables instead of calling `to_regclass`, which uses the server process's catalog cache. The
    // cache may not show a table that another node created while this one waited for the lock.
    let sql = "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_class c \
               JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
               WHERE c.relname = 'meta' AND n.nspname = ANY (current_schemas(false)))";
    let row = conn.query_one(sql, &[]).await?;
    if !row.get::<_, bool>(0) {
        return Ok(0);
    }
    let sql = "SELECT value FROM meta WHERE name = $1";
    let row = conn.query_opt(sql, &[&meta::FORMAT]).await?;
    Ok(row.map_or(0, |row| row.get::<_, i64>(0) as u32))
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
