//! Delivery stats on pages: five health ratios with their normal ranges, and charts over time.
//!
//! [`Stats`] holds the indicators and [`StatsSeries`] the counts by time bucket. [`TimeRange`] is the time range that the
//! visitor chose.

use maud::{Markup, html};
use posthaste_api::resources::{HealthState, HealthValue, Stats, StatsBucket, StatsSeries};
use posthaste_charts::format;

use crate::components::chart::{self, ChartText, Marks};
use crate::components::{BadgeKind, badge, empty_list, rounded_duration};

/// The time range of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeRange {
    Hour,
    Day,
}

impl TimeRange {
    /// Reads the range from a query parameter; one hour if it is missing or unknown.
    pub(super) fn read(text: &str) -> TimeRange {
        match text {
            "24h" => TimeRange::Day,
            _ => TimeRange::Hour,
        }
    }

    /// The name of the range in the API.
    pub(super) fn name(self) -> &'static str {
        match self {
            TimeRange::Hour => "1h",
            TimeRange::Day => "24h",
        }
    }

    fn label(self) -> &'static str {
        match self {
            TimeRange::Hour => "Last hour",
            TimeRange::Day => "Last 24 hours",
        }
    }

    /// Renders a choice between the two ranges, on the page at `link`.
    pub(super) fn choice(self, link: &str) -> Markup {
        html! {
            nav.choice aria-label="Time range" {
                ul {
                    @for window in [TimeRange::Hour, TimeRange::Day] {
                        li {
                            a href={ (link) "?window=" (window.name()) }
                                aria-current=[(window == self).then_some("true")] { (window.label()) }
                        }
                    }
                }
            }
        }
    }
}

/// The unit of an indicator.
#[derive(Clone, Copy)]
pub(super) enum Unit {
    Share,
    Number,
    Count,
}

impl Unit {
    pub(super) fn write(self, value: f64) -> String {
        match self {
            Unit::Share => format!("{} %", short(value * 100.0)),
            Unit::Number => short(value),
            Unit::Count => format::count(value as u64),
        }
    }

    /// Converts an API range, such as `< 0.05`, to words.
    fn range(self, range: &str) -> String {
        let Some((relation, number)) = range.split_once(' ') else {
            return range.to_owned();
        };
        let Ok(number) = number.parse::<f64>() else {
            return range.to_owned();
        };
        let relation = match relation {
            "<" => "below",
            ">" => "above",
            "<=" => "up to",
            ">=" => "from",
            other => other,
        };
        format!("{relation} {}", self.write(number))
    }
}

/// Rounds to two digits after the point (one from 10 on), without trailing zeros.
fn short(value: f64) -> String {
    let digits = if value.abs() < 10.0 { 100.0 } else { 10.0 };
    format!("{}", (value * digits).round() / digits)
}

/// Renders the five indicators over a range, each with its values over time. A ratio of fewer than `min_samples`
/// samples is shown without a warning, because no alert is raised for it either.
pub(super) fn cards(
    stats: &Stats,
    window: TimeRange,
    series: &StatsSeries,
    min_samples: u64,
) -> Markup {
    let health = match window {
        TimeRange::Hour => &stats.windows.hour,
        TimeRange::Day => &stats.windows.day,
    };
    let card = |indicator: &HealthValue, unit, name, meaning, trend: &Trend| {
        card(indicator, unit, name, meaning, trend, min_samples)
    };
    html! {
        ul.cards.figures {
            (card(&health.retry_ratio, Unit::Share, "Retry rate", "of deliveries needed a retry",
                &trend(series, |it| (it.retried_deliveries, first_attempts(it)))))
            (card(&health.dead_letter_ratio, Unit::Share, "Dead-letter rate", "of finished deliveries failed",
                &trend(series, |it| (it.failed, finished(it)))))
            (card(&health.attempts_per_success, Unit::Number, "Attempts per success", "attempts per successful delivery",
                &trend(series, |it| (it.success_attempts, it.succeeded))))
            (card(&health.second_attempt_success_ratio, Unit::Share, "Second-attempt success rate", "of second attempts succeeded",
                &trend(series, |it| (it.second_successes, it.second_attempts))))
            (card(&health.retrying_over_24h, Unit::Count, "Retrying over 24 h", "deliveries, now",
                &Trend::without_series()))
        }
    }
}

/// The values of an indicator over time.
struct Trend {
    /// Values by bucket.
    values: Vec<Option<f64>>,
    /// Number of samples that the value over the whole range was computed from.
    samples: u64,
}

impl Trend {
    /// An indicator that does not depend on the buckets, and so always has a value.
    fn without_series() -> Trend {
        Trend {
            values: Vec::new(),
            samples: u64::MAX,
        }
    }
}

