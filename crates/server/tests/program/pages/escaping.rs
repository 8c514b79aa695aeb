//! Text from outside stays text, on every page and on every way to it.

use posthaste_testbed::Answer;
use posthaste_testbed::browser::{Locator, Page};
use serde_json::json;

use super::every_page::shapes;
use super::fixture::{PagesFixture, id_of};
use super::page_checks::assert_no_errors;

/// Text of an attacker who wants to run a script in another user's browser. Each of its parts would leave a trace.
const EVIL: &str = "evil</script><script>window.pwned=1</script><img src=x onerror=\"window.pwned=2;alert(2)\">\
    <svg onload='alert(3)'></svg>\"'`><a href=\"javascript:alert(4)\">x</a>{{7*7}}&lt;b&gt;<b>";
/// Characters that reverse text, end lines or control terminals.
const CONTROLS: &str = "\u{202e}\u{2028}\u{1b}[31m\u{7}\u{0}";
/// The part of the text that users can read.
const SEEN: &str = "evil</script><script>window.pwned=1</script>";

/// Checks that no part of it has become markup.
async fn assert_harmless(page: &Page, named: &str) {
    let traces = "[window.pwned, ...[...document.querySelectorAll('img[src=x], svg[onload], [onerror], [onload], \
        [onclick], script:not([src]), style, [style], a[href^=\"javascript\"], main b')].map(one => one.outerHTML)] \
        .filter(trace => trace !== undefined && trace !== null)";
    let traces = page.ask(traces).await;
    assert_eq!(traces, json!([]), "{named}");
    assert_no_errors(page, named);
}

#[tokio::test(flavor = "multi_thread")]
async fn outside_input_is_shown_as_text_only() {
    let mut fixture = PagesFixture::start().await;
    let both = format!("{EVIL}{CONTROLS}");
    let body = json!({"id": "acme", "name": EVIL});
    fixture.api.post("/v1/tenants", body).await.expect(201);
    let key = json!({"name": EVIL});
    let key = fixture
        .api
        .post("/v1/tenants/acme/keys", key)
        .await
        .expect(201);
    let mut answer = Answer::status(503);
    answer.body = both.clone().into();
    answer.headers.push(("x-evil", EVIL.to_owned()));
    answer
        .headers
        .push(("content-type", "text/html".to_owned()));
    fixture.receiver.answer_at("x", answer);
    // Different from the text in the response: values of an endpoint's headers are removed from responses.
    let fields = json!({"description": EVIL, "headers": {"X-Own": "<b>\"'</b><script>"}});
    fixture
        .endpoint("acme", "x?q=<script>\"'</script>", fields)
        .await;

    // Live updates reach the page in another way.
    let page = fixture.signed_in().await;
    page.open(&fixture.url("/dashboard/t/acme/deliveries"))
        .await;
    page.until("document.body.dataset.live === 'on'").await;
    let event = json!({"type": "invoice.paid", "payload": {EVIL: both}, "idempotency_key": EVIL});
    let event = fixture.api.event("acme", event).await;
    let delivery = id_of(&event["deliveries"][0]);
    fixture.api.until_status("acme", &delivery, "failed").await;
    page.wait_for(Locator::with_text("main", "failed")).await;
    assert_harmless(&page, "the deliveries, live").await;

    // A key with such a name signs in, so that the name is in the audit log.
    let visitor = fixture.browser.page().await;
    visitor.open(&fixture.url("/dashboard")).await;
    let key = key["key"].as_str().expect("a key");
    visitor.fill(Locator::labelled("Key"), key).await;
    visitor
        .follow(Locator::with_text("button", "Sign in"))
        .await;

    for (shape, path) in shapes(&fixture).await {
        page.open(&fixture.url(&path)).await;
        assert_harmless(&page, &shape).await;
        let raw = fixture
            .client()
            .with_header("cookie", &cookie(&page).await)
            .get(&path)
            .await;
        for part in ["<script>window", "<img src=x", "<svg onload", "<b>"] {
            assert!(!raw.text.contains(part), "{shape} has {part:?} in it");
        }
    }
    page.open(&fixture.url(&format!("/dashboard/t/acme/deliveries/{delivery}")))
        .await;
    // All of it is shown, as text.
    let words = json!(SEEN);
    for place in [
        "#payload-pretty pre",
        "#payload-raw pre",
        "#attempt-1 pre",
        "#attempt-2 dd",
        "#curl pre",
        "#facts dd",
    ] {
        let shows = format!(
            "[...document.querySelectorAll({})].some(one => one.textContent.includes({words}))",
            json!(place)
        );
        assert_eq!(page.ask(&shows).await, true, "{place} does not show it");
    }

    // Parts of a URL may come from an attacker, too.
    let evil = "%22%27%3E%3C%2Fscript%3E%3Cscript%3Ewindow.pwned%3D1%3C%2Fscript%3E%3Cb%3E";
    for path in [
        format!(
            "/dashboard/t/acme/deliveries?status={evil}&endpoint={evil}&event_type={evil}&since={evil}"
        ),
        format!("/dashboard/t/acme/dead-letters?endpoint={evil}&cursor={evil}"),
        format!("/dashboard/t/acme/lab?preset={evil}&pending={evil}"),
        format!("/dashboard/t/acme/endpoints?done={evil}"),
        format!("/dashboard/t/acme/endpoints/{evil}"),
        format!("/dashboard/find?id={evil}"),
        format!("/dashboard/audit?tenant={evil}"),
        format!("/dashboard/sign-in?next={evil}&done={evil}"),
        format!("/dashboard/{evil}"),
        format!("/portal/{evil}"),
    ] {
        page.open(&fixture.url(&path)).await;
        // The page may answer that it is not found or invalid.
        let complaints = page.complaints();
        let said = |one: &String| one.contains("status of 4");
        assert!(complaints.iter().all(said), "{path}: {complaints:?}");
        assert_harmless(&page, &path).await;
    }
}

/// Returns the cookies of a page as a header value.
async fn cookie(page: &Page) -> String {
    let cookies = page.cookies().await;
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let pairs = cookies
        .iter()
        .map(|one| format!("{}={}", text(&one["name"]), text(&one["value"])));
    pairs.collect::<Vec<_>>().join("; ")
}
