//! The request that the caller wants to send, and its translation to HTTP.
//!
//! The caller chooses the method, headers and body of a [`Request`]. This module alone writes the headers that
//! frame a message or describe the connection (`Content-Length`, `Host`, `Connection`, …). The caller's headers
//! with such names are dropped, so that a custom header cannot smuggle a second request.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, uri};
use http_body_util::Full;
use posthaste_core::address::{Destination, Scheme};

use crate::client_identity::ClientIdentity;
use crate::send_error::SendError;

/// A request in hyper's form.
pub(crate) type Message = http::Request<Full<Bytes>>;

/// Determines which requests may share connections: those with the same key, destination and client certificate.
///
/// The engine derives the key from the endpoint, its URL and its credentials. So a connection is never used by
/// another tenant or another endpoint, nor by the same endpoint after a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolKey {
    /// Hash of the name, computed once because a request looks its key up several times.
    hash: u64,
    name: Arc<str>,
}

impl PoolKey {
    /// Creates the key with this name.
    pub fn new(name: &str) -> PoolKey {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        PoolKey {
            hash: hasher.finish(),
            name: Arc::from(name),
        }
    }
}

impl Hash for PoolKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// One request to send.
///
/// The debug form omits headers and body, which may contain secrets.
#[derive(Clone)]
pub struct Request {
    /// The key whose connections it may use.
    pub pool_key: PoolKey,
    /// The URL. It is vetted again before a connection is opened.
    pub destination: Destination,
    /// The HTTP method.
    pub method: Method,
    /// Its headers. Headers that frame the message or describe the connection are replaced by the client's own.
    pub headers: HeaderMap,
    /// Its body, sent byte for byte.
    pub body: Bytes,
    /// The client certificate that is presented if the receiver asks for one.
    pub identity: Option<ClientIdentity>,
    /// Maximum number of bytes that are kept of the response body; `None` means the client's setting. Limited
    /// by the number of bytes that are read.
    pub keep_bytes: Option<usize>,
    /// Time limit of the whole request, including the response; at most
    /// [`MAX_TIME_LIMIT`](crate::MAX_TIME_LIMIT).
    pub time_limit: Duration,
    /// Checked just before the first byte is written. Without a permit the request may always start.
    pub permit: Option<SendPermit>,
}

/// Decides whether a request may start, at the moment when its first byte would be sent.
///
/// Opening a connection takes time, and the process may be suspended at any point. A caller that may send only
/// for a limited time (a lease) passes a permit. If the permit has ended before the first byte, the request is
/// not sent and fails with [`LocalFault::PermitEnded`](crate::LocalFault::PermitEnded). On a shared HTTP/2
/// connection the permit is checked when the request is passed to the connection.
#[derive(Clone)]
pub struct SendPermit(Arc<dyn Fn() -> bool + Send + Sync>);

impl SendPermit {
    /// Creates a permit that is valid while `holds` returns true.
    pub fn new(holds: impl Fn() -> bool + Send + Sync + 'static) -> SendPermit {
        SendPermit(Arc::new(holds))
    }

    pub(crate) fn holds(&self) -> bool {
        (self.0)()
    }
}

impl fmt::Debug for SendPermit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Permit").finish_non_exhaustive()
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Request")
            .field("pool_key", &self.pool_key)
            .field("method", &self.method)
            .field("header_count", &self.headers.len())
            .field("body_bytes", &self.body.len())
            .field("time_limit", &self.time_limit)
            .finish_non_exhaustive()
    }
}

/// Returns true if a header belongs to the connection or the framing, so that only the client may set it.
fn is_ours(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection"
            | "content-length"
            | "expect"
            | "host"
            | "http2-settings"
            | "keep-alive"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "proxy-connection"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
    )
}

/// Removes the headers that the caller may not set.
fn remove_reserved_headers(headers: &mut HeaderMap) {
    let ours: Vec<HeaderName> = headers
        .keys()
        .filter(|name| is_ours(name))
        .cloned()
        .collect();
    for name in ours {
        headers.remove(name);
    }
}

/// Builds the message without the parts that depend on the HTTP version.
pub(crate) fn compose(method: Method, mut headers: HeaderMap, body: Bytes) -> Message {
    remove_reserved_headers(&mut headers);
    let expects_body = [Method::POST, Method::PUT, Method::PATCH].contains(&method);
    if expects_body && body.is_empty() {
        // hyper writes the length only of a body that is not empty. Some receivers answer 411 to an empty POST
        // without a length.
        headers.insert(CONTENT_LENGTH, HeaderValue::from(0));
    }
    let mut message = Message::new(Full::new(body));
    *message.method_mut() = method;
    *message.headers_mut() = headers;
    message
}

