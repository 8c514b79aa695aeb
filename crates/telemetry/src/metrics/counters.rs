//! Counters of a single attempt or of finished deliveries.

use posthaste_core::delivery::Status;
use posthaste_store::StatCounters;

use crate::AttemptEvent;

/// Returns the counters of one attempt, including the end of its delivery.
pub(super) fn of_attempt(attempt: &AttemptEvent) -> StatCounters {
    let second = attempt.round_number == 2;
    let ended = match attempt.ended {
        Some(status) => of_ended(status, 1),
        None => StatCounters::default(),
    };
    let micros = u64::try_from(attempt.latency.as_micros()).unwrap_or(u64::MAX);
    StatCounters {
        attempts: 1,
        retries: u64::from(attempt.round_number > 1),
        second_attempts: u64::from(second),
        second_successes: u64::from(second && attempt.failure.is_none()),
        latency_micros: micros,
        slowest_micros: micros,
        ..ended
    }
}

/// Returns the counters of deliveries that ended with this status. Cancelled deliveries do not affect health.
pub(super) fn of_ended(status: Status, deliveries: u64) -> StatCounters {
    let mut counters = StatCounters::default();
    match status {
        Status::Succeeded => counters.succeeded = deliveries,
        Status::Failed => counters.failed = deliveries,
        Status::Cancelled
        | Status::Pending
        | Status::Retrying
        | Status::Held
        | Status::InProgress => {}
    }
    counters
}
