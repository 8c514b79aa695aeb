//! Reads a retry policy from JSON and reports all errors at once.
//!
//! [`RetryPolicy::from_json`] accepts a preset, a complete policy, or a preset with some fields changed. Every
//! number, duration and list has a bound ([`MAX_ATTEMPTS`], [`MAX_SCHEDULE`], [`MAX_GIVE_UP_AFTER`], …). A document
//! that is accepted makes a policy whose delays can be computed without an error.

use serde_json::Value;

use super::{Backoff, DEFAULT_CAP, Jitter, LateAction, MAX_DELAY, MIN_DELAY, Preset, RetryPolicy};
use crate::classify::{MAX_RULES, Rule};
use crate::quoted::quoted;
use crate::time::Span;
use crate::validation::{Fields, ValidationErrors};

/// Maximum number of attempts that a policy may set.
pub const MAX_ATTEMPTS: u32 = 1_000;
/// Maximum number of delays in a schedule.
pub const MAX_SCHEDULE: usize = 100;
/// Maximum duration of the retries.
pub const MAX_GIVE_UP_AFTER: Span = Span::from_days(90);
/// Maximum factor of exponential growth.
pub const MAX_FACTOR: f64 = 1_000.0;

impl RetryPolicy {
    /// Reads a policy from JSON: a preset, a complete policy, or a preset with some fields changed. Without a
    /// preset a backoff is required. Other absent fields are as in the preset, or as in `recommended` if none is
    /// named. Rules do not replace those of the preset; they are checked before them.
    pub fn from_json(document: &Value) -> Result<RetryPolicy, ValidationErrors> {
        let mut errors = ValidationErrors::default();
        let policy = Fields::open(document, "", &mut errors).and_then(RetryPolicy::read);
        errors.into_result(policy)
    }

    /// Reads a policy that is part of a larger document.
    pub fn read(mut fields: Fields<'_, '_>) -> Option<RetryPolicy> {
        let base = match fields.text("preset").map(str::parse::<Preset>) {
            None => RetryPolicy::default(),
            Some(Ok(preset)) => preset.policy(),
            Some(Err(unknown)) => {
                fields.wrong("preset", unknown.to_string());
                RetryPolicy::default()
            }
        };
        let backoff_given = fields.value("backoff").is_some();
        if fields.value("preset").is_none() && !backoff_given {
            fields.wrong(
                "backoff",
                "is required, unless \"preset\" names one of: recommended, patient, swift, steady, brisk",
            );
        }
        let backoff = fields.object("backoff").and_then(read_backoff);
        let jitter = match fields.value("jitter") {
            None => Some(base.jitter),
            Some(_) => fields.object("jitter").and_then(read_jitter),
        };
        // The length of an explicit schedule determines the number of retries.
        let natural_attempts = match &backoff {
            Some(Backoff::Schedule { delays }) => delays.len() as u32 + 1,
            Some(Backoff::Fixed { .. } | Backoff::Linear { .. } | Backoff::Exponential { .. })
            | None => base.max_attempts,
        };
        let max_attempts = match fields.value("max_attempts") {
            None => Some(natural_attempts),
            Some(_) => fields.count("max_attempts", 1, MAX_ATTEMPTS),
        };
        let give_up_after = match fields.value("give_up_after") {
            None => Some(base.give_up_after),
            Some(_) => fields.span("give_up_after", MIN_DELAY, MAX_GIVE_UP_AFTER),
        };
        let rules = read_rules(&mut fields).map(|rules| without_tail(rules, &base.preset_rules));
        let late = read_late(&mut fields);
        let backoff = if backoff_given {
            backoff
        } else {
            Some(base.backoff)
        };
        if let (Some(backoff), Some(Jitter::Decorrelated)) = (&backoff, jitter)
            && backoff.cap() <= backoff.nominal(1)
        {
            fields.wrong(
                "jitter",
                "decorrelated jitter draws delays between the first delay and backoff.cap, so the cap must be longer than the first delay",
            );
        }
        fields.finish();
        Some(RetryPolicy {
            backoff: backoff?,
            jitter: jitter?,
            max_attempts: max_attempts?,
            give_up_after: give_up_after?,
            rules: rules?,
            preset_rules: base.preset_rules,
            late: late?,
        })
    }
}

