//! The list of events, and the form that sends one.

use posthaste_testbed::Receiver;
use serde_json::json;

use super::deliveries::HERE;
use crate::fixture::TestServer;

#[tokio::test]
async fn an_event_is_sent_byte_for_byte_from_the_form() {
    let server = TestServer::start().await;
    let (one, other) = (Receiver::healthy().await, Receiver::healthy().await);
    let id = server
        .endpoint(json!({"url": one.url(), "event_types": ["invoice.*"]}))
        .await;
    server
        .endpoint(json!({"url": other.url(), "event_types": ["order.*"]}))
        .await;
    let send = format!("{HERE}/events/new");
    let form = server.page(&send).await;
    assert_eq!(form.field("endpoint"), "");
    let wrong = [
        ("type", "invoice..paid"),
        ("payload", "[1, 2"),
        ("delay", "soon"),
    ];
    let refused = server.submit(&send, &wrong).await;
    assert_eq!(refused.status, 422);
    assert!(refused.wrong("payload").contains("is not valid JSON"));
    let wrong = [
        ("type", "invoice..paid"),
        ("payload", "1"),
        ("delay", "soon"),
    ];
    let refused = server.submit(&send, &wrong).await;
    for (name, typed) in wrong {
        assert_eq!(refused.field(name).trim(), typed);
    }
    assert!(!refused.wrong("type").is_empty() && !refused.wrong("delay").is_empty());
    let payload = "{\"b\": 1.50, \"a\": 12345678901234567890123}";
    let fields = [("type", "invoice.paid"), ("payload", payload)];
    let sent = server.submit(&send, &fields).await.redirect();
    assert!(
        sent.starts_with(&format!("{HERE}/deliveries/dlv_")),
        "{sent}"
    );
    assert!(sent.ends_with("?done=event-sent"), "{sent}");
    assert_eq!(one.arrivals(1).await[0].body, payload.as_bytes());
    // An event for one endpoint reaches it whatever it subscribes to.
    let fields = [
        ("type", "order.placed"),
        ("payload", "2"),
        ("endpoint", id.as_str()),
    ];
    let sent = server.submit(&send, &fields).await.redirect();
    assert!(sent.ends_with("?done=tested"), "{sent}");
    assert_eq!(one.arrivals(2).await[1].body, b"2".as_slice());
    assert_eq!(other.count(), 0);
    let gone = [
        ("type", "order.placed"),
        ("payload", "2"),
        ("endpoint", "ep_00000000000000000000000000"),
    ];
    let refused = server.submit(&send, &gone).await;
    assert_eq!(refused.status, 422);
    assert!(refused.wrong("endpoint").contains("no longer exists"));
    let key = server.tenant("other").await;
    assert_eq!(server.submit_as(&key, &send, &fields).await.status, 404);
}

#[tokio::test]
async fn events_are_listed_and_filtered() {
    let server = TestServer::start().await;
    let list = format!("{HERE}/events");
    server.page(&list).await.says("No events yet.");
    let mut ids = Vec::new();
    for (kind, payload) in [("invoice.paid", 1), ("order.placed", 2)] {
        let event = json!({"type": kind, "payload": payload});
        ids.push(server.event(&event).await.ok(202)["id"].clone());
    }
    let ids: Vec<&str> = ids.iter().map(|id| id.as_str().expect("an id")).collect();
    let all = server.page(&list).await;
    all.says(ids[0]).says(ids[1]);
    assert_eq!(all.link("Send event"), format!("{list}/new"));
    assert_eq!(all.link("invoice.paid"), format!("{list}/{}", ids[0]));
    let some = server
        .page(&format!("{list}?type=order.placed&since=1h"))
        .await;
    some.says(ids[1]).assert_no_text(ids[0]);
    assert_eq!(some.field("type"), "order.placed");
    server
        .page(&format!("{list}?until=2001-01-01"))
        .await
        .says("No matching events.");
    let wrong = server.page(&format!("{list}?since=soon&type=a..b")).await;
    assert_eq!(wrong.status, 422);
    assert!(!wrong.wrong("since").is_empty());
    // A copy begins with the payload of the event.
    let event = server.page(&format!("{list}/{}", ids[1])).await;
    let copy = server.page(&event.link("Send again as a new event…")).await;
    assert_eq!(copy.field("type"), "order.placed");
    assert_eq!(copy.field("payload").trim(), "2");
}
