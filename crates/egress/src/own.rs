//! Whether a way out would end at this very server.
//!
//! The [rules](EgressRules::leads_back) know where we listen; which addresses are this machine's is
//! asked of the system here, by binding a socket to one: that succeeds for our own addresses alone,
//! sends nothing, and is true at this moment, whatever interfaces came and went. It is only done for
//! destinations on our own port.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, UdpSocket};

use posthaste_core::address::{Destination, EgressRules, ForbiddenAddress, Host, Refusal};

use crate::explain;
use crate::mishap::{Mishap, Setback};

/// Refuses a destination that names this server by an address of its machine. Where the address of a
/// name leads is found out when it is resolved, at every connection.
pub fn refuse_own(rules: &EgressRules, to: &Destination) -> Result<(), Refusal> {
    let ip = match to.host() {
        Host::Ip(ip) => *ip,
        // Those that are ours for certain were refused when the URL was read.
        Host::Name(_) => return Ok(()),
    };
    match rules.leads_back(ip, to.port(), is_local) {
        Ok(false) => Ok(()),
        // Who cannot tell refuses.
        Ok(true) | Err(_) => Err(Refusal::Address(ForbiddenAddress::OwnListener)),
    }
}

/// Refuses all of a name's addresses if one of them leads back here.
pub(crate) fn vet(rules: &EgressRules, addresses: &[IpAddr], port: u16) -> Result<(), Setback> {
    for ip in addresses {
        match rules.leads_back(*ip, port, is_local) {
            Ok(false) => {}
            Ok(true) => return Err(Mishap::Forbidden(ForbiddenAddress::OwnListener).into()),
            Err(error) => return Err(explain::dialling(&error)),
        }
    }
    Ok(())
}

/// Whether an address is one of this machine's. Where the system lets anybody bind anything
/// (`ip_nonlocal_bind`) every address is: on our own port, too much is then refused.
fn is_local(ip: IpAddr) -> io::Result<bool> {
    /// `EAFNOSUPPORT` on Linux: no address of that family is anywhere here.
    const NO_SUCH_FAMILY: i32 = 97;
    match UdpSocket::bind((ip, 0)) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::AddrNotAvailable => Ok(false),
        Err(error) if error.raw_os_error() == Some(NO_SUCH_FAMILY) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn listening_on(own: &str) -> EgressRules {
        EgressRules {
            allow_networks: vec!["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()],
            allow_http: true,
            own_sockets: vec![own.parse().unwrap()],
            ..EgressRules::default()
        }
    }

    #[test]
    fn the_system_knows_its_addresses() {
        assert!(is_local(ip("127.0.0.1")).unwrap());
        assert!(is_local(ip("127.8.8.8")).unwrap());
        // Documentation addresses are nobody's.
        assert!(!is_local(ip("192.0.2.1")).unwrap());
        assert!(!is_local(ip("2001:db8::1")).unwrap());
    }

    #[test]
    fn a_wildcard_refuses_every_address_of_this_machine() {
        let rules = listening_on("0.0.0.0:8420");
        let own = Mishap::Forbidden(ForbiddenAddress::OwnListener);
        for ours in [ip("127.0.0.1"), ip("127.8.8.8"), ip("::ffff:127.0.0.1")] {
            let mixed = [ip("192.0.2.1"), ours];
            assert_eq!(vet(&rules, &mixed, 8420), Err(own.clone().into()), "{ours}");
            assert_eq!(vet(&rules, &mixed, 8421), Ok(()), "{ours}");
        }
        assert_eq!(vet(&rules, &[ip("192.0.2.1")], 8420), Ok(()));
        assert_eq!(
            vet(&listening_on("[::]:8420"), &[ip("2001:db8::1")], 8420),
            Ok(())
        );
    }

    #[test]
    fn a_literal_is_refused_before_it_is_kept() {
        let rules = listening_on("0.0.0.0:8420");
        let open = EgressRules {
            own_sockets: Vec::new(),
            ..rules.clone()
        };
        let own = Err(Refusal::Address(ForbiddenAddress::OwnListener));
        let verdict = |url: &str| refuse_own(&rules, &Destination::parse(url, &open).unwrap());
        assert_eq!(verdict("http://127.0.0.1:8420/"), own);
        assert_eq!(verdict("http://127.0.0.1:8421/"), Ok(()));
        assert_eq!(verdict("http://192.0.2.1:8420/"), Ok(()));
        assert_eq!(verdict("http://hooks.customer.com:8420/"), Ok(()));
    }
}
