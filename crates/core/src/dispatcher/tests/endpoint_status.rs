//! Tests of endpoints that are paused, disabled, deleted and enabled again, by callers and by posthaste.
//!
//! No attempt starts for an endpoint that is not enabled. Disabling and deleting sweep the waiting deliveries, and
//! a later status change waits for the sweep. Failures warn first and then disable; enabling starts with a clean
//! health.

use super::bench::Bench;
use super::fixture::{
    RETRY, disabled_by_failures, down, gone, ok, refused, settings, unlimited_rate,
};
use crate::delivery::{DeadReason, State, Status};
use crate::dispatcher::{AttemptRecord, Command, DispatcherLimits, EndpointChange, Input, Record};
use crate::id::{DeliveryId, EndpointId};
use crate::lane::{
    BreakerSettings, BreakerState, DisableCause, EndpointStatus, Health, LaneSettings, TripReason,
};
use crate::policy::{Backoff, RetryPolicy};
use crate::time::Span;

fn one_at_a_time() -> LaneSettings {
    LaneSettings {
        max_in_flight: 1,
        ..unlimited_rate()
    }
}

fn dead(bench: &Bench, id: DeliveryId) -> DeadReason {
    match bench.disk.row(id).state() {
        State::Failed { reason, .. } => reason,
        state @ (State::Pending(_)
        | State::Retrying(_)
        | State::Held(_)
        | State::InProgress { .. }
        | State::Succeeded { .. }
        | State::Cancelled { .. }) => panic!("{id} has not failed: {state:?}"),
    }
}

fn record(bench: &Bench) -> AttemptRecord {
    match &bench.records.back().expect("a record is pending").1 {
        Record::Attempt(record) => (**record).clone(),
        Record::Cancel { .. } | Record::Expire(_) => panic!("expected the record of an attempt"),
    }
}

#[test]
fn no_attempt_starts_after_an_endpoint_is_shut() {
    for status in [
        EndpointStatus::Paused,
        EndpointStatus::Disabled,
        EndpointStatus::Deleted,
    ] {
        let mut bench = Bench::new();
        let endpoint = bench.endpoint(one_at_a_time());
        let ids = bench.accept(endpoint, 5);
        bench.set_status(endpoint, status);
        bench.take_sent();
        bench.finish(ids[0], ok());
        bench.accept(endpoint, 1);
        bench.advance(Span::from_hours(2));
        assert_eq!(bench.take_sent(), [], "{status:?}");
        // The attempt that was in flight completed and counts.
        assert_eq!(bench.disk.status(ids[0]), Status::Succeeded);
    }
}

#[test]
fn disabling_fails_waiting_deliveries_but_not_those_in_flight() {
    for (status, reason) in [
        (EndpointStatus::Disabled, DeadReason::EndpointDisabled),
        (EndpointStatus::Deleted, DeadReason::EndpointDeleted),
    ] {
        let mut bench = Bench::limited(DispatcherLimits {
            max_in_flight: 100,
            ready_per_lane: 4,
        });
        bench.manual.sweeps = true;
        bench.manual.records = true;
        let endpoint = bench.endpoint(LaneSettings {
            max_in_flight: 2,
            ..unlimited_rate()
        });
        let ids = bench.accept(endpoint, 12);
        bench.finish(ids[0], ok());
        bench.cancel(ids[4]);
        let flying: Vec<_> = bench.flying.keys().copied().collect();
        bench.set_status(endpoint, status);
        let sweep = bench.sweeps[0].clone();
        // In flight, being recorded, being cancelled: each ends by its own record.
        assert_eq!(sweep.reason, reason);
        assert_eq!(sweep.except, [ids[0], flying[0], flying[1], ids[4]]);
        assert_eq!(bench.lane(endpoint).ready, 0);
        bench.answer_sweep();
        assert!(bench.sweeps.is_empty(), "the endpoint was swept twice");
        assert_eq!(dead(&bench, ids[11]), reason);
        bench.finish(flying[0], down());
        // The attempt failed, but the delivery is not retried because the endpoint is disabled or deleted.
        let last = record(&bench);
        assert_eq!(last.settlement.next_attempt_at, None);
        assert_eq!(last.settlement.number, 1);
        assert_eq!(last.delivery.facts().attempts, 1);
        bench.finish(flying[1], ok());
        while !bench.records.is_empty() {
            bench.answer_record();
        }
        assert_eq!(dead(&bench, flying[0]), reason);
        assert_eq!(bench.disk.status(flying[1]), Status::Succeeded);
        assert_eq!(bench.disk.status(ids[4]), Status::Cancelled);
        assert!(bench.disk.rows().all(|row| row.status().is_terminal()));
        // The cancelled delivery may have been replayed, so the store is checked once more.
        bench.answer_sweep();
        bench.advance(Span::from_mins(2));
        assert_eq!(bench.dispatcher.lane_count(), 0);
    }
}

