//! Slots of the listener: the number of connections that may be open.
//!
//! [`ConnectionSlots`] has a limit for the server and one for each peer, so that one peer cannot use up all slots.
//! A connection beyond either gets a reserved slot. Reserved slots are for health checks: a connection in one is
//! served nothing else, and only for a short time. When they are used up too, the oldest connection of the peer with
//! the most reserved slots is ended, so the newest connection always finds one. A peer therefore takes
//! reserved slots only from itself, as long as there are fewer peers than reserved slots.
//!
//! An IPv4 address is a peer, and so is an IPv6 network of 64 bits, since a caller usually has all its addresses.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ipnet::IpNet;
use posthaste_telemetry::metrics::Metrics;
use posthaste_telemetry::metrics::request_counters::ConnectionLimit;
use rustc_hash::FxHashMap;
use tokio::sync::oneshot;

/// Number of slots for health checks, beyond those of `limits.connections`.
const RESERVED_SLOTS: usize = 32;
/// Length of the IPv6 network that counts as one peer.
const IPV6_PEER_BITS: u32 = 64;

/// Limits of the slots.
pub(super) struct SlotLimits {
    /// Maximum number of open connections.
    pub(super) connections: usize,
    /// Maximum number of them from one peer.
    pub(super) per_peer: usize,
    /// Peers without a limit of their own: all callers behind a proxy have its address.
    pub(super) trusted_proxies: Arc<[IpNet]>,
}

/// The slots of a listener.
pub(super) struct ConnectionSlots {
    limits: SlotLimits,
    metrics: Arc<Metrics>,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    connections: usize,
    by_peer: FxHashMap<IpAddr, usize>,
    /// The oldest first.
    reserved: Vec<ReservedSlot>,
    last_reserved: u64,
}

struct ReservedSlot {
    number: u64,
    peer: IpAddr,
    /// Ends the connection when it is dropped.
    _keep: oneshot::Sender<()>,
}

/// The slot of a connection. Dropping it frees the slot.
pub(super) struct Slot {
    slots: Arc<ConnectionSlots>,
    kind: SlotKind,
}

enum SlotKind {
    /// Counted for this peer, unless it is trusted.
    Regular(Option<IpAddr>),
    /// The number of a reserved slot.
    Reserved(u64),
}

/// A slot, and its use.
pub(super) enum ConnectionAdmission {
    /// All requests are served.
    Regular(Slot),
    /// Only health checks are served, until the receiver completes.
    HealthChecksOnly(Slot, oneshot::Receiver<()>, ConnectionLimit),
}

impl ConnectionSlots {
    /// Creates slots that are all free.
    pub(super) fn new(limits: SlotLimits, metrics: Arc<Metrics>) -> Arc<ConnectionSlots> {
        Arc::new(ConnectionSlots {
            limits,
            metrics,
            taken: Mutex::default(),
        })
    }

    /// Returns a slot for a connection from this address.
    pub(super) fn admit(self: &Arc<Self>, address: IpAddr) -> ConnectionAdmission {
        let address = address.to_canonical();
        let peer = peer_of(address);
        let mut networks = self.limits.trusted_proxies.iter();
        let is_trusted = networks.any(|network| network.contains(&address));
        let mut taken = self.lock();
        let limit = if taken.connections >= self.limits.connections {
            ConnectionLimit::Server
        } else if is_trusted {
            return self.regular(&mut taken, None);
        } else if taken.by_peer.get(&peer).copied().unwrap_or_default() >= self.limits.per_peer {
            ConnectionLimit::Peer
        } else {
            *taken.by_peer.entry(peer).or_default() += 1;
            return self.regular(&mut taken, Some(peer));
        };
        self.reserved(&mut taken, peer, limit)
    }

    fn regular(self: &Arc<Self>, taken: &mut Taken, peer: Option<IpAddr>) -> ConnectionAdmission {
        taken.connections += 1;
        ConnectionAdmission::Regular(self.slot(SlotKind::Regular(peer)))
    }

    fn reserved(
        self: &Arc<Self>,
        taken: &mut Taken,
        peer: IpAddr,
        limit: ConnectionLimit,
    ) -> ConnectionAdmission {
        if taken.reserved.len() >= RESERVED_SLOTS {
            let index = taken.to_end();
            taken.reserved.remove(index);
        }
        let (keep, ended) = oneshot::channel();
        taken.last_reserved += 1;
        let number = taken.last_reserved;
        taken.reserved.push(ReservedSlot {
            number,
            peer,
            _keep: keep,
        });
        ConnectionAdmission::HealthChecksOnly(self.slot(SlotKind::Reserved(number)), ended, limit)
    }

