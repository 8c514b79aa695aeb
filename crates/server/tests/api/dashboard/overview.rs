//! The overview, tenant, audit log and policy lab pages.

use posthaste_testbed::{Answer, Receiver};
use serde_json::json;

use crate::fixture::TestServer;

#[tokio::test]
async fn endpoints_that_need_attention_are_listed_first() {
    let server = TestServer::start().await;
    let broken = Receiver::start(|_| Answer::text(500, "no")).await;
    let id = server.endpoint(json!({"url": broken.url()})).await;
    let event = json!({"type": "invoice.paid", "payload": 1});
    let delivery = server.deliver(event).await;
    server.until_status(&delivery, "retrying").await;
    let verb = format!("/v1/tenants/acme/endpoints/{id}/pause");
    server.post(&verb, &json!({})).await.ok(200);
    for path in ["/dashboard", "/dashboard/t/acme"] {
        let page = server.page(path).await;
        let text = page.text();
        assert!(text.find("Needs attention") < text.find("Health"), "{text}");
        let attention = page.section("attention");
        assert!(attention.contains("paused manually"), "{attention}");
        assert!(attention.contains("held"), "{attention}");
        let resume = format!("/dashboard/t/acme/endpoints/{id}/resume");
        assert!(page.forms().contains(&resume), "one action");
        let link = format!("/dashboard/t/acme/endpoints/{id}");
        assert_eq!(page.link(&broken.url()), link);
        page.says("Healthy below 5 %, alert above 10 %.");
        // There was no second attempt yet.
        page.says("no data");
        assert!(
            page.section("traffic").contains("1 attempts, 0 succeeded"),
            "{text}"
        );
        let day = server.page(&page.link("Last 24 hours")).await;
        day.says("Attempts per");
    }
}

#[tokio::test]
async fn an_empty_tenant_sees_the_first_steps() {
    let server = TestServer::start().await;
    let page = server.page("/dashboard/t/acme").await;
    page.says("Get started")
        .says("curl -X POST")
        .says("/v1/tenants/acme/events");
    assert_eq!(page.link("Add endpoint"), "/dashboard/t/acme/endpoints/new");
}

#[tokio::test]
async fn the_first_steps_stay_until_a_delivery_succeeded() {
    let server = TestServer::start().await;
    let paths = ["/dashboard", "/dashboard/t/acme"];
    let receiver = Receiver::start(|_| Answer::status(500)).await;
    let event = json!({"type": "a.b", "payload": 1});
    server.event(&event).await.ok(202);
    server.endpoint(json!({"url": receiver.url()})).await;
    for path in paths {
        let steps = server.page(path).await.section("start");
        assert!(steps.contains("Check that it was delivered"), "{steps}");
        let endpoint = steps.find("Add an endpoint").expect("a step");
        assert!(steps[endpoint..].contains("done"), "{steps}");
    }
    let failing = server.deliver(&event).await;
    server.until_status(&failing, "retrying").await;
    for path in paths {
        server.page(path).await.says("Get started");
    }
    receiver.answer(200);
    let delivered = server.deliver(&event).await;
    server.until_status(&delivered, "succeeded").await;
    for path in paths {
        server.page(path).await.assert_no_text("Get started");
    }
}

#[tokio::test]
async fn the_portal_shows_no_ratios_and_no_alerts() {
    let server = TestServer::start().await;
    let receiver = Receiver::healthy().await;
    let id = server.endpoint(json!({"url": receiver.url()})).await;
    let delivery = server.deliver(json!({"type": "a.b", "payload": 1})).await;
    server.until_status(&delivery, "succeeded").await;
    let link = server
        .post("/v1/tenants/acme/portal-links", &json!({}))
        .await
        .ok(201);
    let url = link["url"].as_str().expect("a URL");
    let portal = &url[url.find("/portal/").expect("a portal")..];
    for path in ["", &format!("/endpoints/{id}")] {
        let page = server.page_as("", &format!("{portal}{path}")).await;
        assert_eq!(page.status, 200, "{path}");
        page.says("Attempts per minute");
        for words in ["Retry rate", "Dead-letter rate", "Alerts", "Usage", "/docs"] {
            page.assert_no_text(words);
        }
    }
    for path in ["/alerts", "/events", "/events/new", "/keys", "/settings"] {
        let page = server.page_as("", &format!("{portal}{path}")).await;
        assert_eq!(page.status, 404, "{path}");
    }
    for path in ["/events/new", "/keys", "/settings", "/settings/delete"] {
        let fields = [("sure", "yes"), ("id", "acme"), ("type", "a.b")];
        let done = server
            .submit_as("", &format!("{portal}{path}"), &fields)
            .await;
        assert!(
            [403, 404].contains(&done.status.as_u16()),
            "{path}: {}",
            done.status
        );
    }
}

#[tokio::test]
async fn a_page_without_changes_renders_the_same() {
    let server = TestServer::with_manual_clock().await;
    server
        .endpoint(json!({"url": "http://127.0.0.1:9999/"}))
        .await;
    for path in [
        "/dashboard",
        "/dashboard/t/acme",
        "/dashboard/t/acme/endpoints",
    ] {
        let before = server.page(path).await;
        server.pass_ms(1_000);
        let after = server.page(path).await;
        assert_eq!(before.html, after.html, "{path}");
    }
}

