//! Plans in the configuration file: limits, errors, and that only the file can set them.

use std::fs;
use std::path::Path;

use posthaste_core::time::Span;
use posthaste_store::Limits;

use super::ConfigSources;

#[test]
fn a_plan_sets_only_the_limits_it_names() {
    let config = ConfigSources::new()
        .file("[plans.free]\nendpoints = 0\nretention = '7d'\n[plans.pro-2]\n")
        .load()
        .expect("valid");
    let plans = config.plans();
    let names: Vec<&str> = plans.named.keys().map(String::as_str).collect();
    assert_eq!(names, ["free", "pro-2"]);
    let free = Limits {
        endpoints: Some(0),
        retention: Some(Span::from_days(7)),
        ..Limits::default()
    };
    assert_eq!(plans.named["free"], free);
    assert_eq!(plans.named["pro-2"], Limits::default());
    assert_eq!(*config.api_settings().plans, plans);
}

#[test]
fn every_error_in_a_plan_is_reported_with_its_source() {
    let errors = ConfigSources::new()
        .file(
            "[plans.free]\nendpoints = -1\nevents = 5\nretention = 'long'\n\
             [plans.Gold]\n[plans.\"a b\"]\n[plans.wide]\npayload_bytes = 5\nin_flight = 0\n",
        )
        .errors();
    let expected = [
        ("FILE line 5, plans.Gold: ", "lower-case letters"),
        ("FILE line 6, plans.a b: ", "lower-case letters"),
        ("FILE line 2, plans.free.endpoints: ", "whole number from 0"),
        ("FILE line 4, plans.free.retention: ", "\"250ms\""),
        ("FILE line 3, plans.free.events: ", "events_per_month"),
        ("FILE line 9, plans.wide.in_flight: ", "whole number from 1"),
    ];
    for (origin, remedy) in expected {
        let found = errors.iter().find(|line| line.starts_with(origin));
        let found = found.unwrap_or_else(|| panic!("{origin} is missing in {errors:#?}"));
        assert!(found.contains(remedy), "{found}");
    }
    assert_eq!(errors.len(), expected.len(), "{errors:#?}");
    let errors = ConfigSources::new().file("plans = 'free'\n").errors();
    assert!(errors[0].contains("[plans.free]"), "{errors:?}");
}

#[test]
fn a_payload_limit_above_the_body_limit_is_an_error() {
    let errors = ConfigSources::new()
        .file("[limits]\nbatch_body_bytes = 2048\n[plans.wide]\npayload_bytes = 2049\n")
        .errors();
    assert!(
        errors[0].starts_with("plans.wide.payload_bytes: "),
        "{errors:?}"
    );
    assert!(errors[0].contains("limits.batch_body_bytes"), "{errors:?}");
}

#[test]
fn plans_cannot_be_set_by_variables_or_flags() {
    let sources = ConfigSources::new().variable("POSTHASTE_PLANS_FREE_ENDPOINTS", "5");
    let config = sources.load().expect("a configuration");
    assert!(config.plans.is_empty());
    assert_eq!(
        config.warnings().len(),
        1,
        "the variable causes one warning"
    );
    let errors = ConfigSources::new()
        .flags(["--set", "plans.free.endpoints=5"])
        .errors();
    assert!(errors[0].contains("must be set in the file"), "{errors:?}");
}

#[test]
fn the_example_plans_of_the_default_file_are_valid() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config.default.toml");
    let text = fs::read_to_string(path).expect("config.default.toml");
    let shown: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("#     "))
        .skip_while(|line| !line.starts_with("[plans."))
        .collect();
    let config = ConfigSources::new()
        .file(shown.join("\n"))
        .load()
        .expect("valid");
    let free = serde_json::to_value(config.plans["free"]).expect("limits");
    let unsaid: Vec<&String> = free
        .as_object()
        .expect("an object")
        .iter()
        .filter(|(_, value)| value.is_null())
        .map(|(name, _)| name)
        .collect();
    assert!(unsaid.is_empty(), "not shown: {unsaid:?}");
    assert!(config.plans.contains_key("pro"));
}
