//! The states a delivery can be in, each with what belongs to it.

use serde::{Deserialize, Serialize};

use crate::classify::FailureKind;
use crate::time::Timestamp;

/// Who asked for an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// The event itself, or the retry policy.
    Automatic,
    /// A person: a retry by hand, or a replay.
    Manual,
    /// A tripped breaker that wants to know whether the destination is back.
    Probe,
}

/// When a waiting delivery wants to be sent, and who asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Not before this.
    pub at: Timestamp,
    /// Who asked for it.
    pub trigger: Trigger,
}

/// Why a delivery was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadReason {
    /// The receiver refused it for good.
    Permanent,
    /// Every attempt the policy allows has failed.
    Exhausted,
    /// The next retry would have fallen after the deadline.
    Expired,
    /// The endpoint was disabled.
    EndpointDisabled,
    /// The endpoint was deleted.
    EndpointDeleted,
    /// The destination may not be called.
    UnsafeDestination,
}

impl DeadReason {
    /// The reason as the API writes it.
    pub fn name(self) -> &'static str {
        match self {
            DeadReason::Permanent => "permanent",
            DeadReason::Exhausted => "exhausted",
            DeadReason::Expired => "expired",
            DeadReason::EndpointDisabled => "endpoint_disabled",
            DeadReason::EndpointDeleted => "endpoint_deleted",
            DeadReason::UnsafeDestination => "unsafe_destination",
        }
    }
}

impl DeadReason {
    /// The kind of failure the API reports where no attempt of the delivery's own says it.
    pub fn kind(self) -> Option<FailureKind> {
        match self {
            DeadReason::EndpointDisabled | DeadReason::EndpointDeleted => {
                Some(FailureKind::WebhookDisabled)
            }
            DeadReason::UnsafeDestination => Some(FailureKind::Validation),
            DeadReason::Permanent | DeadReason::Exhausted | DeadReason::Expired => None,
        }
    }
}

/// The state of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Waiting for its first attempt.
    Pending(Turn),
    /// Waiting for another attempt.
    Retrying(Turn),
    /// Waiting, and held back: the endpoint is paused or its breaker has tripped.
    Held(Turn),
    /// Being sent.
    InProgress {
        /// What it was waiting for, to which it returns if a fault of our own ends the attempt.
        turn: Turn,
        /// Who asked for this attempt.
        trigger: Trigger,
        /// When it began.
        started_at: Timestamp,
    },
    /// Delivered.
    Succeeded {
        /// When.
        at: Timestamp,
    },
    /// Given up: the dead letter.
    Failed {
        /// When.
        at: Timestamp,
        /// Why.
        reason: DeadReason,
    },
    /// Called off by its sender.
    Cancelled {
        /// When.
        at: Timestamp,
    },
}

/// The name of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Waiting for its first attempt.
    Pending,
    /// Waiting for another attempt.
    Retrying,
    /// Waiting, and held back.
    Held,
    /// Being sent.
    InProgress,
    /// Delivered.
    Succeeded,
    /// Given up.
    Failed,
    /// Called off.
    Cancelled,
}

impl Status {
    /// The status as the API writes it.
    pub fn name(self) -> &'static str {
        match self {
            Status::Pending => "pending",
            Status::Retrying => "retrying",
            Status::Held => "held",
            Status::InProgress => "in_progress",
            Status::Succeeded => "succeeded",
            Status::Failed => "failed",
            Status::Cancelled => "cancelled",
        }
    }

    /// True of the states that change only by a replay.
    pub fn is_terminal(self) -> bool {
        match self {
            Status::Succeeded | Status::Failed | Status::Cancelled => true,
            Status::Pending | Status::Retrying | Status::Held | Status::InProgress => false,
        }
    }
}

impl State {
    /// Why it was given up, if it was.
    pub fn dead_reason(&self) -> Option<DeadReason> {
        match self {
            State::Failed { reason, .. } => Some(*reason),
            State::Pending(_)
            | State::Retrying(_)
            | State::Held(_)
            | State::InProgress { .. }
            | State::Succeeded { .. }
            | State::Cancelled { .. } => None,
        }
    }

    /// When it ended, if it did.
    pub fn ended_at(&self) -> Option<Timestamp> {
        match self {
            State::Succeeded { at } | State::Failed { at, .. } | State::Cancelled { at } => {
                Some(*at)
            }
            State::Pending(_) | State::Retrying(_) | State::Held(_) | State::InProgress { .. } => {
                None
            }
        }
    }

    /// The state's name.
    pub fn status(&self) -> Status {
        match self {
            State::Pending(_) => Status::Pending,
            State::Retrying(_) => Status::Retrying,
            State::Held(_) => Status::Held,
            State::InProgress { .. } => Status::InProgress,
            State::Succeeded { .. } => Status::Succeeded,
            State::Failed { .. } => Status::Failed,
            State::Cancelled { .. } => Status::Cancelled,
        }
    }
}
