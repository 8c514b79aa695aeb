//! Accepts and serves connections.
//!
//! [`serve`] accepts connections up to a limit and keeps them alive. A head that is too slow, too large or
//! has too many lines ends its connection. On shutdown the server accepts no more connections, closes idle
//! ones immediately, lets requests in progress finish, and cuts those that remain after the grace period.
//!
//! A request that is refused before its body was read still gets its response: the server first reads and
//! discards the rest of the body, up to a limit. Many clients send the complete body before they read the
//! response. If the server closed the connection earlier, they would never see it.

mod unread_body;

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::header::EXPECT;
use http::{Request, Response, StatusCode};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use ipnet::IpNet;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tower::Service;

use super::origin::Peer;
use super::settings::ApiSettings;
use unread_body::{UnreadBody, throw_away};

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste::api::serve";

/// Maximum size of a head.
const MAX_HEAD_BYTES: usize = 32 * 1024;
/// Pause after a failed accept, for example when there are no more file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until `stop` completes. Then waits until every request in progress is answered, or the grace period is over.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    settings: &ApiSettings,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(settings.head_timeout)
        .max_buf_size(MAX_HEAD_BYTES);
    // A head may have at most 100 lines. This is hyper's default, for which it uses the stack. An explicit
    // limit would cost an allocation for each request.
    let slots = Arc::new(Semaphore::new(settings.max_connections));
    let trusted: Arc<[IpNet]> = settings.trusted_proxies.clone().into();
    let graceful = GracefulShutdown::new();
    tokio::pin!(stop);
    loop {
        let (stream, peer, permit) = tokio::select! {
            taken = take(&listener, &slots) => taken,
            () = &mut stop => break,
        };
        // Responses are small and written at once. Nagle's algorithm would only delay them.
        let _ = stream.set_nodelay(true);
        let router = router.clone();
        let trusted = Arc::clone(&trusted);
        let service = service_fn(move |mut request: Request<Incoming>| {
            let asking = peer.asking(request.headers(), &trusted);
            request.extensions_mut().insert(asking);
            answer(router.clone(), request)
        });
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            // An error of the connection concerns only the caller. The server has nothing left to do for it.
            let _ = connection.await;
            drop(permit);
        });
    }
    drop(listener);
    if tokio::time::timeout(settings.grace, graceful.shutdown())
        .await
        .is_err()
    {
        tracing::warn!(target: LOG_TARGET, "requests were still under way when the grace was over");
    }
    Ok(())
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
        throw_away(body).await;
    }
    Ok(response)
}

/// Accepts the next connection, as soon as the limit of connections allows it.
async fn take(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> (TcpStream, Peer, tokio::sync::OwnedSemaphorePermit) {
    let permit = slots.clone().acquire_owned().await;
    let permit = permit.expect("the semaphore is never closed");
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => return (stream, Peer(peer.ip()), permit),
            Err(why) => {
                tracing::warn!(target: LOG_TARGET, %why, "a connection could not be taken");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
