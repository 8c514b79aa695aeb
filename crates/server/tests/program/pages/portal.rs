//! The customer portal: one tenant, opened by a link, embedded in a page of the operator where that is allowed.

use posthaste_testbed::{Answer, Receiver};
use serde_json::Value;

use super::fixture::{PagesFixture, id_of};
use super::http_client::{crawl, hidden_field, links, submit};
use super::page_checks::{assert_no_errors, check_page};
use super::tenant_data::{create_tenant, mark};

/// Returns the path of a portal link.
fn path_of(link: &Value) -> String {
    let url = link["url"].as_str().expect("a URL");
    let from = url.find("/portal/").expect("a portal");
    url[from..].to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_portal_link_shows_only_its_tenant() {
    let mut fixture = PagesFixture::start().await;
    let own = create_tenant(&mut fixture, "acme", "Acme").await;
    let other = create_tenant(&mut fixture, "globex", "Globex").await;
    let link = fixture.portal("acme", "1h").await;
    let base = path_of(&link);
    let mut client = fixture.client();
    let pages = crawl(&mut client, &base, &base).await;
    for (path, page) in &pages {
        assert!(matches!(page.status, 200 | 303), "{path}: {}", page.status);
        for word in ["globex", "Globex", &mark("globex")] {
            assert!(!page.text.contains(word), "{path} says {word}");
        }
        let strays = links(page);
        let mut strays = strays.iter().filter(|link| link.starts_with("/dashboard"));
        assert_eq!(
            strays.next(),
            None,
            "{path} links to a page that needs a key"
        );
    }
    let paths = [
        "",
        "/endpoints",
        "/endpoints/new",
        "/deliveries",
        "/dead-letters",
        "/replays",
    ];
    let paths = paths.map(str::to_owned).into_iter().chain(own.paths());
    for path in paths {
        assert!(
            pages.contains_key(&format!("{base}{path}")),
            "no link leads to {path}"
        );
    }
    assert!(
        pages[&format!("{base}/deliveries/{}", own.failed)]
            .text
            .contains(&mark("acme"))
    );

    // Ids of another tenant do not exist, for reading and for actions.
    let healthy = &pages[&format!("{base}/endpoints/{}", own.healthy)];
    let token = hidden_field(healthy, "csrf");
    for path in other.paths() {
        let refused = client.get(&format!("{base}{path}")).await;
        assert_eq!(refused.status, 404, "{path}");
        assert!(!refused.text.contains("globex"), "{path}");
    }
    for act in [
        format!("/endpoints/{}/pause", other.healthy),
        format!("/endpoints/{}/delete", other.healthy),
        format!("/deliveries/{}/retry", other.failed),
    ] {
        let form = format!("csrf={token}");
        let refused = submit(&mut client, &format!("{base}{act}"), &[], &form).await;
        assert_eq!(refused.status, 404, "{act}");
    }
    let path = format!("/v1/tenants/globex/endpoints/{}", other.healthy);
    assert_eq!(
        fixture.api.get(&path).await.expect(200)["status"],
        "enabled"
    );
    // There is no way to pages outside the portal.
    for up in ["/tenants", "/audit", "/t/globex", "/t/acme"] {
        assert_eq!(client.get(&format!("{base}{up}")).await.status, 404, "{up}");
    }
    assert_eq!(client.get("/dashboard").await.status, 303);

    let page = fixture.browser.page().await;
    page.open(&fixture.url(&base)).await;
    check_page(&page, "the portal").await;
    assert!(page.cookies().await.is_empty(), "a link needs no cookie");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_portal_link_says_so() {
    let mut fixture = PagesFixture::start().await;
    create_tenant(&mut fixture, "acme", "Acme").await;
    let link = fixture.portal("acme", "1h").await;
    let base = path_of(&link);
    let page = fixture.browser.page().await;
    page.open(&fixture.url(&base)).await;
    page.until("document.body.dataset.live === 'on'").await;
    let ends = format!("/v1/tenants/acme/portal-links/{}", id_of(&link));
    assert_eq!(fixture.api.call("DELETE", &ends, None).await.status, 204);
    // An open page reports the end of the link and shows nothing more.
    page.until("document.body.dataset.live === 'ended'").await;
    assert!(
        page.text("#live-state")
            .await
            .contains("session or link has ended")
    );
    assert_no_errors(&page, "the portal whose link ends");
    for path in ["", "/endpoints", "/deliveries"] {
        let refused = page.open(&fixture.url(&format!("{base}{path}"))).await;
        assert_eq!(refused.status, 401);
        let words = page.text("main").await;
        assert!(words.contains("expired or was revoked"), "{words}");
        assert!(!words.contains(&mark("acme")), "{words}");
    }
    page.complaints();
    let guessed = page
        .open(&fixture.url("/portal/ph_no_such_link/endpoints"))
        .await;
    assert_eq!(guessed.status, 401);
}

/// A page that embeds another page.
fn framing(url: &str) -> Answer {
    let mut answer = Answer::status(200);
    let html = "text/html; charset=utf-8".to_owned();
    answer.headers.push(("content-type", html));
    let page = format!(
        "<!doctype html><html lang=en><title>Customers</title><h1>Your webhooks</h1>\
         <iframe title=Webhooks width=900 height=700 src='{url}'></iframe>"
    );
    answer.body = page.into();
    answer
}

/// URL of a page under another host name of this machine, which makes it another site for the browser.
fn elsewhere(parent: &Receiver, page: &str) -> String {
    format!("http://localhost:{}/{page}", parent.address.port())
}

#[tokio::test(flavor = "multi_thread")]
async fn only_configured_sites_can_embed_the_portal() {
    let (allowed, other) = (Receiver::healthy().await, Receiver::healthy().await);
    let ancestors = elsewhere(&allowed, "");
    let ancestors = format!("portal.frame_ancestors={}", ancestors.trim_end_matches('/'));
    let mut fixture = PagesFixture::start_with(&["--set", &ancestors]).await;
    create_tenant(&mut fixture, "acme", "Acme").await;
    let base = path_of(&fixture.portal("acme", "1h").await);
    for parent in [&allowed, &other] {
        let portal = fixture.url(&format!("{base}/dead-letters"));
        parent.answer_at("portal", framing(&portal));
        parent.answer_at("dashboard", framing(&fixture.url("/dashboard/sign-in")));
    }
    let page = fixture.browser.page().await;
    page.allow(&fixture.url(""));
    page.open(&elsewhere(&allowed, "portal")).await;
    // The embedded page is live, and its actions work: without cookies, which browsers withhold from frames, and with
    // confirmation dialogs inside the page.
    page.until_in_frame("document.body?.dataset.live === 'on'")
        .await;
    for button in [
        "a[id^=\"replay-\"]",
        "form[action$=\"/replays/begin\"] button",
    ] {
        let found = format!("document.querySelector('{button}')");
        page.until_in_frame(&format!("!!{found}")).await;
        page.until_in_frame(&format!("({found}.click(), true)"))
            .await;
    }
    page.until_in_frame("location.pathname.includes('/replays/rpl_')")
        .await;
    fixture
        .receiver
        .answer_at(&format!("{}/billing", mark("acme")), Answer::status(200));
    page.until_in_frame("document.querySelector('main')?.innerText.includes('done')")
        .await;
    assert_no_errors(&page, "the portal within a allowed's page");

    for (parent, what) in [
        (&other, "portal"),
        (&other, "dashboard"),
        (&allowed, "dashboard"),
    ] {
        page.open(&elsewhere(parent, what)).await;
        let shown = page.until_in_frame("location.href").await;
        assert_eq!(shown, "chrome-error://chromewebdata/", "{what}");
        let complaints = page.complaints().join(" ");
        assert!(
            complaints.contains("frame-ancestors"),
            "{what}: {complaints}"
        );
    }
}
