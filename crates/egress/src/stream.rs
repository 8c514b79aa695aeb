//! The byte stream of a connection, plain or TLS.
//!
//! [`Stream`] records when the first byte of a request is sent, which is used to measure the lag of a first
//! attempt. It refuses to send the first byte if the permit of the request has ended.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::client::TlsStream;

use crate::allowance::ConnectionAllowance;
use crate::wire::Wire;

#[derive(Debug)]
enum Transport {
    Plain(Wire),
    Tls(Box<TlsStream<Wire>>),
}

/// The byte stream below HTTP.
#[derive(Debug)]
pub(crate) struct Stream {
    transport: Transport,
    allowance: Arc<ConnectionAllowance>,
}

impl Stream {
    pub(crate) fn plain(wire: Wire) -> Stream {
        Stream {
            allowance: wire.allowance(),
            transport: Transport::Plain(wire),
        }
    }

    pub(crate) fn tls(secured: TlsStream<Wire>) -> Stream {
        Stream {
            allowance: secured.get_ref().0.allowance(),
            transport: Transport::Tls(Box::new(secured)),
        }
    }

    pub(crate) fn allowance(&self) -> Arc<ConnectionAllowance> {
        Arc::clone(&self.allowance)
    }

    fn noted(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(1..)) = written {
            self.allowance.record_sent();
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
            Transport::Plain(wire) => Pin::new(wire).poll_read(cx, buffer),
            Transport::Tls(secured) => match ready!(Pin::new(secured).poll_read(cx, buffer)) {
                // Many servers close the connection without the `close_notify` that TLS requires. It protects
                // against truncated bodies, which the framing of HTTP detects as well where it matters.
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
        self.allowance.check_permit().map_err(io::Error::other)?;
        let written = match &mut self.transport {
            Transport::Plain(wire) => Pin::new(wire).poll_write(cx, bytes),
            Transport::Tls(secured) => Pin::new(secured).poll_write(cx, bytes),
        };
        self.noted(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.allowance.check_permit().map_err(io::Error::other)?;
        let written = match &mut self.transport {
            Transport::Plain(wire) => Pin::new(wire).poll_write_vectored(cx, slices),
            Transport::Tls(secured) => Pin::new(secured).poll_write_vectored(cx, slices),
        };
        self.noted(written)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.transport {
            Transport::Plain(wire) => wire.is_write_vectored(),
            Transport::Tls(secured) => secured.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.transport {
            Transport::Plain(wire) => Pin::new(wire).poll_flush(cx),
            Transport::Tls(secured) => Pin::new(secured).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.transport {
            Transport::Plain(wire) => Pin::new(wire).poll_shutdown(cx),
            Transport::Tls(secured) => Pin::new(secured).poll_shutdown(cx),
        }
    }
}
