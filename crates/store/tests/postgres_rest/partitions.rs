//! Large daily partitions are dropped with one statement, and never with unfinished deliveries.

use posthaste_core::delivery::Status;
use posthaste_core::id::DeliveryId;
use posthaste_core::time::Span;
use posthaste_store::{
    Counts, DeliveryFilter, EventFilter, Lists, PageRequest, ReplayFilter, ReplayScope,
    ReplayStatus, Retention, Store,
};

use crate::fixture::{DAY, Fixture, HOUR, at, id, keyed, run};

const KEEP: Span = Span::from_days(2);

/// Opens a store in which every non-empty day is large.
fn large() -> Fixture {
    Fixture::acme_with(|settings| settings.large_day_bytes = 1)
}

fn events(fixture: &Fixture) -> usize {
    let page = PageRequest {
        limit: 250,
        before: None,
    };
    let events = fixture
        .store
        .events(id("acme"), EventFilter::default(), page);
    run(events).expect("events").items.len()
}

fn status(fixture: &Fixture, delivery: DeliveryId) -> Option<Status> {
    let found = run(fixture.store.delivery(id("acme"), delivery)).expect("it reads");
    found.map(|(stored, _)| stored.shown_status())
}

#[test]
fn a_large_partition_is_dropped_with_all_its_rows() {
    let fixture = large();
    let mut sent = Vec::new();
    for n in 0..12 {
        let event = fixture.accept(at(n * HOUR), keyed("acme", &format!("key {n}")));
        let delivery = event.deliveries[0].id;
        fixture.answer(delivery, at(n * HOUR), 503);
        fixture.answer(
            delivery,
            at(n * HOUR + 60_000),
            if n % 3 == 0 { 400 } else { 200 },
        );
        sent.push(delivery);
    }
    let young = fixture.send(at(DAY + HOUR)).deliveries[0].id;
    fixture.answer(young, at(DAY + HOUR), 400);
    let before = Counts {
        pending: 0,
        dead_letters: 5,
    };
    assert_eq!(run(fixture.store.counts()), Ok(before));
    let partitions = fixture.partitions("events").len();

    assert_eq!(
        fixture.step_retention(at(2 * DAY + 23 * HOUR), KEEP),
        0,
        "too early"
    );
    assert_eq!(fixture.step_retention(at(3 * DAY), KEEP), 12);

    assert_eq!(fixture.partitions("events").len(), partitions - 1);
    for table in ["events", "ended", "attempts"] {
        let gone = format!("{table}_20231115");
        assert!(!fixture.partitions(table).contains(&gone), "{table}");
    }
    assert_eq!(events(&fixture), 1);
    assert_eq!(status(&fixture, sent[0]), None);
    assert_eq!(status(&fixture, young), Some(Status::Failed));
    let after = Counts {
        pending: 0,
        dead_letters: 1,
    };
    assert_eq!(run(fixture.store.counts()), Ok(after));
    assert_eq!(fixture.count("SELECT count(*) FROM idempotency"), 0);
    // The idempotency key can be used again.
    fixture.accept(at(3 * DAY), keyed("acme", "key 3"));
}

#[test]
fn waiting_deliveries_prevent_the_drop_of_a_partition() {
    let fixture = large();
    let done = fixture.send(at(HOUR)).deliveries[0].id;
    fixture.answer(done, at(HOUR), 200);
    let waits = fixture.send(at(2 * HOUR)).deliveries[0].id;
    assert_eq!(fixture.step_retention(at(3 * DAY + HOUR), KEEP), 0);
    assert_eq!(status(&fixture, done), Some(Status::Succeeded));
    // The rest of the day is not kept for as long as that.
    assert_eq!(fixture.step_retention(at(900 * DAY), KEEP), 1);
    assert_eq!(status(&fixture, done), None);
    assert_eq!(status(&fixture, waits), Some(Status::Pending));
    // It has only just ended.
    fixture.answer(waits, at(900 * DAY), 200);
    assert_eq!(fixture.step_retention(at(901 * DAY), KEEP), 0);
    assert_eq!(fixture.step_retention(at(903 * DAY), KEEP), 1);
    assert_eq!(events(&fixture), 0);
}

