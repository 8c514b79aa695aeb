//! Schedules: their rows, the ones that are due, and their runs.

use std::sync::Arc;

use bytes::Bytes;
use posthaste_core::id::{EventId, ScheduleId, TenantId};
use posthaste_core::schedule::{ScheduleStatus, ScheduledRun};
use posthaste_core::time::Timestamp;

use super::Harness;
use super::fixture::{StoreFixture, all, at, event, id, kind};
use posthaste_store::{
    AcceptedEvent, AdvanceResult, AdvancedBy, Content, CreateResult, DueSchedules, DueSelection,
    EventProgress, MAX_RUNS_KEPT, NewEvent, NewRun, NewRunOutcome, Page, PageRequest, Quotas,
    ReplaceResult, Retention, RunStatus, ScheduleAdvance, StoredRun, StoredSchedule,
};

pub(super) fn named(name: &str) -> ScheduleId {
    name.parse().expect("the schedule id is valid")
}

/// Returns an active schedule of acme that is due at `due`.
pub(super) fn schedule(name: &str, due: u64) -> StoredSchedule {
    StoredSchedule {
        tenant: id("acme"),
        id: named(name),
        definition: format!("{{\"name\": \"{name} ü\"}}"),
        progress: None,
        status: ScheduleStatus::Active,
        next_run_at: Some(at(due)),
        last_run_at: None,
        last_event: None,
        run_count: 0,
        failed_runs: 0,
        created_at: at(due % 10),
        revision: 0,
    }
}

/// Returns the event of a run.
pub(super) fn made(schedule: &StoredSchedule, scheduled_for: Timestamp) -> NewRun {
    let event = event("acme", "report.due");
    let content = Content {
        scheduled_run: Some(ScheduledRun {
            schedule: schedule.id.clone(),
            scheduled_for,
        }),
        ..Content::clone(&event.content)
    };
    NewRun {
        scheduled_for,
        outcome: NewRunOutcome::Create(Box::new(NewEvent {
            content: Arc::new(content),
            ..event
        })),
    }
}

pub(super) fn skipped(scheduled_for: Timestamp) -> NewRun {
    NewRun {
        scheduled_for,
        outcome: NewRunOutcome::Skip("previous_unfinished".to_owned()),
    }
}

/// Returns a decision: these runs, and the next occurrence at `next`.
pub(super) fn advance(
    schedule: &StoredSchedule,
    runs: Vec<NewRun>,
    next: Option<u64>,
) -> ScheduleAdvance {
    let created = runs
        .iter()
        .filter(|run| run.outcome.status() == RunStatus::Created);
    ScheduleAdvance {
        tenant: schedule.tenant.clone(),
        schedule: schedule.id.clone(),
        version: schedule.version(),
        by: AdvancedBy::Owner,
        run_count: schedule.run_count + created.count() as u64,
        last_run_at: runs.last().map(|run| run.scheduled_for),
        runs,
        status: match next {
            Some(_) => ScheduleStatus::Active,
            None => ScheduleStatus::Finished,
        },
        next_run_at: next.map(at),
        failed_runs: schedule.failed_runs,
        progress: schedule.progress.clone(),
    }
}

impl StoreFixture<'_> {
    pub(super) async fn add_schedule(&self, schedule: StoredSchedule) -> StoredSchedule {
        let created = self.store.create_schedule(at(0), schedule.clone(), 1_000);
        assert_eq!(created.await, Ok(CreateResult::Created));
        schedule
    }

    pub(super) async fn schedule(&self, name: &str) -> Option<StoredSchedule> {
        let found = self.store.schedule(id("acme"), named(name)).await;
        found.expect("the store can be read")
    }

    pub(super) async fn replace_schedule(&self, schedule: StoredSchedule) -> ReplaceResult {
        let replaced = self.store.replace_schedule(at(0), schedule).await;
        replaced.expect("the store can be written")
    }

    pub(super) async fn due(&self, now: u64, selection: DueSelection) -> DueSchedules {
        let due = self.store.due_schedules(at(now), selection).await;
        due.expect("the store can be read")
    }

    /// Returns the names of all schedules that are due.
    pub(super) async fn due_names(&self, now: u64) -> Vec<String> {
        let due = self.due(now, everything()).await;
        due.schedules.iter().map(|it| it.id.to_string()).collect()
    }

    pub(super) async fn advance(&self, now: u64, advance: ScheduleAdvance) -> AdvanceResult {
        let advanced = self
            .store
            .advance_schedule(at(now), advance, Quotas::UNLIMITED);
        advanced.await.expect("the store can be written")
    }

    pub(super) async fn advance_done(
        &self,
        now: u64,
        advance: ScheduleAdvance,
    ) -> Vec<AcceptedEvent> {
        match self.advance(now, advance).await {
            AdvanceResult::Done(events) => events,
            other @ (AdvanceResult::Superseded | AdvanceResult::Refused(_)) => {
                panic!("the decision was not written: {other:?}")
            }
        }
    }

    pub(super) async fn runs(&self, name: &str) -> Vec<StoredRun> {
        all(300, |page| {
            self.store.schedule_runs(id("acme"), named(name), page)
        })
        .await
    }

    pub(super) async fn progress(&self, event: EventId) -> EventProgress {
        let progress = self.store.event_progress(vec![(id("acme"), event)]).await;
        progress.expect("the store can be read")[0]
    }
}

