//! The scenario of a seed: endpoints, traffic and faults.
//!
//! [`SimScenario::draw`] generates everything that is fixed before a run: the endpoints with their settings and
//! receivers ([`SimEndpoint`]), the number of events and operator actions, and the fault rates ([`Faults`]). The same
//! seed always gives the same scenario. One scenario in four has no faults.

use std::sync::Arc;

use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::lane::{LaneSettings, RateLimit};
use posthaste_core::policy::{Backoff, Jitter, LateAction, Preset, RetryPolicy};
use posthaste_core::rng::Rng;
use posthaste_core::time::Span;

use crate::receiver::Behaviour;

/// Duration of the fault phase, in milliseconds.
pub const FAULT_PHASE_MS: u64 = 2 * 60 * 60 * 1_000;
/// Duration of the recovery phase after it, in which every delivery must end, in milliseconds.
pub const RECOVERY_PHASE_MS: u64 = 14 * 24 * 60 * 60 * 1_000;
const MINUTE_MS: u64 = 60_000;
/// Number of tenants besides the tenant of the watched endpoint.
const TENANTS: usize = 4;

/// One endpoint and its receiver.
#[derive(Clone, Debug)]
pub struct SimEndpoint {
    /// The endpoint.
    pub endpoint: EndpointId,
    /// The tenant that the endpoint belongs to.
    pub tenant: TenantId,
    /// The endpoint's limits and retry policy.
    pub settings: Arc<LaneSettings>,
    /// The behaviour of its receiver.
    pub behaviour: Behaviour,
    /// The endpoint is healthy and is never changed by the workload. Other endpoints must not affect it.
    pub watched: bool,
}

/// Fault rates, in 1/1,000 per operation, unless the field is a count.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// The disk fails a read or a write.
    pub disk_error: u32,
    /// The disk applies a write, but the acknowledgement is lost.
    pub answer_lost: u32,
    /// The attempt runner crashes before or after sending.
    pub worker: u32,
    /// The process crashes between two commands.
    pub crash_between_commands: u32,
    /// A result is delivered to the dispatcher a second time, later.
    pub repeated: u32,
    /// Total number of process crashes.
    pub kills: u32,
    /// Total number of graceful shutdowns.
    pub stops: u32,
    /// Total number of wall clock jumps.
    pub clock_jumps: u32,
}

/// The scenario of a seed.
#[derive(Clone, Debug)]
pub struct SimScenario {
    /// The endpoints; the first is the watched one.
    pub sites: Vec<SimEndpoint>,
    /// Number of events that applications send.
    pub events: u32,
    /// Number of operator actions: pause, disable, cancel, replay and others.
    pub interventions: u32,
    /// Maximum number of attempts in flight.
    pub max_flights: usize,
    /// Number of ready deliveries that each lane keeps in memory.
    pub ready_per_lane: usize,
    /// The fault rates.
    pub faults: Faults,
}

impl SimScenario {
    /// Generates a scenario. One in four has no faults, so that guarantees which faults excuse are checked
    /// strictly. In one of four, the endpoints have large limits and are slow enough to use all attempt slots.
    /// Some tenants have an in-flight limit.
    pub fn draw(rng: &mut Rng) -> SimScenario {
        let no_faults = rng.random_ratio(1, 4);
        let greedy = rng.random_ratio(1, 4);
        let others = rng.between(2, 10) as u128;
        let caps =
            [(); TENANTS].map(|()| rng.random_ratio(1, 3).then(|| rng.between(1, 12) as u32));
        let mut sites = vec![watched_site()];
        sites.extend((1..=others).map(|number| site(number, greedy, &caps, rng)));
        SimScenario {
            sites,
            events: rng.between(80, 500) as u32,
            interventions: rng.between(0, 40) as u32,
            max_flights: rng.between(48, 96) as usize,
            ready_per_lane: rng.between(1, 12) as usize,
            faults: if no_faults {
                Faults::default()
            } else {
                faults(rng)
            },
        }
    }
}

fn faults(rng: &mut Rng) -> Faults {
    let mut sometimes = |most: u64| {
        if rng.random_ratio(1, 2) {
            rng.between(0, most) as u32
        } else {
            0
        }
    };
    Faults {
        disk_error: sometimes(60),
        answer_lost: sometimes(40),
        worker: sometimes(60),
        crash_between_commands: sometimes(3),
        repeated: sometimes(200),
        kills: sometimes(8),
        stops: sometimes(4),
        clock_jumps: sometimes(4),
    }
}

