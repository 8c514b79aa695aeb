//! An endpoint fails, recovers, fails again and is disabled. Each change appears exactly once: as a metric, an alert,
//! an operational event, an email to the owner and the operator, and an audit log entry.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use posthaste_testbed::{MailServer, MailSetup, MailTls, ReceivedEmail};
use serde_json::{Value, json};

use super::fixture::{Answer, Api, Arrival, Receiver, TestServer};

/// Maximum time to wait for a condition.
const PATIENCE: Duration = Duration::from_secs(60);
/// Interval between reads of the metrics.
const LOOK: Duration = Duration::from_millis(20);

const OWNER: &str = "owner@example.com";
const OPERATOR: &str = "ops@example.com";

/// Short times for everything that normally takes minutes or hours.
const SHORT_TIMES: [&str; 12] = [
    "notices.tenant=operator",
    "notices.gather=500ms",
    "mail.tls=none",
    "mail.from=posthaste@example.com",
    "mail.to=ops@example.com",
    "mail.every=500ms",
    "alerts.every=1s",
    "alerts.calm=1s",
    "breaker.consecutive_failures=3",
    "breaker.first_wait=100ms",
    "breaker.longest_wait=200ms",
    // Refusals are to fail deliveries here, not to hold them.
    "breaker.refusals=1000000",
];
/// Duration of failure until the warning, and from the warning until the endpoint is disabled.
const FAILING: Duration = Duration::from_secs(2);

/// The changes of the endpoint: the operational event, and the words in an email.
const CHANGES: [(&str, &str); 4] = [
    ("endpoint.breaker_tripped", "breaker tripped"),
    ("endpoint.recovered", "recovered"),
    (
        "endpoint.disable_warning",
        "will be disabled if it keeps failing",
    ),
    ("endpoint.disabled", "acme: disabled"),
];
/// The alerts on the way.
const WRONG: [&str; 3] = ["breaker_tripped", "disable_warning", "endpoint_disabled"];

struct OutageFixture {
    mail: MailServer,
    server: TestServer,
    receiver: Receiver,
    endpoint: String,
}

impl OutageFixture {
    async fn start() -> OutageFixture {
        let mail = MailSetup::new(MailTls::None).start();
        let to_mail = format!("mail.server=smtp://localhost:{}", mail.port);
        let settings = SHORT_TIMES.into_iter().chain([to_mail.as_str()]);
        let settings: Vec<&str> = settings.flat_map(|setting| ["--set", setting]).collect();
        let server = TestServer::start(&settings);
        let receiver = Receiver::healthy().await;
        receiver.answer_at("ops", Answer::status(200));
        let mut api = server.api();
        api.endpoint("operator", json!({"url": receiver.url_of("ops")}))
            .await;
        api.tenant("acme").await;
        let fields = json!({
            "url": receiver.url_of("hook"),
            "owner_email": OWNER,
            "rate_limit": {"per_second": 1_000, "burst": 1_000},
            "retry_policy": {"backoff": {"kind": "fixed", "interval": "50ms"}, "max_attempts": 50},
        });
        let endpoint = api.endpoint("acme", fields).await;
        OutageFixture {
            endpoint: endpoint["id"].as_str().expect("an id").to_owned(),
            mail,
            server,
            receiver,
        }
    }

    fn api(&self) -> Api {
        self.server.api()
    }

    /// Changes when the endpoint is disabled.
    async fn disable_after(&self, after: &str, warn_before: &str) {
        let path = format!("/v1/tenants/acme/endpoints/{}", self.endpoint);
        let disable = json!({"after": after, "warn_before": warn_before});
        let protection = json!({"protection": {"disable": disable}});
        let changed = self.api().call("PATCH", &path, Some(&protection)).await;
        changed.expect(200);
    }

    async fn send(&self, events: usize) {
        let event = json!({"type": "a.b", "payload": {}});
        let body = json!({ "events": vec![event; events] });
        let sent = self.api().post("/v1/tenants/acme/events/batch", body).await;
        sent.expect(202);
    }

    /// Waits until the change was reported: by an operational event, and by emails to owner and operator.
    async fn until_reported(&self, (event_type, words): (&str, &str)) {
        let of_it = |arrival: &Arrival| {
            arrival.path.ends_with("ops") && arrival.header("posthaste-event-type") == event_type
        };
        self.receiver
            .until(|records| records.iter().any(of_it))
            .await;
        let is_reported = |emails: &[ReceivedEmail], to: &str| emails_with(emails, to, words) > 0;
        let both =
            |emails: &[ReceivedEmail]| is_reported(emails, OWNER) && is_reported(emails, OPERATOR);
        self.mail.until(both).await;
    }

    /// Waits until an alert of the endpoint has this state.
    async fn until_alert(&self, name: &str, state: &str) {
        let path = format!("/v1/tenants/acme/alerts?name={name}");
        let endpoint = self.endpoint.as_str();
        self.api()
            .until(&path, |shown| {
                let mut alerts = shown["data"].as_array().expect("a list").iter();
                alerts.any(|it| it["scope"]["endpoint_id"] == endpoint && it["state"] == state)
            })
            .await;
    }

