//! Screenshots of the pages for the documentation. Every run takes and checks them. They are written to `docs/images`
//! only if `POSTHASTE_WRITE_DOCS` is set. In that case the test first sends events for five minutes, so that the charts
//! show data:
//!
//! ```text
//! POSTHASTE_WRITE_DOCS=1 scripts/browser run cargo test -p posthaste --test program pictures
//! ```

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use posthaste_testbed::browser::{Page, PageAppearance, png_size};
use posthaste_testbed::{Answer, Arrival};
use serde_json::{Value, json};

use super::fixture::{PagesFixture, id_of, impatient};
use super::page_checks::assert_no_errors;

/// Environment variable that makes the test write the screenshots.
const WRITE_VARIABLE: &str = "POSTHASTE_WRITE_DOCS";
/// Duration of the traffic before screenshots are written.
const PLAY: Duration = Duration::from_secs(300);
/// Minimum number of events.
const EVENTS: usize = 80;
/// Minimum size of a screenshot, in bytes. An empty page is smaller.
const LEAST_BYTES: usize = 8 << 10;
/// Maximum total size of the screenshots in the repository, in bytes.
const MOST_BYTES: usize = 3 << 20;

const LOOKS: [(&str, PageAppearance); 3] = [
    ("", PageAppearance::WIDE),
    ("-dark", PageAppearance::DARK),
    ("-narrow", PageAppearance::NARROW),
];

/// Resources of the tenant Acme.
struct Acme {
    billing: String,
    /// A delivery that is still being retried.
    retrying: String,
    replay: String,
}

/// The answer of the receivers.
fn behaviour(arrival: &Arrival) -> Answer {
    let said = |status: u16, words: &'static str| {
        let mut answer = Answer::status(status);
        answer.body = words.into();
        answer
            .headers
            .push(("content-type", "text/plain".to_owned()));
        answer
    };
    match arrival.path.as_str() {
        "/billing" | "/refunds" => said(503, "ledger is in maintenance, back at 04:00 UTC"),
        "/analytics" => said(422, "unknown field: total_vat"),
        // Fails now and then.
        "/crm" if arrival.number.is_multiple_of(9) => {
            said(500, "deadlock detected, transaction rolled back")
        }
        _ => Answer::status(200),
    }
}

fn event(number: usize) -> Value {
    let payload = json!({
        "id": format!("INV-{}", 20_410 + number), "customer": "cus_1042", "total": 12_900 + 35 * number,
        "currency": "EUR", "lines": [{"sku": "PAPER-A4", "quantity": 12}, {"sku": "TONER-X", "quantity": 1}],
    });
    let kinds = [
        "invoice.paid",
        "order.placed",
        "customer.updated",
        "order.shipped",
        "report.daily",
        "order.placed",
        "customer.created",
        "order.placed",
        "customer.updated",
        "order.shipped",
        "order.placed",
    ];
    json!({"type": kinds[number % kinds.len()], "payload": payload})
}

