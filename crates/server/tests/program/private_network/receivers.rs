//! No receiver can do lasting harm to the program.
//!
//! Each bad receiver is called, becomes good and is called again, in several rounds and all at once. Meanwhile a
//! healthy receiver is called all the time.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::PATIENCE;
use super::authority::{Authority, VALID, self_signed_receiver};
use super::dns::addresses;
use super::docs::Table;
use super::faults::{self, Fault};
use super::handshakes;
use super::namespace::inside;
use super::outside::{Behaviour, Records};
use super::program::{DeliveryOutcome, ExpectedOutcome, Footprint, PrivateNetwork};
use posthaste_testbed::Api;

/// Number of rounds.
const ROUNDS: usize = 3;
/// Time limit of an attempt to a receiver that never answers.
const SHORT: &str = "2s";
/// Time limit of all other attempts.
const LONG: &str = "30s";
/// Maximum duration of an attempt as the test sees it, on a busy machine, in ms.
const LATEST_MS: u64 = 20_000;
/// Maximum growth of memory between the first round and the last, in KiB. Receivers send much more than this in a
/// round.
const MAX_GROWTH_KIB: usize = 48 * 1_024;
const HEALTHY: &str = "45.63.0.1";
const LARGE_BYTES: usize = 900_000;
const POLL_EVERY: Duration = Duration::from_millis(50);

#[test]
fn misbehaving_receivers_do_no_lasting_harm() {
    inside(
        "receivers::misbehaving_receivers_do_no_lasting_harm",
        || run_rounds("receivers", |_| faults::in_http()),
    );
}

#[test]
fn receivers_with_invalid_certificates_are_refused() {
    inside(
        "receivers::receivers_with_invalid_certificates_are_refused",
        || {
            run_rounds("tls", |authority| {
                [certificates(authority), handshakes::before_tls()]
                    .into_iter()
                    .flatten()
                    .collect()
            })
        },
    );
}

/// Receivers with invalid certificates. The names are those that [`PrivateNetwork`] uses.
fn certificates(authority: &Authority) -> Vec<Fault> {
    let stranger = Authority::named("Unknown Trust");
    let fault = |nth: usize, what, end, make: &dyn Fn(&str) -> _| Fault {
        what,
        conduct: Behaviour::Certified(make(&name("tls", nth))),
        end,
        is_large: false,
        is_slow: false,
    };
    let tls = ExpectedOutcome::Exhausted("tls");
    vec![
        fault(
            0,
            "a certificate that is good",
            ExpectedOutcome::Delivered,
            &|name| authority.receiver(name, VALID),
        ),
        fault(1, "a certificate that has expired", tls, &|name| {
            authority.receiver(name, (2020, 2021))
        }),
        fault(2, "a certificate that is not valid yet", tls, &|name| {
            authority.receiver(name, (2099, 2100))
        }),
        fault(3, "a certificate for another host", tls, &|_| {
            authority.receiver("other.customer.com", VALID)
        }),
        fault(
            4,
            "a certificate for its address, not its name",
            tls,
            &|_| authority.receiver("45.62.0.4", VALID),
        ),
        fault(5, "a certificate signed by itself", tls, &|name| {
            self_signed_receiver(name)
        }),
        fault(6, "a certificate of an unknown authority", tls, &|name| {
            stranger.receiver(name, VALID)
        }),
        fault(
            7,
            "asks for a certificate that the endpoint has not",
            tls,
            &|name| authority.mistrustful_receiver(name),
        ),
    ]
}

fn name(group: &str, nth: usize) -> String {
    format!("{group}-{nth}.customer.com")
}

async fn run_rounds(group: &'static str, make: impl FnOnce(&Authority) -> Vec<Fault>) {
    let mut network = PrivateNetwork::start().await;
    let faults = make(&network.authority);
    network.api.tenant("acme").await;
    let mut endpoints = Vec::new();
    let mut places = Vec::new();
    for (nth, fault) in faults.iter().enumerate() {
        let place = IpAddr::from([45, 62, 0, u8::try_from(nth).expect("not so many")]);
        network.outside.set_behaviour(place, fault.conduct.clone());
        let name = name(group, nth);
        let address = addresses(&place.to_string());
        network.names.set_replies(&name, &[address]);
        let kind = if fault.is_large { "large" } else { "small" };
        let fields = json!({"timeout": LONG, "event_types": [kind]});
        let url = format!("https://{name}/hook");
        endpoints.push(network.endpoint("acme", &url, fields).await);
        places.push(place);
    }
    let before = network.footprint();
    let healthy = Healthy::start(&mut network).await;

    let rows = one_round(&mut network, &faults, &endpoints).await;
    let after_one = network.footprint();
    for round in 2..=ROUNDS {
        let again = one_round(&mut network, &faults, &endpoints).await;
        assert_eq!(again, rows, "round {round} is like the first");
    }
    let growth_kib = network
        .footprint()
        .resident_kib
        .saturating_sub(after_one.resident_kib);
    assert!(growth_kib < MAX_GROWTH_KIB, "{growth_kib} KiB more");
    healthy.end().await;
    network.assert_no_address_visible("acme").await;
    leaves_nothing(&mut network, before).await;

    let all_over = |records: &Records| records.visits.iter().all(|visit| visit.is_over);
    let records = network
        .outside
        .until("the end of every connection", all_over)
        .await;
    for bytes in &records.received_bytes {
        let bytes = String::from_utf8_lossy(bytes);
        let plain = bytes.contains("POST") || bytes.contains("webhook");
        assert!(!plain, "in plain text: {bytes}");
    }
    let visited = records.addresses();
    places.push(HEALTHY.parse().expect("an address"));
    let strays: Vec<_> = visited.iter().filter(|one| !places.contains(one)).collect();
    assert!(
        strays.is_empty(),
        "no other receiver gets a request: {strays:?}"
    );

    let columns = ["Receiver", "Expected", "Result"];
    let mut table = Table::new(group, module_path!(), &columns);
    rows.iter().for_each(|row| table.row(row));
    table.publish();
}