pub(super) fn everything() -> DueSelection {
    DueSelection {
        limit: 100,
        max_bytes: usize::MAX,
        except: Arc::new([]),
        except_tenants: Arc::new([]),
    }
}

pub(super) async fn a_schedule_is_read_back_unchanged(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_tenant("other").await;
    let full = StoredSchedule {
        progress: Some("{\"resumed_at\":7}".to_owned()),
        status: ScheduleStatus::Paused,
        last_run_at: Some(at(3)),
        last_event: Some(EventId(77 << 64)),
        run_count: 1 << 40,
        failed_runs: 3,
        ..schedule("nightly", 9)
    };
    world.add_schedule(full.clone()).await;
    let again = schedule("nightly", 8);
    let taken = world.store.create_schedule(at(0), again, 1_000).await;
    assert_eq!(taken, Ok(CreateResult::Taken));
    let elsewhere = StoredSchedule {
        tenant: id("other"),
        ..schedule("nightly", 5)
    };
    world.add_schedule(elsewhere.clone()).await;
    let unknown = StoredSchedule {
        tenant: id("nobody"),
        ..schedule("nightly", 5)
    };
    let refused = world.store.create_schedule(at(0), unknown, 1_000).await;
    assert_eq!(refused, Ok(CreateResult::NoSuchTenant));
    let world = world.reopened().await;
    assert_eq!(world.schedule("nightly").await, Some(full));
    assert_eq!(world.schedule("daily").await, None);
    let other = world.store.schedule(id("other"), named("nightly")).await;
    assert_eq!(other, Ok(Some(elsewhere)));
    let nobody = world.store.schedule(id("nobody"), named("nightly")).await;
    assert_eq!(nobody, Ok(None));
}

pub(super) async fn the_number_of_schedules_per_tenant_is_limited(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_tenant("other").await;
    let create = |schedule| world.store.create_schedule(at(0), schedule, 2);
    assert_eq!(create(schedule("a", 1)).await, Ok(CreateResult::Created));
    assert_eq!(create(schedule("b", 1)).await, Ok(CreateResult::Created));
    assert_eq!(create(schedule("c", 1)).await, Ok(CreateResult::TooMany));
    assert_eq!(create(schedule("a", 1)).await, Ok(CreateResult::Taken));
    let elsewhere = StoredSchedule {
        tenant: id("other"),
        ..schedule("c", 1)
    };
    assert_eq!(create(elsewhere).await, Ok(CreateResult::Created));
    let delete = |name| world.store.delete_schedule(at(1), id("acme"), named(name));
    assert_eq!(delete("c").await, Ok(false));
    assert_eq!(delete("a").await, Ok(true));
    assert_eq!(delete("a").await, Ok(false));
    assert_eq!(create(schedule("c", 1)).await, Ok(CreateResult::Created));
    assert_eq!(create(schedule("d", 1)).await, Ok(CreateResult::TooMany));
    for (tenant, schedules) in [("acme", 2), ("other", 1)] {
        let usage = world.store.usage(at(1), id(tenant)).await;
        let usage = usage.expect("the store can be read");
        assert_eq!(usage.map(|usage| usage.schedules), Some(schedules));
    }
    // Created at the same time, one of them exceeds the limit.
    assert_eq!(delete("c").await, Ok(true));
    let (one, two) = (create(schedule("e", 1)), create(schedule("f", 1)));
    assert_eq!(one.await, Ok(CreateResult::Created));
    assert_eq!(two.await, Ok(CreateResult::TooMany));
}

