//! Operational events are sent exactly once, also across restarts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use standardwebhooks::Webhook;

use super::fixture::{Answer, Api, Arrival, Receiver, TestServer};

/// The operator's tenant, and short times for breakers.
const SETTINGS: [&str; 12] = [
    "--set",
    "notices.tenant=operator",
    "--set",
    "notices.gather=1s",
    "--set",
    "breaker.consecutive_failures=3",
    "--set",
    "breaker.first_wait=100ms",
    "--set",
    "breaker.longest_wait=200ms",
    // Refusals are to fail deliveries here, not to hold them.
    "--set",
    "breaker.refusals=1000000",
];
/// Number of deliveries that fail until the endpoint is disabled.
const UNTIL_DISABLED: usize = 100;
/// Duration of failure until the warning, and from the warning until the endpoint is disabled (`protection` below). A
/// tenth of a second longer than these, because the clocks of two nodes may differ by some milliseconds.
const FAILING: Duration = Duration::from_millis(2_100);

const HOOK: &str = "hook";
const OPS: &str = "ops";

/// A server, an endpoint with a configurable answer, and the operator's endpoint.
struct OperatorFixture {
    server: TestServer,
    receiver: Receiver,
    endpoint: String,
    secret: String,
}

impl OperatorFixture {
    async fn start(settings: &[&str]) -> OperatorFixture {
        let server = TestServer::start(settings);
        let receiver = Receiver::healthy().await;
        let mut api = server.api();
        let fields = |name: &str| {
            json!({
                "url": receiver.url_of(name),
                "rate_limit": {"per_second": 1_000, "burst": 1_000},
                "retry_policy": {
                    // Probes use up attempts for as long as the test waits for an event.
                    "backoff": {"kind": "fixed", "interval": "50ms"}, "max_attempts": 1_000,
                },
            })
        };
        // The operator's tenant exists already.
        let ops = api.endpoint("operator", fields(OPS)).await;
        api.tenant("acme").await;
        let hook = api.endpoint("acme", fields(HOOK)).await;
        OperatorFixture {
            endpoint: hook["id"].as_str().expect("an id").to_owned(),
            secret: ops["secret"]
                .as_str()
                .expect("a secret in the response")
                .to_owned(),
            server,
            receiver,
        }
    }

    fn api(&self) -> Api {
        self.server.api()
    }

    fn hook_answers(&self, status: u16) {
        self.receiver.answer_at(HOOK, Answer::status(status));
    }

    fn ops_answers(&self, status: u16) {
        self.receiver.answer_at(OPS, Answer::status(status));
    }

    async fn send(&self, count: usize) {
        let event = json!({"type": "a.b", "payload": {}});
        let body = json!({ "events": vec![event; count] });
        let reply = self.api().post("/v1/tenants/acme/events/batch", body).await;
        reply.expect(202);
    }

    /// Lets the endpoint refuse deliveries until the warning that it will be disabled has arrived.
    async fn refuse_until_warned(&self) {
        let path = format!("/v1/tenants/acme/endpoints/{}", self.endpoint);
        let disable = json!({"after": "4s", "warn_before": "2s"});
        let protection = json!({"protection": {"disable": disable}});
        let changed = self.api().call("PATCH", &path, Some(&protection)).await;
        changed.expect(200);
        self.hook_answers(400);
        self.send(UNTIL_DISABLED - 20).await;
        // The duration of failure counts from the first refusal.
        self.until_listed("failed", UNTIL_DISABLED - 20).await;
        tokio::time::sleep(FAILING).await;
        self.send(1).await;
        self.until_received_type("endpoint.disable_warning").await;
    }

    /// Lets the endpoint refuse deliveries until it is disabled.
    async fn refuse_until_disabled(&self) {
        tokio::time::sleep(FAILING).await;
        self.send(19).await;
    }

    /// Waits until this number of deliveries has succeeded.
    async fn until_delivered(&self, count: usize) {
        self.until_listed("succeeded", count).await;
    }

    /// Waits until this number of deliveries has this status.
    async fn until_listed(&self, status: &str, count: usize) {
        let path = format!("/v1/tenants/acme/deliveries?status={status}&limit=250");
        let all = |page: &Value| page["data"].as_array().expect("a list").len() == count;
        self.api().until(&path, all).await;
    }

    /// Waits until the operational events are as wanted, and returns them.
    async fn until_received(&self, wanted: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let records = self
            .receiver
            .until(|records| wanted(&received(records)))
            .await;
        received(&records)
    }

    /// Waits until the operational events are as wanted and none before them is missing: simultaneous events may arrive
    /// in any order.
    async fn until_all_received(&self, wanted: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        self.until_received(|events| wanted(events) && none_is_missing(events))
            .await
    }

    async fn until_received_type(&self, name: &str) {
        self.until_received(|events| events.iter().any(|it| it["type"] == name))
            .await;
    }

