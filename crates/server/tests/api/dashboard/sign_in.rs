//! Login: sessions, portal links, and protection against requests from other sites.

use axum::body::Body;
use http::Request;
use http::header::{HeaderName, SET_COOKIE};
use posthaste_api::auth::{Caller, Credential};
use posthaste_api::in_process::InProcessRequest;
use posthaste_api::request_source::RequestSource;
use posthaste_api::route::{Access, Verb};
use posthaste_api::routes;
use posthaste_core::id::SessionId;
use posthaste_store::ActionInterface;
use serde_json::{Value, json};

use crate::fixture::{ADMIN, ApiResponse, HtmlPage, TestServer};

const HOUR_MS: u64 = 3_600_000;

/// A browser with a cookie that sends the headers of a browser.
struct Browser<'a> {
    server: &'a TestServer,
    cookie: String,
}

impl Browser<'_> {
    async fn new(server: &TestServer) -> Browser<'_> {
        let cookie = String::new();
        Browser { server, cookie }
    }

    async fn signed_in<'a>(server: &'a TestServer, key: &str) -> Browser<'a> {
        let mut browser = Browser::new(server).await;
        let answer = browser.sign_in(key, "").await;
        assert_eq!(answer.status, 303);
        browser
    }

    async fn sign_in(&mut self, key: &str, next: &str) -> ApiResponse {
        let form = [("key", key), ("next", next)];
        let answer = self.post("/dashboard/sign-in", &form, &[]).await;
        if let Some(cookie) = answer.headers.get(SET_COOKIE) {
            let pair = cookie.to_str().unwrap().split(';').next().unwrap();
            self.cookie = pair.to_owned();
        }
        answer
    }

    async fn get(&self, path: &str) -> HtmlPage {
        let request = Request::get(path).header("cookie", &self.cookie);
        HtmlPage::of(self.server.send(request.body(Body::empty()).unwrap()).await)
    }

    async fn post(
        &self,
        path: &str,
        form: &[(&str, &str)],
        headers: &[(&str, &str)],
    ) -> ApiResponse {
        let mut fields = url::form_urlencoded::Serializer::new(String::new());
        fields.extend_pairs(form);
        let mut request = Request::post(path)
            .header("cookie", &self.cookie)
            .header("host", "hooks.example")
            .header("content-type", "application/x-www-form-urlencoded");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = Body::from(fields.finish());
        self.server.send(request.body(body).unwrap()).await
    }
}

/// Returns the CSRF token in the forms of a page.
fn csrf(page: &HtmlPage) -> String {
    let (_, rest) = page
        .html
        .split_once("name=\"csrf\" value=\"")
        .expect("a form");
    rest.split_once('"').expect("a value").0.to_owned()
}

#[tokio::test]
async fn signing_in_with_a_key_starts_a_session_that_signing_out_ends() {
    let server = TestServer::start().await;
    let mut browser = Browser::new(&server).await;
    let first = browser.get("/dashboard/t/acme?x=1").await;
    let asked = first.redirect();
    assert_eq!(
        asked,
        "/dashboard/sign-in?next=%2Fdashboard%2Ft%2Facme%3Fx%3D1"
    );
    browser.get(&asked).await.says("Sign in");

    let wrong = browser.sign_in("ph_wrong", "/dashboard/t/acme").await;
    assert_eq!(wrong.status, 401);
    assert_eq!(wrong.headers.get(SET_COOKIE), None);
    let wrong = HtmlPage::of(wrong);
    wrong
        .says("Unknown or revoked key")
        .assert_no_text("ph_wrong");
    assert!(
        wrong.html.contains("/dashboard/t/acme"),
        "the requested page is kept"
    );

    let right = browser.sign_in(ADMIN, "/dashboard/t/acme").await;
    assert_eq!(right.status, 303);
    assert_eq!(right.headers["location"], "/dashboard/t/acme");
    let cookie = right.headers[SET_COOKIE].to_str().unwrap();
    for part in [
        "; HttpOnly",
        "; SameSite=Strict",
        "; Path=/",
        "; Max-Age=43200",
    ] {
        assert!(cookie.contains(part), "{part} in {cookie}");
    }
    assert!(!cookie.contains(ADMIN), "{cookie}");
    let page = browser.get("/dashboard/t/acme").await;
    assert_eq!(page.status, 200);

    let form = [("csrf", csrf(&page))];
    let form: Vec<(&str, &str)> = form
        .iter()
        .map(|(name, text)| (*name, text.as_str()))
        .collect();
    let out = browser.post("/dashboard/sign-out", &form, &[]).await;
    assert_eq!(
        out.headers["location"],
        "/dashboard/sign-in?done=signed-out"
    );
    assert!(
        out.headers[SET_COOKIE]
            .to_str()
            .unwrap()
            .contains("Max-Age=0")
    );
    // The old cookie is useless after signing out.
    let after = browser.get("/dashboard/t/acme").await;
    assert_eq!(after.status, 303);
}

