//! Operations in the write queue.
//!
//! *Hot* operations accept events and record attempts. The writer combines all hot operations of a group into a few
//! array statements and sends them together. All others are *cold*: each is a function that runs in its own
//! transaction, in queue order between the hot ones. Both kinds may run more than once, each time from the start,
//! after the previous run was rolled back. A *barrier* writes nothing.

use std::pin::Pin;

use posthaste_core::dispatcher::AttemptRecord;
use posthaste_core::id::TenantId;
use posthaste_core::time::Timestamp;

use super::owned_shards::Ownership;
use super::write_context::WriteContext;
use crate::postgres::db_error::DbError;
use crate::reply::{AcceptReply, Reply};
use crate::{AttemptDetail, Done, NewEvent, Quotas, ScheduleAdvance, StoreError, Written};

/// An operation of the write queue.
pub(in crate::postgres) enum Operation {
    /// Events to accept.
    Accept(AcceptOperation),
    /// An attempt to record.
    Record(Box<RecordOperation>),
    /// Any other operation.
    Cold(Box<dyn ColdOperation>),
    /// A position in the queue. Called when everything before it was written or has failed, without the database.
    Barrier(Box<dyn FnOnce() + Send>),
}

/// Events of one tenant that are accepted together.
pub(in crate::postgres) struct AcceptOperation {
    pub(in crate::postgres) now: Timestamp,
    pub(in crate::postgres) events: Box<[NewEvent]>,
    pub(in crate::postgres) quotas: Quotas,
    pub(in crate::postgres) bytes: usize,
    /// The decision about a schedule that the events belong to.
    pub(in crate::postgres) advance: Option<Box<AdvanceOperation>>,
    pub(in crate::postgres) reply: AcceptReply,
}

/// A decision about a schedule. Two decisions about one schedule go to different batches.
pub(in crate::postgres) struct AdvanceOperation {
    pub(in crate::postgres) advance: ScheduleAdvance,
    /// The ownership under which the owner of the schedule decided.
    pub(in crate::postgres) ownership: Option<Ownership>,
}

impl AcceptOperation {
    /// The tenant of the events, unless there are none and no decision either.
    pub(super) fn tenant(&self) -> Option<&TenantId> {
        match (&self.advance, self.events.first()) {
            (Some(it), _) => Some(&it.advance.tenant),
            (None, Some(event)) => Some(&event.tenant),
            (None, None) => None,
        }
    }
}

/// An attempt that does not disable its endpoint. A second attempt of the same delivery goes to another batch.
pub(in crate::postgres) struct RecordOperation {
    pub(in crate::postgres) now: Timestamp,
    pub(in crate::postgres) attempt: AttemptRecord,
    pub(in crate::postgres) detail: AttemptDetail,
    /// The ownership under which the attempt was submitted. The attempt is not recorded under a later one.
    pub(in crate::postgres) ownership: Ownership,
    pub(in crate::postgres) reply: Reply<Written>,
}

impl Operation {
    /// Answers the operation with an error, without running it.
    pub(in crate::postgres) fn refuse(self, why: StoreError) {
        match self {
            Operation::Accept(accepting) => accepting.reply.send(Err(why)),
            Operation::Record(recording) => recording.reply.send(Err(why)),
            Operation::Cold(cold) => cold.answer(Err(why)),
            Operation::Barrier(pass) => pass(),
        }
    }
}

/// The future of a running cold operation.
pub(in crate::postgres) type Running<'a> = Pin<Box<dyn Future<Output = Result<(), DbError>> + 'a>>;

/// An operation that runs in its own transaction.
pub(in crate::postgres) trait ColdOperation: Send {
    /// Runs the operation. May be called again after a rollback.
    fn run<'a>(&'a mut self, context: &'a mut WriteContext) -> Running<'a>;
    /// Answers the caller.
    fn answer(self: Box<Self>, committed: Result<(), StoreError>);
    /// Called when the operation is the owner's and this node is not the owner any more. Sets the answer for that
    /// case, and returns whether there is one.
    fn fenced(&mut self) -> bool;
}

/// A cold operation that answers with a `T`.
pub(in crate::postgres) struct Task<T, F> {
    run: F,
    result: Option<T>,
    /// The answer if this node is not the owner any more.
    if_fenced: Option<T>,
    reply: Option<Reply<T>>,
}

impl<T, F> Task<T, F>
where
    T: Send + 'static,
    F: AsyncFnMut(&mut WriteContext) -> Result<T, DbError> + Send + 'static,
{
    /// Creates an operation that runs `run` and answers through `done`.
    pub(in crate::postgres) fn boxed(run: F, done: Done<T>) -> Operation {
        Task::owners(None, run, done)
    }

    /// The same for an operation that only the owner may run; `if_fenced` is the answer if this node is not the
    /// owner.
    pub(in crate::postgres) fn owners(if_fenced: Option<T>, run: F, done: Done<T>) -> Operation {
        Operation::Cold(Box::new(Task {
            run,
            result: None,
            if_fenced,
            reply: Some(Reply::new(done)),
        }))
    }
}

impl<T, F> ColdOperation for Task<T, F>
where
    T: Send + 'static,
    F: AsyncFnMut(&mut WriteContext) -> Result<T, DbError> + Send + 'static,
{
    fn run<'a>(&'a mut self, context: &'a mut WriteContext) -> Running<'a> {
        Box::pin(async move {
            self.result = Some((self.run)(context).await?);
            Ok(())
        })
    }

    fn answer(mut self: Box<Self>, committed: Result<(), StoreError>) {
        let result = self.result.take();
        if let Some(reply) = self.reply.take() {
            reply.send(committed.map(|()| result.expect("what is committed was run")));
        }
    }

    fn fenced(&mut self) -> bool {
        self.result = self.if_fenced.take();
        self.result.is_some()
    }
}
