//! The replay pages: start, watch and stop a replay.

use posthaste_testbed::{Answer, Receiver};
use serde_json::json;

use super::deliveries::{HERE, deliver, endpoint};
use crate::fixture::TestServer;

#[tokio::test]
async fn a_replay_is_started_by_a_form_and_its_progress_is_shown() {
    let server = TestServer::start().await;
    let receiver = Receiver::start(|_| Answer::status(500)).await;
    let id = endpoint(&server, &receiver, 1).await;
    let failed = deliver(&server, json!({"type": "a.b", "payload": 1}), "failed").await;
    let begin = format!("{HERE}/replays/begin");
    let wrong = [
        ("status", "failed"),
        ("endpoint", "ep_nowhere"),
        ("event_type", "a.b"),
        ("since", "soon"),
    ];
    let seen = server.submit(&begin, &wrong).await;
    assert_eq!(seen.status, 422);
    assert!(seen.wrong("since").contains("must be a time"));
    assert_eq!(seen.field("endpoint"), "ep_nowhere");
    assert_eq!(seen.field("event_type"), "a.b");
    let wrong = [("status", "failed"), ("endpoint", "ep_nowhere")];
    let seen = server.submit(&begin, &wrong).await;
    assert_eq!(seen.status, 422);
    assert!(!seen.wrong("endpoint").is_empty());
    let missed = [("status", "failed"), ("missed_since", "1h")];
    let seen = server.submit(&begin, &missed).await;
    assert!(seen.wrong("endpoint").contains("is required"));
    let none = server.page(&format!("{HERE}/replays")).await;
    none.says("No replays yet.");
    receiver.answer(200);
    let asked = [
        ("status", "failed"),
        ("endpoint", id.as_str()),
        ("error_kind", "http"),
        ("since", "1h"),
    ];
    let sent = server.submit(&begin, &asked).await.redirect();
    let (page, done) = sent.split_once('?').expect("a query");
    assert_eq!(done, "done=replaying");
    server.until_status(&failed, "succeeded").await;
    let replay = page.rsplit('/').next().expect("an id");
    let shown = format!("/v1/tenants/acme/replays/{replay}");
    server
        .until(&shown, |shown| shown["status"] == "done")
        .await;
    let seen = server.page(page).await;
    let url = receiver.url();
    seen.says("1 of 1 processed").says("done");
    seen.says(&format!(
        "All failed deliveries to {url} (HTTP error), since 20"
    ));
    assert!(!seen.forms().iter().any(|form| form.ends_with("/cancel")));
    let list = server.page(&format!("{HERE}/replays")).await;
    let links = list.links();
    assert!(
        links
            .iter()
            .any(|(link, words)| link == page && words.contains(&url)),
        "{links:?}"
    );
    let lost = server
        .page(&format!("{HERE}/replays/rpl_00000000000000000000000000"))
        .await;
    assert_eq!(lost.status, 404);
}