#[test]
fn a_longer_retention_keeps_only_the_rows_of_its_tenant() {
    let fixture = large();
    fixture.add_tenant("patient", Some(Span::from_days(30)));
    fixture.send(at(HOUR));
    fixture.accept(at(HOUR), crate::fixture::event("patient"));
    let waiting = run(fixture.store.deliveries(
        id("acme"),
        DeliveryFilter::default(),
        PageRequest {
            limit: 9,
            before: None,
        },
    ));
    for stored in waiting.expect("deliveries").items {
        fixture.answer(stored.delivery.id(), at(HOUR), 200);
    }
    assert_eq!(fixture.step_retention(at(2 * DAY), KEEP), 0);
    assert_eq!(fixture.step_retention(at(10 * DAY), KEEP), 1);
    assert_eq!(events(&fixture), 0);
    assert_eq!(fixture.step_retention(at(10 * DAY), KEEP), 0);
    assert_eq!(fixture.step_retention(at(31 * DAY + HOUR), KEEP), 1);
}

#[test]
fn deliveries_added_by_a_replay_are_deleted_with_their_event() {
    let fixture = large();
    let first = fixture.send(at(HOUR));
    fixture.answer(first.deliveries[0].id, at(HOUR), 200);
    let late = fixture.add_endpoint(2, "acme");
    let filter = ReplayFilter {
        endpoint: Some(late),
        event_type: None,
        error_kind: None,
        since: None,
        until: None,
        scope: ReplayScope::Missed,
    };
    // A week later a replay sends the new endpoint the events it missed.
    let week = at(7 * DAY);
    let replay = run(fixture.store.create_replay(week, id("acme"), filter)).expect("it begins");
    assert_eq!(replay.total, 1);
    let step = run(fixture.store.step_replay(week, replay.id, 9)).expect("it goes on");
    assert_eq!(step.expect("a step").replay.status, ReplayStatus::Done);
    assert_eq!(fixture.step_retention(at(90 * DAY), KEEP), 0, "it waits");
    let of_event = DeliveryFilter {
        event: Some(first.id),
        endpoint: Some(late),
        ..DeliveryFilter::default()
    };
    let page = PageRequest {
        limit: 9,
        before: None,
    };
    let found = run(fixture.store.deliveries(id("acme"), of_event, page)).expect("deliveries");
    let added = found.items[0].delivery.id();
    fixture.answer(added, at(90 * DAY), 400);
    assert_eq!(
        fixture.step_retention(at(91 * DAY), KEEP),
        0,
        "it has only just ended"
    );
    assert_eq!(fixture.step_retention(at(93 * DAY), KEEP), 1);
    assert_eq!(status(&fixture, added), None);
    assert_eq!(fixture.count("SELECT count(*) FROM added"), 0);
    assert_eq!(fixture.count("SELECT count(*) FROM ended"), 0);
    assert_eq!(run(fixture.store.counts()), Ok(Counts::default()));
}

#[test]
fn deliveries_with_ids_of_the_next_day_are_deleted_with_their_event() {
    let fixture = large();
    for number in 2..30 {
        fixture.add_endpoint(number, "acme");
    }
    // Enough events at once that the ids of the last ones fall into the next day.
    let last = at(DAY - 1);
    let batch = vec![crate::fixture::event("acme"); 200];
    let accepted = run(fixture.store.accept(last, batch)).expect("they are accepted");
    let posthaste_store::AcceptResult::Done(accepted) = accepted else {
        panic!("{accepted:?}");
    };
    let deliveries: Vec<DeliveryId> = accepted
        .iter()
        .flat_map(|it| &it.event.deliveries)
        .map(|delivery| delivery.id)
        .collect();
    let midnight = u128::from(at(DAY).0) << 80;
    let spilled = deliveries.iter().filter(|id| id.0 >= midnight).count();
    assert!(spilled > 0, "the test is about something");
    let astride = accepted.iter().filter(|it| {
        let last = it.event.deliveries.last();
        it.event.id.0 < midnight && last.is_some_and(|delivery| delivery.id.0 >= midnight)
    });
    assert_eq!(astride.count(), 1);
    // Everything has ended except one delivery that fell into the next day.
    let late = fixture.count(&format!(
        "WITH last AS (SELECT id FROM waiting WHERE id > '{}' ORDER BY id LIMIT 1), \
         gone AS (DELETE FROM waiting WHERE id NOT IN (SELECT id FROM last) RETURNING *), \
         ended AS (INSERT INTO ended SELECT id, event_id, endpoint_no, tenant_no, created_at, \
         created_at, first_due, give_up_at, delay_ms, ordering, 0, 0, 2, NULL, NULL, type, NULL, NULL \
         FROM gone) SELECT count(*) FROM last",
        uuid(midnight)
    ));
    assert_eq!(late, 1);
    assert_eq!(fixture.step_retention(at(90 * DAY), KEEP), 199);
    let first = deliveries.iter().find(|id| id.0 >= midnight);
    fixture.answer(*first.expect("one spilled"), at(90 * DAY), 200);
    assert_eq!(fixture.step_retention(at(93 * DAY), KEEP), 1);
    assert_eq!(fixture.count("SELECT count(*) FROM ended"), 0);
}

