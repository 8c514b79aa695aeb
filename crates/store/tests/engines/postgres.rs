//! PostgreSQL: a database for each test, gone when the test is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use posthaste_core::cluster::Shard;
use posthaste_core::id::EndpointId;
use posthaste_core::time::{Tick, Timestamp};
use posthaste_store::postgres::{
    Dial, Dialled, Place, PostgresSettings, PostgresStore, ServerUrl, Tls, Wire,
};
use posthaste_store::{Change, Done, HandOver, Orders, Store, StoreSettings};
use posthaste_store_testing::contract::Harness;
use serde_json::Value;

/// Where tests find a server on which they may make databases.
const SERVER: &str = "POSTHASTE_TEST_POSTGRES";

/// Opens sockets, without TLS.
pub(crate) struct PlainDial;

impl Dial for PlainDial {
    fn dial(&self, place: &Place, _: &Tls) -> Dialled {
        let place = place.clone();
        Box::pin(async move {
            let wire: Box<dyn Wire> = match place {
                Place::Tcp { host, port } => {
                    let stream = tokio::net::TcpStream::connect((host, port)).await?;
                    stream.set_nodelay(true)?;
                    Box::new(stream)
                }
                Place::Unix { path } => Box::new(tokio::net::UnixStream::connect(path).await?),
            };
            Ok(wire)
        })
    }
}

/// A node that does nothing about its orders.
pub(crate) struct NoOrders;

impl Orders for NoOrders {
    fn granted(&self, _: Vec<Shard>) {}
    fn recalled(&self, _: Vec<Shard>, done: Done<()>) {
        done(Ok(()));
    }
    fn expired(&self) {}
    fn work(&self, _: Vec<(EndpointId, Timestamp)>) {}
    fn changed(&self, _: Vec<Change>) {}
    fn missed(&self) {}
    fn asked(&self, _: Value, done: Done<Value>) {
        done(Ok(Value::Null));
    }
}

/// A database of its own on the server that tests are given.
pub(crate) struct Database {
    server: ServerUrl,
    name: String,
}

impl Database {
    /// Makes one.
    pub(crate) fn create() -> Database {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let server = std::env::var(SERVER).unwrap_or_else(|_| {
            panic!("{SERVER} must name a PostgreSQL server for tests: run scripts/test, or set it to a URL like postgres://postgres@127.0.0.1:5432/postgres")
        });
        let server: ServerUrl = server.parse().expect("a PostgreSQL URL");
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("posthaste_test_{}_{number}", std::process::id());
        let database = Database { server, name };
        database.drop_it();
        database.on_server(&format!("CREATE DATABASE {}", database.name));
        database
    }

    /// Where it is.
    pub(crate) fn url(&self) -> ServerUrl {
        self.server.clone().with_database(&self.name)
    }

    /// Runs SQL in it, as somebody else would, and answers with the first column of its rows.
    pub(crate) fn run(&self, sql: &str) -> Vec<String> {
        simple_query(&self.url(), sql)
    }

    /// Begins a transaction, and leaves it open.
    pub(crate) fn hold(&self, sql: &str) -> Held {
        let (begun, begins) = std::sync::mpsc::channel();
        let (finish, finishes) = std::sync::mpsc::channel();
        let (url, sql) = (self.url(), sql.to_owned());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async {
                let wire = PlainDial.dial(&url.places()[0], url.tls()).await;
                let mut config = tokio_postgres::Config::new();
                config.user(url.user()).dbname(url.database());
                let raw = config
                    .connect_raw(wire.expect("it is there"), tokio_postgres::NoTls)
                    .await;
                let (client, connection) = raw.expect("the server lets us in");
                let pump = tokio::spawn(connection);
                let begin = format!("BEGIN; {sql}");
                client.batch_execute(&begin).await.expect("it begins");
                begun.send(()).expect("somebody waits");
                finishes.recv().expect("somebody finishes it");
                client.batch_execute("COMMIT").await.expect("it commits");
                drop(client);
                pump.await.expect("it ends").expect("in peace");
            });
        });
        begins.recv().expect("it begins");
        Held { finish, thread }
    }

    fn on_server(&self, sql: &str) {
        simple_query(&self.server, sql);
    }

    fn drop_it(&self) {
        self.on_server(&format!(
            "DROP DATABASE IF EXISTS {} WITH (FORCE)",
            self.name
        ));
    }
}

/// A transaction that somebody has begun.
pub(crate) struct Held {
    finish: std::sync::mpsc::Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

impl Held {
    /// Commits it.
    pub(crate) fn finish(self) {
        self.finish.send(()).expect("it waits");
        self.thread.join().expect("it commits");
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.drop_it();
    }
}

/// Runs SQL on a thread of its own, since whoever asks may be on a runtime.
fn simple_query(url: &ServerUrl, sql: &str) -> Vec<String> {
    let (url, sql) = (url.clone(), sql.to_owned());
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let wire = PlainDial.dial(&url.places()[0], url.tls()).await;
            let wire = wire.expect("the server is there");
            let mut config = tokio_postgres::Config::new();
            config.user(url.user()).dbname(url.database());
            if let Some(password) = std::env::var_os("PGPASSWORD") {
                config.password(password.as_encoded_bytes());
            }
            let raw = config.connect_raw(wire, tokio_postgres::NoTls).await;
            let (client, connection) = raw.expect("the server lets us in");
            let pump = tokio::spawn(connection);
            let messages = client.simple_query(&sql).await.expect("SQL");
            drop(client);
            pump.await.expect("it ends").expect("in peace");
            let mut rows = Vec::new();
            for message in messages {
                if let tokio_postgres::SimpleQueryMessage::Row(row) = message {
                    rows.push(row.get(0).unwrap_or_default().to_owned());
                }
            }
            rows
        })
    });
    thread.join().expect("SQL runs")
}

/// A database that goes when the test is over.
pub(crate) struct PostgresHarness {
    database: Database,
}

impl PostgresHarness {
    /// A new one.
    pub(crate) fn new() -> PostgresHarness {
        let database = Database::create();
        PostgresHarness { database }
    }
}

/// The usual settings of a store in a test.
pub(crate) fn settings(url: ServerUrl) -> PostgresSettings {
    let begun = Instant::now();
    let clock = move || Tick(begun.elapsed().as_millis() as u64);
    PostgresSettings::new(url, Arc::new(PlainDial), Arc::new(clock))
}

impl Harness for PostgresHarness {
    fn open(&self, store: StoreSettings, hand_over: Arc<dyn HandOver>) -> Arc<dyn Store> {
        let mut settings = settings(self.database.url());
        // Callers of the contract ask one thing at a time. Every further connection would plan the same statements again,
        // which is most of what these tests cost.
        settings.quick_readers = 1;
        let store = PostgresStore::open(settings, store, hand_over, Arc::new(NoOrders));
        Arc::new(store.expect("it opens"))
    }
}
