//! The size of the file after retention runs.

use posthaste_core::time::{Span, Timestamp};
use posthaste_store::sqlite::backup;
use posthaste_store::{AcceptResult, CreateResult, ReplayFilter, ReplayScope, Retention, Store};

use crate::fixture::{Fixture, NOW, event, id, open, run, tenant};

const DAY: u64 = 24 * 3_600_000;
const BYTES: usize = 5_000;
const A_DAY: usize = 200;

fn day(number: u64) -> Timestamp {
    Timestamp(NOW.0 + number * DAY)
}

/// Opens a store with a tenant that has no endpoints, so that none of its events waits.
fn quiet() -> Fixture {
    let fixture = Fixture::acme();
    let made = run(fixture.store.create_tenant(NOW, tenant("quiet")));
    assert_eq!(made, Ok(CreateResult::Created));
    fixture
}

fn accept(fixture: &Fixture, now: Timestamp) {
    let events = (0..A_DAY).map(|_| event("quiet", BYTES)).collect();
    let done = run(fixture.store.accept(now, events));
    assert!(matches!(done, Ok(AcceptResult::Done(_))), "{done:?}");
}

/// Deletes everything older than two days. Returns the number of deleted events.
fn step_retention(fixture: &Fixture, now: Timestamp) -> usize {
    let retention = Retention::all(Span::from_days(2), 50);
    let mut gone = 0;
    for _ in 0..1_000 {
        let step = run(fixture.store.step_retention(now, retention.clone())).unwrap();
        gone += step.events;
        if !step.more {
            return gone;
        }
    }
    panic!("tidying never ends");
}

/// Returns the number of pages of a file, and how many of them are free.
fn pages(path: &std::path::Path) -> (i64, i64) {
    let conn = rusqlite::Connection::open(path).unwrap();
    let number = |sql: &str| conn.query_row(sql, [], |row| row.get(0)).unwrap();
    (number("PRAGMA page_count"), number("PRAGMA freelist_count"))
}

#[test]
fn the_file_stops_growing_in_a_steady_state() {
    let fixture = quiet();
    let mut sizes = Vec::new();
    for number in 0..12 {
        accept(&fixture, day(number));
        let gone = step_retention(&fixture, day(number));
        assert_eq!(gone, if number < 2 { 0 } else { A_DAY });
        sizes.push(pages(&fixture.path()).0);
    }
    assert!(sizes[1] > sizes[0] + 200, "it grows at first: {sizes:?}");
    let grown = sizes[11] - sizes[4];
    assert!(grown <= sizes[4] / 50, "it goes on growing: {sizes:?}");
}

#[test]
fn freed_space_is_reused_or_returned_by_a_backup() {
    let fixture = quiet();
    for number in 0..6 {
        accept(&fixture, day(number));
    }
    let (before, _) = pages(&fixture.path());
    assert_eq!(step_retention(&fixture, day(90)), 6 * A_DAY);
    let (after, free) = pages(&fixture.path());
    assert_eq!(after, before, "the file does not shrink");
    assert!(10 * free > 9 * after, "{free} of {after} are free");
    for number in 90..94 {
        accept(&fixture, day(number));
    }
    assert_eq!(pages(&fixture.path()).0, after, "nor does it grow");
    // The documented way to get the disk space back.
    step_retention(&fixture, day(180));
    run(fixture.store.close()).unwrap();
    let copy = fixture.directory.path().join("small.db");
    backup(&fixture.path(), &copy, |_, _| {}).unwrap();
    let (small, free) = pages(&copy);
    assert!(10 * small < after, "{small} of {after}");
    assert_eq!(free, 0);
    let reopened = open(&copy).unwrap();
    assert!(run(reopened.tenant(id("quiet"))).unwrap().is_some());
}

#[test]
fn a_retention_step_examines_few_replays() {
    let fixture = quiet();
    let filter = ReplayFilter {
        endpoint: None,
        event_type: None,
        error_kind: None,
        since: None,
        until: None,
        scope: ReplayScope::Ended(posthaste_store::StoredStatus::Failed),
    };
    for _ in 0..600 {
        let replay = run(fixture
            .store
            .create_replay(NOW, id("quiet"), filter.clone()))
        .unwrap();
        run(fixture.store.step_replay(NOW, replay.id, 1)).unwrap();
    }
    let left = || {
        let conn = rusqlite::Connection::open(fixture.path()).unwrap();
        let sql = "SELECT count(*) FROM replays";
        conn.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    assert_eq!(left(), 600);
    let mut sizes = Vec::new();
    for _ in 0..2 {
        step_retention(&fixture, day(9));
        sizes.push(left());
    }
    assert_eq!(sizes, [100, 0]);
}
