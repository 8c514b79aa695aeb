//! The values of the form that creates or changes an endpoint: [`EndpointForm`].
//!
//! The form is filled from an endpoint or read from a request, and converted to the API's document. Errors of the API
//! are mapped to form fields.

use std::collections::BTreeMap;

use posthaste_api::code::Code;
use posthaste_api::problem::Problem;
use posthaste_api::resources::{Endpoint, SettingOrigin};
use serde_json::{Map, Value, json};

use crate::components::{Field, FieldErrors};
use crate::form::Form;
use crate::pages::policy_presets::CUSTOM_POLICY;

/// Fields of the API with the form fields that show them.
const FIELDS: [(&str, &str); 22] = [
    ("protection.breaker.refusals", "refusals"),
    (
        "protection.breaker.consecutive_failures",
        "consecutive_failures",
    ),
    ("protection.disable.after", "disable_after"),
    ("protection.disable.warn_before", "warn_before"),
    ("protection.disable.on_gone", "on_gone"),
    ("protection", "refusals"),
    ("rate_limit.per_second", "per_second"),
    ("rate_limit.burst", "burst"),
    ("rate_limit", "per_second"),
    ("url", "url"),
    ("description", "description"),
    ("event_types", "event_types"),
    ("retry_policy", "retry_policy"),
    ("timeout", "timeout"),
    ("max_in_flight", "max_in_flight"),
    ("headers", "headers"),
    ("owner_email", "owner_email"),
    ("signature_style", "signature_style"),
    ("auth", "auth"),
    ("client_certificate", "client_certificate"),
    ("secret_kind", "secret_kind"),
    ("secret", "secret"),
];
/// The form field of the API's `ordered`. It is a checkbox.
const ORDERED_FIELD: &str = "ordered";
/// The form field that chooses between a preset and a custom policy. The API has no such field.
const POLICY_FIELD: &str = "policy";

/// The values of the form.
pub(super) struct EndpointForm {
    /// Values by form field; a missing field is empty.
    values: BTreeMap<&'static str, String>,
    pub(super) is_ordered: bool,
}

impl EndpointForm {
    /// Creates the form of a new endpoint.
    pub(super) fn new() -> EndpointForm {
        EndpointForm {
            values: [("signature_style", "standard".to_owned())].into(),
            is_ordered: false,
        }
    }

    /// Fills the form from an existing endpoint. Secrets are not shown: their fields are empty.
    pub(super) fn from_endpoint(endpoint: &Endpoint) -> EndpointForm {
        let has_own_policy = endpoint.retry_policy_from == SettingOrigin::Endpoint;
        let policy = &endpoint.retry_policy;
        let preset = policy["preset"].as_str().filter(|_| is_only_preset(policy));
        let (policy, custom) = match (has_own_policy, preset) {
            (false, _) => (String::new(), String::new()),
            (true, Some(preset)) => (preset.to_owned(), String::new()),
            (true, None) => (CUSTOM_POLICY.to_owned(), pretty(policy)),
        };
        let header = |(name, value): &(String, String)| format!("{name}: {value}");
        let headers: Vec<String> = endpoint.headers.0.iter().map(header).collect();
        let own = |origin, text: String| match origin {
            SettingOrigin::Endpoint => text,
            SettingOrigin::Tenant | SettingOrigin::Server => String::new(),
        };
        let rate = &endpoint.rate_limit;
        let rate_from = endpoint.rate_limit_from;
        let protection = endpoint.protection.unwrap_or_default();
        let (disable, breaker) = (protection.disable, protection.breaker);
        let values = [
            ("url", endpoint.url.clone()),
            ("description", endpoint.description.clone()),
            ("event_types", endpoint.event_types.join("\n")),
            (POLICY_FIELD, policy),
            ("retry_policy", custom),
            (
                "timeout",
                own(endpoint.timeout_from, endpoint.timeout.clone()),
            ),
            (
                "max_in_flight",
                own(
                    endpoint.max_in_flight_from,
                    endpoint.max_in_flight.to_string(),
                ),
            ),
            ("per_second", own(rate_from, rate.per_second.to_string())),
            ("burst", own(rate_from, rate.burst.to_string())),
            ("refusals", shown(breaker.refusals)),
            ("consecutive_failures", shown(breaker.consecutive_failures)),
            ("disable_after", shown(disable.after)),
            ("warn_before", shown(disable.warn_before)),
            ("on_gone", shown(disable.on_gone)),
            ("headers", headers.join("\n")),
            (
                "owner_email",
                endpoint.owner_email.clone().unwrap_or_default(),
            ),
            ("signature_style", endpoint.signature_style.clone()),
        ];
        EndpointForm {
            values: values.into(),
            is_ordered: endpoint.ordered,
        }
    }

