//! The raw relay: the maximum throughput of this machine without persistence.
//!
//! The relay accepts the same requests as the server, answers 202 with the same document, and sends the same signed
//! request to each endpoint over a fixed number of kept connections. It has no store, no engine, no retries, and no
//! limits except the number of connections. The difference to the server is therefore the cost of everything in
//! between.
//!
//! It is a separate process, so that its usage can be measured alone. It reads its [`RelayConfig`] as one line of JSON
//! from standard input and ends when standard input is closed.

use std::convert::Infallible;
use std::io::{self, BufRead, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use posthaste_core::id::{DeliveryId, EndpointId, EventId, IdGenerator};
use posthaste_core::rng::Rng;
use posthaste_core::sign::{SigningKey, SigningKeys};
use posthaste_core::time::Timestamp;
use posthaste_egress::trusted_client;
use posthaste_system::clock::Clock;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::net::TcpListener;
use tokio::runtime;
use tokio::sync::mpsc;

use super::error::BenchError;

/// Capacity of the queue of one connection. When it is full, producers wait for their response.
const MAX_QUEUED: usize = 64;
/// Maximum size of a request in bytes, as in the server.
const MAX_REQUEST_BYTES: usize = 1 << 20;
/// Maximum number of tries of one request. After a failed try a new connection is opened.
const MAX_SENDS: usize = 3;

const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
const EVENT_ID: HeaderName = HeaderName::from_static("posthaste-event-id");
const EVENT_TYPE: HeaderName = HeaderName::from_static("posthaste-event-type");
const EVENT_TIME: HeaderName = HeaderName::from_static("posthaste-event-time");
const ATTEMPT: HeaderName = HeaderName::from_static("posthaste-attempt");

/// The configuration of the relay.
#[derive(Debug, Serialize, Deserialize)]
pub struct RelayConfig {
    /// Endpoints that every event is sent to.
    pub endpoints: Vec<RelayEndpoint>,
    /// Number of connections to each endpoint.
    pub connections: usize,
}

/// One endpoint.
#[derive(Debug, Serialize, Deserialize)]
pub struct RelayEndpoint {
    /// Its address.
    pub address: SocketAddr,
    /// Request path.
    pub path: String,
    /// Its secret, for signing.
    pub secret: String,
}

#[derive(Deserialize)]
struct NewEvent<'a> {
    r#type: &'a str,
    #[serde(borrow)]
    payload: &'a RawValue,
}

#[derive(Serialize)]
struct Accepted<'a> {
    id: String,
    r#type: &'a str,
    created_at: String,
    deliveries: Vec<PendingDelivery<'a>>,
}

#[derive(Serialize)]
struct PendingDelivery<'a> {
    id: String,
    endpoint_id: &'a str,
    status: &'static str,
}

/// One event on its way to one endpoint.
struct Job {
    delivery: String,
    event: HeaderValue,
    event_type: HeaderValue,
    event_time: HeaderValue,
    body: Bytes,
}

struct Endpoint {
    id: String,
    address: SocketAddr,
    uri: Uri,
    host: HeaderValue,
    keys: SigningKeys,
    clock: Clock,
}

struct Target {
    endpoint: Arc<Endpoint>,
    connections: Vec<mpsc::Sender<Job>>,
    next: AtomicUsize,
}

struct Relay {
    targets: Vec<Target>,
    ids: Mutex<IdGenerator>,
    clock: Clock,
}

/// Runs the relay until standard input is closed.
pub fn run() -> Result<(), BenchError> {
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line);
    read.map_err(BenchError::machine("cannot read the orders"))?;
    let config: RelayConfig = serde_json::from_str(&line)
        .map_err(|error| BenchError::Usage(format!("these are no orders: {error}")))?;
    let runtime = runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(BenchError::machine("cannot start threads"))?;
    let listener = runtime
        .block_on(TcpListener::bind("127.0.0.1:0"))
        .map_err(BenchError::machine("cannot listen"))?;
    let address = listener
        .local_addr()
        .map_err(BenchError::machine("cannot listen"))?;
    let relay = {
        let _within = runtime.enter();
        Arc::new(Relay::new(config)?)
    };
    runtime.spawn(accept(relay, listener));
    let mut out = io::stdout().lock();
    writeln!(out, "relaying from http://{address}")
        .and_then(|()| out.flush())
        .map_err(BenchError::machine("cannot tell the address"))?;
    // Standard input is closed when the parent process ends.
    let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
    runtime.shutdown_background();
    Ok(())
}

impl Relay {
    fn new(config: RelayConfig) -> Result<Relay, BenchError> {
        let mut seed = [0; 8];
        getrandom::fill(&mut seed)
            .map_err(|error| BenchError::Broken(format!("there is no chance: {error}")))?;
        let mut ids = IdGenerator::new(Rng::seeded(u64::from_ne_bytes(seed)));
        let clock = Clock::system();
        let mut targets = Vec::new();
        for endpoint in config.endpoints {
            let id: EndpointId = ids.next(clock.wall());
            let unusable = |what: &str| BenchError::Usage(format!("{what} cannot be used"));
            let keys = SigningKey::parse(&endpoint.secret)
                .and_then(|key| SigningKeys::new(vec![key]))
                .map_err(|_| unusable("a secret"))?;
            let endpoint = Arc::new(Endpoint {
                id: id.to_string(),
                address: endpoint.address,
                uri: endpoint.path.parse().map_err(|_| unusable("a path"))?,
                host: HeaderValue::from_str(&endpoint.address.to_string())
                    .map_err(|_| unusable("an address"))?,
                keys,
                clock: clock.clone(),
            });
            let open = |_| {
                let (queue, jobs) = mpsc::channel(MAX_QUEUED);
                tokio::spawn(send_all(Arc::clone(&endpoint), jobs));
                queue
            };
            targets.push(Target {
                connections: (0..config.connections.max(1)).map(open).collect(),
                endpoint,
                next: AtomicUsize::new(0),
            });
        }
        Ok(Relay {
            targets,
            ids: Mutex::new(ids),
            clock,
        })
    }

