//! A node is killed, and another node continues with its shards.

use std::time::{Duration, Instant};

use posthaste_testbed::{Answer, Receiver};
use serde_json::json;

use super::kit::{DeliveryLimits, Fault, Fleet, Load, SHORT_LEASE, ended, until};

const BOUNDS: DeliveryLimits = DeliveryLimits {
    max_attempts: 5,
    max_in_flight: 4,
    per_second: 500,
    burst: 500,
};
const LEASE: Duration = Duration::from_secs(2);
/// Additional time that a busy machine may take.
const SLACK: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_node_goes_on_within_the_lease() {
    let mut fleet = Fleet::of(3, SHORT_LEASE).await;
    // One request in seven is refused at first, so that retries are handed over, too.
    let answer = |arrival: &posthaste_testbed::Arrival| {
        let refuses = arrival.number.is_multiple_of(7) && arrival.attempt() < 3;
        let status = if refuses { 500 } else { 200 };
        Answer::status(status).after(Duration::from_millis(15))
    };
    let receiver = Receiver::start(answer).await;
    let fields = json!({
        "max_in_flight": BOUNDS.max_in_flight,
        "rate_limit": {"per_second": BOUNDS.per_second, "burst": BOUNDS.burst},
        "retry_policy": {"backoff": {"kind": "fixed", "interval": "50ms"},
                         "max_attempts": BOUNDS.max_attempts},
    });
    let endpoints = fleet.endpoints(&receiver, &[0, 1, 2], &fields).await;
    let victim = 1;
    let orphans: Vec<usize> = (0..endpoints.len())
        .filter(|number| fleet.owner(&endpoints[*number]) == Some(victim))
        .collect();
    let load = Load::start(endpoints.len(), fleet.addresses(&[0, 1, 2]));
    load.more(150).await;
    receiver.arrivals(150).await;

    let died_at = Instant::now();
    fleet.nodes[victim].kill();
    let fault = Fault::note(&fleet, Some(victim), died_at);
    load.ask(fleet.addresses(&[0, 2]));
    let pid = fleet.nodes[victim].pid();
    let heard_again = async || {
        orphans.iter().all(|number| {
            let ledger = receiver.ledger_of(&number.to_string());
            let other = |arrival: &posthaste_testbed::Arrival| arrival.sender != Some(pid);
            ledger.iter().any(other)
        })
    };
    until("the dead node's endpoints to be sent to", heard_again).await;
    let away = died_at.elapsed();
    assert!(away < LEASE + SLACK, "taken over after {away:?}");
    load.more(100).await;
    let harvest = load.finish().await;
    fleet.wait_shared_by(2).await;

    for node in [0, 2] {
        let ends = ended(&mut fleet.api(node), &harvest).await;
        assert_eq!(ends["succeeded"], harvest.events.len());
    }
    BOUNDS.judge(&receiver, &harvest, &[fault]);
    fleet.assert_no_panics();
}

/// All nodes are killed, and one comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_all_have_died_the_next_one_delivers_everything() {
    let mut fleet = Fleet::of(2, SHORT_LEASE).await;
    let receiver = Receiver::start(|_| Answer::status(200).after(Duration::from_millis(15))).await;
    let fields = json!({
        "max_in_flight": BOUNDS.max_in_flight,
        "rate_limit": {"per_second": BOUNDS.per_second, "burst": BOUNDS.burst},
    });
    let endpoints = fleet.endpoints(&receiver, &[0, 1], &fields).await;
    let load = Load::start(endpoints.len(), fleet.addresses(&[0, 1]));
    load.more(100).await;
    let mut faults = Vec::new();
    for node in [0, 1] {
        let died_at = Instant::now();
        fleet.nodes[node].kill();
        faults.push(Fault::note(&fleet, Some(node), died_at));
    }
    fleet.join();
    load.ask(fleet.addresses(&[2]));
    load.more(50).await;
    let harvest = load.finish().await;
    fleet.wait_shared_by(1).await;
    let ends = ended(&mut fleet.api(2), &harvest).await;
    assert_eq!(ends["succeeded"], harvest.events.len());
    BOUNDS.judge(&receiver, &harvest, &faults);
    fleet.assert_no_panics();
}