#[tokio::test]
async fn over_tls_the_session_cookie_is_bound_to_the_host() {
    let server = TestServer::start().await;
    let browser = Browser::new(&server).await;
    let secure = [("x-forwarded-proto", "https")];
    let form = [("key", ADMIN)];
    let answer = browser.post("/dashboard/sign-in", &form, &secure).await;
    let cookie = answer.headers[SET_COOKIE].to_str().unwrap();
    assert!(cookie.starts_with("__Host-posthaste_session="), "{cookie}");
    assert!(cookie.ends_with("; Secure"), "{cookie}");
}

#[tokio::test]
async fn over_tls_a_cookie_without_the_host_prefix_is_ignored() {
    let server = TestServer::start().await;
    let browser = Browser::signed_in(&server, ADMIN).await;
    let (_, token) = browser.cookie.split_once('=').unwrap();
    let visit = |cookie: String, scheme: &'static str| {
        let request = Request::get("/dashboard").header("x-forwarded-proto", scheme);
        let request = request.header("cookie", cookie).body(Body::empty());
        server.send(request.unwrap())
    };
    let plain = format!("posthaste_session={token}");
    let secure = format!("__Host-{plain}");
    assert_eq!(visit(plain.clone(), "http").await.status, 200);
    assert_eq!(visit(plain.clone(), "https").await.status, 303);
    assert_eq!(visit(plain, "https, http").await.status, 303);
    assert_eq!(visit(secure, "https").await.status, 200);
    // A form from a page without TLS is refused, too.
    let form = [("key", ADMIN)];
    for (origin, status) in [
        ("http://hooks.example", 403),
        ("https://hooks.example", 303),
    ] {
        let headers = [("x-forwarded-proto", "https"), ("origin", origin)];
        let answer = browser.post("/dashboard/sign-in", &form, &headers).await;
        assert_eq!(answer.status, status, "{origin}");
    }
}

#[tokio::test]
async fn requests_with_a_portal_link_are_rate_limited() {
    let server = TestServer::with_manual_clock().await;
    let (_, path) = link(&server, json!({})).await;
    let (_, another) = link(&server, json!({})).await;
    let browser = Browser::new(&server).await;
    let lost = format!("{path}/nowhere");
    for _ in 0..500 {
        assert_eq!(browser.get(&lost).await.status, 404);
    }
    let refused = browser.get(&lost).await;
    assert_eq!(refused.status, 429);
    assert!(refused.headers.contains_key("retry-after"));
    for (link, _) in refused.links() {
        assert!(!link.starts_with("/dashboard"), "{link}");
    }
    assert_eq!(browser.get(&another).await.status, 200);
    server.pass_ms(20);
    assert_eq!(browser.get(&lost).await.status, 404);
}

#[tokio::test]
async fn a_session_ends_when_it_expires_or_its_key_is_revoked() {
    let server = TestServer::with_manual_clock().await;
    let browser = Browser::signed_in(&server, ADMIN).await;
    server.pass_ms(12 * HOUR_MS - 1);
    assert_eq!(browser.get("/dashboard").await.status, 200);
    server.pass_ms(1);
    assert_eq!(browser.get("/dashboard").await.status, 303);

    let made = json!({"name": "desk"});
    let made = server.post("/v1/tenants/acme/keys", &made).await.ok(201);
    let browser = Browser::signed_in(&server, made["key"].as_str().unwrap()).await;
    assert_eq!(browser.get("/dashboard/t/acme").await.status, 200);
    let key = format!("/v1/tenants/acme/keys/{}", made["id"].as_str().unwrap());
    assert_eq!(server.delete(&key).await.status, 204);
    assert_eq!(browser.get("/dashboard/t/acme").await.status, 303);
}

