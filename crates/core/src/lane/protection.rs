//! Thresholds of the breaker and of automatic disabling, and where they come from.
//!
//! An endpoint and a tenant can override single thresholds of the server ([`ProtectionOverrides`], `protection` in the
//! API). [`Protection::resolve`] merges the three levels, the endpoint's being the most specific. The configuration is
//! read by the same code ([`BreakerOverrides`], [`DisableOverrides`]), so that names and ranges are the same everywhere.

use serde::{Deserialize, Serialize};

use super::breaker::BreakerSettings;
use super::health::{DisableSettings, MAX_EXHAUSTED};
use crate::time::{MAX_SPAN, Span};
use crate::validation::Fields;

/// Maximum of thresholds that count something. Larger numbers are typing errors.
pub const MAX_THRESHOLD: u32 = 1_000_000_000;
/// Maximum of the breaker's durations.
pub const MAX_BREAKER_SPAN: Span = Span::from_days(1);
/// Minimum of the failure ratio. A lower ratio would trip the breaker almost without failures.
pub const MIN_FAILURE_RATIO: f64 = 0.01;
/// Minimum of the breaker's window.
pub const MIN_WINDOW: Span = Span::from_secs(1);
/// Minimum of the breaker's waits, and of the time of failure that disables an endpoint.
pub const MIN_WAIT: Span = Span::from_millis(1);

/// The protection of an endpoint: when its breaker trips, and when it is disabled.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Protection {
    /// Thresholds and waiting times of the breaker.
    pub breaker: BreakerSettings,
    /// When the endpoint is disabled automatically.
    pub disable: DisableSettings,
}

impl Protection {
    /// Returns the protection of an endpoint: each threshold its own, otherwise the tenant's, otherwise the server's.
    ///
    /// A level that sets only one of two thresholds that depend on each other adapts the inherited one: `warn_before`
    /// is at most `after`, and `longest_wait` is at least `first_wait`.
    pub fn resolve(
        endpoint: &ProtectionOverrides,
        tenant: &ProtectionOverrides,
        server: &Protection,
    ) -> Protection {
        let mut protection = server.clone();
        for level in [tenant, endpoint] {
            level.disable.apply(&mut protection.disable);
            level.breaker.apply(&mut protection.breaker);
            let disable = &mut protection.disable;
            disable.warn_before = disable.warn_before.min(disable.after);
            let breaker = &mut protection.breaker;
            if level.breaker.longest_wait.is_some() {
                breaker.first_wait = breaker.first_wait.min(breaker.longest_wait);
            } else {
                breaker.longest_wait = breaker.longest_wait.max(breaker.first_wait);
            }
        }
        protection
    }
}

/// The thresholds that an endpoint or a tenant sets. An absent threshold is inherited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProtectionOverrides {
    /// Thresholds of automatic disabling.
    #[serde(skip_serializing_if = "DisableOverrides::is_empty")]
    pub disable: DisableOverrides,
    /// Thresholds of the breaker.
    #[serde(skip_serializing_if = "BreakerOverrides::is_empty")]
    pub breaker: BreakerOverrides,
}

impl ProtectionOverrides {
    /// Returns true if every threshold is inherited.
    pub fn is_empty(&self) -> bool {
        *self == ProtectionOverrides::default()
    }

