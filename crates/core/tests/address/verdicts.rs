//! Properties that every result must have, for any input.
//!
//! [`check`] parses one text. If it is accepted, the URL must be canonical, its parts must fit together, and the
//! rules must allow its port and address; under the default rules the second parser must agree. The tests apply it
//! to random texts, to texts that resemble URLs, and to random rules.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use posthaste_core::address::{
    Destination, EgressRules, Host, MAX_URL_BYTES, Nat64Prefix, PortRange, Scheme,
};
use proptest::prelude::*;

use crate::second_parser;

/// The rules of a developer's machine: loopback and plain http are allowed.
pub(crate) fn development() -> EgressRules {
    EgressRules {
        allow_networks: vec!["127.0.0.0/8".parse().unwrap()],
        allow_http: true,
        ..EgressRules::default()
    }
}

/// Checks the properties of every URL that these rules accept, and that the default rules accept nothing unsafe.
pub(crate) fn check(raw: &str, rules: &EgressRules) {
    let judged = Destination::parse(raw, rules);
    let is_default = *rules == EgressRules::default();
    let Ok(destination) = judged else {
        let error = judged.unwrap_err();
        assert!(["invalid_url", "unsafe_destination"].contains(&error.code()));
        return;
    };
    if is_default {
        check_as_written(raw);
    }
    let url = destination.as_str();
    let again = Destination::parse(url, rules);
    assert_eq!(
        again.as_ref(),
        Ok(&destination),
        "{raw:?} changes when parsed again"
    );
    assert!(url.len() <= MAX_URL_BYTES, "{raw:?}");
    assert!(url.bytes().all(|byte| byte.is_ascii_graphic()), "{raw:?}");
    assert!(!url.contains('#'), "{raw:?}");

    let (host, port) = second_parser::host_and_port(url).expect("the URL has a host");
    assert!(
        !host.contains('@'),
        "the host of {raw:?} contains a user name"
    );
    let scheme = url.split_once("://").expect("the URL has a scheme").0;
    let port = match (port, scheme) {
        ("", "https") => 443,
        ("", "http") => 80,
        (port, _) => port.parse().expect("the port is a number"),
    };
    assert_eq!(destination.port(), port, "{raw:?}");
    assert!(rules.allows_port(port), "{raw:?}");
    match destination.scheme() {
        Scheme::Https => assert_eq!(scheme, "https"),
        Scheme::Http => assert!(rules.allow_http && scheme == "http", "{raw:?}"),
    }
    assert!(destination.request_target().starts_with('/'), "{raw:?}");
    let rebuilt = [
        scheme,
        "://",
        destination.authority(),
        destination.request_target(),
    ]
    .concat();
    assert_eq!(rebuilt, url);

    let ours = |_| Ok::<_, ()>(false);
    match destination.host() {
        Host::Ip(ip) => {
            assert_eq!(rules.vet(*ip), Ok(()), "{raw:?}");
            assert_eq!(rules.is_self_call(*ip, port, ours), Ok(false), "{raw:?}");
        }
        Host::Name(name) => {
            assert_eq!(name, host, "{raw:?}");
            assert!(!name.ends_with('.') && name.len() <= 253, "{raw:?}");
        }
    }
    if is_default {
        check_with_second_parser(raw, &destination, host, port);
    }
}

/// The second parser checks the canonical form.
fn check_with_second_parser(raw: &str, destination: &Destination, host: &str, port: u16) {
    assert_eq!(destination.scheme(), Scheme::Https, "{raw:?}");
    assert!(!second_parser::is_closed_port(port), "{raw:?}");
    match (destination.host(), second_parser::inet_aton(host)) {
        (Host::Ip(IpAddr::V4(ip)), read) => {
            assert!(!second_parser::is_special_v4(ip.to_bits()), "{raw:?}");
            assert!(
                read == Some(ip.to_bits()) || host.starts_with("[::ffff:"),
                "{raw:?}"
            );
        }
        (Host::Ip(IpAddr::V6(ip)), read) => {
            assert!(!second_parser::is_special_v6(ip.to_bits()), "{raw:?}");
            assert_eq!(read, None, "{raw:?}");
        }
        (Host::Name(name), read) => {
            assert_eq!(
                read, None,
                "{raw:?}: the C library parses {host} as an address"
            );
            assert!(!second_parser::is_inside_name(name), "{raw:?}");
        }
    }
}

/// The second parser checks the text as written, as a careless program would read it.
fn check_as_written(raw: &str) {
    let (host, _) = second_parser::host_and_port(raw).expect("the URL has a host");
    let host = second_parser::unescaped(host).expect("the host is UTF-8");
    if let Some(bits) = second_parser::inet_aton(&host) {
        assert!(!second_parser::is_special_v4(bits), "{raw:?}");
    }
    if host.is_ascii() && !host.starts_with('[') && second_parser::inet_aton(&host).is_none() {
        assert!(!second_parser::is_inside_name(&host), "{raw:?}");
    }
}

