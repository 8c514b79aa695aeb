//! The order of events with the same ordering key, and rows of transactions that take long.

use serde_json::{Value, json};

use super::fixture::{Outbox, Store, TENANT, fast_endpoint};
use crate::fixture::{Arrival, Receiver, until};

fn numbers(arrived: &[Arrival], key: &str) -> Vec<u64> {
    let bodies = arrived.iter().map(|arrival| {
        let body: Value = serde_json::from_slice(&arrival.body).expect("JSON");
        body
    });
    let of_key = bodies.filter(|body| body["key"] == key);
    of_key
        .map(|body| body["n"].as_u64().expect("a number"))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_an_ordering_key_arrive_in_the_order_of_their_rows() {
    let outbox = Outbox::new(Store::Postgres);
    // More rows than fit into one batch, before the server starts.
    let insert = "INSERT INTO posthaste_outbox (type, payload, ordering_key) \
         SELECT 'a.b', json_build_object('key', k, 'n', n), k \
         FROM generate_series(1, 300) AS n, unnest(ARRAY['a', 'b']) AS k ORDER BY n";
    let (node, mut api) = outbox.start_with_tenant().await;
    let receiver = Receiver::healthy().await;
    api.endpoint(TENANT, fast_endpoint(&receiver)).await;
    drop(node);
    outbox.database.query(insert);
    let _node = outbox.start();
    let arrived = receiver.arrivals(600).await;
    for key in ["a", "b"] {
        let wanted: Vec<u64> = (1..=300).collect();
        assert_eq!(numbers(&arrived, key), wanted, "{key}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_wait_behind_a_locked_row_of_their_ordering_key() {
    let outbox = Outbox::new(Store::Sqlite);
    let (node, mut api) = outbox.start_with_tenant().await;
    let receiver = Receiver::healthy().await;
    api.endpoint(TENANT, json!({"url": receiver.url(), "ordered": true}))
        .await;
    drop(node);
    let row = |key: &str, n: u32| format!("('a.b', '{{\"key\": \"{key}\", \"n\": {n}}}', '{key}')");
    outbox.database.query(&format!(
        "INSERT INTO posthaste_outbox (type, payload, ordering_key) VALUES {}",
        row("a", 1)
    ));
    let session = outbox.session().await;
    let lock = "BEGIN; UPDATE posthaste_outbox SET payload = payload";
    session.batch(lock).await.expect("locked");
    let _node = outbox.start();
    outbox.database.query(&format!(
        "INSERT INTO posthaste_outbox (type, payload, ordering_key) VALUES {}, {}, {}",
        row("a", 2),
        row("b", 1),
        row("b", 2)
    ));
    let arrived = receiver.arrivals(2).await;
    assert_eq!(numbers(&arrived, "b"), [1, 2]);
    let left = "the locked row and the one behind it to stay";
    until(left, async || outbox.waiting() == 2).await;
    assert!(numbers(&receiver.records(), "a").is_empty());
    session.batch("COMMIT").await.expect("committed");
    let arrived = receiver.arrivals(4).await;
    assert_eq!(numbers(&arrived, "a"), [1, 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_is_committed_late_is_not_skipped() {
    let outbox = Outbox::new(Store::Sqlite);
    let (_node, mut api) = outbox.start_with_tenant().await;
    let receiver = Receiver::healthy().await;
    api.endpoint(TENANT, fast_endpoint(&receiver)).await;
    let session = outbox.session().await;
    let late = "BEGIN; INSERT INTO posthaste_outbox (type, payload) VALUES ('a.b', '{\"key\": \"late\", \"n\": 0}')";
    session.batch(late).await.expect("inserted");
    outbox.insert(1..=1_000);
    until("the others", async || receiver.count() >= 1).await;
    outbox.until_empty().await;
    let highest = outbox
        .database
        .number("SELECT last_value FROM posthaste_outbox_id_seq");
    assert_eq!(highest, 1_001);
    session.batch("COMMIT").await.expect("committed");
    let arrived = receiver
        .until(|arrived| numbers(arrived, "late") == [0])
        .await;
    outbox.until_empty().await;
    assert!(arrived.len() <= 1_001);
}
