//! Groups of dead letters: the rows read do not depend on the number of dead letters.

use posthaste_core::classify::FailureKind;
use posthaste_store::{BoundedCount, Lists, MAX_GROUP_COUNT, PageRequest, Store};

use crate::fixture::{DAY, Fixture, MIDNIGHT, at, id, run};
use crate::query_plans::wait_for_quiet;

/// Number of dead letters in the two large groups together.
const MANY: u64 = 60_000;
const DAYS: u64 = 6;
/// Number of endpoints without dead letters.
const WELL: u64 = 2_000;

/// Creates two large groups and a small one of endpoint 1, one without a kind of endpoint 2, and many endpoints
/// without dead letters.
fn fill(fixture: &Fixture) {
    fixture.add_endpoint(2, "acme");
    for day in 0..DAYS {
        fixture.send(at(day * DAY));
    }
    fixture.database.run(&format!(
        "CREATE FUNCTION made(n bigint) RETURNS uuid LANGUAGE sql AS $$ SELECT \
         (lpad(to_hex({MIDNIGHT} + n * {step}), 12, '0') || '7002' || lpad(to_hex(n), 16, '8'))::uuid $$; \
         INSERT INTO ended SELECT made(n), made(n), e.no, e.tenant_no, {MIDNIGHT} + n * {step}, \
         {MIDNIGHT} + n * {step}, 0, 0, NULL, NULL, 1, 1, 3, 0, CASE WHEN n % 5000 = 0 THEN 4 WHEN \
         n % 999 = 0 THEN NULL ELSE (n % 2) * 7 END, 'a.b', NULL, NULL FROM generate_series(1, {MANY}) n \
         JOIN endpoints e ON e.id = CASE WHEN n % 5000 <> 0 AND n % 999 = 0 \
         THEN '00000000-0000-0000-0000-000000000002'::uuid ELSE '00000000-0000-0000-0000-000000000001'::uuid END; \
         INSERT INTO tally SELECT endpoint_no, 31, 0, count(*) FROM ended WHERE status = 3 GROUP BY 1; \
         INSERT INTO endpoints SELECT 1000000 + n, made(n), shard, tenant_no, standing, reason, url, description, \
         event_types, policy, timeout_ms, max_in_flight, per_second, burst, ordered, sealed_headers, \
         sealed_keys, signature_style, sealed_credentials, owner_email, created_at, revision \
         FROM endpoints, generate_series(1, {WELL}) n WHERE id = '00000000-0000-0000-0000-000000000001'; \
         INSERT INTO healths SELECT no, 0, false, (SELECT health FROM healths LIMIT 1) FROM endpoints \
         WHERE no > 1000000",
        step = DAYS * DAY / (MANY + 1)
    ));
}

#[test]
fn groups_are_counted_without_reading_every_dead_letter() {
    for analysed in [false, true] {
        let fixture = Fixture::acme();
        fill(&fixture);
        run(fixture.store.close()).expect("it closes");
        let database = fixture.database.clone();
        drop(fixture);
        wait_for_quiet(&database);
        if analysed {
            database.run("ANALYZE");
        }
        database.run("SELECT pg_stat_reset()");
        let fixture = Fixture::again(&database);
        let page = PageRequest {
            limit: 50,
            before: None,
        };
        let found = run(fixture.store.dead_letter_groups(id("acme"), None, page)).expect("groups");
        let more = BoundedCount::MoreThan(MAX_GROUP_COUNT);
        let found_groups: Vec<_> = found
            .items
            .iter()
            .map(|group| (group.endpoint.0, group.error_kind, group.count))
            .collect();
        assert_eq!(
            found_groups,
            [
                (2, None, BoundedCount::Exactly(60)),
                (1, Some(FailureKind::Http), more),
                (1, Some(FailureKind::Connection), BoundedCount::Exactly(12)),
                (1, Some(FailureKind::Unknown), more),
            ]
        );
        assert_eq!(found.next, None);
        run(fixture.store.close()).expect("it closes");
        drop(fixture);
        wait_for_quiet(&database);
        // Two groups are counted up to the limit, and each is looked up from both ends, on each day.
        let most = 2 * (MAX_GROUP_COUNT as u64 + 1) + 1_000;
        for (counted, tables) in [
            (
                "sum(seq_tup_read + coalesce(idx_tup_fetch, 0))",
                "pg_stat_user_tables",
            ),
            ("sum(idx_tup_read)", "pg_stat_user_indexes"),
        ] {
            let read = database.run(&format!(
                "SELECT {counted}::bigint FROM {tables} WHERE relname LIKE 'ended%'"
            ));
            let read: u64 = read[0].parse().expect("a number");
            assert!(read < most, "{read} rows by {tables}, analysed: {analysed}");
        }
    }
}
