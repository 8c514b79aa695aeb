//! The pages for the delivery list and for one delivery: filters, pages, attempts, retry and cancel.
//!
//! Deliveries go to receivers of the testbed, and the pages of a [`TestServer`] are read and submitted.

use posthaste_testbed::{Answer, Receiver};
use serde_json::{Value, json};

use crate::fixture::TestServer;

pub(crate) const HERE: &str = "/dashboard/t/acme";
/// Text in a payload or a response that must never become markup.
const HOSTILE: &str = "<script>alert('x')</script>";

/// Creates an endpoint whose deliveries fail for good after `max_attempts` attempts, one hour apart.
pub(crate) async fn endpoint(
    server: &TestServer,
    receiver: &Receiver,
    max_attempts: u32,
) -> String {
    let policy = json!({
        "backoff": {"kind": "fixed", "interval": "1h"}, "jitter": {"kind": "none"},
        "max_attempts": max_attempts, "give_up_after": "1d",
    });
    let endpoint = json!({"url": receiver.url(), "retry_policy": policy});
    server.endpoint(endpoint).await
}

/// Sends an event that goes to one endpoint. Returns its delivery once it has this status.
pub(crate) async fn deliver(server: &TestServer, event: Value, status: &str) -> String {
    let id = server.deliver(event).await;
    server.until_status(&id, status).await;
    id
}

fn invoice() -> Value {
    json!({"type": "invoice.paid", "payload": {"n": 1}})
}

#[tokio::test]
async fn each_delivery_in_the_list_shows_its_next_step() {
    let server = TestServer::start().await;
    let receiver = Receiver::start(|_| Answer::text(503, "busy")).await;
    let endpoint = endpoint(&server, &receiver, 3).await;
    let id = deliver(&server, invoice(), "retrying").await;
    let list = server.page(&format!("{HERE}/deliveries")).await;
    assert_eq!(list.status, 200);
    let line = list.section("deliveries");
    for words in [
        "invoice.paid",
        "retrying",
        "1 of 3",
        "next attempt at 20",
        "503",
    ] {
        assert!(line.contains(words), "{words}: {line}");
    }
    assert_eq!(list.link("invoice.paid"), format!("{HERE}/deliveries/{id}"));
    let to = format!("{HERE}/endpoints/{endpoint}");
    assert_eq!(list.link(&receiver.url()), to);
    let paused = format!("/v1/tenants/acme/endpoints/{endpoint}/pause");
    server.post(&paused, &json!({})).await.ok(200);
    let list = server.page(&format!("{HERE}/deliveries?status=held")).await;
    list.says("held: the endpoint is paused");
    assert_eq!(list.field("status"), "held");
    let none = server
        .page(&format!("{HERE}/deliveries?status=failed"))
        .await;
    none.says("No matching deliveries.");
}

#[tokio::test]
async fn invalid_filters_are_reported_and_valid_ones_apply() {
    let server = TestServer::start().await;
    let receiver = Receiver::start(|_| Answer::status(500)).await;
    endpoint(&server, &receiver, 1).await;
    let id = deliver(&server, invoice(), "failed").await;
    let other = deliver(
        &server,
        json!({"type": "user.left", "payload": 1}),
        "failed",
    )
    .await;
    let query = "event_type=invoice.paid&since=yesterday&id=dlv_1&status=%3Cb%3E&until=";
    let list = server.page(&format!("{HERE}/deliveries?{query}")).await;
    assert_eq!(list.status, 200);
    assert!(list.wrong("since").contains("must be a time"));
    assert!(list.wrong("id").contains("must be an id"));
    assert!(list.wrong("status").contains("must be one of"));
    for (field, typed) in [
        ("since", "yesterday"),
        ("status", "<b>"),
        ("event_type", "invoice.paid"),
    ] {
        assert_eq!(list.field(field), typed);
    }
    let filters = list.section_html("filters");
    assert!(filters.contains("name=\"id\" value=\"dlv_1\""), "{filters}");
    list.says(&id).assert_no_text(&other);
    // The URL contains all filters, so that a user can share it.
    let beginning = &other[.."dlv_".len() + 8];
    let query = format!("status=failed&error_kind=http&since=2h&id={beginning}");
    let list = server.page(&format!("{HERE}/deliveries?{query}")).await;
    list.says(&other).says("failed: no attempts left");
    assert_eq!(list.field("since"), "2h");
    assert_eq!(list.field("error_kind"), "http");
}

