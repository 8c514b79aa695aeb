//! Plans: the decisions about due occurrences.

use crate::schedule::*;
use crate::time::{Span, Timestamp};

/// 2026-11-19T08:00:00Z.
const START: Timestamp = Timestamp(1_795_075_200_000);

pub(super) fn definition(timing: ScheduleTiming) -> ScheduleDefinition {
    ScheduleDefinition {
        name: String::new(),
        timing,
        timezone: "UTC".to_owned(),
        target: ScheduleTarget::Event(EventTarget {
            event_type: "report.due".to_owned(),
            body: TargetBody {
                content_type: None,
                bytes: b"{}".to_vec(),
            },
            ordering_key: None,
        }),
        overlap: Overlap::default(),
        missed: MissedRuns::default(),
        starts_at: None,
        ends_at: None,
        max_runs: None,
    }
}

pub(super) fn every(seconds: u64) -> ScheduleDefinition {
    definition(ScheduleTiming::Every(Span::from_secs(seconds)))
}

pub(super) fn prepared(definition: ScheduleDefinition) -> Schedule {
    Schedule::new(definition).expect("valid")
}

pub(super) fn new_state(schedule: &Schedule, now: Timestamp) -> ScheduleState {
    let state = ScheduleState {
        status: ScheduleStatus::Active,
        next_run_at: None,
        last_run_at: None,
        run_count: 0,
        created_at: now,
        progress: ScheduleProgress::default(),
    };
    schedule.restart(now, &state)
}

fn seconds(count: u64) -> Timestamp {
    START.after(Span::from_secs(count))
}

/// Returns the runs of a plan as seconds after the start, with their outcomes.
fn runs(plan: &SchedulePlan) -> Vec<(u64, RunOutcome)> {
    let since = |run: &PlannedRun| run.scheduled_for.since(START).as_millis() / 1_000;
    plan.runs
        .iter()
        .map(|run| (since(run), run.outcome))
        .collect()
}

const CREATE: RunOutcome = RunOutcome::Create;
const LATE: RunOutcome = RunOutcome::Missed(MissedReason::Late);
const PAUSED: RunOutcome = RunOutcome::Missed(MissedReason::Paused);
const SKIP: RunOutcome = RunOutcome::Skip(SkipReason::PreviousUnfinished);

#[test]
fn an_occurrence_that_is_due_creates_an_event_and_the_next_follows() {
    let schedule = prepared(every(60));
    let state = new_state(&schedule, START);
    assert_eq!(state.next_run_at, Some(seconds(60)));
    let early = schedule.plan(Timestamp(seconds(60).0 - 1), &state, false);
    assert_eq!((early.runs.len(), &early.state), (0, &state));
    let now = Timestamp(seconds(60).0 + 30);
    let plan = schedule.plan(now, &state, true);
    assert_eq!(runs(&plan), [(60, CREATE)]);
    assert_eq!(plan.state.next_run_at, Some(seconds(120)));
    assert_eq!(
        (plan.state.run_count, plan.state.last_run_at),
        (1, Some(now))
    );
    // The same plan again, of a node that does not know that it was written.
    assert_eq!(schedule.plan(now, &state, true), plan);
    assert!(schedule.plan(now, &plan.state, true).runs.is_empty());
}

#[test]
fn a_restart_of_seconds_is_not_an_outage() {
    for missed in [MissedRuns::RunOnce, MissedRuns::Skip, MissedRuns::RunAll] {
        let schedule = prepared(ScheduleDefinition { missed, ..every(5) });
        let state = new_state(&schedule, START);
        let plan = schedule.plan(seconds(16), &state, false);
        assert_eq!(
            runs(&plan),
            [(5, CREATE), (10, CREATE), (15, CREATE)],
            "{missed:?}"
        );
    }
}

#[test]
fn missed_occurrences_run_once_not_at_all_or_all() {
    for (missed, expected) in [
        (MissedRuns::RunOnce, [LATE, LATE, LATE, CREATE]),
        (MissedRuns::Skip, [LATE, LATE, LATE, CREATE]),
        (MissedRuns::RunAll, [CREATE; 4]),
    ] {
        let schedule = prepared(ScheduleDefinition {
            missed,
            ..every(10)
        });
        let state = new_state(&schedule, START);
        let plan = schedule.plan(seconds(45), &state, false);
        let outcomes: Vec<RunOutcome> = plan.runs.iter().map(|run| run.outcome).collect();
        assert_eq!(outcomes, expected, "{missed:?}");
    }
    // Without an occurrence that is still in time, run_once runs the latest missed one, and skip none.
    for (missed, last) in [(MissedRuns::RunOnce, CREATE), (MissedRuns::Skip, LATE)] {
        let schedule = prepared(ScheduleDefinition {
            missed,
            ..every(100)
        });
        let state = new_state(&schedule, START);
        let plan = schedule.plan(seconds(390), &state, false);
        assert_eq!(
            runs(&plan),
            [(100, LATE), (200, LATE), (300, last)],
            "{missed:?}"
        );
        assert_eq!(plan.state.next_run_at, Some(seconds(400)));
    }
}

