//! Host names that resolve to addresses of every kind.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::json;

use super::dns::{NO_SUCH_NAME, NOT_FOR_YOU, NameServer, Reply, SERVER_FAILED, addresses, parsed};
use super::docs::Table;
use super::namespace::{NAME_IN_HOSTS, inside};
use super::program::{ExpectedOutcome, PrivateNetwork};

/// Shorter than the timeout of the machine's resolver.
const SHORT: &str = "1s";
/// Longer than the timeout of the machine's resolver.
const LONG: &str = "30s";

struct Case {
    what: &'static str,
    name: &'static str,
    replies: Vec<Reply>,
    timeout: &'static str,
    end: ExpectedOutcome,
}

fn case(what: &'static str, name: &'static str, reply: Reply, end: ExpectedOutcome) -> Case {
    Case {
        what,
        name,
        replies: vec![reply],
        timeout: LONG,
        end,
    }
}

/// A thousand public addresses, with a private one at this position if given.
fn thousand(private: Option<(usize, &str)>) -> Reply {
    let mut list: Vec<IpAddr> = (0..1_000_u16)
        .map(|n| IpAddr::from([45, 61, (n >> 8) as u8, n as u8]))
        .collect();
    if let Some((place, address)) = private {
        list[place] = parsed(address)[0];
    }
    Reply::Addresses(list)
}

#[rustfmt::skip]
fn cases() -> Vec<Case> {
    use ExpectedOutcome::{Delivered, Exhausted, Unsafe};
    let dns = Exhausted("dns");
    vec![
        case("one public IPv4 address", "v4.customer.com", addresses("45.60.0.1"), Delivered),
        case("one public IPv6 address", "v6.customer.com", addresses("2606:4700:60::1"), Delivered),
        case("public addresses of both kinds", "both.customer.com", addresses("45.60.0.2 2606:4700:60::2"), Delivered),
        case("no such name (NXDOMAIN)", "nxdomain.customer.com", NO_SUCH_NAME, dns),
        case("no address (NODATA)", "nodata.customer.com", addresses(""), dns),
        case("the server failed (SERVFAIL)", "servfail.customer.com", SERVER_FAILED, dns),
        case("the server refuses (REFUSED)", "refused.customer.com", NOT_FOR_YOU, dns),
        Case { timeout: SHORT, ..case("no answer within the endpoint's time", "silent.customer.com", Reply::Silence, Exhausted("timeout")) },
        case("no answer within the resolver's time", "mute.customer.com", Reply::Silence, dns),
        case("an answer that is cut off", "garbage.customer.com", Reply::Garbage, dns),
        case("an answer to another question", "wrong.customer.com", Reply::WrongId(parsed("45.60.0.66")), dns),
        case("a forged private answer before the right one", "forged.customer.com", Reply::Forged(parsed("10.6.6.6"), parsed("45.60.0.3")), Delivered),
        case("a thousand public addresses, over TCP", "thousand.customer.com", thousand(None), Delivered),
        case("a thousand addresses, the last but one private", "needle.customer.com", thousand(Some((998, "192.168.66.1"))), Unsafe),
        case("a private address", "private.customer.com", addresses("10.66.0.1"), Unsafe),
        case("this machine", "loopback.customer.com", addresses("127.0.0.66"), Unsafe),
        case("this machine, IPv6", "loopback6.customer.com", addresses("::1"), Unsafe),
        case("the unspecified address", "unspecified.customer.com", addresses("0.0.0.0"), Unsafe),
        case("the cloud's metadata service", "metadata.customer.com", addresses("169.254.169.254"), Unsafe),
        case("the cloud's metadata service, IPv6", "metadata6.customer.com", addresses("fd00:ec2::254"), Unsafe),
        case("a link-local address", "link.customer.com", addresses("fe80::66"), Unsafe),
        case("public first, private second", "mixed.customer.com", addresses("45.60.0.4 10.66.0.2"), Unsafe),
        case("private first, public second", "mixed2.customer.com", addresses("10.66.0.3 45.60.0.5"), Unsafe),
        case("public IPv4, private IPv6", "split.customer.com", addresses("45.60.0.6 fd00:66::1"), Unsafe),
        case("private IPv4, public IPv6", "split4.customer.com", addresses("10.66.0.4 2606:4700:60::6"), Unsafe),
        case("a private IPv4 address written as IPv6", "mapped.customer.com", addresses("::ffff:10.66.0.5"), Unsafe),
        case("a public IPv4 address written as IPv6", "mapped-public.customer.com", addresses("::ffff:45.60.0.7"), Delivered),
        case("a private IPv4 address behind NAT64", "nat64.customer.com", addresses("64:ff9b::a42:6"), Unsafe),
        case("a private IPv4 address behind 6to4", "sixtofour.customer.com", addresses("2002:a42:7::1"), Unsafe),
        case("an alias (CNAME) of a public name", "alias.customer.com", Reply::Alias("v4.customer.com"), Delivered),
        case("an alias of an alias of a public name", "chain.customer.com", Reply::Alias("alias.customer.com"), Delivered),
        case("an alias of a private name", "alias-private.customer.com", Reply::Alias("private.customer.com"), Unsafe),
        case("an alias of an internal name", "alias-internal.customer.com", Reply::Alias("metadata.google.internal"), Unsafe),
        case("an alias of localhost", "alias-localhost.customer.com", Reply::Alias("localhost"), Unsafe),
        case("an alias of itself", "alias-loop.customer.com", Reply::Alias("alias-loop.customer.com"), dns),
        case("an alias of nothing", "alias-nothing.customer.com", Reply::Alias("nxdomain.customer.com"), dns),
        case("a private address in the machine's hosts file", NAME_IN_HOSTS, NO_SUCH_NAME, Unsafe),
        case("exists only below a search domain", "searched.customer.com", NO_SUCH_NAME, dns),
    ]
}

