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
    // The question says how many match, and nothing is sent before it is answered.
    let confirm = format!("{HERE}/replays/confirm");
    let query = format!("status=failed&endpoint={id}&error_kind=http&since=1h");
    let question = server.page(&format!("{confirm}?{query}")).await;
    question.says("1 delivery match").says("Replay 1 delivery");
    assert_eq!(question.field("sure"), "yes");
    let counted_since = question.field("since");
    assert!(counted_since.ends_with('Z'), "{counted_since}");
    let back = question.link("Cancel");
    assert_eq!(back, format!("{HERE}/replays?{query}#new-replay"));
    assert_eq!(server.page(&back).await.field("error_kind"), "http");
    let succeeded = server.page(&format!("{confirm}?status=succeeded")).await;
    succeeded.says("No deliveries match this filter.");
    let preview = "/v1/tenants/acme/replays/preview";
    let wanted = json!({"status": "failed"});
    let counted = server.post(preview, &wanted).await.ok(200);
    assert_eq!(counted, json!({"total": 1}));
    let unknown = json!({"endpoint": "ep_00000000000000000000000000"});
    assert_eq!(server.post(preview, &unknown).await.status, 404);
    server
        .page(&format!("{HERE}/replays"))
        .await
        .says("No replays yet.");
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
    seen.says("1 of 1 started").says("done");
    seen.says("1 delivered, 0 failed, 0 waiting");
    let again = seen.link("Use this filter again");
    assert!(again.contains("status=failed&endpoint="), "{again}");
    assert!(again.contains("error_kind=http&since=20"), "{again}");
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
