//! Alerts on the overview, on the alert page and on the pages of a tenant.
//!
//! The tests put alerts into the store of a [`TestServer`] and read the pages.

use posthaste_core::alert::AlertName;
use posthaste_core::id::AlertId;
use posthaste_core::time::Timestamp;
use posthaste_store::{Alert, SubjectScope};
use serde_json::json;

use crate::fixture::TestServer;

#[tokio::test]
async fn alerts_are_shown_on_the_overview_and_on_their_own_page() {
    let server = TestServer::start().await;
    let key = server.tenant("other").await;
    let id = server
        .endpoint(json!({"url": "http://127.0.0.1:9999/"}))
        .await;
    let quiet = server.page("/dashboard/alerts").await;
    quiet.says("No matching alerts.");
    assert_eq!(server.page("/dashboard").await.section("alerts"), "");
    let raise = async |number: u128, name, scope| {
        let alert = Alert {
            id: AlertId(number),
            name,
            scope,
            tenant: None,
            is_gone: false,
            raised_at: Timestamp(1_700_000_000_000),
            resolved_at: None,
            detail: json!({"value": 0.25, "threshold": 0.1, "window": "1h"}),
        };
        let raised = server.app.store.raise_alert(alert.raised_at, alert).await;
        assert!(raised.is_ok(), "{raised:?}");
    };
    raise(1, AlertName::RetryRatio, SubjectScope::Everything).await;
    let endpoint = SubjectScope::Endpoint(id.parse().expect("an id"));
    raise(2, AlertName::BreakerTripped, endpoint.clone()).await;
    raise(4, AlertName::DeadLetterRatio, endpoint).await;
    raise(3, AlertName::StoreSlow, SubjectScope::Everything).await;
    let over = server
        .app
        .store
        .resolve_alert(Timestamp(1_700_000_001_000), AlertId(3));
    assert!(over.await.is_ok_and(|over| over.is_some()));
    for path in ["/dashboard", "/dashboard/alerts"] {
        let page = server.page(path).await;
        // Nothing was measured in the last hour, so the alert clears after the calm time.
        page.says("Retry rate is 25 %")
            .says("Back to normal; clears at")
            .says("The breaker has closed.")
            .says("http://127.0.0.1:9999/")
            .says("breaker tripped")
            .says("acme");
    }
    let page = server.page("/dashboard/alerts").await;
    assert_eq!(
        page.link("Runbook for retry rate"),
        "/docs/operations#retry_ratio"
    );
    assert!(page.section("resolved").contains("store slow"));
    assert!(!page.section("open").contains("store slow"));
    let some = server
        .page("/dashboard/alerts?name=retry_ratio&tenant=acme")
        .await;
    assert!(!some.section("open").contains("breaker tripped"));
    // A tenant sees its own alerts only.
    for path in ["/dashboard/t/acme", "/dashboard/t/acme/alerts"] {
        let page = server.page(path).await;
        page.says("The breaker has closed.");
        let html = page.section_html(if path.ends_with("alerts") {
            "open"
        } else {
            "alerts"
        });
        assert!(!html.contains("retry rate"), "{html}");
    }
    let theirs = server.page_as(&key, "/dashboard/t/other/alerts").await;
    theirs.assert_no_text("The breaker has closed.");
    assert_eq!(server.page_as(&key, "/dashboard/alerts").await.status, 404);
    let wrong = server.page("/dashboard/alerts?since=soon").await;
    assert_eq!(wrong.status, 422);
    assert!(!wrong.wrong("since").is_empty());
}
