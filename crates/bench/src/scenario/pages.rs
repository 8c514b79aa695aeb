//! Scenario `pages`: response time of dashboard pages with few and with many deliveries stored. It must not grow.
//!
//! The stored deliveries were sent as usual: most succeeded, some are dead letters, and some wait for an endpoint
//! that is down. The time of a page ends with its last byte. Pages are rendered before the first byte is sent, so
//! this is slightly more than what a browser waits for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use posthaste_charts::words;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::neighbour::fill;
use super::unlimited;
use crate::api::{Api, Wanted};
use crate::failure::Failure;
use crate::figures::{Percentiles, ratio};
use crate::ledger::Ledger;
use crate::prometheus;
use crate::receiver::Mood;
use crate::report::{Outcome, number, row, spread};
use crate::settings::Settings;
use crate::stage::Stage;

/// Default number of deliveries stored at the end.
const STORED: usize = 1_000_000;
/// Number of deliveries stored at first, so that every status occurs.
const A_FEW: usize = 100;
/// Number of endpoints: most accept everything, one refuses every second delivery, one is down.
const ENDPOINTS: usize = 10;
const CHOOSY: usize = ENDPOINTS - 2;
const DOWN: usize = ENDPOINTS - 1;
/// Share of events for the endpoint that is down, in percent.
const DOWN_PERCENT: usize = 2;
/// Share of events for the endpoint that refuses every second delivery, in percent.
const CHOOSY_PERCENT: usize = 20;
/// Number of measured requests per page and round, after some uncounted ones.
const REQUESTS: usize = 50;
const WARM_UP: usize = 3;
/// Target for the median response time of a page, in milliseconds.
const GOAL_MS: f64 = 50.0;
/// Time without a finished delivery after which the run fails.
const MAX_SILENCE: Duration = Duration::from_secs(60);
/// Interval between two checks whether all deliveries have finished.
const LOOK: Duration = Duration::from_millis(100);
/// Settings that lift the API's rate limit, which the benchmark would exceed.
const NO_RATE_LIMIT: [&str; 2] = [
    "limits.requests_per_second=1000000",
    "limits.request_burst=1000000",
];

/// Runs the scenario.
pub async fn run(settings: &Settings) -> Result<Outcome, Failure> {
    let stored = settings.events.unwrap_or(STORED).max(A_FEW);
    let mut patient = settings.clone();
    patient.set.extend(NO_RATE_LIMIT.map(str::to_owned));
    let ledger = Arc::new(Ledger::new(ENDPOINTS, stored));
    let wanted = |index: usize, url| Wanted {
        event_types: vec![event_type(index).to_string()],
        ..unlimited(settings, url)
    };
    let stage = Stage::server(&patient, ledger, wanted).await?;
    stage.receivers.set_mood(CHOOSY, Mood::Choosy);
    stage.receivers.set_mood(DOWN, Mood::Down);
    store(&stage, settings, 0..A_FEW).await?;
    let few = look(&stage, settings.rounds).await?;
    store(&stage, settings, A_FEW..stored).await?;
    stage.settled_usage().await?;
    let many = look(&stage, settings.rounds).await?;
    Ok(outcome(stored, settings.rounds, &few, &many))
}

/// Returns the endpoint of an event, by its number.
fn endpoint_of(event: usize) -> usize {
    match event % 100 {
        few if few < DOWN_PERCENT => DOWN,
        some if some < DOWN_PERCENT + CHOOSY_PERCENT => CHOOSY,
        many => many % CHOOSY,
    }
}

fn event_type(endpoint: usize) -> Arc<str> {
    format!("bench.sent{endpoint}").into()
}

/// Sends events and waits until all deliveries have finished that can finish.
async fn store(
    stage: &Stage,
    settings: &Settings,
    events: std::ops::Range<usize>,
) -> Result<(), Failure> {
    let end = events.end;
    let named = Arc::new(|event| event_type(endpoint_of(event)));
    fill(stage, settings, events, named).await?;
    let wanted = (0..end).filter(|event| endpoint_of(*event) != DOWN).count();
    let (mut seen, mut seen_at) = (0.0, Instant::now());
    loop {
        let metrics = stage.api().await?.metrics().await?;
        let ended = prometheus::total(&metrics, "posthaste_deliveries_total").unwrap_or(0.0);
        if ended >= wanted as f64 {
            return Ok(());
        }
        if ended > seen {
            (seen, seen_at) = (ended, Instant::now());
        } else if seen_at.elapsed() > MAX_SILENCE {
            return Err(Failure::Stalled {
                what: format!("the end of {} more", wanted - ended as usize),
                seconds: MAX_SILENCE.as_secs(),
                said: stage.subject.last_words(),
            });
        }
        sleep(LOOK).await;
    }
}

/// The measurement of one page.
struct Look {
    page: &'static str,
    spread: Option<Percentiles>,
    bytes: usize,
}