#[tokio::test]
async fn a_form_from_another_site_is_refused() {
    let server = TestServer::start().await;
    let endpoint = server
        .endpoint(json!({"url": "http://127.0.0.1:5000/"}))
        .await;
    let browser = Browser::signed_in(&server, ADMIN).await;
    let page = browser.get("/dashboard/t/acme").await;
    let token = csrf(&page);
    let other = Browser::signed_in(&server, ADMIN).await;
    let others = csrf(&other.get("/dashboard/t/acme").await);
    assert_ne!(token, others, "each session has its own");
    let pause = format!("/dashboard/t/acme/endpoints/{endpoint}/pause");
    let cases: [(&str, &[(&str, &str)]); 8] = [
        ("", &[]),
        ("wrong", &[]),
        (&others, &[]),
        (&token, &[("origin", "https://evil.example")]),
        (&token, &[("origin", "null")]),
        (&token, &[("sec-fetch-site", "cross-site")]),
        (
            &token,
            &[
                ("sec-fetch-site", "same-site"),
                ("origin", "http://hooks.example"),
            ],
        ),
        (
            "",
            &[
                ("origin", "http://hooks.example"),
                ("sec-fetch-site", "same-origin"),
            ],
        ),
    ];
    let path = format!("/v1/tenants/acme/endpoints/{endpoint}");
    for (token, headers) in cases {
        let refused = browser.post(&pause, &[("csrf", token)], headers).await;
        assert_eq!(refused.status, 403, "{token} {headers:?}");
        assert_eq!(server.get(&path).await.ok(200)["status"], "enabled");
    }
    let ours = [
        ("origin", "http://hooks.example"),
        ("sec-fetch-site", "same-origin"),
    ];
    let done = browser.post(&pause, &[("csrf", &token)], &ours).await;
    assert_eq!(done.status, 303);
    assert_eq!(server.get(&path).await.ok(200)["status"], "paused");
    // Another site cannot sign a user in either: the user would then act with that site's key.
    let form = [("key", ADMIN)];
    let foreign = [("origin", "https://evil.example")];
    let refused = browser.post("/dashboard/sign-in", &form, &foreign).await;
    assert_eq!(refused.status, 403);
}

#[tokio::test]
async fn a_navigation_from_another_site_is_repeated_from_this_site() {
    let server = TestServer::start().await;
    let from = |mode: &str| {
        Request::get("/dashboard/t/acme")
            .header("sec-fetch-site", "cross-site")
            .header("sec-fetch-mode", mode)
            .body(Body::empty())
            .unwrap()
    };
    let again = server.send(from("navigate")).await;
    assert_eq!(again.status, 200);
    let html = String::from_utf8(again.bytes.to_vec()).unwrap();
    assert!(html.contains("http-equiv=\"refresh\""), "{html}");
    assert_eq!(server.send(from("no-cors")).await.status, 303);
}

async fn link(server: &TestServer, document: Value) -> (String, String) {
    let made = server
        .post("/v1/tenants/acme/portal-links", &document)
        .await;
    let made = made.ok(201);
    let url = made["url"].as_str().unwrap().to_owned();
    let path = url[url.find("/portal/").expect("a portal")..].to_owned();
    (made["id"].as_str().unwrap().to_owned(), path)
}

