//! The form fields for credentials of an endpoint: `Authorization` of each kind, and a client certificate.
//!
//! Stored secrets are never shown. When an endpoint is changed, the first choice keeps what it has.

use maud::{Markup, html};
use posthaste_api::resources::EndpointAuth;
use serde_json::{Value, json};

use crate::components::FieldErrors;
use crate::pages::form_values::{FormValues, filled};

/// The form field that chooses the kind of credentials. The API's field is `auth`.
pub(super) const KIND_FIELD: &str = "auth_kind";
/// The form field that chooses what happens to the client certificate.
pub(super) const CERTIFICATE_FIELD: &str = "certificate_choice";
/// The choice that keeps what is stored.
const KEEP: &str = "keep";
/// The choice that removes what is stored, or sets nothing.
const NONE: &str = "none";
/// The choice of a new certificate.
const REPLACE: &str = "new";

/// API fields of credentials with their form fields. The last ones are for errors of the whole object.
pub(super) const FIELDS: [(&str, &str); 14] = [
    ("auth.kind", KIND_FIELD),
    ("auth.token_url", "auth_token_url"),
    ("auth.token", "auth_token"),
    ("auth.username", "auth_username"),
    ("auth.password", "auth_password"),
    ("auth.client_id", "auth_client_id"),
    ("auth.client_secret", "auth_client_secret"),
    ("auth.scope", "auth_scope"),
    ("auth.audience", "auth_audience"),
    ("auth.client_authentication", "auth_client_authentication"),
    ("auth", KIND_FIELD),
    ("client_certificate.certificate", "certificate"),
    ("client_certificate.private_key", "private_key"),
    ("client_certificate", CERTIFICATE_FIELD),
];

/// Fills in what an endpoint has, without its secrets.
pub(super) fn fill(values: &mut FormValues, auth: Option<&EndpointAuth>, has_certificate: bool) {
    values.set(KIND_FIELD, if auth.is_some() { KEEP } else { NONE });
    values.set(CERTIFICATE_FIELD, if has_certificate { KEEP } else { NONE });
    match auth {
        Some(EndpointAuth::Basic { username }) => {
            values.set("auth_username", username.clone().unwrap_or_default());
        }
        Some(EndpointAuth::OAuth2 {
            token_url,
            client_id,
            scope,
            audience,
            ..
        }) => {
            values.set("auth_token_url", token_url.as_str());
            values.set("auth_client_id", client_id.as_str());
            values.set("auth_scope", scope.clone().unwrap_or_default());
            values.set("auth_audience", audience.clone().unwrap_or_default());
        }
        Some(EndpointAuth::Bearer) | None => {}
    }
}

/// Adds the chosen credentials to the document. What is kept is absent.
pub(super) fn add_to(document: &mut Value, values: &FormValues, is_new: bool) {
    match values.get(KIND_FIELD) {
        "" | KEEP => {}
        NONE if is_new => {}
        NONE => document["auth"] = Value::Null,
        kind => document["auth"] = auth(kind, values),
    }
    match values.get(CERTIFICATE_FIELD) {
        "" | KEEP => {}
        NONE if is_new => {}
        NONE => document["client_certificate"] = Value::Null,
        _ => {
            document["client_certificate"] = json!({
                "certificate": values.get("certificate"), "private_key": values.get("private_key"),
            });
        }
    }
}

fn auth(kind: &str, values: &FormValues) -> Value {
    let mut auth = json!({"kind": kind});
    let fields: &[(&str, &str, bool)] = match kind {
        "bearer" => &[("token", "auth_token", true)],
        "basic" => &[
            ("username", "auth_username", true),
            ("password", "auth_password", true),
        ],
        "oauth2" => &[
            ("token_url", "auth_token_url", true),
            ("client_id", "auth_client_id", true),
            ("client_secret", "auth_client_secret", true),
            ("scope", "auth_scope", false),
            ("audience", "auth_audience", false),
            ("client_authentication", "auth_client_authentication", false),
        ],
        _ => &[],
    };
    for (name, field, is_required) in fields {
        let value = values.get(field);
        if *is_required || filled(value).is_some() {
            auth[*name] = json!(value);
        }
    }
    auth
}

/// Renders the fields.
pub(super) fn fields(values: &FormValues, errors: &FieldErrors) -> Markup {
    let field = |name, label, hint| values.field(name, label, hint, errors);
    let keeps = |name: &str| values.get(name) == KEEP;
    let mut kinds = vec![
        (NONE, "None"),
        ("bearer", "Bearer token"),
        ("basic", "User name and password (basic)"),
        ("oauth2", "OAuth 2 client credentials"),
    ];
    if keeps(KIND_FIELD) {
        kinds.insert(0, (KEEP, "Keep the current credentials"));
    }
    let mut certificates = vec![(NONE, "None"), (REPLACE, "Certificate and private key")];
    if keeps(CERTIFICATE_FIELD) {
        certificates.insert(0, (KEEP, "Keep the current certificate"));
    }
    let positions = [
        ("", "Default"),
        ("basic", "In the Authorization header"),
        ("body", "In the request body"),
    ];
    html! {
        fieldset {
            legend { "Authentication" }
            (field(KIND_FIELD, "Authorization header", "Sent in addition to the signature.").choice(&kinds))
            // The script shows the fields of the chosen kind only.
            div.when data-when={ (KIND_FIELD) ":bearer" } {
                (field("auth_token", "Token", "").line("password"))
            }
            div.when data-when={ (KIND_FIELD) ":basic" } {
                (field("auth_username", "User name", "").line("text"))
                (field("auth_password", "Password", "").line("password"))
            }
            div.when data-when={ (KIND_FIELD) ":oauth2" } {
                (field("auth_token_url", "Token URL", "Access tokens are fetched from this URL.").line("url"))
                (field("auth_client_id", "Client id", "").line("text"))
                (field("auth_client_secret", "Client secret", "").line("password"))
                (field("auth_scope", "Scope", "Optional.").line("text"))
                (field("auth_audience", "Audience", "Optional.").line("text"))
                (field("auth_client_authentication", "Client id and secret are sent", "").choice(&positions))
            }
            (field(CERTIFICATE_FIELD, "Client certificate (mutual TLS)", "").choice(&certificates))
            div.when data-when={ (CERTIFICATE_FIELD) ":" (REPLACE) } {
                (field("certificate", "Certificate chain (PEM)", "Begins with -----BEGIN CERTIFICATE-----.").lines(3))
                (field("private_key", "Private key (PEM)", "").lines(3))
            }
        }
    }
}
