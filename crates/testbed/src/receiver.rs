//! An HTTP receiver on loopback that records every request in a ledger.
//!
//! A test decides each [`Answer`] by a function of the [`Arrival`]. The receiver runs on the background runtime, so it
//! answers while the test blocks. The ledger is the list of all arrivals, in their order.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::{OnceCell, watch};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use crate::{PATIENCE, background, sender_process};

/// One received request.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// Position in the ledger, counted from 1.
    pub number: usize,
    /// The method.
    pub method: String,
    /// The path, without the query. Tests use one path per endpoint.
    pub path: String,
    /// The query, if there is one.
    pub query: Option<String>,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, as received.
    pub body: Bytes,
    /// Process id of the node that sent it. `None` if no node did, or if it had ended when it was looked up.
    pub sender: Option<u32>,
    /// Time when the head was read, by the monotonic clock.
    pub at: Instant,
    /// Time when the request was answered or the sender disconnected. `None`: it is still in flight.
    pub left_at: Option<Instant>,
}

impl Arrival {
    /// A header, as text.
    pub fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        let value = value.unwrap_or_else(|| panic!("no {name} in {:?}", self.headers));
        value.to_str().expect("text")
    }

    /// Id of the delivery.
    pub fn delivery(&self) -> String {
        self.header("webhook-id").to_owned()
    }

    /// Id of the event.
    pub fn event(&self) -> String {
        self.header("posthaste-event-id").to_owned()
    }

    /// Number of the attempt, from the header.
    pub fn attempt(&self) -> u32 {
        self.header("posthaste-attempt").parse().expect("a number")
    }
}

/// The response to a request.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// Additional headers.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: Bytes,
    /// Delay before the response.
    pub after: Duration,
}

impl Answer {
    /// This status, without a delay.
    pub fn status(status: u16) -> Answer {
        Answer {
            status,
            headers: Vec::new(),
            body: Bytes::new(),
            after: Duration::ZERO,
        }
    }

    /// This status, with this text as the body.
    pub fn text(status: u16, text: &str) -> Answer {
        Answer {
            body: Bytes::copy_from_slice(text.as_bytes()),
            ..Answer::status(status)
        }
    }

    /// No response. The request waits until the sender gives up.
    pub fn hang() -> Answer {
        Answer::status(200).after(Duration::MAX)
    }

    /// Adds a header.
    pub fn with_header(mut self, name: &'static str, value: &str) -> Answer {
        self.headers.push((name, value.to_owned()));
        self
    }

    /// Sets the delay before the response.
    pub fn after(mut self, after: Duration) -> Answer {
        self.after = after;
        self
    }
}

type Behaviour = Box<dyn Fn(&Arrival) -> Answer + Send + Sync>;

struct Shared {
    records: Mutex<Vec<Arrival>>,
    arrived: watch::Sender<usize>,
    behaviour: Mutex<Arc<Behaviour>>,
    /// Answers of single endpoints, in place of the behaviour.
    answers: Mutex<HashMap<String, Answer>>,
    held: watch::Sender<bool>,
}

/// The receiver. It answers on a background runtime.
pub struct Receiver {
    /// Address that the receiver listens on.
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

impl Receiver {
    /// Starts a receiver that answers as `behaviour` decides.
    pub async fn start(behaviour: impl Fn(&Arrival) -> Answer + Send + Sync + 'static) -> Receiver {
        Receiver::listen(behaviour)
    }

    /// The same as [`Receiver::start`], for tests without a runtime.
    pub fn listen(behaviour: impl Fn(&Arrival) -> Answer + Send + Sync + 'static) -> Receiver {
        let listener = background::wait(TcpListener::bind("127.0.0.1:0")).expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let shared = Arc::new(Shared {
            records: Mutex::default(),
            arrived: watch::Sender::new(0),
            behaviour: Mutex::new(Arc::new(Box::new(behaviour))),
            answers: Mutex::default(),
            held: watch::Sender::new(false),
        });
        background::spawn(accept(listener, shared.clone()));
        Receiver { address, shared }
    }

    /// Starts a receiver that answers everything with 200.
    pub async fn healthy() -> Receiver {
        Receiver::start(|_| Answer::status(200)).await
    }

    /// URL of the default endpoint.
    pub fn url(&self) -> String {
        self.url_of("hook")
    }

    /// The URL of one of several endpoints.
    pub fn url_of(&self, endpoint: &str) -> String {
        format!("http://{}/{endpoint}", self.address)
    }

    /// Changes the behaviour for all later requests.
    pub fn set_behaviour(&self, behaviour: impl Fn(&Arrival) -> Answer + Send + Sync + 'static) {
        *self.shared.behaviour.lock().unwrap() = Arc::new(Box::new(behaviour));
    }

