//! Opening a file: whose it is, whether it is sound, and which format it has.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::lock::PRIVATE;
use super::schema::{APPLICATION_ID, FORMAT, STEPS};
use crate::OpenError;

const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// The pages of a new file.
const PAGE_BYTES: u32 = 4_096;
/// A log that has grown beyond this, behind a long read, is cut when it begins again.
const MAX_IDLE_LOG_BYTES: u32 = 128 * 1_024 * 1_024;
/// What the writer keeps of the file in memory, in KiB.
const WRITER_CACHE_KIB: u32 = 32 * 1_024;
/// What each reader keeps.
const READER_CACHE_KIB: u32 = 16 * 1_024;
/// How long one connection waits for another: only a checkpoint ever makes it.
const BUSY: Duration = Duration::from_secs(10);
/// More than there are different statements.
const STATEMENTS: usize = 256;

/// Whether this version of SQLite keeps what was committed. Before 3.51.3, and in 3.52.0, a checkpoint
/// at the wrong moment could lose a transaction in WAL mode.
pub(super) fn is_safe_engine(version: i32) -> bool {
    version >= 3_051_003 && version != 3_052_000
}

/// Opens a store's file for writing, making or migrating it as needed.
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
    if format > FORMAT {
        return Err(OpenError::TooNew {
            path: path.to_owned(),
            found: format,
            known: FORMAT,
        });
    }
    for step in format..FORMAT {
        migrate(&mut conn, step).map_err(explain)?;
    }
    set_up_writer(&conn).map_err(explain)?;
    Ok(conn)
}

/// Opens a store's file for reading.
pub(super) fn open_reader(path: &Path) -> rusqlite::Result<Connection> {
    let conn = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    conn.pragma_update(None, "query_only", true)?;
    conn.pragma_update(None, "cache_size", -i64::from(READER_CACHE_KIB))?;
    Ok(conn)
}

/// Opens a store's file for checkpoints.
pub(super) fn open_plain(path: &Path) -> rusqlite::Result<Connection> {
    connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)
}

/// What went wrong, as the operator should hear it.
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
    // A plan must not depend on what is bound: otherwise SQLite makes it anew for every key that is
    // looked up, which takes far longer than the look.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(conn)
}

/// Makes the file if there is none, and refuses what is no database. Says whether it is new.
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
        Err(error) => return Err(other(error)),
    }
    let mut head = Vec::with_capacity(MAGIC.len());
    File::open(path)
        .and_then(|file| file.take(MAGIC.len() as u64).read_to_end(&mut head))
        .map_err(other)?;
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

/// Marks an empty database as ours, and refuses one that is somebody else's.
fn claim(conn: &Connection, path: &Path) -> Result<(), OpenError> {
    let explain = |error: rusqlite::Error| explain(path, &error);
    let number = |sql: &str| {
        conn.query_row(sql, [], |row| row.get::<_, i64>(0))
            .map_err(explain)
    };
    if number("PRAGMA application_id")? == i64::from(APPLICATION_ID) {
        return Ok(());
    }
    let tables = number("SELECT count(*) FROM sqlite_schema")?;
    if tables > 0 || number("PRAGMA user_version")? > 0 {
        return Err(OpenError::Foreign {
            path: path.to_owned(),
            why: "it is a database of another program".to_owned(),
        });
    }
    conn.pragma_update(None, "application_id", APPLICATION_ID)
        .map_err(explain)
}

fn migrate(conn: &mut Connection, step: u32) -> rusqlite::Result<()> {
    let transaction = conn.transaction()?;
    transaction.execute_batch(STEPS[step as usize])?;
    transaction.pragma_update(None, "user_version", step + 1)?;
    transaction.commit()
}

fn set_up_writer(conn: &Connection) -> rusqlite::Result<()> {
    let mode: String = conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if mode != "wal" {
        // A network file system, most likely. Readers would be in the writer's way.
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
