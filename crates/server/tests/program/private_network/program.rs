//! The built program with its real rules, in a hostile network, and everything that it shows to tenants.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use posthaste_egress::Roots;
use posthaste_egress::trusted_client;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::PATIENCE;
use super::authority::Authority;
use super::dns::NameServer;
use super::outside::{PROXY_PORT, RecordingReceivers};
use posthaste_testbed::Api;

const ADMIN_KEY: &str = "ph_test_admin_key_for_the_world";
/// Address of the proxy that the environment names.
const PROXY: &str = "10.3.1.28";
/// Page size of delivery lists.
const LISTED: usize = 250;

/// The name server, all receivers, and the program.
pub(crate) struct PrivateNetwork {
    pub(crate) names: NameServer,
    pub(crate) outside: RecordingReceivers,
    pub(crate) authority: Arc<Authority>,
    pub(crate) api: Api,
    address: String,
    child: Child,
    directory: TempDir,
}

/// The end of a delivery.
#[derive(Clone, Debug)]
pub(crate) struct DeliveryOutcome {
    pub(crate) id: String,
    pub(crate) endpoint: String,
    pub(crate) status: String,
    pub(crate) reason: Option<String>,
    pub(crate) kind: Option<String>,
    pub(crate) words: String,
    pub(crate) attempts: u64,
    pub(crate) latency_ms: u64,
    pub(crate) snippet: Option<String>,
    attempt: String,
}

