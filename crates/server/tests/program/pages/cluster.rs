//! Live pages in a cluster of two nodes: one node serves the page, the other one sends.

use posthaste_testbed::browser::{Browser, Locator};
use posthaste_testbed::{Database, Node, NodeOptions, PATIENCE};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

use super::judge::quiet;
use super::stage::{Receivers, id_of, impatient, signed_in, url};
use super::story::{assert_marker, put_marker, says};

/// Interval between queries of the shard owners.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Number of shards that a node owns.
fn shards(database: &Database, node: &Node) -> i64 {
    let pid = node.pid();
    database.number(&format!(
        "SELECT count(*) FROM shards s JOIN nodes n ON n.no = s.owner WHERE n.name LIKE '%/{pid}'"
    ))
}

/// Returns true if a node owns the endpoint that was created last.
fn owns_the_last(database: &Database, node: &Node) -> bool {
    let pid = node.pid();
    let sql = format!(
        "SELECT count(*) FROM shards s JOIN nodes n ON n.no = s.owner WHERE n.name LIKE '%/{pid}' AND s.no = \
         (SELECT shard FROM endpoints ORDER BY no DESC LIMIT 1)"
    );
    database.number(&sql) == 1
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_is_live_wherever_it_is_served() {
    let database = Database::with_schema();
    let home = tempfile::tempdir().expect("a directory");
    let program = env!("CARGO_BIN_EXE_posthaste");
    let launch = NodeOptions::new(program, &database.url(), home.path());
    let (sends, serves) = (Node::start(&launch), Node::start(&launch));
    for node in [&sends, &serves] {
        node.until_ready().await;
    }
    let deadline = Instant::now() + PATIENCE;
    while [&sends, &serves]
        .iter()
        .any(|node| shards(&database, node) != 128)
    {
        assert!(Instant::now() < deadline, "the work is not shared");
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let receivers = Receivers::start().await;
    receivers.fails("billing", 503, "closed for the night");
    let mut api = serves.api();
    api.tenant("acme").await;
    let endpoint = loop {
        let endpoint = api
            .endpoint("acme", impatient(&receivers.url("billing"), json!({})))
            .await;
        if owns_the_last(&database, &sends) {
            break id_of(&endpoint);
        }
        let path = format!("/v1/tenants/acme/endpoints/{}", id_of(&endpoint));
        assert_eq!(api.call("DELETE", &path, None).await.status, 204);
    };
    let event = json!({"type": "invoice.paid", "payload": {"number": 7}});
    let event = api.event("acme", event).await;
    let delivery = id_of(&event["deliveries"][0]);
    let failed = |delivery: &Value| delivery["status"] == "failed";
    api.until(&format!("/v1/tenants/acme/deliveries/{delivery}"), failed)
        .await;
    let arrivals = receivers.receiver.arrivals(2).await;
    assert!(
        arrivals
            .iter()
            .all(|arrival| arrival.sender == Some(sends.pid()))
    );

    let browser = Browser::start();
    let page = signed_in(&browser, &serves).await;
    let at = format!("/dashboard/t/acme/deliveries/{delivery}");
    page.open(&url(&serves, &at)).await;
    says(&page, "failed").await;
    put_marker(&page).await;
    receivers.recover("billing");
    let acts = page.another().await;
    acts.open(&url(&serves, &at)).await;
    acts.follow(Locator::saying("main button", "Send again"))
        .await;
    says(&page, "succeeded").await;
    assert_marker(&page).await;
    quiet(&page, "the delivery");

    // A session is valid on all nodes, and it ends on all nodes.
    let path = format!("/dashboard/t/acme/endpoints/{endpoint}");
    let elsewhere = page.another().await;
    assert_eq!(elsewhere.open(&url(&sends, &path)).await.status, 200);
    assert!(!elsewhere.url().await.contains("sign-in"));
    acts.follow(Locator::saying("button", "Sign out")).await;
    elsewhere
        .until("document.body.dataset.live === 'ended'")
        .await;
}
