//! Rules for destinations: decides which URLs and addresses may be called.
//!
//! A webhook sender connects to addresses that strangers choose, from inside the operator's network. This module
//! decides which of them are refused. It guarantees:
//!
//! - **Closed by default.** [`EgressRules::default`] allows only `https` to public addresses. Each exception is
//!   configured by the operator and allows exactly what it covers.
//! - **Parsed once.** [`Destination::parse`] parses a URL once, keeps the canonical form and checks that form. No
//!   second parser can understand the same text differently.
//! - **One check of addresses.** [`EgressRules::vet`] is called for address literals at registration, and by the
//!   egress crate for every resolved address and for the connected peer. A host name that passes here still has to
//!   be resolved and vetted.
//! - **No self-calls.** The addresses that this server listens on are refused, even if the operator allows them; see
//!   [`EgressRules::is_self_call`].
//! - **No information leak.** A [`DestinationError`] names the broken rule, never an address.
//!
//! All functions are pure; resolving and connecting happen elsewhere.

mod destination;
mod destination_error;
mod ip;
mod name;
mod nat64;
mod port;
mod range;
mod self_call;

pub use destination::{Destination, Host, MAX_URL_BYTES, Scheme};
pub use destination_error::DestinationError;
pub use nat64::{Nat64Prefix, Nat64PrefixError};
pub use port::{PortRange, PortRangeError};
pub use range::ForbiddenAddress;

use std::net::SocketAddr;

use ipnet::IpNet;

/// The operator's exceptions to the built-in rules.
///
/// The default has none. Where an allow list and a deny list cover the same address or port, the deny list wins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EgressRules {
    /// Networks that may be called although the built-in table refuses them.
    pub allow_networks: Vec<IpNet>,
    /// Networks that may never be called.
    pub deny_networks: Vec<IpNet>,
    /// Ports that may be called although they are privileged or belong to an internal service.
    pub allow_ports: Vec<PortRange>,
    /// Ports that may never be called.
    pub deny_ports: Vec<PortRange>,
    /// NAT64 prefixes. An address behind one is vetted as the IPv4 address that it contains.
    pub nat64_prefixes: Vec<Nat64Prefix>,
    /// True if `http://` is accepted in addition to `https://`.
    pub allow_http: bool,
    /// The sockets that this server listens on. They are never called, even if a rule allows them. They are not
    /// configured: the server sets them after binding, so that port 0 is resolved.
    pub own_sockets: Vec<SocketAddr>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rules of a developer's machine: loopback and plain http are allowed.
    fn development() -> EgressRules {
        EgressRules {
            allow_networks: vec!["127.0.0.0/8".parse().unwrap()],
            allow_http: true,
            ..EgressRules::default()
        }
    }

    #[test]
    fn allowing_loopback_allows_nothing_else() {
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
    fn denying_loopback_refuses_localhost() {
        let rules = EgressRules {
            deny_networks: vec!["127.0.0.1/32".parse().unwrap()],
            ..development()
        };
        assert!(Destination::parse("http://localhost/", &rules).is_err());
        assert!(Destination::parse("http://127.0.0.1/", &rules).is_err());
        assert!(Destination::parse("http://127.0.0.2/", &rules).is_ok());
    }
}