pub(super) async fn an_outdated_change_of_a_schedule_is_refused(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let first = world.add_schedule(schedule("nightly", 9)).await;
    let changed = StoredSchedule {
        definition: "{}".to_owned(),
        status: ScheduleStatus::Paused,
        next_run_at: None,
        last_run_at: Some(at(2)),
        progress: Some("{}".to_owned()),
        ..first.clone()
    };
    assert_eq!(
        world.replace_schedule(changed.clone()).await,
        ReplaceResult::Done
    );
    let stored = StoredSchedule {
        revision: 1,
        ..changed
    };
    assert_eq!(world.schedule("nightly").await, Some(stored.clone()));
    assert_eq!(
        world.replace_schedule(first.clone()).await,
        ReplaceResult::Outdated
    );
    assert_eq!(world.schedule("nightly").await, Some(stored));
    let unknown = schedule("daily", 1);
    assert_eq!(
        world.replace_schedule(unknown).await,
        ReplaceResult::NotFound
    );
    // A later schedule with the same id is another one.
    let deleted = world
        .store
        .delete_schedule(at(3), id("acme"), named("nightly"));
    assert_eq!(deleted.await, Ok(true));
    let later = StoredSchedule {
        created_at: at(500),
        ..first.clone()
    };
    world.add_schedule(later).await;
    assert_eq!(world.replace_schedule(first).await, ReplaceResult::Outdated);
}

pub(super) async fn schedules_are_listed_newest_first(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_tenant("other").await;
    for name in ["b", "a2", "a10", "Z", "c", "x.y"] {
        let created_at = if name.starts_with('a') {
            at(7)
        } else {
            at(name.len() as u64)
        };
        let schedule = StoredSchedule {
            created_at,
            ..schedule(name, 50)
        };
        world.add_schedule(schedule).await;
    }
    let listed = all(2, |page| world.store.schedules(id("acme"), page)).await;
    let names: Vec<&str> = listed.iter().map(|it| it.id.as_str()).collect();
    assert_eq!(names, ["a2", "a10", "x.y", "c", "b", "Z"]);
    let page = PageRequest {
        limit: 5,
        before: None,
    };
    for tenant in ["other", "nobody"] {
        let nothing = Page {
            items: Vec::new(),
            next: None,
        };
        assert_eq!(
            world.store.schedules(id(tenant), page.clone()).await,
            Ok(nothing)
        );
    }
}

pub(super) async fn due_schedules_are_found_in_their_order(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    for (name, due) in [("c", 30), ("b", 20), ("b2", 20), ("a", 10), ("later", 400)] {
        world.add_schedule(schedule(name, due)).await;
    }
    for status in [ScheduleStatus::Paused, ScheduleStatus::Finished] {
        let rests = StoredSchedule {
            status,
            ..schedule(status.name(), 5)
        };
        world.add_schedule(rests).await;
    }
    assert_eq!(world.due_names(9).await, Vec::<String>::new());
    assert_eq!(world.due(9, everything()).await.next_due_at, Some(at(10)));
    assert_eq!(world.due_names(30).await, ["a", "b", "b2", "c"]);
    let found = world.due(100, everything()).await;
    assert_eq!(found.next_due_at, Some(at(400)));
    assert_eq!(found.schedules[0], schedule("a", 10));
    assert_eq!(world.due(400, everything()).await.next_due_at, None);
    let names = |due: &DueSchedules| -> Vec<String> {
        due.schedules.iter().map(|it| it.id.to_string()).collect()
    };
    let two = DueSelection {
        limit: 2,
        ..everything()
    };
    let found = world.due(100, two.clone()).await;
    assert_eq!(
        (names(&found), found.next_due_at),
        (vec!["a".into(), "b".into()], Some(at(20)))
    );
    let except: Vec<(TenantId, ScheduleId)> = ["a", "b2", "unknown"]
        .map(|name| (id("acme"), named(name)))
        .to_vec();
    let others = DueSelection {
        except: except.into(),
        ..two
    };
    let found = world.due(100, others).await;
    assert_eq!(
        (names(&found), found.next_due_at),
        (vec!["b".into(), "c".into()], Some(at(400)))
    );
    world.add_tenant("other").await;
    let other = StoredSchedule {
        tenant: id("other"),
        ..schedule("z", 50)
    };
    world.add_schedule(other).await;
    let without_acme = DueSelection {
        except_tenants: Arc::new([id("acme")]),
        ..everything()
    };
    let found = world.due(100, without_acme).await;
    // Later schedules of a tenant that is left out still announce themselves.
    assert_eq!(
        (names(&found), found.next_due_at),
        (vec!["z".into()], Some(at(400)))
    );
    // One is always returned, however large it is.
    for (max_bytes, expected) in [(0, 1), (schedule("a", 1).definition.len() * 2, 2)] {
        let selection = DueSelection {
            max_bytes,
            ..everything()
        };
        assert_eq!(world.due(100, selection).await.schedules.len(), expected);
    }
}

