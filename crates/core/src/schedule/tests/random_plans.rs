//! Random sequences of plans, pauses and outages: every occurrence gets exactly one run.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::planning::{every, new_state, prepared};
use crate::schedule::*;
use crate::time::{Span, Timestamp};

const START: Timestamp = Timestamp(1_795_075_200_000);

#[derive(Clone, Debug)]
enum Step {
    /// The clock goes on, and the schedule is planned.
    Plan(u64),
    /// The clock goes back. The next plan sees an earlier time.
    SetBack(u64),
    Pause,
    Resume,
    /// The plan is computed and not written: the node crashed.
    Crash(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0u64..30_000).prop_map(Step::Plan),
        1 => (0u64..600_000).prop_map(Step::Plan),
        1 => (0u64..60_000).prop_map(Step::SetBack),
        1 => Just(Step::Pause),
        1 => Just(Step::Resume),
        2 => (0u64..30_000).prop_map(Step::Crash),
    ]
}

proptest! {
    #[test]
    fn every_occurrence_gets_exactly_one_run(
        steps in proptest::collection::vec(step(), 1..60),
        interval in 1u64..20,
        missed in prop_oneof![Just(MissedRuns::RunOnce), Just(MissedRuns::Skip), Just(MissedRuns::RunAll)],
        overlap in prop_oneof![Just(Overlap::Allow), Just(Overlap::Skip)],
        max_runs in prop_oneof![Just(None), (1u32..30).prop_map(Some)],
    ) {
        let schedule = prepared(ScheduleDefinition { missed, overlap, max_runs, ..every(interval) });
        let mut state = new_state(&schedule, START);
        let mut now = START;
        let mut written: BTreeMap<Timestamp, RunOutcome> = BTreeMap::new();
        let mut dropped = false;
        for step in steps {
            let plans = match step {
                Step::Plan(ms) => { now = now.after(Span::from_millis(ms)); true }
                Step::Crash(ms) => {
                    now = now.after(Span::from_millis(ms));
                    let _ = schedule.plan(now, &state, false);
                    false
                }
                Step::SetBack(ms) => { now = Timestamp(now.0 - ms.min(now.0 - START.0)); true }
                Step::Pause => { state = state.paused(); false }
                Step::Resume => { state = schedule.resumed(now, &state); false }
            };
            if !plans {
                continue;
            }
            let is_unfinished = written.values().last() == Some(&RunOutcome::Create);
            let plan = schedule.plan(now, &state, is_unfinished);
            let created = plan.runs.iter().filter(|run| run.outcome == RunOutcome::Create).count();
            prop_assert!(created <= MAX_CREATED_PER_PLAN && plan.runs.len() <= MAX_DUE_PER_PLAN + 1);
            prop_assert_eq!(plan.state.run_count, state.run_count + created as u64);
            prop_assert!(plan.runs.is_sorted_by(|a, b| a.scheduled_for < b.scheduled_for));
            for run in &plan.runs {
                prop_assert!(run.scheduled_for <= now, "a run from the future");
                dropped |= run.outcome == RunOutcome::Missed(MissedReason::Many);
                let earlier = written.insert(run.scheduled_for, run.outcome);
                prop_assert_eq!(earlier, None, "an occurrence ran twice");
            }
            state = plan.state;
            prop_assert_eq!(state.status == ScheduleStatus::Finished, state.next_run_at.is_none());
        }
        if let Some(max) = max_runs {
            prop_assert!(state.run_count <= u64::from(max));
        }
        // Without gaps: all occurrences up to the last one have a run, unless many were written as one.
        if let Some((last, _)) = written.last_key_value()
            && !dropped
        {
            let expected = last.since(START).as_millis() / (interval * 1_000);
            prop_assert_eq!(written.len() as u64, expected);
        }
    }
}
