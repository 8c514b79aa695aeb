//! Simulations without mutations keep all guarantees, and every mutation is detected by its oracle.
//!
//! A failure is printed with its seed and its last events, and the command that reproduces it. The last test checks
//! that the runs contain enough faults to mean something, and that some runs have none.

use posthaste_sim::mutations::Mutation;
use posthaste_sim::oracle::Oracle;
use posthaste_sim::simulation::run;

/// Maximum number of seeds that are tried until a mutation must be detected.
const MAX_SEEDS: u64 = 400;

fn assert_no_failure(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        if let Err(failure) = run(seed, None) {
            panic!(
                "{failure}\n\nTo reproduce: cargo run --release -p posthaste-sim --example seeds -- {seed}"
            );
        }
    }
}

#[test]
fn seeds_0_to_250_keep_every_guarantee() {
    assert_no_failure(0..250);
}

#[test]
fn seeds_250_to_500_keep_every_guarantee() {
    assert_no_failure(250..500);
}

#[test]
fn seeds_500_to_750_keep_every_guarantee() {
    assert_no_failure(500..750);
}

#[test]
fn seeds_750_to_1000_keep_every_guarantee() {
    assert_no_failure(750..1_000);
}

#[test]
fn every_mutation_is_detected_by_its_oracle() {
    for (mutation, oracle) in Mutation::ALL {
        let mut seen = Vec::new();
        let caught = (0..MAX_SEEDS).any(|seed| match run(seed, Some(mutation)) {
            Ok(_) => false,
            Err(failure) => {
                let by = failure.broken.oracle;
                if !seen.contains(&by) {
                    seen.push(by);
                }
                by == oracle
            }
        });
        assert!(
            caught,
            "{mutation:?} was not detected by {oracle:?}; oracles that failed: {seen:?}"
        );
    }
}

#[test]
fn every_oracle_has_a_mutation() {
    for oracle in Oracle::ALL {
        let planted = Mutation::ALL.iter().any(|(_, by)| *by == oracle);
        assert!(planted, "no mutation proves that {oracle:?} can fail");
    }
}

#[test]
fn a_seed_reproduces_a_failure_to_the_last_event() {
    let failing = (0..MAX_SEEDS).find_map(|seed| run(seed, Some(Mutation::WindowOffByOne)).err());
    let failure = failing.expect("the mutation is detected");
    let again =
        run(failure.seed, Some(Mutation::WindowOffByOne)).expect_err("the same seed fails again");
    assert!(!failure.trace.is_empty());
    assert_eq!(failure.to_string(), again.to_string());
    assert!(
        failure
            .to_string()
            .contains(&format!("seed {}", failure.seed))
    );
}

#[test]
fn runs_have_enough_faults() {
    let summaries: Vec<_> = (0..50)
        .map(|seed| run(seed, None).expect("no oracle fails without a mutation"))
        .collect();
    let crashes: u32 = summaries.iter().map(|summary| summary.crashes).sum();
    let deliveries: usize = summaries.iter().map(|summary| summary.deliveries).sum();
    let attempts: u64 = summaries.iter().map(|summary| summary.attempts).sum();
    assert!(crashes >= 50, "only {crashes} crashes in 50 runs");
    assert!(
        attempts > deliveries as u64,
        "{attempts} attempts for {deliveries} deliveries"
    );
    assert!(
        summaries.iter().any(|summary| summary.crashes == 0),
        "every run had crashes"
    );
}
