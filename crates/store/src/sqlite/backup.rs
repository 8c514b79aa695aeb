//! Backup: copies the file, also while a server writes to it.
//!
//! The copy is one snapshot: it contains everything that was acknowledged before it started, and no partial
//! transaction. It is written beside the target under another name, checked, and renamed at the end. So a file with
//! the target's name is always complete.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::lock::{PRIVATE, beside};
use super::open::explain;
use super::schema::{APPLICATION_ID, SCHEMA_VERSION};
use crate::OpenError;

/// Interval at which the size of the copy is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Maximum time to wait for a server that starts or stops.
const BUSY: Duration = Duration::from_secs(10);

/// Copies the store at `from` to a new file `to`, and reports the progress: bytes written, bytes in total.
///
/// Works from any process, also while a server has the store open.
pub fn backup(from: &Path, to: &Path, mut progress: impl FnMut(u64, u64)) -> Result<(), OpenError> {
    if to.exists() {
        return Err(OpenError::Other {
            path: to.to_owned(),
            why: "it already exists; a backup never overwrites a file".to_owned(),
        });
    }
    let source = open_source(from)?;
    let total = size(&source).map_err(|error| explain(from, &error))?;
    let part = beside(to, ".part");
    let made = copy(source, from, &part, total, &mut progress)
        .and_then(|()| check(&part))
        .and_then(|()| keep(&part, to));
    if made.is_err() {
        // The incomplete copy is useless.
        let _ = std::fs::remove_file(&part);
    }
    made?;
    progress(total, total);
    Ok(())
}

fn open_source(from: &Path) -> Result<Connection, OpenError> {
    if !from.exists() {
        return Err(OpenError::Other {
            path: from.to_owned(),
            why: "no such file; pass the path of an existing store".to_owned(),
        });
    }
    let conn = Connection::open_with_flags(from, OpenFlags::SQLITE_OPEN_READ_ONLY)
        .and_then(|conn| conn.busy_timeout(BUSY).map(|()| conn))
        .map_err(|error| explain(from, &error))?;
    check_file(&conn, from)?;
    Ok(conn)
}

/// Refuses a file of another program or of a newer version.
fn check_file(conn: &Connection, path: &Path) -> Result<(), OpenError> {
    let number = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, i64>(0));
    let application = number("PRAGMA application_id").map_err(|error| explain(path, &error))?;
    if application != i64::from(APPLICATION_ID) {
        return Err(OpenError::Foreign {
            path: path.to_owned(),
            why: "it is a database of another program".to_owned(),
        });
    }
    let found = number("PRAGMA user_version").map_err(|error| explain(path, &error))?;
    if found > i64::from(SCHEMA_VERSION) {
        return Err(OpenError::TooNew {
            path: path.to_owned(),
            found: found as u32,
            known: SCHEMA_VERSION,
        });
    }
    Ok(())
}

fn size(conn: &Connection) -> rusqlite::Result<u64> {
    let number = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, i64>(0));
    let pages = number("PRAGMA page_count")? - number("PRAGMA freelist_count")?;
    Ok((pages * number("PRAGMA page_size")?).max(0) as u64)
}

/// Writes the copy on a separate thread, and watches its size on this one.
fn copy(
    source: Connection,
    from: &Path,
    part: &Path,
    total: u64,
    progress: &mut impl FnMut(u64, u64),
) -> Result<(), OpenError> {
    let other = |path: PathBuf| {
        move |error: std::io::Error| OpenError::Other {
            path,
            why: error.to_string(),
        }
    };
    // An earlier backup may have left a file. Creating the file here, empty, ensures that only its owner can read it.
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(PRIVATE)
        .open(part)
        .map_err(other(part.to_owned()))?;
    let target = part.to_str().ok_or_else(|| OpenError::Other {
        path: part.to_owned(),
        why: "its name is not UTF-8".to_owned(),
    })?;
    std::thread::scope(|scope| {
        let (done, finished) = channel::<()>();
        let part = part.to_owned();
        let worker = scope.spawn({
            let target = target.to_owned();
            move || {
                let _done = done;
                source
                    .execute("VACUUM INTO ?1", [&target])
                    .map_err(|error| explain(from, &error))?;
                Ok(())
            }
        });
        while let Err(RecvTimeoutError::Timeout) = finished.recv_timeout(POLL_INTERVAL) {
            let written = std::fs::metadata(&part).map_or(0, |meta| meta.len());
            progress(written.min(total), total);
        }
        worker.join().unwrap_or_else(|_| {
            Err(OpenError::Other {
                path: from.to_owned(),
                why: "the backup failed".to_owned(),
            })
        })
    })
}

/// Checks that the copy is intact, and syncs it to disk.
fn check(part: &Path) -> Result<(), OpenError> {
    let fail = |error: rusqlite::Error| explain(part, &error);
    {
        let conn =
            Connection::open_with_flags(part, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(fail)?;
        check_file(&conn, part)?;
        let verdict: String = conn
            .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
            .map_err(fail)?;
        if verdict != "ok" {
            return Err(OpenError::Corrupt {
                path: part.to_owned(),
                why: verdict,
            });
        }
    }
    sync(part)
}

fn keep(part: &Path, to: &Path) -> Result<(), OpenError> {
    std::fs::rename(part, to).map_err(|error| OpenError::Other {
        path: to.to_owned(),
        why: error.to_string(),
    })?;
    match to.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => sync(parent),
        Some(_) | None => sync(Path::new(".")),
    }
}

fn sync(path: &Path) -> Result<(), OpenError> {
    File::open(path)
        .and_then(|file| file.sync_all())
        .map_err(|error| OpenError::Other {
            path: path.to_owned(),
            why: error.to_string(),
        })
}
