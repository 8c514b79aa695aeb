//! Which destinations may be called.
//!
//! A webhook sender connects to wherever a stranger tells it to, from inside its owner's network.
//! This module decides where it may not go. It promises:
//!
//! - **Closed by default.** [`EgressRules::default`] lets through `https` to public addresses, and
//!   nothing else. Each opening is named by the operator and opens exactly what it covers.
//! - **One parse.** [`Destination::parse`] reads a spelling once, keeps the canonical form and
//!   judges that, so there is no second reader who could understand the same text differently.
//! - **One judge of addresses.** [`EgressRules::vet`] is asked for literals at registration and, by
//!   the shell, for every resolved address and for the connected peer. A name that passes here has
//!   merely not been refused yet.
//! - **Never in a circle.** Where this server listens is refused, whatever is open; see
//!   [`EgressRules::leads_back`].
//! - **Nothing told.** A refusal names the rule that was broken, never an address.
//!
//! Everything is a pure function of its arguments; resolving and connecting happen elsewhere.

mod destination;
mod ip;
mod name;
mod nat64;
mod own;
mod port;
mod range;
mod refusal;

pub use destination::{Destination, Host, MAX_URL_BYTES, Scheme};
pub use nat64::{Nat64Prefix, Nat64PrefixError};
pub use port::{PortRange, PortRangeError};
pub use range::ForbiddenAddress;
pub use refusal::Refusal;

use std::net::SocketAddr;

use ipnet::IpNet;

