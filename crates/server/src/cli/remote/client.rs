//! A client of the API over one connection.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Method, Request};
use http_body_util::Full;
use posthaste_egress::Roots;
use posthaste_egress::operator::{self, Connection, Origin};
use serde_json::Value;

use super::args::ConnectArgs;
use super::trouble::Problem;
use super::{ApiCommandError, input};

/// Maximum time to connect, and maximum time to wait for the response.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum number of tries of a request that follows an object.
const MAX_TRIES: u32 = 5;
/// Delay before the next try if the server cannot be reached.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// A request to the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// HTTP method.
    pub method: Method,
    /// Path and query.
    pub target: String,
    /// JSON body.
    pub body: Option<String>,
}

impl Call {
    /// Creates a `GET` request.
    pub fn get(target: impl Into<String>) -> Call {
        Call {
            method: Method::GET,
            target: target.into(),
            body: None,
        }
    }
}

/// A response of the API.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The unchanged body.
    pub text: String,
    /// The parsed body; `Null` if it is empty.
    pub value: Value,
}

/// A client of the API.
pub struct Client {
    origin: Origin,
    roots: Roots,
    bearer: HeaderValue,
    connection: Option<Connection>,
}

impl Client {
    /// Creates a client from the connection options.
    pub fn new(connect: &ConnectArgs) -> Result<Client, ApiCommandError> {
        let key = connect.key.as_deref().map(str::trim).unwrap_or_default();
        if key.is_empty() {
            return Err(ApiCommandError::NoKey);
        }
        // The error message must not contain the key.
        let mut bearer = HeaderValue::from_str(&format!("Bearer {key}")).map_err(|_| {
            ApiCommandError::Input(
                "the key is not one: it holds characters that no key has".to_owned(),
            )
        })?;
        bearer.set_sensitive(true);
        let mut roots = Roots::mozilla();
        if let Some(path) = &connect.ca {
            let bundle = input::read(path)?;
            let with = roots.with_bundle(&bundle);
            roots = with.map_err(|error| ApiCommandError::Input(format!("{path}: {error}")))?;
        }
        Ok(Client {
            origin: connect.server.clone(),
            roots,
            bearer,
            connection: None,
        })
    }

    /// Sends a request and waits for the response.
    pub async fn ask(&mut self, call: &Call) -> Result<Answer, ApiCommandError> {
        let request = self.request(call);
        let answered = match self.connected().await {
            Ok(connection) => connection.send(request, TIMEOUT).await,
            Err(why) => Err(why),
        };
        let response = answered.map_err(|why| {
            self.connection = None;
            ApiCommandError::Unreached {
                origin: self.origin.clone(),
                why,
            }
        })?;
        let (status, body) = (response.status(), response.body());
        if !status.is_success() {
            return Err(match Problem::read(status, response.headers(), body) {
                Some(problem) => ApiCommandError::Refused(Box::new(problem)),
                None => self.stranger(status),
            });
        }
        let text = std::str::from_utf8(body).map_err(|_| self.stranger(status))?;
        let value = match text.trim() {
            "" => Value::Null,
            json => serde_json::from_str(json).map_err(|_| self.stranger(status))?,
        };
        Ok(Answer {
            text: text.trim_end().to_owned(),
            value,
        })
    }

    /// Sends a request that follows an object. Retries a few times if the server is busy or cannot be reached.
    pub async fn look(&mut self, call: &Call) -> Result<Answer, ApiCommandError> {
        for _ in 1..MAX_TRIES {
            match self.ask(call).await {
                Err(ApiCommandError::Refused(problem)) if problem.wait().is_some() => {
                    let wait = problem.wait().unwrap_or_default();
                    tokio::time::sleep(wait.min(TIMEOUT)).await;
                }
                Err(ApiCommandError::Unreached { .. }) => tokio::time::sleep(RETRY_DELAY).await,
                settled => return settled,
            }
        }
        self.ask(call).await
    }

    fn stranger(&self, status: http::StatusCode) -> ApiCommandError {
        ApiCommandError::NotTheApi {
            origin: self.origin.clone(),
            status,
        }
    }

    fn request(&self, call: &Call) -> Request<Full<Bytes>> {
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(format!("{}{}", self.origin.base(), call.target))
            .header(AUTHORIZATION, self.bearer.clone())
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, concat!("posthaste/", env!("CARGO_PKG_VERSION")));
        if call.body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let body = call.body.clone().unwrap_or_default();
        request
            .body(Full::from(body))
            .expect("every part of a target is escaped")
    }

    async fn connected(&mut self) -> Result<&mut Connection, operator::TrustedClientError> {
        let kept = self.connection.take().filter(|kept| !kept.is_closed());
        let connection = match kept {
            Some(connection) => connection,
            None => operator::connect(&self.origin, &self.roots, TIMEOUT).await?,
        };
        Ok(self.connection.insert(connection))
    }
}
