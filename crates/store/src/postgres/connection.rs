//! One database connection. Statements are prepared once and found by their SQL text.
//!
//! [`PgConnection`] runs statements with a time limit; [`Connector`] keeps one link open and reconnects. Correctness
//! does not depend on the session settings made here, only speed and time limits do. So a proxy that pools by
//! transaction does no harm.

use std::rc::Rc;
use std::sync::{Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Connection, NoTls, Row, Statement};

use super::db_error::DbError;
use super::dial::{ByteStream, ServerAddress, ServerUrl};
use super::settings::PostgresSettings;
use super::statement_cache::StatementCache;
use crate::StoreError;

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste_store::postgres::link";

/// Time limit for connecting, including the setup statements.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Statement timeout, unless a statement sets its own.
const STATEMENT_MS: u32 = 30_000;
/// Maximum wait for another transaction's lock.
pub(super) const LOCK_MS: u32 = 10_000;
/// Maximum idle time of an open transaction: other nodes wait for the locks of a frozen node.
const IDLE_TRANSACTION_MS: u32 = 5_000;
/// Time that a live server needs at most, in addition to its own timeout, to report that the timeout was reached.
pub(super) const TIMEOUT_GRACE: Duration = Duration::from_secs(5);
/// Default time limit for an answer.
pub(super) const ANSWER_TIMEOUT: Duration =
    Duration::from_millis(STATEMENT_MS as u64).saturating_add(TIMEOUT_GRACE);
/// Time limit for an answer where every request and every delivery waits: a slower server counts as unavailable.
pub(super) const QUICK_ANSWER_TIMEOUT: Duration = Duration::from_secs(6);
/// Time limit for an answer to a cold operation, while the next writes wait.
pub(super) const COLD_WRITE_TIMEOUT: Duration = Duration::from_secs(12);
/// The oldest supported server version.
pub(super) const MIN_SERVER_VERSION: u32 = 130_000;

/// Parameters of a statement.
pub(crate) type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// The I/O half of a connection. The task that opened the connection must poll it.
pub(super) type ConnectionDriver = Connection<Box<dyn ByteStream>, NoTlsStream>;

/// A connection to the server.
pub(super) struct PgConnection {
    client: Client,
    statements: StatementCache<Statement>,
    version: u32,
    /// Time limit for an answer; no limit if absent.
    time_limit: Mutex<Option<Duration>>,
}

/// The reason why there is no connection.
#[derive(Debug)]
pub(super) enum ConnectError {
    /// The server does not answer.
    Unreachable {
        /// The address.
        address: ServerAddress,
        /// The cause.
        why: String,
    },
    /// The server refuses the connection, or its answer is an error.
    Refused(DbError),
    /// The server is a read-only standby.
    Standby(ServerAddress),
    /// The server is too old.
    TooOld(u32),
}

impl std::fmt::Display for ConnectError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ConnectError::Unreachable { address, why } => {
                write!(formatter, "cannot reach {address}: {why}")
            }
            ConnectError::Refused(fault) => fault.fmt(formatter),
            ConnectError::Standby(address) => {
                write!(formatter, "{address} is a standby and read-only")
            }
            ConnectError::TooOld(version) => write!(
                formatter,
                "it is PostgreSQL {}, and 13 or later is required",
                version / 10_000
            ),
        }
    }
}

impl From<DbError> for ConnectError {
    fn from(fault: DbError) -> ConnectError {
        ConnectError::Refused(fault)
    }
}

/// Connects to the first address that accepts writes. Also returns the I/O half, so that the caller can receive
/// `NOTIFY` messages.
pub(super) async fn connect(
    settings: &PostgresSettings,
    url: &ServerUrl,
) -> Result<(PgConnection, ConnectionDriver), ConnectError> {
    let mut last = None;
    for (number, address) in url.addresses_to_try() {
        // If the caller stops waiting while this address is silent, the next call starts with the next address.
        url.set_first_address(number + 1);
        let linked = match timeout(CONNECT_TIMEOUT, reach(settings, url, address)).await {
            Ok(linked) => linked,
            Err(_) => Err(ConnectError::Unreachable {
                address: address.clone(),
                why: format!("no response within {} s", CONNECT_TIMEOUT.as_secs()),
            }),
        };
        match linked {
            Ok(linked) => {
                url.set_first_address(number);
                return Ok(linked);
            }
            Err(why) => last = Some(why),
        }
    }
    Err(last.expect("a URL names a place"))
}