    /// Waits until a metric has this value.
    async fn until_metric(&self, sample: &str, value: &str) {
        let wanted = format!("{sample} {value}");
        let is_there = |page: &str| page.lines().any(|line| line == wanted);
        let mut api = self.api();
        let begun = Instant::now();
        loop {
            let page = api.get("/metrics").await.text;
            if is_there(&page) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "never {wanted}:\n{page}");
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Number of emails to this recipient with these words.
fn emails_with(emails: &[ReceivedEmail], to: &str, words: &str) -> usize {
    let says_so = |email: &&ReceivedEmail| email.to == [to] && email.text.contains(words);
    emails.iter().filter(says_so).count()
}

/// Counts the operational events about this endpoint, by type.
fn events_by_type(receiver: &Receiver, endpoint: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for arrival in receiver.records() {
        if arrival.path.ends_with("ops") {
            let body: Value = serde_json::from_slice(&arrival.body).expect("JSON");
            if body["endpoint_id"] == endpoint {
                *counts
                    .entry(body["type"].as_str().expect("a name").to_owned())
                    .or_default() += 1;
            }
        }
    }
    counts
}

#[tokio::test]
async fn every_status_change_of_an_endpoint_is_reported_everywhere_once() {
    let mut fixture = OutageFixture::start().await;
    let [tripped, recovered, warned, disabled] = CHANGES;

    fixture.receiver.answer(503);
    fixture.send(3).await;
    fixture.until_alert("breaker_tripped", "open").await;
    fixture
        .until_metric("posthaste_alerts{name=\"breaker_tripped\"}", "1")
        .await;
    fixture.until_reported(tripped).await;

    fixture.receiver.answer(200);
    fixture.until_reported(recovered).await;
    fixture.until_alert("breaker_tripped", "resolved").await;
    fixture
        .until_metric("posthaste_alerts{name=\"breaker_tripped\"}", "0")
        .await;
    fixture
        .until_metric("posthaste_breakers{state=\"tripped\"}", "0")
        .await;

    fixture.disable_after("4s", "2s").await;
    fixture.receiver.answer(400);
    fixture.send(80).await;
    tokio::time::sleep(FAILING).await;
    fixture.send(1).await;
    fixture.until_alert("disable_warning", "open").await;
    fixture.until_reported(warned).await;
    tokio::time::sleep(FAILING).await;
    fixture.send(19).await;
    fixture.until_alert("endpoint_disabled", "open").await;
    fixture.until_alert("disable_warning", "resolved").await;
    fixture
        .until_metric("posthaste_alerts{name=\"endpoint_disabled\"}", "1")
        .await;
    fixture
        .until_metric("posthaste_deliveries_total{status=\"failed\"}", "100")
        .await;
    fixture.until_metric("posthaste_dead_letters", "100").await;
    fixture.until_reported(disabled).await;

    // A power cut in between causes no second report.
    fixture.server.kill();
    fixture.server.restart();
    let mut api = fixture.api();
    let enable = format!("/v1/tenants/acme/endpoints/{}/enable", fixture.endpoint);
    fixture.receiver.answer(200);
    api.call("POST", &enable, None).await.expect(200);
    fixture.until_alert("endpoint_disabled", "resolved").await;
    // This is the last event, so all earlier ones have been sent.
    let last = |records: &[Arrival]| {
        let reported = records
            .iter()
            .filter(|arrival| arrival.path.ends_with("ops"));
        let bodies =
            reported.map(|arrival| serde_json::from_slice::<Value>(&arrival.body).expect("JSON"));
        let mut over = bodies.filter(|body| body["type"] == "alert.resolved");
        over.any(|body| body["alert"]["name"] == "endpoint_disabled")
    };
    fixture.receiver.until(last).await;

    let counts = events_by_type(&fixture.receiver, &fixture.endpoint);
    for (name, _) in CHANGES {
        assert_eq!(counts.get(name), Some(&1), "{name}: {counts:?}");
    }
    assert!(counts["delivery.failed"] < 10, "{counts:?}");

    let path = "/v1/tenants/acme/alerts?limit=250";
    let alerts = api.get(path).await.expect(200);
    let alerts = alerts["data"].as_array().expect("a list");
    for name in WRONG {
        let of_it = |it: &&Value| {
            it["name"] == name && it["scope"]["endpoint_id"] == fixture.endpoint.as_str()
        };
        assert_eq!(
            alerts.iter().filter(of_it).count(),
            1,
            "{name}: {alerts:#?}"
        );
    }

    let path = "/v1/tenants/acme/audit?limit=250";
    let audit = api.get(path).await.expect(200);
    let audit = audit["data"].as_array().expect("a list");
    for (action, _) in CHANGES {
        let of_it = |it: &&Value| it["action"] == action && it["via"] == "posthaste";
        assert_eq!(
            audit.iter().filter(of_it).count(),
            1,
            "{action}: {audit:#?}"
        );
    }
    let by_hand = audit
        .iter()
        .filter(|it| it["action"] == "enable_endpoint")
        .count();
    assert_eq!(by_hand, 1, "{audit:#?}");

    let emails = fixture.mail.emails();
    for (_, words) in CHANGES {
        for to in [OWNER, OPERATOR] {
            assert!(emails_with(&emails, to, words) >= 1, "{words} to {to}");
        }
        // Emails about alerts use the same words, but only the operator gets them.
        assert_eq!(
            emails_with(&emails, OWNER, words),
            1,
            "{words}: {emails:#?}"
        );
    }
}
