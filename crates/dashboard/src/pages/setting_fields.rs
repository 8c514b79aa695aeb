//! Settings that endpoints and tenants have in common: retry policy, limits and protection. Their form fields, and the
//! parts of the API's document that they make.

use maud::{Markup, html};
use posthaste_core::lane::ProtectionOverrides;
use serde_json::{Value, json};

use super::form_values::{FormValues, filled, number, shown};
use super::policy_presets::{CUSTOM_POLICY, policy_choices};
use crate::components::FieldErrors;

/// The form field that chooses between a preset and a custom policy. The API has no such field.
pub(super) const POLICY_FIELD: &str = "policy";
/// The form field of a custom policy.
pub(super) const CUSTOM_FIELD: &str = "retry_policy";

/// Fills in a retry policy that is set on this level.
pub(super) fn set_policy(values: &mut FormValues, own: Option<&Value>) {
    let Some(policy) = own else {
        return;
    };
    let is_only_preset = policy.as_object().is_some_and(|policy| policy.len() == 1);
    match policy["preset"].as_str().filter(|_| is_only_preset) {
        Some(preset) => values.set(POLICY_FIELD, preset),
        None => {
            values.set(POLICY_FIELD, CUSTOM_POLICY);
            let pretty = serde_json::to_string_pretty(policy).unwrap_or_default();
            values.set(CUSTOM_FIELD, pretty);
        }
    }
}

/// Returns the chosen retry policy, `null` for the default, or the error of the field for a custom policy.
pub(super) fn policy(values: &FormValues) -> Result<Value, String> {
    match values.get(POLICY_FIELD) {
        "" => Ok(Value::Null),
        CUSTOM_POLICY => serde_json::from_str(values.get(CUSTOM_FIELD))
            .map_err(|error| format!("is not valid JSON: {error}")),
        preset => Ok(json!({"preset": preset})),
    }
}

/// Renders the fields of a retry policy. `default` names the policy that applies if none is chosen.
pub(super) fn policy_fields(
    values: &FormValues,
    errors: &FieldErrors,
    presets: &[String],
    default: &str,
    lab: Option<&str>,
) -> Markup {
    let default = format!("Default: {default}");
    let choices: Vec<(&str, &str)> = [("", default.as_str())]
        .into_iter()
        .chain(policy_choices(presets))
        .collect();
    html! {
        fieldset {
            legend { "Retries" }
            (values.field(POLICY_FIELD, "Retry policy", "", errors).choice(&choices))
            @if let Some(lab) = lab { p.hint { a href=(lab) { "Compare policies in the retry lab" } } }
            // The script shows it only if it is used.
            div data-when={ (POLICY_FIELD) ":" (CUSTOM_POLICY) } {
                (values.field(CUSTOM_FIELD, "Policy as JSON", "Used only if “Custom JSON” is selected above.", errors).lines(6))
            }
        }
    }
}

/// Returns the rate limit of the document; `null` if both fields are empty.
pub(super) fn rate_limit(per_second: &str, burst: &str) -> Value {
    match (per_second.is_empty(), burst.is_empty()) {
        (true, true) => Value::Null,
        (_, _) => json!({"per_second": number(per_second), "burst": number(burst)}),
    }
}

/// Fills in the thresholds that are set on this level.
pub(super) fn set_protection(values: &mut FormValues, own: Option<ProtectionOverrides>) {
    let own = own.unwrap_or_default();
    let (disable, breaker) = (own.disable, own.breaker);
    values.set("refusals", shown(breaker.refusals));
    values.set("consecutive_failures", shown(breaker.consecutive_failures));
    values.set("disable_after", shown(disable.after));
    values.set("warn_before", shown(disable.warn_before));
    values.set("on_gone", shown(disable.on_gone));
}

/// Returns the thresholds of the document. Those that the form does not have are absent, and so they are kept.
pub(super) fn protection(values: &FormValues) -> Value {
    json!({
        "breaker": {
            "refusals": number(values.get("refusals")),
            "consecutive_failures": number(values.get("consecutive_failures")),
        },
        "disable": {
            "after": filled(values.get("disable_after")),
            "warn_before": filled(values.get("warn_before")),
            "on_gone": match values.get("on_gone") {
                "" => Value::Null,
                choice => json!(choice == "true"),
            },
        },
    })
}

/// Renders the fields of thresholds.
pub(super) fn protection_fields(values: &FormValues, errors: &FieldErrors) -> Markup {
    let on_gone = [
        ("", "Default"),
        ("true", "Disable the endpoint"),
        ("false", "Keep it enabled"),
    ];
    html! {
        fieldset {
            legend { "Protection" }
            p.hint { "When deliveries are held, and when an endpoint is disabled. Empty means the default." }
            (values.field("refusals", "Hold deliveries after this many refusals",
                "Without a success in between, for example 401, 404 or 422.", errors).line("text"))
            (values.field("consecutive_failures", "Hold deliveries after this many failures in a row",
                "For example 503 or a timeout.", errors).line("text"))
            (values.field("disable_after", "Disable after failing for", "A duration, for example 5d.", errors).line("text"))
            (values.field("warn_before", "Warn the owner in advance by", "A duration, for example 1d.", errors).line("text"))
            (values.field("on_gone", "When the receiver responds with 410 Gone", "", errors).choice(&on_gone))
        }
    }
}

/// API fields of thresholds with their form fields. The last one is for errors of the whole object.
pub(super) const PROTECTION_FIELDS: [(&str, &str); 6] = [
    ("protection.breaker.refusals", "refusals"),
    (
        "protection.breaker.consecutive_failures",
        "consecutive_failures",
    ),
    ("protection.disable.after", "disable_after"),
    ("protection.disable.warn_before", "warn_before"),
    ("protection.disable.on_gone", "on_gone"),
    ("protection", "refusals"),
];

/// Finds the form field of an API field in a list of both. A field of the list stands for everything below it.
pub(super) fn form_field_of(
    fields: impl Iterator<Item = (&'static str, &'static str)>,
    api_field: &str,
) -> Option<&'static str> {
    let mut fields = fields.filter(|(name, _)| {
        let rest = api_field.strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    });
    fields.next().map(|(_, form_field)| form_field)
}
