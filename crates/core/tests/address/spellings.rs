//! Every spelling of an address gets the same result as the address.
//!
//! IPv4 addresses are written in one to four parts, in every radix and in other alphabets; IPv6 addresses in every
//! common form. A special address must be refused in every spelling, and a public one accepted as that address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use posthaste_core::address::{Destination, EgressRules, Host};
use proptest::prelude::*;

use crate::second_parser;

/// One number as a part of an address: in some radix, with some leading zeros.
fn spelled(number: u64, radix: u8, zeros: usize, upper: bool) -> String {
    let zeros = "0".repeat(zeros);
    match (radix, upper) {
        (0, _) => number.to_string(),
        (1, _) => format!("0{zeros}{number:o}"),
        (_, false) => format!("0x{zeros}{number:x}"),
        (_, true) => format!("0X{zeros}{number:X}"),
    }
}

/// An address in one to four parts.
fn in_parts(bits: u32, count: u32, style: &[(u8, usize, bool)]) -> String {
    let bits = u64::from(bits);
    let before = (0..count - 1).map(|nth| bits >> (24 - 8 * nth) & 0xff);
    let last = bits & ((1 << (32 - 8 * (count - 1))) - 1);
    let parts = before.chain([last]).zip(style);
    let parts =
        parts.map(|(number, (radix, zeros, upper))| spelled(number, *radix, *zeros, *upper));
    parts.collect::<Vec<_>>().join(".")
}

/// Replaces digits, letters and dots by their equivalents in other Unicode blocks.
fn in_other_alphabets(text: &str, choices: &[u8]) -> String {
    let wide = |base: u32, offset: u8| char::from_u32(base + u32::from(offset)).unwrap();
    let disguise = |(character, choice): (char, &u8)| match (character, choice % 4) {
        ('.', 1) => '。',
        ('.', 2) => '．',
        ('.', 3) => '｡',
        ('0'..='9', 1) => wide(0xff10, character as u8 - b'0'),
        ('1'..='9', 2) => wide(0x2460, character as u8 - b'1'),
        ('0'..='9', 3) => wide(0x1d7ce, character as u8 - b'0'),
        ('a'..='z', 1) => wide(0xff41, character as u8 - b'a'),
        ('a'..='z', 2) => wide(0x24d0, character as u8 - b'a'),
        (character, _) => character,
    };
    text.chars()
        .zip(choices.iter().cycle())
        .map(disguise)
        .collect()
}

fn address_bits() -> impl Strategy<Value = u32> {
    let inside = prop::sample::select(vec![
        0x0000_0000_u32,
        0x0a00_0001,
        0x7f00_0001,
        0xa9fe_a9fe,
        0xac10_0001,
        0xc0a8_0001,
        0x6464_64c8,
        0xa83f_8110,
        0xe000_0001,
        0xffff_ffff,
    ]);
    prop_oneof![any::<u32>(), inside]
}

fn check(url: &str, ip: IpAddr, is_special: bool) {
    match Destination::parse(url, &EgressRules::default()) {
        Ok(destination) => {
            assert!(!is_special, "{url} is accepted, but leads to {ip}");
            assert_eq!(destination.host(), &Host::Ip(ip), "{url}");
        }
        Err(error) => {
            assert!(is_special, "{url} is refused, but {ip} is allowed: {error}");
            assert_eq!(error.code(), "unsafe_destination", "{url}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn ipv4_in_every_radix_and_alphabet(
        bits in address_bits(),
        count in 1..=4_u32,
        style in prop::collection::vec((0..3_u8, 0..6_usize, any::<bool>()), 4),
        choices in prop::collection::vec(any::<u8>(), 1..24),
        dot in any::<bool>(),
        port in prop::sample::select(vec!["", ":443", ":8443", ":00443"]),
    ) {
        let plain = in_parts(bits, count, &style);
        assert_eq!(second_parser::inet_aton(&plain), Some(bits), "{plain}");
        let dot = if dot { "." } else { "" };
        let ip = IpAddr::V4(Ipv4Addr::from_bits(bits));
        for host in [plain.clone(), in_other_alphabets(&plain, &choices)] {
            check(&format!("https://{host}{dot}{port}/"), ip, second_parser::is_special_v4(bits));
        }
    }

    #[test]
    fn ipv6_in_every_spelling(
        bits in prop_oneof![
            any::<u128>(),
            any::<u128>().prop_map(|bits| bits >> 3 | 1 << 125),
            address_bits().prop_map(|bits| 0xffff << 32 | u128::from(bits)),
            address_bits().prop_map(|bits| 0x2606_4700_0000_0000_0000_5efe << 32 | u128::from(bits)),
        ],
        upper in any::<bool>(),
        padded in any::<bool>(),
        dotted in any::<bool>(),
    ) {
        let outer = Ipv6Addr::from_bits(bits);
        let segments = outer.segments();
        let segment = |number: &u16| if padded { format!("{number:04x}") } else { format!("{number:x}") };
        let long = segments.iter().map(segment).collect::<Vec<_>>();
        let tail = Ipv4Addr::from_bits(bits as u32);
        let mut spellings = vec![outer.to_string(), long.join(":")];
        if dotted {
            spellings.push(format!("{}:{tail}", long[..6].join(":")));
        }
        for spelling in spellings {
            let spelling = if upper { spelling.to_uppercase() } else { spelling };
            let ip = IpAddr::V6(outer).to_canonical();
            check(&format!("https://[{spelling}]/"), ip, second_parser::is_special_v6(bits));
        }
    }
}
