//! Simulated schedules without mutations keep all guarantees, and every mutation is detected by its oracle.

use posthaste_sim::schedules::{ScheduleMutation, ScheduleSummary, run_schedules};

/// Maximum number of seeds that are tried until a mutation must be detected.
const MAX_SEEDS: u64 = 50;

#[test]
fn every_occurrence_makes_exactly_one_event() {
    let mut sum = ScheduleSummary::default();
    for seed in 0..500 {
        match run_schedules(seed, None) {
            Ok(summary) => {
                sum.events += summary.events;
                sum.without_event += summary.without_event;
                sum.refused += summary.refused;
                sum.lost_answers += summary.lost_answers;
                sum.crashes += summary.crashes;
            }
            Err(failure) => panic!("{failure}"),
        }
    }
    assert!(sum.events > 20_000, "{sum:?}");
    assert!(sum.without_event > 20_000, "{sum:?}");
    assert!(sum.refused > 2_000, "{sum:?}");
    assert!(sum.lost_answers > 500, "{sum:?}");
    assert!(sum.crashes > 500, "{sum:?}");
}

#[test]
fn every_schedule_mutation_is_detected_by_its_oracle() {
    for (mutation, oracle) in ScheduleMutation::ALL {
        let detects =
            |seed| run_schedules(seed, Some(mutation)).is_err_and(|it| it.oracle == oracle);
        let is_detected = (0..MAX_SEEDS).any(detects);
        assert!(is_detected, "{oracle:?} did not detect {mutation:?}");
    }
}
