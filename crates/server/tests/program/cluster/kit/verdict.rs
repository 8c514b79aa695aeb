//! Checks of the delivery guarantees at the end of a test.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use posthaste_core::id::DeliveryId;
use posthaste_testbed::{Api, Arrival, PATIENCE, Receiver, judge};
use serde_json::Value;
use tokio::time::sleep;

use super::{Fleet, LoadReport, TENANT};

/// Interval between listings of all deliveries.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A fault, and the deliveries recorded at its end.
#[derive(Debug)]
pub(crate) struct Fault {
    /// Process id of the node that the fault hit. `None`: all nodes.
    victim: Option<u32>,
    /// A time before the fault.
    since: Instant,
    /// A time after the fault. From then on, a delivery that is recorded as ended is not sent again.
    at: Instant,
    /// Deliveries that were recorded as ended at `at`.
    written: BTreeSet<String>,
}

impl Fault {
    /// Records a fault since this time, of one node or of all. Needs the database.
    pub(crate) fn note(fleet: &Fleet, victim: Option<usize>, since: Instant) -> Fault {
        let rows = fleet.database.query("SELECT id FROM ended");
        let id = |row: &Vec<Option<String>>| {
            let text = row[0].as_ref().expect("an id").replace('-', "");
            let id = u128::from_str_radix(&text, 16).expect("a UUID");
            DeliveryId(id).to_string()
        };
        Fault {
            victim: victim.map(|node| fleet.nodes[node].pid()),
            since,
            written: rows.iter().map(id).collect(),
            at: Instant::now(),
        }
    }

    /// Returns true if the fault explains a duplicate.
    fn explains(&self, first: &Arrival, again: &Arrival) -> bool {
        let hit = self.victim.is_none() || first.sender.is_none() || first.sender == self.victim;
        let between = first.at <= self.at && self.since <= again.at;
        let was_known = again.at > self.at && self.written.contains(&first.delivery());
        hit && between && !was_known
    }
}

/// The limits that a test gave to its endpoints.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeliveryLimits {
    pub(crate) max_attempts: u32,
    pub(crate) max_in_flight: usize,
    pub(crate) per_second: usize,
    pub(crate) burst: usize,
}

impl DeliveryLimits {
    /// Checks that nothing is lost, that retry policy, in-flight limit and rate limit hold, that one node sends at a
    /// time, and that faults explain all duplicates. Returns the number of duplicates.
    pub(crate) fn judge(
        &self,
        receiver: &Receiver,
        harvest: &LoadReport,
        faults: &[Fault],
    ) -> usize {
        let ledger = receiver.ledger();
        let checked = self.check(&ledger, harvest, faults);
        checked.unwrap_or_else(|why| {
            let faults: Vec<_> = faults
                .iter()
                .map(|fault| (fault.victim, fault.at))
                .collect();
            panic!(
                "{why}\n{} events, {} arrivals, {} refused, {} unanswered, faults {faults:?}",
                harvest.events.len(),
                ledger.len(),
                harvest.refused.len(),
                harvest.unanswered.len(),
            )
        })
    }

    fn check(
        &self,
        ledger: &[Arrival],
        harvest: &LoadReport,
        faults: &[Fault],
    ) -> Result<usize, String> {
        let mut by_endpoint: BTreeMap<String, Vec<Arrival>> = BTreeMap::new();
        for arrival in ledger {
            let path = arrival.path.trim_start_matches('/').to_owned();
            by_endpoint.entry(path).or_default().push(arrival.clone());
        }
        let mut expected: BTreeMap<String, BTreeSet<&String>> = BTreeMap::new();
        for (event, endpoint) in harvest.events.values() {
            let events = expected.entry(endpoint.to_string()).or_default();
            events.insert(event);
        }
        let none = Vec::new();
        let mut twice = 0;
        for (endpoint, events) in &expected {
            let ledger = by_endpoint.get(endpoint).unwrap_or(&none);
            judge::check_nothing_lost(ledger, events.iter().copied(), &[endpoint])?;
            let arrived: BTreeSet<String> = ledger.iter().map(Arrival::event).collect();
            let stranger = arrived.iter().find(|event| !events.contains(event));
            if let Some(stranger) = stranger {
                return Err(format!("{stranger} arrived, and nobody was told its id"));
            }
            judge::check_attempts(ledger, self.max_attempts)?;
            judge::check_in_flight(ledger, self.max_in_flight)?;
            judge::check_rate(ledger, self.per_second, self.burst)?;
            judge::check_single_sender(ledger)?;
            twice += explained(ledger, faults)?;
        }
        Ok(twice)
    }
}

