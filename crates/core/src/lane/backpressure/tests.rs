//! Receivers of several kinds behind a gate, in virtual time.
//!
//! A [`Respond`] decides about each request; [`run`] sends as fast as the gate allows, or at an offered rate, and counts.

use std::collections::BTreeMap;

use super::super::{
    Admission, AttemptFeedback, BreakerSettings, EndpointStatus, Gate, RateLimit, Signal,
};
use crate::rng::Rng;
use crate::time::Tick;

/// The receiver's response to one request.
#[derive(Clone, Copy, PartialEq)]
enum Response {
    Ok,
    Failed,
    Overloaded,
}

/// One request, as the receiver sees it.
struct Request {
    now: Tick,
    /// Number of requests in progress, including this one.
    in_progress: u64,
}

/// Decides about a request: the response, and its latency in milliseconds.
type Respond<'a> = Box<dyn FnMut(Request, &mut Rng) -> (Response, u64) + 'a>;

/// Fails requests at random.
fn failing(percent: u32, with: Response, latency_ms: u64) -> Respond<'static> {
    Box::new(move |_, rng| {
        let fails = rng.random_ratio(percent, 100);
        (if fails { with } else { Response::Ok }, latency_ms)
    })
}

/// Accepts this many requests per window, and refuses the others.
fn capacity(count: u64, window_ms: u64, latency_ms: u64) -> Respond<'static> {
    let (mut window, mut taken) = (0, 0);
    Box::new(move |request, _| {
        if request.now.0 / window_ms != window {
            (window, taken) = (request.now.0 / window_ms, 0);
        }
        taken += 1;
        let response = if taken <= count {
            Response::Ok
        } else {
            Response::Overloaded
        };
        (response, latency_ms)
    })
}

struct Load {
    in_flight: u32,
    rate: RateLimit,
    /// Deliveries per second; a failed one is sent again after ten seconds. `None` sends as fast as possible.
    offered: Option<u64>,
    seconds: u64,
}

#[derive(Default)]
struct Counts {
    delivered: u64,
    failed: u64,
    tripped: u64,
    delivered_by_second: Vec<u64>,
}

impl Counts {
    fn failed_share(&self) -> f64 {
        self.failed as f64 / (self.failed + self.delivered).max(1) as f64
    }

    fn per_second(&self, from: usize, to: usize) -> f64 {
        self.delivered_by_second[from..to].iter().sum::<u64>() as f64 / (to - from) as f64
    }
}

const START: u64 = 60_000;

fn run(load: &Load, mut receiver: Respond<'_>, seed: u64) -> Counts {
    let mut rng = Rng::seeded(seed);
    let mut gate = Gate::new(EndpointStatus::Enabled, load.in_flight, load.rate);
    let settings = BreakerSettings::default();
    let mut counts = Counts {
        delivered_by_second: vec![0; load.seconds as usize],
        ..Counts::default()
    };
    let mut in_flight: BTreeMap<u64, Vec<(bool, u64, Response)>> = BTreeMap::new();
    let mut in_progress = 0;
    let mut retries: BTreeMap<u64, u64> = BTreeMap::new();
    let (mut waiting, mut in_a_row) = (0u64, 0u32);
    for ms in START..START + load.seconds * 1_000 {
        let now = Tick(ms);
        for (probe, started_at, response) in in_flight.remove(&ms).unwrap_or_default() {
            in_progress -= 1;
            let signal = if response == Response::Ok {
                Signal::Up
            } else {
                Signal::Down
            };
            if response == Response::Ok {
                counts.delivered += 1;
                counts.delivered_by_second[((ms - START) / 1_000) as usize] += 1;
                in_a_row = 0;
            } else {
                counts.failed += 1;
                in_a_row += 1;
                *retries.entry(ms + 10_000).or_default() += 1;
            }
            let back = AttemptFeedback {
                signal,
                probe,
                started_at: Tick(started_at),
                failures_in_a_row: in_a_row,
                refusals_in_a_row: 0,
                overloaded: response == Response::Overloaded,
            };
            let change = gate.leave(now, back, &settings, &mut rng);
            if let Some(super::super::BreakerChange::Tripped(_)) = change {
                counts.tripped += 1;
                in_a_row = 0;
            }
        }
        waiting = waiting.saturating_add(retries.remove(&ms).unwrap_or(0));
        match load.offered {
            Some(per_second) if ms % (1_000 / per_second) == 0 => waiting += 1,
            Some(_) => {}
            None => waiting = u64::MAX,
        }
        while waiting > 0 {
            let Admission::Admit { probe } = gate.admit(now) else {
                break;
            };
            waiting -= 1;
            in_progress += 1;
            let (response, latency_ms) = receiver(Request { now, in_progress }, &mut rng);
            let ends_at = ms + latency_ms.max(1);
            in_flight
                .entry(ends_at)
                .or_default()
                .push((probe, ms, response));
        }
    }
    counts
}

