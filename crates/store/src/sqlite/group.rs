//! One transaction for all that gathered.
//!
//! An operation may be run more than once: if one of a group fails, the group is rolled back and each
//! runs again in a transaction of its own, so that only the guilty one fails. What an operation changes
//! in memory therefore waits in [`Effects`], or can be put back, until the commit is through.

use rusqlite::{Connection, ErrorCode, ffi};

use super::counts::Changes;
use super::history::History;
use super::keys::Presses;
use super::routes::Routes;
use super::schema::meta;
use super::tidy::Progress;
use super::usage::Meters;
use crate::failures::Failures;
use crate::{Done, HandedOver, StoreError, StoreSettings};

/// What operations work with.
pub(super) struct Scene<'a> {
    pub(super) conn: &'a Connection,
    pub(super) routes: &'a mut Routes,
    pub(super) presses: &'a mut Presses,
    pub(super) settings: &'a StoreSettings,
    pub(super) effects: &'a mut Effects,
    pub(super) memory: &'a mut Memory,
    pub(super) history: &'a mut History,
    pub(super) meters: &'a mut Meters,
}

/// What the writer remembers that may be wrong without harm: it is forgotten with every rollback.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// How far tidying is.
    pub(super) tidying: Progress,
    /// The stored lead of keys over times, of events and of deliveries.
    pub(super) leads: Option<(i64, i64)>,
}

/// What happens in memory once a transaction is committed.
#[derive(Debug, Default)]
pub(super) struct Effects {
    pub(super) handed_over: Vec<HandedOver>,
    pub(super) changes: Changes,
    /// What failed and is not written down yet.
    pub(super) failures: Failures<i64>,
    /// How many rows came that are not yet in the history.
    pub(super) new_rows: usize,
    /// The number of the last figures that were added, in this transaction or before.
    pub(super) flushed: u64,
}

/// Something to be written.
pub(super) trait Operation: Send {
    /// Does it, within a transaction. May be called again after a rollback.
    fn run(&mut self, scene: &mut Scene<'_>) -> rusqlite::Result<()>;
    /// Says what came of it.
    fn answer(self: Box<Self>, committed: Result<(), StoreError>);
    /// How many bytes it brings.
    fn bytes(&self) -> usize;
}

/// An operation that answers with a `T`.
pub(super) struct Task<T, F> {
    run: F,
    result: Option<T>,
    done: Option<Done<T>>,
    bytes: usize,
}

impl<T, F> Task<T, F>
where
    T: Send,
    F: FnMut(&mut Scene<'_>) -> rusqlite::Result<T> + Send,
{
    pub(super) fn new(bytes: usize, run: F, done: Done<T>) -> Task<T, F> {
        Task {
            run,
            result: None,
            done: Some(done),
            bytes,
        }
    }
}

impl<T, F> Operation for Task<T, F>
where
    T: Send,
    F: FnMut(&mut Scene<'_>) -> rusqlite::Result<T> + Send,
{
    fn run(&mut self, scene: &mut Scene<'_>) -> rusqlite::Result<()> {
        self.result = Some((self.run)(scene)?);
        Ok(())
    }

    fn answer(mut self: Box<Self>, committed: Result<(), StoreError>) {
        let result = self.result.take();
        let done = self.done.take().expect("an operation is answered once");
        done(committed.map(|()| result.expect("what is committed was run")));
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

impl<T, F> Drop for Task<T, F> {
    fn drop(&mut self) {
        // Whoever waits must not wait for ever, not even if the writer panics.
        if let Some(done) = self.done.take() {
            done(Err(stopped()));
        }
    }
}

/// The writer is gone.
pub(super) fn stopped() -> StoreError {
    StoreError::Unavailable("the writer has stopped".to_owned())
}

/// What a failed statement means to whoever asked.
pub(super) fn store_error(error: &rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreError::Full,
        Some(_) | None => StoreError::Unavailable(error.to_string()),
    }
}

/// Whether the file itself cannot be trusted after this.
pub(super) fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
    )
}

/// Whether, after this error of a commit, nobody can say what is on disk.
///
/// A write that failed, as where a quota is used up, left out at least the end of the transaction, and
/// without its end it does not count. After anything else, and above all after a failed fsync, all of it
/// may be there.
pub(super) fn is_doubt(error: &rusqlite::Error) -> bool {
    let failed_write = error
        .sqlite_error()
        .is_some_and(|error| error.extended_code == ffi::SQLITE_IOERR_WRITE);
    is_damage(error)
        || error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure) && !failed_write
}

/// A number kept by name.
pub(super) fn number(conn: &Connection, name: &str) -> rusqlite::Result<i64> {
    conn.prepare_cached("SELECT value FROM meta WHERE name = ?1")?
        .query_row([name], |row| row.get(0))
}

/// Keeps a number by name.
pub(super) fn set_number(conn: &Connection, name: &str, value: i64) -> rusqlite::Result<()> {
    conn.prepare_cached("UPDATE meta SET value = ?2 WHERE name = ?1")?
        .execute((name, value))?;
    Ok(())
}

impl Scene<'_> {
    /// A number that no tenant or endpoint has had.
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
    fn only_what_may_be_on_disk_is_in_doubt() {
        for (code, doubt) in [
            (ffi::SQLITE_IOERR_FSYNC, true),
            (ffi::SQLITE_IOERR_SHMSIZE, true),
            (ffi::SQLITE_CORRUPT, true),
            (ffi::SQLITE_IOERR_WRITE, false),
            (ffi::SQLITE_FULL, false),
            (ffi::SQLITE_BUSY, false),
        ] {
            let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
            assert_eq!(is_doubt(&error), doubt, "{error}");
        }
    }
}
