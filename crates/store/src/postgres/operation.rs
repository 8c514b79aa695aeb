//! What can be asked of the writer.
//!
//! *Hot* operations, accepting events and recording attempts, are turned into arrays: a few statements
//! for all of them that gathered, sent in one go. Everything else is *cold*: a piece of code that runs
//! within a transaction of its own, in its place between the hot ones. Either may be done more than once,
//! each time from the beginning, after what it did before was rolled back.

use std::pin::Pin;

use posthaste_core::dispatcher::AttemptRecord;
use posthaste_core::time::Timestamp;

use super::fault::Fault;
use super::holdings::Tenure;
use super::reply::Reply;
use super::scene::Scene;
use crate::{Allowance, AttemptDetail, Done, Ingest, NewEvent, StoreError, Written};

/// Something to be written.
pub(super) enum Operation {
    /// Events to be accepted.
    Accept(Accepting),
    /// What became of an attempt.
    Record(Box<Recording>),
    /// Anything else.
    Cold(Box<dyn Cold>),
}

/// Events of one tenant, to be accepted together.
pub(super) struct Accepting {
    pub(super) now: Timestamp,
    pub(super) events: Vec<NewEvent>,
    pub(super) allowance: Allowance,
    pub(super) bytes: usize,
    pub(super) reply: Reply<Ingest>,
}

/// An attempt that neither disables its endpoint nor follows another of the same delivery in one batch.
pub(super) struct Recording {
    pub(super) now: Timestamp,
    pub(super) attempt: AttemptRecord,
    pub(super) detail: AttemptDetail,
    /// The ownership under which it was handed in. It is not written under a later one.
    pub(super) tenure: Tenure,
    pub(super) reply: Reply<Written>,
}

impl Operation {
    /// How many bytes it brings.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Operation::Accept(accepting) => accepting.bytes,
            Operation::Record(_) => 0,
            Operation::Cold(cold) => cold.bytes(),
        }
    }

    /// It will not be done.
    pub(super) fn refuse(self, why: StoreError) {
        match self {
            Operation::Accept(accepting) => accepting.reply.give(Err(why)),
            Operation::Record(recording) => recording.reply.give(Err(why)),
            Operation::Cold(cold) => cold.answer(Err(why)),
        }
    }
}

/// What running a cold operation will answer.
pub(super) type Running<'a> = Pin<Box<dyn Future<Output = Result<(), Fault>> + 'a>>;

/// Something that is done in a transaction of its own.
pub(super) trait Cold: Send {
    /// Does it. May be called again after a rollback.
    fn run<'a>(&'a mut self, scene: &'a mut Scene) -> Running<'a>;
    /// Says what came of it.
    fn answer(self: Box<Self>, committed: Result<(), StoreError>);
    /// If it is an owner's and this node is none any more, it was done for nothing: what it answers then.
    fn fenced(&mut self) -> bool;
    /// How many bytes it brings.
    fn bytes(&self) -> usize;
}

/// A cold operation that answers with a `T`.
pub(super) struct Task<T, F> {
    run: F,
    result: Option<T>,
    /// The answer of a node that is no owner any more.
    if_fenced: Option<T>,
    reply: Option<Reply<T>>,
    bytes: usize,
}

impl<T, F> Task<T, F>
where
    T: Send + 'static,
    F: AsyncFnMut(&mut Scene) -> Result<T, Fault> + Send + 'static,
{
    /// Runs `run`, and answers with `done`.
    pub(super) fn boxed(bytes: usize, run: F, done: Done<T>) -> Operation {
        Task::owners(bytes, None, run, done)
    }

    /// The same for what only an owner may do; `if_fenced` is the answer if this node is none.
    pub(super) fn owners(bytes: usize, if_fenced: Option<T>, run: F, done: Done<T>) -> Operation {
        Operation::Cold(Box::new(Task {
            run,
            result: None,
            if_fenced,
            reply: Some(Reply::new(done)),
            bytes,
        }))
    }
}

impl<T, F> Cold for Task<T, F>
where
    T: Send + 'static,
    F: AsyncFnMut(&mut Scene) -> Result<T, Fault> + Send + 'static,
{
    fn run<'a>(&'a mut self, scene: &'a mut Scene) -> Running<'a> {
        Box::pin(async move {
            self.result = Some((self.run)(scene).await?);
            Ok(())
        })
    }

    fn answer(mut self: Box<Self>, committed: Result<(), StoreError>) {
        let result = self.result.take();
        if let Some(reply) = self.reply.take() {
            reply.give(committed.map(|()| result.expect("what is committed was run")));
        }
    }

    fn fenced(&mut self) -> bool {
        self.result = self.if_fenced.take();
        self.result.is_some()
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}
