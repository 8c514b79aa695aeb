//! Node RPC: questions and answers between nodes, through the table `mail`.
//!
//! A question is a row for the receiving node. That node is notified, deletes the row, and answers in the same way.
//! [`NodeRpc`] keeps the open questions and the rows to send. A crash loses questions and answers, so a question must
//! be safe to repeat. The number of open questions, their size and the wait for an answer are bounded.
//!
//! An expired question is not executed: the asking node may have reported a failure and asked for the opposite since.
//! A question therefore carries its expiry time by the database's clock, which both nodes can read. The time is
//! computed from a reading that is already old when it is used, so a question expires too early rather than too late.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use posthaste_core::cluster::NodeNo;
use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tokio_postgres::types::ToSql;

use super::membership::Membership;
use crate::postgres::cancellable_connection::CancellableConnection;
use crate::postgres::connection::PgConnection;
use crate::postgres::db_error::{DbError, Verdict};
use crate::postgres::reply::promise;
use crate::postgres::settings::PostgresSettings;
use crate::{Answer, Done, StoreError};

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste_store::postgres::mail";

/// Maximum size of a question or an answer.
const MAX_BODY_BYTES: usize = 1_024 * 1_024;
/// Maximum number of open questions of this node.
const MAX_OPEN_QUESTIONS: usize = 1_024;
/// Maximum number of questions of other nodes that this node answers at once.
const MAX_ANSWERING: usize = 1_024;
/// Maximum number of messages that wait to be sent.
const MAX_OUTBOX: usize = 4_096;
/// Maximum number of messages that are sent or read at once.
const MAX_AT_ONCE: usize = 256;
/// Maximum wait for an answer.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// Time limit for sending or reading.
const PATIENCE: Duration = Duration::from_secs(5);
/// Interval of polling for messages.
const LOOK: Duration = Duration::from_secs(1);
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

/// Messages that wait to be sent, and questions that wait for an answer.
#[derive(Default)]
pub(in crate::postgres) struct NodeRpc {
    inner: Mutex<Inner>,
    stir: Notify,
    /// Set when a `NOTIFY` message announces new rows in `mail`.
    called: AtomicBool,
}

#[derive(Default)]
struct Inner {
    outbox: VecDeque<RpcMessage>,
    asked: FxHashMap<i64, OpenQuestion>,
    last_reference: i64,
    answering: usize,
    closed: bool,
}

#[derive(Clone)]
struct RpcMessage {
    receiver: NodeNo,
    reference: i64,
    answer: bool,
    body: String,
    /// End of the wait for an answer; `None` for an answer.
    until: Option<Instant>,
}

struct OpenQuestion {
    node: NodeNo,
    until: Instant,
    done: Done<Value>,
}

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

impl NodeRpc {
    /// Sends a question to another node.
    pub(in crate::postgres) fn ask(
        &self,
        node: NodeNo,
        question: &Value,
        within: Duration,
    ) -> Answer<Value> {
        let (done, answer) = promise();
        if let Err((why, done)) = self.put_question(node, question.to_string(), within, done) {
            done(Err(why));
        }
        self.stir.notify_one();
        answer
    }

    fn put_question(
        &self,
        node: NodeNo,
        body: String,
        within: Duration,
        done: Done<Value>,
    ) -> Result<(), (StoreError, Done<Value>)> {
        let mut inner = self.lock();
        if inner.closed {
            return Err((StoreError::Closed, done));
        }
        if body.len() > MAX_BODY_BYTES {
            return Err((too_large(), done));
        }
        if inner.asked.len() >= MAX_OPEN_QUESTIONS || inner.outbox.len() >= MAX_OUTBOX {
            return Err((StoreError::Overloaded, done));
        }
        inner.last_reference += 1;
        let reference = inner.last_reference;
        let until = Instant::now() + within.min(MAX_WAIT);
        inner
            .asked
            .insert(reference, OpenQuestion { node, until, done });
        inner.outbox.push_back(RpcMessage {
            receiver: node,
            reference,
            answer: false,
            body,
            until: Some(until),
        });
        Ok(())
    }

    /// Answers another node. The answer is dropped if the outbox is full.
    fn put_answer(&self, node: NodeNo, reference: i64, result: &Result<Value, StoreError>) {
        let mut body = write_answer(result);
        if body.len() > MAX_BODY_BYTES {
            body = write_answer(&Err(too_large()));
        }
        let mut inner = self.lock();
        if !inner.closed && inner.outbox.len() < MAX_OUTBOX {
            inner.outbox.push_back(RpcMessage {
                receiver: node,
                reference,
                answer: true,
                body,
                until: None,
            });
        }
        drop(inner);
        self.stir.notify_one();
    }