#[test]
fn occurrences_during_a_pause_are_missed_however_short_it_was() {
    for (missed, expected) in [
        (
            MissedRuns::RunOnce,
            vec![(1, PAUSED), (2, PAUSED), (3, CREATE)],
        ),
        (
            MissedRuns::Skip,
            vec![(1, PAUSED), (2, PAUSED), (3, PAUSED)],
        ),
        (
            MissedRuns::RunAll,
            vec![(1, CREATE), (2, CREATE), (3, CREATE)],
        ),
    ] {
        let schedule = prepared(ScheduleDefinition { missed, ..every(1) });
        let paused = new_state(&schedule, START).paused();
        assert!(schedule.plan(seconds(3), &paused, false).runs.is_empty());
        let now = Timestamp(seconds(3).0 + 400);
        let resumed = schedule.resumed(now, &paused);
        let plan = schedule.plan(now, &resumed, false);
        assert_eq!(runs(&plan), expected, "{missed:?}");
        assert_eq!(plan.state.next_run_at, Some(seconds(4)));
    }
}

#[test]
fn a_run_is_skipped_while_the_previous_one_is_unfinished() {
    let skip = |missed| {
        prepared(ScheduleDefinition {
            overlap: Overlap::Skip,
            missed,
            ..every(10)
        })
    };
    let schedule = skip(MissedRuns::RunOnce);
    let state = new_state(&schedule, START);
    let plan = schedule.plan(seconds(10), &state, true);
    assert_eq!(runs(&plan), [(10, SKIP)]);
    assert_eq!((plan.state.run_count, plan.state.last_run_at), (0, None));
    let plan = schedule.plan(seconds(10), &state, false);
    assert_eq!(runs(&plan), [(10, CREATE)]);
    // The first of several runs of one plan is the unfinished previous run of the next.
    let schedule = skip(MissedRuns::RunAll);
    let plan = schedule.plan(seconds(30), &state, false);
    assert_eq!(runs(&plan), [(10, CREATE), (20, SKIP), (30, SKIP)]);
}

#[test]
fn a_long_outage_costs_a_bounded_number_of_runs() {
    let day = 86_400;
    let once = prepared(every(1));
    let state = new_state(&once, START);
    let plan = once.plan(seconds(day), &state, false);
    assert_eq!(plan.runs.len(), MAX_DUE_PER_PLAN + 1);
    assert_eq!(runs(&plan)[0], (1, RunOutcome::Missed(MissedReason::Many)));
    assert_eq!(runs(&plan)[1], (day - 99, LATE));
    assert_eq!(runs(&plan)[MAX_DUE_PER_PLAN], (day, CREATE));
    assert_eq!(plan.state.run_count, 1);

    // run_all runs the latest 100, in pieces.
    let all = prepared(ScheduleDefinition {
        missed: MissedRuns::RunAll,
        ..every(1)
    });
    let mut state = state;
    let mut created = Vec::new();
    let mut plans = 0;
    while state.next_run_at.is_some_and(|next| next <= seconds(day)) {
        let plan = all.plan(seconds(day), &state, false);
        let of_plan = runs(&plan)
            .into_iter()
            .filter(|(_, outcome)| *outcome == CREATE);
        let of_plan: Vec<u64> = of_plan.map(|(at, _)| at).collect();
        assert!(of_plan.len() <= MAX_CREATED_PER_PLAN);
        created.extend(of_plan);
        state = plan.state;
        plans += 1;
    }
    assert_eq!(created, (day - 99..=day).collect::<Vec<u64>>());
    assert_eq!(plans, 5);
    assert_eq!(state.run_count, 100);
}

#[test]
fn a_schedule_finishes_after_its_end_its_last_time_or_its_last_run() {
    let ends = prepared(ScheduleDefinition {
        ends_at: Some(seconds(20)),
        ..every(10)
    });
    let plan = ends.plan(seconds(20), &new_state(&ends, START), false);
    assert_eq!(runs(&plan), [(10, CREATE), (20, CREATE)]);
    assert_eq!(
        (plan.state.status, plan.state.next_run_at),
        (ScheduleStatus::Finished, None)
    );

    let list = prepared(definition(ScheduleTiming::At(vec![seconds(5), seconds(9)])));
    let plan = list.plan(seconds(5), &new_state(&list, START), false);
    assert_eq!(
        (plan.state.status, plan.state.next_run_at),
        (ScheduleStatus::Active, Some(seconds(9)))
    );
    let plan = list.plan(seconds(9), &plan.state, false);
    assert_eq!(
        (plan.state.status, plan.state.run_count),
        (ScheduleStatus::Finished, 2)
    );

    let twice = prepared(ScheduleDefinition {
        max_runs: Some(2),
        ..every(1)
    });
    let plan = twice.plan(seconds(9), &new_state(&twice, START), false);
    assert_eq!(runs(&plan), [(1, CREATE), (2, CREATE)]);
    assert_eq!(
        (plan.state.status, plan.state.next_run_at),
        (ScheduleStatus::Finished, None)
    );
    assert_eq!(twice.restart(seconds(9), &plan.state), plan.state);
}

