//! One connection: statements are prepared once and known by their text.
//!
//! Nothing that is set here is relied upon but for speed and for limits, so a proxy that gives every
//! transaction another connection is no harm.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Connection, NoTls, Row, Statement};

use super::dial::{Place, ServerUrl, Wire};
use super::fault::Fault;
use super::settings::PostgresSettings;
use super::statements::Statements;
use crate::StoreError;

/// How long connecting may take, with everything that belongs to it.
const CONNECT: Duration = Duration::from_secs(5);
/// No statement takes longer, but for those that say so.
const STATEMENT_MS: u32 = 30_000;
/// No statement waits longer for somebody else's lock.
pub(super) const LOCK_MS: u32 = 10_000;
/// No transaction of ours is forgotten for longer: what a frozen node has locked, others wait for.
const IDLE_TRANSACTION_MS: u32 = 5_000;
/// What a server that is there needs at most beside its own limit, to say that it was reached.
pub(super) const GRACE: Duration = Duration::from_secs(5);
/// For so long an answer is waited for, where nobody says otherwise.
pub(super) const ANSWER: Duration =
    Duration::from_millis(STATEMENT_MS as u64).saturating_add(GRACE);
/// The same where every request and every delivery waits: what takes longer is as good as away.
pub(super) const QUICK_ANSWER: Duration = Duration::from_secs(6);
/// The same where whatever is written next waits.
pub(super) const WRITTEN: Duration = Duration::from_secs(12);
/// The oldest server that is understood.
pub(super) const OLDEST_SERVER: u32 = 130_000;

/// What a statement is given.
pub(crate) type Given<'a> = &'a [&'a (dyn ToSql + Sync)];

/// The other half of a connection: whoever opened it has to poll it.
pub(super) type Pump = Connection<Box<dyn Wire>, NoTlsStream>;

/// A connection to the server.
pub(super) struct Link {
    client: Client,
    statements: Statements<Statement>,
    version: u32,
    /// For how long an answer is waited for, if not for ever.
    patience: Cell<Option<Duration>>,
}

/// Why there is no connection.
#[derive(Debug)]
pub(super) enum Unlinked {
    /// Nobody answers there.
    Unreachable {
        /// Where.
        place: Place,
        /// Why.
        why: String,
    },
    /// The server refuses, or does not answer as it should.
    Refused(Fault),
    /// The server only repeats what another one does.
    Standby(Place),
    /// The server is too old.
    TooOld(u32),
}

impl std::fmt::Display for Unlinked {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unlinked::Unreachable { place, why } => {
                write!(formatter, "{place} cannot be reached: {why}")
            }
            Unlinked::Refused(fault) => fault.fmt(formatter),
            Unlinked::Standby(place) => {
                write!(formatter, "{place} is a standby and takes no writes")
            }
            Unlinked::TooOld(version) => write!(
                formatter,
                "it is PostgreSQL {}, and 13 is needed",
                version / 10_000
            ),
        }
    }
}

impl From<Fault> for Unlinked {
    fn from(fault: Fault) -> Unlinked {
        Unlinked::Refused(fault)
    }
}

