//! The connections that read.
//!
//! None is ever in the writer's way. Point reads, on which sending and every request wait, have
//! connections of their own: a long list must not stand before them. Each is opened when it is first
//! needed.

use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::fault::{Fault, Verdict};
use super::link::{ANSWER, Connector, GRACE, Link, QUICK_ANSWER};
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

/// What a reading says of its connection when it is over.
type Reading<'a> = Pin<Box<dyn Future<Output = Option<Verdict>> + 'a>>;

/// Something to be read.
trait Job: Send {
    fn run(self: Box<Self>, link: Rc<Link>) -> Reading<'static>;
    fn refuse(self: Box<Self>, why: StoreError);
}

struct Read<T, F> {
    read: F,
    whole: bool,
    reply: Reply<T>,
}

impl<T, F> Job for Read<T, F>
where
    T: Send + 'static,
    F: AsyncFnOnce(&Link) -> Result<T, Fault> + Send + 'static,
{
    fn run(self: Box<Self>, link: Rc<Link>) -> Reading<'static> {
        Box::pin(async move {
            let Read { read, whole, reply } = *self;
            let result = if whole {
                snapshot(&link, read).await
            } else {
                read(&link).await
            };
            let verdict = result.as_ref().err().map(Fault::verdict);
            reply.give(result.map_err(Fault::into_store_error));
            verdict
        })
    }

    fn refuse(self: Box<Self>, why: StoreError) {
        self.reply.give(Err(why));
    }
}

/// Runs a read that sees one state of everything throughout.
async fn snapshot<T>(
    link: &Link,
    read: impl AsyncFnOnce(&Link) -> Result<T, Fault>,
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
        F: AsyncFnOnce(&Link) -> Result<T, Fault> + Send + 'static,
    {
        let desk = match pace {
            Pace::Quick => &self.quick,
            Pace::Long => &self.long,
            Pace::Endless => &self.endless,
        };
        let reply = Reply::new(done);
        desk.push(Box::new(Read { read, whole, reply }));
    }

    /// Takes nothing more. What waits already is still answered.
    pub(super) fn close(&self) {
        self.quick.shut();
        self.long.shut();
        self.endless.shut();
    }
}

#[derive(Default)]
struct Desk {
    inner: Mutex<Inner>,
    filled: Notify,
}

#[derive(Default)]
struct Inner {
    waiting: VecDeque<Box<dyn Job>>,
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
                inner.waiting.push_back(job);
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
                if let Some(job) = inner.waiting.pop_front() {
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
        while let Some(job) = self.next().await {
            let link = match connector.link().await {
                Ok(link) => link,
                Err(why) => {
                    job.refuse(why);
                    continue;
                }
            };
            link.wait_for(match pace {
                Pace::Quick => QUICK_ANSWER,
                Pace::Long => ANSWER,
                Pace::Endless => Duration::from_millis(ENDLESS_MS.into()) + GRACE,
            });
            if pace == Pace::Endless
                && link
                    .batch(&format!("SET statement_timeout = {ENDLESS_MS}"))
                    .await
                    .is_err()
            {
                connector.drop_link();
            }
            // What the connection cannot be used for any more, nobody should inherit.
            if job
                .run(link)
                .await
                .is_some_and(|verdict| matches!(verdict, Verdict::Lost | Verdict::Unprepared))
            {
                connector.drop_link();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
