//! Connects to one of several vetted addresses.
//!
//! Addresses are tried in order, alternating between IPv6 and IPv4 (RFC 8305). The next attempt starts when the
//! last one has failed or [`NEXT_ADDRESS_DELAY`] has passed. The first connection wins and the other attempts are
//! cancelled. The caller sets the time limit.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use posthaste_core::address::EgressRules;

use crate::error_mapping;
use crate::send_error::{AttemptFailure, SendError};

/// Maximum number of addresses of a name that are tried.
const MAX_ADDRESSES_TRIED: usize = 6;
/// Time after which the next address is tried in parallel (RFC 8305).
const NEXT_ADDRESS_DELAY: Duration = Duration::from_millis(250);

/// Refuses all addresses of a name if one of them is forbidden. A name that points to both public and internal
/// addresses is an attack or a mistake, and which address is dialled would be chance.
pub(crate) fn vet(rules: &EgressRules, addresses: &[IpAddr]) -> Result<(), SendError> {
    if addresses.is_empty() {
        return Err(SendError::NoAddress);
    }
    addresses
        .iter()
        .try_for_each(|address| rules.vet(*address))
        .map_err(SendError::Forbidden)
}

/// Connects to one of these addresses and checks the peer address.
pub(crate) async fn dial(
    rules: &EgressRules,
    vetted: &[IpAddr],
    port: u16,
) -> Result<TcpStream, AttemptFailure> {
    let dialled = connect(vetted, port).await;
    let socket = dialled.map_err(|error| error_mapping::connect_error(&error))?;
    let peer = socket.peer_addr().map_err(|_| SendError::Reset)?;
    check_peer(rules, vetted, peer.ip())?;
    Ok(socket)
}

/// Connects to one of these addresses without checking the peer. Called directly only for the operator's proxy.
pub(crate) async fn connect(addresses: &[IpAddr], port: u16) -> io::Result<TcpStream> {
    let socket = match alternating(addresses, port).as_slice() {
        [only] => reach(*only).await?,
        several => race(several).await?,
    };
    // Requests are written whole, so delaying small packets has no benefit. If this fails, requests are only
    // slower.
    let _ = socket.set_nodelay(true);
    Ok(socket)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the only connect: the addresses were vetted, or belong to the operator's proxy"
)]
async fn reach(target: SocketAddr) -> io::Result<TcpStream> {
    let connected = TcpStream::connect(target).await;
    connected.map_err(|error| match error.kind() == ErrorKind::AddrNotAvailable {
        true => classify_address_not_available(error, &check_route(target)),
        false => error,
    })
}

/// Interprets an "address not available" error. Linux reports it in two cases: all local ports are in use,
/// which is a fault of this machine; or the machine has no address of that family (IPv6 in most containers), so
/// that the receiver is unreachable.
fn classify_address_not_available(error: io::Error, way: &io::Result<()>) -> io::Error {
    match way {
        Err(no_way) if no_way.kind() == ErrorKind::AddrNotAvailable => {
            ErrorKind::NetworkUnreachable.into()
        }
        Ok(()) | Err(_) => error,
    }
}