fn read_backoff(mut fields: Fields<'_, '_>) -> Option<Backoff> {
    fields.need("kind");
    let backoff = match fields.text("kind") {
        Some("fixed") => {
            read_delay(&mut fields, "interval").map(|interval| Backoff::Fixed { interval })
        }
        Some("linear") => {
            let step = read_delay(&mut fields, "step");
            let cap = read_cap(&mut fields, step, "step");
            step.zip(cap)
                .map(|(step, cap)| Backoff::Linear { step, cap })
        }
        Some("exponential") => {
            let base = read_delay(&mut fields, "base");
            let cap = read_cap(&mut fields, base, "base");
            fields.need("factor");
            let factor = fields.number("factor", 1.0, MAX_FACTOR);
            base.zip(cap)
                .zip(factor)
                .map(|((base, cap), factor)| Backoff::Exponential { base, factor, cap })
        }
        Some("schedule") => {
            fields.need("delays");
            let delays = fields.spans("delays", MIN_DELAY, MAX_DELAY, MAX_SCHEDULE);
            if delays.as_ref().is_some_and(Vec::is_empty) {
                fields.wrong("delays", "must list at least one delay");
            }
            delays.map(|delays| Backoff::Schedule { delays })
        }
        Some(other) => {
            let message = format!(
                "must be \"fixed\", \"linear\", \"exponential\" or \"schedule\", not {}",
                quoted(other)
            );
            fields.wrong("kind", message);
            // The valid fields depend on the kind, so nothing is reported about the others.
            return None;
        }
        None => return None,
    };
    fields.finish();
    backoff
}

fn read_delay(fields: &mut Fields<'_, '_>, name: &'static str) -> Option<Span> {
    fields.need(name);
    fields.span(name, MIN_DELAY, MAX_DELAY)
}

/// Reads the cap of a growing shape, which must not be below the first delay.
fn read_cap(fields: &mut Fields<'_, '_>, first: Option<Span>, first_name: &str) -> Option<Span> {
    if fields.value("cap").is_none() {
        return Some(first.map_or(DEFAULT_CAP, |first| first.max(DEFAULT_CAP)));
    }
    let cap = fields.span("cap", MIN_DELAY, MAX_DELAY)?;
    if first.is_some_and(|first| cap < first) {
        fields.wrong("cap", format!("must not be below {first_name}"));
        return None;
    }
    Some(cap)
}

fn read_jitter(mut fields: Fields<'_, '_>) -> Option<Jitter> {
    fields.need("kind");
    let jitter = match fields.text("kind") {
        Some("none") => Some(Jitter::None),
        Some("full") => Some(Jitter::Full),
        Some("equal") => Some(Jitter::Equal),
        Some("decorrelated") => Some(Jitter::Decorrelated),
        Some("proportional") => {
            fields.need("fraction");
            fields
                .number("fraction", 0.0, 1.0)
                .map(|fraction| Jitter::Proportional { fraction })
        }
        Some(other) => {
            let message = format!(
                "must be \"none\", \"full\", \"equal\", \"decorrelated\" or \"proportional\", not {}",
                quoted(other)
            );
            fields.wrong("kind", message);
            return None;
        }
        None => return None,
    };
    fields.finish();
    jitter
}

fn read_rules(fields: &mut Fields<'_, '_>) -> Option<Vec<Rule>> {
    if fields.value("rules").is_none() {
        return Some(Vec::new());
    }
    let list = fields.list("rules", MAX_RULES)?;
    let rules: Vec<Rule> = list
        .iter()
        .enumerate()
        .filter_map(|(index, value)| fields.item("rules", index, value).and_then(Rule::read))
        .collect();
    (rules.len() == list.len()).then_some(rules)
}

/// Removes the preset's rules from the end of a policy's own, where a policy that was written out and names its preset
/// repeats them.
fn without_tail(mut rules: Vec<Rule>, of_preset: &[Rule]) -> Vec<Rule> {
    if rules.ends_with(of_preset) {
        rules.truncate(rules.len() - of_preset.len());
    }
    rules
}

