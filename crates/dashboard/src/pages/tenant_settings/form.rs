//! The values of the form that changes a tenant: [`TenantForm`].

use posthaste_api::resources::Tenant;
use serde_json::{Map, Value, json};

use crate::components::FieldErrors;
use crate::form::Form;
use crate::pages::form_values::{FormValues, filled, number};
use crate::pages::setting_fields::{self, CUSTOM_FIELD, POLICY_FIELD, PROTECTION_FIELDS};

/// The limits of a tenant with their labels. Form and API have the same names.
pub(super) const LIMITS: [(&str, &str); 12] = [
    ("endpoints", "Endpoints"),
    ("events_per_month", "Events per month"),
    ("events_per_second", "Events per second"),
    (
        "deliveries_per_second",
        "Deliveries per second, on each node",
    ),
    ("in_flight", "Concurrent attempts"),
    ("payload_bytes", "Payload size in bytes"),
    ("max_attempts", "Attempts per retry policy"),
    ("schedules", "Schedules"),
    (
        "shortest_schedule_interval",
        "Shortest interval between occurrences",
    ),
    ("retention", "Delivery retention"),
    ("payload_retention", "Payload retention"),
    ("attempt_retention", "Attempt-history retention"),
];
/// Limits that are durations.
const DURATIONS: [&str; 4] = [
    "shortest_schedule_interval",
    "retention",
    "payload_retention",
    "attempt_retention",
];
/// API fields besides limits and thresholds, with their form fields.
const FIELDS: [(&str, &str); 8] = [
    ("name", "name"),
    ("plan", "plan"),
    ("default_retry_policy", CUSTOM_FIELD),
    ("endpoint_defaults.timeout", "timeout"),
    ("endpoint_defaults.max_in_flight", "max_in_flight"),
    ("endpoint_defaults.rate_limit.per_second", "per_second"),
    ("endpoint_defaults.rate_limit.burst", "burst"),
    ("endpoint_defaults", "per_second"),
];
/// Form fields that are shown at once, besides the limits.
const FIRST_FIELDS: [&str; 2] = ["name", "plan"];

fn others() -> impl Iterator<Item = (&'static str, &'static str)> {
    FIELDS.into_iter().chain(PROTECTION_FIELDS)
}

/// Maps an API field to its form field.
pub(super) fn form_field(field: &str) -> Option<&'static str> {
    match field.strip_prefix("limits.") {
        Some(limit) => LIMITS
            .into_iter()
            .map(|(name, _)| name)
            .find(|name| *name == limit),
        None => setting_fields::form_field_of(others(), field),
    }
}

/// The values of the form.
pub(super) struct TenantForm {
    pub(super) values: FormValues,
}

impl TenantForm {
    /// Fills the form from a tenant. Only what the tenant sets itself is filled in.
    pub(super) fn from_tenant(tenant: &Tenant) -> TenantForm {
        let mut values = FormValues::default();
        values.set("name", tenant.name.as_str());
        values.set("plan", tenant.plan.clone().unwrap_or_default());
        let limits = serde_json::to_value(tenant.limits).unwrap_or_default();
        for (name, _) in LIMITS {
            values.set(name, text_of(&limits[name]));
        }
        setting_fields::set_policy(&mut values, tenant.default_retry_policy.as_ref());
        setting_fields::set_protection(&mut values, tenant.protection);
        let defaults = serde_json::to_value(&tenant.endpoint_defaults).unwrap_or_default();
        values.set("timeout", text_of(&defaults["timeout"]));
        values.set("max_in_flight", text_of(&defaults["max_in_flight"]));
        let rate = &defaults["rate_limit"];
        values.set("per_second", text_of(&rate["per_second"]));
        values.set("burst", text_of(&rate["burst"]));
        TenantForm { values }
    }

    /// Reads a submitted form.
    pub(super) fn read(sent: &Form) -> TenantForm {
        let limits = LIMITS.into_iter().map(|(name, _)| name);
        let names = others()
            .map(|(_, name)| name)
            .chain(limits)
            .chain([POLICY_FIELD]);
        TenantForm {
            values: FormValues::read(sent, names),
        }
    }