    fn slot(self: &Arc<Self>, kind: SlotKind) -> Slot {
        self.metrics.requests.connection_opened();
        Slot {
            slots: self.clone(),
            kind,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        // No operation panics before it is complete.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    /// Returns the index of the reserved slot to end: the oldest one of the peer that has the most.
    fn to_end(&self) -> usize {
        let mut counts: FxHashMap<IpAddr, usize> = FxHashMap::default();
        for slot in &self.reserved {
            *counts.entry(slot.peer).or_default() += 1;
        }
        let count_of = |slot: &ReservedSlot| counts[&slot.peer];
        let most = self.reserved.iter().map(count_of).max();
        let oldest = |slot: &ReservedSlot| Some(count_of(slot)) == most;
        self.reserved.iter().position(oldest).unwrap_or_default()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.metrics.requests.connection_closed();
        let mut taken = self.slots.lock();
        match self.kind {
            SlotKind::Regular(peer) => {
                taken.connections -= 1;
                let Some(peer) = peer else {
                    return;
                };
                if let Some(count) = taken.by_peer.get_mut(&peer) {
                    *count -= 1;
                    if *count == 0 {
                        taken.by_peer.remove(&peer);
                    }
                }
            }
            SlotKind::Reserved(number) => taken.reserved.retain(|slot| slot.number != number),
        }
    }
}

/// Returns the address that stands for all addresses of a peer.
fn peer_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => {
            let mask = u128::MAX << (u128::BITS - IPV6_PEER_BITS);
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(connections: usize, per_peer: usize) -> Arc<ConnectionSlots> {
        let trusted = ["10.0.0.0/8".parse().expect("a network")];
        let limits = SlotLimits {
            connections,
            per_peer,
            trusted_proxies: trusted.into(),
        };
        ConnectionSlots::new(limits, Arc::default())
    }

    fn admit(slots: &Arc<ConnectionSlots>, address: &str) -> ConnectionAdmission {
        slots.admit(address.parse().expect("an address"))
    }

    /// Returns the limit that keeps a connection from a regular slot.
    fn limit(admission: &ConnectionAdmission) -> Option<ConnectionLimit> {
        match admission {
            ConnectionAdmission::Regular(_) => None,
            ConnectionAdmission::HealthChecksOnly(_, _, limit) => Some(*limit),
        }
    }

    #[test]
    fn a_peer_has_its_own_limit() {
        let slots = slots(10, 2);
        let first = admit(&slots, "192.0.2.1");
        let second = admit(&slots, "::ffff:192.0.2.1");
        assert_eq!((limit(&first), limit(&second)), (None, None));
        let third = admit(&slots, "192.0.2.1");
        assert_eq!(limit(&third), Some(ConnectionLimit::Peer));
        assert_eq!(limit(&admit(&slots, "192.0.2.2")), None);
        drop(first);
        assert_eq!(limit(&admit(&slots, "192.0.2.1")), None);
        let _one = admit(&slots, "2001:db8:0:1::1");
        let _other = admit(&slots, "2001:db8:0:1:ffff::2");
        let limited = admit(&slots, "2001:db8:0:1::3");
        assert_eq!(limit(&limited), Some(ConnectionLimit::Peer));
        assert_eq!(limit(&admit(&slots, "2001:db8:0:2::1")), None);
        drop((second, third));
        assert!(slots.lock().by_peer.len() == 1, "only peers with slots");
    }

    #[test]
    fn trusted_proxies_have_only_the_limit_of_the_server() {
        let slots = slots(4, 1);
        let open: Vec<_> = (0..4).map(|_| admit(&slots, "10.0.0.1")).collect();
        assert!(open.iter().all(|it| limit(it).is_none()));
        let fifth = admit(&slots, "10.0.0.1");
        assert_eq!(limit(&fifth), Some(ConnectionLimit::Server));
        let other = admit(&slots, "192.0.2.1");
        assert_eq!(limit(&other), Some(ConnectionLimit::Server));
        drop(open);
        assert_eq!(limit(&admit(&slots, "192.0.2.1")), None);
    }

    #[test]
    fn a_peer_takes_reserved_slots_from_itself() {
        let slots = slots(0, 1);
        let is_ended = |admission: &mut ConnectionAdmission| match admission {
            ConnectionAdmission::Regular(_) => panic!("there are no regular slots"),
            ConnectionAdmission::HealthChecksOnly(_, ended, _) => {
                ended.try_recv() == Err(oneshot::error::TryRecvError::Closed)
            }
        };
        let mut prober = admit(&slots, "192.0.2.1");
        let mut flood: Vec<ConnectionAdmission> =
            (0..100).map(|_| admit(&slots, "192.0.2.2")).collect();
        assert!(!is_ended(&mut prober));
        let ended = flood
            .iter_mut()
            .map(is_ended)
            .take_while(|ended| *ended)
            .count();
        assert_eq!(ended, 100 - (RESERVED_SLOTS - 1), "the oldest are ended");
        assert_eq!(slots.lock().reserved.len(), RESERVED_SLOTS);
        drop(flood);
        assert_eq!(slots.lock().reserved.len(), 1);
        drop(prober);
        assert!(slots.lock().reserved.is_empty());
    }
}
