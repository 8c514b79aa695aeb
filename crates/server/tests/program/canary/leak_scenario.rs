//! A server from its first start to its end, with all events that could make it log or show a secret.

use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::canaries::Canaries;
use super::client::Client;
use super::fixture::{Answer, Receiver, unused_address};
use super::recorded_server::{Program, Secrets, Setting};
use super::search::Search;
use super::{credentials, egress_proxy, invalid_requests};

const ENDPOINTS: &str = "/v1/tenants/acme/endpoints";
const EVENTS: &str = "/v1/tenants/acme/events";

/// Starts a receiver that reads a little, writes this answer, and closes the connection.
pub(crate) async fn rude(answer: String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("a bound address");
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut buffer = [0; 16 * 1_024];
            let _ = socket.read(&mut buffer).await;
            let _ = socket.write_all(answer.as_bytes()).await;
        }
    });
    address
}

/// Starts a receiver that answers with canary words, and with the status in its path.
async fn echoing_receiver(canaries: &Canaries) -> Receiver {
    let body = canaries.plant("answer body");
    let header = canaries.plant("answer header");
    let cookie = canaries.plant("answer cookie");
    let location = format!("https://example.com/{}", canaries.plant("redirect"));
    Receiver::start(move |arrival| {
        let status = arrival.path.trim_start_matches('/').parse();
        let mut answer = Answer::status(status.unwrap_or(200));
        // The receiver repeats what it received, as some receivers do.
        let said: Vec<_> = arrival
            .headers
            .values()
            .map(|value| value.as_bytes())
            .collect();
        let said = String::from_utf8_lossy(&said.join(&b"; "[..])).into_owned();
        answer.body = format!("<p>{body}</p> {said}").into();
        let again = |name: &str| {
            let value = arrival.headers.get(name).map(|value| value.as_bytes());
            String::from_utf8_lossy(value.unwrap_or_default()).into_owned()
        };
        answer.headers = vec![
            ("x-answer", header.to_owned()),
            ("retry-after", header.to_owned()),
            ("location", location.clone()),
            ("set-cookie", format!("session={cookie}")),
            ("x-authorization", again("authorization")),
            ("x-api-key", again("x-api-key")),
        ];
        if arrival.path == "/slow" {
            answer.after = Duration::from_secs(3_600);
        }
        answer
    })
    .await
}

/// A server, its admin and its receiver.
pub(crate) struct CanaryFixture {
    pub(crate) canaries: Canaries,
    program: Program,
    admin: Client,
    receiver: Receiver,
}

impl CanaryFixture {
    /// Creates an endpoint that has every kind of secret and subscribes to one event type.
    pub(crate) async fn endpoint(&mut self, kind: &str, url: &str, more: Value) -> String {
        let query = self.canaries.plant("URL query");
        let mut endpoint = json!({
            "url": format!("{url}?token={query}&x=1"),
            "event_types": [format!("to.{kind}")],
            "timeout": "1s",
            "headers": {
                "Authorization": format!("Bearer {}", self.canaries.plant("authorization header")),
                "X-Api-Key": self.canaries.plant("custom header"),
            },
            "retry_policy": {"backoff": {"kind": "fixed", "interval": "10ms"},
                "jitter": {"kind": "none"}, "max_attempts": 2},
        });
        for (name, value) in more.as_object().expect("fields") {
            endpoint[name] = value.clone();
        }
        let made = self.admin.post(ENDPOINTS, endpoint).await.expect(201);
        let secret = made["secret"].as_str().expect("a secret in the response");
        if secret.starts_with("whsec_") {
            self.canaries.add_secret("signing secret", secret);
        }
        made["id"].as_str().expect("an id").to_owned()
    }

    /// Sends an event and returns the id of its delivery.
    pub(crate) async fn send(&mut self, kind: &str, more: Value) -> String {
        let payload = self.canaries.plant("JSON payload");
        let mut event = json!({
            "type": format!("to.{kind}"),
            "payload": {"card": payload},
        });
        for (name, value) in more.as_object().expect("fields") {
            event[name] = value.clone();
        }
        if event["body_base64"].is_string() {
            event.as_object_mut().expect("an object").remove("payload");
        }
        let made = self.admin.post(EVENTS, event).await.expect(202);
        made["deliveries"][0]["id"]
            .as_str()
            .expect("a delivery")
            .to_owned()
    }

    /// Waits until the delivery has this status.
    pub(crate) async fn until(&mut self, delivery: &str, status: &str) -> Value {
        let path = format!("/v1/tenants/acme/deliveries/{delivery}");
        self.admin.until(&path, status).await
    }
}

/// The secrets that the server gets at the start.
pub(crate) fn secrets(canaries: &Canaries, proxy: Option<String>) -> Secrets {
    Secrets {
        admin_key: canaries.plant("admin key").to_owned(),
        master_key: BASE64_STANDARD.encode(canaries.plant("master key")),
        mail_password: canaries.plant("mail password").to_owned(),
        proxy,
    }
}

