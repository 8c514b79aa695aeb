//! `posthaste outbox sql` and `posthaste outbox check`.

use std::process::Command;

use posthaste_testbed::{Database, without_settings};
use serde_json::Value;

use super::fixture::{Outbox, Store, printed_sql};

/// Runs `posthaste outbox check`, and returns its exit code and output.
fn check(outbox: &Outbox, more: &[&str]) -> (Option<i32>, String) {
    let mut command = without_settings(Command::new(env!("CARGO_BIN_EXE_posthaste")));
    command.args(["outbox", "check", "--config"]);
    let output = command.arg(outbox.file()).args(more).output();
    let output = output.expect("the program can be started");
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8(printed).expect("text");
    (output.status.code(), printed)
}

/// Returns the states of the checks, by subject.
fn states(printed: &str) -> Vec<(String, String)> {
    let line = printed.lines().next().expect("a line");
    let report: Value = serde_json::from_str(line).expect("JSON");
    let checks = report["checks"].as_array().expect("a list");
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let states = checks.iter();
    states
        .map(|check| (text(&check["subject"]), text(&check["state"])))
        .collect()
}

fn state_of(printed: &str, subject: &str) -> String {
    let states = states(printed);
    let found = states.iter().find(|(name, _)| name == subject);
    found.map_or_else(|| "absent".to_owned(), |(_, state)| state.clone())
}

#[test]
fn the_printed_sql_may_be_run_again_and_passes_the_check() {
    let outbox = Outbox::new(Store::Sqlite);
    outbox.insert(1..=2);
    outbox.database.query(&printed_sql(&[]));
    assert_eq!(outbox.waiting(), 2, "existing rows stay");
    let (code, printed) = check(&outbox, &["--json"]);
    assert_eq!(code, Some(0), "{printed}");
    let states = states(&printed);
    let subjects: Vec<&str> = states.iter().map(|(subject, _)| subject.as_str()).collect();
    let expected = [
        "connection",
        "table",
        "columns",
        "permissions",
        "index",
        "trigger",
        "rows",
        "trial",
        "notify",
    ];
    assert_eq!(subjects, expected);
    assert!(states.iter().all(|(_, state)| state == "ok"), "{printed}");
    assert_eq!(outbox.waiting(), 2, "the check changes nothing");
    let (code, printed) = check(&outbox, &["orders"]);
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("2 waiting, 0 with an error"), "{printed}");
    let (code, printed) = check(&outbox, &["billing"]);
    assert_eq!(code, Some(2), "{printed}");
}

#[test]
fn the_check_names_what_is_missing() {
    let outbox = Outbox::new(Store::Sqlite);
    let database = &outbox.database;
    database.query("ALTER TABLE posthaste_outbox DISABLE TRIGGER USER");
    database.query("DROP INDEX posthaste_outbox_waiting");
    let (code, printed) = check(&outbox, &["--json"]);
    assert_eq!(code, Some(0), "slow, and works: {printed}");
    assert_eq!(state_of(&printed, "trigger"), "warning");
    assert_eq!(state_of(&printed, "index"), "warning");

    database.query("ALTER TABLE posthaste_outbox DROP error, ALTER deliver_at TYPE timestamp");
    let (code, printed) = check(&outbox, &[]);
    assert_eq!(code, Some(1), "{printed}");
    assert!(printed.contains("error is missing (text)"), "{printed}");
    let wrong = "deliver_at is timestamp without time zone and must be timestamp with time zone";
    assert!(printed.contains(wrong), "{printed}");

    database.query("DROP TABLE posthaste_outbox");
    let (code, printed) = check(&outbox, &[]);
    assert_eq!(code, Some(1), "{printed}");
    assert!(printed.contains("posthaste outbox sql"), "{printed}");
}

#[test]
fn the_check_names_missing_permissions() {
    let database = Database::empty();
    let role = format!(
        "reader_{}",
        database.number("SELECT oid::bigint FROM pg_database WHERE datname = current_database()")
    );
    database.query(&format!("CREATE ROLE {role} LOGIN PASSWORD 'hunter2'"));
    let (head, rest) = database
        .url()
        .split_once("://")
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .expect("a URL");
    let place = rest.rsplit('@').next().expect("a host");
    let url = format!("{head}://{role}:hunter2@{place}");
    let outbox = Outbox::via(database, &url, Store::Sqlite, "tenant = 'acme'");
    for (grant, lacks) in [
        ("", "SELECT, UPDATE, DELETE"),
        ("SELECT", "UPDATE, DELETE"),
        ("UPDATE", "DELETE"),
    ] {
        if !grant.is_empty() {
            outbox
                .database
                .query(&format!("GRANT {grant} ON posthaste_outbox TO {role}"));
        }
        let (code, printed) = check(&outbox, &[]);
        assert_eq!(code, Some(1), "{printed}");
        let wanted = format!("{role} lacks {lacks}: run `GRANT {lacks} ON");
        assert!(printed.contains(&wanted), "{printed}");
        assert!(!printed.contains("hunter2"), "{printed}");
    }
    outbox
        .database
        .query(&format!("GRANT DELETE ON posthaste_outbox TO {role}"));
    let (code, printed) = check(&outbox, &[]);
    assert_eq!(code, Some(0), "{printed}");
    outbox
        .database
        .query(&format!("DROP OWNED BY {role}; DROP ROLE {role}"));
}

#[test]
fn the_check_reports_a_database_that_is_away() {
    let url = format!(
        "postgres://u:hunter2@{}/shop",
        crate::fixture::unused_address()
    );
    let outbox = Outbox::via(Database::empty(), &url, Store::Sqlite, "");
    let (code, printed) = check(&outbox, &[]);
    assert_eq!(code, Some(1), "{printed}");
    assert!(printed.contains("cannot reach"), "{printed}");
    assert!(!printed.contains("hunter2"), "{printed}");
}