/// The expected end of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExpectedOutcome {
    /// With a 2xx.
    Delivered,
    /// Failed with this failure kind, after all its attempts.
    Exhausted(&'static str),
    /// Failed with this failure kind, by a permanent answer.
    Final(&'static str),
    /// The destination is not allowed.
    Unsafe,
}

impl ExpectedOutcome {
    fn parts(self) -> (&'static str, Option<&'static str>, Option<&'static str>) {
        match self {
            ExpectedOutcome::Delivered => ("succeeded", None, None),
            ExpectedOutcome::Exhausted(kind) => ("failed", Some("exhausted"), Some(kind)),
            ExpectedOutcome::Final(kind) => ("failed", Some("permanent"), Some(kind)),
            ExpectedOutcome::Unsafe => ("failed", Some("unsafe_destination"), Some("validation")),
        }
    }

    /// Text for the table.
    pub(crate) fn shown(self) -> String {
        match self {
            ExpectedOutcome::Delivered => "delivered".to_owned(),
            ExpectedOutcome::Exhausted(kind) => format!("fails, `{kind}`"),
            ExpectedOutcome::Final(kind) => format!("fails for good, `{kind}`"),
            ExpectedOutcome::Unsafe => "refused, `validation`".to_owned(),
        }
    }
}

impl DeliveryOutcome {
    fn read(body: &Value) -> DeliveryOutcome {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let attempts = body["attempts"].as_array().expect("attempts");
        let last = attempts.last().unwrap_or(&Value::Null);
        let words = text(&body["last_error"]["detail"]);
        let answered = || format!("the receiver responded with {}", last["status_code"]);
        DeliveryOutcome {
            id: text(&body["id"]).expect("an id"),
            endpoint: text(&body["endpoint_id"]).expect("an endpoint"),
            status: text(&body["status"]).expect("a status"),
            reason: text(&body["reason"]),
            kind: text(&body["last_error"]["kind"]),
            words: words.unwrap_or_else(answered),
            attempts: body["attempt_count"].as_u64().expect("a number"),
            latency_ms: last["latency_ms"].as_u64().unwrap_or(0),
            snippet: text(&last["response_snippet"]),
            attempt: body.to_string(),
        }
    }

    /// Checks that the delivery ended as expected.
    #[track_caller]
    pub(crate) fn expect(&self, what: &str, end: ExpectedOutcome) {
        let (status, reason, kind) = end.parts();
        let is = (
            &*self.status,
            self.reason.as_deref(),
            self.kind.as_deref(),
            self.attempts,
        );
        assert_eq!(is, (status, reason, kind, 1), "{what}: {}", self.attempt);
    }

    /// Text for the table.
    pub(crate) fn shown(&self) -> String {
        match &self.kind {
            Some(kind) => format!("{}, `{kind}`: {}", self.status, self.words),
            None => format!("{}: {}", self.status, self.words),
        }
    }
}

impl PrivateNetwork {
    /// Starts everything, with the program listening on loopback.
    pub(crate) async fn start() -> PrivateNetwork {
        PrivateNetwork::listening_on("127.0.0.1:8420").await
    }

    /// Starts everything, with the program listening on this address.
    pub(crate) async fn listening_on(listen: &str) -> PrivateNetwork {
        let authority = Arc::new(Authority::named("World Trust"));
        let names = NameServer::start().await;
        let outside = RecordingReceivers::start(authority.clone()).await;
        let directory = tempfile::tempdir().expect("a directory");
        let child = launch(&directory, &authority, listen);
        let address = reachable(listen);
        PrivateNetwork {
            names,
            outside,
            authority,
            api: Api::new(&address, ADMIN_KEY),
            address,
            child,
            directory,
        }
    }

    /// Starts the program again with an empty store, listening on this address.
    pub(crate) fn listen_on(&mut self, listen: &str) {
        self.kill();
        self.directory = tempfile::tempdir().expect("a directory");
        self.child = launch(&self.directory, &self.authority, listen);
        self.address = reachable(listen);
        self.api = Api::new(&self.address, ADMIN_KEY);
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Returns another API client.
    pub(crate) fn another_api(&self) -> Api {
        Api::new(&self.address, ADMIN_KEY)
    }

    /// Creates an endpoint whose deliveries are attempted once. Returns its id.
    pub(crate) async fn endpoint(&mut self, tenant: &str, url: &str, fields: Value) -> String {
        let asked = once(url, fields);
        let made = self.api.endpoint(tenant, asked).await;
        made["id"].as_str().expect("an id").to_owned()
    }

    /// Sends an event, waits until all its deliveries have ended, and returns them by endpoint.
    pub(crate) async fn deliver(
        &mut self,
        tenant: &str,
        kind: &str,
        payload: &Value,
    ) -> BTreeMap<String, DeliveryOutcome> {
        let event = json!({"type": kind, "payload": payload});
        let event = self.api.event(tenant, event).await;
        let wanted = event["delivery_count"].as_u64().expect("a count") as usize;
        assert!((1..=LISTED).contains(&wanted), "{wanted} deliveries");
        let id = event["id"].as_str().expect("an id");
        let list = format!("/v1/tenants/{tenant}/deliveries?event={id}&limit={LISTED}");
        let over = |body: &Value| {
            let all = body["data"].as_array().expect("a list");
            let over = |one: &&Value| one["status"] == "succeeded" || one["status"] == "failed";
            all.iter().filter(over).count() == wanted
        };
        let list = self.api.until(&list, over).await;
        let mut ended = BTreeMap::new();
        for one in list["data"].as_array().expect("a list") {
            let id = one["id"].as_str().expect("an id");
            let path = format!("/v1/tenants/{tenant}/deliveries/{id}");
            let one = DeliveryOutcome::read(&self.api.get(&path).await.expect(200));
            ended.insert(one.endpoint.clone(), one);
        }
        ended
    }

    /// Sends an event to the only endpoint of a tenant, and returns its delivery.
    pub(crate) async fn deliver_one(&mut self, tenant: &str) -> DeliveryOutcome {
        let mut ended = self.deliver(tenant, "one", &json!({})).await;
        assert_eq!(ended.len(), 1, "only one endpoint");
        ended.pop_first().expect("one").1
    }

    /// Returns the metrics and everything that a tenant can read about its deliveries.
    pub(crate) async fn visible_text(&mut self, tenant: &str) -> String {
        let base = format!("/v1/tenants/{tenant}");
        let mut paths = vec![format!("{base}/stats"), base.clone()];
        let mut text = self.metrics().await;
        for list in ["deliveries", "endpoints", "events"] {
            let mut next = format!("{base}/{list}?limit={LISTED}");
            loop {
                let body = self.api.get(&next).await.expect(200);
                for one in body["data"].as_array().expect("a list") {
                    let id = one["id"].as_str().expect("an id");
                    paths.push(format!("{base}/{list}/{id}"));
                    if list == "endpoints" {
                        paths.push(format!("{base}/{list}/{id}/health"));
                    }
                }
                text += &body.to_string();
                match body["next_cursor"].as_str() {
                    Some(cursor) => next = format!("{base}/{list}?limit={LISTED}&cursor={cursor}"),
                    None => break,
                }
            }
        }
        for path in paths {
            text += &self.api.get(&path).await.expect(200).to_string();
        }
        text
    }

    async fn metrics(&self) -> String {
        let origin = format!("http://{}", self.address).parse().expect("a URL");
        let connected = trusted_client::connect(&origin, &Roots::none(), PATIENCE).await;
        let mut connection = connected.unwrap_or_else(|_| panic!("it listens"));
        let request = http::Request::builder()
            .uri("/metrics")
            .header("authorization", format!("Bearer {ADMIN_KEY}"))
            .body(Full::<Bytes>::default())
            .expect("a request");
        let response = connection.send(request, PATIENCE).await;
        let response = response.unwrap_or_else(|_| panic!("it answers"));
        assert_eq!(response.status(), 200);
        String::from_utf8(response.into_body().to_vec()).expect("text")
    }

    /// Panics if a tenant can read any address that a name has ever had.
    pub(crate) async fn assert_no_address_visible(&mut self, tenant: &str) {
        let text = self.visible_text(tenant).await;
        assert!(text.contains("posthaste_attempts_total"), "metrics too");
        for address in self.names.addresses() {
            assert!(!mentions(&text, address), "{tenant} can read {address}");
        }
    }

    /// Returns the number of sockets and threads of the program, and its memory in KiB.
    pub(crate) fn footprint(&self) -> Footprint {
        let process = format!("/proc/{}", self.child.id());
        let files = fs::read_dir(format!("{process}/fd")).expect("it runs");
        let links = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
        let sockets = links.filter(|link| link.to_string_lossy().starts_with("socket:"));
        let status = fs::read_to_string(format!("{process}/status")).expect("it runs");
        let status_value = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let status_value = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
            status_value.unwrap_or_else(|| panic!("no {name} in {status}"))
        };
        Footprint {
            sockets: sockets.count(),
            threads: status_value("Threads:"),
            resident_kib: status_value("VmRSS:"),
        }
    }
}

/// Resources of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Footprint {
    pub(crate) sockets: usize,
    pub(crate) threads: usize,
    pub(crate) resident_kib: usize,
}