#[tokio::test]
async fn a_portal_link_works_until_it_expires() {
    let server = TestServer::with_manual_clock().await;
    server.tenant("other").await;
    let browser = Browser::new(&server).await;
    let (_, path) = link(&server, json!({})).await;
    let page = browser.get(&path).await;
    assert_eq!(page.status, 200);
    page.assert_no_text("other");
    assert_eq!(page.link("Endpoints"), format!("{path}/endpoints"));
    for (link, _) in page.links() {
        assert!(!link.starts_with("/dashboard"), "{link}");
    }
    // Below a portal link there are no admin pages and no pages of other tenants.
    for beyond in ["/tenants", "/audit", "/t/other", "/t/acme", "/sign-in"] {
        let lost = browser.get(&format!("{path}{beyond}")).await;
        assert_eq!(lost.status, 404, "{beyond}");
    }
    server.pass_ms(HOUR_MS - 1);
    assert_eq!(browser.get(&path).await.status, 200);
    server.pass_ms(1);
    let over = browser.get(&path).await;
    assert_eq!(over.status, 401);
    over.says("This link has expired or was revoked");

    let (id, path) = link(&server, json!({"expires_in": "7d"})).await;
    assert_eq!(browser.get(&path).await.status, 200);
    let one = format!("/v1/tenants/acme/portal-links/{id}");
    let others = one.replace("/acme/", "/other/");
    assert_eq!(server.delete(&others).await.status, 404);
    assert_eq!(browser.get(&path).await.status, 200);
    assert_eq!(server.delete(&one).await.status, 204);
    assert_eq!(browser.get(&path).await.status, 401);
    let wrong = json!({"expires_in": "8d", "path": "//evil.example"});
    let wrong = server.post("/v1/tenants/acme/portal-links", &wrong).await;
    let errors = &wrong.ok(422)["errors"];
    assert_eq!(errors[0]["field"], "expires_in");
    assert_eq!(errors[1]["field"], "path");
}

#[tokio::test]
async fn a_portal_link_is_listed_and_revoked_on_the_page_of_keys() {
    let server = TestServer::start().await;
    let (id, path) = link(&server, json!({})).await;
    let page = server.page("/dashboard/t/acme/keys").await;
    page.says("Active portal links").says(&id);
    let token = path.strip_prefix("/portal/").unwrap();
    page.assert_no_text(token);
    let portal = server.page(&path).await;
    assert_eq!(portal.status, 200);
    portal
        .assert_no_text("Active portal links")
        .assert_no_text(&id);
    let done = server
        .submit(&format!("/dashboard/t/acme/portal-link/{id}/end"), &[])
        .await;
    assert_eq!(done.redirect(), "/dashboard/t/acme/keys?done=link-ended");
    server
        .page("/dashboard/t/acme/keys")
        .await
        .assert_no_text(&id);
    assert_eq!(server.page(&path).await.status, 401);
}

#[tokio::test]
async fn a_token_works_only_for_its_purpose() {
    let server = TestServer::start().await;
    let (_, path) = link(&server, json!({})).await;
    let token = path.strip_prefix("/portal/").unwrap();
    let mut browser = Browser::new(&server).await;
    browser.cookie = format!("posthaste_session={token}");
    assert_eq!(browser.get("/dashboard").await.status, 303);
    assert_eq!(browser.get("/dashboard/t/acme").await.status, 303);
    let browser = Browser::signed_in(&server, ADMIN).await;
    let (_, token) = browser.cookie.split_once('=').unwrap();
    assert_eq!(browser.get(&format!("/portal/{token}")).await.status, 401);
    // Neither token works as an API key.
    let request = Request::get("/v1/tenants").header("authorization", format!("Bearer {token}"));
    let refused = server.send(request.body(Body::empty()).unwrap()).await;
    assert_eq!(refused.status, 401);
}

#[tokio::test]
async fn a_portal_link_cannot_use_routes_for_keys_or_admins() {
    let server = TestServer::start().await;
    let caller = Caller::Tenant(Credential::Link(SessionId(1)), "acme".parse().unwrap());
    let mut asked = 0;
    for route in routes::all() {
        let target = route
            .path
            .replace("{tenant}", "acme")
            .replace("{key}", "key_00000000000000000000000000")
            .replace("{link}", "pass_00000000000000000000000000");
        let refused = match route.access {
            Access::TenantKey | Access::Admin => "forbidden",
            Access::Open | Access::AnyKey | Access::Tenant => continue,
        };
        asked += 1;
        let answered = server.app.ask(InProcessRequest {
            caller: caller.clone(),
            source: RequestSource {
                via: ActionInterface::Portal,
                from: None,
                called: None,
            },
            verb: route.verb,
            target,
            body: (route.verb != Verb::Get).then(|| "{}".into()),
        });
        let problem = answered.await.expect_err(route.name);
        assert_eq!(problem.code.as_str(), refused, "{}", route.name);
    }
    assert!(asked >= 10, "only {asked}");
}

