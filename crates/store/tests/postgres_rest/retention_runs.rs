//! Retention runs over large days: many tenants, changing retention settings, and concurrent locks.

use std::thread::JoinHandle;

use posthaste_core::id::EndpointId;
use posthaste_core::time::{Span, Timestamp};
use posthaste_store::{
    Limits, ReplaceResult, ReplayFilter, ReplayScope, ReplayStatus, Retention, RetentionStepResult,
    RetryResult, Store, Tenant,
};

use crate::fixture::{DAY, Fixture, HOUR, at, event, id, run};

/// Opens a store in which every non-empty day is large.
fn large() -> Fixture {
    Fixture::acme_with(|settings| settings.large_day_bytes = 1)
}

fn days(days: u64) -> Option<Span> {
    Some(Span::from_days(days))
}

/// Keeps everything for 30 days, payloads for one day, with `step` events per step.
fn a_month(step: usize) -> Retention {
    Retention {
        payloads: days(1),
        ..Retention::all(Span::from_days(30), step)
    }
}

fn left(fixture: &Fixture, tenant: &str) -> u64 {
    fixture.count(&format!(
        "SELECT count(*) FROM events v JOIN tenants t ON t.no = v.tenant_no WHERE t.id = '{tenant}'"
    ))
}

fn emptied(fixture: &Fixture) -> u64 {
    fixture.count("SELECT count(*) FROM events WHERE payload_removed_at IS NOT NULL")
}

fn step(fixture: &Fixture, now: Timestamp, retention: &Retention) -> RetentionStepResult {
    run(fixture.store.step_retention(now, retention.clone())).expect("it tidies")
}

/// Changes the retention period of a tenant.
fn keep(fixture: &Fixture, name: &str, retention: Span) {
    let tenant = run(fixture.store.tenant(id(name))).expect("it reads");
    let tenant = Tenant {
        limits: Limits {
            retention: Some(retention),
            ..Limits::default()
        },
        ..tenant.expect("it is there")
    };
    let replaced = run(fixture.store.replace_tenant(at(DAY), tenant));
    assert_eq!(replaced, Ok(ReplaceResult::Done));
}

