//! Nodes of the version before use the database until the upgrade is finished.

use std::collections::BTreeSet;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use posthaste_core::cluster::FormatLevel;
use posthaste_core::delivery::{DeadReason, Delivery, State};
use posthaste_core::lane::{Health, StoredTrip, TripReason};
use posthaste_core::rng::Rng;
use posthaste_core::time::Span;
use posthaste_store::postgres::PostgresStore;
use posthaste_store::{HandOver, HandedOver, Store, StoreError, StoreSettings, Written};

use crate::engines::{Database, IgnoreClusterEvents, settings};
use crate::fixture::{HERE, NOW, Node, event, node_with, record, run, wait_for_lock};

/// Registers a node as 0.1 does, and returns its number. It wants no shards.
const REGISTER_OLD: &str = "SELECT enter(0::smallint, 'old', 60000)";

/// A database of 0.1.
fn database_of_0_1() -> Database {
    let database = Database::create_empty();
    for migration in [
        include_str!("../../src/postgres/schema/first.sql"),
        include_str!("../../src/postgres/schema/second.sql"),
        include_str!("../../src/postgres/schema/third.sql"),
    ] {
        database.run(migration);
    }
    database.run("UPDATE meta SET value = 3 WHERE name = 'format'");
    database
}

fn open(database: &Database, finish_after: Span) -> Node {
    let mut settings = settings(database.url());
    settings.finish_upgrade_after = finish_after;
    node_with(settings, 1)
}

fn required(database: &Database) -> String {
    database.run("SELECT value FROM meta WHERE name = 'format'")[0].clone()
}

fn wait_until(holds: impl Fn() -> bool) {
    while !holds() {
        std::thread::yield_now();
    }
}

#[test]
fn an_upgrade_is_finished_when_the_last_older_node_has_left() {
    let database = database_of_0_1();
    let old = database.run(REGISTER_OLD)[0].clone();
    let new = open(&database, Span::ZERO);
    // The node that was registered before the migration counts as one of 0.1, and so does one that registers after it.
    let other = database.run(REGISTER_OLD)[0].clone();
    let schema = "SELECT value FROM meta WHERE name = 'schema'";
    assert_eq!(database.run(schema), ["10"]);
    let looks = "SELECT count(*) FROM nodes WHERE format = 3";
    assert_eq!(database.run(looks), ["2"]);
    let leave = |node: &str| database.run(&format!("SELECT strike_off({node}, NULL, 0)"));
    leave(&old);
    assert_eq!(new.store.format_level(), FormatLevel::V0_1);
    assert_eq!(required(&database), "3");
    // A node that is not replaced yet keeps the upgrade open, whatever a newer node thinks.
    assert_eq!(database.run("SELECT finish_upgrade(10)"), ["3"]);
    leave(&other);
    wait_until(|| new.store.format_level() == FormatLevel::NEWEST);
    assert_eq!(required(&database), "10");
    let refused = "DO $$ BEGIN PERFORM enter(1::smallint, 'old', 60000); RAISE 'registered'; \
                   EXCEPTION WHEN SQLSTATE 'PH004' THEN NULL; END $$";
    database.run(refused);
    drop(new);
    // A new database needs no upgrade.
    let database = Database::create_empty();
    let new = open(&database, Span::from_days(1));
    assert_eq!(new.store.format_level(), FormatLevel::NEWEST);
    assert_eq!(required(&database), "10");
}

#[test]
fn a_migration_waits_for_a_backup_without_blocking_running_nodes() {
    let database = database_of_0_1();
    let old = database.run(REGISTER_OLD)[0].clone();
    // As `pg_dump` does.
    let backup = database.hold("LOCK TABLE tenants IN ACCESS SHARE MODE");
    // The migration does not wait for a table of another program.
    database.run("CREATE TABLE orders (id bigint)");
    let other = database.hold("LOCK TABLE orders IN ACCESS EXCLUSIVE MODE");
    std::thread::scope(|scope| {
        let new = scope.spawn(|| open(&database, Span::ZERO));
        wait_for_lock(&database, "ALTER TABLE");
        // Each look at the transactions shows that the migration waits, and asks for no lock meanwhile.
        let look = "SELECT query_start FROM pg_stat_activity WHERE datname = current_database() \
                    AND application_name = 'posthaste' AND query LIKE '%FROM pg_locks%'";
        let asks = "SELECT pid FROM pg_locks WHERE NOT granted AND locktype = 'relation' \
                    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        let mut looks = BTreeSet::new();
        while looks.len() < 4 {
            assert!(!new.is_finished(), "it waits for the backup");
            let seen = database.run(look);
            if !looks.is_empty() {
                assert!(database.run(asks).is_empty(), "it asks for a lock");
            }
            looks.extend(seen);
        }
        backup.finish();
        drop(new.join().expect("it opens"));
        other.finish();
    });
    let schema = "SELECT value FROM meta WHERE name = 'schema'";
    assert_eq!(database.run(schema), ["10"]);
    assert_eq!(
        database.run("SELECT count(*) FROM nodes WHERE format = 3"),
        ["1"]
    );
    database.run(&format!("SELECT strike_off({old}, NULL, 0)"));
}

