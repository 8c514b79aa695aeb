//! HTTP/2: several requests on one connection, and the connection after one of them fails.
//!
//! HTTP/2 is used if the receiver offers it. Requests of one pool key share a connection up to the limit of
//! streams. A request that fails ends the connection for later requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use posthaste_core::classify::TransportError;
use posthaste_egress::{Client, ClientSettings, PoolKey, Request};
use tokio::net::TcpListener;
use tokio::sync::Barrier;
use tokio_rustls::TlsAcceptor;

use crate::fixture::*;
use crate::tls::{Authority, NAME, trusting};

/// Starts an HTTP/2 receiver (hyper) that answers `gather` requests at a time. Returns its URL and its
/// connection counter.
async fn multiplexed(authority: &Authority, gather: usize) -> (String, Arc<AtomicUsize>) {
    let config = authority.server(NAME, (2020, 2100), &["h2", "http/1.1"]);
    let acceptor = TlsAcceptor::from(config);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!(
        "https://{NAME}:{}/a?b=c",
        listener.local_addr().unwrap().port()
    );
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    let gathered = Arc::new(Barrier::new(gather));
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            let (acceptor, gathered) = (acceptor.clone(), Arc::clone(&gathered));
            tokio::spawn(async move {
                let secured = acceptor.accept(socket).await.unwrap();
                let service = service_fn(move |request| echo(request, Arc::clone(&gathered)));
                let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(secured), service)
                    .await;
            });
        }
    });
    (url, connections)
}

/// Responds with the request's properties. A body `enormous` gets an enormous response.
async fn echo(
    request: http::Request<hyper::body::Incoming>,
    gathered: Arc<Barrier>,
) -> Result<http::Response<Full<Bytes>>, hyper::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    gathered.wait().await;
    if body == "enormous" {
        return Ok(http::Response::new(Full::new(Bytes::from(vec![
            0;
            2_000_000
        ]))));
    }
    let said = format!(
        "{:?} {} {} {} {:?}",
        head.version,
        head.method,
        head.uri,
        head.headers.get("x-team").is_some(),
        body
    );
    Ok(http::Response::new(Full::new(Bytes::from(said))))
}

#[tokio::test]
async fn http2_is_used_if_offered() {
    let authority = Authority::new();
    let (url, connections) = multiplexed(&authority, 1).await;
    let client = trusting(authority.roots());
    for nth in 0..3 {
        let mut request = request(&url);
        request.headers.insert("x-team", "billing".parse().unwrap());
        request
            .headers
            .insert("connection", "close".parse().unwrap());
        let report = client.send(request).await.unwrap();
        assert_eq!((status(&report), report.reused), (200, nth > 0));
        let expected = format!("HTTP/2.0 POST {url} true b\"{{}}\"");
        assert_eq!(String::from_utf8(report.snippet).unwrap(), expected);
        assert!(report.first_byte_at.is_some());
        assert_eq!(client.idle_connections(), 1);
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
    let other = Request {
        pool_key: PoolKey::new("globex"),
        ..request(&url)
    };
    assert!(!client.send(other).await.unwrap().reused);
    assert_eq!(connections.load(Ordering::SeqCst), 2);
}

/// Sends this number of requests at once, and asserts that all succeed.
async fn post_at_once(client: &Client, url: &str, count: usize) {
    let sent: Vec<_> = (0..count)
        .map(|_| {
            let (client, url) = (client.clone(), url.to_owned());
            tokio::spawn(async move { status(&post(&client, &url).await) })
        })
        .collect();
    for answer in sent {
        assert_eq!(answer.await.unwrap(), 200);
    }
}

#[tokio::test]
async fn requests_share_an_http2_connection() {
    let authority = Authority::new();
    let (url, connections) = multiplexed(&authority, 1).await;
    let client = trusting(authority.roots());
    post(&client, &url).await;
    post_at_once(&client, &url, 20).await;
    assert_eq!(connections.load(Ordering::SeqCst), 1);
    assert_eq!(client.idle_connections(), 1);
}

#[tokio::test]
async fn requests_per_http2_connection_are_bounded() {
    let authority = Authority::new();
    let (url, connections) = multiplexed(&authority, 6).await;
    let client = Client::new(ClientSettings {
        max_streams_per_connection: 2,
        roots: authority.roots(),
        resolver: FixedResolver::with(NAME, &["127.0.0.1"]),
        ..settings()
    });
    for _ in 0..2 {
        post_at_once(&client, &url, 6).await;
    }
    // 6 connections at first, because each request found none; then two requests on each of three.
    assert_eq!(connections.load(Ordering::SeqCst), 6);
}

#[tokio::test]
async fn a_failed_request_ends_a_shared_connection() {
    let authority = Authority::new();
    // The barrier never opens for a single request.
    let (url, connections) = multiplexed(&authority, 2).await;
    let client = trusting(authority.roots());
    let report = post_within(&client, &url, SHORT).await;
    assert_eq!(fault(&report), TransportError::Timeout);
    assert_eq!(client.idle_connections(), 0);
    let report = post_within(&client, &url, AMPLE).await;
    assert_eq!((status(&report), report.reused), (200, false));
    assert_eq!(connections.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn an_enormous_http2_body_counts_as_a_response() {
    let authority = Authority::new();
    let (url, _) = multiplexed(&authority, 1).await;
    let client = trusting(authority.roots());
    let request = Request {
        body: Bytes::from_static(b"enormous"),
        ..request(&url)
    };
    let report = client.send(request).await.unwrap();
    assert_eq!(status(&report), 200);
    assert_eq!(report.snippet, vec![0; 1_024]);
    assert_eq!(client.idle_connections(), 0);
}

/// Each response is read as far as a single one would be.
#[tokio::test]
async fn one_hundred_enormous_bodies_at_once_all_count() {
    let authority = Authority::new();
    let (url, connections) = multiplexed(&authority, 1).await;
    let client = trusting(authority.roots());
    post(&client, &url).await;
    let sent: Vec<_> = (0..100)
        .map(|_| {
            let (client, url) = (client.clone(), url.clone());
            let enormous = Request {
                body: Bytes::from_static(b"enormous"),
                ..request(&url)
            };
            tokio::spawn(async move { client.send(enormous).await.unwrap() })
        })
        .collect();
    for answer in sent {
        let report = answer.await.unwrap();
        assert_eq!((status(&report), report.reused), (200, true));
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}
