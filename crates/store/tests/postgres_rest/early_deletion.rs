//! Payloads and attempts that are deleted from a large day before the day is dropped.

use posthaste_core::id::DeliveryId;
use posthaste_core::time::Span;
use posthaste_store::{AttemptEntry, Lists, Retention, RetentionStepResult};

use crate::fixture::{DAY, Fixture, HOUR, at, event, id, run};

/// Opens a store in which every non-empty day is large.
fn large() -> Fixture {
    Fixture::acme_with(|settings| settings.large_day_bytes = 1)
}

fn attempts(fixture: &Fixture, delivery: DeliveryId) -> Vec<AttemptEntry> {
    let found = run(fixture.store.delivery(id("acme"), delivery)).expect("it reads");
    found.expect("it is there").1
}

/// Sends `count` events, one per hour, each of which takes three attempts.
fn send(fixture: &Fixture, count: u64) -> Vec<DeliveryId> {
    let send = |n: u64| {
        let delivery = fixture.send(at(n * HOUR)).deliveries[0].id;
        for (ms, code) in [(0, 503), (60_000, 503), (120_000, 400)] {
            fixture.answer(delivery, at(n * HOUR + ms), code);
        }
        delivery
    };
    (0..count).map(send).collect()
}

#[test]
fn payloads_are_deleted_row_by_row() {
    let fixture = large();
    let sent = send(&fixture, 12);
    let waits = fixture.send(at(13 * HOUR));
    let retention = Retention {
        payloads: Some(Span::from_days(1)),
        ..Retention::all(Span::from_days(30), 5)
    };
    let carries = "SELECT count(*) FROM events WHERE length(payload) > 0";
    let went = |step: RetentionStepResult| (step.events, step.payloads, step.attempts);
    assert_eq!(
        went(fixture.run_retention_as(at(DAY), &retention)),
        (0, 0, 0)
    );
    // Not together with the day, but each at its own time.
    assert_eq!(
        went(fixture.run_retention_as(at(DAY + 6 * HOUR), &retention)),
        (0, 6, 0)
    );
    assert_eq!(
        went(fixture.run_retention_as(at(DAY + 6 * HOUR), &retention)),
        (0, 0, 0)
    );
    assert_eq!(
        went(fixture.run_retention_as(at(3 * DAY), &retention)),
        (0, 6, 0)
    );
    assert_eq!(fixture.count(carries), 1, "what waits keeps it");
    assert_eq!(attempts(&fixture, sent[0]).len(), 3);
    fixture.answer(waits.deliveries[0].id, at(3 * DAY), 200);
    assert_eq!(
        went(fixture.run_retention_as(at(4 * DAY), &retention)),
        (0, 1, 0)
    );
    assert_eq!(fixture.count(carries), 0);
    assert_eq!(
        went(fixture.run_retention_as(at(34 * DAY), &retention)),
        (13, 0, 0)
    );
}

#[test]
fn attempts_are_dropped_by_partition_before_their_deliveries() {
    let fixture = large();
    let sent = send(&fixture, 12);
    let young = {
        let delivery = fixture.send(at(DAY + HOUR)).deliveries[0].id;
        fixture.answer(delivery, at(DAY + HOUR), 503);
        fixture.answer(delivery, at(DAY + HOUR), 200);
        delivery
    };
    let retention = Retention {
        attempts: Some(Span::from_days(2)),
        ..Retention::all(Span::from_days(30), 5)
    };
    let lie_apart = "SELECT count(*) FROM attempts";
    fixture.run_retention_as(at(3 * DAY - 1), &retention);
    assert_eq!(fixture.count(lie_apart), 25);
    fixture.run_retention_as(at(3 * DAY), &retention);
    assert_eq!(fixture.count(lie_apart), 1, "those of the next day stay");
    assert_eq!(attempts(&fixture, young).len(), 2);
    for delivery in sent {
        let left: Vec<u32> = attempts(&fixture, delivery)
            .iter()
            .map(|it| it.number)
            .collect();
        assert_eq!(left, [3]);
    }
}

#[test]
fn waiting_deliveries_keep_all_attempts_of_their_day() {
    let fixture = large();
    send(&fixture, 2);
    let waits = fixture.send(at(3 * HOUR)).deliveries[0].id;
    fixture.answer(waits, at(3 * HOUR), 503);
    let retention = Retention {
        attempts: Some(Span::from_days(2)),
        ..Retention::all(Span::from_days(30), 5)
    };
    fixture.run_retention_as(at(9 * DAY), &retention);
    assert_eq!(attempts(&fixture, waits).len(), 1);
    assert_eq!(fixture.count("SELECT count(*) FROM attempts"), 5);
    fixture.answer(waits, at(9 * DAY), 200);
    fixture.run_retention_as(at(11 * DAY), &retention);
    assert_eq!(fixture.count("SELECT count(*) FROM attempts"), 0);
    assert_eq!(attempts(&fixture, waits).len(), 1);
}

#[test]
fn a_shorter_retention_does_not_wait_for_longer_ones() {
    let fixture = large();
    fixture.add_tenant("hasty", Some(Span::from_days(1)));
    fixture.add_tenant("patient", Some(Span::from_days(90)));
    for n in 0..20 {
        for tenant in ["hasty", "patient"] {
            fixture.accept(at(n * HOUR), event(tenant));
        }
    }
    let retention = Retention::all(Span::from_days(7), 3);
    let left = || {
        let of = |tenant: &str| {
            fixture.count(&format!(
                "SELECT count(*) FROM events v JOIN tenants t ON t.no = v.tenant_no WHERE t.id = '{tenant}'"
            ))
        };
        (of("hasty"), of("patient"))
    };
    assert_eq!(
        fixture
            .run_retention_as(at(DAY + 9 * HOUR), &retention)
            .events,
        10
    );
    assert_eq!(left(), (10, 20));
    assert_eq!(fixture.run_retention_as(at(3 * DAY), &retention).events, 10);
    assert_eq!(left(), (0, 20));
    assert_eq!(
        fixture.run_retention_as(at(91 * DAY), &retention).events,
        20
    );
    assert_eq!(left(), (0, 0));
}