pub(super) async fn only_the_last_runs_are_kept(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_schedule(schedule("nightly", 1)).await;
    world.add_schedule(schedule("other", 1)).await;
    let other = world.schedule("other").await.expect("it exists");
    let one = advance(&other, vec![skipped(at(1))], Some(2));
    world.advance_done(1, one).await;
    for round in 0..5 {
        let before = world.schedule("nightly").await.expect("it exists");
        let runs = (0..250).map(|number| skipped(at(round * 250 + number)));
        let decided = advance(&before, runs.collect(), Some(9_000));
        world.advance_done(9_000, decided).await;
    }
    let runs = world.runs("nightly").await;
    let numbers: Vec<u64> = runs.iter().map(|run| run.number).collect();
    let expected: Vec<u64> = (1_251 - MAX_RUNS_KEPT..=1_250).rev().collect();
    assert_eq!(numbers, expected);
    assert_eq!(world.runs("other").await.len(), 1);
}

pub(super) async fn expired_runs_are_deleted(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    for name in ["nightly", "hourly"] {
        world.add_schedule(schedule(name, 1)).await;
        for now in [100, 200, 300] {
            let before = world.schedule(name).await.expect("it exists");
            let decided = advance(&before, vec![skipped(at(now))], Some(now + 1));
            world.advance_done(now, decided).await;
        }
    }
    let retention = Retention::all(posthaste_core::time::Span::from_millis(150), 4);
    world.run_retention_as(at(349), &retention).await;
    for name in ["nightly", "hourly"] {
        let numbers: Vec<u64> = world
            .runs(name)
            .await
            .iter()
            .map(|run| run.number)
            .collect();
        assert_eq!(numbers, [3, 2], "{name}");
    }
    world.run_retention_as(at(350), &retention).await;
    assert_eq!(world.runs("nightly").await.len(), 1);
    // A later run continues the numbers.
    let before = world.schedule("nightly").await.expect("it exists");
    world.run_retention_as(at(9_000), &retention).await;
    assert_eq!(world.runs("nightly").await, []);
    let decided = advance(&before, vec![skipped(at(9_000))], None);
    world.advance_done(9_000, decided).await;
    assert_eq!(world.runs("nightly").await[0].number, 4);
}

pub(super) async fn schedules_are_deleted_with_their_tenant(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let before = world.add_schedule(schedule("nightly", 10)).await;
    let decided = advance(&before, vec![skipped(at(10))], Some(20));
    world.advance_done(10, decided).await;
    let deleted = world.store.delete_tenant(at(11), id("acme")).await;
    assert_eq!(deleted, Ok(Some(Vec::new())));
    assert_eq!(
        world.due(5_000, everything()).await,
        DueSchedules::default()
    );
    let known = StoredSchedule {
        revision: 1,
        ..before.clone()
    };
    let stale = advance(&known, vec![skipped(at(20))], None);
    assert_eq!(world.advance(21, stale).await, AdvanceResult::Superseded);
    world.add_tenant("acme").await;
    assert_eq!(world.schedule("nightly").await, None);
    world.add_schedule(before.clone()).await;
    assert_eq!(world.runs("nightly").await, []);
    let retention = Retention::all(posthaste_core::time::Span::from_days(9), 4);
    world.run_retention_as(at(30), &retention).await;
    assert_eq!(world.schedule("nightly").await, Some(before));
}

pub(super) async fn failing_schedules_are_counted(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    for (number, status) in ScheduleStatus::ALL.into_iter().cycle().take(12).enumerate() {
        let failing = StoredSchedule {
            status,
            failed_runs: number as u32 / 3 + 1,
            ..schedule(&format!("s{number}"), 10)
        };
        world.add_schedule(failing).await;
    }
    // The active ones with 3 and with 4 failed runs.
    assert_eq!(world.store.failing_schedules(9).await, Ok(2));
    assert_eq!(world.store.failing_schedules(1).await, Ok(1));
    let known = world.schedule("s9").await.expect("it exists");
    let runs = vec![skipped(at(10))];
    let better = ScheduleAdvance {
        failed_runs: 0,
        ..advance(&known, runs, Some(20))
    };
    world.advance_done(11, better).await;
    assert_eq!(world.store.failing_schedules(9).await, Ok(1));
}

