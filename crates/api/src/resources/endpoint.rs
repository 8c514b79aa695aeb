//! The resource of endpoints, without their secrets.
//!
//! [`Endpoint`] has the configured settings of an endpoint, the settings in effect, and the origin of those that can be
//! inherited. [`CreatedEndpoint`] adds the signing secret, which only the response to the creation contains.

use std::ops::Deref;

use posthaste_core::lane::{
    DisableCause, EndpointStatus, MAX_BURST, MAX_PER_SECOND, MIN_PER_SECOND, ProtectionOverrides,
    RateLimit,
};
use posthaste_core::sign::SignatureStyle;
use posthaste_engine::credentials::{Auth, ClientAuthentication, ClientCertificate, OAuth2};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};

use super::headers::Headers;
use super::schema::{
    Schema, choice, described, endpoint_id, endpoint_status, named, nullable, nullable_text,
    nullable_time, object, object_requiring, reference, text, time, with_examples,
};

/// An endpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Its id.
    pub id: String,
    /// The URL that events are delivered to.
    pub url: String,
    /// A note for people.
    pub description: String,
    /// Its subscription; empty for all types.
    pub event_types: Vec<String>,
    /// Its status.
    pub status: EndpointStatus,
    /// The reason why it is disabled.
    pub disabled_reason: Option<DisabledReason>,
    /// Its effective retry policy, as it was written.
    pub retry_policy: Value,
    /// The origin of that policy.
    pub retry_policy_from: SettingOrigin,
    /// Maximum duration of an attempt, such as `30s`.
    pub timeout: String,
    /// The origin of the timeout.
    pub timeout_from: SettingOrigin,
    /// Maximum number of attempts in flight.
    pub max_in_flight: u32,
    /// The origin of the in-flight limit.
    pub max_in_flight_from: SettingOrigin,
    /// Its rate limit.
    pub rate_limit: EndpointRateLimit,
    /// The origin of the rate limit.
    pub rate_limit_from: SettingOrigin,
    /// Its own thresholds of the breaker and of automatic disabling.
    pub protection: Option<ProtectionOverrides>,
    /// True if deliveries with the same ordering key are sent one after the other.
    pub ordered: bool,
    /// Its custom headers.
    pub headers: Headers,
    /// Its signature style: `standard`, `github` or `stripe`.
    pub signature_style: String,
    /// Its credentials, without secrets.
    pub auth: Option<EndpointAuth>,
    /// Its client certificate.
    pub client_certificate: Option<CertificateSummary>,
    /// Email address of its owner.
    pub owner_email: Option<String>,
    /// Status of that address; `None` without one.
    #[serde(default)]
    pub owner_email_status: Option<OwnerEmailStatus>,
    /// The time at which it was created.
    pub created_at: String,
}

/// A new endpoint with its signing secret. Reads like the endpoint.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct CreatedEndpoint {
    /// All other fields.
    #[serde(flatten)]
    pub endpoint: Endpoint,
    /// The signing secret.
    pub secret: String,
    /// The public key that receivers verify with, if the secret is a key pair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public_key: Option<String>,
}

impl Deref for CreatedEndpoint {
    type Target = Endpoint;

    fn deref(&self) -> &Endpoint {
        &self.endpoint
    }
}

/// Status of an owner's email address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OwnerEmailStatus {
    /// It gets emails: its owner confirmed it, an admin key set it, or the configuration allows its domain.
    Confirmed,
    /// It gets no emails until its owner has confirmed it.
    Pending,
}

/// The reason why an endpoint is disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DisabledReason {
    /// A caller disabled it.
    Manual,
    /// The receiver answered 410.
    Gone,
    /// Too many deliveries in a row failed permanently.
    PermanentFailures,
    /// All attempts failed for days.
    FailingForDays,
}

impl From<posthaste_store::DisabledReason> for DisabledReason {
    fn from(reason: posthaste_store::DisabledReason) -> DisabledReason {
        use posthaste_store::DisabledReason as Stored;
        match reason {
            Stored::Manual => DisabledReason::Manual,
            Stored::Automatic(DisableCause::Gone) => DisabledReason::Gone,
            Stored::Automatic(DisableCause::PermanentFailures) => DisabledReason::PermanentFailures,
            Stored::Automatic(DisableCause::FailingForDays) => DisabledReason::FailingForDays,
        }
    }
}

/// The origin of an endpoint's retry policy, or of one of its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SettingOrigin {
    /// Set for the endpoint.
    Endpoint,
    /// The default of the tenant.
    Tenant,
    /// The default of the server.
    Server,
}

/// The rate limit of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndpointRateLimit {
    /// Sustained rate, in requests per second.
    #[serde(serialize_with = "whole_without_point")]
    pub per_second: f64,
    /// Burst size: requests allowed at once after an idle period.
    pub burst: u32,
}