async fn reach(
    settings: &PostgresSettings,
    url: &ServerUrl,
    address: &ServerAddress,
) -> Result<(PgConnection, ConnectionDriver), ConnectError> {
    let dialled = settings.dial.dial(address, url.tls()).await;
    let wire = dialled.map_err(|error| ConnectError::Unreachable {
        address: address.clone(),
        why: error.to_string(),
    })?;
    let mut config = url.config().clone();
    config.application_name("posthaste");
    let (client, mut driver) = config
        .connect_raw(wire, NoTls)
        .await
        .map_err(DbError::from)?;
    let conn = PgConnection {
        client,
        statements: StatementCache::default(),
        version: version(&driver),
        time_limit: Mutex::default(),
    };
    if conn.version < MIN_SERVER_VERSION {
        return Err(ConnectError::TooOld(conn.version));
    }
    let standby = tokio::select! {
        standby = set_up(&conn) => standby?,
        lost = &mut driver => {
            let why = lost.err().map_or("it closed the connection".to_owned(), |error| error.to_string());
            let address = address.clone();
            return Err(ConnectError::Unreachable { address, why });
        }
    };
    if standby {
        return Err(ConnectError::Standby(address.clone()));
    }
    Ok((conn, driver))
}

/// Returns the server's version as a number like 150004.
fn version(driver: &ConnectionDriver) -> u32 {
    let text = driver.parameter("server_version").unwrap_or_default();
    let mut parts = text.split(|character: char| !character.is_ascii_digit());
    let mut number = || parts.next().and_then(|part| part.parse::<u32>().ok());
    let major = number().unwrap_or(0);
    major * 10_000 + number().unwrap_or(0)
}

/// Sets the session settings, and returns whether the server is a standby.
async fn set_up(conn: &PgConnection) -> Result<bool, DbError> {
    // Custom plans would be made again for every batch, over all partitions. Sequential scans are off, because a
    // generic plan that was made while a table was small must not scan it when it is large. The checks of a commit
    // (`demand`) must see what other transactions have committed meanwhile, so the isolation level is not the database's.
    conn.batch(&format!(
        "SET plan_cache_mode = force_generic_plan; SET jit = off; \
         SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; \
         SET default_transaction_isolation = 'read committed'; \
         SET statement_timeout = {STATEMENT_MS}; SET lock_timeout = {LOCK_MS}; \
         SET idle_in_transaction_session_timeout = {IDLE_TRANSACTION_MS}; \
         SELECT set_config('synchronous_commit', 'on', false) \
         WHERE current_setting('synchronous_commit') = 'off'"
    ))
    .await?;
    let standby = conn.query_one("SELECT pg_is_in_recovery()", &[]).await?;
    Ok(standby.get(0))
}

impl PgConnection {
    /// Returns whether the connection is closed.
    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Sets the time limit for all further answers. A server that does not report its own timeout within this time is
    /// unreachable: the network drops everything that is sent.
    pub(super) fn set_time_limit(&self, time_limit: Duration) {
        self.replace_time_limit(Some(time_limit));
    }

    /// Replaces the time limit, and returns the former one.
    pub(super) fn replace_time_limit(&self, time_limit: Option<Duration>) -> Option<Duration> {
        let mut current = self
            .time_limit
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut current, time_limit)
    }

    /// Waits for an answer, up to the time limit.
    async fn within_time_limit<T>(
        &self,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, DbError> {
        let time_limit = *self
            .time_limit
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let Some(time_limit) = time_limit else {
            return Ok(answer.await?);
        };
        match timeout(time_limit, answer).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(DbError::TimedOut(time_limit)),
        }
    }

    /// Prepares a statement, once.
    pub(super) async fn statement(&self, sql: &str) -> Result<Statement, DbError> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement);
        }
        let statement = self.within_time_limit(self.client.prepare(sql)).await?;
        self.statements.keep(sql, statement.clone());
        Ok(statement)
    }

    /// Prepares statements that are to be sent as one pipeline, in one round trip. A statement that was prepared inside
    /// that pipeline would be sent after the commit that it belongs to.
    pub(super) async fn prepare_all(&self, statements: &[&str]) -> Result<(), DbError> {
        self.statements.make_room(statements.len());
        let missing = statements
            .iter()
            .filter(|sql| self.statements.get(sql).is_none());
        let mut preparing: Vec<_> = missing
            .map(|sql| Some(Box::pin(self.statement(sql))))
            .collect();
        // The first poll of each sends it.
        std::future::poll_fn(|context| {
            let mut waits = false;
            for slot in &mut preparing {
                let Some(statement) = slot else { continue };
                match statement.as_mut().poll(context) {
                    Poll::Pending => waits = true,
                    Poll::Ready(Ok(_)) => *slot = None,
                    Poll::Ready(Err(fault)) => return Poll::Ready(Err(fault)),
                }
            }
            match waits {
                true => Poll::Pending,
                false => Poll::Ready(Ok(())),
            }
        })
        .await
    }

    /// Returns rows.
    pub(super) async fn query(&self, sql: &str, params: Params<'_>) -> Result<Vec<Row>, DbError> {
        let statement = self.statement(sql).await?;
        self.within_time_limit(self.client.query(&statement, params))
            .await
    }

    /// Returns the first row, if there is one.
    pub(super) async fn query_opt(
        &self,
        sql: &str,
        params: Params<'_>,
    ) -> Result<Option<Row>, DbError> {
        Ok(self.query(sql, params).await?.into_iter().next())
    }

    /// Returns the first row, or an error if there is none.
    pub(super) async fn query_one(&self, sql: &str, params: Params<'_>) -> Result<Row, DbError> {
        let row = self.query_opt(sql, params).await?;
        row.ok_or_else(|| DbError::Corrupt("a row is missing".to_owned()))
    }

    /// Runs a statement, and returns the number of affected rows.
    pub(super) async fn execute(&self, sql: &str, params: Params<'_>) -> Result<u64, DbError> {
        let statement = self.statement(sql).await?;
        self.within_time_limit(self.client.execute(&statement, params))
            .await
    }

    /// Runs several statements without parameters.
    pub(super) async fn batch(&self, sql: &str) -> Result<(), DbError> {
        self.within_time_limit(self.client.batch_execute(sql)).await
    }
}

