//! One open HTTP connection and the tasks that drive it.
//!
//! hyper drives a connection from tasks that it spawns. Those would outlive a cancelled request: an orderly
//! shutdown can wait for ever for a peer that does not read. Here the tasks belong to the [`Connection`] and
//! are aborted when its last handle is dropped.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper::rt::Executor;
use hyper_util::rt::{TokioIo, TokioTimer};
use posthaste_core::address::Destination;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::allowance::ConnectionAllowance;
use crate::request::{self, Http1Target, Message, SendPermit};
use crate::send_error::SendError;
use crate::settings::{ClientSettings, MIN_RESPONSE_HEAD_BYTES};
use crate::stream::Stream;

/// Number of bytes of an HTTP/2 response that a receiver may send before the client has read them.
const HTTP2_STREAM_WINDOW_BYTES: u32 = 64 * 1_024;
/// The same limit for all responses on one connection together.
const HTTP2_CONNECTION_WINDOW_BYTES: u32 = 512 * 1_024;
/// Number of request bytes on one HTTP/2 connection that wait in memory until the receiver accepts them.
const HTTP2_SEND_BUFFER_BYTES: usize = 64 * 1_024;

/// Maximum number of bytes that may arrive for a response, as a multiple of its head and body limits. The
/// surplus is for framing: interim responses, one-byte chunks, HTTP/2 frames. Even those need at most 6 times
/// the limits.
const FRAMING_FACTOR: u64 = 8;
/// Maximum number of request allowances that an HTTP/2 connection accumulates. As much framing as
/// [`FRAMING_FACTOR`] allows never arrives on all streams at once. 16 allowances are enough for 100 responses
/// that exceed the body limit, each of which fills its stream window once more before the receiver learns that
/// the stream was reset.
const HTTP2_ALLOWANCES: u64 = 16;

/// The tasks of one connection.
#[derive(Clone, Default)]
struct Tasks(Arc<Mutex<JoinSet<()>>>);

impl<F> Executor<F> for Tasks
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, task: F) {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // HTTP/2 has a task for each stream. Remove the finished ones.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }
}

/// Aborts the tasks when the last handle of the connection is dropped. Dropping the `JoinSet` is not enough,
/// because the tasks themselves may hold references to it.
struct Guard(Tasks);