#[tokio::test]
async fn pages_have_security_headers() {
    let server = TestServer::start().await;
    let (_, portal) = link(&server, json!({})).await;
    for path in [
        "/dashboard",
        "/dashboard/sign-in",
        "/dashboard/nowhere",
        &portal,
        "/portal/x",
    ] {
        let page = server.page(path).await;
        let header = |name: &str| {
            let name: HeaderName = name.parse().unwrap();
            let value = page.headers.get(&name);
            value
                .unwrap_or_else(|| panic!("{name} of {path}"))
                .to_str()
                .unwrap()
        };
        let policy = header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        assert!(policy.ends_with("frame-ancestors 'none'"), "{policy}");
        assert_eq!(header("x-frame-options"), "DENY");
        assert_eq!(header("x-content-type-options"), "nosniff");
        assert_eq!(header("referrer-policy"), "same-origin");
        assert_eq!(header("cache-control"), "no-store");
    }
}

#[tokio::test]
async fn actions_on_pages_are_in_the_audit_log() {
    let server = TestServer::start().await;
    let endpoint = server
        .endpoint(json!({"url": "http://127.0.0.1:5000/"}))
        .await;
    let key = server
        .post("/v1/tenants/acme/keys", &json!({"name": "desk"}))
        .await
        .ok(201);
    let browser = Browser::signed_in(&server, key["key"].as_str().unwrap()).await;
    let token = csrf(&browser.get("/dashboard/t/acme").await);
    let path = format!("/v1/tenants/acme/endpoints/{endpoint}");
    let disable = format!("{path}/disable");
    server.post(&disable, &json!({})).await.ok(200);
    for verb in ["pause", "enable"] {
        let path = format!("/dashboard/t/acme/endpoints/{endpoint}/{verb}");
        browser.post(&path, &[("csrf", &token)], &[]).await;
    }
    let audit = server.get("/v1/tenants/acme/audit?limit=4").await.ok(200);
    let entries = audit["data"].as_array().unwrap();
    let fields = |entry: &Value| {
        ["action", "via", "actor", "outcome"]
            .map(|name| entry[name].as_str().unwrap_or("").to_owned())
    };
    let desk = "key of acme \"desk\"";
    let admin = "the configured admin key";
    let expected = [
        ["enable_endpoint", "page", desk, "done"],
        ["pause_endpoint", "page", desk, "refused"],
        ["disable_endpoint", "api", admin, "done"],
        ["sign_in", "page", desk, "done"],
    ];
    for (entry, expected) in entries.iter().zip(expected) {
        assert_eq!(fields(entry), expected);
    }
    assert_eq!(entries.len(), 4);
    assert_eq!(entries[1]["code"], "wrong_state");
    assert_eq!(entries[1]["resource"], format!("{path}/pause"));
    assert_eq!(entries[1]["key_id"], key["id"]);
}

#[tokio::test]
async fn a_retry_at_a_paused_endpoint_is_reported_as_held() {
    let server = TestServer::start().await;
    let endpoint = server
        .endpoint(json!({"url": "http://127.0.0.1:5000/"}))
        .await;
    let pause = format!("/v1/tenants/acme/endpoints/{endpoint}/pause");
    server.post(&pause, &json!({})).await.ok(200);
    let event = json!({"type": "invoice.paid", "payload": {}});
    let held = server.deliver(event).await;
    let path = format!("/dashboard/t/acme/deliveries/{held}");
    let sent = server.submit(&format!("{path}/retry"), &[]).await;
    assert_eq!(sent.redirect(), format!("{path}?done=next-in-line"));
    let test = format!("/dashboard/t/acme/endpoints/{endpoint}/test");
    let sent = server.submit(&test, &[]).await.redirect();
    assert!(sent.ends_with("?done=test-held"), "{sent}");
    server
        .page(&format!("/dashboard/t/acme/endpoints/{endpoint}"))
        .await
        .says("paused manually");
}
