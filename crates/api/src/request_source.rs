//! The source of a request: its address and its interface.
//!
//! The address is that of the connection or, if the peer is a trusted proxy, the last one in `X-Forwarded-For` that is
//! not a trusted proxy. A header of any other peer is ignored, because a client can write anything into it.

use std::net::{IpAddr, SocketAddr};

use http::header::{HOST, USER_AGENT};
use http::{Extensions, HeaderMap};
use ipnet::IpNet;
use posthaste_store::ActionInterface;

/// The address of the client. The server attaches it to each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub IpAddr);

/// The source of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestSource {
    /// The interface: API, command line, dashboard or portal.
    pub via: ActionInterface,
    /// The address of the client.
    pub from: Option<IpAddr>,
    /// The URL under which the client reached this server: scheme, host and port. `None` if the headers of
    /// the request contain it.
    pub called: Option<String>,
}

impl RequestSource {
    /// Returns the source of a request to the API.
    pub fn of(headers: &HeaderMap, extensions: &Extensions) -> RequestSource {
        // The command line client identifies itself.
        let is_cli = headers
            .get(USER_AGENT)
            .is_some_and(|agent| agent.as_bytes().starts_with(b"posthaste/"));
        RequestSource {
            via: if is_cli {
                ActionInterface::Cli
            } else {
                ActionInterface::Api
            },
            from: peer(extensions),
            called: None,
        }
    }

    /// Returns the source of a request that a page makes for its visitor.
    pub fn of_page(
        via: ActionInterface,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> RequestSource {
        RequestSource {
            via,
            from: peer(extensions),
            called: called(headers),
        }
    }
}

/// The header in which proxies list the clients, the farthest first.
const FORWARDED_FOR: &str = "x-forwarded-for";
/// Maximum number of proxies that are skipped.
const MAX_PROXIES: usize = 16;

impl Peer {
    /// Returns the address of the client: the peer of the connection or, if that is a trusted proxy, the
    /// client that the proxy names.
    ///
    /// A client can send its own `X-Forwarded-For`, and proxies append to it. The list is therefore read from
    /// its end, and only past trusted proxies.
    pub fn client_address(self, headers: &HeaderMap, trusted: &[IpNet]) -> Peer {
        let is_trusted = |address: IpAddr| {
            let mut networks = trusted.iter();
            networks.any(|network| network.contains(&address))
        };
        let mut nearest = self.0.to_canonical();
        if !is_trusted(nearest) {
            return Peer(nearest);
        }
        let lines = headers.get_all(FORWARDED_FOR).into_iter().rev();
        let addresses = lines.flat_map(|line| line.to_str().unwrap_or("?").rsplit(','));
        for text in addresses.take(MAX_PROXIES) {
            // Entries before an unreadable one are not trusted.
            let Some(address) = forwarded(text.trim()) else {
                break;
            };
            nearest = address.to_canonical();
            if !is_trusted(nearest) {
                break;
            }
        }
        Peer(nearest)
    }
}

/// Parses an address as proxies write it: some add the port, some put IPv6 addresses in brackets.
fn forwarded(text: &str) -> Option<IpAddr> {
    let bare = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    text.parse().ok().or_else(with_port).or_else(bare)
}

fn peer(extensions: &Extensions) -> Option<IpAddr> {
    let peer = extensions.get::<Peer>();
    peer.map(|Peer(address)| address.to_canonical())
}

/// Returns the URL under which the request names this server: scheme, host and port.
pub fn called(headers: &HeaderMap) -> Option<String> {
    let host = headers.get(HOST)?.to_str().ok()?;
    let scheme = if is_secure(headers) { "https" } else { "http" };
    Some(format!("{scheme}://{host}"))
}

/// Returns true if a proxy reports that the client uses TLS.
pub fn is_secure(headers: &HeaderMap) -> bool {
    let value = headers
        .get("x-forwarded-proto")
        .map(|value| value.as_bytes());
    // The first entry is from the proxy that the client is connected to.
    let first = value.and_then(|value| value.split(|byte| *byte == b',').next());
    first.is_some_and(|scheme| scheme.trim_ascii().eq_ignore_ascii_case(b"https"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking(peer: &str, forwarded: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for line in forwarded {
            headers.append(FORWARDED_FOR, line.parse().expect("a header"));
        }
        let trusted = ["10.0.0.0/8", "fd00::/8"].map(|network| network.parse().expect("a network"));
        let Peer(address) =
            Peer(peer.parse().expect("an address")).client_address(&headers, &trusted);
        address.to_string()
    }

    #[test]
    fn forwarded_header_of_an_untrusted_peer_is_ignored() {
        assert_eq!(asking("192.0.2.9", &["198.51.100.1"]), "192.0.2.9");
        assert_eq!(asking("192.0.2.9", &[]), "192.0.2.9");
    }

    #[test]
    fn forwarded_header_of_a_trusted_proxy_is_used() {
        assert_eq!(asking("10.0.0.1", &["198.51.100.1"]), "198.51.100.1");
        assert_eq!(asking("::ffff:10.0.0.1", &["2001:db8::1"]), "2001:db8::1");
        assert_eq!(
            asking("10.0.0.1", &["198.51.100.1, 10.0.0.2"]),
            "198.51.100.1"
        );
        assert_eq!(
            asking("10.0.0.1", &["198.51.100.1", "10.0.0.2"]),
            "198.51.100.1"
        );
    }

    #[test]
    fn forwarded_address_may_have_a_port() {
        for forwarded in ["2001:db8::1", "[2001:db8::1]", "[2001:db8::1]:99"] {
            assert_eq!(
                asking("10.0.0.1", &[forwarded]),
                "2001:db8::1",
                "{forwarded}"
            );
        }
        assert_eq!(asking("10.0.0.1", &["198.51.100.1:1234"]), "198.51.100.1");
        assert_eq!(asking("10.0.0.1", &["[198.51.100.1"]), "10.0.0.1");
    }

    #[test]
    fn addresses_before_the_last_untrusted_one_are_ignored() {
        assert_eq!(
            asking("10.0.0.1", &["10.6.6.6, 198.51.100.1"]),
            "198.51.100.1"
        );
        assert_eq!(
            asking("10.0.0.1", &["198.51.100.7, rubbish, 10.0.0.2"]),
            "10.0.0.2"
        );
        assert_eq!(asking("10.0.0.1", &["rubbish"]), "10.0.0.1");
        assert_eq!(asking("10.0.0.1", &[]), "10.0.0.1");
        let long = vec!["10.0.0.2"; 100].join(",");
        assert_eq!(
            asking("10.0.0.1", &[&format!("198.51.100.7,{long}")]),
            "10.0.0.2"
        );
    }
}
