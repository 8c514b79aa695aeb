//! Prefixes behind which a NAT64 translator reaches IPv4 addresses (RFC 6052).
//!
//! In a network without IPv4, DNS64 returns such addresses for every name that has only IPv4 addresses, so an
//! operator there must be able to allow them. An address behind a configured prefix is another spelling of the IPv4
//! address that it contains, and is vetted as that: private networks behind the translator stay closed. The network
//! decides which of several translators a packet passes, so where prefixes overlap, each IPv4 address must be
//! allowed.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::Ipv6Net;
use thiserror::Error;

/// The prefix lengths for which RFC 6052 defines the position of the IPv4 address.
const LENGTHS: [u8; 6] = [32, 40, 48, 56, 64, 96];
/// The octet in bits 64 to 71, which is not part of the IPv4 address and must be zero.
const RESERVED_OCTET: usize = 8;

/// A prefix whose addresses contain IPv4 addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Nat64Prefix(Ipv6Net);

/// The reason why a text is not a NAT64 prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Nat64PrefixError {
    /// Not an IPv6 network.
    #[error("must be an IPv6 prefix such as \"64:ff9b::/96\"")]
    NotANetwork,
    /// A length that RFC 6052 does not define.
    #[error("must be 32, 40, 48, 56, 64 or 96 bits long (RFC 6052), not {0}")]
    Length(u8),
    /// Bits are set after the prefix.
    #[error("has bits set after the prefix; did you mean {0}?")]
    HostBits(Ipv6Net),
    /// A 96-bit prefix with bits set in bits 64 to 71.
    #[error("must have zeros in bits 64 to 71 (RFC 6052)")]
    ReservedOctet,
    /// A range in which no translator can be.
    #[error("is not a unicast prefix of a translator; the well-known prefix is 64:ff9b::/96")]
    NoPlace,
}

impl Nat64Prefix {
    /// Creates a prefix from a network, if a translator could have it.
    pub fn new(network: Ipv6Net) -> Result<Nat64Prefix, Nat64PrefixError> {
        let address = network.addr();
        if !LENGTHS.contains(&network.prefix_len()) {
            return Err(Nat64PrefixError::Length(network.prefix_len()));
        }
        if network.trunc() != network {
            return Err(Nat64PrefixError::HostBits(network.trunc()));
        }
        if address.octets()[RESERVED_OCTET] != 0 {
            return Err(Nat64PrefixError::ReservedOctet);
        }
        // `0::/16` contains loopback and the IPv4-mapped addresses, which already have a meaning.
        if address.segments()[0] == 0 || address.is_multicast() || address.is_unicast_link_local() {
            return Err(Nat64PrefixError::NoPlace);
        }
        Ok(Nat64Prefix(network))
    }

    /// Returns true if the address is behind this prefix.
    pub fn covers(&self, address: Ipv6Addr) -> bool {
        self.0.contains(&address)
    }

    /// Returns the IPv4 address that the translator extracts; `None` if the address is not behind this prefix or
    /// its reserved octet is not zero. The bits after the IPv4 address are ignored, as translators do.
    pub fn carried(&self, address: Ipv6Addr) -> Option<Ipv4Addr> {
        let octets = address.octets();
        if !self.covers(address) || octets[RESERVED_OCTET] != 0 {
            return None;
        }
        let first = usize::from(self.0.prefix_len() / 8);
        let mut indices = (first..).filter(|index| *index != RESERVED_OCTET);
        let mut next = || Some(octets[indices.next()?]);
        Some(Ipv4Addr::new(next()?, next()?, next()?, next()?))
    }
}

impl FromStr for Nat64Prefix {
    type Err = Nat64PrefixError;

    fn from_str(text: &str) -> Result<Nat64Prefix, Nat64PrefixError> {
        let network = text.parse().map_err(|_| Nat64PrefixError::NotANetwork)?;
        Nat64Prefix::new(network)
    }
}

impl fmt::Display for Nat64Prefix {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::{EgressRules, ForbiddenAddress};
    use proptest::prelude::*;

