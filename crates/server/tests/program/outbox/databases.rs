//! The application's database or that of the store stops and starts again.

use posthaste_testbed::{Database, PrivatePostgres, StopMode};
use serde_json::Value;

use super::fixture::{Outbox, Store, TENANT, expect_one_event_each, fast_endpoint, metric};
use crate::fixture::{Receiver, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_survive_restarts_of_either_database() {
    let application = PrivatePostgres::start(&[]);
    let stored = PrivatePostgres::start(&[]);
    let database = Database::on(&stored);
    let outbox = Outbox::in_database(Database::on(&application), Store::Sqlite, "tenant = 'acme'")
        .with_store(&database.url());
    let (node, mut api) = outbox.start_with_tenant().await;
    let receiver = Receiver::healthy().await;
    api.endpoint(TENANT, fast_endpoint(&receiver)).await;
    let mut last = 0;
    for how in [StopMode::Fast, StopMode::Immediate] {
        outbox.insert(last + 1..=last + 100);
        application.restart(how);
        outbox.insert(last + 101..=last + 200);
        outbox.until_empty().await;
        last += 200;

        outbox.insert(last + 1..=last + 100);
        stored.stop(how);
        outbox.insert(last + 101..=last + 200);
        stored.start_again();
        last += 200;
        outbox.until_empty().await;
    }
    node.until_ready().await;
    expect_one_event_each(&mut api, &receiver, u64::from(last)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outbox_that_cannot_be_read_raises_an_alert_and_is_logged_once() {
    let application = PrivatePostgres::start(&[]);
    let outbox = Outbox::in_database(Database::on(&application), Store::Sqlite, "tenant = 'acme'")
        .configure("[alerts]\nevery = '1s'\ncalm = '1s'\noutbox_unreachable = '2s'\n");
    let (node, mut api) = outbox.start_with_tenant().await;
    let lag = "posthaste_outbox_lag_seconds{outbox=\"orders\"}";
    until("the outbox to be read", async || {
        metric(&mut node.api(), lag).await == Some(0.0)
    })
    .await;
    application.stop(StopMode::Fast);
    let is_open = |alerts: &Value| {
        let alerts = alerts["data"].as_array().expect("a list");
        alerts
            .iter()
            .any(|alert| alert["name"] == "outbox_unreachable")
    };
    api.until("/v1/alerts?state=open", is_open).await;
    let seconds = metric(&mut api, lag).await.expect("a lag");
    assert!(seconds >= 2.0, "{seconds}");
    let told = || {
        let log = node.log();
        let lines = log
            .iter()
            .filter(|line| line.contains("cannot read the outbox"));
        lines.count()
    };
    assert_eq!(told(), 1, "{:#?}", node.log());
    application.start_again();
    outbox.insert(1..=1);
    outbox.until_empty().await;
    api.until("/v1/alerts?state=open", |alerts| !is_open(alerts))
        .await;
    assert_eq!(told(), 1);
    assert!(
        node.log()
            .iter()
            .any(|line| line.contains("reading the outbox again"))
    );
}
