//! A database of a test's own, on a server that is there.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::time::Instant;

use tokio::net::TcpStream;
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage};
use url::Url;

use crate::{PrivatePostgres, Wire, background};

/// Names the server that tests make their databases on.
pub const SERVER_VARIABLE: &str = "POSTHASTE_TEST_POSTGRES";

/// A new database, dropped when the test has ended.
#[derive(Debug)]
pub struct Database {
    server: Url,
    name: String,
}

impl Database {
    /// A database on the server that the environment names. Without one the test fails, and says what to do.
    pub fn fresh() -> Database {
        let server = std::env::var(SERVER_VARIABLE).unwrap_or_default();
        assert!(
            !server.is_empty(),
            "{SERVER_VARIABLE} names no PostgreSQL for tests: run scripts/test, or \
             scripts/postgres run cargo nextest run …"
        );
        Database::make(&server)
    }

    /// A database on a server of the test's own.
    pub fn on(server: &PrivatePostgres) -> Database {
        Database::make(&server.url())
    }

    fn make(server: &str) -> Database {
        let random = RandomState::new().hash_one(Instant::now());
        let name = format!("testbed_{}_{random:016x}", std::process::id());
        let server: Url = server.parse().expect("the URL of a server");
        let made = background::wait(command(server.clone(), format!("CREATE DATABASE {name}")));
        made.expect("a database can be made");
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
