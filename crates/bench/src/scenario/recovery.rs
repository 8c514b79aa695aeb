//! Scenario `recovery`: an endpoint comes back with many waiting deliveries. Arrivals must never exceed its limits.

use std::sync::Arc;
use std::time::Duration;

use posthaste_charts::words;
use posthaste_core::policy::MAX_ATTEMPTS;
use serde_json::json;
use tokio::time::sleep;

use super::neighbour::fill;
use super::unlimited;
use super::versus::EVENT_TYPE;
use crate::api::Wanted;
use crate::failure::Failure;
use crate::figures::{busiest_stretch, series};
use crate::ledger::Ledger;
use crate::producer::Load;
use crate::progress::Progress;
use crate::receiver::Mood;
use crate::report::{Outcome, row};
use crate::settings::Settings;
use crate::stage::Stage;

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
const MAX_TOLD_SECONDS: usize = 60;

const SECOND_NS: u64 = 1_000_000_000;

/// Runs the scenario.
pub async fn run(settings: &Settings) -> Result<Outcome, Failure> {
    let waiting = settings.events.unwrap_or(WAITING);
    let ledger = Arc::new(Ledger::new(1, waiting));
    let wanted = |_, url| Wanted {
        per_second: f64::from(PER_SECOND),
        burst: BURST,
        retry_policy: Some(json!({
            "backoff": {"kind": "fixed", "interval": "2s"},
            "jitter": {"kind": "full"},
            "max_attempts": MAX_ATTEMPTS,
            "give_up_after": "1d",
        })),
        ..unlimited(settings, url)
    };
    let stage = Stage::server(settings, ledger, wanted).await?;
    stage.receivers.set_mood(0, Mood::Down);
    stage.receivers.record_arrival_times();
    fill(&stage, settings, 0..waiting, Load::named(EVENT_TYPE)).await?;
    sleep(OUTAGE).await;
    let recovered_at = stage.ledger.now();
    stage.receivers.set_mood(0, Mood::Prompt);
    let progress = Progress::new("draining", waiting as u64);
    stage
        .await_arrivals(waiting as u64, 0..1, MAX_SILENCE, &progress)
        .await?;
    let drained_at = stage.ledger.now();
    stage.check(0..1, 0..waiting).await?;

    let moments = stage.receivers.moments(0);
    let split = moments.partition_point(|moment| *moment < recovered_at);
    let (while_down, after) = moments.split_at(split);
    let busiest_down = busiest_stretch(while_down, SECOND_NS);
    let busiest = busiest_stretch(after, SECOND_NS);
    let allowed = (PER_SECOND + BURST) as usize;
    if busiest.max(busiest_down) > allowed {
        return Err(Failure::Broken(format!(
            "{} arrived within one second, where the limit allows {PER_SECOND} and {BURST} at once",
            busiest.max(busiest_down)
        )));
    }
    let each_second = series(after, recovered_at, SECOND_NS);
    let drained_ms = (drained_at - recovered_at) / 1_000_000;
    let row_of = |name: &str, count: u64| row(&[name, &words::count(count)]);
    Ok(Outcome {
        name: "recovery",
        setting: format!(
            "an endpoint that takes {PER_SECOND} a second, {BURST} at once, comes back with {} waiting",
            words::count(waiting as u64)
        ),
        table: vec![
            row(&["", ""]),
            row_of("requests while it was down", while_down.len() as u64),
            row_of("most in any second, down", busiest_down as u64),
            row_of("requests after it was back", after.len() as u64),
            row_of("most in any second, back", busiest as u64),
            row_of("what the limit allows", allowed as u64),
            row(&["time to drain", &words::duration(drained_ms)]),
        ],
        notes: vec![
            format!("In each second after it was back: {}.", told(&each_second)),
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

fn told(each_second: &[u64]) -> String {
    let shown = each_second.iter().take(MAX_TOLD_SECONDS);
    let mut told: Vec<String> = shown.map(u64::to_string).collect();
    if each_second.len() > MAX_TOLD_SECONDS {
        told.push("…".to_owned());
    }
    told.join(" ")
}
