//! The one thread that writes.
//!
//! It takes whatever has gathered, writes it in one transaction, hands over what was accepted, and
//! answers. There is no timer: while one commit runs, the next group gathers. Between two groups it keeps
//! the history and the log in order, a little at a time.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use rusqlite::Connection;

use super::checkpoint::Checkpoints;
use super::counts::Tally;
use super::faults::Faults;
use super::group::{Effects, Memory, Operation, Scene, is_damage, is_doubt, stopped, store_error};
use super::history::History;
use super::keys::Presses;
use super::lock::Lock;
use super::queue::{Queue, Taken};
use super::reader::Readers;
use super::routes::Routes;
use crate::{HandOver, StoreError, StoreSettings};

/// Everything the thread owns.
pub(super) struct Writer {
    pub(super) conn: Connection,
    pub(super) queue: Arc<Queue>,
    pub(super) settings: StoreSettings,
    pub(super) hand_over: Arc<dyn HandOver>,
    pub(super) routes: Routes,
    pub(super) presses: Presses,
    pub(super) tally: Arc<Tally>,
    pub(super) history: History,
    pub(super) memory: Memory,
    pub(super) checkpoints: Checkpoints,
    pub(super) log_pages: Arc<AtomicU32>,
    pub(super) faults: Arc<Faults>,
    pub(super) max_pages: u32,
    pub(super) readers: Arc<Readers>,
    pub(super) lock: Lock,
    /// Whoever closes the store waits here.
    pub(super) closed: Arc<Closed>,
}

/// Tells whoever closes the store that it is closed.
#[derive(Default)]
pub(super) struct Closed {
    pub(super) answer: std::sync::Mutex<Option<crate::Done<()>>>,
    pub(super) broken: OnceLock<StoreError>,
}

/// Marks the end of the thread, however it ends.
struct Ending {
    queue: Arc<Queue>,
    hand_over: Arc<dyn HandOver>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.queue.fail(&stopped());
            self.hand_over.broken(&stopped());
        }
    }
}

