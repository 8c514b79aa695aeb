//! The task that exchanges the messages of [`NodeRpc`] with other nodes, through the table `mail`.
//!
//! It sends the outgoing messages, and reads the rows for this node when a `NOTIFY` message announces some, and at
//! least every second.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use posthaste_core::cluster::NodeNo;
use tokio::time::{Instant, timeout};
use tokio_postgres::types::ToSql;

use super::membership::Membership;
use super::node_rpc::{NodeRpc, PendingAnswer, RpcMessage, read_answer, unreadable};
use crate::StoreError;
use crate::postgres::cancellable_connection::CancellableConnection;
use crate::postgres::connection::PgConnection;
use crate::postgres::db_error::{DbError, ErrorKind};
use crate::postgres::settings::PostgresSettings;

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste_store::postgres::mail";

/// Maximum number of messages that are sent or read at once.
pub(super) const MAX_AT_ONCE: usize = 256;

/// Time limit for sending or reading.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(5);

/// Interval of polling for messages.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The same while `NOTIFY` messages do not arrive.
const POLL_INTERVAL_WITHOUT_NOTIFY: Duration = Duration::from_millis(250);

/// Time for which a reading of the database's clock is used.
const CLOCK_READING_VALID_FOR: Duration = Duration::from_secs(10);

/// Reads the database's clock, in milliseconds.
const TIME: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/// Inserts messages for nodes that are registered, and notifies them.
const SEND: &str = "WITH sent AS (INSERT INTO mail (receiver, sender, reference, answer, body, expires_at) \
     SELECT m.receiver, $1, m.reference, m.answer, m.body, m.expires_at \
     FROM unnest($2::bigint[], $3::bigint[], $4::boolean[], $5::text[], $6::bigint[]) \
     AS m (receiver, reference, answer, body, expires_at) WHERE m.receiver IN (SELECT no FROM nodes) \
     RETURNING receiver, reference, answer) \
     SELECT receiver, reference, answer, pg_notify('posthaste_' || receiver, 'mail'), \
     set_config('synchronous_commit', 'off', true) FROM sent";

/// Deletes and returns the messages for this node.
const TAKE: &str = "DELETE FROM mail WHERE no IN \
     (SELECT no FROM mail WHERE receiver = $1 ORDER BY no LIMIT $2) \
     RETURNING no, sender, reference, answer, body, \
     coalesce(expires_at <= (extract(epoch FROM clock_timestamp()) * 1000)::bigint, false), set_config('synchronous_commit', 'off', true)";

/// A message that was read.
struct ReceivedMessage {
    sender: NodeNo,
    reference: i64,
    answer: bool,
    body: String,
    /// The question has expired.
    late: bool,
}

/// A reading of the database's clock. The local time `at` is taken afterwards, so `ms` is a lower bound of the
/// database's time at that moment.
#[derive(Clone, Copy, Debug)]
struct DatabaseTime {
    at: Instant,
    ms: i64,
}

impl DatabaseTime {
    /// Returns a lower bound of the database's time at a later local time.
    fn by(&self, moment: Instant) -> i64 {
        let later = moment.saturating_duration_since(self.at).as_millis();
        self.ms.saturating_add(later as i64)
    }
}