/// Texts that are similar enough to a URL to pass the first checks.
fn url_like() -> impl Strategy<Value = String> {
    let scheme = prop_oneof![
        6 => Just("https://".to_owned()),
        1 => prop_oneof!["http://", "HTTPS://", "https:/", "\\PC{0,3}://"],
    ];
    let host = prop_oneof![
        "[a-zA-Z0-9_-]{1,8}(\\.[a-zA-Z0-9_-]{1,8}){1,3}\\.?",
        "xn--[a-z0-9-]{1,8}\\.com",
        "[0-9]{1,3}(\\.[0-9]{1,3}){3}",
        "(0x)?[0-9a-f]{1,10}(\\.(0x|0)?[0-9a-f]{1,3}){0,3}\\.?",
        "\\[[0-9a-f:.]{2,24}\\]",
        "\\[::ffff:[0-9.]{3,15}\\]",
        "[①-⑨０-９𝟎-𝟗]{1,3}([.。．｡][0-9０-９]{1,3}){1,3}",
        "(%[0-9a-f]{2}|[a-z0-9.]){1,12}",
        "\\PC{1,12}\\.(com|local)",
        "(hooks|local\u{ad}?host|metadata)([.。](local|internal|com|svc|arpa)){0,2}[.。]?",
    ];
    let port = prop_oneof![3 => Just(String::new()), 1 => ":[0-9]{0,6}".boxed()];
    (scheme, host, port, "([/?#]\\PC{0,24})?")
        .prop_map(|(scheme, host, port, rest)| format!("{scheme}{host}{port}{rest}"))
}

/// Any rules that an operator could set.
fn any_rules() -> impl Strategy<Value = EgressRules> {
    let network = (any::<IpAddr>(), 0..=128_u8).prop_map(|(ip, length)| {
        let longest = if ip.is_ipv4() { 32 } else { 128 };
        IpNet::new(ip, length.min(longest)).unwrap().trunc()
    });
    let networks = || prop::collection::vec(network.clone(), 0..3);
    let range = (1..=u16::MAX, any::<u16>()).prop_map(|(first, more)| {
        PortRange::new(first, first.saturating_add(more % 1_000)).unwrap()
    });
    let ports = || prop::collection::vec(range.clone(), 0..3);
    let prefixes = [
        "64:ff9b::/96",
        "64:ff9b:1::/48",
        "2606:4700::/32",
        "2a00:1::/64",
    ];
    let prefix = prop::sample::select(
        prefixes
            .map(|text| text.parse::<Nat64Prefix>().unwrap())
            .to_vec(),
    );
    let own = (
        any::<IpAddr>(),
        prop::sample::select(vec![80_u16, 443, 8420]),
    );
    let own = own.prop_map(|(ip, port)| SocketAddr::new(ip, port));
    (
        (networks(), networks(), ports(), ports()),
        prop::collection::vec(prefix, 0..2),
        prop::collection::vec(own, 0..2),
        any::<bool>(),
    )
        .prop_map(
            |((allow, deny, allow_ports, deny_ports), nat64, own, http)| EgressRules {
                allow_networks: allow,
                deny_networks: deny,
                allow_ports,
                deny_ports,
                nat64_prefixes: nat64,
                allow_http: http,
                own_sockets: own,
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn any_text_gets_a_result(raw in any::<String>()) {
        check(&raw, &EgressRules::default());
        check(&format!("https://{raw}"), &EgressRules::default());
        check(&format!("https://{raw}"), &development());
        check(&format!("https://{raw}.com/"), &EgressRules::default());
    }

    #[test]
    fn accepted_urls_are_canonical_and_vetted(raw in url_like()) {
        check(&raw, &EgressRules::default());
        check(&raw, &development());
    }

    #[test]
    fn accepted_urls_follow_any_rules(raw in url_like(), rules in any_rules()) {
        check(&raw, &rules);
    }

    /// An allow list allows what it covers, and a deny list wins, by plain arithmetic.
    #[test]
    fn lists_are_parsed_as_written(
        bits in any::<u32>(),
        allow in (any::<u32>(), 0..=32_u32),
        deny in (any::<u32>(), 0..=32_u32),
        near in any::<bool>(),
    ) {
        let bits = if near { allow.0 ^ (bits >> allow.1.min(31)) } else { bits };
        let net = |(first, length): (u32, u32)| {
            IpNet::new(IpAddr::V4(first.into()), u8::try_from(length).unwrap()).unwrap()
        };
        let covers = |(first, length): (u32, u32)| length == 0 || (bits ^ first) >> (32 - length) == 0;
        let rules = EgressRules {
            allow_networks: vec![net(allow)],
            deny_networks: vec![net(deny)],
            ..EgressRules::default()
        };
        let expected = !covers(deny) && (covers(allow) || !second_parser::is_special_v4(bits));
        prop_assert_eq!(rules.vet(IpAddr::V4(bits.into())).is_ok(), expected);
    }
}
