//! Custom headers of endpoints: accepted headers arrive exactly as given, and no other headers arrive.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::btree_map;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::json;

use super::fixture::{Api, Receiver, TestServer};

/// Number of header maps that are tried.
const CASES: usize = 150;

/// The headers that posthaste itself sends.
const OURS: &[&str] = &[
    "content-length",
    "content-type",
    "host",
    "posthaste-attempt",
    "posthaste-event-id",
    "posthaste-event-time",
    "posthaste-event-type",
    "user-agent",
    "webhook-id",
    "webhook-signature",
    "webhook-timestamp",
];

fn name() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "Authorization",
        "Cookie",
        "Host",
        "Content-Length",
        "Content-Type",
        "Connection",
        "TE",
        "Transfer-Encoding",
        "Webhook-Id",
        "webhook-signature",
        "Posthaste-Attempt",
        "Accept",
        "Accept-Encoding",
        "X-Forwarded-For",
        "Forwarded",
        "Proxy-Authorization",
        "Upgrade",
        "Expect",
        "Alt-Svc",
        "Range",
        "Date",
        "Set-Cookie",
        "Origin",
        "Via",
        "Trailer",
        "Keep-Alive",
        "HTTP2-Settings",
        "User-Agent",
        ":authority",
        "x-hub-signature-256",
    ]);
    prop_oneof![
        3 => known.prop_map(str::to_owned),
        4 => "[A-Za-z0-9!#$%&'*+.^_`|~-]{1,40}",
        1 => any::<String>(),
    ]
}

fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[ -~]{0,120}",
        1 => "[!-~]{1,40}",
        1 => Just("chunked".to_owned()),
        1 => "[a-z]{0,5}[\r\n\t\u{0}\u{7f}]{1,2}[a-z: ]{0,12}",
        1 => any::<String>(),
    ]
}

/// Sends an event to one endpoint and compares the received headers with the expected ones.
async fn check(
    api: &mut Api,
    receiver: &Receiver,
    number: usize,
    given: &BTreeMap<String, String>,
) {
    let before = receiver.count();
    let event = json!({"type": format!("to.n{number}"), "payload": number});
    api.event("acme", event).await;
    let arrival = receiver.arrivals(before + 1).await.remove(before);
    let mut expected: BTreeMap<String, &str> = BTreeMap::new();
    for (name, value) in given {
        expected.insert(name.to_ascii_lowercase(), value);
    }
    let ours: BTreeSet<&str> = OURS.iter().copied().collect();
    let mut seen = BTreeSet::new();
    for (name, value) in &arrival.headers {
        let name = name.as_str();
        assert!(seen.insert(name.to_owned()), "{name} came twice: {given:?}");
        match expected.remove(name) {
            Some(given) => assert_eq!(value.as_bytes(), given.as_bytes(), "{name}"),
            None => assert!(ours.contains(name), "{name} was not asked for: {given:?}"),
        }
    }
    assert!(expected.is_empty(), "{expected:?} did not arrive");
    for name in ours {
        assert!(seen.contains(name), "{name} did not arrive: {given:?}");
    }
    assert_eq!(arrival.body, number.to_string());
}

#[tokio::test]
async fn accepted_headers_arrive_unchanged_and_no_others_do() {
    let limits = ["--set", "tenant_limits.endpoints=1000"];
    let (_server, mut api) = TestServer::start_with_tenant(&limits).await;
    let receiver = Receiver::healthy().await;
    let mut runner = TestRunner::default();
    let maps = btree_map(name(), value(), 0..6);
    let (mut taken, mut refused) = (0, 0);
    for number in 0..CASES {
        let given = maps.new_tree(&mut runner).expect("a map").current();
        let endpoint = json!({
            "url": receiver.url(), "event_types": [format!("to.n{number}")], "headers": given,
        });
        let reply = api.post("/v1/tenants/acme/endpoints", endpoint).await;
        match reply.status {
            201 => {
                taken += 1;
                check(&mut api, &receiver, number, &given).await;
            }
            422 => refused += 1,
            other => panic!("{other} for {given:?}: {}", reply.body),
        }
    }
    assert!(
        taken > 10 && refused > 10,
        "{taken} were taken, {refused} refused"
    );
}