/// Returns an error if this machine has no local address from which the target can be reached. UDP has its own
/// ports, and connecting a UDP socket sends nothing.
#[expect(
    clippy::disallowed_methods,
    reason = "opens a socket, but connects and sends nothing"
)]
fn check_route(target: SocketAddr) -> io::Result<()> {
    let anywhere: IpAddr = match target {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    UdpSocket::bind((anywhere, 0))?.connect(target)
}

/// Returns an error if the peer address is forbidden or is not one of the vetted addresses.
fn check_peer(rules: &EgressRules, vetted: &[IpAddr], peer: IpAddr) -> Result<(), SendError> {
    let peer = peer.to_canonical();
    rules.vet(peer).map_err(SendError::Forbidden)?;
    if !vetted.iter().any(|address| address.to_canonical() == peer) {
        return Err(SendError::UnexpectedPeer);
    }
    Ok(())
}

/// Returns the addresses to try, without duplicates: families alternate, starting with the resolver's preferred
/// family; within a family the resolver's order is kept.
pub(crate) fn alternating(addresses: &[IpAddr], port: u16) -> Vec<SocketAddr> {
    let first_is_v4 = addresses.first().is_some_and(IpAddr::is_ipv4);
    let mut families: [Vec<IpAddr>; 2] = [Vec::new(), Vec::new()];
    for address in addresses {
        let family = &mut families[usize::from(address.is_ipv4() != first_is_v4)];
        if family.len() < MAX_ADDRESSES_TRIED && !family.contains(address) {
            family.push(*address);
        }
    }
    let [preferred, other] = &families;
    (0..MAX_ADDRESSES_TRIED)
        .flat_map(|nth| [preferred.get(nth), other.get(nth)])
        .flatten()
        .map(|address| SocketAddr::new(*address, port))
        .take(MAX_ADDRESSES_TRIED)
        .collect()
}

/// Connects to the address that accepts first. If none does, returns the first failure, because it belongs to
/// the preferred address.
async fn race(targets: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut attempts = JoinSet::new();
    let mut failure = None;
    let mut targets = targets.iter().copied();
    let mut next = targets.next();
    loop {
        if let Some(target) = next.take() {
            attempts.spawn(reach(target));
        }
        let joined = if targets.len() == 0 {
            attempts.join_next().await
        } else {
            match timeout(NEXT_ADDRESS_DELAY, attempts.join_next()).await {
                Ok(joined) => joined,
                Err(_) => {
                    next = targets.next();
                    continue;
                }
            }
        };
        match joined {
            Some(Ok(Ok(socket))) => return Ok(socket),
            Some(Ok(Err(error))) => {
                failure.get_or_insert(error);
            }
            Some(Err(lost)) => {
                failure.get_or_insert(io::Error::other(lost));
            }
            None => return Err(failure.unwrap_or_else(|| io::ErrorKind::NotConnected.into())),
        }
        next = targets.next();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::send_error::LocalFault;
    use posthaste_core::address::ForbiddenAddress;

    fn addresses(list: &str) -> Vec<IpAddr> {
        list.split_whitespace()
            .map(|address| address.parse().unwrap())
            .collect()
    }

    fn order(list: &str) -> String {
        let targets = alternating(&addresses(list), 443);
        let targets: Vec<String> = targets
            .iter()
            .map(|target| target.ip().to_string())
            .collect();
        targets.join(" ")
    }

    #[test]
    fn address_families_alternate_starting_with_the_preferred_one() {
        assert_eq!(order("1.1.1.1 1.1.1.2 2a00::1"), "1.1.1.1 2a00::1 1.1.1.2");
        assert_eq!(order("2a00::1 2a00::2 1.1.1.1"), "2a00::1 1.1.1.1 2a00::2");
        assert_eq!(order("1.1.1.1 1.1.1.1"), "1.1.1.1");
        assert_eq!(order(""), "");
    }

    #[test]
    fn the_number_of_tried_addresses_is_bounded() {
        let many: Vec<String> = (0..1_000).map(|n| format!("2a00::{n:x}")).collect();
        let many = many.join(" ");
        assert_eq!(order(&many).split(' ').count(), MAX_ADDRESSES_TRIED);
        // The other family still gets its turn.
        assert!(order(&format!("{many} 1.1.1.1")).starts_with("2a00:: 1.1.1.1 2a00::1"));
    }

    #[test]
    fn a_missing_address_family_is_not_reported_as_missing_ports() {
        let no_address = || io::Error::from(ErrorKind::AddrNotAvailable);
        let error_of =
            |way| error_mapping::connect_error(&classify_address_not_available(no_address(), &way));
        assert_eq!(error_of(Err(no_address())), SendError::Unreachable.into());
        assert_eq!(error_of(Ok(())), LocalFault::Exhausted.into());
        let full = io::Error::from_raw_os_error(24);
        assert_eq!(error_of(Err(full)), LocalFault::Exhausted.into());
        let home = SocketAddr::from((Ipv4Addr::LOCALHOST, 443));
        assert!(check_route(home).is_ok());
    }

    #[test]
    fn one_forbidden_address_refuses_all() {
        let rules = EgressRules::default();
        let vet = |list| vet(&rules, &addresses(list));
        assert_eq!(vet("1.1.1.1 2a00::1"), Ok(()));
        assert_eq!(vet(""), Err(SendError::NoAddress));
        let private = Err(SendError::Forbidden(ForbiddenAddress::Private));
        assert_eq!(vet("1.1.1.1 10.0.0.1"), private);
        assert_eq!(vet("10.0.0.1 1.1.1.1"), private);
        assert_eq!(vet("1.1.1.1 ::ffff:10.0.0.1"), private);
    }

    #[test]
    fn the_peer_must_be_a_vetted_requested_address() {
        let rules = EgressRules::default();
        let check =
            |peer: &str| check_peer(&rules, &addresses("1.1.1.1 9.9.9.9"), peer.parse().unwrap());
        assert_eq!(check("9.9.9.9"), Ok(()));
        assert_eq!(check("::ffff:1.1.1.1"), Ok(()));
        assert_eq!(check("8.8.8.8"), Err(SendError::UnexpectedPeer));
        let loopback = Err(SendError::Forbidden(ForbiddenAddress::Loopback));
        assert_eq!(check("127.0.0.1"), loopback);
    }
}
