//! Nodes join and leave normally under load: no duplicates, and short gaps.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use posthaste_testbed::{Answer, Arrival, Receiver};

use crate::fixture::{DeliveryLimits, LONG_LEASE, Load, TestCluster, ended};

const LIMITS: DeliveryLimits = DeliveryLimits::ONE_ATTEMPT;
/// Maximum gap when an endpoint moves to another node without a fault.
const HAND_OVER: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_join_and_leave_without_duplicates() {
    let mut cluster = TestCluster::of(1, LONG_LEASE).await;
    let receiver = Receiver::start(|_| Answer::status(200).after(Duration::from_millis(20))).await;
    let fields = LIMITS.fields();
    let endpoints = cluster.endpoints(&receiver, &[0], &fields).await;
    let load = Load::start(endpoints.len(), cluster.addresses(&[0]));
    load.more(40).await;
    for nodes in [2, 3] {
        let joins_at = Instant::now();
        cluster.join();
        load.ask(cluster.addresses(&(0..nodes).collect::<Vec<_>>()));
        cluster.wait_balanced().await;
        println!("{nodes} share after {:?}", joins_at.elapsed());
        load.more(40).await;
    }
    let mut left_at = Vec::new();
    for (leaver, rest) in [(0, vec![1, 2]), (2, vec![1])] {
        load.ask(cluster.addresses(&rest));
        // All requests to the leaving node have been answered.
        load.more(12).await;
        left_at.push(Instant::now());
        assert!(cluster.nodes[leaver].stop().success());
        cluster.wait_shared_by(rest.len()).await;
        load.more(60).await;
    }
    let report = load.finish().await;
    assert_eq!(report.refused, []);
    let ends = ended(&mut cluster.api(1), &report).await;
    assert_eq!(ends["succeeded"], report.events.len());
    assert_eq!(LIMITS.assert_hold(&receiver, &report, &[]), 0);
    assert_eq!(report.unanswered, []);
    // The gap between two owners: no attempt, although events arrived all the time.
    let mut longest = Duration::ZERO;
    for (endpoint, arrivals) in by_endpoint(&receiver) {
        for pair in arrivals.windows(2) {
            if pair[0].sender != pair[1].sender {
                let gap = pair[1].at - pair[0].at;
                longest = longest.max(gap);
                assert!(gap < HAND_OVER, "endpoint {endpoint} waited {gap:?}");
            }
        }
    }
    println!("the longest hand-over took {longest:?}");
    cluster.assert_no_panics();
}

fn by_endpoint(receiver: &Receiver) -> BTreeMap<String, Vec<Arrival>> {
    let mut endpoints: BTreeMap<String, Vec<Arrival>> = BTreeMap::new();
    for arrival in receiver.records() {
        let path = arrival.path.clone();
        endpoints.entry(path).or_default().push(arrival);
    }
    endpoints
}