fn card(
    indicator: &HealthValue,
    unit: Unit,
    name: &str,
    meaning: &str,
    trend: &Trend,
    min_samples: u64,
) -> Markup {
    // Without data the API returns the value of a healthy state. Nothing was measured, so the page does not say
    // "healthy".
    let has_enough = trend.samples >= min_samples;
    let (kind, state) = match indicator.state {
        _ if trend.samples == 0 => (BadgeKind::Quiet, "no data"),
        HealthState::Healthy => (BadgeKind::Good, "healthy"),
        HealthState::Alert | HealthState::Warning if !has_enough => {
            (BadgeKind::Quiet, "too few samples")
        }
        HealthState::Alert => (BadgeKind::Bad, "alert"),
        HealthState::Warning => (BadgeKind::Warning, "warning"),
    };
    let value = match trend.samples {
        0 => "–".to_owned(),
        _ => unit.write(indicator.value),
    };
    html! {
        li.card.figure {
            h3 { (name) }
            p.value { strong { (value) } " " (badge(kind, state)) }
            p.hint { (meaning) }
            (chart::sparkline(&trend.values, name))
            p.hint { "Healthy " (unit.range(&indicator.healthy)) ", alert " (unit.range(&indicator.alert)) "." }
        }
    }
}

/// Deliveries that succeeded or failed for good.
fn finished(bucket: &StatsBucket) -> u64 {
    bucket.failed.saturating_add(bucket.succeeded)
}

/// Deliveries that had their first attempt.
fn first_attempts(bucket: &StatsBucket) -> u64 {
    bucket.attempts.saturating_sub(bucket.retries)
}

/// Returns a ratio by bucket. There is data for it if any bucket has a denominator.
fn trend(series: &StatsSeries, ratio: fn(&StatsBucket) -> (u64, u64)) -> Trend {
    let value = |bucket: &StatsBucket| {
        let (numerator, denominator) = ratio(bucket);
        (denominator > 0).then(|| numerator as f64 / denominator as f64)
    };
    let samples = series.buckets.iter().map(|bucket| ratio(bucket).1);
    Trend {
        values: series.buckets.iter().map(value).collect(),
        samples: samples.fold(0, u64::saturating_add),
    }
}

/// Charts of successful and failed attempts, and of latency.
pub(super) fn charts(series: &StatsSeries, window: TimeRange) -> Markup {
    let attempts: u64 = series.buckets.iter().map(|it| it.attempts).sum();
    if attempts == 0 {
        let when = match window {
            TimeRange::Hour => "hour",
            TimeRange::Day => "24 hours",
        };
        return empty_list(&format!("No attempts in the last {when}."));
    }
    html! {
        div.columns { div.card { (throughput(series, attempts)) } div.card { (latency(series)) } }
    }
}

fn time_labels(series: &StatsSeries) -> (Markup, Markup) {
    let clock = |at: Option<&StatsBucket>| {
        let start = at.map_or("", |bucket| bucket.start.as_str());
        html! { time datetime=(start) { (start.get(11..16).unwrap_or_default()) } }
    };
    (clock(series.buckets.first()), clock(series.buckets.last()))
}

fn throughput(series: &StatsSeries, attempts: u64) -> Markup {
    let counts = |bucket: &StatsBucket| {
        let failed = bucket.attempts.saturating_sub(bucket.succeeded);
        (bucket.succeeded as f64, failed as f64)
    };
    let heights: Vec<(f64, f64)> = series.buckets.iter().map(counts).collect();
    let max = series
        .buckets
        .iter()
        .map(|it| it.attempts)
        .max()
        .unwrap_or(0);
    let succeeded: u64 = series.buckets.iter().map(|it| it.succeeded).sum();
    let (left_label, right_label) = time_labels(series);
    let bucket = bucket_name(&series.bucket);
    chart::columns(
        &chart::equal_columns(&heights),
        max as f64,
        Marks::default(),
        ChartText {
            title: &format!("Attempts per {bucket}"),
            description: &format!(
                "{} attempts, {} succeeded; peak {} per {bucket}.",
                format::count(attempts),
                format::count(succeeded),
                format::count(max),
            ),
            max_label: &format::count(max),
            legend: &[("good", "succeeded"), ("bad", "failed")],
            left_label,
            right_label,
        },
    )
}

fn latency(series: &StatsSeries) -> Markup {
    let all = || {
        series
            .buckets
            .iter()
            .map(|bucket| bucket.latency_ms.as_ref())
    };
    let mean: Vec<Option<f64>> = all().map(|it| it.map(|it| it.mean)).collect();
    let slowest: Vec<Option<f64>> = all().map(|it| it.map(|it| it.max)).collect();
    let max = slowest.iter().flatten().copied().fold(0.0, f64::max);
    let (left_label, right_label) = time_labels(series);
    let max_text = rounded_duration(max.ceil() as u64);
    chart::lines(
        &[("slowest", slowest), ("mean", mean)],
        max,
        ChartText {
            title: "Attempt latency",
            description: &format!("Slowest attempt: {max_text}."),
            max_label: &max_text,
            legend: &[("slowest", "slowest"), ("mean", "mean")],
            left_label,
            right_label,
        },
    )
}