/// Checks that each duplicate was in flight and not recorded when a fault happened. Returns the number of duplicates.
pub(crate) fn explained(ledger: &[Arrival], faults: &[Fault]) -> Result<usize, String> {
    let mut last: BTreeMap<(String, u32), &Arrival> = BTreeMap::new();
    let mut again = 0;
    for arrival in ledger {
        let attempt = (arrival.delivery(), arrival.attempt());
        let Some(before) = last.insert(attempt, arrival) else {
            continue;
        };
        again += 1;
        if !faults.iter().any(|fault| fault.explains(before, arrival)) {
            return Err(format!(
                "{} came from {:?} and {:?} later from {:?}, attempt {}, for no reason",
                arrival.delivery(),
                before.sender,
                arrival.at - before.at,
                arrival.sender,
                arrival.attempt(),
            ));
        }
    }
    Ok(again)
}

/// Waits until all accepted events have ended, according to the API of a node. Returns the number of deliveries by
/// status.
pub(crate) async fn ended(api: &mut Api, harvest: &LoadReport) -> BTreeMap<&'static str, usize> {
    let events: BTreeSet<&String> = harvest.events.values().map(|(event, _)| event).collect();
    ends(api, |ended| {
        let forgotten = events.iter().filter(|event| !ended.contains(**event));
        forgotten.map(|event| (*event).clone()).collect()
    })
    .await
}

/// Waits until the deliveries of `count` events have ended.
pub(crate) async fn all_ended(api: &mut Api, count: usize) -> BTreeMap<&'static str, usize> {
    ends(api, |ended| match ended.len() {
        enough if enough >= count => Vec::new(),
        few => vec![format!("{} more than {few}", count - few)],
    })
    .await
}

/// Waits until nothing is missing. A delivery that changes its status between two listings may be in neither, so only
/// final statuses count.
async fn ends(
    api: &mut Api,
    missing: impl Fn(&BTreeSet<String>) -> Vec<String>,
) -> BTreeMap<&'static str, usize> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut ends = BTreeMap::new();
        let mut all = BTreeSet::new();
        for status in ["succeeded", "failed", "cancelled"] {
            let events = events_of(api, status).await;
            ends.insert(status, events.len());
            all.extend(events);
        }
        let missing = missing(&all);
        if missing.is_empty() {
            for status in ["pending", "retrying", "in_progress", "held"] {
                assert_eq!(events_of(api, status).await, [""; 0], "{status}");
            }
            return ends;
        }
        assert!(
            Instant::now() < deadline,
            "accepted, and never ended: {missing:?}, {ends:?}"
        );
        sleep(LOOK_EVERY).await;
    }
}

/// Returns the event of every delivery with this status.
async fn events_of(api: &mut Api, status: &str) -> Vec<String> {
    let path = format!("/v1/tenants/{TENANT}/deliveries?status={status}&limit=250");
    let mut events = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = api.get(&format!("{path}{cursor}")).await.expect(200);
        let rows = page["data"].as_array().expect("a list");
        let event = |row: &Value| row["event_id"].as_str().expect("an id").to_owned();
        events.extend(rows.iter().map(event));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return events,
        }
    }
}
