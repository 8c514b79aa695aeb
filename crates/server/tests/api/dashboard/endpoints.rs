//! The pages for the endpoint list and for one endpoint, with all its actions.

use posthaste_testbed::{Answer, Receiver};
use serde_json::{Value, json};

use crate::fixture::TestServer;

const HOSTILE: &str = "<script>alert(1)</script>\"'&";

async fn one(server: &TestServer, endpoint: Value) -> (String, String) {
    let id = server.endpoint(endpoint).await;
    (format!("/dashboard/t/acme/endpoints/{id}"), id)
}

#[tokio::test]
async fn the_list_shows_the_health_of_each_endpoint() {
    let server = TestServer::start().await;
    let empty = server.page("/dashboard/t/acme/endpoints").await;
    empty.says("No endpoints yet");
    let broken = Receiver::start(|_| Answer::text(500, "no")).await;
    let (_, id) = one(
        &server,
        json!({"url": broken.url(), "event_types": ["invoice.*"], "description": HOSTILE}),
    )
    .await;
    let (_, paused) = one(
        &server,
        json!({"url": "http://127.0.0.1:9999/paused", "event_types": ["x"]}),
    )
    .await;
    let verb = format!("/v1/tenants/acme/endpoints/{paused}/pause");
    server.post(&verb, &json!({})).await.ok(200);
    let event = json!({"type": "invoice.paid", "payload": 1});
    let delivery = server.deliver(event).await;
    server.until_status(&delivery, "retrying").await;
    let list = server.page("/dashboard/t/acme/endpoints").await;
    list.says("failing")
        .says("paused")
        .says("invoice.*")
        .says("1 waiting");
    list.says(HOSTILE);
    assert!(!list.html.contains("<script>alert"), "{}", list.html);
    assert_eq!(
        list.link(&broken.url()),
        format!("/dashboard/t/acme/endpoints/{id}")
    );
    let newest_first = list.text();
    assert!(newest_first.find("/paused") < newest_first.find(&broken.url()));
}

#[tokio::test]
async fn a_long_list_is_read_page_by_page() {
    let server = TestServer::start().await;
    for number in 0..27 {
        server
            .endpoint(json!({"url": format!("http://127.0.0.1:9999/{number}")}))
            .await;
    }
    let first = server.page("/dashboard/t/acme/endpoints").await;
    first.says("/26").assert_no_text("127.0.0.1:9999/1<");
    let second = server.page(&first.link("Older")).await;
    second
        .says("127.0.0.1:9999/0")
        .assert_no_text("127.0.0.1:9999/26");
    assert_eq!(second.link("Newest"), "/dashboard/t/acme/endpoints");
}

#[tokio::test]
async fn an_endpoint_page_shows_health_limits_and_last_failure() {
    let server = TestServer::start().await;
    let broken = Receiver::start(|_| Answer::text(503, "<b>out of order</b>")).await;
    let (path, id) = one(
        &server,
        json!({
            "url": broken.url(), "headers": {"X-Team": "s3cret-value"}, "owner_email": "ops@example.com",
            "retry_policy": {"preset": "swift"}, "timeout": "7s", "max_in_flight": 3,
            "rate_limit": {"per_second": 5, "burst": 9},
        }),
    )
    .await;
    let event = json!({"type": "invoice.paid", "payload": 1});
    let delivery = server.deliver(event).await;
    server.until_status(&delivery, "retrying").await;
    let page = server.page(&path).await;
    page.says("Passing: attempts are sent when due")
        .says("1 waiting")
        .says("the last 1 failed")
        .says("7s per attempt")
        .says("Max concurrent requests 3")
        .says("5/s, burst 9")
        .says("ops@example.com")
        .says("X-Team")
        .says("preset “swift” (set for this endpoint)")
        .says("Retry schedule")
        .says("HTTP 503");
    page.assert_no_text("s3cret-value");
    assert_eq!(
        page.link(&delivery),
        format!("/dashboard/t/acme/deliveries/{delivery}")
    );
    assert!(page.section("health").contains("1 attempts, 0 succeeded"));
    for verb in ["pause", "test", "secret", "rotate", "disable", "delete"] {
        let form = format!("/dashboard/t/acme/endpoints/{id}/{verb}");
        assert!(page.forms().contains(&form), "{verb}: {:?}", page.forms());
    }
}

