//! The dead letter pages: groups, advice, replay, and portal links to one group.
//!
//! Deliveries fail at a receiver of the testbed, and the pages of a [`TestServer`] are read and submitted.

use posthaste_testbed::{Answer, Receiver};
use serde_json::json;

use super::deliveries::{HERE, deliver, endpoint};
use crate::fixture::TestServer;

#[tokio::test]
async fn a_dead_letter_group_shows_endpoint_reason_count_and_advice() {
    let server = TestServer::start().await;
    let receiver = Receiver::start(|_| Answer::text(401, "who are you?")).await;
    let id = endpoint(&server, &receiver, 1).await;
    let page = format!("{HERE}/dead-letters");
    server.page(&page).await.says("No dead letters.");
    let event = json!({"type": "invoice.paid", "payload": {"n": 1}});
    let first = deliver(&server, event.clone(), "failed").await;
    let second = deliver(&server, event, "failed").await;
    let seen = server.page(&page).await;
    let groups = seen.section("groups");
    for words in [
        receiver.url().as_str(),
        "HTTP error",
        "Count 2",
        "401",
        "it rejects the credentials",
        "Replay all 2",
    ] {
        assert!(groups.contains(words), "{words}: {groups}");
    }
    let newest = format!("{HERE}/deliveries/{second}");
    assert_eq!(seen.link("the latest delivery, invoice.paid"), newest);
    // "Select deliveries" leads to exactly this group.
    let some = seen.link("Select deliveries");
    let query = format!("status=failed&endpoint={id}&error_kind=http");
    assert_eq!(some, format!("{HERE}/deliveries?{query}"));
    let some = server.page(&some).await;
    some.says(&first).says(&second);
    assert!(some.forms().contains(&format!("{HERE}/deliveries/replay")));
    // The receiver is fixed.
    receiver.answer(200);
    let asked = server.page(&seen.link("Replay all 2…")).await;
    asked.says("2 deliveries match");
    let named = [
        ("status", "failed"),
        ("endpoint", id.as_str()),
        ("error_kind", "http"),
    ];
    for (name, value) in named {
        assert_eq!(asked.field(name), value);
    }
    let sent = server
        .submit(&format!("{HERE}/replays/begin"), &named)
        .await;
    let sent = sent.redirect();
    assert!(sent.starts_with(&format!("{HERE}/replays/rpl_")), "{sent}");
    server.until_status(&first, "succeeded").await;
    server.until_status(&second, "succeeded").await;
    server.page(&page).await.says("No dead letters.");
}

#[tokio::test]
async fn replay_is_not_offered_for_disabled_or_deleted_endpoints() {
    let server = TestServer::start().await;
    let receiver = Receiver::start(|_| Answer::status(503)).await;
    let id = endpoint(&server, &receiver, 1).await;
    let event = json!({"type": "a.b", "payload": 1});
    deliver(&server, event, "failed").await;
    let page = format!("{HERE}/dead-letters");
    let seen = server.page(&page).await;
    seen.says("Replay all 1…");
    seen.says("it had an internal error");
    let api = format!("/v1/tenants/acme/endpoints/{id}");
    server
        .post(&format!("{api}/disable"), &json!({}))
        .await
        .ok(200);
    let seen = server.page(&page).await;
    seen.says("the endpoint is disabled");
    assert_eq!(seen.link("Open endpoint"), format!("{HERE}/endpoints/{id}"));
    seen.assert_no_text("Replay all");
    assert_eq!(server.delete(&api).await.status, 204);
    let seen = server.page(&page).await;
    seen.says("Cannot be fixed: the endpoint was deleted");
    seen.assert_no_text("Replay all");
}

#[tokio::test]
async fn a_portal_link_shows_only_that_dead_letter_group() {
    let server = TestServer::start().await;
    let receiver = Receiver::start(|_| Answer::status(503)).await;
    let id = endpoint(&server, &receiver, 1).await;
    let failed = deliver(&server, json!({"type": "a.b", "payload": 1}), "failed").await;
    let named = [
        ("endpoint", id.as_str()),
        ("error_kind", "http"),
        ("expires_in", "1h"),
    ];
    let made = server
        .submit(&format!("{HERE}/dead-letters/link"), &named)
        .await;
    assert_eq!(made.status, 200);
    made.says("Send this link to the customer.");
    let text = made.section("link");
    let query = format!("/deliveries?status=failed&endpoint={id}&error_kind=http");
    let start = text.find("/portal/").expect("a link");
    let end = start + text[start..].find(' ').expect("an end");
    let link = &text[start..end];
    assert!(link.ends_with(&query), "{link}");
    // The link works without a key, and its holder cannot create more links.
    let portal = server.page_as("", link).await;
    assert_eq!(portal.status, 200);
    portal.says(&failed);
    let base = link.strip_suffix(&query).expect("a base");
    let dead = server.page_as("", &format!("{base}/dead-letters")).await;
    dead.says("Replay all 1").assert_no_text("Create link");
    let refused = server
        .submit_as("", &format!("{base}/dead-letters/link"), &named)
        .await;
    assert_eq!(refused.status, 403, "{}", refused.text());
    // A customer sees only the own tenant there.
    server.tenant("other").await;
    let lost = server
        .page_as("", &format!("{base}/t/other/deliveries"))
        .await;
    assert_eq!(lost.status, 404);
}
