//! The values of the form that creates or changes an endpoint: [`EndpointForm`].
//!
//! The form is filled from an endpoint or read from a request, and converted to the API's document. Limits that the
//! endpoint inherits are shown as values; a value that is left as it was stays inherited. Errors of the API are mapped
//! to form fields.

use std::collections::BTreeSet;

use posthaste_api::code::Code;
use posthaste_api::problem::Problem;
use posthaste_api::resources::{Endpoint, SettingOrigin};
use serde_json::{Map, Value, json};

use super::auth_fields;
use crate::components::FieldErrors;
use crate::form::Form;
use crate::pages::form_values::{FormValues, filled, lines, number};
use crate::pages::inherited_limits::InheritedLimits;
use crate::pages::setting_fields::{self, CUSTOM_FIELD, POLICY_FIELD, PROTECTION_FIELDS};

/// Fields of the API with the form fields that show them, besides those of other modules.
const FIELDS: [(&str, &str); 14] = [
    ("rate_limit.per_second", "per_second"),
    ("rate_limit.burst", "burst"),
    ("rate_limit", "per_second"),
    ("url", "url"),
    ("description", "description"),
    ("event_types", "event_types"),
    ("retry_policy", CUSTOM_FIELD),
    ("timeout", "timeout"),
    ("max_in_flight", "max_in_flight"),
    ("headers", "headers"),
    ("owner_email", "owner_email"),
    ("signature_style", "signature_style"),
    ("secret_kind", "secret_kind"),
    ("secret", "secret"),
];
/// The form field of the API's `ordered`. It is a checkbox.
const ORDERED_FIELD: &str = "ordered";
/// Form fields that are shown at once. All others are under "Advanced".
const FIRST_FIELDS: [&str; 4] = ["url", "description", "event_types", "owner_email"];
/// Form fields of limits that are inherited if the endpoint does not set them.
const LIMIT_FIELDS: [&str; 4] = ["timeout", "max_in_flight", "per_second", "burst"];

fn all_fields() -> impl Iterator<Item = (&'static str, &'static str)> {
    let groups = PROTECTION_FIELDS.into_iter().chain(auth_fields::FIELDS);
    groups.chain(FIELDS)
}

/// The values of the form.
pub(super) struct EndpointForm {
    pub(super) values: FormValues,
    pub(super) is_ordered: bool,
    /// The limits that the endpoint inherits, by form field.
    inherits: BTreeSet<&'static str>,
}

impl EndpointForm {
    /// Creates the form of a new endpoint.
    pub(super) fn new(inherited: &InheritedLimits) -> EndpointForm {
        let mut values = FormValues::default();
        values.set("signature_style", "standard");
        for name in LIMIT_FIELDS {
            values.set(name, inherited.of(name));
        }
        auth_fields::fill(&mut values, None, false);
        EndpointForm {
            values,
            is_ordered: false,
            inherits: LIMIT_FIELDS.into(),
        }
    }

    /// Fills the form from an existing endpoint. Secrets are not shown.
    pub(super) fn from_endpoint(endpoint: &Endpoint) -> EndpointForm {
        let mut values = FormValues::default();
        let header = |(name, value): &(String, String)| format!("{name}: {value}");
        let headers: Vec<String> = endpoint.headers.0.iter().map(header).collect();
        let rate = &endpoint.rate_limit;
        values.set("url", endpoint.url.as_str());
        values.set("description", endpoint.description.as_str());
        values.set("event_types", endpoint.event_types.join("\n"));
        values.set("timeout", endpoint.timeout.as_str());
        values.set("max_in_flight", endpoint.max_in_flight.to_string());
        values.set("per_second", rate.per_second.to_string());
        values.set("burst", rate.burst.to_string());
        values.set("headers", headers.join("\n"));
        values.set(
            "owner_email",
            endpoint.owner_email.clone().unwrap_or_default(),
        );
        values.set("signature_style", endpoint.signature_style.as_str());
        let has_own_policy = endpoint.retry_policy_from == SettingOrigin::Endpoint;
        let own_policy = has_own_policy.then_some(&endpoint.retry_policy);
        setting_fields::set_policy(&mut values, own_policy);
        setting_fields::set_protection(&mut values, endpoint.protection);
        let has_certificate = endpoint.client_certificate.is_some();
        auth_fields::fill(&mut values, endpoint.auth.as_ref(), has_certificate);
        EndpointForm {
            values,
            is_ordered: endpoint.ordered,
            inherits: inherited_by(endpoint),
        }
    }

