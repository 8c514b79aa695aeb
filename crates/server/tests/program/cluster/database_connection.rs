//! The connection of one node to the database fails: cut in the middle of a message, blocked, or refused. The node
//! reports it and recovers automatically. The other nodes continue.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use posthaste_testbed::{Answer, Api, ApiResponse, Direction, PATIENCE, Receiver, TcpProxy};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::fixture::{DeliveryLimits, Fault, Load, SHORT_LEASE, TENANT, TestCluster, ended, until};

const LIMITS: DeliveryLimits = DeliveryLimits::ONE_ATTEMPT;
/// Number of bytes that pass before the cut.
const POSITIONS: [usize; 12] = [0, 1, 4, 17, 60, 150, 290, 450, 700, 1_000, 1_400, 2_000];
/// Maximum number of passes over [`POSITIONS`]. Each pass adds [`FARTHER`] bytes.
const ROUNDS: usize = 8;
const FARTHER: usize = 29;
/// Maximum time until a caller is answered, in every state of the database.
const ANSWERED_WITHIN: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(5);

fn fields() -> Value {
    LIMITS.fields()
}

/// Starts two nodes. The second one reaches the database through a TCP proxy.
async fn wired() -> (TestCluster, TcpProxy) {
    let mut cluster = TestCluster::new(SHORT_LEASE);
    cluster.join();
    let proxy = TcpProxy::to(cluster.database.address());
    let url = cluster.database.url_via_proxy(&proxy);
    cluster.join_by(&url, "all");
    cluster.wait_balanced().await;
    (cluster, proxy)
}

/// Sends an event with this key. Returns `None` if the node answers 503 with `Retry-After`.
async fn try_event(api: &mut Api, key: &str) -> Option<ApiResponse> {
    let body = json!({"type": "t.0", "payload": key, "idempotency_key": key}).to_string();
    let path = format!("/v1/tenants/{TENANT}/events");
    let began = Instant::now();
    let reply = api.try_call("POST", &path, Some(body.as_bytes())).await;
    let took = began.elapsed();
    assert!(took < ANSWERED_WITHIN, "answered after {took:?}: {reply:?}");
    let reply = reply.expect("an answer");
    match reply.status {
        200 | 202 => Some(reply),
        status => {
            assert_eq!(status, 503, "{}", reply.body);
            assert!(reply.headers.contains_key("retry-after"), "{}", reply.body);
            None
        }
    }
}

