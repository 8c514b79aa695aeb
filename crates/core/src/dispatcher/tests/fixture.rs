//! Fixtures: outcomes of attempts and settings of lanes.
//!
//! The functions return what a receiver answers (`ok`, `down`, `refused`, …) and lane settings with short, exact
//! delays and without jitter, so that tests can name the time of each attempt.

use super::bench::Bench;
use crate::classify::{HttpStatus, Outcome};
use crate::id::EndpointId;
use crate::lane::{DisableSettings, EndpointStatus, LaneSettings, RateLimit};
use crate::policy::{Backoff, Jitter, RetryPolicy};
use crate::time::Span;

/// Default delay before every retry in the tests.
pub(super) const RETRY: Span = Span::from_secs(10);
pub(super) const DAY: Span = Span::from_days(1);

pub(super) fn ok() -> Outcome {
    answer(200)
}

pub(super) fn down() -> Outcome {
    answer(502)
}

/// A permanent refusal, which is no evidence about the destination.
pub(super) fn refused() -> Outcome {
    answer(401)
}

pub(super) fn gone() -> Outcome {
    answer(410)
}

fn answer(code: u16) -> Outcome {
    Outcome::Answered {
        status: HttpStatus::new(code).expect("the status code is valid"),
        retry_after: None,
    }
}

pub(super) fn throttled(asked: Span) -> Outcome {
    Outcome::Answered {
        status: HttpStatus::TOO_MANY_REQUESTS,
        retry_after: Some(asked),
    }
}

/// Settings with four retries, ten seconds apart.
pub(super) fn settings() -> LaneSettings {
    LaneSettings {
        policy: RetryPolicy {
            backoff: Backoff::Fixed { interval: RETRY },
            jitter: Jitter::None,
            max_attempts: 5,
            ..RetryPolicy::default()
        },
        ..LaneSettings::default()
    }
}

/// Settings with a practically unlimited rate, for tests of other things.
pub(super) fn unlimited_rate() -> LaneSettings {
    LaneSettings {
        rate: RateLimit {
            per_second: 100_000.0,
            burst: 10_000,
        },
        ..settings()
    }
}

pub(super) fn ordered() -> LaneSettings {
    LaneSettings {
        ordered: true,
        ..unlimited_rate()
    }
}

/// Registers an endpoint and lets it fail for an hour, which disables it.
pub(super) fn disabled_by_failures(bench: &mut Bench) -> EndpointId {
    let half_an_hour = Span::from_mins(30);
    let endpoint = bench.endpoint(LaneSettings {
        disable: DisableSettings {
            after: half_an_hour.times(2),
            warn_before: half_an_hour,
            on_gone: true,
        },
        ..unlimited_rate()
    });
    for _ in 0..3 {
        let id = bench.accept_one(endpoint);
        bench.finish(id, refused());
        bench.advance(half_an_hour);
    }
    assert_eq!(bench.status(endpoint), EndpointStatus::Disabled);
    endpoint
}
