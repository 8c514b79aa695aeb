//! The byte stream below TLS: a socket, or a tunnel through the operator's proxy.
//!
//! All bytes that arrive pass through [`Wire`], including handshakes, and are counted against the
//! [allowance](crate::allowance).

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::allowance::ConnectionAllowance;

/// A connection to the proxy.
#[derive(Debug)]
pub(crate) enum ProxyStream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// A connection through the proxy.
#[derive(Debug)]
pub(crate) struct Tunnel {
    /// Bytes that the destination sent before the client sent any.
    pub(crate) early: Bytes,
    pub(crate) to_proxy: ProxyStream,
}

#[derive(Debug)]
enum Carrier {
    Socket(TcpStream),
    Tunnel(Box<Tunnel>),
}

/// A connection to the destination.
#[derive(Debug)]
pub(crate) struct Wire {
    carrier: Carrier,
    allowance: Arc<ConnectionAllowance>,
}

impl Wire {
    /// Creates a connection over a socket to an untrusted destination.
    pub(crate) fn metered(socket: TcpStream) -> Wire {
        Wire {
            carrier: Carrier::Socket(socket),
            allowance: Arc::new(ConnectionAllowance::new()),
        }
    }

    /// Creates a connection over a tunnel to an untrusted destination.
    pub(crate) fn tunnelled(tunnel: Tunnel) -> Wire {
        Wire {
            carrier: Carrier::Tunnel(Box::new(tunnel)),
            allowance: Arc::new(ConnectionAllowance::new()),
        }
    }

    /// Creates a connection to the operator's own server, without a limit on received bytes.
    pub(crate) fn unlimited(socket: TcpStream) -> Wire {
        Wire {
            carrier: Carrier::Socket(socket),
            allowance: Arc::new(ConnectionAllowance::unlimited()),
        }
    }

    pub(crate) fn allowance(&self) -> Arc<ConnectionAllowance> {
        Arc::clone(&self.allowance)
    }
}

impl AsyncRead for ProxyStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            ProxyStream::Plain(socket) => Pin::new(socket).poll_read(cx, buffer),
            ProxyStream::Tls(secured) => Pin::new(secured).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for ProxyStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            ProxyStream::Plain(socket) => Pin::new(socket).poll_write(cx, bytes),
            ProxyStream::Tls(secured) => Pin::new(secured).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            ProxyStream::Plain(socket) => Pin::new(socket).poll_flush(cx),
            ProxyStream::Tls(secured) => Pin::new(secured).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            ProxyStream::Plain(socket) => Pin::new(socket).poll_shutdown(cx),
            ProxyStream::Tls(secured) => Pin::new(secured).poll_shutdown(cx),
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
        Poll::Ready(
            self.allowance
                .record_received(arrived)
                .map_err(io::Error::other),
        )
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
