//! Regression tests of the dispatcher.
//!
//! Each of these tests failed before the fix, and its comment describes the bug.

use super::bench::Bench;
use super::fixture::{
    RETRY, disabled_by_failures, down, gone, ok, ordered, refused, settings, unlimited_rate,
};
use crate::delivery::{DeadReason, State, Status};
use crate::dispatcher::{Command, DispatcherLimits, Input, STORE_PAUSE};
use crate::lane::{EndpointStatus, LaneSettings};
use crate::time::Span;

fn one_at_a_time() -> LaneSettings {
    LaneSettings {
        max_in_flight: 1,
        ..unlimited_rate()
    }
}

/// A fetch that was issued before a sweep and answered after it brought back swept deliveries.
#[test]
fn a_snapshot_from_before_a_sweep_sends_nothing() {
    for answered_during_the_sweep in [false, true] {
        let mut bench = Bench::new();
        bench.manual.fetches = true;
        bench.manual.sweeps = true;
        let endpoint = bench.endpoint(settings());
        let swept = bench.commit(endpoint, None);
        let due = bench.now.wall;
        bench.handle(Input::Work { endpoint, due });
        bench.handle(Input::Work { endpoint, due });
        bench.set_status(endpoint, EndpointStatus::Disabled);
        bench.set_status(endpoint, EndpointStatus::Enabled);
        if answered_during_the_sweep {
            bench.answer_fetch();
            bench.answer_sweep();
        } else {
            bench.answer_sweep();
            bench.answer_fetch();
        }
        assert_eq!(bench.take_sent(), []);
        assert_eq!(bench.disk.status(swept.id()), Status::Failed);
    }
}

/// A delivery that was committed before a sweep but reported during it was swept in the store, and sent.
#[test]
fn deliveries_reported_during_a_sweep_are_read_again_after_it() {
    let mut bench = Bench::new();
    bench.manual.sweeps = true;
    let endpoint = bench.endpoint(one_at_a_time());
    bench.accept(endpoint, 2);
    bench.set_status(endpoint, EndpointStatus::Disabled);
    bench.set_status(endpoint, EndpointStatus::Enabled);
    bench.finish_all(ok());
    let late = bench.accept_one(endpoint);
    bench.take_sent();
    while !bench.sweeps.is_empty() {
        bench.answer_sweep();
    }
    assert_eq!(bench.take_sent(), []);
    assert_eq!(bench.disk.status(late), Status::Failed);
}

/// A claim hid a replay: cancelled in the store, replayed, fetched, and only then `Recorded`.
#[test]
fn a_replay_right_after_a_cancel_is_not_lost() {
    for reported_before_the_fetch_ends in [false, true] {
        for from_memory in [false, true] {
            let mut bench = Bench::new();
            bench.manual.records = true;
            bench.manual.fetches = true;
            let endpoint = bench.endpoint(one_at_a_time());
            let flying = bench.accept_one(endpoint);
            let id = if from_memory {
                bench.accept_one(endpoint)
            } else {
                bench.commit(endpoint, None).id()
            };
            bench.cancel(id);
            let ticket = bench.write();
            bench.replay(id);
            if reported_before_the_fetch_ends {
                bench.handle(Input::Recorded { ticket });
                bench.answer_fetch();
            } else {
                bench.answer_fetch();
                bench.handle(Input::Recorded { ticket });
            }
            bench.manual = Default::default();
            while !bench.fetches.is_empty() {
                bench.answer_fetch();
            }
            bench.finish(flying, ok());
            bench.run(Span::from_mins(1), ok());
            assert_eq!(bench.disk.status(id), Status::Succeeded);
        }
    }
}

/// A status request for an endpoint that does not exist kept its lane for ever.
#[test]
fn a_lane_opened_by_a_deletion_is_forgotten() {
    for wish in [
        EndpointStatus::Deleted,
        EndpointStatus::Enabled,
        EndpointStatus::Disabled,
    ] {
        let mut bench = Bench::new();
        let endpoint = bench.endpoint(settings());
        bench.unregister(endpoint);
        bench.set_status(endpoint, wish);
        bench.advance(Span::from_hours(1));
        assert_eq!(bench.dispatcher.lane_count(), 0, "{wish:?}");
    }
}