    /// Returns whether a field under "Defaults" has an error, so that it must be in sight.
    pub(super) fn has_advanced_errors(errors: &FieldErrors) -> bool {
        let mut advanced = others().filter(|(_, name)| !FIRST_FIELDS.contains(name));
        advanced.any(|(_, name)| errors.message(name).is_some())
    }

    /// Builds the API's document. Only an operator may change plan and limits.
    pub(super) fn document(&self, is_admin: bool) -> Result<Value, FieldErrors> {
        let values = &self.values;
        let policy = setting_fields::policy(values)
            .map_err(|message| FieldErrors::default().with(CUSTOM_FIELD, message))?;
        let mut document = json!({
            "name": filled(values.get("name")),
            "default_retry_policy": policy,
            "endpoint_defaults": {
                "timeout": filled(values.get("timeout")),
                "max_in_flight": number(values.get("max_in_flight")),
                "rate_limit": setting_fields::rate_limit(values.get("per_second"), values.get("burst")),
            },
            "protection": setting_fields::protection(values),
        });
        if is_admin {
            document["plan"] = json!(filled(values.get("plan")));
            let limit = |name: &'static str| {
                let value = match DURATIONS.contains(&name) {
                    true => json!(filled(values.get(name))),
                    false => number(&values.get(name).replace([',', ' '], "")),
                };
                (name.to_owned(), value)
            };
            let limits: Map<String, Value> =
                LIMITS.into_iter().map(|(name, _)| limit(name)).collect();
            document["limits"] = Value::Object(limits);
        }
        Ok(document)
    }
}

/// Returns a number or a text of the API as the form shows it; empty if it is absent.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn tenant() -> Tenant {
        let tenant = json!({
            "id": "acme", "name": "Acme", "default_retry_policy": {"preset": "swift"}, "plan": "free",
            "limits": {"endpoints": 5, "retention": "7d", "schedules": 3, "shortest_schedule_interval": "1m"},
            "endpoint_defaults": {"timeout": "10s", "rate_limit": {"per_second": 2.5, "burst": 9}},
            "protection": {"breaker": {"refusals": 20}}, "created_at": "2026-01-02T03:04:05.678Z",
        });
        serde_json::from_value(tenant).expect("a tenant")
    }

    #[test]
    fn saving_an_unchanged_form_changes_nothing() {
        let document = TenantForm::from_tenant(&tenant())
            .document(true)
            .expect("the form is valid");
        assert_eq!(document["name"], "Acme");
        assert_eq!(document["plan"], "free");
        assert_eq!(document["limits"]["endpoints"], 5);
        assert_eq!(document["limits"]["retention"], "7d");
        assert_eq!(document["limits"]["schedules"], 3);
        assert_eq!(document["limits"]["shortest_schedule_interval"], "1m");
        assert_eq!(document["limits"]["events_per_second"], Value::Null);
        assert_eq!(document["default_retry_policy"], json!({"preset": "swift"}));
        let defaults = json!({
            "timeout": "10s", "max_in_flight": null, "rate_limit": {"per_second": 2.5, "burst": 9},
        });
        assert_eq!(document["endpoint_defaults"], defaults);
        assert_eq!(document["protection"]["breaker"]["refusals"], 20);
    }

    #[test]
    fn every_limit_can_be_set() {
        let limits = serde_json::to_value(tenant().limits).expect("JSON");
        let names: BTreeSet<&str> = limits
            .as_object()
            .expect("an object")
            .keys()
            .map(String::as_str)
            .collect();
        let shown: BTreeSet<&str> = LIMITS.into_iter().map(|(name, _)| name).collect();
        assert_eq!(shown, names);
    }

    #[test]
    fn tenant_key_sends_neither_plan_nor_limits() {
        let document = TenantForm::from_tenant(&tenant())
            .document(false)
            .expect("the form is valid");
        assert_eq!((document.get("plan"), document.get("limits")), (None, None));
    }

    #[test]
    fn api_fields_are_mapped_to_form_fields() {
        for (field, expected) in [
            ("name", Some("name")),
            ("limits.endpoints", Some("endpoints")),
            ("limits.unknown", None),
            ("endpoint_defaults.rate_limit.burst", Some("burst")),
            ("default_retry_policy.jitter", Some("retry_policy")),
            ("protection.breaker.refusals", Some("refusals")),
        ] {
            assert_eq!(form_field(field), expected, "{field}");
        }
    }
}
