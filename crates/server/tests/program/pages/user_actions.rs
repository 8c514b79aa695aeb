//! Actions on the pages: an endpoint is created, tested, changed and disabled, a retry policy is previewed, a customer
//! gets a portal link. Pages that only an action leads to must pass the checks for all pages, too.

use posthaste_testbed::browser::{Locator, PageAppearance};
use posthaste_testbed::{ADMIN_KEY, Answer};
use serde_json::json;

use super::failed_delivery::{assert_marker, put_marker, says};
use super::fixture::PagesFixture;
use super::page_checks::{assert_no_errors, check_page};
use super::tenant_data::{create_tenant, mark};

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_is_created_tested_edited_and_disabled_by_keyboard() {
    let mut fixture = PagesFixture::start().await;
    fixture.api.tenant("acme").await;
    let page = fixture.signed_in().await;
    page.open(&fixture.url("/dashboard/t/acme/endpoints")).await;
    page.follow(Locator::with_text("main a", "Add endpoint"))
        .await;
    // Errors appear beside their fields, and the entered values stay.
    page.fill(Locator::labelled("URL"), "http://example.com/hook")
        .await;
    page.click(Locator::with_text("summary", "Advanced")).await;
    page.fill(Locator::labelled("Timeout per attempt"), "61s")
        .await;
    page.fill(Locator::labelled("Description"), "Orders of the shop")
        .await;
    let refused = page
        .follow(Locator::with_text("button", "Create endpoint"))
        .await;
    assert_eq!(refused.status, 422);
    page.complaints();
    check_page(&page, "the form with mistakes").await;
    let marked = page
        .ask("[...document.querySelectorAll('[aria-invalid=true]')].map(field => field.name)")
        .await;
    assert_eq!(marked, json!(["timeout"]));
    let kept = page.ask("document.querySelector('[name=description]').value");
    assert_eq!(kept.await, "Orders of the shop");

    page.fill(Locator::labelled("URL"), &fixture.receiver.url_of("orders"))
        .await;
    page.fill(Locator::labelled("Timeout per attempt"), "5s")
        .await;
    page.follow(Locator::with_text("button", "Create endpoint"))
        .await;
    assert!(page.text("main").await.contains("whsec_"));
    check_page(&page, "a secret that is shown once").await;
    page.click(Locator::with_text("main button", "Copy")).await;
    page.until("document.getElementById('live-state').innerText.includes('Copied')")
        .await;
    let copied = page.ask("navigator.clipboard.readText()").await;
    let copied = copied.as_str().expect("text");
    assert!(copied.starts_with("whsec_"), "{copied}");
    page.follow(Locator::with_text("main a", "Open endpoint"))
        .await;
    let endpoint = page.url().await;
    assert!(
        !page.text("main").await.contains("whsec_"),
        "the secret is shown once"
    );

    page.follow(Locator::with_text("button", "Send test event"))
        .await;
    put_marker(&page).await;
    says(&page, "succeeded").await;
    assert_marker(&page).await;
    fixture.receiver.arrivals(1).await;

    page.open(&endpoint).await;
    page.follow(Locator::with_text("main button", "Pause"))
        .await;
    says(&page, "Endpoint paused. Deliveries are held").await;
    page.follow(Locator::with_text("main button", "Resume"))
        .await;
    says(&page, "Endpoint resumed").await;
    page.follow(Locator::with_text("main a", "Edit")).await;
    page.fill(Locator::labelled("Description"), "Orders, old and new")
        .await;
    page.follow(Locator::with_text("button", "Save")).await;
    says(&page, "Orders, old and new").await;
    page.follow(Locator::with_text("main button", "Disable"))
        .await;
    check_page(&page, "the question before it is disabled").await;
    page.follow(Locator::with_text("main button", "Disable endpoint"))
        .await;
    says(&page, "disabled").await;
    let id = endpoint.rsplit('/').next().expect("an id");
    let path = format!("/v1/tenants/acme/endpoints/{id}");
    let text = fixture.api.get(&path).await.expect(200);
    assert_eq!(text["status"], "disabled");
    assert_eq!(text["timeout"], "5s");
    assert_no_errors(&page, "the endpoint");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_action_works_without_javascript() {
    let mut fixture = PagesFixture::start().await;
    let own = create_tenant(&mut fixture, "acme", "Acme").await;
    let page = fixture.browser.page().await;
    page.emulate(PageAppearance::WITHOUT_SCRIPT).await;
    page.open(&fixture.url("/dashboard/t/acme/dead-letters"))
        .await;
    page.fill(Locator::labelled("Key"), ADMIN_KEY).await;
    page.follow(Locator::with_text("button", "Sign in")).await;
    fixture
        .receiver
        .answer_at(&format!("{}/billing", mark("acme")), Answer::status(200));
    page.follow(Locator::with_text("main a", "Replay all 3"))
        .await;
    page.follow(Locator::with_text("main button", "Replay 3 deliveries"))
        .await;
    assert!(page.url().await.contains("/replays/rpl_"));
    fixture
        .api
        .until_status("acme", &own.failed, "succeeded")
        .await;
    page.open(&fixture.url(&format!("/dashboard/t/acme/deliveries/{}", own.failed)))
        .await;
    says(&page, "succeeded").await;
    page.follow(Locator::with_text("button", "Sign out")).await;
    says(&page, "signed out").await;
    assert_no_errors(&page, "without script");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_is_previewed_before_it_is_saved() {
    let fixture = PagesFixture::start().await;
    let page = fixture.signed_in().await;
    page.follow(Locator::with_text("nav a", "Retry lab")).await;
    let before = page.text("main").await;
    page.choose("[name=preset]", "swift").await;
    page.fill(Locator::labelled("Outage duration"), "30m").await;
    page.follow(Locator::with_text("button", "Simulate")).await;
    // The URL contains the chosen values, so that a user can share it.
    let address = page.url().await;
    assert!(
        address.contains("preset=swift") && address.contains("outage=30m"),
        "{address}"
    );
    let after = page.text("main").await;
    assert_ne!(before, after);
    for words in [
        "Simulated recovery",
        "Naive sender",
        "Peak requests per second after recovery",
    ] {
        assert!(after.contains(words), "no {words:?} in {after}");
    }
    assert!(
        page.ask("document.querySelectorAll('main svg').length")
            .await
            .as_u64()
            >= Some(3)
    );
    check_page(&page, "the lab").await;
    page.fill(Locator::labelled("Outage duration"), "for ever")
        .await;
    page.follow(Locator::with_text("button", "Simulate")).await;
    page.complaints();
    check_page(&page, "the lab with a mistake").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_customer_link_shows_only_the_failed_deliveries() {
    let mut fixture = PagesFixture::start().await;
    let own = create_tenant(&mut fixture, "acme", "Acme").await;
    create_tenant(&mut fixture, "globex", "Globex").await;
    let page = fixture.signed_in().await;
    page.open(&fixture.url("/dashboard/t/acme/dead-letters"))
        .await;
    page.follow(Locator::with_text("main button", "Create link"))
        .await;
    check_page(&page, "a link for the customer").await;
    let link = page
        .ask("[...document.querySelectorAll('main code')].map(one => one.innerText).find(text => text.includes('/portal/'))")
        .await;
    let link = link.as_str().expect("a link");
    let customer = fixture.browser.page().await;
    customer.open(link).await;
    let text = customer.text("main").await;
    assert!(text.contains(&own.failed), "{text}");
    assert!(!text.contains("globex"), "{text}");
    assert_no_errors(&customer, "what the customer sees");
}
