//! Actions on the pages: an endpoint is created, tested, changed and disabled, a retry policy is previewed, a customer
//! gets a portal link. Pages that only an action leads to must pass the checks for all pages, too.

use posthaste_testbed::ADMIN_KEY;
use posthaste_testbed::browser::{Locator, Look};
use serde_json::json;

use super::judge::{judge, quiet};
use super::scene::{create_tenant, mark};
use super::stage::Stage;
use super::story::{assert_marker, put_marker, says};

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_is_made_tried_out_changed_and_stopped() {
    let mut stage = Stage::start().await;
    stage.api.tenant("acme").await;
    let page = stage.signed_in().await;
    page.open(&stage.url("/dashboard/t/acme/endpoints")).await;
    page.follow(Locator::saying("main a", "Add an endpoint"))
        .await;
    // Errors appear beside their fields, and the entered values stay.
    page.fill(Locator::labelled("URL"), "http://example.com/hook")
        .await;
    page.fill(Locator::labelled("Time limit"), "61s").await;
    page.fill(Locator::labelled("Description"), "Orders of the shop")
        .await;
    let refused = page
        .follow(Locator::saying("button", "Add the endpoint"))
        .await;
    assert_eq!(refused.status, 422);
    page.complaints();
    judge(&page, "the form with mistakes").await;
    let marked = page
        .ask("[...document.querySelectorAll('[aria-invalid=true]')].map(field => field.name)")
        .await;
    assert_eq!(marked, json!(["timeout"]));
    let kept = page.ask("document.querySelector('[name=description]').value");
    assert_eq!(kept.await, "Orders of the shop");

    page.fill(Locator::labelled("URL"), &stage.receivers.url("orders"))
        .await;
    page.fill(Locator::labelled("Time limit"), "5s").await;
    page.follow(Locator::saying("button", "Add the endpoint"))
        .await;
    assert!(page.text("main").await.contains("whsec_"));
    judge(&page, "a secret that is shown once").await;
    page.click(Locator::saying("main button", "Copy")).await;
    page.until("document.getElementById('live-state').innerText.includes('Copied')")
        .await;
    let copied = page.ask("navigator.clipboard.readText()").await;
    let copied = copied.as_str().expect("text");
    assert!(copied.starts_with("whsec_"), "{copied}");
    page.follow(Locator::saying("main a", "To the endpoint"))
        .await;
    let endpoint = page.url().await;
    assert!(
        !page.text("main").await.contains("whsec_"),
        "it is shown once"
    );

    page.follow(Locator::saying("button", "Send a test event"))
        .await;
    put_marker(&page).await;
    says(&page, "succeeded").await;
    assert_marker(&page).await;
    stage.receivers.receiver.arrivals(1).await;

    page.open(&endpoint).await;
    page.follow(Locator::saying("main button", "Pause")).await;
    says(&page, "Paused. Deliveries are held").await;
    page.follow(Locator::saying("main button", "Resume")).await;
    says(&page, "Resumed").await;
    page.follow(Locator::saying("main a", "Edit")).await;
    page.fill(Locator::labelled("Description"), "Orders, old and new")
        .await;
    page.follow(Locator::saying("button", "Save")).await;
    says(&page, "Orders, old and new").await;
    page.follow(Locator::saying("main button", "Disable")).await;
    judge(&page, "the question before it is disabled").await;
    page.follow(Locator::saying("main button", "Yes, disable it"))
        .await;
    says(&page, "disabled").await;
    let id = endpoint.rsplit('/').next().expect("an id");
    let path = format!("/v1/tenants/acme/endpoints/{id}");
    let told = stage.api.get(&path).await.expect(200);
    assert_eq!(told["status"], "disabled");
    assert_eq!(told["timeout"], "5s");
    quiet(&page, "the endpoint");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_be_done_can_be_done_without_script() {
    let mut stage = Stage::start().await;
    let own = create_tenant(&mut stage, "acme", "Acme").await;
    let page = stage.browser.page().await;
    page.emulate(Look::WITHOUT_SCRIPT).await;
    page.open(&stage.url("/dashboard/t/acme/dead-letters"))
        .await;
    page.fill(Locator::labelled("Key"), ADMIN_KEY).await;
    page.follow(Locator::saying("button", "Sign in")).await;
    stage
        .receivers
        .recover(&format!("{}/billing", mark("acme")));
    page.follow(Locator::saying("main button", "Replay all 3"))
        .await;
    assert!(page.url().await.contains("/replays/rpl_"));
    stage.until_status("acme", &own.failed, "succeeded").await;
    page.open(&stage.url(&format!("/dashboard/t/acme/deliveries/{}", own.failed)))
        .await;
    says(&page, "succeeded").await;
    page.follow(Locator::saying("button", "Sign out")).await;
    says(&page, "signed out").await;
    quiet(&page, "without script");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_is_seen_before_it_is_used() {
    let stage = Stage::start().await;
    let page = stage.signed_in().await;
    page.follow(Locator::saying("nav a", "Retry lab")).await;
    let before = page.text("main").await;
    page.choose("[name=preset]", "swift").await;
    page.fill(Locator::labelled("It is down for"), "30m").await;
    page.follow(Locator::saying("button", "Show")).await;
    // The URL contains the chosen values, so that a user can share it.
    let address = page.url().await;
    assert!(
        address.contains("preset=swift") && address.contains("outage=30m"),
        "{address}"
    );
    let after = page.text("main").await;
    assert_ne!(before, after);
    for words in [
        "The simulated recovery",
        "A naive sender",
        "Most in one second after recovery",
    ] {
        assert!(after.contains(words), "no {words:?} in {after}");
    }
    assert!(
        page.ask("document.querySelectorAll('main svg').length")
            .await
            .as_u64()
            >= Some(3)
    );
    judge(&page, "the lab").await;
    page.fill(Locator::labelled("It is down for"), "for ever")
        .await;
    page.follow(Locator::saying("button", "Show")).await;
    page.complaints();
    judge(&page, "the lab with a mistake").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_customer_is_sent_to_what_failed_and_to_nothing_else() {
    let mut stage = Stage::start().await;
    let own = create_tenant(&mut stage, "acme", "Acme").await;
    create_tenant(&mut stage, "globex", "Globex").await;
    let page = stage.signed_in().await;
    page.open(&stage.url("/dashboard/t/acme/dead-letters"))
        .await;
    page.follow(Locator::saying("main button", "Make a link"))
        .await;
    judge(&page, "a link for the customer").await;
    let link = page
        .ask("[...document.querySelectorAll('main code')].map(one => one.innerText).find(text => text.includes('/portal/'))")
        .await;
    let link = link.as_str().expect("a link");
    let customer = stage.browser.page().await;
    customer.open(link).await;
    let told = customer.text("main").await;
    assert!(told.contains(&own.failed), "{told}");
    assert!(!told.contains("globex"), "{told}");
    quiet(&customer, "what the customer sees");
}
