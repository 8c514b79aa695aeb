//! Opening: several nodes at once, and errors for the operator.

use std::sync::Arc;

use posthaste_core::id::EndpointId;
use posthaste_core::lane::{LimitOverrides, RateLimit};
use posthaste_core::rng::Rng;
use posthaste_core::time::Span;
use posthaste_store::postgres::{PostgresStore, ServerAddress, ServerUrl};
use posthaste_store::{OpenError, Store, StoreSettings};
use posthaste_store_testing::contract::Recorder;

use crate::engines::{Database, IgnoreClusterEvents, settings};
use crate::fixture::{node, run};

fn open(url: ServerUrl) -> Result<PostgresStore, OpenError> {
    let store = StoreSettings::new(Rng::seeded(1));
    let hand = Arc::new(Recorder::default());
    PostgresStore::open(settings(url), store, hand, Arc::new(IgnoreClusterEvents))
}

fn refusal(url: ServerUrl) -> OpenError {
    open(url).err().expect("it does not open")
}

#[test]
fn nodes_that_start_at_once_share_one_new_database() {
    let database = Database::create_empty();
    let nodes: Vec<_> = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| open(database.url()).expect("it opens")))
            .collect();
        let started = starts.into_iter().map(|start| start.join());
        started.map(|node| node.expect("no panic")).collect()
    });
    assert_eq!(database.run("SELECT count(*) FROM nodes"), ["4"]);
    drop(nodes);
    assert_eq!(database.run("SELECT count(*) FROM nodes"), ["0"]);
}

/// Returns the columns and indexes of a database, including partitions.
fn layout(database: &Database) -> Vec<String> {
    database.run(
        "SELECT tablename || ': ' || indexdef FROM pg_indexes WHERE schemaname = 'public' \
         UNION ALL SELECT table_name || '.' || column_name || ': ' || data_type \
         FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1",
    )
}

#[test]
fn an_older_schema_is_migrated_with_its_data() {
    let new = Database::create_empty();
    drop(node(&new, 1));
    let database = Database::create_empty();
    database.run(include_str!("../../src/postgres/schema/first.sql"));
    // A partition that was created before its parent had all its indexes.
    database.run(
        "CREATE TABLE ended_20200101 PARTITION OF ended FOR VALUES \
         FROM ('016f5e66-e800-0000-0000-000000000000') TO ('016f638d-4400-0000-0000-000000000000')",
    );
    database.run("INSERT INTO tenants VALUES (1, 'acme', 'Acme', NULL, '{}', 0, 0, false)");
    database.run(
        "INSERT INTO endpoints VALUES (2, '00000000-0000-0000-0000-000000000005', 0, 1, 0, NULL, \
         'https://example.com/', '', '[]', NULL, 7000, 8, 0.5, 9, false, '', '', 0, '', NULL, 0, 0); \
         INSERT INTO healths VALUES (2, 0, false, '{\"revision\": 0, \
         \"consecutive_failures\": 0, \"permanent_failures\": 0, \"warned_of_refusals\": false, \
         \"exhausted_at\": []}')",
    );
    database.run("UPDATE directory SET last_no = 2, last_change = 1");
    database.run("INSERT INTO notices VALUES (7, 1, 5, 'endpoint.recovered', '{}')");
    database.run("UPDATE meta SET value = 7 WHERE name = 'last_notice'");
    let migrated = node(&database, 1);
    let read = run(migrated.store.endpoint(EndpointId(5))).expect("it reads");
    let endpoint = read.expect("it is still there").endpoint;
    let rate_limit = Some(RateLimit {
        per_second: 0.5,
        burst: 9,
    });
    let limits = LimitOverrides {
        timeout: Some(Span::from_secs(7)),
        max_in_flight: Some(8),
        rate_limit,
    };
    assert_eq!(endpoint.limits, limits, "its limits stay its own");
    assert!(endpoint.protection.is_empty());
    assert!(!endpoint.is_origin, "it gets events as before");
    let tenant = run(migrated.store.tenant(endpoint.tenant)).expect("it reads");
    assert!(tenant.expect("it is still there").sealed_keys.is_empty());
    drop(migrated);
    // Nodes of the earlier version can use it until the upgrade is finished.
    let versions = "SELECT value FROM meta WHERE name IN ('format', 'schema') ORDER BY name";
    assert_eq!(database.run(versions), ["1", "10"]);
    assert_eq!(database.run("SELECT id FROM tenants"), ["acme"]);
    // Old notifications count as processed.
    let told = "SELECT value FROM meta WHERE name = 'told'";
    assert_eq!(database.run(told), ["7"]);
    // During a rolling upgrade, nodes of the previous version continue to add notifications.
    database.run(
        "INSERT INTO notices (number, endpoint_no, at, name, detail) VALUES (1, 1, 0, 'x', '{}')",
    );
    let on_the_day = "SELECT count(*) FROM pg_indexes WHERE tablename = 'ended_20200101' \
                      AND indexdef LIKE '%endpoint_no * 16%'";
    assert_eq!(database.run(on_the_day), ["1"]);
    database.run("DROP TABLE ended_20200101");
    assert_eq!(layout(&database), layout(&new));
}

#[test]
fn open_errors_say_what_to_do() {
    let database = Database::create_empty();
    let url = database.url();
    let nowhere = ServerAddress::Unix {
        path: "/nowhere/.s.PGSQL.5432".into(),
    };
    let error = refusal(url.clone().with_address(nowhere));
    assert!(matches!(error, OpenError::Unreachable { .. }), "{error}");
    let error = refusal(url.clone().with_database("there_is_none"));
    assert!(matches!(error, OpenError::NoSuchDatabase { .. }), "{error}");
    assert!(
        error.to_string().contains("CREATE DATABASE there_is_none"),
        "{error}"
    );
    drop(node(&database, 1));
    // A later version has added to it, and waits for the nodes of this version to be replaced.
    database.run("UPDATE meta SET value = 99 WHERE name = 'schema'");
    drop(node(&database, 2));
    database.run("UPDATE meta SET value = 99 WHERE name = 'format'");
    let error = refusal(url.clone());
    assert!(
        matches!(
            error,
            OpenError::DatabaseTooNew {
                found: 99,
                known: 10,
                ..
            }
        ),
        "{error}"
    );
    let message = error.to_string();
    assert!(message.contains("schema version 99"), "{message}");
    assert!(message.contains("up to 10"), "{message}");
}

#[test]
fn tables_of_another_program_are_left_alone() {
    let database = Database::create_empty();
    database.run("CREATE TABLE events (what text)");
    let error = refusal(database.url());
    assert!(
        matches!(error, OpenError::ForeignDatabase { .. }),
        "{error}"
    );
    assert_eq!(
        database.run("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"),
        ["1"]
    );
}
