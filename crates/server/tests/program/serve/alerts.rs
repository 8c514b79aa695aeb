//! A problem raises one alert, also across restarts.

use std::collections::BTreeMap;

use posthaste_testbed::{MailSetup, MailTls, ReceivedEmail};
use serde_json::{Value, json};

use super::fixture::{Answer, Arrival, Receiver, TestServer};

/// Short times for breakers and for the alert check.
const SETTINGS: [&str; 10] = [
    "--set",
    "alerts.every=1s",
    "--set",
    "alerts.calm=1s",
    "--set",
    "breaker.consecutive_failures=3",
    "--set",
    "breaker.first_wait=100ms",
    "--set",
    "breaker.longest_wait=200ms",
];

fn list(shown: &Value) -> &Vec<Value> {
    shown["data"].as_array().expect("a list")
}

#[tokio::test]
async fn a_tripped_breaker_is_one_alert_from_its_trip_to_its_recovery() {
    let (mut server, mut api) = TestServer::start_with_tenant(&SETTINGS).await;
    let receiver = Receiver::start(|_| Answer::status(503)).await;
    let fields = json!({
        "url": receiver.url_of("hook"),
        "retry_policy": {"backoff": {"kind": "fixed", "interval": "50ms"}, "max_attempts": 20},
    });
    let endpoint = api.endpoint("acme", fields).await;
    let event = json!({"type": "a.b", "payload": {}});
    for _ in 0..3 {
        api.event("acme", event.clone()).await;
    }
    let path = "/v1/tenants/acme/alerts?name=breaker_tripped";
    let open = api.until(path, |shown| !list(shown).is_empty()).await;
    let raised = list(&open)[0].clone();
    assert_eq!(raised["state"], "open");
    assert_eq!(raised["scope"]["endpoint_id"], endpoint["id"]);
    assert_eq!(raised["detail"]["reason"], "consecutive_failures");
    // After a kill and a restart, the same alert continues.
    server.kill();
    server.restart();
    let mut api = server.api();
    receiver.answer(200);
    let over = api
        .until(path, |shown| list(shown)[0]["state"] == "resolved")
        .await;
    assert_eq!(list(&over).len(), 1, "{over:#}");
    assert_eq!(list(&over)[0]["id"], raised["id"]);
    let all = api.get("/v1/alerts?state=open").await.expect(200);
    let tripped = |it: &&Value| it["name"] == "breaker_tripped";
    assert_eq!(list(&all).iter().filter(tripped).count(), 0);
}

/// Name of the alert for a ratio that leaves its range.
const ALERT: &str = "dead_letter_ratio";
const ALERT_SETTINGS: [&str; 9] = [
    "alerts.every=1s",
    "alerts.calm=1s",
    "alerts.dead_letter_ratio=0.5",
    "notices.tenant=operator",
    "notices.gather=500ms",
    "mail.tls=none",
    "mail.from=posthaste@example.com",
    "mail.to=ops@example.com",
    "mail.every=500ms",
];

/// Counts the reports to the operator's endpoint that an alert was raised and resolved, by alert.
fn reports(records: &[Arrival]) -> BTreeMap<String, (usize, usize)> {
    let mut reports: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for arrival in records.iter().filter(|it| it.path.ends_with("ops")) {
        let body: Value = serde_json::from_slice(&arrival.body).expect("JSON");
        if body["alert"]["name"] != ALERT {
            continue;
        }
        let alert = body["alert"]["id"].as_str().expect("an id");
        let (raised, resolved) = reports.entry(alert.to_owned()).or_default();
        match body["type"].as_str() {
            Some("alert.raised") => *raised += 1,
            Some("alert.resolved") => *resolved += 1,
            other => panic!("an alert is {other:?}"),
        }
    }
    reports
}

/// Returns how often emails report that the alert about this was raised and resolved.
fn mailed(emails: &[ReceivedEmail], about: &str) -> (usize, usize) {
    let lines = emails.iter().flat_map(|email| email.text.lines());
    let said: Vec<&str> = lines.filter_map(|line| line.strip_prefix(about)).collect();
    let raised = said
        .iter()
        .filter(|said| said.starts_with("dead-letter rate is"));
    let over = said
        .iter()
        .filter(|said| said.starts_with("resolved: dead-letter rate too high"));
    (raised.count(), over.count())
}

#[tokio::test]
async fn an_alert_is_raised_and_resolved_once_when_a_ratio_leaves_its_range() {
    let mail = MailSetup::new(MailTls::None).start();
    let to_mail = format!("mail.server=smtp://localhost:{}", mail.port);
    let settings = ALERT_SETTINGS.into_iter().chain([to_mail.as_str()]);
    let settings: Vec<&str> = settings.flat_map(|setting| ["--set", setting]).collect();
    let server = TestServer::start(&settings);
    let receiver = Receiver::start(|_| Answer::status(400)).await;
    receiver.answer_at("ops", Answer::status(200));
    let mut api = server.api();
    api.endpoint("operator", json!({"url": receiver.url_of("ops")}))
        .await;
    api.tenant("acme").await;
    let url = receiver.url_of("hook");
    api.endpoint("acme", json!({ "url": url })).await;
    let event = json!({"type": "a.b", "payload": {}});
    let events = |count| json!({ "events": vec![event.clone(); count] });
    let batch = "/v1/tenants/acme/events/batch";
    api.post(batch, events(30)).await.expect(202);
    let path = format!("/v1/alerts?name={ALERT}");
    // One alert each for the whole server, the tenant and the endpoint.
    let open = api.until(&path, |shown| list(shown).len() == 3).await;
    for alert in list(&open) {
        assert_eq!(alert["state"], "open");
        assert_eq!(alert["detail"]["value"], 1.0, "{alert}");
        assert_eq!(alert["detail"]["threshold"], 0.5, "{alert}");
    }
    receiver.answer(200);
    api.post(batch, events(60)).await.expect(202);
    let over = api
        .until(&path, |shown| {
            list(shown).iter().all(|alert| alert["state"] == "resolved")
        })
        .await;
    let ids = |shown: &Value| -> Vec<String> {
        let ids = list(shown).iter().map(|alert| alert["id"].to_string());
        ids.collect()
    };
    assert_eq!(ids(&over), ids(&open), "raised once");

    let once = |records: &[Arrival]| {
        let reports = reports(records);
        reports.len() == 3
            && reports
                .values()
                .all(|(raised, over)| *raised > 0 && *over > 0)
    };
    let records = receiver.until(once).await;
    let reports = reports(&records);
    assert!(
        reports.values().all(|times| *times == (1, 1)),
        "{reports:?}"
    );
    let abouts = [
        "Server: ".to_owned(),
        "Tenant acme: ".to_owned(),
        format!("Endpoint {url} of acme: "),
    ];
    let all = |emails: &[ReceivedEmail]| {
        let mut abouts = abouts.iter();
        abouts.all(|about| mailed(emails, about).1 > 0)
    };
    let emails = mail.until(all).await;
    for about in &abouts {
        assert_eq!(mailed(&emails, about), (1, 1), "{about}: {emails:#?}");
    }
    let open = api.get("/v1/alerts?state=open").await.expect(200);
    let open = list(&open).iter().filter(|it| it["name"] == ALERT);
    assert_eq!(open.count(), 0);
}
