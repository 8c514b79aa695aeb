//! Signing in with a key and signing out, and protection against actions in the name of another user.

use posthaste_testbed::ADMIN_KEY;
use posthaste_testbed::browser::Locator;
use serde_json::json;

use super::fixture::{PagesFixture, id_of};
use super::http_client::{cookie, hidden_field, submit};
use super::page_checks::{assert_no_errors, check_page};

#[tokio::test(flavor = "multi_thread")]
async fn a_key_opens_the_pages_until_the_user_signs_out() {
    let mut fixture = PagesFixture::start().await;
    fixture.api.tenant("acme").await;
    let page = fixture.browser.page().await;
    // After signing in, the user reaches the requested page.
    let wanted = fixture.url("/dashboard/t/acme/deliveries?status=failed");
    page.open(&wanted).await;
    assert!(page.url().await.contains("/dashboard/sign-in"));
    check_page(&page, "the sign-in").await;

    page.fill(Locator::labelled("Key"), "ph_no_such_key").await;
    let refused = page.follow(Locator::with_text("button", "Sign in")).await;
    assert_eq!(refused.status, 401);
    let wrong = page.text("[role=alert]").await;
    assert!(wrong.contains("key"), "{wrong}");
    // The browser reports the 401, and nothing else.
    let complaints = page.complaints();
    assert!(
        complaints.iter().all(|one| one.contains("401")),
        "{complaints:?}"
    );
    assert!(page.cookies().await.is_empty());

    page.fill(Locator::labelled("Key"), ADMIN_KEY).await;
    page.press_and_load("Enter").await;
    assert_eq!(page.url().await, wanted);
    let cookies = page.cookies().await;
    assert_eq!(cookies.len(), 1, "{cookies:?}");
    let cookie = &cookies[0];
    assert_eq!(cookie["httpOnly"], true, "{cookie}");
    assert_eq!(cookie["sameSite"], "Strict", "{cookie}");
    assert_eq!(page.ask("document.cookie").await, "");
    let session = format!(
        "{}={}",
        cookie["name"].as_str().expect("a name"),
        cookie["value"].as_str().expect("a value")
    );
    let mut copied_session = fixture.client().with_header("cookie", &session);
    assert_eq!(copied_session.get("/dashboard").await.status, 200);

    page.follow(Locator::with_text("button", "Sign out")).await;
    assert!(page.text("main").await.contains("signed out"));
    assert!(page.cookies().await.is_empty());
    // The session has ended, not only its cookie.
    let after = copied_session.get("/dashboard").await;
    assert_eq!(after.status, 303);
    assert!(after.header("location").starts_with("/dashboard/sign-in"));
    page.open(&fixture.url("/dashboard")).await;
    assert!(page.url().await.contains("/dashboard/sign-in"));
    assert_no_errors(&page, "after signing out");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_forged_by_other_sites_are_refused() {
    let mut fixture = PagesFixture::start().await;
    fixture.api.tenant("acme").await;
    let endpoint = fixture.endpoint("acme", "hook", json!({})).await;
    let origin = fixture.url("");
    let mut client = fixture.client();
    let key = format!("key={ADMIN_KEY}");
    let signs_in = submit(&mut client, "/dashboard/sign-in", &[], &key).await;
    assert_eq!(signs_in.status, 303);
    let set = signs_in.header("set-cookie");
    for wanted in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(set.contains(wanted), "no {wanted} in {set}");
    }
    let mut client = client.with_header("cookie", &cookie(&signs_in));
    let at = format!("/dashboard/t/acme/endpoints/{endpoint}");
    let shown = client.get(&at).await;
    assert_eq!(shown.status, 200);
    let token = format!("csrf={}", hidden_field(&shown, "csrf"));
    let pause = format!("{at}/pause");
    let own = ("origin", origin.as_str());
    let wrong = "csrf=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    for (why, headers, form) in [
        ("no token", vec![own], ""),
        ("an empty token", vec![own], "csrf="),
        ("a wrong token", vec![own], wrong),
        (
            "another site",
            vec![("origin", "http://evil.example")],
            token.as_str(),
        ),
        (
            "a site without a name",
            vec![("origin", "null")],
            token.as_str(),
        ),
        (
            "another site, as browsers say it",
            vec![own, ("sec-fetch-site", "cross-site")],
            token.as_str(),
        ),
    ] {
        let refused = submit(&mut client, &pause, &headers, form).await;
        assert_eq!(refused.status, 403, "{why}");
        let path = format!("/v1/tenants/acme/endpoints/{endpoint}");
        let body = fixture.api.get(&path).await.expect(200);
        assert_eq!(body["status"], "enabled", "{why}");
    }
    // A CSRF token of another session is not valid for this one.
    let other = submit(&mut fixture.client(), "/dashboard/sign-in", &[], &key).await;
    let mut other = fixture.client().with_header("cookie", &cookie(&other));
    let stale = format!("csrf={}", hidden_field(&other.get(&at).await, "csrf"));
    assert_eq!(
        submit(&mut client, &pause, &[own], &stale).await.status,
        403
    );
    // Signing out is protected, too, and another site cannot sign a user in.
    assert_eq!(
        submit(&mut client, "/dashboard/sign-out", &[own], wrong)
            .await
            .status,
        403
    );
    let evil = [("origin", "http://evil.example")];
    let forced = submit(&mut fixture.client(), "/dashboard/sign-in", &evil, &key).await;
    assert_eq!(forced.status, 403);
    assert_eq!(forced.header("set-cookie"), "");
    assert_eq!(client.get(&at).await.status, 200);

    let done = submit(&mut client, &pause, &[own], &token).await;
    assert_eq!(done.status, 303, "{}", done.text);
    let path = format!("/v1/tenants/acme/endpoints/{endpoint}");
    assert_eq!(fixture.api.get(&path).await.expect(200)["status"], "paused");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_key_opens_only_its_own_pages() {
    let mut fixture = PagesFixture::start().await;
    fixture.api.tenant("acme").await;
    fixture.api.tenant("globex").await;
    let theirs = fixture.endpoint("globex", "hook", json!({})).await;
    let key = fixture
        .api
        .post("/v1/tenants/acme/keys", json!({"name": "page"}))
        .await;
    let key = key.expect(201);
    let page = fixture.browser.page().await;
    page.open(&fixture.url("/")).await;
    page.fill(
        Locator::labelled("Key"),
        key["key"].as_str().expect("a key"),
    )
    .await;
    page.follow(Locator::with_text("button", "Sign in")).await;
    assert_eq!(page.url().await, fixture.url("/dashboard/t/acme"));
    assert_no_errors(&page, "a tenant's overview");
    for path in [
        "/tenants",
        "/audit",
        "/t/globex",
        &format!("/t/globex/endpoints/{theirs}"),
        &format!("/t/acme/endpoints/{theirs}"),
    ] {
        let refused = page.open(&fixture.url(&format!("/dashboard{path}"))).await;
        assert_eq!(refused.status, 404, "{path}");
        assert!(!page.text("main").await.contains("globex"), "{path}");
    }
    page.complaints();
    // Revoking a key ends its sessions.
    let path = format!("/v1/tenants/acme/keys/{}", id_of(&key));
    assert_eq!(fixture.api.call("DELETE", &path, None).await.status, 204);
    page.open(&fixture.url("/dashboard/t/acme")).await;
    assert!(page.url().await.contains("/dashboard/sign-in"));
}