    /// Reads a submitted form. `endpoint` is the endpoint before the change, if it exists.
    pub(super) fn read(sent: &Form, endpoint: Option<&Endpoint>) -> EndpointForm {
        let names = all_fields().map(|(_, name)| name).chain([POLICY_FIELD]);
        EndpointForm {
            values: FormValues::read(sent, names),
            is_ordered: sent.is_ticked(ORDERED_FIELD),
            inherits: endpoint.map_or_else(|| LIMIT_FIELDS.into(), inherited_by),
        }
    }

    /// Returns whether a field under "Advanced" has an error, so that it must be in sight.
    pub(super) fn has_advanced_errors(errors: &FieldErrors) -> bool {
        let mut advanced = all_fields().filter(|(_, name)| !FIRST_FIELDS.contains(name));
        advanced.any(|(_, name)| errors.message(name).is_some())
    }

    /// Returns the value of a limit, or `None` if it stays inherited: it is empty, or still the inherited value.
    fn own_limit(&self, name: &str, inherited: &InheritedLimits) -> Option<&str> {
        let value = self.values.get(name);
        let is_unchanged = self.inherits.contains(name) && value == inherited.of(name);
        filled(value).filter(|_| !is_unchanged)
    }

    fn rate_limit(&self, inherited: &InheritedLimits) -> Value {
        let own = |name| self.own_limit(name, inherited);
        match (own("per_second"), own("burst")) {
            (None, None) => Value::Null,
            // A new rate gets a burst of its own, unless that was changed too.
            (Some(rate), burst) => setting_fields::rate_limit(rate, burst.unwrap_or_default()),
            (None, Some(burst)) => setting_fields::rate_limit(self.values.get("per_second"), burst),
        }
    }

    /// Builds the API's document, or returns the fields that cannot be parsed.
    pub(super) fn document(
        &self,
        is_new: bool,
        inherited: &InheritedLimits,
    ) -> Result<Value, FieldErrors> {
        let mut errors = FieldErrors::default();
        let values = &self.values;
        let limit = |name| self.own_limit(name, inherited);
        let mut document = json!({
            "url": values.get("url"),
            "description": values.get("description"),
            "event_types": lines(values.get("event_types")).collect::<Vec<_>>(),
            "timeout": limit("timeout"),
            "max_in_flight": number(limit("max_in_flight").unwrap_or_default()),
            "rate_limit": self.rate_limit(inherited),
            "protection": setting_fields::protection(values),
            "ordered": self.is_ordered,
            "owner_email": filled(values.get("owner_email")),
            "signature_style": filled(values.get("signature_style")),
        });
        match setting_fields::policy(values) {
            Ok(policy) => document["retry_policy"] = policy,
            Err(message) => errors = errors.with(CUSTOM_FIELD, message),
        }
        match headers(values.get("headers")) {
            Ok(headers) => document["headers"] = Value::Object(headers),
            Err(message) => errors = errors.with("headers", message),
        }
        auth_fields::add_to(&mut document, values, is_new);
        if is_new {
            document["secret"] = json!(filled(values.get("secret")));
            document["secret_kind"] = json!(filled(values.get("secret_kind")));
        }
        match errors.is_empty() {
            true => Ok(document),
            false => Err(errors),
        }
    }
}

