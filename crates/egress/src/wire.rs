//! The bytes below TLS: a socket, or a tunnel through the operator's proxy.
//!
//! Everything that arrives passes here, handshakes included, and is counted against the
//! [allowance](crate::meter).

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::meter::Meter;

/// The way to the proxy.
#[derive(Debug)]
pub(crate) enum ToProxy {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// The way through the proxy.
#[derive(Debug)]
pub(crate) struct Tunnel {
    /// What came from the other end before anything was sent to it.
    pub(crate) early: Bytes,
    pub(crate) to_proxy: ToProxy,
}

#[derive(Debug)]
enum Carrier {
    Socket(TcpStream),
    Tunnel(Box<Tunnel>),
}

/// A way to the destination.
#[derive(Debug)]
pub(crate) struct Wire {
    carrier: Carrier,
    meter: Arc<Meter>,
}

impl Wire {
    /// A socket to a destination that nobody trusts.
    pub(crate) fn metered(socket: TcpStream) -> Wire {
        Wire {
            carrier: Carrier::Socket(socket),
            meter: Arc::new(Meter::new()),
        }
    }

    /// A tunnel to such a destination.
    pub(crate) fn tunnelled(tunnel: Tunnel) -> Wire {
        Wire {
            carrier: Carrier::Tunnel(Box::new(tunnel)),
            meter: Arc::new(Meter::new()),
        }
    }

    /// A socket to the operator's own server, which may say as much as it likes.
    pub(crate) fn unlimited(socket: TcpStream) -> Wire {
        Wire {
            carrier: Carrier::Socket(socket),
            meter: Arc::new(Meter::unlimited()),
        }
    }

    pub(crate) fn meter(&self) -> Arc<Meter> {
        Arc::clone(&self.meter)
    }
}

impl AsyncRead for ToProxy {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            ToProxy::Plain(socket) => Pin::new(socket).poll_read(cx, buffer),
            ToProxy::Tls(secured) => Pin::new(secured).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for ToProxy {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            ToProxy::Plain(socket) => Pin::new(socket).poll_write(cx, bytes),
            ToProxy::Tls(secured) => Pin::new(secured).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            ToProxy::Plain(socket) => Pin::new(socket).poll_flush(cx),
            ToProxy::Tls(secured) => Pin::new(secured).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            ToProxy::Plain(socket) => Pin::new(socket).poll_shutdown(cx),
            ToProxy::Tls(secured) => Pin::new(secured).poll_shutdown(cx),
        }
    }
}

impl Tunnel {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.early.is_empty() {
            return Pin::new(&mut self.to_proxy).poll_read(cx, buffer);
        }
        let length = self.early.len().min(buffer.remaining());
        buffer.put_slice(&self.early[..length]);
        self.early.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(match &mut self.carrier {
            Carrier::Socket(socket) => Pin::new(socket).poll_read(cx, buffer),
            Carrier::Tunnel(tunnel) => tunnel.poll_read(cx, buffer),
        })?;
        let arrived = buffer.filled().len() - before;
        Poll::Ready(self.meter.note_arrived(arrived).map_err(io::Error::other))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.carrier {
            Carrier::Socket(socket) => Pin::new(socket).poll_write(cx, bytes),
            Carrier::Tunnel(tunnel) => Pin::new(&mut tunnel.to_proxy).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.carrier {
            Carrier::Socket(socket) => Pin::new(socket).poll_write_vectored(cx, slices),
            Carrier::Tunnel(tunnel) => {
                Pin::new(&mut tunnel.to_proxy).poll_write_vectored(cx, slices)
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.carrier {
            Carrier::Socket(socket) => socket.is_write_vectored(),
            Carrier::Tunnel(tunnel) => tunnel.to_proxy.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.carrier {
            Carrier::Socket(socket) => Pin::new(socket).poll_flush(cx),
            Carrier::Tunnel(tunnel) => Pin::new(&mut tunnel.to_proxy).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.carrier {
            Carrier::Socket(socket) => Pin::new(socket).poll_shutdown(cx),
            Carrier::Tunnel(tunnel) => Pin::new(&mut tunnel.to_proxy).poll_shutdown(cx),
        }
    }
}
