//! Delivery stats: five health ratios with their ranges, and counts by time bucket.
//!
//! [`Stats`] has the ratios over several windows, each with the range that it is in; without data a ratio is `null`.
//! [`StatsSeries`] has the counts of buckets without gaps, oldest first.

use posthaste_store::StatCounters;
use posthaste_telemetry::metrics::health::{HealthRatios, HealthReport, RatedValue};
use posthaste_telemetry::metrics::window::StatsWindow;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::schema::{Schema, choice, described, named, object};

/// The health of deliveries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// Health over each window.
    pub windows: StatsWindows,
}

/// Health over each window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatsWindows {
    /// The last 5 minutes.
    #[serde(rename = "5m")]
    pub five_minutes: HealthStats,
    /// The last hour.
    #[serde(rename = "1h")]
    pub hour: HealthStats,
    /// The last 24 hours.
    #[serde(rename = "24h")]
    pub day: HealthStats,
}

/// Health over one window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HealthStats {
    /// Share of deliveries that needed a retry.
    pub retry_ratio: HealthValue,
    /// Share of ended deliveries that were dead-lettered.
    pub dead_letter_ratio: HealthValue,
    /// Attempts per delivery that succeeded.
    pub attempts_per_success: HealthValue,
    /// Share of second attempts that succeeded.
    pub second_attempt_success_ratio: HealthValue,
    /// Deliveries that have been in retry for longer than 24 hours; the same in every window.
    pub retrying_over_24h: HealthValue,
}

/// One value with its ranges.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HealthValue {
    /// The value.
    pub value: f64,
    /// The healthy range, as text.
    pub healthy: String,
    /// The alert range, as text.
    pub alert: String,
    /// The range that the value is in.
    pub state: HealthState,
}

/// The range that a value is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HealthState {
    /// Inside the healthy range.
    Healthy,
    /// Neither healthy nor in the alert range.
    Warning,
    /// In the alert range: an operator should look.
    Alert,
}

/// Counts by time bucket, oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatsSeries {
    /// The window: `1h` or `24h`.
    pub window: String,
    /// The length of a bucket: `1m`, `15m` or `1h`.
    pub bucket: String,
    /// The buckets, empty ones too.
    pub buckets: Vec<StatsBucket>,
}

/// The counts of one bucket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatsBucket {
    /// The time at which it begins.
    pub start: String,
    /// Attempts made.
    pub attempts: u64,
    /// Successful deliveries.
    pub succeeded: u64,
    /// Dead-lettered deliveries.
    pub failed: u64,
    /// Attempts that were not the first.
    pub retries: u64,
    /// Deliveries whose first attempt failed and is retried.
    pub retried_deliveries: u64,
    /// Attempts that the successful deliveries took.
    pub success_attempts: u64,
    /// Attempts that were the second.
    pub second_attempts: u64,
    /// Second attempts that succeeded.
    pub second_successes: u64,
    /// Latency of the attempts, if there were any.
    pub latency_ms: Option<LatencySummary>,
}

/// Latency of attempts, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencySummary {
    /// The mean.
    pub mean: f64,
    /// The maximum.
    pub max: f64,
}

impl From<HealthReport> for Stats {
    fn from(report: HealthReport) -> Stats {
        Stats {
            windows: StatsWindows {
                five_minutes: HealthStats::from(&report.windows.five_minutes),
                hour: HealthStats::from(&report.windows.hour),
                day: HealthStats::from(&report.windows.day),
            },
        }
    }
}

impl From<&HealthRatios> for HealthStats {
    fn from(health: &HealthRatios) -> HealthStats {
        HealthStats {
            retry_ratio: health.retry_ratio.into(),
            dead_letter_ratio: health.dead_letter_ratio.into(),
            attempts_per_success: health.attempts_per_success.into(),
            second_attempt_success_ratio: health.second_attempt_success_ratio.into(),
            retrying_over_24h: health.retrying_over_24h.into(),
        }
    }
}

impl From<RatedValue> for HealthValue {
    fn from(reading: RatedValue) -> HealthValue {
        HealthValue {
            value: reading.value,
            healthy: reading.healthy.to_owned(),
            alert: reading.alert.to_owned(),
            state: match reading.state {
                posthaste_telemetry::metrics::health::HealthState::Healthy => HealthState::Healthy,
                posthaste_telemetry::metrics::health::HealthState::Warning => HealthState::Warning,
                posthaste_telemetry::metrics::health::HealthState::Alert => HealthState::Alert,
            },
        }
    }
}