    /// Wakes the task, because there may be messages.
    pub(in crate::postgres) fn wake(&self) {
        self.called.store(true, Ordering::SeqCst);
        self.stir.notify_one();
    }

    /// Refuses further questions, and answers all open questions with an error.
    pub(in crate::postgres) fn close(&self) {
        let asked = {
            let mut inner = self.lock();
            inner.closed = true;
            inner.outbox.clear();
            std::mem::take(&mut inner.asked)
        };
        for (_, asked) in asked {
            (asked.done)(Err(StoreError::Closed));
        }
        self.stir.notify_one();
    }

    /// Fails the questions that were not answered in time. Returns the next expiry time.
    fn fail_expired(&self, now: Instant) -> Option<Instant> {
        let (late, next) = {
            let mut inner = self.lock();
            let late: Vec<OpenQuestion> = inner
                .asked
                .extract_if(|_, asked| asked.until <= now)
                .map(|(_, asked)| asked)
                .collect();
            (late, inner.asked.values().map(|asked| asked.until).min())
        };
        for asked in late {
            let why = format!("{} did not answer in time", asked.node);
            (asked.done)(Err(StoreError::Unavailable(why)));
        }
        next
    }

    /// Completes an open question with its answer or an error. Only the node that was asked can answer.
    fn complete(&self, sender: NodeNo, reference: i64, result: Result<Value, StoreError>) {
        let asked = {
            let mut inner = self.lock();
            match inner.asked.get(&reference) {
                Some(asked) if asked.node == sender => inner.asked.remove(&reference),
                Some(_) | None => None,
            }
        };
        if let Some(asked) = asked {
            (asked.done)(result);
        }
    }

    /// Reserves a slot for answering another node's question. Returns false if all are in use.
    fn begin_answer(&self) -> bool {
        let mut inner = self.lock();
        let room = inner.answering < MAX_ANSWERING;
        inner.answering += usize::from(room);
        room
    }

