//! Counters of a single attempt or of finished deliveries.

use posthaste_core::delivery::Status;
use posthaste_store::StatCounters;

use crate::AttemptEvent;

/// Returns the counters of one attempt, including the end of its delivery.
pub(super) fn of_attempt(attempt: &AttemptEvent) -> StatCounters {
    let is_first = attempt.round_number == Some(1);
    let is_second = attempt.round_number == Some(2);
    let has_failed = attempt.failure.is_some();
    let ended = match attempt.ended {
        Some(status) => of_ended(status, 1),
        None => StatCounters::default(),
    };
    let has_succeeded = attempt.ended == Some(Status::Succeeded);
    // A success is never a refused probe, so it has a number.
    let spent = attempt.round_number.map_or(1, u64::from);
    let micros = u64::try_from(attempt.latency.as_micros()).unwrap_or(u64::MAX);
    StatCounters {
        attempts: 1,
        retries: u64::from(!is_first),
        retried_deliveries: u64::from(is_first && has_failed && attempt.ended.is_none()),
        second_attempts: u64::from(is_second),
        second_successes: u64::from(is_second && !has_failed),
        success_attempts: if has_succeeded { spent } else { 0 },
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
