//! `[endpoint_defaults]`, `[breaker]` and `[disable]`: limits and thresholds that endpoints inherit.
//!
//! Every invalid value is reported with its line or variable, and settings that contradict each other too.

use super::ConfigSources;

#[test]
fn invalid_protection_and_endpoint_defaults_are_all_reported() {
    let sources = ConfigSources::new()
        .file(
            "[endpoint_defaults]\n\
             timeout = '61s'\n\
             max_in_flight = 0\n\
             rate_limit = { per_second = -1, burst = 0, per_minute = 5 }\n\
             [breaker]\n\
             refusals = 0\n\
             [disable]\n\
             after = '1h'\n\
             on_gone = 'yes'\n\
             never = true\n",
        )
        .variable("POSTHASTE_DISABLE_WARN_BEFORE", "2h")
        .variable("POSTHASTE_BREAKER_REFUSALS", "many");
    let errors = sources.errors();
    let expected = [
        ("FILE line 2, endpoint_defaults.timeout: ", "from 1s to 1m"),
        ("FILE line 3, endpoint_defaults.max_in_flight: ", "from 1"),
        (
            "FILE line 4, endpoint_defaults.rate_limit.per_second: ",
            "from 0.0001",
        ),
        (
            "FILE line 4, endpoint_defaults.rate_limit.burst: ",
            "from 1",
        ),
        (
            "FILE line 4, endpoint_defaults.rate_limit.per_minute: ",
            "known fields: per_second, burst",
        ),
        ("FILE line 6, breaker.refusals: ", "from 1"),
        ("FILE line 9, disable.on_gone: ", "true or false"),
        (
            "FILE line 10, disable.never: ",
            "known fields: after, warn_before, on_gone",
        ),
        ("POSTHASTE_BREAKER_REFUSALS: ", "from 1"),
        ("disable.warn_before: ", "it is 2h, and that is 1h"),
    ];
    for ((origin, remedy), line) in expected.iter().zip(&errors) {
        assert!(line.starts_with(origin), "{line}\nshould begin {origin}");
        assert!(line.contains(remedy), "{line}\nshould say {remedy}");
    }
    assert_eq!(errors.len(), expected.len(), "{errors:#?}");
}

#[test]
fn the_default_burst_follows_the_default_rate() {
    let rate = |sources: ConfigSources| {
        let rate = sources.load().expect("valid").endpoint_defaults.limits();
        (rate.rate_limit.per_second, rate.rate_limit.burst)
    };
    assert_eq!(rate(ConfigSources::new()), (100.0, 200));
    let inline = "[endpoint_defaults]\nrate_limit = { per_second = 5 }\n";
    assert_eq!(rate(ConfigSources::new().file(inline)), (5.0, 10));
    let both = "[endpoint_defaults]\nrate_limit.per_second = 5\nrate_limit.burst = 7\n";
    let variable = "POSTHASTE_ENDPOINT_DEFAULTS_RATE_LIMIT_PER_SECOND";
    let sources = ConfigSources::new().file(both).variable(variable, "6");
    assert_eq!(rate(sources), (6.0, 7));
}
