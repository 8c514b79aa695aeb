//! Scenario `pages`: response time of dashboard pages with few and with many deliveries stored. It must not grow.
//!
//! The stored deliveries were sent as usual: most succeeded, some are dead letters, and some wait for an endpoint
//! that is down. The time of a page ends with its last byte. Pages are rendered before the first byte is sent, so
//! this is slightly more than what a browser waits for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use posthaste_charts::format;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::isolation::fill;
use super::unlimited;
use crate::api::{Api, NewEndpoint};
use crate::error::BenchError;
use crate::fixture::Fixture;
use crate::prometheus;
use crate::receiver::Behaviour;
use crate::report::{ScenarioResult, number, percentiles, row};
use crate::settings::Settings;
use crate::statistics::{Percentiles, ratio};

/// Default number of deliveries stored at the end.
const STORED: usize = 1_000_000;
/// Number of deliveries stored at first, so that every status occurs.
const FEW: usize = 100;
/// Number of endpoints: most accept everything, one refuses every second delivery, one is down.
const ENDPOINTS: usize = 10;
const REFUSING: usize = ENDPOINTS - 2;
const DOWN: usize = ENDPOINTS - 1;
/// Share of events for the endpoint that is down, in percent.
const DOWN_PERCENT: usize = 2;
/// Share of events for the endpoint that refuses every second delivery, in percent.
const REFUSING_PERCENT: usize = 20;
/// Number of measured requests per page and round, after some uncounted ones.
const REQUESTS: usize = 50;
const WARM_UP: usize = 3;
/// Target for the median response time of a page, in milliseconds.
const TARGET_MS: f64 = 50.0;
/// Time without a finished delivery after which the run fails.
const MAX_SILENCE: Duration = Duration::from_secs(60);
/// Interval between two checks whether all deliveries have finished.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Settings that lift the API's rate limit, which the benchmark would exceed.
const NO_RATE_LIMIT: [&str; 2] = [
    "limits.requests_per_second=1000000",
    "limits.request_burst=1000000",
];

/// Runs the scenario.
pub async fn run(settings: &Settings) -> Result<ScenarioResult, BenchError> {
    let stored = settings.events.unwrap_or(STORED).max(FEW);
    let mut unlimited_api = settings.clone();
    unlimited_api.set.extend(NO_RATE_LIMIT.map(str::to_owned));
    let new_endpoint = |index: usize, url| NewEndpoint {
        event_types: vec![event_type(index).to_string()],
        ..unlimited(settings, url)
    };
    let fixture = Fixture::server(&unlimited_api, (ENDPOINTS, stored), new_endpoint).await?;
    fixture
        .receivers
        .set_behaviour(REFUSING, Behaviour::RefusesOdd);
    fixture.receivers.set_behaviour(DOWN, Behaviour::Down);
    store(&fixture, settings, 0..FEW).await?;
    let few = measure_pages(&fixture, settings.rounds).await?;
    store(&fixture, settings, FEW..stored).await?;
    fixture.settled_usage().await?;
    let many = measure_pages(&fixture, settings.rounds).await?;
    Ok(outcome(stored, settings.rounds, &few, &many))
}

/// Returns the endpoint of an event, by its number.
fn endpoint_of(event: usize) -> usize {
    match event % 100 {
        few if few < DOWN_PERCENT => DOWN,
        some if some < DOWN_PERCENT + REFUSING_PERCENT => REFUSING,
        many => many % REFUSING,
    }
}

fn event_type(endpoint: usize) -> Arc<str> {
    format!("bench.sent{endpoint}").into()
}