#[tokio::test]
async fn pages_of_another_tenant_are_not_found() {
    let server = TestServer::start().await;
    let (path, _) = one(&server, json!({"url": "http://127.0.0.1:9999/"})).await;
    let key = server.tenant("other").await;
    let foreign = path.replace("acme", "other");
    for path in [&path, &foreign] {
        assert_eq!(server.page_as(&key, path).await.status, 404, "{path}");
        for verb in ["pause", "secret", "delete", "edit"] {
            let done = server
                .submit_as(&key, &format!("{path}/{verb}"), &[("sure", "yes")])
                .await;
            assert_eq!(done.status, 404, "{verb}");
        }
    }
    assert_eq!(server.page(&path).await.status, 200);
}

#[tokio::test]
async fn a_created_endpoint_shows_its_secret_once() {
    let server = TestServer::start().await;
    let form = server.page("/dashboard/t/acme/endpoints/new").await;
    assert_eq!(form.field("policy"), "");
    let fields = [
        ("url", "http://127.0.0.1:9999/hooks"),
        ("event_types", "invoice.paid\r\ninvoice.*"),
        ("policy", "brisk"),
        ("timeout", "5s"),
        ("max_in_flight", "4"),
        ("per_second", "2.5"),
        ("burst", "6"),
        ("ordered", "yes"),
        ("headers", "X-Team: billing"),
        ("signature_style", "github"),
        ("owner_email", "ops@example.com"),
    ];
    let made = server
        .submit("/dashboard/t/acme/endpoints/new", &fields)
        .await;
    made.says("whsec_");
    assert_eq!(made.headers["cache-control"], "no-store");
    let link = made.link("Open endpoint");
    let id = link.rsplit('/').next().expect("an id");
    let shown = server
        .get(&format!("/v1/tenants/acme/endpoints/{id}"))
        .await
        .ok(200);
    assert_eq!(shown["event_types"], json!(["invoice.paid", "invoice.*"]));
    assert_eq!(shown["retry_policy"], json!({"preset": "brisk"}));
    assert_eq!(shown["rate_limit"], json!({"per_second": 2.5, "burst": 6}));
    assert_eq!(shown["ordered"], true);
    assert_eq!(shown["headers"], json!({"X-Team": "billing"}));
    assert_eq!(shown["signature_style"], "github");
    server.page(&link).await.assert_no_text("whsec_");
}

#[tokio::test]
async fn form_errors_are_shown_at_their_fields_and_input_is_kept() {
    let server = TestServer::start().await;
    let fields = [
        ("url", "ftp://\"><script>"),
        ("event_types", "invoice..paid"),
        ("policy", "own"),
        ("retry_policy", "{\"backoff\": {\"kind\": \"odd\"}}"),
        ("timeout", "2h"),
        ("max_in_flight", "many"),
        ("per_second", "-1"),
        ("headers", "Host: inner"),
        ("owner_email", "no-address"),
        ("signature_style", "standard"),
    ];
    let refused = server
        .submit("/dashboard/t/acme/endpoints/new", &fields)
        .await;
    assert_eq!(refused.status, 422);
    for (name, text) in fields {
        assert_eq!(refused.field(name).trim(), text, "{name}");
    }
    for name in [
        "url",
        "event_types",
        "retry_policy",
        "timeout",
        "max_in_flight",
        "per_second",
        "headers",
        "owner_email",
    ] {
        assert!(!refused.wrong(name).is_empty(), "{name}");
    }
    assert!(refused.wrong("headers").contains("Host cannot be set"));
    assert!(!refused.html.contains("<script>\""), "{}", refused.html);
    let listed = server.get("/v1/tenants/acme/endpoints").await.ok(200);
    assert_eq!(listed["data"], json!([]));
}