/// Measures all pages in turn.
async fn look(stage: &Stage, rounds: usize) -> Result<Vec<Look>, Failure> {
    let mut api = stage.api().await?;
    let pages = pages(stage, &mut api).await?;
    let mut looks = Vec::new();
    for (page, path) in &pages {
        let mut bytes = 0;
        for _ in 0..WARM_UP {
            bytes = api.page(path).await?;
        }
        looks.push((*page, bytes, Vec::new()));
    }
    for _ in 0..rounds {
        for ((_, path), (_, _, nanos)) in pages.iter().zip(&mut looks) {
            for _ in 0..REQUESTS {
                let asked_at = Instant::now();
                api.page(path).await?;
                let nano = asked_at.elapsed().as_nanos();
                nanos.push(u64::try_from(nano).unwrap_or(u64::MAX));
            }
        }
    }
    let look = |(page, bytes, nanos)| Look {
        page,
        spread: Percentiles::of_nanos(nanos),
        bytes,
    };
    Ok(looks.into_iter().map(look).collect())
}

/// Returns the names and paths of all measured pages.
async fn pages(stage: &Stage, api: &mut Api) -> Result<Vec<(&'static str, String)>, Failure> {
    let tenant = &stage.intake.tenant;
    let (choosy, down) = (&stage.made[CHOOSY].id, &stage.made[DOWN].id);
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
    let event = event_type(CHOOSY);
    Ok(vec![
        ("overview", home.to_owned()),
        ("tenants", format!("{home}/tenants")),
        ("tenant", own.clone()),
        ("endpoints", format!("{own}/endpoints")),
        (
            "endpoint, well",
            format!("{own}/endpoints/{}", stage.made[0].id),
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
            format!("{list}?endpoint={choosy}"),
        ),
        (
            "deliveries, failed at one endpoint",
            format!("{list}?status=failed&endpoint={choosy}"),
        ),
        ("deliveries, one type", format!("{list}?event_type={event}")),
        (
            "deliveries, one kind of failure",
            format!("{list}?error_kind=http"),
        ),
        (
            "deliveries, a type nobody sent",
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

fn first<'a>(list: &'a Value, field: &str) -> Result<&'a str, Failure> {
    let found = list["data"][0][field].as_str();
    found.ok_or_else(|| Failure::Broken(format!("there is no delivery to look at: {list}")))
}

fn outcome(stored: usize, rounds: usize, few: &[Look], many: &[Look]) -> Outcome {
    let much = words::count(stored as u64);
    let heads = [
        "page".to_owned(),
        format!("{A_FEW} stored, p50 / p99, ms"),
        format!("{much} stored, p50 / p99, ms"),
        "ratio".to_owned(),
        "KB".to_owned(),
    ];
    let mut table = vec![heads.to_vec()];
    let mut documents = Vec::new();
    let mut slow = Vec::new();
    for (before, after) in few.iter().zip(many) {
        let p50 = |look: &Look| look.spread.map(|spread| spread.p50);
        let times = p50(after).zip(p50(before));
        let times = times.and_then(|(after, before)| ratio(after, before));
        let kilobytes = after.bytes as f64 / 1e3;
        table.push(row(&[
            after.page,
            &spread(before.spread),
            &spread(after.spread),
            &number(times),
            &format!("{kilobytes:.0}"),
        ]));
        documents.push(json!({
            "page": after.page,
            "few_ms": before.spread,
            "many_ms": after.spread,
            "ratio": times,
            "bytes": after.bytes,
        }));
        if p50(after).is_some_and(|p50| p50 >= GOAL_MS) {
            slow.push(after.page);
        }
    }
    let verdict = match slow.as_slice() {
        [] => format!("Every page is there within {GOAL_MS} ms in the median."),
        slow => format!(
            "Not within {GOAL_MS} ms in the median: {}.",
            slow.join("; ")
        ),
    };
    Outcome {
        name: "pages",
        setting: format!(
            "every page of the dashboard, with {A_FEW} and with {much} deliveries stored"
        ),
        table,
        notes: vec![
            verdict,
            format!(
                "Of the deliveries {} in a hundred were refused for good and {DOWN_PERCENT} wait for an \
                 endpoint that is down. Each page was asked for {} times over one connection; times are until \
                 all of it was there.",
                CHOOSY_PERCENT / 2,
                REQUESTS * rounds
            ),
        ],
        document: json!({"few": A_FEW, "many": stored, "goal_ms": GOAL_MS, "pages": documents}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_some_of_everything() {
        let mut counts = [0; ENDPOINTS];
        for event in 0..10_000 {
            counts[endpoint_of(event)] += 1;
        }
        assert_eq!(counts[DOWN], 200);
        assert_eq!(counts[CHOOSY], 2_000);
        assert!(
            counts[..CHOOSY].iter().all(|count| *count > 500),
            "{counts:?}"
        );
        // The refused ones are among the first few.
        assert!((0..A_FEW).any(|event| endpoint_of(event) == CHOOSY && !event.is_multiple_of(2)));
    }

    #[test]
    fn what_is_too_slow_is_named() {
        let look = |page, p50| Look {
            page,
            spread: Some(Percentiles { p50, p99: 99.0 }),
            bytes: 12_000,
        };
        let few = [look("overview", 2.0), look("tenant", 4.0)];
        let many = [look("overview", 3.0), look("tenant", 60.0)];
        let told = outcome(1_000, 3, &few, &many);
        assert_eq!(told.table.len(), 3);
        assert_eq!(told.table[1][3], "1.50");
        assert_eq!(told.notes[0], "Not within 50 ms in the median: tenant.");
        assert_eq!(told.document["pages"][1]["ratio"], 15.0);
        let told = outcome(1_000, 3, &few, &few);
        assert_eq!(
            told.notes[0],
            "Every page is there within 50 ms in the median."
        );
    }
}
