//! The results of a benchmark, as tables for people and as a JSON document for tools.
//!
//! [`Measurements`] are those of one side in one round, [`Round`] those of relay and server, [`ScenarioResult`] is the result of
//! a scenario. Field names of serialized types are part of the JSON document.

use posthaste_charts::{format, terminal};
use serde::Serialize;
use serde_json::{Value, json};

use super::statistics::{Percentiles, median, ratio};

/// Measurements of the relay or the server in one round. A value that was not measured is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Measurements {
    /// Accepted events, from the first send to the last acceptance.
    pub events_per_second: Option<f64>,
    /// Deliveries, from the first send to the last arrival.
    pub deliveries_per_second: Option<f64>,
    /// Time from request to response, measured by producers.
    pub accept_latency_ms: Option<Percentiles>,
    /// Time from acceptance to the first byte sent, as reported by the server's metrics.
    pub first_attempt_lag_ms: Option<Percentiles>,
    /// Time from the producer's request to the receiver's receipt.
    pub delivery_lag_ms: Option<Percentiles>,
    /// Processor time of the process.
    pub cpu_us_per_delivery: Option<f64>,
    /// Maximum memory of the process.
    pub peak_memory_bytes: Option<f64>,
    /// Bytes that the process wrote to storage.
    pub written_bytes_per_delivery: Option<f64>,
    /// Processor time of the database server, if there is one and its processes are visible.
    pub database_cpu_us_per_delivery: Option<f64>,
}

impl Measurements {
    /// Returns the median of each figure over several rounds.
    pub fn median(rounds: &[Measurements]) -> Measurements {
        let of = |pick: fn(&Measurements) -> Option<f64>| median(rounds.iter().filter_map(pick));
        let percentiles = |pick: fn(&Measurements) -> Option<Percentiles>| {
            let rounds: Vec<Percentiles> = rounds.iter().filter_map(pick).collect();
            Percentiles::median(&rounds)
        };
        Measurements {
            events_per_second: of(|m| m.events_per_second),
            deliveries_per_second: of(|m| m.deliveries_per_second),
            accept_latency_ms: percentiles(|m| m.accept_latency_ms),
            first_attempt_lag_ms: percentiles(|m| m.first_attempt_lag_ms),
            delivery_lag_ms: percentiles(|m| m.delivery_lag_ms),
            cpu_us_per_delivery: of(|m| m.cpu_us_per_delivery),
            peak_memory_bytes: of(|m| m.peak_memory_bytes),
            written_bytes_per_delivery: of(|m| m.written_bytes_per_delivery),
            database_cpu_us_per_delivery: of(|m| m.database_cpu_us_per_delivery),
        }
    }
}

/// One run of the relay and one of the server.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Round {
    /// Measurements of the relay.
    pub relay: Option<Measurements>,
    /// Measurements of the server.
    pub server: Option<Measurements>,
    /// Deliveries per second of the server, divided by those of the relay.
    pub ratio: Option<f64>,
}

impl Round {
    /// Creates a round and computes its ratio.
    pub fn new(relay: Option<Measurements>, server: Option<Measurements>) -> Round {
        let rate =
            |measurements: &Option<Measurements>| measurements.as_ref()?.deliveries_per_second;
        let ratio = match (rate(&server), rate(&relay)) {
            (Some(server), Some(relay)) => ratio(server, relay),
            (None, _) | (_, None) => None,
        };
        Round {
            relay,
            server,
            ratio,
        }
    }

    /// Returns the medians of several rounds. The ratio is the median of the ratios, because the two sides of one
    /// round were measured under the same conditions.
    pub fn median(rounds: &[Round]) -> Round {
        let of = |pick: fn(&Round) -> Option<&Measurements>| {
            let measurements: Vec<Measurements> = rounds.iter().filter_map(pick).cloned().collect();
            (!measurements.is_empty()).then(|| Measurements::median(&measurements))
        };
        Round {
            relay: of(|round| round.relay.as_ref()),
            server: of(|round| round.server.as_ref()),
            ratio: median(rounds.iter().filter_map(|round| round.ratio)),
        }
    }
}

