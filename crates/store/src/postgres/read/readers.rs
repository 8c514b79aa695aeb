//! Connections for reads, apart from the writer's connection.
//!
//! Point reads, on which sending and every API request wait, have connections of their own, so that no long list
//! delays them. Each connection is opened when it is first needed.
//!
//! A database restart closes every connection. A read that finds its connection dead is repeated once, on a new one,
//! so that no caller gets an error while the database is up. While the database is down, reads wait for the next
//! attempt to connect (at most `ReconnectBackoff::most`); if it fails, every read that was waiting when the attempt
//! started is refused with it. A worker whose connection cannot be opened leaves reads to those that are connected.

use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::postgres::connection::{
    ANSWER_TIMEOUT, Connector, NotConnected, PgConnection, QUICK_ANSWER_TIMEOUT, TIMEOUT_GRACE,
};
use crate::postgres::db_error::{DbError, ErrorKind};
use crate::postgres::settings::PostgresSettings;
use crate::read_duration::ReadDuration;
use crate::reply::Reply;
use crate::search_slots::SearchSlots;
use crate::{Done, StoreError};

/// Number of connections for lists.
const LONG_READERS: usize = 1;
/// Number of connections for scans of whole tables.
const ENDLESS_READERS: usize = 1;
/// Maximum number of reads that wait for one kind of connection.
const MAX_WAITING_READS: usize = 16_384;
/// Statement timeout of a scan, in milliseconds.
const ENDLESS_MS: u32 = 600_000;

/// The least time that a read gets on a connection that took long to open.
const MIN_ANSWER: Duration = Duration::from_secs(1);
/// Connections that one read may use: the second only if the first was dead.
const MAX_TRIES: u32 = 2;

/// The time limit of one read.
fn time_limit(duration: ReadDuration) -> Duration {
    match duration {
        ReadDuration::Quick => QUICK_ANSWER_TIMEOUT,
        ReadDuration::Long => ANSWER_TIMEOUT,
        ReadDuration::Endless => Duration::from_millis(ENDLESS_MS.into()) + TIMEOUT_GRACE,
    }
}

/// The result of running a read on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunOutcome {
    /// The caller has its answer, and the connection can be used again.
    Answered,
    /// The caller has its answer (an error), and the connection must be dropped.
    Failed,
    /// The connection was dead. The caller has no answer yet, since another connection may give it one.
    FoundDead,
}

/// A read that waits for a connection.
trait Job: Send {
    /// Runs the read. If this is not its last try and the connection is dead, it may be run again.
    fn run<'a>(
        &'a mut self,
        conn: &'a PgConnection,
        is_last_try: bool,
    ) -> Pin<Box<dyn Future<Output = RunOutcome> + 'a>>;

    /// Answers the caller with an error.
    fn refuse(self: Box<Self>, why: StoreError);
}

struct Read<T, F> {
    read: F,
    whole: bool,
    /// Empty once the caller has its answer.
    reply: Option<Reply<T>>,
}

impl<T, F> Read<T, F> {
    fn answer(&mut self, result: Result<T, StoreError>) {
        if let Some(reply) = self.reply.take() {
            reply.send(result);
        }
    }
}

impl<T, F> Job for Read<T, F>
where
    T: Send + 'static,
    F: AsyncFn(&PgConnection) -> Result<T, DbError> + Send + 'static,
{
    fn run<'a>(
        &'a mut self,
        conn: &'a PgConnection,
        is_last_try: bool,
    ) -> Pin<Box<dyn Future<Output = RunOutcome> + 'a>> {
        Box::pin(async move {
            let result = if self.whole {
                snapshot(conn, &self.read).await
            } else {
                (self.read)(conn).await
            };
            let is_unusable = result.as_ref().is_err_and(|fault| {
                matches!(fault.kind(), ErrorKind::Lost | ErrorKind::Unprepared)
            });
            // A read that timed out has used up its time limit.
            let timed_out = matches!(result, Err(DbError::TimedOut(_)));
            if is_unusable && !timed_out && !is_last_try {
                return RunOutcome::FoundDead;
            }
            self.answer(result.map_err(DbError::into_store_error));
            if is_unusable {
                RunOutcome::Failed
            } else {
                RunOutcome::Answered
            }
        })
    }

    fn refuse(mut self: Box<Self>, why: StoreError) {
        self.answer(Err(why));
    }
}

