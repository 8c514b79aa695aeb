//! Outboxes in the configuration file: values, errors, and that only the file can set them.

use std::fs;
use std::path::Path;

use super::ConfigSources;

#[test]
fn an_outbox_has_defaults() {
    let config = ConfigSources::new()
        .file(
            "[[outbox]]\nname = 'orders'\ndatabase = 'postgres://u:hunter2@db/shop'\n\
             [[outbox]]\nname = 'billing'\ndatabase = 'postgres://u@db/shop'\ntable = 'Billing.events'\n\
             tenant = 'acme'\nkeep = true\n",
        )
        .load()
        .expect("valid");
    let [orders, billing] = &config.outboxes[..] else {
        panic!("two outboxes, not {:?}", config.outboxes);
    };
    assert_eq!(orders.table.to_string(), "posthaste_outbox");
    assert_eq!((orders.keep, &orders.tenant), (false, &None));
    assert_eq!(billing.table.to_string(), "Billing.events");
    let tenant = billing.tenant.as_ref().map(ToString::to_string);
    assert_eq!((billing.keep, tenant.as_deref()), (true, Some("acme")));
    let shown = format!("{config:?}");
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[test]
fn every_error_in_an_outbox_is_reported_with_its_field() {
    let errors = ConfigSources::new()
        .file(
            "[[outbox]]\nname = 'Orders'\ndatabase = 'sqlite:shop.db'\ntable = 'a.b.c'\ntenant = ''\n\
             keep = 'yes'\ntenants = 'all'\n[[outbox]]\n",
        )
        .errors();
    let expected = [
        ("FILE line 2, outbox[0].name: ", "lower-case letters"),
        ("FILE line 3, outbox[0].database: ", "PostgreSQL URL"),
        ("FILE line 4, outbox[0].table: ", "name of a table"),
        ("FILE line 5, outbox[0].tenant: ", "must"),
        ("FILE line 6, outbox[0].keep: ", "true or false"),
        ("FILE line 7, outbox[0].tenants: ", "did you mean tenant?"),
        ("FILE line 8, outbox[1].name: ", "is required"),
        ("FILE line 8, outbox[1].database: ", "is required"),
    ];
    for (origin, remedy) in expected {
        let found = errors.iter().find(|line| line.starts_with(origin));
        let found = found.unwrap_or_else(|| panic!("{origin} is missing in {errors:#?}"));
        assert!(found.contains(remedy), "{found}");
    }
    assert_eq!(errors.len(), expected.len(), "{errors:#?}");
    let errors = ConfigSources::new().file("outbox = 'orders'\n").errors();
    assert!(errors[0].contains("must be a list"), "{errors:?}");
}

#[test]
fn two_outboxes_differ_in_name_and_table() {
    let outbox = |name: &str, database: &str| {
        format!("[[outbox]]\nname = '{name}'\ndatabase = 'postgres://{database}'\n")
    };
    let errors = ConfigSources::new()
        .file([outbox("a", "u:hunter2@db/x"), outbox("a", "u:other@db/x")].concat())
        .errors();
    assert_eq!(errors.len(), 2, "{errors:#?}");
    assert!(errors[0].starts_with("outbox[1].name: "), "{errors:?}");
    assert!(errors[1].starts_with("outbox[1].table: "), "{errors:?}");
    assert!(!errors.concat().contains("hunter2"), "{errors:?}");
    ConfigSources::new()
        .file([outbox("a", "u@db/x"), outbox("b", "u@db/y")].concat())
        .load()
        .expect("the same table in two databases");
}

#[test]
fn outboxes_cannot_be_set_by_variables_or_flags() {
    let sources = ConfigSources::new().variable("POSTHASTE_OUTBOX_NAME", "orders");
    let config = sources.load().expect("a configuration");
    let warnings = config.warnings();
    assert!(warnings[0].contains("[[outbox]]"), "{warnings:?}");
    let errors = ConfigSources::new()
        .flags(["--set", "outbox=orders"])
        .errors();
    assert!(errors[0].contains("[[outbox]]"), "{errors:?}");
}

#[test]
fn the_example_of_the_default_file_is_valid() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config.default.toml");
    let text = fs::read_to_string(path).expect("config.default.toml");
    let shown: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("#     "))
        .skip_while(|line| *line != "[[outbox]]")
        .collect();
    let config = ConfigSources::new()
        .file(shown.join("\n"))
        .load()
        .expect("valid");
    assert_eq!(config.outboxes.len(), 1);
    assert!(config.outboxes[0].tenant.is_some());
}
