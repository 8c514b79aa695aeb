//! Every test vector keeps its result when its host is written in another way.
//!
//! `vectors/ssrf.tsv` lists URLs with their expected result. The property test rewrites the characters of each host
//! (case, percent escapes, other Unicode forms), adds a trailing dot or a port, and expects the same result.

use posthaste_core::address::{Destination, EgressRules, Host};
use proptest::prelude::*;

use crate::second_parser;

const VECTORS: &str = include_str!("../vectors/ssrf.tsv");

/// Undoes the four escapes that the head of the vector file explains.
pub(crate) fn unescape(text: &str) -> String {
    let mut plain = String::new();
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            plain.push(character);
            continue;
        }
        plain.push(match characters.next() {
            Some('t') => '\t',
            Some('r') => '\r',
            Some('n') => '\n',
            Some('\\') => '\\',
            other => panic!("unknown escape {other:?} in {text}"),
        });
    }
    plain
}

pub(crate) fn vectors() -> Vec<(&'static str, String)> {
    let lines = VECTORS.split('\n');
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (expected, url) = line
                .split_once('\t')
                .expect("the line has an expected result, a tab and a URL");
            (expected, unescape(url))
        })
        .collect()
}

fn verdict(url: &str) -> &'static str {
    match Destination::parse(url, &EgressRules::default()) {
        Ok(destination) => match destination.host() {
            Host::Ip(_) => "ALLOW",
            Host::Name(_) => "RESOLVE",
        },
        Err(_) => "DENY",
    }
}

/// A vector with a host that can be written in other ways, split into host, port and rest.
struct RewritableVector {
    expected: &'static str,
    host: String,
    port: String,
    rest: String,
}

fn rewritable_vectors() -> Vec<RewritableVector> {
    vectors()
        .into_iter()
        .filter_map(|(expected, url)| {
            let rest = url.strip_prefix("https://")?;
            let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
            let (authority, rest) = rest.split_at(end);
            let (host, port) = second_parser::host_and_port(&url)?;
            let is_plain = !authority.contains(['@', '\\', '%'])
                && !authority.contains(char::is_whitespace)
                && !authority.contains(char::is_control)
                && !host.is_empty()
                && !port.contains(':');
            is_plain.then(|| RewritableVector {
                expected,
                host: host.to_owned(),
                port: authority[host.len()..].to_owned(),
                rest: rest.to_owned(),
            })
        })
        .collect()
}

/// One character of a host, written in another way.
fn rewritten(character: char, choice: u8) -> String {
    let wide =
        |base: u32, first: u8| char::from_u32(base + u32::from(character as u8 - first)).unwrap();
    match (character, choice % 5) {
        ('a'..='z' | 'A'..='Z', 0) => swapped(character).to_string(),
        ('a'..='z' | 'A'..='Z' | '0'..='9' | '.', 1) => format!("%{:02x}", character as u32),
        ('a'..='z' | 'A'..='Z' | '0'..='9', 2) => format!("%{:02X}", character as u32),
        ('a'..='z', 3) => wide(0xff41, b'a').to_string(),
        ('A'..='Z', 3) => wide(0xff21, b'A').to_string(),
        ('0'..='9', 3) => wide(0xff10, b'0').to_string(),
        ('.', 2) => "。".to_owned(),
        ('.', 3) => "．".to_owned(),
        (character, _) => character.to_string(),
    }
}

fn swapped(character: char) -> char {
    if character.is_ascii_lowercase() {
        character.to_ascii_uppercase()
    } else {
        character.to_ascii_lowercase()
    }
}

#[test]
fn every_vector_has_its_expected_result() {
    let wrong: Vec<String> = vectors()
        .into_iter()
        .filter(|(expected, url)| verdict(url) != *expected)
        .map(|(expected, url)| format!("{url:?} should be {expected}"))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(
        vectors().len() > 650,
        "only {} vectors were read",
        vectors().len()
    );
    assert!(
        rewritable_vectors().len() > 450,
        "only {} vectors can be rewritten",
        rewritable_vectors().len()
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Each case rewrites all vectors.
    #[test]
    fn a_rewritten_vector_keeps_its_result(
        choices in prop::collection::vec(any::<u8>(), 1..64),
        dot in any::<bool>(),
        port in any::<bool>(),
    ) {
        for vector in rewritable_vectors() {
            let is_literal = vector.host.contains(['[', ']']);
            let each = vector.host.chars().zip(choices.iter().cycle());
            let mut host: String = if is_literal {
                each.map(|(c, choice)| if choice % 2 == 0 { swapped_if_letter(c) } else { c }).collect()
            } else {
                each.map(|(c, choice)| rewritten(c, *choice)).collect()
            };
            if dot && !is_literal && !vector.host.ends_with(['.', '。', '．', '｡']) {
                host.push('.');
            }
            let added = if port && vector.port.is_empty() { ":443" } else { &vector.port };
            let url = format!("https://{host}{added}{}", vector.rest);
            prop_assert_eq!(verdict(&url), vector.expected, "the result of {} differs from that of {}", url, vector.host);
        }
    }
}

fn swapped_if_letter(character: char) -> char {
    match character {
        'a'..='f' | 'A'..='F' => swapped(character),
        other => other,
    }
}
