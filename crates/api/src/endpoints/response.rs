//! Endpoints in API responses.
//!
//! [`describe`] makes the resource from a stored endpoint, with the policy and the limits in effect and where each
//! comes from. It contains no secret: of credentials it shows only what can identify them.

use posthaste_core::lane::{EndpointLimits, EndpointStatus};
use posthaste_engine::credentials::Credentials;
use posthaste_engine::vault::Purpose;
use posthaste_store::{Endpoint, EndpointRow, Tenant};
use serde_json::{Map, Value};

use super::owner;
use crate::App;
use crate::problem::Problem;
use crate::resources::{self, Headers, SettingOrigin, style_name};

/// Describes an endpoint of `tenant`.
pub(super) fn describe(
    app: &App,
    tenant: &Tenant,
    row: &EndpointRow,
) -> Result<resources::Endpoint, Problem> {
    let endpoint = &row.endpoint;
    let inherited = tenant.default_retry_policy.as_ref();
    let (retry_policy, retry_policy_from) = match (&endpoint.retry_policy, inherited) {
        (Some(policy), _) => (policy.clone(), SettingOrigin::Endpoint),
        (None, Some(policy)) => (policy.clone(), SettingOrigin::Tenant),
        (None, None) => (app.settings.default_policy.1.clone(), SettingOrigin::Server),
    };
    let own = &endpoint.limits;
    let defaults = &tenant.endpoint_defaults;
    let limits = configured_limits(app, tenant, endpoint);
    let credentials = open_credentials(app, endpoint)?;
    let event_types = endpoint.event_types.iter();
    Ok(resources::Endpoint {
        id: endpoint.id.to_string(),
        url: endpoint.url.clone(),
        description: endpoint.description.clone(),
        event_types: event_types.map(|one| one.to_string()).collect(),
        status: row.status,
        disabled_reason: match row.status {
            EndpointStatus::Disabled => row.disabled_reason.map(Into::into),
            EndpointStatus::Enabled | EndpointStatus::Paused | EndpointStatus::Deleted => None,
        },
        retry_policy,
        retry_policy_from,
        timeout: limits.timeout.to_string(),
        timeout_from: origin(own.timeout.is_some(), defaults.timeout.is_some()),
        max_in_flight: limits.max_in_flight,
        max_in_flight_from: origin(
            own.max_in_flight.is_some(),
            defaults.max_in_flight.is_some(),
        ),
        rate_limit: limits.rate_limit.into(),
        rate_limit_from: origin(own.rate_limit.is_some(), defaults.rate_limit.is_some()),
        protection: Some(endpoint.protection).filter(|own| !own.is_empty()),
        ordered: endpoint.ordered,
        headers: as_text(&open_headers(app, endpoint)?),
        signature_style: style_name(endpoint.signature_style).to_owned(),
        auth: credentials.auth.as_ref().map(Into::into),
        client_certificate: credentials.client_certificate.as_ref().map(Into::into),
        owner_email: endpoint.owner_email.clone(),
        owner_email_status: owner::status(app, endpoint),
        created_at: endpoint.created_at.to_string(),
    })
}

/// Returns the configured limits of an endpoint: its own, or else inherited.
pub(super) fn configured_limits(app: &App, tenant: &Tenant, endpoint: &Endpoint) -> EndpointLimits {
    let defaults = &tenant.endpoint_defaults;
    EndpointLimits::resolve(&endpoint.limits, defaults, &app.settings.endpoint_defaults)
}

/// Returns the origin of a setting that the endpoint or its tenant may set.
fn origin(endpoint_sets: bool, tenant_sets: bool) -> SettingOrigin {
    match (endpoint_sets, tenant_sets) {
        (true, _) => SettingOrigin::Endpoint,
        (false, true) => SettingOrigin::Tenant,
        (false, false) => SettingOrigin::Server,
    }
}

/// Returns headers as text. Only text is accepted as a value.
fn as_text(headers: &Map<String, Value>) -> Headers {
    let headers = headers.iter().map(|(name, value)| {
        let text = value.as_str().unwrap_or_default();
        (name.clone(), text.to_owned())
    });
    Headers(headers.collect())
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
        .map_err(|_| Problem::internal(&"the encrypted headers of an endpoint cannot be decoded"))
}

/// Encrypts an endpoint's custom headers.
pub(super) fn seal_headers(
    app: &App,
    endpoint: &Endpoint,
    headers: &Map<String, Value>,
) -> Vec<u8> {
    let plain = serde_json::to_vec(headers).expect("headers are plain data");
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
    let plain = credentials.to_stored();
    app.vault
        .seal(&endpoint.tenant, endpoint.id, Purpose::Credentials, &plain)
}
