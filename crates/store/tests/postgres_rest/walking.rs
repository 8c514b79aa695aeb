//! Retention runs over large days: many tenants, changing retention settings, and concurrent locks.

use std::thread::JoinHandle;

use posthaste_core::id::EndpointId;
use posthaste_core::time::{Span, Timestamp};
use posthaste_store::{
    Limits, ReplaceResult, ReplayFilter, ReplayScope, ReplayStatus, Retention, RetentionStepResult,
    RetryResult, Store, Tenant,
};

use crate::given::{DAY, Given, HOUR, at, event, id, run};

/// Opens a store in which every non-empty day is large.
fn large() -> Given {
    Given::acme_with(|settings| settings.large_day_bytes = 1)
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

fn left(given: &Given, tenant: &str) -> u64 {
    given.count(&format!(
        "SELECT count(*) FROM events v JOIN tenants t ON t.no = v.tenant_no WHERE t.id = '{tenant}'"
    ))
}

fn emptied(given: &Given) -> u64 {
    given.count("SELECT count(*) FROM events WHERE payload_removed_at IS NOT NULL")
}

fn step(given: &Given, now: Timestamp, retention: &Retention) -> RetentionStepResult {
    run(given.store.tidy(now, retention.clone())).expect("it tidies")
}

/// Changes the retention period of a tenant.
fn keep(given: &Given, name: &str, retention: Span) {
    let tenant = run(given.store.tenant(id(name))).expect("it reads");
    let tenant = Tenant {
        limits: Limits {
            retention: Some(retention),
            ..Limits::default()
        },
        ..tenant.expect("it is there")
    };
    let replaced = run(given.store.replace_tenant(at(DAY), tenant));
    assert_eq!(replaced, Ok(ReplaceResult::Done));
}

#[test]
fn where_many_go_early_each_goes_at_its_own_time() {
    let given = large();
    for no in 0..70 {
        let retention = if no < 60 { 3 + no % 3 } else { 90 };
        given.add_tenant(&format!("t{no}"), days(retention));
        for n in 0..3 {
            given.accept(at(n * 8 * HOUR), event(&format!("t{no}")));
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
        let tidied = given.tidy_as(at(now), &retention);
        seen.push((tidied.payloads, tidied.events));
        assert_eq!(
            given.tidy_as(at(now), &retention),
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
fn whose_mind_changes_between_two_steps_is_heard() {
    let given = large();
    given.add_tenant("hasty", days(1));
    given.add_tenant("patient", days(90));
    for n in 0..8 {
        for tenant in ["hasty", "patient"] {
            given.accept(at(n * HOUR), event(tenant));
        }
    }
    let retention = Retention::all(Span::from_days(30), 2);
    let now = at(3 * DAY);
    while left(&given, "hasty") == 8 {
        assert!(step(&given, now, &retention).more);
    }
    assert_eq!(left(&given, "hasty"), 6);
    // Events that are not deleted yet are kept from now on, even if another node changed the setting.
    let another = given.another(9);
    keep(&another, "hasty", Span::from_days(60));
    given.tidy_as(now, &retention);
    assert_eq!(left(&given, "hasty"), 6);
    assert_eq!(given.tidy_as(at(50 * DAY), &retention).events, 0);
    // A shorter period takes effect at once. The events do not wait for the rest of their day, although nothing of
    // that day was due.
    keep(&another, "patient", Span::from_days(40));
    assert_eq!(given.tidy_as(at(50 * DAY), &retention).events, 8);
    assert_eq!(left(&given, "patient"), 0);
    assert_eq!(given.tidy_as(at(61 * DAY), &retention).events, 6);
}

#[test]
fn a_tenant_that_is_deleted_while_its_day_is_walked_through_keeps_as_the_server_says() {
    let given = large();
    given.add_tenant("hasty", days(1));
    given.add_tenant("patient", days(90));
    for n in 0..8 {
        given.accept(at(n * HOUR), event("hasty"));
        given.accept(at(n * HOUR), event("patient"));
    }
    let retention = Retention::all(Span::from_days(30), 2);
    while left(&given, "hasty") == 8 {
        assert!(step(&given, at(3 * DAY), &retention).more);
    }
    let deleted = run(given.store.delete_tenant(at(3 * DAY), id("hasty")));
    assert!(deleted.expect("it is deleted").is_some());
    // A new tenant with the same id is a different one.
    given.add_tenant("hasty", days(1));
    given.tidy_as(at(3 * DAY), &retention);
    assert_eq!(left(&given, "hasty"), 6);
    assert_eq!(given.tidy_as(at(31 * DAY), &retention).events, 6);
    assert_eq!(left(&given, "patient"), 8);
}

/// Locks rows until the table `enough` exists.
fn holding(given: &Given, rows: &str) -> JoinHandle<Vec<String>> {
    let hold = format!(
        "BEGIN; {rows}; \
         DO $$ BEGIN LOOP EXIT WHEN EXISTS (SELECT 1 FROM pg_class WHERE relname = 'enough'); \
         PERFORM pg_sleep(0.005); END LOOP; END $$; COMMIT"
    );
    let database = given.database.clone();
    let holding = std::thread::spawn(move || database.run(&hold));
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                 AND query LIKE 'BEGIN%enough%' AND wait_event = 'PgSleep'";
    while given.count(waits) == 0 {
        std::thread::yield_now();
    }
    holding
}

/// Rows locked by another transaction are skipped, because otherwise all writes of this node would wait for them too.
#[test]
fn nobody_waits_for_what_is_in_other_hands() {
    for small in [false, true] {
        // The first lock is that of a replay which creates deliveries of the event, the second that of a manual
        // retry.
        for rows in [
            "SELECT 1 FROM events FOR KEY SHARE",
            "SELECT 1 FROM ended FOR UPDATE",
        ] {
            let given = if small { Given::acme() } else { large() };
            given.add_tenant("patient", days(900));
            given.accept(at(HOUR), event("patient"));
            let sent = given.send(at(HOUR));
            given.answer(sent.deliveries[0].id, at(HOUR), 503);
            given.answer(sent.deliveries[0].id, at(HOUR), 400);
            let holding = holding(&given, rows);
            let retention = Retention::all(Span::from_days(2), 10);
            let gone = given.tidy_as(at(9 * DAY), &retention).events;
            assert_eq!(gone, 0, "{rows}");
            given.database.run("CREATE TABLE enough ()");
            holding.join().expect("it commits");
            assert_eq!(given.tidy_as(at(9 * DAY), &retention).events, 1, "{rows}");
        }
    }
}

#[test]
fn what_is_being_sent_again_keeps_what_it_carries() {
    let given = large();
    let sent = given.send(at(HOUR));
    given.answer(sent.deliveries[0].id, at(HOUR), 400);
    // The lock of a manual retry.
    let holding = holding(&given, "SELECT 1 FROM events FOR KEY SHARE");
    assert_eq!(given.tidy_as(at(3 * DAY), &a_month(10)).payloads, 0);
    given.database.run("CREATE TABLE enough ()");
    holding.join().expect("it commits");
    assert_eq!(given.tidy_as(at(3 * DAY), &a_month(10)).payloads, 1);
    let retried = run(given
        .store
        .retry(at(3 * DAY), id("acme"), sent.deliveries[0].id));
    assert_eq!(retried, Ok(RetryResult::PayloadDeleted));
    assert_eq!(emptied(&given), 1);
}

#[test]
fn many_deliveries_that_a_replay_added_go_in_pieces_before_their_day() {
    const MANY: usize = 1_500;
    let given = large();
    given.add_tenant("late", None);
    let events = vec![event("late"); MANY];
    assert!(run(given.store.accept(at(HOUR), events)).is_ok());
    let endpoint: EndpointId = given.add_endpoint(2, "late");
    let missed = ReplayFilter {
        endpoint: Some(endpoint),
        event_type: None,
        error_kind: None,
        since: None,
        until: None,
        scope: ReplayScope::Missed,
    };
    let week = at(7 * DAY);
    let replay = run(given.store.create_replay(week, id("late"), missed)).expect("it begins");
    loop {
        let step = run(given.store.step_replay(week, replay.id, 500)).expect("it goes on");
        if step.expect("a step").replay.status == ReplayStatus::Done {
            break;
        }
    }
    given.database.run(
        "WITH gone AS (DELETE FROM waiting RETURNING *) \
         INSERT INTO ended SELECT id, event_id, endpoint_no, tenant_no, created_at, created_at, first_due, \
         give_up_at, delay_ms, ordering, 0, 0, 2, NULL, NULL, type, NULL, NULL FROM gone",
    );
    let added = || given.count("SELECT count(*) FROM added") as usize;
    assert_eq!(added(), MANY);
    let retention = Retention::all(Span::from_days(2), 10);
    while added() == MANY {
        step(&given, at(9 * DAY + HOUR), &retention);
    }
    assert!(added() > 0, "not all at once");
    assert_eq!(left(&given, "late") as usize, MANY);
    assert_eq!(given.tidy_as(at(9 * DAY + HOUR), &retention).events, MANY);
    assert_eq!(added(), 0);
    assert_eq!(given.count("SELECT count(*) FROM ended"), 0);
}

#[test]
fn a_clock_that_was_ahead_leaves_nothing_behind() {
    for given in [large(), Given::acme()] {
        let sent = given.send(at(HOUR));
        let retention = Retention::all(Span::from_days(2), 10);
        assert_eq!(given.tidy_as(at(900 * DAY), &retention).events, 0);
        given.answer(sent.deliveries[0].id, at(2 * HOUR), 200);
        assert_eq!(given.tidy_as(at(4 * DAY), &retention).events, 1);
    }
}

/// A server that was off for a month finds many expired days.
#[test]
fn after_a_long_absence_every_day_goes_that_can() {
    let given = large();
    for day in 0..30 {
        let sent = given.send(at(day * DAY));
        given.answer(sent.deliveries[0].id, at(day * DAY), 200);
    }
    let later = given.another_large(9);
    let retention = Retention::all(Span::from_days(7), 10);
    assert_eq!(later.tidy_as(at(60 * DAY), &retention).events, 30);
    for table in ["events", "ended", "attempts"] {
        assert_eq!(given.partitions(table), Vec::<String>::new(), "{table}");
    }
}

#[test]
fn two_nodes_that_tidy_at_once_remove_everything_once() {
    let given = large();
    let another = given.another_large(9);
    for day in 0..6 {
        for hour in 0..4 {
            let sent = given.send(at(day * DAY + hour * HOUR));
            given.answer(sent.deliveries[0].id, at(day * DAY + hour * HOUR), 400);
        }
    }
    let retention = a_month(3);
    let tidy = |node: &Given| {
        let mut emptied = 0;
        for now in [at(9 * DAY), at(90 * DAY)] {
            for _ in 0..60 {
                // A step fails if the other node has dropped its partition in the meantime. The next step tries
                // again.
                let step = run(node.store.tidy(now, retention.clone()));
                emptied += step.map_or(0, |tidied| tidied.payloads);
            }
        }
        emptied
    };
    let emptied: usize = std::thread::scope(|scope| {
        let tidying = [&given, &another].map(|node| scope.spawn(|| tidy(node)));
        let emptied = tidying.map(|node| node.join().expect("it tidies"));
        emptied.iter().sum()
    });
    assert!(emptied <= 24, "{emptied}");
    assert_eq!(given.count("SELECT count(*) FROM events"), 0);
    let counts = run(given.store.counts()).expect("counts");
    assert_eq!((counts.pending, counts.dead_letters), (0, 0));
}
