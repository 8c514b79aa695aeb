//! What the dispatcher hears and what it says.

use std::sync::Arc;

use crate::classify::Outcome;
use crate::delivery::{DeadReason, Delivery, Settlement, Trigger};
use crate::id::{DeliveryId, EndpointId, EventId, TenantId};
use crate::lane::{DisableCause, Fetched, Health, LaneSettings, Standing, TripReason};
use crate::time::{Tick, Timestamp};

/// Names one piece of work that was handed out, so that its result finds its way back. A ticket is
/// never used twice; an answer to one that is not awaited (late, or repeated) is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    pub(super) index: u32,
    pub(super) serial: u32,
}

/// How an attempt came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// It ran, and this came of it.
    Ran(Outcome),
    /// A fault of our own ended it: a panic, a shutdown. Nothing is counted.
    OurFault,
}

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// Deliveries were committed just now. Each is handed over once, in the order of the commits, and
    /// before anybody is answered who might ask for something to be done about it. Whoever cannot be
    /// sure of that says [`Input::Work`] instead.
    Accepted(Vec<Delivery>),
    /// Something due at `due` is on disk for an endpoint: found at the start, replayed, or accepted
    /// by another node.
    Work {
        /// The endpoint.
        endpoint: EndpointId,
        /// When it is due.
        due: Timestamp,
    },
    /// An endpoint as it is: the answer to [`Command::Introduce`], or news of a change.
    Introduced(Introduction),
    /// There is no such endpoint: the answer to [`Command::Introduce`].
    NoSuchEndpoint(EndpointId),
    /// Somebody enabled, paused, disabled or deleted an endpoint.
    ///
    /// Whoever asked is answered when [`Command::Stands`] says so and that is written down: shutting
    /// takes effect at once, opening when no sweep is under way any more. To enable is also to say
    /// that the past is past: failures are forgotten, a tripped breaker closes.
    Stand {
        /// The endpoint.
        endpoint: EndpointId,
        /// What it is now.
        standing: Standing,
    },
    /// The answer to [`Command::Fetch`].
    Fetched {
        /// Its ticket.
        ticket: u64,
        /// The endpoint.
        endpoint: EndpointId,
        /// What was found.
        fetched: Fetched,
    },
    /// A fetch failed.
    FetchFailed {
        /// Its ticket.
        ticket: u64,
        /// The endpoint.
        endpoint: EndpointId,
    },
    /// An attempt is over.
    Finished {
        /// Its ticket.
        ticket: Ticket,
        /// How it came back.
        finish: Finish,
    },
    /// A record is on disk.
    Recorded {
        /// Its ticket.
        ticket: Ticket,
    },
    /// A record could not be written. It will be asked for again.
    RecordFailed {
        /// Its ticket.
        ticket: Ticket,
    },
    /// Somebody wants a delivery called off. One that is being called off already is not asked for
    /// again: its record answers both.
    Cancel {
        /// Its endpoint.
        endpoint: EndpointId,
        /// The delivery.
        delivery: DeliveryId,
    },
    /// What waited for a disabled or deleted endpoint has been failed: the answer to
    /// [`Command::Sweep`].
    Swept {
        /// Its ticket.
        ticket: u64,
        /// The endpoint.
        endpoint: EndpointId,
    },
    /// An endpoint is to be given up: another node will own it. What is ready goes back to the disk, nothing
    /// more begins, and [`Command::Disowned`] tells when nothing of it is under way. Until then it can still
    /// be told to stand otherwise, and its deliveries can be called off.
    Disown(EndpointId),
    /// Every endpoint is another's already. What is under way is forgotten: nothing that becomes of it can
    /// be written down here.
    Lost,
    /// Nothing may begin until [`Input::Resume`]: whether anything is still this node's is not known.
    Suspend,
    /// Everything goes on.
    Resume,
    /// Time has passed.
    Tick,
    /// Begin nothing new; say [`Command::Drained`] when everything is back and recorded.
    Shutdown,
}

/// An endpoint as it is.
#[derive(Clone, Debug)]
pub struct Introduction {
    /// The endpoint.
    pub endpoint: EndpointId,
    /// Whose it is.
    pub tenant: TenantId,
    /// What it has been promised.
    pub settings: Arc<LaneSettings>,
    /// Whether it takes part.
    pub standing: Standing,
    /// What is remembered of it.
    pub health: Health,
    /// Since when it is this node's: [`Tick::START`] for a process that shares nothing. Whoever had it
    /// before may have used up its rate until then.
    pub owned_since: Tick,
}

