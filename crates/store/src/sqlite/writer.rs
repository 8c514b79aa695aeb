//! The writer: the only thread that writes.
//!
//! [`Writer`] takes operations from the write queue, in turns between tenants, writes them in one transaction until the
//! budget of a group is used up, passes the accepted deliveries to the hand-over, and answers. There is no timer: while
//! one commit runs, the next group collects. Between two groups it extends the history and checkpoints the WAL, a little
//! at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::checkpoint::Checkpoints;
use super::counts::DeliveryCounts;
use super::faults::Faults;
use super::group_budget::{BYTES_PER_ROW, GroupBudget};
use super::group_commit::{
    SideEffects, WriteContext, WriterCache, is_commit_uncertain, is_damage, store_error,
};
use super::history::History;
use super::lock::Lock;
use super::notifications;
use super::readers::Readers;
use super::routing_table::RoutingTable;
use super::row_keys::KeyGenerator;
use super::stats;
use super::usage::UsageCounters;
use super::write_queue::{DequeuedOperation, Waiting, WriteQueue};
use crate::reply::stopped;
use crate::thread_end::ThreadEnd;
use crate::{HandOver, StoreError, StoreSettings};

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste_store::sqlite::writer";

/// Interval at which failed operations that must be completed are tried again, for example after the disk was full.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Everything that the writer thread owns.
pub(super) struct Writer {
    pub(super) conn: Connection,
    pub(super) queue: Arc<WriteQueue>,
    pub(super) settings: StoreSettings,
    pub(super) hand_over: Arc<dyn HandOver>,
    pub(super) routes: RoutingTable,
    pub(super) key_generator: KeyGenerator,
    pub(super) delivery_counts: Arc<DeliveryCounts>,
    pub(super) history: History,
    pub(super) cache: WriterCache,
    pub(super) meters: UsageCounters,
    pub(super) checkpoints: Checkpoints,
    pub(super) log_pages: Arc<AtomicU32>,
    pub(super) faults: Arc<Faults>,
    pub(super) max_pages: u32,
    pub(super) readers: Arc<Readers>,
    pub(super) lock: Lock,
    /// Completes the answer to the caller that closes the store.
    pub(super) closed: Arc<ThreadEnd>,
    pub(super) to_retry: RetryQueue,
}

/// Operations that failed and must be completed.
#[derive(Default)]
pub(super) struct RetryQueue {
    operations: Vec<DequeuedOperation>,
    /// The time of the next try.
    at: Option<Instant>,
}

