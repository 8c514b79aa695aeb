//! Decisions about the stored state of a delivery, the same in every store.

use posthaste_core::classify::FailureKind;
use posthaste_core::delivery::{DeadReason, Delivery, State, Trigger};
use posthaste_core::time::Timestamp;

use crate::codes::{RowStatus, ms};

/// Maximum number of unreadable rows that a fetch passes over. With more of them, the fetch fails: the store is damaged.
pub(crate) const MAX_UNREADABLE_ROWS: usize = 256;

/// Returns the stored form of a state: its status, when it is due, and its trigger.
///
/// "Held" and "in progress" are not stored. Held follows from the endpoint. A delivery that was in progress when its
/// node stopped is sent again.
pub(crate) fn stored_state(delivery: &Delivery) -> (RowStatus, Option<i64>, Trigger) {
    let ended = |status| (status, None, Trigger::Automatic);
    match delivery.state() {
        State::Pending(turn) => (RowStatus::Pending, Some(ms(turn.at)), turn.trigger),
        State::Retrying(turn) => (RowStatus::Retrying, Some(ms(turn.at)), turn.trigger),
        State::Held(turn) | State::InProgress { turn, .. } => {
            let status = if delivery.facts().spent == 0 {
                RowStatus::Pending
            } else {
                RowStatus::Retrying
            };
            (status, Some(ms(turn.at)), turn.trigger)
        }
        State::Succeeded { .. } => ended(RowStatus::Succeeded),
        State::Failed { .. } => ended(RowStatus::Failed),
        State::Cancelled { .. } => ended(RowStatus::Cancelled),
    }
}

/// Returns the stored status of a delivery.
pub(crate) fn status_of(delivery: &Delivery) -> RowStatus {
    stored_state(delivery).0
}

/// Returns the failure kind that is shown for a delivery.
pub(crate) fn failed_with(delivery: &Delivery, last: Option<FailureKind>) -> Option<FailureKind> {
    let given_up = delivery.state().dead_reason().and_then(DeadReason::kind);
    given_up.or(last)
}

/// Returns a stored delivery after it expired without an attempt, or `None` if it has changed since the dispatcher
/// dropped it: another attempt was made, it ended, it was replayed, or it was retried by hand.
pub(crate) fn expired_now(stored: &Delivery, expired: &Delivery) -> Option<Delivery> {
    let at = expired.state().ended_at()?;
    let mut after = stored.clone();
    let same = stored.facts().attempts == expired.facts().attempts;
    (same && after.expire(at).is_ok()).then_some(after)
}

/// Fails a waiting delivery of an endpoint that was disabled or deleted, for this reason.
pub(crate) fn fail_waiting(delivery: &Delivery, now: Timestamp, reason: DeadReason) -> Delivery {
    let mut after = delivery.clone();
    let failed = match reason {
        DeadReason::EndpointDeleted => after.delete(now),
        DeadReason::EndpointDisabled
        | DeadReason::Permanent
        | DeadReason::Exhausted
        | DeadReason::Expired
        | DeadReason::UnsafeDestination => after.disable(now),
    };
    failed.expect("what waits can be failed");
    after
}
