//! Scenario `hostile-callers`: a tenant beside callers that try to stall the server.
//!
//! Each row is an [`Attack`] that runs for a while, and the [`Neighbour`] measured beside it: the latency of its accepts,
//! refusals, failed probes, and the growth of the server's memory. `Target` compares them with what must hold.

pub mod attack;
pub mod neighbour;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use posthaste_charts::format;
use serde::Serialize;
use serde_json::json;
use tokio::time::{interval, sleep};

use attack::{Attack, AttackCounts, ENDPOINTS, SHORT_ENDPOINTS};
use neighbour::{Neighbour, NeighbourResult};

use super::unlimited;
use crate::api::Api;
use crate::error::BenchError;
use crate::fixture::Fixture;
use crate::producer::{ApiTarget, on_own_thread};
use crate::progress::Progress;
use crate::report::{ScenarioResult, bytes, number, percentiles, row};
use crate::settings::Settings;

/// Default number of deliveries of the deleted tenant.
const DELETED_DELIVERIES: usize = 1_000_000;
/// Endpoints of the deleted tenant.
const DELETED_ENDPOINTS: usize = 10;
/// Events of a request that fills the deleted tenant: ten thousand deliveries.
const FILL_EVENTS: usize = 1_000;
/// Duration of each attack.
const DURATION: Duration = Duration::from_secs(15);
/// Duration of each attack with few deliveries, for tests.
const SHORT_DURATION: Duration = Duration::from_secs(1);
/// Below this number of deliveries the attacks are short.
const MEANINGFUL_DELIVERIES: usize = 10_000;
/// Interval between two looks at the memory.
const MEMORY_INTERVAL: Duration = Duration::from_millis(100);
/// Time after an attack in which the server recovers.
const RECOVERY: Duration = Duration::from_secs(2);

/// Targets that must hold beside an attack.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Target {
    /// Maximum p99 of the neighbour's accepts.
    accept_p99_ms: f64,
    /// Maximum growth of the server's memory.
    memory_growth_bytes: u64,
}

/// The target on SQLite.
const SQLITE: Target = Target {
    accept_p99_ms: 50.0,
    memory_growth_bytes: 150_000_000,
};

/// The target on PostgreSQL.
const POSTGRES: Target = Target {
    accept_p99_ms: 150.0,
    ..SQLITE
};

/// The measurements beside one attack.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct AttackResult {
    attack: Attack,
    neighbour: NeighbourResult,
    /// Growth of the server's memory over what it had before.
    memory_growth_bytes: u64,
    /// Hostile requests that were accepted.
    hostile_accepted: u64,
    /// Hostile requests that were refused.
    hostile_refused: u64,
}

impl Target {
    /// Returns everything that does not hold.
    fn misses(&self, result: &AttackResult) -> Vec<String> {
        let neighbour = &result.neighbour;
        let mut misses = Vec::new();
        let latency = neighbour.accept_latency_ms;
        if latency.is_none_or(|latency| latency.p99 > self.accept_p99_ms) {
            misses.push(format!("p99 above {} ms", self.accept_p99_ms));
        }
        if neighbour.refused > 0 {
            misses.push(format!("{} of the neighbour refused", neighbour.refused));
        }
        if neighbour.failed_probes > 0 {
            let (failed, all) = (neighbour.failed_probes, neighbour.probes);
            misses.push(format!("{failed} of {all} probes failed"));
        }
        if result.memory_growth_bytes > self.memory_growth_bytes {
            let most = bytes(Some(self.memory_growth_bytes as f64));
            misses.push(format!("memory grew by more than {most}"));
        }
        misses
    }
}

