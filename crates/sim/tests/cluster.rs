//! Cluster simulations without mutations keep all guarantees, and every mutation is detected by its oracle.

use posthaste_sim::cluster::{ClusterMutation, ClusterOracle, run_cluster};

/// Maximum number of seeds that are tried until a mutation must be detected.
const PATIENCE: u64 = 600;

fn all_clean(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        if let Err(failure) = run_cluster(seed, None) {
            panic!("{failure}");
        }
    }
}

#[test]
fn clusters_0_to_120_keep_every_promise() {
    all_clean(0..120);
}

#[test]
fn clusters_120_to_240_keep_every_promise() {
    all_clean(120..240);
}

#[test]
fn every_bug_planted_in_a_cluster_is_seen_by_its_oracle() {
    for (bug, oracle) in ClusterMutation::ALL {
        let mut seen = Vec::new();
        let caught = (0..PATIENCE).any(|seed| match run_cluster(seed, Some(bug)) {
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
            "{bug:?} was not seen by {oracle:?}; seen by {seen:?}"
        );
    }
}

#[test]
fn for_every_oracle_of_a_cluster_a_bug_is_planted() {
    for oracle in ClusterOracle::ALL {
        let planted = ClusterMutation::ALL.iter().any(|(_, by)| *by == oracle);
        assert!(planted, "nothing shows that {oracle:?} can fail");
    }
}

#[test]
fn the_weather_of_clusters_is_bad() {
    let summaries: Vec<_> = (0..50)
        .map(|seed| run_cluster(seed, None).expect("a clean seed"))
        .collect();
    let sum = |of: fn(&posthaste_sim::cluster::ClusterSummary) -> u64| {
        summaries.iter().map(of).sum::<u64>()
    };
    assert!(sum(|summary| summary.grants) > 50_000);
    assert!(sum(|summary| summary.expiries) > 100);
    assert!(sum(|summary| summary.outcasts) > 50);
    assert!(sum(|summary| summary.lost) > 1_000);
}
