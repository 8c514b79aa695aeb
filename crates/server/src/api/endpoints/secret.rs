//! An endpoint's signing secret: shown on explicit request, and changed for a new one.

use axum::body::Body;
use http::{Response, StatusCode};
use posthaste_core::mistakes::Mistakes;
use posthaste_core::sign::{MAX_KEYS, SigningKey, VerifyingKey};
use posthaste_core::time::{Span, Timestamp};
use posthaste_store::{Endpoint, Replaced};
use serde::Serialize;

use super::find;
use crate::api::call::Call;
use crate::api::code::Code;
use crate::api::problem::{Noun, Problem};
use crate::api::tenants::{MAX_TRIES, contended};
use crate::api::{App, body, form};
use crate::chance::fresh_secret;
use crate::signing_keys::{RotationError, SigningKeyring, reveal};
use crate::vault::Purpose;

/// How long earlier secrets sign along, unless the caller says otherwise.
pub(super) const DEFAULT_OVERLAP: Span = Span::from_hours(24);
/// The longest that earlier secrets may sign along.
pub(super) const MAX_OVERLAP: Span = Span::from_days(30);

#[derive(Serialize)]
struct ShownSecret {
    secret: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    public_key: Option<String>,
    previous: Vec<Previous>,
}

#[derive(Serialize)]
struct Previous {
    secret: String,
    valid_until: String,
}

fn shown(keyring: &SigningKeyring, now: Timestamp) -> ShownSecret {
    let public_key = match keyring.newest().verifying_key() {
        VerifyingKey::Shared(_) => None,
        VerifyingKey::Public(key) => Some(key.to_string()),
    };
    let earlier = keyring.earlier(now).map(|(key, until)| Previous {
        secret: reveal(key),
        valid_until: until.to_string(),
    });
    ShownSecret {
        secret: reveal(keyring.newest()),
        public_key,
        previous: earlier.collect(),
    }
}

/// Seals an endpoint's keys.
pub(super) fn seal(app: &App, endpoint: &Endpoint, keyring: &SigningKeyring) -> Vec<u8> {
    app.vault.seal(
        &endpoint.tenant,
        endpoint.id,
        Purpose::SigningKeys,
        &keyring.keep(),
    )
}

fn open(app: &App, endpoint: &Endpoint) -> Result<SigningKeyring, Problem> {
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
    Ok(body::answer_secret(StatusCode::OK, &shown(&keyring, now)))
}

pub(super) async fn rotate(mut call: Call) -> Result<Response<Body>, Problem> {
    let document = call.take_json().await?;
    let app = &call.app;
    let mut mistakes = Mistakes::default();
    let mut key = None;
    let mut overlap = DEFAULT_OVERLAP;
    form::read(&document, &mut mistakes, |fields| {
        match fields.text("secret").map(SigningKey::parse) {
            None => {}
            Some(Ok(given)) => key = Some(given),
            Some(Err(error)) => fields.wrong("secret", format!("is no secret: {error}")),
        }
        if let Some(given) = fields.span("overlap", Span::ZERO, MAX_OVERLAP) {
            overlap = given;
        }
    });
    mistakes.into_result(Some(()))?;
    let key = key.unwrap_or_else(|| SigningKey::Shared(fresh_secret()));
    for _ in 0..MAX_TRIES {
        let mut endpoint = find(&call).await?.endpoint;
        let now = app.clock.wall();
        let mut keyring = open(app, &endpoint)?;
        keyring.rotate(key.clone(), now, overlap).map_err(refusal)?;
        endpoint.sealed_keys = seal(app, &endpoint, &keyring);
        let id = endpoint.id;
        match app.store.replace_endpoint(now, endpoint).await? {
            Replaced::Done => {
                app.engine.changed(id);
                return Ok(body::answer_secret(StatusCode::OK, &shown(&keyring, now)));
            }
            Replaced::Outdated => {}
            Replaced::Gone => return Err(Problem::missing(Noun::Endpoint)),
        }
    }
    Err(contended())
}

fn refusal(error: RotationError) -> Problem {
    match error {
        RotationError::Known => Problem::invalid_field("secret", error.to_string()),
        RotationError::Full => Problem::new(
            Code::WrongState,
            format!(
                "{MAX_KEYS} secrets of this endpoint are still in use. Rotate with \"overlap\": \"0s\" to end all of them now, or wait until one has ended."
            ),
        ),
    }
}
