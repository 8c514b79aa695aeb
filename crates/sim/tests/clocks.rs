//! Simulated clocks without mutations keep all guarantees, and every mutation is detected by its oracle.

use posthaste_sim::clocks::{ClockMutation, ClockSummary, run_clocks};

/// Maximum number of seeds that are tried until a mutation must be detected.
const MAX_SEEDS: u64 = 50;

#[test]
fn nodes_agree_on_the_time_and_nothing_is_late() {
    let mut sum = ClockSummary::default();
    for seed in 0..200 {
        match run_clocks(seed, None) {
            Ok(summary) => {
                sum.jumps += summary.jumps;
                sum.on_time += summary.on_time;
                sum.comparisons += summary.comparisons;
                sum.lost += summary.lost;
            }
            Err(failure) => panic!("{failure}"),
        }
    }
    assert!(sum.jumps > 3_000, "{sum:?}");
    assert!(sum.on_time > 300_000, "{sum:?}");
    assert!(sum.comparisons > 100_000, "{sum:?}");
    assert!(sum.lost > 5_000, "{sum:?}");
}

#[test]
fn every_clock_mutation_is_detected_by_its_oracle() {
    for (mutation, oracle) in ClockMutation::ALL {
        let detects = |seed| run_clocks(seed, Some(mutation)).is_err_and(|it| it.oracle == oracle);
        let is_detected = (0..MAX_SEEDS).any(detects);
        assert!(is_detected, "{oracle:?} did not detect {mutation:?}");
    }
}
