//! Group commit: one transaction for the next operations in the queue, up to the budget of a group.
//!
//! An [`Operation`] may run more than once: if one of a group fails, the group is rolled back and each operation runs
//! again in its own transaction, so that only the failing one gets the error. Therefore changes in memory are either
//! collected in [`SideEffects`] and applied after the commit, or can be undone. An operation that has more to write
//! than fits into one transaction continues as another operation.

use rusqlite::{Connection, ErrorCode, ffi};
use rustc_hash::FxHashMap;

use super::counts::CountChanges;
use super::history::History;
use super::retention::RunProgress;
use super::routing_table::RoutingTable;
use super::row_keys::KeyGenerator;
use super::schema::meta;
use super::usage::UsageCounters;
use crate::failures::Failures;
use crate::reply::Reply;
use crate::stats::{CountedScopes, StatChanges};
use crate::{Done, HandedOver, StoreError, StoreSettings};

/// The context that operations run in.
pub(super) struct WriteContext<'a> {
    pub(super) conn: &'a Connection,
    pub(super) routes: &'a mut RoutingTable,
    pub(super) key_generator: &'a mut KeyGenerator,
    pub(super) settings: &'a StoreSettings,
    pub(super) effects: &'a mut SideEffects,
    pub(super) cache: &'a mut WriterCache,
    pub(super) history: &'a mut History,
    pub(super) meters: &'a mut UsageCounters,
}

/// State of the writer that can be lost without harm. It is reset after every rollback.
#[derive(Debug, Default)]
pub(super) struct WriterCache {
    /// The progress of the retention run.
    pub(super) retention_progress: RunProgress,
    /// The last origin endpoint that was examined for deliveries; 0 if it was the last one stored.
    pub(super) origins_up_to: i64,
    /// The stored skew between keys and acceptance times, for events and for deliveries.
    pub(super) clock_skews: Option<(i64, i64)>,
    /// The scopes that deliveries to an endpoint are counted in, by endpoint number. They never change.
    pub(super) counted_scopes: FxHashMap<i64, CountedScopes<i64>>,
}

/// Changes in memory that are applied when the transaction is committed.
#[derive(Debug, Default)]
pub(super) struct SideEffects {
    pub(super) handed_over: Vec<HandedOver>,
    pub(super) count_changes: CountChanges,
    /// Failed deliveries that are not written yet.
    pub(super) failures: Failures<i64>,
    /// Stats that are not written yet.
    pub(super) stats: StatChanges<i64>,
    /// Work of the present operation that changes no rows, as the number of rows that take as long.
    pub(super) other_work: u64,
    /// Number of new rows that are not in the history yet.
    pub(super) new_rows: usize,
}