/// Runs the scenario.
pub async fn run(settings: &Settings) -> Result<ScenarioResult, BenchError> {
    let deliveries = settings.events.unwrap_or(DELETED_DELIVERIES);
    let (duration, endpoints) = if deliveries < MEANINGFUL_DELIVERIES {
        (SHORT_DURATION, SHORT_ENDPOINTS)
    } else {
        (DURATION, ENDPOINTS)
    };
    let fixture = Fixture::server(settings, (1, 0), |_, url| unlimited(settings, url)).await?;
    let mut api = fixture.api().await?;
    let hostile = make_tenant(&fixture, &mut api, "hostile", endpoints).await?;
    let deleted = make_tenant(&fixture, &mut api, "deleted", DELETED_ENDPOINTS).await?;
    fill(&mut api, &deleted.tenant, deliveries).await?;
    let deletion = ApiTarget {
        key: fixture.admin_key().to_owned(),
        ..deleted
    };
    let neighbour = Neighbour {
        target: fixture.target.clone(),
        per_second: settings.per_second,
        payload_bytes: settings.payload_bytes,
    };
    neighbour
        .measure(duration.min(Duration::from_secs(2)))
        .await;
    let mut results = Vec::new();
    for attack in Attack::ALL {
        let targets = (hostile.clone(), deletion.clone());
        results.push(measure(&fixture, &neighbour, attack, targets, duration).await?);
    }
    let target = match settings.database() {
        Some(_) => POSTGRES,
        None => SQLITE,
    };
    Ok(outcome(settings, deliveries, duration, target, &results))
}

/// Creates a tenant whose endpoints are paused, so that its deliveries only cost what accepting them costs.
async fn make_tenant(
    fixture: &Fixture,
    api: &mut Api,
    name: &str,
    endpoints: usize,
) -> Result<ApiTarget, BenchError> {
    // The tenant of the fixture has a random suffix, which databases that are used again need.
    let tenant = format!("{name}-{}", fixture.target.tenant);
    let key = api.make_tenant(&tenant, endpoints).await?;
    let progress = Progress::new(&format!("endpoints of {name}"), endpoints as u64);
    for index in 0..endpoints {
        let path = format!("/v1/tenants/{tenant}/endpoints");
        let endpoint = json!({"url": fixture.receivers.url(0)});
        let made = api.post(&path, Some(&endpoint)).await?;
        let id = made["id"].as_str().unwrap_or_default().to_owned();
        api.turn(&tenant, &id, "pause").await?;
        progress.set(index as u64);
    }
    Ok(ApiTarget {
        address: fixture.target.address,
        tenant,
        key,
    })
}

/// Accepts events for a tenant until it has this number of deliveries.
async fn fill(api: &mut Api, tenant: &str, deliveries: usize) -> Result<(), BenchError> {
    let path = format!("/v1/tenants/{tenant}/events/batch");
    let progress = Progress::new("deliveries to delete", deliveries as u64);
    let events = deliveries.div_ceil(DELETED_ENDPOINTS);
    for start in (0..events).step_by(FILL_EVENTS) {
        let count = FILL_EVENTS.min(events - start);
        let batch = vec![json!({"type": "bench.deleted", "payload": 1}); count];
        api.post(&path, Some(&json!({"events": batch}))).await?;
        progress.set((start * DELETED_ENDPOINTS) as u64);
    }
    Ok(())
}

/// Measures the neighbour beside one attack.
async fn measure(
    fixture: &Fixture,
    neighbour: &Neighbour,
    attack: Attack,
    (hostile, deletion): (ApiTarget, ApiTarget),
    duration: Duration,
) -> Result<AttackResult, BenchError> {
    let before = fixture.process.usage()?.memory_bytes;
    let counts = Arc::new(AttackCounts::default());
    let counted = Arc::clone(&counts);
    let attacking = on_own_thread(move || async move {
        // The attack never ends by itself.
        let _ =
            tokio::time::timeout(duration, attack::run(attack, hostile, deletion, counted)).await;
        Ok(())
    });
    let progress = Progress::new(attack.name(), duration.as_secs());
    let memory = async {
        let mut most = before;
        let mut looks = interval(MEMORY_INTERVAL);
        let begun_at = tokio::time::Instant::now();
        while begun_at.elapsed() < duration {
            looks.tick().await;
            most = most.max(fixture.process.usage()?.memory_bytes);
            progress.set(begun_at.elapsed().as_secs());
        }
        Ok::<u64, BenchError>(most)
    };
    let (attacked, neighbour, most) = tokio::join!(attacking, neighbour.measure(duration), memory);
    attacked?;
    sleep(RECOVERY.min(duration)).await;
    Ok(AttackResult {
        attack,
        neighbour,
        memory_growth_bytes: most?.saturating_sub(before),
        hostile_accepted: counts.accepted.load(Ordering::Relaxed),
        hostile_refused: counts.refused.load(Ordering::Relaxed),
    })
}