/// Sends and reads messages until the store is closed.
pub(super) async fn exchange_messages(membership: Arc<Membership>, settings: Rc<PostgresSettings>) {
    let mut connection = CancellableConnection::new(settings.clone());
    let mut failures: u32 = 0;
    let mut poll_at = Instant::now();
    let mut time = None;
    while !membership.is_closing() {
        let node_rpc = &membership.node_rpc;
        let mut now = Instant::now();
        let messages = node_rpc.outgoing();
        let polls = node_rpc.is_notified.swap(false, Ordering::SeqCst) || now >= poll_at;
        let mut busy = messages.len() == MAX_AT_ONCE;
        if !messages.is_empty() || polls {
            let mut unsent = &messages[..];
            let mut exchanged =
                exchange(&mut connection, &membership, &mut time, &mut unsent, polls).await;
            if matches!(exchanged, Err(ExchangeError::FoundDead(_))) {
                connection.cut();
                time = None;
                exchanged =
                    exchange(&mut connection, &membership, &mut time, &mut unsent, polls).await;
            }
            match exchanged {
                Ok(full) => {
                    failures = 0;
                    busy |= full;
                }
                Err(why) => {
                    tracing::debug!(target: LOG_TARGET, %why, "cannot exchange messages with other nodes");
                    connection.cut();
                    time = None;
                    failures = failures.saturating_add(1);
                    let why = StoreError::Unavailable(format!("cannot reach another node: {why}"));
                    refuse(node_rpc, unsent, &why);
                    node_rpc.is_notified.store(true, Ordering::SeqCst);
                }
            }
            now = Instant::now();
            let pause = if membership.receives_notify() {
                POLL_INTERVAL
            } else {
                POLL_INTERVAL_WITHOUT_NOTIFY
            };
            poll_at = now + pause;
        }
        let next_expiry = node_rpc.fail_expired(now);
        if busy {
            node_rpc.is_notified.store(true, Ordering::SeqCst);
            continue;
        }
        if failures > 0 {
            tokio::time::sleep(settings.pauses.after(failures)).await;
            continue;
        }
        let until = next_expiry.map_or(poll_at, |next_expiry| next_expiry.min(poll_at));
        tokio::select! {
            () = node_rpc.wake_up.notified() => {}
            () = tokio::time::sleep_until(until) => {}
        }
    }
}

/// The reason why messages were not sent or not read.
#[derive(Debug, thiserror::Error)]
enum ExchangeError {
    /// No answer within the time limit.
    #[error("no response in time")]
    TimedOut,
    /// No connection.
    #[error("{0}")]
    NotConnected(String),
    /// The connection is dead. Another one may work, and questions are safe to repeat.
    #[error("{0}")]
    FoundDead(DbError),
    /// The server refused.
    #[error("{0}")]
    Refused(DbError),
}

impl From<DbError> for ExchangeError {
    fn from(fault: DbError) -> ExchangeError {
        match fault.kind() {
            ErrorKind::Lost | ErrorKind::Unprepared => ExchangeError::FoundDead(fault),
            ErrorKind::Blocked
            | ErrorKind::Outdated
            | ErrorKind::Fenced
            | ErrorKind::Superseded
            | ErrorKind::Duplicate
            | ErrorKind::NoPartition
            | ErrorKind::Refused => ExchangeError::Refused(fault),
        }
    }
}

/// Completes questions that were not sent with an error.
fn refuse(node_rpc: &NodeRpc, messages: &[RpcMessage], why: &StoreError) {
    for message in messages.iter().filter(|message| !message.answer) {
        node_rpc.complete(message.receiver, message.reference, Err(why.clone()));
    }
}

/// Sends the unsent messages, and reads the messages for this node. Returns whether there may be more.
async fn exchange(
    connection: &mut CancellableConnection,
    membership: &Arc<Membership>,
    time: &mut Option<DatabaseTime>,
    unsent: &mut &[RpcMessage],
    polls: bool,
) -> Result<bool, ExchangeError> {
    let late = |_| ExchangeError::TimedOut;
    let connected = timeout(EXCHANGE_TIMEOUT, connection.get())
        .await
        .map_err(late)?;
    let conn = connected.map_err(ExchangeError::NotConnected)?;
    let me = membership.owned_shards.me();
    if !unsent.is_empty() {
        let messages = *unsent;
        let known = time.filter(|time| time.at.elapsed() < CLOCK_READING_VALID_FOR);
        let sending = async {
            let known = match known {
                Some(known) => known,
                None => read_time(&conn).await?,
            };
            let sent = send(&conn, me, messages, known).await?;
            Ok::<_, DbError>((sent, known))
        };
        let (sent, known) = timeout(EXCHANGE_TIMEOUT, sending).await.map_err(late)??;
        // If reading fails from here on, these messages are not sent again.
        *unsent = &[];
        *time = Some(known);
        let gone: Vec<RpcMessage> = messages
            .iter()
            .filter(|message| {
                !sent.contains(&(message.receiver, message.reference, message.answer))
            })
            .cloned()
            .collect();
        let why = StoreError::Unavailable("the other node has left the cluster".to_owned());
        refuse(&membership.node_rpc, &gone, &why);
    }
    if !polls {
        return Ok(false);
    }
    let taken = timeout(EXCHANGE_TIMEOUT, take_messages(&conn, me))
        .await
        .map_err(late)??;
    let full = taken.len() == MAX_AT_ONCE;
    for message in taken {
        handle_message(membership, message);
    }
    Ok(full)
}

