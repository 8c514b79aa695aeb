//! Bounds of schedules: the size of a page, and the time for which a schedule is postponed.

use posthaste_core::schedule::ScheduleStatus;
use posthaste_store::{MAX_SCHEDULE_PAGE_BYTES, PageRequest, StoredSchedule};

use super::Harness;
use super::fixture::{StoreFixture, at, id};
use super::schedules::{everything, named, schedule};

pub(super) async fn a_page_of_large_schedules_ends_early(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let half = MAX_SCHEDULE_PAGE_BYTES / 2;
    for (number, bytes) in [half, half, 2 * MAX_SCHEDULE_PAGE_BYTES, 1, 1]
        .into_iter()
        .enumerate()
    {
        let large = StoredSchedule {
            definition: "d".repeat(bytes),
            created_at: at(number as u64),
            ..schedule(&format!("s{number}"), 50)
        };
        world.add_schedule(large).await;
    }
    let mut before = None;
    let mut pages = Vec::new();
    loop {
        let page = PageRequest { limit: 3, before };
        let page = world.store.schedules(id("acme"), page).await;
        let page = page.expect("the store can be read");
        let names = page.items.iter().map(|it| it.id.to_string());
        pages.push(names.collect::<Vec<_>>());
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    let expected: [&[&str]; 3] = [&["s4", "s3"], &["s2"], &["s1", "s0"]];
    assert_eq!(pages, expected);
}

pub(super) async fn postponements_of_a_wrong_clock_are_ended(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let postponed = world.add_schedule(schedule("postponed", 10)).await;
    world.add_schedule(schedule("later", 700)).await;
    let paused = StoredSchedule {
        status: ScheduleStatus::Paused,
        ..schedule("paused", 20)
    };
    world.add_schedule(paused).await;
    let postpone = |until| {
        let version = postponed.version();
        let key = (id("acme"), named("postponed"));
        world
            .store
            .postpone_schedule(key.0, key.1, version, at(until))
    };
    assert_eq!(postpone(500).await, Ok(true));
    assert_eq!(world.store.end_postponements(at(500)).await, Ok(0));
    assert_eq!(world.due_names(400).await, Vec::<String>::new());
    assert_eq!(world.store.end_postponements(at(499)).await, Ok(1));
    assert_eq!(world.due_names(400).await, ["postponed"]);
    assert_eq!(world.schedule("postponed").await, Some(postponed.clone()));
    assert_eq!(
        world.due(400, everything()).await.next_due_at,
        Some(at(700))
    );
    assert_eq!(world.store.end_postponements(at(0)).await, Ok(0));
}