/// Calls every bad receiver, makes all of them good, and calls them again. Returns the results of the first call.
async fn one_round(
    network: &mut PrivateNetwork,
    faults: &[Fault],
    endpoints: &[String],
) -> Vec<[String; 3]> {
    network.outside.set_good(false);
    let slow: Vec<&String> = faults
        .iter()
        .zip(endpoints)
        .filter(|(fault, _)| fault.is_slow)
        .map(|(_, endpoint)| endpoint)
        .collect();
    give_time(network, &slow, SHORT).await;
    let bad = call_all(network, faults).await;
    network.outside.set_good(true);
    give_time(network, &slow, LONG).await;
    let good = call_all(network, faults).await;
    let mut rows = Vec::new();
    for (fault, endpoint) in faults.iter().zip(endpoints) {
        let (what, bad, good) = (fault.what, &bad[endpoint], &good[endpoint]);
        bad.expect(what, fault.end);
        assert!(bad.latency_ms < LATEST_MS, "{what}: {} ms", bad.latency_ms);
        rows.push([what.to_owned(), fault.end.shown(), bad.shown()]);
        good.expect(what, ExpectedOutcome::Delivered);
        assert_eq!(
            good.snippet.as_ref(),
            Some(&good.id),
            "{what}: its own answer"
        );
    }
    rows
}

async fn give_time(network: &mut PrivateNetwork, endpoints: &[&String], timeout: &str) {
    for endpoint in endpoints {
        let path = format!("/v1/tenants/acme/endpoints/{endpoint}");
        let change = json!({"timeout": timeout});
        network
            .api
            .call("PATCH", &path, Some(&change))
            .await
            .expect(200);
    }
}

async fn call_all(
    network: &mut PrivateNetwork,
    faults: &[Fault],
) -> BTreeMap<String, DeliveryOutcome> {
    let mut ended = network.deliver("acme", "small", &json!({})).await;
    if faults.iter().any(|fault| fault.is_large) {
        let payload = json!("z".repeat(LARGE_BYTES));
        ended.extend(network.deliver("acme", "large", &payload).await);
    }
    ended
}

/// Checks that deleting the endpoints releases all their sockets and threads.
async fn leaves_nothing(network: &mut PrivateNetwork, before: Footprint) {
    for tenant in ["acme", "healthy"] {
        let path = format!("/v1/tenants/{tenant}/endpoints?limit=250");
        let list = network.api.get(&path).await.expect(200);
        for endpoint in list["data"].as_array().expect("a list") {
            let id = endpoint["id"].as_str().expect("an id");
            let path = format!("/v1/tenants/{tenant}/endpoints/{id}");
            let reply = network.api.call("DELETE", &path, None).await;
            assert_eq!(reply.status, 204, "{}", reply.body);
        }
    }
    let deadline = Instant::now() + PATIENCE;
    loop {
        let now = network.footprint();
        if now.sockets <= before.sockets && now.threads <= before.threads {
            return;
        }
        assert!(Instant::now() < deadline, "{now:?} is left of {before:?}");
        sleep(POLL_EVERY).await;
    }
}

/// A healthy receiver that is called all the time.
struct Healthy {
    enough: Arc<AtomicBool>,
    calling: JoinHandle<usize>,
}

impl Healthy {
    async fn start(network: &mut PrivateNetwork) -> Healthy {
        network
            .names
            .set_replies("healthy.customer.com", &[addresses(HEALTHY)]);
        network.api.tenant("healthy").await;
        let url = "https://healthy.customer.com/hook";
        network.endpoint("healthy", url, json!({})).await;
        network
            .deliver_one("healthy")
            .await
            .expect("healthy", ExpectedOutcome::Delivered);
        let enough = Arc::new(AtomicBool::new(false));
        let api = network.another_api();
        let calling = tokio::spawn(call_until(enough.clone(), api));
        Healthy { enough, calling }
    }

    async fn end(self) {
        self.enough.store(true, Ordering::Relaxed);
        let calls = self.calling.await.expect("every call succeeded");
        assert!(calls >= ROUNDS, "only {calls} calls");
    }
}

/// Sends one event after the other. Each must succeed at its first attempt.
async fn call_until(enough: Arc<AtomicBool>, mut api: Api) -> usize {
    let mut calls = 0;
    while !enough.load(Ordering::Relaxed) {
        let event = api
            .event("healthy", json!({"type": "a.b", "payload": calls}))
            .await;
        let id = event["deliveries"][0]["id"].as_str().expect("a delivery");
        let path = format!("/v1/tenants/healthy/deliveries/{id}");
        let over = |body: &Value| body["status"] == "succeeded" || body["status"] == "failed";
        let ended = api.until(&path, over).await;
        assert_eq!(ended["status"], "succeeded", "{ended}");
        assert_eq!(ended["attempt_count"], 1, "{ended}");
        calls += 1;
        sleep(POLL_EVERY).await;
    }
    calls
}
