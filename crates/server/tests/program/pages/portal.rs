//! The customer portal: one tenant, opened by a link, embedded in a page of the operator where that is allowed.

use posthaste_testbed::Answer;
use serde_json::Value;

use super::judge::{judge, quiet};
use super::scene::{create_tenant, mark};
use super::stage::{Receivers, Stage, id_of};

/// Returns the path of a portal link.
fn path_of(link: &Value) -> String {
    let url = link["url"].as_str().expect("a URL");
    let from = url.find("/portal/").expect("a portal");
    url[from..].to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_shows_its_tenant_and_nothing_of_others() {
    let mut stage = Stage::start().await;
    let own = create_tenant(&mut stage, "acme", "Acme").await;
    let other = create_tenant(&mut stage, "globex", "Globex").await;
    let link = stage.portal("acme", "1h").await;
    let base = path_of(&link);
    let mut caller = stage.caller();
    let pages = caller.walk(&base, &base).await;
    for (path, page) in &pages {
        assert!(matches!(page.status, 200 | 303), "{path}: {}", page.status);
        for word in ["globex", "Globex", &mark("globex")] {
            assert!(!page.body.contains(word), "{path} says {word}");
        }
        let strays = page.links();
        let mut strays = strays.iter().filter(|link| link.starts_with("/dashboard"));
        assert_eq!(
            strays.next(),
            None,
            "{path} leads to where a key is asked for"
        );
    }
    let places = [
        "",
        "/endpoints",
        "/endpoints/new",
        "/deliveries",
        "/dead-letters",
        "/replays",
        "/lab",
    ];
    let places = places.map(str::to_owned).into_iter().chain(own.paths());
    for place in places {
        assert!(
            pages.contains_key(&format!("{base}{place}")),
            "no link leads to {place}"
        );
    }
    assert!(
        pages[&format!("{base}/deliveries/{}", own.failed)]
            .body
            .contains(&mark("acme"))
    );

    // Ids of another tenant do not exist, for reading and for actions.
    let token = pages[&format!("{base}/endpoints/{}", own.healthy)].hidden("csrf");
    for path in other.paths() {
        let refused = caller.get(&format!("{base}{path}")).await;
        assert_eq!(refused.status, 404, "{path}");
        assert!(!refused.body.contains("globex"), "{path}");
    }
    for act in [
        format!("/endpoints/{}/pause", other.healthy),
        format!("/endpoints/{}/delete", other.healthy),
        format!("/deliveries/{}/retry", other.failed),
    ] {
        let form = format!("csrf={token}");
        let refused = caller.post(&format!("{base}{act}"), &[], &form).await;
        assert_eq!(refused.status, 404, "{act}");
    }
    let path = format!("/v1/tenants/globex/endpoints/{}", other.healthy);
    assert_eq!(stage.api.get(&path).await.expect(200)["status"], "enabled");
    // There is no way to pages outside the portal.
    for up in ["/tenants", "/audit", "/t/globex", "/t/acme"] {
        assert_eq!(caller.get(&format!("{base}{up}")).await.status, 404, "{up}");
    }
    assert_eq!(caller.get("/dashboard").await.status, 303);

    let page = stage.browser.page().await;
    page.open(&stage.url(&base)).await;
    judge(&page, "the portal").await;
    assert!(page.cookies().await.is_empty(), "a link needs no cookie");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_has_ended_says_so() {
    let mut stage = Stage::start().await;
    create_tenant(&mut stage, "acme", "Acme").await;
    let link = stage.portal("acme", "1h").await;
    let base = path_of(&link);
    let page = stage.browser.page().await;
    page.open(&stage.url(&base)).await;
    page.until("document.body.dataset.live === 'on'").await;
    let ends = format!("/v1/tenants/acme/portal-links/{}", id_of(&link));
    assert_eq!(stage.api.call("DELETE", &ends, None).await.status, 204);
    // An open page reports the end of the link and shows nothing more.
    page.until("document.body.dataset.live === 'ended'").await;
    assert!(
        page.text("#live-state")
            .await
            .contains("the link has ended")
    );
    quiet(&page, "the portal whose link ends");
    for path in ["", "/endpoints", "/deliveries"] {
        let refused = page.open(&stage.url(&format!("{base}{path}"))).await;
        assert_eq!(refused.status, 401);
        let words = page.text("main").await;
        assert!(words.contains("expired or was ended"), "{words}");
        assert!(!words.contains(&mark("acme")), "{words}");
    }
    page.complaints();
    let guessed = page
        .open(&stage.url("/portal/ph_no_such_link/endpoints"))
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
fn elsewhere(parent: &Receivers, page: &str) -> String {
    format!("http://localhost:{}/{page}", parent.receiver.address.port())
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_sites_that_the_operator_names_show_it_within_theirs() {
    let (friend, stranger) = (Receivers::start().await, Receivers::start().await);
    let friends = elsewhere(&friend, "");
    let friends = format!("portal.frame_ancestors={}", friends.trim_end_matches('/'));
    let mut stage = Stage::start_with(&["--set", &friends]).await;
    create_tenant(&mut stage, "acme", "Acme").await;
    let base = path_of(&stage.portal("acme", "1h").await);
    for parent in [&friend, &stranger] {
        let portal = stage.url(&format!("{base}/dead-letters"));
        parent.answers("portal", framing(&portal));
        parent.answers("dashboard", framing(&stage.url("/dashboard/sign-in")));
    }
    let page = stage.browser.page().await;
    page.allow(&stage.url(""));
    page.open(&elsewhere(&friend, "portal")).await;
    // The embedded page is live, and its actions work: without cookies, which browsers withhold from frames, and with
    // confirmation dialogs inside the page.
    page.until_in_frame("document.body?.dataset.live === 'on'")
        .await;
    for button in [
        "form[action$=\"/dead-letters/replay\"] button",
        "dialog button",
    ] {
        let found = format!("document.querySelector('{button}')");
        page.until_in_frame(&format!("!!{found}")).await;
        page.until_in_frame(&format!("({found}.click(), true)"))
            .await;
    }
    page.until_in_frame("location.pathname.includes('/replays/rpl_')")
        .await;
    stage
        .receivers
        .recover(&format!("{}/billing", mark("acme")));
    page.until_in_frame("document.querySelector('main')?.innerText.includes('done')")
        .await;
    quiet(&page, "the portal within a friend's page");

    for (parent, what) in [
        (&stranger, "portal"),
        (&stranger, "dashboard"),
        (&friend, "dashboard"),
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
