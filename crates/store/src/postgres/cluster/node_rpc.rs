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
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use posthaste_core::cluster::NodeNo;
use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::membership::Membership;
use super::rpc_exchange::MAX_AT_ONCE;
use crate::reply::reply_channel;
use crate::{Answer, Done, StoreError};

/// Maximum size of a question or an answer.
const MAX_BODY_BYTES: usize = 1_024 * 1_024;
/// Maximum number of open questions of this node.
const MAX_OPEN_QUESTIONS: usize = 1_024;
/// Maximum number of questions of other nodes that this node answers at once.
const MAX_ANSWERING: usize = 1_024;
/// Maximum number of messages that wait to be sent.
const MAX_OUTGOING: usize = 4_096;
/// Maximum wait for an answer.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// Messages that wait to be sent, and questions that wait for an answer.
#[derive(Default)]
pub(in crate::postgres) struct NodeRpc {
    inner: Mutex<Inner>,
    pub(super) wake_up: Notify,
    /// Set when a `NOTIFY` message announces new rows in `mail`.
    pub(super) is_notified: AtomicBool,
}

#[derive(Default)]
struct Inner {
    outgoing: VecDeque<RpcMessage>,
    open_questions: FxHashMap<i64, OpenQuestion>,
    last_reference: i64,
    answering: usize,
    closed: bool,
}

#[derive(Clone)]
pub(super) struct RpcMessage {
    pub(super) receiver: NodeNo,
    pub(super) reference: i64,
    pub(super) answer: bool,
    pub(super) body: String,
    /// End of the wait for an answer; `None` for an answer.
    pub(super) until: Option<Instant>,
}

struct OpenQuestion {
    node: NodeNo,
    until: Instant,
    done: Done<Value>,
}

impl NodeRpc {
    /// Sends a question to another node.
    pub(super) fn ask(&self, node: NodeNo, question: &Value, within: Duration) -> Answer<Value> {
        let (done, answer) = reply_channel();
        if let Err((why, done)) = self.put_question(node, question.to_string(), within, done) {
            done(Err(why));
        }
        self.wake_up.notify_one();
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
        if inner.open_questions.len() >= MAX_OPEN_QUESTIONS || inner.outgoing.len() >= MAX_OUTGOING
        {
            return Err((StoreError::Overloaded, done));
        }
        inner.last_reference += 1;
        let reference = inner.last_reference;
        let until = Instant::now() + within.min(MAX_WAIT);
        inner
            .open_questions
            .insert(reference, OpenQuestion { node, until, done });
        inner.outgoing.push_back(RpcMessage {
            receiver: node,
            reference,
            answer: false,
            body,
            until: Some(until),
        });
        Ok(())
    }

    /// Answers another node. The answer is dropped if the queue of outgoing messages is full.
    pub(super) fn put_answer(
        &self,
        node: NodeNo,
        reference: i64,
        result: &Result<Value, StoreError>,
    ) {
        let mut body = write_answer(result);
        if body.len() > MAX_BODY_BYTES {
            body = write_answer(&Err(too_large()));
        }
        let mut inner = self.lock();
        if !inner.closed && inner.outgoing.len() < MAX_OUTGOING {
            inner.outgoing.push_back(RpcMessage {
                receiver: node,
                reference,
                answer: true,
                body,
                until: None,
            });
        }
        drop(inner);
        self.wake_up.notify_one();
    }

    /// Wakes the task, because there may be messages.
    pub(super) fn wake(&self) {
        self.is_notified.store(true, Ordering::SeqCst);
        self.wake_up.notify_one();
    }

    /// Refuses further questions, and answers all open questions with an error.
    pub(in crate::postgres) fn close(&self) {
        let questions = {
            let mut inner = self.lock();
            inner.closed = true;
            inner.outgoing.clear();
            std::mem::take(&mut inner.open_questions)
        };
        for (_, question) in questions {
            (question.done)(Err(StoreError::Closed));
        }
        self.wake_up.notify_one();
    }

    /// Fails the questions that were not answered in time. Returns the next expiry time.
    pub(super) fn fail_expired(&self, now: Instant) -> Option<Instant> {
        let (late, next) = {
            let mut inner = self.lock();
            let late: Vec<OpenQuestion> = inner
                .open_questions
                .extract_if(|_, question| question.until <= now)
                .map(|(_, question)| question)
                .collect();
            (
                late,
                inner
                    .open_questions
                    .values()
                    .map(|question| question.until)
                    .min(),
            )
        };
        for question in late {
            let why = format!("{} did not respond in time", question.node);
            (question.done)(Err(StoreError::Unavailable(why)));
        }
        next
    }