/// Runs a read in a transaction with one snapshot.
async fn snapshot<T>(
    conn: &PgConnection,
    read: impl AsyncFn(&PgConnection) -> Result<T, DbError>,
) -> Result<T, DbError> {
    conn.batch("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        .await?;
    let result = read(conn).await;
    // Also after a failure, because the connection is used again.
    let ended = conn.batch("COMMIT").await;
    let result = result?;
    ended?;
    Ok(result)
}

/// The read queues, one for each kind of read.
pub(in crate::postgres) struct Readers {
    quick: Arc<ReadQueue>,
    long: Arc<ReadQueue>,
    endless: Arc<ReadQueue>,
    /// Limits the searches for the targets of replays.
    pub(super) search_slots: Arc<SearchSlots>,
}

impl Readers {
    /// Creates queues without workers.
    pub(in crate::postgres) fn new() -> Readers {
        Readers {
            quick: Arc::new(ReadQueue::default()),
            long: Arc::new(ReadQueue::default()),
            endless: Arc::new(ReadQueue::default()),
            search_slots: Arc::default(),
        }
    }

    /// Starts the workers.
    pub(in crate::postgres) fn start(
        &self,
        settings: &Rc<PostgresSettings>,
    ) -> Vec<JoinHandle<()>> {
        let mut tasks = Vec::new();
        for (queue, count, duration) in [
            (
                &self.quick,
                settings.quick_readers.max(1),
                ReadDuration::Quick,
            ),
            (&self.long, LONG_READERS, ReadDuration::Long),
            (&self.endless, ENDLESS_READERS, ReadDuration::Endless),
        ] {
            for _ in 0..count {
                let queue = queue.clone();
                let connector = Connector::new(settings.clone());
                tasks.push(tokio::task::spawn_local(queue.work(connector, duration)));
            }
        }
        tasks
    }

    /// Enqueues a read, and answers through `done`. If `whole` is set, all its statements see one snapshot. A single
    /// statement does so anyway.
    pub(in crate::postgres) fn read<T, F>(
        &self,
        duration: ReadDuration,
        whole: bool,
        read: F,
        done: Done<T>,
    ) where
        T: Send + 'static,
        F: AsyncFn(&PgConnection) -> Result<T, DbError> + Send + 'static,
    {
        let queue = match duration {
            ReadDuration::Quick => &self.quick,
            ReadDuration::Long => &self.long,
            ReadDuration::Endless => &self.endless,
        };
        let reply = Some(Reply::new(done));
        queue.push(Box::new(Read { read, whole, reply }));
    }

    /// Closes the queues. Reads that wait already are still answered.
    pub(in crate::postgres) fn close(&self) {
        self.quick.shut();
        self.long.shut();
        self.endless.shut();
    }

    /// Refuses all waiting reads, when no worker runs any more.
    pub(in crate::postgres) fn refuse_all(&self) {
        for queue in [&self.quick, &self.long, &self.endless] {
            let waiting = std::mem::take(&mut queue.lock().waiting);
            for waiting in waiting {
                waiting.job.refuse(StoreError::Closed);
            }
        }
    }
}

/// The reads that wait for one kind of connection, and the workers that serve them.
#[derive(Default)]
struct ReadQueue {
    inner: Mutex<Inner>,
    filled: Notify,
}

#[derive(Default)]
struct Inner {
    /// Oldest first.
    waiting: VecDeque<Waiting>,
    /// The number of workers that have a connection, as far as they know.
    connected: usize,
    shut: bool,
}

/// A read in the queue.
struct Waiting {
    arrived_at: Instant,
    /// The number of connections that it was run on, and that were dead.
    tries: u32,
    job: Box<dyn Job>,
}

/// Counts a worker in [`Inner::connected`] while it has a connection, also if it ends or panics.
struct ConnectedGuard<'a> {
    queue: &'a ReadQueue,
    is_connected: bool,
}

impl ConnectedGuard<'_> {
    fn set(&mut self, is_connected: bool) {
        if is_connected == self.is_connected {
            return;
        }
        self.is_connected = is_connected;
        let mut inner = self.queue.lock();
        match is_connected {
            true => inner.connected += 1,
            false => inner.connected -= 1,
        }
    }
}

impl Drop for ConnectedGuard<'_> {
    fn drop(&mut self) {
        self.set(false);
    }
}

