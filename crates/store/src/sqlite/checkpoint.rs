//! Bringing what was logged into the file.
//!
//! A thread of its own does most of it, out of the writer's way. But while writes go on it never catches
//! up entirely, and the log only begins again at its start when nothing in it is left to do. So once
//! the log has grown long, the writer does the little that is left between two transactions.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use rusqlite::Connection;

/// At so many pages in the log, the thread is woken.
const WAKE_PAGES: u32 = 4_096;
/// At so many, the writer lends a hand.
const HELP_PAGES: u32 = 16_384;
/// If a reader was in the way, it tries again after so many more.
const HELP_AGAIN_PAGES: u32 = 2_048;

/// The thread, seen from the writer.
pub(super) struct Checkpoints {
    wake: SyncSender<()>,
    thread: JoinHandle<()>,
    woken_at: u32,
    help_at: u32,
}

impl Checkpoints {
    /// Starts the thread on a connection of its own.
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

    /// The log has so many pages after a commit.
    pub(super) fn logged(&mut self, conn: &Connection, pages: u32) {
        if pages < self.woken_at {
            // It has begun again at its start.
            self.woken_at = 0;
            self.help_at = HELP_PAGES;
        }
        if pages >= self.help_at {
            self.help_at = pages + HELP_AGAIN_PAGES;
            if let Err(error) = passive(conn) {
                tracing::warn!(%error, "a checkpoint failed");
            }
        } else if pages >= self.woken_at + WAKE_PAGES {
            self.woken_at = pages;
            match self.wake.try_send(()) {
                Ok(()) | Err(TrySendError::Full(())) => {}
                Err(TrySendError::Disconnected(())) => {
                    tracing::error!("the checkpoint thread has stopped");
                }
            }
        }
    }

    /// Stops the thread, then brings everything into the file and empties the log.
    pub(super) fn stop(self, conn: &Connection) {
        drop(self.wake);
        if self.thread.join().is_err() {
            tracing::error!("the checkpoint thread has panicked");
        }
        if let Err(error) = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())) {
            tracing::warn!(%error, "the last checkpoint failed; nothing is lost, the log is kept");
        }
    }
}

fn work(conn: &Connection, woken: &Receiver<()>) {
    while woken.recv().is_ok() {
        if let Err(error) = passive(conn) {
            tracing::warn!(%error, "a checkpoint failed");
        }
    }
}

fn passive(conn: &Connection) -> rusqlite::Result<()> {
    conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
}