fn send_inner_names(names: &NameServer) {
    names.set_replies("metadata.google.internal", &[addresses("169.254.169.254")]);
    names.set_replies("localhost", &[addresses("127.0.0.1")]);
}

/// The addresses at which a delivered case may have ended.
fn reachable(names: &NameServer, case: &Case) -> Vec<IpAddr> {
    let mut reply = case.replies[0].clone();
    while let Reply::Alias(next) = reply {
        let found = cases().into_iter().find(|other| other.name == next);
        reply = found.expect("a case").replies[0].clone();
    }
    let list = match reply {
        Reply::Addresses(list) | Reply::Forged(_, list) => list,
        Reply::Alias(_) | Reply::Code(_) | Reply::Silence | Reply::WrongId(_) | Reply::Garbage => {
            panic!("{} cannot be delivered, {:?}", case.name, names.asked())
        }
    };
    list.iter().map(IpAddr::to_canonical).collect()
}

#[test]
fn a_name_is_called_only_if_all_its_addresses_are_public() {
    let test = "names::a_name_is_called_only_if_all_its_addresses_are_public";
    inside(test, every_name);
}

/// As in most containers: the receiver is unreachable. That counts as its failure, not as a lack of local ports.
#[test]
fn a_machine_without_ipv6_does_not_reach_it() {
    let test = "names::a_machine_without_ipv6_does_not_reach_it";
    inside(test, || async {
        let mut network = PrivateNetwork::start().await;
        let off = "/proc/sys/net/ipv6/conf/all/disable_ipv6";
        std::fs::write(off, "1").expect("the world is ours");
        network.api.tenant("acme").await;
        let both = "both.customer.com";
        network
            .names
            .set_replies(both, &[addresses("2606:4700:60::1 45.60.0.1")]);
        let only = "only.customer.com";
        network
            .names
            .set_replies(only, &[addresses("2606:4700:60::1 2606:4700:60::2")]);
        let mut endpoints = Vec::new();
        for (host, end) in [
            (both, ExpectedOutcome::Delivered),
            (only, ExpectedOutcome::Exhausted("connection")),
            (
                "[2606:4700:60::3]",
                ExpectedOutcome::Exhausted("connection"),
            ),
        ] {
            let url = format!("https://{host}/hook");
            endpoints.push((network.endpoint("acme", &url, json!({})).await, end));
        }
        let ended = network.deliver("acme", "one", &json!({})).await;
        for (endpoint, end) in endpoints {
            ended[&endpoint].expect("no IPv6", end);
        }
    });
}

