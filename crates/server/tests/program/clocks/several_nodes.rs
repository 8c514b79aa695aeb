//! Several nodes on one PostgreSQL, with clocks of their own, and a database whose clock jumps.

use std::time::Duration;

use posthaste_core::time::{Span, Timestamp};
use posthaste_testbed::{Answer, Arrival, Database, FakeClock, Receiver};
use serde_json::json;

use super::{
    HOUR_SECS, MAX_LATENESS, assert_retries_on_time, deliver, pause_of, real_secs, reported_offset,
    timestamp_of, until_attempt,
};
use crate::fixture::{LONG_LEASE, TENANT, TestCluster, until};

const PAUSE: Duration = Duration::from_secs(4);

/// Makes the clock of a database the real one plus the number in the table `clock_offset`.
const FAKE_DATABASE_CLOCK: [&str; 4] = [
    "CREATE TABLE clock_offset (secs bigint NOT NULL)",
    "INSERT INTO clock_offset VALUES (0)",
    "CREATE FUNCTION clock_timestamp() RETURNS timestamptz VOLATILE LANGUAGE sql AS \
     'SELECT pg_catalog.clock_timestamp() + (SELECT secs FROM public.clock_offset) * interval ''1 second'''",
    "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path TO public, pg_catalog', current_database()); END $$",
];

fn refuse_first(arrival: &Arrival) -> Answer {
    Answer::status(if arrival.attempt() == 1 { 503 } else { 200 })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_with_wrong_clocks_deliver_on_time() {
    let mut cluster = TestCluster::new(LONG_LEASE);
    let offsets_secs = [0, HOUR_SECS, -3];
    let clocks = offsets_secs.map(FakeClock::new);
    for clock in &clocks {
        cluster.join_on_clock(clock);
    }
    cluster.wait_balanced().await;
    let receiver = Receiver::healthy().await;
    let endpoints = cluster.endpoints(&receiver, &[0, 1, 2], &json!({})).await;
    for node in 0..offsets_secs.len() {
        let mut api = cluster.api(node);
        for endpoint in 0..endpoints.len() {
            let event = json!({"type": format!("t.{endpoint}"), "payload": node});
            let (arrival, took) = deliver(&mut api, &receiver, TENANT, event).await;
            assert!(took < MAX_LATENESS, "accepted by node {node}: {took:?}");
            let signed_at = timestamp_of(&arrival);
            assert!(signed_at.abs_diff(real_secs()) <= 2, "{signed_at}");
            let created_at: Timestamp = arrival.header("posthaste-event-time").parse().unwrap();
            assert!((created_at.0 / 1_000).abs_diff(real_secs() as u64) <= 4);
        }
        let later = || Timestamp(real_secs() as u64 * 1_000).after(Span::from_secs(3));
        for field in ["delay", "deliver_at"] {
            let mut event = json!({"type": format!("t.{node}"), "payload": 1});
            event[field] = match field {
                "delay" => json!("2s"),
                _ => json!(later().to_string()),
            };
            let (_, took) = deliver(&mut api, &receiver, TENANT, event).await;
            assert!(took > Duration::from_millis(1_950), "{field}: {took:?}");
            assert!(
                took < Duration::from_secs(3) + MAX_LATENESS,
                "{field}: {took:?}"
            );
        }
    }
    for (node, offset_secs) in offsets_secs.into_iter().enumerate() {
        let mut api = cluster.api(node);
        let reported = reported_offset(&mut api).await;
        assert!(
            (reported - offset_secs as f64).abs() < 0.5,
            "node {node}: {reported}"
        );
        let ready = api.get("/readyz").await;
        if offset_secs == HOUR_SECS {
            assert_eq!(ready.expect(503)["code"], "clock_offset");
        } else {
            ready.expect(200);
        }
        let says_so = || {
            let log = cluster.nodes[node].log();
            log.iter()
                .any(|line| line.contains("clock differs from the database's"))
        };
        match offset_secs {
            0 => assert!(!says_so(), "node {node}"),
            _ => until("the node to log its clock", async || says_so()).await,
        }
    }
    cluster.assert_no_panics();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clocks_of_nodes_that_jump_delay_no_retry() {
    let mut cluster = TestCluster::new(LONG_LEASE);
    let clocks = [FakeClock::new(0), FakeClock::new(0)];
    for clock in &clocks {
        cluster.join_on_clock(clock);
    }
    cluster.wait_balanced().await;
    let receiver = Receiver::start(refuse_first).await;
    let fields = json!({"retry_policy": pause_of(PAUSE)});
    let endpoints = cluster.endpoints(&receiver, &[0, 1], &fields).await;
    for endpoint in 0..endpoints.len() {
        let event = json!({"type": format!("t.{endpoint}"), "payload": 1});
        cluster.api(endpoint % 2).event(TENANT, event).await;
    }
    until_attempt(&receiver, endpoints.len(), 1).await;
    clocks[0].set(-HOUR_SECS);
    clocks[1].set(HOUR_SECS);
    let arrivals = until_attempt(&receiver, endpoints.len(), 2).await;
    assert_retries_on_time(&arrivals, PAUSE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_whose_clock_is_set_back_delays_nothing() {
    let database = Database::with_schema();
    for sql in FAKE_DATABASE_CLOCK {
        database.query(sql);
    }
    let mut cluster = TestCluster::on(database, LONG_LEASE);
    cluster.join();
    cluster.join();
    cluster.wait_balanced().await;
    let receiver = Receiver::start(refuse_first).await;
    let fields = json!({"retry_policy": pause_of(PAUSE)});
    let endpoints = cluster.endpoints(&receiver, &[0, 1], &fields).await;
    for endpoint in 0..endpoints.len() {
        let event = json!({"type": format!("t.{endpoint}"), "payload": 1});
        cluster.api(endpoint % 2).event(TENANT, event).await;
    }
    until_attempt(&receiver, endpoints.len(), 1).await;
    let set_back = format!("UPDATE clock_offset SET secs = {}", -HOUR_SECS);
    cluster.database.query(&set_back);
    let stored = "SELECT count(*) FROM meta WHERE name = 'clock_lead_until' AND value > 0";
    let is_stored = async || cluster.database.number(stored) == 1;
    until("the nodes to store their lead", is_stored).await;
    // A node that starts now agrees with the others.
    let third = cluster.join();
    let arrivals = until_attempt(&receiver, endpoints.len(), 2).await;
    assert_retries_on_time(&arrivals, PAUSE);
    cluster.wait_balanced().await;
    receiver.answer(200);
    for node in 0..=third {
        for endpoint in 0..endpoints.len() {
            let event = json!({"type": format!("t.{endpoint}"), "payload": 2});
            let (arrival, took) = deliver(&mut cluster.api(node), &receiver, TENANT, event).await;
            assert!(took < MAX_LATENESS, "accepted by node {node}: {took:?}");
            // Signatures have the time of the database.
            let expected = real_secs() - HOUR_SECS;
            assert!(timestamp_of(&arrival).abs_diff(expected) <= 2);
        }
        let reported = reported_offset(&mut cluster.api(node)).await;
        assert!(
            (reported - HOUR_SECS as f64).abs() < 1.0,
            "node {node}: {reported}"
        );
    }
}
