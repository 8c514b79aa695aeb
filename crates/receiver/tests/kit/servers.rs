//! The kit in servers: a tower layer, axum extractors, and plain hyper.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRef, State};
use axum::http::{Request, Response, StatusCode, header};
use axum::routing::post;
use axum::{Extension, Router};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use posthaste_receiver::{
    MemoryInbox, RawWebhook, ReceiveError, Receiver, Reply, Verifier, Webhook, WebhookLayer,
};
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;
use tower::ServiceExt;

use crate::fixture::{NOW, Sender, at};

const KEY: Sender = Sender::Shared([1; 24]);
const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

fn inbox() -> MemoryInbox {
    MemoryInbox::new(100, WEEK)
}

async fn status(app: &Router, request: Request<Body>) -> StatusCode {
    let response = app.clone().oneshot(request).await;
    response.expect("a response").status()
}

#[derive(Deserialize)]
struct Invoice {
    amount: u64,
}

#[derive(Clone)]
struct App {
    receiver: Receiver,
    amounts: Arc<Mutex<Vec<u64>>>,
}

impl FromRef<App> for Receiver {
    fn from_ref(app: &App) -> Receiver {
        app.receiver.clone()
    }
}

#[tokio::test]
async fn the_extractor_takes_only_authentic_requests_with_the_expected_payload() {
    async fn receive(State(app): State<App>, webhook: Webhook<Invoice>) -> Reply {
        assert_eq!(webhook.head.id, "dlv_1");
        app.amounts
            .lock()
            .expect("a lock")
            .push(webhook.payload.amount);
        Reply::processed()
    }
    let verifier = Verifier::new([KEY.key()]).expect("a key");
    let verifier = verifier.max_body_bytes(100);
    let app = App {
        receiver: Receiver::new(verifier).clock(|| at(NOW)),
        amounts: Arc::default(),
    };
    let router = Router::new()
        .route("/hooks", post(receive))
        .with_state(app.clone());

    let paid = r#"{"amount":42}"#;
    assert_eq!(status(&router, KEY.request("dlv_1", paid)).await, 200);
    assert_eq!(*app.amounts.lock().expect("a lock"), [42]);

    let mut forged = KEY.request("dlv_1", paid);
    *forged.body_mut() = Body::from(r#"{"amount":43}"#);
    assert_eq!(status(&router, forged).await, 401);
    let unsigned = Request::post("/hooks")
        .body(Body::from(paid))
        .expect("a request");
    assert_eq!(status(&router, unsigned).await, 400);
    let unexpected = KEY.request("dlv_1", r#"{"amount":"many"}"#);
    assert_eq!(status(&router, unexpected).await, 400);
    let large = KEY.request("dlv_1", &" ".repeat(101));
    assert_eq!(status(&router, large).await, 413);
    let largest = KEY.request("dlv_1", &format!("{paid}{}", " ".repeat(100 - paid.len())));
    assert_eq!(status(&router, largest).await, 200);
    assert_eq!(*app.amounts.lock().expect("a lock"), [42, 42]);
}

/// A body of unknown length that counts how much of it was read.
fn endless(read: &Arc<AtomicUsize>) -> Body {
    struct Endless(Arc<AtomicUsize>);
    impl http_body::Body for Endless {
        type Data = Bytes;
        type Error = Infallible;
        fn poll_frame(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
            self.0.fetch_add(10, Ordering::Relaxed);
            let frame = http_body::Frame::data(Bytes::from_static(&[b' '; 10]));
            std::task::Poll::Ready(Some(Ok(frame)))
        }
    }
    Body::new(Endless(read.clone()))
}

#[tokio::test]
async fn a_body_is_read_up_to_the_limit_and_only_for_plausible_headers() {
    let verifier = Verifier::new([KEY.key()]).expect("a key");
    let receiver = Receiver::new(verifier.max_body_bytes(1000)).clock(|| at(NOW));
    let read = Arc::new(AtomicUsize::new(0));
    let mut request = KEY.request("dlv_1", "{}");
    *request.body_mut() = endless(&read);
    let error = receiver
        .receive(request)
        .await
        .expect_err("it is too large");
    assert!(matches!(error, ReceiveError::BodyTooLarge { limit: 1000 }));
    assert!(read.load(Ordering::Relaxed) <= 1010);

    let read = Arc::new(AtomicUsize::new(0));
    let unsigned = Request::new(endless(&read));
    let error = receiver.receive(unsigned).await.expect_err("no headers");
    assert_eq!(error.status(), 400);
    assert_eq!(read.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_body_that_breaks_off_is_no_webhook() {
    let broken = broken();
    let mut request = KEY.request("dlv_1", "{}");
    *request.body_mut() = broken;
    let error = KEY
        .receiver()
        .receive(request)
        .await
        .expect_err("it breaks off");
    assert!(matches!(error, ReceiveError::UnreadableBody(_)));
    assert_eq!(error.status(), 400);
}

fn broken() -> Body {
    struct Broken;
    impl http_body::Body for Broken {
        type Data = Bytes;
        type Error = std::io::Error;
        fn poll_frame(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, std::io::Error>>> {
            std::task::Poll::Ready(Some(Err(std::io::ErrorKind::ConnectionReset.into())))
        }
    }
    Body::new(Broken)
}

#[tokio::test]
async fn the_layer_passes_each_webhook_once() {
    async fn receive(
        Extension(seen): Extension<Arc<AtomicUsize>>,
        Extension(webhook): Extension<RawWebhook>,
        body: String,
    ) -> &'static str {
        assert_eq!(webhook.body, body);
        seen.fetch_add(1, Ordering::Relaxed);
        "done"
    }
    let seen = Arc::new(AtomicUsize::new(0));
    let router = Router::new()
        .route("/hooks", post(receive))
        .layer(WebhookLayer::new(KEY.receiver()).inbox(inbox()))
        .layer(Extension(seen.clone()));
    for id in ["dlv_1", "dlv_1", "dlv_2", "dlv_1"] {
        assert_eq!(status(&router, KEY.request(id, "{}")).await, 200);
    }
    let stranger = Sender::Shared([2; 24]);
    let forged = stranger.request("dlv_3", "{}");
    assert_eq!(status(&router, forged).await, 401);
    assert_eq!(seen.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn the_layer_releases_what_failed_and_refuses_what_is_in_progress() {
    type Gate =
        Arc<tokio::sync::Mutex<Option<(oneshot::Sender<()>, oneshot::Receiver<StatusCode>)>>>;
    async fn receive(Extension(gate): Extension<Gate>) -> StatusCode {
        let (entered, answer) = gate.lock().await.take().expect("one request at a time");
        entered.send(()).expect("the test waits");
        answer.await.expect("the test answers")
    }
    let gate = Gate::default();
    let router = Router::new()
        .route("/hooks", post(receive))
        .layer(WebhookLayer::new(KEY.receiver()).inbox(inbox()))
        .layer(Extension(gate.clone()));
    for outcome in [StatusCode::INTERNAL_SERVER_ERROR, StatusCode::OK] {
        let (entered, has_entered) = oneshot::channel();
        let (answer, answered) = oneshot::channel();
        *gate.lock().await = Some((entered, answered));
        let request = router.clone().oneshot(KEY.request("dlv_1", "{}"));
        let first = tokio::spawn(request);
        has_entered.await.expect("the handler has begun");
        let second = router.clone().oneshot(KEY.request("dlv_1", "{}")).await;
        let second = second.expect("a response");
        assert_eq!(second.status(), 409);
        assert_eq!(second.headers()[header::RETRY_AFTER], "1");
        answer.send(outcome).expect("the handler waits");
        let first = first.await.expect("no panic").expect("a response");
        assert_eq!(first.status(), outcome);
    }
    // The second time it was processed.
    assert_eq!(status(&router, KEY.request("dlv_1", "{}")).await, 200);
}

#[tokio::test]
async fn a_cancelled_request_is_released() {
    async fn receive(Extension(entered): Extension<Arc<tokio::sync::Notify>>) -> StatusCode {
        entered.notify_one();
        std::future::pending().await
    }
    let entered = Arc::new(tokio::sync::Notify::new());
    let inbox = inbox();
    let router = Router::new()
        .route("/hooks", post(receive))
        .layer(WebhookLayer::new(KEY.receiver()).inbox(inbox.clone()))
        .layer(Extension(entered.clone()));
    let first = tokio::spawn(router.clone().oneshot(KEY.request("dlv_1", "{}")));
    entered.notified().await;
    assert_eq!(inbox.len(), 1);
    first.abort();
    let _ = first.await;
    assert!(inbox.is_empty());
}

#[tokio::test]
async fn plain_hyper_can_receive() {
    async fn receive(
        request: Request<hyper::body::Incoming>,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        let webhook = match KEY.receiver().receive(request).await {
            Ok(webhook) => webhook,
            Err(error) => return Ok(Reply::from(&error).into_response()),
        };
        assert_eq!(webhook.head.id, "dlv_1");
        Ok(Reply::processed().into_response())
    }
    let (mut client, server) = tokio::io::duplex(4096);
    let serve = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(server), service_fn(receive));
    let served = tokio::spawn(serve);
    let mut text = String::new();
    for (id, close) in [("dlv_1", "keep-alive"), ("dlv_2", "close")] {
        let mut headers = KEY.headers("dlv_1", b"{}");
        // The second has another id than was signed.
        headers.insert("webhook-id", id.parse().expect("an id"));
        text.push_str("POST /hooks HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n");
        text.push_str(&format!("connection: {close}\r\n"));
        for (name, value) in &headers {
            text.push_str(&format!("{name}: {}\r\n", value.to_str().expect("text")));
        }
        text.push_str("\r\n{}");
    }
    client.write_all(text.as_bytes()).await.expect("written");
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.expect("answered");
    served.await.expect("no panic").expect("no error");
    let statuses: Vec<&str> = answer
        .lines()
        .filter_map(|line| line.split_once("HTTP/1.1 "))
        .map(|(_, status)| status)
        .collect();
    assert_eq!(statuses, ["200 OK", "401 Unauthorized"]);
}

#[tokio::test]
async fn replies_say_when_to_try_again() {
    let response = Reply::busy().into_response::<Full<Bytes>>();
    assert_eq!(response.status(), 503);
    assert_eq!(response.headers()[header::RETRY_AFTER], "1");
    let response = Reply::duplicate().into_response::<Full<Bytes>>();
    assert_eq!(response.status(), 200);
    assert!(!response.headers().contains_key(header::RETRY_AFTER));
    let body = response.into_body().collect().await.expect("a body");
    assert_eq!(body.to_bytes(), "duplicate");
}