/// Creates a tenant with several failing endpoints, and sends events.
async fn acme(fixture: &mut PagesFixture, play: Duration) -> Acme {
    fixture.receiver.set_behaviour(behaviour);
    for (id, name) in [("acme", "Acme"), ("globex", "Globex")] {
        let body = json!({"id": id, "name": name});
        fixture.api.post("/v1/tenants", body).await.expect(201);
    }
    let at = |name: &str| fixture.receiver.url_of(name);
    let (orders, billing, crm, analytics, stock) = (
        at("orders"),
        at("billing"),
        at("crm"),
        at("analytics"),
        at("stock"),
    );
    let deaf = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let partner_url = format!(
        "http://{}/partner",
        deaf.local_addr().expect("a bound address")
    );
    drop(deaf);
    let swift = json!({"backoff": {"kind": "exponential", "base": "1s", "factor": 3, "cap": "1h"}, "max_attempts": 8, "give_up_after": "24h"});
    for (tenant, fields) in [
        (
            "acme",
            json!({"url": orders, "description": "Order management", "event_types": ["order.*"]}),
        ),
        (
            "acme",
            json!({"url": crm, "description": "CRM", "event_types": ["customer.*"], "retry_policy": swift}),
        ),
        (
            "acme",
            json!({"url": analytics, "description": "Analytics", "event_types": ["report.*"]}),
        ),
        ("globex", json!({"url": orders, "description": "Shop"})),
    ] {
        fixture.api.endpoint(tenant, fields).await;
    }
    // No receiver listens there.
    let partner = json!({"description": "Partner", "event_types": ["customer.created"]});
    let partner = impatient(&partner_url, partner);
    fixture.api.endpoint("acme", partner).await;
    let fields = json!({"url": billing, "description": "Billing", "event_types": ["invoice.*"]});
    let billing = id_of(&fixture.api.endpoint("acme", fields).await);
    let refunds = fixture.receiver.url_of("refunds");
    let fields = json!({"url": refunds, "description": "Refunds", "event_types": ["refund.*"]});
    fixture.api.endpoint("acme", fields).await;
    let fields = impatient(
        &stock,
        json!({"description": "Warehouse", "event_types": ["order.shipped"]}),
    );
    let stock = id_of(&fixture.api.endpoint("acme", fields).await);
    let pause = format!("/v1/tenants/acme/endpoints/{stock}/pause");
    fixture.api.post(&pause, json!({})).await.expect(200);

    let began = Instant::now();
    let mut number = 0;
    // A single failing delivery trips no breaker, and is still being retried at the end.
    let mut refund = event(0);
    refund["type"] = json!("refund.requested");
    let refund = fixture.api.event("acme", refund).await;
    let retrying = id_of(&refund["deliveries"][0]);
    while number < EVENTS || began.elapsed() < play {
        fixture.api.event("acme", event(number)).await;
        if number.is_multiple_of(3) {
            fixture.api.event("globex", event(number)).await;
        }
        number += 1;
        if !play.is_zero() {
            // The event rate changes every minute.
            let pace = 250 + 200 * (began.elapsed().as_secs() / 60 % 4);
            tokio::time::sleep(Duration::from_millis(pace)).await;
        }
    }
    fixture
        .api
        .until_status("acme", &retrying, "retrying")
        .await;
    let replays = "/v1/tenants/acme/replays";
    let wanted = json!({"status": "succeeded", "event_type": "customer.updated"});
    let replay = id_of(&fixture.api.post(replays, wanted).await.expect(202));
    let done = |replay: &Value| replay["status"] == "done";
    fixture
        .api
        .until(&format!("{replays}/{replay}"), done)
        .await;
    Acme {
        billing,
        retrying,
        replay,
    }
}

fn images() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("../../docs/images")
}

/// Takes a screenshot of the page in every look, and checks that it is not empty.
async fn pictures(page: &Page, name: &str) -> Vec<(String, Vec<u8>)> {
    let mut pictures = Vec::new();
    for (suffix, look) in LOOKS {
        page.emulate(look).await;
        // Scrolls to the fragment of the URL.
        page.ask("document.querySelector(location.hash || 'body').scrollIntoView()")
            .await;
        let picture = page.screenshot(look).await;
        let name = format!("page-{name}{suffix}.png");
        assert_eq!(png_size(&picture), (look.width, look.height), "{name}");
        assert!(
            picture.len() > LEAST_BYTES,
            "{name} has {} bytes",
            picture.len()
        );
        pictures.push((name, picture));
    }
    page.emulate(PageAppearance::WIDE).await;
    assert_ne!(pictures[0].1, pictures[1].1, "{name} is as bright at night");
    pictures
}

#[tokio::test(flavor = "multi_thread")]
async fn screenshots_of_every_page() {
    let write = std::env::var_os(WRITE_VARIABLE).is_some_and(|value| !value.is_empty());
    let mut fixture = PagesFixture::start_with(&["--set", "portal.name=Acme Cloud"]).await;
    let play = if write { PLAY } else { Duration::ZERO };
    let acme = acme(&mut fixture, play).await;
    let page = fixture.signed_in().await;
    let of_acme = |path: &str| fixture.url(&format!("/dashboard/t/acme{path}"));
    let mut taken = Vec::new();
    for (name, url) in [
        ("overview", fixture.url("/dashboard")),
        ("tenant", of_acme("")),
        ("endpoints", of_acme("/endpoints")),
        ("endpoint", of_acme(&format!("/endpoints/{}", acme.billing))),
        ("deliveries", of_acme("/deliveries")),
        (
            "delivery",
            of_acme(&format!("/deliveries/{}", acme.retrying)),
        ),
        ("dead-letters", of_acme("/dead-letters")),
        ("replay", of_acme(&format!("/replays/{}", acme.replay))),
        ("lab", of_acme("/lab#recovery")),
    ] {
        assert_eq!(page.open(&url).await.status, 200, "{name}");
        taken.extend(pictures(&page, name).await);
        assert_no_errors(&page, name);
    }
    let link = fixture.portal("acme", "1h").await;
    let visitor = fixture.browser.page().await;
    visitor.open(link["url"].as_str().expect("a URL")).await;
    taken.extend(pictures(&visitor, "portal").await);
    assert_no_errors(&visitor, "portal");
    let weight: usize = taken.iter().map(|(_, picture)| picture.len()).sum();
    assert!(
        weight < MOST_BYTES,
        "{weight} bytes are too many to carry around"
    );
    if write {
        for (name, picture) in taken {
            std::fs::write(images().join(name), picture).expect("docs/images can be written");
        }
    }
}
