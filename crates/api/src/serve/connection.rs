//! Serves one connection until it ends.
//!
//! A connection ends when the caller closes it, when it breaks HTTP, when a write makes no progress, when it is idle
//! for too long, and at a shutdown. A connection in a reserved slot serves one health check, for a short
//! time. The time limit of heads is in [`ConnectionIo`]; the timer of idle connections is here. It only closes a
//! connection without a request in progress.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::header::{CONNECTION, EXPECT, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use ipnet::IpNet;
use posthaste_core::time::Span;
use posthaste_telemetry::metrics::Metrics;
use posthaste_telemetry::metrics::request_counters::ConnectionLimit;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tower::Service;

use super::MAX_HEAD_BYTES;
use super::connection_io::{ConnectionIo, RefusedHead};
use super::head::HeadError;
use super::slots::{ConnectionAdmission, Slot};
use super::unread_body::{UnreadBody, discard};
use crate::code::Code;
use crate::problem::Problem;
use crate::request_source::Peer;
use crate::routes::PROBES;
use crate::settings::ApiSettings;

/// Maximum time for the head of a request on a connection in a reserved slot.
const RESERVED_HEAD_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum duration of a connection in a reserved slot. A health check may take five seconds.
const RESERVED_DURATION: Duration = Duration::from_secs(10);
/// `Retry-After` of a connection without a regular slot.
const RETRY_AFTER: Span = Span::from_secs(1);

/// Serves connections.
#[derive(Clone)]
pub(super) struct ConnectionServer {
    router: Router,
    metrics: Arc<Metrics>,
    http: http1::Builder,
    reserved_http: http1::Builder,
    trusted_proxies: Arc<[IpNet]>,
    head_timeout: Duration,
    write_timeout: Duration,
    idle_timeout: Duration,
}

/// The requests of a connection.
#[derive(Default)]
pub(super) struct Requests {
    begun: AtomicU64,
    is_in_progress: AtomicBool,
}

impl ConnectionServer {
    /// Creates a server of connections with these settings.
    pub(super) fn new(
        router: Router,
        settings: &ApiSettings,
        metrics: Arc<Metrics>,
        trusted_proxies: Arc<[IpNet]>,
    ) -> ConnectionServer {
        // A head may have at most 100 lines. This is hyper's default, for which it uses the stack. An explicit
        // limit would cost an allocation for each request.
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(None)
            .max_buf_size(MAX_HEAD_BYTES);
        let mut reserved_http = http.clone();
        reserved_http
            .header_read_timeout(settings.head_timeout.min(RESERVED_HEAD_TIMEOUT))
            .keep_alive(false);
        ConnectionServer {
            router,
            metrics,
            http,
            reserved_http,
            trusted_proxies,
            head_timeout: settings.head_timeout,
            write_timeout: settings.write_timeout,
            idle_timeout: settings.idle_timeout,
        }
    }

    /// Serves a connection until it ends, or until `stopped` is set and no request is in progress.
    pub(super) async fn serve(
        self,
        stream: TcpStream,
        peer: Peer,
        admission: ConnectionAdmission,
        stopped: watch::Receiver<bool>,
    ) {
        match admission {
            ConnectionAdmission::Regular(slot) => self.serve_all(stream, peer, slot, stopped).await,
            ConnectionAdmission::HealthChecksOnly(slot, ended, limit) => {
                let checks = self.serve_health_checks(stream, peer, slot, limit);
                tokio::select! {
                    _ = timeout(RESERVED_DURATION, checks) => {}
                    _ = ended => {}
                }
            }
        }
    }

    /// Serves a connection in a regular slot.
    async fn serve_all(
        self,
        stream: TcpStream,
        peer: Peer,
        _slot: Slot,
        mut stopped: watch::Receiver<bool>,
    ) {
        let requests = Arc::new(Requests::default());
        let refused_head = RefusedHead::default();
        let io = ConnectionIo::new(
            stream,
            self.head_timeout,
            self.write_timeout,
            refused_head.clone(),
            requests.clone(),
        );
        let service = {
            let (router, requests) = (self.router, requests.clone());
            let trusted = self.trusted_proxies;
            service_fn(move |request: Request<Incoming>| {
                requests.begin();
                let refused_head = refused_head.get().copied();
                let request = attributed(request, peer, &trusted);
                let (router, requests) = (router.clone(), requests.clone());
                async move {
                    let response = match refused_head {
                        None => answer(router, request).await,
                        Some(error) => Ok(last_response(malformed(error))),
                    };
                    requests.end();
                    response
                }
            })
        };
        let connection = self.http.serve_connection(TokioIo::new(io), service);
        let mut connection = pin!(connection);
        let mut begun = 0;
        let mut is_closing = false;
        let mut look_at = Instant::now() + self.idle_timeout;
        loop {
            tokio::select! {
                biased;
                // An error of the connection concerns only the caller. The server has nothing left to do for it.
                _ = &mut connection => return,
                _ = stopped.changed(), if !is_closing => {
                    is_closing = true;
                    connection.as_mut().graceful_shutdown();
                }
                () = sleep_until(look_at), if !is_closing => {
                    if requests.was_idle_since(&mut begun) {
                        is_closing = true;
                        connection.as_mut().graceful_shutdown();
                    }
                    look_at = Instant::now() + self.idle_timeout;
                }
            }
        }
    }

