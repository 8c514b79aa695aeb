//! Sends random request bodies to the API. Each answer must be in the OpenAPI document, with its status and schema.

use std::sync::OnceLock;
use std::time::Duration;

use axum::body::Body;
use http::Request;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::fixture::{ADMIN, TestServer};

/// Timeout of a request. Longer than any request that does not hang.
const PATIENCE: Duration = Duration::from_secs(30);

/// The routes that take a body. `{}` stands for an endpoint id.
const BODY_ROUTES: &[(&str, &str)] = &[
    ("POST", "/v1/tenants"),
    ("PATCH", "/v1/tenants/acme"),
    ("POST", "/v1/tenants/acme/keys"),
    ("POST", "/v1/tenants/acme/endpoints"),
    ("PATCH", "/v1/tenants/acme/endpoints/{}"),
    ("POST", "/v1/tenants/acme/endpoints/{}/secret/rotate"),
    ("POST", "/v1/tenants/acme/events"),
    ("POST", "/v1/tenants/acme/events/batch"),
    ("POST", "/v1/tenants/acme/replays"),
    ("POST", "/v1/policies/preview"),
    ("POST", "/v1/policies/simulate"),
    ("POST", "/v1/tenants/acme/requests"),
    ("POST", "/v1/tenants/acme/signing-secret/rotate"),
    ("POST", "/v1/tenants/acme/schedules"),
    ("PATCH", "/v1/tenants/acme/schedules/nightly"),
    ("POST", "/v1/schedules/preview"),
];

/// One server for all cases, so that a case also meets the state that earlier cases left.
struct SharedServer {
    runtime: Runtime,
    server: TestServer,
    endpoint: String,
}

fn shared() -> &'static SharedServer {
    static SHARED: OnceLock<SharedServer> = OnceLock::new();
    SHARED.get_or_init(|| {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let (server, endpoint) = runtime.block_on(async {
            let server = TestServer::without_engine().await;
            let endpoint = server
                .endpoint(json!({"url": "https://example.com/"}))
                .await;
            (server, endpoint)
        });
        SharedServer {
            runtime,
            server,
            endpoint,
        }
    })
}

/// Sends a body to one of the routes and returns the status of the answer.
fn send(route: usize, headers: &[(&str, &str)], body: &[u8]) -> u16 {
    let shared = shared();
    // The clock advances, so that the rate limit does not refuse the requests.
    shared.server.pass_ms(1_000);
    let (verb, path) = BODY_ROUTES[route];
    let path = path.replace("{}", &shared.endpoint);
    let mut request = Request::builder()
        .method(verb)
        .uri(&path)
        .header("authorization", format!("Bearer {ADMIN}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::from(body.to_vec())).expect("a request");
    let answer = shared
        .runtime
        .block_on(async { timeout(PATIENCE, shared.server.send(request)).await });
    let answer = answer.unwrap_or_else(|_| panic!("{verb} {path} hangs"));
    let status = answer.status.as_u16();
    assert!(status < 500, "{verb} {path} answered {status}: {answer:?}");
    assert_ne!(status, 429, "{verb} {path} was not looked at");
    if status >= 400 {
        assert_eq!(answer.headers["content-type"], "application/problem+json");
    }
    status
}

/// Field names, mostly ones that the API knows.
fn name() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "id",
        "name",
        "limits",
        "endpoints",
        "events_per_second",
        "events_per_month",
        "in_flight",
        "plan",
        "payload_bytes",
        "max_attempts",
        "retention",
        "payload_retention",
        "attempt_retention",
        "schedules",
        "shortest_schedule_interval",
        "cron",
        "every",
        "at",
        "timezone",
        "event",
        "request",
        "missed",
        "overlap",
        "default_retry_policy",
        "url",
        "description",
        "event_types",
        "retry_policy",
        "timeout",
        "max_in_flight",
        "rate_limit",
        "per_second",
        "burst",
        "headers",
        "owner_email",
        "secret",
        "secret_kind",
        "signature_style",
        "auth",
        "client_certificate",
        "kind",
        "token_url",
        "client_id",
        "client_secret",
        "username",
        "password",
        "token",
        "scope",
        "overlap",
        "type",
        "payload",
        "body_base64",
        "content_type",
        "idempotency_key",
        "ordering_key",
        "deliver_at",
        "delay",
        "events",
        "status",
        "endpoint",
        "event_type",
        "error_kind",
        "since",
        "until",
        "missed_since",
        "preset",
        "backoff",
        "base",
        "factor",
        "cap",
        "delays",
        "interval",
        "step",
        "jitter",
        "fraction",
        "rules",
        "on",
        "then",
        "limit",
        "give_up_after",
        "pending",
        "outage",
        "capacity",
        "ordered",
        "policy",
    ]);
    prop_oneof![8 => known.prop_map(str::to_owned), 1 => any::<String>()]
}

