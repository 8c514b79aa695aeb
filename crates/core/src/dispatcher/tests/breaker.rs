//! Tests of the breaker, as far as the dispatcher is involved.
//!
//! A tripped breaker holds all deliveries of its endpoint and lets one probe through at a time. The tests cover
//! trips by failures and by dead letters, `Retry-After`, notifications, the recorded health, and trips that were
//! stored before a restart.

use super::bench::Bench;
use super::fixture::{DAY, RETRY, down, ok, refused, settings, throttled, unlimited_rate};
use crate::delivery::{Status, Trigger};
use crate::dispatcher::{DispatcherLimits, EndpointChange, Input, Record};
use crate::id::EndpointId;
use crate::lane::{BreakerSettings, BreakerState, Health, LaneSettings, StoredTrip, TripReason};
use crate::policy::RetryPolicy;
use crate::time::{Span, Tick};

/// Settings with a breaker that trips after three failures in a row, for four to six seconds.
fn sensitive_breaker() -> LaneSettings {
    LaneSettings {
        breaker: BreakerSettings {
            consecutive_failures: 3,
            ..BreakerSettings::default()
        },
        ..unlimited_rate()
    }
}

fn tripped() -> (Bench, EndpointId) {
    let mut bench = Bench::limited(DispatcherLimits {
        max_in_flight: 100,
        ready_per_lane: 4,
    });
    let endpoint = bench.endpoint(sensitive_breaker());
    bench.accept(endpoint, 3);
    bench.finish_all(down());
    (bench, endpoint)
}

fn tripped_until(bench: &Bench, endpoint: EndpointId) -> Tick {
    match bench.lane(endpoint).breaker {
        BreakerState::Tripped { until, .. } => until,
        state @ (BreakerState::Passing | BreakerState::Probing { .. }) => {
            panic!("expected a tripped breaker, got {state:?}")
        }
    }
}

/// Returns the health in each record that is issued and not written.
fn healths(bench: &Bench) -> Vec<Option<Health>> {
    let records = bench.records.iter();
    records
        .map(|(_, record)| match record {
            Record::Attempt(record) => record.health.clone(),
            Record::Cancel { .. } | Record::Expire(_) => {
                panic!("expected the record of an attempt")
            }
        })
        .collect()
}

#[test]
fn a_tripped_breaker_holds_deliveries_and_sends_one_probe_at_a_time() {
    let (mut bench, endpoint) = tripped();
    let reason = TripReason::ConsecutiveFailures;
    assert_eq!(
        bench.endpoint_changes(),
        [EndpointChange::BreakerTripped(reason)]
    );
    assert!(bench.lane(endpoint).holds);
    bench.accept(endpoint, 10);
    bench.take_sent();
    for failed_probes in 0..4 {
        let until = tripped_until(&bench, endpoint);
        assert_eq!(bench.dispatcher.wake().tick, Some(until));
        bench.advance(Span::from_millis(
            until.since(bench.now.tick).as_millis() - 1,
        ));
        assert_eq!(
            bench.fetch_count(),
            0,
            "nothing is fetched while the breaker is tripped"
        );
        assert!(bench.sent.is_empty());
        bench.advance(Span::from_millis(1));
        assert_eq!(bench.sent.len(), 1);
        assert_eq!(bench.sent[0].trigger, Trigger::Probe);
        bench.take_commands();
        bench.accept(endpoint, 1);
        bench.advance(Span::from_secs(20));
        assert_eq!(bench.sent.len(), 1, "one probe at a time");
        let trip = bench.lane(endpoint).health.trip.unwrap();
        assert_eq!(trip.failed_probes, failed_probes);
        bench.finish_all(down());
        assert_eq!(
            bench.endpoint_changes(),
            [],
            "a failed probe causes no notification"
        );
        bench.take_sent();
    }
    let until = tripped_until(&bench, endpoint);
    bench.advance(until.since(bench.now.tick));
    bench.finish_all(ok());
    assert_eq!(bench.endpoint_changes(), [EndpointChange::Recovered]);
    assert!(!bench.lane(endpoint).holds);
    let health = bench.lane(endpoint).health;
    assert_eq!((health.trip, health.consecutive_failures), (None, 0));
    bench.run(Span::from_secs(60), ok());
    assert!(bench.disk.rows().all(|it| it.status() == Status::Succeeded));
    assert_eq!(bench.endpoint_changes(), []);
}

#[test]
fn results_from_before_the_trip_do_not_trip_again() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(sensitive_breaker());
    let ids = bench.accept(endpoint, 8);
    for id in &ids[..3] {
        bench.finish(*id, down());
    }
    assert_eq!(bench.endpoint_changes().len(), 1);
    let until = tripped_until(&bench, endpoint);
    for id in &ids[3..] {
        bench.finish(*id, down());
    }
    assert_eq!(bench.endpoint_changes(), []);
    assert_eq!(tripped_until(&bench, endpoint), until);
}

