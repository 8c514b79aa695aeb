//! The scenarios of a benchmark. Each function runs one scenario and returns its result.
//!
//! | module | scenarios |
//! |---|---|
//! | [`relay_comparison`] | `throughput`, `lag`, `nodes` |
//! | [`isolation`] | `hanging`, `backlog` |
//! | [`egress_client`] | `door` |
//! | [`table_bloat`] | `flat` |
//! | [`metrics_cost`] | `observe` |
//! | [`partial_failure`] | `partial-failure` |
//! | [`hostile_callers`] | `hostile-callers` |
//! | others | the scenario of the same name |

pub mod egress_client;
pub mod history;
pub mod hostile_callers;
pub mod isolation;
pub mod memory;
pub mod metrics_cost;
pub mod outbox;
pub mod pages;
pub mod partial_failure;
pub mod recovery;
pub mod relay_comparison;
pub mod retention;
pub mod schedules;
pub mod table_bloat;

use std::ops::Range;

use posthaste_core::lane::RateLimit;

use super::api::{Limits, NewEndpoint};
use super::error::BenchError;
use super::fixture::Fixture;
use super::producer::Load;
use super::settings::Settings;

/// Event type of all events where it does not matter.
const EVENT_TYPE: &str = "bench.sent";

/// Returns a load of these events at full speed, all with [`EVENT_TYPE`].
fn full_speed(settings: &Settings, events: Range<usize>) -> Load {
    Load {
        events,
        per_second: None,
        connections: settings.connections,
        payload_bytes: settings.payload_bytes,
        event_type: Load::same_type(EVENT_TYPE),
    }
}

/// Starts a server with one unlimited endpoint, and a recorder for this number of events.
async fn single_endpoint(settings: &Settings, events: usize) -> Result<Fixture, BenchError> {
    Fixture::server(settings, (1, events), |_, url| unlimited(settings, url)).await
}

/// Settings of an endpoint with the highest possible limits.
fn unlimited(settings: &Settings, url: String) -> NewEndpoint {
    NewEndpoint {
        url,
        event_types: Vec::new(),
        limits: Some(with_rate(settings, Settings::unlimited())),
        retry_policy: None,
    }
}

/// Returns the highest possible limits with this rate limit.
fn with_rate(settings: &Settings, rate: RateLimit) -> Limits {
    Limits {
        max_in_flight: u32::try_from(settings.in_flight()).unwrap_or(u32::MAX),
        rate,
    }
}
