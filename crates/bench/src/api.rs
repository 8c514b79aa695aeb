//! A client of the server's API for benchmarks.
//!
//! It creates tenants, endpoints and events through the same API as an application, with an admin key. Every wait has a
//! limit, and an unexpected answer ends the run.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{Method, Request};
use http_body_util::Full;
use posthaste_core::lane::RateLimit;
use posthaste_core::policy::MAX_ATTEMPTS;
use posthaste_egress::Roots;
use posthaste_egress::trusted_client::{self, BaseUrl, TrustedConnection};
use serde_json::{Value, json};

use super::error::BenchError;

/// Maximum time to wait for a response.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// Maximum length of an error response in a failure message.
const MAX_ERROR_CHARS: usize = 300;

/// The settings of an endpoint to create.
#[derive(Clone, Debug)]
pub struct NewEndpoint {
    /// URL of the endpoint.
    pub url: String,
    /// Subscription.
    pub event_types: Vec<String>,
    /// Limits; the server's defaults if `None`.
    pub limits: Option<Limits>,
    /// Retry policy; the server's default if `None`.
    pub retry_policy: Option<Value>,
}

/// The limits of an endpoint to create.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Maximum number of attempts in flight.
    pub max_in_flight: u32,
    /// Rate limit.
    pub rate: RateLimit,
}

/// A created endpoint.
#[derive(Clone, Debug)]
pub struct CreatedEndpoint {
    /// Its id.
    pub id: String,
    /// Its secret, for verifying signatures.
    pub secret: String,
}

/// A connection to the API with an admin key.
pub struct Api {
    connection: TrustedConnection,
    key: String,
}

impl Api {
    /// Connects to the server.
    pub async fn connect(address: SocketAddr, key: &str) -> Result<Api, BenchError> {
        let origin = BaseUrl::plain(address);
        let connected = trusted_client::connect(&origin, &Roots::none(), MAX_WAIT).await;
        let connection = connected.map_err(|error| BenchError::Unanswered {
            what: "connecting to the server".to_owned(),
            why: error.to_string(),
        })?;
        Ok(Api {
            connection,
            key: key.to_owned(),
        })
    }

    async fn ask(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Bytes, BenchError> {
        let what = format!("{method} {path}");
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(AUTHORIZATION, format!("Bearer {}", self.key))
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| BenchError::Usage(error.to_string()))?;
        let answered = self.connection.send(request, MAX_WAIT).await;
        let (head, answer) = answered
            .map_err(|error| BenchError::Unanswered {
                what: what.clone(),
                why: error.to_string(),
            })?
            .into_parts();
        if head.status.is_success() {
            return Ok(answer);
        }
        let answer = String::from_utf8_lossy(&answer);
        Err(BenchError::Refused {
            what,
            status: head.status.as_u16(),
            answer: answer.chars().take(MAX_ERROR_CHARS).collect(),
        })
    }

    /// Sends `PATCH` to a path.
    pub async fn patch(&mut self, path: &str, body: &Value) -> Result<(), BenchError> {
        self.ask(Method::PATCH, path, Some(body)).await.map(|_| ())
    }

    /// Sends `POST` to a path and returns the answer; `null` if it is empty.
    pub async fn post(&mut self, path: &str, body: Option<&Value>) -> Result<Value, BenchError> {
        let answer = self.ask(Method::POST, path, body).await?;
        if answer.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&answer).map_err(|error| BenchError::Unanswered {
            what: format!("POST {path}"),
            why: format!("its answer is not JSON: {error}"),
        })
    }

    /// Creates a tenant that may have this number of endpoints. Returns an API key for it.
    pub async fn make_tenant(
        &mut self,
        name: &str,
        endpoints: usize,
    ) -> Result<String, BenchError> {
        let limits = json!({
            "endpoints": endpoints + 1,
            "events_per_second": 1_000_000,
            "deliveries_per_second": 100_000_000,
            "max_attempts": MAX_ATTEMPTS,
        });
        let tenant = json!({"id": name, "name": "Benchmark", "limits": limits});
        self.post("/v1/tenants", Some(&tenant)).await?;
        let path = format!("/v1/tenants/{name}/keys");
        let key = self
            .post(&path, Some(&json!({"name": "producers"})))
            .await?;
        text(&key, "key", &path)
    }

    /// Creates an endpoint.
    pub async fn make_endpoint(
        &mut self,
        tenant: &str,
        new_endpoint: &NewEndpoint,
    ) -> Result<CreatedEndpoint, BenchError> {
        let path = format!("/v1/tenants/{tenant}/endpoints");
        let mut endpoint = json!({
            "url": new_endpoint.url,
            "event_types": new_endpoint.event_types,
        });
        if let Some(limits) = new_endpoint.limits {
            endpoint["max_in_flight"] = limits.max_in_flight.into();
            endpoint["rate_limit"] = json!(limits.rate);
        }
        if let Some(policy) = &new_endpoint.retry_policy {
            endpoint["retry_policy"] = policy.clone();
        }
        let made = self.post(&path, Some(&endpoint)).await?;
        Ok(CreatedEndpoint {
            id: text(&made, "id", &path)?,
            secret: text(&made, "secret", &path)?,
        })
    }

    /// Sends `GET` to a path and returns the answer.
    pub async fn get(&mut self, path: &str) -> Result<Value, BenchError> {
        let answer = self.ask(Method::GET, path, None).await?;
        serde_json::from_slice(&answer).map_err(|error| BenchError::Unanswered {
            what: format!("GET {path}"),
            why: format!("its answer is not JSON: {error}"),
        })
    }

    /// Loads a page and returns its length in bytes.
    pub async fn page(&mut self, path: &str) -> Result<usize, BenchError> {
        let answer = self.ask(Method::GET, path, None).await?;
        Ok(answer.len())
    }

    /// Creates a link to a tenant's portal and returns its path.
    pub async fn portal(&mut self, tenant: &str) -> Result<String, BenchError> {
        let path = format!("/v1/tenants/{tenant}/portal-links");
        let made = self.post(&path, Some(&json!({}))).await?;
        let url = text(&made, "url", &path)?;
        // The link contains the public URL, but the benchmark connects directly, so only the path is used.
        let place = url.find("/portal/").unwrap_or_default();
        Ok(url[place..].to_owned())
    }

    /// Pauses or resumes an endpoint: `verb` is `pause` or `resume`.
    pub async fn turn(
        &mut self,
        tenant: &str,
        endpoint: &str,
        verb: &str,
    ) -> Result<(), BenchError> {
        let path = format!("/v1/tenants/{tenant}/endpoints/{endpoint}/{verb}");
        self.post(&path, None).await.map(|_| ())
    }

    /// Loads the server's metrics.
    pub async fn metrics(&mut self) -> Result<String, BenchError> {
        let answer = self.ask(Method::GET, "/metrics", None).await?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    /// Checks that the server is ready for requests.
    pub async fn ready(&mut self) -> Result<(), BenchError> {
        self.ask(Method::GET, "/readyz", None).await.map(|_| ())
    }
}

fn text(answer: &Value, field: &str, path: &str) -> Result<String, BenchError> {
    let found = answer.get(field).and_then(Value::as_str);
    found
        .map(str::to_owned)
        .ok_or_else(|| BenchError::Unanswered {
            what: format!("POST {path}"),
            why: format!("its answer has no {field}"),
        })
}
