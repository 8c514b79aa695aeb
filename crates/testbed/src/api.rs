//! HTTP client for the API of a node under test.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use posthaste_egress::Roots;
use posthaste_egress::operator::{self, Connection, Origin};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::PATIENCE;

/// Interval between requests while a test polls for a state.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Calls the API with a key. Uses one connection at a time and reconnects when it fails.
pub struct Api {
    origin: Origin,
    key: String,
    headers: Vec<(&'static str, String)>,
    connection: Option<Connection>,
}

/// A response of the API.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// The body as JSON, or null if it is not JSON.
    pub body: Value,
    /// The body as text.
    pub text: String,
    /// The `Retry-After` header, if present.
    pub retry_after: Option<String>,
}

impl Reply {
    /// Returns the body. Panics if the status is not the given one.
    #[track_caller]
    pub fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.body);
        self.body
    }
}

impl Api {
    /// Creates a client. It connects with the first request.
    pub fn new(address: &str, key: &str) -> Api {
        Api {
            origin: format!("http://{address}").parse().expect("an address"),
            key: key.to_owned(),
            headers: Vec::new(),
            connection: None,
        }
    }

    /// Sends these headers with every request from now on.
    pub fn saying(&mut self, headers: &[(&'static str, &str)]) {
        let headers = headers.iter();
        self.headers = headers
            .map(|(name, value)| (*name, (*value).to_owned()))
            .collect();
    }

    /// Sends a request. Returns `None` if no response arrives: the server may have stopped.
    pub async fn try_call(
        &mut self,
        method: &str,
        path: &str,
        body: Option<&[u8]>,
    ) -> Option<Reply> {
        if self.connection.is_none() {
            let connected = operator::connect(&self.origin, &Roots::none(), PATIENCE).await;
            self.connection = Some(connected.ok()?);
        }
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", format!("Bearer {}", self.key));
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let body = Bytes::copy_from_slice(body.unwrap_or_default());
        let request = request.body(Full::new(body)).expect("a request");
        let connection = self.connection.as_mut().expect("it was just opened");
        let Ok(response) = connection.send(request, PATIENCE).await else {
            self.connection = None;
            return None;
        };
        let (head, bytes) = response.into_parts();
        let retry_after = head.headers.get("retry-after");
        Some(Reply {
            status: head.status.as_u16(),
            body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
            text: String::from_utf8_lossy(&bytes).into_owned(),
            retry_after: retry_after
                .and_then(|value| value.to_str().ok())
                .map(str::to_owned),
        })
    }

    /// Sends a request to a server that is expected to run. Panics if no response arrives.
    pub async fn call(&mut self, method: &str, path: &str, body: Option<&Value>) -> Reply {
        let body = body.map(|body| body.to_string().into_bytes());
        // The server may have closed an idle connection, so the second try uses a new one.
        match self.try_call(method, path, body.as_deref()).await {
            Some(reply) => reply,
            None => self
                .try_call(method, path, body.as_deref())
                .await
                .expect("the server answers"),
        }
    }

    /// Sends a `GET` request.
    pub async fn get(&mut self, path: &str) -> Reply {
        self.call("GET", path, None).await
    }

    /// Sends a `POST` request.
    pub async fn post(&mut self, path: &str, body: Value) -> Reply {
        self.call("POST", path, Some(&body)).await
    }

    /// Creates a tenant.
    pub async fn tenant(&mut self, id: &str) {
        let body = serde_json::json!({"id": id, "name": id});
        self.post("/v1/tenants", body).await.expect(201);
    }

    /// Creates an endpoint with these fields and returns the response body.
    pub async fn endpoint(&mut self, tenant: &str, fields: Value) -> Value {
        let path = format!("/v1/tenants/{tenant}/endpoints");
        self.post(&path, fields).await.expect(201)
    }

    /// Sends an event and returns the response body.
    pub async fn event(&mut self, tenant: &str, fields: Value) -> Value {
        let path = format!("/v1/tenants/{tenant}/events");
        self.post(&path, fields).await.expect(202)
    }

    /// Polls the path until the body is as wanted, and returns the body.
    pub async fn until(&mut self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let body = self.get(path).await.expect(200);
            if wanted(&body) {
                return body;
            }
            assert!(Instant::now() < deadline, "{path} stays {body}");
            sleep(POLL_INTERVAL).await;
        }
    }
}
