//! Migration of stats: buckets of schema version 4 get estimates for the counters that version 5 added.

use posthaste_core::time::Timestamp;
use posthaste_store::{BucketWidth, StatCounters, StatsStore, Store, SubjectScope};

use crate::fixture::{Fixture, WITHOUT_OWNER_EMAILS, open, run};

/// Returns the statements that remove the columns that schema version 5 added.
fn without_protection() -> String {
    let migration = include_str!("../../src/sqlite/fifth.sql");
    let added = migration
        .lines()
        .filter_map(|line| line.strip_prefix("ALTER TABLE "));
    let added = added.filter_map(|rest| rest.split_once(" ADD COLUMN "));
    let dropped = added.map(|(table, rest)| {
        let column = rest.split(' ').next().expect("a name");
        format!("ALTER TABLE {table} DROP COLUMN {column};")
    });
    dropped.collect()
}

#[test]
fn older_stats_are_migrated_with_estimates() {
    let fixture = Fixture::acme();
    run(fixture.store.close()).unwrap();
    let conn = rusqlite::Connection::open(fixture.path()).unwrap();
    conn.execute_batch(WITHOUT_OWNER_EMAILS).unwrap();
    conn.execute_batch("DROP TABLE fan_outs").unwrap();
    conn.execute_batch(&without_protection()).unwrap();
    conn.execute_batch(
        "INSERT INTO figures (width, bucket, scope, attempts, retries, second_attempts, \
         second_successes, succeeded, failed, latency_micros, slowest_micros) VALUES \
         (0, 60000, 0, 16, 6, 3, 2, 9, 1, 70, 7), \
         (0, 120000, 0, 40, 39, 30, 0, 0, 2, 80, 8), \
         (0, 180000, 0, 5, 0, 0, 0, 5, 0, 90, 9)",
    )
    .unwrap();
    conn.pragma_update(None, "user_version", 4).unwrap();
    drop(conn);
    let store = open(&fixture.path()).unwrap();
    let stats =
        run(store.stats(SubjectScope::Everything, BucketWidth::Minute, Timestamp(0))).unwrap();
    let counters: Vec<StatCounters> = stats.into_iter().map(|(_, counters)| counters).collect();
    let expected = [
        // 16 attempts for 9 successes, as before; three of ten deliveries had a second attempt.
        StatCounters {
            attempts: 16,
            retries: 6,
            retried_deliveries: 3,
            second_attempts: 3,
            second_successes: 2,
            succeeded: 9,
            success_attempts: 16,
            failed: 1,
            latency_micros: 70,
            slowest_micros: 7,
        },
        // No more retried deliveries than first attempts, and no attempts of successes without a success.
        StatCounters {
            attempts: 40,
            retries: 39,
            retried_deliveries: 1,
            second_attempts: 30,
            second_successes: 0,
            succeeded: 0,
            success_attempts: 0,
            failed: 2,
            latency_micros: 80,
            slowest_micros: 8,
        },
        StatCounters {
            attempts: 5,
            succeeded: 5,
            success_attempts: 5,
            latency_micros: 90,
            slowest_micros: 9,
            ..StatCounters::default()
        },
    ];
    assert_eq!(counters, expected);
}
