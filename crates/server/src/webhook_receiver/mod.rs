//! A webhook receiver that verifies requests, reports them, and fails on demand.
//!
//! It is the receiver of `posthaste listen`, of the demo and of tests. [`ReceiverServer::start`] opens a port.
//! Guarantees:
//!
//! - **Configured answers.** A [`Behaviour`] decides every answer in pure code; this module only executes it. With a
//!   [`ForwardTarget`], another server answers the requests that do not fail.
//! - **Reports before it answers.** Each request is sent as a [`ReceivedRequest`] to a channel, even if it is never
//!   answered. A slow reader of the channel slows the receiver down. If the reader is dropped, the receiver
//!   continues.
//! - **Bounded.** Connections, heads and bodies have limits.
//! - **Stops on drop.** Dropping a [`ReceiverServer`] closes the port and every connection.

mod behaviour;
mod forward;
mod request;

pub use behaviour::{Answer, Behaviour, FailureCondition, RequestInfo};
pub use forward::ForwardTarget;
pub use request::{ReceivedRequest, RequestTotals, SignatureCheck};

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use posthaste_core::rng::Rng;
use posthaste_core::sign::VerifyingKeys;
use posthaste_core::time::{Now, Span, Tick};
use posthaste_system::clock::Clock;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Maximum size of a body: four times the default that posthaste accepts.
pub const MAX_BODY_BYTES: usize = 4 * 1_024 * 1_024;
/// Maximum number of open connections. Further connections wait.
pub const MAX_CONNECTIONS: usize = 1_024;
/// Capacity of the channel of received requests.
const MAX_QUEUED_REQUESTS: usize = 1_024;
/// Maximum time for the head of a request to arrive, and maximum idle time of a connection.
const HEAD_TIME_LIMIT: Duration = Duration::from_secs(60);
/// Maximum number of connections that wait to be accepted.
const BACKLOG: u32 = 1_024;
/// Pause after a failed accept, for example when no socket is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Settings of a receiver.
#[derive(Clone)]
pub struct ReceiverSettings {
    /// Address to listen on; port 0 picks a free port.
    pub address: SocketAddr,
    /// Decides the answers.
    pub behaviour: Behaviour,
    /// Keys that verify signatures. Without keys nothing is verified.
    pub keys: Option<VerifyingKeys>,
    /// Time after the start for which connections are refused.
    pub opens_after: Span,
    /// Server that requests are forwarded to, unless they fail.
    pub forward: Option<ForwardTarget>,
    /// Seed of the RNG.
    pub seed: u64,
    /// The clock.
    pub clock: Clock,
}

impl ReceiverSettings {
    /// Returns the settings of a receiver on a free local port that verifies nothing.
    pub fn local(behaviour: Behaviour) -> ReceiverSettings {
        ReceiverSettings {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            behaviour,
            keys: None,
            opens_after: Span::ZERO,
            forward: None,
            seed: 1,
            clock: Clock::system(),
        }
    }
}

/// A running receiver.
pub struct ReceiverServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    /// All its tasks; they stop when it is dropped.
    _tasks: JoinSet<()>,
}

struct Shared {
    keys: Option<VerifyingKeys>,
    forward: Option<ForwardTarget>,
    clock: Clock,
    started_at: Tick,
    requests: mpsc::Sender<ReceivedRequest>,
    state: Mutex<State>,
}

struct State {
    behaviour: Behaviour,
    rng: Rng,
    request_count: u64,
    /// The second of the last request, and the number of requests in it.
    second: (u64, u32),
    totals: RequestTotals,
}

impl State {
    fn decide(&mut self, attempt: Option<u32>, uptime: Span) -> (u64, Answer) {
        self.request_count += 1;
        let second = uptime.as_millis() / 1_000;
        self.second = match self.second {
            (last, count) if last == second => (second, count.saturating_add(1)),
            _ => (second, 1),
        };
        let info = RequestInfo {
            number: self.request_count,
            attempt,
            in_this_second: self.second.1,
        };
        let answer = self.behaviour.answer(info, &mut self.rng);
        (self.request_count, answer)
    }
}