#[test]
fn a_retry_recorded_during_a_disable_is_swept() {
    for swept_first in [false, true] {
        let mut bench = Bench::new();
        bench.manual.sweeps = true;
        bench.manual.records = true;
        let endpoint = bench.endpoint(one_at_a_time());
        let ids = bench.accept(endpoint, 2);
        bench.finish(ids[0], down());
        bench.finish(ids[1], down());
        bench.set_status(endpoint, EndpointStatus::Disabled);
        bench.accept(endpoint, 1);
        if swept_first {
            bench.answer_sweep();
        }
        bench.answer_record();
        bench.answer_record();
        while !bench.sweeps.is_empty() {
            bench.answer_sweep();
        }
        for id in ids {
            assert_eq!(dead(&bench, id), DeadReason::EndpointDisabled);
        }
    }
}

#[test]
fn an_attempt_with_an_internal_fault_after_a_disable_is_swept() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(settings());
    let id = bench.accept_one(endpoint);
    bench.set_status(endpoint, EndpointStatus::Disabled);
    bench.fail_internally(id);
    assert_eq!(dead(&bench, id), DeadReason::EndpointDisabled);
    assert_eq!(bench.disk.row(id).facts().attempts, 0);
}

#[test]
fn deliveries_accepted_for_a_disabled_endpoint_are_swept() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(settings());
    bench.set_status(endpoint, EndpointStatus::Disabled);
    let id = bench.accept_one(endpoint);
    assert_eq!(dead(&bench, id), DeadReason::EndpointDisabled);
}

#[test]
fn enabling_waits_for_the_sweep_in_progress() {
    let mut bench = Bench::new();
    bench.manual.sweeps = true;
    let endpoint = bench.endpoint(one_at_a_time());
    let ids = bench.accept(endpoint, 3);
    bench.finish(ids[0], ok());
    bench.finish(ids[1], ok());
    bench.finish(ids[2], down());
    bench.set_status(endpoint, EndpointStatus::Disabled);
    bench.set_status(endpoint, EndpointStatus::Enabled);
    bench.take_sent();
    bench.advance(Span::from_mins(1));
    assert_eq!(bench.take_sent(), []);
    assert_eq!(bench.lane(endpoint).status, EndpointStatus::Disabled);
    bench.answer_sweep();
    assert_eq!(bench.lane(endpoint).status, EndpointStatus::Enabled);
    assert_eq!(dead(&bench, ids[2]), DeadReason::EndpointDisabled);
    let next = bench.accept_one(endpoint);
    assert_eq!(bench.take_sent(), [next]);
}

#[test]
fn pausing_during_a_sweep_applies_after_it() {
    let mut bench = Bench::new();
    bench.manual.sweeps = true;
    let endpoint = bench.endpoint(one_at_a_time());
    let ids = bench.accept(endpoint, 3);
    bench.set_status(endpoint, EndpointStatus::Disabled);
    bench.set_status(endpoint, EndpointStatus::Paused);
    assert_eq!(bench.lane(endpoint).status, EndpointStatus::Disabled);
    bench.finish(ids[0], ok());
    bench.answer_sweep();
    assert_eq!(bench.lane(endpoint).status, EndpointStatus::Paused);
    bench.take_sent();
    let held = bench.accept_one(endpoint);
    bench.advance(Span::from_mins(5));
    assert_eq!(bench.take_sent(), []);
    assert!(bench.disk.waits(held));
}

#[test]
fn resuming_starts_slowly_and_closes_a_tripped_breaker() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(LaneSettings {
        breaker: BreakerSettings {
            consecutive_failures: 3,
            longest_wait: Span::from_hours(10),
            first_wait: Span::from_hours(10),
            ..BreakerSettings::default()
        },
        ..settings()
    });
    bench.accept(endpoint, 3);
    bench.finish_all(down());
    assert!(bench.lane(endpoint).holds);
    bench.accept(endpoint, 9);
    bench.set_status(endpoint, EndpointStatus::Paused);
    bench.take_sent();
    bench.advance(Span::from_mins(1));
    assert_eq!(bench.take_sent(), []);
    bench.set_status(endpoint, EndpointStatus::Enabled);
    let view = bench.lane(endpoint);
    assert_eq!(view.breaker, BreakerState::Passing);
    assert_eq!(view.health.trip, None);
    assert_eq!(view.health.consecutive_failures, 0);
    assert_eq!(bench.sent.len(), 1, "one attempt at a time at first");
    bench.run(Span::from_secs(30), ok());
    assert!(bench.disk.rows().all(|it| it.status() == Status::Succeeded));
}

