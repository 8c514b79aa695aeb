//! Power cuts: the server is killed at chosen points while events are accepted, sent and recorded. Every acknowledged
//! event arrives. A duplicate is allowed only for an attempt that was sent and not yet recorded: a recorded delivery
//! never arrives again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use posthaste_testbed::stats_check::assert_stats_equal_deliveries;
use serde_json::json;
use tokio::sync::{Mutex, watch};
use tokio::time::timeout;

use super::fixture::{Answer, Api, PATIENCE, Receiver, TestServer};

const EVENTS: usize = 120;
const PRODUCERS: usize = 4;
const MAX_IN_FLIGHT: usize = 10;

/// The point at which the server is killed.
#[derive(Clone, Copy, Debug)]
enum Kill {
    /// While events are accepted: this number has been acknowledged.
    Accepted(usize),
    /// During an attempt: this number has arrived, and the last one is not answered.
    Arrived(usize),
    /// While results are recorded: the receiver has just answered this number.
    Answered(usize),
}

/// The acknowledged event of each idempotency key.
type Answered = Arc<Mutex<BTreeMap<usize, String>>>;

#[tokio::test]
async fn killed_while_events_come_in() {
    for number in [1, 3, 10, 37, 90] {
        acknowledged_events_survive_a_kill(&[Kill::Accepted(number)]).await;
    }
}

#[tokio::test]
async fn killed_while_requests_go_out() {
    for number in [1, 2, 11, 30, 75, 118] {
        acknowledged_events_survive_a_kill(&[Kill::Arrived(number)]).await;
    }
}

#[tokio::test]
async fn killed_while_results_are_recorded() {
    for number in [1, 4, 19, 50, 100, 119] {
        acknowledged_events_survive_a_kill(&[Kill::Answered(number)]).await;
    }
}

#[tokio::test]
async fn killed_again_and_again() {
    acknowledged_events_survive_a_kill(&[
        Kill::Accepted(2),
        Kill::Arrived(9),
        Kill::Answered(25),
        Kill::Arrived(31),
        Kill::Accepted(60),
        Kill::Answered(80),
    ])
    .await;
}

async fn acknowledged_events_survive_a_kill(kills: &[Kill]) {
    let (mut server, mut api) = TestServer::start_with_tenant(&[]).await;
    let receiver = Receiver::start(|_| Answer::status(200)).await;
    let endpoint = json!({
        "url": receiver.url(),
        "max_in_flight": MAX_IN_FLIGHT,
        "rate_limit": {"per_second": 1_000, "burst": 1_000},
        "retry_policy": {"backoff": {"kind": "fixed", "interval": "50ms"}, "max_attempts": 5},
    });
    api.endpoint("acme", endpoint).await;

    let answered = Answered::default();
    let (accepted, _) = watch::channel(0);
    let address = watch::Sender::new(server.address.clone());
    let producers: Vec<_> = (0..PRODUCERS)
        .map(|producer| {
            let produce = produce(
                producer,
                address.subscribe(),
                answered.clone(),
                accepted.clone(),
            );
            tokio::spawn(produce)
        })
        .collect();

    let mut cuts = Vec::new();
    for kill in kills {
        await_kill_point(*kill, &receiver, &accepted).await;
        server.kill();
        cuts.push(KillSnapshot {
            arrived: receiver.count(),
            recorded: server.recorded(EVENTS).await,
        });
        receiver.answer(200);
        server.restart();
        address.send_replace(server.address.clone());
    }
    for producer in producers {
        let done = timeout(PATIENCE, producer).await.expect("producers end");
        done.expect("producers do not panic");
    }

    let answered: BTreeSet<String> = answered.lock().await.values().cloned().collect();
    assert_eq!(answered.len(), EVENTS, "one event for each key ({kills:?})");
    let all_arrived = receiver.until(|records| {
        let arrived: BTreeSet<String> = records.iter().map(|a| a.event()).collect();
        answered.is_subset(&arrived)
    });
    all_arrived.await;
    let mut api = server.api();
    for status in ["pending", "retrying", "in_progress", "held", "failed"] {
        let path = format!("/v1/tenants/acme/deliveries?status={status}");
        let ended = |body: &serde_json::Value| body["data"].as_array().is_some_and(Vec::is_empty);
        api.until(&path, ended).await;
    }

    let records = receiver.records();
    let arrived: BTreeSet<String> = records.iter().map(|a| a.event()).collect();
    assert_eq!(arrived, answered, "nothing arrives that was not accepted");
    let deliveries: BTreeSet<String> = records.iter().map(|a| a.delivery()).collect();
    assert_eq!(deliveries.len(), EVENTS, "one delivery for each event");
    for cut in &cuts {
        let mut later = records[cut.arrived..]
            .iter()
            .map(|arrival| arrival.delivery());
        let again = later.find(|delivery| cut.recorded.contains(delivery));
        assert_eq!(again, None, "was delivered, and comes again ({kills:?})");
    }
    // One process sends nothing twice. Each further arrival needs a kill before which the delivery was not recorded.
    for delivery in &deliveries {
        let arrivals = records.iter().filter(|a| a.delivery() == *delivery).count();
        let unwritten = cuts.iter().filter(|cut| !cut.recorded.contains(delivery));
        let explained = 1 + unwritten.count();
        assert!(
            arrivals <= explained,
            "{delivery} came {arrivals} times ({kills:?})"
        );
    }
    // A fault of the server uses up no attempt: the receiver accepted each delivery at attempt 1.
    assert!(records.iter().all(|arrival| arrival.attempt() == 1));
    // What was recorded is counted, and nothing else.
    let totals = assert_stats_equal_deliveries(&mut api, None).await;
    assert_eq!(totals.succeeded, EVENTS as u64, "{kills:?}");
}

