//! Reads an endpoint from a request body, for a new endpoint and for a change.
//!
//! [`read`] changes only the fields that the document contains, and reports all errors of a document at once. Secrets
//! and credentials are returned separately in [`SecretFields`]: the caller encrypts them before they are stored.

use posthaste_core::address::Destination;
use posthaste_core::sign::{SignatureStyle, SigningKey};
use posthaste_core::subscription::{MAX_PATTERNS, Pattern};
use posthaste_core::validation::{Fields, ValidationErrors};
use posthaste_egress::refuse_self_call;
use posthaste_engine::credentials::Credentials;
use posthaste_store::{Endpoint, Tenant};
use serde_json::{Map, Value};

use super::consistency::{self, EndpointParts};
use super::response::{open_credentials, open_headers};
use super::secret::RequestedSecret;
use super::{auth, headers, secret};
use crate::App;
use crate::body_fields;
use crate::code::Code;
use crate::problem::Problem;
use crate::resources::{SIGNATURE_STYLES, style_name};

/// Maximum length of a description.
pub(super) const MAX_DESCRIPTION_CHARS: usize = 1_024;
/// Maximum length of an owner's email address (RFC 5321).
pub(super) const MAX_EMAIL_BYTES: usize = 254;

/// Values that were read in addition to the endpoint itself.
#[derive(Default)]
pub(super) struct SecretFields {
    /// Its headers, unencrypted, if they are replaced.
    pub(super) headers: Option<Map<String, Value>>,
    /// Its credentials, unencrypted, if they are replaced.
    pub(super) credentials: Option<Credentials>,
    /// The first signing key of a new endpoint.
    pub(super) key: Option<SigningKey>,
}

/// Reads `document` into `endpoint`, which contains the previous values or the defaults.
pub(super) fn read(
    app: &App,
    tenant: &Tenant,
    document: &Value,
    endpoint: &mut Endpoint,
    is_new: bool,
) -> Result<SecretFields, Problem> {
    let mut errors = ValidationErrors::default();
    let mut beside = SecretFields::default();
    let mut refused = None;
    let mut asks_for = None;
    let mut wanted = RequestedSecret::default();
    let mut credentials = open_credentials(app, endpoint)?;
    body_fields::read(document, &mut errors, |fields| {
        refused = read_url(app, document, fields, endpoint, is_new);
        read_plain(document, fields, endpoint);
        let policy = body_fields::policy(fields, "retry_policy");
        asks_for = policy.as_ref().map(|(_, policy)| policy.clone());
        let written = policy.map(|(written, _)| written);
        body_fields::take_option(
            document,
            "retry_policy",
            written,
            &mut endpoint.retry_policy,
        );
        endpoint.limits.change(fields);
        endpoint.protection.change_object(fields, "protection");
        let own = headers::read(fields);
        if document.get("headers").is_some() {
            beside.headers = Some(own.unwrap_or_default());
        }
        let token_refused = read_credentials(app, document, fields, &mut credentials);
        refused = refused.or(token_refused);
        if is_new {
            wanted = secret::read(fields);
        }
    });
    if let Some(policy) = asks_for {
        app.check_policy(&policy, tenant, "retry_policy", &mut errors);
        app.make_readable(&mut endpoint.retry_policy);
    }
    if is_new {
        beside.key = wanted.resolve(endpoint.signature_style, &mut errors);
    } else if document.get("signature_style").is_some() {
        let keyring = secret::open(app, endpoint)?;
        if let Some(wrong) = consistency::wrong_style(endpoint.signature_style, keyring.newest()) {
            errors.add("signature_style", wrong);
        }
    }
    let before = match &beside.headers {
        Some(_) => Map::new(),
        None => open_headers(app, endpoint)?,
    };
    let parts = EndpointParts {
        url: &endpoint.url,
        headers: beside.headers.as_ref().unwrap_or(&before),
        credentials: &credentials,
        style: endpoint.signature_style,
    };
    consistency::check(&parts, document, &mut errors);
    if ["auth", "client_certificate"]
        .iter()
        .any(|name| document.get(name).is_some())
    {
        beside.credentials = Some(credentials);
    }
    if errors.is_empty() {
        return Ok(beside);
    }
    // A refused URL determines the code, even if there are other errors.
    let code = refused.unwrap_or(Code::Invalid);
    Err(Problem::invalid_as(code, errors))
}

/// Reads the credentials. Returns the code if a URL in them is refused.
fn read_credentials(
    app: &App,
    document: &Value,
    fields: &mut Fields<'_, '_>,
    credentials: &mut Credentials,
) -> Option<Code> {
    let read = auth::read(fields, &app.settings.egress_rules);
    body_fields::take_option(document, "auth", read.auth, &mut credentials.auth);
    let name = "client_certificate";
    let certificate = auth::read_certificate(fields, app.clock.wall());
    body_fields::take_option(
        document,
        name,
        certificate,
        &mut credentials.client_certificate,
    );
    read.refused
}

