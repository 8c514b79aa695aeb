//! Checks after the faults: what was accepted, what arrived, and what the API says must agree.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::time::sleep;

use super::TENANT;
use super::load::LoadReport;
use crate::{Api, Arrival, checks};

/// Maximum time until all deliveries have ended after the last fault.
const QUIET_WITHIN: Duration = Duration::from_secs(180);
/// Interval between two listings of unfinished deliveries.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Number of listings in a row without an unfinished delivery. A delivery whose status changes between the lists of two statuses
/// is in neither of them.
const QUIET_LOOKS: u32 = 4;
/// Maximum time between the fault and a duplicate that it explains: a frozen node is fenced after its lease, and an
/// endpoint that failed meanwhile waits for its breaker.
const EXPLAINED_FOR: Duration = Duration::from_secs(60);
/// Maximum time between an acknowledged disable and the arrival of a request that had started before.
const ON_ITS_WAY: Duration = Duration::from_secs(1);
/// Maximum number of violations of a kind that are listed one by one.
const MAX_LISTED: usize = 10;

/// Limits of every endpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndpointLimits {
    pub(super) max_in_flight: usize,
    pub(super) per_second: usize,
    pub(super) burst: usize,
    pub(super) max_attempts: u32,
}

/// A fault as it happened.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub(super) name: &'static str,
    /// Process id of the victim before the fault; `None` if it hit all nodes.
    pub(super) victim: Option<u32>,
    pub(super) began: Instant,
    pub(super) ended: Instant,
    /// True if attempts in flight may be repeated because of it.
    pub(super) explains_duplicates: bool,
}

impl Fault {
    fn explains(&self, first: &Arrival, again: &Arrival) -> bool {
        let hit = self.victim.is_none() || first.sender.is_none() || first.sender == self.victim;
        self.explains_duplicates
            && hit
            && first.at <= self.ended
            && self.began <= again.at
            && again.at <= self.ended + EXPLAINED_FOR
    }
}

/// A time in which an endpoint was disabled: from the answer of the disable to the request of the enable.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClosedPeriod {
    pub(super) from: Instant,
    pub(super) until: Instant,
}

/// The end of a delivery, as the API shows it.
#[derive(Clone, Debug)]
struct Ended {
    delivery: String,
    status: String,
    attempts: u64,
}

/// Everything that the checks compare.
pub(super) struct Evidence<'a> {
    pub(super) records: &'a [Arrival],
    pub(super) load: &'a LoadReport,
    pub(super) faults: &'a [Fault],
    pub(super) endpoints: &'a [EndpointLimits],
    /// Number of the endpoint that is disabled now and then, and when it was. Nothing needs to arrive there.
    pub(super) switched: Option<(usize, &'a [ClosedPeriod])>,
    pub(super) check_stats: bool,
}

/// Results of the checks.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) lost: usize,
    pub(super) deliveries: usize,
    /// Duplicates by the index of the fault that explains them.
    pub(super) duplicates: BTreeMap<usize, usize>,
    pub(super) unexplained: usize,
    pub(super) violations: Vec<String>,
}

impl Findings {
    /// Adds violations, of which only the first ones are listed.
    fn add(&mut self, what: &str, found: &[String]) {
        self.violations.extend(
            found
                .iter()
                .take(MAX_LISTED)
                .map(|one| format!("{what}: {one}")),
        );
        if found.len() > MAX_LISTED {
            let more = found.len() - MAX_LISTED;
            self.violations.push(format!("{what}: {more} more"));
        }
    }
}

/// Waits until no delivery waits, and checks everything.
pub(super) async fn check(api: &mut Api, evidence: &Evidence<'_>) -> Findings {
    let mut findings = Findings::default();
    let waiting = until_quiet(api).await;
    findings.add("not ended after the last fault", &waiting);
    let ended = list_ended(api).await;
    findings.deliveries = ended.values().map(Vec::len).sum();
    check_deliveries(evidence, &ended, &mut findings);
    check_keys(evidence, &ended, &mut findings);
    check_limits(evidence, &mut findings);
    check_duplicates(evidence, &mut findings);
    check_closed(evidence, &mut findings);
    findings.add("answer", &evidence.load.unexpected);
    if evidence.check_stats {
        check_stats(api, &ended, &mut findings).await;
    }
    findings
}

