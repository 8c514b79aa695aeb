//! A tower layer that lets only verified webhooks pass.
//!
//! [`WebhookLayer`] reads and verifies each request, answers those that are not authentic, and passes the others on with their
//! body and a [`RawWebhook`](crate::RawWebhook) in the extensions. With an inbox in memory it also answers duplicates.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::Full;
use tower_layer::Layer;
use tower_service::Service;

use crate::{Begin, BoxError, InboxFull, MemoryInbox, Receiver, Reply};

/// Lets only verified webhooks pass to the service below it.
///
/// ```
/// use std::time::Duration;
/// use axum::{Extension, Router, routing::post};
/// use posthaste_receiver::{MemoryInbox, RawWebhook, Receiver, Verifier, WebhookLayer};
///
/// async fn handle(Extension(webhook): Extension<RawWebhook>) -> &'static str {
///     println!("{} has {} bytes", webhook.head.id, webhook.body.len());
///     "processed"
/// }
///
/// let verifier = Verifier::new(["whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"])?;
/// let layer = WebhookLayer::new(Receiver::new(verifier))
///     .inbox(MemoryInbox::new(100_000, Duration::from_secs(7 * 24 * 3600)));
/// let app: Router = Router::new().route("/hooks", post(handle)).layer(layer);
/// # Ok::<(), posthaste_receiver::KeyError>(())
/// ```
#[derive(Debug, Clone)]
pub struct WebhookLayer {
    receiver: Receiver,
    inbox: Option<MemoryInbox>,
}

impl WebhookLayer {
    /// Creates a layer that verifies, and deduplicates nothing.
    pub fn new(receiver: Receiver) -> WebhookLayer {
        WebhookLayer {
            receiver,
            inbox: None,
        }
    }

    /// Answers duplicates from an inbox. A webhook counts as processed when the service below answers 2xx.
    #[must_use]
    pub fn inbox(self, inbox: MemoryInbox) -> WebhookLayer {
        WebhookLayer {
            inbox: Some(inbox),
            ..self
        }
    }
}

impl<S> Layer<S> for WebhookLayer {
    type Service = WebhookService<S>;

    fn layer(&self, inner: S) -> WebhookService<S> {
        WebhookService {
            layer: self.clone(),
            inner,
        }
    }
}

/// The service that [`WebhookLayer`] makes.
#[derive(Debug, Clone)]
pub struct WebhookService<S> {
    layer: WebhookLayer,
    inner: S,
}

impl<S, B, R> Service<Request<B>> for WebhookService<S>
where
    S: Service<Request<Full<Bytes>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
    R: From<Bytes> + 'static,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The service that was asked whether it is ready is the one to call.
        let clone = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, clone);
        Box::pin(handle(self.layer.clone(), inner, request))
    }
}

async fn handle<S, B, R>(
    layer: WebhookLayer,
    mut inner: S,
    request: Request<B>,
) -> Result<Response<R>, S::Error>
where
    S: Service<Request<Full<Bytes>>, Response = Response<R>>,
    B: Body,
    B::Error: Into<BoxError>,
    R: From<Bytes>,
{
    let (mut head, body) = request.into_parts();
    let mut signed = Request::new(body);
    *signed.headers_mut() = head.headers.clone();
    let webhook = match layer.receiver.receive(signed).await {
        Ok(webhook) => webhook,
        Err(error) => return Ok(Reply::from(&error).into_response()),
    };
    let claim = match &layer.inbox {
        None => None,
        Some(inbox) => match inbox.begin(&webhook.head.id, layer.receiver.now()) {
            Ok(Begin::New(claim)) => Some(claim),
            Ok(Begin::Duplicate) => return Ok(Reply::duplicate().into_response()),
            Ok(Begin::InProgress) => return Ok(Reply::in_progress().into_response()),
            Err(InboxFull) => return Ok(Reply::busy().into_response()),
        },
    };
    let body = webhook.body.clone();
    head.extensions.insert(webhook);
    let request = Request::from_parts(head, Full::new(body));
    let response = inner.call(request).await?;
    // Otherwise the claim is dropped, and the next attempt is processed again.
    if let Some(claim) = claim
        && response.status().is_success()
    {
        claim.complete(layer.receiver.now());
    }
    Ok(response)
}