fn read_late(fields: &mut Fields<'_, '_>) -> Option<LateAction> {
    if fields.value("late").is_none() {
        return Some(LateAction::default());
    }
    match fields.text("late")? {
        "send" => Some(LateAction::Send),
        "drop" => Some(LateAction::Drop),
        other => {
            let message = format!("must be \"send\" or \"drop\", not {}", quoted(other));
            fields.wrong("late", message);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn errors(document: Value) -> Vec<String> {
        RetryPolicy::from_json(&document)
            .expect_err("the document is invalid")
            .iter()
            .map(|error| error.field.clone())
            .collect()
    }

    #[test]
    fn a_preset_by_name() {
        for preset in Preset::ALL {
            let policy = RetryPolicy::from_json(&json!({"preset": preset.name()}));
            assert_eq!(policy, Ok(preset.policy()));
        }
    }

    #[test]
    fn a_preset_with_a_change() {
        let policy =
            RetryPolicy::from_json(&json!({"preset": "swift", "max_attempts": 3})).unwrap();
        assert_eq!(
            policy,
            RetryPolicy {
                max_attempts: 3,
                ..Preset::Swift.policy()
            }
        );
    }

    #[test]
    fn a_serialized_policy_reads_back() {
        let document = json!({
            "backoff": {"kind": "exponential", "base": "1s", "factor": 6.0, "cap": "1d"},
            "jitter": {"kind": "full"},
            "max_attempts": 10,
            "give_up_after": "86h",
            "rules": [
                {"on": "404", "then": "fail"},
                {"on": "dns", "then": "retry", "limit": 3},
                {"on": "5xx", "then": "retry"},
            ],
            "late": "drop",
        });
        let policy = RetryPolicy::from_json(&document).expect("the policy is valid");
        assert_eq!(serde_json::to_value(&policy).unwrap(), document);
    }

    #[test]
    fn own_rules_precede_those_of_the_preset() {
        let rules = json!([{"on": "404", "then": "fail"}]);
        let policy = RetryPolicy::from_json(&json!({"preset": "swift", "rules": rules})).unwrap();
        assert_eq!(policy.rules.len(), 1);
        assert_eq!(policy.preset_rules, Preset::Swift.policy().preset_rules);
        // Written out, both lists are one, in the order in which they are checked.
        let written = serde_json::to_value(&policy).unwrap();
        assert_eq!(
            written["rules"],
            json!([{"on": "404", "then": "fail"}, {"on": "http", "then": "retry"}])
        );
        let mut named = written.clone();
        named["preset"] = json!("swift");
        assert_eq!(RetryPolicy::from_json(&named), Ok(policy.clone()));
        let reread = RetryPolicy::from_json(&written).unwrap();
        assert_eq!(reread.verdicts(), policy.verdicts());
    }

    #[test]
    fn a_policy_has_room_for_the_rules_of_its_preset() {
        let rules = |count: usize| vec![json!({"on": "404", "then": "fail"}); count];
        let policy = json!({"preset": "steady", "rules": rules(MAX_RULES)});
        let policy = RetryPolicy::from_json(&policy).expect("the policy is valid");
        assert_eq!(policy.rules.len(), MAX_RULES);
        assert_eq!(policy.preset_rules.len(), 6);
        let too_many = json!({"preset": "steady", "rules": rules(MAX_RULES + 1)});
        assert_eq!(errors(too_many), ["rules"]);
    }

    #[test]
    fn late_deliveries_are_sent_unless_the_policy_drops_them() {
        let late = |document: Value| RetryPolicy::from_json(&document).map(|policy| policy.late);
        assert_eq!(late(json!({"preset": "brisk"})), Ok(LateAction::Send));
        for (text, expected) in [("send", LateAction::Send), ("drop", LateAction::Drop)] {
            assert_eq!(late(json!({"preset": "brisk", "late": text})), Ok(expected));
        }
        for wrong in [json!("never"), json!(true), json!(5)] {
            assert_eq!(errors(json!({"preset": "brisk", "late": wrong})), ["late"]);
        }
    }

    #[test]
    fn a_schedule_determines_the_number_of_attempts() {
        let schedule = |more: Value| {
            let mut document = json!({"backoff": {"kind": "schedule", "delays": ["1ms", "5s"]}});
            document
                .as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            RetryPolicy::from_json(&document)
                .expect("the policy is valid")
                .max_attempts
        };
        assert_eq!(schedule(json!({})), 3);
        assert_eq!(schedule(json!({"max_attempts": 7})), 7);
    }

    #[test]
    fn all_errors_are_reported_at_once() {
        let document = json!({
            "backoff": {"kind": "exponential", "base": "10 parsecs", "factor": 0.5, "cap": "9000d", "step": "1s"},
            "jitter": {"kind": "proportional", "fraction": 1.5},
            "max_attempts": 0,
            "give_up_after": 72,
            "rules": [{"on": "200", "then": "retry"}, {"on": "4xx", "then": "explode"}, {"then": "fail", "limit": 1}],
            "retries": 5,
        });
        assert_eq!(
            errors(document),
            [
                "backoff.base",
                "backoff.cap",
                "backoff.factor",
                "backoff.step",
                "jitter.fraction",
                "max_attempts",
                "give_up_after",
                "rules[0].on",
                "rules[1].then",
                "rules[2].on",
                "rules[2].limit",
                "retries",
            ]
        );
    }

    #[test]
    fn missing_and_malformed_fields_are_reported() {
        assert_eq!(errors(json!({})), ["backoff"]);
        assert_eq!(errors(json!([])), [""]);
        assert_eq!(
            errors(json!({"preset": "eager", "max_attempts": -1})),
            ["preset", "max_attempts"]
        );
        assert_eq!(errors(json!({"backoff": "fast"})), ["backoff"]);
        assert_eq!(
            errors(json!({"backoff": {"kind": "cubic"}})),
            ["backoff.kind"]
        );
        assert_eq!(errors(json!({"backoff": {}})), ["backoff.kind"]);
        assert_eq!(
            errors(json!({"backoff": {"kind": "schedule", "delays": []}})),
            ["backoff.delays"]
        );
        assert_eq!(
            errors(json!({
                "backoff": {"kind": "linear", "step": "1h", "cap": "1h"},
                "jitter": {"kind": "decorrelated"},
            })),
            ["jitter"]
        );
        assert_eq!(
            errors(json!({"backoff": {"kind": "linear", "step": "1h", "cap": "1m"}})),
            ["backoff.cap"]
        );
    }
}
