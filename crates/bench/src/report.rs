//! The results of a benchmark, as tables for people and as a JSON document for tools.

use posthaste_charts::{terminal, words};
use serde::Serialize;
use serde_json::{Value, json};

use super::figures::{Percentiles, median, ratio};

/// Measurements of the relay or the server in one round. A value that was not measured is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
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

impl Figures {
    /// Returns the median of each figure over several rounds.
    pub fn median(rounds: &[Figures]) -> Figures {
        let of = |pick: fn(&Figures) -> Option<f64>| median(rounds.iter().filter_map(pick));
        let spread = |pick: fn(&Figures) -> Option<Percentiles>| {
            let spreads: Vec<Percentiles> = rounds.iter().filter_map(pick).collect();
            Percentiles::median(&spreads)
        };
        Figures {
            events_per_second: of(|figures| figures.events_per_second),
            deliveries_per_second: of(|figures| figures.deliveries_per_second),
            accept_latency_ms: spread(|figures| figures.accept_latency_ms),
            first_attempt_lag_ms: spread(|figures| figures.first_attempt_lag_ms),
            delivery_lag_ms: spread(|figures| figures.delivery_lag_ms),
            cpu_us_per_delivery: of(|figures| figures.cpu_us_per_delivery),
            peak_memory_bytes: of(|figures| figures.peak_memory_bytes),
            written_bytes_per_delivery: of(|figures| figures.written_bytes_per_delivery),
            database_cpu_us_per_delivery: of(|figures| figures.database_cpu_us_per_delivery),
        }
    }
}

/// One run of the relay and one of the server.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Round {
    /// Measurements of the relay.
    pub relay: Option<Figures>,
    /// Measurements of the server.
    pub server: Option<Figures>,
    /// Deliveries per second of the server, divided by those of the relay.
    pub ratio: Option<f64>,
}

impl Round {
    /// Creates a round and computes its ratio.
    pub fn new(relay: Option<Figures>, server: Option<Figures>) -> Round {
        let rate = |figures: &Option<Figures>| figures.as_ref()?.deliveries_per_second;
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
        let of = |pick: fn(&Round) -> Option<&Figures>| {
            let figures: Vec<Figures> = rounds.iter().filter_map(pick).cloned().collect();
            (!figures.is_empty()).then(|| Figures::median(&figures))
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
pub struct Outcome {
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

impl Outcome {
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
        Some(value) if value >= 100.0 => words::count(value.round() as u64),
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
pub fn spread(value: Option<Percentiles>) -> String {
    value.map_or_else(
        || "–".to_owned(),
        |spread| format!("{:.2} / {:.2}", spread.p50, spread.p99),
    )
}

/// Builds a row of a table.
pub fn row(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(rate: f64) -> Figures {
        Figures {
            deliveries_per_second: Some(rate),
            ..Figures::default()
        }
    }

    #[test]
    fn the_ratio_is_the_median_of_ratios_and_not_the_ratio_of_medians() {
        let rounds: Vec<Round> = [(100.0, 50.0), (10.0, 6.0), (1_000.0, 400.0)]
            .map(|(relay, server)| Round::new(Some(figures(relay)), Some(figures(server))))
            .to_vec();
        let median = Round::median(&rounds);
        assert_eq!(median.ratio, Some(0.5));
        let rate = |figures: Option<Figures>| figures.unwrap().deliveries_per_second;
        assert_eq!(rate(median.relay), Some(100.0));
        assert_eq!(rate(median.server), Some(50.0));
    }

    #[test]
    fn what_was_not_measured_is_absent() {
        let round = Round::new(Some(figures(1.0)), None);
        assert_eq!(round.ratio, None);
        let median = Round::median(&[round]);
        assert!(median.server.is_none() && median.relay.is_some());
        assert_eq!(number(None), "–");
    }

    #[test]
    fn figures_have_as_many_digits_as_they_deserve() {
        let numbers = [0.451, 12.34, 15_234.6].map(|value| number(Some(value)));
        assert_eq!(numbers, ["0.45", "12.3", "15,235"]);
        let sizes = [0.0, 999.0, 3_300.0, 148_000_000.0].map(|value| bytes(Some(value)));
        assert_eq!(sizes, ["0 B", "999 B", "3.3 KB", "148.0 MB"]);
    }
}
