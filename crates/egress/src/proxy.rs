//! Tunnels through the operator's proxy (HTTP CONNECT), for networks in which all outbound connections must use
//! one.
//!
//! The proxy is trusted: its address is mostly a private one and is not vetted. The destination is not trusted:
//! it is checked, resolved and vetted as if there were no proxy, and the proxy is asked to connect to the
//! *vetted address*, so that it cannot be directed to a forbidden one. TLS to the receiver runs through the
//! tunnel with the original name. No byte of a request is sent before the tunnel is open.
//!
//! If the operator configured that the proxy resolves names, it gets the name instead of an address. A name can
//! then mean any address that the proxy can reach, including private ones; refusing those is the task of the
//! proxy.
//!
//! A failure to reach the proxy, or of the proxy itself, is a [`ProxyFault`] and does not count as an attempt.
//! A response of the proxy about the destination (403, 502, 503, 504) counts as a failure of the destination.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::Uri;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::dial;
use crate::error_mapping;
use crate::lookup_failure::ResolveError;
use crate::resolve::{Resolve, SystemResolver};
use crate::roots::Roots;
use crate::send_error::{
    AttemptFailure, AttemptStep, LocalFault, ProxyFault, RequestPhase, SendError,
};
use crate::tls;
use crate::wire::{ProxyStream, Tunnel};

/// Maximum size of the proxy's response head.
const MAX_HEAD_BYTES: usize = 8 * 1_024;
/// Maximum length of user name and password together.
const MAX_CREDENTIAL_BYTES: usize = 1_024;
const END_OF_HEAD: &[u8] = b"\r\n\r\n";

/// A proxy: `http://proxy.internal:3128`, `https://user:password@proxy.internal:3129`.
///
/// Neither the debug form nor the display form contains the user name or the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    secure: bool,
    host: String,
    port: u16,
    /// The value of `Proxy-Authorization`.
    authorization: Option<String>,
    resolves: bool,
}

/// The text is not the URL of a proxy. The error does not quote the text, which may contain a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "must be a URL such as http://proxy.internal:3128 or https://user:password@proxy.internal:3129, \
     with nothing after the port; write special characters of the password as %XX"
)]
pub struct ProxyError;

impl Proxy {
    /// Returns the same proxy with another setting: if `resolves`, the proxy gets names; otherwise addresses.
    pub fn resolving(self, resolves: bool) -> Proxy {
        Proxy { resolves, ..self }
    }

    pub(crate) fn resolves(&self) -> bool {
        self.resolves
    }
}

impl FromStr for Proxy {
    type Err = ProxyError;

    fn from_str(text: &str) -> Result<Proxy, ProxyError> {
        let uri: Uri = text.trim().parse().map_err(|_| ProxyError)?;
        let secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            Some(_) | None => return Err(ProxyError),
        };
        let authority = uri.authority().ok_or(ProxyError)?.as_str();
        let (credentials, host_and_port) = match authority.rsplit_once('@') {
            Some((credentials, host_and_port)) => (Some(credentials), host_and_port),
            None => (None, authority),
        };
        let (host, port) = match host_and_port.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| ProxyError)?)
            }
            Some(_) | None => (host_and_port, if secure { 443 } else { 80 }),
        };
        let host = host.trim_matches(['[', ']']);
        let is_bare = uri.query().is_none() && ["", "/"].contains(&uri.path());
        if host.is_empty() || port == 0 || !is_bare {
            return Err(ProxyError);
        }
        Ok(Proxy {
            secure,
            host: host.to_owned(),
            port,
            authorization: credentials.map(basic).transpose()?,
            resolves: false,
        })
    }
}

/// Returns the header value for `user:password`, percent-encoded as in a URL.
fn basic(credentials: &str) -> Result<String, ProxyError> {
    let mut plain = Vec::with_capacity(credentials.len());
    let mut rest = credentials.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'%' {
            plain.push(*byte);
            continue;
        }
        let (digits, after) = after.split_at_checked(2).ok_or(ProxyError)?;
        let digits = str::from_utf8(digits).map_err(|_| ProxyError)?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(ProxyError);
        }
        plain.push(u8::from_str_radix(digits, 16).map_err(|_| ProxyError)?);
        rest = after;
    }
    if plain.len() > MAX_CREDENTIAL_BYTES {
        return Err(ProxyError);
    }
    if !plain.contains(&b':') {
        plain.push(b':');
    }
    Ok(format!("Basic {}", BASE64_STANDARD.encode(plain)))
}

impl fmt::Display for Proxy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.secure { "https" } else { "http" };
        match self.host.contains(':') {
            true => write!(formatter, "{scheme}://[{}]:{}", self.host, self.port),
            false => write!(formatter, "{scheme}://{}:{}", self.host, self.port),
        }
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Proxy")
            .field("url", &format_args!("{self}"))
            .field("has_credentials", &self.authorization.is_some())
            .field("resolves", &self.resolves)
            .finish()
    }
}

