//! PostgreSQL fixture: a database for each test, deleted when the test ends.

use std::sync::Arc;
use std::time::Instant;

use posthaste_core::cluster::Shard;
use posthaste_core::id::EndpointId;
use posthaste_core::time::{Tick, Timestamp};
use posthaste_store::postgres::{
    ByteStream, Dial, DialFuture, PostgresSettings, PostgresStore, ServerAddress, ServerUrl, Tls,
};
use posthaste_store::{Change, ClusterEvents, Done, HandOver, Store, StoreSettings};
use posthaste_store_testing::contract::Harness;
use serde_json::Value;

/// Opens sockets, without TLS.
pub(crate) struct PlainDial;

impl Dial for PlainDial {
    fn dial(&self, place: &ServerAddress, _: &Tls) -> DialFuture {
        let place = place.clone();
        Box::pin(async move {
            let wire: Box<dyn ByteStream> = match place {
                ServerAddress::Tcp { host, port } => {
                    let stream = tokio::net::TcpStream::connect((host, port)).await?;
                    stream.set_nodelay(true)?;
                    Box::new(stream)
                }
                ServerAddress::Unix { path } => {
                    Box::new(tokio::net::UnixStream::connect(path).await?)
                }
            };
            Ok(wire)
        })
    }
}

/// A node that ignores its cluster events.
pub(crate) struct IgnoreClusterEvents;

impl ClusterEvents for IgnoreClusterEvents {
    fn granted(&self, _: Vec<Shard>) {}
    fn revoked(&self, _: Vec<Shard>, done: Done<()>) {
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

/// A database of one test, with the methods that store tests use.
pub(crate) struct Database {
    inner: posthaste_testbed::Database,
}

impl Database {
    /// Creates one with the newest schema.
    pub(crate) fn create() -> Database {
        let inner = posthaste_testbed::Database::with_schema();
        Database { inner }
    }

    /// Creates an empty one.
    pub(crate) fn create_empty() -> Database {
        let inner = posthaste_testbed::Database::empty();
        Database { inner }
    }

    /// Returns its URL.
    pub(crate) fn url(&self) -> ServerUrl {
        self.inner.url().parse().expect("a PostgreSQL URL")
    }

    /// Returns its URL through this proxy.
    pub(crate) fn url_via(&self, proxy: &posthaste_testbed::TcpProxy) -> ServerUrl {
        self.inner
            .url_via_proxy(proxy)
            .parse()
            .expect("a PostgreSQL URL")
    }

    /// Starts a proxy in front of its server.
    pub(crate) fn proxy(&self) -> posthaste_testbed::TcpProxy {
        posthaste_testbed::TcpProxy::to(self.inner.address())
    }

    /// Runs SQL over another connection, and returns the first column of the rows.
    pub(crate) fn run(&self, sql: &str) -> Vec<String> {
        let rows = self.inner.query(sql).into_iter();
        rows.map(|row| row.into_iter().next().flatten().unwrap_or_default())
            .collect()
    }

    /// Starts a transaction, and leaves it open.
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
                let wire = PlainDial.dial(&url.addresses()[0], url.tls()).await;
                let mut config = tokio_postgres::Config::new();
                config.user(url.user()).dbname(url.database());
                let raw = config
                    .connect_raw(wire.expect("it is there"), tokio_postgres::NoTls)
                    .await;
                let (client, connection) = raw.expect("the server lets us in");
                let pump = tokio::spawn(connection);
                let begin = format!("BEGIN; {sql}");
                client.batch_execute(&begin).await.expect("it begins");
                begun.send(()).expect("the caller waits");
                finishes.recv().expect("the test ends it");
                client.batch_execute("COMMIT").await.expect("it commits");
                drop(client);
                pump.await.expect("it ends").expect("in peace");
            });
        });
        begins.recv().expect("it begins");
        Held { finish, thread }
    }
}

/// An open transaction.
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

/// A database that is deleted when the test ends.
pub(crate) struct PostgresHarness {
    database: Database,
}

impl PostgresHarness {
    /// Creates one.
    pub(crate) fn new() -> PostgresHarness {
        let database = Database::create();
        PostgresHarness { database }
    }
}

/// Returns the usual settings of a store in a test.
pub(crate) fn settings(url: ServerUrl) -> PostgresSettings {
    let begun = Instant::now();
    let clock = move || Tick(begun.elapsed().as_millis() as u64);
    PostgresSettings::new(url, Arc::new(PlainDial), Arc::new(clock))
}

impl Harness for PostgresHarness {
    fn open(&self, store: StoreSettings, hand_over: Arc<dyn HandOver>) -> Arc<dyn Store> {
        let mut settings = settings(self.database.url());
        // The contract tests make one request at a time. Every further connection would plan the same statements
        // again, which is most of the cost of these tests.
        settings.quick_readers = 1;
        let store = PostgresStore::open(settings, store, hand_over, Arc::new(IgnoreClusterEvents));
        Arc::new(store.expect("it opens"))
    }
}
