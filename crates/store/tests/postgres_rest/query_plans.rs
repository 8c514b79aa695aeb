//! Query plans: finding the rows of one tenant does not scan the rows of others.

use posthaste_core::id::EndpointId;
use posthaste_core::time::Span;
use posthaste_store::{
    AuditFilter, AuditLog, AuditScope, DeliveryFilter, EventFilter, Lists, PageRequest,
    ReplayFilter, ReplayScope, Retention, Store, StoredStatus, TenantObject, TenantSelection,
};

use crate::fixture::{DAY, Fixture, MIDNIGHT, at, id, run};

/// Number of rows of the large tenant in each table.
const CROWD: u64 = 60_000;
/// More rows than all queries here together need to read.
const MOST: u64 = 6_000;
const DAYS: u64 = 6;

/// Fills the tables with rows of the large tenant, and a few of acme between them.
fn fill(fixture: &Fixture) {
    fixture.add_tenant("crowd", None);
    fixture.add_endpoint(9, "crowd");
    for day in 0..DAYS {
        fixture.send(at(day * DAY));
    }
    fixture.database.run(&format!(
        "CREATE FUNCTION made(n bigint, salt bigint) RETURNS uuid LANGUAGE sql AS $$ SELECT \
         (lpad(to_hex({MIDNIGHT} + n * {step}), 12, '0') || '7' || lpad(to_hex(salt), 3, '0') || \
         lpad(to_hex(n), 16, '8'))::uuid $$; \
         CREATE TABLE whose AS SELECT n, e.no AS endpoint_no, e.tenant_no, \
         {MIDNIGHT} + n * {step} AS created_at FROM generate_series(1, {CROWD}) AS n \
         JOIN endpoints e ON e.id = CASE WHEN n % 500 = 0 \
         THEN '00000000-0000-0000-0000-000000000001'::uuid \
         ELSE '00000000-0000-0000-0000-000000000009'::uuid END; \
         INSERT INTO events SELECT made(n, 1), tenant_no, created_at, NULL, NULL, false, 'a.b', NULL, \
         NULL, '', '' FROM whose; \
         INSERT INTO ended SELECT made(n, 2), made(n, 1), endpoint_no, tenant_no, created_at, \
         created_at, created_at, created_at, NULL, NULL, 1, 1, CASE WHEN n % 1000 = 0 THEN 3 ELSE 2 END, \
         NULL, NULL, 'a.b', NULL, NULL FROM whose; \
         INSERT INTO waiting SELECT made(n, 3), made(n, 1), endpoint_no, tenant_no, created_at, \
         created_at, created_at, created_at, NULL, NULL, 1, 1, CASE WHEN n % 5000 = 0 THEN 1 ELSE 0 END, \
         0, NULL, 'a.b', NULL, NULL FROM whose; \
         INSERT INTO tally SELECT endpoint_no, 31, count(*), 0 FROM whose GROUP BY 1; \
         UPDATE tally SET dead = 60 WHERE slot = 31; \
         UPDATE ended SET reason = 0 WHERE status = 3; \
         INSERT INTO audit SELECT made(n, 4), w.created_at, 'admin', NULL, 0, NULL, 'a', t.id, t.no, '/', \
         NULL, NULL FROM whose w JOIN tenants t ON t.no = w.tenant_no; \
         INSERT INTO passes SELECT made(n, 5), decode(lpad(to_hex(n), 64, '0'), 'hex'), tenant_no, NULL, \
         created_at, created_at + {forever} FROM whose; \
         DROP TABLE whose; ANALYZE",
        step = DAYS * DAY / (CROWD + 1),
        forever = 99 * DAY,
    ));
}

