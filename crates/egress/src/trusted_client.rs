//! Trusted client: HTTP connections to addresses that the operator configured, or that the person at the
//! terminal named.
//!
//! The rules for destinations protect a network from untrusted tenants who register endpoints. An address that
//! the operator chose is trusted, and is mostly on this same machine. So nothing is vetted here, and no address
//! that a tenant chose may ever be passed to this module. The other guarantees of the crate hold for
//! [`TrustedConnection`]: no redirects, no proxy from the environment, bounded responses, and a time limit for every
//! wait.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderValue, Request, Response, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use thiserror::Error;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::Roots;
use crate::stream::Stream;
use crate::wire::Wire;

/// Maximum size of a response body. A page of the API is far smaller.
pub const MAX_ANSWER_BYTES: usize = 32 * 1_024 * 1_024;

/// Base URL of a server: `http://127.0.0.1:8420`, `https://hooks.example.com/posthaste`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseUrl {
    secure: bool,
    host: String,
    port: u16,
    base: String,
}

/// The text is not the base URL of a server.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("must be a URL such as http://127.0.0.1:8420 or https://hooks.example.com")]
pub struct OriginError;

impl BaseUrl {
    /// Returns the base URL of a plain HTTP server at this address.
    pub fn plain(address: SocketAddr) -> BaseUrl {
        BaseUrl {
            secure: false,
            host: address.ip().to_string(),
            port: address.port(),
            base: String::new(),
        }
    }

    /// Returns the path prefix of every request: empty, or with a leading slash and no trailing one.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Returns host and port in URL form. The port is omitted if it is the default of the scheme.
    fn authority(&self) -> String {
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        match (self.secure, self.port) {
            (false, 80) | (true, 443) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }
}

impl FromStr for BaseUrl {
    type Err = OriginError;

    fn from_str(text: &str) -> Result<BaseUrl, OriginError> {
        let uri: Uri = text.trim().parse().map_err(|_| OriginError)?;
        let secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            Some(_) | None => return Err(OriginError),
        };
        let authority = uri.authority().ok_or(OriginError)?;
        let (host, rest) = authority
            .as_str()
            .split_at_checked(authority.host().len())
            .ok_or(OriginError)?;
        let port = match rest.strip_prefix(':') {
            Some(port) => port.parse().map_err(|_| OriginError)?,
            None if secure => 443,
            None => 80,
        };
        let host = host.trim_matches(['[', ']']);
        // A user name and password before an @ would not be sent, so a URL with them is refused.
        if host.is_empty() || authority.as_str().contains('@') || uri.query().is_some() {
            return Err(OriginError);
        }
        Ok(BaseUrl {
            secure,
            host: host.to_owned(),
            port,
            base: uri.path().trim_end_matches('/').to_owned(),
        })
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.secure { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.base)
    }
}

