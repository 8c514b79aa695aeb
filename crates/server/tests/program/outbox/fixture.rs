//! A database of an application with an outbox table, and servers that read it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use posthaste_engine::database::EgressDialer;
use posthaste_store::postgres::{Dial, ServerUrl, Session};
use posthaste_testbed::{Database, Node, NodeOptions, without_settings};
use tempfile::TempDir;

use crate::fixture::{Api, until};

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
        session.expect("the database accepts connections")
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