    /// Accepts an event. Returns the response once the queue of every endpoint has space for it.
    async fn accept_event(&self, body: &Bytes) -> Option<Vec<u8>> {
        let new: NewEvent<'_> = serde_json::from_slice(body).ok()?;
        let payload = body.slice_ref(new.payload.get().as_bytes());
        let now = self.clock.wall();
        let (event, deliveries) = self.new_ids(now);
        let (event, time) = (event.to_string(), now.to_string());
        let header = |text: &str| HeaderValue::from_str(text).ok();
        let event_header = header(&event)?;
        let (type_header, time_header) = (header(new.r#type)?, header(&time)?);
        let mut pending = Vec::with_capacity(self.targets.len());
        for (target, delivery) in self.targets.iter().zip(deliveries) {
            let delivery = delivery.to_string();
            pending.push(PendingDelivery {
                id: delivery.clone(),
                endpoint_id: &target.endpoint.id,
                status: "pending",
            });
            let nth = target.next.fetch_add(1, Ordering::Relaxed) % target.connections.len();
            let job = Job {
                delivery,
                event: event_header.clone(),
                event_type: type_header.clone(),
                event_time: time_header.clone(),
                body: payload.clone(),
            };
            target.connections[nth].send(job).await.ok()?;
        }
        let accepted = Accepted {
            id: event,
            r#type: new.r#type,
            created_at: time,
            deliveries: pending,
        };
        serde_json::to_vec(&accepted).ok()
    }

    /// Generates ids for an event and its deliveries.
    fn new_ids(&self, now: Timestamp) -> (EventId, Vec<DeliveryId>) {
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        let event = ids.next(now);
        let deliveries = self.targets.iter().map(|_| ids.next(now));
        (event, deliveries.collect())
    }
}

async fn accept(relay: Arc<Relay>, listener: TcpListener) {
    loop {
        let Ok((socket, _)) = listener.accept().await else {
            continue;
        };
        let _ = socket.set_nodelay(true);
        let relay = Arc::clone(&relay);
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(Arc::clone(&relay), request));
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(socket), service)
                .await;
        });
    }
}

async fn answer(
    relay: Arc<Relay>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    let is_event = path.starts_with("/v1/tenants/") && path.ends_with("/events");
    if head.method != Method::POST || !is_event {
        return Ok(plain(StatusCode::NOT_FOUND));
    }
    let Ok(body) = Limited::new(body, MAX_REQUEST_BYTES).collect().await else {
        return Ok(plain(StatusCode::PAYLOAD_TOO_LARGE));
    };
    let Some(accepted) = relay.accept_event(&body.to_bytes()).await else {
        return Ok(plain(StatusCode::BAD_REQUEST));
    };
    let mut response = Response::new(Full::new(Bytes::from(accepted)));
    *response.status_mut() = StatusCode::ACCEPTED;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    Ok(response)
}

fn plain(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}

/// Sends the jobs of one connection one after the other.
async fn send_all(endpoint: Arc<Endpoint>, mut jobs: mpsc::Receiver<Job>) {
    let mut connection = None;
    while let Some(job) = jobs.recv().await {
        let mut sent = false;
        for _ in 0..MAX_SENDS {
            sent = send(&endpoint, &mut connection, &job).await.is_some();
            if sent {
                break;
            }
            connection = None;
        }
        if !sent {
            // The recorder reports the missing event.
            return;
        }
    }
}

async fn send(
    endpoint: &Endpoint,
    connection: &mut Option<SendRequest<Full<Bytes>>>,
    job: &Job,
) -> Option<()> {
    let sender = match connection {
        Some(open) => open,
        None => connection.insert(trusted_client::dial(endpoint.address).await.ok()?),
    };
    sender.ready().await.ok()?;
    let response = sender.send_request(endpoint.request(job)?).await.ok()?;
    let success = response.status().is_success();
    response.into_body().collect().await.ok()?;
    success.then_some(())
}

impl Endpoint {
    /// Builds the request that the server would send.
    fn request(&self, job: &Job) -> Option<Request<Full<Bytes>>> {
        let seconds = self.clock.wall().0 / 1_000;
        let signature = self.keys.header(&job.delivery, seconds, &job.body);
        let mut headers = HeaderMap::with_capacity(12);
        headers.insert(HOST, self.host.clone());
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(
            USER_AGENT,
            HeaderValue::from_static(concat!("posthaste/", env!("CARGO_PKG_VERSION"))),
        );
        headers.insert(WEBHOOK_ID, HeaderValue::from_str(&job.delivery).ok()?);
        headers.insert(WEBHOOK_TIMESTAMP, HeaderValue::from(seconds));
        headers.insert(WEBHOOK_SIGNATURE, HeaderValue::try_from(signature).ok()?);
        headers.insert(EVENT_ID, job.event.clone());
        headers.insert(EVENT_TYPE, job.event_type.clone());
        headers.insert(EVENT_TIME, job.event_time.clone());
        headers.insert(ATTEMPT, HeaderValue::from_static("1"));
        let mut request = Request::new(Full::new(job.body.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = headers;
        Some(request)
    }
}