#[tokio::test]
async fn the_edit_form_changes_only_edited_fields() {
    let server = TestServer::start().await;
    let (path, id) = one(
        &server,
        json!({"url": "http://127.0.0.1:9999/", "headers": {"X-Team": "billing"},
            "auth": {"kind": "bearer", "token": "t0ken"}}),
    )
    .await;
    let api = format!("/v1/tenants/acme/endpoints/{id}");
    let before = server.get(&api).await.ok(200);
    let form = server.page(&format!("{path}/edit")).await;
    form.assert_no_text("t0ken");
    let names = [
        "url",
        "description",
        "event_types",
        "policy",
        "retry_policy",
        "timeout",
        "max_in_flight",
        "per_second",
        "burst",
        "headers",
        "owner_email",
        "signature_style",
        "auth_kind",
        "certificate_choice",
    ];
    let mut fields: Vec<(&str, String)> =
        names.iter().map(|name| (*name, form.field(name))).collect();
    let send = |fields: &[(&str, String)]| {
        let fields: Vec<(String, String)> = fields
            .iter()
            .map(|(name, text)| ((*name).to_owned(), text.clone()))
            .collect();
        fields
    };
    let sent = send(&fields);
    let sent: Vec<(&str, &str)> = sent
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_str()))
        .collect();
    let saved = server.submit(&format!("{path}/edit"), &sent).await;
    assert_eq!(saved.redirect(), format!("{path}?done=saved"));
    assert_eq!(server.get(&api).await.ok(200), before, "saved as it stood");
    fields[1].1 = "Billing's own".to_owned();
    let sent = send(&fields);
    let sent: Vec<(&str, &str)> = sent
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_str()))
        .collect();
    server
        .submit(&format!("{path}/edit"), &sent)
        .await
        .redirect();
    let mut wanted = before;
    wanted["description"] = json!("Billing's own");
    assert_eq!(server.get(&api).await.ok(200), wanted);
    server
        .page(&format!("{path}?done=saved"))
        .await
        .says("Changes saved.")
        .says("Billing's own");
}

#[tokio::test]
async fn an_endpoint_is_paused_resumed_disabled_enabled_and_deleted() {
    let server = TestServer::start().await;
    let (path, id) = one(&server, json!({"url": "http://127.0.0.1:9999/"})).await;
    let api = format!("/v1/tenants/acme/endpoints/{id}");
    for (verb, status) in [("pause", "paused"), ("resume", "enabled")] {
        let done = server.submit(&format!("{path}/{verb}"), &[]).await;
        server.page(&done.redirect()).await.says(status);
        assert_eq!(server.get(&api).await.ok(200)["status"], status);
    }
    let asked = server.submit(&format!("{path}/disable"), &[]).await;
    asked.says("Disable the endpoint?");
    assert_eq!(
        server.get(&api).await.ok(200)["status"],
        "enabled",
        "no action is recorded yet"
    );
    assert_eq!(asked.field("sure"), "yes");
    let done = server
        .submit(&format!("{path}/disable"), &[("sure", "yes")])
        .await;
    let page = server.page(&done.redirect()).await;
    page.says("Disabled manually").says("none (disabled)");
    assert!(
        !page.forms().contains(&format!("{path}/test")),
        "a disabled endpoint offers no test event"
    );
    let enabled = server
        .submit(&format!("{path}/enable"), &[])
        .await
        .redirect();
    assert!(enabled.ends_with("?done=enabled#missed-form"), "{enabled}");
    server
        .page(&enabled)
        .await
        .says("You can replay missed events below");
    server
        .submit(&format!("{path}/delete"), &[])
        .await
        .says("Delete the endpoint?");
    assert_eq!(server.get(&api).await.status, 200);
    let gone = server
        .submit(&format!("{path}/delete"), &[("sure", "yes")])
        .await;
    assert_eq!(gone.redirect(), "/dashboard/t/acme/endpoints?done=deleted");
    assert_eq!(server.page(&path).await.status, 404);
}

#[tokio::test]
async fn a_test_event_leads_to_its_delivery() {
    let server = TestServer::start().await;
    let receiver = Receiver::start(|_| Answer::text(200, "ok")).await;
    let (path, _) = one(
        &server,
        json!({"url": receiver.url(), "event_types": ["nothing.else"]}),
    )
    .await;
    let link = server.submit(&format!("{path}/test"), &[]).await.redirect();
    receiver.arrivals(1).await;
    let delivery = link
        .strip_prefix("/dashboard/t/acme/deliveries/")
        .expect("a delivery");
    let delivery = delivery
        .strip_suffix("?done=tested")
        .expect("the suffix of a tested endpoint");
    server.until_status(delivery, "succeeded").await;
}

#[tokio::test]
async fn a_test_event_can_have_a_chosen_payload() {
    let server = TestServer::start().await;
    let receiver = Receiver::healthy().await;
    let (path, _) = one(
        &server,
        json!({"url": receiver.url(), "event_types": ["nothing.else"]}),
    )
    .await;
    let page = server.page(&path).await;
    let form = server.page(&page.link("Test with payload…")).await;
    assert_eq!(form.field("type"), "posthaste.test");
    let wrong = [("type", "invoice.paid"), ("payload", "{\"n\": ")];
    let refused = server.submit(&format!("{path}/test"), &wrong).await;
    assert_eq!(refused.status, 422);
    assert!(refused.wrong("payload").contains("not valid JSON"));
    assert_eq!(refused.field("type"), "invoice.paid");
    let payload = "{\"total\": 1.50, \"a\": 1}";
    let chosen = [("type", "invoice.paid"), ("payload", payload)];
    let sent = server.submit(&format!("{path}/test"), &chosen).await;
    assert!(sent.redirect().ends_with("?done=tested"));
    let arrivals = receiver.arrivals(1).await;
    assert_eq!(arrivals[0].body, payload.as_bytes(), "byte for byte");
}