impl From<RateLimit> for EndpointRateLimit {
    fn from(rate: RateLimit) -> EndpointRateLimit {
        EndpointRateLimit {
            per_second: rate.per_second,
            burst: rate.burst,
        }
    }
}

/// Writes whole numbers without a decimal point: `50`, not `50.0`. Writes 0 for what is not a number.
fn whole_without_point<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    let whole = *number as u64;
    if whole as f64 == *number || !number.is_finite() {
        serializer.serialize_u64(if number.is_finite() { whole } else { 0 })
    } else {
        serializer.serialize_f64(*number)
    }
}

/// The credentials of an endpoint, without secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum EndpointAuth {
    /// User name and password (RFC 7617).
    Basic {
        /// The user name; `None` if the password is empty, because then the name is the secret.
        username: Option<String>,
    },
    /// A token.
    Bearer,
    /// Client credentials (RFC 6749).
    OAuth2 {
        /// The URL that tokens are fetched from.
        token_url: String,
        /// The client id.
        client_id: String,
        /// The scope.
        scope: Option<String>,
        /// The audience.
        audience: Option<String>,
        /// The position of id and secret in a token request.
        client_authentication: ClientAuthentication,
    },
}

impl EndpointAuth {
    /// Returns the kind, as in JSON.
    pub fn kind(&self) -> &'static str {
        match self {
            EndpointAuth::Basic { .. } => "basic",
            EndpointAuth::Bearer => "bearer",
            EndpointAuth::OAuth2 { .. } => "oauth2",
        }
    }
}

impl From<&Auth> for EndpointAuth {
    fn from(auth: &Auth) -> EndpointAuth {
        match auth {
            Auth::Basic { username, password } => EndpointAuth::Basic {
                username: (!password.is_empty()).then(|| username.clone()),
            },
            Auth::Bearer { .. } => EndpointAuth::Bearer,
            Auth::OAuth2(OAuth2 {
                token_url,
                client_id,
                client_secret: _,
                scope,
                audience,
                client_authentication,
            }) => EndpointAuth::OAuth2 {
                token_url: token_url.clone(),
                client_id: client_id.clone(),
                scope: scope.clone(),
                audience: audience.clone(),
                client_authentication: *client_authentication,
            },
        }
    }
}

/// The client certificate of an endpoint, without its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateSummary {
    /// `sha256:` and the hash of the certificate.
    pub fingerprint: Option<String>,
    /// The time at which it expires.
    pub expires_at: Option<String>,
}

impl From<&ClientCertificate> for CertificateSummary {
    fn from(certificate: &ClientCertificate) -> CertificateSummary {
        let summary = certificate.summary();
        let expires_at = summary.as_ref().and_then(|summary| summary.expires_at);
        CertificateSummary {
            fingerprint: summary.map(|summary| summary.fingerprint),
            expires_at: expires_at.map(|at| at.to_string()),
        }
    }
}

/// Every signature style.
pub(crate) const SIGNATURE_STYLES: [SignatureStyle; 3] = [
    SignatureStyle::Standard,
    SignatureStyle::GitHub,
    SignatureStyle::Stripe,
];

/// Returns the name of a signature style in the API.
pub(crate) fn style_name(style: SignatureStyle) -> &'static str {
    match style {
        SignatureStyle::Standard => "standard",
        SignatureStyle::GitHub => "github",
        SignatureStyle::Stripe => "stripe",
    }
}

/// The description of `public_key` in schemas.
pub(super) const PUBLIC_KEY: &str =
    "The public key `whpk_…` that receivers verify with, if the secret is an ed25519 key.";
/// A signing secret for examples.
pub(super) const EXAMPLE_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// Returns the schemas of [`Endpoint`] and [`CreatedEndpoint`].
pub(crate) fn schemas() -> [Schema; 2] {
    let endpoint = object(properties());
    let mut created = properties();
    created["secret"] = json!({"type": "string", "description": "The signing secret. Also available from `…/secret`."});
    let mut created = object(created);
    created["properties"]["public_key"] = json!({"type": "string", "description": PUBLIC_KEY});
    let mut created_example = example();
    created_example["secret"] = json!(EXAMPLE_SECRET);
    [
        Schema {
            name: "Endpoint",
            shape: with_examples(endpoint, json!([example()])),
        },
        Schema {
            name: "CreatedEndpoint",
            shape: with_examples(created, json!([created_example])),
        },
    ]
}

