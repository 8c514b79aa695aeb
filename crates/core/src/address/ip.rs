//! IP addresses that may be called.
//!
//! The operator's lists take precedence over the [built-in table](super::range). An IPv6 address that is only
//! another spelling of an IPv4 address is vetted as that. If an IPv6 address *contains* an IPv4 address for a
//! translator or tunnel, both the IPv6 address and the IPv4 address must be allowed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net};

use super::range::built_in_kind;
use super::{EgressRules, ForbiddenAddress};

impl EgressRules {
    /// Checks if this address may be called.
    ///
    /// `deny_networks` win over `allow_networks`, which win over the built-in table. An IPv4-mapped IPv6 address
    /// gets the result of the IPv4 address, and a mapped network in either list means the IPv4 network. An allowed
    /// network allows the addresses it covers and no others; in particular, allowing a NAT64 prefix does not allow
    /// the private addresses behind the translator.
    ///
    /// An address behind one of `nat64_prefixes` gets the result of the IPv4 address that it contains.
    /// `deny_networks` are checked for both addresses.
    pub fn vet(&self, ip: IpAddr) -> Result<(), ForbiddenAddress> {
        let ip = ip.to_canonical();
        let IpAddr::V6(outer) = ip else {
            return self.vet_one(ip);
        };
        if self
            .nat64_prefixes
            .iter()
            .any(|prefix| prefix.covers(outer))
        {
            return self.vet_translated(outer);
        }
        self.vet_one(ip)?;
        match embedded_ipv4(outer) {
            Some(inner) => self.vet_one(IpAddr::V4(inner)),
            None => Ok(()),
        }
    }

    fn vet_translated(&self, outer: Ipv6Addr) -> Result<(), ForbiddenAddress> {
        if any_covers(&self.deny_networks, IpAddr::V6(outer)) {
            return Err(ForbiddenAddress::Denied);
        }
        let behind = self.nat64_prefixes.iter();
        for prefix in behind.filter(|prefix| prefix.covers(outer)) {
            let inner = prefix.carried(outer).ok_or(ForbiddenAddress::Translated)?;
            self.vet_one(IpAddr::V4(inner))?;
        }
        Ok(())
    }

    fn vet_one(&self, ip: IpAddr) -> Result<(), ForbiddenAddress> {
        if any_covers(&self.deny_networks, ip) {
            return Err(ForbiddenAddress::Denied);
        }
        if any_covers(&self.allow_networks, ip) {
            return Ok(());
        }
        match built_in_kind(ip) {
            Some(kind) => Err(kind),
            None => Ok(()),
        }
    }
}

fn any_covers(networks: &[IpNet], ip: IpAddr) -> bool {
    networks
        .iter()
        .any(|network| unmapped(*network).contains(&ip))
}

/// Turns a network of IPv4-mapped addresses into the IPv4 network it stands for, because addresses are compared in
/// that form. Wider IPv6 networks (`::/0`) stay unchanged and cover no IPv4 address.
fn unmapped(network: IpNet) -> IpNet {
    const MAPPED_PREFIX: u8 = 96;
    if let IpNet::V6(v6) = network
        && let Some(prefix) = v6.prefix_len().checked_sub(MAPPED_PREFIX)
        && let Some(address) = v6.addr().to_ipv4_mapped()
    {
        return IpNet::V4(Ipv4Net::new_assert(address, prefix));
    }
    network
}