/// Runs every kind of query of a small tenant.
fn ask_everything(fixture: &Fixture) {
    let none = DeliveryFilter::default;
    let endpoint = Some(EndpointId(1));
    let (since, until) = (Some(at(DAY)), Some(at(3 * DAY)));
    let by_status = |status| DeliveryFilter {
        status: Some(status),
        ..none()
    };
    for filter in [
        none(),
        by_status(StoredStatus::Failed),
        by_status(StoredStatus::Succeeded),
        by_status(StoredStatus::Pending),
        DeliveryFilter { endpoint, ..none() },
        DeliveryFilter {
            since,
            until,
            ..none()
        },
    ] {
        let page = PageRequest {
            limit: 20,
            before: None,
        };
        let found = run(fixture.store.deliveries(id("acme"), filter.clone(), page));
        assert_eq!(found.expect("deliveries").items.len(), 20, "{filter:?}");
    }
    let filter = EventFilter {
        since,
        until,
        ..EventFilter::default()
    };
    let page = PageRequest {
        limit: 20,
        before: None,
    };
    let found = run(fixture.store.events(id("acme"), filter, page));
    assert_eq!(found.expect("events").items.len(), 20);
    run_typical_requests(fixture);
    let replay = ReplayFilter {
        endpoint: None,
        event_type: None,
        error_kind: None,
        since: None,
        until: None,
        scope: ReplayScope::Ended(StoredStatus::Failed),
    };
    let replay = run(fixture.store.create_replay(at(9 * DAY), id("acme"), replay));
    let replay = replay.expect("it begins");
    assert_eq!(replay.total, 60);
    run(fixture.store.step_replay(at(9 * DAY), replay.id, 20)).expect("it goes on");
    assert_eq!(
        run(fixture
            .store
            .retrying_since(TenantSelection::All, at(9 * DAY), 99)),
        Ok(12)
    );
    let others = TenantSelection::Except(id("crowd"));
    let others = run(fixture.store.retrying_since(others, at(9 * DAY), 99));
    assert_eq!(others, Ok(12));
    let retention = Retention {
        payloads: Some(Span::from_hours(1)),
        attempts: Some(Span::from_hours(1)),
        ..Retention::all(Span::from_days(1), 20)
    };
    run(fixture.store.step_retention(at(9 * DAY), retention)).expect("it tidies");
    run(fixture.store.counts()).expect("counts");
}

/// Runs the queries of the dashboard.
fn run_typical_requests(fixture: &Fixture) {
    let now = at(9 * DAY);
    for of in [
        AuditScope::All,
        AuditScope::AnyWithId(id("acme")),
        AuditScope::Tenant(id("acme")),
    ] {
        let filter = AuditFilter {
            of,
            since: Some(at(DAY)),
            until: Some(at(3 * DAY)),
        };
        let page = PageRequest {
            limit: 20,
            before: None,
        };
        let found = run(fixture.store.audit(filter.clone(), page));
        assert_eq!(found.expect("entries").items.len(), 20, "{filter:?}");
    }
    let page = PageRequest {
        limit: 20,
        before: None,
    };
    let found = run(fixture.store.sessions(now, id("acme"), page)).expect("passes");
    assert_eq!(found.items.len(), 20);
    let hash = found.items[0].hash;
    let session = run(fixture.store.session(now, hash)).expect("it reads");
    assert_eq!(session.map(|session| session.id), Some(found.items[0].id));
    let page = PageRequest {
        limit: 1,
        before: None,
    };
    let newest = fixture
        .store
        .deliveries(id("acme"), DeliveryFilter::default(), page);
    let newest = run(newest).expect("a delivery").items.remove(0).delivery;
    for named in [
        TenantObject::Delivery(newest.id()),
        TenantObject::Event(newest.facts().event),
        TenantObject::Endpoint(newest.facts().endpoint),
    ] {
        assert_eq!(run(fixture.store.tenant_of(named)), Ok(Some(id("acme"))));
    }
}

#[test]
fn a_small_tenant_does_not_read_rows_of_large_ones() {
    let fixture = Fixture::acme();
    fill(&fixture);
    run(fixture.store.close()).expect("it closes");
    let database = fixture.database.clone();
    drop(fixture);
    wait_for_quiet(&database);
    database.run("SELECT pg_stat_reset()");
    let fixture = Fixture::again(&database);
    ask_everything(&fixture);
    run(fixture.store.close()).expect("it closes");
    drop(fixture);
    wait_for_quiet(&database);
    for tables in ["waiting", "ended%", "events%", "audit", "passes"] {
        let read = database.run(&format!(
            "SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::bigint FROM pg_stat_user_tables \
             WHERE relname LIKE '{tables}'"
        ));
        let read: u64 = read[0].parse().expect("a number");
        assert!(read < MOST, "{read} rows of {tables} were read");
    }
}

/// Waits until the other connections are closed, because their reads are counted only then.
pub(crate) fn wait_for_quiet(database: &crate::engines::Database) {
    for _ in 0..600 {
        let others = database.run(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
             AND pid <> pg_backend_pid() AND backend_type = 'client backend'",
        );
        if others == ["0"] {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("a session is still connected");
}