    fn prefix(text: &str) -> Nat64Prefix {
        text.parse()
            .unwrap_or_else(|error| panic!("{text} {error}"))
    }

    fn behind(prefixes: &[&str]) -> EgressRules {
        EgressRules {
            nat64_prefixes: prefixes.iter().map(|text| prefix(text)).collect(),
            ..EgressRules::default()
        }
    }

    fn verdict(rules: &EgressRules, address: &str) -> Result<(), ForbiddenAddress> {
        rules.vet(address.parse().unwrap())
    }

    /// The table of RFC 6052, section 2.4, and the well-known prefix below it.
    #[test]
    fn examples_of_rfc_6052() {
        for (network, address) in [
            ("2001:db8::/32", "2001:db8:c000:221::"),
            ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
            ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
            ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
            ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"),
            ("2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"),
            ("64:ff9b::/96", "64:ff9b::192.0.2.33"),
        ] {
            let carried = prefix(network).carried(address.parse().unwrap());
            assert_eq!(carried, Some(Ipv4Addr::new(192, 0, 2, 33)), "{network}");
            assert_eq!(
                verdict(&behind(&[network]), address),
                Err(ForbiddenAddress::Documentation),
                "{network}"
            );
        }
    }

    /// The address that a translator would generate, computed by shifting integers.
    fn embedded(prefix: &Nat64Prefix, inner: Ipv4Addr) -> u128 {
        let length = u32::from(prefix.0.prefix_len());
        let straight = u128::from(inner.to_bits()) << (128 - 32 - length);
        // With a shorter prefix, the bits after bit 63 move behind the reserved octet.
        let (low, high) = (
            straight & u128::from(u64::MAX),
            straight & !u128::from(u64::MAX),
        );
        let low = if length == 96 { low } else { low >> 8 };
        prefix.0.addr().to_bits() | high | low
    }

    fn any_prefix() -> impl Strategy<Value = Nat64Prefix> {
        let bits = 0x0064_0000_0000_0000_0000_0000_0000_0000..0x4000_u128 << 112;
        (bits, prop::sample::select(&LENGTHS[..])).prop_filter_map("a place", |(bits, length)| {
            let bits = bits & !(0xff << 56);
            let network = Ipv6Net::new(Ipv6Addr::from_bits(bits), length).unwrap();
            Nat64Prefix::new(network.trunc()).ok()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2048))]

        #[test]
        fn an_embedded_address_is_extracted_and_vetted(
            prefix in any_prefix(),
            inner in prop_oneof![
                any::<u32>(),
                (0..1_u32 << 24).prop_map(|host| 10 << 24 | host),
                (0..1_u32 << 24).prop_map(|host| 127 << 24 | host),
            ],
            suffix in any::<u128>(),
            octet in 1..=255_u128,
        ) {
            let inner = Ipv4Addr::from_bits(inner);
            let clean = embedded(&prefix, inner);
            let used = u32::from(prefix.0.prefix_len()) + if prefix.0.prefix_len() == 96 { 32 } else { 40 };
            let beyond = if used >= 128 { 0 } else { suffix >> used };
            let rules = EgressRules { nat64_prefixes: vec![prefix], ..EgressRules::default() };
            for bits in [clean, clean | beyond & !(0xff << 56)] {
                let outer = Ipv6Addr::from_bits(bits);
                prop_assert_eq!(prefix.carried(outer), Some(inner), "{} {}", prefix, outer);
                prop_assert_eq!(rules.vet(outer.into()), rules.vet(inner.into()), "{} {}", prefix, outer);
            }
            let marked = Ipv6Addr::from_bits(clean | octet << 56);
            prop_assert_eq!(prefix.carried(marked), None);
            // With the longest prefix the octet is part of the prefix itself.
            if prefix.covers(marked) {
                prop_assert_eq!(rules.vet(marked.into()), Err(ForbiddenAddress::Translated));
            }
        }