pub(super) async fn a_postponed_schedule_is_due_later(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let before = world.add_schedule(schedule("nightly", 10)).await;
    world.add_schedule(schedule("hourly", 20)).await;
    let postpone = |schedule: &StoredSchedule, until| {
        let key = (schedule.tenant.clone(), schedule.id.clone());
        world
            .store
            .postpone_schedule(key.0, key.1, schedule.version(), at(until))
    };
    assert_eq!(postpone(&before, 50).await, Ok(true));
    assert_eq!(world.due_names(49).await, ["hourly"]);
    assert_eq!(world.due(49, everything()).await.next_due_at, Some(at(50)));
    assert_eq!(world.due_names(50).await, ["hourly", "nightly"]);
    assert_eq!(world.schedule("nightly").await, Some(before.clone()));
    // A change makes it due at its next occurrence again.
    assert_eq!(
        world.replace_schedule(before.clone()).await,
        ReplaceResult::Done
    );
    assert_eq!(world.due_names(10).await, ["nightly"]);
    assert_eq!(postpone(&before, 50).await, Ok(false), "another version");
    let paused = StoredSchedule {
        status: ScheduleStatus::Paused,
        revision: 1,
        ..before
    };
    assert_eq!(
        world.replace_schedule(paused.clone()).await,
        ReplaceResult::Done
    );
    let paused = StoredSchedule {
        revision: 2,
        ..paused
    };
    assert_eq!(postpone(&paused, 5).await, Ok(false), "it is not active");
    assert_eq!(world.due_names(900).await, ["hourly"]);
    let decided = advance(&schedule("hourly", 20), vec![skipped(at(20))], Some(30));
    assert_eq!(postpone(&schedule("hourly", 20), 500).await, Ok(true));
    world.advance_done(25, decided).await;
    assert_eq!(world.due_names(30).await, ["hourly"]);
}

pub(super) async fn the_progress_of_an_event_is_known(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let nowhere = world.accept(at(1), event("acme", "a.b")).await;
    assert_eq!(world.progress(nowhere.id).await, EventProgress::Finished);
    world.add_endpoint(1).await;
    world.add_endpoint(2).await;
    let content = Content::new(kind("a.b"), Bytes::new());
    let sent = NewEvent {
        content: Arc::new(content),
        ..event("acme", "a.b")
    };
    let sent = world.accept(at(2), sent).await;
    let [one, two] = [sent.deliveries[0].id, sent.deliveries[1].id];
    assert_eq!(world.progress(sent.id).await, EventProgress::Unfinished);
    let twice = vec![(id("acme"), sent.id), (id("acme"), sent.id)];
    assert_eq!(
        world.store.event_progress(twice).await,
        Ok(vec![EventProgress::Unfinished; 2])
    );
    world.fail(one, at(3)).await;
    assert_eq!(world.progress(sent.id).await, EventProgress::Unfinished);
    world.fail_retryably(two, at(3)).await;
    assert_eq!(world.progress(sent.id).await, EventProgress::Unfinished);
    world.cancel(two, at(9)).await;
    assert_eq!(world.progress(sent.id).await, EventProgress::Failed);
    let good = world.accept(at(2), event("acme", "a.b")).await;
    for delivery in &good.deliveries {
        world.succeed(delivery.id, at(4)).await;
    }
    assert_eq!(world.progress(good.id).await, EventProgress::Finished);
    assert_eq!(world.progress(EventId(5)).await, EventProgress::Finished);
    world.add_tenant("other").await;
    let several = [
        ("other", sent.id),
        ("acme", sent.id),
        ("acme", EventId(5)),
        ("acme", sent.id),
        ("acme", good.id),
    ];
    let several = several.map(|(tenant, event)| (id(tenant), event)).to_vec();
    let expected = [
        EventProgress::Finished,
        EventProgress::Failed,
        EventProgress::Finished,
        EventProgress::Failed,
        EventProgress::Finished,
    ];
    assert_eq!(
        world.store.event_progress(several).await,
        Ok(expected.to_vec())
    );
}