/// Opens connections through the proxy.
pub(crate) struct ProxyConnector {
    proxy: Proxy,
    tls: Arc<ClientConfig>,
    names: SystemResolver,
}

impl ProxyConnector {
    pub(crate) fn new(proxy: Proxy, roots: &Roots) -> ProxyConnector {
        ProxyConnector {
            proxy,
            tls: Arc::new(tls::config(roots)),
            names: SystemResolver::as_configured(),
        }
    }

    pub(crate) fn resolves(&self) -> bool {
        self.proxy.resolves()
    }

    /// Opens a tunnel to the first of these targets that the proxy reaches. A target is `host:port`.
    pub(crate) async fn tunnel(
        &self,
        targets: &[String],
        step: &mut AttemptStep,
    ) -> Result<Tunnel, AttemptFailure> {
        let mut setback = AttemptFailure::from(SendError::NoAddress);
        for target in targets {
            match self.tunnel_to(target, step).await {
                // The proxy may reach another address of the name, for example IPv4 but not IPv6.
                Err(AttemptFailure::Remote(SendError::UnreachableThroughProxy)) => {
                    setback = SendError::UnreachableThroughProxy.into()
                }
                ended => return ended,
            }
        }
        Err(setback)
    }

    async fn tunnel_to(
        &self,
        target: &str,
        step: &mut AttemptStep,
    ) -> Result<Tunnel, AttemptFailure> {
        *step = AttemptStep::reaching_proxy();
        let mut to_proxy = self.reach().await?;
        *step = AttemptStep::At(RequestPhase::Connecting);
        let asked = async {
            to_proxy.write_all(self.request(target).as_bytes()).await?;
            to_proxy.flush().await
        };
        asked.await.map_err(|_| fault(ProxyFault::Closed))?;
        let (status, early) = read_answer(&mut to_proxy).await.map_err(fault)?;
        match status {
            200..=299 => Ok(Tunnel { early, to_proxy }),
            403 => Err(SendError::RefusedByProxy.into()),
            407 => Err(fault(ProxyFault::Unauthorized)),
            502..=504 => Err(SendError::UnreachableThroughProxy.into()),
            other => Err(fault(ProxyFault::Status(other))),
        }
    }

    /// Connects to the proxy itself.
    async fn reach(&self) -> Result<ProxyStream, AttemptFailure> {
        let addresses = match self.proxy.host.parse::<IpAddr>() {
            Ok(address) => vec![address],
            Err(_) => self
                .names
                .resolve(&self.proxy.host)
                .await
                .map_err(|error| match error {
                    ResolveError::Failed
                    | ResolveError::NoSuchName
                    | ResolveError::Temporary
                    | ResolveError::NoAddress => fault(ProxyFault::Unresolved),
                    ResolveError::Unable(_) => LocalFault::Resolver.into(),
                })?,
        };
        let dialled = dial::connect(&addresses, self.proxy.port).await;
        let socket = dialled.map_err(|error| match error_mapping::connect_error(&error) {
            AttemptFailure::Local(ours) => ours.into(),
            AttemptFailure::Remote(send_error) => fault(ProxyFault::Unreached(send_error)),
        })?;
        if !self.proxy.secure {
            return Ok(ProxyStream::Plain(socket));
        }
        let secured = self.secured(socket).await;
        secured.map_err(|send_error| fault(ProxyFault::Insecure(send_error)))
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the operator's proxy, which gets only the CONNECT request"
    )]
    async fn secured(&self, socket: TcpStream) -> Result<ProxyStream, SendError> {
        let name = match self.proxy.host.parse::<IpAddr>() {
            Ok(address) => ServerName::from(address),
            Err(_) => ServerName::try_from(self.proxy.host.clone())
                .map_err(|_| SendError::CertificateWrongHost)?,
        };
        let connector = TlsConnector::from(Arc::clone(&self.tls));
        let secured = connector.connect(name, socket).await;
        let secured = secured.map_err(|error| error_mapping::handshake_error(&error))?;
        Ok(ProxyStream::Tls(Box::new(secured)))
    }

    fn request(&self, target: &str) -> String {
        let authorization = match &self.proxy.authorization {
            Some(value) => format!("Proxy-Authorization: {value}\r\n"),
            None => String::new(),
        };
        format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{authorization}\r\n")
    }
}

fn fault(fault: ProxyFault) -> AttemptFailure {
    LocalFault::Proxy(fault).into()
}