async fn begin(setting: Setting, root: &std::path::Path) -> CanaryFixture {
    let mut canaries = Canaries::new();
    let program = Program::start(root, setting, secrets(&canaries, None));
    if setting == Setting::Json {
        add_master_keys(&mut canaries, &program);
    }
    let receiver = echoing_receiver(&canaries).await;
    let mut admin = Client::new(&program.address, canaries.plant("admin key"));
    admin
        .post("/v1/tenants", json!({"id": "acme"}))
        .await
        .expect(201);
    let path = "/v1/tenants/acme/keys";
    for name in ["kept", "revoked"] {
        let made = admin.post(path, json!({"name": name})).await.expect(201);
        let key = made["key"].as_str().expect("a secret in the response");
        canaries.add("tenant's key", key.as_bytes());
        let mut tenant = Client::new(&program.address, key);
        assert_eq!(tenant.get("/v1/tenants/acme").await.status, 200);
        if name == "revoked" {
            let path = format!("{path}/{}", made["id"].as_str().expect("an id"));
            admin.call("DELETE", &path, Value::Null).await;
            assert_eq!(tenant.get("/v1/tenants/acme").await.status, 401);
        }
    }
    CanaryFixture {
        canaries,
        program,
        admin,
        receiver,
    }
}

/// Adds the master keys that the server created.
fn add_master_keys(canaries: &mut Canaries, program: &Program) {
    let file = program.directory.join("posthaste.db.key");
    let text = std::fs::read_to_string(file).expect("a key file");
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let key = line.split_whitespace().last().expect("a key");
        let key = BASE64_STANDARD.decode(key).expect("base64");
        canaries.add("master key", &key);
    }
}

/// Successful deliveries, and every other use of secrets.
async fn succeed(fixture: &mut CanaryFixture) {
    let url = format!("http://{}/200", fixture.receiver.address);
    let brought = format!(
        "whsec_{}",
        BASE64_STANDARD.encode(fixture.canaries.plant("brought secret"))
    );
    let id = fixture
        .endpoint("good", &url, json!({"secret": brought, "ordered": true}))
        .await;
    let first = fixture.send("good", json!({})).await;
    fixture.until(&first, "succeeded").await;

    let rotated = format!(
        "whsec_{}",
        BASE64_STANDARD.encode(fixture.canaries.plant("rotated secret"))
    );
    let rotate = format!("{ENDPOINTS}/{id}/secret/rotate");
    fixture
        .admin
        .post(&rotate, json!({"secret": rotated}))
        .await
        .expect(200);
    let fresh = fixture.admin.post(&rotate, json!({})).await.expect(200);
    let secret = fresh["secret"].as_str().expect("a secret");
    fixture.canaries.add_secret("rotated secret", secret);
    assert_eq!(
        fixture
            .admin
            .post(&rotate, json!({"secret": rotated}))
            .await
            .status,
        422
    );
    fixture
        .admin
        .get(&format!("{ENDPOINTS}/{id}/secret"))
        .await
        .expect(200);
    let headers = json!({"X-Api-Key": fixture.canaries.plant("changed header")});
    let path = format!("{ENDPOINTS}/{id}");
    fixture
        .admin
        .call("PATCH", &path, json!({"headers": headers}))
        .await
        .expect(200);

    let raw = BASE64_STANDARD.encode(fixture.canaries.plant("raw payload"));
    let idempotency = fixture.canaries.plant("idempotency key");
    let more = json!({"body_base64": raw, "content_type": "text/plain",
        "idempotency_key": idempotency, "ordering_key": fixture.canaries.plant("ordering key")});
    let second = fixture.send("good", more).await;
    fixture.until(&second, "succeeded").await;
    // The same key with other content is a conflict. The error shows neither.
    let other = json!({"type": "to.good", "payload": fixture.canaries.plant("refused payload"),
        "idempotency_key": idempotency});
    assert_eq!(fixture.admin.post(EVENTS, other).await.status, 409);
    let batch = json!({"type": "to.good", "payload": [fixture.canaries.plant("batch payload")]});
    let batch = json!({"events": [batch.clone(), batch]});
    let made = fixture.admin.post(&format!("{EVENTS}/batch"), batch).await;
    assert_eq!(made.status, 202);
    let tested = fixture.admin.post(&format!("{path}/test"), json!({})).await;
    assert_eq!(tested.status, 202);
    let retry = format!("/v1/tenants/acme/deliveries/{first}/retry");
    assert_eq!(fixture.admin.post(&retry, Value::Null).await.status, 202);
    fixture.receiver.arrivals(6).await;

    let pair = format!(
        "whsk_{}",
        BASE64_STANDARD.encode(fixture.canaries.plant("private key"))
    );
    fixture
        .endpoint("pair", &url, json!({"secret": pair}))
        .await;
    let signed = fixture.send("pair", json!({})).await;
    fixture.until(&signed, "succeeded").await;
}

