//! Occurrences while the event of an earlier run is not finished.

use std::time::Duration;

use posthaste_testbed::{Answer, PATIENCE, Receiver};
use serde_json::json;

use super::fixture::{Installation, STORES, create, runs, set_up};

/// Number of occurrences during the first event.
const OCCURRENCES: usize = 4;
/// Pause between reads of the runs.
const LOOK: Duration = Duration::from_millis(50);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn occurrences_are_skipped_until_the_first_event_is_finished() {
    for store in STORES {
        let installation = Installation::new(store);
        let node = installation.start();
        node.until_ready().await;
        let receiver = Receiver::start(|_| Answer::status(503)).await;
        let mut api = node.api();
        set_up(&mut api, &receiver).await;
        let fields = json!({"every": "1s", "missed": "run_all", "overlap": "skip"});
        create(&mut api, "nightly", fields).await;
        let waited = tokio::time::timeout(PATIENCE, async {
            loop {
                let runs = runs(&mut api, "nightly").await;
                if runs.len() >= OCCURRENCES {
                    return runs;
                }
                tokio::time::sleep(LOOK).await;
            }
        });
        let runs = waited.await.expect("the runs come");
        let outcomes: Vec<&str> = runs.iter().map(|run| run.status.as_str()).collect();
        assert_eq!(outcomes[0], "created", "{store:?}");
        let skipped = outcomes[1..].iter().all(|outcome| *outcome == "skipped");
        assert!(skipped, "{store:?}: {outcomes:?}");
    }
}
