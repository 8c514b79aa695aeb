//! Internal faults, store failures, clock jumps and shutdown.

use super::bench::Bench;
use super::given::{DAY, RETRY, down, ok, settings, throttled, unhurried};
use crate::delivery::Status;
use crate::dispatcher::lanes::{MAX_FAULT_DELAY, MAX_WAITING_AFTER_FAULT, MIN_WAITING_AFTER_FAULT};
use crate::dispatcher::{Command, Input, Limits, Record, STORE_PAUSE};
use crate::lane::{BreakerSettings, BreakerState, LaneSettings, Standing};
use crate::time::Span;

fn one_at_a_time() -> LaneSettings {
    LaneSettings {
        max_in_flight: 1,
        ..unhurried()
    }
}

fn drained(said: &[Command]) -> usize {
    said.iter().filter(|it| **it == Command::Drained).count()
}

#[test]
fn a_fault_of_our_own_spends_no_attempt_and_comes_again_after_a_rest() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(one_at_a_time());
    let (poor, other) = (bench.accept_one(endpoint), bench.accept_one(endpoint));
    for _ in 0..20 {
        bench.take_sent();
        bench.listen();
        bench.fall(poor);
        let recorded = |it: &Command| matches!(it, Command::Record { .. });
        assert!(
            !bench.listen().iter().any(recorded),
            "something was counted"
        );
        assert_eq!(bench.dispatcher.flight_count(), bench.flying.len());
        // Its slot is free for the other delivery at once.
        if bench.flying.contains_key(&other) {
            bench.finish(other, ok());
        }
        assert!(!bench.flying.contains_key(&poor), "it came back at once");
        bench.pass(MAX_FAULT_DELAY);
        assert_eq!(bench.sent.last().unwrap().number, 1);
    }
    assert_eq!(bench.disk.status(other), Status::Succeeded);
    bench.finish(poor, ok());
    assert_eq!(bench.disk.row(poor).facts().attempts, 1);
    assert_eq!(bench.lane(endpoint).health, Default::default());
}

#[test]
fn a_fault_of_our_own_does_not_open_or_close_anything() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(LaneSettings {
        breaker: BreakerSettings {
            consecutive_failures: 1,
            ..BreakerSettings::default()
        },
        ..settings()
    });
    let id = bench.accept_one(endpoint);
    bench.fall(id);
    assert_eq!(bench.lane(endpoint).breaker, BreakerState::Passing);
    assert_eq!(bench.lane(endpoint).in_flight, 0);
}

#[test]
fn a_failed_record_is_asked_for_again_and_until_one_is_written_hardly_anything_is_sent() {
    let mut bench = Bench::new();
    bench.by_hand.records = true;
    let endpoint = bench.endpoint(one_at_a_time());
    let other = bench.endpoint(settings());
    let first = bench.accept_one(endpoint);
    bench.finish(first, down());
    let record = bench.records[0].clone();
    bench.fail_record();
    bench.take_sent();
    bench.accept(other, 3);
    assert_eq!(bench.take_sent(), [], "sent though no result can be kept");
    let pause_ends = bench.now.tick.after(STORE_PAUSE);
    assert_eq!(bench.dispatcher.wake().tick, Some(pause_ends));
    bench.pass(Span::from_millis(STORE_PAUSE.as_millis() - 1));
    assert!(bench.records.is_empty());
    bench.pass(Span::from_millis(1));
    assert_eq!(bench.records.front(), Some(&record));
    bench.fail_record();
    bench.pass(STORE_PAUSE);
    assert_eq!(bench.records.front(), Some(&record), "and again");
    assert_eq!(bench.take_sent().len(), 1, "one on trial");
    bench.answer_record();
    assert_eq!(bench.take_sent().len(), 2);
    assert_eq!(bench.disk.status(first), Status::Retrying);
    bench.pass(RETRY);
    assert_eq!(bench.take_sent(), [first]);
}

#[test]
fn a_result_holds_its_place_until_it_is_on_disk() {
    let mut bench = Bench::limited(Limits {
        max_flights: 2,
        ready_per_lane: 8,
    });
    bench.by_hand.records = true;
    let endpoint = bench.endpoint(unhurried());
    bench.accept(endpoint, 5);
    assert_eq!(bench.take_sent().len(), 2);
    bench.finish_all(ok());
    assert_eq!(bench.take_sent(), [], "results pile up");
    assert_eq!(bench.dispatcher.flight_count(), 2);
    bench.answer_record();
    assert_eq!(bench.take_sent().len(), 1);
    bench.answer_record();
    assert_eq!(bench.take_sent().len(), 1);
}

