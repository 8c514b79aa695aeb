//! Five ratios that show whether webhooks arrive, each with a healthy range and an alert range.
//!
//! A ratio without data has the value of a healthy system: no retries, no dead letters, one attempt per success, every
//! second attempt successful. [`HealthReport`] has the ratios for each window.

use posthaste_store::StatCounters;
use serde::Serialize;

use super::window::Window;

/// Health of all tenants together, or of one tenant.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HealthReport {
    /// Health over each window.
    pub windows: Windows,
}

/// Health over each window.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Windows {
    /// The last 5 minutes.
    #[serde(rename = "5m")]
    pub five_minutes: Health,
    /// The last hour.
    #[serde(rename = "1h")]
    pub hour: Health,
    /// The last 24 hours.
    #[serde(rename = "24h")]
    pub day: Health,
}

/// Health over one window.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Health {
    /// Ratio of attempts that were retries.
    pub retry_ratio: Reading,
    /// Ratio of dead-lettered deliveries to those that succeeded or were dead-lettered.
    pub dead_letter_ratio: Reading,
    /// Attempts made per successful delivery.
    pub attempts_per_success: Reading,
    /// Ratio of second attempts that succeeded.
    pub second_attempt_success_ratio: Reading,
    /// Deliveries that have been in retry for longer than 24 hours; the same in every window.
    pub retrying_over_24h: Reading,
}

/// One value with its ranges.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Reading {
    /// The value.
    pub value: f64,
    /// The healthy range, as text.
    pub healthy: &'static str,
    /// The alert range, as text.
    pub alert: &'static str,
    /// The range that the value is in.
    pub state: Condition,
}

/// Range that a value is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// Inside the healthy range.
    Healthy,
    /// Neither healthy nor in the alert range.
    Warning,
    /// In the alert range: an operator should look.
    Alert,
}

/// A healthy range and an alert range, as text and as predicates.
struct Range {
    healthy: &'static str,
    alert: &'static str,
    is_healthy: fn(f64) -> bool,
    is_alert: fn(f64) -> bool,
}

const RETRY_RATIO: Range = Range {
    healthy: "< 0.05",
    alert: "> 0.10",
    is_healthy: |value| value < 0.05,
    is_alert: |value| value > 0.10,
};
const DEAD_LETTER_RATIO: Range = Range {
    healthy: "< 0.005",
    alert: "> 0.01",
    is_healthy: |value| value < 0.005,
    is_alert: |value| value > 0.01,
};
const ATTEMPTS_PER_SUCCESS: Range = Range {
    healthy: "<= 1.3",
    alert: "> 2.0",
    is_healthy: |value| value <= 1.3,
    is_alert: |value| value > 2.0,
};
const SECOND_ATTEMPT_SUCCESS_RATIO: Range = Range {
    healthy: "> 0.80",
    alert: "< 0.60",
    is_healthy: |value| value > 0.80,
    is_alert: |value| value < 0.60,
};
const RETRYING_OVER_24H: Range = Range {
    healthy: "< 10",
    alert: "> 100",
    is_healthy: |value| value < 10.0,
    is_alert: |value| value > 100.0,
};

impl Range {
    fn classify(&self, value: f64) -> Reading {
        let state = if (self.is_healthy)(value) {
            Condition::Healthy
        } else if (self.is_alert)(value) {
            Condition::Alert
        } else {
            Condition::Warning
        };
        Reading {
            value,
            healthy: self.healthy,
            alert: self.alert,
            state,
        }
    }
}

impl HealthReport {
    /// Builds the report from the counters of each window.
    pub fn new(counters: impl Fn(Window) -> StatCounters, retrying_over_24h: u64) -> HealthReport {
        let health = |window| Health::new(&counters(window), retrying_over_24h);
        HealthReport {
            windows: Windows {
                five_minutes: health(Window::FiveMinutes),
                hour: health(Window::Hour),
                day: health(Window::Day),
            },
        }
    }
}

