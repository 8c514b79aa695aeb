//! The reader threads.
//!
//! Each thread of [`Readers`] has its own connection and sees a snapshot of the committed data. It never blocks the
//! writer. Deliveries and API requests wait for point reads, so point reads have threads of their own and never queue
//! behind a long list.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rusqlite::Connection;

use super::group_commit::store_error;
use super::open::open_reader;
use crate::read_duration::ReadDuration;
use crate::search_slots::SearchSlots;
use crate::{Done, StoreError};

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste_store::sqlite::reader";

/// Number of threads for point reads.
const QUICK_THREADS: usize = 2;
/// Number of threads for lists.
const LONG_THREADS: usize = 1;
/// Number of threads for scans.
const ENDLESS_THREADS: usize = 1;
/// Capacity of each read queue.
const MAX_WAITING_READS: usize = 16_384;

type Job = Box<dyn FnOnce(Result<&Connection, StoreError>) + Send>;

/// The read queues and their threads.
pub(super) struct Readers {
    quick: Arc<ReadQueue>,
    long: Arc<ReadQueue>,
    endless: Arc<ReadQueue>,
    /// Limits the searches for the targets of replays.
    pub(super) search_slots: Arc<SearchSlots>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct ReadQueue {
    inner: Mutex<Inner>,
    filled: Condvar,
}

#[derive(Default)]
struct Inner {
    waiting: VecDeque<Job>,
    shut: bool,
}

impl Readers {
    /// Opens the connections and starts the threads.
    pub(super) fn start(path: &Path) -> rusqlite::Result<Readers> {
        let readers = Readers {
            quick: Arc::new(ReadQueue::new()),
            long: Arc::new(ReadQueue::new()),
            endless: Arc::new(ReadQueue::new()),
            search_slots: Arc::default(),
            threads: Mutex::new(Vec::new()),
        };
        for (queue, count) in [
            (&readers.quick, QUICK_THREADS),
            (&readers.long, LONG_THREADS),
            (&readers.endless, ENDLESS_THREADS),
        ] {
            for _ in 0..count {
                let conn = open_reader(path)?;
                let queue = queue.clone();
                let thread = std::thread::Builder::new()
                    .name("store-reader".to_owned())
                    .spawn(move || queue.work(&conn))
                    .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
                lock(&readers.threads).push(thread);
            }
        }
        Ok(readers)
    }

    /// Runs `read` on a reader thread and passes the result to `done`.
    pub(super) fn read<T, F>(&self, duration: ReadDuration, read: F, done: Done<T>)
    where
        T: 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let queue = match duration {
            ReadDuration::Quick => &self.quick,
            ReadDuration::Long => &self.long,
            ReadDuration::Endless => &self.endless,
        };
        queue.push(Box::new(move |conn| {
            done(conn.and_then(|conn| snapshot(conn, read).map_err(|error| store_error(&error))));
        }));
    }

    /// Refuses new reads. Those in the queues are still answered.
    pub(super) fn close(&self) {
        self.quick.shut();
        self.long.shut();
        self.endless.shut();
    }

    /// Answers the reads in the queues, and stops.
    pub(super) fn stop(&self) {
        self.close();
        for thread in lock(&self.threads).drain(..) {
            if thread.join().is_err() {
                tracing::error!(target: LOG_TARGET, "a reader panicked");
            }
        }
    }
}

impl ReadQueue {
    fn new() -> ReadQueue {
        ReadQueue {
            inner: Mutex::default(),
            filled: Condvar::new(),
        }
    }

    fn push(&self, job: Job) {
        let refused = {
            let mut inner = lock(&self.inner);
            if inner.shut {
                Some((job, StoreError::Closed))
            } else if inner.waiting.len() >= MAX_WAITING_READS {
                Some((job, StoreError::Overloaded))
            } else {
                inner.waiting.push_back(job);
                None
            }
        };
        match refused {
            None => self.filled.notify_one(),
            Some((job, why)) => job(Err(why)),
        }
    }

    fn shut(&self) {
        lock(&self.inner).shut = true;
        self.filled.notify_all();
    }

    fn work(&self, conn: &Connection) {
        loop {
            let mut inner = lock(&self.inner);
            let job = loop {
                if let Some(job) = inner.waiting.pop_front() {
                    break job;
                }
                if inner.shut {
                    return;
                }
                inner = self
                    .filled
                    .wait(inner)
                    .unwrap_or_else(PoisonError::into_inner);
            };
            drop(inner);
            // A read that panics must not end the thread, because other reads wait in the same queue.
            if catch_unwind(AssertUnwindSafe(|| job(Ok(conn)))).is_err() {
                tracing::error!(target: LOG_TARGET, "a read panicked");
                if !conn.is_autocommit() && conn.execute_batch("ROLLBACK").is_err() {
                    tracing::error!(target: LOG_TARGET, "cannot end a read transaction");
                }
            }
        }
    }
}

/// Runs a read on one snapshot of the file.
fn snapshot<T>(
    conn: &Connection,
    read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    conn.prepare_cached("BEGIN")?.execute([])?;
    let result = read(conn);
    // A disk error may have ended the transaction already. Then the error of the read is returned.
    if !conn.is_autocommit() {
        conn.prepare_cached("COMMIT")?.execute([])?;
    }
    result
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