    /// Serves one request of a connection in a reserved slot, if it is a health check.
    async fn serve_health_checks(
        self,
        stream: TcpStream,
        peer: Peer,
        _slot: Slot,
        limit: ConnectionLimit,
    ) {
        let refused_head = RefusedHead::default();
        let io = ConnectionIo::new(
            stream,
            self.head_timeout,
            self.write_timeout,
            refused_head.clone(),
            Arc::default(),
        );
        let is_check = AtomicBool::new(false);
        let service = service_fn(|request: Request<Incoming>| {
            let reads = [Method::GET, Method::HEAD].contains(request.method());
            let checks = reads && PROBES.contains(&request.uri().path());
            let problem = match refused_head.get() {
                Some(error) => Some(malformed(*error)),
                None if checks => None,
                None => Some(no_slot(limit)),
            };
            is_check.store(problem.is_none(), Relaxed);
            let router = self.router.clone();
            let request = attributed(request, peer, &self.trusted_proxies);
            async move {
                match problem {
                    None => answer(router, request).await,
                    Some(problem) => {
                        if !request.headers().contains_key(EXPECT) {
                            discard(request.into_body()).await;
                        }
                        Ok(last_response(problem))
                    }
                }
            }
        });
        let counted = RefusedConnectionCount {
            is_check: &is_check,
            metrics: &self.metrics,
            limit,
        };
        let connection = self
            .reserved_http
            .serve_connection(TokioIo::new(io), service);
        let _ = connection.await;
        drop(counted);
    }
}

/// Counts a connection as refused when it ends, unless it was a health check.
struct RefusedConnectionCount<'a> {
    is_check: &'a AtomicBool,
    metrics: &'a Metrics,
    limit: ConnectionLimit,
}

impl Drop for RefusedConnectionCount<'_> {
    fn drop(&mut self) {
        if !self.is_check.load(Relaxed) {
            self.metrics.requests.connection_refused(self.limit);
        }
    }
}

impl Requests {
    fn begin(&self) {
        self.begun.fetch_add(1, Relaxed);
        self.is_in_progress.store(true, Relaxed);
    }

    fn end(&self) {
        self.is_in_progress.store(false, Relaxed);
    }

    /// Returns true if a request is in progress.
    pub(super) fn is_in_progress(&self) -> bool {
        self.is_in_progress.load(Relaxed)
    }

    /// Returns true if no request is in progress and none has begun since the last call.
    fn was_idle_since(&self, last_begun: &mut u64) -> bool {
        let begun = self.begun.load(Relaxed);
        let is_same = std::mem::replace(last_begun, begun) == begun;
        is_same && !self.is_in_progress()
    }
}

/// Attaches the address of the client to a request.
fn attributed(
    mut request: Request<Incoming>,
    peer: Peer,
    trusted_proxies: &[IpNet],
) -> Request<Incoming> {
    let asking = peer.client_address(request.headers(), trusted_proxies);
    request.extensions_mut().insert(asking);
    request
}

/// Answers a request. Discards the rest of its body before the response is sent.
async fn answer(
    mut router: Router,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    if request.body().is_end_stream() {
        return router.call(request.map(Body::new)).await;
    }
    // A caller that sent `Expect: 100-continue` sends no body before the response.
    let waits = request.headers().contains_key(EXPECT);
    let rest = UnreadBody::default();
    let request = request.map(|body| Body::new(rest.watch(body)));
    let response = router.call(request).await?;
    let is_late = response.status() == StatusCode::REQUEST_TIMEOUT;
    if let Some(body) = rest.take()
        && !waits
        && !is_late
    {
        discard(body).await;
    }
    Ok(response)
}

fn malformed(error: HeadError) -> Problem {
    Problem::new(Code::MalformedRequest, error.detail()).with_status(error.status())
}

fn no_slot(limit: ConnectionLimit) -> Problem {
    let detail = match limit {
        ConnectionLimit::Server => {
            "The server's limit of open connections is reached (`limits.connections`). Nothing was changed. Send the request again shortly."
        }
        ConnectionLimit::Peer => {
            "The limit of open connections per address is reached (`limits.connections_per_peer`). Nothing was changed; use fewer connections, or send the request again shortly."
        }
    };
    Problem::new(Code::Overloaded, detail).after(RETRY_AFTER)
}

/// Returns the response after which the connection is closed.
fn last_response(problem: Problem) -> Response<Body> {
    let mut response = problem.into_response();
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    response
}
