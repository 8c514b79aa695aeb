//! Dead letters by endpoint and failure kind, through the API.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::kit::{Receiver, World};

const DEAD: &str = "/v1/tenants/acme/dead-letters";
const REPLAYS: &str = "/v1/tenants/acme/replays";

/// Sends an event that fails for good immediately, and returns the id of its delivery.
async fn fail(world: &World, event_type: &str) -> String {
    let event = json!({"type": event_type, "payload": {}});
    let answer = world.event(&event).await.ok(202);
    let id = answer["deliveries"][0]["id"].as_str().unwrap().to_owned();
    world.until(&id, "failed").await;
    id
}

#[tokio::test]
async fn a_group_says_where_why_and_how_often_and_is_sent_again_as_a_whole() {
    let world = World::with_engine().await;
    let (refusing, gone) = (Receiver::start().await, Receiver::start().await);
    refusing.status.store(400, Ordering::SeqCst);
    gone.status.store(400, Ordering::SeqCst);
    let first = world
        .endpoint(json!({"url": refusing.url(), "event_types": ["a"]}))
        .await;
    let second = world
        .endpoint(json!({"url": gone.url(), "event_types": ["b"]}))
        .await;
    assert_eq!(world.get(DEAD).await.ok(200)["data"], json!([]));
    let mut failed = Vec::new();
    for event_type in ["a", "b", "a"] {
        failed.push(fail(&world, event_type).await);
    }
    let shown = world.get(DEAD).await.ok(200);
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
    let oldest = world.get(&oldest).await.ok(200);
    assert_eq!(group["oldest_at"], oldest["created_at"]);
    assert_eq!(group["newest"]["last_error"]["status_code"], 400);

    // The pages together are the same list. The filter by endpoint returns its part of it.
    let pages = world.pages(&format!("{DEAD}?limit=1")).await;
    assert_eq!(&pages.concat(), groups);
    let alone = world.get(&format!("{DEAD}?endpoint={first}")).await.ok(200);
    assert_eq!(alone["data"], json!([group]));

    // The whole group is sent again, and nothing else.
    refusing.status.store(200, Ordering::SeqCst);
    let asked = json!({"status": "failed", "endpoint": first, "error_kind": group["error_kind"]});
    let replay = world.post(REPLAYS, &asked).await.ok(202);
    assert_eq!(replay["total"], group["count"]);
    for id in [&failed[0], &failed[2]] {
        world.until(id, "succeeded").await;
    }
    let left = world.get(DEAD).await.ok(200);
    assert_eq!(left["data"].as_array().unwrap().len(), 1);
    assert_eq!(left["data"][0]["endpoint_id"], json!(second));
}

#[tokio::test]
async fn what_is_asked_wrongly_is_told() {
    let world = World::quiet().await;
    for query in ["endpoint=nonsense", "limit=0", "cursor=AQ", "kind=http"] {
        let answer = world.get(&format!("{DEAD}?{query}")).await;
        answer.problem(422, "invalid");
    }
    let stranger = "ep_00000000000000000000000077";
    let nothing = world.get(&format!("{DEAD}?endpoint={stranger}")).await;
    assert_eq!(nothing.ok(200)["data"], json!([]));
}
