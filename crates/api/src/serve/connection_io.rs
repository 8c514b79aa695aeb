//! The socket of a connection, as hyper uses it.
//!
//! [`ConnectionIo`] adds four guarantees that hyper does not give:
//!
//! - **Strict heads.** hyper receives a head only when it has arrived completely and follows the
//!   [rules](super::head). Instead of a head that breaks one, hyper receives a fixed request, and [`RefusedHead`]
//!   holds the reason: the service answers that request with the problem, after all requests before it. Nothing
//!   of the connection is used after that.
//! - **Progress of writes.** A write that makes no progress for a time limit fails, which ends the connection. hyper
//!   itself waits forever for a caller that does not read.
//! - **Time of heads.** The first head, and each further one from its first byte on, must be complete within a time limit.
//!   hyper's own limit also ends connections that wait for their next request, long before their idle time is over.
//! - **Turns.** A connection that could read or write on and on lets the other tasks run after [`TURN_BYTES`].
//!
//! A read that ends a head, or is part of a body, is passed on in place, without a copy. Each timer is created when it
//! is first needed.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

use super::MAX_HEAD_BYTES;
use super::connection::Requests;
use super::head::HeadError;
use super::request_scanner::{RequestScanner, Scanned};

/// Size of one read while the beginning of a head is held back.
const READ_BYTES: usize = 4 * 1024;
/// Maximum number of reads that discard what follows a refused head.
const MAX_DISCARDS: usize = 16;
/// The request that hyper receives in place of a refused head.
const SUBSTITUTE: &[u8] = b"GET / HTTP/1.1\r\nHost: refused\r\nConnection: close\r\n\r\n";

/// Number of bytes that a connection reads and writes before the other tasks of its thread get a turn. Without it, a few
/// hundred connections with large bodies would delay small requests by seconds.
const TURN_BYTES: usize = 64 * 1024;

/// The reason why the last head of a connection was refused. Set before hyper receives the substitute.
pub(super) type RefusedHead = Arc<OnceLock<HeadError>>;

/// A stream of bytes that can be closed without delivering what is not sent yet.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin {
    /// Makes closing the stream drop unsent bytes.
    fn drop_unsent(&self);
}

impl Stream for TcpStream {
    fn drop_unsent(&self) {
        // Without it the kernel would keep them for minutes after the connection has ended.
        let _ = self.set_zero_linger();
    }
}

/// A stream with strict heads and a time limit for the progress of writes.
pub(super) struct ConnectionIo<T> {
    stream: T,
    scanner: RequestScanner,
    /// Bytes that are received and not passed on.
    held: BytesMut,
    /// Of `held`, the number of bytes that can be passed on.
    ready_bytes: usize,
    substitution: Substitution,
    refused_head: RefusedHead,
    requests: Arc<Requests>,
    /// True while the first head, or one that has begun, is incomplete.
    is_in_head: bool,
    head_timer: Timer,
    stall: Timer,
    turn: Turn,
}

/// The substitution of a refused head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Substitution {
    /// No head was refused.
    None,
    /// A head was refused, and hyper has not received the substitute.
    Pending(HeadError),
    /// hyper has received the substitute.
    Passed,
}

impl<T: Stream> ConnectionIo<T> {
    /// Wraps a stream. `head_timeout` is the maximum time for a head to arrive, `write_timeout` the maximum time without
    /// progress of a write.
    pub(super) fn new(
        stream: T,
        head_timeout: Duration,
        write_timeout: Duration,
        refused_head: RefusedHead,
        requests: Arc<Requests>,
    ) -> ConnectionIo<T> {
        ConnectionIo {
            stream,
            scanner: RequestScanner::Head,
            held: BytesMut::new(),
            ready_bytes: 0,
            substitution: Substitution::None,
            refused_head,
            requests,
            is_in_head: true,
            head_timer: Timer::new(head_timeout),
            stall: Timer::new(write_timeout),
            turn: Turn::default(),
        }
    }

