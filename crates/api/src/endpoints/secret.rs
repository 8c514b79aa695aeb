//! An endpoint's signing secret: shows it on explicit request, and rotates it.
//!
//! A secret is stored encrypted. [`show`] is audited, because it reveals the secret. After a rotation, earlier secrets
//! also sign until the overlap ends, so that receivers can switch without a failed verification.

use axum::body::Body;
use http::{Response, StatusCode};
use posthaste_core::sign::{KeyError, MAX_KEYS, SignatureStyle, SigningKey};
use posthaste_core::time::Span;
use posthaste_core::validation::{Fields, ValidationErrors};
use posthaste_engine::signing_keys::{self, RotationError, SigningKeyring, is_opaque, reveal};
use posthaste_engine::vault::Purpose;
use posthaste_store::{Endpoint, ReplaceResult};
use posthaste_system::random::{fresh_private_key, fresh_secret};
use serde_json::Value;

use super::find;
use crate::code::Code;
use crate::problem::{Problem, ResourceKind};
use crate::resources::{EndpointSecret, style_name};
use crate::route::Call;
use crate::tenants::{MAX_TRIES, contended};
use crate::{App, body, body_fields};

/// Default time for which earlier secrets stay in use after a rotation.
pub(crate) const DEFAULT_OVERLAP: Span = Span::from_hours(24);
/// Maximum time for which earlier secrets may stay in use.
pub(crate) const MAX_OVERLAP: Span = Span::from_days(30);

/// The kind of a signing secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SecretKind {
    /// A secret shared by sender and receiver, for `v1` signatures.
    Hmac,
    /// A key pair, for `v1a` signatures.
    Ed25519,
}

impl SecretKind {
    fn of(key: &SigningKey) -> SecretKind {
        match key {
            SigningKey::Shared(_) => SecretKind::Hmac,
            SigningKey::Private(_) => SecretKind::Ed25519,
        }
    }
}

/// The requested secret: a given one, or a new one.
#[derive(Default)]
pub(crate) struct RequestedSecret {
    kind: Option<SecretKind>,
    key: Option<SigningKey>,
    /// The request is invalid, and the error has been reported.
    wrong: bool,
}

/// Reads the fields `secret` and `secret_kind`.
pub(crate) fn read(fields: &mut Fields<'_, '_>) -> RequestedSecret {
    let mut wanted = RequestedSecret::default();
    match fields.text("secret").map(signing_keys::read) {
        None => {}
        Some(Ok(key)) => wanted.key = Some(key),
        Some(Err(error)) => {
            fields.wrong("secret", format!("cannot be used: {error}"));
            wanted.wrong = true;
        }
    }
    match fields.text("secret_kind") {
        None => {}
        Some("hmac") => wanted.kind = Some(SecretKind::Hmac),
        Some("ed25519") => wanted.kind = Some(SecretKind::Ed25519),
        Some(_) => {
            fields.wrong("secret_kind", "must be \"hmac\" or \"ed25519\"");
            wanted.wrong = true;
        }
    }
    wanted
}

impl RequestedSecret {
    /// Returns the key for an endpoint of this style. Reports an error if they do not fit.
    pub(crate) fn resolve(
        &self,
        style: SignatureStyle,
        errors: &mut ValidationErrors,
    ) -> Option<SigningKey> {
        if self.wrong {
            return None;
        }
        let fresh = || match self.kind {
            None | Some(SecretKind::Hmac) => SigningKey::Shared(fresh_secret()),
            Some(SecretKind::Ed25519) => SigningKey::Private(fresh_private_key()),
        };
        let key = self.key.clone().unwrap_or_else(fresh);
        if let Some((field, message)) = self.objection(&key, style) {
            errors.add(field, message);
            return None;
        }
        Some(key)
    }

