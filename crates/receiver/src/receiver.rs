//! Reading and verifying a whole request.
//!
//! [`Receiver`] is a [`Verifier`] with a clock. It reads the body of a request up to the limit and verifies it, for any HTTP
//! server whose requests are `http::Request`: hyper, axum, tower.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use http::Request;
use http_body::Body;
use http_body_util::{BodyExt, LengthLimitError, Limited};

use crate::{RawWebhook, ReceiveError, Verifier};

/// An error of a body or a service, of any type.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Tells the time. Tests have clocks of their own.
pub(crate) type Clock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// Reads and verifies requests. A clone is cheap and shares everything.
///
/// With plain hyper, in a `service_fn`:
///
/// ```
/// use bytes::Bytes;
/// use http::{Request, Response};
/// use http_body_util::Full;
/// use posthaste_receiver::{Receiver, Reply};
///
/// # #[derive(serde::Deserialize)] struct Invoice { amount: u64 }
/// async fn receive<B>(receiver: Receiver, request: Request<B>) -> Response<Full<Bytes>>
/// where
///     B: http_body::Body,
///     B::Error: Into<posthaste_receiver::BoxError>,
/// {
///     let webhook = match receiver.receive(request).await {
///         Ok(webhook) => webhook,
///         Err(error) => return Reply::from(&error).into_response(),
///     };
///     match webhook.json::<Invoice>() {
///         Ok(webhook) => println!("{}: {}", webhook.head.id, webhook.payload.amount),
///         Err(error) => return Reply::from(&error).into_response(),
///     }
///     Reply::processed().into_response()
/// }
/// ```
#[derive(Clone)]
pub struct Receiver {
    verifier: Arc<Verifier>,
    clock: Clock,
}

impl Receiver {
    /// Creates a receiver with the clock of the system.
    pub fn new(verifier: Verifier) -> Receiver {
        Receiver {
            verifier: Arc::new(verifier),
            clock: Arc::new(SystemTime::now),
        }
    }

    /// Sets the clock, for tests.
    #[must_use]
    pub fn clock(self, clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Receiver {
        Receiver {
            clock: Arc::new(clock),
            ..self
        }
    }

    /// Returns the time by the clock of this receiver: for the inbox, so that both have the same.
    pub fn now(&self) -> SystemTime {
        (self.clock)()
    }

    /// Reads a request and verifies it. The body is read only if the headers can be those of a webhook, and at most up to
    /// [`Verifier::max_body_bytes`]. The time that a slow sender may take is a limit of the server.
    pub async fn receive<B>(&self, request: Request<B>) -> Result<RawWebhook, ReceiveError>
    where
        B: Body,
        B::Error: Into<BoxError>,
    {
        let (head, body) = request.into_parts();
        let now = self.now();
        self.verifier.read_head(&head.headers, now)?;
        let limit = self.verifier.body_limit();
        let too_large = ReceiveError::BodyTooLarge { limit };
        if body.size_hint().lower() > limit as u64 {
            return Err(too_large);
        }
        let body = match Limited::new(body, limit).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => return Err(too_large),
            Err(error) => return Err(ReceiveError::UnreadableBody(error)),
        };
        self.verifier.verify(&head.headers, body, now)
    }
}

impl fmt::Debug for Receiver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Receiver")
            .field("verifier", &self.verifier)
            .finish_non_exhaustive()
    }
}