fn watched_site() -> SimEndpoint {
    SimEndpoint {
        endpoint: EndpointId(0),
        tenant: "watched".parse().expect("the tenant name is valid"),
        settings: Arc::new(LaneSettings::default()),
        behaviour: Behaviour::Healthy,
        watched: true,
    }
}

fn site(number: u128, greedy: bool, caps: &[Option<u32>; TENANTS], rng: &mut Rng) -> SimEndpoint {
    let tenant = rng.between(1, TENANTS as u64) as usize;
    let tenant_in_flight = caps[tenant - 1];
    let tenant = format!("tenant-{tenant}");
    let most = if greedy { 60 } else { 10 };
    let settings = LaneSettings {
        policy: policy(rng),
        max_in_flight: rng.between(1, most) as u32,
        rate: RateLimit {
            per_second: rng.between(1, 50) as f64,
            burst: rng.between(1, 2 * most) as u32,
        },
        ordered: rng.random_ratio(1, 4),
        tenant_in_flight,
        ..LaneSettings::default()
    };
    SimEndpoint {
        endpoint: EndpointId(number),
        tenant: tenant.parse().expect("the tenant name is valid"),
        settings: Arc::new(settings),
        behaviour: if greedy && rng.random_ratio(1, 2) {
            Behaviour::Slow
        } else {
            behaviour(rng)
        },
        watched: false,
    }
}

/// Generates a retry policy: a preset, or any backoff and jitter with delays short enough to see many retries. Some
/// policies drop late deliveries.
pub fn policy(rng: &mut Rng) -> RetryPolicy {
    let late = match rng.random_ratio(1, 3) {
        true => LateAction::Drop,
        false => LateAction::Send,
    };
    RetryPolicy {
        late,
        ..schedule(rng)
    }
}

fn schedule(rng: &mut Rng) -> RetryPolicy {
    if rng.random_ratio(1, 3) {
        return rng.pick(&Preset::ALL).policy();
    }
    let unit = Span::from_secs(rng.between(1, 60));
    let cap = Span::from_mins(rng.between(2, 60));
    let backoff = match rng.between(0, 3) {
        0 => Backoff::Fixed { interval: unit },
        1 => Backoff::Linear { step: unit, cap },
        2 => Backoff::Exponential {
            base: unit,
            factor: rng.between(2, 6) as f64,
            cap,
        },
        3.. => Backoff::Schedule {
            delays: (1..=rng.between(1, 6)).map(|n| unit.times(n * n)).collect(),
        },
    };
    let jitter = *rng.pick(&[
        Jitter::None,
        Jitter::Full,
        Jitter::Equal,
        Jitter::Decorrelated,
        Jitter::Proportional { fraction: 0.2 },
    ]);
    RetryPolicy {
        backoff,
        jitter,
        max_attempts: rng.between(1, 12) as u32,
        give_up_after: Span::from_mins(rng.between(1, 600)),
        ..RetryPolicy::default()
    }
}

fn behaviour(rng: &mut Rng) -> Behaviour {
    let from_ms = rng.between(0, FAULT_PHASE_MS);
    let retry_after = Span::from_secs(rng.between(1, 900));
    match rng.between(0, 12) {
        0 | 1 => Behaviour::Healthy,
        2 => Behaviour::Slow,
        3 => Behaviour::Flapping {
            turn_ms: rng.between(MINUTE_MS, 20 * MINUTE_MS),
        },
        4 => Behaviour::Gone { from_ms },
        5 => Behaviour::Throttling {
            per_second: rng.between(1, 10),
            retry_after: rng.random_ratio(1, 2).then_some(retry_after),
        },
        6 => Behaviour::Unavailable { retry_after },
        7 => Behaviour::Refusing,
        8 => Behaviour::NotFound,
        9 => Behaviour::Hanging,
        10 => Behaviour::Resetting,
        11 => Behaviour::Down {
            from_ms,
            until_ms: from_ms + 60 * MINUTE_MS,
        },
        12.. => Behaviour::Random,
    }
}
