//! Opens the file, and migrates it to the newest schema version.
//!
//! A file that is not a posthaste store, is damaged, or was written by a newer version is refused and left as it is.
//! All connections are configured here: page size, caches, WAL.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::lock::PRIVATE;
use super::schema::{APPLICATION_ID, MIGRATIONS, SCHEMA_VERSION};
use crate::OpenError;

const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// Page size of a new file.
const PAGE_BYTES: u32 = 4_096;
/// A WAL that has grown beyond this during a long read is truncated when it restarts.
const MAX_IDLE_LOG_BYTES: u32 = 128 * 1_024 * 1_024;
/// Page cache of the writer, in KiB.
const WRITER_CACHE_KIB: u32 = 32 * 1_024;
/// Page cache of each reader, in KiB.
const READER_CACHE_KIB: u32 = 16 * 1_024;
/// Maximum time that a connection waits for a lock. Only a checkpoint makes it wait.
const BUSY: Duration = Duration::from_secs(10);
/// Capacity of the statement cache; more than there are statements.
const STATEMENTS: usize = 256;

/// Returns whether this SQLite version is safe. Before 3.51.3, and in 3.52.0, a checkpoint at the wrong moment could
/// lose a committed transaction in WAL mode.
pub(super) fn is_safe_engine(version: i32) -> bool {
    version >= 3_051_003 && version != 3_052_000
}

/// Opens the file for writing, and creates or migrates it as needed.
pub(super) fn open_writer(path: &Path) -> Result<Connection, OpenError> {
    if !is_safe_engine(rusqlite::version_number()) {
        return Err(OpenError::UnsafeEngine {
            found: rusqlite::version().to_owned(),
        });
    }
    let fresh = inspect(path)?;
    let explain = |error: rusqlite::Error| explain(path, &error);
    let mut conn = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(explain)?;
    if fresh {
        conn.pragma_update(None, "page_size", PAGE_BYTES)
            .map_err(explain)?;
    }
    claim(&conn, path)?;
    let format: u32 = conn
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .map_err(explain)?;
    if format > SCHEMA_VERSION {
        return Err(OpenError::TooNew {
            path: path.to_owned(),
            found: format,
            known: SCHEMA_VERSION,
        });
    }
    for step in format..SCHEMA_VERSION {
        migrate(&mut conn, step).map_err(explain)?;
    }
    set_up_writer(&conn).map_err(explain)?;
    Ok(conn)
}

/// Checks that an existing file is a posthaste store, without creating, migrating or marking anything. For callers
/// that must know before they open it.
pub fn recognise(path: &Path) -> Result<(), OpenError> {
    if is_empty(path)? {
        return Ok(());
    }
    let explain = |error: rusqlite::Error| explain(path, &error);
    let conn = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(explain)?;
    is_claimed(&conn, path).map(|_| ())
}

/// Opens the file for reading.
pub(super) fn open_reader(path: &Path) -> rusqlite::Result<Connection> {
    let conn = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    conn.pragma_update(None, "query_only", true)?;
    conn.pragma_update(None, "cache_size", -i64::from(READER_CACHE_KIB))?;
    Ok(conn)
}

/// Opens the file for checkpoints.
pub(super) fn open_plain(path: &Path) -> rusqlite::Result<Connection> {
    connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)
}

/// Converts an SQLite error to the error for the operator.
pub(super) fn explain(path: &Path, error: &rusqlite::Error) -> OpenError {
    let path = path.to_owned();
    let why = error.to_string();
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            OpenError::Corrupt { path, why }
        }
        Some(_) | None => OpenError::Other { path, why },
    }
}

fn connect(path: &Path, access: OpenFlags) -> rusqlite::Result<Connection> {
    let conn = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    conn.busy_timeout(BUSY)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS);
    // A query plan must not depend on the bound values. Otherwise SQLite prepares it again for every key, which takes
    // much longer than the lookup.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(conn)
}

/// Creates the file if there is none, and refuses a file that is not a database. Returns whether it is empty.
fn inspect(path: &Path) -> Result<bool, OpenError> {
    let other = |error: std::io::Error| OpenError::Other {
        path: path.to_owned(),
        why: error.to_string(),
    };
    let made = OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(PRIVATE)
        .open(path);
    match made {
        Ok(_) => return Ok(true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(OpenError::Other {
                path: path.to_owned(),
                why: match path.parent() {
                    Some(directory) => format!(
                        "the directory {} does not exist; create it first",
                        directory.display()
                    ),
                    None => error.to_string(),
                },
            });
        }
        Err(error) => return Err(other(error)),
    }
    is_empty(path)
}

