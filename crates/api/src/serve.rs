//! Accepts and serves connections.
//!
//! [`serve`] accepts every connection at once. Beyond the limits of `ConnectionSlots` a connection is served only
//! health checks. On shutdown the server accepts no more connections, closes idle ones immediately, lets requests
//! in progress finish, and cuts those that remain after the grace period.
//!
//! | module | purpose |
//! |---|---|
//! | `slots` | the number of connections, in total and for each peer; reserved slots for health checks |
//! | `connection` | serves one connection, and ends it when it is idle |
//! | `connection_io` | its socket: passes on only strict heads, and ends a write without progress |
//! | `head`, `request_scanner` | the rules for heads, and where heads are |
//! | `unread_body` | discards what a handler did not read |
//!
//! A request that is refused before its body was read still gets its response: the server first reads and
//! discards the rest of the body, up to a limit. Many clients send the complete body before they read the
//! response. If the server closed the connection earlier, they would never see it.

mod connection;
mod connection_io;
mod head;
mod request_scanner;
mod slots;
#[cfg(test)]
mod tests;
mod unread_body;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use ipnet::IpNet;
use posthaste_telemetry::metrics::Metrics;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;

use super::request_source::Peer;
use super::settings::ApiSettings;
use connection::ConnectionServer;
use slots::{ConnectionSlots, SlotLimits};

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste::api::serve";

/// Maximum size of a head.
const MAX_HEAD_BYTES: usize = 32 * 1024;
/// Pause after a failed accept, for example when there are no more file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Maximum number of connections that wait to be accepted.
const MAX_BACKLOG: u32 = 1_024;
/// Size of the send buffer of a connection, which the kernel doubles. By default it would let one connection that is not
/// read grow to several megabytes of kernel memory, which counts for the container's limit.
const SEND_BUFFER_BYTES: u32 = 256 * 1024;

/// Listens on an address.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    // Accepted connections inherit it.
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    socket.bind(address)?;
    socket.listen(MAX_BACKLOG)
}

/// Serves until `stop` completes. Then waits until every request in progress is answered, or the grace period is over.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    settings: &ApiSettings,
    metrics: Arc<Metrics>,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let trusted: Arc<[IpNet]> = settings.trusted_proxies.clone().into();
    let limits = SlotLimits {
        connections: settings.max_connections,
        per_peer: settings.connections_per_peer(),
        trusted_proxies: trusted.clone(),
    };
    let slots = ConnectionSlots::new(limits, metrics.clone());
    let server = ConnectionServer::new(router, settings, metrics, trusted);
    let (stopping, stopped) = watch::channel(false);
    tokio::pin!(stop);
    loop {
        let (stream, peer) = tokio::select! {
            accepted = accept(&listener) => accepted,
            () = &mut stop => break,
        };
        // Responses are small and written at once. Nagle's algorithm would only delay them.
        let _ = stream.set_nodelay(true);
        let admission = slots.admit(peer.0);
        let connection = server
            .clone()
            .serve(stream, peer, admission, stopped.clone());
        tokio::spawn(connection);
    }
    drop((listener, stopped));
    stopping.send_replace(true);
    // Every connection has a receiver.
    if tokio::time::timeout(settings.grace, stopping.closed())
        .await
        .is_err()
    {
        tracing::warn!(target: LOG_TARGET, "requests were still in progress at the end of the grace period");
    }
    Ok(())
}

/// Accepts the next connection.
async fn accept(listener: &TcpListener) -> (TcpStream, Peer) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => return (stream, Peer(peer.ip())),
            Err(why) => {
                tracing::warn!(target: LOG_TARGET, %why, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