/// Texts, mostly ones that are valid in some field.
fn text() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "",
        "acme",
        "https://example.com/x",
        "http://127.0.0.1:8080/",
        "https://[::1]/",
        "https://ex\u{e4}mple.com/",
        "30s",
        "1h30m",
        "0s",
        "9999999999d",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "whsk_",
        "ed25519",
        "hmac",
        "github",
        "stripe",
        "standard",
        "basic",
        "bearer",
        "oauth2",
        "invoice.paid",
        "invoice.*",
        "*",
        "a..b",
        "2026-11-15T12:00:00Z",
        "2026-02-30T00:00:00Z",
        "9999-12-31T23:59:59.999Z",
        "0000-01-01T00:00:00Z",
        "failed",
        "fixed",
        "exponential",
        "schedule",
        "full",
        "retry",
        "404",
        "4xx",
        "dns",
        "swift",
        "recommended",
        "AAEC/w==",
        "ops@example.com",
        "ep_00000000000000000000000000",
        "text/plain",
        "none",
        "50/s",
        "\u{0}",
        "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----",
    ]);
    prop_oneof![
        4 => known.prop_map(str::to_owned),
        1 => any::<String>(),
        1 => "[a-z]{0,3000}",
    ]
}

fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::from),
        2 => prop::sample::select(vec![-1_i64, 0, 1, 2, 100, i64::MAX, i64::MIN]).prop_map(Value::from),
        1 => any::<u64>().prop_map(Value::from),
        1 => any::<f64>().prop_map(Value::from),
        6 => text().prop_map(Value::from),
    ]
}

