//! A minimal HTTP server on loopback.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

/// A request that arrived.
#[derive(Clone)]
pub(super) struct Arrived {
    /// Port of the client: one port is one connection.
    pub(super) client_port: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// Starts a server whose responses, status and body, are made by `respond`. Returns its address.
pub(super) async fn serve<F, R>(respond: F) -> SocketAddr
where
    F: Fn(Arrived) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = (u16, Bytes)> + Send,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, peer)) = listener.accept().await {
            let respond = respond.clone();
            let service = service_fn(move |request: Request<Incoming>| {
                let respond = respond.clone();
                async move {
                    let (head, body) = request.into_parts();
                    let arrived = Arrived {
                        client_port: peer.port(),
                        headers: head.headers,
                        body: body.collect().await?.to_bytes(),
                    };
                    let (status, body) = respond(arrived).await;
                    let response = Response::builder().status(status);
                    Ok::<_, hyper::Error>(response.body(Full::new(body)).unwrap())
                }
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    address
}
