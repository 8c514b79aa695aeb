//! Fixture: a whole server without sockets, and clients for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use posthaste_api::hash_key;
use posthaste_api::openapi;
use posthaste_api::routes;
use posthaste_api::{ApiSettings, App, router};
use posthaste_core::dice::Dice;
use posthaste_core::dispatcher::Limits;
use posthaste_core::lane::{BreakerSettings, RETRY_AFTER_CAP};
use posthaste_core::time::{Now, Tick, Timestamp};
use posthaste_egress::{Client, ClientSettings};
use posthaste_engine::vault::{KeySource, Vault};
use posthaste_engine::{Engine, EngineSettings, Phase};
use posthaste_store::StoreSettings;
use posthaste_store_testing::model::ModelStore;
use posthaste_system::clock::Clock;
use posthaste_telemetry::metrics::Metrics;
use serde_json::{Value, json};
use tower::Service;

use super::schema::mismatch;

pub(crate) const ADMIN: &str = "ph_admin";

/// A server on the in-memory store.
pub(crate) struct World {
    pub(crate) store: Arc<ModelStore>,
    pub(crate) router: Router,
    now_ms: Arc<AtomicU64>,
    document: Value,
}

/// A response of the API.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Bytes,
    pub(crate) json: Value,
}

impl World {
    pub(crate) async fn new() -> World {
        World::with(|_| {}).await
    }

    pub(crate) async fn with(adjust: impl FnOnce(&mut ApiSettings)) -> World {
        let now_ms = Arc::new(AtomicU64::new(1_767_323_045_678));
        let told = now_ms.clone();
        let clock = Clock::told(move || {
            let now = told.load(Ordering::Relaxed);
            Now {
                wall: Timestamp(now),
                tick: Tick(now),
            }
        });
        let engine = Engine::new();
        let store_settings = StoreSettings::new(Dice::seeded(1));
        let store = Arc::new(ModelStore::new(store_settings.clone(), engine.hand_over()));
        let text = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=".to_owned();
        let origin = "the test".to_owned();
        let vault = Vault::open_or_create(KeySource::Text { text, origin }).expect("a vault");
        let vault = Arc::new(vault);
        let observe = Arc::new(Metrics::new());
        let mut settings = ApiSettings {
            admin_keys: vec![hash_key(ADMIN)],
            ..ApiSettings::default()
        };
        adjust(&mut settings);
        let running = EngineSettings {
            store: store.clone(),
            store_settings,
            client: Client::new(ClientSettings::default()),
            rules: settings.egress_rules.clone(),
            vault: vault.clone(),
            observe: observe.clone(),
            telemetry: posthaste_telemetry::traces::Telemetry::off(),
            clock: clock.clone(),
            dice: Dice::seeded(2),
            limits: Limits::default(),
            breaker: BreakerSettings::default(),
            retry_after_cap: RETRY_AFTER_CAP,
            lease: None,
        };
        let running_engine = engine.clone();
        tokio::spawn(async move { running_engine.run(running).await });
        while engine.phase() != Phase::Running {
            tokio::task::yield_now().await;
        }
        let dice = Dice::seeded(3);
        let app = App::new(store.clone(), engine, vault, observe, clock, dice, settings);
        World {
            store,
            router: router(Arc::new(app)),
            now_ms,
            document: openapi::document(),
        }
    }

    pub(crate) fn pass_ms(&self, ms: u64) {
        self.now_ms.fetch_add(ms, Ordering::Relaxed);
    }