    /// Number of events of the operator's tenant, without alerts.
    async fn operational(&self) -> usize {
        let path = "/v1/tenants/operator/events?limit=250";
        let events = self.api().get(path).await.expect(200);
        let types = events["data"].as_array().expect("a list").iter();
        let types = types.filter_map(|event| event["type"].as_str());
        types.filter(|name| !name.starts_with("alert.")).count()
    }

    /// Counts the audit log entries of posthaste itself, by action.
    async fn acts(&self, tenant: &str) -> BTreeMap<String, usize> {
        let path = format!("/v1/audit?tenant={tenant}&limit=250");
        let entries = self.api().get(&path).await.expect(200);
        let mut acts = BTreeMap::new();
        for entry in entries["data"].as_array().expect("a list") {
            if entry["via"] == "posthaste" {
                assert_eq!(entry["actor"], "posthaste");
                assert_eq!(entry["outcome"], "done");
                let action = entry["action"].as_str().expect("a text");
                *acts.entry(action.to_owned()).or_default() += 1;
            }
        }
        acts
    }
}

/// Returns the operational events without duplicates, ordered by number.
fn received(records: &[Arrival]) -> Vec<Value> {
    let mut events = BTreeMap::new();
    for arrival in records.iter().filter(|arrival| arrival.path.ends_with(OPS)) {
        let body: Value = serde_json::from_slice(&arrival.body).expect("JSON");
        let before = events.insert(arrival.event(), body.clone());
        assert!(
            before.is_none_or(|before| before == body),
            "a repeated operational event has the same body"
        );
    }
    let mut events: Vec<Value> = events.into_values().collect();
    events.sort_by_key(|body| body["notice"].as_u64());
    events
}

/// Number of failed deliveries that the operational events report.
fn failed(events: &[Value]) -> u64 {
    let of_it = events.iter().filter(|it| it["type"] == "delivery.failed");
    of_it.filter_map(|it| it["detail"]["count"].as_u64()).sum()
}

/// Returns the event types, without alerts, which other tests check.
fn names(events: &[Value]) -> Vec<&str> {
    let names = events.iter().filter_map(|it| it["type"].as_str());
    names
        .filter(|name| !name.starts_with("alert.") && *name != "delivery.failed")
        .collect()
}

/// Checks that every number up to the largest has arrived at least once.
fn none_is_missing(events: &[Value]) -> bool {
    let numbers: BTreeSet<u64> = events
        .iter()
        .filter_map(|it| it["notice"].as_u64())
        .collect();
    let last = numbers.last().copied().unwrap_or(0);
    numbers.len() as u64 == last
}

/// Checks that each number has arrived exactly once and none is missing.
fn assert_whole(events: &[Value]) {
    let numbers: Vec<u64> = events
        .iter()
        .filter_map(|it| it["notice"].as_u64())
        .collect();
    let distinct: BTreeSet<u64> = numbers.iter().copied().collect();
    assert_eq!(
        numbers.len(),
        distinct.len(),
        "an operational event arrived twice: {numbers:?}"
    );
    let last = numbers.last().copied().unwrap_or(0);
    assert_eq!(
        last as usize,
        numbers.len(),
        "operational events are missing: {numbers:?}"
    );
}

#[tokio::test]
async fn every_endpoint_change_is_one_operational_event() {
    let fixture = OperatorFixture::start(&SETTINGS).await;
    fixture.hook_answers(503);
    fixture.send(3).await;
    fixture
        .until_received_type("endpoint.breaker_tripped")
        .await;
    fixture.hook_answers(200);
    fixture.until_received_type("endpoint.recovered").await;
    fixture.until_delivered(3).await;
    fixture.refuse_until_warned().await;
    fixture.refuse_until_disabled().await;
    let events = fixture
        .until_all_received(|events| {
            failed(events) == UNTIL_DISABLED as u64
                && names(events).last().copied() == Some("endpoint.disabled")
        })
        .await;
    let expected = [
        "endpoint.breaker_tripped",
        "endpoint.recovered",
        "endpoint.disable_warning",
        "endpoint.disabled",
    ];
    assert_eq!(names(&events), expected);
    assert_whole(&events);
    let is_alert = |it: &&Value| {
        it["type"]
            .as_str()
            .is_some_and(|it| it.starts_with("alert."))
    };
    let but_alerts: Vec<&Value> = events.iter().filter(|it| !is_alert(it)).collect();
    for it in &but_alerts {
        assert_eq!(it["tenant_id"], "acme");
        assert_eq!(it["endpoint_id"], fixture.endpoint.as_str());
        assert_eq!(it["endpoint_url"], fixture.receiver.url_of(HOOK));
    }
    let [tripped, _, warning, disabled] = expected
        .map(|name| events.iter().find(|it| it["type"] == name))
        .map(|it| &it.expect("an operational event")["detail"]);
    assert_eq!(tripped["reason"], "consecutive_failures");
    assert_eq!(warning["cause"], "failing_for_days");
    assert_eq!(disabled["cause"], "failing_for_days");
    let acts = fixture.acts("acme").await;
    for name in expected {
        assert_eq!(acts.get(name), Some(&1), "{name}");
    }
    // Every operational event is signed with the secret of the operator's endpoint.
    let webhook = Webhook::new(&fixture.secret).expect("a secret");
    let records = fixture.receiver.records_at(OPS);
    for arrival in &records {
        let verified = webhook.verify(&arrival.body, &arrival.headers);
        verified.expect("a valid signature");
    }
    assert_eq!(fixture.operational().await, but_alerts.len());
}