/// A request to the writer.
pub(super) trait Operation: Send {
    /// Executes the operation within a transaction. May be called again after a rollback.
    fn run(&mut self, context: &mut WriteContext<'_>) -> rusqlite::Result<()>;
    /// Passes the result of the committed run to the caller, or returns the operation that continues it.
    fn committed(self: Box<Self>) -> Option<Box<dyn Operation>>;
    /// Passes the error to the caller. Returns the operation if it must be tried again.
    fn failed(self: Box<Self>, why: StoreError) -> Option<Box<dyn Operation>>;
    /// Returns whether the run that was just made must be continued. It then is the last of its group, so that nothing
    /// of its class overtakes it.
    fn continues(&self) -> bool {
        false
    }
    /// The size of its data, in bytes.
    fn bytes(&self) -> usize;
    /// The cost of a row that it writes, compared with that of a row of a new event.
    fn row_cost(&self) -> u64 {
        1
    }
}

/// An operation with a result of type `T`.
pub(super) struct Task<T, F> {
    run: F,
    result: Option<T>,
    reply: Reply<T>,
    bytes: usize,
    row_cost: u64,
}

impl<T, F> Task<T, F>
where
    T: Send,
    F: FnMut(&mut WriteContext<'_>) -> rusqlite::Result<T> + Send,
{
    pub(super) fn new(bytes: usize, run: F, done: Done<T>) -> Task<T, F> {
        Task {
            run,
            result: None,
            reply: Reply::new(done),
            bytes,
            row_cost: 1,
        }
    }

    /// Sets the cost of a row, for an operation that changes rows all over the file.
    pub(super) fn with_row_cost(mut self, row_cost: u64) -> Task<T, F> {
        self.row_cost = row_cost;
        self
    }
}

impl<T, F> Operation for Task<T, F>
where
    T: Send,
    F: FnMut(&mut WriteContext<'_>) -> rusqlite::Result<T> + Send,
{
    fn run(&mut self, context: &mut WriteContext<'_>) -> rusqlite::Result<()> {
        self.result = Some((self.run)(context)?);
        Ok(())
    }

    fn committed(self: Box<Self>) -> Option<Box<dyn Operation>> {
        let result = self.result.expect("what is committed was run");
        self.reply.send(Ok(result));
        None
    }

    fn failed(self: Box<Self>, why: StoreError) -> Option<Box<dyn Operation>> {
        self.reply.send(Err(why));
        None
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn row_cost(&self) -> u64 {
        self.row_cost
    }
}

/// Converts a failed statement to the error for the caller.
pub(super) fn store_error(error: &rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreError::Full,
        None if is_unreadable(error) => StoreError::Unreadable(error.to_string()),
        Some(_) | None => StoreError::Unavailable(error.to_string()),
    }
}

/// Returns whether a value in a row cannot be decoded. The file itself is sound.
pub(super) fn is_unreadable(error: &rusqlite::Error) -> bool {
    matches!(
        error,
        rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::Utf8Error(..)
    )
}

/// Returns whether the file cannot be trusted after this error.
pub(super) fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
    )
}

/// Returns whether it is unknown after this error of a commit what is on disk.
///
/// A failed write, for example because a disk quota is used up, omits at least the end of the transaction, and SQLite
/// ignores a transaction without its end. After any other error, in particular a failed fsync, the whole transaction
/// may be on disk.
pub(super) fn is_commit_uncertain(error: &rusqlite::Error) -> bool {
    let failed_write = error
        .sqlite_error()
        .is_some_and(|error| error.extended_code == ffi::SQLITE_IOERR_WRITE);
    is_damage(error)
        || error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure) && !failed_write
}

/// Reads a number from the table `meta`.
pub(super) fn number(conn: &Connection, name: &str) -> rusqlite::Result<i64> {
    conn.prepare_cached("SELECT value FROM meta WHERE name = ?1")?
        .query_row([name], |row| row.get(0))
}

/// Writes a number to the table `meta`.
pub(super) fn set_number(conn: &Connection, name: &str, value: i64) -> rusqlite::Result<()> {
    conn.prepare_cached("UPDATE meta SET value = ?2 WHERE name = ?1")?
        .execute((name, value))?;
    Ok(())
}

impl WriteContext<'_> {
    /// Returns a number that no tenant or endpoint has had.
    pub(super) fn next_no(&self) -> rusqlite::Result<i64> {
        let no = number(self.conn, meta::LAST_NO)? + 1;
        set_number(self.conn, meta::LAST_NO, no)?;
        Ok(no)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_writes_that_may_be_on_disk_are_uncertain() {
        for (code, doubt) in [
            (ffi::SQLITE_IOERR_FSYNC, true),
            (ffi::SQLITE_IOERR_SHMSIZE, true),
            (ffi::SQLITE_CORRUPT, true),
            (ffi::SQLITE_IOERR_WRITE, false),
            (ffi::SQLITE_FULL, false),
            (ffi::SQLITE_BUSY, false),
        ] {
            let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
            assert_eq!(is_commit_uncertain(&error), doubt, "{error}");
        }
    }
}