/// What the operator opened or closed beyond the built-in rules.
///
/// The default opens nothing. Where both lists cover an address or a port, the denial wins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EgressRules {
    /// Networks that may be called although the built-in table refuses them.
    pub allow_networks: Vec<IpNet>,
    /// Networks that may never be called, whatever else says otherwise.
    pub deny_networks: Vec<IpNet>,
    /// Ports that may be called although they belong to the system or to an internal service.
    pub allow_ports: Vec<PortRange>,
    /// Ports that may never be called, whatever else says otherwise.
    pub deny_ports: Vec<PortRange>,
    /// Prefixes whose addresses are judged as the IPv4 addresses that they carry to a translator.
    pub nat64_prefixes: Vec<Nat64Prefix>,
    /// Whether `http://` is accepted beside `https://`.
    pub allow_http: bool,
    /// Where this server itself listens, which is never called, whatever is open. The operator does
    /// not say it: the shell knows when it has bound, port 0 resolved.
    pub own_sockets: Vec<SocketAddr>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const VECTORS: &str = include_str!("../../tests/vectors/ssrf.tsv");

    /// The rules of a developer's machine: loopback and plain http are open.
    fn development() -> EgressRules {
        EgressRules {
            allow_networks: vec!["127.0.0.0/8".parse().unwrap()],
            allow_http: true,
            ..EgressRules::default()
        }
    }

    /// Undoes the four escapes that the head of the vector file explains.
    fn unescape(text: &str) -> String {
        let mut plain = String::new();
        let mut characters = text.chars();
        while let Some(character) = characters.next() {
            if character != '\\' {
                plain.push(character);
                continue;
            }
            plain.push(match characters.next() {
                Some('t') => '\t',
                Some('r') => '\r',
                Some('n') => '\n',
                Some('\\') => '\\',
                other => panic!("unknown escape {other:?} in {text}"),
            });
        }
        plain
    }

    #[test]
    fn every_vector_holds() {
        let rules = EgressRules::default();
        let lines = VECTORS
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        let mut wrong = Vec::new();
        let mut count = 0;
        for line in lines {
            count += 1;
            let (expected, url) = line.split_once('\t').expect("a verdict, a tab and a URL");
            let verdict = match Destination::parse(&unescape(url), &rules) {
                Ok(destination) => match destination.host() {
                    Host::Ip(_) => "ALLOW",
                    Host::Name(_) => "RESOLVE",
                },
                Err(refusal) => {
                    assert!(["invalid_url", "unsafe_destination"].contains(&refusal.code()));
                    "DENY"
                }
            };
            if verdict != expected {
                wrong.push(format!("{verdict} but should be {line}"));
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert!(count >= 71 + 60, "only {count} vectors were read");
    }

    #[test]
    fn opening_loopback_opens_nothing_else() {
        let rules = development();
        for open in [
            "http://127.0.0.1:40123/",
            "http://localhost:40123/",
            "https://api.localhost/",
            "http://[::ffff:127.9.9.9]:8080/",
            "http://hooks.customer.com/",
        ] {
            assert!(Destination::parse(open, &rules).is_ok(), "{open}");
        }
        for closed in [
            "http://10.0.0.1/",
            "http://[::1]/",
            "http://169.254.169.254/",
            "http://printer.local/",
            "http://localhost.localdomain/",
            "http://postgres/",
            "http://127.0.0.1:6379/",
            "http://localhost:22/",
            "ftp://127.0.0.1/",
        ] {
            assert!(Destination::parse(closed, &rules).is_err(), "{closed}");
        }
    }

    #[test]
    fn a_denied_loopback_closes_localhost_again() {
        let rules = EgressRules {
            deny_networks: vec!["127.0.0.1/32".parse().unwrap()],
            ..development()
        };
        assert!(Destination::parse("http://localhost/", &rules).is_err());
        assert!(Destination::parse("http://127.0.0.1/", &rules).is_err());
        assert!(Destination::parse("http://127.0.0.2/", &rules).is_ok());
    }

    /// Spellings near enough to a URL to get past the first checks.
    fn url_like() -> impl Strategy<Value = String> {
        let scheme = prop_oneof!["https://", "http://", "HTTPS://", "https:/", "\\PC{0,3}://"];
        let host = prop_oneof![
            "[a-zA-Z0-9_-]{1,8}(\\.[a-zA-Z0-9_-]{1,8}){1,3}\\.?",
            "xn--[a-z0-9-]{1,8}\\.com",
            "[0-9]{1,3}(\\.[0-9]{1,3}){3}",
            "(0x)?[0-9a-f]{1,10}(\\.[0-9]{1,3}){0,3}",
            "\\[[0-9a-f:.]{2,24}\\]",
            "\\PC{1,12}\\.(com|local)",
            "[a-z%0-9.]{1,12}",
        ];
        let port = prop_oneof![Just(String::new()), ":[0-9]{0,6}"];
        (scheme, host, port, "([/?#]\\PC{0,24})?")
            .prop_map(|(scheme, host, port, rest)| format!("{scheme}{host}{port}{rest}"))
    }

    /// What must hold of whatever [`Destination::parse`] lets through.
    fn check(raw: &str, rules: &EgressRules) {
        let Ok(destination) = Destination::parse(raw, rules) else {
            return;
        };
        let again = Destination::parse(destination.as_str(), rules);
        assert_eq!(
            again.as_ref(),
            Ok(&destination),
            "the canonical form of {raw:?} is not stable"
        );
        let printable = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        assert!(destination.request_target().starts_with('/'), "{raw:?}");
        assert!(printable(destination.request_target()), "{raw:?}");
        assert!(printable(destination.authority()), "{raw:?}");
        let rebuilt = format!(
            "{}://{}{}",
            destination.scheme(),
            destination.authority(),
            destination.request_target()
        );
        assert_eq!(rebuilt, destination.as_str());
        if let Host::Ip(ip) = destination.host() {
            assert_eq!(rules.vet(*ip), Ok(()), "{raw:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2048))]

        #[test]
        fn arbitrary_text_never_panics(raw in any::<String>()) {
            check(&raw, &EgressRules::default());
            check(&format!("https://{raw}"), &development());
        }

        #[test]
        fn what_is_accepted_is_canonical_and_vetted(raw in url_like()) {
            check(&raw, &EgressRules::default());
            check(&raw, &development());
        }
    }
}