#[tokio::test]
async fn a_thousand_dead_letters_are_few_operational_events() {
    let mut settings = SETTINGS.to_vec();
    settings[3] = "notices.gather=3s";
    let fixture = OperatorFixture::start(&settings).await;
    fixture.hook_answers(400);
    let began = Instant::now();
    fixture.send(1_000).await;
    let events = fixture
        .until_received(|events| failed(events) >= 1_000)
        .await;
    let of_it = events.iter().filter(|it| it["type"] == "delivery.failed");
    let of_it: Vec<&Value> = of_it.collect();
    assert_eq!(failed(&events), 1_000);
    let most = 1 + began.elapsed().as_secs() / 3;
    assert!(of_it.len() as u64 <= most, "{} notices", of_it.len());
    let example = of_it[0]["detail"]["delivery_id"].as_str().expect("an id");
    let path = format!("/v1/tenants/acme/deliveries/{example}");
    let delivery = fixture.api().get(&path).await.expect(200);
    assert_eq!(delivery["status"], "failed");
}

#[tokio::test]
async fn after_a_kill_no_operational_event_is_lost_or_repeated() {
    let mut fixture = OperatorFixture::start(&SETTINGS).await;
    for round in 1..=4 {
        fixture.hook_answers(503);
        fixture.send(3).await;
        // Killed after the next arrival, after the endpoint has failed, or after the event about it has arrived.
        let seen = fixture.receiver.records_at(HOOK).len();
        match round % 3 {
            0 => drop(
                fixture
                    .receiver
                    .arrivals(fixture.receiver.count() + 1)
                    .await,
            ),
            1 => {
                let failed = |records: &[Arrival]| {
                    let hook = records.iter().filter(|it| it.path.ends_with(HOOK));
                    hook.count() >= seen + 3
                };
                fixture.receiver.until(failed).await;
            }
            _ => {
                fixture
                    .until_received(|events| {
                        let tripped = |it: &&Value| it["type"] == "endpoint.breaker_tripped";
                        events.iter().filter(tripped).count() >= round - 1
                    })
                    .await;
            }
        }
        fixture.server.kill();
        fixture.hook_answers(200);
        fixture.server.restart();
        fixture.until_delivered(3 * round).await;
    }
    fixture.refuse_until_warned().await;
    fixture.server.kill();
    fixture.server.restart();
    fixture.refuse_until_disabled().await;
    let events = fixture
        .until_all_received(|events| {
            let disabled = events.iter().any(|it| it["type"] == "endpoint.disabled");
            disabled && failed(events) == UNTIL_DISABLED as u64
        })
        .await;
    assert_whole(&events);
    let mut counted = BTreeMap::new();
    for name in names(&events) {
        *counted.entry(name.to_owned()).or_default() += 1;
    }
    let acts = fixture.acts("acme").await;
    let mut audited_actions = acts.clone();
    audited_actions.retain(|name, _| !name.starts_with("alert."));
    assert_eq!(audited_actions, counted, "the audit says the same");
    assert_eq!(counted.get("endpoint.disabled"), Some(&1));
}

#[tokio::test]
async fn operational_events_wait_for_a_failing_receiver_and_exclude_it() {
    let fixture = OperatorFixture::start(&SETTINGS).await;
    fixture.ops_answers(503);
    fixture.hook_answers(503);
    fixture.send(3).await;
    // The operator's endpoint fails until its breaker trips. That is in the audit log and causes no operational event.
    let mut api = fixture.api();
    api.until("/v1/audit?tenant=operator&limit=250", |page| {
        let entries = page["data"].as_array().expect("a list");
        entries
            .iter()
            .any(|entry| entry["action"] == "endpoint.breaker_tripped")
    })
    .await;
    let before = received(&fixture.receiver.records());
    assert!(before.iter().all(|it| it["tenant_id"] != "operator"));
    fixture.hook_answers(200);
    fixture.ops_answers(200);
    let events = fixture
        .until_received(|events| events.iter().any(|it| it["type"] == "endpoint.recovered"))
        .await;
    assert!(events.iter().all(|it| it["tenant_id"] != "operator"));
    // Its recovery is in the audit log, too, and causes no operational event.
    api.until("/v1/audit?tenant=operator&limit=250", |page| {
        let entries = page["data"].as_array().expect("a list");
        entries
            .iter()
            .any(|entry| entry["action"] == "endpoint.recovered")
    })
    .await;
    let ops: Vec<Value> = operational_events_received(&fixture);
    assert_eq!(ops, Vec::<Value>::new());
}

fn operational_events_received(fixture: &OperatorFixture) -> Vec<Value> {
    let events = received(&fixture.receiver.records());
    events
        .into_iter()
        .filter(|it| it["tenant_id"] == "operator")
        .collect()
}
