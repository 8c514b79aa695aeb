//! The observed health of one endpoint: trips of its breaker, and what held deliveries back.
//!
//! [`HealthWatch`] is given the document of `GET …/health` a few times a second. A breaker stays tripped for seconds, so no
//! trip is missed. A server that does not tell what holds deliveries back leaves that part empty.

use std::collections::{BTreeMap, BTreeSet};

use posthaste_charts::format;
use serde::Serialize;
use serde_json::Value;

/// The health of one endpoint over a measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HealthWatch {
    samples: u64,
    is_tripped: bool,
    trips: u64,
    first_trip_at: Option<u64>,
    trip_reasons: BTreeSet<String>,
    held_back_by: BTreeMap<String, u64>,
    lowest_per_second: Option<f64>,
    lowest_in_flight: Option<u64>,
    last: Value,
}

impl HealthWatch {
    /// Adds the health at a time, in nanoseconds since the recorder was created.
    pub fn record(&mut self, at: u64, health: Value) {
        self.samples += 1;
        let breaker = &health["breaker"];
        let is_tripped = breaker["state"].as_str().is_some_and(|it| it != "passing");
        if is_tripped && !self.is_tripped {
            self.trips += 1;
            self.first_trip_at.get_or_insert(at);
        }
        if let Some(reason) = breaker["reason"].as_str() {
            self.trip_reasons.insert(reason.to_owned());
        }
        self.is_tripped = is_tripped;
        if let Some(holder) = health["held_back_by"].as_str() {
            *self.held_back_by.entry(holder.to_owned()).or_default() += 1;
        }
        let limits = &health["limits_in_force"];
        if let Some(rate) = limits["per_second"].as_f64() {
            let lowest = self.lowest_per_second.unwrap_or(rate);
            self.lowest_per_second = Some(lowest.min(rate));
        }
        if let Some(window) = limits["in_flight"].as_u64() {
            let lowest = self.lowest_in_flight.unwrap_or(window);
            self.lowest_in_flight = Some(lowest.min(window));
        }
        self.last = health;
    }

    /// Returns how often the breaker tripped.
    pub fn trips(&self) -> u64 {
        self.trips
    }

    /// Returns the time at which the first trip was seen.
    pub fn first_trip_at(&self) -> Option<u64> {
        self.first_trip_at
    }

    /// Returns the reasons for which the breaker tripped.
    pub fn trip_reasons(&self) -> Vec<String> {
        self.trip_reasons.iter().cloned().collect()
    }

    /// Describes what held deliveries back, the most frequent reason first.
    pub fn held_back(&self) -> String {
        let mut holders: Vec<(&String, &u64)> = self.held_back_by.iter().collect();
        holders.sort_by_key(|(_, samples)| std::cmp::Reverse(**samples));
        let percent = |samples: u64| 100.0 * samples as f64 / self.samples.max(1) as f64;
        let shares = holders
            .iter()
            .map(|(holder, samples)| format!("{holder} {:.0} %", percent(**samples)));
        let shares: Vec<String> = shares.collect();
        let mut text = match shares.as_slice() {
            [] => "held back by nothing that was seen".to_owned(),
            shares => format!("held back by {} of the time", shares.join(", ")),
        };
        if let Some(rate) = self.lowest_per_second {
            let rate = format::count(rate.round() as u64);
            text.push_str(&format!("; lowest rate in force {rate}/s"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn health(state: &str, reason: Option<&str>) -> Value {
        json!({"breaker": {"state": state, "until": null, "reason": reason}})
    }

    #[test]
    fn a_trip_lasts_until_the_breaker_passes_again() {
        let mut watch = HealthWatch::default();
        for (at, state) in [
            "passing", "tripped", "probing", "tripped", "passing", "tripped",
        ]
        .iter()
        .enumerate()
        {
            let reason = (*state != "passing").then_some("refusals");
            watch.record(at as u64, health(state, reason));
        }
        assert_eq!((watch.trips(), watch.first_trip_at()), (2, Some(1)));
        assert_eq!(watch.trip_reasons(), ["refusals"]);
    }

    #[test]
    fn a_server_that_does_not_tell_leaves_it_empty() {
        let mut watch = HealthWatch::default();
        watch.record(0, health("passing", None));
        assert_eq!(watch.held_back(), "held back by nothing that was seen");
        assert_eq!((watch.trips(), watch.first_trip_at()), (0, None));
    }

    #[test]
    fn reasons_are_told_with_their_share_of_the_looks() {
        let mut watch = HealthWatch::default();
        for (holder, rate) in [
            (json!("backpressure"), 80.0),
            (json!("in_flight"), 9.0),
            (json!("in_flight"), 100.0),
            (Value::Null, 100.0),
        ] {
            let limits = json!({"in_flight": 10, "per_second": rate});
            let mut health = health("passing", None);
            health["held_back_by"] = holder;
            health["limits_in_force"] = limits;
            watch.record(0, health);
        }
        assert_eq!(
            watch.held_back(),
            "held back by in_flight 50 %, backpressure 25 % of the time; lowest rate in force 9/s"
        );
    }
}
