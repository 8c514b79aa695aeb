//! Many rows that wait.

use std::time::{Duration, Instant};

use super::fixture::{Outbox, STORES, metric};
use crate::fixture::until;

const ROWS: u32 = 100_000;
/// Ten times what it takes on an idle machine with two cores.
const LIMIT: Duration = Duration::from_secs(150);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_waiting_rows_are_accepted_in_bounded_time_and_memory() {
    for store in STORES {
        let outbox = Outbox::new(store).configure("[tenant_limits]\nevents_per_second = 'none'\n");
        let (mut node, _) = outbox.start_with_tenant().await;
        node.kill();
        outbox.insert(1..=ROWS);
        let began = Instant::now();
        let node = outbox.start();
        let accepted = "posthaste_outbox_rows_total{outbox=\"orders\",outcome=\"accepted\"}";
        let mut last = Instant::now();
        while outbox.waiting() > 0 {
            assert!(
                began.elapsed() < LIMIT,
                "{store:?}: {} wait",
                outbox.waiting()
            );
            tokio::time::sleep(Duration::from_millis(200)).await;
            last = Instant::now();
        }
        println!("{store:?}: {ROWS} rows in {:?}", last - began);
        until("all rows to be counted", async || {
            metric(&mut node.api(), accepted).await == Some(f64::from(ROWS))
        })
        .await;
        let memory = metric(&mut node.api(), "process_resident_memory_bytes").await;
        let memory_mb = memory.expect("a size") / 1e6;
        println!("{store:?}: {memory_mb} MB");
        assert!(memory_mb < 300.0, "{store:?}: {memory_mb} MB");
    }
}