fn uuid(id: u128) -> String {
    let hex = format!("{id:032x}");
    format!(
        "{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    )
}

#[test]
fn empty_partitions_are_removed() {
    let fixture = Fixture::acme();
    for day in 0..5 {
        let delivery = fixture.send(at(day * DAY)).deliveries[0].id;
        fixture.answer(delivery, at(day * DAY), 200);
    }
    assert!(fixture.partitions("events").len() >= 5);
    assert_eq!(fixture.step_retention(at(30 * DAY), KEEP), 5);
    fixture.step_retention(at(30 * DAY), KEEP);
    for table in ["events", "ended", "attempts"] {
        assert_eq!(fixture.partitions(table), Vec::<String>::new(), "{table}");
    }
    // After the clock is set back far, new partitions are created all the same.
    fixture.send(at(2 * DAY));
    assert_eq!(events(&fixture), 1);
}

/// A replay has found its event and is about to create a delivery of it while its day is being dropped.
#[test]
fn a_partition_with_locked_events_is_not_dropped() {
    let fixture = large();
    let sent = fixture.send(at(HOUR));
    fixture.answer(sent.deliveries[0].id, at(HOUR), 200);
    fixture.add_endpoint(2, "acme");
    let replay = "BEGIN; SELECT 1 FROM events FOR KEY SHARE; \
         INSERT INTO added SELECT v.id, e.no, gen_random_uuid() FROM events v, endpoints e \
         WHERE e.no = (SELECT max(no) FROM endpoints); \
         INSERT INTO waiting SELECT a.delivery_id, a.event_id, a.endpoint_no, d.tenant_no, d.created_at, \
         d.first_due, d.first_due, d.give_up_at, NULL, NULL, 0, 0, 0, 0, NULL, d.type FROM added a, ended d; \
         DO $$ BEGIN LOOP EXIT WHEN EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted AND database = \
         (SELECT oid FROM pg_database WHERE datname = current_database())); \
         PERFORM pg_sleep(0.005); END LOOP; END $$; COMMIT";
    let database = fixture.database.clone();
    let replaying = std::thread::spawn(move || database.run(replay));
    let holds = "SELECT count(*) FROM pg_locks WHERE relation = 'waiting'::regclass \
                 AND mode = 'RowExclusiveLock' AND granted";
    while fixture.count(holds) == 0 {
        std::thread::yield_now();
    }
    assert_eq!(fixture.step_retention(at(90 * DAY), KEEP), 0);
    replaying.join().expect("it commits");
    assert_eq!(fixture.step_retention(at(90 * DAY), KEEP), 0);
    assert_eq!(events(&fixture), 1);
    assert_eq!(fixture.count("SELECT count(*) FROM waiting"), 1);
}

#[test]
fn a_retention_run_continues_after_other_writes_fail() {
    let fixture = Fixture::acme();
    fixture.add_tenant("patient", Some(Span::from_days(900)));
    fixture.accept(at(HOUR), crate::fixture::event("patient"));
    let old = fixture.send(at(2 * HOUR));
    fixture.answer(old.deliveries[0].id, at(2 * HOUR), 200);
    let retention = Retention::all(KEEP, 1);
    let step = || {
        run(fixture
            .store
            .step_retention(at(90 * DAY), retention.clone()))
        .expect("it tidies")
    };
    assert_eq!(step().events, 0, "the patient one's comes first");
    // Another node has used an idempotency key that this node does not know, so this node's transaction is rolled
    // back.
    let another = fixture.another(9);
    another.accept(at(90 * DAY), keyed("acme", "twice"));
    fixture.accept(at(90 * DAY), keyed("acme", "twice"));
    assert_eq!(step().events, 1);
}
