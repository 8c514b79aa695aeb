//! Inputs and commands: the interface between the dispatcher and the engine.
//!
//! The engine reports what happened as an [`Input`]; the dispatcher answers with [`Command`]s. A [`Ticket`] links
//! the result of a command to the command.

use std::sync::Arc;

use crate::classify::Outcome;
use crate::delivery::{DeadReason, Delivery, SettledAttempt, Trigger};
use crate::id::{DeliveryId, EndpointId, EventId, TenantId};
use crate::lane::{DisableCause, EndpointStatus, Fetched, Health, LaneSettings, TripReason};
use crate::time::{Tick, Timestamp};

/// Identifies one command, so that its result can be matched to it. A ticket is never reused. A result whose ticket
/// is not awaited (late or repeated) is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    pub(super) index: u32,
    pub(super) serial: u32,
}

/// The end of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptEnd {
    /// The attempt was made, with this outcome.
    Completed(Outcome),
    /// An internal fault (a panic, a shutdown) ended the attempt. It does not count as an attempt.
    InternalFault(InternalFaultScope),
}

/// The scope of an internal fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InternalFaultScope {
    /// The delivery itself may be the cause: its content cannot be read, or the attempt panicked.
    Delivery,
    /// The delivery itself is the cause: a part of it cannot be decrypted, and everything that others share works. It is
    /// quarantined at once.
    Content,
    /// The cause lies outside the delivery, and other deliveries have it too: the store, the egress proxy, a key, a
    /// shutdown.
    Shared,
}

/// An event that the dispatcher reacts to.
#[derive(Clone, Debug)]
pub enum Input {
    /// Deliveries that were committed just now. The engine passes each of them once, in commit order, and before it
    /// answers any caller who could ask to change the delivery. If it cannot guarantee that, it sends
    /// [`Input::Work`] instead.
    Accepted(Vec<Delivery>),
    /// A delivery for an endpoint is in the store and due at `due`: found at start-up, replayed, or accepted by
    /// another node.
    Work {
        /// The endpoint.
        endpoint: EndpointId,
        /// Due time of the delivery.
        due: Timestamp,
    },
    /// The configuration and state of an endpoint: the answer to [`Command::LoadEndpoint`], or an update after a
    /// change.
    EndpointLoaded(EndpointSnapshot),
    /// The endpoint does not exist: the answer to [`Command::LoadEndpoint`].
    NoSuchEndpoint(EndpointId),
    /// A caller asks to enable, pause, disable or delete an endpoint.
    ///
    /// The caller is answered when [`Command::PersistStatus`] has been issued and persisted. Disabling, deleting, and
    /// pausing an enabled endpoint take effect at once. Enabling, and pausing a disabled endpoint, take effect when no
    /// sweep is in progress. Enabling also clears the failure history and closes a tripped breaker.
    SetStatus {
        /// The endpoint.
        endpoint: EndpointId,
        /// The requested endpoint status.
        status: EndpointStatus,
    },
    /// The answer to [`Command::Fetch`].
    Fetched {
        /// The ticket of the fetch.
        ticket: u64,
        /// The endpoint.
        endpoint: EndpointId,
        /// The deliveries that were found.
        fetched: Fetched,
    },
    /// A fetch failed.
    FetchFailed {
        /// The ticket of the fetch.
        ticket: u64,
        /// The endpoint.
        endpoint: EndpointId,
    },
    /// An attempt has ended.
    Finished {
        /// The ticket of the attempt.
        ticket: Ticket,
        /// The end of the attempt.
        finish: AttemptEnd,
    },
    /// A record has been persisted.
    Recorded {
        /// The ticket of the record.
        ticket: Ticket,
    },
    /// A record could not be written. The dispatcher issues it again later.
    RecordFailed {
        /// The ticket of the record.
        ticket: Ticket,
    },
    /// A caller asks to cancel a delivery. If it is already being cancelled, no second record is issued: the first
    /// one answers both callers.
    Cancel {
        /// The delivery's endpoint.
        endpoint: EndpointId,
        /// The delivery.
        delivery: DeliveryId,
    },
    /// The waiting deliveries of a disabled or deleted endpoint have been failed: the answer to [`Command::Sweep`].
    Swept {
        /// The ticket of the sweep.
        ticket: u64,
        /// The endpoint.
        endpoint: EndpointId,
    },
    /// The answer to [`Command::CountEnded`].
    EndedCounted {
        /// The endpoint.
        endpoint: EndpointId,
        /// Number of deliveries that succeeded within [`EXHAUSTED_WINDOW`](crate::lane::EXHAUSTED_WINDOW).
        succeeded: u64,
        /// Number of deliveries that were dead-lettered within it.
        failed: u64,
    },
    /// An endpoint is revoked: another node will own it. Its ready deliveries go back to the store and no more
    /// attempts start. [`Command::ReadyToRelease`] reports that nothing of it is in flight. Until then its status can
    /// still be changed and its deliveries can still be cancelled.
    Revoke(EndpointId),
    /// The node has lost all its endpoints to other owners. Attempts in flight are forgotten: their results can no
    /// longer be recorded by this node.
    Lost,
    /// No attempt may start until [`Input::Resume`], because the node does not know if it still owns its endpoints.
    Suspend,
    /// Ends [`Input::Suspend`].
    Resume,
    /// Time has passed.
    Tick,
    /// Start no more attempts; issue [`Command::Drained`] when all attempts in flight have ended and are recorded.
    Shutdown,
}

