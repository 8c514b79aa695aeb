//! A database of a test's own, on a server that is there.

use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::net::SocketAddr;
use std::time::Instant;

use tokio::net::TcpStream;
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage};
use url::Url;

use crate::{PrivatePostgres, Wire, background};

/// Names the server that tests make their databases on.
pub const SERVER_VARIABLE: &str = "POSTHASTE_TEST_POSTGRES";

/// The beginning of the name of the database that others are copies of.
const TEMPLATE: &str = "posthaste_template";
/// The advisory lock of the process that makes the template.
const TEMPLATE_LOCK: i64 = 70_539_001;
/// The first PostgreSQL that has strategies for copying a database.
const FIRST_WITH_STRATEGY: u32 = 150_000;

/// A new database, dropped when the test has ended.
#[derive(Debug)]
pub struct Database {
    server: Url,
    name: String,
}

impl Database {
    /// Makes a database with the store's newest schema, on the server that the environment names. Without one the test
    /// fails with a message that says what to do.
    pub fn with_schema() -> Database {
        Database::create(server_of_tests(), Schema::Newest)
    }

    /// Makes an empty database on the same server: for tests of the migration, and of what is not a store yet.
    pub fn empty() -> Database {
        Database::create(server_of_tests(), Schema::None)
    }

    /// Makes an empty database on a server of the test's own.
    pub fn on(server: &PrivatePostgres) -> Database {
        let server = server.url().parse().expect("the URL of a server");
        Database::create(server, Schema::None)
    }

    fn create(server: Url, schema: Schema) -> Database {
        let random = RandomState::new().hash_one(Instant::now());
        let name = format!("testbed_{}_{random:016x}", std::process::id());
        let created = background::wait(create(server.clone(), name.clone(), schema));
        created.unwrap_or_else(|error| panic!("a database can be made: {error}"));
        Database { server, name }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        self.own_url().to_string()
    }

    /// Its URL, through a wire that leads to its server.
    pub fn url_through(&self, wire: &Wire) -> String {
        let mut url = self.own_url();
        let address = wire.address();
        url.set_ip_host(address.ip()).expect("a URL with a host");
        url.set_port(Some(address.port())).expect("and a port");
        url.to_string()
    }

    /// Where its server listens.
    pub fn address(&self) -> SocketAddr {
        address_of(&self.server)
    }

    /// What a statement selects, as text.
    pub fn query(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        let rows = background::wait(command(self.own_url(), sql.to_owned()));
        rows.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// The one number that a statement selects.
    pub fn number(&self, sql: &str) -> i64 {
        let rows = self.query(sql);
        let value = rows.first().and_then(|row| row.first().cloned().flatten());
        let value = value.unwrap_or_else(|| panic!("{sql} selects nothing"));
        value
            .parse()
            .unwrap_or_else(|_| panic!("{sql}: {value} is no number"))
    }

    fn own_url(&self) -> Url {
        let mut url = self.server.clone();
        url.set_path(&self.name);
        url
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let sql = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        // A server that is gone has taken its databases along.
        let _ = background::wait(command(self.server.clone(), sql));
    }
}

/// The tables of a new database.
#[derive(Clone, Copy)]
enum Schema {
    None,
    Newest,
}

fn server_of_tests() -> Url {
    let server = std::env::var(SERVER_VARIABLE).unwrap_or_default();
    assert!(
        !server.is_empty(),
        "{SERVER_VARIABLE} names no PostgreSQL for tests: run scripts/test, or \
         scripts/postgres run cargo nextest run …"
    );
    server.parse().expect("the URL of a server")
}

async fn create(server: Url, name: String, schema: Schema) -> Result<(), tokio_postgres::Error> {
    let client = connect(&server).await?;
    let mut sql = format!("CREATE DATABASE {name}");
    match schema {
        Schema::None => {}
        Schema::Newest => {
            let template = template(&server, &client).await?;
            sql.push_str(&format!(" TEMPLATE {template}"));
            // Copying files takes half the processor time of writing each page to the log.
            let version =
                client.query_one("SELECT current_setting('server_version_num')::int", &[]);
            let version: i32 = version.await?.get(0);
            if version as u32 >= FIRST_WITH_STRATEGY {
                sql.push_str(" STRATEGY FILE_COPY");
            }
        }
    }
    client.batch_execute(&sql).await
}

/// Returns the name of a database with the newest schema, after making it if no test has yet. To copy it takes a third of
/// the processor time of making its tables.
async fn template(server: &Url, client: &Client) -> Result<String, tokio_postgres::Error> {
    let schema = posthaste_store::postgres::schema_sql();
    let mut hasher = DefaultHasher::new();
    schema.hash(&mut hasher);
    let name = format!("{TEMPLATE}_{:016x}", hasher.finish());
    let exists = format!("SELECT 1 FROM pg_database WHERE datname = '{name}'");
    if client.query_opt(&exists, &[]).await?.is_some() {
        return Ok(name);
    }
    client
        .execute("SELECT pg_advisory_lock($1)", &[&TEMPLATE_LOCK])
        .await?;
    if client.query_opt(&exists, &[]).await?.is_none() {
        // Named only once it is complete. A process that was killed may have left half of one.
        let unfinished = format!("{TEMPLATE}_unfinished");
        let drop = format!("DROP DATABASE IF EXISTS {unfinished} WITH (FORCE)");
        client.batch_execute(&drop).await?;
        let create = format!("CREATE DATABASE {unfinished}");
        client.batch_execute(&create).await?;
        let mut inside = server.clone();
        inside.set_path(&unfinished);
        connect(&inside).await?.batch_execute(&schema).await?;
        // Waits for the connection above to end.
        let rename = format!("ALTER DATABASE {unfinished} RENAME TO {name}");
        client.batch_execute(&rename).await?;
    }
    client
        .execute("SELECT pg_advisory_unlock($1)", &[&TEMPLATE_LOCK])
        .await?;
    Ok(name)
}

/// Runs one statement over a connection of its own.
async fn command(url: Url, sql: String) -> Result<Vec<Vec<Option<String>>>, tokio_postgres::Error> {
    let client = connect(&url).await?;
    let answered = client.simple_query(&sql).await?;
    let rows = answered.into_iter().filter_map(|message| {
        let SimpleQueryMessage::Row(row) = message else {
            return None;
        };
        let values = (0..row.len()).map(|column| row.get(column).map(str::to_owned));
        Some(values.collect())
    });
    Ok(rows.collect())
}

async fn connect(url: &Url) -> Result<Client, tokio_postgres::Error> {
    let config: Config = url.as_str().parse()?;
    let stream = TcpStream::connect(address_of(url)).await;
    let stream = stream
        .unwrap_or_else(|error| panic!("no PostgreSQL answers at {}: {error}", address_of(url)));
    let (client, connection) = config.connect_raw(stream, NoTls).await?;
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(client)
}

fn address_of(url: &Url) -> SocketAddr {
    let host = url.host_str().expect("a host");
    let ip = if host == "localhost" {
        "127.0.0.1"
    } else {
        host
    };
    let ip = ip
        .trim_matches(['[', ']'])
        .parse()
        .expect("tests name their server by its address");
    SocketAddr::new(ip, url.port().unwrap_or(5432))
}
