//! Connections for reads, apart from the writer's connection.
//!
//! Point reads, on which sending and every API request wait, have connections of their own, so that no long list delays
//! them. Each connection is opened when it is first needed.
//!
//! A database restart closes every connection. A read that finds its connection dead is repeated once, on a new one and
//! within the same time limit, so that no caller gets an error while the database is up. While the database is down,
//! reads wait for the next attempt to connect (at most `Pauses::most`); if it fails, every read that was waiting when the
//! attempt started is refused with it.

use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::fault::{Fault, Verdict};
use super::link::{ANSWER, Connector, GRACE, Link, NotConnected, QUICK_ANSWER};
use super::reply::Reply;
use super::settings::PostgresSettings;
use crate::{Done, StoreError};

/// How many connections answer lists.
const LONG_READERS: usize = 1;
/// How many connections look through everything.
const ENDLESS_READERS: usize = 1;
/// How many reads may wait for one kind of connection.
const MAX_WAITING_READS: usize = 16_384;
/// A read that looks through everything may take so long.
const ENDLESS_MS: u32 = 600_000;

/// The least time that a read gets on a connection that took long to open.
const MIN_ANSWER: Duration = Duration::from_secs(1);
/// Connections that one read may use: the second only if the first was dead.
const MAX_TRIES: u32 = 2;

/// How long a read may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// A few rows.
    Quick,
    /// Perhaps thousands.
    Long,
    /// Perhaps all there are: nobody else should stand behind that.
    Endless,
}

impl Pace {
    /// The time limit of one read.
    fn time_limit(self) -> Duration {
        match self {
            Pace::Quick => QUICK_ANSWER,
            Pace::Long => ANSWER,
            Pace::Endless => Duration::from_millis(ENDLESS_MS.into()) + GRACE,
        }
    }
}

/// The result of running a read on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ran {
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
        link: &'a Link,
        is_last_try: bool,
    ) -> Pin<Box<dyn Future<Output = Ran> + 'a>>;

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
            reply.give(result);
        }
    }
}

impl<T, F> Job for Read<T, F>
where
    T: Send + 'static,
    F: AsyncFn(&Link) -> Result<T, Fault> + Send + 'static,
{
    fn run<'a>(
        &'a mut self,
        link: &'a Link,
        is_last_try: bool,
    ) -> Pin<Box<dyn Future<Output = Ran> + 'a>> {
        Box::pin(async move {
            let result = if self.whole {
                snapshot(link, &self.read).await
            } else {
                (self.read)(link).await
            };
            let is_unusable = result
                .as_ref()
                .is_err_and(|fault| matches!(fault.verdict(), Verdict::Lost | Verdict::Unprepared));
            // A read that timed out has used up its time limit.
            let timed_out = matches!(result, Err(Fault::Silent(_)));
            if is_unusable && !timed_out && !is_last_try {
                return Ran::FoundDead;
            }
            self.answer(result.map_err(Fault::into_store_error));
            if is_unusable {
                Ran::Failed
            } else {
                Ran::Answered
            }
        })
    }

    fn refuse(mut self: Box<Self>, why: StoreError) {
        self.answer(Err(why));
    }
}