/// A destination in the form of HTTP/1.1: path and query in the request line, the host in a header. It is
/// cached with its connection, because most requests of a connection have the same destination.
pub(crate) struct Http1Target {
    to: Destination,
    target: Uri,
    host: HeaderValue,
}

impl Http1Target {
    pub(crate) fn new(to: &Destination) -> Result<Http1Target, SendError> {
        Ok(Http1Target {
            to: to.clone(),
            target: Uri::from(target(to)?),
            host: HeaderValue::from_str(to.authority()).map_err(|_| SendError::Target)?,
        })
    }

    pub(crate) fn is_of(&self, to: &Destination) -> bool {
        self.to == *to
    }

    /// Writes the destination into the message.
    pub(crate) fn write_to(&self, message: &mut Message) {
        *message.uri_mut() = self.target.clone();
        message.headers_mut().insert(HOST, self.host.clone());
    }
}

/// Writes the destination into the message in the form of HTTP/2: completely in the URI.
pub(crate) fn set_http2_target(message: &mut Message, to: &Destination) -> Result<(), SendError> {
    let mut parts = uri::Parts::default();
    parts.scheme = Some(match to.scheme() {
        Scheme::Https => uri::Scheme::HTTPS,
        Scheme::Http => uri::Scheme::HTTP,
    });
    parts.authority = Some(Authority::try_from(to.authority()).map_err(|_| SendError::Target)?);
    parts.path_and_query = Some(target(to)?);
    *message.uri_mut() = Uri::from_parts(parts).map_err(|_| SendError::Target)?;
    message.headers_mut().remove(HOST);
    Ok(())
}

fn target(to: &Destination) -> Result<PathAndQuery, SendError> {
    PathAndQuery::try_from(to.request_target()).map_err(|_| SendError::Target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_core::address::EgressRules;

    #[test]
    fn custom_headers_cannot_change_the_framing() {
        let mut headers = HeaderMap::new();
        for name in [
            "connection",
            "content-length",
            "expect",
            "host",
            "keep-alive",
            "te",
            "transfer-encoding",
            "upgrade",
        ] {
            headers.append(name, HeaderValue::from_static("1"));
            headers.append(name, HeaderValue::from_static("2"));
        }
        headers.insert("x-team", HeaderValue::from_static("billing"));
        let message = compose(Method::POST, headers, Bytes::from_static(b"four"));
        let kept: Vec<_> = message.headers().iter().collect();
        assert_eq!(kept.len(), 1, "{kept:?}");
        assert_eq!(message.headers()["x-team"], "billing");
    }

    #[test]
    fn an_empty_body_has_a_content_length() {
        let length = |method| {
            let message = compose(method, HeaderMap::new(), Bytes::new());
            message.headers().get(CONTENT_LENGTH).cloned()
        };
        assert_eq!(length(Method::POST), Some(HeaderValue::from(0)));
        assert_eq!(length(Method::GET), None);
        assert_eq!(length(Method::DELETE), None);
    }

    #[test]
    fn every_printable_character_of_a_url_can_be_sent() {
        let rules = EgressRules::default();
        for byte in (b'!'..=b'~').filter(|byte| !b"#\\".contains(byte)) {
            let character = char::from(byte);
            let raw = format!("https://a.example/p{character}p?q{character}q");
            let to = Destination::parse(&raw, &rules).unwrap();
            let mut message = compose(Method::POST, HeaderMap::new(), Bytes::new());
            let label = Http1Target::new(&to).unwrap_or_else(|_| panic!("{character}"));
            label.write_to(&mut message);
            assert_eq!(message.uri().to_string(), to.request_target());
            assert_eq!(set_http2_target(&mut message, &to), Ok(()), "{character}");
            assert_eq!(message.uri().to_string(), to.as_str());
            assert!(!message.headers().contains_key(HOST));
        }
    }

    #[test]
    fn a_secret_header_is_not_in_the_debug_form() {
        let mut headers = HeaderMap::new();
        headers.insert("authorization", HeaderValue::from_static("Bearer canary"));
        let to = Destination::parse("https://a.example/?k=canary", &EgressRules::default());
        let request = Request {
            pool_key: PoolKey::new("ep_1"),
            destination: to.unwrap(),
            method: Method::POST,
            headers,
            body: Bytes::from_static(b"canary"),
            identity: None,
            keep_bytes: None,
            time_limit: Duration::from_secs(1),
            permit: None,
        };
        assert!(!format!("{request:?}").contains("canary"));
    }
}
