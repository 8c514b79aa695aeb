//! A database of an application with an outbox table, and servers that read it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use posthaste_engine::database::EgressDialer;
use posthaste_store::postgres::{Dial, ServerUrl, Session};
use posthaste_testbed::{Database, Node, NodeOptions, without_settings};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::fixture::{Api, Arrival, Receiver, until};

/// The tenant of most rows.
pub(super) const TENANT: &str = "acme";
const PROGRAM: &str = env!("CARGO_BIN_EXE_posthaste");
/// Short, so that a start after a kill does not wait for long.
const LEASE: &str = "lease=2s";

/// The store of the servers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Store {
    Sqlite,
    Postgres,
}

/// Both stores.
pub(super) const STORES: [Store; 2] = [Store::Sqlite, Store::Postgres];

/// The application's side, and the store of the servers. No server runs yet.
pub(super) struct Outbox {
    /// The application's database.
    pub(super) database: Database,
    home: TempDir,
    store: String,
    /// The database of the store, which must live as long.
    pub(super) store_database: Option<Database>,
    config: String,
}

impl Outbox {
    /// Creates both databases and the table, with an outbox named `orders` of the tenant [`TENANT`].
    pub(super) fn new(store: Store) -> Outbox {
        Outbox::with(store, &format!("tenant = '{TENANT}'"))
    }

    /// Creates both databases and the table, with these further settings of the outbox.
    pub(super) fn with(store: Store, settings: &str) -> Outbox {
        Outbox::in_database(Database::empty(), store, settings)
    }

    /// Creates the table in this database, and the store.
    pub(super) fn in_database(database: Database, store: Store, settings: &str) -> Outbox {
        let url = database.url();
        Outbox::via(database, &url, store, settings)
    }

    /// The same, with servers that reach the application's database by this URL.
    pub(super) fn via(database: Database, url: &str, store: Store, settings: &str) -> Outbox {
        database.query(&printed_sql(&[]));
        let home = tempfile::tempdir().expect("a directory");
        let store_database = match store {
            Store::Sqlite => None,
            Store::Postgres => Some(Database::with_schema()),
        };
        let file = || format!("sqlite:{}", home.path().join("posthaste.db").display());
        Outbox {
            store: store_database.as_ref().map_or_else(file, Database::url),
            store_database,
            config: format!("[[outbox]]\nname = 'orders'\ndatabase = '{url}'\n{settings}\n"),
            home,
            database,
        }
    }

    /// Adds sections to the configuration file.
    pub(super) fn configure(mut self, sections: &str) -> Outbox {
        self.config.push_str(sections);
        self
    }

    /// Keeps the store in this database instead.
    pub(super) fn with_store(mut self, url: &str) -> Outbox {
        url.clone_into(&mut self.store);
        self
    }

    /// Writes the configuration file, and returns its path.
    pub(super) fn file(&self) -> PathBuf {
        let path = self.home.path().join("posthaste.toml");
        fs::write(&path, &self.config).expect("the file can be written");
        path
    }

    /// Starts a server.
    pub(super) fn start(&self) -> Node {
        let file = self.file().display().to_string();
        let options = NodeOptions::new(PROGRAM, &self.store, self.home.path())
            .with(&["--config", &file, "--set", LEASE])
            .with(&["--log-level", "info,posthaste::attempt=off"]);
        Node::start(&options)
    }

    /// Starts a server with the tenant [`TENANT`].
    pub(super) async fn start_with_tenant(&self) -> (Node, Api) {
        let node = self.start();
        node.until_ready().await;
        let mut api = node.api();
        api.tenant(TENANT).await;
        (node, api)
    }

    /// Inserts rows with these numbers as payloads, in one transaction.
    pub(super) fn insert(&self, numbers: std::ops::RangeInclusive<u32>) {
        let (first, last) = (numbers.start(), numbers.end());
        self.database.query(&format!(
            "INSERT INTO posthaste_outbox (type, payload) \
             SELECT 'order.paid', json_build_object('n', n) FROM generate_series({first}, {last}) AS n"
        ));
    }

