//! Nodes that only serve the API and nodes that only send. Without a worker, events are still accepted.

use std::time::Instant;

use posthaste_testbed::Receiver;
use serde_json::{Value, json};

use crate::fixture::{DeliveryLimits, Fault, Load, SHORT_LEASE, TENANT, TestCluster, ended, until};

const LIMITS: DeliveryLimits = DeliveryLimits::ONE_ATTEMPT;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_workers_events_are_accepted_and_a_new_worker_sends_them() {
    let mut cluster = TestCluster::new(SHORT_LEASE);
    let url = cluster.database.url();
    let front = cluster.join_by(&url, "api");
    let workers = [
        cluster.join_by(&url, "worker"),
        cluster.join_by(&url, "worker"),
    ];
    cluster.wait_shared_by(2).await;
    let share = cluster.shares();
    assert!(!share.contains_key(&cluster.number(front)), "{share:?}");
    let receiver = Receiver::healthy().await;
    let fields = LIMITS.fields();
    let mut api = cluster.api(front);
    // Created through the API node, owned by the workers.
    let endpoints = endpoints(&cluster, front, &receiver, &fields).await;
    let path = format!("/v1/tenants/{TENANT}/events");
    let event = json!({"type": "t.0", "payload": 1});
    assert_eq!(cluster.api(workers[0]).post(&path, event).await.status, 404);
    assert_eq!(cluster.api(workers[0]).get("/metrics").await.status, 200);

    let load = Load::start(endpoints.len(), cluster.addresses(&[front]));
    load.more(60).await;
    receiver.arrivals(30).await;
    // One worker stops normally, the other is killed.
    assert!(cluster.nodes[workers[0]].stop().success());
    cluster.wait_shared_by(1).await;
    let died_at = Instant::now();
    cluster.nodes[workers[1]].kill();
    let fault = Fault::note(&cluster, Some(workers[1]), died_at);
    load.more(60).await;
    let shards_without_owner = async || cluster.shares().contains_key(&None);
    until("the dead worker to be found", shards_without_owner).await;
    let mut report = load.finish().await;
    assert_eq!(report.refused, [], "events are taken without workers");
    let path = format!("/v1/tenants/{TENANT}/deliveries?limit=10");
    let listed = api.get(&path).await.expect(200);
    assert_eq!(listed["data"].as_array().map(Vec::len), Some(10));

    // The endpoint has no owner, and it can still be disabled: its waiting deliveries fail and are never sent.
    let shut = &endpoints[0];
    let disable = format!("/v1/tenants/{TENANT}/endpoints/{shut}/disable");
    let disabled = api.call("POST", &disable, None).await.expect(200);
    assert_eq!(disabled["status"], "disabled");
    let before = receiver.records_at("0").len();
    // Cancelled while the endpoint has no owner.
    let called_off = waiting(&mut api, &endpoints[1]).await;
    let cancel = format!("/v1/tenants/{TENANT}/deliveries/{called_off}/cancel");
    let cancelled = api.call("POST", &cancel, None).await.expect(200);
    assert_eq!(cancelled["status"], "cancelled");

    cluster.join_by(&url, "worker");
    let ends = ended(&mut api, &report).await;
    assert_eq!(ends["cancelled"], 1);
    assert_eq!(
        receiver.records_at("0").len(),
        before,
        "a disabled endpoint receives nothing"
    );
    let cancelled_arrived = receiver
        .records()
        .iter()
        .any(|it| it.delivery() == called_off);
    assert!(!cancelled_arrived, "a cancelled delivery is not sent");
    let path = format!("/v1/tenants/{TENANT}/deliveries/{called_off}");
    let event = api.get(&path).await.expect(200)["event_id"].clone();
    report
        .events
        .retain(|_, (id, endpoint)| *endpoint != 0 && event != id.as_str());
    assert!(ends["succeeded"] >= report.events.len(), "{ends:?}");
    LIMITS.assert_hold(&receiver, &report, &[fault]);
    cluster.assert_no_panics();
}

async fn endpoints(
    cluster: &TestCluster,
    front: usize,
    receiver: &Receiver,
    fields: &Value,
) -> Vec<String> {
    let mut api = cluster.api(front);
    api.tenant(TENANT).await;
    let mut endpoints = Vec::new();
    for number in 0..6 {
        let mut fields = fields.clone();
        fields["url"] = json!(receiver.url_of(&number.to_string()));
        fields["event_types"] = json!([format!("t.{number}")]);
        let endpoint = api.endpoint(TENANT, fields).await;
        endpoints.push(endpoint["id"].as_str().expect("an id").to_owned());
    }
    endpoints
}

/// Returns a delivery that waits for this endpoint.
async fn waiting(api: &mut posthaste_testbed::Api, endpoint: &str) -> String {
    let path =
        format!("/v1/tenants/{TENANT}/deliveries?status=pending&endpoint={endpoint}&limit=1");
    let some = |body: &Value| body["data"][0]["id"].is_string();
    let listed = api.until(&path, some).await;
    listed["data"][0]["id"].as_str().expect("an id").to_owned()
}