#[tokio::test]
async fn tenants_are_listed_and_created() {
    let server = TestServer::start().await;
    let list = server.page("/dashboard/tenants").await;
    assert_eq!(list.link("acme"), "/dashboard/t/acme");
    let fields = [("id", "globex"), ("name", "Globex <b>")];
    let made = server
        .submit("/dashboard/tenants", &fields)
        .await
        .redirect();
    assert_eq!(made, "/dashboard/t/globex?done=tenant-created");
    server.page(&made).await.says("Tenant created.");
    server.page("/dashboard/tenants").await.says("Globex <b>");
    let wrong = server
        .submit("/dashboard/tenants", &[("id", "no way"), ("name", "x")])
        .await;
    assert_eq!(wrong.status, 422);
    assert_eq!(wrong.field("id"), "no way");
    assert_eq!(wrong.field("name"), "x");
    assert!(!wrong.wrong("id").is_empty());
    let taken = server.submit("/dashboard/tenants", &fields).await;
    assert_eq!(taken.status, 409);
    assert_eq!(taken.field("id"), "globex");
    let key = server.tenant("other").await;
    assert_eq!(server.page_as(&key, "/dashboard/tenants").await.status, 404);
    assert_eq!(
        server
            .submit_as(&key, "/dashboard/tenants", &fields)
            .await
            .status,
        404
    );
}

#[tokio::test]
async fn a_created_portal_link_works() {
    let server = TestServer::start().await;
    let made = server
        .submit("/dashboard/t/acme/portal-link", &[("expires_in", "10m")])
        .await;
    assert_eq!(made.headers["cache-control"], "no-store");
    let text = made.section("shown");
    let (_, token) = text.split_once("/portal/").expect("a link");
    let token = token.split_whitespace().next().expect("a token");
    let portal = format!("/portal/{token}");
    let seen = server.page(&portal).await;
    assert_eq!(seen.status, 200);
    seen.assert_no_text("Create link")
        .assert_no_text("/dashboard");
    let refused = server
        .submit("/dashboard/t/acme/portal-link", &[("expires_in", "1y")])
        .await;
    assert_eq!(refused.status, 422);
    assert_eq!(refused.field("expires_in"), "1y");
    assert!(!refused.wrong("expires_in").is_empty());
}

#[tokio::test]
async fn the_policy_lab_shows_attempts_and_recovery() {
    let server = TestServer::start().await;
    for path in ["/dashboard/lab", "/dashboard/t/acme/lab"] {
        let lab = server
            .page(&format!("{path}?pending=200&outage=5m&capacity=20/s"))
            .await;
        lab.says("Retry schedule")
            .says("404, 409 and 425")
            .says("retried at most 3 times")
            .says("Naive sender: arrivals per second")
            .says("posthaste delivered all 200")
            .says("At most 100,000.");
        assert_eq!(lab.field("pending"), "200");
        assert_eq!(lab.field("preset"), "recommended");
        let own = server.page(&lab.link("Edit")).await;
        assert_eq!(own.status, 200);
        assert_eq!(own.field("preset"), "own");
        assert!(own.field("policy").contains("\"backoff\""));
        own.says("posthaste delivered all 200");
    }
}

#[tokio::test]
async fn the_policy_lab_reports_errors_at_their_fields() {
    let server = TestServer::start().await;
    let cases = [
        ("preset=own&policy=%7B", "policy"),
        ("preset=own&policy=%7B%22max_attempts%22%3A-1%7D", "policy"),
        ("preset=nonsense", "policy"),
        ("pending=100001", "pending"),
        ("pending=%3Cscript%3E", "pending"),
        ("outage=forever", "outage"),
        ("capacity=none", "capacity"),
    ];
    for (query, field) in cases {
        let lab = server.page(&format!("/dashboard/lab?{query}")).await;
        assert_eq!(lab.status, 422, "{query}");
        assert!(!lab.wrong(field).is_empty(), "{query}");
        assert!(!lab.html.contains("<script>"), "{query}");
    }
}

#[tokio::test]
async fn the_audit_page_shows_actor_and_action() {
    let server = TestServer::start().await;
    let key = server.tenant("other").await;
    let id = server
        .endpoint(json!({"url": "http://127.0.0.1:9999/"}))
        .await;
    let path = format!("/dashboard/t/acme/endpoints/{id}");
    server
        .submit(&format!("{path}/pause"), &[])
        .await
        .redirect();
    let refused = [("url", "ftp://x")];
    let wrong = server.submit("/dashboard/t/acme/endpoints/new", &refused);
    assert_eq!(wrong.await.status, 422);
    let all = server.page("/dashboard/audit").await;
    all.says("pause endpoint").says("dashboard").says("API");
    let list = all.section("list");
    let (paused, made) = (list.find("pause endpoint"), list.find("create tenant"));
    assert!(paused < made, "the newest first: {list}");
    assert!(list.contains("refused"), "{list}");
    let some = server.page("/dashboard/audit?tenant=other").await;
    let list = some.section("list");
    assert!(
        list.contains("create key") && !list.contains("pause"),
        "{list}"
    );
    assert_eq!(some.field("tenant"), "other");
    let none = server.page("/dashboard/audit?until=2001-01-01").await;
    none.says("No matching entries.");
    server.page("/dashboard/audit?since=2h").await.says("API");
    let none = server.page("/dashboard/audit?until=2001-01-01T00:00").await;
    none.says("No matching entries.");
    let wrong = server.page("/dashboard/audit?since=soon").await;
    assert_eq!(wrong.status, 422);
    assert_eq!(wrong.field("since"), "soon");
    assert!(!wrong.wrong("since").is_empty());
    assert_eq!(server.page_as(&key, "/dashboard/audit").await.status, 404);
}
