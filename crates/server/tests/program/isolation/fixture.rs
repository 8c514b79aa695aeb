//! Fixture: a running server with all its routes, its callers, and their views of it.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::HeaderMap;
use http::header::DATE;
use serde_json::Value;
use tokio::sync::Mutex;

use super::openapi_routes::{self, Route};
use super::tenant_data::TenantData;
use crate::fixture::{ADMIN_KEY, Api, TestServer};

/// A server and its routes.
pub(crate) struct IsolationFixture {
    server: TestServer,
    /// All routes of the server.
    pub(crate) routes: Vec<Route>,
}

impl IsolationFixture {
    /// Starts a server with a high request rate limit.
    pub(crate) async fn start() -> IsolationFixture {
        let patient = [
            "--set",
            "limits.requests_per_second=100000",
            "--set",
            "limits.request_burst=100000",
        ];
        let server = TestServer::start(&patient);
        let caller = Caller::new(&server.address, "");
        let document = caller.call("GET", "/openapi.json", None).await.json(200);
        IsolationFixture {
            server,
            routes: openapi_routes::routes(&document),
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
    pub(crate) async fn state(&self, tenant_data: &TenantData) -> BTreeMap<String, Value> {
        let mut state = BTreeMap::new();
        for route in &self.routes {
            if !(route.is_get() && route.is_tenants()) {
                continue;
            }
            let mut paths = vec![route.path.replace("{tenant}", &tenant_data.tenant)];
            for noun in &route.nouns {
                let name = format!("{{{noun}}}");
                let each = |path: &String| {
                    let path = path.clone();
                    let ids = tenant_data.ids[noun.as_str()].iter();
                    ids.map(|id| path.replace(&name, id)).collect::<Vec<_>>()
                };
                paths = paths.iter().flat_map(each).collect();
            }
            for path in paths {
                let seen = tenant_data.caller.call("GET", &path, None).await;
                let mut seen = seen.json(200);
                // These fields depend on the current time.
                for moving in ["timeline", "buckets"] {
                    seen.as_object_mut().and_then(|seen| seen.remove(moving));
                }
                // Reading a secret is audited, and this function reads it.
                if path.ends_with("/audit")
                    && let Some(entries) = seen["data"].as_array_mut()
                {
                    let reads = ["get_endpoint_secret", "get_signing_secret"];
                    let is_read = |entry: &Value| reads.iter().any(|read| entry["action"] == *read);
                    entries.retain(|entry| !is_read(entry));
                }
                state.insert(path, seen);
            }
        }
        assert!(
            state.len() > 20,
            "the state has too few paths: {:?}",
            state.keys()
        );
        state
    }
}

/// A client with a key, or with none.
pub(crate) struct Caller(Mutex<Api>);

/// A response as the caller sees it. Two resources are indistinguishable if their responses are equal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct VisibleResponse {
    /// The status code.
    pub(crate) status: u16,
    /// The headers, without the date.
    pub(crate) headers: HeaderMap,
    /// The body.
    pub(crate) body: Bytes,
}

impl VisibleResponse {
    /// Returns the JSON body. Panics if the status is not this one.
    #[track_caller]
    pub(crate) fn json(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{:?}", self.body);
        serde_json::from_slice(&self.body).expect("JSON")
    }
}

impl Caller {
    fn new(address: &str, key: &str) -> Caller {
        Caller(Mutex::new(Api::new(address, key)))
    }

    /// Sends a request.
    pub(crate) async fn call(
        &self,
        verb: &str,
        path: &str,
        body: Option<&Value>,
    ) -> VisibleResponse {
        let mut reply = self.0.lock().await.call(verb, path, body).await;
        reply.headers.remove(DATE);
        VisibleResponse {
            status: reply.status,
            headers: reply.headers,
            body: reply.bytes,
        }
    }
}