async fn every_name() {
    let mut network = PrivateNetwork::start().await;
    send_inner_names(&network.names);
    network.api.tenant("acme").await;
    let mut endpoints = Vec::new();
    for case in cases() {
        network.names.set_replies(case.name, &case.replies);
        let url = format!("https://{}/hook", case.name);
        let fields = json!({"timeout": case.timeout});
        endpoints.push(network.endpoint("acme", &url, fields).await);
    }
    assert_eq!(
        network.names.asked(),
        [""; 0],
        "registering makes no lookup"
    );
    let ended = network.deliver("acme", "one", &json!({})).await;

    let columns = ["DNS answer", "Expected", "Result"];
    let mut table = Table::new("names", module_path!(), &columns);
    let mut may_be_visited = BTreeSet::new();
    for (case, endpoint) in cases().iter().zip(&endpoints) {
        let ended = &ended[endpoint];
        ended.expect(case.what, case.end);
        if case.end == ExpectedOutcome::Delivered {
            may_be_visited.extend(reachable(&network.names, case));
        }
        table.row(&[case.what.to_owned(), case.end.shown(), ended.shown()]);
    }
    let mut names: BTreeSet<String> = cases().iter().map(|case| case.name.to_owned()).collect();
    names.remove(NAME_IN_HOSTS);
    let asked: BTreeSet<String> = network.names.asked().into_iter().collect();
    assert_eq!(asked, names, "no search domain is tried");
    assert!(
        network.names.over_tcp() > 0,
        "what is cut is asked for again"
    );
    let visited = network.outside.records().addresses();
    let strangers: Vec<_> = visited.difference(&may_be_visited).collect();
    assert!(
        strangers.is_empty(),
        "no other receiver gets a request: {strangers:?}"
    );
    network.assert_no_address_visible("acme").await;
    rebind(&mut network, &mut table).await;
    table.publish();
}

/// DNS rebinding: a name with one address when it is registered and another when it is called.
async fn rebind(network: &mut PrivateNetwork, table: &mut Table) {
    let name = "turncoat.customer.com";
    network.names.set_replies(name, &[addresses("45.60.0.9")]);
    network.api.tenant("rebound").await;
    let url = format!("https://{name}/hook");
    network.endpoint("rebound", &url, json!({})).await;
    network.names.set_replies(name, &[addresses("10.66.0.9")]);
    let ended = network.deliver_one("rebound").await;
    let what = "public when registered, private when called";
    ended.expect(what, ExpectedOutcome::Unsafe);
    table.row(&[
        what.to_owned(),
        ExpectedOutcome::Unsafe.shown(),
        ended.shown(),
    ]);

    // The receiver closes each connection, so that every delivery resolves the name again.
    let name = "weathercock.customer.com";
    let here = parsed("45.60.0.10")[0];
    let conduct = super::outside::Behaviour::Secured(|line| Box::pin(async { Some(line) }));
    network.outside.set_behaviour(here, conduct);
    let (public, private) = (addresses("45.60.0.10"), addresses("10.66.0.10"));
    network.names.alternate(name, &[public, private]);
    network.api.tenant("weather").await;
    let url = format!("https://{name}/hook");
    network.endpoint("weather", &url, json!({})).await;
    for (nth, end) in [
        ("first", ExpectedOutcome::Delivered),
        ("second", ExpectedOutcome::Unsafe),
        ("third", ExpectedOutcome::Delivered),
        ("fourth", ExpectedOutcome::Unsafe),
    ] {
        let ended = network.deliver_one("weather").await;
        let what = format!("public and private in turn: the {nth} connection");
        ended.expect(&what, end);
        table.row(&[what, end.shown(), ended.shown()]);
    }
    assert_eq!(network.outside.records().visits_to(here).len(), 2);
    let inner = |address: &IpAddr| matches!(address, IpAddr::V4(v4) if v4.is_private());
    let visited = network.outside.records().addresses();
    assert!(!visited.iter().any(inner), "{visited:?}");
    network.assert_no_address_visible("rebound").await;
    network.assert_no_address_visible("weather").await;
}
