//! Settings for the allowed destinations of webhooks.

use std::path::PathBuf;

use posthaste::config::StoreLocation;
use posthaste_core::policy::Preset;

use super::ConfigSources;

#[test]
fn every_error_in_the_egress_rules_is_reported_with_a_correction() {
    let sources = ConfigSources::new()
        .file(
            "allow_port = [0, 443, 65536, '9000-8000', 'http', 1.5, true]\n\
             deny_port = 25\n\
             nat64_prefix = ['64:ff9b::/95', '64:ff9b::1/96',\n'10.0.0.0/8', '::ffff:0:0/96', 64]\n",
        )
        .variable("POSTHASTE_DENY_PORT", "25, 8000-8100, -1")
        .flags(["--set", "nat64_prefix=2a00:0:0:0:ff00::/96"]);
    let port = "must be a port from 1 to 65535, or a range such as \"9000-9100\"";
    let expected = [
        ("FILE line 1, allow_port[0]: ", port),
        ("FILE line 1, allow_port[2]: ", port),
        ("FILE line 1, allow_port[3]: ", port),
        ("FILE line 1, allow_port[4]: ", port),
        ("FILE line 1, allow_port[5]: ", port),
        ("FILE line 1, allow_port[6]: ", port),
        ("FILE line 2, deny_port: ", "must be a list"),
        (
            "FILE line 3, nat64_prefix[0]: ",
            "must be 32, 40, 48, 56, 64 or 96",
        ),
        (
            "FILE line 3, nat64_prefix[1]: ",
            "did you mean 64:ff9b::/96?",
        ),
        ("FILE line 4, nat64_prefix[2]: ", "such as \"64:ff9b::/96\""),
        ("FILE line 4, nat64_prefix[3]: ", "the well-known prefix is"),
        ("FILE line 4, nat64_prefix[4]: ", "such as \"64:ff9b::/96\""),
        ("POSTHASTE_DENY_PORT, [2]: ", port),
        ("--set nat64_prefix, [0]: ", "zeros in bits 64 to 71"),
    ];
    let errors = sources.errors();
    for ((origin, remedy), line) in expected.iter().zip(&errors) {
        assert!(line.starts_with(origin), "{line}\nshould begin {origin}");
        assert!(line.contains(remedy), "{line}\nshould say {remedy}");
    }
    assert_eq!(errors.len(), expected.len(), "{errors:#?}");
}

#[test]
fn the_egress_rules_are_as_configured() {
    let config = ConfigSources::new()
        .file("allow_port = [5432, '9000-9100']\ndeny_port = ['443']\nnat64_prefix = ['64:ff9b::/96']\n")
        .load()
        .expect("valid");
    let rules = config.api_settings().egress_rules;
    let open = [443, 5432, 6379, 8443, 9092].map(|port| rules.allows_port(port));
    assert_eq!(open, [false, true, false, true, true]);
    assert_eq!(
        rules.vet("64:ff9b::808:808".parse().expect("an address")),
        Ok(())
    );
    assert!(rules.own_sockets.is_empty(), "known only to who has bound");
}

#[test]
fn development_flags_allow_loopback_and_http() {
    let config = ConfigSources::new()
        .flags([
            "--allow-network",
            "127.0.0.0/8",
            "--allow-network",
            "::1",
            "--allow-http",
        ])
        .flags(["--listen", "127.0.0.1:0", "--store", "sqlite:/tmp/x.db"])
        .load()
        .expect("valid");
    let networks: Vec<String> = config
        .egress
        .allow_networks
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(networks, ["127.0.0.0/8", "::1/128"]);
    assert!(config.egress.allow_http);
    assert_eq!(config.listen.port(), 0);
    assert_eq!(
        config.store,
        StoreLocation::Sqlite(PathBuf::from("/tmp/x.db"))
    );
    assert_eq!(config.retry_policy, Preset::Recommended.policy());
}
