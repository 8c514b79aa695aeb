//! The machine's clock jumps while schedules run.

use std::time::Duration;

use posthaste_testbed::{FakeClock, Receiver};
use serde_json::json;

use super::fixture::{Installation, Store, create, expect_one_event_each, pause, set_up};

/// Maximum time without an occurrence of a schedule that runs every second, on a busy machine.
const MAX_PAUSE: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_jumps_neither_repeats_nor_stops_occurrences() {
    let installation = Installation::new(Store::Sqlite);
    let clock = FakeClock::new(0);
    let node = installation.start_on(&clock);
    node.until_ready().await;
    let receiver = Receiver::healthy().await;
    let mut api = node.api();
    set_up(&mut api, &receiver).await;
    let names = ["a", "b"].map(str::to_owned);
    create(&mut api, "a", json!({"every": "1s"})).await;
    create(
        &mut api,
        "b",
        json!({"cron": "* * * * * *", "missed": "skip"}),
    )
    .await;
    for offset_secs in [-600, 600, 0] {
        let before = receiver.count();
        receiver.arrivals(before + 4).await;
        clock.set(offset_secs);
        let before = receiver.count();
        let after = tokio::time::timeout(MAX_PAUSE, receiver.arrivals(before + 6)).await;
        assert!(after.is_ok(), "no occurrences after {offset_secs} s");
    }
    pause(&mut api, &names).await;
    expect_one_event_each(&mut api, &receiver, &names).await;
}
