//! A user finds, understands and fixes a failed delivery on the pages.

use posthaste_testbed::Answer;
use posthaste_testbed::browser::{Locator, Page};
use serde_json::json;

use super::fixture::PagesFixture;
use super::page_checks::{assert_no_errors, check_page};

/// Sets a marker that a reload of the page would remove.
pub(crate) async fn put_marker(page: &Page) {
    page.ask("window.marker = 'here since then'").await;
}

/// Checks that the page was not reloaded since the marker was set.
pub(crate) async fn assert_marker(page: &Page) {
    let marker = page.ask("window.marker ?? null").await;
    assert_eq!(marker, "here since then", "the page was reloaded");
}

/// Waits until the page contains these words.
pub(crate) async fn says(page: &Page, words: &str) {
    page.wait_for(Locator::with_text("main", words)).await;
}

/// Waits until the page no longer contains these words.
pub(crate) async fn says_no_more(page: &Page, words: &str) {
    let words = json!(words);
    let gone = format!("!document.querySelector('main').innerText.includes({words})");
    page.until(&gone).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_delivery_is_found_fixed_and_shown_as_succeeded() {
    let mut fixture = PagesFixture::start().await;
    fixture.api.tenant("acme").await;
    fixture.api.tenant("globex").await;
    let orders = json!({"event_types": ["order.*"]});
    fixture.endpoint("acme", "orders", orders).await;
    let invoices = json!({"event_types": ["invoice.*"]});
    let endpoint = fixture.endpoint("acme", "billing", invoices).await;
    fixture
        .receiver
        .answer_at("billing", Answer::text(503, "the ledger is being moved"));
    fixture
        .delivered("acme", "order.placed", json!({}), "succeeded")
        .await;
    let mut delivery = String::new();
    for number in 5..=7 {
        let invoice = json!({"invoice": format!("INV-{number}")});
        delivery = fixture
            .delivered("acme", "invoice.paid", invoice, "failed")
            .await;
    }

    // From the overview to the failing endpoint, which is the only one listed.
    let page = fixture.signed_in().await;
    assert!(!page.has(Locator::with_text("main a", "/orders")).await);
    page.follow(Locator::with_text("main a", "/billing")).await;
    assert!(
        page.url().await.ends_with(&endpoint),
        "{}",
        page.url().await
    );
    assert_no_errors(&page, "the endpoint");
    // To its dead letters, and to the newest of them.
    page.follow(Locator::with_text("nav a", "Dead letters"))
        .await;
    says(&page, "/billing").await;
    page.follow(Locator::with_text("main a", "invoice.paid"))
        .await;
    assert!(
        page.url().await.ends_with(&delivery),
        "{}",
        page.url().await
    );
    page.click(Locator::with_text("summary", "of attempt 2"))
        .await;
    says(&page, "the ledger is being moved").await;
    let text = page.text("main").await;
    for fact in [
        "failed",
        "503",
        "the ledger is being moved",
        "INV-7",
        "curl",
    ] {
        assert!(text.contains(fact), "no {fact:?} in {text}");
    }
    assert!(
        page.has("main svg[role=img]").await,
        "the page shows the timeline chart"
    );

    // One page watches while another page acts.
    put_marker(&page).await;
    let acts = page.another().await;
    acts.open(&page.url().await).await;
    let before = fixture.receiver.count();
    fixture.receiver.answer_at("billing", Answer::status(200));
    acts.follow(Locator::with_text("main button", "Send again"))
        .await;
    put_marker(&acts).await;
    for watching in [&page, &acts] {
        says(watching, "succeeded").await;
        says_no_more(watching, "Failed at").await;
        assert_marker(watching).await;
        assert_no_errors(watching, "the delivery, repaired");
    }
    fixture
        .api
        .until_status("acme", &delivery, "succeeded")
        .await;
    assert_eq!(fixture.receiver.count(), before + 1);
    // The other dead letters remain, and the audit log names this action.
    page.follow(Locator::with_text("nav a", "Dead letters"))
        .await;
    says(&page, "Replay all 2").await;
    page.open(&fixture.url("/dashboard/audit")).await;
    says(&page, &delivery).await;
    assert_no_errors(&page, "the audit");
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_replayed_and_the_progress_is_shown() {
    let mut fixture = PagesFixture::start().await;
    fixture.api.tenant("acme").await;
    for (name, kind) in [("billing", "invoice.*"), ("crm", "customer.*")] {
        fixture
            .receiver
            .answer_at(name, Answer::text(503, "not now"));
        let fields = json!({"event_types": [kind]});
        fixture.endpoint("acme", name, fields).await;
    }
    let mut invoices = Vec::new();
    for number in 0..6 {
        let payload = json!({"number": number});
        invoices.push(
            fixture
                .delivered("acme", "invoice.paid", payload, "failed")
                .await,
        );
    }
    fixture
        .delivered("acme", "customer.created", json!({}), "failed")
        .await;
    fixture.receiver.answer_at("billing", Answer::status(200));

    let page = fixture.signed_in().await;
    page.open(&fixture.url("/dashboard/t/acme/dead-letters"))
        .await;
    for word in ["/billing", "/crm", "Replay all 6", "Replay all 1"] {
        says(&page, word).await;
    }
    put_marker(&page).await;

    // First two of them.
    let acts = page.another().await;
    acts.open(&page.url().await).await;
    let billing = Locator::with_text("main section", "/billing");
    acts.follow(Locator::within(&billing, "a", "Select deliveries"))
        .await;
    for chosen in &invoices[..2] {
        acts.click(&*format!("input[name=delivery][value=\"{chosen}\"]"))
            .await;
    }
    acts.follow(Locator::with_text("main button", "Replay selected"))
        .await;
    for chosen in &invoices[..2] {
        fixture.api.until_status("acme", chosen, "succeeded").await;
    }
    says(&page, "Replay all 4").await;

    // Then all others, with the progress on the replay's page.
    acts.open(&fixture.url("/dashboard/t/acme/dead-letters"))
        .await;
    // A replay says how many deliveries match and needs a confirmation, and the user can decline.
    acts.follow(Locator::with_text("main a", "Replay all 4"))
        .await;
    says(&acts, "4 deliveries match").await;
    check_page(&acts, "the question before a replay").await;
    acts.follow(Locator::with_text("main a", "Cancel")).await;
    assert_eq!(fixture.receiver.count(), 16, "nothing was sent");
    acts.open(&fixture.url("/dashboard/t/acme/dead-letters"))
        .await;
    acts.follow(Locator::with_text("main a", "Replay all 4"))
        .await;
    acts.follow(Locator::with_text("main button", "Replay 4 deliveries"))
        .await;
    assert!(
        acts.url().await.contains("/replays/rpl_"),
        "{}",
        acts.url().await
    );
    put_marker(&acts).await;
    says(&acts, "4 of 4").await;
    says(&acts, "4 delivered, 0 failed, 0 waiting").await;
    says(&acts, "done").await;
    assert_marker(&acts).await;
    for invoice in &invoices {
        fixture.api.until_status("acme", invoice, "succeeded").await;
    }
    // The watching page has shown that one group disappeared and the other one stayed.
    says_no_more(&page, "/billing").await;
    says(&page, "/crm").await;
    assert_marker(&page).await;
    for (page, named) in [(&page, "the dead letters"), (&acts, "the replay")] {
        assert_no_errors(page, named);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn live_updates_end_with_the_session() {
    let mut fixture = PagesFixture::start().await;
    fixture.api.tenant("acme").await;
    let page = fixture.signed_in().await;
    page.open(&fixture.url("/dashboard/t/acme/deliveries"))
        .await;
    page.until("document.body.dataset.live === 'on'").await;
    let leaves = page.another().await;
    leaves.open(&fixture.url("/dashboard")).await;
    leaves
        .follow(Locator::with_text("button", "Sign out"))
        .await;
    page.until("document.body.dataset.live === 'ended'").await;
    let text = page.text("#live-state").await;
    assert!(text.contains("Your session or link has ended"), "{text}");
    // From here on the page gets no updates.
    let endpoint = fixture.endpoint("acme", "hook", json!({})).await;
    fixture
        .delivered("acme", "invoice.paid", json!({}), "succeeded")
        .await;
    assert!(
        !page.text("main").await.contains("invoice.paid"),
        "{endpoint}"
    );
    assert_no_errors(&page, "the page after signing out");
}
