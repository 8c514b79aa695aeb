//! Tests of the reasons that hold deliveries back, as the dispatcher reports them.
//!
//! A reason is reported only while deliveries wait for it. The limits of the tenant and of the server are reported
//! after those of the gate. Endpoints that limits have held back for long are listed, longest first.

use super::bench::Bench;
use super::fixture::{RETRY, down, ok, settings, throttled, unlimited_rate};
use crate::dispatcher::{DispatcherLimits, Input};
use crate::id::EndpointId;
use crate::lane::{
    BreakerSettings, EndpointStatus, HeldBackBy, LaneSettings, LimitsInForce, RateLimit,
};
use crate::time::{Span, Tick};

const FIVE_MINUTES: Span = Span::from_mins(5);

fn held_back(bench: &Bench, endpoint: EndpointId) -> Option<(HeldBackBy, Option<Tick>)> {
    let held_back = bench.lane(endpoint).held_back;
    held_back.map(|it| (it.by, it.until))
}

fn reason(bench: &Bench, endpoint: EndpointId) -> Option<HeldBackBy> {
    held_back(bench, endpoint).map(|(by, _)| by)
}

fn count(bench: &Bench, by: HeldBackBy) -> usize {
    let counts = bench.dispatcher.held_back_counts(bench.now);
    let mut counts = counts.into_iter().filter(|(other, _)| *other == by);
    counts.next().map_or(0, |(_, count)| count)
}

/// Settings with one request per second.
fn slow() -> LaneSettings {
    LaneSettings {
        rate: RateLimit {
            per_second: 1.0,
            burst: 1,
        },
        ..settings()
    }
}

fn one_at_a_time() -> LaneSettings {
    LaneSettings {
        max_in_flight: 1,
        ..unlimited_rate()
    }
}

#[test]
fn an_endpoint_without_waiting_deliveries_is_not_held_back() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(one_at_a_time());
    bench.accept_one(endpoint);
    let lane = bench.lane(endpoint);
    // A second delivery would wait, but there is none.
    assert_eq!(lane.obstacle.map(|it| it.by), Some(HeldBackBy::InFlight));
    assert_eq!(lane.held_back, None);
    let limits = LimitsInForce {
        in_flight: 1,
        per_second: 100_000.0,
    };
    assert_eq!(lane.limits, Some(limits));
    bench.accept_one(endpoint);
    assert_eq!(
        held_back(&bench, endpoint),
        Some((HeldBackBy::InFlight, None))
    );
    assert_eq!(count(&bench, HeldBackBy::InFlight), 1);
    bench.finish_all(ok());
    assert_eq!(held_back(&bench, endpoint), None);
    assert_eq!(count(&bench, HeldBackBy::InFlight), 0);
}

#[test]
fn an_endpoint_that_is_not_loaded_has_no_reason_and_no_limits() {
    let mut bench = Bench::new();
    bench.manual.introductions = true;
    let endpoint = bench.endpoint(settings());
    bench.accept_one(endpoint);
    let lane = bench.lane(endpoint);
    assert_eq!(
        (lane.obstacle, lane.held_back, lane.limits),
        (None, None, None)
    );
}

#[test]
fn rate_limit_holds_the_second_delivery_for_a_second() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(slow());
    bench.accept(endpoint, 2);
    let next = bench.now.tick.after(Span::from_secs(1));
    let expected = Some((HeldBackBy::RateLimit, Some(next)));
    assert_eq!(held_back(&bench, endpoint), expected);
    bench.advance(Span::from_secs(1));
    assert_eq!(held_back(&bench, endpoint), None);
}

#[test]
fn a_retry_that_is_due_later_is_not_held_back_by_a_limit() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(slow());
    bench.accept_one(endpoint);
    bench.finish_all(down());
    assert_eq!(
        bench.lane(endpoint).obstacle.map(|it| it.by),
        Some(HeldBackBy::RateLimit)
    );
    assert_eq!(held_back(&bench, endpoint), None);
}

#[test]
fn retry_after_holds_due_deliveries_only() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(unlimited_rate());
    bench.accept_one(endpoint);
    bench.finish_all(throttled(Span::from_secs(60)));
    assert_eq!(reason(&bench, endpoint), None);
    bench.accept_one(endpoint);
    let until = bench.now.tick.after(Span::from_secs(60));
    let expected = Some((HeldBackBy::RetryAfter, Some(until)));
    assert_eq!(held_back(&bench, endpoint), expected);
}

#[test]
fn breaker_and_pause_hold_deliveries_that_are_due_later_too() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(LaneSettings {
        breaker: BreakerSettings {
            consecutive_failures: 1,
            ..BreakerSettings::default()
        },
        ..unlimited_rate()
    });
    bench.accept_one(endpoint);
    bench.finish_all(down());
    assert_eq!(reason(&bench, endpoint), Some(HeldBackBy::Breaker));
    bench.set_status(endpoint, EndpointStatus::Paused);
    assert_eq!(
        held_back(&bench, endpoint),
        Some((HeldBackBy::Paused, None))
    );
    bench.set_status(endpoint, EndpointStatus::Enabled);
    bench.advance(RETRY);
    bench.finish_all(ok());
    assert_eq!(reason(&bench, endpoint), None);
}

