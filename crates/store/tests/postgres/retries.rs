//! The number of tries of an operation, and when it fails.

use posthaste_store::{Store, StoreError};

use crate::engines::Database;
use crate::fixture::{NOW, event, node, run};

#[test]
fn a_failing_operation_is_not_retried_with_every_other() {
    let database = Database::create();
    let node = node(&database, 1);
    node.create_tenant_and_endpoint();
    // A sequence also counts tries that are rolled back. While the first operation is tried, the others collect.
    database.run(
        "CREATE SEQUENCE tries; \
         CREATE FUNCTION stand_in_the_way() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         PERFORM nextval('tries'), pg_sleep(0.02); \
         RAISE EXCEPTION 'the lock is taken' USING ERRCODE = '55P03'; END $$; \
         CREATE TRIGGER in_the_way BEFORE INSERT ON events FOR EACH STATEMENT \
         EXECUTE FUNCTION stand_in_the_way()",
    );
    let answers: Vec<_> = (0..40)
        .map(|_| node.store.accept(NOW, vec![event(None)]))
        .collect();
    for answer in answers {
        assert!(matches!(run(answer), Err(StoreError::Unavailable(_))));
    }
    let tries: u32 = database.run("SELECT last_value FROM tries")[0]
        .parse()
        .expect("a number");
    assert!(tries <= 100, "{tries} tries");
    database.run("DROP TRIGGER in_the_way ON events");
    node.accept(event(None));
}

#[test]
fn a_constantly_changing_directory_is_locked() {
    let database = Database::create();
    let node = node(&database, 1);
    node.create_tenant_and_endpoint();
    // A node that does not hold the directory lock always finds that the directory has changed.
    database.run(
        "CREATE OR REPLACE FUNCTION guard(known bigint, me bigint, held smallint[], epochs bigint[]) \
         RETURNS void LANGUAGE plpgsql AS $$ BEGIN \
         IF known IS NOT NULL AND NOT EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' \
         AND pid = pg_backend_pid() AND granted) THEN \
         RAISE EXCEPTION 'the directory has changed' USING ERRCODE = 'PH001'; END IF; END $$",
    );
    assert!(node.accept(event(None)).is_new);
    assert_eq!(node.hand.take().len(), 1);
}

#[test]
fn lost_statements_are_prepared_again() {
    let database = Database::create();
    let node = node(&database, 1);
    node.create_tenant_and_endpoint();
    node.accept(event(None));
    // From now on a statement returns another type, as after a migration.
    database.run("ALTER TABLE tenants ALTER COLUMN policy TYPE varchar");
    database.run("UPDATE directory SET last_change = last_change + 100000");
    assert!(node.accept(event(None)).is_new);
}
