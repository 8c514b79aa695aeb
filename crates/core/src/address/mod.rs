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

    /// The rules of a developer's machine: loopback and plain http are open.
    fn development() -> EgressRules {
        EgressRules {
            allow_networks: vec!["127.0.0.0/8".parse().unwrap()],
            allow_http: true,
            ..EgressRules::default()
        }
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
}