/// Returns whether a file is empty. Refuses a file that is not a database.
fn is_empty(path: &Path) -> Result<bool, OpenError> {
    let mut head = Vec::with_capacity(MAGIC.len());
    File::open(path)
        .and_then(|file| file.take(MAGIC.len() as u64).read_to_end(&mut head))
        .map_err(|error| OpenError::Other {
            path: path.to_owned(),
            why: error.to_string(),
        })?;
    if head.is_empty() {
        return Ok(true);
    }
    if head != MAGIC {
        return Err(OpenError::Foreign {
            path: path.to_owned(),
            why: "it is not a database".to_owned(),
        });
    }
    Ok(false)
}

/// Marks an empty database as a posthaste store, and refuses one of another program.
fn claim(conn: &Connection, path: &Path) -> Result<(), OpenError> {
    if is_claimed(conn, path)? {
        return Ok(());
    }
    conn.pragma_update(None, "application_id", APPLICATION_ID)
        .map_err(|error| explain(path, &error))
}

/// Returns whether a database is marked as a posthaste store. If not, it must be empty.
fn is_claimed(conn: &Connection, path: &Path) -> Result<bool, OpenError> {
    let explain = |error: rusqlite::Error| explain(path, &error);
    let number = |sql: &str| {
        conn.query_row(sql, [], |row| row.get::<_, i64>(0))
            .map_err(explain)
    };
    if number("PRAGMA application_id")? == i64::from(APPLICATION_ID) {
        return Ok(true);
    }
    let tables = number("SELECT count(*) FROM sqlite_schema")?;
    if tables > 0 || number("PRAGMA user_version")? > 0 {
        return Err(OpenError::Foreign {
            path: path.to_owned(),
            why: "it is a database of another program".to_owned(),
        });
    }
    Ok(false)
}

fn migrate(conn: &mut Connection, step: u32) -> rusqlite::Result<()> {
    let transaction = conn.transaction()?;
    transaction.execute_batch(MIGRATIONS[step as usize])?;
    transaction.pragma_update(None, "user_version", step + 1)?;
    transaction.commit()
}

fn set_up_writer(conn: &Connection) -> rusqlite::Result<()> {
    let mode: String = conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if mode != "wal" {
        // Probably a network file system. Without a WAL, readers would block the writer.
        let why = "the file system does not allow a write-ahead log".to_owned();
        return Err(rusqlite::Error::SqliteFailure(
            rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN),
            Some(why),
        ));
    }
    conn.pragma_update(None, "synchronous", "FULL")?;
    conn.pragma_update(None, "foreign_keys", false)?;
    conn.pragma_update(None, "wal_autocheckpoint", 0)?;
    conn.pragma_update(None, "journal_size_limit", MAX_IDLE_LOG_BYTES)?;
    conn.pragma_update(None, "cache_size", -i64::from(WRITER_CACHE_KIB))?;
    conn.pragma_update(None, "temp_store", "MEMORY")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_that_lose_data_are_refused() {
        for (version, safe) in [
            (3_051_002, false),
            (3_051_003, true),
            (3_051_999, true),
            (3_052_000, false),
            (3_052_001, true),
            (3_054_001, true),
            (3_007_000, false),
        ] {
            assert_eq!(is_safe_engine(version), safe, "{version}");
        }
        assert!(is_safe_engine(rusqlite::version_number()));
    }

    #[test]
    fn a_commit_is_synced_before_it_is_done() {
        let directory = tempfile::tempdir().unwrap();
        let conn = open_writer(&directory.path().join("a.db")).unwrap();
        let synchronous: i64 = conn
            .query_row("PRAGMA synchronous", [], |row| row.get(0))
            .unwrap();
        assert_eq!(synchronous, 2, "FULL");
        let mode: String = conn
            .query_row("PRAGMA journal_mode", [], |row| row.get(0))
            .unwrap();
        assert_eq!(mode, "wal");
    }
}
