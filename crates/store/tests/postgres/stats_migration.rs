//! Stats of nodes of 0.1: the counters that version 4 added are estimated, without a change of the rows.

use posthaste_core::time::Timestamp;
use posthaste_store::{BucketWidth, StatCounters, StatsStore, SubjectScope};

use crate::engines::Database;
use crate::fixture::{node, run};

/// An insert as nodes of the version before make it.
const INSERT: &str = "INSERT INTO figures (width, bucket, scope, attempts, retries, second_attempts, \
     second_successes, succeeded, failed, latency_micros, slowest_micros) VALUES";

#[test]
fn stats_of_older_nodes_are_read_with_estimates() {
    let database = Database::create_empty();
    database.run(include_str!("../../src/postgres/schema/first.sql"));
    database.run(include_str!("../../src/postgres/schema/second.sql"));
    database.run(include_str!("../../src/postgres/schema/third.sql"));
    database.run("UPDATE meta SET value = 3 WHERE name = 'format'");
    database.run(&format!(
        "{INSERT} (0, 60000, 0, 16, 6, 3, 2, 9, 1, 70, 7), \
         (0, 120000, 0, 40, 39, 30, 0, 0, 2, 80, 8), (0, 180000, 0, 5, 0, 0, 0, 5, 0, 90, 9)"
    ));
    let node = node(&database, 1);
    // During a rolling upgrade, nodes of the previous version continue to add stats.
    database.run(&format!("{INSERT} (0, 240000, 0, 4, 1, 1, 1, 3, 0, 10, 1)"));
    let stats = node
        .store
        .stats(SubjectScope::Everything, BucketWidth::Minute, Timestamp(0));
    let stats = run(stats).expect("the stats can be read");
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
        StatCounters {
            attempts: 4,
            retries: 1,
            retried_deliveries: 1,
            second_attempts: 1,
            second_successes: 1,
            succeeded: 3,
            success_attempts: 4,
            latency_micros: 10,
            slowest_micros: 1,
            ..StatCounters::default()
        },
    ];
    assert_eq!(counters, expected);
    // A migration that changed all rows would lock other tables for as long.
    let stored = "SELECT count(*) FROM figures WHERE retried_deliveries + success_attempts > 0";
    assert_eq!(database.run(stored), ["0"]);
}
