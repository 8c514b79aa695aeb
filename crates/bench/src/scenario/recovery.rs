//! Scenario `recovery`: an endpoint comes back with many waiting deliveries. Arrivals must never exceed its limits.
//!
//! The endpoint answers 503 while the deliveries are sent and for ten seconds after that. The busiest second, wherever it
//! begins, is compared with the rate limit and the burst; the run fails if it is higher.

use std::time::Duration;

use posthaste_charts::format;
use posthaste_core::lane::RateLimit;
use posthaste_core::policy::MAX_ATTEMPTS;
use serde_json::json;
use tokio::time::sleep;

use super::isolation::fill;
use super::{EVENT_TYPE, unlimited, with_rate};
use crate::api::NewEndpoint;
use crate::error::BenchError;
use crate::fixture::Fixture;
use crate::producer::Load;
use crate::progress::Progress;
use crate::receiver::Behaviour;
use crate::report::{ScenarioResult, row};
use crate::settings::Settings;
use crate::statistics::{busiest_window, series};

/// Default number of waiting deliveries.
const WAITING: usize = 10_000;
/// Rate limit: requests per second.
const PER_SECOND: u32 = 200;
/// Rate limit: requests at once after an idle period.
const BURST: u32 = 20;
/// Time that the endpoint stays down once everything waits.
const OUTAGE: Duration = Duration::from_secs(10);
/// Time without an arrival after which the run fails. Long, because the breaker may notice the recovery late.
const MAX_SILENCE: Duration = Duration::from_secs(300);
/// Number of seconds of the series that are printed; the document contains all.
const MAX_SHOWN_SECONDS: usize = 60;

const SECOND_NS: u64 = 1_000_000_000;

/// Runs the scenario.
pub async fn run(settings: &Settings) -> Result<ScenarioResult, BenchError> {
    let waiting = settings.events.unwrap_or(WAITING);
    let rate = RateLimit {
        per_second: f64::from(PER_SECOND),
        burst: BURST,
    };
    let new_endpoint = |_, url| NewEndpoint {
        limits: Some(with_rate(settings, rate)),
        retry_policy: Some(json!({
            "backoff": {"kind": "fixed", "interval": "2s"},
            "jitter": {"kind": "full"},
            "max_attempts": MAX_ATTEMPTS,
            "give_up_after": "1d",
        })),
        ..unlimited(settings, url)
    };
    let fixture = Fixture::server(settings, (1, waiting), new_endpoint).await?;
    fixture.receivers.set_behaviour(0, Behaviour::Down);
    fixture.receivers.record_arrival_times();
    fill(&fixture, settings, 0..waiting, Load::same_type(EVENT_TYPE)).await?;
    sleep(OUTAGE).await;
    let recovered_at = fixture.recorder.now();
    fixture.receivers.set_behaviour(0, Behaviour::Healthy);
    let progress = Progress::new("draining", waiting as u64);
    fixture
        .await_arrivals(waiting as u64, 0..1, MAX_SILENCE, &progress)
        .await?;
    let drained_at = fixture.recorder.now();
    fixture.check(0..1, 0..waiting).await?;

    let arrival_times = fixture.receivers.arrival_times(0);
    let split = arrival_times.partition_point(|time| *time < recovered_at);
    let (while_down, after) = arrival_times.split_at(split);
    let busiest_down = busiest_window(while_down, SECOND_NS);
    let busiest = busiest_window(after, SECOND_NS);
    let allowed = (PER_SECOND + BURST) as usize;
    if busiest.max(busiest_down) > allowed {
        return Err(BenchError::Broken(format!(
            "{} arrived within one second, where the limit allows {PER_SECOND} and {BURST} at once",
            busiest.max(busiest_down)
        )));
    }
    let each_second = series(after, recovered_at, SECOND_NS);
    let drained_ms = (drained_at - recovered_at) / 1_000_000;
    let row_of = |name: &str, count: u64| row(&[name, &format::count(count)]);
    Ok(ScenarioResult {
        name: "recovery",
        setting: format!(
            "an endpoint that takes {PER_SECOND} a second, {BURST} at once, comes back with {} waiting",
            format::count(waiting as u64)
        ),
        table: vec![
            row(&["", ""]),
            row_of("requests while it was down", while_down.len() as u64),
            row_of("most in any second, down", busiest_down as u64),
            row_of("requests after it was back", after.len() as u64),
            row_of("most in any second, back", busiest as u64),
            row_of("what the limit allows", allowed as u64),
            row(&["time to drain", &format::duration(drained_ms)]),
        ],
        notes: vec![
            format!(
                "In each second after it was back: {}.",
                listed(&each_second)
            ),
            "A second is any second, wherever it begins. Every event was taken exactly once."
                .to_owned(),
        ],
        document: json!({
            "waiting": waiting,
            "per_second": PER_SECOND,
            "burst": BURST,
            "requests_while_down": while_down.len(),
            "busiest_second_while_down": busiest_down,
            "requests_after": after.len(),
            "busiest_second_after": busiest,
            "allowed": allowed,
            "drained_ms": drained_ms,
            "each_second": each_second,
        }),
    })
}

fn listed(each_second: &[u64]) -> String {
    let shown = each_second.iter().take(MAX_SHOWN_SECONDS);
    let mut counts: Vec<String> = shown.map(u64::to_string).collect();
    if each_second.len() > MAX_SHOWN_SECONDS {
        counts.push("…".to_owned());
    }
    counts.join(" ")
}
