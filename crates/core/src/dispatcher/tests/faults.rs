//! Tests of internal faults, store failures, clock jumps and shutdown.
//!
//! An internal fault uses up no attempt and is followed by a growing pause. Results are kept and recorded again
//! while the store fails. Timers on the monotonic clock do not depend on the wall clock. A shutdown starts nothing
//! and waits for all results.

use super::bench::Bench;
use super::fixture::{DAY, RETRY, down, ok, settings, throttled, unlimited_rate};
use crate::delivery::Status;
use crate::dispatcher::lanes::{MAX_FAULT_DELAY, MAX_WAITING_AFTER_FAULT, MIN_WAITING_AFTER_FAULT};
use crate::dispatcher::{Command, DispatcherLimits, Input, Record, STORE_PAUSE};
use crate::lane::{BreakerSettings, BreakerState, EndpointStatus, LaneSettings};
use crate::time::Span;

fn one_at_a_time() -> LaneSettings {
    LaneSettings {
        max_in_flight: 1,
        ..unlimited_rate()
    }
}

fn drained(issued: &[Command]) -> usize {
    issued.iter().filter(|it| **it == Command::Drained).count()
}

#[test]
fn an_internal_fault_uses_no_attempt_and_is_retried_after_a_pause() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(one_at_a_time());
    let (faulty, other) = (bench.accept_one(endpoint), bench.accept_one(endpoint));
    for _ in 0..20 {
        bench.take_sent();
        bench.take_commands();
        bench.fail_by_shared_fault(faulty);
        let recorded = |it: &Command| matches!(it, Command::Record { .. });
        assert!(
            !bench.take_commands().iter().any(recorded),
            "an internal fault was counted as an attempt"
        );
        assert_eq!(bench.dispatcher.in_flight_count(), bench.flying.len());
        // Its slot is free for the other delivery at once.
        if bench.flying.contains_key(&other) {
            bench.finish(other, ok());
        }
        assert!(
            !bench.flying.contains_key(&faulty),
            "the delivery was sent again without a pause"
        );
        bench.advance(MAX_FAULT_DELAY);
        assert_eq!(bench.sent.last().unwrap().number, 1);
    }
    assert_eq!(bench.disk.status(other), Status::Succeeded);
    bench.finish(faulty, ok());
    assert_eq!(bench.disk.row(faulty).facts().attempts, 1);
    assert_eq!(bench.lane(endpoint).health, Default::default());
}

#[test]
fn an_internal_fault_does_not_change_the_breaker_or_window() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(LaneSettings {
        breaker: BreakerSettings {
            consecutive_failures: 1,
            ..BreakerSettings::default()
        },
        ..settings()
    });
    let id = bench.accept_one(endpoint);
    bench.fail_internally(id);
    assert_eq!(bench.lane(endpoint).breaker, BreakerState::Passing);
    assert_eq!(bench.lane(endpoint).in_flight, 0);
}

#[test]
fn a_failed_record_is_repeated_and_only_single_attempts_start_until_then() {
    let mut bench = Bench::new();
    bench.manual.records = true;
    let endpoint = bench.endpoint(one_at_a_time());
    let other = bench.endpoint(settings());
    let first = bench.accept_one(endpoint);
    bench.finish(first, down());
    let record = bench.records[0].clone();
    bench.fail_record();
    bench.take_sent();
    bench.accept(other, 3);
    assert_eq!(
        bench.take_sent(),
        [],
        "nothing is sent while results cannot be recorded"
    );
    let pause_ends = bench.now.tick.after(STORE_PAUSE);
    assert_eq!(bench.dispatcher.wake().tick, Some(pause_ends));
    bench.advance(Span::from_millis(STORE_PAUSE.as_millis() - 1));
    assert!(bench.records.is_empty());
    bench.advance(Span::from_millis(1));
    assert_eq!(bench.records.front(), Some(&record));
    bench.fail_record();
    bench.advance(STORE_PAUSE);
    assert_eq!(
        bench.records.front(),
        Some(&record),
        "the same record is requested again"
    );
    assert_eq!(bench.take_sent().len(), 1, "a single attempt is sent");
    bench.answer_record();
    assert_eq!(bench.take_sent().len(), 2);
    assert_eq!(bench.disk.status(first), Status::Retrying);
    bench.advance(RETRY);
    assert_eq!(bench.take_sent(), [first]);
}