#[test]
fn a_status_change_before_the_introduction_is_kept() {
    for (stored, wish, sends) in [
        (EndpointStatus::Enabled, EndpointStatus::Paused, false),
        (EndpointStatus::Enabled, EndpointStatus::Disabled, false),
        (EndpointStatus::Paused, EndpointStatus::Enabled, true),
    ] {
        let mut bench = Bench::new();
        bench.manual.introductions = true;
        let endpoint = bench.endpoint(settings());
        let id = bench.accept_one(endpoint);
        // The configuration was read before the requested status was written.
        bench.stored(endpoint).status = stored;
        let snapshot = bench.stored(endpoint).clone();
        bench.set_status(endpoint, wish);
        bench.handle(Input::EndpointLoaded(snapshot));
        assert_eq!(!bench.take_sent().is_empty(), sends, "{wish:?}");
        let lane = bench.dispatcher.lane(bench.now, endpoint);
        assert!(lane.is_none_or(|lane| lane.status == wish));
        assert_eq!(bench.disk.waits(id), wish != EndpointStatus::Disabled);
    }
}

#[test]
fn an_introduction_during_a_sweep_does_not_open_the_gate() {
    let mut bench = Bench::new();
    bench.manual.introductions = true;
    bench.manual.sweeps = true;
    let endpoint = bench.endpoint(settings());
    let swept = bench.accept_one(endpoint);
    bench.set_status(endpoint, EndpointStatus::Disabled);
    bench.set_status(endpoint, EndpointStatus::Enabled);
    bench.load_endpoint(endpoint);
    assert_eq!(bench.take_sent(), []);
    bench.answer_sweep();
    assert_eq!(bench.take_sent(), []);
    assert_eq!(dead(&bench, swept), DeadReason::EndpointDisabled);
    let next = bench.accept_one(endpoint);
    assert_eq!(bench.take_sent(), [next]);
}

#[test]
fn deliveries_of_a_missing_endpoint_fail_and_its_lane_is_forgotten() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(settings());
    bench.unregister(endpoint);
    let id = bench.accept_one(endpoint);
    assert_eq!(dead(&bench, id), DeadReason::EndpointDeleted);
    bench.advance(Span::from_mins(2));
    assert_eq!(bench.dispatcher.lane_count(), 0);
}

#[test]
fn gone_disables_in_the_same_record_and_sweeps_after_it() {
    let mut bench = Bench::new();
    bench.manual.records = true;
    bench.manual.sweeps = true;
    let endpoint = bench.endpoint(LaneSettings {
        max_in_flight: 2,
        ..unlimited_rate()
    });
    let ids = bench.accept(endpoint, 4);
    bench.take_commands();
    bench.finish(ids[0], gone());
    assert_eq!(record(&bench).disable, Some(DisableCause::Gone));
    // It is too late for a warning.
    assert_eq!(
        bench.endpoint_changes(),
        [EndpointChange::Disabled(DisableCause::Gone)]
    );
    bench.take_sent();
    // The second attempt in flight gets the same response, which causes no second endpoint change.
    bench.finish(ids[1], gone());
    assert_eq!(record(&bench).disable, None);
    assert_eq!(bench.endpoint_changes(), []);
    assert_eq!(bench.take_sent(), []);
    assert!(
        bench.sweeps.is_empty(),
        "the endpoint was swept before the reason was recorded"
    );
    bench.fail_record();
    bench.answer_record();
    assert!(bench.sweeps.is_empty());
    bench.advance(crate::dispatcher::STORE_PAUSE);
    bench.answer_record();
    assert_eq!(bench.sweeps.len(), 1);
    bench.answer_sweep();
    assert_eq!(dead(&bench, ids[0]), DeadReason::Permanent);
    assert_eq!(dead(&bench, ids[2]), DeadReason::EndpointDisabled);
    assert_eq!(bench.take_sent(), []);
}

