//! After one node has acknowledged a pause, disable, delete or cancel, no node starts an attempt against it.
//!
//! Arrivals and acknowledgements are compared by one monotonic clock. A request that arrives shortly after the
//! acknowledgement must have started before it, which the start time in its delivery shows.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use posthaste_core::time::Timestamp;
use posthaste_testbed::{Answer, Api, Arrival, Receiver};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::fixture::{LONG_LEASE, Load, LoadReport, TENANT, TestCluster, all_ended, ended, until};

const ROUNDS: usize = 8;
/// Maximum time between the acknowledgement and the arrival of a request that was already in flight.
const ON_ITS_WAY: Duration = Duration::from_secs(1);
/// Duration for which a closed endpoint is watched in each round.
const WATCHED: Duration = Duration::from_millis(60);

/// The times when an endpoint was paused or disabled, and when it was enabled again.
#[derive(Debug)]
struct ClosedPeriod {
    path: String,
    at: Instant,
    at_wall: String,
    until: Instant,
}

/// Returns the current time by both clocks.
fn answered() -> (Instant, String) {
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let ms = wall.expect("a time after 1970").as_millis();
    let wall = Timestamp(u64::try_from(ms).expect("a time"));
    (Instant::now(), wall.to_string())
}

fn fields(receiver: &Receiver, number: usize) -> Value {
    json!({
        "url": receiver.url_of(&number.to_string()),
        "event_types": [format!("t.{number}")],
        "max_in_flight": 4,
        "rate_limit": {"per_second": 2_000, "burst": 2_000},
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_attempt_starts_after_another_node_disabled_the_endpoint() {
    let cluster = TestCluster::of(2, LONG_LEASE).await;
    let receiver = Receiver::start(|_| Answer::status(200).after(Duration::from_millis(3))).await;
    cluster.api(0).tenant(TENANT).await;
    let mut endpoints = Vec::new();
    for number in 0..2 {
        let fields = fields(&receiver, number);
        endpoints.push(cluster.endpoint_of(number, &fields).await);
    }
    // The load goes to both nodes.
    let load = Load::start(2, cluster.addresses(&[0, 1]));
    let mut shuts = Vec::new();
    for round in 0..ROUNDS {
        // One node owns the endpoint, the other gets the request.
        let owner = round % 2;
        let mut api = cluster.api(1 - owner);
        let path = format!("/{owner}");
        let arrivals = || receiver.records_at(&owner.to_string()).len();
        let before = arrivals();
        until("a request to the endpoint", async || arrivals() > before).await;
        let (shut, open) = [("pause", "resume"), ("disable", "enable")][round / 2 % 2];
        let endpoint = format!("/v1/tenants/{TENANT}/endpoints/{}", endpoints[owner]);
        let verb = format!("{endpoint}/{shut}");
        api.call("POST", &verb, None).await.expect(200);
        let (at, at_wall) = answered();
        sleep(WATCHED).await;
        let until = Instant::now();
        let verb = format!("{endpoint}/{open}");
        api.call("POST", &verb, None).await.expect(200);
        shuts.push(ClosedPeriod {
            path,
            at,
            at_wall,
            until,
        });
    }
    let mut report = load.finish().await;
    // At the end each endpoint is deleted through the other node, while deliveries remain.
    for owner in [0, 1] {
        let path = format!("/v1/tenants/{TENANT}/endpoints/{}", endpoints[owner]);
        let deleted = cluster.api(1 - owner).call("DELETE", &path, None).await;
        assert_eq!(deleted.status, 204);
        let (at, at_wall) = answered();
        let until = at + ON_ITS_WAY;
        let path = format!("/{owner}");
        shuts.push(ClosedPeriod {
            path,
            at,
            at_wall,
            until,
        });
    }
    let mut api = cluster.api(0);
    forget_unrouted(&cluster, &mut report);
    ended(&mut api, &report).await;
    for shut in &shuts {
        none_begins(&mut api, &receiver.records(), shut).await;
    }
    cluster.assert_no_panics();
}

/// Removes events that were sent while their endpoint was disabled. They have no delivery.
fn forget_unrouted(cluster: &TestCluster, report: &mut LoadReport) {
    let rows = cluster
        .database
        .query("SELECT id FROM events WHERE length(deliveries) = 0");
    let unrouted: Vec<String> = rows
        .into_iter()
        .map(|row| {
            let id = row[0].as_ref().expect("an id").replace('-', "");
            let id = u128::from_str_radix(&id, 16).expect("a UUID");
            posthaste_core::id::EventId(id).to_string()
        })
        .collect();
    report.events.retain(|_, (id, _)| !unrouted.contains(id));
}

/// Checks that every request that arrived after the acknowledgement had started before it.
async fn none_begins(api: &mut Api, records: &[Arrival], shut: &ClosedPeriod) {
    let late = records
        .iter()
        .filter(|it| it.path == shut.path && it.at > shut.at && it.at < shut.until);
    for arrival in late {
        let path = format!("/v1/tenants/{TENANT}/deliveries/{}", arrival.delivery());
        let shown = api.get(&path).await.expect(200);
        let attempts = shown["attempts"].as_array().expect("a list");
        let attempt = attempts
            .iter()
            .find(|it| it["number"] == arrival.attempt())
            .unwrap_or_else(|| panic!("no such attempt: {shown}"));
        let began = attempt["started_at"].as_str().expect("a time");
        assert!(
            began <= shut.at_wall.as_str(),
            "began at {began}, {:?} after {shut:?}",
            arrival.at - shut.at
        );
        assert!(arrival.at < shut.at + ON_ITS_WAY, "{shut:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_cancelled_on_another_node_is_not_sent() {
    let cluster = TestCluster::of(2, LONG_LEASE).await;
    let receiver = Receiver::healthy().await;
    cluster.api(0).tenant(TENANT).await;
    for owner in [0, 1] {
        let mut fields = fields(&receiver, owner);
        // A low rate, so that there are deliveries to cancel.
        fields["rate_limit"] = json!({"per_second": 1, "burst": 1});
        cluster.endpoint_of(owner, &fields).await;
    }
    let mut called_off: BTreeMap<String, Instant> = BTreeMap::new();
    let mut sent = 0;
    for round in 0..10 {
        let owner = round % 2;
        let mut api = cluster.api(1 - owner);
        let mut deliveries = Vec::new();
        for number in 0..6 {
            let event = json!({"type": format!("t.{owner}"), "payload": [round, number]});
            let event = api.event(TENANT, event).await;
            let delivery = event["deliveries"][0]["id"].as_str().expect("one");
            deliveries.push(delivery.to_owned());
            sent += 1;
        }
        // From the first delivery, which is about to be sent, to the last one, which is not.
        for delivery in deliveries {
            let cancel = format!("/v1/tenants/{TENANT}/deliveries/{delivery}/cancel");
            let reply = api.call("POST", &cancel, None).await;
            match reply.status {
                200 => {
                    assert_eq!(reply.body["status"], "cancelled");
                    called_off.insert(delivery, Instant::now());
                }
                status => assert_eq!(status, 409, "{}", reply.body),
            }
        }
    }
    assert!(called_off.len() > 10, "of {sent}: {}", called_off.len());
    let mut api = cluster.api(0);
    let ends = all_ended(&mut api, sent).await;
    assert_eq!(ends["cancelled"], called_off.len());
    assert_eq!(ends["succeeded"], sent - called_off.len());
    for arrival in receiver.records() {
        let answered = called_off.get(&arrival.delivery());
        assert_eq!(
            answered, None,
            "the delivery was cancelled, and arrived {:?}",
            arrival.at
        );
    }
    assert_eq!(receiver.count(), ends["succeeded"]);
    cluster.assert_no_panics();
}
