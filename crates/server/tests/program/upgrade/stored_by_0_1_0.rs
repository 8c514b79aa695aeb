//! A store that 0.1.0 has written is opened by this version: all tenants, endpoints, events, deliveries, attempts, keys and
//! secrets are there, and what waited is delivered.
//!
//! The folder `stored` holds a backup of an SQLite store, a dump of a PostgreSQL database, the master key of both, and what
//! the API of 0.1.0 answered about them. `scripts/upgrade store` makes them, by [`writes_what_0_1_0_stores`].

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use posthaste_testbed::{Answer, Api, Database, Node, NodeOptions, Receiver};
use serde_json::{Map, Value, json};

use super::rolling::{new_program, old_program};

const TENANT: &str = "acme";
const PATH: &str = "/v1/tenants/acme";
/// Custom header of an endpoint, which is stored encrypted.
const HEADER: (&str, &str) = ("x-shared-token", "kept since 0.1.0");
const IDEMPOTENCY_KEY: &str = "sent to 0.1.0";
/// Fields whose values depend on the time, or whose text is another one in this version.
const OTHER_FIELDS: [&str; 6] = [
    "timeline",
    "next_attempt_at",
    "detail",
    "title",
    "max_attempts",
    "stats",
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/program/upgrade/stored")
}

/// Returns the decompressed contents of a file.
fn decompressed(name: &str) -> Vec<u8> {
    let path = folder().join(name);
    let output = Command::new("gzip").arg("-dc").arg(&path).output();
    let output = output.expect("gzip runs");
    assert!(output.status.success(), "{}", path.display());
    output.stdout
}

/// Copies the master key to a file that only its owner can read, as the program demands.
fn copy_key(to: &Path) {
    let key = std::fs::read(folder().join("master.key")).expect("a file");
    std::fs::write(to, key).expect("a file");
    let private = Permissions::from_mode(0o600);
    std::fs::set_permissions(to, private).expect("an own file");
}

fn answers_of_0_1_0() -> Value {
    let answers = std::fs::read(folder().join("answers.json")).expect("a file");
    serde_json::from_slice(&answers).expect("JSON")
}

fn event(number: u64) -> Value {
    json!({"type": "invoice.paid", "payload": {"number": number, "text": "für €"}})
}

#[tokio::test]
async fn a_backup_of_sqlite_is_opened() {
    let home = tempfile::tempdir().expect("a directory");
    let store = home.path().join("posthaste.db");
    std::fs::write(&store, decompressed("sqlite.db.gz")).expect("a file");
    copy_key(&home.path().join("posthaste.db.key"));
    let store = format!("sqlite:{}", store.display());
    let node = Node::start(&NodeOptions::new(new_program(), &store, home.path()));
    everything_is_readable(&node, "sqlite").await;
}

#[tokio::test]
async fn a_dump_of_postgres_is_opened() {
    let database = Database::empty();
    let dump = String::from_utf8(decompressed("postgres.sql.gz")).expect("text");
    database.query(&dump);
    assert_eq!(
        database.number("SELECT value FROM meta WHERE name = 'format'"),
        3
    );
    let home = tempfile::tempdir().expect("a directory");
    let key = home.path().join("master.key");
    copy_key(&key);
    let options = NodeOptions::new(new_program(), &database.url(), home.path())
        .with(&["--master-key-file", key.to_str().expect("text")])
        .with(&["--set", "finish_upgrade_after=1d"]);
    let node = Node::start(&options);
    everything_is_readable(&node, "postgres").await;
    // Nodes of 0.1 could still start: the upgrade is not finished.
    assert_eq!(
        database.number("SELECT value FROM meta WHERE name = 'format'"),
        3
    );
}