impl Drop for Guard {
    fn drop(&mut self) {
        let mut tasks = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.abort_all();
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2 {
        sender: http2::SendRequest<Full<Bytes>>,
        /// Number of concurrent requests that the receiver allows, from its latest SETTINGS.
        allowed: Arc<AtomicUsize>,
    },
}

/// An open connection.
pub(crate) struct Connection {
    sender: Sender,
    guard: Arc<Guard>,
    allowance: Arc<ConnectionAllowance>,
    /// The allowance that one request adds, in bytes.
    allowance_bytes: u64,
    opened_at: Instant,
    /// The HTTP/1.1 form of the last request's destination, cached.
    label: Option<Http1Target>,
}

/// A request without a response. `unsent` is the message, if none of it was written.
pub(crate) struct Unanswered {
    pub(crate) error: hyper::Error,
    pub(crate) unsent: Option<Message>,
}

impl From<TrySendError<Message>> for Unanswered {
    fn from(mut failure: TrySendError<Message>) -> Unanswered {
        Unanswered {
            unsent: failure.take_message(),
            error: failure.into_error(),
        }
    }
}

impl Connection {
    /// Starts HTTP on the stream. Does not wait for any bytes from the receiver.
    #[expect(
        clippy::disallowed_methods,
        reason = "the only handshake: the stream leads to an address that the connector has vetted"
    )]
    pub(crate) async fn open(
        stream: Stream,
        protocol: Protocol,
        settings: &ClientSettings,
    ) -> hyper::Result<Connection> {
        let allowance = stream.allowance();
        let io = TokioIo::new(stream);
        let tasks = Tasks::default();
        let guard = Arc::new(Guard(tasks.clone()));
        let head_bytes = settings
            .max_response_head_bytes
            .max(MIN_RESPONSE_HEAD_BYTES);
        let mut answer_bytes = head_bytes.saturating_add(settings.max_response_body_bytes) as u64;
        let sender = match protocol {
            Protocol::Http1 => {
                let (sender, connection) = http1::Builder::new()
                    .max_buf_size(head_bytes)
                    // The buffer size already limits heads; this limits trailers.
                    .max_header_size(head_bytes)
                    .handshake(io)
                    .await?;
                // A task that waits for a response gets the same error.
                tasks.execute(async { drop(connection.await) });
                Sender::Http1(sender)
            }
            Protocol::Http2 => {
                answer_bytes = answer_bytes.saturating_add(HTTP2_STREAM_WINDOW_BYTES.into());
                let (sender, mut connection) = http2::Builder::new(tasks.clone())
                    .timer(TokioTimer::new())
                    .initial_stream_window_size(HTTP2_STREAM_WINDOW_BYTES)
                    .initial_connection_window_size(HTTP2_CONNECTION_WINDOW_BYTES)
                    .max_send_buf_size(HTTP2_SEND_BUFFER_BYTES)
                    .max_header_list_size(u32::try_from(head_bytes).unwrap_or(u32::MAX))
                    .max_concurrent_streams(0)
                    .handshake(io)
                    .await?;
                let allowed = Arc::new(AtomicUsize::new(connection.current_max_send_streams()));
                let stream_limit = Arc::clone(&allowed);
                tasks.execute(poll_fn(move |cx| {
                    let ended = Pin::new(&mut connection).poll(cx).map(drop);
                    stream_limit.store(connection.current_max_send_streams(), Ordering::Relaxed);
                    ended
                }));
                Sender::Http2 { sender, allowed }
            }
        };
        Ok(Connection {
            sender,
            guard,
            allowance,
            allowance_bytes: answer_bytes.saturating_mul(FRAMING_FACTOR),
            opened_at: Instant::now(),
            label: None,
        })
    }

    pub(crate) fn protocol(&self) -> Protocol {
        match self.sender {
            Sender::Http1(_) => Protocol::Http1,
            Sender::Http2 { .. } => Protocol::Http2,
        }
    }

    pub(crate) fn opened_at(&self) -> Instant {
        self.opened_at
    }

    /// Returns another handle of the same connection, if it can serve several requests at once.
    pub(crate) fn share(&self) -> Option<Connection> {
        let sender = match &self.sender {
            Sender::Http1(_) => return None,
            Sender::Http2 { sender, allowed } => Sender::Http2 {
                sender: sender.clone(),
                allowed: Arc::clone(allowed),
            },
        };
        Some(Connection {
            sender,
            guard: Arc::clone(&self.guard),
            allowance: Arc::clone(&self.allowance),
            allowance_bytes: self.allowance_bytes,
            opened_at: self.opened_at,
            label: None,
        })
    }

    /// Returns true if both are handles of the same connection.
    pub(crate) fn is(&self, other: &Connection) -> bool {
        Arc::ptr_eq(&self.guard, &other.guard)
    }

    /// Maximum number of concurrent requests that the receiver allows.
    pub(crate) fn max_streams(&self) -> usize {
        match &self.sender {
            Sender::Http1(_) => 1,
            Sender::Http2 { allowed, .. } => allowed.load(Ordering::Relaxed),
        }
    }

    /// Returns true if the connection accepts a request now.
    pub(crate) fn is_ready(&self) -> bool {
        match &self.sender {
            Sender::Http1(sender) => sender.is_ready(),
            Sender::Http2 { sender, .. } => sender.is_ready(),
        }
    }

    /// Returns true if the connection has ended.
    pub(crate) fn is_closed(&self) -> bool {
        match &self.sender {
            Sender::Http1(sender) => sender.is_closed(),
            Sender::Http2 { sender, .. } => sender.is_closed(),
        }
    }

    /// Waits until the connection accepts a request.
    pub(crate) async fn ready(&mut self) -> hyper::Result<()> {
        match &mut self.sender {
            Sender::Http1(sender) => sender.ready().await,
            Sender::Http2 { sender, .. } => sender.ready().await,
        }
    }

    /// Writes the parts of the message that depend on the HTTP version of this connection.
    pub(crate) fn address(
        &mut self,
        message: &mut Message,
        to: &Destination,
    ) -> Result<(), SendError> {
        match self.protocol() {
            Protocol::Http1 => {
                let label = match self.label.take() {
                    Some(label) if label.is_of(to) => label,
                    Some(_) | None => Http1Target::new(to)?,
                };
                self.label.insert(label).write_to(message);
                Ok(())
            }
            Protocol::Http2 => request::set_http2_target(message, to),
        }
    }

    /// Adds the allowance for one more response. For HTTP/1.1 it also returns the allowance of the connection, which
    /// records when the first byte of the request is sent and checks the permit at that moment.
    pub(crate) fn begin_request(
        &self,
        permit: Option<SendPermit>,
    ) -> Option<Arc<ConnectionAllowance>> {
        match self.protocol() {
            Protocol::Http1 => {
                self.allowance.grant(self.allowance_bytes, 1);
                self.allowance.rearm(permit);
                Some(Arc::clone(&self.allowance))
            }
            Protocol::Http2 => {
                self.allowance.grant(self.allowance_bytes, HTTP2_ALLOWANCES);
                None
            }
        }
    }

    /// Returns true if the connection ended because more bytes arrived than allowed. The error of an HTTP/2
    /// connection cannot carry this: it is copied to every request, without its cause.
    pub(crate) fn is_flooded(&self) -> bool {
        self.allowance.is_flooded()
    }

    /// Returns true if the connection ended because the permit of a request had ended.
    pub(crate) fn is_too_late(&self) -> bool {
        self.allowance.is_too_late()
    }

    /// Sends a request and waits for the head of the response.
    pub(crate) async fn send(
        &mut self,
        message: Message,
    ) -> Result<Response<Incoming>, Unanswered> {
        let answered = match &mut self.sender {
            Sender::Http1(sender) => sender.try_send_request(message).await,
            Sender::Http2 { sender, .. } => sender.try_send_request(message).await,
        };
        answered.map_err(Unanswered::from)
    }
}
