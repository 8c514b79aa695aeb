//! An API client that sends arbitrary bytes and records every error response.

use bytes::Bytes;
use http::Request;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http_body_util::Full;
use posthaste_egress::Roots;
use posthaste_egress::operator::{self, Origin};
use serde_json::Value;
use tokio::time::{Duration, Instant, sleep};

use super::support::PATIENCE;

/// Interval between requests while a test polls for a state.
const POLL_EVERY: Duration = Duration::from_millis(10);

/// The client.
pub(crate) struct Caller {
    origin: Origin,
    key: String,
    /// Every error response: the request, and the head and body of the response.
    pub(crate) problems: Vec<(String, Vec<u8>)>,
}

/// A response of the API.
pub(crate) struct Answer {
    /// The status code.
    pub(crate) status: u16,
    /// The body.
    pub(crate) body: Bytes,
}

impl Answer {
    /// Returns the JSON body. Panics if the status is not this one.
    #[track_caller]
    pub(crate) fn json(&self, status: u16) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        assert_eq!(self.status, status, "{text}");
        serde_json::from_slice(&self.body).expect("JSON")
    }
}

impl Caller {
    /// Creates a client with this key.
    pub(crate) fn new(address: &str, key: &str) -> Caller {
        Caller {
            origin: format!("http://{address}").parse().expect("an address"),
            key: key.to_owned(),
            problems: Vec::new(),
        }
    }

    /// Sends a request with any bytes and headers. Uses a new connection each time, because some requests end it.
    pub(crate) async fn say(
        &mut self,
        verb: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        let body = body.into();
        let mut request = Request::builder().method(verb).uri(path);
        let says = |wanted: &str| headers.iter().any(|(name, _)| *name == wanted);
        if !says("authorization") {
            request = request.header(AUTHORIZATION, format!("Bearer {}", self.key));
        }
        if !body.is_empty() && !says("content-type") {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body)).expect("a request");
        let opened = operator::connect(&self.origin, &Roots::none(), PATIENCE).await;
        let mut connection = opened.expect("the server listens");
        let answer = connection.send(request, PATIENCE).await.expect("an answer");
        let (head, body) = answer.into_parts();
        if head.status.as_u16() >= 400 {
            let told = [format!("{:?}", head.headers).as_bytes(), &body].concat();
            self.problems.push((format!("{verb} {path}"), told));
        }
        Answer {
            status: head.status.as_u16(),
            body,
        }
    }

    /// Sends a request with a JSON body.
    pub(crate) async fn call(&mut self, verb: &str, path: &str, body: Value) -> Answer {
        let body = match body {
            Value::Null => String::new(),
            body @ (Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_)) => body.to_string(),
        };
        self.say(verb, path, &[], body).await
    }

    /// Sends a `POST` request with a JSON body.
    pub(crate) async fn post(&mut self, path: &str, body: Value) -> Answer {
        self.call("POST", path, body).await
    }

    /// Sends a `GET` request.
    pub(crate) async fn get(&mut self, path: &str) -> Answer {
        self.call("GET", path, Value::Null).await
    }

    /// Polls until the resource has this status, and returns it.
    pub(crate) async fn until(&mut self, path: &str, status: &str) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let shown = self.get(path).await.json(200);
            if shown["status"] == status {
                return shown;
            }
            assert!(Instant::now() < deadline, "{path} stays {shown}");
            sleep(POLL_EVERY).await;
        }
    }
}