#[test]
fn a_wave_of_refusals_holds_the_other_deliveries_and_fails_none_of_them() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(unlimited_rate());
    bench.accept(endpoint, 500);
    let mut changes = Vec::new();
    let mut refusals = 0;
    while let Some(id) = bench.flying.keys().next().copied() {
        refusals += 1;
        bench.finish(id, refused());
        changes.extend(bench.endpoint_changes());
    }
    let tripped = EndpointChange::BreakerTripped(TripReason::Refusals);
    assert_eq!(changes, [tripped]);
    assert!(refusals <= 110, "{refusals} refused");
    assert_eq!(bench.stored(endpoint).status, EndpointStatus::Enabled);
    let failed = |bench: &Bench| {
        bench
            .disk
            .rows()
            .filter(|row| row.status().is_terminal())
            .count()
    };
    assert_eq!(failed(&bench), refusals);
    // Probes that are refused fail no delivery, and use up no attempt of its policy.
    bench.run(Span::from_mins(10), refused());
    assert_eq!(failed(&bench), refusals);
    assert!(bench.lane(endpoint).holds);
    let probed: Vec<_> = bench
        .disk
        .rows()
        .filter(|row| row.facts().attempts > 0 && !row.status().is_terminal())
        .collect();
    assert!(
        probed.len() > 2,
        "the probes used {} deliveries",
        probed.len()
    );
    assert!(probed.iter().all(|row| row.facts().spent == 0));
    bench.run(Span::from_mins(20), ok());
    assert_eq!(bench.endpoint_changes(), [EndpointChange::Recovered]);
    let succeeded = bench
        .disk
        .rows()
        .filter(|row| row.status() == Status::Succeeded);
    assert_eq!(succeeded.count(), 500 - refusals);
}

#[test]
fn five_days_of_failure_warn_and_then_disable() {
    let mut bench = Bench::new();
    let hour = Span::from_hours(1);
    let endpoint = bench.endpoint(LaneSettings {
        policy: RetryPolicy {
            backoff: Backoff::Fixed { interval: hour },
            max_attempts: 1_000,
            give_up_after: Span::from_days(30),
            ..settings().policy
        },
        breaker: BreakerSettings {
            consecutive_failures: 10_000,
            ..BreakerSettings::default()
        },
        ..settings()
    });
    let id = bench.accept_one(endpoint);
    let mut changes = Vec::new();
    for hours in 0..200 {
        bench.finish(id, down());
        changes.extend(
            bench
                .endpoint_changes()
                .into_iter()
                .map(|change| (hours, change)),
        );
        bench.advance(hour);
        if bench.flying.is_empty() {
            break;
        }
    }
    let cause = DisableCause::FailingForDays;
    assert_eq!(
        changes,
        [
            (96, EndpointChange::DisableWarning(cause)),
            (120, EndpointChange::Disabled(cause))
        ]
    );
    // The delivery whose attempt disabled the endpoint is not retried either.
    assert_eq!(dead(&bench, id), DeadReason::EndpointDisabled);
}

#[test]
fn enabling_an_automatically_disabled_endpoint_resets_health() {
    let mut bench = Bench::new();
    let endpoint = disabled_by_failures(&mut bench);
    bench.set_status(endpoint, EndpointStatus::Enabled);
    let health = bench.lane(endpoint).health;
    assert_eq!(
        health,
        Health {
            revision: health.revision,
            ..Health::default()
        }
    );
    bench.take_commands();
    let id = bench.accept_one(endpoint);
    bench.finish(id, refused());
    assert_eq!(bench.lane(endpoint).status, EndpointStatus::Enabled);
    assert_eq!(bench.endpoint_changes(), []);
}

#[test]
fn enabling_fetches_deliveries_accepted_meanwhile() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(settings());
    bench.accept_one(endpoint);
    bench.finish_all(ok());
    bench.set_status(endpoint, EndpointStatus::Disabled);
    let missed = bench.commit(endpoint, None);
    bench.take_sent();
    bench.set_status(endpoint, EndpointStatus::Enabled);
    assert_eq!(bench.take_sent(), [missed.id()]);
}

#[test]
fn an_endpoint_that_is_introduced_disabled_is_swept() {
    let mut bench = Bench::new();
    let endpoint: EndpointId = bench.endpoint(settings());
    bench.stored(endpoint).status = EndpointStatus::Disabled;
    let id = bench.accept_one(endpoint);
    assert_eq!(dead(&bench, id), DeadReason::EndpointDisabled);
    assert!(
        bench
            .take_commands()
            .iter()
            .all(|it| !matches!(it, Command::Fetch { .. }))
    );
}

#[test]
fn a_paused_endpoint_keeps_its_retries() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(settings());
    let id = bench.accept_one(endpoint);
    bench.set_status(endpoint, EndpointStatus::Paused);
    bench.finish(id, down());
    assert_eq!(
        bench.disk.status(id),
        Status::Retrying,
        "the delivery is not failed"
    );
    bench.take_sent();
    bench.advance(RETRY.times(3));
    assert_eq!(bench.take_sent(), []);
    bench.set_status(endpoint, EndpointStatus::Enabled);
    assert_eq!(bench.take_sent(), [id]);
}