/// Drives a connection until it is lost, and passes the payload of each `NOTIFY` message on.
pub(super) async fn drive_with_notifications(
    mut driver: ConnectionDriver,
    mut receive: impl FnMut(&str),
) {
    loop {
        let message = std::future::poll_fn(|context| driver.poll_message(context)).await;
        match message {
            Some(Ok(AsyncMessage::Notification(message))) => receive(message.payload()),
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return,
        }
    }
}

/// A failed attempt to connect.
pub(super) struct NotConnected {
    /// The time at which the attempt was started.
    pub(super) tried_at: tokio::time::Instant,
    /// The error for the callers that waited for it.
    pub(super) why: StoreError,
}

/// Keeps one connection, and opens another when it is lost, with increasing pauses while connecting fails.
pub(super) struct Connector {
    settings: Rc<PostgresSettings>,
    conn: Option<Rc<PgConnection>>,
    /// The task that drives the connection.
    driver: Option<AbortHandle>,
    failures: u32,
    /// The time of the next attempt to connect, after one that failed.
    next_try_at: Option<tokio::time::Instant>,
}

impl Connector {
    /// Creates a connector without a connection.
    pub(super) fn new(settings: Rc<PostgresSettings>) -> Connector {
        Connector {
            settings,
            conn: None,
            driver: None,
            failures: 0,
            next_try_at: None,
        }
    }

    /// Returns the connection, opening one if there is none.
    ///
    /// After a failed attempt the next one waits for the pause, and so does the caller: answering at once would
    /// refuse callers for up to [`ReconnectBackoff::most`](super::settings::ReconnectBackoff) after the server has come back.
    pub(super) async fn conn(&mut self) -> Result<Rc<PgConnection>, NotConnected> {
        if let Some(conn) = self.conn.as_ref().filter(|conn| !conn.is_closed()) {
            return Ok(conn.clone());
        }
        self.conn = None;
        if let Some(next_try_at) = self.next_try_at {
            tokio::time::sleep_until(next_try_at).await;
        }
        let tried_at = tokio::time::Instant::now();
        match self.open().await {
            Ok(conn) => {
                if self.failures > 0 {
                    tracing::info!(target: LOG_TARGET, "connected to PostgreSQL again");
                }
                self.failures = 0;
                self.next_try_at = None;
                Ok(conn)
            }
            Err(not_connected) => {
                let why = StoreError::Unavailable(format!(
                    "cannot connect to PostgreSQL: {not_connected}"
                ));
                if self.failures == 0 {
                    tracing::warn!(target: LOG_TARGET, unlinked = %not_connected, "cannot reach PostgreSQL");
                }
                self.failures = self.failures.saturating_add(1);
                let pause = self.settings.pauses.after(self.failures);
                self.next_try_at = Some(tokio::time::Instant::now() + pause);
                Err(NotConnected { tried_at, why })
            }
        }
    }

    /// Returns whether the last attempt to connect failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failures > 0
    }

    /// Returns whether there is a connection that is not known to be closed.
    pub(super) fn is_connected(&self) -> bool {
        self.conn.as_ref().is_some_and(|conn| !conn.is_closed())
    }

    /// Opens a new connection.
    pub(super) async fn open(&mut self) -> Result<Rc<PgConnection>, ConnectError> {
        let (conn, driver) = connect(&self.settings, &self.settings.server).await?;
        let driver = tokio::task::spawn_local(async move {
            // The next statement on the connection reports its end.
            let _ = driver.await;
        });
        conn.set_time_limit(ANSWER_TIMEOUT);
        let conn = Rc::new(conn);
        self.conn = Some(conn.clone());
        self.driver = Some(driver.abort_handle());
        Ok(conn)
    }

    /// Closes the connection immediately, even if other tasks still hold it. A request on it must not be executed
    /// after its caller has stopped waiting.
    pub(super) fn drop_connection(&mut self) {
        self.conn = None;
        if let Some(driver) = self.driver.take() {
            driver.abort();
        }
    }
}