/// Reads the proxy's response. Returns its status and the bytes after its head.
async fn read_answer(proxy: &mut (impl AsyncRead + Unpin)) -> Result<(u16, Bytes), ProxyFault> {
    let mut received = Vec::new();
    let mut chunk = [0; 1_024];
    loop {
        let length = proxy.read(&mut chunk).await;
        let length = length.map_err(|_| ProxyFault::Closed)?;
        if length == 0 {
            return Err(ProxyFault::Closed);
        }
        let searched = received.len().saturating_sub(END_OF_HEAD.len() - 1);
        received.extend_from_slice(&chunk[..length]);
        let begins_right = received
            .iter()
            .zip(b"HTTP/1.")
            .all(|(have, want)| have == want);
        if !begins_right {
            return Err(ProxyFault::Malformed);
        }
        let mut windows = received[searched..].windows(END_OF_HEAD.len());
        let end = windows.position(|window| window == END_OF_HEAD);
        let end = end.map(|at| searched + at + END_OF_HEAD.len());
        if end.unwrap_or(received.len()) > MAX_HEAD_BYTES {
            return Err(ProxyFault::HeadTooLarge);
        }
        if let Some(end) = end {
            let status = status(&received).ok_or(ProxyFault::Malformed)?;
            return Ok((status, Bytes::from(received).split_off(end)));
        }
    }
}

/// Parses the status of a line such as `HTTP/1.1 200 Connection established`.
fn status(head: &[u8]) -> Option<u16> {
    let line = head.split(|byte| *byte == b'\r').next()?;
    let mut words = line.splitn(3, |byte| *byte == b' ');
    let version = words.next()?;
    let code = words.next()?;
    let is_known = [b"HTTP/1.0".as_slice(), b"HTTP/1.1"].contains(&version);
    let is_code = code.len() == 3 && code.iter().all(u8::is_ascii_digit);
    let code = str::from_utf8(code).ok().filter(|_| is_known && is_code)?;
    code.parse().ok().filter(|code| *code >= 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy(text: &str) -> Result<Proxy, ProxyError> {
        text.parse()
    }

    #[test]
    fn proxies_are_parsed_from_urls() {
        for (text, read) in [
            ("http://proxy.internal:3128", "http://proxy.internal:3128"),
            ("http://proxy.internal:3128/", "http://proxy.internal:3128"),
            ("http://proxy", "http://proxy:80"),
            ("https://proxy", "https://proxy:443"),
            ("http://10.0.0.1:8080", "http://10.0.0.1:8080"),
            ("http://[fd00::1]:8080", "http://[fd00::1]:8080"),
            ("http://[fd00::1]", "http://[fd00::1]:80"),
            ("http://u:p@proxy:3128", "http://proxy:3128"),
        ] {
            assert_eq!(proxy(text).unwrap().to_string(), read);
        }
    }

    #[test]
    fn invalid_proxies_are_refused_without_quoting_them() {
        for text in [
            "",
            "proxy:3128",
            "socks5://proxy:1080",
            "http://",
            "http://:3128",
            "http://proxy:0",
            "http://proxy:99999",
            "http://proxy:3128/path",
            "http://proxy:3128?x",
            "http://canary%zz:p@proxy",
            "http://canary%4",
            "http://u:canary%2@proxy",
        ] {
            assert_eq!(proxy(text), Err(ProxyError), "{text}");
        }
        assert!(!ProxyError.to_string().contains("canary"));
        let long = format!("http://{}:p@proxy", "u".repeat(2_000));
        assert_eq!(proxy(&long), Err(ProxyError));
    }

    #[test]
    fn credentials_are_sent_and_never_shown() {
        let proxy = proxy("http://canary:se%3Acr%40et@proxy:3128").unwrap();
        let authorization = proxy.authorization.clone().unwrap();
        let encoded = authorization.strip_prefix("Basic ").unwrap();
        assert_eq!(BASE64_STANDARD.decode(encoded).unwrap(), b"canary:se:cr@et");
        let shown = format!("{proxy} {proxy:?} {proxy:#?}");
        for secret in ["canary", "cr@et", "cr%40et", encoded] {
            assert!(!shown.contains(secret), "{shown}");
        }
        assert!(shown.contains("has_credentials: true"), "{shown}");
    }

    #[test]
    fn only_a_status_line_has_a_status() {
        for (line, expected) in [
            ("HTTP/1.1 200 Connection established\r\n\r\n", Some(200)),
            ("HTTP/1.0 200\r\n\r\n", Some(200)),
            ("HTTP/1.1 407 No\r\n\r\n", Some(407)),
            ("HTTP/1.1 99 No\r\n\r\n", None),
            ("HTTP/1.1 099 No\r\n\r\n", None),
            ("HTTP/1.1 2000 No\r\n\r\n", None),
            ("HTTP/1.1 +20 No\r\n\r\n", None),
            ("HTTP/1.1  200 No\r\n\r\n", None),
            ("HTTP/1.2 200 No\r\n\r\n", None),
            ("HTTP/1.1\r\n\r\n", None),
        ] {
            assert_eq!(status(line.as_bytes()), expected, "{line}");
        }
    }
}