    fn outgoing(&self) -> Vec<RpcMessage> {
        let mut inner = self.lock();
        let count = inner.outbox.len().min(MAX_AT_ONCE);
        inner.outbox.drain(..count).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A question of another node that is being answered. Dropping it sends the answer, or an error if there is none.
struct PendingAnswer {
    membership: Arc<Membership>,
    node: NodeNo,
    reference: i64,
    result: Result<Value, StoreError>,
}

impl PendingAnswer {
    /// Sets the answer and sends it.
    fn give(mut self, result: Result<Value, StoreError>) {
        self.result = result;
    }
}

impl Drop for PendingAnswer {
    fn drop(&mut self) {
        let post = &self.membership.post;
        post.lock().answering -= 1;
        post.put_answer(self.node, self.reference, &self.result);
    }
}

fn too_large() -> StoreError {
    let why = "what nodes say to each other must not be larger than 1 MiB";
    StoreError::Unavailable(why.to_owned())
}

fn write_answer(result: &Result<Value, StoreError>) -> String {
    match result {
        Ok(value) => json!({ "ok": value }).to_string(),
        Err(why) => json!({ "error": why.to_string() }).to_string(),
    }
}

fn read_answer(body: &str) -> Result<Value, StoreError> {
    let read: Result<Value, _> = serde_json::from_str(body);
    match read {
        Ok(Value::Object(mut answer)) => match (answer.remove("ok"), answer.remove("error")) {
            (Some(value), _) => Ok(value),
            (None, Some(Value::String(why))) => Err(StoreError::Unavailable(why)),
            (None, _) => Err(unreadable()),
        },
        Ok(_) | Err(_) => Err(unreadable()),
    }
}

fn unreadable() -> StoreError {
    StoreError::Unavailable("another node answered what cannot be read".to_owned())
}

/// Sends and reads messages until the store is closed.
pub(in crate::postgres) async fn deliver(
    membership: Arc<Membership>,
    settings: Rc<PostgresSettings>,
) {
    let mut tether = CancellableConnection::new(settings.clone());
    let mut failures: u32 = 0;
    let mut look_at = Instant::now();
    let mut time = None;
    while !membership.is_closing() {
        let post = &membership.post;
        let mut now = Instant::now();
        let letters = post.outgoing();
        let looks = post.called.swap(false, Ordering::SeqCst) || now >= look_at;
        let mut busy = letters.len() == MAX_AT_ONCE;
        if !letters.is_empty() || looks {
            let mut unsent = &letters[..];
            let mut exchanged =
                exchange(&mut tether, &membership, &mut time, &mut unsent, looks).await;
            if matches!(exchanged, Err(ExchangeError::FoundDead(_))) {
                tether.cut();
                time = None;
                exchanged = exchange(&mut tether, &membership, &mut time, &mut unsent, looks).await;
            }
            match exchanged {
                Ok(full) => {
                    failures = 0;
                    busy |= full;
                }
                Err(why) => {
                    tracing::debug!(target: LOG_TARGET, %why, "mail between nodes cannot be sent or taken");
                    tether.cut();
                    time = None;
                    failures = failures.saturating_add(1);
                    let why =
                        StoreError::Unavailable(format!("another node cannot be asked: {why}"));
                    refuse(post, unsent, &why);
                    post.called.store(true, Ordering::SeqCst);
                }
            }
            now = Instant::now();
            let pause = if membership.hears() {
                LOOK
            } else {
                POLL_INTERVAL_WITHOUT_NOTIFY
            };
            look_at = now + pause;
        }
        let patience = post.fail_expired(now);
        if busy {
            post.called.store(true, Ordering::SeqCst);
            continue;
        }
        if failures > 0 {
            tokio::time::sleep(settings.pauses.after(failures)).await;
            continue;
        }
        let until = patience.map_or(look_at, |patience| patience.min(look_at));
        tokio::select! {
            () = post.stir.notified() => {}
            () = tokio::time::sleep_until(until) => {}
        }
    }
}

/// The reason why messages were not sent or not read.
#[derive(Debug, thiserror::Error)]
enum ExchangeError {
    /// No answer within the time limit.
    #[error("no answer in time")]
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
        match fault.verdict() {
            Verdict::Lost | Verdict::Unprepared => ExchangeError::FoundDead(fault),
            Verdict::InTheWay
            | Verdict::Outdated
            | Verdict::Fenced
            | Verdict::Superseded
            | Verdict::Duplicate
            | Verdict::NoPartition
            | Verdict::Guilty => ExchangeError::Refused(fault),
        }
    }
}

/// Completes questions that were not sent with an error.
fn refuse(post: &NodeRpc, letters: &[RpcMessage], why: &StoreError) {
    for letter in letters.iter().filter(|letter| !letter.answer) {
        post.complete(letter.receiver, letter.reference, Err(why.clone()));
    }
}

/// Sends the unsent messages, and reads the messages for this node. Returns whether there may be more.
async fn exchange(
    tether: &mut CancellableConnection,
    membership: &Arc<Membership>,
    time: &mut Option<DatabaseTime>,
    unsent: &mut &[RpcMessage],
    looks: bool,
) -> Result<bool, ExchangeError> {
    let late = |_| ExchangeError::TimedOut;
    let connected = timeout(PATIENCE, tether.link()).await.map_err(late)?;
    let link = connected.map_err(ExchangeError::NotConnected)?;
    let me = membership.holdings.me();
    if !unsent.is_empty() {
        let letters = *unsent;
        let known = time.filter(|time| time.at.elapsed() < CLOCK_READING_VALID_FOR);
        let sending = async {
            let known = match known {
                Some(known) => known,
                None => read_time(&link).await?,
            };
            let sent = send(&link, me, letters, known).await?;
            Ok::<_, DbError>((sent, known))
        };
        let (sent, known) = timeout(PATIENCE, sending).await.map_err(late)??;
        // If reading fails from here on, these messages are not sent again.
        *unsent = &[];
        *time = Some(known);
        let gone: Vec<RpcMessage> = letters
            .iter()
            .filter(|letter| !sent.contains(&(letter.receiver, letter.reference, letter.answer)))
            .cloned()
            .collect();
        let why = StoreError::Unavailable("the node that was asked is gone".to_owned());
        refuse(&membership.post, &gone, &why);
    }
    if !looks {
        return Ok(false);
    }
    let taken = timeout(PATIENCE, take(&link, me)).await.map_err(late)??;
    let full = taken.len() == MAX_AT_ONCE;
    for letter in taken {
        open(membership, letter);
    }
    Ok(full)
}

/// Reads the database's clock.
async fn read_time(link: &PgConnection) -> Result<DatabaseTime, DbError> {
    let row = link.query_one(TIME, &[]).await?;
    Ok(DatabaseTime {
        at: Instant::now(),
        ms: row.get(0),
    })
}

/// Sends messages. Returns those that were inserted.
async fn send(
    link: &PgConnection,
    me: NodeNo,
    letters: &[RpcMessage],
    time: DatabaseTime,
) -> Result<Vec<(NodeNo, i64, bool)>, DbError> {
    let receivers: Vec<i64> = letters.iter().map(|one| one.receiver.0 as i64).collect();
    let references: Vec<i64> = letters.iter().map(|one| one.reference).collect();
    let answers: Vec<bool> = letters.iter().map(|one| one.answer).collect();
    let bodies: Vec<&str> = letters.iter().map(|one| one.body.as_str()).collect();
    let expire = |one: &RpcMessage| one.until.map(|until| time.by(until));
    let expires: Vec<Option<i64>> = letters.iter().map(expire).collect();
    let me = me.0 as i64;
    let given: [&(dyn ToSql + Sync); 6] =
        [&me, &receivers, &references, &answers, &bodies, &expires];
    let rows = link.query(SEND, &given).await?;
    let sent = rows.iter().map(|row| {
        let receiver: i64 = row.get(0);
        (NodeNo(receiver as u64), row.get(1), row.get(2))
    });
    Ok(sent.collect())
}

/// Reads and deletes the messages for this node, in the order in which they were sent.
async fn take(link: &PgConnection, me: NodeNo) -> Result<Vec<ReceivedMessage>, DbError> {
    let limit = MAX_AT_ONCE as i64;
    let mut rows = link.query(TAKE, &[&(me.0 as i64), &limit]).await?;
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

fn open(membership: &Arc<Membership>, letter: ReceivedMessage) {
    let ReceivedMessage {
        sender,
        reference,
        answer,
        body,
        late,
    } = letter;
    let post = &membership.post;
    if answer {
        return post.complete(sender, reference, read_answer(&body));
    }
    if late {
        return tracing::debug!(target: LOG_TARGET, %sender, "a question came too late to be answered");
    }
    let Ok(question) = serde_json::from_str(&body) else {
        return post.put_answer(sender, reference, &Err(unreadable()));
    };
    if !post.begin_answer() {
        return post.put_answer(sender, reference, &Err(StoreError::Overloaded));
    }
    let answering = PendingAnswer {
        membership: membership.clone(),
        node: sender,
        reference,
        result: Err(StoreError::Unavailable("it was not answered".to_owned())),
    };
    let done = Box::new(move |result| answering.give(result));
    membership.shared.orders.asked(question, done);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_read_as_they_were_written() {
        for answer in [json!(null), json!({ "error": 3 }), json!([1, "two"])] {
            assert_eq!(read_answer(&write_answer(&Ok(answer.clone()))), Ok(answer));
        }
        let refused = read_answer(&write_answer(&Err(StoreError::Overloaded)));
        assert_eq!(
            refused,
            Err(StoreError::Unavailable(StoreError::Overloaded.to_string()))
        );
        for odd in ["", "7", "{}", r#"{"error":7}"#] {
            assert_eq!(read_answer(odd), Err(unreadable()), "{odd}");
        }
    }

    #[tokio::test]
    async fn nobody_waits_for_ever_and_not_everybody_may_wait() {
        let post = NodeRpc::default();
        let within = Duration::from_secs(5);
        let first = post.ask(NodeNo(3), &json!("who"), within);
        let soon = post.fail_expired(Instant::now()).expect("somebody waits");
        assert!(post.fail_expired(soon).is_none());
        let why = first.await.expect_err("nobody answered");
        assert!(why.to_string().contains("node 3 did not answer"), "{why}");
        let waiting: Vec<_> = (0..MAX_OPEN_QUESTIONS)
            .map(|_| post.ask(NodeNo(3), &json!("who"), within))
            .collect();
        let more = post.ask(NodeNo(3), &json!("who"), within).await;
        assert_eq!(more, Err(StoreError::Overloaded));
        let huge = json!("x".repeat(MAX_BODY_BYTES));
        assert_eq!(post.ask(NodeNo(3), &huge, within).await, Err(too_large()));
        post.close();
        for answer in waiting {
            assert_eq!(answer.await, Err(StoreError::Closed));
        }
    }

    #[tokio::test]
    async fn only_who_was_asked_answers() {
        let post = NodeRpc::default();
        let answer = post.ask(NodeNo(3), &json!("who"), Duration::from_secs(5));
        post.complete(NodeNo(4), 1, Ok(json!("I")));
        post.complete(NodeNo(3), 2, Ok(json!("I")));
        post.complete(NodeNo(3), 1, Ok(json!("me")));
        assert_eq!(answer.await, Ok(json!("me")));
    }
}