#[tokio::test]
async fn limits_are_shown_with_their_defaults_and_stay_inherited() {
    let server = TestServer::start().await;
    let form = server.page("/dashboard/t/acme/endpoints/new").await;
    for (name, default) in [
        ("timeout", "30s"),
        ("max_in_flight", "10"),
        ("per_second", "100"),
    ] {
        assert_eq!(form.field(name), default, "{name}");
    }
    form.says("Default: recommended (server)");
    let fields = [
        ("url", "http://127.0.0.1:9999/"),
        ("timeout", "30s"),
        ("max_in_flight", "11"),
        ("per_second", "100"),
        ("burst", "200"),
        ("signature_style", "standard"),
        ("auth_kind", "basic"),
        ("auth_username", "ann"),
        ("auth_password", "s3cret"),
    ];
    let made = server
        .submit("/dashboard/t/acme/endpoints/new", &fields)
        .await;
    let link = made.link("Open endpoint");
    let id = link.rsplit('/').next().expect("an id");
    let api = format!("/v1/tenants/acme/endpoints/{id}");
    let shown = server.get(&api).await.ok(200);
    assert_eq!(shown["timeout_from"], "server");
    assert_eq!(shown["rate_limit_from"], "server");
    assert_eq!(
        (&shown["max_in_flight"], &shown["max_in_flight_from"]),
        (&json!(11), &json!("endpoint"))
    );
    assert_eq!(shown["auth"], json!({"kind": "basic", "username": "ann"}));
    let edit = server.page(&format!("{link}/edit")).await;
    edit.assert_no_text("s3cret");
    assert_eq!(edit.field("auth_kind"), "keep");
    // An invalid credential is reported at its own field.
    let wrong = [
        ("url", "http://127.0.0.1:9999/"),
        ("signature_style", "standard"),
        ("auth_kind", "bearer"),
        ("auth_token", ""),
    ];
    let refused = server.submit(&format!("{link}/edit"), &wrong).await;
    assert_eq!(refused.status, 422);
    assert!(!refused.wrong("auth_token").is_empty());
    assert!(refused.html.contains("<details id=\"advanced\" open>"));
}

#[tokio::test]
async fn missed_events_are_replayed_since_a_time() {
    let server = TestServer::start().await;
    let (path, id) = one(&server, json!({"url": "http://127.0.0.1:9999/"})).await;
    let page = server.page(&path).await;
    assert_eq!(page.field("missed_since"), "1d");
    let confirm = "/dashboard/t/acme/replays/confirm";
    let refused = server
        .page(&format!("{confirm}?endpoint={id}&missed_since=yesterday"))
        .await;
    assert_eq!(refused.status, 422);
    assert_eq!(refused.field("missed_since"), "yesterday");
    assert!(!refused.wrong("missed_since").is_empty());
    let none = server
        .page(&format!("{confirm}?endpoint={id}&missed_since=2h"))
        .await;
    none.says("No deliveries match this filter.");
}

#[tokio::test]
async fn the_secret_is_shown_and_rotated_on_request_only() {
    let server = TestServer::start().await;
    let (path, _) = one(&server, json!({"url": "http://127.0.0.1:9999/"})).await;
    let secret = |text: &str| {
        let (_, rest) = text.split_once("whsec_").expect("a secret");
        rest.split_whitespace().next().expect("a secret").to_owned()
    };
    let shown = server.submit(&format!("{path}/secret"), &[]).await;
    assert_eq!(shown.headers["cache-control"], "no-store");
    let before = secret(&shown.text());
    assert_eq!(
        server.page(&format!("{path}/secret")).await.status,
        404,
        "not by a link"
    );
    let rotated = server
        .submit(&format!("{path}/rotate"), &[("overlap", "7d")])
        .await;
    let after = secret(&rotated.section("shown"));
    assert_ne!(before, after);
    rotated
        .says("Old secrets that are still valid")
        .says(&before);
    let refused = server
        .submit(&format!("{path}/rotate"), &[("overlap", "soon")])
        .await;
    assert_eq!(refused.status, 422);
    refused.says("overlap");
}
