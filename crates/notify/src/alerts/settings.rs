//! Settings of alerts.
//!
//! [`AlertSettings`] holds the configured values: interval, window and thresholds. [`AlertSettings::rule`] turns them
//! into the rule of one alert, by which the core raises and resolves it.

use std::collections::BTreeMap;

use posthaste_core::alert::{AlertName, AlertRule, Bound, Measure};
use posthaste_core::time::Span;

/// Longest window. Stats are kept for little longer.
pub const LONGEST_WINDOW: Span = Span::from_hours(24);
/// Number of consecutive slow test writes that raise an alert.
pub const SLOW_WRITES_TO_ALERT: usize = 3;

/// Settings of alerts.
#[derive(Clone, Debug, PartialEq)]
pub struct AlertSettings {
    /// False raises no alerts and resolves all open ones.
    pub enabled: bool,
    /// Interval between rounds.
    pub every: Span,
    /// Window over which counters are summed.
    pub window: Span,
    /// Time for which a value must be normal before its alert is resolved.
    pub calm: Span,
    /// Minimum number of attempts for a ratio to raise an alert.
    pub min_attempts: u32,
    /// Threshold of each alert. An alert without one is off.
    pub bounds: BTreeMap<AlertName, Bound>,
    /// Size limit of the store, if it is known.
    pub database_bytes: Option<u64>,
}

impl Default for AlertSettings {
    fn default() -> AlertSettings {
        AlertSettings {
            enabled: true,
            every: Span::from_secs(15),
            window: Span::from_hours(1),
            calm: Span::from_mins(5),
            min_attempts: 20,
            bounds: AlertName::ALL.map(|name| (name, name.bound())).into(),
            database_bytes: None,
        }
    }
}

impl AlertSettings {
    /// Returns the threshold of an alert; `None` if it is off.
    pub fn bound(&self, name: AlertName) -> Option<Bound> {
        self.bounds.get(&name).copied().filter(|_| self.enabled)
    }

    /// Returns the rule by which an alert is raised and resolved; `None` if it is off.
    pub fn rule(&self, name: AlertName) -> Option<AlertRule> {
        let bound = self.bound(name)?;
        let least_samples = match (name, name.measure()) {
            (AlertName::StoreSlow, _) => SLOW_WRITES_TO_ALERT as u64,
            (AlertName::StoreNearlyFull, _) => 0,
            (_, Measure::Ratio | Measure::Factor) => u64::from(self.min_attempts),
            (_, Measure::Count | Measure::Seconds | Measure::Event) => 0,
        };
        Some(AlertRule {
            bound,
            least_samples,
            calm: self.calm,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ratios_require_many_samples() {
        let settings = AlertSettings::default();
        let least = |name| settings.rule(name).expect("the alert is on").least_samples;
        assert_eq!(least(AlertName::RetryRatio), 20);
        assert_eq!(least(AlertName::AttemptsPerSuccess), 20);
        assert_eq!(least(AlertName::DeadLettersGrowing), 0);
        assert_eq!(least(AlertName::StoreNearlyFull), 0);
        assert_eq!(least(AlertName::StoreSlow), 3);
    }

    #[test]
    fn an_alert_that_is_off_has_no_rule() {
        let mut settings = AlertSettings::default();
        settings.bounds.remove(&AlertName::QueueAge);
        assert_eq!(settings.rule(AlertName::QueueAge), None);
        assert!(settings.rule(AlertName::StoreSlow).is_some());
        settings.enabled = false;
        let any = AlertName::ALL
            .into_iter()
            .find_map(|name| settings.rule(name));
        assert_eq!(any, None);
    }
}