#[test]
fn many_short_retentions_are_each_applied_in_time() {
    let fixture = large();
    for no in 0..70 {
        let retention = if no < 60 { 3 + no % 3 } else { 90 };
        fixture.add_tenant(&format!("t{no}"), days(retention));
        for n in 0..3 {
            fixture.accept(at(n * 8 * HOUR), event(&format!("t{no}")));
        }
    }
    let retention = a_month(50);
    let mut seen = Vec::new();
    for now in [
        DAY,
        DAY + 8 * HOUR,
        2 * DAY,
        3 * DAY,
        4 * DAY,
        6 * DAY,
        89 * DAY,
        91 * DAY,
    ] {
        let step = fixture.run_retention_as(at(now), &retention);
        seen.push((step.payloads, step.events));
        assert_eq!(
            fixture.run_retention_as(at(now), &retention),
            RetentionStepResult::default(),
            "{now}"
        );
    }
    let expected = [
        (70, 0),
        (70, 0),
        (70, 0),
        // Of the 60 tenants, 20 each keep their events for three, four and five days.
        (0, 20),
        (0, 60),
        (0, 100),
        (0, 0),
        (0, 30),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn a_retention_change_between_two_steps_takes_effect() {
    let fixture = large();
    fixture.add_tenant("hasty", days(1));
    fixture.add_tenant("patient", days(90));
    for n in 0..8 {
        for tenant in ["hasty", "patient"] {
            fixture.accept(at(n * HOUR), event(tenant));
        }
    }
    let retention = Retention::all(Span::from_days(30), 2);
    let now = at(3 * DAY);
    while left(&fixture, "hasty") == 8 {
        assert!(step(&fixture, now, &retention).more);
    }
    assert_eq!(left(&fixture, "hasty"), 6);
    // Events that are not deleted yet are kept from now on, even if another node changed the setting.
    let another = fixture.another(9);
    keep(&another, "hasty", Span::from_days(60));
    fixture.run_retention_as(now, &retention);
    assert_eq!(left(&fixture, "hasty"), 6);
    assert_eq!(fixture.run_retention_as(at(50 * DAY), &retention).events, 0);
    // A shorter period takes effect at once. The events do not wait for the rest of their day, although nothing of
    // that day was due.
    keep(&another, "patient", Span::from_days(40));
    assert_eq!(fixture.run_retention_as(at(50 * DAY), &retention).events, 8);
    assert_eq!(left(&fixture, "patient"), 0);
    assert_eq!(fixture.run_retention_as(at(61 * DAY), &retention).events, 6);
}

#[test]
fn a_tenant_deleted_during_the_scan_gets_the_server_retention() {
    let fixture = large();
    fixture.add_tenant("hasty", days(1));
    fixture.add_tenant("patient", days(90));
    for n in 0..8 {
        fixture.accept(at(n * HOUR), event("hasty"));
        fixture.accept(at(n * HOUR), event("patient"));
    }
    let retention = Retention::all(Span::from_days(30), 2);
    while left(&fixture, "hasty") == 8 {
        assert!(step(&fixture, at(3 * DAY), &retention).more);
    }
    let deleted = run(fixture.store.delete_tenant(at(3 * DAY), id("hasty")));
    assert!(deleted.expect("it is deleted").is_some());
    // A new tenant with the same id is a different one.
    fixture.add_tenant("hasty", days(1));
    fixture.run_retention_as(at(3 * DAY), &retention);
    assert_eq!(left(&fixture, "hasty"), 6);
    assert_eq!(fixture.run_retention_as(at(31 * DAY), &retention).events, 6);
    assert_eq!(left(&fixture, "patient"), 8);
}

/// Locks rows until the table `enough` exists.
fn holding(fixture: &Fixture, rows: &str) -> JoinHandle<Vec<String>> {
    let hold = format!(
        "BEGIN; {rows}; \
         DO $$ BEGIN LOOP EXIT WHEN EXISTS (SELECT 1 FROM pg_class WHERE relname = 'enough'); \
         PERFORM pg_sleep(0.005); END LOOP; END $$; COMMIT"
    );
    let database = fixture.database.clone();
    let holding = std::thread::spawn(move || database.run(&hold));
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                 AND query LIKE 'BEGIN%enough%' AND wait_event = 'PgSleep'";
    while fixture.count(waits) == 0 {
        std::thread::yield_now();
    }
    holding
}

/// Rows locked by another transaction are skipped, because otherwise all writes of this node would wait for them too.
#[test]
fn locked_rows_are_skipped() {
    for small in [false, true] {
        // The first lock is that of a replay which creates deliveries of the event, the second that of a manual
        // retry.
        for rows in [
            "SELECT 1 FROM events FOR KEY SHARE",
            "SELECT 1 FROM ended FOR UPDATE",
        ] {
            let fixture = if small { Fixture::acme() } else { large() };
            fixture.add_tenant("patient", days(900));
            fixture.accept(at(HOUR), event("patient"));
            let sent = fixture.send(at(HOUR));
            fixture.answer(sent.deliveries[0].id, at(HOUR), 503);
            fixture.answer(sent.deliveries[0].id, at(HOUR), 400);
            let holding = holding(&fixture, rows);
            let retention = Retention::all(Span::from_days(2), 10);
            let gone = fixture.run_retention_as(at(9 * DAY), &retention).events;
            assert_eq!(gone, 0, "{rows}");
            fixture.database.run("CREATE TABLE enough ()");
            holding.join().expect("it commits");
            assert_eq!(
                fixture.run_retention_as(at(9 * DAY), &retention).events,
                1,
                "{rows}"
            );
        }
    }
}

#[test]
fn a_delivery_under_manual_retry_keeps_its_payload() {
    let fixture = large();
    let sent = fixture.send(at(HOUR));
    fixture.answer(sent.deliveries[0].id, at(HOUR), 400);
    // The lock of a manual retry.
    let holding = holding(&fixture, "SELECT 1 FROM events FOR KEY SHARE");
    assert_eq!(
        fixture.run_retention_as(at(3 * DAY), &a_month(10)).payloads,
        0
    );
    fixture.database.run("CREATE TABLE enough ()");
    holding.join().expect("it commits");
    assert_eq!(
        fixture.run_retention_as(at(3 * DAY), &a_month(10)).payloads,
        1
    );
    let retried = run(fixture
        .store
        .retry(at(3 * DAY), id("acme"), sent.deliveries[0].id));
    assert_eq!(retried, Ok(RetryResult::PayloadDeleted));
    assert_eq!(emptied(&fixture), 1);
}

#[test]
fn many_replayed_deliveries_are_deleted_in_steps_before_the_drop() {
    const MANY: usize = 1_500;
    let fixture = large();
    fixture.add_tenant("late", None);
    let events = vec![event("late"); MANY];
    assert!(run(fixture.store.accept(at(HOUR), events)).is_ok());
    let endpoint: EndpointId = fixture.add_endpoint(2, "late");
    let missed = ReplayFilter {
        endpoint: Some(endpoint),
        event_type: None,
        error_kind: None,
        since: None,
        until: None,
        scope: ReplayScope::Missed,
    };
    let week = at(7 * DAY);
    let replay = run(fixture.store.create_replay(week, id("late"), missed)).expect("it begins");
    loop {
        let step = run(fixture.store.step_replay(week, replay.id, 500)).expect("it goes on");
        if step.expect("a step").replay.status == ReplayStatus::Done {
            break;
        }
    }
    fixture.database.run(
        "WITH gone AS (DELETE FROM waiting RETURNING *) \
         INSERT INTO ended SELECT id, event_id, endpoint_no, tenant_no, created_at, created_at, first_due, \
         give_up_at, delay_ms, ordering, 0, 0, 2, NULL, NULL, type, NULL, NULL FROM gone",
    );
    let added = || fixture.count("SELECT count(*) FROM added") as usize;
    assert_eq!(added(), MANY);
    let retention = Retention::all(Span::from_days(2), 10);
    while added() == MANY {
        step(&fixture, at(9 * DAY + HOUR), &retention);
    }
    assert!(added() > 0, "not all at once");
    assert_eq!(left(&fixture, "late") as usize, MANY);
    assert_eq!(
        fixture
            .run_retention_as(at(9 * DAY + HOUR), &retention)
            .events,
        MANY
    );
    assert_eq!(added(), 0);
    assert_eq!(fixture.count("SELECT count(*) FROM ended"), 0);
}

#[test]
fn a_run_with_a_clock_ahead_leaves_no_rows_behind() {
    for fixture in [large(), Fixture::acme()] {
        let sent = fixture.send(at(HOUR));
        let retention = Retention::all(Span::from_days(2), 10);
        assert_eq!(
            fixture.run_retention_as(at(900 * DAY), &retention).events,
            0
        );
        fixture.answer(sent.deliveries[0].id, at(2 * HOUR), 200);
        assert_eq!(fixture.run_retention_as(at(4 * DAY), &retention).events, 1);
    }
}

/// A server that was off for a month finds many expired days.
#[test]
fn after_a_long_downtime_every_expired_partition_is_dropped() {
    let fixture = large();
    for day in 0..30 {
        let sent = fixture.send(at(day * DAY));
        fixture.answer(sent.deliveries[0].id, at(day * DAY), 200);
    }
    let later = fixture.another_large(9);
    let retention = Retention::all(Span::from_days(7), 10);
    assert_eq!(later.run_retention_as(at(60 * DAY), &retention).events, 30);
    for table in ["events", "ended", "attempts"] {
        assert_eq!(fixture.partitions(table), Vec::<String>::new(), "{table}");
    }
}

#[test]
fn concurrent_retention_runs_delete_everything_once() {
    let fixture = large();
    let another = fixture.another_large(9);
    for day in 0..6 {
        for hour in 0..4 {
            let sent = fixture.send(at(day * DAY + hour * HOUR));
            fixture.answer(sent.deliveries[0].id, at(day * DAY + hour * HOUR), 400);
        }
    }
    let retention = a_month(3);
    let step_retention = |node: &Fixture| {
        let mut emptied = 0;
        for now in [at(9 * DAY), at(90 * DAY)] {
            for _ in 0..60 {
                // A step fails if the other node has dropped its partition in the meantime. The next step tries
                // again.
                let step = run(node.store.step_retention(now, retention.clone()));
                emptied += step.map_or(0, |step| step.payloads);
            }
        }
        emptied
    };
    let emptied: usize = std::thread::scope(|scope| {
        let retention_step = [&fixture, &another].map(|node| scope.spawn(|| step_retention(node)));
        let emptied = retention_step.map(|node| node.join().expect("it tidies"));
        emptied.iter().sum()
    });
    assert!(emptied <= 24, "{emptied}");
    assert_eq!(fixture.count("SELECT count(*) FROM events"), 0);
    let counts = run(fixture.store.counts()).expect("counts");
    assert_eq!((counts.pending, counts.dead_letters), (0, 0));
}
