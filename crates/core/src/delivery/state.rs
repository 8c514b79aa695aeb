//! The states of a delivery, each with its data.
//!
//! [`State`] holds what is known in each state; [`Status`] is its name in the API. [`Trigger`] tells why an attempt
//! is made, and [`DeadReason`] why a delivery was dead-lettered. The names are stored and shown in the API, so they
//! never change. Transitions between states are in the parent module.

use serde::{Deserialize, Serialize};

use crate::classify::FailureKind;
use crate::time::Timestamp;

/// The trigger of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// The event itself, or the retry policy.
    Automatic,
    /// A person: a manual retry, or a replay.
    Manual,
    /// A tripped breaker that tests if the destination is back.
    Probe,
}

/// The due time of a waiting delivery, and the trigger of its next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduledAttempt {
    /// Earliest time of the attempt.
    pub at: Timestamp,
    /// The trigger of the attempt.
    pub trigger: Trigger,
}

/// The reason why a delivery was dead-lettered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadReason {
    /// The receiver refused it permanently.
    Permanent,
    /// Every attempt that the policy allows has failed.
    Exhausted,
    /// The next retry would have fallen after the deadline.
    Expired,
    /// The endpoint was disabled.
    EndpointDisabled,
    /// The endpoint was deleted.
    EndpointDeleted,
    /// The destination is not allowed.
    UnsafeDestination,
}

impl DeadReason {
    /// Returns the reason's name in the API.
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
    /// Returns the failure kind that the API reports if no attempt of the delivery carries one.
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
    /// Waits for its first attempt.
    Pending(ScheduledAttempt),
    /// Waits for a retry.
    Retrying(ScheduledAttempt),
    /// Waits and is held: the endpoint is paused or its breaker has tripped.
    Held(ScheduledAttempt),
    /// Is being sent.
    InProgress {
        /// The turn it waited for, which it returns to if an internal fault ends the attempt.
        turn: ScheduledAttempt,
        /// The trigger of this attempt.
        trigger: Trigger,
        /// Start time of the attempt.
        started_at: Timestamp,
    },
    /// Was delivered.
    Succeeded {
        /// Time of the success.
        at: Timestamp,
    },
    /// Was dead-lettered.
    Failed {
        /// Time of the failure.
        at: Timestamp,
        /// The reason.
        reason: DeadReason,
    },
    /// Was cancelled by its sender.
    Cancelled {
        /// Time of the cancellation.
        at: Timestamp,
    },
}

/// The name of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Waits for its first attempt.
    Pending,
    /// Waits for a retry.
    Retrying,
    /// Waits and is held.
    Held,
    /// Is being sent.
    InProgress,
    /// Was delivered.
    Succeeded,
    /// Was dead-lettered.
    Failed,
    /// Was cancelled.
    Cancelled,
}

impl Status {
    /// Returns the status's name in the API.
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

    /// Returns true for the states that only a replay can change.
    pub fn is_terminal(self) -> bool {
        match self {
            Status::Succeeded | Status::Failed | Status::Cancelled => true,
            Status::Pending | Status::Retrying | Status::Held | Status::InProgress => false,
        }
    }
}

impl State {
    /// Returns the reason why the delivery was dead-lettered, if it was.
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

    /// Returns when the delivery ended, if it did.
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

    /// Returns the name of the state.
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