/// Connects to the first place that takes writes. What drives the connection is given back: to be polled by
/// somebody who wants to hear notices.
pub(super) async fn connect(
    settings: &PostgresSettings,
    url: &ServerUrl,
) -> Result<(Link, Pump), Unlinked> {
    let mut last = None;
    for (number, place) in url.in_turn() {
        // Whoever loses patience while this one keeps silent begins with the next.
        url.begin_with(number + 1);
        let linked = match timeout(CONNECT, reach(settings, url, place)).await {
            Ok(linked) => linked,
            Err(_) => Err(Unlinked::Unreachable {
                place: place.clone(),
                why: format!("no answer within {} s", CONNECT.as_secs()),
            }),
        };
        match linked {
            Ok(linked) => {
                url.begin_with(number);
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
    place: &Place,
) -> Result<(Link, Pump), Unlinked> {
    let dialled = settings.dial.dial(place, url.tls()).await;
    let wire = dialled.map_err(|error| Unlinked::Unreachable {
        place: place.clone(),
        why: error.to_string(),
    })?;
    let mut config = url.config().clone();
    config.application_name("posthaste");
    let (client, mut pump) = config.connect_raw(wire, NoTls).await.map_err(Fault::from)?;
    let link = Link {
        client,
        statements: Statements::default(),
        version: version(&pump),
        patience: Cell::default(),
    };
    if link.version < OLDEST_SERVER {
        return Err(Unlinked::TooOld(link.version));
    }
    let standby = tokio::select! {
        standby = set_up(&link) => standby?,
        lost = &mut pump => {
            let why = lost.err().map_or("it hung up".to_owned(), |error| error.to_string());
            let place = place.clone();
            return Err(Unlinked::Unreachable { place, why });
        }
    };
    if standby {
        return Err(Unlinked::Standby(place.clone()));
    }
    Ok((link, pump))
}

/// The server's version, as a number like 150004.
fn version(pump: &Pump) -> u32 {
    let text = pump.parameter("server_version").unwrap_or_default();
    let mut parts = text.split(|letter: char| !letter.is_ascii_digit());
    let mut number = || parts.next().and_then(|part| part.parse::<u32>().ok());
    let major = number().unwrap_or(0);
    major * 10_000 + number().unwrap_or(0)
}

/// Says how this connection wants to be treated, and asks whether the server takes writes.
async fn set_up(link: &Link) -> Result<bool, Fault> {
    // A plan for each value would be made anew for every batch, over all partitions. One that was made while
    // a table was small must not read all of it when it is not.
    link.batch(&format!(
        "SET plan_cache_mode = force_generic_plan; SET jit = off; \
         SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; \
         SET statement_timeout = {STATEMENT_MS}; SET lock_timeout = {LOCK_MS}; \
         SET idle_in_transaction_session_timeout = {IDLE_TRANSACTION_MS}; \
         SELECT set_config('synchronous_commit', 'on', false) \
         WHERE current_setting('synchronous_commit') = 'off'"
    ))
    .await?;
    let standby = link.query_one("SELECT pg_is_in_recovery()", &[]).await?;
    Ok(standby.get(0))
}

impl Link {
    /// Whether it is of no use any more.
    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// From now on an answer is waited for so long. A server that does not say within its own limit that it gave
    /// up is not there: the way to it swallows whatever is sent.
    pub(super) fn wait_for(&self, patience: Duration) {
        self.patience.set(Some(patience));
    }

    /// The same for a while, after which the former patience is given back.
    pub(super) fn swap_patience(&self, patience: Option<Duration>) -> Option<Duration> {
        self.patience.replace(patience)
    }

    /// The answer, or that none came.
    async fn heard<T>(
        &self,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Fault> {
        let Some(patience) = self.patience.get() else {
            return Ok(answer.await?);
        };
        match timeout(patience, answer).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(Fault::Silent(patience)),
        }
    }

    /// Prepares a statement, once.
    pub(super) async fn statement(&self, sql: &str) -> Result<Statement, Fault> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement);
        }
        let statement = self.heard(self.client.prepare(sql)).await?;
        self.statements.keep(sql, statement.clone());
        Ok(statement)
    }

    /// Prepares statements that are to be sent in one go. One that had to be prepared on the way would be sent
    /// after the commit that it belongs to.
    pub(super) async fn prepare_all(&self, statements: &[&str]) -> Result<(), Fault> {
        self.statements.make_room(statements.len());
        for sql in statements {
            self.statement(sql).await?;
        }
        Ok(())
    }

    /// Rows.
    pub(super) async fn query(&self, sql: &str, given: Given<'_>) -> Result<Vec<Row>, Fault> {
        let statement = self.statement(sql).await?;
        self.heard(self.client.query(&statement, given)).await
    }

    /// A row, if there is one.
    pub(super) async fn query_opt(
        &self,
        sql: &str,
        given: Given<'_>,
    ) -> Result<Option<Row>, Fault> {
        Ok(self.query(sql, given).await?.into_iter().next())
    }

    /// A row that is there.
    pub(super) async fn query_one(&self, sql: &str, given: Given<'_>) -> Result<Row, Fault> {
        let row = self.query_opt(sql, given).await?;
        row.ok_or_else(|| Fault::Unreadable("a row is missing".to_owned()))
    }

    /// Does something, and says to how many rows.
    pub(super) async fn execute(&self, sql: &str, given: Given<'_>) -> Result<u64, Fault> {
        let statement = self.statement(sql).await?;
        self.heard(self.client.execute(&statement, given)).await
    }

    /// Does several things that are given nothing.
    pub(super) async fn batch(&self, sql: &str) -> Result<(), Fault> {
        self.heard(self.client.batch_execute(sql)).await
    }
}