/// Drop guard: fails everything that waits and marks the thread as ended if it panics.
struct PanicGuard {
    queue: Arc<WriteQueue>,
    hand_over: Arc<dyn HandOver>,
    closed: Arc<ThreadEnd>,
}

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let why = stopped();
            self.queue.fail(&why);
            if self.closed.broke(why.clone()) {
                self.hand_over.broken(&why);
            }
            self.closed.end();
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
        let ending = PanicGuard {
            queue: self.queue.clone(),
            hand_over: self.hand_over.clone(),
            closed: self.closed.clone(),
        };
        loop {
            let busy = self.history.is_behind() && !self.closed.is_broken();
            let at_most = match (busy, self.to_retry.at) {
                (true, _) => Some(Duration::ZERO),
                (false, Some(_)) => Some(RETRY_INTERVAL),
                (false, None) => None,
            };
            match self.queue.wait(at_most) {
                Waiting::Operations(count) => self.write(GroupBudget::new(count)),
                Waiting::Nothing => {}
                Waiting::Closed => break,
            }
            self.retry();
            self.maintain();
        }
        self.readers.stop();
        self.checkpoints.stop(&self.conn);
        drop(self.conn);
        drop(self.lock);
        drop(ending);
        self.closed.end();
    }

    /// Writes the next group.
    fn write(&mut self, budget: GroupBudget) {
        self.limit_pages();
        let mut group = Vec::new();
        match self.commit(&mut group, Some(budget)) {
            Ok(()) => self.complete(group),
            Err(Failed::InDoubt(error)) => self.break_down(group, &error),
            Err(Failed::NotBegun(error)) => self.fail(group, &error),
            Err(Failed::RolledBack(error)) if group.len() == 1 => self.fail(group, &error),
            Err(Failed::RolledBack(_)) => self.write_one_by_one(group),
        }
    }

    fn write_one_by_one(&mut self, group: Vec<DequeuedOperation>) {
        let mut rest = group.into_iter();
        while let Some(operation) = rest.next() {
            let mut alone = vec![operation];
            match self.commit(&mut alone, None) {
                Ok(()) if alone.iter().any(|taken| taken.item.continues()) => {
                    rest.rev().for_each(|taken| self.queue.put_back(taken));
                    return self.complete(alone);
                }
                Ok(()) => self.complete(alone),
                Err(Failed::RolledBack(error)) => self.fail(alone, &error),
                Err(Failed::NotBegun(error)) => {
                    alone.extend(rest);
                    return self.fail(alone, &error);
                }
                Err(Failed::InDoubt(error)) => {
                    alone.extend(rest);
                    return self.break_down(alone, &error);
                }
            }
        }
    }

    /// Answers the callers of committed operations. What continues is put back, after the turns of the others.
    fn complete(&self, group: Vec<DequeuedOperation>) {
        for taken in group {
            if let Some(item) = taken.item.committed() {
                self.queue.put_back(DequeuedOperation { item, ..taken });
            }
        }
    }

    /// Answers the callers of operations that were not written.
    fn fail(&mut self, group: Vec<DequeuedOperation>, error: &rusqlite::Error) {
        for taken in group {
            if let Some(item) = taken.item.failed(store_error(error)) {
                self.to_retry
                    .operations
                    .push(DequeuedOperation { item, ..taken });
                let next = Instant::now() + RETRY_INTERVAL;
                self.to_retry.at = Some(self.to_retry.at.map_or(next, |at| at.min(next)));
            }
        }
    }

    /// Enqueues the operations that must be completed, if it is time.
    fn retry(&mut self) {
        if self.to_retry.at.is_some_and(|at| at <= Instant::now()) {
            let to_retry = std::mem::take(&mut self.to_retry);
            for taken in to_retry.operations {
                self.queue.put_back(taken);
            }
        }
    }

    /// Runs operations in one transaction and, after the commit, applies its effects in memory. With a budget, first
    /// takes operations from the queue until it is used up.
    fn commit(
        &mut self,
        group: &mut Vec<DequeuedOperation>,
        budget: Option<GroupBudget>,
    ) -> Result<(), Failed> {
        let (began, rows) = (Instant::now(), self.conn.total_changes());
        let mut effects = SideEffects::default();
        let run = self.run(group, budget, &mut effects);
        match run {
            Ok(()) => {
                self.routes.keep();
                self.meters.keep();
                self.delivery_counts.apply(&effects.count_changes);
                self.history.keep();
                self.history.note_new(effects.new_rows);
                let rows = self.conn.total_changes() - rows;
                self.faults.committed(group.len(), rows, began.elapsed());
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
        group: &mut Vec<DequeuedOperation>,
        budget: Option<GroupBudget>,
        effects: &mut SideEffects,
    ) -> Result<(), Failed> {
        if let Err(error) = begin(&self.conn, &self.faults) {
            if let Some(mut budget) = budget {
                while !budget.is_used_up() && take(&self.queue, &mut budget, group).is_some() {}
            }
            return Err(error);
        }
        let mut context = WriteContext {
            conn: &self.conn,
            routes: &mut self.routes,
            key_generator: &mut self.key_generator,
            settings: &self.settings,
            effects,
            cache: &mut self.cache,
            history: &mut self.history,
            meters: &mut self.meters,
        };
        for taken in group.iter_mut() {
            taken.item.run(&mut context)?;
        }
        if let Some(mut budget) = budget {
            while !budget.is_used_up()
                && let Some(taken) = take(&self.queue, &mut budget, group)
            {
                let before = context.conn.total_changes();
                let ran = taken.item.run(&mut context);
                let rows = (context.conn.total_changes() - before) * taken.item.row_cost();
                let rows = rows + std::mem::take(&mut context.effects.other_work);
                budget.spend(rows);
                let rows = rows + (taken.item.bytes() / BYTES_PER_ROW) as u64;
                self.queue.charge(&taken.class, rows.saturating_sub(1));
                ran?;
                if taken.item.continues() {
                    break;
                }
            }
        }
        notifications::write_failures(&mut context)?;
        stats::write_changes(&mut context)?;
        self.meters.write(&self.conn)?;
        finish(&self.conn, &self.faults)
    }

    fn roll_back(&mut self) {
        if !self.conn.is_autocommit()
            && let Err(error) = self.conn.execute_batch("ROLLBACK")
        {
            tracing::error!(target: LOG_TARGET, %error, "cannot roll back a transaction");
        }
        self.routes.put_back();
        self.meters.put_back();
        self.history.start_over();
        self.cache = WriterCache::default();
    }

    /// Stops the store: it is unknown what is on disk, so no operation is acknowledged any more.
    fn break_down(&mut self, group: Vec<DequeuedOperation>, error: &rusqlite::Error) {
        let why = StoreError::Unavailable(format!("disk error: {error}"));
        tracing::error!(target: LOG_TARGET, %error, "the store has failed");
        if self.closed.broke(why.clone()) {
            self.hand_over.broken(&why);
        }
        for taken in group {
            drop(taken.item.failed(why.clone()));
        }
        self.to_retry = RetryQueue::default();
        self.queue.fail(&why);
    }

    /// Does a small part of the deferred work.
    fn maintain(&mut self) {
        if self.closed.is_broken() {
            return;
        }
        if self.history.is_behind()
            && let Err(failed) = self.extend_history()
        {
            self.roll_back();
            match failed {
                // Probably the disk is full. Reads work without the history, but more slowly.
                Failed::RolledBack(error) | Failed::NotBegun(error) => {
                    self.history.rest();
                    tracing::warn!(target: LOG_TARGET, %error, "cannot extend the history");
                }
                Failed::InDoubt(error) => self.break_down(Vec::new(), &error),
            }
        }
        let pages = self.log_pages.load(Ordering::Relaxed);
        self.checkpoints.logged(&self.conn, pages);
    }

    fn extend_history(&mut self) -> Result<(), Failed> {
        begin(&self.conn, &Faults::default())?;
        self.history.step(&self.conn)?;
        finish(&self.conn, &Faults::default())?;
        self.history.keep();
        Ok(())
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
                tracing::error!(target: LOG_TARGET, %error, "cannot limit the size of the file");
            }
        }
    }
}

