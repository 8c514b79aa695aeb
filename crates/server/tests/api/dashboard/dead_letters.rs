//! The dead letter pages of the dashboard.

use serde_json::json;

use super::deliveries::{HERE, deliver, endpoint};
use super::kit::{Receiver, World};

#[tokio::test]
async fn a_group_says_where_why_how_often_and_what_to_do() {
    let world = World::new().await;
    let receiver = Receiver::answering(401, "who are you?").await;
    let id = endpoint(&world, &receiver, 1).await;
    let page = format!("{HERE}/dead-letters");
    world.page(&page).await.says("Nothing was given up.");
    let event = json!({"type": "invoice.paid", "payload": {"n": 1}});
    let first = deliver(&world, event.clone(), "failed").await;
    let second = deliver(&world, event, "failed").await;
    let seen = world.page(&page).await;
    let groups = seen.section("groups");
    for words in [
        receiver.url().as_str(),
        "refused by the receiver",
        "How often 2",
        "401",
        "it refuses our credentials",
        "Replay all 2",
    ] {
        assert!(groups.contains(words), "{words}: {groups}");
    }
    let newest = format!("{HERE}/deliveries/{second}");
    assert_eq!(seen.link("the newest, invoice.paid"), newest);
    // "Choose some" leads to exactly this group.
    let some = seen.link("Choose some");
    let query = format!("status=failed&endpoint={id}&error_kind=http");
    assert_eq!(some, format!("{HERE}/deliveries?{query}"));
    let some = world.page(&some).await;
    some.says(&first).says(&second);
    assert!(some.forms().contains(&format!("{HERE}/deliveries/replay")));
    // The receiver is fixed.
    receiver.answer(200);
    let named = [("endpoint", id.as_str()), ("error_kind", "http")];
    let sent = world.submit(&format!("{page}/replay"), &named).await;
    let sent = sent.redirect();
    assert!(sent.starts_with(&format!("{HERE}/replays/rpl_")), "{sent}");
    world.until(&first, "succeeded").await;
    world.until(&second, "succeeded").await;
    world.page(&page).await.says("Nothing was given up.");
}

#[tokio::test]
async fn what_cannot_be_sent_any_more_is_not_offered() {
    let world = World::new().await;
    let receiver = Receiver::answering(503, "").await;
    let id = endpoint(&world, &receiver, 1).await;
    let event = json!({"type": "a.b", "payload": 1});
    deliver(&world, event, "failed").await;
    let page = format!("{HERE}/dead-letters");
    let replay = format!("{page}/replay");
    let seen = world.page(&page).await;
    assert!(seen.forms().contains(&replay), "{:?}", seen.forms());
    seen.says("it had a fault of its own");
    let api = format!("/v1/tenants/acme/endpoints/{id}");
    world
        .post(&format!("{api}/disable"), &json!({}))
        .await
        .ok(200);
    let seen = world.page(&page).await;
    seen.says("the endpoint is disabled");
    assert_eq!(
        seen.link("To the endpoint"),
        format!("{HERE}/endpoints/{id}")
    );
    assert!(!seen.forms().contains(&replay), "{:?}", seen.forms());
    assert_eq!(world.call("DELETE", &api, None).await.status, 204);
    let seen = world.page(&page).await;
    seen.says("No: the endpoint was deleted");
    assert!(!seen.forms().contains(&replay), "{:?}", seen.forms());
}

#[tokio::test]
async fn a_link_shows_the_customer_just_that_group() {
    let world = World::new().await;
    let receiver = Receiver::answering(503, "").await;
    let id = endpoint(&world, &receiver, 1).await;
    let failed = deliver(&world, json!({"type": "a.b", "payload": 1}), "failed").await;
    let named = [
        ("endpoint", id.as_str()),
        ("error_kind", "http"),
        ("expires_in", "1h"),
    ];
    let made = world
        .submit(&format!("{HERE}/dead-letters/link"), &named)
        .await;
    assert_eq!(made.status, 200);
    made.says("Send this to the customer.");
    let text = made.section("link");
    let query = format!("/deliveries?status=failed&endpoint={id}&error_kind=http");
    let start = text.find("/portal/").expect("a link");
    let end = start + text[start..].find(' ').expect("an end");
    let link = &text[start..end];
    assert!(link.ends_with(&query), "{link}");
    // The link works without a key, and its holder cannot create more links.
    let portal = world.page_as("", link).await;
    assert_eq!(portal.status, 200);
    portal.says(&failed);
    let base = link.strip_suffix(&query).expect("a base");
    let dead = world.page_as("", &format!("{base}/dead-letters")).await;
    dead.says("Replay all 1").assert_no_text("Make a link");
    let refused = world
        .submit_as("", &format!("{base}/dead-letters/link"), &named)
        .await;
    assert_eq!(refused.status, 403, "{}", refused.text());
    // A customer sees only the own tenant there.
    world.tenant("other").await;
    let lost = world
        .page_as("", &format!("{base}/t/other/deliveries"))
        .await;
    assert_eq!(lost.status, 404);
}
