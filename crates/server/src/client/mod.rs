//! Client of the HTTP API, for the command line and the demo.
//!
//! [`ApiClient`] sends an [`ApiRequest`] over one connection, which it opens again when it was lost, and returns the
//! [`ApiResponse`]. Every wait is bounded. An error response of the API becomes [`ClientError::Refused`] with the
//! `Problem` that the server described.

pub mod error;

pub use error::ClientError;

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::Full;
use posthaste_egress::trusted_client::{self, BaseUrl, TrustedConnection};
use posthaste_egress::{BundleError, Roots};
use serde_json::Value;

use error::Problem;

/// Maximum time to connect, and maximum time to wait for the response.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum number of tries of a request that polls an object.
const MAX_TRIES: u32 = 5;
/// Delay before the next try if the server cannot be reached.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// A request to the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiRequest {
    /// HTTP method.
    pub method: Method,
    /// Path and query.
    pub target: String,
    /// JSON body.
    pub body: Option<String>,
}

impl ApiRequest {
    /// Creates a `GET` request.
    pub fn get(target: impl Into<String>) -> ApiRequest {
        ApiRequest {
            method: Method::GET,
            target: target.into(),
            body: None,
        }
    }

    /// Creates a `POST` request with a JSON body.
    pub fn post(target: impl Into<String>, body: impl ToString) -> ApiRequest {
        ApiRequest {
            method: Method::POST,
            target: target.into(),
            body: Some(body.to_string()),
        }
    }
}

/// A response of the API.
#[derive(Clone, Debug)]
pub struct ApiResponse {
    /// The unchanged body.
    pub text: String,
    /// The parsed body; `Null` if it is empty.
    pub value: Value,
}

/// A client of the API.
pub struct ApiClient {
    origin: BaseUrl,
    roots: Roots,
    bearer: HeaderValue,
    connection: Option<TrustedConnection>,
}

impl ApiClient {
    /// Creates a client that authenticates with `key` and trusts the public certificate authorities.
    pub fn new(origin: BaseUrl, key: Option<&str>) -> Result<ApiClient, ClientError> {
        let key = key.map(str::trim).unwrap_or_default();
        if key.is_empty() {
            return Err(ClientError::NoKey);
        }
        // The error message must not contain the key.
        let bearer = HeaderValue::from_str(&format!("Bearer {key}"));
        let mut bearer = bearer.map_err(|_| ClientError::InvalidKey)?;
        bearer.set_sensitive(true);
        Ok(ApiClient {
            origin,
            roots: Roots::mozilla(),
            bearer,
            connection: None,
        })
    }

    /// Trusts the certificate authorities of a PEM bundle in addition.
    pub fn with_ca_bundle(self, pem: &[u8]) -> Result<ApiClient, BundleError> {
        let roots = self.roots.with_bundle(pem)?;
        Ok(ApiClient { roots, ..self })
    }

    /// Sends a request and waits for the response.
    pub async fn send(&mut self, request: &ApiRequest) -> Result<ApiResponse, ClientError> {
        let request = self.http_request(request);
        let result = match self.connected().await {
            Ok(connection) => connection.send(request, TIMEOUT).await,
            Err(error) => Err(error),
        };
        let response = result.map_err(|error| {
            self.connection = None;
            ClientError::Unreachable {
                origin: self.origin.clone(),
                error,
            }
        })?;
        let (status, body) = (response.status(), response.body());
        if !status.is_success() {
            return Err(match Problem::read(status, response.headers(), body) {
                Some(problem) => ClientError::Refused(Box::new(problem)),
                None => self.not_the_api(status),
            });
        }
        let text = std::str::from_utf8(body).map_err(|_| self.not_the_api(status))?;
        let value = match text.trim() {
            "" => Value::Null,
            json => serde_json::from_str(json).map_err(|_| self.not_the_api(status))?,
        };
        Ok(ApiResponse {
            text: text.trim_end().to_owned(),
            value,
        })
    }

    /// Sends a request that polls an object. Retries a few times if the server is busy or cannot be reached.
    pub async fn send_with_retries(
        &mut self,
        request: &ApiRequest,
    ) -> Result<ApiResponse, ClientError> {
        for _ in 1..MAX_TRIES {
            match self.send(request).await {
                Err(ClientError::Refused(problem)) if problem.retry_after().is_some() => {
                    let delay = problem.retry_after().unwrap_or_default();
                    tokio::time::sleep(delay.min(TIMEOUT)).await;
                }
                Err(ClientError::Unreachable { .. }) => tokio::time::sleep(RETRY_DELAY).await,
                result => return result,
            }
        }
        self.send(request).await
    }

    fn not_the_api(&self, status: StatusCode) -> ClientError {
        ClientError::NotTheApi {
            origin: self.origin.clone(),
            status,
        }
    }

    fn http_request(&self, request: &ApiRequest) -> Request<Full<Bytes>> {
        let mut builder = Request::builder()
            .method(request.method.clone())
            .uri(format!("{}{}", self.origin.base(), request.target))
            .header(AUTHORIZATION, self.bearer.clone())
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, concat!("posthaste/", env!("CARGO_PKG_VERSION")));
        if request.body.is_some() {
            builder = builder.header(CONTENT_TYPE, "application/json");
        }
        let body = request.body.clone().unwrap_or_default();
        builder
            .body(Full::from(body))
            .expect("the target is a valid URI, because its parts are escaped")
    }

    async fn connected(
        &mut self,
    ) -> Result<&mut TrustedConnection, trusted_client::TrustedClientError> {
        let open = self.connection.take().filter(|open| !open.is_closed());
        let connection = match open {
            Some(connection) => connection,
            None => trusted_client::connect(&self.origin, &self.roots, TIMEOUT).await?,
        };
        Ok(self.connection.insert(connection))
    }
}