/// Returns the deliveries that still wait after the time limit.
async fn until_quiet(api: &mut Api) -> Vec<String> {
    let deadline = Instant::now() + QUIET_WITHIN;
    let mut quiet_looks = 0;
    loop {
        let mut waiting = Vec::new();
        for status in ["pending", "retrying", "in_progress", "held"] {
            let path = format!("/v1/tenants/{TENANT}/deliveries?status={status}&limit=20");
            let page = api.get(&path).await;
            let rows = page.body["data"].as_array().cloned().unwrap_or_default();
            waiting.extend(rows.iter().map(|row| format!("{status} {}", row["id"])));
            if page.status != 200 {
                waiting.push(format!("the list was answered {}", page.status));
            }
        }
        quiet_looks = match waiting.is_empty() {
            true => quiet_looks + 1,
            false => 0,
        };
        if quiet_looks == QUIET_LOOKS || Instant::now() >= deadline {
            return waiting;
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Returns all deliveries that have ended, by event.
async fn list_ended(api: &mut Api) -> BTreeMap<String, Vec<Ended>> {
    let mut ended: BTreeMap<String, Vec<Ended>> = BTreeMap::new();
    for status in ["succeeded", "failed", "cancelled"] {
        let path = format!("/v1/tenants/{TENANT}/deliveries?status={status}&limit=250");
        let mut cursor = String::new();
        loop {
            let page = api.get(&format!("{path}{cursor}")).await.expect(200);
            for row in page["data"].as_array().expect("a list") {
                let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
                ended.entry(text("event_id")).or_default().push(Ended {
                    delivery: text("id"),
                    status: status.to_owned(),
                    attempts: row["attempt_count"].as_u64().unwrap_or_default(),
                });
            }
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
    }
    ended
}

/// Checks that every accepted event has succeeded in the store and has arrived.
fn check_deliveries(
    evidence: &Evidence<'_>,
    ended: &BTreeMap<String, Vec<Ended>>,
    findings: &mut Findings,
) {
    let arrived: BTreeSet<(String, &str)> = evidence
        .records
        .iter()
        .map(|arrival| (arrival.event(), arrival.path.trim_start_matches('/')))
        .collect();
    let switched = evidence.switched.map(|(number, _)| number);
    let (mut lost, mut failed) = (Vec::new(), Vec::new());
    for (number, (ids, endpoint)) in &evidence.load.events {
        if switched == Some(*endpoint) {
            continue;
        }
        for event in ids {
            let deliveries = ended.get(event).map_or(&[][..], Vec::as_slice);
            let [delivery] = deliveries else {
                lost.push(format!(
                    "event {number} ({event}) has {} deliveries",
                    deliveries.len()
                ));
                continue;
            };
            if delivery.status != "succeeded" {
                failed.push(format!(
                    "{} of {event} is {}",
                    delivery.delivery, delivery.status
                ));
            } else if !arrived.contains(&(event.clone(), endpoint.to_string().as_str())) {
                lost.push(format!("{} succeeded and never arrived", delivery.delivery));
            }
        }
    }
    findings.lost = lost.len();
    findings.add("lost", &lost);
    findings.add("failed without a reason", &failed);
}

/// Checks that each key made one event, and that the store has no other events.
fn check_keys(
    evidence: &Evidence<'_>,
    ended: &BTreeMap<String, Vec<Ended>>,
    findings: &mut Findings,
) {
    let events = &evidence.load.events;
    let several = events.iter().filter(|(_, (ids, _))| ids.len() != 1);
    let several: Vec<String> = several
        .map(|(number, (ids, _))| format!("key-{number} made {ids:?}"))
        .collect();
    findings.add("one event per key", &several);
    let known: BTreeSet<&String> = events.values().flat_map(|(ids, _)| ids).collect();
    let unknown = ended.keys().filter(|event| !known.contains(event));
    let unknown: Vec<String> = unknown
        .map(|event| format!("{event} was never answered"))
        .collect();
    findings.add("one event per key", &unknown);
}

/// Checks attempts, in-flight limit, rate limit and the single sender of each endpoint.
fn check_limits(evidence: &Evidence<'_>, findings: &mut Findings) {
    let mut broken = Vec::new();
    for (number, limits) in evidence.endpoints.iter().enumerate() {
        let records = at_endpoint(evidence.records, number);
        let checks = [
            checks::check_attempts(&records, limits.max_attempts),
            checks::check_in_flight(&records, limits.max_in_flight),
            checks::check_rate(&records, limits.per_second, limits.burst),
            checks::check_single_sender(&records),
        ];
        let errors = checks.into_iter().filter_map(Result::err);
        broken.extend(errors.map(|why| format!("endpoint {number}: {why}")));
    }
    findings.add("limits", &broken);
}

/// Returns the arrivals at an endpoint.
pub(super) fn at_endpoint(records: &[Arrival], number: usize) -> Vec<Arrival> {
    let path = format!("/{number}");
    let here = records.iter().filter(|arrival| arrival.path == path);
    here.cloned().collect()
}

/// Checks that a fault explains each duplicate, and counts them.
fn check_duplicates(evidence: &Evidence<'_>, findings: &mut Findings) {
    let mut last: BTreeMap<(String, u32), &Arrival> = BTreeMap::new();
    let mut unexplained = Vec::new();
    for arrival in evidence.records {
        let attempt = (arrival.delivery(), arrival.attempt());
        let Some(before) = last.insert(attempt, arrival) else {
            continue;
        };
        let explains = |fault: &Fault| fault.explains(before, arrival);
        match evidence.faults.iter().rposition(explains) {
            Some(fault) => *findings.duplicates.entry(fault).or_default() += 1,
            None => unexplained.push(format!(
                "{} attempt {} from {:?} and {:?} later from {:?}; faults around: {:?}",
                arrival.delivery(),
                arrival.attempt(),
                before.sender,
                arrival.at - before.at,
                arrival.sender,
                around(evidence.faults, before.at, arrival.at),
            )),
        }
    }
    findings.unexplained = unexplained.len();
    findings.add("duplicate without a cause", &unexplained);
}

/// Returns the faults between two times, with their victims.
fn around(faults: &[Fault], from: Instant, until: Instant) -> Vec<(&'static str, Option<u32>)> {
    let overlaps = |fault: &&Fault| fault.began <= until && from <= fault.ended + EXPLAINED_FOR;
    let around = faults.iter().filter(overlaps);
    around.map(|fault| (fault.name, fault.victim)).collect()
}

/// Checks that nothing arrived at an endpoint while it was disabled.
fn check_closed(evidence: &Evidence<'_>, findings: &mut Findings) {
    let Some((number, closed)) = evidence.switched else {
        return;
    };
    let mut late = Vec::new();
    for arrival in at_endpoint(evidence.records, number) {
        let during = |period: &&ClosedPeriod| {
            period.from + ON_ITS_WAY < arrival.at && arrival.at < period.until
        };
        if let Some(period) = closed.iter().find(during) {
            let after = arrival.at - period.from;
            let (delivery, sender) = (arrival.delivery(), arrival.sender);
            late.push(format!(
                "{delivery} from {sender:?}, {after:?} after the answer"
            ));
        }
    }
    findings.add("attempt after an answered disable", &late);
}

/// Checks that the stats are those of the deliveries in the store.
async fn check_stats(api: &mut Api, ended: &BTreeMap<String, Vec<Ended>>, findings: &mut Findings) {
    let path = format!("/v1/tenants/{TENANT}/stats/series?window=24h");
    let series = api.get(&path).await.expect(200);
    let sum = |name: &str| -> u64 {
        let buckets = series["buckets"].as_array().cloned().unwrap_or_default();
        buckets
            .iter()
            .map(|bucket: &Value| bucket[name].as_u64().unwrap_or_default())
            .sum()
    };
    let all = || ended.values().flatten();
    let count = |status: &str| all().filter(|it| it.status == status).count() as u64;
    let expected = [
        ("succeeded", count("succeeded")),
        ("failed", count("failed")),
        ("attempts", all().map(|it| it.attempts).sum()),
    ];
    let wrong = expected
        .into_iter()
        .filter(|(name, stored)| sum(name) != *stored);
    let wrong: Vec<String> = wrong
        .map(|(name, stored)| format!("{name}: {} in the stats, {stored} in the store", sum(name)))
        .collect();
    findings.add("stats", &wrong);
}