/// Returns the limits that an endpoint inherits, by form field.
fn inherited_by(endpoint: &Endpoint) -> BTreeSet<&'static str> {
    let origins = [
        ("timeout", endpoint.timeout_from),
        ("max_in_flight", endpoint.max_in_flight_from),
        ("per_second", endpoint.rate_limit_from),
        ("burst", endpoint.rate_limit_from),
    ];
    let inherited = origins.into_iter().filter(|(_, origin)| match origin {
        SettingOrigin::Endpoint => false,
        SettingOrigin::Tenant | SettingOrigin::Server => true,
    });
    inherited.map(|(name, _)| name).collect()
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
    setting_fields::form_field_of(all_fields(), field)
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

    /// The limits of the server.
    fn inherited() -> InheritedLimits {
        InheritedLimits {
            timeout: "30s".to_owned(),
            max_in_flight: "10".to_owned(),
            per_second: "100".to_owned(),
            burst: "200".to_owned(),
            policy: "recommended (server)".to_owned(),
        }
    }

    fn document(fields: &[(&str, &str)]) -> Result<Value, FieldErrors> {
        EndpointForm::read(&Form::of(fields), None).document(true, &inherited())
    }

    #[test]
    fn form_is_converted_to_the_api_document() {
        let fields = [
            ("url", " https://example.com/hooks "),
            ("event_types", "invoice.paid\r\n\r\n user.* \r\n"),
            ("policy", "swift"),
            ("retry_policy", "not even looked at"),
            ("max_in_flight", "5"),
            ("per_second", "2.5"),
            ("burst", "200"),
            ("timeout", "30s"),
            ("refusals", "20"),
            ("warn_before", "2h"),
            ("on_gone", "false"),
            ("ordered", "yes"),
            ("headers", "X-Team: billing\r\nX-Time: 12:30"),
            ("auth_kind", "bearer"),
            ("auth_token", "x"),
            ("auth_username", "not even looked at"),
            ("certificate_choice", "none"),
            ("signature_style", "github"),
        ];
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
        assert_eq!(document(&fields).expect("the form is valid"), expected);
    }

    #[test]
    fn credentials_are_kept_removed_or_replaced() {
        let stored = endpoint(&json!({"auth": {"kind": "bearer"}}));
        let changed = |fields: &[(&str, &str)]| {
            let form = EndpointForm::read(&Form::of(fields), Some(&stored));
            form.document(false, &inherited())
                .expect("the form is valid")
        };
        let kept = changed(&[("auth_kind", "keep"), ("auth_token", "ignored")]);
        assert_eq!((kept.get("auth"), kept.get("secret")), (None, None));
        assert_eq!(
            changed(&[("auth_kind", "none")]).get("auth"),
            Some(&Value::Null)
        );
        let basic = changed(&[("auth_kind", "basic"), ("auth_username", "u")]);
        assert_eq!(
            basic["auth"],
            json!({"kind": "basic", "username": "u", "password": ""})
        );
        let oauth = changed(&[
            ("auth_kind", "oauth2"),
            ("auth_token_url", "https://a"),
            ("auth_client_id", "i"),
            ("auth_client_secret", "s"),
        ]);
        assert_eq!(
            oauth["auth"],
            json!({"kind": "oauth2", "token_url": "https://a", "client_id": "i", "client_secret": "s"})
        );
        let certificate = changed(&[("certificate_choice", "new"), ("certificate", "c")]);
        assert_eq!(
            certificate["client_certificate"],
            json!({"certificate": "c", "private_key": ""})
        );
    }

    #[test]
    fn unparsable_fields_are_reported() {
        let errors = document(&[
            ("policy", "own"),
            ("retry_policy", "{"),
            ("headers", "no colon"),
        ])
        .expect_err("two fields are invalid");
        for name in ["retry_policy", "headers"] {
            assert!(errors.message(name).is_some(), "{name}");
        }
        assert!(EndpointForm::has_advanced_errors(&errors));
        let simple = FieldErrors::default().with("url", "must be https");
        assert!(!EndpointForm::has_advanced_errors(&simple));
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
            .document(false, &inherited())
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
        let other = endpoint(&json!({"retry_policy_from": "tenant", "timeout_from": "endpoint"}));
        let document = EndpointForm::from_endpoint(&other)
            .document(false, &inherited())
            .expect("the form is valid");
        assert_eq!(
            document["retry_policy"],
            Value::Null,
            "the policy stays inherited"
        );
        assert_eq!(
            document["timeout"], "30s",
            "a limit that equals the default stays the endpoint's own"
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
            ("auth.token", Some("auth_token")),
            ("auth.token_url", Some("auth_token_url")),
            ("auth", Some("auth_kind")),
            ("client_certificate.private_key", Some("private_key")),
            ("protection.disable.after", Some("disable_after")),
            ("urls", None),
        ] {
            assert_eq!(form_field(field), expected, "{field}");
        }
    }
}