/// The outcome of a failed transaction.
enum Failed {
    /// It did not start because another process locks the file. A retry per operation would wait as long each time.
    NotBegun(rusqlite::Error),
    /// Nothing of it was written.
    RolledBack(rusqlite::Error),
    /// It is unknown whether it was written.
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

fn begin(conn: &Connection, faults: &Faults) -> Result<(), Failed> {
    let begun = faults
        .before_begin()
        .and_then(|()| conn.prepare_cached("BEGIN IMMEDIATE")?.execute([]));
    match begun {
        Ok(_) => Ok(()),
        Err(error) if is_damage(&error) => Err(Failed::InDoubt(error)),
        Err(error) => Err(Failed::NotBegun(error)),
    }
}

fn finish(conn: &Connection, faults: &Faults) -> Result<(), Failed> {
    let commit = faults
        .before_commit()
        .and_then(|()| conn.prepare_cached("COMMIT")?.execute([]));
    match commit {
        Ok(_) => Ok(()),
        Err(error) if is_commit_uncertain(&error) => Err(Failed::InDoubt(error)),
        Err(error) => Err(Failed::RolledBack(error)),
    }
}

/// Takes the next operation into a group, if its budget allows it.
fn take<'g>(
    queue: &WriteQueue,
    budget: &mut GroupBudget,
    group: &'g mut Vec<DequeuedOperation>,
) -> Option<&'g mut DequeuedOperation> {
    let taken = queue.take()?;
    if !budget.take(taken.item.bytes()) {
        queue.put_back(taken);
        return None;
    }
    group.push(taken);
    group.last_mut()
}
