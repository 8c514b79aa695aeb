//! Short runs of the long tests (`scripts/soak`): a faulty network between each node and the database, and kills.
//!
//! The schedule follows from the printed seed. `POSTHASTE_SEED` sets another one.

use std::time::Duration;

use posthaste_testbed::soak::{FaultKind, SoakOptions, cluster, kill};

/// Faults that are over in time. Slow links take longer; `store/tests/cluster/slow_link.rs` tests them.
const KINDS: [FaultKind; 6] = [
    FaultKind::Kill,
    FaultKind::Cut,
    FaultKind::CutAfterBytes,
    FaultKind::BlackHole,
    FaultKind::DeafDatabase,
    FaultKind::DeafNode,
];

fn options(seconds: u64) -> SoakOptions {
    let seed = std::env::var("POSTHASTE_SEED").ok();
    SoakOptions {
        program: env!("CARGO_BIN_EXE_posthaste").into(),
        seed: seed.map_or(19, |seed| seed.parse().expect("a number")),
        duration: Duration::from_secs(seconds),
        events_per_second: 40,
        kinds: KINDS.to_vec(),
        check_stats: false,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_guarantee_is_broken_by_a_faulty_network() {
    let report = cluster::run(&options(15)).await;
    println!("{report}");
    assert!(report.violations.is_empty(), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_guarantee_is_broken_by_kills_of_a_node_on_sqlite() {
    let report = kill::run(&options(10)).await;
    println!("{report}");
    assert!(report.violations.is_empty(), "{report}");
}