#[test]
fn the_limit_of_the_tenant_is_reported_after_those_of_the_endpoint() {
    let mut bench = Bench::new();
    let limited = LaneSettings {
        tenant_in_flight: Some(1),
        ..unlimited_rate()
    };
    let first = bench.endpoint(LaneSettings {
        max_in_flight: 1,
        ..limited.clone()
    });
    let second = bench.endpoint(limited);
    bench.accept(first, 2);
    bench.accept_one(second);
    assert_eq!(reason(&bench, first), Some(HeldBackBy::InFlight));
    assert_eq!(
        held_back(&bench, second),
        Some((HeldBackBy::TenantInFlight, None))
    );
}

#[test]
fn the_limit_of_the_server_is_reported() {
    let mut bench = Bench::limited(DispatcherLimits {
        max_in_flight: 1,
        ready_per_lane: 8,
    });
    let first = bench.endpoint_of("one", unlimited_rate());
    let second = bench.endpoint_of("other", unlimited_rate());
    bench.accept_one(first);
    bench.accept_one(second);
    assert_eq!(reason(&bench, first), None);
    assert_eq!(
        held_back(&bench, second),
        Some((HeldBackBy::ServerInFlight, None))
    );
}

#[test]
fn endpoints_that_limits_hold_back_for_long_are_listed() {
    let mut bench = Bench::new();
    let busy = bench.endpoint(slow());
    let idle = bench.endpoint(slow());
    let stuck = bench.endpoint(one_at_a_time());
    bench.accept(busy, 600);
    bench.accept(stuck, 2);
    bench.run_only(busy, Span::from_secs(299));
    assert_eq!(bench.limited_for(FIVE_MINUTES), []);
    bench.accept(idle, 2);
    bench.run_only(busy, Span::from_secs(2));
    let expected = [(busy, HeldBackBy::RateLimit), (stuck, HeldBackBy::InFlight)];
    assert_eq!(bench.limited_for(FIVE_MINUTES), expected);
    // One that is drained has to be held back for as long again.
    bench.finish_all(ok());
    bench.finish_all(ok());
    bench.accept(stuck, 2);
    assert_eq!(
        bench.limited_for(FIVE_MINUTES),
        [(busy, HeldBackBy::RateLimit)]
    );
    let most = bench.dispatcher.limited(bench.now, Span::ZERO, 1);
    assert_eq!(most.len(), 1);
    assert_eq!(most[0].endpoint, busy, "the longest is kept");
}

#[test]
fn one_tenant_with_many_limited_endpoints_hides_no_other() {
    let mut bench = Bench::new();
    let mut own = Vec::new();
    for _ in 0..3 {
        let endpoint = bench.endpoint_of("one", one_at_a_time());
        bench.accept(endpoint, 2);
        own.push(endpoint);
        bench.advance(Span::from_secs(1));
    }
    let other = bench.endpoint_of("other", one_at_a_time());
    bench.accept(other, 2);
    let limited = bench.dispatcher.limited(bench.now, Span::ZERO, 3);
    let found: Vec<_> = limited.iter().map(|it| (it.endpoint, it.rank)).collect();
    assert_eq!(found, [(own[0], 0), (other, 0), (own[1], 1)]);
}

#[test]
fn a_breaker_that_trips_ends_the_time_for_which_limits_hold_back() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(LaneSettings {
        breaker: BreakerSettings {
            consecutive_failures: 1,
            ..BreakerSettings::default()
        },
        ..slow()
    });
    bench.accept(endpoint, 3);
    assert_eq!(bench.limited_for(Span::ZERO).len(), 1);
    bench.finish_all(down());
    assert_eq!(bench.limited_for(Span::ZERO), []);
}

#[test]
fn a_lane_that_only_waits_for_its_tenant_is_listed() {
    let mut bench = Bench::new();
    let limited = LaneSettings {
        tenant_in_flight: Some(1),
        ..unlimited_rate()
    };
    let first = bench.endpoint(limited.clone());
    let second = bench.endpoint(limited);
    bench.accept_one(first);
    bench.accept_one(second);
    assert_eq!(
        bench.limited_for(Span::ZERO),
        [(second, HeldBackBy::TenantInFlight)]
    );
    bench.advance(FIVE_MINUTES);
    assert_eq!(bench.limited_for(FIVE_MINUTES).len(), 1);
}

impl Bench {
    fn limited_for(&mut self, at_least: Span) -> Vec<(EndpointId, HeldBackBy)> {
        self.handle(Input::Tick);
        let limited = self.dispatcher.limited(self.now, at_least, 100);
        limited.into_iter().map(|it| (it.endpoint, it.by)).collect()
    }

    /// Lets time pass while one endpoint accepts its deliveries and the others do not answer.
    fn run_only(&mut self, endpoint: EndpointId, span: Span) {
        let end = self.now.tick.after(span);
        while self.now.tick < end {
            let flying: Vec<_> = self.flying.values().copied().collect();
            for attempt in flying.iter().filter(|it| it.endpoint == endpoint) {
                self.finish(attempt.delivery, ok());
            }
            self.advance(Span::from_millis(500));
        }
    }
}
