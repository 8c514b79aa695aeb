//! Self-calls: detects addresses that lead back to this server.
//!
//! A webhook to this server itself would be a request from inside, behind the proxy that protects the API, and
//! could start an endless loop of deliveries. So the server's own listening addresses are refused even if their
//! network is allowed. A server that listens on every address of its machine (`0.0.0.0`, `[::]`) is reachable at
//! all of them. Only the operating system knows which those are, so the caller passes a function for it, which is
//! called only if the port matches.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::EgressRules;

impl EgressRules {
    /// Returns true if a connection to this address and port would end at one of `own_sockets`.
    ///
    /// `is_local` returns whether an address belongs to this machine.
    pub fn is_self_call<E>(
        &self,
        ip: IpAddr,
        port: u16,
        mut is_local: impl FnMut(IpAddr) -> Result<bool, E>,
    ) -> Result<bool, E> {
        for own in self.own_sockets.iter().filter(|own| own.port() == port) {
            for ip in self.equivalent_addresses(ip) {
                let is_self_call = match reaches(own, ip) {
                    Reach::Never => false,
                    Reach::Always => true,
                    Reach::IfLocal => is_local(ip)?,
                };
                if is_self_call {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Like [`EgressRules::is_self_call`], but without asking the operating system: returns true only if it is
    /// certain.
    pub(super) fn is_certain_self_call(&self, ip: IpAddr, port: u16) -> bool {
        let unknown = |_| Ok::<bool, std::convert::Infallible>(false);
        match self.is_self_call(ip, port, unknown) {
            Ok(is_self_call) => is_self_call,
            Err(never) => match never {},
        }
    }

    /// Returns the address itself, and the IPv4 addresses that it contains for NAT64 translators.
    fn equivalent_addresses(&self, ip: IpAddr) -> impl Iterator<Item = IpAddr> {
        let ip = ip.to_canonical();
        let carried: Vec<Ipv4Addr> = match ip {
            IpAddr::V4(_) => Vec::new(),
            IpAddr::V6(outer) => {
                let prefixes = self.nat64_prefixes.iter();
                prefixes
                    .filter_map(|prefix| prefix.carried(outer))
                    .collect()
            }
        };
        std::iter::once(ip).chain(carried.into_iter().map(IpAddr::V4))
    }
}

/// The condition under which a connection to an address ends at a socket with the same port.
enum Reach {
    Never,
    Always,
    /// Only if the address belongs to this machine.
    IfLocal,
}

fn reaches(own: &SocketAddr, ip: IpAddr) -> Reach {
    let listens_on = own.ip().to_canonical();
    // Operating systems treat the unspecified address as the machine itself.
    if listens_on == ip || ip.is_unspecified() {
        return Reach::Always;
    }
    // On most systems a socket on `[::]` accepts IPv4 too.
    let takes_its_family = listens_on.is_ipv6() || ip.is_ipv4();
    if !listens_on.is_unspecified() || !takes_its_family {
        return Reach::Never;
    }
    if ip.is_loopback() {
        Reach::Always
    } else {
        Reach::IfLocal
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::{Destination, DestinationError, ForbiddenAddress};
    use std::cell::RefCell;

    const OTHERS: &str = "8.8.8.8";
    const OURS: &str = "192.168.7.7";
    const OURS_V6: &str = "fd07::7";

    /// Rules that allow everything except self-calls.
    fn listening_on(sockets: &[&str]) -> EgressRules {
        EgressRules {
            allow_networks: vec!["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()],
            allow_http: true,
            own_sockets: sockets.iter().map(|own| own.parse().unwrap()).collect(),
            ..EgressRules::default()
        }
    }

    /// Returns the result, and the addresses that the operating system was asked about.
    fn asked(rules: &EgressRules, ip: &str, port: u16) -> (bool, Vec<String>) {
        let asked = RefCell::new(Vec::new());
        let local = [OURS, OURS_V6, "127.0.0.1", "::1"];
        let is_local = |ip: IpAddr| {
            asked.borrow_mut().push(ip.to_string());
            Ok::<_, ()>(local.contains(&ip.to_string().as_str()))
        };
        let verdict = rules.is_self_call(ip.parse().unwrap(), port, is_local);
        (verdict.unwrap(), asked.into_inner())
    }

    fn is_self_call(rules: &EgressRules, ip: &str, port: u16) -> bool {
        asked(rules, ip, port).0
    }

    #[test]
    fn a_listening_address_is_refused_at_its_port_only() {
        let rules = listening_on(&["127.0.0.1:8420"]);
        for ours in ["127.0.0.1", "::ffff:127.0.0.1", "0.0.0.0", "::"] {
            assert!(is_self_call(&rules, ours, 8420), "{ours}");
            assert!(!is_self_call(&rules, ours, 8421), "{ours}");
        }
        for other in ["127.0.0.2", "::1", OURS, OTHERS] {
            assert_eq!(asked(&rules, other, 8420), (false, vec![]), "{other}");
        }
        let rules = listening_on(&["[::ffff:127.0.0.1]:8420"]);
        assert!(is_self_call(&rules, "127.0.0.1", 8420));
    }

    #[test]
    fn a_wildcard_listener_covers_every_address_of_the_machine() {
        let v4 = listening_on(&["0.0.0.0:8420"]);
        let both = listening_on(&["[::]:8420"]);
        for rules in [&v4, &both] {
            for ours in [
                "127.0.0.1",
                "127.9.9.9",
                "0.0.0.0",
                OURS,
                "::ffff:192.168.7.7",
            ] {
                assert!(is_self_call(rules, ours, 8420), "{ours}");
                assert_eq!(asked(rules, ours, 443), (false, vec![]), "{ours}");
            }
            assert_eq!(asked(rules, OTHERS, 8420), (false, vec![OTHERS.to_owned()]));
        }
        for ours in ["::1", OURS_V6] {
            assert!(is_self_call(&both, ours, 8420), "{ours}");
            assert!(
                !is_self_call(&v4, ours, 8420),
                "{ours} does not reach an IPv4 socket"
            );
        }
    }

    #[test]
    fn a_self_call_through_nat64_is_refused() {
        let mut rules = listening_on(&["192.168.7.7:8420"]);
        assert!(!is_self_call(&rules, "64:ff9b::c0a8:707", 8420));
        rules.nat64_prefixes = vec!["64:ff9b::/96".parse().unwrap()];
        assert!(is_self_call(&rules, "64:ff9b::c0a8:707", 8420));
        assert!(!is_self_call(&rules, "64:ff9b::c0a8:708", 8420));
    }

    #[test]
    fn a_failed_lookup_of_local_addresses_is_an_error() {
        let rules = listening_on(&["0.0.0.0:8420"]);
        let unable = |_| Err("no more files");
        let ip = |text: &str| text.parse().unwrap();
        assert_eq!(
            rules.is_self_call(ip(OTHERS), 8420, unable),
            Err("no more files")
        );
        assert_eq!(rules.is_self_call(ip(OTHERS), 443, unable), Ok(false));
        assert_eq!(rules.is_self_call(ip("127.0.0.1"), 8420, unable), Ok(true));
    }

    #[test]
    fn a_url_with_our_own_address_is_refused() {
        let own = DestinationError::Address(ForbiddenAddress::OwnListener);
        assert_eq!(own.code(), "unsafe_destination");
        for sockets in [["127.0.0.1:8420"], ["0.0.0.0:8420"], ["[::]:8420"]] {
            let rules = listening_on(&sockets);
            for url in [
                "http://127.0.0.1:8420/",
                "http://2130706433:8420/v1/tenants",
                "http://[::ffff:7f00:1]:8420/",
                "http://0:8420/",
                "http://localhost:8420/",
                "http://LOCALHOST.:8420/",
                "http://api.localhost:8420/",
            ] {
                assert_eq!(Destination::parse(url, &rules), Err(own.clone()), "{url}");
                let beside = url.replace("8420", "8421");
                assert!(Destination::parse(&beside, &rules).is_ok(), "{beside}");
            }
        }
        let rules = listening_on(&["127.0.0.1:443"]);
        assert_eq!(Destination::parse("https://localhost/", &rules), Err(own));
    }
}