/// The result of one scenario.
#[derive(Clone, Debug)]
pub struct ScenarioResult {
    /// Name of the scenario.
    pub name: &'static str,
    /// Description of the run, in a sentence.
    pub setting: String,
    /// Result table. The first row holds the headings.
    pub table: Vec<Vec<String>>,
    /// Remarks on the results.
    pub notes: Vec<String>,
    /// The same results for tools.
    pub document: Value,
}

impl ScenarioResult {
    /// Renders the result as text.
    pub fn page(&self, width: usize) -> String {
        let title = format!("{}: {}", self.name, self.setting);
        let mut page = format!("{}\n\n", terminal::wrapped(&title, width));
        if let Some((heads, rows)) = self.table.split_first() {
            let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
            page.push_str(&terminal::table(&heads, rows, width));
        }
        for note in &self.notes {
            page.push('\n');
            page.push_str(&terminal::wrapped(note, width));
            page.push('\n');
        }
        page
    }

    /// Renders the result as JSON.
    pub fn json(&self) -> Value {
        let mut document = json!({
            "name": self.name,
            "setting": self.setting,
            "notes": self.notes,
        });
        if let (Value::Object(document), Value::Object(more)) = (&mut document, &self.document) {
            document.extend(more.clone());
        }
        document
    }
}

/// Formats a number with a suitable number of digits.
pub fn number(value: Option<f64>) -> String {
    match value {
        None => "–".to_owned(),
        Some(value) if value >= 100.0 => format::count(value.round() as u64),
        Some(value) if value >= 10.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}

/// Formats a size with a suitable unit.
pub fn bytes(value: Option<f64>) -> String {
    const UNITS: [&str; 4] = ["B", "KB", "MB", "GB"];
    let Some(mut value) = value else {
        return "–".to_owned();
    };
    let mut unit = 0;
    while value >= 1_000.0 && unit + 1 < UNITS.len() {
        value /= 1_000.0;
        unit += 1;
    }
    match unit {
        0 => format!("{value:.0} B"),
        _ => format!("{value:.1} {}", UNITS[unit]),
    }
}

/// Formats median and 99th percentile, in milliseconds.
pub fn percentiles(value: Option<Percentiles>) -> String {
    value.map_or_else(
        || "–".to_owned(),
        |value| format!("{:.2} / {:.2}", value.p50, value.p99),
    )
}

/// Builds a row of a table.
pub fn row(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_rate(rate: f64) -> Measurements {
        Measurements {
            deliveries_per_second: Some(rate),
            ..Measurements::default()
        }
    }

    #[test]
    fn the_ratio_is_the_median_of_the_ratios() {
        let rounds: Vec<Round> = [(100.0, 50.0), (10.0, 6.0), (1_000.0, 400.0)]
            .map(|(relay, server)| Round::new(Some(with_rate(relay)), Some(with_rate(server))))
            .to_vec();
        let median = Round::median(&rounds);
        assert_eq!(median.ratio, Some(0.5));
        let rate = |measurements: Option<Measurements>| measurements.unwrap().deliveries_per_second;
        assert_eq!(rate(median.relay), Some(100.0));
        assert_eq!(rate(median.server), Some(50.0));
    }

    #[test]
    fn an_unmeasured_side_is_absent() {
        let round = Round::new(Some(with_rate(1.0)), None);
        assert_eq!(round.ratio, None);
        let median = Round::median(&[round]);
        assert!(median.server.is_none() && median.relay.is_some());
        assert_eq!(number(None), "–");
    }

    #[test]
    fn numbers_have_a_suitable_number_of_digits() {
        let numbers = [0.451, 12.34, 15_234.6].map(|value| number(Some(value)));
        assert_eq!(numbers, ["0.45", "12.3", "15,235"]);
        let sizes = [0.0, 999.0, 3_300.0, 148_000_000.0].map(|value| bytes(Some(value)));
        assert_eq!(sizes, ["0 B", "999 B", "3.3 KB", "148.0 MB"]);
    }
}
