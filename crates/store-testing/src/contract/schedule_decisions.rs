//! Decisions about schedules.
//!
//! A decision applies to one version of its schedule, and is written with its events or not at all.

use posthaste_core::delivery::OrderingKey;
use posthaste_core::id::EndpointId;
use posthaste_core::schedule::{ScheduleStatus, ScheduledRun};

use super::Harness;
use super::fixture::{StoreFixture, at, id, set};
use super::schedules::{advance, everything, made, named, schedule, skipped};
use posthaste_store::{
    AcceptResult, AdvanceResult, AdvancedBy, DueSchedules, EventProgress, LimitName, NewRun,
    NewRunOutcome, Quotas, ReplaceResult, RunStatus, ScheduleAdvance, StoredRun, StoredSchedule,
};

pub(super) async fn a_decision_is_written_with_its_events(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_endpoint(1).await;
    world.add_endpoint(2).await;
    let before = world.add_schedule(schedule("nightly", 10)).await;
    let missed = NewRun {
        scheduled_for: at(9),
        outcome: NewRunOutcome::Miss("late".to_owned()),
    };
    let runs = vec![
        missed,
        made(&before, at(10)),
        skipped(at(11)),
        made(&before, at(12)),
    ];
    let decided = ScheduleAdvance {
        failed_runs: 2,
        progress: Some("{}".to_owned()),
        ..advance(&before, runs, Some(900))
    };
    let events = world.advance_done(15, decided).await;
    assert_eq!(events.len(), 2);
    let handed_over = world.recorder.take();
    assert_eq!(handed_over.len(), 4, "each event goes to both endpoints");
    for (event, due) in events.iter().zip([10, 12]) {
        let run = ScheduledRun {
            schedule: named("nightly"),
            scheduled_for: at(due),
        };
        let of_event = |it: &&posthaste_store::HandedOver| it.delivery.facts().event == event.id;
        for handed in handed_over.iter().filter(of_event) {
            assert_eq!(handed.content.scheduled_run.as_ref(), Some(&run));
        }
        let (_, content) = world.store.content(event.id).await.unwrap().unwrap();
        assert_eq!(content.scheduled_run.as_ref(), Some(&run));
        let stored = world
            .store
            .event(id("acme"), event.id)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(stored.content.scheduled_run, Some(run));
        assert_eq!(stored.event.created_at, at(15));
    }
    let world = world.reopened().await;
    let after = StoredSchedule {
        next_run_at: Some(at(900)),
        last_run_at: Some(at(12)),
        last_event: Some(events[1].id),
        run_count: 2,
        failed_runs: 2,
        progress: Some("{}".to_owned()),
        revision: 1,
        ..before
    };
    assert_eq!(world.schedule("nightly").await, Some(after.clone()));
    let run = |number, scheduled_for, status, event, reason: Option<&str>| StoredRun {
        number,
        scheduled_for: at(scheduled_for),
        started_at: at(15),
        status,
        event,
        reason: reason.map(str::to_owned),
    };
    let expected = [
        run(4, 12, RunStatus::Created, Some(events[1].id), None),
        run(3, 11, RunStatus::Skipped, None, Some("previous_unfinished")),
        run(2, 10, RunStatus::Created, Some(events[0].id), None),
        run(1, 9, RunStatus::Missed, None, Some("late")),
    ];
    assert_eq!(world.runs("nightly").await, expected);
    let unpaged = world.event_ids("acme", Default::default()).await;
    assert_eq!(set(unpaged), set(events.iter().map(|event| event.id)));
    // The last decision makes nothing, and ends the schedule.
    let end = advance(&after, vec![skipped(at(900))], None);
    assert_eq!(world.advance_done(901, end).await, []);
    let ended = world.schedule("nightly").await.expect("it exists");
    assert_eq!(
        (ended.status, ended.next_run_at),
        (ScheduleStatus::Finished, None)
    );
    assert_eq!(ended.last_event, Some(events[1].id));
    assert_eq!(
        world.due(5_000, everything()).await,
        DueSchedules::default()
    );
    assert_eq!(world.runs("nightly").await[0].number, 5);
}

