//! The state machine of one alert: raised and resolved by readings.
//!
//! [`AlertPhase::after`] takes the current state, a reading ([`Reading`]) and the [`AlertRule`], and returns the new state
//! and the [`AlertChange`] to make, if any. A critical reading with enough samples raises the alert. Readings outside the
//! critical range ([`Bound`]) for the whole calm time resolve it. A value that could not be read never does either.
//!
//! The functions are pure. After a restart the caller starts from [`AlertPhase::RAISED`] or [`AlertPhase::Quiet`].

use std::fmt;

use crate::time::{Span, Tick};

/// The critical range of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// Values above this limit.
    Above(f64),
    /// Values below this limit.
    Below(f64),
}

impl Bound {
    /// Returns true if a value is in the critical range. The limit itself is not in it, nor is a value that is not
    /// a number.
    pub fn is_crossed(self, value: f64) -> bool {
        match self {
            Bound::Above(limit) => value > limit,
            Bound::Below(limit) => value < limit,
        }
    }

    /// Returns the limit of the range.
    pub fn limit(self) -> f64 {
        match self {
            Bound::Above(limit) | Bound::Below(limit) => limit,
        }
    }

    /// Returns the same kind of range with another limit.
    #[must_use]
    pub fn at(self, limit: f64) -> Bound {
        match self {
            Bound::Above(_) => Bound::Above(limit),
            Bound::Below(_) => Bound::Below(limit),
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bound::Above(limit) => write!(f, "> {limit}"),
            Bound::Below(limit) => write!(f, "< {limit}"),
        }
    }
}

/// The conditions for raising and resolving an alert.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AlertRule {
    /// The critical range.
    pub bound: Bound,
    /// Minimum number of samples of a reading that raises the alert.
    pub least_samples: u64,
    /// Time that readings must have been out of the critical range before the alert is resolved.
    pub calm: Span,
}

/// A reading of the measured value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reading {
    /// The value could not be read.
    Unknown,
    /// Nothing happened that could be measured, so nothing is wrong.
    Nothing,
    /// A measured value.
    Value {
        /// The value.
        value: f64,
        /// Number of samples that it was computed from.
        samples: u64,
    },
}

impl Reading {
    /// Returns the reading for a ratio; [`Reading::Nothing`] if `whole` is zero.
    pub fn ratio(part: u64, whole: u64) -> Reading {
        match whole {
            0 => Reading::Nothing,
            whole => Reading::Value {
                value: part as f64 / whole as f64,
                samples: whole,
            },
        }
    }

    /// Returns the reading for a value that is not computed from samples.
    pub fn value(value: f64) -> Reading {
        Reading::Value {
            value,
            samples: u64::MAX,
        }
    }
}

/// The state of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlertPhase {
    /// The alert is not raised.
    Quiet,
    /// The alert is raised.
    Raised {
        /// Time since when readings have been out of the critical range; `None` if the last one was in it.
        calm_since: Option<Tick>,
    },
}

/// The action that follows from a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlertChange {
    /// Raise the alert.
    Raise,
    /// Resolve the alert.
    Resolve,
}

impl AlertPhase {
    /// A raised alert of which nothing else is known, as after a restart.
    pub const RAISED: AlertPhase = AlertPhase::Raised { calm_since: None };

