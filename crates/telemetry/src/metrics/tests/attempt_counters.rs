//! Tests of the counters of a single attempt.
//!
//! Each attempt is compared with all of its counters, so that no attempt is counted in a ratio by mistake.

use posthaste_core::delivery::Status;
use posthaste_store::StatCounters;

use super::{AttemptEvent, retry, success, tenant};
use crate::metrics::counters;

#[test]
fn an_attempt_is_counted_by_its_result() {
    let acme = tenant("acme");
    let counted = |attempt| StatCounters {
        latency_micros: 0,
        slowest_micros: 0,
        ..counters::of_attempt(&attempt)
    };
    let one = StatCounters {
        attempts: 1,
        ..StatCounters::default()
    };
    let retried = StatCounters { retries: 1, ..one };
    let first = counters::of_attempt(&success(&acme));
    assert_eq!(
        (first.latency_micros, first.slowest_micros),
        (12_000, 12_000)
    );
    let succeeded_at_once = StatCounters {
        succeeded: 1,
        success_attempts: 1,
        ..one
    };
    assert_eq!(counted(success(&acme)), succeeded_at_once);
    let needs_a_retry = StatCounters {
        retried_deliveries: 1,
        ..one
    };
    assert_eq!(counted(retry(&acme, 1, None)), needs_a_retry);
    // A first attempt that ends its delivery needs no retry.
    let refused = StatCounters { failed: 1, ..one };
    assert_eq!(counted(retry(&acme, 1, Some(Status::Failed))), refused);
    let second = StatCounters {
        second_attempts: 1,
        ..retried
    };
    assert_eq!(counted(retry(&acme, 2, None)), second);
    let succeeded_second = StatCounters {
        second_successes: 1,
        succeeded: 1,
        success_attempts: 2,
        ..second
    };
    let second = retry(&acme, 2, Some(Status::Succeeded));
    assert_eq!(counted(second), succeeded_second);
    let failed_third = StatCounters {
        failed: 1,
        ..retried
    };
    assert_eq!(counted(retry(&acme, 3, Some(Status::Failed))), failed_third);
    // A refused probe is an attempt, but neither the first of its round nor the second.
    let refused_probe = AttemptEvent {
        round_number: None,
        ..retry(&acme, 1, None)
    };
    assert_eq!(counted(refused_probe), retried);
    assert_eq!(
        counters::of_ended(Status::Cancelled, 5),
        StatCounters::default()
    );
}