    /// Sends a request unchanged.
    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        let method = request.method().to_string();
        let path = request.uri().path().to_owned();
        let response = self
            .router
            .clone()
            .call(request)
            .await
            .expect("never fails");
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.expect("a body").to_bytes();
        let json = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        let answer = Answer {
            status: parts.status,
            headers: parts.headers,
            bytes,
            json,
        };
        self.check(&method, &path, &answer);
        answer
    }

    /// Sends a request with a key, and with a JSON body unless it is null.
    pub(crate) async fn call(&self, verb: &str, path: &str, key: &str, body: Value) -> Answer {
        let mut request = Request::builder().method(verb).uri(path);
        if !key.is_empty() {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let request = if body.is_null() {
            request.body(Body::empty())
        } else {
            request
                .header("content-type", "application/json")
                .body(Body::from(body.to_string()))
        };
        self.send(request.expect("a request")).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call("GET", path, ADMIN, Value::Null).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.call("POST", path, ADMIN, body).await
    }

    pub(crate) async fn patch(&self, path: &str, body: Value) -> Answer {
        self.call("PATCH", path, ADMIN, body).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.call("DELETE", path, ADMIN, Value::Null).await
    }

    /// Creates a tenant and returns a key of it.
    pub(crate) async fn tenant(&self, id: &str) -> String {
        let made = self.post("/v1/tenants", json!({"id": id})).await;
        assert_eq!(made.status, 201, "{}", made.json);
        let key = self
            .post(&format!("/v1/tenants/{id}/keys"), json!({"name": "test"}))
            .await;
        assert_eq!(key.status, 201, "{}", key.json);
        key.text("key")
    }

    /// Creates an endpoint of this tenant and returns its path.
    pub(crate) async fn endpoint(&self, tenant: &str) -> String {
        let all = format!("/v1/tenants/{tenant}/endpoints");
        let made = self
            .post(&all, json!({"url": "https://example.com/hooks"}))
            .await;
        assert_eq!(made.status, 201, "{}", made.json);
        format!("{all}/{}", made.text("id"))
    }

    /// Checks a response against the OpenAPI document: status, content type and schema.
    fn check(&self, method: &str, path: &str, answer: &Answer) {
        let here = format!("{method} {path} answered {}", answer.status);
        if answer.status.is_client_error() || answer.status.is_server_error() {
            check_problem(&self.document, answer, &here);
        }
        let found =
            routes::all().find(|route| route.verb.as_str() == method && matches(route.path, path));
        let Some(route) = found else {
            return;
        };
        let operation = &self.document["paths"][route.path][method.to_lowercase()];
        let status = answer.status.as_str();
        let described = &operation["responses"][status];
        assert!(described.is_object(), "{here}, which is not described");
        let Some(content) = described["content"].as_object() else {
            assert!(answer.bytes.is_empty(), "{here} with a body");
            return;
        };
        let kind = answer.headers["content-type"].to_str().expect("a text");
        let kind = kind.split(';').next().unwrap_or_default();
        let shape = content.get(kind);
        let shape = shape.unwrap_or_else(|| panic!("{here} with {kind}"));
        if let Some(shape) = shape.get("schema") {
            let wrong = mismatch(&self.document, shape, &answer.json, "");
            assert_eq!(wrong, None, "{here}: {}", answer.json);
        }
    }
}

fn matches(pattern: &str, path: &str) -> bool {
    let fits =
        |(part, given): (&str, &str)| part == given || (part.starts_with('{') && !given.is_empty());
    pattern.split('/').count() == path.split('/').count()
        && pattern.split('/').zip(path.split('/')).all(fits)
}

/// Checks that an error has the common schema, a detail and a link to its documentation.
fn check_problem(document: &Value, answer: &Answer, here: &str) {
    assert_eq!(
        answer.headers["content-type"], "application/problem+json",
        "{here}"
    );
    let shape = json!({"$ref": "#/components/schemas/Problem"});
    let wrong = mismatch(document, &shape, &answer.json, "");
    assert_eq!(wrong, None, "{here}: {}", answer.json);
    assert_eq!(answer.json["status"], answer.status.as_u16(), "{here}");
    let code = answer.text("code");
    assert_eq!(answer.text("type"), format!("/docs/errors#{code}"));
    assert!(!answer.text("detail").is_empty(), "{here}");
    let has_errors = answer.json.get("errors").is_some();
    assert_eq!(has_errors, answer.status == 422, "{here}: {}", answer.json);
    match answer.status.as_u16() {
        401 => assert_eq!(answer.headers["www-authenticate"], "Bearer", "{here}"),
        405 => assert!(answer.headers.contains_key("allow"), "{here}"),
        429 | 503 | 507 => {
            let wait = answer.headers["retry-after"].to_str().expect("a text");
            assert!(wait.parse::<u64>().is_ok_and(|wait| wait >= 1), "{here}");
        }
        _ => {}
    }
}

impl Answer {
    /// Returns the text field of this name.
    pub(crate) fn text(&self, name: &str) -> String {
        let text = self.json[name].as_str();
        text.unwrap_or_else(|| panic!("no {name} in {}", self.json))
            .to_owned()
    }

    /// Returns the fields with errors, in order.
    pub(crate) fn wrong_fields(&self) -> Vec<String> {
        assert_eq!(self.status, 422, "{}", self.json);
        let errors = self.json["errors"].as_array().expect("errors");
        errors
            .iter()
            .map(|error| error["field"].as_str().expect("a field").to_owned())
            .collect()
    }

    /// Returns the ids of a page.
    pub(crate) fn ids(&self) -> Vec<String> {
        assert_eq!(self.status, 200, "{}", self.json);
        let data = self.json["data"].as_array().expect("data");
        data.iter()
            .map(|item| item["id"].as_str().expect("an id").to_owned())
            .collect()
    }
}
