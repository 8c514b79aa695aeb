//! A connection's bytes, plain or inside TLS.
//!
//! The stream notes when the first byte of a request leaves, which is what the lag of a first attempt
//! is measured by.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::client::TlsStream;

/// When the current request's first byte left, if it has.
#[derive(Debug)]
pub(crate) struct Meter {
    since: Instant,
    /// Nanoseconds after `since`; [`Meter::SILENT`] before the first byte.
    first_byte: AtomicU64,
}

impl Meter {
    const SILENT: u64 = u64::MAX;

    fn new() -> Meter {
        Meter {
            since: Instant::now(),
            first_byte: AtomicU64::new(Meter::SILENT),
        }
    }

    /// Waits for the first byte of another request.
    pub(crate) fn rearm(&self) {
        self.first_byte.store(Meter::SILENT, Ordering::Relaxed);
    }

    pub(crate) fn first_byte_at(&self) -> Option<Instant> {
        match self.first_byte.load(Ordering::Relaxed) {
            Meter::SILENT => None,
            nanos => Some(self.since + Duration::from_nanos(nanos)),
        }
    }

    fn note(&self) {
        if self.first_byte.load(Ordering::Relaxed) == Meter::SILENT {
            let nanos = u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(Meter::SILENT - 1);
            self.first_byte.store(nanos, Ordering::Relaxed);
        }
    }
}

#[derive(Debug)]
enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// What HTTP is spoken over.
#[derive(Debug)]
pub(crate) struct Stream {
    transport: Transport,
    meter: Arc<Meter>,
}

impl Stream {
    pub(crate) fn plain(socket: TcpStream) -> Stream {
        Stream::over(Transport::Plain(socket))
    }

    pub(crate) fn tls(secured: TlsStream<TcpStream>) -> Stream {
        Stream::over(Transport::Tls(Box::new(secured)))
    }

    fn over(transport: Transport) -> Stream {
        Stream {
            transport,
            meter: Arc::new(Meter::new()),
        }
    }

    pub(crate) fn meter(&self) -> Arc<Meter> {
        Arc::clone(&self.meter)
    }

    fn noted(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(1..)) = written {
            self.meter.note();
        }
        written
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.transport {
            Transport::Plain(socket) => Pin::new(socket).poll_read(cx, buffer),
            Transport::Tls(secured) => match ready!(Pin::new(secured).poll_read(cx, buffer)) {
                // Many servers hang up without the farewell that TLS asks for. It guards against a
                // body cut short, which HTTP's own framing does as well wherever it matters.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
                read => Poll::Ready(read),
            },
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = match &mut self.transport {
            Transport::Plain(socket) => Pin::new(socket).poll_write(cx, bytes),
            Transport::Tls(secured) => Pin::new(secured).poll_write(cx, bytes),
        };
        self.noted(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = match &mut self.transport {
            Transport::Plain(socket) => Pin::new(socket).poll_write_vectored(cx, slices),
            Transport::Tls(secured) => Pin::new(secured).poll_write_vectored(cx, slices),
        };
        self.noted(written)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.transport {
            Transport::Plain(socket) => socket.is_write_vectored(),
            Transport::Tls(secured) => secured.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.transport {
            Transport::Plain(socket) => Pin::new(socket).poll_flush(cx),
            Transport::Tls(secured) => Pin::new(secured).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.transport {
            Transport::Plain(socket) => Pin::new(socket).poll_shutdown(cx),
            Transport::Tls(secured) => Pin::new(secured).poll_shutdown(cx),
        }
    }
}
