//! One node on SQLite, whose machine's clock is changed.

use std::path::Path;
use std::time::Duration;

use posthaste_testbed::{Answer, Api, Arrival, FakeClock, Node, NodeOptions, Receiver};
use serde_json::json;
use tempfile::TempDir;

use super::{
    HOUR_SECS, assert_retries_on_time, deliver, pause_of, real_secs, reported_offset, timestamp_of,
    until_attempt,
};

const PAUSE: Duration = Duration::from_secs(3);

fn start(directory: &Path, clock: &FakeClock) -> Node {
    let program = env!("CARGO_BIN_EXE_posthaste");
    let store = format!("sqlite:{}", directory.join("posthaste.db").display());
    Node::start(&NodeOptions::new(program, &store, directory).on_clock(clock))
}

/// A receiver that refuses first attempts, and an endpoint for it.
async fn set_up(api: &mut Api) -> Receiver {
    let refuse_first =
        |arrival: &Arrival| Answer::status(if arrival.attempt() == 1 { 503 } else { 200 });
    let receiver = Receiver::start(refuse_first).await;
    api.tenant("acme").await;
    let fields = json!({"url": receiver.url(), "retry_policy": pause_of(PAUSE)});
    api.endpoint("acme", fields).await;
    receiver
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_set_back_delays_no_waiting_retry() {
    let home = TempDir::new().expect("a directory");
    let clock = FakeClock::new(0);
    let node = start(home.path(), &clock);
    let mut api = node.api();
    let receiver = set_up(&mut api).await;
    for offset_secs in [-HOUR_SECS, HOUR_SECS, 0] {
        let before = receiver.records().len();
        api.deliver("acme", json!({"type": "a", "payload": 1}))
            .await;
        receiver.arrivals(before + 1).await;
        clock.set(offset_secs);
        let arrivals = receiver.arrivals(before + 2).await;
        match offset_secs > 0 {
            // A clock that jumps forward may also have shown that the machine was suspended.
            true => assert!(arrivals[before + 1].at - arrivals[before].at < PAUSE * 2),
            false => assert_retries_on_time(&arrivals[before..], PAUSE),
        }
        // Receivers compare the signature's time with their own clocks.
        let signed_at = timestamp_of(&arrivals[before + 1]);
        let machine_secs = real_secs() + offset_secs;
        assert!(
            signed_at.abs_diff(machine_secs) <= 2,
            "{signed_at} {machine_secs}"
        );
        assert!(reported_offset(&mut api).await.abs() < 1.0);
        assert_eq!(api.get("/readyz").await.status, 200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_was_set_back_while_the_node_was_down_delays_no_waiting_retry() {
    let home = TempDir::new().expect("a directory");
    let clock = FakeClock::new(0);
    let mut node = start(home.path(), &clock);
    let receiver = set_up(&mut node.api()).await;
    node.api()
        .deliver("acme", json!({"type": "a", "payload": 1}))
        .await;
    receiver.arrivals(1).await;
    node.kill();
    clock.set(-HOUR_SECS);
    let node = start(home.path(), &clock);
    // The time goes on from where the first node has saved it, which was when it started.
    until_attempt(&receiver, 1, 2).await;
    let event = json!({"type": "a", "payload": 2});
    let (_, took) = deliver(&mut node.api(), &receiver, "acme", event).await;
    assert!(took < super::MAX_LATENESS, "{took:?}");
}