impl ReceiverServer {
    /// Starts a receiver. Returns it with the channel of received requests.
    pub fn start(
        settings: ReceiverSettings,
    ) -> io::Result<(ReceiverServer, mpsc::Receiver<ReceivedRequest>)> {
        let socket = match settings.address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        socket.set_reuseaddr(true)?;
        // A socket that is bound and does not listen refuses connections, and keeps the port.
        socket.bind(settings.address)?;
        let address = socket.local_addr()?;
        let (requests, received) = mpsc::channel(MAX_QUEUED_REQUESTS);
        let shared = Arc::new(Shared {
            keys: settings.keys,
            forward: settings.forward,
            started_at: settings.clock.now().tick,
            clock: settings.clock,
            requests,
            state: Mutex::new(State {
                behaviour: settings.behaviour,
                rng: Rng::seeded(settings.seed),
                request_count: 0,
                second: (0, 0),
                totals: RequestTotals::default(),
            }),
        });
        let mut tasks = JoinSet::new();
        if settings.opens_after == Span::ZERO {
            tasks.spawn(accept(socket.listen(BACKLOG)?, Arc::clone(&shared)));
        } else {
            let shared = Arc::clone(&shared);
            tasks.spawn(async move {
                tokio::time::sleep(duration(settings.opens_after)).await;
                if let Ok(listener) = socket.listen(BACKLOG) {
                    accept(listener, shared).await;
                }
            });
        }
        let server = ReceiverServer {
            address,
            shared,
            _tasks: tasks,
        };
        Ok((server, received))
    }

    /// Returns the address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns its URL without a path.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the counters of received requests.
    pub fn totals(&self) -> RequestTotals {
        self.shared.state().totals
    }

    /// Changes the behaviour from now on.
    pub fn set_behaviour(&self, behaviour: Behaviour) {
        self.shared.state().behaviour = behaviour;
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.len() >= MAX_CONNECTIONS {
            connections.join_next().await;
        }
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((socket, _)) => {
                connections.spawn(serve(socket, Arc::clone(&shared)));
            }
            // The client closed the connection before it was accepted, or the machine has no socket left.
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

async fn serve(socket: TcpStream, shared: Arc<Shared>) {
    // Optional: without it answers are only slower.
    let _ = socket.set_nodelay(true);
    let service = service_fn(move |request| answer(Arc::clone(&shared), request));
    // A connection that the sender breaks needs no handling.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_LIMIT)
        .serve_connection(TokioIo::new(socket), service)
        .await;
}

/// Makes hyper close the connection without an answer.
#[derive(Debug, thiserror::Error)]
#[error("the receiver closes the connection, as configured")]
struct ConnectionClosed;

async fn answer(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, ConnectionClosed> {
    let (head, body) = request.into_parts();
    let body = match Limited::new(body, MAX_BODY_BYTES).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<hyper::Error>() => return Err(ConnectionClosed),
        Err(_) => return Ok(reply(StatusCode::PAYLOAD_TOO_LARGE)),
    };
    let Now { wall, tick } = shared.clock.now();
    let check = SignatureCheck::of(shared.keys.as_ref(), &head.headers, &body, wall);
    let attempt = request::attempt(&head.headers);
    let (number, answer) = shared
        .state()
        .decide(attempt, tick.since(shared.started_at));
    let forwarded = match (&shared.forward, answer.is_success()) {
        (Some(target), true) => Some(target.send(&head.method, &head.headers, &body).await),
        (Some(_), false) | (None, _) => None,
    };
    let (answer, forward_error) = match &forwarded {
        None => (answer, None),
        Some(Ok(response)) => (Answer::status(response.status().as_u16()), None),
        Some(Err(error)) => (Answer::status(502), Some(error.to_string())),
    };
    let received = {
        let mut state = shared.state();
        let received = ReceivedRequest {
            number,
            at: wall,
            method: head.method,
            path: head.uri.to_string(),
            headers: head.headers,
            body,
            check,
            answer,
            forward_error,
        };
        state.totals.add(&received);
        received
    };
    let answer = received.answer;
    // The reader of the channel may have been dropped.
    let _ = shared.requests.send(received).await;
    match forwarded {
        None => execute(answer).await,
        Some(Ok(response)) => Ok(response),
        Some(Err(_)) => Ok(forward::bad_gateway()),
    }
}

async fn execute(answer: Answer) -> Result<Response<Full<Bytes>>, ConnectionClosed> {
    match answer {
        // The future is dropped with the connection, when the sender gives up.
        Answer::Hang => std::future::pending().await,
        Answer::Reply {
            status,
            delay,
            retry_after,
        } => {
            if delay > Span::ZERO {
                tokio::time::sleep(duration(delay)).await;
            }
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            let mut response = reply(status);
            if let Some(span) = retry_after {
                let seconds = HeaderValue::from(span.as_millis().div_ceil(1_000));
                response.headers_mut().insert(RETRY_AFTER, seconds);
            }
            Ok(response)
        }
    }
}

fn reply(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}

fn duration(span: Span) -> Duration {
    Duration::from_millis(span.as_millis())
}

#[cfg(test)]
mod tests;
