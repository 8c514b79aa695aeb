//! Checks for all pages, applied to every page that a link leads to.

use std::collections::BTreeMap;

use posthaste_testbed::ADMIN_KEY;
use posthaste_testbed::browser::{Page, PageAppearance};
use serde_json::Value;

use super::fixture::PagesFixture;
use super::http_client::crawl;
use super::page_checks::{assert_no_errors, faults};
use super::tenant_data::create_tenant;

/// Returns a path with each id replaced by its kind. Pages of the same shape count as one.
pub(crate) fn shape(path: &str) -> String {
    let path = path.split('?').next().unwrap_or_default();
    let parts = path.split('/').map(|part| match part.split_once('_') {
        Some((kind @ ("ep" | "evt" | "dlv" | "rpl"), _)) => format!("{{{kind}}}"),
        Some(_) | None => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("/")
}

/// Returns one page of every shape that is linked from the overview, by shape.
pub(crate) async fn shapes(fixture: &PagesFixture) -> BTreeMap<String, String> {
    let key = format!("Bearer {ADMIN_KEY}");
    let mut client = fixture.client().with_header("authorization", &key);
    let found = crawl(&mut client, "/dashboard", "/dashboard").await;
    let mut shapes = BTreeMap::new();
    for (path, page) in found {
        match page.status {
            200 => shapes.entry(shape(&path)).or_insert(path),
            303 => continue,
            other => panic!("{path} answers {other}"),
        };
    }
    shapes
}

/// Pages that must exist.
const OF_ALL: [&str; 6] = [
    "/dashboard",
    "/dashboard/alerts",
    "/dashboard/tenants",
    "/dashboard/lab",
    "/dashboard/nodes",
    "/dashboard/audit",
];
const OF_A_TENANT: [&str; 19] = [
    "",
    "/alerts",
    "/endpoints",
    "/endpoints/new",
    "/endpoints/{ep}",
    "/endpoints/{ep}/edit",
    "/endpoints/{ep}/test",
    "/events",
    "/events/new",
    "/keys",
    "/settings",
    "/replays/confirm",
    "/deliveries",
    "/deliveries/{dlv}",
    "/events/{evt}",
    "/dead-letters",
    "/replays",
    "/replays/{rpl}",
    "/lab",
];

#[tokio::test(flavor = "multi_thread")]
async fn every_page_passes_the_accessibility_checks() {
    let mut fixture = PagesFixture::start().await;
    create_tenant(&mut fixture, "acme", "Acme").await;
    let shapes = shapes(&fixture).await;
    let own = OF_A_TENANT.map(|below| format!("/dashboard/t/acme{below}"));
    for wanted in OF_ALL.iter().copied().chain(own.iter().map(String::as_str)) {
        assert!(
            shapes.contains_key(wanted),
            "no link leads to {wanted}: {shapes:#?}"
        );
    }
    let page = fixture.signed_in().await;
    let mut wrong = Vec::new();
    for (shape, path) in &shapes {
        page.open(&fixture.url(path)).await;
        let faults = faults(&page).await;
        wrong.extend(faults.into_iter().map(|fault| format!("{shape}: {fault}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns the headings, statuses and table headers of a page.
async fn visible_labels(page: &Page) -> Vec<Value> {
    let labels = "[...document.querySelectorAll('h1, h2, h3, caption, th, dt, .badge, label')]\
                .filter(one => one.checkVisibility()).map(one => one.innerText.trim())";
    page.ask(labels).await.as_array().expect("a list").clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_is_readable_without_javascript() {
    let mut fixture = PagesFixture::start().await;
    create_tenant(&mut fixture, "acme", "Acme").await;
    let shapes = shapes(&fixture).await;
    let with = fixture.signed_in().await;
    let without = with.another().await;
    without.emulate(PageAppearance::WITHOUT_SCRIPT).await;
    for (shape, path) in &shapes {
        with.open(&fixture.url(path)).await;
        without.open(&fixture.url(path)).await;
        assert_eq!(
            visible_labels(&with).await,
            visible_labels(&without).await,
            "{shape}"
        );
        assert_no_errors(&without, shape);
    }
}