/// Something to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Tell what this endpoint is, however often it takes: [`Input::Introduced`] or
    /// [`Input::NoSuchEndpoint`].
    Introduce(EndpointId),
    /// Read what is due: [`Input::Fetched`] or [`Input::FetchFailed`].
    Fetch {
        /// To be given back.
        ticket: u64,
        /// The endpoint.
        endpoint: EndpointId,
        /// Only what is due by this.
        due_by: Timestamp,
        /// At most so many.
        limit: usize,
        /// Only the oldest unfinished delivery of each ordering key.
        ordered: bool,
    },
    /// Make an attempt: [`Input::Finished`].
    Send(Attempt),
    /// Write down what became of a delivery, if its row still stands where it stood:
    /// [`Input::Recorded`] or [`Input::RecordFailed`].
    Record {
        /// To be given back.
        ticket: Ticket,
        /// What to write.
        record: Record,
    },
    /// An endpoint now stands as somebody asked: write that down, and its health with it.
    Stands {
        /// The endpoint.
        endpoint: EndpointId,
        /// What it is now.
        standing: Standing,
        /// What is remembered of it, if that changed.
        health: Option<Health>,
    },
    /// The delivery cannot be called off any more: it is being sent.
    TooLateToCancel(DeliveryId),
    /// Fail everything that waits for this endpoint, however often it takes: [`Input::Swept`].
    Sweep {
        /// To be given back.
        ticket: u64,
        /// The endpoint.
        endpoint: EndpointId,
        /// Why.
        reason: DeadReason,
        /// In flight: these will be recorded by themselves.
        except: Vec<DeliveryId>,
    },
    /// Nothing of an endpoint is under way that was to be given up: the answer to [`Input::Disown`].
    Disowned(EndpointId),
    /// Tell whoever is looking. What must not be lost is in the record that goes with it.
    Notify(Notice),
    /// Everything is back and recorded.
    Drained,
}

/// An attempt to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// To be given back.
    pub ticket: Ticket,
    /// Where to.
    pub endpoint: EndpointId,
    /// Which delivery.
    pub delivery: DeliveryId,
    /// Which event's payload.
    pub event: EventId,
    /// Which attempt.
    pub number: u32,
    /// Who asked for it.
    pub trigger: Trigger,
}

/// What is to be written down.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// An attempt, and where it leaves the delivery. Boxed, since it is the larger by far.
    Attempt(Box<AttemptRecord>),
    /// The delivery is called off, if it still waits.
    Cancel {
        /// The delivery.
        delivery: DeliveryId,
        /// When.
        at: Timestamp,
    },
}

/// An attempt, and all that it changes, in one transaction.
#[derive(Clone, Debug, PartialEq)]
pub struct AttemptRecord {
    /// The delivery as it is now. Its row must have made one attempt fewer, or nothing is written.
    pub delivery: Delivery,
    /// The attempt.
    pub settlement: Settlement,
    /// What is remembered of the endpoint, if that changed.
    pub health: Option<Health>,
    /// The endpoint is disabled.
    pub disable: Option<DisableCause>,
    /// What people want to hear of, to be told once this is written.
    pub news: Vec<News>,
}

/// Something people want to hear of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// About which endpoint.
    pub endpoint: EndpointId,
    /// What.
    pub news: News,
}

/// What people want to hear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// Its breaker tripped.
    BreakerTripped(TripReason),
    /// The destination is back.
    Recovered,
    /// It will be disabled if this goes on.
    DisableWarning(DisableCause),
    /// It was disabled.
    Disabled(DisableCause),
}

impl News {
    /// The name of the operational event.
    pub fn name(self) -> &'static str {
        match self {
            News::BreakerTripped(_) => "endpoint.breaker_tripped",
            News::Recovered => "endpoint.recovered",
            News::DisableWarning(_) => "endpoint.disable_warning",
            News::Disabled(_) => "endpoint.disabled",
        }
    }
}

/// When the dispatcher wants to be told that time has passed; whichever comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wake {
    /// At this tick.
    pub tick: Option<Tick>,
    /// When the wall clock shows this.
    pub wall: Option<Timestamp>,
}
