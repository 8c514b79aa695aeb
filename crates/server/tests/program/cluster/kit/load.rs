//! Load: producers that send events to any node, and resend each with the same idempotency key until it is accepted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use posthaste_testbed::{ADMIN_KEY, Api, PATIENCE, Reply};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::TENANT;

const PRODUCERS: usize = 3;
/// Pause between two events of one producer, to leave CPU time for the nodes.
const PAUSE: Duration = Duration::from_millis(8);
/// Maximum wait for a response. After it the producer tries another node.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// Running producers.
pub(crate) struct Load {
    addresses: watch::Sender<Vec<String>>,
    notes: Arc<Mutex<LoadReport>>,
    stopped: watch::Sender<bool>,
    producers: Vec<JoinHandle<()>>,
}

/// The records of the producers.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoadReport {
    /// Event id and endpoint number, by idempotency key.
    pub(crate) events: BTreeMap<usize, (String, usize)>,
    /// Time and node of each acceptance.
    pub(crate) accepted: Vec<(Instant, String)>,
    /// Time and node of each 503 with `Retry-After`.
    pub(crate) refused: Vec<(Instant, String)>,
    /// Time and node of each request without a response.
    pub(crate) unanswered: Vec<(Instant, String)>,
}

impl Load {
    /// Starts sending events for this number of endpoints to these nodes.
    pub(crate) fn start(endpoints: usize, addresses: Vec<String>) -> Load {
        let addresses = watch::Sender::new(addresses);
        let stopped = watch::Sender::new(false);
        let notes = Arc::new(Mutex::new(LoadReport::default()));
        let producers = (0..PRODUCERS).map(|producer| {
            let producer = Producer {
                number: producer,
                endpoints,
                addresses: addresses.subscribe(),
                stopped: stopped.subscribe(),
                notes: notes.clone(),
                apis: BTreeMap::new(),
            };
            tokio::spawn(producer.work())
        });
        let producers = producers.collect();
        Load {
            addresses,
            notes,
            stopped,
            producers,
        }
    }

    /// Sends to these nodes from now on.
    pub(crate) fn ask(&self, addresses: Vec<String>) {
        self.addresses.send_replace(addresses);
    }

    /// Returns the records so far.
    pub(crate) fn so_far(&self) -> LoadReport {
        self.notes.lock().unwrap().clone()
    }

    /// Waits until `events` more events were accepted.
    pub(crate) async fn more(&self, events: usize) {
        let wanted = self.notes.lock().unwrap().events.len() + events;
        super::until("events to be accepted", async || {
            self.notes.lock().unwrap().events.len() >= wanted
        })
        .await;
    }

    /// Stops the producers. Events already started are sent until they are accepted.
    pub(crate) async fn finish(self) -> LoadReport {
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
    addresses: watch::Receiver<Vec<String>>,
    stopped: watch::Receiver<bool>,
    notes: Arc<Mutex<LoadReport>>,
    apis: BTreeMap<String, Api>,
}

impl Producer {
    async fn work(mut self) {
        let mut number = self.number;
        while !*self.stopped.borrow() {
            self.send(number).await;
            number += PRODUCERS;
            sleep(PAUSE).await;
        }
    }

    /// Sends one event to one node after the other, until it is accepted.
    async fn send(&mut self, number: usize) {
        let endpoint = number % self.endpoints;
        let body = json!({
            "type": format!("t.{endpoint}"),
            "payload": {"number": number},
            "idempotency_key": format!("key-{number}"),
        });
        let body = body.to_string();
        let path = format!("/v1/tenants/{TENANT}/events");
        for attempt in 0.. {
            let address = {
                let addresses = self.addresses.borrow();
                addresses[(number / PRODUCERS + self.number + attempt) % addresses.len()].clone()
            };
            let mut api = self.apis.remove(&address);
            let api_now = api.get_or_insert_with(|| Api::new(&address, ADMIN_KEY));
            let call = api_now.try_call("POST", &path, Some(body.as_bytes()));
            let answer = timeout(ANSWER_WITHIN, call).await.ok().flatten();
            if answer.is_some() {
                // A connection without a response is not used again.
                self.apis.insert(address.clone(), api.expect("it was used"));
            }
            if self.note(number, address, answer) {
                return;
            }
            sleep(PAUSE).await;
        }
    }

    /// Records a response, or none. Returns true if the event was accepted.
    fn note(&self, number: usize, address: String, answer: Option<Reply>) -> bool {
        let now = Instant::now();
        let mut notes = self.notes.lock().unwrap();
        let Some(reply) = answer else {
            notes.unanswered.push((now, address));
            return false;
        };
        if reply.status == 200 || reply.status == 202 {
            let id = reply.body["id"].as_str().expect("an id").to_owned();
            let known = notes.events.insert(number, (id, number % self.endpoints));
            assert_eq!(known, None);
            notes.accepted.push((now, address));
            return true;
        }
        assert_eq!(reply.status, 503, "{address}: {}", reply.body);
        assert!(reply.retry_after.is_some(), "{address}: {}", reply.body);
        notes.refused.push((now, address));
        false
    }
}
