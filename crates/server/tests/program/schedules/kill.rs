//! The server is killed at every step of a run.

use std::time::Duration;

use posthaste_testbed::{FakeClock, Receiver};
use serde_json::json;

use super::fixture::{
    DecisionLock, Installation, STORES, Store, TENANT, create, every_second, expect_no_gap,
    expect_one_event_each, pause, runs, set_up, until_current,
};
use crate::fixture::until;

const SCHEDULES: usize = 20;
const KILLS: u32 = 6;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_under_load_lose_and_repeat_no_occurrence() {
    for store in STORES {
        let installation = Installation::new(store);
        let mut node = installation.start();
        node.until_ready().await;
        let receiver = Receiver::healthy().await;
        set_up(&mut node.api(), &receiver).await;
        let names: Vec<String> = (0..SCHEDULES).map(|number| format!("s{number}")).collect();
        for name in &names {
            create(&mut node.api(), name, every_second()).await;
        }
        for kill in 0..KILLS {
            // At different times after the first event of a round has arrived.
            let before = receiver.count();
            receiver.arrivals(before + 1 + kill as usize * 3).await;
            tokio::time::sleep(Duration::from_millis(u64::from(kill) * 7)).await;
            node.kill();
            node = installation.start();
            node.until_ready().await;
        }
        let mut api = node.api();
        until_current(&mut api, &names).await;
        pause(&mut api, &names).await;
        for runs in expect_one_event_each(&mut api, &receiver, &names).await {
            assert!(runs.len() >= 3, "{store:?}: {runs:?}");
            expect_no_gap(&runs);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_in_the_middle_of_a_decision_makes_it_again() {
    let installation = Installation::new(Store::Postgres);
    let database = installation.database.as_ref().expect("a database");
    let mut node = installation.start();
    node.until_ready().await;
    let receiver = Receiver::healthy().await;
    let mut api = node.api();
    set_up(&mut api, &receiver).await;
    let lock = DecisionLock::install(database).await;
    lock.acquire().await;
    let name = "nightly".to_owned();
    create(&mut api, &name, every_second()).await;
    until("the decision to wait", async || lock.is_waited_for()).await;
    node.kill();
    let ended = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
         WHERE application_name = 'posthaste' AND datname = current_database()";
    database.number(ended);
    until("its transaction to end", async || !lock.is_waited_for()).await;
    assert_eq!(database.number("SELECT count(*) FROM events"), 0);
    lock.release().await;

    let node = installation.start();
    node.until_ready().await;
    let mut api = node.api();
    receiver.arrivals(1).await;
    until_current(&mut api, std::slice::from_ref(&name)).await;
    pause(&mut api, std::slice::from_ref(&name)).await;
    let runs = expect_one_event_each(&mut api, &receiver, std::slice::from_ref(&name)).await;
    expect_no_gap(&runs[0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn occurrences_during_a_downtime_follow_their_rule() {
    let installation = Installation::new(Store::Sqlite);
    let clock = FakeClock::new(0);
    let mut node = installation.start_on(&clock);
    node.until_ready().await;
    let receiver = Receiver::healthy().await;
    let mut api = node.api();
    set_up(&mut api, &receiver).await;
    let names = ["run_once", "skip", "run_all"].map(str::to_owned);
    for name in &names {
        let fields = json!({"every": "1m", "missed": name});
        create(&mut api, name, fields).await;
    }
    node.kill();
    clock.set(3_600);
    let node = installation.start_on(&clock);
    node.until_ready().await;
    let mut api = node.api();
    for name in &names {
        until("the missed runs", async || {
            runs(&mut node.api(), name).await.len() >= 60
        })
        .await;
    }
    pause(&mut api, &names).await;
    let all = expect_one_event_each(&mut api, &receiver, &names).await;
    let created = |runs: &[super::fixture::Run]| {
        let created = runs.iter().filter(|run| run.status == "created");
        created.count()
    };
    // The last occurrence may be so recent that it is not missed.
    let [once, none, every] = [0, 1, 2].map(|place| created(&all[place]));
    assert_eq!(once, 1, "{TENANT}");
    assert!(none <= 1, "{none}");
    assert_eq!(every, all[2].len());
}