/// A failed attempt to connect.
pub(super) struct NotConnected {
    /// The time at which the attempt was started.
    pub(super) tried_at: tokio::time::Instant,
    /// The error for those who waited for it.
    pub(super) why: StoreError,
}

/// Keeps one connection, and makes another when it is lost; not again and again while nobody answers.
pub(super) struct Connector {
    settings: Rc<PostgresSettings>,
    link: Option<Rc<Link>>,
    /// What drives it.
    pump: Option<AbortHandle>,
    failures: u32,
    /// The time of the next attempt to connect, after one that failed.
    next_try_at: Option<tokio::time::Instant>,
}

impl Connector {
    /// One that has no connection yet.
    pub(super) fn new(settings: Rc<PostgresSettings>) -> Connector {
        Connector {
            settings,
            link: None,
            pump: None,
            failures: 0,
            next_try_at: None,
        }
    }

    /// Returns the connection, opening one if there is none.
    ///
    /// After a failed attempt the next one waits for the pause, and so does the caller: answering at once would refuse
    /// callers for up to [`Pauses::most`](super::settings::Pauses) after the server has come back.
    pub(super) async fn link(&mut self) -> Result<Rc<Link>, NotConnected> {
        if let Some(link) = self.link.as_ref().filter(|link| !link.is_closed()) {
            return Ok(link.clone());
        }
        self.link = None;
        if let Some(next_try_at) = self.next_try_at {
            tokio::time::sleep_until(next_try_at).await;
        }
        let tried_at = tokio::time::Instant::now();
        match self.open().await {
            Ok(link) => {
                if self.failures > 0 {
                    tracing::info!("the database answers again");
                }
                self.failures = 0;
                self.next_try_at = None;
                Ok(link)
            }
            Err(unlinked) => {
                let why =
                    StoreError::Unavailable(format!("no connection to the database: {unlinked}"));
                if self.failures == 0 {
                    tracing::warn!(%unlinked, "the database cannot be reached");
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
        self.link.as_ref().is_some_and(|link| !link.is_closed())
    }

    /// A new connection, and if there is none, why.
    pub(super) async fn open(&mut self) -> Result<Rc<Link>, Unlinked> {
        let (link, pump) = connect(&self.settings, &self.settings.server).await?;
        let pump = tokio::task::spawn_local(async move {
            // Whoever uses the connection hears of its end by itself.
            let _ = pump.await;
        });
        link.wait_for(ANSWER);
        let link = Rc::new(link);
        self.link = Some(link.clone());
        self.pump = Some(pump.abort_handle());
        Ok(link)
    }

    /// The connection is of no use any more. It ends at once, whoever still holds it: what was asked on it
    /// must not be done when nobody waits for it any longer.
    pub(super) fn drop_link(&mut self) {
        self.link = None;
        if let Some(pump) = self.pump.take() {
            pump.abort();
        }
    }
}
