//! Corpus of interesting inputs.
//!
//! The lines of `corpus/urls.txt` were found by fuzzers and reviewers, or are known to have broken other parsers.
//! Each line, and each prefix of it, is parsed under three sets of rules, and every result must have the properties
//! that [`check`] requires. Lines are added and never removed.

use posthaste_core::address::EgressRules;

use crate::mutations::{unescape, vectors};
use crate::verdicts::{check, development};

const CORPUS: &str = include_str!("../corpus/urls.txt");

#[test]
fn every_corpus_line_gets_a_consistent_result() {
    let lines = CORPUS.split('\n');
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with("# "));
    let corpus: Vec<String> = lines.map(unescape).collect();
    assert!(corpus.len() > 80, "{}", corpus.len());
    let vectors = vectors().into_iter().map(|(_, url)| url);
    let wide_open = EgressRules {
        allow_networks: vec!["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()],
        allow_ports: vec!["1-65535".parse().unwrap()],
        nat64_prefixes: vec!["64:ff9b::/96".parse().unwrap()],
        own_sockets: vec!["[::]:8420".parse().unwrap()],
        allow_http: true,
        ..EgressRules::default()
    };
    for raw in corpus.into_iter().chain(vectors) {
        for rules in [&EgressRules::default(), &development(), &wide_open] {
            check(&raw, rules);
            check(&format!("https://{raw}"), rules);
            check(&format!("{raw}/"), rules);
            // Every prefix of it must give a result without a panic.
            for (at, _) in raw.char_indices().take(96) {
                check(&raw[..at], rules);
            }
        }
    }
}
