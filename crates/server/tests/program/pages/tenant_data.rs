//! Fixture data with something of everything: tenants with healthy and failing endpoints, deliveries of every status,
//! and a replay.

use posthaste_testbed::Answer;
use serde_json::{Value, json};

use super::fixture::{PagesFixture, id_of};

/// The resources of one tenant.
pub(crate) struct TenantData {
    /// Endpoint that accepts everything.
    pub(crate) healthy: String,
    /// Endpoint that answers 503 until its receiver is fixed.
    pub(crate) failing: String,
    pub(crate) succeeded: String,
    pub(crate) failed: String,
    pub(crate) event: String,
    pub(crate) replay: String,
}

impl TenantData {
    /// Paths of the tenant's pages that are found only by id.
    pub(crate) fn paths(&self) -> Vec<String> {
        vec![
            format!("/endpoints/{}", self.healthy),
            format!("/endpoints/{}", self.failing),
            format!("/endpoints/{}/edit", self.failing),
            format!("/deliveries/{}", self.succeeded),
            format!("/deliveries/{}", self.failed),
            format!("/events/{}", self.event),
            format!("/replays/{}", self.replay),
        ]
    }
}

/// Creates a schedule with one run, of an event that no endpoint wants.
async fn create_schedule(fixture: &mut PagesFixture, tenant: &str) {
    let schedules = format!("/v1/tenants/{tenant}/schedules");
    let nightly = json!({
        "id": "nightly", "name": format!("Report of {}", mark(tenant)), "cron": "0 9 * * MON-FRI",
        "timezone": "Europe/Berlin", "event": {"type": "report.due", "payload": {"note": mark(tenant)}},
    });
    fixture.api.post(&schedules, nightly).await.expect(201);
    let run = format!("{schedules}/nightly/run");
    fixture.api.post(&run, json!({})).await.expect(202);
}

/// Returns the text in all data of a tenant that other tenants must not see.
pub(crate) fn mark(tenant: &str) -> String {
    format!("only-for-{tenant}")
}

/// Creates a tenant with something of everything.
pub(crate) async fn create_tenant(
    fixture: &mut PagesFixture,
    tenant: &str,
    name: &str,
) -> TenantData {
    let body = json!({"id": tenant, "name": name});
    fixture.api.post("/v1/tenants", body).await.expect(201);
    let mark = mark(tenant);
    let at = |what: &str| format!("{mark}/{what}");
    let failing = at("billing");
    let mut answer = Answer::status(503);
    answer.body = format!("{mark}: the ledger is being moved").into();
    answer.headers.push(("x-served-by", mark.clone()));
    fixture.receiver.answer_at(&failing, answer);

    let wants = |kinds: &[&str], what: &str| json!({"event_types": kinds, "description": format!("{what} of {mark}")});
    let healthy = fixture
        .endpoint(tenant, &at("orders"), wants(&["order.*"], "Orders"))
        .await;
    let failing = fixture
        .endpoint(tenant, &failing, wants(&["invoice.*"], "Billing"))
        .await;
    let paused = fixture
        .endpoint(tenant, &at("stock"), wants(&["stock.*"], "Stock"))
        .await;
    let pause = format!("/v1/tenants/{tenant}/endpoints/{paused}/pause");
    fixture.api.post(&pause, json!({})).await.expect(200);

    let order = json!({"order": 1_042, "note": mark});
    let succeeded = fixture
        .delivered(tenant, "order.placed", order, "succeeded")
        .await;
    let mut failed = String::new();
    for number in 1..=3 {
        let invoice =
            json!({"invoice": format!("{mark}-{number}"), "amount": 12_900, "currency": "EUR"});
        failed = fixture
            .delivered(tenant, "invoice.paid", invoice, "failed")
            .await;
    }
    let stock = json!({"sku": mark, "left": 3});
    fixture.delivered(tenant, "stock.low", stock, "held").await;
    let replays = format!("/v1/tenants/{tenant}/replays");
    // A replay without deliveries, so that the data stays as it is.
    let wanted = json!({"status": "failed", "event_type": "order.placed"});
    let replay = id_of(&fixture.api.post(&replays, wanted).await.expect(202));
    let done = |replay: &Value| replay["status"] == "done";
    fixture
        .api
        .until(&format!("{replays}/{replay}"), done)
        .await;
    create_schedule(fixture, tenant).await;
    let path = format!("/v1/tenants/{tenant}/deliveries/{failed}");
    let delivery = fixture.api.get(&path).await.expect(200);
    let event = delivery["event_id"].as_str().expect("an event").to_owned();
    TenantData {
        healthy,
        failing,
        succeeded,
        failed,
        event,
        replay,
    }
}