#[tokio::test]
async fn a_long_list_has_pages_that_keep_the_filters() {
    let server = TestServer::start().await;
    let receiver = Receiver::healthy().await;
    let endpoint = endpoint(&server, &receiver, 1).await;
    let pause = format!("/v1/tenants/acme/endpoints/{endpoint}/pause");
    server.post(&pause, &json!({})).await.ok(200);
    let mut ids = Vec::new();
    for _ in 0..51 {
        ids.push(server.deliver(invoice()).await);
    }
    let first = server.page(&format!("{HERE}/deliveries?status=held")).await;
    first.says(&ids[50]).says(&ids[1]).assert_no_text(&ids[0]);
    let older = first.link("Older");
    assert!(older.contains("status=held&cursor="), "{older}");
    let second = server.page(&older).await;
    second.says(&ids[0]).assert_no_text(&ids[1]);
    assert_eq!(
        second.link("Newest"),
        format!("{HERE}/deliveries?status=held")
    );
    let lost = server
        .page(&format!("{HERE}/deliveries?cursor=rubbish"))
        .await;
    lost.says(&ids[50]);
}

#[tokio::test]
async fn selected_failed_deliveries_can_be_replayed() {
    let server = TestServer::start().await;
    let receiver = Receiver::start(|_| Answer::status(500)).await;
    endpoint(&server, &receiver, 1).await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(deliver(&server, invoice(), "failed").await);
    }
    let list = server
        .page(&format!("{HERE}/deliveries?status=failed"))
        .await;
    let replay = format!("{HERE}/deliveries/replay");
    assert!(list.forms().contains(&replay), "{:?}", list.forms());
    let all = server.page(&format!("{HERE}/deliveries")).await;
    assert!(!all.forms().contains(&replay));
    receiver.answer(200);
    let chosen = [("delivery", ids[0].as_str()), ("delivery", ids[2].as_str())];
    let sent = server.submit(&replay, &chosen).await;
    assert_eq!(
        sent.redirect(),
        format!("{HERE}/deliveries?status=failed&done=retried")
    );
    server.until_status(&ids[0], "succeeded").await;
    server.until_status(&ids[2], "succeeded").await;
    server.until_status(&ids[1], "failed").await;
    let none = server.submit(&replay, &[]).await;
    none.says("Select at least one delivery");
    let strange = [("delivery", ids[1].as_str()), ("delivery", "dlv_../x")];
    let some = server.submit(&replay, &strange).await;
    some.says("1 of 2 deliveries are being retried")
        .says("dlv_../x");
}

#[tokio::test]
async fn a_delivery_page_shows_all_attempts_and_the_payload() {
    let server = TestServer::start().await;
    let receiver = Receiver::start(|_| Answer::text(503, HOSTILE)).await;
    endpoint(&server, &receiver, 3).await;
    let event = json!({"type": "invoice.paid", "payload": {"note": HOSTILE, "n": 1.5}});
    let id = deliver(&server, event, "retrying").await;
    let page = server.page(&format!("{HERE}/deliveries/{id}")).await;
    assert_eq!(page.status, 200);
    let now = page.section("now");
    assert!(now.contains("Failed once"), "{now}");
    assert!(now.contains("then up to 1 more attempt until"), "{now}");
    let attempts = page.section("attempts");
    for words in [
        "Attempt 1",
        "503",
        "next attempt at 20",
        "Expected attempts",
        "Attempt 3",
    ] {
        assert!(attempts.contains(words), "{words}: {attempts}");
    }
    assert!(attempts.contains(HOSTILE), "as text: {attempts}");
    assert!(attempts.contains(&format!("webhook-id {id}")), "{attempts}");
    let picture = page.section_html("journey");
    assert!(
        picture.contains("role=\"img\"") && picture.contains("<desc>"),
        "{picture}"
    );
    assert!(!picture.contains("<style"), "{picture}");
    let payload = page.section("payload");
    assert!(payload.contains("1.5"), "{payload}");
    assert!(payload.contains(HOSTILE), "{payload}");
    let curl = page.section("curl");
    assert!(curl.contains(&format!("'{}'", receiver.url())), "{curl}");
    assert!(curl.contains(r"'\''x'\''"), "quotes are quoted: {curl}");
    assert!(!page.html.contains("<script>"), "{}", page.html);
}