    /// Ends the sessions of servers in the application's database, and waits until their transactions are rolled back.
    pub(super) async fn end_sessions(&self) {
        let theirs = "FROM pg_stat_activity WHERE application_name = 'posthaste' AND datname = current_database()";
        self.database
            .query(&format!("SELECT pg_terminate_backend(pid) {theirs}"));
        let count = format!("SELECT count(*) {theirs}");
        until("the sessions to end", async || {
            self.database.number(&count) == 0
        })
        .await;
    }

    /// Returns the number of rows that wait.
    pub(super) fn waiting(&self) -> i64 {
        self.database.number(
            "SELECT count(*) FROM posthaste_outbox WHERE accepted_at IS NULL AND error IS NULL",
        )
    }

    /// Waits until no row waits.
    pub(super) async fn until_empty(&self) {
        until("the outbox to be empty", async || self.waiting() == 0).await;
    }

    /// Opens a session of the application.
    pub(super) async fn session(&self) -> Session {
        let url: ServerUrl = self.database.url().parse().expect("a URL");
        let dial: Arc<dyn Dial> = Arc::new(EgressDialer);
        let session = Session::open(&url, &dial).await;
        let session = session.expect("the database accepts connections");
        // Otherwise it looks like a session of a server.
        let name = "SET application_name = 'application'";
        session.batch(name).await.expect("a name");
        session
    }
}

/// Returns what `posthaste outbox sql` prints.
pub(super) fn printed_sql(arguments: &[&str]) -> String {
    let mut command = without_settings(Command::new(PROGRAM));
    let output = command.args(["outbox", "sql"]).args(arguments).output();
    let output = output.expect("the program can be started");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// Returns the value of a metric with these labels.
pub(super) async fn metric(api: &mut Api, series: &str) -> Option<f64> {
    let reply = api.get("/metrics").await;
    let mut lines = reply.text.lines();
    let value = lines.find_map(|line| line.strip_prefix(series));
    value.map(|value| value.trim().parse().expect("a number"))
}

/// An ordered endpoint that gets as many requests as there are.
pub(super) fn fast_endpoint(receiver: &Receiver) -> Value {
    let rate = json!({"per_second": 5_000, "burst": 5_000});
    json!({"url": receiver.url(), "ordered": true, "rate_limit": rate})
}

/// Returns the numbers in the payloads that arrived, each with the events that had it.
pub(super) fn events_by_number(arrived: &[Arrival]) -> BTreeMap<u64, BTreeSet<String>> {
    let mut events: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    for arrival in arrived {
        let body: Value = serde_json::from_slice(&arrival.body).expect("JSON");
        let number = body["n"].as_u64().expect("a number");
        events.entry(number).or_default().insert(arrival.event());
    }
    events
}

/// Waits until every number up to `last` has arrived, and checks that each made one event and that there are no others.
pub(super) async fn expect_one_event_each(api: &mut Api, receiver: &Receiver, last: u64) {
    let numbers = |arrived: &[Arrival]| events_by_number(arrived).len() as u64;
    let arrived = receiver.until(|arrived| numbers(arrived) >= last).await;
    for (number, events) in events_by_number(&arrived) {
        assert_eq!(events.len(), 1, "row {number} made {events:?}");
    }
    assert_eq!(count_events(api).await, last);
}

/// Returns the number of events of the tenant.
pub(super) async fn count_events(api: &mut Api) -> u64 {
    let mut count = 0;
    let mut path = format!("/v1/tenants/{TENANT}/events?limit=250");
    loop {
        let page = api.get(&path).await.expect(200);
        count += page["data"].as_array().expect("a list").len() as u64;
        let Some(cursor) = page["next_cursor"].as_str() else {
            return count;
        };
        path = format!("/v1/tenants/{TENANT}/events?limit=250&cursor={cursor}");
    }
}
