//! A receiver on loopback that keeps a ledger of everything that arrives.

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

use crate::{PATIENCE, background, sender};

/// One request that arrived.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// Which one, counted from 1.
    pub number: usize,
    /// The path, by which a test tells endpoints apart.
    pub path: String,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, as it came.
    pub body: Bytes,
    /// The process of the node that sent it, if one did that still ran when it connected.
    pub sender: Option<u32>,
    /// When its head was read, by a clock that never jumps.
    pub at: Instant,
    /// When it was answered or its sender had gone. `None`: it is still here.
    pub left_at: Option<Instant>,
}

impl Arrival {
    /// A header, as text.
    pub fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        let value = value.unwrap_or_else(|| panic!("no {name} in {:?}", self.headers));
        value.to_str().expect("text")
    }

    /// The delivery.
    pub fn delivery(&self) -> String {
        self.header("webhook-id").to_owned()
    }

    /// The event.
    pub fn event(&self) -> String {
        self.header("posthaste-event-id").to_owned()
    }

    /// Which attempt it says it is.
    pub fn attempt(&self) -> u32 {
        self.header("posthaste-attempt").parse().expect("a number")
    }
}

/// How to answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// Headers besides.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: Bytes,
    /// After so long.
    pub after: Duration,
}

impl Answer {
    /// This status, at once.
    pub fn status(status: u16) -> Answer {
        Answer {
            status,
            headers: Vec::new(),
            body: Bytes::new(),
            after: Duration::ZERO,
        }
    }

    /// None, for as long as the sender has patience.
    pub fn hang() -> Answer {
        Answer::status(200).after(Duration::MAX)
    }

    /// The same, after so long.
    pub fn after(mut self, after: Duration) -> Answer {
        self.after = after;
        self
    }
}

type Behaviour = Box<dyn Fn(&Arrival) -> Answer + Send + Sync>;

struct Shared {
    ledger: Mutex<Vec<Arrival>>,
    arrived: watch::Sender<usize>,
    behaviour: Mutex<Arc<Behaviour>>,
}

/// A receiver.
pub struct Receiver {
    /// Where it is.
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

impl Receiver {
    /// A receiver that behaves like this.
    pub async fn start(behaviour: impl Fn(&Arrival) -> Answer + Send + Sync + 'static) -> Receiver {
        let listener = background::wait(TcpListener::bind("127.0.0.1:0")).expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::new(Shared {
            ledger: Mutex::default(),
            arrived: watch::Sender::new(0),
            behaviour: Mutex::new(Arc::new(Box::new(behaviour))),
        });
        background::spawn(accept(listener, shared.clone()));
        Receiver { address, shared }
    }

    /// A receiver that takes everything.
    pub async fn healthy() -> Receiver {
        Receiver::start(|_| Answer::status(200)).await
    }

    /// Its URL.
    pub fn url(&self) -> String {
        self.url_of("hook")
    }

    /// The URL of one of several endpoints.
    pub fn url_of(&self, endpoint: &str) -> String {
        format!("http://{}/{endpoint}", self.address)
    }

    /// From now on it behaves like this.
    pub fn behave(&self, behaviour: impl Fn(&Arrival) -> Answer + Send + Sync + 'static) {
        *self.shared.behaviour.lock().unwrap() = Arc::new(Box::new(behaviour));
    }

    /// Everything that has arrived.
    pub fn ledger(&self) -> Vec<Arrival> {
        self.shared.ledger.lock().unwrap().clone()
    }

    /// What has arrived at one of several endpoints.
    pub fn ledger_of(&self, endpoint: &str) -> Vec<Arrival> {
        let mut ledger = self.ledger();
        ledger.retain(|arrival| arrival.path.strip_prefix('/') == Some(endpoint));
        ledger
    }

    /// How many have arrived.
    pub fn count(&self) -> usize {
        *self.shared.arrived.borrow()
    }

    /// Waits until so many have arrived.
    pub async fn arrivals(&self, wanted: usize) -> Vec<Arrival> {
        self.until(|ledger| ledger.len() >= wanted).await
    }

    /// Waits until the ledger is as wanted.
    pub async fn until(&self, wanted: impl Fn(&[Arrival]) -> bool) -> Vec<Arrival> {
        let mut arrived = self.shared.arrived.subscribe();
        let waiting = async {
            loop {
                arrived.borrow_and_update();
                let ledger = self.ledger();
                if wanted(&ledger) {
                    return ledger;
                }
                arrived.changed().await.expect("the receiver lives");
            }
        };
        match timeout(PATIENCE, waiting).await {
            Ok(ledger) => ledger,
            Err(_) => panic!("only {} have arrived", self.count()),
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let ours = listener.local_addr().expect("it is bound");
    while let Ok((stream, theirs)) = listener.accept().await {
        let shared = shared.clone();
        tokio::spawn(async move {
            let _ = stream.set_nodelay(true);
            let sender = OnceCell::new();
            // Looked for when the first request has come, so that the search delays nobody's arrival.
            let find = async || {
                let found = spawn_blocking(move || sender::of(theirs, ours));
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

/// Notes when an arrival leaves, also if its connection ends before the answer.
struct Visit<'a> {
    shared: &'a Shared,
    index: usize,
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        let mut ledger = self.shared.ledger.lock().unwrap();
        ledger[self.index].left_at = Some(Instant::now());
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
        // The sender died while sending: nothing has arrived.
        return Ok(Response::new(Full::default()));
    };
    let (arrival, visit) = {
        let mut ledger = shared.ledger.lock().unwrap();
        let arrival = Arrival {
            number: ledger.len() + 1,
            path: head.uri.path().to_owned(),
            headers: head.headers,
            body: body.to_bytes(),
            sender,
            at,
            left_at: None,
        };
        ledger.push(arrival.clone());
        let index = arrival.number - 1;
        (arrival, Visit { shared, index })
    };
    shared.arrived.send_modify(|count| *count += 1);
    let behaviour = shared.behaviour.lock().unwrap().clone();
    let answer = behaviour(&arrival);
    if !answer.after.is_zero() {
        sleep(answer.after).await;
    }
    // Before it is written: whoever has the answer may send the next one.
    drop(visit);
    let mut response = Response::new(Full::new(answer.body));
    *response.status_mut() = http::StatusCode::from_u16(answer.status).expect("a status");
    for (name, value) in answer.headers {
        let value = value.parse().expect("a header");
        response.headers_mut().insert(name, value);
    }
    Ok(response)
}