#[test]
fn a_result_occupies_its_slot_until_it_is_recorded() {
    let mut bench = Bench::limited(DispatcherLimits {
        max_in_flight: 2,
        ready_per_lane: 8,
    });
    bench.manual.records = true;
    let endpoint = bench.endpoint(unlimited_rate());
    bench.accept(endpoint, 5);
    assert_eq!(bench.take_sent().len(), 2);
    bench.finish_all(ok());
    assert_eq!(
        bench.take_sent(),
        [],
        "no attempt starts while unrecorded results take all slots"
    );
    assert_eq!(bench.dispatcher.in_flight_count(), 2);
    bench.answer_record();
    assert_eq!(bench.take_sent().len(), 1);
    bench.answer_record();
    assert_eq!(bench.take_sent().len(), 1);
}

#[test]
fn a_wall_clock_set_back_does_not_delay_monotonic_timers() {
    let mut bench = Bench::new();
    bench.manual.records = true;
    let (quiet, failing) = (bench.endpoint(settings()), bench.endpoint(settings()));
    let first = bench.accept_one(quiet);
    bench.finish(first, throttled(Span::from_secs(30)));
    bench.answer_record();
    let waiting = bench.accept_one(quiet);
    let unwritten = bench.accept_one(failing);
    bench.finish(unwritten, ok());
    bench.fail_record();
    let pause_ends = bench.now.tick.after(STORE_PAUSE);
    assert_eq!(bench.dispatcher.wake().tick, Some(pause_ends));
    bench.set_back(DAY);
    bench.take_sent();
    bench.advance(STORE_PAUSE);
    assert_eq!(bench.records.len(), 1);
    bench.answer_record();
    bench.advance(Span::from_secs(30));
    assert_eq!(bench.take_sent(), [waiting]);
}

#[test]
fn a_wall_clock_set_forward_does_not_advance_monotonic_timers() {
    let mut bench = Bench::new();
    let (quiet, tripped) = (
        bench.endpoint(settings()),
        bench.endpoint(LaneSettings {
            breaker: BreakerSettings {
                consecutive_failures: 1,
                ..BreakerSettings::default()
            },
            ..settings()
        }),
    );
    let first = bench.accept_one(quiet);
    bench.finish(first, throttled(Span::from_secs(30)));
    let second = bench.accept_one(tripped);
    bench.finish(second, down());
    bench.accept(quiet, 2);
    bench.accept(tripped, 2);
    bench.take_sent();
    bench.set_forward(DAY);
    bench.handle(Input::Tick);
    bench.advance(Span::from_secs(3));
    assert_eq!(bench.take_sent(), []);
    bench.advance(Span::from_secs(27));
    assert!(bench.sent.iter().any(|it| it.endpoint == quiet));
    assert!(bench.sent.iter().any(|it| it.endpoint == tripped));
}

#[test]
fn shutdown_starts_nothing_and_reports_drained_once() {
    let mut bench = Bench::new();
    bench.manual.records = true;
    let endpoint = bench.endpoint(one_at_a_time());
    let ids = bench.accept(endpoint, 3);
    bench.take_sent();
    bench.take_commands();
    bench.handle(Input::Shutdown);
    bench.accept(endpoint, 1);
    bench.handle(Input::Work {
        endpoint,
        due: bench.now.wall,
    });
    bench.finish(ids[0], ok());
    bench.fail_record();
    assert_eq!(
        drained(&bench.issued),
        0,
        "the dispatcher has not drained while a result is unrecorded"
    );
    bench.advance(STORE_PAUSE);
    bench.answer_record();
    assert_eq!(drained(&bench.issued), 1);
    bench.handle(Input::Shutdown);
    bench.set_status(endpoint, EndpointStatus::Enabled);
    bench.advance(Span::from_hours(1));
    assert_eq!(drained(&bench.issued), 1);
    assert_eq!(bench.fetch_count(), 0);
    assert_eq!(bench.take_sent(), []);
    assert!(
        bench.disk.waits(ids[1]),
        "the waiting delivery stays in the store"
    );
}