impl StatsSeries {
    /// Describes the counts of a window.
    pub fn new(window: StatsWindow, series: &posthaste_telemetry::metrics::Series) -> StatsSeries {
        let buckets = series.buckets.iter();
        StatsSeries {
            window: window.name().to_owned(),
            bucket: series.bucket.to_string(),
            buckets: buckets
                .map(|(start, counters)| StatsBucket {
                    start: start.to_string(),
                    attempts: counters.attempts,
                    succeeded: counters.succeeded,
                    failed: counters.failed,
                    retries: counters.retries,
                    retried_deliveries: counters.retried_deliveries,
                    success_attempts: counters.success_attempts,
                    second_attempts: counters.second_attempts,
                    second_successes: counters.second_successes,
                    latency_ms: latency(counters),
                })
                .collect(),
        }
    }
}

fn latency(counters: &StatCounters) -> Option<LatencySummary> {
    let micros_to_ms = |micros: f64| micros / 1_000.0;
    (counters.attempts > 0).then(|| LatencySummary {
        mean: micros_to_ms((counters.latency_micros / counters.attempts) as f64),
        max: micros_to_ms(counters.slowest_micros as f64),
    })
}

/// Returns the schemas of [`Stats`] and [`StatsSeries`].
pub(crate) fn schemas() -> Vec<Schema> {
    vec![
        Schema {
            name: "Stats",
            shape: stats_schema(),
        },
        Schema {
            name: "Series",
            shape: series_schema(),
        },
    ]
}

fn stats_schema() -> Value {
    let value = object(json!({
        "value": {"type": "number"},
        "healthy": {"type": "string", "description": "Healthy range."},
        "alert": {"type": "string", "description": "Alert range."},
        "state": choice("MetricState", ["healthy", "warning", "alert"]),
    }));
    let metric = named("HealthMetric", value);
    let described = |about: &str| described(metric.clone(), about);
    let health = object(json!({
        "retry_ratio": described("Share of deliveries whose first attempt failed and is retried, among those with a first attempt. A replayed delivery counts again."),
        "dead_letter_ratio": described("Share of deliveries that failed permanently, among those that succeeded or failed. Cancelled deliveries are not counted."),
        "attempts_per_success": described("Attempts per successful delivery, since its last replay."),
        "second_attempt_success_ratio": described("Share of second attempts that succeeded."),
        "retrying_over_24h": described("Deliveries that have been retrying for more than 24 hours; the same in every window."),
    }));
    let health = named("HealthMetrics", health);
    let windows = object_of(&["5m", "1h", "24h"], &health);
    object(json!({"windows": named("StatsWindows", windows)}))
}

/// Returns the schema of an object with these properties, all with the same schema.
fn object_of(names: &[&str], schema: &Value) -> Value {
    let properties = names
        .iter()
        .map(|name| ((*name).to_owned(), schema.clone()));
    object(Value::Object(properties.collect::<Map<String, Value>>()))
}

/// Returns the schema of the time range of a series.
pub(crate) fn series_window() -> Value {
    choice("SeriesWindow", ["1h", "24h"])
}

fn series_schema() -> Value {
    let count = |about: &str| json!({"type": "integer", "minimum": 0, "description": about});
    let number = json!({"type": "number"});
    let latency = object(json!({"mean": number, "max": number}));
    let latency = named("LatencySummary", latency);
    let bucket = object(json!({
        "start": {"type": "string", "format": "date-time", "description": "Start of the bucket."},
        "attempts": count("Attempts made."),
        "succeeded": count("Deliveries that succeeded."),
        "failed": count("Deliveries that failed permanently."),
        "retries": count("Retries."),
        "retried_deliveries": count("Deliveries whose first attempt failed and is retried."),
        "success_attempts": count("Attempts of the successful deliveries."),
        "second_attempts": count("Second attempts."),
        "second_successes": count("Second attempts that succeeded."),
        "latency_ms": {
            "description": "Duration of attempts; null if there were none.",
            "anyOf": [latency, {"type": "null"}],
        },
    }));
    object(json!({
        "window": series_window(),
        "bucket": {
            "type": "string",
            "description": "Length of a bucket: `1m`, `15m` or `1h`.",
        },
        "buckets": {
            "type": "array",
            "description": "All buckets, oldest first, including empty ones.",
            "items": named("SeriesBucket", bucket),
        },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_is_present_if_there_were_attempts() {
        assert_eq!(latency(&StatCounters::default()), None);
        let counters = StatCounters {
            attempts: 4,
            latency_micros: 10_002,
            slowest_micros: 7_500,
            ..StatCounters::default()
        };
        let expected = LatencySummary {
            mean: 2.5,
            max: 7.5,
        };
        assert_eq!(latency(&counters), Some(expected));
    }
}
