//! An API client that sends arbitrary bytes and records every error response.

use bytes::Bytes;
use serde_json::Value;

use super::fixture::Api;

pub(crate) use posthaste_testbed::ApiResponse;

/// The client.
pub(crate) struct Client {
    address: String,
    key: String,
    /// Every error response: the request, and the head and body of the response.
    pub(crate) problems: Vec<(String, Vec<u8>)>,
}

impl Client {
    /// Creates a client with this key.
    pub(crate) fn new(address: &str, key: &str) -> Client {
        Client {
            address: address.to_owned(),
            key: key.to_owned(),
            problems: Vec::new(),
        }
    }

    /// Sends a request with any bytes and headers. Uses a new connection each time, because some requests end it.
    pub(crate) async fn send(
        &mut self,
        verb: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> ApiResponse {
        let body = body.into();
        let mut headers = headers.to_vec();
        if !body.is_empty() && !headers.iter().any(|(name, _)| *name == "content-type") {
            headers.push(("content-type", "application/json"));
        }
        let mut api = Api::new(&self.address, &self.key);
        let reply = api.send(verb, path, &headers, body).await;
        if reply.status >= 400 {
            let response = [format!("{:?}", reply.headers).as_bytes(), &reply.bytes].concat();
            self.problems.push((format!("{verb} {path}"), response));
        }
        reply
    }

    /// Sends a request with a JSON body, or without a body if it is null.
    pub(crate) async fn call(&mut self, verb: &str, path: &str, body: Value) -> ApiResponse {
        let body = match body.is_null() {
            true => String::new(),
            false => body.to_string(),
        };
        self.send(verb, path, &[], body).await
    }

    /// Sends a `POST` request with a JSON body.
    pub(crate) async fn post(&mut self, path: &str, body: Value) -> ApiResponse {
        self.call("POST", path, body).await
    }

    /// Sends a `GET` request.
    pub(crate) async fn get(&mut self, path: &str) -> ApiResponse {
        self.call("GET", path, Value::Null).await
    }

    /// Polls until the resource has this status, and returns it.
    pub(crate) async fn until(&mut self, path: &str, status: &str) -> Value {
        let mut api = Api::new(&self.address, &self.key);
        api.until(path, |body| body["status"] == status).await
    }
}