/// Sends an event with this key until it is accepted.
async fn event(api: &mut Api, key: &str) -> ApiResponse {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(reply) = try_event(api, key).await {
            return reply;
        }
        assert!(Instant::now() < deadline, "{key} is never accepted");
        sleep(PAUSE).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_statement_or_answer_creates_at_most_one_event() {
    let (cluster, proxy) = wired().await;
    let receiver = Receiver::healthy().await;
    cluster.endpoints(&receiver, &[0, 1], &fields()).await;
    let mut api = cluster.api(1);
    event(&mut api, "warm").await;
    let mut keys = 1;
    let mut refused = [0; 2];
    // Refused, but committed.
    let mut ambiguous = 0;
    // The position of a commit's answer depends on other queries of the node. If none was cut, try again.
    for round in 0..ROUNDS * 2 {
        let (way, direction) =
            [(0, Direction::ToDatabase), (1, Direction::FromDatabase)][round % 2];
        if round >= 2 && ambiguous > 0 {
            break;
        }
        for bytes in POSITIONS.map(|bytes| bytes + round / 2 * FARTHER) {
            let key = format!("key-{keys}");
            proxy.cut_after(direction, bytes);
            let first = try_event(&mut api, &key).await;
            // If the event did not reach the limit, the node's next heartbeat does.
            proxy.until_cut().await;
            let again = event(&mut api, &key).await;
            keys += 1;
            match first {
                Some(first) => {
                    assert_eq!(again.status, 200, "{way} {bytes}");
                    assert_eq!(again.body["id"], first.body["id"], "{way} {bytes}");
                }
                None => {
                    refused[way] += 1;
                    ambiguous += usize::from(again.status == 200);
                }
            }
        }
    }
    println!("refused {refused:?}, of which {ambiguous} were on disk");
    assert!(refused.iter().all(|count| *count > 0), "{refused:?}");
    assert!(ambiguous > 0, "no answer of a commit was cut: {refused:?}");
    let events = cluster
        .database
        .number("SELECT count(*) FROM events WHERE idempotency_key IS NOT NULL");
    assert_eq!(usize::try_from(events), Ok(keys));
    let all = async || {
        let arrived: BTreeSet<String> = receiver.records().iter().map(|it| it.event()).collect();
        arrived.len() == keys
    };
    until("every event to arrive", all).await;
    cluster.assert_no_panics();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_connection_handshake_is_retried() {
    let (cluster, proxy) = wired().await;
    let receiver = Receiver::healthy().await;
    cluster.endpoints(&receiver, &[0, 1], &fields()).await;
    let mut api = cluster.api(1);
    event(&mut api, "warm").await;
    for (number, bytes) in [1, 9, 40, 150, 330, 600].into_iter().enumerate() {
        for direction in [Direction::FromDatabase, Direction::ToDatabase] {
            proxy.refuse();
            proxy.cut();
            until("all connections to be gone", async || {
                proxy.connections() == 0
            })
            .await;
            proxy.cut_after(direction, bytes);
            proxy.admit();
            proxy.until_cut().await;
            event(&mut api, &format!("key-{number}-{direction:?}")).await;
        }
    }
    receiver.arrivals(13).await;
    cluster.assert_no_panics();
}

/// Ways to lose the database for longer than the lease.
#[derive(Clone, Copy, Debug)]
enum Loss {
    /// Connections stay open and nothing passes.
    Swallowed,
    /// Connections end and new ones are refused.
    Refused,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_answers_from_the_database_is_not_ready_and_recovers() {
    comes_back_after(Loss::Swallowed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_refused_by_the_database_is_not_ready_and_recovers() {
    comes_back_after(Loss::Refused).await;
}

async fn comes_back_after(loss: Loss) {
    let (cluster, proxy) = wired().await;
    let receiver = Receiver::start(|_| Answer::status(200).after(Duration::from_millis(20))).await;
    let endpoints = cluster.endpoints(&receiver, &[0, 1], &fields()).await;
    let load = Load::start(endpoints.len(), cluster.addresses(&[0, 1]));
    load.more(60).await;
    let pid = cluster.nodes[1].pid();
    let number = cluster.number(1);
    let lost_at = Instant::now();
    match loss {
        Loss::Swallowed => proxy.hold(),
        Loss::Refused => {
            proxy.refuse();
            proxy.cut();
        }
    }
    load.ask(cluster.addresses(&[0]));
    let mut api = cluster.api(1);
    assert!(try_event(&mut api, "meanwhile").await.is_none(), "{loss:?}");
    // The other node takes over and continues.
    cluster.wait_shared_by(1).await;
    let fault = Fault::note(&cluster, Some(1), lost_at);
    let taken_at = Instant::now();
    load.more(60).await;
    assert!(try_event(&mut api, "meanwhile").await.is_none(), "{loss:?}");
    let late = receiver.records().into_iter().find(|arrival| {
        let left_at = arrival.left_at.unwrap_or_else(Instant::now);
        arrival.sender == Some(pid) && left_at > taken_at
    });
    assert!(late.is_none(), "{loss:?}: the old owner still sends");

    match loss {
        Loss::Swallowed => proxy.release(),
        Loss::Refused => proxy.admit(),
    }
    let back_at = Instant::now();
    cluster.wait_shared_by(2).await;
    assert_ne!(cluster.number(1), number, "{loss:?}: it is a new member");
    load.ask(cluster.addresses(&[0, 1]));
    load.more(60).await;
    let known = event(&mut api, "meanwhile").await;
    let mut report = load.finish().await;
    let id = known.body["id"].as_str().expect("an id").to_owned();
    report.events.insert(usize::MAX, (id, 0));
    for node in [0, 1] {
        let ends = ended(&mut cluster.api(node), &report).await;
        assert_eq!(ends["succeeded"], report.events.len());
    }
    let again = LIMITS.assert_hold(&receiver, &report, &[fault]);
    let sends =
        |arrival: &posthaste_testbed::Arrival| arrival.sender == Some(pid) && arrival.at > back_at;
    assert!(receiver.records().iter().any(sends), "{loss:?}: it sends");
    println!(
        "{loss:?}: away {:?}, {again} came again",
        taken_at - lost_at
    );
    cluster.assert_no_panics();
}