/// Failures of each kind, until the deliveries fail for good.
async fn fail(fixture: &mut CanaryFixture) {
    let there = format!("http://{}", fixture.receiver.address);
    let garbage = fixture.canaries.plant("answer garbage");
    let failures = [
        ("http", format!("{there}/400")),
        ("http", format!("{there}/503")),
        ("http", format!("{there}/429")),
        ("http", format!("{there}/302")),
        ("http", format!("{there}/410")),
        ("timeout", format!("{there}/slow")),
        ("connection", format!("http://{}/", unused_address())),
        (
            "tls",
            format!("https://{}/", rude(format!("{garbage}\r\n\r\n")).await),
        ),
        (
            "connection",
            format!("http://{}/", rude(format!("{garbage}\r\n\r\n")).await),
        ),
        (
            "connection",
            format!(
                "http://{}/",
                rude(format!("HTTP/1.1 200 {garbage}\r\n{garbage}")).await
            ),
        ),
        (
            "connection",
            format!(
                "http://{}/",
                rude(format!(
                    "HTTP/1.1 200 OK\r\ncontent-length: 999\r\nx-a: {garbage}\r\n\r\n{garbage}"
                ))
                .await
            ),
        ),
        (
            "connection",
            format!("http://{}/", rude(String::new()).await),
        ),
    ];
    let mut deliveries = Vec::new();
    for (number, (kind, url)) in failures.iter().enumerate() {
        let name = format!("bad{number}");
        fixture.endpoint(&name, url, json!({})).await;
        deliveries.push((kind, url, fixture.send(&name, json!({})).await));
    }
    for (kind, url, delivery) in &deliveries {
        let shown = fixture.until(delivery, "failed").await;
        assert_eq!(shown["last_error"]["kind"], **kind, "{url}: {shown}");
    }
    let replay = fixture
        .admin
        .post("/v1/tenants/acme/replays", json!({"status": "failed"}))
        .await;
    let replay = replay.expect(202)["id"].as_str().expect("an id").to_owned();
    fixture
        .admin
        .until(&format!("/v1/tenants/acme/replays/{replay}"), "done")
        .await;
    for (.., delivery) in &deliveries {
        fixture.until(delivery, "failed").await;
    }
}

/// Stops and kills the server during attempts, and copies the store.
async fn restart_with(fixture: &mut CanaryFixture, setting: Setting) -> Search {
    let mut search = Search::default();
    let url = format!("http://{}/slow", fixture.receiver.address);
    fixture
        .endpoint("slow", &url, json!({"timeout": "60s"}))
        .await;
    let hanging = fixture.send("slow", json!({})).await;
    fixture.until(&hanging, "in_progress").await;
    search.store(&fixture.canaries, &fixture.program, "while it runs");
    fixture.program.stop();
    search.store(&fixture.canaries, &fixture.program, "after a stop");
    fixture.program.restart();
    fixture.admin = renewed(fixture, &mut search);
    fixture.until(&hanging, "in_progress").await;
    fixture.program.kill();
    search.store(&fixture.canaries, &fixture.program, "after a kill");
    if setting == Setting::Json {
        let done =
            fixture
                .program
                .command("rotate", &["rotate-master-key", "posthaste.db.key"], &[]);
        assert_eq!(done, 0);
        add_master_keys(&mut fixture.canaries, &fixture.program);
    }
    fixture.program.restart();
    fixture.admin = renewed(fixture, &mut search);
    fixture.until(&hanging, "in_progress").await;
    let backup = ["backup", "--store", "sqlite:posthaste.db", "copy.db"];
    assert_eq!(fixture.program.command("backup", &backup, &[]), 0);
    assert!(fixture.program.directory.join("copy.db").exists());
    search
}

/// Searches the error responses of the old client and returns a client for the new address.
fn renewed(fixture: &CanaryFixture, search: &mut Search) -> Client {
    search.problems(&fixture.canaries, &fixture.admin);
    Client::new(
        &fixture.program.address,
        fixture.canaries.plant("admin key"),
    )
}

async fn live(setting: Setting) {
    let root = tempfile::tempdir().expect("a directory");
    let mut fixture = begin(setting, root.path()).await;
    succeed(&mut fixture).await;
    fail(&mut fixture).await;
    credentials::use_all(&mut fixture).await;
    invalid_requests::ask(&mut fixture.admin, &fixture.canaries).await;
    let problems = fixture.admin.problems.len();
    assert!(problems > 20, "only {problems} problems");
    invalid_requests::type_in(&fixture.program, &fixture.canaries);
    let mut search = Search::default();
    search
        .search_metrics(&fixture.canaries, &mut fixture.admin)
        .await;
    search.problems(&fixture.canaries, &fixture.admin);
    search.assert_clean();

    let mut search = restart_with(&mut fixture, setting).await;
    search
        .search_metrics(&fixture.canaries, &mut fixture.admin)
        .await;
    fixture.program.stop();
    search.store(&fixture.canaries, &fixture.program, "at the end");
    search.words(&fixture.canaries, &fixture.program);
    search.problems(&fixture.canaries, &fixture.admin);
    egress_proxy::live(&fixture.canaries, setting, &root.path().join("proxied")).await;
    fixture.canaries.assert_all_used();
    search.assert_clean();
}

// On several threads, so that the receivers keep serving while the test waits for the process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_leaks_with_human_readable_logs() {
    live(Setting::Human).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_leaks_with_json_logs() {
    live(Setting::Json).await;
}
