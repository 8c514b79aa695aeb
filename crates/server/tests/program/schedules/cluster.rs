//! Several nodes: each schedule is run by the node that owns it, and by another one if that is killed or frozen.

use posthaste_core::time::{Span, Timestamp};
use posthaste_testbed::Receiver;
use serde_json::json;

use super::fixture::{
    create, every_second, expect_no_gap, expect_one_event_each, pause, real_ms, set_up,
    until_current,
};
use crate::fixture::{SHORT_LEASE, TestCluster};

const SCHEDULES: usize = 24;
/// Maximum lateness of an occurrence after a change on another node, on a busy machine.
const MAX_LATENESS: Span = Span::from_millis(2_500);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_and_a_frozen_owner_lose_and_repeat_no_occurrence() {
    let mut cluster = TestCluster::of(3, SHORT_LEASE).await;
    let receiver = Receiver::healthy().await;
    set_up(&mut cluster.api(0), &receiver).await;
    let names: Vec<String> = (0..SCHEDULES).map(|number| format!("s{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        create(&mut cluster.api(number % 3), name, every_second()).await;
    }
    receiver.arrivals(2 * SCHEDULES).await;

    cluster.nodes[1].freeze();
    cluster.wait_shared_by(2).await;
    let before = receiver.count();
    receiver.arrivals(before + 2 * SCHEDULES).await;
    cluster.nodes[1].wake();
    cluster.wait_shared_by(3).await;

    cluster.nodes[2].kill();
    cluster.wait_shared_by(2).await;
    let before = receiver.count();
    receiver.arrivals(before + 2 * SCHEDULES).await;
    cluster.join();
    cluster.wait_shared_by(3).await;
    let before = receiver.count();
    receiver.arrivals(before + 2 * SCHEDULES).await;

    let mut api = cluster.api(0);
    until_current(&mut api, &names).await;
    pause(&mut api, &names).await;
    for runs in expect_one_event_each(&mut api, &receiver, &names).await {
        expect_no_gap(&runs);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_on_any_node_reaches_the_owner() {
    let cluster = TestCluster::of(3, SHORT_LEASE).await;
    let receiver = Receiver::healthy().await;
    set_up(&mut cluster.api(0), &receiver).await;
    // The runners sleep, because nothing is due for long.
    let far = Timestamp(real_ms()).after(Span::from_hours(5));
    for number in 0..9 {
        let name = format!("s{number}");
        create(&mut cluster.api(0), &name, json!({"at": [far.to_string()]})).await;
    }
    for number in 0..9 {
        let soon = Timestamp(real_ms()).after(Span::from_millis(400));
        let path = format!("/v1/tenants/acme/schedules/s{number}");
        let change = json!({"at": [soon.to_string()]});
        let mut api = cluster.api(number % 3);
        api.call("PATCH", &path, Some(&change)).await.expect(200);
        receiver.arrivals(number + 1).await;
        let late = Timestamp(real_ms()).since(soon);
        assert!(late < MAX_LATENESS, "{late} late");
    }
}