impl Health {
    /// Computes the ratios from counters.
    pub fn new(counters: &StatCounters, retrying_over_24h: u64) -> Health {
        let finished = counters.succeeded.saturating_add(counters.failed);
        // Before the first success, the number of attempts itself is the value.
        let attempts_per_success = match counters.attempts {
            0 => 1.0,
            attempts => attempts as f64 / counters.succeeded.max(1) as f64,
        };
        let second = ratio(counters.second_successes, counters.second_attempts);
        Health {
            retry_ratio: RETRY_RATIO
                .classify(ratio(counters.retries, counters.attempts).unwrap_or(0.0)),
            dead_letter_ratio: DEAD_LETTER_RATIO
                .classify(ratio(counters.failed, finished).unwrap_or(0.0)),
            attempts_per_success: ATTEMPTS_PER_SUCCESS.classify(attempts_per_success),
            second_attempt_success_ratio: SECOND_ATTEMPT_SUCCESS_RATIO
                .classify(second.unwrap_or(1.0)),
            retrying_over_24h: RETRYING_OVER_24H.classify(retrying_over_24h as f64),
        }
    }
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_data_is_healthy() {
        let quiet = Health::new(&StatCounters::default(), 0);
        for (reading, value) in [
            (quiet.retry_ratio, 0.0),
            (quiet.dead_letter_ratio, 0.0),
            (quiet.attempts_per_success, 1.0),
            (quiet.second_attempt_success_ratio, 1.0),
            (quiet.retrying_over_24h, 0.0),
        ] {
            assert_eq!((reading.value, reading.state), (value, Condition::Healthy));
        }
    }

    #[test]
    fn ratios_are_computed_from_the_counters() {
        let counters = StatCounters {
            attempts: 120,
            retries: 20,
            second_attempts: 16,
            second_successes: 12,
            succeeded: 96,
            failed: 4,
            ..StatCounters::default()
        };
        let health = Health::new(&counters, 10);
        assert_eq!(health.retry_ratio.value, 20.0 / 120.0);
        assert_eq!(health.retry_ratio.state, Condition::Alert);
        assert_eq!(health.dead_letter_ratio.value, 0.04);
        assert_eq!(health.dead_letter_ratio.state, Condition::Alert);
        assert_eq!(health.attempts_per_success.value, 1.25);
        assert_eq!(health.attempts_per_success.state, Condition::Healthy);
        assert_eq!(health.second_attempt_success_ratio.value, 0.75);
        assert_eq!(
            health.second_attempt_success_ratio.state,
            Condition::Warning
        );
        assert_eq!(health.retrying_over_24h.state, Condition::Warning);
    }

    #[test]
    fn failures_without_a_success_are_visible() {
        let counters = StatCounters {
            attempts: 7,
            retries: 6,
            ..StatCounters::default()
        };
        let reading = Health::new(&counters, 0).attempts_per_success;
        assert_eq!((reading.value, reading.state), (7.0, Condition::Alert));
    }

    #[test]
    fn values_between_the_ranges_are_warnings() {
        for (range, cases) in [
            (RETRY_RATIO, [0.049, 0.05, 0.10, 0.101]),
            (DEAD_LETTER_RATIO, [0.0049, 0.005, 0.01, 0.0101]),
            (ATTEMPTS_PER_SUCCESS, [1.3, 1.31, 2.0, 2.01]),
            (SECOND_ATTEMPT_SUCCESS_RATIO, [0.81, 0.80, 0.60, 0.59]),
            (RETRYING_OVER_24H, [9.0, 10.0, 100.0, 101.0]),
        ] {
            let states = cases.map(|value| range.classify(value).state);
            let expected = [
                Condition::Healthy,
                Condition::Warning,
                Condition::Warning,
                Condition::Alert,
            ];
            assert_eq!(states, expected, "{} {}", range.healthy, range.alert);
        }
    }
}