#[tokio::test]
async fn a_delivery_can_be_retried_or_cancelled() {
    let server = TestServer::start().await;
    let receiver = Receiver::start(|_| Answer::status(503)).await;
    endpoint(&server, &receiver, 3).await;
    let one = deliver(&server, invoice(), "retrying").await;
    let other = deliver(&server, invoice(), "retrying").await;
    receiver.answer(200);
    let path = |id: &str| format!("{HERE}/deliveries/{id}");
    let page = server.page(&path(&one)).await;
    let forms = page.forms();
    assert!(
        forms.contains(&format!("{}/retry", path(&one))),
        "{forms:?}"
    );
    assert!(
        forms.contains(&format!("{}/cancel", path(&one))),
        "{forms:?}"
    );
    let sent = server.submit(&format!("{}/retry", path(&one)), &[]).await;
    assert_eq!(sent.redirect(), format!("{}?done=retried", path(&one)));
    server.until_status(&one, "succeeded").await;
    let page = server.page(&path(&one)).await;
    page.says("Delivered at")
        .says("on attempt 2")
        .says("manual");
    assert!(!page.forms().contains(&format!("{}/cancel", path(&one))));
    let sent = server
        .submit(&format!("{}/cancel", path(&other)), &[])
        .await;
    assert_eq!(sent.redirect(), format!("{}?done=cancelled", path(&other)));
    let page = server.page(&path(&other)).await;
    page.says("Cancelled at");
    let late = server.submit(&format!("{}/cancel", path(&one)), &[]).await;
    assert_eq!(late.status, 409);
    late.says("has already succeeded");
}

#[tokio::test]
async fn a_delivery_of_a_disabled_or_deleted_endpoint_explains_what_to_do_first() {
    let server = TestServer::start().await;
    let receiver = Receiver::start(|_| Answer::status(500)).await;
    let endpoint = endpoint(&server, &receiver, 1).await;
    let id = deliver(&server, invoice(), "failed").await;
    let page = format!("{HERE}/deliveries/{id}");
    let api = format!("/v1/tenants/acme/endpoints/{endpoint}");
    let disable = format!("{api}/disable");
    server.post(&disable, &json!({})).await.ok(200);
    let seen = server.page(&page).await;
    seen.says("The endpoint is disabled. Enable it before you retry.");
    assert_eq!(
        seen.link("Enable it"),
        format!("{HERE}/endpoints/{endpoint}")
    );
    assert_eq!(server.delete(&api).await.status, 204);
    let seen = server.page(&page).await;
    seen.says("The endpoint was deleted");
    assert!(!seen.html.contains("curl "), "there is nowhere to send it");
    let list = server.page(&format!("{HERE}/deliveries")).await;
    list.says(&format!("deleted {endpoint}"));
}

#[tokio::test]
async fn pages_of_another_tenant_are_not_found() {
    let server = TestServer::start().await;
    let key = server.tenant("other").await;
    let receiver = Receiver::healthy().await;
    endpoint(&server, &receiver, 1).await;
    let id = deliver(&server, invoice(), "succeeded").await;
    let shown = server
        .get(&format!("/v1/tenants/acme/deliveries/{id}"))
        .await
        .ok(200);
    let event = shown["event_id"].as_str().expect("an id");
    for path in [format!("/deliveries/{id}"), format!("/events/{event}")] {
        let own = server
            .page_as(&key, &format!("/dashboard/t/other{path}"))
            .await;
        assert_eq!(own.status, 404, "{path}");
        let strange = server.page_as(&key, &format!("{HERE}{path}")).await;
        assert_eq!(strange.status, 404, "{path}");
        assert_eq!(server.page(&format!("{HERE}{path}")).await.status, 200);
    }
    let list = server
        .page_as(&key, &format!("/dashboard/t/other/deliveries?id={id}"))
        .await;
    list.says("No matching deliveries.");
    let retry = format!("/dashboard/t/other/deliveries/{id}/retry");
    assert_eq!(server.submit_as(&key, &retry, &[]).await.status, 404);
}

#[tokio::test]
async fn an_event_page_lists_its_deliveries() {
    let server = TestServer::start().await;
    let (good, bad) = (
        Receiver::healthy().await,
        Receiver::start(|_| Answer::status(500)).await,
    );
    endpoint(&server, &good, 1).await;
    endpoint(&server, &bad, 1).await;
    let event = json!({"type": "invoice.paid", "payload": {"n": 12}});
    let ids = server.deliveries(event).await;
    server.until_status(&ids[0], "succeeded").await;
    let shown = server.until_status(&ids[1], "failed").await;
    let event = shown["event_id"].as_str().expect("an id");
    let page = server.page(&format!("{HERE}/events/{event}")).await;
    page.says(event)
        .says("delivered at")
        .says("failed: no attempts left");
    let (good, bad) = (good.url(), bad.url());
    page.says(&good).says(&bad);
    assert!(
        page.section("payload").contains("\"n\": 12"),
        "{}",
        page.section("payload")
    );
    let tenant = json!({"id": "quiet"});
    server.post("/v1/tenants", &tenant).await.ok(201);
    let sent = server
        .post("/v1/tenants/quiet/events", &invoice())
        .await
        .ok(202);
    let event = sent["id"].as_str().expect("an id");
    let page = server
        .page(&format!("/dashboard/t/quiet/events/{event}"))
        .await;
    page.says("No deliveries. No endpoint was subscribed");
}