#[test]
fn a_wall_clock_set_back_a_day_does_not_stall_what_counts_in_ticks() {
    let mut bench = Bench::new();
    bench.by_hand.records = true;
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
    bench.pass(STORE_PAUSE);
    assert_eq!(bench.records.len(), 1);
    bench.answer_record();
    bench.pass(Span::from_secs(30));
    assert_eq!(bench.take_sent(), [waiting]);
}

#[test]
fn a_wall_clock_set_forward_a_day_does_not_hasten_what_counts_in_ticks() {
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
    bench.tell(Input::Tick);
    bench.pass(Span::from_secs(3));
    assert_eq!(bench.take_sent(), []);
    bench.pass(Span::from_secs(27));
    assert!(bench.sent.iter().any(|it| it.endpoint == quiet));
    assert!(bench.sent.iter().any(|it| it.endpoint == tripped));
}

#[test]
fn shutdown_begins_nothing_and_says_once_that_all_is_written() {
    let mut bench = Bench::new();
    bench.by_hand.records = true;
    let endpoint = bench.endpoint(one_at_a_time());
    let ids = bench.accept(endpoint, 3);
    bench.take_sent();
    bench.listen();
    bench.tell(Input::Shutdown);
    bench.accept(endpoint, 1);
    bench.tell(Input::Work {
        endpoint,
        due: bench.now.wall,
    });
    bench.finish(ids[0], ok());
    bench.fail_record();
    assert_eq!(drained(&bench.said), 0, "a result is not written yet");
    bench.pass(STORE_PAUSE);
    bench.answer_record();
    assert_eq!(drained(&bench.said), 1);
    bench.tell(Input::Shutdown);
    bench.stand(endpoint, Standing::Enabled);
    bench.pass(Span::from_hours(1));
    assert_eq!(drained(&bench.said), 1);
    assert_eq!(bench.fetches_said(), 0);
    assert_eq!(bench.take_sent(), []);
    assert!(bench.disk.waits(ids[1]), "and what waits, waits");
}

#[test]
fn shutdown_of_an_idle_dispatcher_is_over_at_once() {
    let mut bench = Bench::new();
    bench.tell(Input::Shutdown);
    assert_eq!(bench.listen(), [Command::Drained]);
}

#[test]
fn an_attempt_that_the_shutdown_cut_off_is_found_by_the_next_process() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(settings());
    let id = bench.accept_one(endpoint);
    bench.tell(Input::Shutdown);
    bench.fall(id);
    assert_eq!(drained(&bench.said), 1);
    bench.take_sent();
    bench.restart();
    assert_eq!(bench.take_sent(), [id]);
    assert_eq!(bench.disk.row(id).facts().attempts, 0);
}

#[test]
fn cancels_are_written_even_when_every_place_is_taken() {
    let mut bench = Bench::limited(Limits {
        max_flights: 1,
        ready_per_lane: 8,
    });
    bench.by_hand.records = true;
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
fn what_rests_after_our_own_faults_is_bounded() {
    let mut bench = Bench::limited(Limits {
        max_flights: 100,
        ready_per_lane: 256,
    });
    let endpoint = bench.endpoint(LaneSettings {
        max_in_flight: 4,
        ..unhurried()
    });
    let ids = bench.accept(endpoint, 200);
    let fall_all = |bench: &mut Bench| {
        let mut falls = 0;
        while let Some(id) = bench.flying.keys().next().copied() {
            bench.fall(id);
            falls += 1;
        }
        falls
    };
    let most = MAX_WAITING_AFTER_FAULT + 4;
    let falls = fall_all(&mut bench);
    assert!(
        (MAX_WAITING_AFTER_FAULT..=most).contains(&falls),
        "{falls} falls in no time"
    );
    bench.pass(Span::from_secs(1));
    let falls = fall_all(&mut bench);
    assert!((1..=most).contains(&falls), "{falls} falls after a rest");
    // The longer the faults last, the fewer attempts are made.
    let mut fall_for = |minutes: usize| {
        let mut falls = 0;
        for _ in 0..minutes * 60 {
            bench.pass(Span::from_secs(1));
            falls += fall_all(&mut bench);
        }
        falls
    };
    fall_for(5);
    let falls = fall_for(60);
    let rests = 60 * 60_000 / MAX_FAULT_DELAY.as_millis() as usize;
    assert!(falls >= rests - 1, "{falls} falls: it was given up");
    assert!(
        falls <= (rests + 1) * (MIN_WAITING_AFTER_FAULT + 4),
        "{falls} falls"
    );
    // After a success, waiting deliveries do not wait for the longest pause to end.
    bench.run(MAX_FAULT_DELAY, ok());
    let is_over = |id: &_| bench.disk.status(*id) == Status::Succeeded;
    assert!(ids.iter().any(is_over));
    bench.run(Span::from_secs(10), ok());
    let ended = |id: &_| bench.disk.status(*id) == Status::Succeeded;
    assert!(ids.iter().all(ended));
}