/// The state when the server was killed.
struct KillSnapshot {
    /// Number of arrivals.
    arrived: usize,
    /// Deliveries that were recorded as succeeded.
    recorded: BTreeSet<String>,
}

/// Sends events until each is acknowledged, with the same key if a response was lost.
async fn produce(
    producer: usize,
    mut address: watch::Receiver<String>,
    answered: Answered,
    accepted: watch::Sender<usize>,
) {
    for number in (0..EVENTS).filter(|number| number % PRODUCERS == producer) {
        let body = json!({
            "type": "invoice.paid",
            "payload": {"number": number},
            "idempotency_key": format!("key-{number}"),
        });
        let body = body.to_string();
        let event = loop {
            let current = address.borrow_and_update().clone();
            let mut api = Api::new(&current, super::fixture::ADMIN_KEY);
            let reply = api
                .try_call("POST", "/v1/tenants/acme/events", Some(body.as_bytes()))
                .await;
            match reply {
                Some(reply) if reply.status == 202 || reply.status == 200 => {
                    break reply.body["id"].as_str().expect("an id").to_owned();
                }
                Some(reply) => assert_eq!(reply.status, 503, "{}", reply.body),
                // The server is dead. Try again when the next one runs.
                None => address
                    .changed()
                    .await
                    .expect("the address of the next start"),
            }
        };
        answered.lock().await.insert(number, event);
        accepted.send_modify(|count| *count += 1);
    }
}

async fn await_kill_point(kill: Kill, receiver: &Receiver, accepted: &watch::Sender<usize>) {
    match kill {
        Kill::Accepted(number) => {
            let mut accepted = accepted.subscribe();
            let reached = accepted.wait_for(|count| *count >= number);
            let reached = timeout(PATIENCE, reached).await;
            reached
                .expect("events are accepted")
                .expect("a running producer");
        }
        Kill::Arrived(number) => {
            receiver.set_behaviour(move |arrival| {
                let mut answer = Answer::status(200);
                if arrival.number >= number {
                    answer.after = Duration::from_secs(3_600);
                }
                answer
            });
            receiver.arrivals(number).await;
        }
        Kill::Answered(number) => {
            receiver.arrivals(number).await;
        }
    }
}
