//! The connection to the database is cut at any byte of a decision.

use std::time::Duration;

use posthaste_core::time::Timestamp;
use posthaste_testbed::{Direction, Receiver};

use super::fixture::{
    DecisionLock, Installation, create, every_second, expect_no_gap, expect_one_event_each, pause,
    real_ms, set_up, until_current,
};
use crate::fixture::until;

/// Positions at which a decision is cut on its way to the database, counted from shortly before its time.
const POSITIONS: std::ops::Range<usize> = 1..3_000;
/// Bytes between two of these positions.
const STEP: usize = 197;
/// Time before an occurrence at which the bytes begin to be counted.
const BEFORE_MS: u64 = 20;
/// Positions at which the answer is cut. The decision has been written then, and its commit follows or has followed.
const ANSWER_POSITIONS: [usize; 12] = [1, 2, 6, 11, 20, 40, 80, 120, 180, 260, 400, 700];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_cut_at_any_byte_of_a_decision_loses_and_repeats_no_occurrence() {
    let (installation, proxy) = Installation::via_proxy();
    let database = installation.database.as_ref().expect("a database");
    let node = installation.start();
    node.until_ready().await;
    let receiver = Receiver::healthy().await;
    let mut api = node.api();
    set_up(&mut api, &receiver).await;
    let names = ["nightly".to_owned()];
    let made = create(&mut api, &names[0], every_second()).await;
    let created_at = made["created_at"].as_str().expect("a time");
    let created_at: Timestamp = created_at.parse().expect("a time");
    for position in POSITIONS.step_by(STEP) {
        let before = receiver.count();
        receiver.arrivals(before + 1).await;
        // Occurrences are whole seconds after the creation.
        let since_last = (real_ms() + BEFORE_MS - created_at.0) % 1_000;
        tokio::time::sleep(Duration::from_millis(1_000 - since_last)).await;
        proxy.cut_after(Direction::ToDatabase, position);
        proxy.until_cut().await;
    }
    let lock = DecisionLock::install(database).await;
    for position in ANSWER_POSITIONS {
        let before = receiver.count();
        receiver.arrivals(before + 1).await;
        lock.acquire().await;
        until("a decision to wait", async || lock.is_waited_for()).await;
        proxy.cut_after(Direction::FromDatabase, position);
        lock.release().await;
        proxy.until_cut().await;
    }
    until_current(&mut api, &names).await;
    pause(&mut api, &names).await;
    let runs = expect_one_event_each(&mut api, &receiver, &names).await;
    assert!(runs[0].len() >= ANSWER_POSITIONS.len(), "{}", runs[0].len());
    expect_no_gap(&runs[0]);
    let is_of_scheduler = |line: &String| line.contains("schedules cannot run");
    assert!(
        node.log().iter().any(is_of_scheduler),
        "no decision was interrupted"
    );
}
