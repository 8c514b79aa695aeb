//! Every test vector, registered through the API and called if it is accepted.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::json;

use super::dns::{addresses, parsed};
use super::docs::{Table, code};
use super::namespace::inside;
use super::program::{ExpectedOutcome, PrivateNetwork, once};

const VECTORS: &str = include_str!("../../../../core/tests/vectors/ssrf.tsv");

/// Addresses of the names in the vectors. All other names do not exist.
const NAMES: [(&str, &str); 10] = [
    ("hooks.customer.com", PUBLIC),
    ("xn--bcher-kva.de", PUBLIC),
    ("localhost.customer.com", PUBLIC),
    ("notlocalhost.com", PUBLIC),
    ("internal.customer.com", PUBLIC),
    ("local.customer.com", PUBLIC),
    ("169.254.169.254.nip.io", "169.254.169.254"),
    ("127.0.0.1.customer.com", "127.0.0.1"),
    ("0x7f000001.customer.com", "127.0.0.1"),
    ("customer.com", PUBLIC),
];
const PUBLIC: &str = "45.60.0.1";

struct Vector {
    expected: &'static str,
    written: &'static str,
    url: String,
}

fn vectors() -> Vec<Vector> {
    let lines = VECTORS.lines();
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let read = |line: &'static str| {
        let (expected, written) = line.split_once('\t').expect("a verdict, a tab and a URL");
        Vector {
            expected,
            written,
            url: unescape(written),
        }
    };
    lines.map(read).collect()
}

/// Resolves the four escapes that the head of the vector file explains.
fn unescape(text: &str) -> String {
    let mut plain = String::new();
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        let next = match character {
            '\\' => match characters.next() {
                Some('t') => '\t',
                Some('r') => '\r',
                Some('n') => '\n',
                Some('\\') => '\\',
                other => panic!("unknown escape {other:?} in {text}"),
            },
            other => other,
        };
        plain.push(next);
    }
    plain
}

/// Returns the host of an accepted URL, as the name server sees it.
fn host(url: &str) -> String {
    let url = url::Url::parse(url).expect("it was accepted");
    let host = url.host_str().expect("it has a host").to_owned();
    host.trim_end_matches('.').to_owned()
}

fn address_of(host: &str) -> Option<IpAddr> {
    let literal = host.trim_matches(['[', ']']).parse::<IpAddr>();
    literal.ok().map(|address| address.to_canonical())
}

#[test]
fn every_url_vector_has_its_verdict_and_accepted_ones_are_called() {
    let test = "vectors::every_url_vector_has_its_verdict_and_accepted_ones_are_called";
    inside(test, register_and_call_every_vector);
}

async fn register_and_call_every_vector() {
    let mut network = PrivateNetwork::start().await;
    for (name, list) in NAMES {
        network.names.set_replies(name, &[addresses(list)]);
    }
    network.api.tenant("acme").await;
    network.api.tenant("changing").await;
    let changing = network
        .endpoint("changing", "https://hooks.customer.com/", json!({}))
        .await;
    let changing = format!("/v1/tenants/changing/endpoints/{changing}");

    let mut accepted = Vec::new();
    let mut rows = Vec::new();
    for vector in vectors() {
        let asked = once(&vector.url, json!({}));
        let made = network.api.post("/v1/tenants/acme/endpoints", asked).await;
        let change = json!({"url": vector.url});
        let changed = network.api.call("PATCH", &changing, Some(&change)).await;
        let result = if vector.expected == "DENY" {
            assert_eq!(made.status, 422, "{}: {}", vector.written, made.body);
            assert_eq!(changed.status, 422, "{}: {}", vector.written, changed.body);
            assert_eq!(changed.body["code"], made.body["code"]);
            assert_eq!(changed.body["errors"], made.body["errors"]);
            let code = made.body["code"].as_str().expect("a code");
            assert!(["invalid_url", "unsafe_destination"].contains(&code));
            let words = made.body["errors"][0]["message"].as_str().expect("words");
            format!("422 `{code}`: {words}")
        } else {
            assert_eq!(made.status, 201, "{}: {}", vector.written, made.body);
            assert_eq!(changed.status, 200, "{}: {}", vector.written, changed.body);
            let id = made.body["id"].as_str().expect("an id").to_owned();
            accepted.push((rows.len(), id, vector.url.clone()));
            "201".to_owned()
        };
        rows.push((vector, result));
    }
    assert_eq!(
        network.names.asked(),
        [""; 0],
        "registering makes no lookup"
    );
    assert!(network.outside.records().visits.is_empty());

    let ended = network.deliver("acme", "one", &json!({"n": 1})).await;
    let mut may_be_asked = BTreeSet::new();
    let mut may_be_visited = BTreeSet::new();
    for (row, endpoint, url) in &accepted {
        let ended = &ended[endpoint];
        let host = host(url);
        let literal = address_of(&host);
        let known = NAMES.iter().find(|(name, _)| *name == host);
        let end = match (literal, known) {
            (Some(_), _) | (_, Some((_, PUBLIC))) => ExpectedOutcome::Delivered,
            (None, Some(_)) => ExpectedOutcome::Unsafe,
            (None, None) => ExpectedOutcome::Exhausted("dns"),
        };
        ended.expect(url, end);
        if end == ExpectedOutcome::Delivered {
            may_be_visited.extend(literal.or_else(|| Some(parsed(PUBLIC)[0])));
            assert_eq!(ended.snippet.as_ref(), Some(&ended.id), "its own answer");
        }
        if literal.is_none() {
            may_be_asked.insert(host);
        }
        rows[*row].1 += &format!(", then {}", ended.shown());
    }
    let asked: BTreeSet<String> = network.names.asked().into_iter().collect();
    assert_eq!(
        asked, may_be_asked,
        "literals and search domains are not asked for"
    );
    let records = network.outside.records();
    assert_eq!(
        records.addresses(),
        may_be_visited,
        "no other receiver gets a request"
    );
    for visit in &records.visits {
        let named = visit
            .name
            .as_ref()
            .is_some_and(|name| may_be_asked.contains(name));
        assert!(
            named || visit.name.is_none(),
            "the original name: {visit:?}"
        );
    }

    let mut table = Table::new("urls", module_path!(), &["URL", "Expected", "Result"]);
    for (vector, result) in &rows {
        let expected = vector.expected.to_owned();
        table.row(&[code(vector.written), expected, result.clone()]);
    }
    table.publish();
}
