//! Self-call check: refuses destinations that would reach this same server.
//!
//! [`EgressRules::is_self_call`] knows the addresses on which this server listens. Which addresses belong to this
//! machine is tested here by binding a UDP socket to the address. That succeeds only for local addresses, sends
//! nothing, and reflects the network interfaces at this moment. The test is made only for destinations on the
//! server's own port.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, UdpSocket};

use posthaste_core::address::{Destination, DestinationError, EgressRules, ForbiddenAddress, Host};

use crate::error_mapping;
use crate::send_error::{AttemptFailure, SendError};

/// Refuses a destination that names this server by an address of its machine. A host name is checked when it is
/// resolved, at every connection.
pub fn refuse_self_call(rules: &EgressRules, to: &Destination) -> Result<(), DestinationError> {
    let ip = match to.host() {
        Host::Ip(ip) => *ip,
        // Names that always mean this server were refused when the URL was parsed.
        Host::Name(_) => return Ok(()),
    };
    match rules.is_self_call(ip, to.port(), is_local) {
        Ok(false) => Ok(()),
        // If the test fails, refuse.
        Ok(true) | Err(_) => Err(DestinationError::Address(ForbiddenAddress::OwnListener)),
    }
}

/// Refuses all addresses of a name if one of them leads back to this server.
pub(crate) fn vet(
    rules: &EgressRules,
    addresses: &[IpAddr],
    port: u16,
) -> Result<(), AttemptFailure> {
    for ip in addresses {
        match rules.is_self_call(*ip, port, is_local) {
            Ok(false) => {}
            Ok(true) => return Err(SendError::Forbidden(ForbiddenAddress::OwnListener).into()),
            Err(error) => return Err(error_mapping::connect_error(&error)),
        }
    }
    Ok(())
}

/// Returns true if an address belongs to this machine. With the system setting `ip_nonlocal_bind` it returns
/// true for every address; then too many destinations on the server's own port are refused.
fn is_local(ip: IpAddr) -> io::Result<bool> {
    /// `EAFNOSUPPORT` on Linux: this machine has no address of that family.
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
    fn local_addresses_are_recognised() {
        assert!(is_local(ip("127.0.0.1")).unwrap());
        assert!(is_local(ip("127.8.8.8")).unwrap());
        // Documentation addresses belong to no machine.
        assert!(!is_local(ip("192.0.2.1")).unwrap());
        assert!(!is_local(ip("2001:db8::1")).unwrap());
    }

    #[test]
    fn a_wildcard_refuses_every_address_of_this_machine() {
        let rules = listening_on("0.0.0.0:8420");
        let own = SendError::Forbidden(ForbiddenAddress::OwnListener);
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
    fn a_literal_own_address_is_refused_at_registration() {
        let rules = listening_on("0.0.0.0:8420");
        let open = EgressRules {
            own_sockets: Vec::new(),
            ..rules.clone()
        };
        let own = Err(DestinationError::Address(ForbiddenAddress::OwnListener));
        let verdict =
            |url: &str| refuse_self_call(&rules, &Destination::parse(url, &open).unwrap());
        assert_eq!(verdict("http://127.0.0.1:8420/"), own);
        assert_eq!(verdict("http://127.0.0.1:8421/"), Ok(()));
        assert_eq!(verdict("http://192.0.2.1:8420/"), Ok(()));
        assert_eq!(verdict("http://hooks.customer.com:8420/"), Ok(()));
    }
}