    fn objection(&self, key: &SigningKey, style: SignatureStyle) -> Option<(&'static str, String)> {
        if self.kind.is_some_and(|kind| kind != SecretKind::of(key)) {
            let message = "does not match the kind of the given secret: remove one of the two";
            return Some(("secret_kind", message.to_owned()));
        }
        let brought = match self.key {
            Some(_) => "secret",
            None => "secret_kind",
        };
        match (style, key) {
            (SignatureStyle::GitHub | SignatureStyle::Stripe, SigningKey::Private(_)) => {
                let style = style_name(style);
                let wanted = match self.key {
                    Some(_) => "a shared secret (whsec_…)",
                    None => "\"hmac\"",
                };
                let message = format!(
                    "must be {wanted} with \"signature_style\" {style:?}, which does not support ed25519; or use the style \"standard\""
                );
                Some((brought, message))
            }
            (SignatureStyle::Standard, SigningKey::Shared(_)) if is_opaque(&reveal(key)) => {
                let error = KeyError::MissingPrefix {
                    expected: "whsec_ or whsk_",
                };
                let message = format!(
                    "cannot be used: {error}; other forms are accepted with \"signature_style\" \"github\" or \"stripe\""
                );
                Some((brought, message))
            }
            (SignatureStyle::GitHub | SignatureStyle::Stripe, SigningKey::Shared(_))
            | (SignatureStyle::Standard, SigningKey::Shared(_) | SigningKey::Private(_)) => None,
        }
    }
}

/// Encrypts an endpoint's keys.
pub(super) fn seal(app: &App, endpoint: &Endpoint, keyring: &SigningKeyring) -> Vec<u8> {
    app.vault.seal(
        &endpoint.tenant,
        endpoint.id,
        Purpose::SigningKeys,
        &keyring.to_stored(),
    )
}

/// Decrypts an endpoint's keys.
pub(super) fn open(app: &App, endpoint: &Endpoint) -> Result<SigningKeyring, Problem> {
    let opened = app
        .vault
        .open(
            &endpoint.tenant,
            endpoint.id,
            Purpose::SigningKeys,
            &endpoint.sealed_keys,
        )
        .map_err(|error| Problem::internal(&error))?;
    SigningKeyring::open(&opened).map_err(|error| Problem::internal(&error))
}

pub(super) async fn show(call: Call) -> Result<Response<Body>, Problem> {
    let row = find(&call).await?;
    let keyring = open(&call.app, &row.endpoint)?;
    let now = call.app.clock.wall();
    Ok(body::answer_secret(
        StatusCode::OK,
        &EndpointSecret::reveal(&keyring, now),
    ))
}

/// Reads the body of a rotation: the requested secret, and the time for which earlier ones stay in use.
pub(crate) fn read_rotation(document: &Value) -> Result<(RequestedSecret, Span), Problem> {
    let mut errors = ValidationErrors::default();
    let mut wanted = RequestedSecret::default();
    let mut overlap = DEFAULT_OVERLAP;
    body_fields::read(document, &mut errors, |fields| {
        wanted = read(fields);
        if let Some(given) = fields.span("overlap", Span::ZERO, MAX_OVERLAP) {
            overlap = given;
        }
    });
    errors.into_result(Some(()))?;
    Ok((wanted, overlap))
}

pub(super) async fn rotate(mut call: Call) -> Result<Response<Body>, Problem> {
    let document = call.take_json().await?;
    let app = &call.app;
    let (wanted, overlap) = read_rotation(&document)?;
    for _ in 0..MAX_TRIES {
        let mut endpoint = find(&call).await?.endpoint;
        let now = app.clock.wall();
        let mut keyring = open(app, &endpoint)?;
        let mut errors = ValidationErrors::default();
        let key = wanted.resolve(endpoint.signature_style, &mut errors);
        let key = errors.into_result(key)?;
        keyring
            .rotate(key, now, overlap)
            .map_err(|error| rotation_problem(error, "endpoint"))?;
        endpoint.sealed_keys = seal(app, &endpoint, &keyring);
        let id = endpoint.id;
        match app.store.replace_endpoint(now, endpoint).await? {
            ReplaceResult::Done => {
                app.engine.changed(id);
                return Ok(body::answer_secret(
                    StatusCode::OK,
                    &EndpointSecret::reveal(&keyring, now),
                ));
            }
            ReplaceResult::Outdated => {}
            ReplaceResult::NotFound => return Err(Problem::missing(ResourceKind::Endpoint)),
        }
    }
    Err(contended())
}

/// Describes a failed rotation of the keys of an endpoint or a tenant.
pub(crate) fn rotation_problem(error: RotationError, owner: &str) -> Problem {
    match error {
        RotationError::Known => {
            Problem::invalid_field("secret", format!("is one of the {owner}'s keys already"))
        }
        RotationError::Full => Problem::new(
            Code::WrongState,
            format!(
                "{MAX_KEYS} secrets of this {owner} are still valid. Rotate with \"overlap\": \"0s\" to invalidate them now, or wait until one expires."
            ),
        ),
    }
}