async fn everything_is_readable(node: &Node, store: &str) {
    node.until_ready().await;
    let before = &answers_of_0_1_0()[store];
    let mut api = node.api();
    let now = answers(&mut api).await;
    for part in [
        "tenants",
        "keys",
        "endpoints",
        "secrets",
        "events",
        "deliveries",
    ] {
        let wrong = difference(&before[part], &now[part]);
        assert_eq!(wrong, None, "{part}");
    }
    // The tenant's key still works.
    let key = before["key"].as_str().expect("a key");
    Api::new(&node.address, key).get(PATH).await.expect(200);
    // The idempotency key still stands for its event.
    let mut again = event(0);
    again["idempotency_key"] = json!(IDEMPOTENCY_KEY);
    let events = format!("{PATH}/events");
    let repeated = api.post(&events, again).await.expect(200);
    assert_eq!(repeated["id"], before["idempotent"]);
    // The delivery that waited for its paused endpoint is sent, with the header that was encrypted.
    let receiver = Receiver::start(|_| Answer::status(200)).await;
    let endpoints = before["endpoints"].as_array().expect("a list");
    let paused = endpoints.iter().find(|it| it["status"] == "paused");
    let paused = paused.expect("an endpoint")["id"].as_str().expect("an id");
    let endpoint = format!("{PATH}/endpoints/{paused}");
    let moved = json!({"url": receiver.url()});
    api.call("PATCH", &endpoint, Some(&moved)).await.expect(200);
    api.call("POST", &format!("{endpoint}/resume"), None)
        .await
        .expect(200);
    let arrived = receiver.arrivals(1).await;
    assert_eq!(arrived[0].headers[HEADER.0], HEADER.1);
}

/// Asks for everything that a tenant can see.
async fn answers(api: &mut Api) -> Value {
    let mut answers = Map::new();
    let list = async |api: &mut Api, path: String| -> Vec<Value> {
        let body = api.get(&format!("{path}?limit=100")).await.expect(200);
        assert_eq!(body["next_cursor"], Value::Null);
        body["data"].as_array().expect("a list").clone()
    };
    let each = async |api: &mut Api, path: String, items: &[Value], suffix: &str| {
        let mut each = Vec::new();
        for item in items {
            let id = item["id"].as_str().expect("an id");
            each.push(api.get(&format!("{path}/{id}{suffix}")).await.expect(200));
        }
        Value::Array(each)
    };
    answers.insert(
        "tenants".to_owned(),
        json!(list(api, "/v1/tenants".to_owned()).await),
    );
    answers.insert(
        "keys".to_owned(),
        json!(list(api, format!("{PATH}/keys")).await),
    );
    for name in ["endpoints", "events", "deliveries"] {
        let path = format!("{PATH}/{name}");
        let items = list(api, path.clone()).await;
        if name == "endpoints" {
            let secrets = each(api, path.clone(), &items, "/secret").await;
            answers.insert("secrets".to_owned(), secrets);
        }
        answers.insert(name.to_owned(), each(api, path, &items, "").await);
    }
    Value::Object(answers)
}