impl Drop for PrivateNetwork {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns the address at which this machine reaches a program that listens there.
fn reachable(listen: &str) -> String {
    let mut address: SocketAddr = listen.parse().expect("an address");
    if address.ip().is_unspecified() {
        address.set_ip(Ipv4Addr::LOCALHOST.into());
    }
    address.to_string()
}

/// Starts the program and waits until it is ready. It trusts the test's authority, and no destination is exempted.
fn launch(directory: &TempDir, authority: &Authority, listen: &str) -> Child {
    let bundle = directory.path().join("ca.pem");
    fs::write(&bundle, authority.pem()).expect("there is room");
    let store = directory.path().join("posthaste.db");
    let mut command = Command::new(env!("CARGO_BIN_EXE_posthaste"));
    for (name, _) in std::env::vars() {
        if name.starts_with("POSTHASTE_") {
            command.env_remove(name);
        }
    }
    for name in ["http_proxy", "https_proxy", "all_proxy"] {
        let proxy = format!("http://{PROXY}:{PROXY_PORT}");
        command.env(name, &proxy).env(name.to_uppercase(), proxy);
    }
    let mut child = command
        .args(["serve", "--listen", listen, "--admin-key", ADMIN_KEY])
        .args(["--store", &format!("sqlite:{}", store.display())])
        .args(["--set", &format!("ca_bundle={}", bundle.display())])
        .args(["--set", "log.level=warn"])
        .current_dir(directory.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("the program can be started");
    let mut said = String::new();
    BufReader::new(child.stdout.take().expect("it is piped"))
        .read_line(&mut said)
        .expect("it says when it is ready");
    assert!(said.contains("http://"), "it said {said:?}");
    child
}

/// Fields of an endpoint whose deliveries are attempted once.
pub(crate) fn once(url: &str, fields: Value) -> Value {
    let policy = json!({"backoff": {"kind": "fixed", "interval": "1s"}, "max_attempts": 1});
    let mut asked = json!({"url": url, "retry_policy": policy});
    let more = fields.as_object().expect("fields").clone();
    asked.as_object_mut().expect("fields").extend(more);
    asked
}

/// Returns true if a text contains an address, not only as a part of a longer one.
fn mentions(text: &str, address: IpAddr) -> bool {
    let address = address.to_string();
    let part_of_one = |character: Option<char>| {
        character.is_some_and(|character| character.is_ascii_hexdigit() || character == ':')
    };
    text.match_indices(&address).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + address.len()..].chars().next();
        !part_of_one(before) && !part_of_one(after)
    })
}
