//! Cluster simulations without mutations keep all guarantees, and every mutation is detected by its oracle.
//!
//! A failure is printed with its seed, which reproduces it. The last test checks that the runs contain enough
//! faults to mean something: expired leases, removed nodes and lost answers.

use posthaste_sim::cluster::{ClusterMutation, ClusterOracle, run_cluster};

/// Maximum number of seeds that are tried until a mutation must be detected.
const MAX_SEEDS: u64 = 600;

fn assert_no_failure(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        if let Err(failure) = run_cluster(seed, None) {
            panic!("{failure}");
        }
    }
}

#[test]
fn clusters_0_to_80_keep_every_guarantee() {
    assert_no_failure(0..80);
}

#[test]
fn clusters_80_to_160_keep_every_guarantee() {
    assert_no_failure(80..160);
}

#[test]
fn every_cluster_mutation_is_detected_by_its_oracle() {
    for (mutation, oracle) in ClusterMutation::ALL {
        let mut seen = Vec::new();
        let caught = (0..MAX_SEEDS).any(|seed| match run_cluster(seed, Some(mutation)) {
            Ok(_) => false,
            Err(failure) => {
                if !seen.contains(&failure.oracle) {
                    seen.push(failure.oracle);
                }
                failure.oracle == oracle
            }
        });
        assert!(
            caught,
            "{mutation:?} was not detected by {oracle:?}; oracles that failed: {seen:?}"
        );
    }
}

#[test]
fn every_cluster_oracle_has_a_mutation() {
    for oracle in ClusterOracle::ALL {
        let planted = ClusterMutation::ALL.iter().any(|(_, by)| *by == oracle);
        assert!(planted, "no mutation proves that {oracle:?} can fail");
    }
}

#[test]
fn cluster_runs_have_enough_faults() {
    let summaries: Vec<_> = (0..50)
        .map(|seed| run_cluster(seed, None).expect("no oracle fails without a mutation"))
        .collect();
    let sum = |of: fn(&posthaste_sim::cluster::ClusterSummary) -> u64| {
        summaries.iter().map(of).sum::<u64>()
    };
    assert!(sum(|summary| summary.grants) > 50_000);
    assert!(sum(|summary| summary.expiries) > 100);
    assert!(sum(|summary| summary.expelled_nodes) > 50);
    assert!(sum(|summary| summary.lost) > 1_000);
    assert!(sum(|summary| summary.capacity_changes) > 200);
}
