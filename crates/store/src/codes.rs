//! Stored numbers, the same in every store: codes of enums, times and limits.
//!
//! [`Coded`] is an enum that is stored as a number; the macro below lists all codes. A published code never changes its
//! meaning, and an unknown one is an error, not a default.

use posthaste_core::classify::FailureKind;
use posthaste_core::delivery::{DeadReason, Trigger};
use posthaste_core::lane::EndpointStatus;
use posthaste_core::schedule::ScheduleStatus;
use posthaste_core::sign::SignatureStyle;
use posthaste_core::time::Timestamp;

use crate::audit::OutcomeCode;
use crate::{ActionInterface, ReplayScope, ReplayStatus, RunStatus, StoredStatus};

/// Converts a time to stored milliseconds. Times later than 292 million years after 1970 are stored as that limit.
pub(crate) fn ms(at: Timestamp) -> i64 {
    i64::try_from(at.0).unwrap_or(i64::MAX)
}

/// Converts stored milliseconds to a time.
pub(crate) fn at(ms: i64) -> Timestamp {
    Timestamp(ms.max(0) as u64)
}

/// Converts a limit to the type that SQL takes.
pub(crate) fn sql_limit(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// An enum that is stored as a number.
pub(crate) trait Coded: Sized + Copy {
    /// Returns its code.
    fn code(self) -> i64;
    /// Returns the value with this code.
    fn decode(code: i64) -> Option<Self>;
}

macro_rules! codes {
    ($($type:ty { $($word:path = $number:literal,)* })*) => {$(
        impl Coded for $type {
            fn code(self) -> i64 {
                match self { $($word => $number,)* }
            }
            fn decode(code: i64) -> Option<Self> {
                match code { $($number => Some($word),)* _ => None }
            }
        }
    )*};
}

/// The stored state of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowStatus {
    /// Waiting for the first attempt of its round.
    Pending,
    /// Waiting for another attempt.
    Retrying,
    /// Delivered.
    Succeeded,
    /// Dead-lettered.
    Failed,
    /// Cancelled.
    Cancelled,
}

impl RowStatus {
    /// Returns whether it has not ended.
    pub(crate) fn is_waiting(self) -> bool {
        match self {
            RowStatus::Pending | RowStatus::Retrying => true,
            RowStatus::Succeeded | RowStatus::Failed | RowStatus::Cancelled => false,
        }
    }

    /// Returns the status to show, given whether its endpoint holds waiting deliveries.
    pub(crate) fn shown(self, endpoint_holds: bool) -> StoredStatus {
        match self {
            RowStatus::Pending | RowStatus::Retrying if endpoint_holds => StoredStatus::Held,
            RowStatus::Pending => StoredStatus::Pending,
            RowStatus::Retrying => StoredStatus::Retrying,
            RowStatus::Succeeded => StoredStatus::Succeeded,
            RowStatus::Failed => StoredStatus::Failed,
            RowStatus::Cancelled => StoredStatus::Cancelled,
        }
    }
}

codes! {
    RowStatus {
        RowStatus::Pending = 0,
        RowStatus::Retrying = 1,
        RowStatus::Succeeded = 2,
        RowStatus::Failed = 3,
        RowStatus::Cancelled = 4,
    }
    Trigger {
        Trigger::Automatic = 0,
        Trigger::Manual = 1,
        Trigger::Probe = 2,
    }
    DeadReason {
        DeadReason::Permanent = 0,
        DeadReason::Exhausted = 1,
        DeadReason::Expired = 2,
        DeadReason::EndpointDisabled = 3,
        DeadReason::EndpointDeleted = 4,
        DeadReason::UnsafeDestination = 5,
    }
    FailureKind {
        FailureKind::Http = 0,
        FailureKind::Timeout = 1,
        FailureKind::Dns = 2,
        FailureKind::Tls = 3,
        FailureKind::Connection = 4,
        FailureKind::Validation = 5,
        FailureKind::WebhookDisabled = 6,
        FailureKind::Unknown = 7,
    }
    EndpointStatus {
        EndpointStatus::Enabled = 0,
        EndpointStatus::Paused = 1,
        EndpointStatus::Disabled = 2,
        EndpointStatus::Deleted = 3,
    }
    SignatureStyle {
        SignatureStyle::Standard = 0,
        SignatureStyle::GitHub = 1,
        SignatureStyle::Stripe = 2,
    }
    ReplayStatus {
        ReplayStatus::Running = 0,
        ReplayStatus::Done = 1,
        ReplayStatus::Cancelled = 2,
    }
    ActionInterface {
        ActionInterface::Api = 0,
        ActionInterface::Page = 1,
        ActionInterface::Portal = 2,
        ActionInterface::Cli = 3,
        ActionInterface::Posthaste = 4,
    }
    ScheduleStatus {
        ScheduleStatus::Active = 0,
        ScheduleStatus::Paused = 1,
        ScheduleStatus::Finished = 2,
    }
    RunStatus {
        RunStatus::Created = 0,
        RunStatus::Skipped = 1,
        RunStatus::Missed = 2,
    }
    OutcomeCode {
        OutcomeCode::Done = 0,
        OutcomeCode::Refused = 1,
    }
}

impl Coded for ReplayScope {
    fn code(self) -> i64 {
        match self {
            ReplayScope::Missed => 0,
            ReplayScope::Ended(StoredStatus::Pending) => 1,
            ReplayScope::Ended(StoredStatus::Retrying) => 2,
            ReplayScope::Ended(StoredStatus::Held) => 3,
            ReplayScope::Ended(StoredStatus::Succeeded) => 4,
            ReplayScope::Ended(StoredStatus::Failed) => 5,
            ReplayScope::Ended(StoredStatus::Cancelled) => 6,
        }
    }

    fn decode(code: i64) -> Option<ReplayScope> {
        Some(match code {
            0 => ReplayScope::Missed,
            1 => ReplayScope::Ended(StoredStatus::Pending),
            2 => ReplayScope::Ended(StoredStatus::Retrying),
            3 => ReplayScope::Ended(StoredStatus::Held),
            4 => ReplayScope::Ended(StoredStatus::Succeeded),
            5 => ReplayScope::Ended(StoredStatus::Failed),
            6 => ReplayScope::Ended(StoredStatus::Cancelled),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round<T: Coded + PartialEq + std::fmt::Debug>(codes: std::ops::Range<i64>) {
        for code in codes.clone() {
            assert_eq!(T::decode(code).map(T::code), Some(code));
        }
        assert_eq!(T::decode(codes.end), None);
    }

    #[test]
    fn every_code_decodes_to_one_value() {
        round::<RowStatus>(0..5);
        round::<Trigger>(0..3);
        round::<DeadReason>(0..6);
        round::<FailureKind>(0..8);
        round::<EndpointStatus>(0..4);
        round::<ReplayStatus>(0..3);
        round::<ReplayScope>(0..7);
        round::<ActionInterface>(0..5);
        round::<OutcomeCode>(0..2);
    }
}
