//! The special ranges of the address space, by kind.
//!
//! For IPv4 everything is public except a table of special ranges. For IPv6 only `2000::/3` is public, except again
//! a table of special ranges in it. The tables follow IANA's special-purpose registries. They are stricter for
//! ranges that a registry calls globally reachable but in which no customer can run a receiver (AS112, AMT,
//! protocol assignments).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};
use thiserror::Error;

/// The reason why an address may not be called: the kind of range that it is in.
///
/// It deliberately does not contain the address, so that the error can be shown to a tenant without revealing what
/// a name resolved to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Error)]
pub enum ForbiddenAddress {
    /// In one of the operator's `deny_networks`.
    #[error("an address in a network the operator denies")]
    Denied,
    /// An address that this server itself listens on.
    #[error("the address that this server itself listens on")]
    OwnListener,
    /// `0.0.0.0/8` or `::`, which most network stacks treat as the host itself.
    #[error("an unspecified address")]
    Unspecified,
    /// The host itself.
    #[error("a loopback address")]
    Loopback,
    /// Private networks: RFC 1918, unique local and site-local IPv6.
    #[error("a private address")]
    Private,
    /// Carrier-grade NAT, also used inside clouds and overlay networks.
    #[error("a shared (carrier-grade NAT) address")]
    Shared,
    /// Neighbours on the same link.
    #[error("a link-local address")]
    LinkLocal,
    /// A cloud's metadata service for its own machines, which hands out credentials.
    #[error("a cloud metadata address")]
    Metadata,
    /// Reserved for examples.
    #[error("a documentation address")]
    Documentation,
    /// Reserved for benchmarks.
    #[error("a benchmarking address")]
    Benchmarking,
    /// A group of receivers.
    #[error("a multicast address")]
    Multicast,
    /// All hosts on the network.
    #[error("the broadcast address")]
    Broadcast,
    /// Assigned to protocols rather than to hosts.
    #[error("an address assigned to a protocol")]
    Protocol,
    /// Shared infrastructure of the internet: AS112 and AMT.
    #[error("an infrastructure address (AS112 or AMT)")]
    Infrastructure,
    /// NAT64: reaches an IPv4 address through a translator.
    #[error("an IPv4 address behind a NAT64 translator")]
    Translated,
    /// 6to4 or Teredo: reaches an IPv4 address through a tunnel.
    #[error("an IPv4 address inside a 6to4 or Teredo tunnel")]
    Tunnelled,
    /// Reserved, or returned to the registry.
    #[error("a reserved address")]
    Reserved,
    /// IPv6 outside `2000::/3`, which is the whole global internet.
    #[error("an IPv6 address outside the global unicast range")]
    NotGlobal,
}

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn v6(segments: [u16; 8], prefix: u8) -> Ipv6Net {
    let [a, b, c, d, e, f, g, h] = segments;
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, e, f, g, h), prefix)
}

/// Special ranges of IPv4. The first row that covers an address determines its kind, so narrow rows come before
/// wide ones.
const FORBIDDEN_V4: &[(Ipv4Net, ForbiddenAddress)] = {
    use ForbiddenAddress::*;
    &[
        (v4(100, 100, 100, 200, 32), Metadata),
        (v4(168, 63, 129, 16, 32), Metadata),
        (v4(169, 254, 0, 23, 32), Metadata),
        (v4(169, 254, 42, 42, 32), Metadata),
        (v4(169, 254, 169, 0, 24), Metadata),
        (v4(169, 254, 170, 0, 24), Metadata),
        (v4(192, 0, 0, 192, 32), Metadata),
        (v4(0, 0, 0, 0, 8), Unspecified),
        (v4(10, 0, 0, 0, 8), Private),
        (v4(100, 64, 0, 0, 10), Shared),
        (v4(127, 0, 0, 0, 8), Loopback),
        (v4(169, 254, 0, 0, 16), LinkLocal),
        (v4(172, 16, 0, 0, 12), Private),
        (v4(192, 0, 0, 0, 24), Protocol),
        (v4(192, 0, 2, 0, 24), Documentation),
        (v4(192, 31, 196, 0, 24), Infrastructure),
        (v4(192, 52, 193, 0, 24), Infrastructure),
        (v4(192, 88, 99, 0, 24), Tunnelled),
        (v4(192, 168, 0, 0, 16), Private),
        (v4(192, 175, 48, 0, 24), Infrastructure),
        (v4(198, 18, 0, 0, 15), Benchmarking),
        (v4(198, 51, 100, 0, 24), Documentation),
        (v4(203, 0, 113, 0, 24), Documentation),
        (v4(224, 0, 0, 0, 4), Multicast),
        (v4(255, 255, 255, 255, 32), Broadcast),
        (v4(240, 0, 0, 0, 4), Reserved),
    ]
};

/// Special ranges of IPv6. Rows outside [`GLOBAL_UNICAST`] would be refused anyway; they are listed for a more
/// precise kind.
const FORBIDDEN_V6: &[(Ipv6Net, ForbiddenAddress)] = {
    use ForbiddenAddress::*;
    &[
        (v6([0, 0, 0, 0, 0, 0, 0, 0], 128), Unspecified),
        (v6([0, 0, 0, 0, 0, 0, 0, 1], 128), Loopback),
        (v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96), Translated),
        (v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48), Translated),
        (v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 32), Tunnelled),
        (v6([0x2001, 2, 0, 0, 0, 0, 0, 0], 48), Benchmarking),
        (v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23), Protocol),
        (v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32), Documentation),
        (v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16), Tunnelled),
        (
            v6([0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0], 48),
            Infrastructure,
        ),
        // The 6bone, returned in 2006.
        (v6([0x3ffe, 0, 0, 0, 0, 0, 0, 0], 16), Reserved),
        (v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20), Documentation),
        (v6([0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42], 128), Metadata),
        (
            v6([0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe], 128),
            Metadata,
        ),
        (v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0], 32), Metadata),
        (v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128), Metadata),
        (v6([0xfe80, 0, 0, 0, 0, 0, 0xa9fe, 0xa9fe], 128), Metadata),
        (v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7), Private),
        (v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10), LinkLocal),
        (v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10), Private),
        (v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8), Multicast),
    ]
};

/// The part of IPv6 that is routed on the internet.
const GLOBAL_UNICAST: Ipv6Net = v6([0x2000, 0, 0, 0, 0, 0, 0, 0], 3);

/// Returns the kind of special range that the address is in, or `None` for a public address.
pub(super) fn built_in_kind(ip: IpAddr) -> Option<ForbiddenAddress> {
    match ip {
        IpAddr::V4(ip) => FORBIDDEN_V4
            .iter()
            .find_map(|(network, kind)| network.contains(&ip).then_some(*kind)),
        IpAddr::V6(ip) => FORBIDDEN_V6
            .iter()
            .find_map(|(network, kind)| network.contains(&ip).then_some(*kind))
            .or((!GLOBAL_UNICAST.contains(&ip)).then_some(ForbiddenAddress::NotGlobal)),
    }
}