/// Sends events and waits until all deliveries have finished that can finish.
async fn store(
    fixture: &Fixture,
    settings: &Settings,
    events: std::ops::Range<usize>,
) -> Result<(), BenchError> {
    let end = events.end;
    let named = Arc::new(|event| event_type(endpoint_of(event)));
    fill(fixture, settings, events, named).await?;
    let new_endpoint = (0..end).filter(|event| endpoint_of(*event) != DOWN).count();
    let (mut finished, mut changed_at) = (0.0, Instant::now());
    loop {
        let metrics = fixture.api().await?.metrics().await?;
        let ended = prometheus::total(&metrics, "posthaste_deliveries_total").unwrap_or(0.0);
        if ended >= new_endpoint as f64 {
            return Ok(());
        }
        if ended > finished {
            (finished, changed_at) = (ended, Instant::now());
        } else if changed_at.elapsed() > MAX_SILENCE {
            return Err(BenchError::Stalled {
                what: format!("the end of {} more", new_endpoint - ended as usize),
                seconds: MAX_SILENCE.as_secs(),
                stderr_tail: fixture.process.stderr_tail(),
            });
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// The measurement of one page.
struct PageMeasurement {
    page: &'static str,
    times: Option<Percentiles>,
    bytes: usize,
}

/// Measures all pages in turn.
async fn measure_pages(
    fixture: &Fixture,
    rounds: usize,
) -> Result<Vec<PageMeasurement>, BenchError> {
    let mut api = fixture.api().await?;
    let pages = pages(fixture, &mut api).await?;
    let mut measured = Vec::new();
    for (page, path) in &pages {
        let mut bytes = 0;
        for _ in 0..WARM_UP {
            bytes = api.page(path).await?;
        }
        measured.push((*page, bytes, Vec::new()));
    }
    for _ in 0..rounds {
        for ((_, path), (_, _, nanos)) in pages.iter().zip(&mut measured) {
            for _ in 0..REQUESTS {
                let started_at = Instant::now();
                api.page(path).await?;
                let nano = started_at.elapsed().as_nanos();
                nanos.push(u64::try_from(nano).unwrap_or(u64::MAX));
            }
        }
    }
    let measurement = |(page, bytes, nanos)| PageMeasurement {
        page,
        times: Percentiles::of_nanos(nanos),
        bytes,
    };
    Ok(measured.into_iter().map(measurement).collect())
}

/// Returns the names and paths of all measured pages.
async fn pages(
    fixture: &Fixture,
    api: &mut Api,
) -> Result<Vec<(&'static str, String)>, BenchError> {
    let tenant = &fixture.target.tenant;
    let (refusing, down) = (&fixture.endpoints[REFUSING].id, &fixture.endpoints[DOWN].id);
    let dead = format!("/v1/tenants/{tenant}/deliveries?status=failed&limit=1");
    let dead = api.get(&dead).await?;
    let dead = first(&dead, "id")?;
    let waiting = format!("/v1/tenants/{tenant}/deliveries?endpoint={down}&limit=1");
    let waiting = api.get(&waiting).await?;
    let waiting = first(&waiting, "id")?;
    let portal = api.portal(tenant).await?;
    let home = "/dashboard";
    let own = format!("{home}/t/{tenant}");
    let list = format!("{own}/deliveries");
    let event = event_type(REFUSING);
    Ok(vec![
        ("overview", home.to_owned()),
        ("tenants", format!("{home}/tenants")),
        ("tenant", own.clone()),
        ("endpoints", format!("{own}/endpoints")),
        (
            "endpoint, well",
            format!("{own}/endpoints/{}", fixture.endpoints[0].id),
        ),
        ("endpoint, down", format!("{own}/endpoints/{down}")),
        ("deliveries", list.clone()),
        ("deliveries, failed", format!("{list}?status=failed")),
        ("deliveries, succeeded", format!("{list}?status=succeeded")),
        ("deliveries, held", format!("{list}?status=held")),
        ("deliveries, retrying", format!("{list}?status=retrying")),
        (
            "deliveries, in progress",
            format!("{list}?status=in_progress"),
        ),
        (
            "deliveries, one endpoint",
            format!("{list}?endpoint={refusing}"),
        ),
        (
            "deliveries, failed at one endpoint",
            format!("{list}?status=failed&endpoint={refusing}"),
        ),
        ("deliveries, one type", format!("{list}?event_type={event}")),
        (
            "deliveries, one kind of failure",
            format!("{list}?error_kind=http"),
        ),
        (
            "deliveries, a type without events",
            format!("{list}?event_type=bench.never"),
        ),
        ("delivery, dead", format!("{list}/{dead}")),
        ("delivery, waiting", format!("{list}/{waiting}")),
        ("dead letters", format!("{own}/dead-letters")),
        ("replays", format!("{own}/replays")),
        ("retry lab", format!("{own}/lab")),
        ("audit", format!("{home}/audit")),
        ("portal", portal),
    ])
}

fn first<'a>(list: &'a Value, field: &str) -> Result<&'a str, BenchError> {
    let found = list["data"][0][field].as_str();
    found.ok_or_else(|| BenchError::Broken(format!("there is no delivery to look at: {list}")))
}

fn outcome(
    stored: usize,
    rounds: usize,
    few: &[PageMeasurement],
    many: &[PageMeasurement],
) -> ScenarioResult {
    let much = format::count(stored as u64);
    let heads = [
        "page".to_owned(),
        format!("{FEW} stored, p50 / p99, ms"),
        format!("{much} stored, p50 / p99, ms"),
        "ratio".to_owned(),
        "KB".to_owned(),
    ];
    let mut table = vec![heads.to_vec()];
    let mut documents = Vec::new();
    let mut slow = Vec::new();
    for (before, after) in few.iter().zip(many) {
        let p50 = |page: &PageMeasurement| page.times.map(|times| times.p50);
        let medians = p50(after).zip(p50(before));
        let growth = medians.and_then(|(after, before)| ratio(after, before));
        let kilobytes = after.bytes as f64 / 1e3;
        table.push(row(&[
            after.page,
            &percentiles(before.times),
            &percentiles(after.times),
            &number(growth),
            &format!("{kilobytes:.0}"),
        ]));
        documents.push(json!({
            "page": after.page,
            "few_ms": before.times,
            "many_ms": after.times,
            "ratio": growth,
            "bytes": after.bytes,
        }));
        if p50(after).is_some_and(|p50| p50 >= TARGET_MS) {
            slow.push(after.page);
        }
    }
    let verdict = match slow.as_slice() {
        [] => format!("Every page is there within {TARGET_MS} ms in the median."),
        slow => format!(
            "Not within {TARGET_MS} ms in the median: {}.",
            slow.join("; ")
        ),
    };
    ScenarioResult {
        name: "pages",
        setting: format!(
            "every page of the dashboard, with {FEW} and with {much} deliveries stored"
        ),
        table,
        notes: vec![
            verdict,
            format!(
                "Of the deliveries {} in a hundred were refused for good and {DOWN_PERCENT} wait for an \
                 endpoint that is down. Each page was asked for {} times over one connection; times are until \
                 all of it was there.",
                REFUSING_PERCENT / 2,
                REQUESTS * rounds
            ),
        ],
        document: json!({"few": FEW, "many": stored, "goal_ms": TARGET_MS, "pages": documents}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_delivery_occurs() {
        let mut counts = [0; ENDPOINTS];
        for event in 0..10_000 {
            counts[endpoint_of(event)] += 1;
        }
        assert_eq!(counts[DOWN], 200);
        assert_eq!(counts[REFUSING], 2_000);
        assert!(
            counts[..REFUSING].iter().all(|count| *count > 500),
            "{counts:?}"
        );
        // The refused ones are among the first few.
        assert!((0..FEW).any(|event| endpoint_of(event) == REFUSING && !event.is_multiple_of(2)));
    }

    #[test]
    fn slow_pages_are_named() {
        let measured = |page, p50| PageMeasurement {
            page,
            times: Some(Percentiles { p50, p99: 99.0 }),
            bytes: 12_000,
        };
        let few = [measured("overview", 2.0), measured("tenant", 4.0)];
        let many = [measured("overview", 3.0), measured("tenant", 60.0)];
        let outcome = outcome(1_000, 3, &few, &many);
        assert_eq!(outcome.table.len(), 3);
        assert_eq!(outcome.table[1][3], "1.50");
        assert_eq!(outcome.notes[0], "Not within 50 ms in the median: tenant.");
        assert_eq!(outcome.document["pages"][1]["ratio"], 15.0);
        let outcome = super::outcome(1_000, 3, &few, &few);
        assert_eq!(
            outcome.notes[0],
            "Every page is there within 50 ms in the median."
        );
    }
}