/// The configuration and state of an endpoint.
#[derive(Clone, Debug)]
pub struct EndpointSnapshot {
    /// The endpoint.
    pub endpoint: EndpointId,
    /// The tenant that the endpoint belongs to.
    pub tenant: TenantId,
    /// The lane settings of the endpoint.
    pub settings: Arc<LaneSettings>,
    /// The endpoint status.
    pub status: EndpointStatus,
    /// The stored endpoint health.
    pub health: Health,
    /// The time since when this node owns the endpoint, or [`Tick::START`] for a single node. The previous owner
    /// may have used up the endpoint's rate until then.
    pub owned_since: Tick,
}

/// An action for the engine to execute.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Load the configuration of an endpoint, retrying until it succeeds. Answered by [`Input::EndpointLoaded`] or
    /// [`Input::NoSuchEndpoint`].
    LoadEndpoint(EndpointId),
    /// Read due deliveries from the store. Answered by [`Input::Fetched`] or [`Input::FetchFailed`].
    Fetch {
        /// The ticket to return with the answer.
        ticket: u64,
        /// The endpoint.
        endpoint: EndpointId,
        /// Only deliveries that are due at or before this time.
        due_by: Timestamp,
        /// Maximum number of deliveries.
        limit: usize,
        /// Only the oldest unfinished delivery of each ordering key.
        ordered: bool,
    },
    /// Make an attempt. Answered by [`Input::Finished`].
    Send(Attempt),
    /// Write the new state of a delivery, if its row has not changed since. Answered by [`Input::Recorded`] or
    /// [`Input::RecordFailed`].
    Record {
        /// The ticket to return with the answer.
        ticket: Ticket,
        /// The record to write.
        record: Record,
    },
    /// The requested endpoint status is in force: persist it, together with the health.
    PersistStatus {
        /// The endpoint.
        endpoint: EndpointId,
        /// The new endpoint status.
        status: EndpointStatus,
        /// The new endpoint health, if it changed.
        health: Option<Health>,
    },
    /// The delivery cannot be cancelled: it is being sent.
    TooLateToCancel(DeliveryId),
    /// Fail all waiting deliveries of this endpoint, retrying until it succeeds. Answered by [`Input::Swept`].
    Sweep {
        /// The ticket to return with the answer.
        ticket: u64,
        /// The endpoint.
        endpoint: EndpointId,
        /// The reason to record for each failed delivery.
        reason: DeadReason,
        /// Deliveries in flight, which are recorded when their attempts end.
        except: Vec<DeliveryId>,
    },
    /// Count the deliveries of an endpoint that ended within [`EXHAUSTED_WINDOW`](crate::lane::EXHAUSTED_WINDOW).
    /// Answered by [`Input::EndedCounted`], or not at all if the counts cannot be read.
    CountEnded(EndpointId),
    /// Nothing of a revoked endpoint is in flight any more, so it can be released: the answer to [`Input::Revoke`].
    ReadyToRelease(EndpointId),
    /// Publish a notification to live observers. The attempt record carries the changes that must not be lost.
    Notify(EndpointNotification),
    /// All attempts have ended and are recorded: the answer to [`Input::Shutdown`].
    Drained,
}

/// An attempt to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The ticket to return with the answer.
    pub ticket: Ticket,
    /// The endpoint to send to.
    pub endpoint: EndpointId,
    /// The delivery.
    pub delivery: DeliveryId,
    /// The event whose payload is sent.
    pub event: EventId,
    /// Number of the attempt within the delivery, starting at 1.
    pub number: u32,
    /// The trigger of the attempt: automatic or by hand.
    pub trigger: Trigger,
}

/// A change to write to the store.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// An attempt and the new state of its delivery. Boxed, because it is by far the larger variant.
    Attempt(Box<AttemptRecord>),
    /// Cancels the delivery if it is still waiting.
    Cancel {
        /// The delivery.
        delivery: DeliveryId,
        /// Time of the cancellation.
        at: Timestamp,
    },
    /// Fails a delivery without an attempt, because its turn came after its deadline and its policy drops such
    /// deliveries. Nothing is written unless the row still waits, has the same number of attempts and is late.
    Expire(Box<Delivery>),
}

/// An attempt and all changes that follow from it, written in one transaction.
#[derive(Clone, Debug, PartialEq)]
pub struct AttemptRecord {
    /// The delivery after the attempt. Nothing is written unless its row has exactly one attempt fewer.
    pub delivery: Delivery,
    /// The attempt and its result.
    pub settlement: SettledAttempt,
    /// The new endpoint health, if it changed.
    pub health: Option<Health>,
    /// Set if this attempt disables the endpoint.
    pub disable: Option<DisableCause>,
    /// Changes of the endpoint, to be sent as notifications after the commit.
    pub endpoint_changes: Vec<EndpointChange>,
}

/// A change of one endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointNotification {
    /// The endpoint.
    pub endpoint: EndpointId,
    /// The change.
    pub change: EndpointChange,
}

/// A change of an endpoint that tenants and operators are notified about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointChange {
    /// The endpoint's breaker tripped.
    BreakerTripped(TripReason),
    /// The destination is back.
    Recovered,
    /// The endpoint will be disabled if the failures continue.
    DisableWarning(DisableCause),
    /// The endpoint was disabled.
    Disabled(DisableCause),
}

impl EndpointChange {
    /// Returns the name of the operational event.
    pub fn name(self) -> &'static str {
        match self {
            EndpointChange::BreakerTripped(_) => "endpoint.breaker_tripped",
            EndpointChange::Recovered => "endpoint.recovered",
            EndpointChange::DisableWarning(_) => "endpoint.disable_warning",
            EndpointChange::Disabled(_) => "endpoint.disabled",
        }
    }
}

/// The time at which the dispatcher needs [`Input::Tick`]: the earlier of the two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wake {
    /// At this reading of the monotonic clock.
    pub tick: Option<Tick>,
    /// At this wall-clock time.
    pub wall: Option<Timestamp>,
}