#[test]
fn an_internal_fault_of_a_probe_allows_another_probe() {
    let (mut bench, endpoint) = tripped();
    bench.accept(endpoint, 2);
    bench.advance(Span::from_secs(7));
    bench.take_sent();
    let probe = *bench.flying.keys().next().unwrap();
    bench.fail_internally(probe);
    assert_eq!(bench.take_sent(), []);
    bench.advance(Span::from_secs(1));
    assert_eq!(bench.sent.len(), 1);
    assert_eq!(bench.sent[0].trigger, Trigger::Probe);
    bench.finish_all(ok());
    assert!(!bench.lane(endpoint).holds);
}

#[test]
fn a_refused_probe_closes_the_breaker() {
    let (mut bench, endpoint) = tripped();
    bench.accept(endpoint, 1);
    bench.advance(Span::from_secs(7));
    bench.endpoint_changes();
    bench.finish_all(refused());
    assert_eq!(bench.endpoint_changes(), [EndpointChange::Recovered]);
    assert!(!bench.lane(endpoint).holds);
    // The earlier failures are cleared: one more does not trip it.
    bench.accept_one(endpoint);
    bench.finish_all(down());
    assert_eq!(bench.endpoint_changes(), []);
}

#[test]
fn a_tripped_lane_with_a_retry_far_ahead_probes_when_that_is_due() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(sensitive_breaker());
    let ids = bench.accept(endpoint, 3);
    bench.finish_all(down());
    bench.take_sent();
    let due = bench.now.wall.after(RETRY);
    assert_eq!(bench.dispatcher.wake().wall, Some(due));
    bench.advance(RETRY);
    assert_eq!(
        bench.take_sent(),
        [ids[0]],
        "the first delivery is sent as the probe"
    );
}

#[test]
fn retry_after_pauses_the_whole_lane() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(LaneSettings {
        max_in_flight: 2,
        ..unlimited_rate()
    });
    let ids = bench.accept(endpoint, 6);
    bench.finish(ids[0], throttled(Span::from_secs(120)));
    bench.finish(ids[1], ok());
    bench.take_sent();
    bench.advance(Span::from_millis(119_999));
    assert_eq!(bench.take_sent(), []);
    bench.advance(Span::from_millis(1));
    assert_eq!(
        bench.take_sent().len(),
        1,
        "the lane starts slowly after the wait"
    );
}

#[test]
fn retry_after_is_honoured_up_to_the_cap() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(LaneSettings {
        retry_after_cap: Span::from_secs(60),
        ..unlimited_rate()
    });
    let id = bench.accept_one(endpoint);
    bench.finish(id, throttled(Span::from_hours(1)));
    bench.accept_one(endpoint);
    bench.take_sent();
    bench.advance(Span::from_secs(60));
    assert_eq!(bench.take_sent().len(), 1);
}

/// Every failed attempt is a dead letter, and only dead letters can trip the breaker.
fn one_attempt_and_no_trip_by_failures() -> LaneSettings {
    LaneSettings {
        policy: RetryPolicy {
            max_attempts: 1,
            ..settings().policy
        },
        breaker: BreakerSettings {
            consecutive_failures: 1_000,
            min_samples: 1_000,
            ..BreakerSettings::default()
        },
        ..unlimited_rate()
    }
}

#[test]
fn ten_dead_letters_within_a_day_trip_the_breaker() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(one_attempt_and_no_trip_by_failures());
    // One that is more than a day old does not count any more.
    for _ in 0..10 {
        let id = bench.accept_one(endpoint);
        bench.finish(id, down());
        assert_eq!(bench.endpoint_changes(), []);
        bench.advance(Span::from_hours(3));
    }
    for hours in [3, 3, 0] {
        let id = bench.accept_one(endpoint);
        bench.finish(id, down());
        bench.advance(Span::from_hours(hours));
    }
    assert_eq!(bench.endpoint_changes(), []);
    bench.accept(endpoint, 2);
    bench.finish_all(down());
    let reason = TripReason::ExhaustedDeliveries;
    assert_eq!(
        bench.endpoint_changes(),
        [EndpointChange::BreakerTripped(reason)]
    );
    let trip = bench
        .stored(endpoint)
        .health
        .trip
        .expect("the stored health has a trip");
    assert_eq!(trip.reason, reason);
}