fn properties() -> Value {
    json!({
        "id": endpoint_id(),
        "url": text(),
        "description": text(),
        "event_types": {"type": "array", "items": text()},
        "status": endpoint_status(),
        "disabled_reason": nullable(choice(
            "DisabledReason",
            ["manual", "gone", "permanent_failures", "failing_for_days"],
        )),
        "retry_policy": reference("RetryPolicy"),
        "retry_policy_from": origin_schema(),
        "timeout": text(),
        "timeout_from": origin_schema(),
        "max_in_flight": {"type": "integer"},
        "max_in_flight_from": origin_schema(),
        "rate_limit": rate_limit_schema(),
        "rate_limit_from": origin_schema(),
        "protection": nullable(reference("Protection")),
        "ordered": {"type": "boolean"},
        "headers": named("Headers", json!({"type": "object", "additionalProperties": text()})),
        "signature_style": signature_style(),
        "auth": auth_schema(),
        "client_certificate": certificate_schema(),
        "owner_email": nullable_text(),
        "owner_email_status": described(
            nullable(choice("OwnerEmailStatus", ["confirmed", "pending"])),
            "`pending`: the address gets no emails until its owner opens the confirmation link. `null` without an address.",
        ),
        "created_at": time(),
    })
}

/// Returns the schema of a rate limit, in requests and responses.
pub(crate) fn rate_limit_schema() -> Value {
    let shape = object_requiring(
        &["per_second"],
        json!({
            "per_second": {"type": "number", "minimum": MIN_PER_SECOND, "maximum": MAX_PER_SECOND},
            "burst": {"type": ["integer", "null"], "minimum": 1, "maximum": MAX_BURST},
        }),
    );
    named("RateLimit", shape)
}

/// Returns the schema of a signature style.
pub(crate) fn signature_style() -> Value {
    choice("SignatureStyle", SIGNATURE_STYLES.map(style_name))
}

/// Returns the schema of the position of id and secret in a token request.
pub(crate) fn client_authentication() -> Value {
    choice("ClientAuthentication", ["basic", "body"])
}

fn origin_schema() -> Value {
    choice("SettingOrigin", ["endpoint", "tenant", "server"])
}

fn auth_schema() -> Value {
    let basic = object(json!({
        "kind": {"const": "basic"},
        "username": {"type": ["string", "null"], "description": "`null` if the password is empty: the user name is then the secret."},
    }));
    let oauth2 = object(json!({
        "kind": {"const": "oauth2"},
        "token_url": text(),
        "client_id": text(),
        "scope": nullable_text(),
        "audience": nullable_text(),
        "client_authentication": client_authentication(),
    }));
    let union = json!({
        "description": "The credentials of an endpoint, without their secrets.",
        "anyOf": [
            named("BasicAuth", basic),
            named("BearerAuth", object(json!({"kind": {"const": "bearer"}}))),
            named("OAuth2Auth", oauth2),
        ],
    });
    nullable(named("EndpointAuth", union))
}

fn certificate_schema() -> Value {
    nullable(named(
        "ClientCertificateSummary",
        object(json!({
            "fingerprint": {"type": ["string", "null"], "description": "`sha256:` and the hash of the certificate."},
            "expires_at": nullable_time(),
        })),
    ))
}

fn example() -> Value {
    json!({
        "id": "ep_01jd2kq8z3w5x7y9a1b2c3d4e5",
        "url": "https://example.com/hooks",
        "description": "",
        "event_types": ["invoice.*"],
        "status": "enabled",
        "disabled_reason": null,
        "retry_policy": {"preset": "recommended"},
        "retry_policy_from": "server",
        "timeout": "30s",
        "timeout_from": "tenant",
        "max_in_flight": 10,
        "max_in_flight_from": "server",
        "rate_limit": {"per_second": 100, "burst": 200},
        "rate_limit_from": "endpoint",
        "protection": {"breaker": {"refusals": 20}},
        "ordered": false,
        "headers": {"X-Team": "billing"},
        "signature_style": "standard",
        "auth": {"kind": "basic", "username": "posthaste"},
        "client_certificate": null,
        "owner_email": null,
        "owner_email_status": null,
        "created_at": "2026-01-02T03:04:05.678Z",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_rates_have_no_decimal_point() {
        let text = |per_second| {
            let rate = EndpointRateLimit {
                per_second,
                burst: 1,
            };
            serde_json::to_string(&rate).expect("plain data")
        };
        assert_eq!(text(50.0), r#"{"per_second":50,"burst":1}"#);
        assert_eq!(text(0.5), r#"{"per_second":0.5,"burst":1}"#);
        assert_eq!(text(f64::NAN), r#"{"per_second":0,"burst":1}"#);
    }

    #[test]
    fn a_user_name_without_a_password_is_not_shown() {
        let auth = |password: &str| {
            EndpointAuth::from(&Auth::Basic {
                username: "name".to_owned(),
                password: password.to_owned(),
            })
        };
        assert_eq!(auth(""), EndpointAuth::Basic { username: None });
        let username = Some("name".to_owned());
        assert_eq!(auth("secret"), EndpointAuth::Basic { username });
    }
}