    /// Reads a submitted form.
    pub(super) fn read(sent: &Form) -> EndpointForm {
        let names = FIELDS.iter().map(|(_, name)| *name).chain([POLICY_FIELD]);
        EndpointForm {
            values: names
                .map(|name| (name, sent.text(name).to_owned()))
                .collect(),
            is_ordered: sent.is_ticked(ORDERED_FIELD),
        }
    }

    fn value(&self, name: &str) -> &str {
        self.values.get(name).map_or("", String::as_str)
    }

    /// Returns a field of the form.
    pub(super) fn field<'a>(
        &'a self,
        name: &'a str,
        label: &'a str,
        hint: &'a str,
        errors: &'a FieldErrors,
    ) -> Field<'a> {
        Field::new(name, label, hint, self.value(name), errors)
    }

    /// Builds the API's document, or returns the fields that cannot be parsed.
    pub(super) fn document(&self, is_new: bool) -> Result<Value, FieldErrors> {
        let mut errors = FieldErrors::default();
        let mut document = json!({
            "url": self.value("url"),
            "description": self.value("description"),
            "event_types": lines(self.value("event_types")).collect::<Vec<_>>(),
            "timeout": filled(self.value("timeout")),
            "max_in_flight": number(self.value("max_in_flight")),
            "ordered": self.is_ordered,
            "owner_email": filled(self.value("owner_email")),
            "signature_style": filled(self.value("signature_style")),
        });
        document["rate_limit"] = match (
            self.value("per_second").is_empty(),
            self.value("burst").is_empty(),
        ) {
            (true, true) => Value::Null,
            (_, _) => {
                json!({"per_second": number(self.value("per_second")), "burst": number(self.value("burst"))})
            }
        };
        document["protection"] = json!({
            "breaker": {
                "refusals": number(self.value("refusals")),
                "consecutive_failures": number(self.value("consecutive_failures")),
            },
            "disable": {
                "after": filled(self.value("disable_after")),
                "warn_before": filled(self.value("warn_before")),
                "on_gone": match self.value("on_gone") {
                    "" => Value::Null,
                    choice => json!(choice == "true"),
                },
            },
        });
        document["retry_policy"] = match self.value(POLICY_FIELD) {
            "" => Value::Null,
            CUSTOM_POLICY => match serde_json::from_str(self.value("retry_policy")) {
                Ok(policy) => policy,
                Err(error) => {
                    errors = errors.with("retry_policy", format!("is not valid JSON: {error}"));
                    Value::Null
                }
            },
            preset => json!({"preset": preset}),
        };
        match headers(self.value("headers")) {
            Ok(headers) => document["headers"] = Value::Object(headers),
            Err(message) => errors = errors.with("headers", message),
        }
        for name in ["auth", "client_certificate"] {
            let text = self.value(name);
            if text.is_empty() {
                continue;
            }
            match serde_json::from_str(text) {
                Ok(value) => document[name] = value,
                // The input may contain a secret, so the message does not quote the parser's error.
                Err(_) => {
                    errors = errors.with(
                        name,
                        "is not valid JSON: follow the example, or leave it empty",
                    )
                }
            }
        }
        if is_new {
            document["secret"] = json!(filled(self.value("secret")));
            document["secret_kind"] = json!(filled(self.value("secret_kind")));
        }
        match errors.is_empty() {
            true => Ok(document),
            false => Err(errors),
        }
    }
}

fn is_only_preset(policy: &Value) -> bool {
    policy.as_object().is_some_and(|policy| policy.len() == 1)
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

fn shown<T: ToString>(own: Option<T>) -> String {
    own.map_or_else(String::new, |own| own.to_string())
}

fn filled(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty())
}

/// Returns a number, or the text if it is none: the API then reports the error.
fn number(text: &str) -> Value {
    match (text.is_empty(), text.parse::<u64>(), text.parse::<f64>()) {
        (true, _, _) => Value::Null,
        (false, Ok(whole), _) => json!(whole),
        (false, Err(_), Ok(number)) => json!(number),
        (false, Err(_), Err(_)) => json!(text),
    }
}

/// Parses headers, one per line, in the notation of HTTP.
fn headers(text: &str) -> Result<Map<String, Value>, String> {
    let mut headers = Map::new();
    for line in lines(text) {
        let Some((name, value)) = line.split_once(':') else {
            return Err("must have one header per line, such as X-Team: billing".to_owned());
        };
        let name = name.trim();
        let value = json!(value.trim());
        if headers.insert(name.to_owned(), value).is_some() {
            return Err(format!("{name} is listed twice"));
        }
    }
    Ok(headers)
}

/// Maps an API field to its form field.
fn form_field(field: &str) -> Option<&'static str> {
    let belongs = |(name, _): &&(&str, &str)| {
        let rest = field.strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    FIELDS
        .iter()
        .find(belongs)
        .map(|(_, form_field)| *form_field)
}

/// Returns the errors of a problem that can be shown in the form. Other problems are returned as they are, and replace
/// the form.
pub(super) fn errors_in_form(problem: Problem) -> Result<FieldErrors, Problem> {
    let is_form_error =
        ![Code::NotFound, Code::Unauthorized, Code::Forbidden].contains(&problem.code);
    match is_form_error {
        true => Ok(FieldErrors::new(&problem, form_field)),
        false => Err(problem),
    }
}

