//! Injected faults, and counters to observe them: for tests.
//!
//! [`Faults`] makes the next commit or the next transaction fail, limits the size of the file, or lets a test run between
//! two commits. Without a test it injects nothing and only counts.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rusqlite::ffi;

/// Faults to inject, and what has happened so far.
#[derive(Debug, Default)]
pub struct Faults {
    fail_commit: AtomicBool,
    fail_begin: AtomicBool,
    max_pages: AtomicU32,
    commits: AtomicU64,
    operations: AtomicU64,
    most_rows: AtomicU64,
    longest_micros: AtomicU64,
    after_commit: Mutex<Option<AfterCommit>>,
}

/// A function that the writer calls after every commit.
struct AfterCommit(Box<dyn FnMut() + Send>);

impl fmt::Debug for AfterCommit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("AfterCommit")
    }
}

impl Faults {
    /// Makes the next commit fail with a disk error.
    pub fn fail_next_commit(&self) {
        self.fail_commit.store(true, Ordering::SeqCst);
    }

    /// Makes the next transaction find the file locked by another process.
    pub fn fail_next_begin(&self) {
        self.fail_begin.store(true, Ordering::SeqCst);
    }

    /// Limits the file to this number of pages; 0 removes the limit.
    pub fn limit_pages(&self, pages: u32) {
        self.max_pages.store(pages, Ordering::SeqCst);
    }

    /// Calls a function in the writer after every commit.
    pub fn after_commit(&self, call: impl FnMut() + Send + 'static) {
        let mut after_commit = self
            .after_commit
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *after_commit = Some(AfterCommit(Box::new(call)));
    }

    /// Returns the number of transactions committed for callers.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::SeqCst)
    }

    /// Returns the number of operations in those transactions.
    pub fn operations(&self) -> u64 {
        self.operations.load(Ordering::SeqCst)
    }

    pub(super) fn before_begin(&self) -> rusqlite::Result<()> {
        if self.fail_begin.swap(false, Ordering::SeqCst) {
            return Err(rusqlite::Error::SqliteFailure(
                ffi::Error::new(ffi::SQLITE_BUSY),
                Some("the file is locked, as it was told to be".to_owned()),
            ));
        }
        Ok(())
    }

    pub(super) fn before_commit(&self) -> rusqlite::Result<()> {
        if self.fail_commit.swap(false, Ordering::SeqCst) {
            return Err(rusqlite::Error::SqliteFailure(
                ffi::Error::new(ffi::SQLITE_IOERR_FSYNC),
                Some("the disk failed, as it was told to".to_owned()),
            ));
        }
        Ok(())
    }

    /// Returns the largest number of rows that a transaction has changed since the last call, and the time that the
    /// longest took.
    pub fn take_largest(&self) -> (u64, Duration) {
        let longest = self.longest_micros.swap(0, Ordering::SeqCst);
        let most_rows = self.most_rows.swap(0, Ordering::SeqCst);
        (most_rows, Duration::from_micros(longest))
    }

    pub(super) fn committed(&self, operations: usize, rows: u64, took: Duration) {
        self.commits.fetch_add(1, Ordering::SeqCst);
        self.operations
            .fetch_add(operations as u64, Ordering::SeqCst);
        self.most_rows.fetch_max(rows, Ordering::SeqCst);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.longest_micros.fetch_max(micros, Ordering::SeqCst);
        let mut after_commit = self
            .after_commit
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(AfterCommit(call)) = after_commit.as_mut() {
            call();
        }
    }

    pub(super) fn max_pages(&self) -> u32 {
        self.max_pages.load(Ordering::SeqCst)
    }
}
