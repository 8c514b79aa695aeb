//! Fixture: a running server, its callers, and their views of it.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, DATE};
use http::{HeaderMap, Request};
use http_body_util::Full;
use posthaste_egress::Roots;
use posthaste_egress::operator::{self, Connection, Origin};
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::Mutex;

use super::document::{self, Route};
use super::household::Household;
use super::support::{ADMIN_KEY, PATIENCE, Server};

/// A server and its routes.
pub(crate) struct Town {
    server: Server,
    /// All routes of the server.
    pub(crate) routes: Vec<Route>,
    _directory: TempDir,
}

impl Town {
    /// Starts a server with a high request rate limit.
    pub(crate) async fn found() -> Town {
        let directory = tempfile::tempdir().expect("a directory");
        let patient = [
            "--set",
            "limits.requests_per_second=100000",
            "--set",
            "limits.request_burst=100000",
        ];
        let server = Server::start(directory.path(), &patient);
        let caller = Caller::new(&server.address, "");
        let document = caller.ask("GET", "/openapi.json", None).await.json(200);
        Town {
            server,
            routes: document::routes(&document),
            _directory: directory,
        }
    }

    /// Returns a caller with the admin key.
    pub(crate) fn admin(&self) -> Caller {
        self.caller(ADMIN_KEY)
    }

    /// Returns a caller with this key.
    pub(crate) fn caller(&self, key: &str) -> Caller {
        Caller::new(&self.server.address, key)
    }

    /// Waits until the resource at this path has this status.
    pub(crate) async fn until(&self, path: &str, status: &str) {
        let mut api = self.server.api();
        api.until(path, |shown| shown["status"] == status).await;
    }

    /// Returns everything that a tenant can read about itself, by path.
    pub(crate) async fn state(&self, house: &Household) -> BTreeMap<String, Value> {
        let mut state = BTreeMap::new();
        for route in &self.routes {
            if !(route.is_get() && route.is_tenants()) {
                continue;
            }
            let mut paths = vec![route.path.replace("{tenant}", &house.tenant)];
            for noun in &route.nouns {
                let name = format!("{{{noun}}}");
                let each = |path: &String| {
                    let path = path.clone();
                    let ids = house.ids[noun.as_str()].iter();
                    ids.map(|id| path.replace(&name, id)).collect::<Vec<_>>()
                };
                paths = paths.iter().flat_map(each).collect();
            }
            for path in paths {
                let seen = house.caller.ask("GET", &path, None).await;
                let mut seen = seen.json(200);
                // These fields depend on the current time.
                for moving in ["timeline", "buckets"] {
                    seen.as_object_mut().and_then(|seen| seen.remove(moving));
                }
                // Reading a secret is audited, and this function reads it.
                if path.ends_with("/audit")
                    && let Some(entries) = seen["data"].as_array_mut()
                {
                    entries.retain(|entry| entry["action"] != "get_endpoint_secret");
                }
                state.insert(path, seen);
            }
        }
        assert!(
            state.len() > 20,
            "that is not all there is: {:?}",
            state.keys()
        );
        state
    }
}

/// A client with a key, or with none.
pub(crate) struct Caller {
    origin: Origin,
    key: String,
    connection: Mutex<Option<Connection>>,
}

/// A response as the caller sees it. Two resources are indistinguishable if their responses are equal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sight {
    /// The status code.
    pub(crate) status: u16,
    /// The headers, without the date.
    pub(crate) headers: HeaderMap,
    /// The body.
    pub(crate) body: Bytes,
}

impl Sight {
    /// Returns the JSON body. Panics if the status is not this one.
    #[track_caller]
    pub(crate) fn json(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{:?}", self.body);
        serde_json::from_slice(&self.body).expect("JSON")
    }
}

impl Caller {
    fn new(address: &str, key: &str) -> Caller {
        Caller {
            origin: format!("http://{address}").parse().expect("an address"),
            key: key.to_owned(),
            connection: Mutex::default(),
        }
    }

    /// Sends a request.
    pub(crate) async fn ask(&self, verb: &str, path: &str, body: Option<&Value>) -> Sight {
        let mut request = Request::builder().method(verb).uri(path);
        if !self.key.is_empty() {
            request = request.header(AUTHORIZATION, format!("Bearer {}", self.key));
        }
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = request
            .body(Full::new(Bytes::from(body)))
            .expect("a request");
        let mut connection = self.connection.lock().await;
        if connection.is_none() {
            let opened = operator::connect(&self.origin, &Roots::none(), PATIENCE).await;
            *connection = Some(opened.expect("the server listens"));
        }
        let sent = connection
            .as_mut()
            .expect("just opened")
            .send(request, PATIENCE);
        let (mut head, body) = sent.await.expect("an answer").into_parts();
        head.headers.remove(DATE);
        Sight {
            status: head.status.as_u16(),
            headers: head.headers,
            body,
        }
    }
}