fn document() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(4, 48, 8, |inner| {
        prop_oneof![
            1 => vec(inner.clone(), 0..6).prop_map(Value::from),
            3 => btree_map(name(), inner, 0..8)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// Valid bodies, each with the index of its route.
fn valid_bodies() -> Vec<(usize, Value)> {
    vec![
        (0, json!({"name": "x", "limits": {"endpoints": 5}})),
        (
            1,
            json!({"name": "x", "default_retry_policy": {"preset": "swift"}}),
        ),
        (
            3,
            json!({
                "url": "https://example.com/", "event_types": ["a.*"], "timeout": "5s",
                "retry_policy": {"backoff": {"kind": "fixed", "interval": "1s"}, "max_attempts": 3},
                "rate_limit": {"per_second": 5, "burst": 10}, "headers": {"X-A": "1"},
            }),
        ),
        (4, json!({"description": "x", "headers": {"X-A": "1"}})),
        (5, json!({"overlap": "1h"})),
        (
            6,
            json!({"type": "a.b", "payload": {"x": 1}, "idempotency_key": "k"}),
        ),
        (
            6,
            json!({"type": "a.b", "body_base64": "AAEC", "content_type": "text/plain"}),
        ),
        (7, json!({"events": [{"type": "a", "payload": 1}]})),
        (
            8,
            json!({"status": "failed", "since": "2026-11-15T00:00:00Z"}),
        ),
        (
            9,
            json!({"backoff": {"kind": "exponential", "base": "1s", "factor": 2, "cap": "1h"},
            "jitter": {"kind": "full"}, "max_attempts": 5}),
        ),
        (10, json!({"pending": 10, "outage": "1m", "capacity": 50})),
        (
            11,
            json!({
                "url": "https://example.com/x", "method": "PUT", "payload": {"x": 1}, "timeout": "5s",
                "headers": {"X-A": "1"}, "retry_policy": {"preset": "swift"}, "delay": "1h",
            }),
        ),
        (12, json!({"overlap": "1h"})),
        (
            13,
            json!({
                "id": "nightly", "cron": "0 9 * * MON-FRI", "timezone": "Europe/Berlin",
                "event": {"type": "a", "payload": {"x": 1}}, "overlap": "skip", "missed": "run_all",
                "starts_at": "2026-11-15T00:00:00Z", "max_runs": 5,
            }),
        ),
        (
            13,
            json!({
                "every": "1h", "request": {"url": "https://example.com/x", "payload": 1, "headers": {"X-A": "1"}},
            }),
        ),
        (14, json!({"at": ["2099-11-15T00:00:00Z"], "name": "x"})),
        (
            15,
            json!({"cron": "*/5 9-17 * * 1-5", "timezone": "UTC", "count": 3}),
        ),
    ]
}

/// A valid body with one random change. It reaches deeper code than a fully random body.
fn nearly_valid_body() -> impl Strategy<Value = (usize, Value)> {
    let wrong = (
        prop::sample::select(valid_bodies()),
        name(),
        document(),
        any::<prop::sample::Index>(),
    );
    wrong.prop_map(|((route, mut body), name, value, index)| {
        let fields = body.as_object_mut().expect("an object");
        let known: Vec<String> = fields.keys().cloned().collect();
        // Mostly changes an existing field, sometimes adds one.
        let place = match index.index(known.len() + 1) {
            past if past == known.len() => name,
            at => known[at].clone(),
        };
        fields.insert(place, value);
        (route, body)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn any_json_body_is_accepted_or_refused(route in 0..BODY_ROUTES.len(), body in document()) {
        send(route, &[], body.to_string().as_bytes());
    }

    #[test]
    fn a_nearly_valid_body_is_accepted_or_refused((route, body) in nearly_valid_body()) {
        send(route, &[], body.to_string().as_bytes());
    }

    #[test]
    fn any_bytes_are_accepted_or_refused(
        route in 0..BODY_ROUTES.len(),
        body in vec(any::<u8>(), 0..512),
        json in document(),
        cut in any::<prop::sample::Index>(),
    ) {
        send(route, &[], &body);
        send(route, &[("content-type", "text/plain")], &body);
        // JSON that is cut off, and JSON with bytes after its end.
        let whole = json.to_string().into_bytes();
        send(route, &[], &whole[..cut.index(whole.len())]);
        send(route, &[], &[&whole[..], &body].concat());
    }
}

/// Checks the starting point of `nearly_valid_body`: the valid bodies are accepted.
#[test]
fn valid_bodies_are_accepted() {
    for (route, body) in valid_bodies() {
        let status = send(route, &[], body.to_string().as_bytes());
        assert!((200..300).contains(&status), "{status} for {body}");
    }
}

/// Very deep and very long documents are what parsers fail on.
#[test]
fn very_deep_long_or_wide_bodies_do_not_crash_the_server() {
    for route in 0..BODY_ROUTES.len() {
        for unit in ["[", "{\"a\":", "[{\"payload\":"] {
            send(route, &[], unit.repeat(50_000).as_bytes());
        }
        let wide: Vec<String> = (0..20_000)
            .map(|number| format!("\"f{number}\":1"))
            .collect();
        send(route, &[], format!("{{{}}}", wide.join(",")).as_bytes());
        let long = format!(
            "{{\"url\":\"https://example.com/{}\"}}",
            "x".repeat(500_000)
        );
        send(route, &[], long.as_bytes());
        send(
            route,
            &[],
            format!("[{}1]", "1,".repeat(200_000)).as_bytes(),
        );
        send(
            route,
            &[],
            format!("{{\"type\":{}}}", "9".repeat(100_000)).as_bytes(),
        );
    }
}