/// Fifty in flight and hardly a rate limit, as fast as possible.
fn fast() -> Load {
    Load {
        in_flight: 50,
        rate: RateLimit {
            per_second: 10_000.0,
            burst: 1_000,
        },
        offered: None,
        seconds: 60,
    }
}

/// The limits of an endpoint without settings of its own, as fast as possible.
fn default_endpoint() -> Load {
    Load {
        in_flight: 10,
        rate: RateLimit::default(),
        offered: None,
        seconds: 60,
    }
}

const SEEDS: std::ops::Range<u64> = 1..21;

#[test]
fn random_failures_hardly_slow_down_a_fast_endpoint() {
    let clean = run(&fast(), failing(0, Response::Ok, 50), 1).delivered as f64;
    for with in [Response::Failed, Response::Overloaded] {
        for (percent, least) in [(1, 0.97), (5, 0.92), (20, 0.72)] {
            for seed in SEEDS {
                let counts = run(&fast(), failing(percent, with, 50), seed);
                let goodput = counts.delivered as f64 / clean;
                assert!(
                    goodput >= least && counts.tripped == 0,
                    "{percent} % failed, seed {seed}: {goodput:.2} of clean, tripped {}",
                    counts.tripped
                );
            }
        }
    }
}

#[test]
fn the_offered_rate_is_delivered_in_spite_of_random_failures() {
    for with in [Response::Failed, Response::Overloaded] {
        for percent in [1, 5, 20] {
            for seed in SEEDS {
                let load = Load {
                    offered: Some(20),
                    seconds: 120,
                    ..default_endpoint()
                };
                let counts = run(&load, failing(percent, with, 20), seed);
                let share = counts.delivered as f64 / (20.0 * 120.0);
                assert!(
                    share >= 0.9,
                    "{percent} %, seed {seed}: {share:.2} of what was offered, tripped {}",
                    counts.tripped
                );
            }
        }
    }
}

#[test]
fn an_overloaded_receiver_gets_nearly_what_it_accepts() {
    for (count, window_ms, latency_ms) in [
        (10, 1_000, 1),
        (10, 1_000, 300),
        (30, 1_000, 20),
        (20, 2_000, 5),
        (1, 100, 1),
        (2, 1_000, 1),
    ] {
        let counts = run(
            &default_endpoint(),
            capacity(count, window_ms, latency_ms),
            1,
        );
        let accepts = count as f64 * 1_000.0 / window_ms as f64;
        let delivered = counts.per_second(0, 60) / accepts;
        let failed = counts.failed_share();
        // The first refusals weigh more where little is accepted.
        let most_failed = if accepts < 5.0 { 0.35 } else { 0.15 };
        assert!(
            delivered >= 0.85 && failed <= most_failed,
            "{count} per {window_ms} ms, latency {latency_ms} ms: {delivered:.2} of the capacity, {failed:.2} refused, \
             tripped {}",
            counts.tripped
        );
    }
    let counts = run(&fast(), capacity(200, 1_000, 50), 1);
    let (rate, failed) = (counts.per_second(0, 60), counts.failed_share());
    assert!(
        rate >= 160.0 && failed <= 0.15,
        "{rate:.1}/s, {failed:.2} refused"
    );
}

#[test]
fn a_limited_receiver_that_also_fails_at_random_gets_what_it_accepts() {
    for seed in SEEDS {
        let mut limit = capacity(20, 1_000, 10);
        let receiver: Respond = Box::new(move |request, rng| match limit(request, rng) {
            (Response::Ok, latency) if rng.random_ratio(10, 100) => (Response::Overloaded, latency),
            other => other,
        });
        let load = Load {
            seconds: 120,
            ..default_endpoint()
        };
        let rate = run(&load, receiver, seed).per_second(0, 120);
        assert!(rate >= 8.0, "seed {seed}: {rate:.1}/s of 18/s");
    }
}

#[test]
fn the_rate_follows_a_capacity_that_changes() {
    let (mut low, mut high) = (capacity(10, 1_000, 10), capacity(60, 1_000, 10));
    let receiver: Respond = Box::new(move |request, rng| {
        if (START + 30_000..START + 60_000).contains(&request.now.0) {
            low(request, rng)
        } else {
            high(request, rng)
        }
    });
    let load = Load {
        seconds: 120,
        ..default_endpoint()
    };
    let counts = run(&load, receiver, 1);
    for (from, to, accepts) in [(5, 30, 60.0), (35, 60, 10.0), (80, 120, 60.0)] {
        let rate = counts.per_second(from, to);
        assert!(
            rate >= 0.8 * accepts,
            "seconds {from} to {to}: {rate:.1}/s of {accepts}/s"
        );
    }
}