/// Returns the IPv4 address that a translator or tunnel would extract from this address: NAT64 with a prefix of 96
/// bits, 6to4, and ISATAP with any value of the interface identifier's universal and group bits.
///
/// Teredo is omitted: it contains the addresses of its server and its client, and is always refused.
fn embedded_ipv4(outer: Ipv6Addr) -> Option<Ipv4Addr> {
    const UNIVERSAL_AND_GROUP: u16 = 0x0300;
    let join = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    let segments = outer.segments();
    let nat64 = segments[0..2] == [0x64, 0xff9b] && segments[2] <= 1;
    let isatap = segments[4] & !UNIVERSAL_AND_GROUP == 0 && segments[5] == 0x5efe;
    if segments[0] == 0x2002 {
        Some(join(segments[1], segments[2]))
    } else if nat64 || isatap {
        Some(join(segments[6], segments[7]))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The registries once more, as text, and evaluated by arithmetic that shares nothing with the code above.
    const SPECIAL_V4: &str = "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 168.63.129.16/32 \
        169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24 192.31.196.0/24 192.52.193.0/24 \
        192.88.99.0/24 192.168.0.0/16 192.175.48.0/24 198.18.0.0/15 198.51.100.0/24 \
        203.0.113.0/24 224.0.0.0/3";
    const SPECIAL_V6: &str = "::/3 2001::/23 2001:db8::/32 2002::/16 2620:4f:8000::/48 \
        3ffe::/16 3fff::/20 4000::/2 8000::/1";

    /// First and last address of each network, as numbers.
    fn ranges<A: std::str::FromStr<Err: std::fmt::Debug>>(
        list: &str,
        bits: u32,
        number: fn(A) -> u128,
    ) -> Vec<(u128, u128)> {
        list.split_whitespace()
            .map(|network| {
                let (address, prefix) = network.split_once('/').unwrap();
                let first = number(address.parse().unwrap());
                let host_bits = bits - prefix.parse::<u32>().unwrap();
                (first, first + ((1 << host_bits) - 1))
            })
            .collect()
    }

    fn special_v4() -> Vec<(u128, u128)> {
        ranges(SPECIAL_V4, 32, |address: Ipv4Addr| {
            u128::from(address.to_bits())
        })
    }

    fn special_v6() -> Vec<(u128, u128)> {
        ranges(SPECIAL_V6, 128, |address: Ipv6Addr| address.to_bits())
    }

    /// Any number, but half of the time one within a few steps of the edge of a range, where errors are likely.
    fn near_edges(ranges: Vec<(u128, u128)>, max: u128) -> impl Strategy<Value = u128> {
        let edges: Vec<u128> = ranges
            .into_iter()
            .flat_map(|(first, last)| [first, last])
            .collect();
        let near = (prop::sample::select(edges), 0..5u128)
            .prop_map(move |(edge, step)| (edge.saturating_add(step).saturating_sub(2)).min(max));
        prop_oneof![near, 0..=max]
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn allowing(networks: &[&str]) -> EgressRules {
        EgressRules {
            allow_networks: networks
                .iter()
                .map(|network| network.parse().unwrap())
                .collect(),
            ..EgressRules::default()
        }
    }

    fn allows(rules: &EgressRules, ip: &str) -> bool {
        rules.vet(address(ip)).is_ok()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn ipv4_agrees_with_an_independent_table(
            bits in near_edges(special_v4(), u128::from(u32::MAX)),
        ) {
            let ip = Ipv4Addr::from_bits(u32::try_from(bits).unwrap());
            let special = special_v4().iter().any(|(first, last)| (*first..=*last).contains(&bits));
            prop_assert_eq!(EgressRules::default().vet(ip.into()).is_err(), special, "{}", ip);
        }

        #[test]
        fn ipv6_agrees_with_an_independent_table(bits in near_edges(special_v6(), u128::MAX)) {
            let ip = Ipv6Addr::from_bits(bits);
            let special = special_v6().iter().any(|(first, last)| (*first..=*last).contains(&bits));
            prop_assert_eq!(EgressRules::default().vet(ip.into()).is_err(), special, "{}", ip);
        }

        #[test]
        fn a_mapped_address_is_vetted_as_its_ipv4_address(
            bits in near_edges(special_v4(), u128::from(u32::MAX)),
            network in any::<u32>(),
            prefix in 0..=32u8,
            mapped_network in any::<bool>(),
            deny in any::<bool>(),
        ) {
            let ip = Ipv4Addr::from_bits(u32::try_from(bits).unwrap());
            let network = Ipv4Addr::from_bits(network);
            let network = if mapped_network {
                IpNet::new(network.to_ipv6_mapped().into(), prefix + 96).unwrap()
            } else {
                IpNet::new(network.into(), prefix).unwrap()
            };
            let rules = if deny {
                EgressRules { deny_networks: vec![network], ..EgressRules::default() }
            } else {
                EgressRules { allow_networks: vec![network], ..EgressRules::default() }
            };
            prop_assert_eq!(rules.vet(ip.into()), rules.vet(ip.to_ipv6_mapped().into()));
        }
    }

    #[test]
    fn errors_name_the_kind_and_no_address() {
        use ForbiddenAddress::*;
        for (ip, kind) in [
            ("127.0.0.1", Loopback),
            ("::1", Loopback),
            ("::ffff:10.1.2.3", Private),
            ("fd12::1", Private),
            ("169.254.169.254", Metadata),
            ("fd00:ec2::254", Metadata),
            ("169.254.1.1", LinkLocal),
            ("100.64.0.1", Shared),
            ("255.255.255.255", Broadcast),
            ("2001:2::1", Benchmarking),
            ("64:ff9b::808:808", Translated),
            ("2002:808:808::1", Tunnelled),
            ("5f00::1", NotGlobal),
            ("2606:4700::5efe:192.168.0.1", Private),
        ] {
            let error = EgressRules::default().vet(address(ip)).unwrap_err();
            assert_eq!(error, kind, "{ip}");
            assert!(!error.to_string().contains(ip));
        }
    }

    #[test]
    fn deny_list_precedes_allow_list_precedes_table() {
        let mut rules = allowing(&["10.0.0.0/9", "fd00::/8"]);
        rules.deny_networks = vec![
            "10.9.0.0/16".parse().unwrap(),
            "8.8.8.0/24".parse().unwrap(),
        ];
        assert!(allows(&rules, "10.1.1.1"));
        assert!(allows(&rules, "::ffff:10.1.1.1"));
        assert!(allows(&rules, "fd00::1"));
        assert!(!allows(&rules, "10.128.0.0"));
        assert!(!allows(&rules, "fc00::1"));
        assert_eq!(
            rules.vet(address("10.9.1.1")),
            Err(ForbiddenAddress::Denied)
        );
        assert_eq!(
            rules.vet(address("::ffff:8.8.8.8")),
            Err(ForbiddenAddress::Denied)
        );
        assert!(allows(&rules, "8.8.4.4"));
    }

    #[test]
    fn a_mapped_network_means_the_ipv4_network() {
        let rules = allowing(&["::ffff:10.1.0.0/112"]);
        assert!(allows(&rules, "10.1.255.255"));
        assert!(allows(&rules, "::ffff:10.1.0.0"));
        assert!(!allows(&rules, "10.2.0.0"));
    }

    #[test]
    fn allowing_all_of_ipv6_allows_no_ipv4() {
        let rules = allowing(&["::/0"]);
        assert!(allows(&rules, "::1"));
        assert!(!allows(&rules, "127.0.0.1"));
        assert!(!allows(&rules, "::ffff:127.0.0.1"));
        assert!(!allows(&rules, "2002:7f00:1::"));
    }

    #[test]
    fn an_embedded_ipv4_address_must_be_allowed_too() {
        let nat64 = allowing(&["64:ff9b::/96", "64:ff9b:1:2::/96"]);
        assert!(allows(&nat64, "64:ff9b::808:808"));
        assert!(allows(&nat64, "64:ff9b:1:2::808:808"));
        assert!(!allows(&nat64, "64:ff9b::a9fe:a9fe"));
        assert!(!allows(&nat64, "64:ff9b:1:2::a00:1"));
        assert!(allows(
            &allowing(&["64:ff9b::/96", "10.0.0.0/8"]),
            "64:ff9b::a00:1"
        ));

        let rules = EgressRules::default();
        for flags in ["0", "100", "200", "300"] {
            assert!(allows(
                &rules,
                &format!("2606:4700:1:2:{flags}:5efe:808:808")
            ));
            assert!(!allows(
                &rules,
                &format!("2606:4700:1:2:{flags}:5efe:7f00:1")
            ));
        }
        assert!(
            allows(&rules, "2606:4700:1:2:400:5efe:7f00:1"),
            "not an ISATAP identifier"
        );
    }
}
