//! Checkpoints: move the pages of the write-ahead log (WAL) into the file.
//!
//! A separate thread does most of the work without blocking the writer. But while writes continue it never finishes,
//! and SQLite reuses the WAL from its start only when all of it is checkpointed. So when the WAL has grown long, the
//! writer checkpoints the small rest between two transactions.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use rusqlite::Connection;

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste_store::sqlite::checkpoint";

/// Number of new WAL pages after which the thread is woken.
const WAKE_PAGES: u32 = 4_096;
/// Number of WAL pages from which the writer helps.
const HELP_PAGES: u32 = 16_384;
/// Number of further pages after which the writer tries again, if a reader prevented a complete checkpoint.
const HELP_AGAIN_PAGES: u32 = 2_048;

/// The writer's handle to the checkpoint thread.
pub(super) struct Checkpoints {
    wake: SyncSender<()>,
    thread: JoinHandle<()>,
    woken_at: u32,
    help_at: u32,
}

impl Checkpoints {
    /// Starts the thread with its own connection.
    pub(super) fn start(conn: Connection) -> std::io::Result<Checkpoints> {
        let (wake, woken) = sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("store-checkpoint".to_owned())
            .spawn(move || work(&conn, &woken))?;
        Ok(Checkpoints {
            wake,
            thread,
            woken_at: 0,
            help_at: HELP_PAGES,
        })
    }

    /// Decides what to do when the WAL has `pages` pages after a commit.
    pub(super) fn logged(&mut self, conn: &Connection, pages: u32) {
        if pages < self.woken_at {
            // SQLite has restarted the WAL.
            self.woken_at = 0;
            self.help_at = HELP_PAGES;
        }
        if pages >= self.help_at {
            self.help_at = pages + HELP_AGAIN_PAGES;
            if let Err(error) = passive(conn) {
                tracing::warn!(target: LOG_TARGET, %error, "checkpoint failed");
            }
        } else if pages >= self.woken_at + WAKE_PAGES {
            self.woken_at = pages;
            match self.wake.try_send(()) {
                Ok(()) | Err(TrySendError::Full(())) => {}
                Err(TrySendError::Disconnected(())) => {
                    tracing::error!(target: LOG_TARGET, "the checkpoint thread has stopped");
                }
            }
        }
    }

    /// Stops the thread, then checkpoints everything and empties the WAL.
    pub(super) fn stop(self, conn: &Connection) {
        drop(self.wake);
        if self.thread.join().is_err() {
            tracing::error!(target: LOG_TARGET, "the checkpoint thread has panicked");
        }
        if let Err(error) = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())) {
            tracing::warn!(target: LOG_TARGET, %error, "final checkpoint failed; nothing is lost, the write-ahead log is kept");
        }
    }
}

fn work(conn: &Connection, woken: &Receiver<()>) {
    while woken.recv().is_ok() {
        if let Err(error) = passive(conn) {
            tracing::warn!(target: LOG_TARGET, %error, "checkpoint failed");
        }
    }
}

fn passive(conn: &Connection) -> rusqlite::Result<()> {
    conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
}
