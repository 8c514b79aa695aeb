//! After faults the stats are those of the store: kills, freezes past the lease, and disables that are answered shortly
//! before their node is struck off. The faults are random; the seed is printed, and `POSTHASTE_SEED` sets it.

use std::time::Duration;

use posthaste_core::rng::Rng;
use posthaste_testbed::stats_check::{assert_stats_equal_deliveries, unfinished};
use posthaste_testbed::{Answer, Api, Receiver};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use crate::fixture::{Load, PATIENCE, SHORT_LEASE, TENANT, TestCluster, until};

const NODES: usize = 3;
const FAULTS: usize = 4;
/// Events that are accepted between two faults.
const EVENTS: usize = 60;
/// Maximum time between a disable that was answered and the freeze of the node that answered it.
const MAX_HEAD_START_MS: u64 = 60;
/// Longer than the lease, so that the others strike the node off.
const FREEZE: Duration = Duration::from_millis(3_500);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stats_equal_the_store_after_random_faults() {
    let seed = std::env::var("POSTHASTE_SEED").ok();
    let seed = seed.and_then(|seed| seed.parse().ok()).unwrap_or(1);
    println!("POSTHASTE_SEED={seed}");
    let mut rng = Rng::seeded(seed);
    let mut cluster = TestCluster::of(NODES, SHORT_LEASE).await;
    // Some fail for good, some are retried, some succeed.
    let receiver = Receiver::start(|arrival| {
        let status = match arrival.number % 11 {
            3 => 400,
            5 | 8 => 500,
            _ => 200,
        };
        Answer::status(status).after(Duration::from_millis(10))
    })
    .await;
    let fields = json!({
        "max_in_flight": 8,
        "rate_limit": {"per_second": 200, "burst": 200},
        "retry_policy": {"backoff": {"kind": "fixed", "interval": "100ms"}, "max_attempts": 3},
    });
    let mut alive: Vec<usize> = (0..NODES).collect();
    let endpoints = cluster.endpoints(&receiver, &alive, &fields).await;
    let load = Load::start(endpoints.len(), cluster.addresses(&alive));
    for _ in 0..FAULTS {
        load.more(EVENTS).await;
        let victim = alive[rng.between(0, alive.len() as u64 - 1) as usize];
        let others: Vec<usize> = alive
            .iter()
            .copied()
            .filter(|node| *node != victim)
            .collect();
        let kind = rng.between(0, 2);
        println!("fault {kind} of node {victim}");
        match kind {
            0 => {
                cluster.nodes[victim].kill();
                load.ask(cluster.addresses(&others));
                alive = others;
                let joined = cluster.join();
                cluster.nodes[joined].until_ready().await;
                alive.push(joined);
            }
            1 => freeze(&cluster, &load, victim, &others).await,
            _ => {
                disable_before_a_freeze(&cluster, &mut rng, victim, &endpoints).await;
                freeze(&cluster, &load, victim, &others).await;
            }
        }
        load.ask(cluster.addresses(&alive));
    }
    load.more(EVENTS).await;
    load.finish().await;
    cluster.wait_shared_by(alive.len()).await;
    let mut api = cluster.api(alive[0]);
    all_ended(&mut api).await;
    let totals = assert_stats_equal_deliveries(&mut api, None).await;
    println!("{totals:?}");
    assert!(totals.succeeded > 0 && totals.failed > 0 && totals.attempts > totals.succeeded);
    for node in &alive[1..] {
        let other = assert_stats_equal_deliveries(&mut cluster.api(*node), None).await;
        assert_eq!(other, totals, "every node shows the same");
    }
    cluster.assert_no_panics();
}

/// Waits until no delivery waits or is in flight.
async fn all_ended(api: &mut Api) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let waiting = unfinished(api, TENANT).await;
        if waiting == 0 {
            return;
        }
        assert!(Instant::now() < deadline, "{waiting} deliveries wait");
        sleep(Duration::from_millis(50)).await;
    }
}

/// Freezes a node for longer than its lease, and waits until it has joined again.
async fn freeze(cluster: &TestCluster, load: &Load, victim: usize, others: &[usize]) {
    let number = cluster.number(victim);
    cluster.nodes[victim].freeze();
    load.ask(cluster.addresses(others));
    sleep(FREEZE).await;
    cluster.nodes[victim].wake();
    until("the frozen node to join again", async || {
        let now = cluster.number(victim);
        now.is_some() && now != number
    })
    .await;
}

/// Disables an endpoint of this node through it. Deliveries that wait are dead-lettered, while the node is frozen at a
/// random moment. Then the endpoint is enabled again, by a node that is alive.
async fn disable_before_a_freeze(
    cluster: &TestCluster,
    rng: &mut Rng,
    victim: usize,
    endpoints: &[String],
) {
    let mut own = endpoints
        .iter()
        .filter(|it| cluster.owner(it) == Some(victim));
    let Some(endpoint) = own.next() else {
        return;
    };
    let mut api: Api = cluster.api(victim);
    let path = format!("/v1/tenants/{TENANT}/endpoints/{endpoint}/disable");
    let answer = timeout(Duration::from_secs(2), api.try_call("POST", &path, None)).await;
    println!("disable: {:?}", answer.ok().flatten().map(|it| it.status));
    sleep(Duration::from_millis(rng.between(0, MAX_HEAD_START_MS))).await;
}