#[test]
fn a_trip_by_exhausted_deliveries_is_announced_after_a_crash() {
    let mut bench = Bench::new();
    bench.manual.records = true;
    let endpoint = bench.endpoint(one_attempt_and_no_trip_by_failures());
    let ids = bench.accept(endpoint, 11);
    let (last, others) = ids.split_last().expect("there are deliveries");
    for id in others {
        bench.finish(*id, down());
        bench.answer_record();
    }
    assert!(bench.stored(endpoint).health.is_trip_unannounced);
    // The last result, which would carry the notification, is lost with the process.
    let lost = bench.accept_one(endpoint);
    bench.restart();
    assert!(bench.lane(endpoint).holds);
    bench.advance(Span::from_mins(1));
    let probe = *bench.flying.keys().next().expect("a probe is sent");
    assert!(probe == *last || probe == lost);
    bench.finish(probe, down());
    let changes = |bench: &Bench| match &bench.records[0].1 {
        Record::Attempt(record) => record.endpoint_changes.clone(),
        other @ (Record::Cancel { .. } | Record::Expire(_)) => {
            panic!("no attempt is recorded: {other:?}")
        }
    };
    let trip = EndpointChange::BreakerTripped(TripReason::ExhaustedDeliveries);
    assert_eq!(changes(&bench), [trip]);
    bench.answer_record();
    assert!(!bench.stored(endpoint).health.is_trip_unannounced);
    // It is announced once.
    bench.restart();
    bench.advance(Span::from_mins(5));
    bench.finish_all(down());
    assert_eq!(changes(&bench), []);
}

#[test]
fn dead_letters_of_a_mostly_healthy_endpoint_do_not_trip_the_breaker() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(one_attempt_and_no_trip_by_failures());
    for _ in 0..12 {
        for outcome in [ok(), ok(), ok(), down()] {
            let id = bench.accept_one(endpoint);
            bench.finish(id, outcome);
        }
    }
    assert_eq!(bench.endpoint_changes(), []);
    // It trips as soon as more deliveries have failed than succeeded, without counting the one that just failed.
    let mut more = 0;
    while bench.endpoint_changes().is_empty() {
        let id = bench.accept_one(endpoint);
        bench.finish(id, down());
        // The deliveries that ended are counted once a minute at most.
        bench.advance(Span::from_mins(1));
        more += 1;
    }
    assert_eq!(more, 26);
}

#[test]
fn health_is_recorded_only_when_it_changed() {
    let mut bench = Bench::new();
    bench.manual.records = true;
    let endpoint = bench.endpoint(unlimited_rate());
    let ids = bench.accept(endpoint, 4);
    for (id, outcome) in ids.iter().zip([ok(), down(), ok(), ok()]) {
        bench.finish(*id, outcome);
    }
    let healths = healths(&bench);
    assert_eq!(healths[0], None);
    assert_eq!(healths[1].as_ref().unwrap().consecutive_failures, 1);
    assert_eq!(healths[2].as_ref().unwrap().consecutive_failures, 0);
    assert_eq!(healths[2].as_ref().unwrap().failing_since, None);
    let revisions: Vec<u64> = healths.iter().flatten().map(|it| it.revision).collect();
    assert!(revisions.is_sorted_by(|a, b| a < b), "{revisions:?}");
    assert_eq!(healths[3], None);
}

#[test]
fn a_trip_survives_a_restart() {
    let (mut bench, endpoint) = tripped();
    let left = tripped_until(&bench, endpoint).since(bench.now.tick);
    bench.accept(endpoint, 5);
    bench.take_sent();
    bench.restart();
    assert!(bench.lane(endpoint).holds);
    assert_eq!(tripped_until(&bench, endpoint), bench.now.tick.after(left));
    bench.advance(Span::from_millis(left.as_millis() - 1));
    assert_eq!(bench.take_sent(), []);
    bench.advance(Span::from_millis(1));
    assert_eq!(bench.sent.len(), 1);
    assert_eq!(bench.sent[0].trigger, Trigger::Probe);
}

#[test]
fn a_restored_trip_waits_at_most_the_longest_delay() {
    for back in [Span::ZERO, DAY] {
        let mut bench = Bench::new();
        let endpoint = bench.endpoint(sensitive_breaker());
        let longest = sensitive_breaker().breaker.longest_wait;
        bench.stored(endpoint).health.trip = Some(StoredTrip {
            until: bench.now.wall.after(Span::from_secs(30)),
            reason: TripReason::FailureRatio,
            failed_probes: 6,
        });
        bench.set_back(back);
        bench.accept_one(endpoint);
        let until = tripped_until(&bench, endpoint);
        let wait = Span::from_secs(30).plus(back).min(longest);
        assert_eq!(until, bench.now.tick.after(wait));
        bench.advance(wait);
        assert_eq!(bench.take_sent().len(), 1);
        // The failed probes of the last process still count: the next wait is close to the maximum.
        bench.finish_all(down());
        let next = tripped_until(&bench, endpoint).since(bench.now.tick);
        assert!(next >= Span::from_secs(240), "{next}");
    }
}

#[test]
fn a_trip_that_ended_before_the_start_probes_at_once() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(sensitive_breaker());
    bench.stored(endpoint).health.trip = Some(StoredTrip {
        until: bench.now.wall,
        reason: TripReason::FailureRatio,
        failed_probes: 0,
    });
    bench.accept(endpoint, 3);
    assert_eq!(bench.sent.len(), 1);
    assert_eq!(bench.sent[0].trigger, Trigger::Probe);
    bench.handle(Input::Tick);
    assert_eq!(bench.sent.len(), 1);
}
