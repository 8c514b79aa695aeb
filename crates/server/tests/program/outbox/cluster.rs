//! Several nodes: one of them reads the outbox.

use std::time::Duration;

use posthaste_testbed::Node;

use super::fixture::{Outbox, Store, TENANT, expect_one_event_each, fast_endpoint, metric};
use crate::fixture::{Receiver, until};

const LAG: &str = "posthaste_outbox_lag_seconds{outbox=\"orders\"}";

/// Waits until one node reads the outbox, and returns its index.
async fn reader(nodes: &[Node]) -> usize {
    let deadline = tokio::time::Instant::now() + crate::fixture::PATIENCE;
    loop {
        let mut readers = Vec::new();
        for (index, node) in nodes.iter().enumerate() {
            if metric(&mut node.api(), LAG).await.is_some() {
                readers.push(index);
            }
        }
        if let [reader] = readers[..] {
            return reader;
        }
        assert!(tokio::time::Instant::now() < deadline, "{readers:?} read");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_node_reads_on_when_the_reader_is_killed_or_frozen() {
    let outbox = Outbox::new(Store::Postgres);
    let (first, mut api) = outbox.start_with_tenant().await;
    let receiver = Receiver::healthy().await;
    api.endpoint(TENANT, fast_endpoint(&receiver)).await;
    let mut nodes = vec![first, outbox.start(), outbox.start()];
    for node in &nodes {
        node.until_ready().await;
    }
    let sessions = "SELECT count(*) FROM pg_stat_activity \
         WHERE application_name = 'posthaste' AND datname = current_database()";
    let one_reads = "one node to be connected to the application's database";
    outbox.insert(1..=100);
    outbox.until_empty().await;
    reader(&nodes).await;
    until(one_reads, async || outbox.database.number(sessions) == 1).await;

    let killed = reader(&nodes).await;
    outbox.insert(101..=200);
    drop(nodes.remove(killed));
    outbox.insert(201..=300);
    outbox.until_empty().await;

    let frozen = reader(&nodes).await;
    outbox.insert(301..=400);
    nodes[frozen].freeze();
    outbox.insert(401..=500);
    outbox.until_empty().await;
    nodes[frozen].wake();
    outbox.insert(501..=600);
    outbox.until_empty().await;
    until(one_reads, async || outbox.database.number(sessions) == 1).await;
    nodes[frozen].until_ready().await;
    expect_one_event_each(&mut nodes[frozen].api(), &receiver, 600).await;
}

/// A node that has lost the shard and does not know it yet, and a server with another store, are such readers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_reader_waits_until_the_first_one_has_ended_its_transaction() {
    let outbox = Outbox::new(Store::Sqlite);
    let (node, mut api) = outbox.start_with_tenant().await;
    let receiver = Receiver::healthy().await;
    api.endpoint(TENANT, fast_endpoint(&receiver)).await;
    let read = "the server to read the outbox";
    until(read, async || metric(&mut node.api(), LAG).await.is_some()).await;
    let session = outbox.session().await;
    let lock =
        "BEGIN; SELECT pg_advisory_xact_lock(1885892450, 'posthaste_outbox'::regclass::oid::int)";
    session.batch(lock).await.expect("locked");
    outbox.insert(1..=1);
    let refused = "the server to find the other reader";
    until(refused, async || {
        metric(&mut node.api(), LAG).await.is_none()
    })
    .await;
    assert_eq!((outbox.waiting(), receiver.count()), (1, 0));
    session.batch("COMMIT").await.expect("committed");
    outbox.until_empty().await;
    expect_one_event_each(&mut api, &receiver, 1).await;
}