/// Reads the URL. Returns the code if it is refused.
fn read_url(
    app: &App,
    document: &Value,
    fields: &mut Fields<'_, '_>,
    endpoint: &mut Endpoint,
    is_new: bool,
) -> Option<Code> {
    if is_new || document.get("url").is_some() {
        fields.need("url");
    }
    let url = fields.text("url")?;
    let rules = &app.settings.egress_rules;
    let judged = Destination::parse(url, rules).and_then(|to| refuse_self_call(rules, &to));
    match judged {
        Ok(()) => {
            endpoint.url = url.to_owned();
            None
        }
        Err(destination_error) => {
            fields.wrong("url", destination_error.to_string());
            Some(Code::for_destination_error(&destination_error))
        }
    }
}

fn read_plain(document: &Value, fields: &mut Fields<'_, '_>, endpoint: &mut Endpoint) {
    let name = "description";
    let description = body_fields::text(fields, name, MAX_DESCRIPTION_CHARS);
    body_fields::take(
        document,
        name,
        description,
        String::new,
        &mut endpoint.description,
    );
    let name = "event_types";
    let patterns = read_patterns(fields);
    body_fields::take(
        document,
        name,
        patterns,
        Vec::new,
        &mut endpoint.event_types,
    );
    let name = "ordered";
    let ordered = fields.flag(name);
    body_fields::take(document, name, ordered, || false, &mut endpoint.ordered);
    let name = "signature_style";
    let style = read_style(fields);
    let default = SignatureStyle::default;
    body_fields::take(
        document,
        name,
        style,
        default,
        &mut endpoint.signature_style,
    );
    let name = "owner_email";
    let email = read_email(fields);
    body_fields::take_option(document, name, email, &mut endpoint.owner_email);
}

fn read_patterns(fields: &mut Fields<'_, '_>) -> Option<Vec<Pattern>> {
    let list = fields.list("event_types", MAX_PATTERNS)?;
    let mut patterns = Vec::with_capacity(list.len());
    for (index, value) in list.iter().enumerate() {
        let read = match value.as_str() {
            Some(text) => text.parse::<Pattern>().map_err(|error| error.to_string()),
            None => Err("must be a string such as \"invoice.paid\"".to_owned()),
        };
        match read {
            Ok(pattern) => patterns.push(pattern),
            Err(message) => fields.wrong(&format!("event_types[{index}]"), message),
        }
    }
    Some(patterns)
}

fn read_email(fields: &mut Fields<'_, '_>) -> Option<String> {
    let text = fields.text("owner_email")?;
    if !is_plausible(text) {
        fields.wrong(
            "owner_email",
            "must be one email address, such as ops@example.com",
        );
    }
    Some(text.to_owned())
}

/// Refuses text that cannot be an email address, or that could break a line of an email header. Only delivery
/// shows whether an address exists.
fn is_plausible(email: &str) -> bool {
    let strange = |c: char| c.is_control() || c.is_whitespace() || "<>(),;:\"[]\\".contains(c);
    let Some((local, domain)) = email.rsplit_once('@') else {
        return false;
    };
    let labels = domain.split('.').all(|label| !label.is_empty());
    email.len() <= MAX_EMAIL_BYTES
        && !local.is_empty()
        && !local.contains('@')
        && labels
        && !email.contains(strange)
}

fn read_style(fields: &mut Fields<'_, '_>) -> Option<SignatureStyle> {
    let text = fields.text("signature_style")?;
    let style = SIGNATURE_STYLES
        .into_iter()
        .find(|style| style_name(*style) == text);
    if style.is_none() {
        let message = "must be \"standard\", \"github\" or \"stripe\"";
        fields.wrong("signature_style", message);
    }
    style
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn implausible_email_addresses_are_refused() {
        for email in [
            "ops@example.com",
            "a+b@x.y",
            "ü@example.com",
            "ops@localhost",
        ] {
            assert!(is_plausible(email), "{email}");
        }
        let long = format!("{}@example.com", "x".repeat(MAX_EMAIL_BYTES));
        for email in [
            "",
            "ops",
            "@example.com",
            "ops@",
            "a@b@c",
            "a b@c.d",
            "a@b..c",
            "a@.b",
            "a@b.c\r\nBcc: x@y.z",
            "a@b.c,d@e.f",
            "A <a@b.c>",
            &long,
        ] {
            assert!(!is_plausible(email), "{email}");
        }
    }
}