#[test]
fn a_trip_is_stored_in_a_form_that_older_nodes_can_read() {
    let database = database_of_0_1();
    database.run(REGISTER_OLD);
    let node = open(&database, Span::ZERO);
    node.create_tenant_and_endpoint();
    let reason = || {
        let health = database.run("SELECT health::json #>> '{trip,reason}' FROM healths");
        health[0].clone()
    };
    let mut revision = 0;
    let mut trip = |node: &Node| {
        node.accept(event(None));
        let fetched = run(node.store.fetch(HERE, NOW, 1, false)).expect("the store can be read");
        revision += 1;
        let health = Health {
            revision,
            trip: Some(StoredTrip {
                until: NOW,
                reason: TripReason::Refusals,
                failed_probes: 0,
            }),
            ..Health::default()
        };
        let ended = |waiting: &Delivery| {
            let reason = DeadReason::Permanent;
            Delivery::restore(waiting.facts().clone(), State::Failed { at: NOW, reason })
        };
        let written = record(&node.store, &ended(&fetched.deliveries[0]), Some(health));
        assert_eq!(written, Ok(Written::Applied));
    };
    trip(&node);
    assert_eq!(reason(), "consecutive_failures");
    database.run("SELECT strike_off(no, NULL, 0) FROM nodes WHERE name = 'old'");
    wait_until(|| node.store.format_level() == FormatLevel::NEWEST);
    trip(&node);
    assert_eq!(reason(), "refusals");
}

/// Passes the permanent failure of a store on.
struct Failures(mpsc::Sender<StoreError>);

impl HandOver for Failures {
    fn accepted(&self, _: Vec<HandedOver>) {}

    fn broken(&self, why: &StoreError) {
        self.0.send(why.clone()).expect("the test waits");
    }
}

#[test]
fn a_removed_node_that_is_too_old_by_now_fails_for_good() {
    let database = Database::create();
    let (sender, failures) = mpsc::channel();
    let store = PostgresStore::open(
        settings(database.url()),
        StoreSettings::new(Rng::seeded(1)),
        Arc::new(Failures(sender)),
        Arc::new(IgnoreClusterEvents),
    );
    let store = store.expect("it opens");
    // As if the node had been frozen while the others were replaced by later versions and finished the upgrade.
    database.run(
        "BEGIN; UPDATE meta SET value = 99 WHERE name = 'format'; \
         SELECT strike_off(no, NULL, 0) FROM nodes; COMMIT",
    );
    let failure = failures.recv_timeout(Duration::from_secs(30));
    let failure = failure.expect("it does not try for ever");
    let StoreError::DatabaseTooNew(why) = &failure else {
        panic!("{failure}");
    };
    assert!(why.contains("it needs schema version 99"), "{why}");
    assert!(why.contains("start the newer version"), "{why}");
    assert_eq!(run(store.probe(NOW)), Err(failure));
    assert_eq!(database.run("SELECT count(*) FROM nodes"), ["0"]);
}

#[test]
fn a_node_takes_part_from_its_first_heartbeat_on() {
    let database = Database::create();
    database.run(
        "CREATE TABLE registered (works boolean); \
         CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         INSERT INTO registered VALUES (NEW.works); RETURN NEW; END $$; \
         CREATE TRIGGER note AFTER INSERT ON beats FOR EACH ROW EXECUTE FUNCTION note()",
    );
    let node = open(&database, Span::ZERO);
    // Until the first heartbeat reports its capacity, the other nodes make no room for it.
    assert_eq!(database.run("SELECT works FROM registered"), ["f"]);
    assert_eq!(database.run("SELECT works FROM beats"), ["t"]);
    assert_eq!(node.store.owned_shards().len(), 256);
}
