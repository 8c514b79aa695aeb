//! The server is killed, or its connection to the outbox is cut, at every step.

use std::time::Duration;

use posthaste_testbed::{Database, Direction, TcpProxy};

use super::fixture::{
    Outbox, STORES, Store, TENANT, count_events, events_by_number, expect_one_event_each,
    fast_endpoint, metric,
};
use crate::fixture::{Receiver, until};

/// Rows that are inserted before each kill.
const ROWS: u32 = 50;
const KILLS: u32 = 6;
/// Time between two rows while the connection is to be cut.
const BETWEEN_ROWS: Duration = Duration::from_millis(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_under_load_lose_and_repeat_no_event() {
    for store in STORES {
        let outbox = Outbox::new(store);
        let (mut node, mut api) = outbox.start_with_tenant().await;
        let receiver = Receiver::healthy().await;
        api.endpoint(TENANT, fast_endpoint(&receiver)).await;
        for kill in 0..KILLS {
            let first = kill * ROWS + 1;
            for first in (first..first + ROWS).step_by(10) {
                outbox.insert(first..=first + 9);
            }
            // At once, or when some of the rows have arrived.
            let wanted = (first - 1 + kill * 10) as usize;
            let arrived = receiver.until(|arrived| events_by_number(arrived).len() >= wanted);
            arrived.await;
            node.kill();
            node = outbox.start();
        }
        node.until_ready().await;
        outbox.until_empty().await;
        let last = u64::from(KILLS * ROWS);
        expect_one_event_each(&mut node.api(), &receiver, last).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_after_the_accept_finds_its_events_again() {
    for store in STORES {
        let outbox = Outbox::new(store);
        let (mut node, mut api) = outbox.start_with_tenant().await;
        let receiver = Receiver::healthy().await;
        api.endpoint(TENANT, fast_endpoint(&receiver)).await;
        // Every deletion waits for a lock.
        outbox.database.query(
            "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN NULL; END $$; \
             CREATE TRIGGER wait BEFORE DELETE ON posthaste_outbox EXECUTE FUNCTION wait()",
        );
        let session = outbox.session().await;
        let lock = "BEGIN; SELECT pg_advisory_xact_lock(7)";
        session.batch(lock).await.expect("locked");
        outbox.insert(1..=3);
        receiver.arrivals(3).await;
        assert_eq!(count_events(&mut node.api()).await, 3);
        node.kill();
        outbox.end_sessions().await;
        session.batch("COMMIT").await.expect("committed");
        assert_eq!(outbox.waiting(), 3, "{store:?}: nothing was deleted");

        node = outbox.start();
        node.until_ready().await;
        outbox.until_empty().await;
        let rows = |outcome: &str| {
            format!("posthaste_outbox_rows_total{{outbox=\"orders\",outcome=\"{outcome}\"}}")
        };
        let mut api = node.api();
        // The rows are counted just after they are deleted.
        until("the rows to be counted", async || {
            metric(&mut node.api(), &rows("repeated")).await == Some(3.0)
        })
        .await;
        assert_eq!(metric(&mut api, &rows("accepted")).await, Some(0.0));
        expect_one_event_each(&mut api, &receiver, 3).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_before_the_accept_reads_the_rows_again() {
    let outbox = Outbox::new(Store::Postgres);
    let (mut node, mut api) = outbox.start_with_tenant().await;
    let receiver = Receiver::healthy().await;
    api.endpoint(TENANT, fast_endpoint(&receiver)).await;
    let store = outbox.store_database.as_ref().expect("a database");
    // Events cannot be stored.
    let url = store.url().parse().expect("a URL");
    let dial: std::sync::Arc<dyn posthaste_store::postgres::Dial> =
        std::sync::Arc::new(posthaste_engine::database::EgressDialer);
    let session = posthaste_store::postgres::Session::open(&url, &dial).await;
    let session = session.expect("the database accepts connections");
    let lock = "BEGIN; LOCK TABLE events IN ACCESS EXCLUSIVE MODE";
    session.batch(lock).await.expect("locked");
    outbox.insert(1..=3);
    let locked = "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) \
         WHERE a.application_name = 'posthaste' AND l.locktype = 'advisory' AND a.datname = current_database()";
    until("the rows to be locked", async || {
        outbox.database.number(locked) == 1
    })
    .await;
    node.kill();
    outbox.end_sessions().await;
    session.batch("COMMIT").await.expect("committed");
    assert_eq!(outbox.waiting(), 3);
    node = outbox.start();
    node.until_ready().await;
    outbox.until_empty().await;
    expect_one_event_each(&mut node.api(), &receiver, 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_cut_at_any_byte_loses_and_repeats_no_event() {
    let database = Database::empty();
    let proxy = TcpProxy::to(database.address());
    let url = database.url_via_proxy(&proxy);
    let outbox = Outbox::via(database, &url, Store::Sqlite, "tenant = 'acme'");
    let (node, mut api) = outbox.start_with_tenant().await;
    let receiver = Receiver::healthy().await;
    api.endpoint(TENANT, fast_endpoint(&receiver)).await;
    let mut last = 0;
    for direction in [Direction::ToDatabase, Direction::FromDatabase] {
        // A round has some hundred bytes, opening a connection some thousand.
        let in_a_round = (1..1_200).step_by(97).map(|bytes| (false, bytes));
        let at_the_start = (1..6_000).step_by(700).map(|bytes| (true, bytes));
        for (is_new, bytes) in in_a_round.chain(at_the_start) {
            // Without a success in between, the pauses between the attempts grow.
            outbox.until_empty().await;
            proxy.cut_after(direction, bytes);
            if is_new {
                proxy.cut();
            }
            let mut cut = std::pin::pin!(proxy.until_cut());
            // Rows follow until enough bytes have passed.
            loop {
                last += 1;
                outbox.insert(last..=last);
                let cut = tokio::time::timeout(BETWEEN_ROWS, cut.as_mut()).await;
                if cut.is_ok() {
                    break;
                }
            }
        }
    }
    outbox.until_empty().await;
    expect_one_event_each(&mut api, &receiver, u64::from(last)).await;
    assert!(
        node.log()
            .iter()
            .any(|line| line.contains("cannot read the outbox"))
    );
}
