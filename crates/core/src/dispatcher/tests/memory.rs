//! Tests of memory: which lanes are kept, and for how long.
//!
//! A lane without work is forgotten a minute after its last result, and a tenant with its last lane. The number of
//! deliveries in memory depends on the number of busy lanes, not on the backlog.

use super::bench::Bench;
use super::fixture::{down, ok, settings, throttled, unlimited_rate};
use crate::dispatcher::{DispatcherLimits, Input, Wake};
use crate::lane::{EndpointStatus, LaneSettings, RateLimit};
use crate::time::Span;

#[test]
fn a_lane_is_forgotten_a_minute_after_its_last_result() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(settings());
    bench.accept_one(endpoint);
    bench.finish_all(ok());
    bench.advance(Span::from_millis(59_999));
    assert_eq!(bench.dispatcher.lane_count(), 1);
    bench.advance(Span::from_millis(1));
    assert_eq!(bench.dispatcher.lane_count(), 0);
    assert_eq!(bench.dispatcher.wake(), Wake::default());
    // Its configuration is loaded again when there is new work.
    let id = bench.accept_one(endpoint);
    bench.take_sent();
    bench.finish(id, ok());
    assert_eq!(bench.dispatcher.lane_count(), 1);
}

#[test]
fn a_lane_with_outstanding_work_is_kept() {
    let mut bench = Bench::new();
    let rate = RateLimit {
        per_second: 0.01,
        burst: 2,
    };
    let (flying, waiting, quiet, spent) = (
        bench.endpoint(settings()),
        bench.endpoint(LaneSettings {
            policy: crate::policy::RetryPolicy::default(),
            ..settings()
        }),
        bench.endpoint(settings()),
        bench.endpoint(LaneSettings { rate, ..settings() }),
    );
    let paused = bench.endpoint(settings());
    bench.accept_one(flying);
    let id = bench.accept_one(waiting);
    for number in 0..5 {
        bench.finish(id, down());
        if number < 4 {
            bench.advance(Span::from_hours(1));
        }
    }
    let id = bench.accept_one(quiet);
    bench.finish(id, throttled(Span::from_hours(1)));
    bench.cancel(id);
    let id = bench.accept_one(spent);
    bench.finish(id, ok());
    bench.accept_one(paused);
    bench.set_status(paused, EndpointStatus::Paused);
    bench.finish(*bench.flying.keys().last().unwrap(), down());
    bench.advance(Span::from_secs(99));
    // In flight, a retry ahead, paused by `Retry-After`, a rate not yet recovered, held.
    for endpoint in [flying, waiting, quiet, spent, paused] {
        assert!(bench.dispatcher.lane(bench.now, endpoint).is_some());
    }
    bench.advance(Span::from_secs(1));
    assert!(bench.dispatcher.lane(bench.now, spent).is_none());
}

#[test]
fn a_million_deliveries_of_one_endpoint_use_bounded_memory() {
    let mut bench = Bench::limited(DispatcherLimits {
        max_in_flight: 10,
        ready_per_lane: 64,
    });
    let endpoint = bench.endpoint(unlimited_rate());
    bench.manual.fetches = true;
    let one = bench.commit(endpoint, None);
    bench.handle(Input::Accepted(vec![one.clone()]));
    for batch in 0..1_000u128 {
        let deliveries = (0..1_000u128).map(|index| {
            let mut facts = one.facts().clone();
            facts.id = crate::id::DeliveryId(1_000_000 + batch * 1_000 + index);
            crate::delivery::Delivery::restore(facts, one.state())
        });
        let deliveries: Vec<_> = deliveries.collect();
        // Only the few deliveries that are sent must be in the store, not the whole million.
        for delivery in deliveries.iter().take(20).filter(|_| batch == 0) {
            bench.disk.put(delivery.clone());
        }
        bench.handle(Input::Accepted(deliveries));
        assert!(bench.lane(endpoint).ready <= 64);
    }
    assert_eq!(bench.dispatcher.lane_count(), 1);
    // Half of the list is reserved for deliveries in the store.
    assert!(bench.lane(endpoint).ready >= 32);
    assert!(bench.fetches.is_empty());
    assert!(
        bench.issued.len() < 50,
        "the dispatcher returned {} commands",
        bench.issued.len()
    );
}

#[test]
fn thousands_of_idle_lanes_are_forgotten() {
    let mut bench = Bench::new();
    for index in 0..2_000 {
        let endpoint = bench.endpoint_of(&format!("tenant-{}", index % 700), settings());
        bench.accept_one(endpoint);
        bench.finish_all(ok());
    }
    assert_eq!(bench.dispatcher.lane_count(), 2_000);
    // More timers are due at once than one call handles; the next call handles the rest.
    bench.advance_to(bench.now.tick.after(Span::from_mins(2)));
    bench.handle(Input::Tick);
    assert!(bench.dispatcher.lane_count() > 0);
    assert!(bench.dispatcher.wake().tick.unwrap() <= bench.now.tick);
    bench.handle(Input::Tick);
    assert_eq!(bench.dispatcher.lane_count(), 0);
}

#[test]
fn a_tenant_is_forgotten_with_its_last_lane() {
    let mut bench = Bench::new();
    let (first, second) = (
        bench.endpoint_of("initech", settings()),
        bench.endpoint_of("initech", settings()),
    );
    let remembered = |bench: &Bench| format!("{:?}", bench.dispatcher).contains("initech");
    bench.accept_one(first);
    bench.finish_all(ok());
    bench.advance(Span::from_secs(30));
    bench.accept_one(second);
    bench.finish_all(ok());
    bench.advance(Span::from_secs(30));
    assert_eq!(bench.dispatcher.lane_count(), 1);
    assert!(remembered(&bench));
    bench.advance(Span::from_secs(30));
    assert!(!remembered(&bench));
}

#[test]
fn an_endpoint_that_changes_tenant_counts_for_the_new_tenant() {
    // If the index of a forgotten tenant were kept, the next tenant with this index would inherit its attempts in
    // flight.
    let mut bench = Bench::limited(DispatcherLimits {
        max_in_flight: 10,
        ready_per_lane: 16,
    });
    for round in 0..20 {
        let endpoint = bench.endpoint_of(&format!("tenant-{round}"), unlimited_rate());
        bench.accept(endpoint, 5);
        assert_eq!(bench.flying.len(), 5);
        bench.finish_all(ok());
        bench.advance(Span::from_mins(2));
        assert_eq!(bench.dispatcher.lane_count(), 0);
    }
}