/// The length of a bucket, as it follows "per".
fn bucket_name(bucket: &str) -> String {
    match bucket {
        "1m" => "minute".to_owned(),
        "15m" => "15 minutes".to_owned(),
        "1h" => "hour".to_owned(),
        other => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn figure(value: f64, healthy: &str, alert: &str, state: &str) -> Value {
        json!({"value": value, "healthy": healthy, "alert": alert, "state": state})
    }

    fn stats() -> Stats {
        let figures = json!({
            "retry_ratio": figure(0.123_45, "< 0.05", "> 0.10", "alert"),
            "dead_letter_ratio": figure(0.0, "< 0.005", "> 0.01", "healthy"),
            "attempts_per_success": figure(1.5, "<= 1.3", "> 2.0", "warning"),
            "second_attempt_success_ratio": figure(1.0, "> 0.80", "< 0.60", "healthy"),
            "retrying_over_24h": figure(1_200.0, "< 10", "> 100", "alert"),
        });
        let windows = json!({"windows": {"5m": figures, "1h": figures, "24h": figures}});
        serde_json::from_value(windows).expect("valid stats")
    }

    fn bucket(attempts: u32, succeeded: u32) -> Value {
        json!({"start": "2026-01-02T03:04:00.000Z", "attempts": attempts, "succeeded": succeeded,
            "failed": 0, "retries": 0, "retried_deliveries": 0,
            "success_attempts": succeeded, "second_attempts": 0, "second_successes": 0,
            "latency_ms": {"mean": 2.5, "max": 80.0}})
    }

    fn series(buckets: &[Value]) -> StatsSeries {
        let series = json!({"window": "1h", "bucket": "1m", "buckets": buckets});
        serde_json::from_value(series).expect("a valid series")
    }

    #[test]
    fn trends_follow_the_definitions_of_the_values() {
        let mut with_retries = bucket(16, 9);
        for (name, count) in [
            ("retries", 6),
            ("retried_deliveries", 3),
            ("success_attempts", 11),
        ] {
            with_retries[name] = json!(count);
        }
        let series = series(&[with_retries]);
        let trend_of = |ratio| trend(&series, ratio).values;
        let retry_rate = trend_of(|it| (it.retried_deliveries, first_attempts(it)));
        assert_eq!(retry_rate, [Some(0.3)]);
        let per_success = trend_of(|it| (it.success_attempts, it.succeeded));
        assert_eq!(per_success, [Some(11.0 / 9.0)]);
    }

    #[test]
    fn indicators_are_shown_with_their_ranges() {
        let markup = cards(&stats(), TimeRange::Hour, &series(&[bucket(3, 2)]), 2).0;
        for part in [
            "12.3 %",
            "Healthy below 5 %, alert above 10 %.",
            "Healthy below 0.5 %, alert above 1 %.",
            "Healthy up to 1.3, alert above 2.",
            "Healthy above 80 %, alert below 60 %.",
            "1,200",
            "warning",
        ] {
            assert!(markup.contains(part), "{part}: {markup}");
        }
        // There was no second attempt.
        assert_eq!(markup.matches("no data").count(), 1, "{markup}");
    }

    #[test]
    fn ratio_of_few_samples_is_no_alert() {
        let few = cards(&stats(), TimeRange::Hour, &series(&[bucket(19, 2)]), 20).0;
        // The retry rate and the attempts per success. The number of old retries does not depend on samples.
        assert_eq!(few.matches("too few samples").count(), 2, "{few}");
        assert_eq!(few.matches("badge bad").count(), 1, "{few}");
        let enough = cards(&stats(), TimeRange::Hour, &series(&[bucket(20, 2)]), 20).0;
        assert_eq!(enough.matches("too few samples").count(), 1, "{enough}");
        assert_eq!(enough.matches("badge bad").count(), 2, "{enough}");
    }

    #[test]
    fn indicator_without_data_is_not_called_healthy() {
        let markup = cards(&stats(), TimeRange::Hour, &series(&[bucket(0, 0)]), 1).0;
        assert_eq!(markup.matches("no data").count(), 4, "{markup}");
        assert!(
            !markup.contains("> healthy<") && markup.contains("1,200"),
            "{markup}"
        );
        // Nothing succeeded or failed for good yet, and there was no second attempt, but first attempts were made.
        let markup = cards(&stats(), TimeRange::Hour, &series(&[bucket(9, 0)]), 1).0;
        assert_eq!(markup.matches("no data").count(), 3, "{markup}");
    }

    #[test]
    fn charts_are_drawn_only_if_there_were_attempts() {
        let markup = charts(&series(&[bucket(4, 1), bucket(0, 0)]), TimeRange::Hour).0;
        assert!(markup.contains("4 attempts, 1 succeeded; peak 4 per minute."));
        assert!(markup.contains(">03:04</time>"), "{markup}");
        assert!(markup.contains("Slowest attempt: 80 ms."), "{markup}");
        let markup = charts(&series(&[bucket(0, 0)]), TimeRange::Day).0;
        assert!(
            markup.contains("No attempts in the last 24 hours."),
            "{markup}"
        );
    }
}
