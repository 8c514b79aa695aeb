//! Health ratios: five values that show whether webhooks arrive, each with a healthy range and an alert range.
//!
//! Four of them are a [`Ratio`] of counters. Its constructors are the definitions that the API, metrics, alerts and pages
//! share:
//!
//! - **Retry rate**: of the deliveries that had their first attempt, the share that needs a retry.
//! - **Dead-letter rate**: of the deliveries that succeeded or failed for good, the share that failed. Cancelled
//!   deliveries are in neither.
//! - **Attempts per success**: attempts of the deliveries that succeeded, for each of them.
//! - **Second-attempt success rate**: the share of second attempts that succeeded.
//!
//! A delivery counts once per round; a replay starts a new round. Both numbers of a ratio are counted at the same time, so
//! no window contains one without the other, and a share never exceeds 1. A ratio without data has the value of a healthy system: no retries, no dead letters, one attempt per success, every
//! second attempt successful. [`HealthReport`] has the values for each window.

use posthaste_store::StatCounters;
use serde::Serialize;

use super::window::StatsWindow;

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
    pub five_minutes: HealthRatios,
    /// The last hour.
    #[serde(rename = "1h")]
    pub hour: HealthRatios,
    /// The last 24 hours.
    #[serde(rename = "24h")]
    pub day: HealthRatios,
}

/// Health over one window.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HealthRatios {
    /// Share of deliveries that needed a retry.
    pub retry_ratio: RatedValue,
    /// Share of ended deliveries that were dead-lettered.
    pub dead_letter_ratio: RatedValue,
    /// Attempts per delivery that succeeded.
    pub attempts_per_success: RatedValue,
    /// Share of second attempts that succeeded.
    pub second_attempt_success_ratio: RatedValue,
    /// Deliveries that have been in retry for longer than 24 hours; the same in every window.
    pub retrying_over_24h: RatedValue,
}

/// One value with its ranges.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RatedValue {
    /// The value.
    pub value: f64,
    /// The healthy range, as text.
    pub healthy: &'static str,
    /// The alert range, as text.
    pub alert: &'static str,
    /// The range that the value is in.
    pub state: HealthState,
}

/// Range that a value is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HealthState {
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
    fn classify(&self, value: f64) -> RatedValue {
        let state = if (self.is_healthy)(value) {
            HealthState::Healthy
        } else if (self.is_alert)(value) {
            HealthState::Alert
        } else {
            HealthState::Warning
        };
        RatedValue {
            value,
            healthy: self.healthy,
            alert: self.alert,
            state,
        }
    }
}

impl HealthReport {
    /// Builds the report from the counters of each window.
    pub fn new(
        counters: impl Fn(StatsWindow) -> StatCounters,
        retrying_over_24h: u64,
    ) -> HealthReport {
        let health = |window| HealthRatios::new(&counters(window), retrying_over_24h);
        HealthReport {
            windows: Windows {
                five_minutes: health(StatsWindow::FiveMinutes),
                hour: health(StatsWindow::Hour),
                day: health(StatsWindow::Day),
            },
        }
    }
}

impl HealthRatios {
    /// Computes the values from counters.
    pub fn new(counters: &StatCounters, retrying_over_24h: u64) -> HealthRatios {
        let value = |ratio: Ratio, healthy: f64| ratio.value().unwrap_or(healthy);
        let second = Ratio::second_attempt_successes(counters);
        HealthRatios {
            retry_ratio: RETRY_RATIO.classify(value(Ratio::retries(counters), 0.0)),
            dead_letter_ratio: DEAD_LETTER_RATIO
                .classify(value(Ratio::dead_letters(counters), 0.0)),
            attempts_per_success: ATTEMPTS_PER_SUCCESS
                .classify(value(Ratio::attempts_per_success(counters), 1.0)),
            second_attempt_success_ratio: SECOND_ATTEMPT_SUCCESS_RATIO.classify(value(second, 1.0)),
            retrying_over_24h: RETRYING_OVER_24H.classify(retrying_over_24h as f64),
        }
    }
}

/// A number for each unit of another number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio {
    /// The numerator.
    pub part: u64,
    /// The denominator: the number of samples.
    pub whole: u64,
}

impl Ratio {
    /// Returns the retry rate: deliveries whose first attempt failed and is retried, of the deliveries that had their
    /// first attempt.
    pub fn retries(counters: &StatCounters) -> Ratio {
        let whole = counters.first_attempts();
        Ratio {
            part: counters.retried_deliveries.min(whole),
            whole,
        }
    }

    /// Returns the dead-letter rate: deliveries that failed for good, of those that succeeded or failed for good.
    pub fn dead_letters(counters: &StatCounters) -> Ratio {
        Ratio {
            part: counters.failed,
            whole: counters.succeeded.saturating_add(counters.failed),
        }
    }