        #[test]
        fn a_prefix_does_not_affect_other_addresses(
            prefix in any_prefix(),
            bits in any::<u128>(),
        ) {
            let outer = Ipv6Addr::from_bits(bits);
            prop_assume!(!prefix.covers(outer));
            let rules = EgressRules { nat64_prefixes: vec![prefix], ..EgressRules::default() };
            prop_assert_eq!(rules.vet(outer.into()), EgressRules::default().vet(outer.into()));
        }
    }

    #[test]
    fn without_the_setting_translators_are_refused() {
        let rules = EgressRules::default();
        for address in ["64:ff9b::808:808", "64:ff9b:1::808:808"] {
            assert_eq!(verdict(&rules, address), Err(ForbiddenAddress::Translated));
        }
        let rules = behind(&["64:ff9b::/96"]);
        assert_eq!(verdict(&rules, "64:ff9b::808:808"), Ok(()));
        assert_eq!(
            verdict(&rules, "64:ff9b::a9fe:a9fe"),
            Err(ForbiddenAddress::Metadata)
        );
        assert_eq!(
            verdict(&rules, "64:ff9b:1::808:808"),
            Err(ForbiddenAddress::Translated),
            "the address is behind a prefix that is not configured"
        );
    }

    #[test]
    fn the_operators_lists_apply_behind_a_prefix() {
        let mut rules = behind(&["64:ff9b:1::/48"]);
        let inside = "64:ff9b:1:a00:0:100::";
        assert_eq!(verdict(&rules, inside), Err(ForbiddenAddress::Private));
        rules.allow_networks = vec!["10.0.0.0/8".parse().unwrap()];
        assert_eq!(verdict(&rules, inside), Ok(()));
        rules.deny_networks = vec!["10.0.0.1/32".parse().unwrap()];
        assert_eq!(verdict(&rules, inside), Err(ForbiddenAddress::Denied));
        rules.deny_networks = vec!["64:ff9b:1:a00::/64".parse().unwrap()];
        assert_eq!(verdict(&rules, inside), Err(ForbiddenAddress::Denied));
        rules.deny_networks.clear();
        // Allowing a prefix does not allow the addresses behind it.
        rules.allow_networks = vec!["64:ff9b:1::/48".parse().unwrap()];
        assert_eq!(verdict(&rules, inside), Err(ForbiddenAddress::Private));
    }

    #[test]
    fn overlapping_prefixes_must_all_allow_the_address() {
        let rules = behind(&["2a00:1::/32", "2a00:1:808:808::/96"]);
        assert_eq!(verdict(&rules, "2a00:1:808:808::808:808"), Ok(()));
        assert_eq!(
            verdict(&rules, "2a00:1:808:808::a00:1"),
            Err(ForbiddenAddress::Private)
        );
        let rules = behind(&["2a00:1::/32", "2a00:1:a00:1::/96"]);
        assert_eq!(
            verdict(&rules, "2a00:1:a00:1::808:808"),
            Err(ForbiddenAddress::Private)
        );
    }

    #[test]
    fn invalid_nat64_prefixes_are_refused() {
        use Nat64PrefixError::*;
        let flaw = |text: &str| text.parse::<Nat64Prefix>().unwrap_err();
        for text in [
            "",
            "64:ff9b::",
            "10.0.0.0/8",
            "64:ff9b::/129",
            "64:ff9b::/96/96",
        ] {
            assert_eq!(flaw(text), NotANetwork, "{text}");
        }
        for length in (0..=128).filter(|length| !LENGTHS.contains(length)) {
            assert_eq!(flaw(&format!("2a00::/{length}")), Length(length));
        }
        assert_eq!(
            flaw("64:ff9b::1/96"),
            HostBits("64:ff9b::/96".parse().unwrap())
        );
        assert_eq!(flaw("2a00:0:0:0:ff00::/96"), ReservedOctet);
        for text in ["::ffff:0:0/96", "::/96", "::/32", "ff02::/96", "fe80::/64"] {
            assert_eq!(flaw(text), NoPlace, "{text}");
        }
    }
}
