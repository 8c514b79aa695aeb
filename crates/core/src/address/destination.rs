//! The destination of a delivery: parsing and checking its URL.
//!
//! The `url` crate follows the WHATWG rules, which are tolerant: tabs disappear, backslashes become slashes,
//! missing slashes are added. Everything that it would repair is refused first, in the text as written, so that the
//! URL that a customer sees is the URL that is called. The rest is parsed once and checked in its canonical form,
//! where all spellings of a number, a name or an escape are the same.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use url::{Position, Url};

use super::{DestinationError, EgressRules, ForbiddenAddress, name};

/// Maximum length of a URL, as written and in canonical form.
pub const MAX_URL_BYTES: usize = 2_048;

/// The scheme of a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// HTTP over TLS.
    Https,
    /// Plain HTTP, only if the operator allowed it.
    Http,
}

impl Scheme {
    /// Returns the scheme as written in a URL.
    pub fn as_str(self) -> &'static str {
        match self {
            Scheme::Https => "https",
            Scheme::Http => "http",
        }
    }

    fn default_port(self) -> u16 {
        match self {
            Scheme::Https => 443,
            Scheme::Http => 80,
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// The host of a destination.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// A name to resolve: lower case, ASCII, without a dot at its end. Every address that it resolves to still has
    /// to pass [`EgressRules::vet`].
    Name(String),
    /// An address that has already passed. An IPv4-mapped address is stored as the IPv4 address.
    Ip(IpAddr),
}

/// A URL that may be called, as far as can be known without resolving its host name. Clones share the data, because
/// each attempt holds one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination(Arc<Parts>);

#[derive(Debug, PartialEq, Eq)]
struct Parts {
    url: Url,
    scheme: Scheme,
    host: Host,
    port: u16,
}

impl Destination {
    /// Parses and checks a URL. A URL that is accepted is well formed and not known to be unsafe. If its host is a
    /// name, its addresses are unknown here and must be vetted at every connection.
    pub fn parse(raw: &str, rules: &EgressRules) -> Result<Destination, DestinationError> {
        let scheme = reject_ambiguous_url(raw)?;
        let mut url = Url::parse(raw)?;
        if url.fragment().is_some() {
            return Err(DestinationError::Fragment);
        }
        if scheme == Scheme::Http && !rules.allow_http {
            return Err(DestinationError::PlainHttp);
        }
        let host = vet_host(&mut url, rules)?;
        let port = url.port().unwrap_or(scheme.default_port());
        if !rules.allows_port(port) {
            return Err(DestinationError::Port(port));
        }
        if let Some(ip) = known_address(&host)
            && rules.is_certain_self_call(ip, port)
        {
            return Err(DestinationError::Address(ForbiddenAddress::OwnListener));
        }
        check_length(url.as_str())?;
        Ok(Destination(Arc::new(Parts {
            url,
            scheme,
            host,
            port,
        })))
    }

    /// Returns the canonical URL, which parses to the same destination again.
    pub fn as_str(&self) -> &str {
        self.0.url.as_str()
    }

    /// Returns the scheme.
    pub fn scheme(&self) -> Scheme {
        self.0.scheme
    }

    /// Returns the host to resolve or connect to.
    pub fn host(&self) -> &Host {
        &self.0.host
    }

    /// Returns the port to connect to, also if the URL does not contain it.
    pub fn port(&self) -> u16 {
        self.0.port
    }

    /// Returns path and query as they go into the request line. Starts with a slash; printable ASCII only.
    pub fn request_target(&self) -> &str {
        &self.0.url[Position::BeforePath..Position::AfterQuery]
    }

    /// Returns the host, and the port unless it is the scheme's default, as they go into the `Host` header.
    pub fn authority(&self) -> &str {
        &self.0.url[Position::BeforeHost..Position::AfterPort]
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

fn check_length(url: &str) -> Result<(), DestinationError> {
    if url.len() > MAX_URL_BYTES {
        return Err(DestinationError::TooLong {
            length_bytes: url.len(),
        });
    }
    Ok(())
}

/// Refuses everything that a URL parser would silently repair, because the canonical form no longer shows it.
fn reject_ambiguous_url(raw: &str) -> Result<Scheme, DestinationError> {
    check_length(raw)?;
    let is_repaired =
        |character: char| character.is_control() || character.is_whitespace() || character == '\\';
    if let Some(at_byte) = raw.find(is_repaired) {
        return Err(DestinationError::Character { at_byte });
    }
    let (scheme, rest) = raw.split_once(':').ok_or(DestinationError::UnknownScheme)?;
    let scheme = if scheme.eq_ignore_ascii_case("https") {
        Scheme::Https
    } else if scheme.eq_ignore_ascii_case("http") {
        Scheme::Http
    } else {
        return Err(DestinationError::UnknownScheme);
    };
    let rest = rest.strip_prefix("//").ok_or(DestinationError::Slashes)?;
    if rest.starts_with('/') {
        return Err(DestinationError::Slashes);
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    if authority.contains('@') {
        return Err(DestinationError::UserInfo);
    }
    Ok(scheme)
}

/// Returns the address of a host, if it is known without resolving.
fn known_address(host: &Host) -> Option<IpAddr> {
    match host {
        Host::Ip(ip) => Some(*ip),
        Host::Name(name) if name::is_loopback(name) => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        Host::Name(_) => None,
    }
}

fn vet_host(url: &mut Url, rules: &EgressRules) -> Result<Host, DestinationError> {
    let ip = match url.host() {
        Some(url::Host::Ipv4(ip)) => IpAddr::V4(ip),
        Some(url::Host::Ipv6(ip)) => IpAddr::V6(ip),
        Some(url::Host::Domain(name)) => {
            let name = name.to_owned();
            return vet_named_host(url, &name, rules);
        }
        None => return Err(DestinationError::Malformed(url::ParseError::EmptyHost)),
    };
    rules.vet(ip)?;
    Ok(Host::Ip(ip.to_canonical()))
}

/// Checks a host name. The dot of the root is removed from the canonical form: TLS and virtual hosts do not expect
/// it, and two spellings of one destination would otherwise count as two.
fn vet_named_host(
    url: &mut Url,
    spelled: &str,
    rules: &EgressRules,
) -> Result<Host, DestinationError> {
    let name = spelled.strip_suffix('.').unwrap_or(spelled);
    name::vet_name(name, rules)?;
    if name.len() < spelled.len() {
        url.set_host(Some(name))?;
    }
    Ok(Host::Name(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::ForbiddenAddress;

    fn parse(raw: &str) -> Result<Destination, DestinationError> {
        Destination::parse(raw, &EgressRules::default())
    }

    #[test]
    fn a_destination_has_scheme_host_port_and_target() {
        let destination = parse(
            "HTTPS://Hooks.Customer.COM.:8443/a/../b c"
                .replace(' ', "%20")
                .as_str(),
        )
        .unwrap();
        assert_eq!(
            destination.as_str(),
            "https://hooks.customer.com:8443/b%20c"
        );
        assert_eq!(destination.scheme(), Scheme::Https);
        assert_eq!(
            destination.host(),
            &Host::Name("hooks.customer.com".to_owned())
        );
        assert_eq!(destination.port(), 8443);
        assert_eq!(destination.authority(), "hooks.customer.com:8443");
        assert_eq!(destination.request_target(), "/b%20c");

        let destination = parse("https://bücher.de:443?q=é").unwrap();
        assert_eq!(destination.as_str(), "https://xn--bcher-kva.de/?q=%C3%A9");
        assert_eq!(destination.port(), 443);
        assert_eq!(destination.authority(), "xn--bcher-kva.de");
        assert_eq!(destination.request_target(), "/?q=%C3%A9");

        let destination = parse("https://[::ffff:8.8.8.8]:80/").unwrap();
        assert_eq!(destination.host(), &Host::Ip("8.8.8.8".parse().unwrap()));
        assert_eq!(destination.authority(), "[::ffff:808:808]:80");
    }

    #[test]
    fn errors_name_the_broken_rule() {
        let malformed = DestinationError::Malformed;
        for (raw, error) in [
            (
                "https://hooks.customer.com/ ",
                DestinationError::Character { at_byte: 27 },
            ),
            (
                "https://hooks.customer.com/\u{7}",
                DestinationError::Character { at_byte: 27 },
            ),
            ("hooks.customer.com/path", DestinationError::UnknownScheme),
            ("ws://hooks.customer.com/", DestinationError::UnknownScheme),
            ("https:/hooks.customer.com/", DestinationError::Slashes),
            ("https:///hooks.customer.com/", DestinationError::Slashes),
            ("https://:@hooks.customer.com/", DestinationError::UserInfo),
            ("https://", malformed(url::ParseError::EmptyHost)),
            (
                "https://hooks.customer.com:99999/",
                malformed(url::ParseError::InvalidPort),
            ),
            ("https://hooks.customer.com/#", DestinationError::Fragment),
            ("https://hooks..customer.com/", DestinationError::HostName),
            ("http://hooks.customer.com/", DestinationError::PlainHttp),
            ("https://hooks.customer.com:0/", DestinationError::Port(0)),
            (
                "https://hooks.customer.com:5432/",
                DestinationError::Port(5432),
            ),
            ("https://db.internal/", DestinationError::InternalName),
            (
                "https://0x7f.1/",
                DestinationError::Address(ForbiddenAddress::Loopback),
            ),
        ] {
            assert_eq!(parse(raw), Err(error), "{raw}");
        }
        assert!(
            parse("https://hooks.customer.com/@user?to=a@b").is_ok(),
            "an @ in path or query is harmless"
        );
    }

    #[test]
    fn codes_distinguish_malformed_from_unsafe() {
        assert_eq!(parse("nonsense").unwrap_err().code(), "invalid_url");
        assert_eq!(
            parse("https://1.2.3.4.5/").unwrap_err().code(),
            "invalid_url"
        );
        assert_eq!(
            parse("https://user@10.0.0.1/").unwrap_err().code(),
            "invalid_url"
        );
        assert_eq!(
            parse("https://10.0.0.1/").unwrap_err().code(),
            "unsafe_destination"
        );
        assert_eq!(
            parse("https://localhost/").unwrap_err().code(),
            "unsafe_destination"
        );
        assert_eq!(
            parse("http://hooks.customer.com/").unwrap_err().code(),
            "unsafe_destination"
        );
        assert_eq!(
            parse("https://hooks.customer.com:22/").unwrap_err().code(),
            "unsafe_destination"
        );
    }

    #[test]
    fn no_message_contains_the_address() {
        for raw in [
            "https://10.11.12.13/",
            "https://168627213/",
            "https://[fd00::dead:beef]/",
        ] {
            let message = parse(raw).unwrap_err().to_string();
            assert!(
                !message.contains("10.11.12.13") && !message.contains("beef"),
                "{message}"
            );
        }
    }

    #[test]
    fn the_length_is_bounded_before_and_after_parsing() {
        let of_length = |length: usize| format!("{:a<length$}", "https://hooks.customer.com/");
        assert!(parse(&of_length(MAX_URL_BYTES)).is_ok());
        assert_eq!(
            parse(&of_length(MAX_URL_BYTES + 1)),
            Err(DestinationError::TooLong {
                length_bytes: MAX_URL_BYTES + 1
            })
        );
        let shrinks_when_parsed = format!("https://hooks.customer.com/{}", "a/../".repeat(500));
        assert!(matches!(
            parse(&shrinks_when_parsed),
            Err(DestinationError::TooLong { .. })
        ));
        let grows_when_encoded = format!("https://hooks.customer.com/{}", "é".repeat(500));
        assert!(matches!(
            parse(&grows_when_encoded),
            Err(DestinationError::TooLong { .. })
        ));
    }
}