fn outcome(
    settings: &Settings,
    deliveries: usize,
    duration: Duration,
    target: Target,
    results: &[AttackResult],
) -> ScenarioResult {
    let mut table = vec![row(&[
        "beside",
        "accept p50 / p99, ms",
        "slowest, ms",
        "refused",
        "probes failed",
        "memory",
        "hostile accepted / refused",
        "result",
    ])];
    let mut notes = Vec::new();
    let mut documents = Vec::new();
    for result in results {
        let misses = target.misses(result);
        let neighbour = &result.neighbour;
        table.push(row(&[
            result.attack.name(),
            &percentiles(neighbour.accept_latency_ms),
            &number(Some(neighbour.slowest_ms)),
            &neighbour.refused.to_string(),
            &neighbour.failed_probes.to_string(),
            &format!("+{}", bytes(Some(result.memory_growth_bytes as f64))),
            &format!(
                "{} / {}",
                format::count(result.hostile_accepted),
                format::count(result.hostile_refused)
            ),
            if misses.is_empty() { "met" } else { "missed" },
        ]));
        if !misses.is_empty() {
            notes.push(format!("{}: {}.", result.attack.name(), misses.join(", ")));
        }
        let mut document = json!(result);
        document["misses"] = json!(misses);
        documents.push(document);
    }
    notes.push(format!(
        "The target is an accept p99 of at most {} ms, no refused request, no failed probe, and at most {} more memory. \
         The deleted tenant had {} deliveries.",
        target.accept_p99_ms,
        bytes(Some(target.memory_growth_bytes as f64)),
        format::count(deliveries as u64),
    ));
    if duration < DURATION {
        notes.push("The run is too short for the targets to mean anything.".to_owned());
    }
    ScenarioResult {
        name: "hostile-callers",
        setting: format!(
            "a tenant that sends {} events a second beside callers that try to stall the server, {} s each",
            settings.per_second,
            duration.as_secs()
        ),
        table,
        notes,
        document: json!({
            "deliveries": deliveries,
            "seconds": duration.as_secs(),
            "target": target,
            "attacks": documents,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Percentiles;

    fn result(
        p99: f64,
        refused: u64,
        failed_probes: u64,
        memory_growth_bytes: u64,
    ) -> AttackResult {
        AttackResult {
            attack: Attack::Quiet,
            neighbour: NeighbourResult {
                accept_latency_ms: Some(Percentiles { p50: 1.0, p99 }),
                slowest_ms: p99,
                requests: 100,
                refused,
                probes: 10,
                failed_probes,
            },
            memory_growth_bytes,
            hostile_accepted: 0,
            hostile_refused: 0,
        }
    }

    #[test]
    fn every_target_can_be_missed() {
        let misses = |result| SQLITE.misses(&result).len();
        assert_eq!(misses(result(50.0, 0, 0, 150_000_000)), 0);
        assert_eq!(misses(result(50.1, 0, 0, 0)), 1);
        assert_eq!(misses(result(1.0, 1, 0, 0)), 1);
        assert_eq!(misses(result(1.0, 0, 1, 0)), 1);
        assert_eq!(misses(result(1.0, 0, 0, 150_000_001)), 1);
        let mut silent = result(1.0, 0, 0, 0);
        silent.neighbour.accept_latency_ms = None;
        assert_eq!(misses(silent), 1);
        assert_eq!(POSTGRES.misses(&result(150.0, 0, 0, 0)).len(), 0);
    }
}