/// Reads the database's clock.
async fn read_time(conn: &PgConnection) -> Result<DatabaseTime, DbError> {
    let row = conn.query_one(TIME, &[]).await?;
    Ok(DatabaseTime {
        at: Instant::now(),
        ms: row.get(0),
    })
}

/// Sends messages. Returns those that were inserted.
async fn send(
    conn: &PgConnection,
    me: NodeNo,
    messages: &[RpcMessage],
    time: DatabaseTime,
) -> Result<Vec<(NodeNo, i64, bool)>, DbError> {
    let receivers: Vec<i64> = messages.iter().map(|one| one.receiver.0 as i64).collect();
    let references: Vec<i64> = messages.iter().map(|one| one.reference).collect();
    let answers: Vec<bool> = messages.iter().map(|one| one.answer).collect();
    let bodies: Vec<&str> = messages.iter().map(|one| one.body.as_str()).collect();
    let expire = |one: &RpcMessage| one.until.map(|until| time.by(until));
    let expires: Vec<Option<i64>> = messages.iter().map(expire).collect();
    let me = me.0 as i64;
    let params: [&(dyn ToSql + Sync); 6] =
        [&me, &receivers, &references, &answers, &bodies, &expires];
    let rows = conn.query(SEND, &params).await?;
    let sent = rows.iter().map(|row| {
        let receiver: i64 = row.get(0);
        (NodeNo(receiver as u64), row.get(1), row.get(2))
    });
    Ok(sent.collect())
}

/// Reads and deletes the messages for this node, in the order in which they were sent.
async fn take_messages(conn: &PgConnection, me: NodeNo) -> Result<Vec<ReceivedMessage>, DbError> {
    let limit = MAX_AT_ONCE as i64;
    let mut rows = conn.query(TAKE, &[&(me.0 as i64), &limit]).await?;
    rows.sort_by_key(|row| row.get::<_, i64>(0));
    let taken = rows.iter().map(|row| ReceivedMessage {
        sender: NodeNo(row.get::<_, i64>(1) as u64),
        reference: row.get(2),
        answer: row.get(3),
        body: row.get(4),
        late: row.get(5),
    });
    Ok(taken.collect())
}

fn handle_message(membership: &Arc<Membership>, message: ReceivedMessage) {
    let ReceivedMessage {
        sender,
        reference,
        answer,
        body,
        late,
    } = message;
    let node_rpc = &membership.node_rpc;
    if answer {
        return node_rpc.complete(sender, reference, read_answer(&body));
    }
    if late {
        return tracing::debug!(target: LOG_TARGET, %sender, "dropped an expired request of another node");
    }
    let Ok(question) = serde_json::from_str(&body) else {
        return node_rpc.put_answer(sender, reference, &Err(unreadable()));
    };
    if !node_rpc.begin_answer() {
        return node_rpc.put_answer(sender, reference, &Err(StoreError::Overloaded));
    }
    let answering = PendingAnswer {
        membership: membership.clone(),
        node: sender,
        reference,
        result: Err(StoreError::Unavailable("no response".to_owned())),
    };
    let done = Box::new(move |result| answering.give(result));
    membership.shared.cluster_events.asked(question, done);
}
