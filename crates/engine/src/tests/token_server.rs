//! A token server on loopback for tests: it counts and keeps the requests, and answers as configured.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

use super::TEST_TIMEOUT;
use super::http_server::{Arrived, serve};

type Behaviour = Box<dyn Fn(usize) -> (u16, Bytes) + Send + Sync>;

/// A token server.
pub(super) struct TokenServer {
    pub(super) address: SocketAddr,
    behaviour: Arc<Mutex<Arc<Behaviour>>>,
    requests: watch::Sender<Vec<Arrived>>,
    /// True if the server answers; while false, requests wait.
    pub(super) answers: watch::Sender<bool>,
}

/// Returns the token with this number, valid for one hour.
pub(super) fn token(number: usize) -> Value {
    json!({"access_token": format!("t{number}"), "token_type": "Bearer", "expires_in": 3_600})
}

impl TokenServer {
    /// Starts a server that issues `t1`, `t2`, …
    pub(super) async fn start() -> TokenServer {
        let behaviour: Behaviour = Box::new(|number| (200, Bytes::from(token(number).to_string())));
        let behaviour = Arc::new(Mutex::new(Arc::new(behaviour)));
        let requests = watch::Sender::new(Vec::new());
        let answers = watch::Sender::new(true);
        let (behaving, received, answering) =
            (behaviour.clone(), requests.clone(), answers.subscribe());
        let address = serve(move |request| {
            let (behaviour, mut answers) = (behaving.clone(), answering.clone());
            let mut number = 0;
            received.send_modify(|received: &mut Vec<Arrived>| {
                received.push(request);
                number = received.len();
            });
            async move {
                let _ = answers.wait_for(|answers| *answers).await;
                let behaviour = behaviour.lock().unwrap().clone();
                behaviour(number)
            }
        });
        TokenServer {
            address: address.await,
            behaviour,
            requests,
            answers,
        }
    }

    /// Returns the token URL.
    pub(super) fn url(&self) -> String {
        format!("http://{}/token", self.address)
    }

    /// Sets the function that produces the responses.
    pub(super) fn behave(&self, behaviour: impl Fn(usize) -> (u16, Bytes) + Send + Sync + 'static) {
        *self.behaviour.lock().unwrap() = Arc::new(Box::new(behaviour));
    }

    /// Sets a fixed response for all requests.
    pub(super) fn say(&self, status: u16, body: impl Into<Bytes>) {
        let body = body.into();
        self.behave(move |_| (status, body.clone()));
    }

    /// Returns the number of requests so far.
    pub(super) fn count(&self) -> usize {
        self.requests.borrow().len()
    }

    /// Waits for `wanted` requests, and returns all of them.
    pub(super) async fn requests(&self, wanted: usize) -> Vec<Arrived> {
        let mut requests = self.requests.subscribe();
        let enough = requests.wait_for(|requests| requests.len() >= wanted);
        match timeout(TEST_TIMEOUT, enough).await {
            Ok(requests) => requests.unwrap().clone(),
            Err(_) => panic!("only {} requests have arrived", self.count()),
        }
    }
}
