//! The schema of retry policies, in requests and responses.
//!
//! Responses contain a policy as it was written, so one schema serves both. `null` counts as absent.

use posthaste_core::classify::{MAX_RULE_RETRIES, MAX_RULES};
use posthaste_core::policy::{
    MAX_ATTEMPTS, MAX_DELAY, MAX_FACTOR, MAX_GIVE_UP_AFTER, MAX_SCHEDULE, MIN_DELAY, Preset,
};
use serde_json::{Value, json};

use crate::resources::patterns;
use crate::resources::schema::{
    choice, described, named, nullable, object, object_requiring, span,
};

/// Returns the schema of a retry policy.
pub(crate) fn retry_policy() -> Value {
    json!({
        "type": "object",
        "description": "A preset, a complete policy, or a preset with changed fields. A policy names a `preset` or a `backoff`; fields that are absent or `null` have the value of the preset, or of `recommended` without a preset.",
        "properties": {
            "preset": nullable(preset()),
            "backoff": nullable(backoff()),
            "jitter": nullable(jitter()),
            "max_attempts": {"type": ["integer", "null"], "minimum": 1, "maximum": MAX_ATTEMPTS},
            "give_up_after": described(
                nullable(span("GiveUpAfter", MIN_DELAY, MAX_GIVE_UP_AFTER)),
                "No retry is scheduled later than this after the event was due.",
            ),
            "rules": {
                "type": ["array", "null"], "items": rule(), "maxItems": MAX_RULES,
                "description": "Rules for what is retried. The first matching rule applies: first these, then those of the preset, then the defaults.",
            },
            "late": described(
                nullable(late_action()),
                "What happens to a delivery that was held back past its deadline: it is sent (`send`, the default), or fails as `expired` (`drop`).",
            ),
        },
        "allOf": [{"anyOf": [
            {"required": ["preset"], "properties": {"preset": preset()}},
            {"required": ["backoff"], "properties": {"backoff": backoff()}},
        ]}],
        "additionalProperties": false,
        "examples": [
            {"preset": "swift"},
            {
                "backoff": {"kind": "exponential", "base": "1s", "factor": 6, "cap": "24h"},
                "jitter": {"kind": "full"}, "max_attempts": 10, "give_up_after": "86h",
                "rules": [{"on": "404", "then": "fail"}, {"on": "dns", "then": "retry", "limit": 3}],
            },
        ],
    })
}

/// Returns the schema of a policy that is written out.
pub(crate) fn complete_policy() -> Value {
    let names = [
        "backoff",
        "jitter",
        "max_attempts",
        "give_up_after",
        "rules",
        "late",
    ];
    let policy = object_requiring(
        &names,
        json!({
            "preset": described(preset(), "The preset, if the policy is one."),
            "backoff": backoff(),
            "jitter": jitter(),
            "max_attempts": {"type": "integer"},
            "give_up_after": {"type": "string"},
            "rules": {"type": "array", "items": rule(), "description": "The rules of the policy, followed by those of its preset."},
            "late": late_action(),
        }),
    );
    named("CompletePolicy", policy)
}

fn late_action() -> Value {
    choice("LateAction", ["send", "drop"])
}

/// Returns the schema of the name of a preset.
pub(crate) fn preset() -> Value {
    choice("PolicyPreset", Preset::ALL.map(Preset::name))
}

/// Returns the schema of what a rule does.
pub(crate) fn rule_action() -> Value {
    choice("RuleAction", ["retry", "fail"])
}

fn delay() -> Value {
    span("RetryDelay", MIN_DELAY, MAX_DELAY)
}

fn backoff() -> Value {
    let cap = || described(nullable(delay()), "Maximum delay; default `1d`.");
    let kind = |name: &str| json!({"const": name});
    let fixed = object(json!({"kind": kind("fixed"), "interval": delay()}));
    let linear = object_requiring(
        &["kind", "step"],
        json!({"kind": kind("linear"), "step": delay(), "cap": cap()}),
    );
    let exponential = object_requiring(
        &["kind", "base", "factor"],
        json!({
            "kind": kind("exponential"),
            "base": delay(),
            "factor": {"type": "number", "minimum": 1, "maximum": MAX_FACTOR},
            "cap": cap(),
        }),
    );
    let delays =
        json!({"type": "array", "items": delay(), "minItems": 1, "maxItems": MAX_SCHEDULE});
    let schedule = object(json!({"kind": kind("schedule"), "delays": delays}));
    let union = json!({
        "description": "The delays between attempts.",
        "anyOf": [
            named("FixedBackoff", fixed),
            named("LinearBackoff", linear),
            named("ExponentialBackoff", exponential),
            named("ScheduleBackoff", schedule),
        ],
    });
    named("Backoff", union)
}

fn jitter() -> Value {
    let kinds = ["none", "full", "equal", "decorrelated"];
    let plain = object(json!({"kind": choice("PlainJitterKind", kinds)}));
    let proportional = object(json!({
        "kind": {"const": "proportional"},
        "fraction": {"type": "number", "minimum": 0, "maximum": 1},
    }));
    let union = json!({
        "description": "Random variation of the delays.",
        "anyOf": [named("PlainJitter", plain), named("ProportionalJitter", proportional)],
    });
    named("Jitter", union)
}

fn rule() -> Value {
    let mut rule = object_requiring(
        &["on", "then"],
        json!({
            "on": {
                "type": ["string", "integer"], "pattern": patterns::RULE, "minimum": 300, "maximum": 599,
                "description": "A status (`404`), a class of statuses (`4xx`) or a failure kind (`dns`).",
            },
            "then": rule_action(),
            "limit": {
                "type": ["integer", "null"], "minimum": 0, "maximum": MAX_RULE_RETRIES,
                "description": "Maximum number of retries after these failures. Only with `retry`.",
            },
        }),
    );
    rule["not"] = json!({
        "required": ["limit"],
        "properties": {"then": {"const": "fail"}, "limit": {"type": "integer"}},
    });
    named("RetryRule", rule)
}