/// Returns the first field of the old answer that is not the same in the new one, which may have more fields.
fn difference(old: &Value, new: &Value) -> Option<String> {
    match (old, new) {
        (Value::Object(old), Value::Object(_)) => old
            .iter()
            .filter(|(name, _)| !OTHER_FIELDS.contains(&name.as_str()))
            .find_map(|(name, value)| Some(format!("{name}: {}", difference(value, &new[name])?))),
        (Value::Array(all), Value::Array(others)) if all.len() == others.len() => {
            let mut pairs = all.iter().zip(others);
            pairs.find_map(|(old, new)| difference(old, new))
        }
        (old, new) => (old != new).then(|| format!("{old} became {new}")),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "makes the stored files; run scripts/upgrade store"]
async fn writes_what_0_1_0_stores() {
    let old = old_program();
    let home = tempfile::tempdir().expect("a directory");
    let mut answers = Map::new();
    let store = home.path().join("posthaste.db");
    let sqlite = format!("sqlite:{}", store.display());
    let mut node = Node::start(&NodeOptions::new(&old, &sqlite, home.path()));
    answers.insert("sqlite".to_owned(), fill(&node).await);
    let backup = home.path().join("sqlite.db");
    let made = Command::new(&old)
        .args(["backup", "--store", &sqlite])
        .arg(&backup)
        .status();
    assert!(made.expect("it runs").success());
    assert!(node.stop().success());
    let key = home.path().join("posthaste.db.key");
    std::fs::create_dir_all(folder()).expect("a directory");
    std::fs::copy(&key, folder().join("master.key")).expect("a file");

    let database = Database::empty();
    let options = NodeOptions::new(&old, &database.url(), home.path())
        .with(&["--master-key-file", key.to_str().expect("text")]);
    let mut node = Node::start(&options);
    answers.insert("postgres".to_owned(), fill(&node).await);
    assert!(node.stop().success());
    let dump = Command::new("pg_dump")
        .args(["--inserts", "--no-owner", "--no-privileges", "--dbname"])
        .arg(database.url())
        .output()
        .expect("pg_dump runs");
    assert!(
        dump.status.success(),
        "{}",
        String::from_utf8_lossy(&dump.stderr)
    );
    let dump = String::from_utf8(dump.stdout).expect("text");
    // Commands of psql and settings of other server versions are no part of the schema.
    let lines = dump.lines().filter(|line| {
        let skipped = ["\\", "--", "SET transaction_timeout"];
        !line.is_empty() && !skipped.iter().any(|start| line.starts_with(start))
    });
    let dump: Vec<&str> = lines.collect();
    let plain = home.path().join("postgres.sql");
    std::fs::write(&plain, dump.join("\n")).expect("a file");
    for (file, name) in [(&backup, "sqlite.db.gz"), (&plain, "postgres.sql.gz")] {
        let packed = Command::new("gzip").args(["-9nc"]).arg(file).output();
        std::fs::write(folder().join(name), packed.expect("gzip runs").stdout).expect("a file");
    }
    let text = serde_json::to_string_pretty(&answers).expect("JSON") + "\n";
    std::fs::write(folder().join("answers.json"), text).expect("a file");
}

/// Fills a store through its node, and returns what the API answers then.
async fn fill(node: &Node) -> Value {
    node.until_ready().await;
    let receiver = Receiver::start(|arrival| {
        let status = match arrival.path.as_str() {
            "/refuses" => 400,
            "/flaps" if arrival.attempt() == 1 => 503,
            _ => 200,
        };
        Answer::status(status)
    })
    .await;
    let mut api = node.api();
    api.tenant(TENANT).await;
    api.tenant("other").await;
    let key = api
        .post(&format!("{PATH}/keys"), json!({"name": "backend"}))
        .await
        .expect(201);
    for (path, fields) in [
        (
            "works",
            json!({"description": "first", "owner_email": "a@example.com"}),
        ),
        ("refuses", json!({})),
        (
            "flaps",
            json!({"retry_policy": {"backoff": {"kind": "fixed", "interval": "50ms"}, "max_attempts": 4}}),
        ),
        ("signed", json!({"signature_style": "github"})),
    ] {
        let mut fields = fields;
        fields["url"] = json!(receiver.url_of(path));
        fields["event_types"] = json!(["invoice.*"]);
        api.endpoint(TENANT, fields).await;
    }
    let mut ids = Vec::new();
    for number in 0..5 {
        let mut event = event(number);
        if number == 0 {
            event["idempotency_key"] = json!(IDEMPOTENCY_KEY);
        }
        ids.push(api.event(TENANT, event).await["id"].clone());
    }
    for status in ["pending", "retrying", "in_progress"] {
        let path = format!("{PATH}/deliveries?status={status}");
        api.until(&path, |body| {
            body["data"].as_array().is_some_and(Vec::is_empty)
        })
        .await;
    }
    let (name, value) = HEADER;
    let paused = json!({"url": receiver.url_of("paused"), "event_types": ["order.*"], "headers": {name: value}});
    let paused = api.endpoint(TENANT, paused).await;
    let paused = paused["id"].as_str().expect("an id");
    let pause = format!("{PATH}/endpoints/{paused}/pause");
    api.call("POST", &pause, None).await.expect(200);
    api.event(TENANT, json!({"type": "order.made", "payload": [1, 2]}))
        .await;
    let mut filled = answers(&mut api).await;
    filled["key"] = key["key"].clone();
    filled["idempotent"] = ids[0].clone();
    filled
}