#[cfg(test)]
mod tests {
    use super::super::description::tests::endpoint;
    use super::*;

    #[test]
    fn form_is_converted_to_the_api_document() {
        let sent = Form::of(&[
            ("url", " https://example.com/hooks "),
            ("event_types", "invoice.paid\r\n\r\n user.* \r\n"),
            ("policy", "swift"),
            ("retry_policy", "not even looked at"),
            ("max_in_flight", "5"),
            ("per_second", "2.5"),
            ("refusals", "20"),
            ("warn_before", "2h"),
            ("on_gone", "false"),
            ("ordered", "yes"),
            ("headers", "X-Team: billing\r\nX-Time: 12:30"),
            ("auth", "{\"kind\": \"bearer\", \"token\": \"x\"}"),
            ("signature_style", "github"),
        ]);
        let document = EndpointForm::read(&sent)
            .document(true)
            .expect("the form is valid");
        let expected = json!({
            "url": "https://example.com/hooks", "description": "", "event_types": ["invoice.paid", "user.*"],
            "retry_policy": {"preset": "swift"}, "timeout": null, "max_in_flight": 5,
            "rate_limit": {"per_second": 2.5, "burst": null}, "ordered": true,
            "protection": {
                "breaker": {"refusals": 20, "consecutive_failures": null},
                "disable": {"after": null, "warn_before": "2h", "on_gone": false},
            },
            "headers": {"X-Team": "billing", "X-Time": "12:30"}, "owner_email": null,
            "signature_style": "github", "auth": {"kind": "bearer", "token": "x"},
            "secret": null, "secret_kind": null,
        });
        assert_eq!(document, expected);
        let changed = EndpointForm::read(&sent)
            .document(false)
            .expect("the form is valid");
        assert_eq!(changed.get("secret"), None);
        assert_eq!(
            changed.get("client_certificate"),
            None,
            "the certificate is kept"
        );
    }

    #[test]
    fn unparsable_fields_are_reported() {
        let sent = Form::of(&[
            ("policy", "own"),
            ("retry_policy", "{"),
            ("headers", "no colon"),
            ("auth", "hunter2"),
        ]);
        let errors = EndpointForm::read(&sent)
            .document(true)
            .expect_err("three fields are invalid");
        for name in ["retry_policy", "headers", "auth"] {
            assert!(errors.message(name).is_some(), "{name}");
        }
        assert!(
            !errors
                .message("auth")
                .unwrap_or_default()
                .contains("hunter2")
        );
        assert!(headers("X-A: 1\nX-A: 2").is_err());
    }

    #[test]
    fn saving_an_unchanged_form_changes_nothing() {
        let own = json!({"backoff": {"kind": "fixed", "interval": "10s"}, "jitter": {"kind": "none"},
            "max_attempts": 3, "give_up_after": "1h"});
        let stored = endpoint(&json!({
            "event_types": ["a.*", "b"], "retry_policy": own, "retry_policy_from": "endpoint",
            "owner_email": "ops@example.com",
        }));
        let document = EndpointForm::from_endpoint(&stored)
            .document(false)
            .expect("the form is valid");
        assert_eq!(document["retry_policy"], own);
        assert_eq!(document["event_types"], json!(["a.*", "b"]));
        assert_eq!(
            document["rate_limit"],
            json!({"per_second": 50, "burst": 100})
        );
        assert_eq!(document["headers"], json!({"X-Team": "billing"}));
        assert_eq!(
            document["timeout"],
            Value::Null,
            "the limit stays inherited"
        );
        assert_eq!(document["max_in_flight"], Value::Null);
        // Thresholds that the form does not show are absent, and so they are kept.
        let breaker = json!({"refusals": 20, "consecutive_failures": null});
        assert_eq!(document["protection"]["breaker"], breaker);
        let inherited = endpoint(&json!({"retry_policy_from": "tenant"}));
        let document = EndpointForm::from_endpoint(&inherited)
            .document(false)
            .expect("the form is valid");
        assert_eq!(
            document["retry_policy"],
            Value::Null,
            "the policy stays inherited"
        );
    }

    #[test]
    fn api_fields_are_mapped_to_form_fields() {
        for (field, expected) in [
            ("url", Some("url")),
            ("rate_limit.burst", Some("burst")),
            ("rate_limit", Some("per_second")),
            ("event_types[3]", Some("event_types")),
            ("headers.X-Team", Some("headers")),
            ("retry_policy.jitter.kind", Some("retry_policy")),
            ("secret_kind", Some("secret_kind")),
            ("auth.token", Some("auth")),
            ("protection.disable.after", Some("disable_after")),
            ("urls", None),
        ] {
            assert_eq!(form_field(field), expected, "{field}");
        }
    }
}