    /// Returns the state after a reading, and the action to take.
    pub fn after(
        self,
        now: Tick,
        rule: &AlertRule,
        seen: Reading,
    ) -> (AlertPhase, Option<AlertChange>) {
        match self {
            AlertPhase::Quiet => match seen {
                Reading::Value { value, samples }
                    if rule.bound.is_crossed(value) && samples >= rule.least_samples =>
                {
                    (AlertPhase::RAISED, Some(AlertChange::Raise))
                }
                Reading::Value { .. } | Reading::Nothing | Reading::Unknown => {
                    (AlertPhase::Quiet, None)
                }
            },
            AlertPhase::Raised { calm_since } => {
                let calm = match seen {
                    Reading::Unknown => false,
                    Reading::Nothing => true,
                    Reading::Value { value, .. } => !rule.bound.is_crossed(value),
                };
                if !calm {
                    return (AlertPhase::RAISED, None);
                }
                let since = calm_since.unwrap_or(now);
                if now.since(since) >= rule.calm {
                    return (AlertPhase::Quiet, Some(AlertChange::Resolve));
                }
                let calm_since = Some(since);
                (AlertPhase::Raised { calm_since }, None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LEAST: u64 = 20;

    fn rule(bound: Bound) -> AlertRule {
        AlertRule {
            bound,
            least_samples: LEAST,
            calm: Span::from_mins(5),
        }
    }

    fn seen(value: f64, samples: u64) -> Reading {
        Reading::Value { value, samples }
    }

    /// Takes one reading per minute and returns the readings that caused an action.
    fn changes(rule: &AlertRule, readings: &[Reading]) -> Vec<(usize, AlertChange)> {
        let mut phase = AlertPhase::Quiet;
        let mut found = Vec::new();
        for (minute, seen) in readings.iter().enumerate() {
            let now = Tick::default().after(Span::from_mins(minute as u64));
            let (next, change) = phase.after(now, rule, *seen);
            phase = next;
            found.extend(change.map(|change| (minute, change)));
        }
        found
    }

    #[test]
    fn the_limit_itself_is_not_critical() {
        for (bound, values) in [
            (Bound::Above(0.1), [(0.1, false), (0.1001, true)]),
            (Bound::Below(0.6), [(0.6, false), (0.5999, true)]),
        ] {
            for (value, crossed) in values {
                assert_eq!(bound.is_crossed(value), crossed, "{value} {bound}");
            }
            assert!(!bound.is_crossed(f64::NAN));
            assert_eq!(bound.at(7.0).limit(), 7.0);
        }
        assert_eq!(Bound::Above(0.1).to_string(), "> 0.1");
        assert_eq!(Bound::Below(0.6).to_string(), "< 0.6");
    }

    #[test]
    fn an_alert_is_raised_once_and_resolved_once_after_lasting_calm() {
        let rule = rule(Bound::Above(0.1));
        let (bad, good) = (seen(0.2, LEAST), seen(0.1, LEAST));
        let mut readings = vec![good, bad, bad, good, good, bad];
        readings.extend([good; 9]);
        let found = changes(&rule, &readings);
        assert_eq!(found, [(1, AlertChange::Raise), (11, AlertChange::Resolve)]);
    }

    #[test]
    fn few_samples_neither_raise_nor_resolve() {
        let rule = rule(Bound::Below(0.6));
        let few = seen(0.0, LEAST - 1);
        assert_eq!(changes(&rule, &[few; 30]), []);
        let mut readings = vec![seen(0.0, LEAST)];
        readings.extend([few; 30]);
        assert_eq!(changes(&rule, &readings), [(0, AlertChange::Raise)]);
    }

    #[test]
    fn nothing_measured_is_calm_and_an_unknown_value_is_not() {
        let rule = rule(Bound::Above(0.1));
        let raised = seen(1.0, 100);
        let mut quiet = vec![raised];
        quiet.extend([Reading::Nothing; 6]);
        let ended = [(0, AlertChange::Raise), (6, AlertChange::Resolve)];
        assert_eq!(changes(&rule, &quiet), ended);
        let mut blind = vec![Reading::Unknown, raised];
        blind.extend([Reading::Unknown; 30]);
        assert_eq!(changes(&rule, &blind), [(1, AlertChange::Raise)]);
        // Time without readings does not count as normal.
        blind.extend([Reading::Nothing; 3]);
        blind.push(Reading::Unknown);
        blind.extend([Reading::Nothing; 5]);
        assert_eq!(changes(&rule, &blind), [(1, AlertChange::Raise)]);
    }

    #[test]
    fn a_ratio_of_zero_samples_is_no_value() {
        assert_eq!(Reading::ratio(0, 0), Reading::Nothing);
        assert_eq!(Reading::ratio(1, 4), seen(0.25, 4));
    }

    fn any_seen() -> impl Strategy<Value = Reading> {
        prop_oneof![
            1 => Just(Reading::Unknown),
            1 => Just(Reading::Nothing),
            6 => (0.0..0.4_f64, 0..40_u64).prop_map(|(value, samples)| seen(value, samples)),
        ]
    }

    fn any_bound() -> impl Strategy<Value = Bound> {
        prop_oneof![Just(Bound::Above(0.2)), Just(Bound::Below(0.2))]
    }

    proptest! {
        #[test]
        fn raises_and_resolves_alternate(bound in any_bound(), readings in proptest::collection::vec(any_seen(), 0..200)) {
            let rule = rule(bound);
            let found = changes(&rule, &readings);
            for (index, (minute, change)) in found.iter().enumerate() {
                let expected = if index % 2 == 0 { AlertChange::Raise } else { AlertChange::Resolve };
                prop_assert_eq!(*change, expected);
                match change {
                    AlertChange::Raise => {
                        let alarming = matches!(readings[*minute], Reading::Value { value, samples }
                            if bound.is_crossed(value) && samples >= LEAST);
                        prop_assert!(alarming, "raised by {:?}", readings[*minute]);
                    }
                    AlertChange::Resolve => {
                        // Every reading of the last five minutes must be out of the critical range.
                        for seen in &readings[minute - 5..=*minute] {
                            let calm = match seen {
                                Reading::Unknown => false,
                                Reading::Nothing => true,
                                Reading::Value { value, .. } => !bound.is_crossed(*value),
                            };
                            prop_assert!(calm, "the alert was resolved although a recent reading was {:?}", seen);
                        }
                    }
                }
            }
        }

        #[test]
        fn critical_readings_never_resolve_and_calm_ones_do(
            bound in any_bound(),
            before in proptest::collection::vec(any_seen(), 0..50),
            samples in proptest::collection::vec(0..40_u64, 1..50),
        ) {
            let rule = rule(bound);
            let bad = match bound {
                Bound::Above(limit) => limit + 0.1,
                Bound::Below(limit) => limit - 0.1,
            };
            let mut readings = before;
            readings.push(seen(bad, LEAST));
            let from = readings.len();
            readings.extend(samples.iter().map(|samples| seen(bad, *samples)));
            let found = changes(&rule, &readings);
            prop_assert!(found.iter().all(|(minute, _)| *minute < from), "{:?}", found);
            prop_assert_eq!(found.last().map(|(_, change)| *change), Some(AlertChange::Raise));
            readings.extend([Reading::Nothing; 6]);
            let found = changes(&rule, &readings);
            prop_assert_eq!(found.last().map(|(_, change)| *change), Some(AlertChange::Resolve));
        }
    }
}