pub(super) async fn a_decision_applies_to_one_version(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_endpoint(1).await;
    let first = world.add_schedule(schedule("nightly", 10)).await;
    let decide = |schedule: &StoredSchedule, by| ScheduleAdvance {
        by,
        ..advance(schedule, vec![made(schedule, at(10))], Some(20))
    };
    // Of concurrent decisions one is written, whichever node made it.
    let concurrent: Vec<_> = [AdvancedBy::Owner, AdvancedBy::Request, AdvancedBy::Owner]
        .map(|by| {
            let decided = decide(&first, by);
            world
                .store
                .advance_schedule(at(11), decided, Quotas::UNLIMITED)
        })
        .into_iter()
        .collect();
    let mut done = 0;
    for advanced in concurrent {
        match advanced.await.expect("the store can be written") {
            AdvanceResult::Done(events) => done += events.len(),
            AdvanceResult::Superseded => {}
            AdvanceResult::Refused(why) => panic!("refused: {why:?}"),
        }
    }
    assert_eq!(done, 1);
    assert_eq!(world.runs("nightly").await.len(), 1);
    assert_eq!(world.event_ids("acme", Default::default()).await.len(), 1);
    // A change and a deletion supersede a decision too, and one without events.
    let second = world.schedule("nightly").await.expect("it exists");
    assert_eq!(
        world.replace_schedule(second.clone()).await,
        ReplaceResult::Done
    );
    let stale = decide(&second, AdvancedBy::Request);
    assert_eq!(world.advance(21, stale).await, AdvanceResult::Superseded);
    let stale = advance(&second, vec![skipped(at(20))], None);
    assert_eq!(world.advance(21, stale).await, AdvanceResult::Superseded);
    let third = world.schedule("nightly").await.expect("it exists");
    assert_eq!((third.revision, third.run_count), (2, 1));
    let deleted = world
        .store
        .delete_schedule(at(22), id("acme"), named("nightly"));
    assert_eq!(deleted.await, Ok(true));
    assert_eq!(
        world.advance(23, decide(&third, AdvancedBy::Owner)).await,
        AdvanceResult::Superseded
    );
    let recreated = StoredSchedule {
        created_at: at(24),
        revision: 0,
        ..first.clone()
    };
    world.add_schedule(recreated).await;
    assert_eq!(
        world.advance(25, decide(&first, AdvancedBy::Owner)).await,
        AdvanceResult::Superseded
    );
    assert_eq!(world.runs("nightly").await, []);
    assert_eq!(world.event_ids("acme", Default::default()).await.len(), 1);
    let unknown = StoredSchedule {
        tenant: id("nobody"),
        ..first
    };
    let unknown = advance(&unknown, vec![skipped(at(20))], None);
    assert_eq!(world.advance(26, unknown).await, AdvanceResult::Superseded);
}

pub(super) async fn a_refused_decision_changes_nothing(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_endpoint(1).await;
    let before = world.add_schedule(schedule("nightly", 10)).await;
    let quotas = Quotas {
        per_month: Some(1),
        ..Quotas::UNLIMITED
    };
    let decide = |runs| {
        let decided = advance(&before, runs, Some(20));
        world.store.advance_schedule(at(11), decided, quotas)
    };
    let two = vec![made(&before, at(10)), made(&before, at(11))];
    match decide(two).await.expect("the store can be written") {
        AdvanceResult::Refused(AcceptResult::OverLimit { limit, wait: _ }) => {
            assert_eq!(limit, LimitName::EventsPerMonth);
        }
        other
        @ (AdvanceResult::Done(_) | AdvanceResult::Superseded | AdvanceResult::Refused(_)) => {
            panic!("{other:?}")
        }
    }
    let mut nowhere = made(&before, at(10));
    if let NewRunOutcome::Create(event) = &mut nowhere.outcome {
        event.only = Some(EndpointId(404));
        event.ordering = Some(OrderingKey(1));
    }
    assert_eq!(
        decide(vec![nowhere]).await,
        Ok(AdvanceResult::Refused(AcceptResult::NoSuchEndpoint))
    );
    assert_eq!(world.schedule("nightly").await, Some(before.clone()));
    assert_eq!(world.runs("nightly").await, []);
    assert_eq!(world.due_names(10).await, ["nightly"]);
    // One event fits, and then the decision to skip needs no quota.
    let one = decide(vec![made(&before, at(10))]).await;
    assert!(matches!(one, Ok(AdvanceResult::Done(events)) if events.len() == 1));
    let after = world.schedule("nightly").await.expect("it exists");
    let skip = advance(&after, vec![skipped(at(20))], Some(30));
    let skip = world.store.advance_schedule(at(21), skip, quotas).await;
    assert_eq!(skip, Ok(AdvanceResult::Done(Vec::new())));
}

pub(super) async fn a_decision_with_many_deliveries_is_written_once(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    for number in 0..60 {
        world.add_endpoint(100 + number).await;
    }
    let before = world.add_schedule(schedule("nightly", 10)).await;
    let decide = |schedule: &StoredSchedule| {
        let runs = (0..20)
            .map(|number| made(schedule, at(10 + number)))
            .collect();
        advance(schedule, runs, Some(100))
    };
    let (one, two) = (
        world
            .store
            .advance_schedule(at(40), decide(&before), Quotas::UNLIMITED),
        world
            .store
            .advance_schedule(at(40), decide(&before), Quotas::UNLIMITED),
    );
    let results = [one.await.unwrap(), two.await.unwrap()];
    let done = results
        .iter()
        .filter(|it| matches!(it, AdvanceResult::Done(_)));
    assert_eq!(done.count(), 1, "{results:?}");
    assert!(results.contains(&AdvanceResult::Superseded));
    assert_eq!(world.recorder.take().len(), 1_200);
    assert_eq!(world.runs("nightly").await.len(), 20);
    let after = world.schedule("nightly").await.expect("it exists");
    assert_eq!((after.revision, after.run_count), (1, 20));
    let last = after.last_event.expect("it has made events");
    assert_eq!(world.progress(last).await, EventProgress::Unfinished);
}
