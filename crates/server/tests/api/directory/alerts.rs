//! The API for current and past alerts: content and filters.
//!
//! The tests put alerts into the store of a [`TestServer`].

use posthaste_core::alert::AlertName;
use posthaste_core::id::{AlertId, EndpointId, first_sequence, id_of};
use posthaste_core::time::Timestamp;
use posthaste_store::{Alert, Alerts, CreateResult, SubjectScope};
use serde_json::{Value, json};

use crate::fixture::TestServer;

/// Time at which the first alert was raised.
const BEGUN: u64 = 1_577_836_800_000;

async fn raise(
    server: &TestServer,
    ms: u64,
    name: AlertName,
    scope: SubjectScope,
    detail: Value,
) -> Alert {
    let at = Timestamp(BEGUN + ms);
    let alert = Alert {
        id: AlertId(id_of(first_sequence(at), ms)),
        name,
        scope,
        tenant: None,
        is_gone: false,
        raised_at: at,
        resolved_at: None,
        detail,
    };
    let raised = server.store.raise_alert(at, alert.clone()).await;
    assert_eq!(raised, Ok(CreateResult::Created));
    alert
}

fn endpoint_of(path: &str) -> EndpointId {
    let id = path.rsplit('/').next().expect("an id");
    id.parse().expect("an id")
}

#[tokio::test]
async fn an_alert_names_its_endpoint_and_reason() {
    let server = TestServer::without_tenants().await;
    let key = server.tenant("acme").await;
    let other = server.tenant("other").await;
    let path = server.endpoint_path("acme").await;
    let endpoint = endpoint_of(&path);
    let metric = json!({"value": 0.25, "threshold": 0.1, "window": "1h", "samples": 480});
    let wide = raise(
        &server,
        1,
        AlertName::RetryRatio,
        SubjectScope::Everything,
        metric,
    )
    .await;
    let acme = SubjectScope::Tenant("acme".parse().expect("an id"));
    let own = raise(&server, 2, AlertName::DeadLetterRatio, acme, json!({})).await;
    let tripped = json!({"reason": "failure_ratio", "notice": 9});
    let scope = SubjectScope::Endpoint(endpoint);
    let trip = raise(&server, 3, AlertName::BreakerTripped, scope, tripped).await;
    let ended = server
        .store
        .resolve_alert(Timestamp(BEGUN + 9), own.id)
        .await;
    assert!(ended.is_ok_and(|ended| ended.is_some()));

    let all = server.get("/v1/alerts").await;
    let ids = [&trip, &own, &wide].map(|alert| alert.id.to_string());
    assert_eq!(all.ids(), ids.each_ref().map(String::as_str));
    assert_eq!(
        all.json["data"][2],
        json!({
            "id": ids[2], "name": "retry_ratio",
            "scope": {"kind": "everything", "tenant_id": null, "endpoint_id": null},
            "state": "open", "raised_at": "2020-01-01T00:00:00.001Z", "resolved_at": null,
            "value": 0.25, "threshold": 0.1, "current": null, "peak": 0.25,
            // Nothing is measured, so the value is normal.
            "clears_at": "2026-01-02T03:04:05.678Z",
            "clears_when": "when the value has been at most 10 % for 5 min",
            "message": "Retry rate is 25 % over the last hour (threshold 10 %).",
            "runbook": "/docs/operations#retry_ratio",
            "detail": {"value": 0.25, "threshold": 0.1, "window": "1h", "samples": 480},
        })
    );
    let shown = &all.json["data"];
    assert_eq!(shown[1]["state"], "resolved");
    assert_eq!(shown[1]["resolved_at"], "2020-01-01T00:00:00.009Z");
    let scope =
        json!({"kind": "endpoint", "tenant_id": "acme", "endpoint_id": endpoint.to_string()});
    assert_eq!(shown[0]["scope"], scope);
    assert_eq!(shown[0]["value"], Value::Null);

    // A tenant sees its own alerts and those of its endpoints. Another tenant sees none of them.
    let seen = server
        .call("GET", "/v1/tenants/acme/alerts", &key, Value::Null)
        .await;
    assert_eq!(seen.ids(), [ids[0].as_str(), &ids[1]]);
    let none = server
        .call("GET", "/v1/tenants/other/alerts", &other, Value::Null)
        .await;
    assert_eq!(none.ids(), [""; 0]);
    let other = server
        .call("GET", "/v1/tenants/acme/alerts", &other, Value::Null)
        .await;
    assert_eq!(other.status, 404);
    let everything = server.call("GET", "/v1/alerts", &key, Value::Null).await;
    assert_eq!(everything.status, 403);
}

#[tokio::test]
async fn alerts_are_found_by_state_name_tenant_endpoint_and_time() {
    let server = TestServer::with_acme().await;
    let path = server.endpoint_path("acme").await;
    let endpoint = endpoint_of(&path);
    let mut ids = Vec::new();
    for (ms, name) in (1..).zip(AlertName::ALL) {
        let scope = match ms % 3 {
            0 => SubjectScope::Everything,
            1 => SubjectScope::Tenant("acme".parse().expect("an id")),
            _ => SubjectScope::Endpoint(endpoint),
        };
        let alert = raise(&server, ms, name, scope, json!({})).await;
        if ms <= 4 {
            let end = server
                .store
                .resolve_alert(Timestamp(BEGUN + 100), alert.id)
                .await;
            assert!(end.is_ok_and(|end| end.is_some()));
        }
        ids.insert(0, alert.id.to_string());
    }
    let last = AlertName::ALL.len() as u64;
    let at = |ms: u64| Timestamp(BEGUN + ms).to_string();
    for (query, wanted) in [
        ("".to_owned(), (1..=last).collect::<Vec<u64>>()),
        ("state=open".to_owned(), (5..=last).collect()),
        ("state=resolved".to_owned(), (1..=4).collect()),
        ("name=retry_ratio".to_owned(), vec![1]),
        (
            "tenant=acme".to_owned(),
            (1..=last).filter(|ms| ms % 3 > 0).collect(),
        ),
        ("tenant=missing".to_owned(), vec![]),
        (
            format!("endpoint={endpoint}&state=open"),
            (5..=last).filter(|ms| ms % 3 == 2).collect(),
        ),
        (format!("since={}&until={}", at(3), at(6)), vec![3, 4, 5]),
    ] {
        let mut found = Vec::new();
        let mut cursor = String::new();
        loop {
            let page = server
                .get(&format!("/v1/alerts?limit=2&{query}{cursor}"))
                .await;
            found.extend(page.ids().iter().map(|id| (*id).to_owned()));
            match page.json["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        let wanted: Vec<String> = wanted
            .iter()
            .rev()
            .map(|ms| ids[(last - *ms) as usize].clone())
            .collect();
        assert_eq!(found, wanted, "{query}");
    }
    let wrong = server
        .get("/v1/alerts?state=shut&name=x&tenant=a%20b&endpoint=1&since=soon&until=x&limit=0")
        .await;
    let mut fields = wrong.wrong_fields();
    fields.sort();
    let all = [
        "endpoint", "limit", "name", "since", "state", "tenant", "until",
    ];
    assert_eq!(fields, all);
    let wrong = server.get("/v1/tenants/acme/alerts?tenant=acme").await;
    assert_eq!(wrong.wrong_fields(), ["tenant"]);
}