    /// Completes an open question with its answer or an error. Only the node that was asked can answer.
    pub(super) fn complete(
        &self,
        sender: NodeNo,
        reference: i64,
        result: Result<Value, StoreError>,
    ) {
        let question = {
            let mut inner = self.lock();
            match inner.open_questions.get(&reference) {
                Some(question) if question.node == sender => {
                    inner.open_questions.remove(&reference)
                }
                Some(_) | None => None,
            }
        };
        if let Some(question) = question {
            (question.done)(result);
        }
    }

    /// Reserves a slot for answering another node's question. Returns false if all are in use.
    pub(super) fn begin_answer(&self) -> bool {
        let mut inner = self.lock();
        let has_slot = inner.answering < MAX_ANSWERING;
        inner.answering += usize::from(has_slot);
        has_slot
    }

    pub(super) fn outgoing(&self) -> Vec<RpcMessage> {
        let mut inner = self.lock();
        let count = inner.outgoing.len().min(MAX_AT_ONCE);
        inner.outgoing.drain(..count).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A question of another node that is being answered. Dropping it sends the answer, or an error if there is none.
pub(super) struct PendingAnswer {
    pub(super) membership: Arc<Membership>,
    pub(super) node: NodeNo,
    pub(super) reference: i64,
    pub(super) result: Result<Value, StoreError>,
}

impl PendingAnswer {
    /// Sets the answer and sends it.
    pub(super) fn give(mut self, result: Result<Value, StoreError>) {
        self.result = result;
    }
}

impl Drop for PendingAnswer {
    fn drop(&mut self) {
        let node_rpc = &self.membership.node_rpc;
        node_rpc.lock().answering -= 1;
        node_rpc.put_answer(self.node, self.reference, &self.result);
    }
}

fn too_large() -> StoreError {
    let why = "messages between nodes are limited to 1 MiB";
    StoreError::Unavailable(why.to_owned())
}

fn write_answer(result: &Result<Value, StoreError>) -> String {
    match result {
        Ok(value) => json!({ "ok": value }).to_string(),
        Err(why) => json!({ "error": why.to_string() }).to_string(),
    }
}

pub(super) fn read_answer(body: &str) -> Result<Value, StoreError> {
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

pub(super) fn unreadable() -> StoreError {
    StoreError::Unavailable("another node sent an invalid response".to_owned())
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
    async fn waiting_is_bounded_in_time_and_number() {
        let node_rpc = NodeRpc::default();
        let within = Duration::from_secs(5);
        let first = node_rpc.ask(NodeNo(3), &json!("who"), within);
        let soon = node_rpc
            .fail_expired(Instant::now())
            .expect("the caller waits");
        assert!(node_rpc.fail_expired(soon).is_none());
        let why = first.await.expect_err("the other node did not answer");
        assert!(why.to_string().contains("node 3 did not respond"), "{why}");
        let waiting: Vec<_> = (0..MAX_OPEN_QUESTIONS)
            .map(|_| node_rpc.ask(NodeNo(3), &json!("who"), within))
            .collect();
        let more = node_rpc.ask(NodeNo(3), &json!("who"), within).await;
        assert_eq!(more, Err(StoreError::Overloaded));
        let huge = json!("x".repeat(MAX_BODY_BYTES));
        assert_eq!(
            node_rpc.ask(NodeNo(3), &huge, within).await,
            Err(too_large())
        );
        node_rpc.close();
        for answer in waiting {
            assert_eq!(answer.await, Err(StoreError::Closed));
        }
    }

    #[tokio::test]
    async fn only_the_asked_node_may_answer() {
        let node_rpc = NodeRpc::default();
        let answer = node_rpc.ask(NodeNo(3), &json!("who"), Duration::from_secs(5));
        node_rpc.complete(NodeNo(4), 1, Ok(json!("I")));
        node_rpc.complete(NodeNo(3), 2, Ok(json!("I")));
        node_rpc.complete(NodeNo(3), 1, Ok(json!("me")));
        assert_eq!(answer.await, Ok(json!("me")));
    }
}