fn disabled_endpoint() -> (Bench, crate::id::EndpointId) {
    let mut bench = Bench::new();
    let endpoint = disabled_by_failures(&mut bench);
    (bench, endpoint)
}

fn survives_one_refusal(bench: &mut Bench, endpoint: crate::id::EndpointId) {
    let id = bench.accept_one(endpoint);
    bench.finish(id, refused());
    assert_eq!(bench.status(endpoint), EndpointStatus::Enabled);
}

/// The cleared health was never written: a success after it changes nothing in memory, so no record carried the
/// health. A restart, or one minute without work, brought the failures back.
#[test]
fn health_reset_by_an_enable_survives_a_restart() {
    let (mut bench, endpoint) = disabled_endpoint();
    bench.set_status(endpoint, EndpointStatus::Enabled);
    let id = bench.accept_one(endpoint);
    bench.finish(id, ok());
    bench.advance(Span::from_mins(5));
    survives_one_refusal(&mut bench, endpoint);
}

/// Enabling an endpoint whose lane was forgotten, which is the usual case, did not clear its health.
#[test]
fn enabling_an_endpoint_without_a_lane_resets_its_health() {
    let (mut bench, endpoint) = disabled_endpoint();
    bench.advance(Span::from_mins(5));
    assert_eq!(bench.dispatcher.lane_count(), 0);
    bench.set_status(endpoint, EndpointStatus::Enabled);
    survives_one_refusal(&mut bench, endpoint);
}

/// Disabled, then paused, then enabled: `set_status` changed the gate before `apply_requested_status` checked it.
#[test]
fn enabling_after_a_pause_resets_health() {
    let (mut bench, endpoint) = disabled_endpoint();
    bench.set_status(endpoint, EndpointStatus::Paused);
    bench.set_status(endpoint, EndpointStatus::Enabled);
    survives_one_refusal(&mut bench, endpoint);
}

/// While other deliveries in the store were due, a delivery that caused an internal fault was fetched again at
/// once.
#[test]
fn a_delivery_with_an_internal_fault_pauses_despite_a_backlog() {
    let mut bench = Bench::limited(DispatcherLimits {
        max_in_flight: 10,
        ready_per_lane: 2,
    });
    let endpoint = bench.endpoint(one_at_a_time());
    let faulty = bench.accept(endpoint, 8)[0];
    let mut faults = 0;
    for _ in 0..50 {
        if bench.flying.contains_key(&faulty) {
            bench.fail_internally(faulty);
            faults += 1;
        } else {
            bench.finish_all(ok());
        }
    }
    assert_eq!(
        faults, 1,
        "the delivery was sent again without any time passing"
    );
}

/// A delivery in flight from before the lane became ordered did not block its key.
#[test]
fn deliveries_in_flight_before_the_lane_was_ordered_block_their_key() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(unlimited_rate());
    let older = bench.accept_keyed(endpoint, 7);
    bench.change(endpoint, ordered());
    let newer = bench.accept_keyed(endpoint, 7);
    assert_eq!(bench.take_sent(), [older]);
    bench.finish(older, ok());
    assert_eq!(bench.take_sent(), [newer]);
}

/// The result of a fetch issued under the old rule was accepted under the new one.
#[test]
fn an_ordered_lane_ignores_the_result_of_an_unordered_fetch() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(unlimited_rate());
    let older = bench.accept_keyed(endpoint, 7);
    bench.finish(older, down());
    bench.manual.fetches = true;
    let newer = bench.commit(endpoint, Some(7));
    let due = bench.now.wall;
    bench.handle(Input::Work { endpoint, due });
    bench.take_sent();
    bench.change(endpoint, ordered());
    bench.answer_fetch();
    assert_eq!(
        bench.take_sent(),
        [],
        "{} waits for its retry, so nothing is sent",
        older
    );
    bench.manual.fetches = false;
    while !bench.fetches.is_empty() {
        bench.refresh_fetch();
        bench.answer_fetch();
    }
    bench.run(RETRY.times(2), ok());
    assert_eq!(bench.take_sent(), [older, newer.id()]);
}

