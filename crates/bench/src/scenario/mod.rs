//! The scenarios of a benchmark. Each module runs one scenario and reports its result.

pub mod door;
pub mod flat;
pub mod history;
pub mod memory;
pub mod neighbour;
pub mod observe;
pub mod pages;
pub mod recovery;
pub mod retention;
pub mod versus;

use super::api::Wanted;
use super::settings::Settings;

/// Settings of an endpoint with the highest possible limits.
pub fn unlimited(settings: &Settings, url: String) -> Wanted {
    let (per_second, burst) = Settings::unlimited();
    Wanted {
        url,
        event_types: Vec::new(),
        max_in_flight: u32::try_from(settings.in_flight()).unwrap_or(u32::MAX),
        per_second,
        burst,
        retry_policy: None,
    }
}
