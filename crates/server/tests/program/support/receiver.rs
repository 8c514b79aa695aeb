//! A receiver on loopback that keeps a ledger of everything that arrives.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::PATIENCE;

/// One request that arrived.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    /// Which one, counted from 1.
    pub(crate) number: usize,
    /// The path.
    pub(crate) path: String,
    /// The headers.
    pub(crate) headers: HeaderMap,
    /// The body, as it came.
    pub(crate) body: Bytes,
}

impl Arrival {
    /// A header, as text.
    pub(crate) fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        let value = value.unwrap_or_else(|| panic!("no {name} in {:?}", self.headers));
        value.to_str().expect("text")
    }

    /// The delivery.
    pub(crate) fn delivery(&self) -> String {
        self.header("webhook-id").to_owned()
    }

    /// The event.
    pub(crate) fn event(&self) -> String {
        self.header("posthaste-event-id").to_owned()
    }

    /// Which attempt it says it is.
    pub(crate) fn attempt(&self) -> u32 {
        self.header("posthaste-attempt").parse().expect("a number")
    }
}

/// How to answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// The status.
    pub(crate) status: u16,
    /// Headers besides.
    pub(crate) headers: Vec<(&'static str, String)>,
    /// The body.
    pub(crate) body: Bytes,
    /// After so long.
    pub(crate) after: Duration,
}

impl Answer {
    /// This status, at once.
    pub(crate) fn status(status: u16) -> Answer {
        Answer {
            status,
            headers: Vec::new(),
            body: Bytes::new(),
            after: Duration::ZERO,
        }
    }
}

type Behaviour = Box<dyn Fn(&Arrival) -> Answer + Send + Sync>;

struct Shared {
    ledger: Mutex<Vec<Arrival>>,
    arrived: watch::Sender<usize>,
    behaviour: Mutex<Arc<Behaviour>>,
}

/// A receiver.
pub(crate) struct Receiver {
    /// Where it is.
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

impl Receiver {
    /// A receiver that behaves like this.
    pub(crate) async fn start(
        behaviour: impl Fn(&Arrival) -> Answer + Send + Sync + 'static,
    ) -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::new(Shared {
            ledger: Mutex::default(),
            arrived: watch::Sender::new(0),
            behaviour: Mutex::new(Arc::new(Box::new(behaviour))),
        });
        tokio::spawn(accept(listener, shared.clone()));
        Receiver { address, shared }
    }

    /// A receiver that takes everything.
    pub(crate) async fn healthy() -> Receiver {
        Receiver::start(|_| Answer::status(200)).await
    }

    /// Its URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// From now on it behaves like this.
    pub(crate) fn behave(&self, behaviour: impl Fn(&Arrival) -> Answer + Send + Sync + 'static) {
        *self.shared.behaviour.lock().unwrap() = Arc::new(Box::new(behaviour));
    }

    /// Everything that has arrived.
    pub(crate) fn ledger(&self) -> Vec<Arrival> {
        self.shared.ledger.lock().unwrap().clone()
    }

    /// How many have arrived.
    pub(crate) fn count(&self) -> usize {
        *self.shared.arrived.borrow()
    }

    /// Waits until so many have arrived.
    pub(crate) async fn arrivals(&self, wanted: usize) -> Vec<Arrival> {
        self.until(|ledger| ledger.len() >= wanted).await
    }

    /// Waits until the ledger is as wanted.
    pub(crate) async fn until(&self, wanted: impl Fn(&[Arrival]) -> bool) -> Vec<Arrival> {
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
    while let Ok((stream, _)) = listener.accept().await {
        let shared = shared.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| receive(&shared, request));
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn receive(
    shared: &Shared,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let Ok(body) = body.collect().await else {
        // The sender died while sending: nothing has arrived.
        return Ok(Response::new(Full::default()));
    };
    let arrival = {
        let mut ledger = shared.ledger.lock().unwrap();
        let arrival = Arrival {
            number: ledger.len() + 1,
            path: head.uri.path().to_owned(),
            headers: head.headers,
            body: body.to_bytes(),
        };
        ledger.push(arrival.clone());
        arrival
    };
    shared.arrived.send_modify(|count| *count += 1);
    let behaviour = shared.behaviour.lock().unwrap().clone();
    let answer = behaviour(&arrival);
    if !answer.after.is_zero() {
        sleep(answer.after).await;
    }
    let mut response = Response::new(Full::new(answer.body));
    *response.status_mut() = http::StatusCode::from_u16(answer.status).expect("a status");
    for (name, value) in answer.headers {
        let value = value.parse().expect("a header");
        response.headers_mut().insert(name, value);
    }
    Ok(response)
}
