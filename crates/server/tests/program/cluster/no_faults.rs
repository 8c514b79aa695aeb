//! Three nodes without faults: no duplicates, and one sender per endpoint.

use std::collections::BTreeSet;

use posthaste_testbed::Receiver;

use crate::fixture::{DeliveryLimits, LONG_LEASE, Load, TestCluster, ended};

const LIMITS: DeliveryLimits = DeliveryLimits::ONE_ATTEMPT;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_share_the_work_without_duplicates() {
    let cluster = TestCluster::of(3, LONG_LEASE).await;
    let receiver = Receiver::healthy().await;
    let fields = LIMITS.fields();
    let endpoints = cluster.endpoints(&receiver, &[0, 1, 2], &fields).await;
    let load = Load::start(endpoints.len(), cluster.addresses(&[0, 1, 2]));
    load.more(500).await;
    let report = load.finish().await;
    assert_eq!(report.refused, []);
    assert_eq!(report.unanswered, []);
    for node in [0, 1, 2] {
        let ends = ended(&mut cluster.api(node), &report).await;
        assert_eq!(ends["succeeded"], report.events.len());
    }
    assert_eq!(LIMITS.assert_hold(&receiver, &report, &[]), 0);
    for (number, endpoint) in endpoints.iter().enumerate() {
        let records = receiver.records_at(&number.to_string());
        let senders: BTreeSet<_> = records.iter().map(|arrival| arrival.sender).collect();
        let owner = cluster
            .owner(endpoint)
            .map(|node| cluster.nodes[node].pid());
        assert_eq!(senders, BTreeSet::from([owner]), "{endpoint}");
    }
    cluster.assert_no_panics();
}