impl ReadQueue {
    fn push(&self, job: Box<dyn Job>) {
        let refused = {
            let mut inner = self.lock();
            if inner.shut {
                Some((job, StoreError::Closed))
            } else if inner.waiting.len() >= MAX_WAITING_READS {
                Some((job, StoreError::Overloaded))
            } else {
                inner.waiting.push_back(Waiting {
                    arrived_at: Instant::now(),
                    tries: 0,
                    job,
                });
                None
            }
        };
        match refused {
            None => self.filled.notify_one(),
            Some((job, why)) => job.refuse(why),
        }
    }

    fn shut(&self) {
        self.lock().shut = true;
        self.filled.notify_one();
    }

    /// Waits for the oldest read and takes it. Returns `None` when the queue is shut and nothing waits.
    async fn next(&self) -> Option<Waiting> {
        loop {
            {
                let mut inner = self.lock();
                if let Some(waiting) = inner.waiting.pop_front() {
                    // The worker that was woken for another read may have found this one.
                    if !inner.waiting.is_empty() || inner.shut {
                        self.filled.notify_one();
                    }
                    return Some(waiting);
                }
                if inner.shut {
                    self.filled.notify_one();
                    return None;
                }
            }
            self.filled.notified().await;
        }
    }

    /// Serves reads on one connection until the queue is shut. A worker that failed to connect takes no read before it
    /// has succeeded, so that it takes none from workers that are connected.
    async fn work(self: Arc<Self>, mut connector: Connector, duration: ReadDuration) {
        let mut presence = ConnectedGuard {
            queue: &self,
            is_connected: false,
        };
        loop {
            if connector.has_failed() && !self.is_done() {
                match connector.conn().await {
                    Ok(_) => presence.set(true),
                    Err(failed) => {
                        self.refuse_older(&failed);
                        continue;
                    }
                }
            }
            let Some(waiting) = self.next().await else {
                return;
            };
            self.serve(&mut connector, &mut presence, duration, waiting)
                .await;
            presence.set(connector.is_connected());
        }
    }

    /// Answers one read, on a second connection if the first is found dead. Puts it back if this worker cannot
    /// connect while another one is connected.
    async fn serve(
        &self,
        connector: &mut Connector,
        presence: &mut ConnectedGuard<'_>,
        duration: ReadDuration,
        mut waiting: Waiting,
    ) {
        let deadline = Instant::now() + time_limit(duration);
        while waiting.tries < MAX_TRIES {
            let conn = match connector.conn().await {
                Ok(conn) => conn,
                Err(failed) => {
                    presence.set(false);
                    if self.lock().connected > 0 {
                        return self.put_back(waiting);
                    }
                    self.refuse_older(&failed);
                    return waiting.job.refuse(failed.why);
                }
            };
            presence.set(true);
            let remaining = deadline.saturating_duration_since(Instant::now());
            conn.set_time_limit(remaining.max(MIN_ANSWER));
            if duration == ReadDuration::Endless {
                // If this fails, so does the read.
                let _ = conn
                    .batch(&format!("SET statement_timeout = {ENDLESS_MS}"))
                    .await;
            }
            waiting.tries += 1;
            match waiting.job.run(&conn, waiting.tries == MAX_TRIES).await {
                RunOutcome::Answered => return,
                RunOutcome::Failed => return connector.drop_connection(),
                RunOutcome::FoundDead => connector.drop_connection(),
            }
        }
    }

    /// Puts a read back at its position in the queue, for another worker.
    fn put_back(&self, waiting: Waiting) {
        let mut inner = self.lock();
        let arrived_at = waiting.arrived_at;
        let index = inner
            .waiting
            .partition_point(|other| other.arrived_at <= arrived_at);
        inner.waiting.insert(index, waiting);
        drop(inner);
        self.filled.notify_one();
    }

    /// Refuses every waiting read that arrived before a failed attempt to connect was started, unless another worker
    /// is connected. A read that arrived later waits for the next attempt: the database may have come back in
    /// between.
    fn refuse_older(&self, failed: &NotConnected) {
        let refused: Vec<Waiting> = {
            let mut inner = self.lock();
            if inner.connected > 0 {
                return;
            }
            let count = inner
                .waiting
                .partition_point(|waiting| waiting.arrived_at < failed.tried_at);
            inner.waiting.drain(..count).collect()
        };
        for waiting in refused {
            waiting.job.refuse(failed.why.clone());
        }
    }

    /// Returns whether the queue is shut and nothing waits.
    fn is_done(&self) -> bool {
        let inner = self.lock();
        inner.shut && inner.waiting.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
