//! A token server on loopback for tests: it counts and keeps the requests, and answers as configured.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;

use super::PATIENCE;

/// One request.
#[derive(Clone)]
pub(super) struct Asked {
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

type Behaviour = Box<dyn Fn(usize) -> (u16, Bytes) + Send + Sync>;

/// A token server.
pub(super) struct TokenServer {
    pub(super) address: SocketAddr,
    behaviour: Arc<Mutex<Arc<Behaviour>>>,
    asked: watch::Sender<Vec<Asked>>,
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
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = TokenServer {
            address: listener.local_addr().unwrap(),
            behaviour: Arc::new(Mutex::new(Arc::new(Box::new(|number| {
                (200, Bytes::from(token(number).to_string()))
            })))),
            asked: watch::Sender::new(Vec::new()),
            answers: watch::Sender::new(true),
        };
        let (behaviour, asked) = (server.behaviour.clone(), server.asked.clone());
        let answers = server.answers.subscribe();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (behaviour, asked) = (behaviour.clone(), asked.clone());
                let answers = answers.clone();
                let service = service_fn(move |request: Request<Incoming>| {
                    let (behaviour, asked) = (behaviour.clone(), asked.clone());
                    let mut answers = answers.clone();
                    async move {
                        let (head, body) = request.into_parts();
                        let body = body.collect().await?.to_bytes();
                        let mut number = 0;
                        asked.send_modify(|asked| {
                            let headers = head.headers;
                            asked.push(Asked { headers, body });
                            number = asked.len();
                        });
                        let _ = answers.wait_for(|answers| *answers).await;
                        let behaviour = behaviour.lock().unwrap().clone();
                        let (status, body) = behaviour(number);
                        let response = Response::builder().status(status);
                        Ok::<_, hyper::Error>(response.body(Full::new(body)).unwrap())
                    }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        server
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
        self.asked.borrow().len()
    }

    /// Waits for `wanted` requests, and returns all of them.
    pub(super) async fn asked(&self, wanted: usize) -> Vec<Asked> {
        let mut asked = self.asked.subscribe();
        let enough = asked.wait_for(|asked| asked.len() >= wanted);
        match timeout(PATIENCE, enough).await {
            Ok(asked) => asked.unwrap().clone(),
            Err(_) => panic!("it was asked {} times only", self.count()),
        }
    }
}