/// Runs a read that sees one state of everything throughout.
async fn snapshot<T>(
    link: &Link,
    read: impl AsyncFn(&Link) -> Result<T, Fault>,
) -> Result<T, Fault> {
    link.batch("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        .await?;
    let result = read(link).await;
    // Also after a failure, for the connection is used again.
    let ended = link.batch("COMMIT").await;
    let result = result?;
    ended?;
    Ok(result)
}

/// All the connections.
pub(super) struct Readers {
    quick: Arc<Desk>,
    long: Arc<Desk>,
    endless: Arc<Desk>,
}

impl Readers {
    /// Desks at which nobody works yet.
    pub(super) fn new() -> Readers {
        Readers {
            quick: Arc::new(Desk::default()),
            long: Arc::new(Desk::default()),
            endless: Arc::new(Desk::default()),
        }
    }

    /// Begins to work.
    pub(super) fn start(&self, settings: &Rc<PostgresSettings>) -> Vec<JoinHandle<()>> {
        let mut tasks = Vec::new();
        for (desk, count, pace) in [
            (&self.quick, settings.quick_readers.max(1), Pace::Quick),
            (&self.long, LONG_READERS, Pace::Long),
            (&self.endless, ENDLESS_READERS, Pace::Endless),
        ] {
            for _ in 0..count {
                let desk = desk.clone();
                let connector = Connector::new(settings.clone());
                tasks.push(tokio::task::spawn_local(desk.work(connector, pace)));
            }
        }
        tasks
    }

    /// Reads with `read`, and says what came of it. If `whole`, it sees one state throughout, which one
    /// statement does anyway.
    pub(super) fn read<T, F>(&self, pace: Pace, whole: bool, read: F, done: Done<T>)
    where
        T: Send + 'static,
        F: AsyncFn(&Link) -> Result<T, Fault> + Send + 'static,
    {
        let desk = match pace {
            Pace::Quick => &self.quick,
            Pace::Long => &self.long,
            Pace::Endless => &self.endless,
        };
        let reply = Some(Reply::new(done));
        desk.push(Box::new(Read { read, whole, reply }));
    }

    /// Takes nothing more. What waits already is still answered.
    pub(super) fn close(&self) {
        self.quick.shut();
        self.long.shut();
        self.endless.shut();
    }

    /// Refuses whatever still waits, when no connection works any more.
    pub(super) fn refuse_all(&self) {
        for desk in [&self.quick, &self.long, &self.endless] {
            let waiting = std::mem::take(&mut desk.lock().waiting);
            for (_, job) in waiting {
                job.refuse(StoreError::Closed);
            }
        }
    }
}

#[derive(Default)]
struct Desk {
    inner: Mutex<Inner>,
    filled: Notify,
}

#[derive(Default)]
struct Inner {
    /// With the time at which each arrived, oldest first.
    waiting: VecDeque<(Instant, Box<dyn Job>)>,
    /// The number of connections of this desk that were usable when they were last used.
    connected: usize,
    shut: bool,
}

impl Desk {
    fn push(&self, job: Box<dyn Job>) {
        let refused = {
            let mut inner = self.lock();
            if inner.shut {
                Some((job, StoreError::Closed))
            } else if inner.waiting.len() >= MAX_WAITING_READS {
                Some((job, StoreError::Overloaded))
            } else {
                inner.waiting.push_back((Instant::now(), job));
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

    async fn next(&self) -> Option<Box<dyn Job>> {
        loop {
            {
                let mut inner = self.lock();
                if let Some((_, job)) = inner.waiting.pop_front() {
                    // Whoever was woken for another may have found this one.
                    if !inner.waiting.is_empty() || inner.shut {
                        self.filled.notify_one();
                    }
                    return Some(job);
                }
                if inner.shut {
                    self.filled.notify_one();
                    return None;
                }
            }
            self.filled.notified().await;
        }
    }

    async fn work(self: Arc<Self>, mut connector: Connector, pace: Pace) {
        let mut was_connected = false;
        loop {
            // Another connection serves what waits while this one may not be opened yet.
            if let Some(next_try_at) = connector.next_try_at()
                && self.lock().connected > 0
            {
                tokio::time::sleep_until(next_try_at).await;
            }
            let Some(job) = self.next().await else {
                return;
            };
            self.serve(&mut connector, pace, job, was_connected).await;
            let is_connected = connector.is_connected();
            let mut inner = self.lock();
            inner.connected += usize::from(is_connected);
            inner.connected -= usize::from(was_connected);
            was_connected = is_connected;
        }
    }

    /// Answers one read, on a second connection if the first is found dead.
    async fn serve(
        &self,
        connector: &mut Connector,
        pace: Pace,
        mut job: Box<dyn Job>,
        was_connected: bool,
    ) {
        let deadline = Instant::now() + pace.time_limit();
        for tries in 1..=MAX_TRIES {
            let link = match timeout_at(deadline, connector.link()).await {
                Ok(Ok(link)) => link,
                Ok(Err(NotConnected { tried_at, why })) => {
                    if self.lock().connected > usize::from(was_connected) {
                        // Another connection serves it.
                        return self.put_back(job);
                    }
                    self.refuse_older(tried_at, &why);
                    return job.refuse(why);
                }
                Err(_) => {
                    let why = format!("no connection within {} s", pace.time_limit().as_secs());
                    return job.refuse(StoreError::Unavailable(why));
                }
            };
            let remaining = deadline.saturating_duration_since(Instant::now());
            link.wait_for(remaining.max(MIN_ANSWER));
            if pace == Pace::Endless
                && let Err(fault) = link
                    .batch(&format!("SET statement_timeout = {ENDLESS_MS}"))
                    .await
            {
                connector.drop_link();
                if tries == MAX_TRIES {
                    return job.refuse(fault.into_store_error());
                }
                continue;
            }
            match job.run(&link, tries == MAX_TRIES).await {
                Ran::Answered => return,
                Ran::Failed => return connector.drop_link(),
                Ran::FoundDead => connector.drop_link(),
            }
        }
    }

    /// Puts a read before all others, for another connection.
    fn put_back(&self, job: Box<dyn Job>) {
        self.lock().waiting.push_front((Instant::now(), job));
        self.filled.notify_one();
    }

    /// Refuses every waiting read that arrived before a failed attempt to connect was started. One that arrived later
    /// waits for the next attempt: the database may have come back in between.
    fn refuse_older(&self, tried_at: Instant, why: &StoreError) {
        let refused: Vec<Box<dyn Job>> = {
            let mut inner = self.lock();
            let count = inner.waiting.partition_point(|(at, _)| *at < tried_at);
            inner.waiting.drain(..count).map(|(_, job)| job).collect()
        };
        for job in refused {
            job.refuse(why.clone());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