    /// Changes the thresholds as the object `name` says: an absent field keeps a threshold, `null` removes it, or all
    /// thresholds of the object. Reports thresholds that contradict each other.
    pub fn change_object(&mut self, fields: &mut Fields<'_, '_>, name: &'static str) {
        if !fields.contains(name) {
            return;
        }
        if fields.value(name).is_none() {
            *self = ProtectionOverrides::default();
            return;
        }
        let Some(mut fields) = fields.object(name) else {
            return;
        };
        if fields.contains("disable") {
            match fields.value("disable") {
                None => self.disable = DisableOverrides::default(),
                Some(_) => {
                    if let Some(inner) = fields.object("disable") {
                        self.disable.change(inner);
                    }
                }
            }
        }
        if fields.contains("breaker") {
            match fields.value("breaker") {
                None => self.breaker = BreakerOverrides::default(),
                Some(_) => {
                    if let Some(inner) = fields.object("breaker") {
                        self.breaker.change(inner);
                    }
                }
            }
        }
        let (after, warn_before) = (self.disable.after, self.disable.warn_before);
        if let (Some(after), Some(warn_before)) = (after, warn_before)
            && warn_before > after
        {
            let message = format!("must not be longer than disable.after, which is {after}");
            fields.wrong("disable.warn_before", message);
        }
        let (first, longest) = (self.breaker.first_wait, self.breaker.longest_wait);
        if let (Some(first), Some(longest)) = (first, longest)
            && first > longest
        {
            let message = format!("must not be below breaker.first_wait, which is {first}");
            fields.wrong("breaker.longest_wait", message);
        }
        fields.finish();
    }
}

/// Thresholds of automatic disabling that one level sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DisableOverrides {
    /// Duration of uninterrupted failure that disables the endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Span>,
    /// Minimum time between the warning and the disabling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warn_before: Option<Span>,
    /// True if a 410 of the receiver disables the endpoint at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_gone: Option<bool>,
}

impl DisableOverrides {
    /// Returns true if every threshold is inherited.
    pub fn is_empty(&self) -> bool {
        *self == DisableOverrides::default()
    }

    /// Changes the thresholds that the fields name: an absent field keeps a threshold, `null` removes it.
    pub fn change(&mut self, mut fields: Fields<'_, '_>) {
        fields.change("after", &mut self.after, |fields, name| {
            fields.span(name, MIN_WAIT, MAX_SPAN)
        });
        fields.change("warn_before", &mut self.warn_before, |fields, name| {
            fields.span(name, Span::ZERO, MAX_SPAN)
        });
        fields.change("on_gone", &mut self.on_gone, |fields, name| {
            fields.flag(name)
        });
        fields.finish();
    }

    /// Replaces the settings that these thresholds set.
    pub fn apply(&self, settings: &mut DisableSettings) {
        let DisableOverrides {
            after,
            warn_before,
            on_gone,
        } = *self;
        set(&mut settings.after, after);
        set(&mut settings.warn_before, warn_before);
        set(&mut settings.on_gone, on_gone);
    }
}

/// Thresholds and waiting times of the breaker that one level sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BreakerOverrides {
    /// The period over which the failure ratio is computed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<Span>,
    /// Minimum number of results in the window for the failure ratio to be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_samples: Option<u32>,
    /// The share of failures that trips the breaker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_ratio: Option<f64>,
    /// Number of failures in a row that trips the breaker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consecutive_failures: Option<u32>,
    /// Number of dead-lettered deliveries within a day that trips the breaker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exhausted_deliveries: Option<u32>,
    /// Number of refusals without a success that trips the breaker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusals: Option<u32>,
    /// Time from the trip to the first probe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_wait: Option<Span>,
    /// Maximum time between two probes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_wait: Option<Span>,
}

impl BreakerOverrides {
    /// Returns true if every threshold is inherited.
    pub fn is_empty(&self) -> bool {
        *self == BreakerOverrides::default()
    }

    /// Changes the thresholds that the fields name: an absent field keeps a threshold, `null` removes it.
    pub fn change(&mut self, mut fields: Fields<'_, '_>) {
        fields.change("window", &mut self.window, |fields, name| {
            fields.span(name, MIN_WINDOW, MAX_BREAKER_SPAN)
        });
        fields.change("failure_ratio", &mut self.failure_ratio, |fields, name| {
            fields.number(name, MIN_FAILURE_RATIO, 1.0)
        });
        for (name, target, most) in [
            ("min_samples", &mut self.min_samples, MAX_THRESHOLD),
            (
                "consecutive_failures",
                &mut self.consecutive_failures,
                MAX_THRESHOLD,
            ),
            (
                "exhausted_deliveries",
                &mut self.exhausted_deliveries,
                MAX_EXHAUSTED,
            ),
            ("refusals", &mut self.refusals, MAX_THRESHOLD),
        ] {
            fields.change(name, target, |fields, name| fields.count(name, 1, most));
        }
        for (name, target) in [
            ("first_wait", &mut self.first_wait),
            ("longest_wait", &mut self.longest_wait),
        ] {
            fields.change(name, target, |fields, name| {
                fields.span(name, MIN_WAIT, MAX_BREAKER_SPAN)
            });
        }
        fields.finish();
    }

