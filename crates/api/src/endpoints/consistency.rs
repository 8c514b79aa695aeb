//! Checks that the parts of an endpoint are consistent.
//!
//! Each part is valid alone. This module compares them with each other, new and existing values alike. An
//! error is reported for the field in the request, and names the other one.

use http::header::AUTHORIZATION;
use posthaste_core::sign::{SignatureStyle, SigningKey};
use posthaste_core::validation::ValidationErrors;
use posthaste_engine::credentials::Credentials;
use posthaste_engine::signing_keys::{is_opaque, reveal};
use serde_json::{Map, Value};

use crate::resources::style_name;

/// An endpoint with the requested changes.
pub(super) struct EndpointParts<'a> {
    pub(super) url: &'a str,
    pub(super) headers: &'a Map<String, Value>,
    pub(super) credentials: &'a Credentials,
    pub(super) style: SignatureStyle,
}

/// Reports parts that contradict each other, for an endpoint that `document` creates or changes.
pub(super) fn check(parts: &EndpointParts<'_>, document: &Value, errors: &mut ValidationErrors) {
    let says = |name: &str| document.get(name).is_some();
    let header = |wanted: &str| {
        let mut names = parts.headers.keys();
        names.find(|name| name.eq_ignore_ascii_case(wanted))
    };
    let mut collide = |field: &'static str, name: &str| {
        if says(field) {
            let message = format!(
                "cannot be combined with the header {name} in \"headers\", which it would replace: remove one of the two"
            );
            errors.add(field, message);
        }
        if says("headers") {
            let message = format!(
                "cannot be combined with \"{field}\", which sends this header: remove one of the two"
            );
            errors.add(format!("headers.{name}"), message);
        }
    };
    if let Some(name) = header(AUTHORIZATION.as_str())
        && parts.credentials.auth.is_some()
    {
        collide("auth", name);
    }
    if let Some(name) = header(parts.style.header_name()) {
        collide("signature_style", name);
    }
    // Without TLS the certificate is never used. The caller would wrongly believe that it is.
    let scheme = parts.url.split(':').next().unwrap_or_default();
    let is_plain = scheme.eq_ignore_ascii_case("http");
    if parts.credentials.client_certificate.is_some() && is_plain {
        let field = match says("client_certificate") {
            true => "client_certificate",
            false => "url",
        };
        errors.add(
            field,
            "a client certificate requires TLS: use an https:// URL, or remove \"client_certificate\"",
        );
    }
}

/// Returns the reason why the endpoint's newest key does not fit a new style.
pub(super) fn wrong_style(style: SignatureStyle, newest: &SigningKey) -> Option<String> {
    let rotate = "rotate the secret first: POST …/secret/rotate";
    match (style, newest) {
        (SignatureStyle::GitHub | SignatureStyle::Stripe, SigningKey::Private(_)) => Some(format!(
            "{:?} requires a shared secret, and the endpoint has an ed25519 key; {rotate} with {{\"secret_kind\": \"hmac\"}}",
            style_name(style),
        )),
        (SignatureStyle::Standard, SigningKey::Shared(_)) if is_opaque(&reveal(newest)) => {
            Some(format!(
                "\"standard\" requires a secret that begins with whsec_ or whsk_, unlike the endpoint's; {rotate}"
            ))
        }
        (SignatureStyle::GitHub | SignatureStyle::Stripe, SigningKey::Shared(_))
        | (SignatureStyle::Standard, SigningKey::Shared(_) | SigningKey::Private(_)) => None,
    }
}