#[test]
fn intervals_are_counted_from_the_start_or_the_creation() {
    let starts = |at| {
        prepared(ScheduleDefinition {
            starts_at: Some(at),
            ..every(60)
        })
    };
    assert_eq!(
        starts(seconds(30)).next_after(START, START),
        Some(seconds(30))
    );
    assert_eq!(
        starts(seconds(30)).next_after(seconds(30), START),
        Some(seconds(90))
    );
    let past = Timestamp(START.0 - 50_000);
    assert_eq!(starts(past).next_after(START, START), Some(seconds(10)));
    let cron = definition(ScheduleTiming::Cron("*/10 * * * *".to_owned()));
    let cron = prepared(ScheduleDefinition {
        starts_at: Some(seconds(600)),
        ..cron
    });
    assert_eq!(
        cron.upcoming(START, START, 2),
        [seconds(600), seconds(1_200)]
    );
}

#[test]
fn a_changed_definition_starts_anew_and_a_pause_survives_it() {
    let schedule = prepared(every(60));
    let state = new_state(&schedule, START);
    let changed = prepared(every(7));
    assert_eq!(
        changed.restart(seconds(20), &state).next_run_at,
        Some(seconds(21))
    );
    let paused = changed.restart(seconds(20), &state.paused());
    assert_eq!(
        (paused.status, paused.next_run_at),
        (ScheduleStatus::Paused, Some(seconds(21)))
    );
    let finished = ScheduleState {
        status: ScheduleStatus::Finished,
        next_run_at: None,
        ..state
    };
    assert_eq!(
        changed.restart(seconds(20), &finished).status,
        ScheduleStatus::Active
    );
    assert_eq!(changed.resumed(seconds(20), &finished), finished);
    assert_eq!(finished.paused(), finished);
}

#[test]
fn the_stored_form_is_stable_and_reads_back() {
    let full = ScheduleDefinition {
        name: "Nightly".to_owned(),
        timezone: "Europe/Berlin".to_owned(),
        overlap: Overlap::Skip,
        missed: MissedRuns::RunAll,
        starts_at: Some(START),
        max_runs: Some(3),
        ..definition(ScheduleTiming::Cron("0 9 * * *".to_owned()))
    };
    let stored = full.stored();
    assert_eq!(
        stored,
        r#"{"name":"Nightly","timing":{"cron":"0 9 * * *"},"timezone":"Europe/Berlin","target":{"event":{"type":"report.due","body":{"bytes":{"text":"{}"}}}},"overlap":"skip","missed":"run_all","starts_at":1795075200000,"max_runs":3}"#
    );
    assert_eq!(ScheduleDefinition::read(&stored).expect("readable"), full);
    let raw = TargetBody {
        content_type: Some("image/png".to_owned()),
        bytes: vec![0x89, b'P', 0xff],
    };
    let text = serde_json::to_string(&raw).expect("JSON");
    assert_eq!(
        text,
        r#"{"content_type":"image/png","bytes":{"base64":"iVD/"}}"#
    );
    assert_eq!(
        serde_json::from_str::<TargetBody>(&text).expect("readable"),
        raw
    );
    let progress = ScheduleProgress {
        resumed_at: Some(START),
        watched: None,
    };
    assert_eq!(ScheduleProgress::read(&progress.stored()), progress);
    assert_eq!(ScheduleProgress::read(""), ScheduleProgress::default());
    assert_eq!(ScheduleProgress::default().stored(), "{}");
}

#[test]
fn a_plan_can_be_limited_to_one_event() {
    let schedule = prepared(every(1));
    let state = new_state(&schedule, START);
    assert_eq!(schedule.plan(seconds(3), &state, false).runs.len(), 3);
    let mut state = state;
    for second in 1..=3 {
        let plan = schedule.plan_at_most(seconds(3), &state, false, 1);
        assert_eq!(runs(&plan), [(second, CREATE)]);
        state = plan.state;
    }
    assert!(schedule.plan(seconds(3), &state, false).runs.is_empty());
}

#[test]
fn other_limits_keep_an_occurrence_that_is_due() {
    let with = |max_runs, ends_at| {
        prepared(ScheduleDefinition {
            max_runs,
            ends_at,
            ..every(60)
        })
    };
    let state = new_state(&with(None, None), START);
    // The occurrence at 60 s is due and not decided yet.
    let now = seconds(61);
    let more = with(Some(5), Some(seconds(600)));
    assert_eq!(more.with_other_limits(now, &state), state);
    let over = with(None, Some(seconds(30))).with_other_limits(now, &state);
    assert_eq!(
        (over.status, over.next_run_at),
        (ScheduleStatus::Finished, None)
    );
    // A finished schedule runs again if the limits allow it.
    let again = more.with_other_limits(now, &over);
    assert_eq!(
        (again.status, again.next_run_at),
        (ScheduleStatus::Active, Some(seconds(120)))
    );
}
