//! Dead letters by endpoint and failure kind, through the API.

use posthaste_testbed::{Answer, Receiver};
use serde_json::{Value, json};

use crate::fixture::TestServer;

const DEAD: &str = "/v1/tenants/acme/dead-letters";
const REPLAYS: &str = "/v1/tenants/acme/replays";

/// Sends an event that fails for good immediately, and returns the id of its delivery.
async fn fail(server: &TestServer, event_type: &str) -> String {
    let event = json!({"type": event_type, "payload": {}});
    let id = server.deliver(event).await;
    server.until_status(&id, "failed").await;
    id
}

#[tokio::test]
async fn a_dead_letter_group_has_endpoint_reason_and_count_and_is_replayed_whole() {
    let server = TestServer::start().await;
    let refusing = Receiver::start(|_| Answer::status(400)).await;
    let gone = Receiver::start(|_| Answer::status(400)).await;
    let first = server
        .endpoint(json!({"url": refusing.url(), "event_types": ["a"]}))
        .await;
    let second = server
        .endpoint(json!({"url": gone.url(), "event_types": ["b"]}))
        .await;
    assert_eq!(server.get(DEAD).await.ok(200)["data"], json!([]));
    let mut failed = Vec::new();
    for event_type in ["a", "b", "a"] {
        failed.push(fail(&server, event_type).await);
    }
    let shown = server.get(DEAD).await.ok(200);
    let groups = shown["data"].as_array().unwrap();
    let places: Vec<&Value> = groups.iter().map(|group| &group["endpoint_id"]).collect();
    assert_eq!(places, [&json!(second), &json!(first)], "the newest first");
    let group = groups
        .iter()
        .find(|group| group["endpoint_id"] == json!(first))
        .unwrap();
    assert_eq!(group["endpoint_url"], json!(refusing.url()));
    assert_eq!(group["endpoint_status"], "enabled");
    assert_eq!(group["error_kind"], "http");
    assert_eq!(
        (&group["count"], &group["count_is_exact"]),
        (&json!(2), &json!(true))
    );
    assert_eq!(group["newest"]["id"], json!(failed[2]));
    assert_eq!(group["newest_at"], group["newest"]["created_at"]);
    let oldest = format!("/v1/tenants/acme/deliveries/{}", failed[0]);
    let oldest = server.get(&oldest).await.ok(200);
    assert_eq!(group["oldest_at"], oldest["created_at"]);
    assert_eq!(group["newest"]["last_error"]["status_code"], 400);

    // The pages together are the same list. The filter by endpoint returns its part of it.
    let pages = server.pages(&format!("{DEAD}?limit=1")).await;
    assert_eq!(&pages.concat(), groups);
    let alone = server
        .get(&format!("{DEAD}?endpoint={first}"))
        .await
        .ok(200);
    assert_eq!(alone["data"], json!([group]));

    // The whole group is sent again, and nothing else.
    refusing.answer(200);
    let asked = json!({"status": "failed", "endpoint": first, "error_kind": group["error_kind"]});
    let replay = server.post(REPLAYS, &asked).await.ok(202);
    assert_eq!(replay["total"], group["count"]);
    for id in [&failed[0], &failed[2]] {
        server.until_status(id, "succeeded").await;
    }
    let left = server.get(DEAD).await.ok(200);
    assert_eq!(left["data"].as_array().unwrap().len(), 1);
    assert_eq!(left["data"][0]["endpoint_id"], json!(second));
}

#[tokio::test]
async fn invalid_filters_are_refused() {
    let server = TestServer::without_engine().await;
    for query in ["endpoint=nonsense", "limit=0", "cursor=AQ", "kind=http"] {
        let answer = server.get(&format!("{DEAD}?{query}")).await;
        answer.problem(422, "invalid");
    }
    let unknown = "ep_00000000000000000000000077";
    let nothing = server.get(&format!("{DEAD}?endpoint={unknown}")).await;
    assert_eq!(nothing.ok(200)["data"], json!([]));
}