    /// Returns the attempts per success: those of deliveries that succeeded, for each of these deliveries.
    pub fn attempts_per_success(counters: &StatCounters) -> Ratio {
        let whole = counters.succeeded;
        Ratio {
            // A node of an earlier version adds successes without their attempts, of which there is at least one.
            part: counters.success_attempts.max(whole),
            whole,
        }
    }

    /// Returns the second-attempt success rate.
    pub fn second_attempt_successes(counters: &StatCounters) -> Ratio {
        Ratio {
            part: counters.second_successes,
            whole: counters.second_attempts,
        }
    }

    /// Returns the value, if there are samples.
    pub fn value(self) -> Option<f64> {
        (self.whole > 0).then(|| self.part as f64 / self.whole as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_data_is_healthy() {
        let quiet = HealthRatios::new(&StatCounters::default(), 0);
        for (reading, value) in [
            (quiet.retry_ratio, 0.0),
            (quiet.dead_letter_ratio, 0.0),
            (quiet.attempts_per_success, 1.0),
            (quiet.second_attempt_success_ratio, 1.0),
            (quiet.retrying_over_24h, 0.0),
        ] {
            assert_eq!(
                (reading.value, reading.state),
                (value, HealthState::Healthy)
            );
        }
    }

    /// Ten deliveries: seven succeed at once, two with their second attempt, one is dead-lettered after three.
    const TEN: StatCounters = StatCounters {
        attempts: 7 + 2 * 2 + 3,
        retries: 2 + 2,
        retried_deliveries: 3,
        second_attempts: 3,
        second_successes: 2,
        succeeded: 9,
        success_attempts: 7 + 2 * 2,
        failed: 1,
        latency_micros: 0,
        slowest_micros: 0,
    };

    #[test]
    fn ratios_follow_their_definitions() {
        let health = HealthRatios::new(&TEN, 10);
        for (reading, value, state) in [
            (health.retry_ratio, 0.3, HealthState::Alert),
            (health.dead_letter_ratio, 0.1, HealthState::Alert),
            (
                health.attempts_per_success,
                11.0 / 9.0,
                HealthState::Healthy,
            ),
            (
                health.second_attempt_success_ratio,
                2.0 / 3.0,
                HealthState::Warning,
            ),
            (health.retrying_over_24h, 10.0, HealthState::Warning),
        ] {
            assert_eq!((reading.value, reading.state), (value, state));
        }
    }

    #[test]
    fn attempts_of_deliveries_without_a_success_do_not_count_per_success() {
        // An endpoint that is down: nothing succeeded, so no success took too many attempts.
        let down = StatCounters {
            attempts: 70,
            retries: 60,
            retried_deliveries: 10,
            ..StatCounters::default()
        };
        let health = HealthRatios::new(&down, 0);
        assert_eq!(health.attempts_per_success.value, 1.0);
        assert_eq!(health.retry_ratio.value, 1.0);
        // Another endpoint is fine, and its deliveries take one attempt each.
        let mut both = down;
        both.add(&StatCounters {
            attempts: 10,
            succeeded: 10,
            success_attempts: 10,
            ..StatCounters::default()
        });
        let health = HealthRatios::new(&both, 0);
        assert_eq!(health.attempts_per_success.value, 1.0);
        assert_eq!(health.retry_ratio.value, 0.5);
    }

    #[test]
    fn retries_of_older_deliveries_do_not_change_the_retry_rate() {
        // After an outage, the window has one new delivery and the second attempts of a hundred older ones.
        let recovering = StatCounters {
            attempts: 101,
            retries: 100,
            second_attempts: 100,
            second_successes: 100,
            succeeded: 101,
            success_attempts: 201,
            ..StatCounters::default()
        };
        let health = HealthRatios::new(&recovering, 0);
        assert_eq!(health.retry_ratio.value, 0.0);
        assert_eq!(health.attempts_per_success.value, 201.0 / 101.0);
    }

    #[test]
    fn inconsistent_counters_stay_in_range() {
        // A node of an earlier version does not count the attempts of successes.
        let mixed = StatCounters {
            attempts: 4,
            retries: 3,
            retried_deliveries: 2,
            succeeded: 4,
            success_attempts: 3,
            ..StatCounters::default()
        };
        let health = HealthRatios::new(&mixed, 0);
        assert_eq!(health.retry_ratio.value, 1.0);
        assert_eq!(health.attempts_per_success.value, 1.0);
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
                HealthState::Healthy,
                HealthState::Warning,
                HealthState::Warning,
                HealthState::Alert,
            ];
            assert_eq!(states, expected, "{} {}", range.healthy, range.alert);
        }
    }
}