    /// Reads from the stream, if it is this connection's turn.
    fn poll_stream(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.turn.poll(context));
        let filled = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.turn
            .count(read.is_ready(), buffer.filled().len() - filled);
        read
    }

    /// Writes to the stream with `write`, if it is this connection's turn.
    fn poll_write_with(
        &mut self,
        context: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut T>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        ready!(self.turn.poll(context));
        let written = write(Pin::new(&mut self.stream), context);
        let bytes = match &written {
            Poll::Ready(Ok(bytes)) => *bytes,
            Poll::Ready(Err(_)) | Poll::Pending => 0,
        };
        self.turn.count(written.is_ready(), bytes);
        if written.is_ready() {
            self.stall.stop();
            return written;
        }
        ready!(self.stall.poll(context));
        self.stream.drop_unsent();
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Reads from the stream, and passes on what is complete. Returns true if hyper's buffer has something new, or the
    /// stream has ended.
    fn poll_more(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<bool>> {
        let read = match self.held.is_empty() {
            true => self.poll_direct(context, buffer),
            false => self.poll_held(context).map_ok(|has_more| !has_more),
        };
        if read.is_pending() {
            // A head that arrives during a request has time until hyper waits for it.
            if !self.is_in_head || self.requests.is_in_progress() {
                self.head_timer.stop();
                return Poll::Pending;
            }
            ready!(self.head_timer.poll(context));
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        self.is_in_head = self.held.len() > self.ready_bytes;
        if !self.is_in_head {
            self.head_timer.stop();
        }
        read
    }

    /// Reads into hyper's buffer. Holds back what begins a head. Returns true if hyper's buffer has something new.
    fn poll_direct(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<bool>> {
        let filled = buffer.filled().len();
        ready!(self.poll_stream(context, buffer))?;
        let received = &buffer.filled()[filled..];
        if received.is_empty() {
            return Poll::Ready(Ok(true));
        }
        let passed = match self.scanner.scan(received) {
            Scanned::All => return Poll::Ready(Ok(true)),
            Scanned::Until(index) => {
                self.held.extend_from_slice(&received[index..]);
                index
            }
            Scanned::Refused(index, error) => {
                self.substitution = Substitution::Pending(error);
                index
            }
        };
        buffer.set_filled(filled + passed);
        Poll::Ready(Ok(passed > 0))
    }

    /// Reads more of the head whose beginning is held back. Returns false at the end of the stream.
    fn poll_held(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut piece = [MaybeUninit::uninit(); READ_BYTES];
        let mut piece = ReadBuf::uninit(&mut piece);
        ready!(self.poll_stream(context, &mut piece))?;
        let received = piece.filled();
        if received.is_empty() {
            return Poll::Ready(Ok(false));
        }
        self.held.extend_from_slice(received);
        let ends_line = received.contains(&b'\n');
        if ends_line {
            match self.scanner.scan(&self.held) {
                Scanned::All => self.ready_bytes = self.held.len(),
                Scanned::Until(index) => self.ready_bytes = index,
                Scanned::Refused(index, error) => {
                    self.substitution = Substitution::Pending(error);
                    self.held.truncate(index);
                    self.ready_bytes = index;
                }
            }
        }
        if self.held.len() - self.ready_bytes >= MAX_HEAD_BYTES {
            self.substitution = Substitution::Pending(HeadError::TooLarge);
            self.held.truncate(self.ready_bytes);
        }
        Poll::Ready(Ok(true))
    }

    /// Passes on what is held back and complete.
    fn pass_on(&mut self, buffer: &mut ReadBuf<'_>) {
        let count = self.ready_bytes.min(buffer.remaining());
        buffer.put_slice(&self.held[..count]);
        self.held.advance(count);
        self.ready_bytes -= count;
        if self.held.is_empty() {
            // Few connections ever need it. An idle connection holds no memory for it.
            self.held = BytesMut::new();
        }
    }

    /// Discards what follows a refused head, so that closing the connection does not reset it before the caller
    /// has received the response.
    fn discard(&mut self, context: &mut Context<'_>) {
        let mut piece = [MaybeUninit::uninit(); READ_BYTES];
        for _ in 0..MAX_DISCARDS {
            let mut piece = ReadBuf::uninit(&mut piece);
            let read = Pin::new(&mut self.stream).poll_read(context, &mut piece);
            if !matches!(read, Poll::Ready(Ok(()))) || piece.filled().is_empty() {
                return;
            }
        }
    }
}

impl<T: Stream> AsyncRead for ConnectionIo<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if this.ready_bytes > 0 {
                this.pass_on(buffer);
                return Poll::Ready(Ok(()));
            }
            match this.substitution {
                Substitution::None => {}
                Substitution::Pending(error) => {
                    // hyper reads again only when it has handled every head before, so the next request that
                    // the service gets is the substitute.
                    let _ = this.refused_head.set(error);
                    this.substitution = Substitution::Passed;
                    this.held = BytesMut::from(SUBSTITUTE);
                    this.ready_bytes = SUBSTITUTE.len();
                    continue;
                }
                Substitution::Passed => {
                    this.discard(context);
                    return Poll::Pending;
                }
            }
            if ready!(this.poll_more(context, buffer))? {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<T: Stream> AsyncWrite for ConnectionIo<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut()
            .poll_write_with(context, |stream, context| stream.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_write_with(context, |stream, context| {
            stream.poll_write_vectored(context, slices)
        })
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.substitution == Substitution::Passed {
            this.discard(context);
        }
        Pin::new(&mut this.stream).poll_shutdown(context)
    }
}

/// Ends the turn of a connection that has read and written [`TURN_BYTES`].
#[derive(Default)]
struct Turn {
    /// Bytes since the connection had to wait.
    bytes: usize,
}

impl Turn {
    /// Waits for the next turn if this one is over. The runtime polls a task that has woken itself after the others.
    fn poll(&mut self, context: &Context<'_>) -> Poll<()> {
        if self.bytes < TURN_BYTES {
            return Poll::Ready(());
        }
        self.bytes = 0;
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Counts bytes. A connection that has to wait anyway begins a new turn.
    fn count(&mut self, is_ready: bool, bytes: usize) {
        self.bytes = match is_ready {
            true => self.bytes.saturating_add(bytes),
            false => 0,
        };
    }
}

/// The time limit of an operation that waits.
struct Timer {
    limit: Duration,
    /// Created when an operation first waits, and used again.
    sleep: Option<Pin<Box<Sleep>>>,
    /// True while an operation waits.
    is_running: bool,
}

impl Timer {
    fn new(limit: Duration) -> Timer {
        Timer {
            limit,
            sleep: None,
            is_running: false,
        }
    }

    /// Notes that the operation has ended or made progress.
    fn stop(&mut self) {
        self.is_running = false;
    }

    /// Starts when an operation begins to wait. Ready when the limit is over.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let deadline = || Instant::now() + self.limit;
        let sleep = match &mut self.sleep {
            None => self.sleep.insert(Box::pin(sleep_until(deadline()))),
            Some(sleep) => {
                if !self.is_running {
                    sleep.as_mut().reset(deadline());
                }
                sleep
            }
        };
        self.is_running = true;
        sleep.as_mut().poll(context)
    }
}
