//! What is to be sent, and how it is written into a request.
//!
//! The caller chooses method, headers and body. What frames a message or speaks about the connection
//! (`Content-Length`, `Host`, `Connection`, …) is written here and nowhere else; headers by such
//! names are dropped from what the caller gave, so no custom header can smuggle a second request.

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

use crate::identity::Identity;
use crate::mishap::Mishap;

/// A request as hyper takes it.
pub(crate) type Message = http::Request<Full<Bytes>>;

/// Who may share connections: requests with the same key and the same origin, nobody else.
///
/// The engine names it after the endpoint, its URL and its credentials, so that neither another tenant nor
/// another endpoint ever meets a connection, nor the same one after a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolKey {
    /// Of the name, reckoned once: a request looks its key up several times.
    hash: u64,
    name: Arc<str>,
}

impl PoolKey {
    /// The key with this name.
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
/// Its debug form shows neither headers nor body, which may hold secrets.
#[derive(Clone)]
pub struct Request {
    /// Whose connections it may use.
    pub pool_key: PoolKey,
    /// Where it goes. It is judged again before a connection is opened.
    pub destination: Destination,
    /// What it asks for.
    pub method: Method,
    /// Its headers. Those that frame a message or name a connection are replaced by our own.
    pub headers: HeaderMap,
    /// Its body, sent byte for byte.
    pub body: Bytes,
    /// Who we are to the receiver, if it asks for a certificate.
    pub identity: Option<Identity>,
    /// How much of the answer's body is kept; the client's setting if nothing is said. Never more than
    /// is read.
    pub keep_bytes: Option<usize>,
    /// How long all of it may take, the answer included; at most
    /// [`MAX_TIME_LIMIT`](crate::MAX_TIME_LIMIT).
    pub time_limit: Duration,
    /// Asked just before the first byte is written; without one it may always begin.
    pub permit: Option<Permit>,
}

/// Says whether a request may begin, at the moment at which it would.
///
/// Opening a connection takes its time, and a process may be stopped at any point. Whoever may send only for
/// so long gives one along, and what has not begun by then never does:
/// [`OwnFault::TooLate`](crate::OwnFault::TooLate). Over HTTP/2 it is asked when the request is handed to
/// its connection, which others share.
#[derive(Clone)]
pub struct Permit(Arc<dyn Fn() -> bool + Send + Sync>);

impl Permit {
    /// A permit that holds for as long as `holds` says so.
    pub fn new(holds: impl Fn() -> bool + Send + Sync + 'static) -> Permit {
        Permit(Arc::new(holds))
    }

    pub(crate) fn holds(&self) -> bool {
        (self.0)()
    }
}

impl fmt::Debug for Permit {
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

/// Whether a header belongs to the connection or the framing, and so to us.
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

/// Drops the headers that are not the caller's to set.
fn drop_ours(headers: &mut HeaderMap) {
    let ours: Vec<HeaderName> = headers
        .keys()
        .filter(|name| is_ours(name))
        .cloned()
        .collect();
    for name in ours {
        headers.remove(name);
    }
}

/// The message, still without the parts that depend on the version of HTTP.
pub(crate) fn compose(method: Method, mut headers: HeaderMap, body: Bytes) -> Message {
    drop_ours(&mut headers);
    let expects_body = [Method::POST, Method::PUT, Method::PATCH].contains(&method);
    if expects_body && body.is_empty() {
        // hyper tells the length of a body that is one. Some receivers answer 411 to an empty POST that
        // does not say so.
        headers.insert(CONTENT_LENGTH, HeaderValue::from(0));
    }
    let mut message = Message::new(Full::new(body));
    *message.method_mut() = method;
    *message.headers_mut() = headers;
    message
}

/// A destination as HTTP/1.1 wants it: path and query in the request line, the host in a header. It is
/// kept with a connection, most of whose requests go to the same.
pub(crate) struct Label {
    to: Destination,
    target: Uri,
    host: HeaderValue,
}

impl Label {
    pub(crate) fn new(to: &Destination) -> Result<Label, Mishap> {
        Ok(Label {
            to: to.clone(),
            target: Uri::from(target(to)?),
            host: HeaderValue::from_str(to.authority()).map_err(|_| Mishap::Target)?,
        })
    }

    pub(crate) fn is_of(&self, to: &Destination) -> bool {
        self.to == *to
    }

    /// Writes the destination into the message.
    pub(crate) fn put_on(&self, message: &mut Message) {
        *message.uri_mut() = self.target.clone();
        message.headers_mut().insert(HOST, self.host.clone());
    }
}

/// Writes the destination into the message as HTTP/2 wants it: all of it in the URI.
pub(crate) fn address_http2(message: &mut Message, to: &Destination) -> Result<(), Mishap> {
    let mut parts = uri::Parts::default();
    parts.scheme = Some(match to.scheme() {
        Scheme::Https => uri::Scheme::HTTPS,
        Scheme::Http => uri::Scheme::HTTP,
    });
    parts.authority = Some(Authority::try_from(to.authority()).map_err(|_| Mishap::Target)?);
    parts.path_and_query = Some(target(to)?);
    *message.uri_mut() = Uri::from_parts(parts).map_err(|_| Mishap::Target)?;
    message.headers_mut().remove(HOST);
    Ok(())
}

fn target(to: &Destination) -> Result<PathAndQuery, Mishap> {
    PathAndQuery::try_from(to.request_target()).map_err(|_| Mishap::Target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_core::address::EgressRules;

    #[test]
    fn a_custom_header_cannot_touch_the_framing() {
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
    fn an_empty_body_is_announced_where_one_is_expected() {
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
            let label = Label::new(&to).unwrap_or_else(|_| panic!("{character}"));
            label.put_on(&mut message);
            assert_eq!(message.uri().to_string(), to.request_target());
            assert_eq!(address_http2(&mut message, &to), Ok(()), "{character}");
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