impl Writer {
    /// Starts the thread.
    pub(super) fn start(self) -> std::io::Result<JoinHandle<()>> {
        std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || self.work())
    }

    fn work(mut self) {
        let ending = Ending {
            queue: self.queue.clone(),
            hand_over: self.hand_over.clone(),
        };
        loop {
            let busy = self.history.is_behind() && self.closed.broken.get().is_none();
            match self.queue.take(!busy) {
                Taken::Group(group) => self.write(group),
                Taken::Nothing => {}
                Taken::Closed => break,
            }
            self.keep_house();
        }
        self.readers.stop();
        self.checkpoints.stop(&self.conn);
        drop(self.conn);
        drop(self.lock);
        drop(ending);
        let answer = self.closed.answer.lock().ok().and_then(|mut it| it.take());
        if let Some(done) = answer {
            done(match self.closed.broken.get() {
                Some(why) => Err(why.clone()),
                None => Ok(()),
            });
        }
    }

    fn write(&mut self, mut group: Vec<Box<dyn Operation>>) {
        self.limit_pages();
        match self.commit(&mut group) {
            Ok(()) => answer_all(group, Ok(())),
            Err(Failed::InDoubt(error)) => self.break_down(group, &error),
            Err(Failed::RolledBack(error)) if group.len() == 1 => {
                answer_all(group, Err(store_error(&error)));
            }
            Err(Failed::RolledBack(_)) => self.write_one_by_one(group),
        }
    }

    fn write_one_by_one(&mut self, group: Vec<Box<dyn Operation>>) {
        let mut rest = group.into_iter();
        while let Some(operation) = rest.next() {
            let mut alone = vec![operation];
            match self.commit(&mut alone) {
                Ok(()) => answer_all(alone, Ok(())),
                Err(Failed::RolledBack(error)) => answer_all(alone, Err(store_error(&error))),
                Err(Failed::InDoubt(error)) => {
                    alone.extend(rest);
                    return self.break_down(alone, &error);
                }
            }
        }
    }

    /// Runs operations in one transaction, and lets it take effect in memory.
    fn commit(&mut self, group: &mut [Box<dyn Operation>]) -> Result<(), Failed> {
        let mut effects = Effects::default();
        let run = self.run(group, &mut effects);
        match run {
            Ok(()) => {
                self.routes.keep();
                self.tally.apply(&effects.changes);
                self.history.note_new(effects.new_rows);
                self.faults.committed(group.len());
                if !effects.handed_over.is_empty() {
                    self.hand_over.accepted(effects.handed_over);
                }
                Ok(())
            }
            Err(failed) => {
                self.roll_back();
                Err(failed)
            }
        }
    }

    fn run(
        &mut self,
        group: &mut [Box<dyn Operation>],
        effects: &mut Effects,
    ) -> Result<(), Failed> {
        begin(&self.conn)?;
        let mut scene = Scene {
            conn: &self.conn,
            routes: &mut self.routes,
            presses: &mut self.presses,
            settings: &self.settings,
            effects,
            memory: &mut self.memory,
            history: &mut self.history,
        };
        for operation in group {
            operation.run(&mut scene)?;
        }
        finish(&self.conn, &self.faults)
    }

    fn roll_back(&mut self) {
        if !self.conn.is_autocommit()
            && let Err(error) = self.conn.execute_batch("ROLLBACK")
        {
            tracing::error!(%error, "a transaction could not be rolled back");
        }
        self.routes.put_back();
        self.history.start_over();
        self.memory = Memory::default();
    }

    /// Nobody can say what is on disk: nothing is acknowledged any more.
    fn break_down(&mut self, group: Vec<Box<dyn Operation>>, error: &rusqlite::Error) {
        let why = StoreError::Unavailable(format!("the disk failed: {error}"));
        tracing::error!(%error, "the store is broken");
        if self.closed.broken.set(why.clone()).is_ok() {
            self.hand_over.broken(&why);
        }
        answer_all(group, Err(why.clone()));
        self.queue.fail(&why);
    }

    /// A little of what can wait.
    fn keep_house(&mut self) {
        if self.closed.broken.get().is_some() {
            return;
        }
        if self.history.is_behind()
            && let Err(failed) = self.extend_history()
        {
            self.roll_back();
            match failed {
                // There is no room now; reading works without it, only slower.
                Failed::RolledBack(error) => {
                    self.history.rest();
                    tracing::warn!(%error, "the history could not be extended");
                }
                Failed::InDoubt(error) => self.break_down(Vec::new(), &error),
            }
        }
        let pages = self.log_pages.load(Ordering::Relaxed);
        self.checkpoints.logged(&self.conn, pages);
    }

    fn extend_history(&mut self) -> Result<(), Failed> {
        begin(&self.conn)?;
        self.history.step(&self.conn)?;
        finish(&self.conn, &Faults::default())
    }

    fn limit_pages(&mut self) {
        let wanted = self.faults.max_pages();
        if wanted != self.max_pages {
            self.max_pages = wanted;
            let limit = if wanted == 0 { u32::MAX - 1 } else { wanted };
            if let Err(error) =
                self.conn
                    .query_row(&format!("PRAGMA max_page_count = {limit}"), [], |_| Ok(()))
            {
                tracing::error!(%error, "the file could not be limited");
            }
        }
    }
}

/// How a transaction failed.
enum Failed {
    /// Nothing of it was written.
    RolledBack(rusqlite::Error),
    /// Nobody can say.
    InDoubt(rusqlite::Error),
}

impl From<rusqlite::Error> for Failed {
    fn from(error: rusqlite::Error) -> Failed {
        if is_damage(&error) {
            Failed::InDoubt(error)
        } else {
            Failed::RolledBack(error)
        }
    }
}

fn begin(conn: &Connection) -> Result<(), Failed> {
    conn.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    Ok(())
}

fn finish(conn: &Connection, faults: &Faults) -> Result<(), Failed> {
    let commit = faults
        .before_commit()
        .and_then(|()| conn.prepare_cached("COMMIT")?.execute([]));
    match commit {
        Ok(_) => Ok(()),
        Err(error) if is_doubt(&error) => Err(Failed::InDoubt(error)),
        Err(error) => Err(Failed::RolledBack(error)),
    }
}

fn answer_all(group: Vec<Box<dyn Operation>>, result: Result<(), StoreError>) {
    for operation in group {
        operation.answer(result.clone());
    }
}