#[test]
fn a_short_wave_of_overload_is_forgotten_within_seconds() {
    let receiver: Respond = Box::new(|request, _| {
        if (START + 10_000..START + 12_000).contains(&request.now.0) {
            (Response::Overloaded, 20)
        } else {
            (Response::Ok, 20)
        }
    });
    let counts = run(&default_endpoint(), receiver, 1);
    let rate = counts.per_second(40, 60);
    assert!(rate >= 95.0, "{rate:.1}/s of 100/s half a minute later");
}

#[test]
fn latency_that_grows_with_the_load_is_no_collapse() {
    // Handles eight requests at once in 40 ms each; more take longer, and time out after a second.
    let receiver: Respond = Box::new(|request, _| {
        let latency_ms = 40 * request.in_progress.div_ceil(8).pow(2);
        if latency_ms > 1_000 {
            (Response::Failed, 1_000)
        } else {
            (Response::Ok, latency_ms)
        }
    });
    let counts = run(&fast(), receiver, 1);
    let rate = counts.per_second(20, 60);
    assert!(rate >= 30.0, "{rate:.1}/s");
}

#[test]
fn a_receiver_that_refuses_most_requests_at_any_rate_trips_the_breaker() {
    for seed in SEEDS {
        let load = Load {
            offered: Some(20),
            ..default_endpoint()
        };
        let counts = run(&load, failing(80, Response::Overloaded, 20), seed);
        assert!(counts.tripped > 0, "seed {seed}");
    }
}

#[test]
fn idle_time_between_bursts_is_no_sign_of_a_low_capacity() {
    use super::{Backpressure, LoadResult};
    for seed in SEEDS {
        let mut rng = Rng::seeded(seed);
        let mut backpressure = Backpressure::default();
        for burst in 0..20 {
            for ms in 0..50 {
                let now = Tick(START + burst * 60_000 + ms * 2);
                let result = if rng.random_ratio(30, 100) {
                    LoadResult::Failed
                } else {
                    LoadResult::Accepted
                };
                backpressure.finished(now, Tick(now.0 - 1), result, 100.0);
            }
            assert_eq!(
                backpressure.max_per_second(),
                None,
                "seed {seed}, burst {burst}"
            );
        }
    }
}

#[test]
fn a_slow_receiver_is_not_judged_before_its_first_responses() {
    use super::{Backpressure, LoadResult};
    let mut backpressure = Backpressure::default();
    // Ten attempts at a time, each takes 15 seconds, a fifth fails.
    for batch in 0..20 {
        let started_at = Tick(START + batch * 15_000);
        for attempt in 0..10 {
            let result = if attempt % 5 == 0 {
                LoadResult::Failed
            } else {
                LoadResult::Accepted
            };
            backpressure.finished(Tick(started_at.0 + 15_000), started_at, result, 100.0);
        }
        let rate = backpressure.max_per_second();
        assert!(
            rate.is_none_or(|rate| rate > 0.5),
            "batch {batch}: {rate:?}"
        );
    }
}

#[test]
fn a_result_of_another_rate_does_not_count() {
    use super::{Adjustment, Backpressure, LoadResult};
    let mut backpressure = Backpressure::default();
    let mut finished = |now: u64, started_at: u64, result| {
        backpressure.finished(Tick(now), Tick(started_at), result, 100.0)
    };
    assert_eq!(finished(1, 0, LoadResult::Accepted), Adjustment::None);
    let refused: Vec<Adjustment> = (2..12)
        .map(|ms| finished(ms, 1, LoadResult::Overloaded))
        .collect();
    assert_eq!(refused[9], Adjustment::Lowered);
    // Refusals of requests that were sent before, or within the time that the receiver needs to settle, prove nothing.
    for started_at in [5, 11, 1_000] {
        for now in 1_012..1_100 {
            assert_eq!(
                finished(now, started_at, LoadResult::Overloaded),
                Adjustment::None
            );
        }
    }
    let verdict = (2_000..5_000)
        .map(|ms| finished(ms, 1_500, LoadResult::Overloaded))
        .find(|adjustment| *adjustment != Adjustment::None);
    assert!(matches!(verdict, Some(Adjustment::NotLoad { .. })));
}
