//! HTTP client for the API and the pages of a node under test.
//!
//! [`Api`] uses one connection at a time and connects again when it was lost. A call to a server that must run panics
//! without a response; `Api::try_call` is for servers that may be down.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::Full;
use posthaste_egress::Roots;
use posthaste_egress::trusted_client::{self, BaseUrl, TrustedConnection};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::PATIENCE;

/// Interval between requests while a test polls for a state.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Calls a node, with a key or without. Uses one connection at a time and reconnects when it fails.
pub struct Api {
    origin: BaseUrl,
    key: String,
    headers: Vec<(String, String)>,
    connection: Option<TrustedConnection>,
}

/// A response of a node.
#[derive(Clone, Debug)]
pub struct ApiResponse {
    /// The status code.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body as received.
    pub bytes: Bytes,
    /// The body as JSON, or null if it is not JSON.
    pub body: Value,
    /// The body as text.
    pub text: String,
}

impl ApiResponse {
    /// Returns the body. Panics if the status is not the given one.
    #[track_caller]
    pub fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        self.body
    }

    /// Returns a header as text, or an empty text.
    pub fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.map_or("", |value| value.to_str().expect("a header in ASCII"))
    }
}

impl Api {
    /// Creates a client. It connects with the first request. An empty key sends no `Authorization`.
    pub fn new(address: &str, key: &str) -> Api {
        Api {
            origin: format!("http://{address}").parse().expect("an address"),
            key: key.to_owned(),
            headers: Vec::new(),
            connection: None,
        }
    }

    /// Adds a header to every request.
    pub fn with_header(mut self, name: &str, value: &str) -> Api {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sends these headers with every request from now on, in place of earlier ones.
    pub fn set_headers(&mut self, headers: &[(&str, &str)]) {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        self.headers = headers.iter().map(owned).collect();
    }

    /// Sends a request. Returns `None` if no response arrives: the server may have stopped.
    pub async fn try_call(
        &mut self,
        method: &str,
        path: &str,
        body: Option<&[u8]>,
    ) -> Option<ApiResponse> {
        let headers: &[(&str, &str)] = match body {
            Some(_) => &[("content-type", "application/json")],
            None => &[],
        };
        let body = Bytes::copy_from_slice(body.unwrap_or_default());
        self.try_send(method, path, headers, body).await
    }

    /// Sends any bytes with additional headers. Returns `None` if no response arrives.
    async fn try_send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Option<ApiResponse> {
        if self.connection.is_none() {
            let connected = trusted_client::connect(&self.origin, &Roots::none(), PATIENCE).await;
            self.connection = Some(connected.ok()?);
        }
        let mut request = Request::builder().method(method).uri(path);
        let overrides_key = headers.iter().any(|(name, _)| *name == "authorization");
        if !self.key.is_empty() && !overrides_key {
            request = request.header("authorization", format!("Bearer {}", self.key));
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body)).expect("a request");
        let connection = self.connection.as_mut().expect("a connection");
        let Ok(response) = connection.send(request, PATIENCE).await else {
            self.connection = None;
            return None;
        };
        let (head, bytes) = response.into_parts();
        Some(ApiResponse {
            status: head.status.as_u16(),
            headers: head.headers,
            body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
            text: String::from_utf8_lossy(&bytes).into_owned(),
            bytes,
        })
    }

    /// Sends any bytes with additional headers to a server that is expected to run. Panics if no response arrives.
    pub async fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> ApiResponse {
        let body = body.into();
        // The server may have closed an idle connection, so the second try uses a new one.
        for _ in 0..2 {
            let reply = self.try_send(method, path, headers, body.clone()).await;
            if let Some(reply) = reply {
                return reply;
            }
        }
        panic!("the server did not answer {method} {path}");
    }

    /// Sends a request with a JSON body to a server that is expected to run. Panics if no response arrives.
    pub async fn call(&mut self, method: &str, path: &str, body: Option<&Value>) -> ApiResponse {
        let headers: &[(&str, &str)] = match body {
            Some(_) => &[("content-type", "application/json")],
            None => &[],
        };
        let body = body.map(Value::to_string).unwrap_or_default();
        self.send(method, path, headers, body).await
    }

    /// Sends a `GET` request.
    pub async fn get(&mut self, path: &str) -> ApiResponse {
        self.call("GET", path, None).await
    }

    /// Sends a `POST` request.
    pub async fn post(&mut self, path: &str, body: Value) -> ApiResponse {
        self.call("POST", path, Some(&body)).await
    }

    /// Creates a tenant.
    pub async fn tenant(&mut self, id: &str) {
        let body = json!({"id": id, "name": id});
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

    /// Sends an event and returns the id of its first delivery.
    pub async fn deliver(&mut self, tenant: &str, event: Value) -> String {
        let event = self.event(tenant, event).await;
        let delivery = event["deliveries"][0]["id"].as_str();
        delivery.expect("a delivery").to_owned()
    }

    /// Waits until a delivery has this status, and returns it.
    pub async fn until_status(&mut self, tenant: &str, delivery: &str, status: &str) -> Value {
        let path = format!("/v1/tenants/{tenant}/deliveries/{delivery}");
        self.until(&path, |delivery| delivery["status"] == status)
            .await
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
