//! Endpoints in API responses.

use posthaste_core::lane::{DisableCause, RateLimit, Standing};
use posthaste_engine::credentials::Credentials;
use posthaste_engine::vault::Purpose;
use posthaste_store::{DisabledReason, Endpoint, EndpointRow, Tenant};
use serde::Serialize;
use serde_json::{Map, Number, Value};

use super::auth;
use super::form::style_name;
use crate::App;
use crate::problem::Problem;

/// An endpoint in an API response. Contains its secret only in the response to its creation.
#[derive(Serialize)]
pub(super) struct Shown {
    id: String,
    url: String,
    description: String,
    event_types: Vec<String>,
    status: &'static str,
    disabled_reason: Option<&'static str>,
    retry_policy: Value,
    retry_policy_from: &'static str,
    timeout: String,
    max_in_flight: u32,
    rate_limit: ShownRate,
    ordered: bool,
    headers: Map<String, Value>,
    signature_style: &'static str,
    auth: Option<Value>,
    client_certificate: Option<Value>,
    owner_email: Option<String>,
    created_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) secret: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) public_key: Option<String>,
}

#[derive(Serialize)]
struct ShownRate {
    per_second: Number,
    burst: u32,
}

/// Returns the response for an endpoint of `tenant`.
pub(super) fn shown(app: &App, tenant: &Tenant, row: &EndpointRow) -> Result<Shown, Problem> {
    let endpoint = &row.endpoint;
    let inherited = tenant.default_retry_policy.as_ref();
    let (policy, from) = match (&endpoint.retry_policy, inherited) {
        (Some(policy), _) => (policy.clone(), "endpoint"),
        (None, Some(policy)) => (policy.clone(), "tenant"),
        (None, None) => (app.settings.default_policy.1.clone(), "server"),
    };
    let credentials = open_credentials(app, endpoint)?;
    Ok(Shown {
        id: endpoint.id.to_string(),
        url: endpoint.url.clone(),
        description: endpoint.description.clone(),
        event_types: endpoint
            .event_types
            .iter()
            .map(|one| one.to_string())
            .collect(),
        status: status_name(row.standing),
        disabled_reason: match row.standing {
            Standing::Disabled => row.disabled_reason.map(reason),
            Standing::Enabled | Standing::Paused | Standing::Deleted => None,
        },
        retry_policy: policy,
        retry_policy_from: from,
        timeout: endpoint.timeout.to_string(),
        max_in_flight: endpoint.max_in_flight,
        rate_limit: shown_rate(endpoint.rate),
        ordered: endpoint.ordered,
        headers: open_headers(app, endpoint)?,
        signature_style: style_name(endpoint.signature_style),
        auth: credentials.auth.as_ref().map(auth::shown),
        client_certificate: credentials
            .client_certificate
            .as_ref()
            .map(auth::shown_certificate),
        owner_email: endpoint.owner_email.clone(),
        created_at: endpoint.created_at.to_string(),
        secret: None,
        public_key: None,
    })
}

pub(crate) fn status_name(standing: Standing) -> &'static str {
    match standing {
        Standing::Enabled => "enabled",
        Standing::Paused => "paused",
        Standing::Disabled => "disabled",
        Standing::Deleted => "deleted",
    }
}

fn reason(reason: DisabledReason) -> &'static str {
    match reason {
        DisabledReason::Manual => "manual",
        DisabledReason::Automatic(DisableCause::Gone) => "gone",
        DisabledReason::Automatic(DisableCause::PermanentFailures) => "permanent_failures",
        DisabledReason::Automatic(DisableCause::FailingForDays) => "failing_for_days",
    }
}

/// Formats whole numbers without a decimal point: `50`, not `50.0`.
fn shown_rate(rate: RateLimit) -> ShownRate {
    let whole = rate.per_second as u64;
    let is_whole = whole as f64 == rate.per_second;
    let number = if is_whole {
        Some(Number::from(whole))
    } else {
        Number::from_f64(rate.per_second)
    };
    ShownRate {
        per_second: number.unwrap_or_else(|| Number::from(0)),
        burst: rate.burst,
    }
}

/// Decrypts an endpoint's custom headers. A new endpoint has none yet.
pub(super) fn open_headers(app: &App, endpoint: &Endpoint) -> Result<Map<String, Value>, Problem> {
    if endpoint.sealed_headers.is_empty() {
        return Ok(Map::new());
    }
    let opened = app
        .vault
        .open(
            &endpoint.tenant,
            endpoint.id,
            Purpose::Headers,
            &endpoint.sealed_headers,
        )
        .map_err(|error| Problem::internal(&error))?;
    serde_json::from_slice(&opened)
        .map_err(|_| Problem::internal(&"the headers of an endpoint are not what was sealed"))
}

/// Encrypts an endpoint's custom headers.
pub(super) fn seal_headers(
    app: &App,
    endpoint: &Endpoint,
    headers: &Map<String, Value>,
) -> Vec<u8> {
    let plain = serde_json::to_vec(headers).expect("plain data");
    app.vault
        .seal(&endpoint.tenant, endpoint.id, Purpose::Headers, &plain)
}

/// Decrypts an endpoint's credentials.
pub(super) fn open_credentials(app: &App, endpoint: &Endpoint) -> Result<Credentials, Problem> {
    if endpoint.sealed_credentials.is_empty() {
        return Ok(Credentials::default());
    }
    let opened = app
        .vault
        .open(
            &endpoint.tenant,
            endpoint.id,
            Purpose::Credentials,
            &endpoint.sealed_credentials,
        )
        .map_err(|error| Problem::internal(&error))?;
    Credentials::open(&opened).map_err(|error| Problem::internal(&error))
}

/// Encrypts an endpoint's credentials. Returns nothing if there are none.
pub(super) fn seal_credentials(
    app: &App,
    endpoint: &Endpoint,
    credentials: &Credentials,
) -> Vec<u8> {
    if credentials.is_empty() {
        return Vec::new();
    }
    let plain = credentials.keep();
    app.vault
        .seal(&endpoint.tenant, endpoint.id, Purpose::Credentials, &plain)
}
