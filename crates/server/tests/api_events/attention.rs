//! Endpoints that need a look.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::kit::World;

const ALL: &str = "/v1/attention";
const OWN: &str = "/v1/tenants/acme/attention";

async fn endpoint(world: &World) -> String {
    world
        .endpoint(json!({"url": "http://127.0.0.1:9999/"}))
        .await
}

/// Each that needs a look, with why, in the order in which they are shown.
async fn listed(world: &World, path: &str) -> Vec<(String, String)> {
    let shown = world.get(path).await.ok(200);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let needy = shown["data"].as_array().unwrap().iter();
    needy
        .map(|it| (text(&it["endpoint_id"]), text(&it["reason"])))
        .collect()
}

#[tokio::test]
async fn one_that_fails_without_having_tripped_is_named_until_it_recovers() {
    let world = World::quiet().await;
    let (bad, good) = (endpoint(&world).await, endpoint(&world).await);
    for _ in 0..10 {
        world.attempted(&bad, true);
        world.attempted(&good, true);
    }
    assert_eq!(listed(&world, ALL).await, []);
    for _ in 0..8 {
        world.attempted(&bad, false);
    }
    for path in [ALL, OWN] {
        let shown = world.get(path).await.ok(200);
        assert_eq!(
            shown["data"],
            json!([{
                "tenant_id": "acme", "endpoint_id": bad, "url": "http://127.0.0.1:9999/",
                "status": "enabled", "reason": "failing", "since": null,
                "detail": "8 of the last 18 attempts failed; last: HTTP 503", "pending": 0,
                "success_ratio": 1.0 - 8.0 / 18.0, "last_failure_at": "2026-11-15T12:00:00.000Z",
            }])
        );
    }
    world.tenant(json!({"id": "other"})).await;
    let other = "/v1/tenants/other/attention";
    assert_eq!(listed(&world, other).await, []);
    for _ in 0..10 {
        world.attempted(&bad, true);
    }
    assert_eq!(listed(&world, ALL).await, []);
    world.attempted(&bad, false);
    assert_eq!(listed(&world, OWN).await.len(), 1);
    world.wall_ms.fetch_add(3_600_001, Ordering::SeqCst);
    assert_eq!(listed(&world, OWN).await, [], "it was long ago");
}
