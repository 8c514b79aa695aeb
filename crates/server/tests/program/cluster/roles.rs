//! Nodes that only serve the API and nodes that only send. Without a worker, events are still accepted.

use std::time::Instant;

use posthaste_testbed::Receiver;
use serde_json::{Value, json};

use super::kit::{DeliveryLimits, Fault, Fleet, Load, SHORT_LEASE, TENANT, ended, until};

const BOUNDS: DeliveryLimits = DeliveryLimits {
    max_attempts: 1,
    max_in_flight: 4,
    per_second: 500,
    burst: 500,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_no_worker_is_left_events_are_taken_and_sent_by_the_next_one() {
    let mut fleet = Fleet::new(SHORT_LEASE);
    let url = fleet.database.url();
    let front = fleet.join_by(&url, "api");
    let workers = [fleet.join_by(&url, "worker"), fleet.join_by(&url, "worker")];
    fleet.wait_shared_by(2).await;
    let share = fleet.shares();
    assert!(!share.contains_key(&fleet.number(front)), "{share:?}");
    let receiver = Receiver::healthy().await;
    let fields = json!({
        "max_in_flight": BOUNDS.max_in_flight,
        "rate_limit": {"per_second": BOUNDS.per_second, "burst": BOUNDS.burst},
    });
    let mut api = fleet.api(front);
    // Created through the API node, owned by the workers.
    let endpoints = endpoints(&fleet, front, &receiver, &fields).await;
    let path = format!("/v1/tenants/{TENANT}/events");
    let event = json!({"type": "t.0", "payload": 1});
    assert_eq!(fleet.api(workers[0]).post(&path, event).await.status, 404);
    assert_eq!(fleet.api(workers[0]).get("/metrics").await.status, 200);

    let load = Load::start(endpoints.len(), fleet.addresses(&[front]));
    load.more(60).await;
    receiver.arrivals(30).await;
    // One worker stops normally, the other is killed.
    assert!(fleet.nodes[workers[0]].stop().success());
    fleet.wait_shared_by(1).await;
    let died_at = Instant::now();
    fleet.nodes[workers[1]].kill();
    let fault = Fault::note(&fleet, Some(workers[1]), died_at);
    load.more(60).await;
    let nobody = async || fleet.shares().contains_key(&None);
    until("the dead worker to be found", nobody).await;
    let mut harvest = load.finish().await;
    assert_eq!(harvest.refused, [], "events are taken without workers");
    let path = format!("/v1/tenants/{TENANT}/deliveries?limit=10");
    let listed = api.get(&path).await.expect(200);
    assert_eq!(listed["data"].as_array().map(Vec::len), Some(10));

    // The endpoint has no owner, and it can still be disabled: its waiting deliveries fail and are never sent.
    let shut = &endpoints[0];
    let disable = format!("/v1/tenants/{TENANT}/endpoints/{shut}/disable");
    let disabled = api.call("POST", &disable, None).await.expect(200);
    assert_eq!(disabled["status"], "disabled");
    let before = receiver.ledger_of("0").len();
    // Cancelled while the endpoint has no owner.
    let called_off = waiting(&mut api, &endpoints[1]).await;
    let cancel = format!("/v1/tenants/{TENANT}/deliveries/{called_off}/cancel");
    let cancelled = api.call("POST", &cancel, None).await.expect(200);
    assert_eq!(cancelled["status"], "cancelled");

    fleet.join_by(&url, "worker");
    let ends = ended(&mut api, &harvest).await;
    assert_eq!(ends["cancelled"], 1);
    assert_eq!(receiver.ledger_of("0").len(), before, "it is disabled");
    let cancelled_arrived = receiver
        .ledger()
        .iter()
        .any(|it| it.delivery() == called_off);
    assert!(!cancelled_arrived, "it was called off");
    let path = format!("/v1/tenants/{TENANT}/deliveries/{called_off}");
    let event = api.get(&path).await.expect(200)["event_id"].clone();
    harvest
        .events
        .retain(|_, (id, endpoint)| *endpoint != 0 && event != id.as_str());
    assert!(ends["succeeded"] >= harvest.events.len(), "{ends:?}");
    BOUNDS.judge(&receiver, &harvest, &[fault]);
    fleet.assert_no_panics();
}

async fn endpoints(
    fleet: &Fleet,
    front: usize,
    receiver: &Receiver,
    fields: &Value,
) -> Vec<String> {
    let mut api = fleet.api(front);
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
