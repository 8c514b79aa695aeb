//! Connections: taken up to a limit, kept alive, and let go gently.
//!
//! A head that is too slow, too large or has too many lines ends its connection. When the server is
//! told to stop, no connection is taken any more, idle ones end at once, requests under way get their
//! answer, and what still runs after the grace is cut off.
//!
//! A request that is refused before its body was read gets its answer all the same: what is left of the
//! body is read and thrown away first, up to a limit. Many callers send all they have before they look
//! for an answer; a connection closed under them would tell them nothing.

mod rest;

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
use rest::{Rest, throw_away};

/// The most a head may take.
const MAX_HEAD_BYTES: usize = 32 * 1024;
/// How long to wait when no connection can be taken, such as when there are no more files to open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until `stop` is done, and then until every request under way has its answer, or the grace
/// is over.
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
    // A head may have at most 100 lines: hyper's own limit, which it keeps on the stack. To set it would
    // cost an allocation for each request.
    let room = Arc::new(Semaphore::new(settings.max_connections));
    let trusted: Arc<[IpNet]> = settings.trusted_proxies.clone().into();
    let graceful = GracefulShutdown::new();
    tokio::pin!(stop);
    loop {
        let (stream, peer, place) = tokio::select! {
            taken = take(&listener, &room) => taken,
            () = &mut stop => break,
        };
        // Answers are small and complete: holding them back for more would only add delay.
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
            // How a connection ended is the caller's affair: nothing was promised on it any more.
            let _ = connection.await;
            drop(place);
        });
    }
    drop(listener);
    if tokio::time::timeout(settings.grace, graceful.shutdown())
        .await
        .is_err()
    {
        tracing::warn!("requests were still under way when the grace was over");
    }
    Ok(())
}

/// Answers a request, once nothing of its body is on its way any more.
async fn answer(
    mut router: Router,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    if request.body().is_end_stream() {
        return router.call(request.map(Body::new)).await;
    }
    // Whoever waits to be told to go on sends nothing before the answer.
    let waits = request.headers().contains_key(EXPECT);
    let rest = Rest::default();
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

/// Takes the next connection once there is room for it.
async fn take(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> (TcpStream, Peer, tokio::sync::OwnedSemaphorePermit) {
    let place = room.clone().acquire_owned().await;
    let place = place.expect("nobody closes the semaphore");
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => return (stream, Peer(peer.ip()), place),
            Err(why) => {
                tracing::warn!(%why, "a connection could not be taken");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
