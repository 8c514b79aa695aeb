//! Load: producers send events to any node, and repeat each with the same idempotency key until it is accepted. One event
//! in eight is sent to two nodes at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::TENANT;
use crate::{ADMIN_KEY, Api, PATIENCE};

/// Number of producers. A producer waits for a node that does not answer; the others go on.
const PRODUCERS: u32 = 16;
/// Maximum wait for a response. After it the producer tries another node.
const ANSWER_WITHIN: Duration = Duration::from_secs(8);
/// Pause before an event is sent again.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// Every event with a multiple of this number is sent to two nodes at once.
const SENT_TWICE: usize = 8;

/// An accept that was answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Accepted {
    pub(super) sent_at: Instant,
    pub(super) took: Duration,
    /// Index of the node.
    pub(super) node: usize,
}

/// The records of the producers.
#[derive(Clone, Debug, Default)]
pub(super) struct LoadReport {
    /// Event ids and endpoint number, by number of the event. More than one id is a violation.
    pub(super) events: BTreeMap<usize, (BTreeSet<String>, usize)>,
    pub(super) accepted: Vec<Accepted>,
    /// Number of refusals (503).
    pub(super) refused: usize,
    /// Number of requests without a response.
    pub(super) unanswered: usize,
    /// Answers that the API does not allow.
    pub(super) unexpected: Vec<String>,
}

/// Running producers.
pub(super) struct Load {
    notes: Arc<Mutex<LoadReport>>,
    stopped: watch::Sender<bool>,
    producers: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts sending events for this number of endpoints to the nodes at these addresses.
    pub(super) fn start(
        endpoints: usize,
        events_per_second: u32,
        addresses: &watch::Sender<Vec<String>>,
    ) -> Load {
        let stopped = watch::Sender::new(false);
        let notes = Arc::new(Mutex::new(LoadReport::default()));
        let producers = (0..PRODUCERS).map(|number| {
            let producer = Producer {
                number: number as usize,
                endpoints,
                pause: Duration::from_secs(1) * PRODUCERS / events_per_second.max(1),
                addresses: addresses.subscribe(),
                stopped: stopped.subscribe(),
                notes: notes.clone(),
                apis: BTreeMap::new(),
            };
            tokio::spawn(producer.work())
        });
        let producers = producers.collect();
        Load {
            notes,
            stopped,
            producers,
        }
    }

    /// Stops the producers. Events already started are sent until they are accepted.
    pub(super) async fn finish(self) -> LoadReport {
        self.stopped.send_replace(true);
        for producer in self.producers {
            let ended = timeout(PATIENCE, producer).await;
            ended
                .expect("producers end")
                .expect("producers do not panic");
        }
        let notes = self.notes.lock().unwrap();
        notes.clone()
    }
}

struct Producer {
    number: usize,
    endpoints: usize,
    pause: Duration,
    addresses: watch::Receiver<Vec<String>>,
    stopped: watch::Receiver<bool>,
    notes: Arc<Mutex<LoadReport>>,
    /// Connections by address, one of each lane.
    apis: BTreeMap<(bool, String), Api>,
}

impl Producer {
    async fn work(mut self) {
        let mut number = self.number;
        // Producers do not send in step.
        sleep(self.pause * self.number as u32 / PRODUCERS).await;
        while !*self.stopped.borrow() {
            let began = Instant::now();
            self.send(number).await;
            number += PRODUCERS as usize;
            sleep(self.pause.saturating_sub(began.elapsed())).await;
        }
    }

    /// Sends one event to one node after the other, until it is accepted.
    async fn send(&mut self, number: usize) {
        let endpoint = number % self.endpoints;
        let body = json!({
            "type": format!("t.{endpoint}"),
            "payload": {"number": number},
            "idempotency_key": format!("key-{number}"),
        })
        .to_string();
        let twice = number.is_multiple_of(SENT_TWICE);
        for attempt in 0.. {
            let addresses = self.addresses.borrow().clone();
            let first = (number / PRODUCERS as usize + self.number + attempt) % addresses.len();
            let second = (first + 1) % addresses.len();
            let one = self.take_api(false, &addresses[first]);
            let other = self.take_api(true, &addresses[second]);
            let notes = self.notes.clone();
            let accept = |node, api| accept(&notes, number, endpoint, node, api, &body);
            let ((is_accepted, one), other) = if twice && attempt == 0 {
                let (one, (_, other)) = tokio::join!(accept(first, one), accept(second, other));
                (one, other)
            } else {
                (accept(first, one).await, Some(other))
            };
            for (lane, address, api) in [
                (false, &addresses[first], one),
                (true, &addresses[second], other),
            ] {
                if let Some(api) = api {
                    self.apis.insert((lane, address.clone()), api);
                }
            }
            if is_accepted {
                return;
            }
            sleep(RETRY_PAUSE).await;
        }
    }

    fn take_api(&mut self, lane: bool, address: &str) -> Api {
        let known = self.apis.remove(&(lane, address.to_owned()));
        known.unwrap_or_else(|| Api::new(address, ADMIN_KEY))
    }
}

/// Sends an event to a node. Returns true if it was accepted, and the connection if it can be used again.
async fn accept(
    notes: &Mutex<LoadReport>,
    number: usize,
    endpoint: usize,
    node: usize,
    mut api: Api,
    body: &str,
) -> (bool, Option<Api>) {
    let path = format!("/v1/tenants/{TENANT}/events");
    let sent_at = Instant::now();
    let call = api.try_call("POST", &path, Some(body.as_bytes()));
    let reply = timeout(ANSWER_WITHIN, call).await.ok().flatten();
    let mut notes = notes.lock().unwrap();
    let Some(reply) = reply else {
        notes.unanswered += 1;
        return (false, None);
    };
    match reply.status {
        200 | 202 => {
            let id = reply.body["id"].as_str().unwrap_or_default().to_owned();
            let known = notes.events.entry(number).or_default();
            known.0.insert(id);
            known.1 = endpoint;
            notes.accepted.push(Accepted {
                sent_at,
                took: sent_at.elapsed(),
                node,
            });
            return (true, Some(api));
        }
        503 => notes.refused += 1,
        other => {
            let text = format!("an event was answered {other}: {}", reply.text);
            notes.unexpected.push(text);
        }
    }
    (false, Some(api))
}
