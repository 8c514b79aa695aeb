//! Lists and times with the script: rows do not move until the visitor asks for it, and times can be shown in the zone of
//! the viewer.

use posthaste_testbed::browser::Locator;
use serde_json::json;

use super::fixture::PagesFixture;
use super::page_checks::{assert_no_errors, check_page};

#[tokio::test(flavor = "multi_thread")]
async fn new_rows_wait_until_they_are_asked_for() {
    let mut fixture = PagesFixture::start().await;
    fixture.api.tenant("acme").await;
    fixture.endpoint("acme", "orders", json!({})).await;
    let first = fixture
        .delivered("acme", "order.placed", json!({}), "succeeded")
        .await;
    let page = fixture.signed_in().await;
    page.open(&fixture.url("/dashboard/t/acme/deliveries"))
        .await;
    page.until("document.body.dataset.live === 'on'").await;
    let rows = "[...document.querySelectorAll('tr[data-key]')].map(row => row.dataset.key)";
    let top = "document.querySelector('tr[data-key]').getBoundingClientRect().top";
    let before = page.ask(top).await;
    let mut newest = String::new();
    for _ in 0..2 {
        newest = fixture
            .delivered("acme", "order.placed", json!({}), "succeeded")
            .await;
    }
    page.until("document.querySelector('button.news')?.innerText.startsWith('2 new')")
        .await;
    assert_eq!(page.ask(rows).await, json!([first]), "the list stays");
    assert_eq!(page.ask(top).await, before, "and does not move");
    check_page(&page, "a list with new rows").await;
    page.click(Locator::with_text("button", "2 new")).await;
    page.until("document.querySelectorAll('tr[data-key]').length === 3")
        .await;
    let shown = page.ask(rows).await;
    assert_eq!((&shown[0], &shown[2]), (&json!(newest), &json!(first)));
    assert!(!page.has(Locator::with_text("button", "new")).await);
    assert_no_errors(&page, "the list");
}

#[tokio::test(flavor = "multi_thread")]
async fn times_are_shown_in_the_zone_of_the_viewer_on_request() {
    let mut fixture = PagesFixture::start().await;
    fixture.api.tenant("acme").await;
    fixture.endpoint("acme", "orders", json!({})).await;
    let delivery = fixture
        .delivered("acme", "order.placed", json!({}), "succeeded")
        .await;
    let page = fixture.signed_in().await;
    let path = format!("/dashboard/t/acme/deliveries/{delivery}");
    page.open(&fixture.url(&path)).await;
    let started = "document.querySelector('#attempts td[data-label=Started] time').innerText";
    let utc = page.ask(started).await;
    let utc = utc.as_str().expect("a time").to_owned();
    assert_eq!(utc.len(), "2026-01-02 03:04:05.678".len(), "{utc}");
    assert!(page.text("footer").await.contains("Times in UTC"));
    page.click(Locator::with_text("footer button", "Use my time zone"))
        .await;
    // What the browser itself makes of the time.
    let local = "(() => { const time = document.querySelector('#attempts td[data-label=Started] time'); \
        const at = new Date(time.dateTime); return new Date(at - at.getTimezoneOffset() * 60000) \
        .toISOString().replace('T', ' ').replace('Z', ''); })()";
    assert_eq!(page.ask(started).await, page.ask(local).await);
    page.open(&fixture.url("/dashboard/t/acme/deliveries"))
        .await;
    page.click(Locator::with_text("footer button", "Use UTC"))
        .await;
    page.open(&fixture.url(&path)).await;
    assert_eq!(page.ask(started).await, utc);
    assert_no_errors(&page, "the delivery");
}
