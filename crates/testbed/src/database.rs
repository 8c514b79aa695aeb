//! Creates a database for one test, on a PostgreSQL server that already runs.
//!
//! [`Database`] is dropped at the end of the test. `Database::with_schema` copies a database that was migrated once,
//! because a migration takes longer than a copy.

use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::net::SocketAddr;
use std::time::Instant;

use tokio::net::TcpStream;
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage};
use url::Url;

use crate::{PrivatePostgres, TcpProxy, background};

/// Environment variable with the URL of the server on which tests create their databases.
pub const SERVER_VARIABLE: &str = "POSTHASTE_TEST_POSTGRES";

/// Prefix of the name of the template database that test databases are copied from.
const TEMPLATE: &str = "posthaste_template";
/// Advisory lock that a process holds while it creates the template.
const TEMPLATE_LOCK: i64 = 70_539_001;
/// First PostgreSQL version with `CREATE DATABASE … STRATEGY`.
const FIRST_WITH_STRATEGY: u32 = 150_000;

/// A new database. It is dropped at the end of the test.
#[derive(Debug)]
pub struct Database {
    server: Url,
    name: String,
}

impl Database {
    /// Creates a database with the newest schema of the store, on the server that the environment names. If it names
    /// none, the test fails with a message that explains what to do.
    pub fn with_schema() -> Database {
        Database::create(server_of_tests(), Schema::Newest)
    }

    /// Creates an empty database on the same server, for tests of the migration and of databases without a store.
    pub fn empty() -> Database {
        Database::create(server_of_tests(), Schema::None)
    }

    /// Creates an empty database on a private server of the test.
    pub fn on(server: &PrivatePostgres) -> Database {
        let server = server.url().parse().expect("the URL of a server");
        Database::create(server, Schema::None)
    }

    fn create(server: Url, schema: Schema) -> Database {
        let random = RandomState::new().hash_one(Instant::now());
        let name = format!("testbed_{}_{random:016x}", std::process::id());
        let created = background::wait(create(server.clone(), name.clone(), schema));
        created.unwrap_or_else(|error| panic!("the database cannot be created: {error}"));
        Database { server, name }
    }

    /// URL of the database.
    pub fn url(&self) -> String {
        self.own_url().to_string()
    }

    /// URL of the database that connects through the TCP proxy `proxy`, which must lead to the same server.
    pub fn url_via_proxy(&self, proxy: &TcpProxy) -> String {
        let mut url = self.own_url();
        let address = proxy.address();
        url.set_ip_host(address.ip()).expect("a URL with a host");
        url.set_port(Some(address.port()))
            .expect("a URL with a port");
        url.to_string()
    }

    /// Address of the server.
    pub fn address(&self) -> SocketAddr {
        address_of(&self.server)
    }

    /// Runs a statement and returns the selected rows as text.
    pub fn query(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        let rows = background::wait(command(self.own_url(), sql.to_owned()));
        rows.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Runs a statement and returns the one number that it selects.
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
        // An error is ignored: the server may have stopped, and its databases are deleted with it.
        let _ = background::wait(command(self.server.clone(), sql));
    }
}

/// The schema of a new database.
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
            // Copying files takes half the CPU time of writing each page to the log.
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

/// Returns the name of a database with the newest schema, and creates it if it does not exist yet. Copying it takes a
/// third of the CPU time of creating the tables.
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
        // The database gets its name only when it is complete. A killed process may have left an incomplete one.
        let unfinished = format!("{TEMPLATE}_unfinished");
        let drop = format!("DROP DATABASE IF EXISTS {unfinished} WITH (FORCE)");
        client.batch_execute(&drop).await?;
        let create = format!("CREATE DATABASE {unfinished}");
        client.batch_execute(&create).await?;
        let mut inside = server.clone();
        inside.set_path(&unfinished);
        connect(&inside).await?.batch_execute(&schema).await?;
        // The rename waits until the connection above has ended.
        let rename = format!("ALTER DATABASE {unfinished} RENAME TO {name}");
        client.batch_execute(&rename).await?;
    }
    client
        .execute("SELECT pg_advisory_unlock($1)", &[&TEMPLATE_LOCK])
        .await?;
    Ok(name)
}

/// Runs one statement over a new connection.
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
