//! What the operator says about alerts.

use std::collections::BTreeMap;

use posthaste_core::alert::{AlertName, Bound, Measure, Rule};
use posthaste_core::time::Span;

/// The longest time that figures are looked at over. They are kept for little longer.
pub const LONGEST_WINDOW: Span = Span::from_hours(24);
/// So many of our own writes in a row must have been slow.
pub const SLOW_WRITES: usize = 3;

/// When somebody is to be told.
#[derive(Clone, Debug, PartialEq)]
pub struct AlertSettings {
    /// Without, nothing is raised, and what goes on is resolved.
    pub enabled: bool,
    /// How often one looks.
    pub every: Span,
    /// Over which time figures are looked at.
    pub window: Span,
    /// For so long something must have been in order before it is over.
    pub calm: Span,
    /// Ratios of fewer attempts than this raise nothing.
    pub min_attempts: u32,
    /// From where on each calls for somebody. One that is not named is off.
    pub bounds: BTreeMap<AlertName, Bound>,
    /// How large the store may grow, if that is known.
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
    /// From where on an alert calls for somebody; nothing if it is off.
    pub fn bound(&self, name: AlertName) -> Option<Bound> {
        self.bounds.get(&name).copied().filter(|_| self.enabled)
    }

    /// When an alert is raised and when it ends; nothing if it is off.
    pub fn rule(&self, name: AlertName) -> Option<Rule> {
        let bound = self.bound(name)?;
        let least_samples = match (name, name.measure()) {
            (AlertName::StoreSlow, _) => SLOW_WRITES as u64,
            (AlertName::StoreNearlyFull, _) => 0,
            (_, Measure::Share | Measure::Factor) => u64::from(self.min_attempts),
            (_, Measure::Count | Measure::Seconds | Measure::Happening) => 0,
        };
        Some(Rule {
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
    fn only_ratios_ask_for_many_samples() {
        let settings = AlertSettings::default();
        let least = |name| settings.rule(name).expect("it is on").least_samples;
        assert_eq!(least(AlertName::RetryRatio), 20);
        assert_eq!(least(AlertName::AttemptsPerSuccess), 20);
        assert_eq!(least(AlertName::DeadLettersGrowing), 0);
        assert_eq!(least(AlertName::StoreNearlyFull), 0);
        assert_eq!(least(AlertName::StoreSlow), 3);
    }

    #[test]
    fn what_is_off_has_no_rule() {
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