    /// Answers with this status for all later requests.
    pub fn answer(&self, status: u16) {
        self.set_behaviour(move |_| Answer::status(status));
    }

    /// Answers like this at one of several endpoints from now on, whatever the behaviour is.
    pub fn answer_at(&self, endpoint: &str, answer: Answer) {
        let mut answers = self.shared.answers.lock().unwrap();
        answers.insert(endpoint.to_owned(), answer);
    }

    /// Holds all responses from now on, until [`Receiver::release`].
    pub fn hold(&self) {
        self.shared.held.send_replace(true);
    }

    /// Sends the held responses and all later ones.
    pub fn release(&self) {
        self.shared.held.send_replace(false);
    }

    /// All requests that have arrived.
    pub fn records(&self) -> Vec<Arrival> {
        self.shared.records.lock().unwrap().clone()
    }

    /// The requests that have arrived for one of several endpoints.
    pub fn records_at(&self, endpoint: &str) -> Vec<Arrival> {
        let mut records = self.records();
        records.retain(|arrival| arrival.path.strip_prefix('/') == Some(endpoint));
        records
    }

    /// Number of requests that have arrived.
    pub fn count(&self) -> usize {
        *self.shared.arrived.borrow()
    }

    /// Waits until `wanted` requests have arrived.
    pub async fn arrivals(&self, wanted: usize) -> Vec<Arrival> {
        self.until(|records| records.len() >= wanted).await
    }

    /// Waits until the ledger is as wanted, and returns it.
    pub async fn until(&self, wanted: impl Fn(&[Arrival]) -> bool) -> Vec<Arrival> {
        let mut arrived = self.shared.arrived.subscribe();
        let waiting = async {
            loop {
                arrived.borrow_and_update();
                let records = self.records();
                if wanted(&records) {
                    return records;
                }
                arrived.changed().await.expect("a running receiver");
            }
        };
        match timeout(PATIENCE, waiting).await {
            Ok(records) => records,
            Err(_) => panic!("only {} requests have arrived", self.count()),
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let ours = listener.local_addr().expect("a bound address");
    while let Ok((stream, theirs)) = listener.accept().await {
        let shared = shared.clone();
        tokio::spawn(async move {
            let _ = stream.set_nodelay(true);
            let sender = OnceCell::new();
            // Looked up when the first request has come, so that the lookup does not delay its recorded time.
            let find = async || {
                let found = spawn_blocking(move || sender_process::of(theirs, ours));
                found.await.unwrap_or_default()
            };
            let service = service_fn(|request| {
                let at = Instant::now();
                let (shared, sender) = (&shared, &sender);
                async move {
                    let sender = *sender.get_or_init(find).await;
                    receive(shared, at, sender, request).await
                }
            });
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

/// Records the end of a request, also if its connection ends before the answer.
struct RequestGuard<'a> {
    shared: &'a Shared,
    index: usize,
}

impl Drop for RequestGuard<'_> {
    fn drop(&mut self) {
        let mut records = self.shared.records.lock().unwrap();
        records[self.index].left_at = Some(Instant::now());
    }
}

async fn receive(
    shared: &Shared,
    at: Instant,
    sender: Option<u32>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let Ok(body) = body.collect().await else {
        // The sender ended while it sent the body: the request does not count.
        return Ok(Response::new(Full::default()));
    };
    let (arrival, visit) = {
        let mut records = shared.records.lock().unwrap();
        let arrival = Arrival {
            number: records.len() + 1,
            method: head.method.to_string(),
            path: head.uri.path().to_owned(),
            query: head.uri.query().map(str::to_owned),
            headers: head.headers,
            body: body.to_bytes(),
            sender,
            at,
            left_at: None,
        };
        records.push(arrival.clone());
        let index = arrival.number - 1;
        (arrival, RequestGuard { shared, index })
    };
    shared.arrived.send_modify(|count| *count += 1);
    let endpoint = arrival.path.trim_start_matches('/');
    let answer = shared.answers.lock().unwrap().get(endpoint).cloned();
    let answer = answer.unwrap_or_else(|| {
        let behaviour = shared.behaviour.lock().unwrap().clone();
        behaviour(&arrival)
    });
    if !answer.after.is_zero() {
        sleep(answer.after).await;
    }
    let mut held = shared.held.subscribe();
    let _ = held.wait_for(|held| !held).await;
    // Before the answer is written: a sender that has the answer may start its next request.
    drop(visit);
    let mut response = Response::new(Full::new(answer.body));
    *response.status_mut() = http::StatusCode::from_u16(answer.status).expect("a status");
    for (name, value) in answer.headers {
        let value = value.parse().expect("a header");
        response.headers_mut().insert(name, value);
    }
    Ok(response)
}