    /// Replaces the settings that these thresholds set.
    pub fn apply(&self, settings: &mut BreakerSettings) {
        let BreakerOverrides {
            window,
            min_samples,
            failure_ratio,
            consecutive_failures,
            exhausted_deliveries,
            refusals,
            first_wait,
            longest_wait,
        } = *self;
        set(&mut settings.window, window);
        set(&mut settings.min_samples, min_samples);
        set(&mut settings.failure_ratio, failure_ratio);
        set(&mut settings.consecutive_failures, consecutive_failures);
        set(&mut settings.exhausted_deliveries, exhausted_deliveries);
        set(&mut settings.refusals, refusals);
        set(&mut settings.first_wait, first_wait);
        set(&mut settings.longest_wait, longest_wait);
    }
}

fn set<T>(setting: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *setting = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validation::ValidationErrors;
    use serde_json::{Value, json};

    fn changed(
        mut protection: ProtectionOverrides,
        document: Value,
    ) -> Result<ProtectionOverrides, Vec<String>> {
        let mut errors = ValidationErrors::default();
        let document = json!({ "protection": document });
        let mut fields = Fields::open(&document, "", &mut errors).expect("an object");
        protection.change_object(&mut fields, "protection");
        fields.finish();
        match errors.is_empty() {
            true => Ok(protection),
            false => Err(errors.iter().map(|error| error.field.clone()).collect()),
        }
    }

    fn read(document: Value) -> ProtectionOverrides {
        changed(ProtectionOverrides::default(), document).expect("valid")
    }

    fn complete() -> Value {
        json!({
            "disable": {"after": "2d", "warn_before": "12h", "on_gone": false},
            "breaker": {
                "window": "30s", "min_samples": 5, "failure_ratio": 0.25, "consecutive_failures": 6,
                "exhausted_deliveries": 7, "refusals": 8, "first_wait": "1s", "longest_wait": "1m",
            },
        })
    }

    #[test]
    fn what_is_read_is_written_back() {
        for document in [
            json!({}),
            json!({"disable": {"on_gone": false}}),
            json!({"breaker": {"refusals": 3}}),
            complete(),
        ] {
            let protection = read(document.clone());
            assert_eq!(serde_json::to_value(protection).unwrap(), document);
            let stored: ProtectionOverrides = serde_json::from_value(document).unwrap();
            assert_eq!(stored, protection);
        }
    }

    #[test]
    fn every_threshold_comes_from_the_most_specific_level_that_sets_it() {
        let server = Protection::default();
        let none = ProtectionOverrides::default();
        assert_eq!(Protection::resolve(&none, &none, &server), server);
        let all = read(complete());
        let expected = Protection {
            breaker: BreakerSettings {
                window: Span::from_secs(30),
                min_samples: 5,
                failure_ratio: 0.25,
                consecutive_failures: 6,
                exhausted_deliveries: 7,
                refusals: 8,
                first_wait: Span::from_secs(1),
                longest_wait: Span::from_mins(1),
            },
            disable: DisableSettings {
                after: Span::from_days(2),
                warn_before: Span::from_hours(12),
                on_gone: false,
            },
        };
        assert_eq!(Protection::resolve(&all, &none, &server), expected);
        assert_eq!(Protection::resolve(&none, &all, &server), expected);
        let own = read(json!({"disable": {"on_gone": true}, "breaker": {"refusals": 3}}));
        let mut mixed = expected;
        mixed.disable.on_gone = true;
        mixed.breaker.refusals = 3;
        assert_eq!(Protection::resolve(&own, &all, &server), mixed);
    }

    #[test]
    fn an_inherited_threshold_is_adapted_to_the_one_that_depends_on_it() {
        let resolve = |own| {
            let none = ProtectionOverrides::default();
            Protection::resolve(&read(own), &none, &Protection::default())
        };
        let short = resolve(json!({"disable": {"after": "2h"}})).disable;
        assert_eq!(short.warn_before, Span::from_hours(2));
        let early = resolve(json!({"disable": {"warn_before": "9d"}})).disable;
        assert_eq!(
            (early.after, early.warn_before),
            (Span::from_days(5), Span::from_days(5))
        );
        let slow = resolve(json!({"breaker": {"first_wait": "10m"}})).breaker;
        assert_eq!(
            (slow.first_wait, slow.longest_wait),
            (Span::from_mins(10), Span::from_mins(10))
        );
        let fast = resolve(json!({"breaker": {"longest_wait": "2s"}})).breaker;
        assert_eq!(
            (fast.first_wait, fast.longest_wait),
            (Span::from_secs(2), Span::from_secs(2))
        );
    }

    #[test]
    fn a_change_keeps_what_is_absent_and_removes_what_is_null() {
        let change = |document| changed(read(complete()), document).expect("valid");
        let mut expected = read(complete());
        assert_eq!(change(json!({})), expected);
        expected.breaker.refusals = Some(9);
        expected.disable.after = None;
        let document = json!({"breaker": {"refusals": 9}, "disable": {"after": null}});
        assert_eq!(change(document), expected);
        expected.breaker = BreakerOverrides::default();
        let document = json!({"breaker": null, "disable": {"after": null}});
        assert_eq!(change(document), expected);
        assert!(change(Value::Null).is_empty());
    }

    #[test]
    fn all_errors_are_reported_at_once() {
        let document = json!({
            "disable": {"after": "0ms", "warn_before": 5, "on_gone": "yes", "never": true},
            "breaker": {
                "window": "1ms", "min_samples": 0, "failure_ratio": 0.001, "consecutive_failures": -1,
                "exhausted_deliveries": 101, "refusals": 0, "first_wait": "2d", "longest_wait": "soon",
                "trips": 1,
            },
            "limits": {},
        });
        let mut fields = changed(ProtectionOverrides::default(), document).expect_err("invalid");
        fields.sort();
        let mut expected = [
            "protection.breaker.consecutive_failures",
            "protection.breaker.exhausted_deliveries",
            "protection.breaker.failure_ratio",
            "protection.breaker.first_wait",
            "protection.breaker.longest_wait",
            "protection.breaker.min_samples",
            "protection.breaker.refusals",
            "protection.breaker.trips",
            "protection.breaker.window",
            "protection.disable.after",
            "protection.disable.never",
            "protection.disable.on_gone",
            "protection.disable.warn_before",
            "protection.limits",
        ];
        expected.sort_unstable();
        assert_eq!(fields, expected);
        let contradictions = json!({
            "disable": {"after": "1h", "warn_before": "2h"},
            "breaker": {"first_wait": "2s", "longest_wait": "1s"},
        });
        let fields = changed(ProtectionOverrides::default(), contradictions);
        let expected = [
            "protection.disable.warn_before",
            "protection.breaker.longest_wait",
        ];
        assert_eq!(fields, Err(expected.map(str::to_owned).to_vec()));
        for document in [
            json!(true),
            json!({"breaker": []}),
            json!({"disable": "5d"}),
        ] {
            assert!(changed(ProtectionOverrides::default(), document).is_err());
        }
    }

    #[test]
    fn a_change_must_fit_the_thresholds_that_it_keeps() {
        let kept = read(json!({"disable": {"after": "2h"}}));
        let fields = changed(kept, json!({"disable": {"warn_before": "3h"}}));
        assert_eq!(
            fields,
            Err(vec!["protection.disable.warn_before".to_owned()])
        );
    }
}
