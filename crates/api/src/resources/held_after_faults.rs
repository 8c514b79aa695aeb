//! Deliveries that are held after repeated internal errors.
//!
//! Only the owner of the endpoint knows them, so a delivery is first described as its row says. [`held_status`] and
//! [`DeliverySummary::hold_after_faults`] then show that it is held.

use posthaste_core::classify::FailureKind;
use posthaste_core::delivery::Status;

use super::delivery::{DeliverySummary, LastError};

/// Returns the status to show of a delivery that is held after repeated internal errors if `is_held`.
pub(crate) fn held_status(status: Status, is_held: bool) -> Status {
    match status {
        Status::Pending | Status::Retrying if is_held => Status::Held,
        status @ (Status::Pending
        | Status::Retrying
        | Status::Held
        | Status::InProgress
        | Status::Succeeded
        | Status::Failed
        | Status::Cancelled) => status,
    }
}

/// Detail of the last error of a delivery that is held after repeated internal errors. The errors themselves are in the
/// log, because they may name internal hosts.
pub const HELD_AFTER_FAULTS: &str = "held after 10 consecutive internal errors, or because a part of it cannot be decrypted; see posthaste's log, then retry or cancel it";

impl DeliverySummary {
    /// Shows that the delivery is held after repeated internal errors, if it still waits.
    pub(crate) fn hold_after_faults(&mut self) {
        self.status = held_status(self.status, true);
        if self.status == Status::Held {
            self.next_attempt_at = None;
            // Nothing of its endpoint holds it back alone.
            self.held_back_by = None;
            self.held_back_until = None;
            self.last_error = Some(LastError {
                kind: FailureKind::Unknown,
                status_code: None,
                detail: HELD_AFTER_FAULTS.to_owned(),
            });
        }
    }

    /// Returns true if the delivery is held after repeated internal errors, and not because of its endpoint.
    pub fn is_held_after_faults(&self) -> bool {
        let error = self.last_error.as_ref();
        self.status == Status::Held && error.is_some_and(|error| error.detail == HELD_AFTER_FAULTS)
    }
}