#[test]
fn shutdown_of_an_idle_dispatcher_drains_at_once() {
    let mut bench = Bench::new();
    bench.handle(Input::Shutdown);
    assert_eq!(bench.take_commands(), [Command::Drained]);
}

#[test]
fn an_attempt_cut_off_by_shutdown_is_found_after_restart() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(settings());
    let id = bench.accept_one(endpoint);
    bench.handle(Input::Shutdown);
    bench.fail_internally(id);
    assert_eq!(drained(&bench.issued), 1);
    bench.take_sent();
    bench.restart();
    assert_eq!(bench.take_sent(), [id]);
    assert_eq!(bench.disk.row(id).facts().attempts, 0);
}

#[test]
fn cancels_are_recorded_even_when_every_slot_is_taken() {
    let mut bench = Bench::limited(DispatcherLimits {
        max_in_flight: 1,
        ready_per_lane: 8,
    });
    bench.manual.records = true;
    let endpoint = bench.endpoint(settings());
    let ids = bench.accept(endpoint, 3);
    bench.cancel(ids[1]);
    assert!(matches!(bench.records[0].1, Record::Cancel { .. }));
    bench.answer_record();
    assert_eq!(bench.flying.len(), 1);
    bench.finish(ids[0], ok());
    bench.answer_record();
    assert!(bench.flying.contains_key(&ids[2]));
}

/// A lane whose every attempt ends in an internal fault does not keep an unlimited number of deliveries waiting,
/// and continues after the waiting time.
#[test]
fn deliveries_waiting_after_internal_faults_are_bounded() {
    let mut bench = Bench::limited(DispatcherLimits {
        max_in_flight: 100,
        ready_per_lane: 256,
    });
    let endpoint = bench.endpoint(LaneSettings {
        max_in_flight: 4,
        ..unlimited_rate()
    });
    let ids = bench.accept(endpoint, 200);
    let fail_all = |bench: &mut Bench| {
        let mut faults = 0;
        while let Some(id) = bench.flying.keys().next().copied() {
            bench.fail_internally(id);
            faults += 1;
        }
        faults
    };
    let most = MAX_WAITING_AFTER_FAULT + 4;
    let faults = fail_all(&mut bench);
    assert!(
        (MAX_WAITING_AFTER_FAULT..=most).contains(&faults),
        "{faults} internal faults without any time passing"
    );
    bench.advance(Span::from_secs(1));
    let faults = fail_all(&mut bench);
    assert!(
        (1..=most).contains(&faults),
        "{faults} internal faults after a pause"
    );
    // The longer the faults last, the fewer attempts are made.
    let mut fail_all_for = |minutes: usize| {
        let mut faults = 0;
        for _ in 0..minutes * 60 {
            bench.advance(Span::from_secs(1));
            faults += fail_all(&mut bench);
        }
        faults
    };
    fail_all_for(5);
    let faults = fail_all_for(60);
    let rests = 60 * 60_000 / MAX_FAULT_DELAY.as_millis() as usize;
    assert!(
        faults >= rests - 1,
        "only {faults} internal faults: the lane has stopped retrying"
    );
    assert!(
        faults <= (rests + 1) * (MIN_WAITING_AFTER_FAULT + 4),
        "{faults} internal faults"
    );
    // After a success, waiting deliveries do not wait for the longest pause to end.
    bench.run(MAX_FAULT_DELAY, ok());
    let is_over = |id: &_| bench.disk.status(*id) == Status::Succeeded;
    assert!(ids.iter().any(is_over));
    bench.run(Span::from_secs(10), ok());
    let ended = |id: &_| bench.disk.status(*id) == Status::Succeeded;
    assert!(ids.iter().all(ended));
}