/// A delivery that is stored as held caused a panic of the dispatcher when it was sent.
#[test]
fn a_delivery_stored_as_held_is_sent() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(settings());
    let id = bench.commit(endpoint, None).id();
    bench.disk.row_mut(id).hold().unwrap();
    let due = bench.now.wall;
    bench.handle(Input::Work { endpoint, due });
    assert_eq!(bench.take_sent(), [id]);
}

/// Deleted while the record of its disabling was being written: the sweep used the wrong reason.
#[test]
fn waiting_deliveries_of_a_deleted_endpoint_fail_as_deleted() {
    let mut bench = Bench::new();
    bench.manual.records = true;
    let endpoint = bench.endpoint(one_at_a_time());
    let ids = bench.accept(endpoint, 2);
    bench.finish(ids[0], gone());
    bench.set_status(endpoint, EndpointStatus::Deleted);
    bench.answer_record();
    let State::Failed { reason, .. } = bench.disk.row(ids[1]).state() else {
        panic!("the delivery has not failed");
    };
    assert_eq!(reason, DeadReason::EndpointDeleted);
}

/// A repeated cancel was answered with "too late", although the delivery was being cancelled.
#[test]
fn a_repeated_cancel_is_not_too_late() {
    let mut bench = Bench::new();
    bench.manual.records = true;
    let endpoint = bench.endpoint(one_at_a_time());
    let ids = bench.accept(endpoint, 2);
    bench.cancel(ids[1]);
    bench.take_commands();
    bench.cancel(ids[1]);
    let issued = bench.take_commands();
    assert!(
        !issued.contains(&Command::TooLateToCancel(ids[1])),
        "{issued:?}"
    );
}

/// New work during the pause after a failed fetch ended the pause.
#[test]
fn new_work_does_not_end_the_pause_after_a_failed_fetch() {
    let mut bench = Bench::new();
    bench.manual.fetches = true;
    let endpoint = bench.endpoint(settings());
    let due = bench.now.wall;
    bench.handle(Input::Work { endpoint, due });
    bench.fail_fetch();
    bench.handle(Input::Work { endpoint, due });
    assert!(
        bench.fetches.is_empty(),
        "nothing is fetched right after a failed fetch"
    );
    bench.advance(STORE_PAUSE);
    assert_eq!(bench.fetches.len(), 1);
}

/// A pause after a failed fetch was measured on the wall clock: set back by a day, it lasted a day.
#[test]
fn a_store_pause_is_not_prolonged_by_a_clock_set_back() {
    let mut bench = Bench::new();
    bench.manual.fetches = true;
    let endpoint = bench.endpoint(settings());
    // Due long ago, so it is due at any clock reading.
    bench.set_back(Span::from_days(3));
    let id = bench.commit(endpoint, None).id();
    bench.set_forward(Span::from_days(3));
    let due = bench.now.wall;
    bench.handle(Input::Work { endpoint, due });
    bench.fail_fetch();
    bench.set_back(Span::from_days(1));
    bench.handle(Input::Tick);
    bench.manual.fetches = false;
    bench.advance(Span::from_mins(1));
    assert_eq!(bench.take_sent(), [id]);
}

/// Slots freed by cancellations did not wake the tenants that waited for them.
#[test]
fn slots_freed_by_cancels_are_used_at_once() {
    let mut bench = Bench::limited(DispatcherLimits {
        max_in_flight: 10,
        ready_per_lane: 16,
    });
    bench.manual.records = true;
    let endpoint = bench.endpoint(unlimited_rate());
    let calm = bench.endpoint_of("calm", unlimited_rate());
    for _ in 0..5 {
        let id = bench.commit(calm, None).id();
        bench.cancel(id);
    }
    bench.accept(endpoint, 10);
    let before = bench.flying.len();
    for _ in 0..5 {
        bench.answer_record();
    }
    bench.handle(Input::Tick);
    assert!(
        bench.flying.len() > before,
        "still {before} in flight after slots became free"
    );
}