/// The reason why the operator's server gave no response.
#[derive(Debug, Error)]
pub enum TrustedClientError {
    /// The connection could not be opened.
    #[error("{0}")]
    NotConnected(#[source] io::Error),
    /// The TLS handshake failed.
    #[error("TLS error: {0}")]
    NotSecured(#[source] io::Error),
    /// The time limit passed.
    #[error("no response within {} s", .0.as_secs_f64())]
    TooSlow(Duration),
    /// The response is longer than [`MAX_ANSWER_BYTES`].
    #[error("the response is longer than {} MiB", MAX_ANSWER_BYTES >> 20)]
    TooLong,
    /// The connection broke, or the response is not HTTP.
    #[error("the connection was lost: {0}")]
    Broken(#[source] hyper::Error),
}

/// An open connection to the operator's server. Serves one request at a time.
pub struct TrustedConnection {
    sender: http1::SendRequest<Full<Bytes>>,
    host: HeaderValue,
    /// Drives the connection; aborted when the connection is dropped.
    _driver: JoinSet<()>,
}

/// Opens a connection.
pub async fn connect(
    origin: &BaseUrl,
    roots: &Roots,
    within: Duration,
) -> Result<TrustedConnection, TrustedClientError> {
    timeout(within, open(origin, roots))
        .await
        .map_err(|_| TrustedClientError::TooSlow(within))?
}

#[expect(
    clippy::disallowed_methods,
    reason = "the operator's own server, which the operator configured"
)]
async fn open(origin: &BaseUrl, roots: &Roots) -> Result<TrustedConnection, TrustedClientError> {
    let socket = TcpStream::connect((origin.host.as_str(), origin.port))
        .await
        .map_err(TrustedClientError::NotConnected)?;
    // If this fails, requests are only slower.
    let _ = socket.set_nodelay(true);
    let stream = match origin.secure {
        false => Stream::plain(Wire::unlimited(socket)),
        true => secured(socket, &origin.host, roots)
            .await
            .map_err(TrustedClientError::NotSecured)?,
    };
    let (sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(TrustedClientError::Broken)?;
    let mut driver = JoinSet::new();
    driver.spawn(async move {
        // An error is also returned to the task that waits for a response.
        let _ = connection.await;
    });
    Ok(TrustedConnection {
        sender,
        host: HeaderValue::from_str(&origin.authority())
            .expect("a parsed authority is visible ASCII"),
        _driver: driver,
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "the operator's own server, which the operator configured"
)]
async fn secured(socket: TcpStream, host: &str, roots: &Roots) -> io::Result<Stream> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring supports TLS 1.2 and 1.3")
        .with_root_certificates(Arc::clone(&roots.0))
        .with_no_client_auth();
    let name = match host.parse::<IpAddr>() {
        Ok(address) => ServerName::from(address),
        Err(_) => ServerName::try_from(host.to_owned())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?,
    };
    let connector = TlsConnector::from(Arc::new(config));
    let wire = Wire::unlimited(socket);
    connector.connect(name, wire).await.map(Stream::tls)
}

impl TrustedConnection {
    /// Returns true if the server has closed the connection, so that a request would be lost.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Sends a request, whose URI is a path, and reads the whole response.
    pub async fn send(
        &mut self,
        mut request: Request<Full<Bytes>>,
        within: Duration,
    ) -> Result<Response<Bytes>, TrustedClientError> {
        request
            .headers_mut()
            .entry(HOST)
            .or_insert_with(|| self.host.clone());
        timeout(within, self.exchange(request))
            .await
            .map_err(|_| TrustedClientError::TooSlow(within))?
    }

    async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Bytes>, TrustedClientError> {
        self.sender
            .ready()
            .await
            .map_err(TrustedClientError::Broken)?;
        let answer = self.sender.send_request(request).await;
        let (head, body) = answer.map_err(TrustedClientError::Broken)?.into_parts();
        let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await;
        let body = body.map_err(|error| match error.downcast::<hyper::Error>() {
            Ok(broken) => TrustedClientError::Broken(*broken),
            Err(_) => TrustedClientError::TooLong,
        })?;
        Ok(Response::from_parts(head, body.to_bytes()))
    }
}

/// Opens a bare connection for load generators: no limits and no `Host` header. Its task ends when the sender
/// is dropped or the server closes the connection.
pub async fn dial(address: SocketAddr) -> io::Result<http1::SendRequest<Full<Bytes>>> {
    dial_from(address, None).await
}

/// Opens a bare connection like [`dial`], from this local address if there is one. The server then sees another peer.
#[expect(
    clippy::disallowed_methods,
    reason = "the operator's own server, which the operator configured"
)]
pub async fn dial_from(
    address: SocketAddr,
    source: Option<IpAddr>,
) -> io::Result<http1::SendRequest<Full<Bytes>>> {
    let socket = dial_tcp(address, source).await?;
    let (sender, connection) = http1::handshake(TokioIo::new(socket))
        .await
        .map_err(io::Error::other)?;
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(sender)
}

/// Opens a TCP connection for load generators that break the rules of HTTP, from this local address if there is one.
#[expect(
    clippy::disallowed_methods,
    reason = "the operator's own server, which the operator configured"
)]
pub async fn dial_tcp(address: SocketAddr, source: Option<IpAddr>) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    if let Some(source) = source {
        socket.bind(SocketAddr::new(source, 0))?;
    }
    let socket = socket.connect(address).await?;
    socket.set_nodelay(true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(text: &str) -> String {
        text.parse::<BaseUrl>()
            .map_or_else(|_| "refused".to_owned(), |origin| origin.to_string())
    }

    #[test]
    fn origins_are_parsed_from_urls() {
        for (text, read) in [
            ("http://127.0.0.1:8420", "http://127.0.0.1:8420"),
            ("http://127.0.0.1:8420/", "http://127.0.0.1:8420"),
            ("http://[::1]:8420", "http://[::1]:8420"),
            ("https://a.example", "https://a.example"),
            ("https://a.example:443/x/", "https://a.example/x"),
            ("http://a.example:443", "http://a.example:443"),
        ] {
            assert_eq!(origin(text), read, "{text}");
        }
    }

    #[test]
    fn invalid_origins_are_refused() {
        for text in [
            "",
            "127.0.0.1:8420",
            "a.example",
            "ftp://a.example",
            "http://",
            "http://u:p@a.example",
            "http://a.example?x=1",
            "http://a.example:99999",
            "http://a b",
        ] {
            assert_eq!(origin(text), "refused", "{text}");
        }
    }
}
