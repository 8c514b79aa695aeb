//! One open connection, and the tasks that drive it.
//!
//! hyper drives a connection from tasks of its own, which would outlive a request that was given up:
//! a polite farewell can wait for ever on a peer that does not read. Here the tasks belong to the
//! connection, and end with it at once.

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

use crate::meter::Meter;
use crate::mishap::Mishap;
use crate::request::{self, Label, Message, Permit};
use crate::settings::{ClientSettings, MIN_RESPONSE_HEAD_BYTES};
use crate::stream::Stream;

/// How much of an HTTP/2 answer a receiver may send before we have read it.
const HTTP2_STREAM_WINDOW_BYTES: u32 = 64 * 1_024;
/// The same, for all the answers on one connection.
const HTTP2_CONNECTION_WINDOW_BYTES: u32 = 512 * 1_024;
/// How much of the requests on one HTTP/2 connection waits in memory for the receiver to take it.
const HTTP2_SEND_BUFFER_BYTES: usize = 64 * 1_024;

/// How many times over an answer may fill the limits of its head and body with what frames it: interim
/// answers, chunks of a single byte, frames of HTTP/2. Even those take no more than six times.
const FRAMING_FACTOR: u64 = 8;
/// For how many requests at once an HTTP/2 connection keeps an allowance. So much of framing as
/// [`FRAMING_FACTOR`] allows never comes on all of them; this is enough for a hundred answers that are
/// longer than we read, each of which fills its window once more before the receiver hears of it.
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
        // HTTP/2 has a task for each stream. Forget those that are over.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }
}

/// Ends the tasks when the last user of the connection is gone. It does not wait for the set to be
/// dropped, to which the tasks themselves may hold references.
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
        /// How many requests at once the receiver allows, as last heard.
        allowed: Arc<AtomicUsize>,
    },
}

/// An open connection.
pub(crate) struct Connection {
    sender: Sender,
    guard: Arc<Guard>,
    meter: Arc<Meter>,
    /// What one request adds to the allowance.
    allowance_bytes: u64,
    opened_at: Instant,
    /// What its last HTTP/1.1 request was addressed with.
    label: Option<Label>,
}

/// A request that got no answer. `unsent` is the message itself, if none of it was written.
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
    /// Begins to speak HTTP. Nothing is awaited from the other side yet.
    #[expect(
        clippy::disallowed_methods,
        reason = "the door: the stream leads where the connector judged"
    )]
    pub(crate) async fn open(
        stream: Stream,
        protocol: Protocol,
        settings: &ClientSettings,
    ) -> hyper::Result<Connection> {
        let meter = stream.meter();
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
                    // Heads have met the limit of the buffer before; this one is for trailers.
                    .max_header_size(head_bytes)
                    .handshake(io)
                    .await?;
                // Its error also reaches whoever awaits an answer, if anybody does.
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
                let heard = Arc::clone(&allowed);
                tasks.execute(poll_fn(move |cx| {
                    let ended = Pin::new(&mut connection).poll(cx).map(drop);
                    heard.store(connection.current_max_send_streams(), Ordering::Relaxed);
                    ended
                }));
                Sender::Http2 { sender, allowed }
            }
        };
        Ok(Connection {
            sender,
            guard,
            meter,
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

    /// Another handle on the same connection, if it can serve several requests at once.
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
            meter: Arc::clone(&self.meter),
            allowance_bytes: self.allowance_bytes,
            opened_at: self.opened_at,
            label: None,
        })
    }

    /// Whether two handles are on the same connection.
    pub(crate) fn is(&self, other: &Connection) -> bool {
        Arc::ptr_eq(&self.guard, &other.guard)
    }

    /// How many requests it can serve at once, as far as the receiver is concerned.
    pub(crate) fn max_streams(&self) -> usize {
        match &self.sender {
            Sender::Http1(_) => 1,
            Sender::Http2 { allowed, .. } => allowed.load(Ordering::Relaxed),
        }
    }

    /// Whether it would take a request at this moment.
    pub(crate) fn is_ready(&self) -> bool {
        match &self.sender {
            Sender::Http1(sender) => sender.is_ready(),
            Sender::Http2 { sender, .. } => sender.is_ready(),
        }
    }

    /// Whether it has ended.
    pub(crate) fn is_closed(&self) -> bool {
        match &self.sender {
            Sender::Http1(sender) => sender.is_closed(),
            Sender::Http2 { sender, .. } => sender.is_closed(),
        }
    }

    /// Waits until it would take a request.
    pub(crate) async fn ready(&mut self) -> hyper::Result<()> {
        match &mut self.sender {
            Sender::Http1(sender) => sender.ready().await,
            Sender::Http2 { sender, .. } => sender.ready().await,
        }
    }

    /// Writes into the message whatever depends on the version of HTTP spoken here.
    pub(crate) fn address(
        &mut self,
        message: &mut Message,
        to: &Destination,
    ) -> Result<(), Mishap> {
        match self.protocol() {
            Protocol::Http1 => {
                let label = match self.label.take() {
                    Some(label) if label.is_of(to) => label,
                    Some(_) | None => Label::new(to)?,
                };
                self.label.insert(label).put_on(message);
                Ok(())
            }
            Protocol::Http2 => request::address_http2(message, to),
        }
    }

    /// Allows for another answer. The meter will show when the request's first byte leaves, if this
    /// connection serves one request at a time; then it also asks for the permit at that very moment.
    pub(crate) fn begin_request(&self, permit: Option<Permit>) -> Option<Arc<Meter>> {
        match self.protocol() {
            Protocol::Http1 => {
                self.meter.grant(self.allowance_bytes, 1);
                self.meter.rearm(permit);
                Some(Arc::clone(&self.meter))
            }
            Protocol::Http2 => {
                self.meter.grant(self.allowance_bytes, HTTP2_ALLOWANCES);
                None
            }
        }
    }

    /// Whether it ended because more arrived than any answer needs. An HTTP/2 connection cannot say so
    /// itself: its error has to be told to every request, and is told without its cause.
    pub(crate) fn is_flooded(&self) -> bool {
        self.meter.is_flooded()
    }

    /// Whether it ended because a request may not begin any more.
    pub(crate) fn is_too_late(&self) -> bool {
        self.meter.is_too_late()
    }

    /// Sends a request and waits for the head of the answer.
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
