//! Fixture: a server on the in-memory store, and a receiver.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use posthaste_api::hash_key;
use posthaste_api::{self as api, ApiSettings, App, openapi, routes};
use posthaste_core::address::EgressRules;
use posthaste_core::classify::FailureKind;
use posthaste_core::delivery::Status;
use posthaste_core::dice::Dice;
use posthaste_core::dispatcher::Limits;
use posthaste_core::lane::{BreakerSettings, RETRY_AFTER_CAP};
use posthaste_core::time::{Now, Tick, Timestamp};
use posthaste_egress::{Client, ClientSettings, Lookup, Resolve, Roots};
use posthaste_engine::replayer::Replayer;
use posthaste_engine::vault::{KeySource, Vault};
use posthaste_engine::{Engine, EngineSettings};
use posthaste_store::StoreSettings;
use posthaste_store_testing::model::ModelStore;
use posthaste_system::clock::Clock;
use posthaste_telemetry::metrics::{AttemptSeen, Metrics};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;
use tower::ServiceExt;

use super::schema::mismatch;

pub(crate) const ADMIN: &str = "ph_admin";
/// 2026-11-15T12:00:00Z.
pub(crate) const NOON: Timestamp = Timestamp(1_794_744_000_000);
const PATIENCE: Duration = Duration::from_secs(30);

/// A server without sockets.
pub(crate) struct World {
    pub(crate) store: Arc<ModelStore>,
    pub(crate) app: Arc<App>,
    router: Router,
    document: Value,
    /// Time of the manual clock, where the test uses one.
    pub(crate) wall_ms: Arc<AtomicU64>,
}

/// A response of the API.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_else(|_| panic!("JSON, not {self:?}"))
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes).expect("text")
    }

    /// Returns the JSON body. Panics if the status is not this one.
    #[track_caller]
    pub(crate) fn ok(&self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.text());
        self.json()
    }

    /// Checks that it is a problem with this status and code, and returns the fields with errors.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16, code: &str) -> Vec<String> {
        assert_eq!(self.status.as_u16(), status, "{}", self.text());
        assert_eq!(self.headers["content-type"], "application/problem+json");
        let json = self.json();
        assert_eq!(json["code"], code, "{json}");
        let errors = json["errors"].as_array().cloned().unwrap_or_default();
        let field = |error: &Value| error["field"].as_str().expect("a field").to_owned();
        errors.iter().map(field).collect()
    }
}

fn matches(pattern: &str, path: &str) -> bool {
    let fits = |(part, given): (&str, &str)| part == given || part.starts_with('{');
    pattern.split('/').count() == path.split('/').count()
        && pattern.split('/').zip(path.split('/')).all(fits)
}

struct Loopback;

impl Resolve for Loopback {
    fn resolve<'a>(&'a self, _: &'a str) -> Lookup<'a> {
        Box::pin(async { Ok(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)]) })
    }
}

fn rules() -> EgressRules {
    EgressRules {
        allow_networks: vec!["127.0.0.0/8".parse().unwrap()],
        allow_http: true,
        ..EgressRules::default()
    }
}

fn vault() -> Arc<Vault> {
    let source = KeySource::Text {
        text: "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=".to_owned(),
        origin: "the test".to_owned(),
    };
    Arc::new(Vault::open_or_create(source).unwrap())
}

impl World {
    /// A server that sends nothing, with a manual clock that starts at [`NOON`].
    pub(crate) async fn quiet() -> World {
        let wall_ms = Arc::new(AtomicU64::new(NOON.0));
        let told = wall_ms.clone();
        let clock = Clock::told(move || {
            let wall = Timestamp(told.load(Ordering::SeqCst));
            Now {
                wall,
                tick: Tick(wall.0 - NOON.0),
            }
        });
        World::new(clock, wall_ms, Engine::new()).await
    }

    /// A server with a running engine and the system clock.
    pub(crate) async fn with_engine() -> World {
        let world = World::new(Clock::system(), Arc::default(), Engine::new()).await;
        let app = &world.app;
        let settings = EngineSettings {
            store: world.store.clone(),
            store_settings: StoreSettings::new(Dice::seeded(1)),
            client: Client::new(ClientSettings {
                rules: rules(),
                roots: Roots::none(),
                resolver: Arc::new(Loopback),
                ..ClientSettings::default()
            }),
            rules: rules(),
            vault: app.vault.clone(),
            observe: app.observe.clone(),
            telemetry: posthaste_telemetry::traces::Telemetry::off(),
            clock: app.clock.clone(),
            dice: Dice::seeded(2),
            limits: Limits::default(),
            breaker: BreakerSettings::default(),
            retry_after_cap: RETRY_AFTER_CAP,
            lease: None,
        };
        let engine = app.engine.clone();
        tokio::spawn(async move { engine.run(settings).await });
        let engine = app.engine.clone();
        let replayer = Replayer::new(
            world.store.clone(),
            app.clock.clone(),
            app.replay_bell.clone(),
            Box::new(move |endpoint, due| engine.work(endpoint, due)),
        );
        tokio::spawn(replayer.run());
        world
    }

    async fn new(clock: Clock, wall_ms: Arc<AtomicU64>, engine: Engine) -> World {
        let settings = StoreSettings::new(Dice::seeded(1));
        let store = Arc::new(ModelStore::new(settings, engine.hand_over()));
        let settings = ApiSettings {
            admin_keys: vec![hash_key(ADMIN)],
            egress_rules: rules(),
            ..ApiSettings::default()
        };
        let observe = Arc::new(Metrics::new().by_endpoint(1));
        let dice = Dice::seeded(3);
        let app = App::new(
            store.clone(),
            engine,
            vault(),
            observe,
            clock,
            dice,
            settings,
        );
        let app = Arc::new(app);
        let world = World {
            store,
            router: api::router(app.clone()),
            document: openapi::document(),
            app,
            wall_ms,
        };
        world.tenant(json!({"id": "acme"})).await;
        world
    }

    pub(crate) async fn tenant(&self, tenant: Value) {
        let made = self.post("/v1/tenants", &tenant).await;
        made.ok(201);
    }

    pub(crate) async fn request(&self, request: Request<Body>) -> Answer {
        let (verb, path) = (request.method().clone(), request.uri().path().to_owned());
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let answer = Answer {
            status: parts.status,
            headers: parts.headers,
            bytes: body.collect().await.unwrap().to_bytes(),
        };
        self.check(verb.as_str(), &path, &answer);
        answer
    }

    /// Checks a response against the OpenAPI document: status and schema.
    fn check(&self, verb: &str, path: &str, answer: &Answer) {
        let found = routes::all().find(|it| it.verb.as_str() == verb && matches(it.path, path));
        let Some(route) = found else {
            return;
        };
        let here = format!("{verb} {path} answered {}", answer.text());
        let operation = &self.document["paths"][route.path][verb.to_lowercase()];
        let described = &operation["responses"][answer.status.as_str()];
        assert!(described.is_object(), "{here}, which is not described");
        let kind = answer.headers.get("content-type");
        let kind = kind.map_or("", |it| it.to_str().unwrap());
        let kind = kind.split(';').next().unwrap_or_default();
        let shape = described["content"][kind].get("schema");
        // A payload may contain numbers that `serde_json` cannot parse here. Such a body is not checked.
        let json = serde_json::from_slice(&answer.bytes).ok();
        if let Some((shape, json)) = shape.zip(json) {
            assert_eq!(mismatch(&self.document, shape, &json, ""), None, "{here}");
        }
    }

    /// Sends a body unchanged, with additional headers.
    pub(crate) async fn send(&self, path: &str, body: &str, headers: &[(&str, &str)]) -> Answer {
        let mut request = Request::post(path).header("authorization", format!("Bearer {ADMIN}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = Body::from(body.to_owned());
        self.request(request.body(body).unwrap()).await
    }

    pub(crate) async fn patch(&self, path: &str, body: &Value) -> Answer {
        let request = Request::patch(path).header("authorization", format!("Bearer {ADMIN}"));
        let body = Body::from(body.to_string());
        self.request(request.body(body).unwrap()).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(path, &body.to_string(), &[]).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.get_as(path, ADMIN).await
    }

    pub(crate) async fn get_as(&self, path: &str, key: &str) -> Answer {
        let request = Request::get(path).header("authorization", format!("Bearer {key}"));
        self.request(request.body(Body::empty()).unwrap()).await
    }

    pub(crate) async fn event(&self, event: &Value) -> Answer {
        self.post("/v1/tenants/acme/events", event).await
    }

    /// Creates an endpoint and returns its id.
    pub(crate) async fn endpoint(&self, endpoint: Value) -> String {
        let made = self.post("/v1/tenants/acme/endpoints", &endpoint).await;
        made.ok(201)["id"].as_str().unwrap().to_owned()
    }

    /// Waits until the delivery has this status, and returns it.
    pub(crate) async fn until(&self, delivery: &str, status: &str) -> Value {
        let path = format!("/v1/tenants/acme/deliveries/{delivery}");
        self.until_shown(&path, status).await
    }

    /// Waits until the resource at this path has this status, and returns it.
    pub(crate) async fn until_shown(&self, path: &str, status: &str) -> Value {
        let asking = async {
            loop {
                let shown = self.get(path).await.ok(200);
                if shown["status"] == status {
                    return shown;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        match timeout(PATIENCE, asking).await {
            Ok(shown) => shown,
            Err(_) => panic!("not {status}: {}", self.get(path).await.text()),
        }
    }

    /// Counts an attempt to an endpoint of `acme`, with a result that ends its delivery.
    pub(crate) fn count_attempt(&self, endpoint: &str, succeeded: bool) {
        let (round_number, failure, status_code, ended) = match succeeded {
            true => (1, None, 200, Status::Succeeded),
            false => (2, Some(FailureKind::Http), 503, Status::Failed),
        };
        let seen = AttemptSeen {
            tenant: &"acme".parse().unwrap(),
            endpoint: endpoint.parse().unwrap(),
            round_number,
            failure,
            status_code: Some(status_code),
            latency: Duration::from_micros(12_500),
            first_attempt_lag: None,
            ended: Some(ended),
        };
        self.app.observe.attempt(self.app.clock.now(), &seen);
    }

    /// Returns every page of a list.
    pub(crate) async fn pages(&self, path: &str) -> Vec<Vec<Value>> {
        let joint = if path.contains('?') { '&' } else { '?' };
        let mut pages = Vec::new();
        let mut next = path.to_owned();
        loop {
            let page = self.get(&next).await.ok(200);
            pages.push(page["data"].as_array().expect("a list").clone());
            match page["next_cursor"].as_str() {
                Some(cursor) => next = format!("{path}{joint}cursor={cursor}"),
                None => return pages,
            }
        }
    }
}

/// A receiver with a configurable status. It answers only while `answers` is true.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    pub(crate) status: Arc<AtomicU16>,
    pub(crate) arrived: watch::Sender<Vec<Bytes>>,
    pub(crate) answers: watch::Sender<bool>,
}

impl Receiver {
    pub(crate) async fn start() -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let receiver = Receiver {
            address: listener.local_addr().unwrap(),
            status: Arc::new(AtomicU16::new(200)),
            arrived: watch::Sender::new(Vec::new()),
            answers: watch::Sender::new(true),
        };
        let (status, arrived) = (receiver.status.clone(), receiver.arrived.clone());
        let answers = receiver.answers.subscribe();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (status, arrived) = (status.clone(), arrived.clone());
                let answers = answers.clone();
                let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                    let (status, arrived) = (status.clone(), arrived.clone());
                    let mut answers = answers.clone();
                    async move {
                        let body = request.into_body().collect().await?.to_bytes();
                        arrived.send_modify(|bodies| bodies.push(body));
                        let _ = answers.wait_for(|answers| *answers).await;
                        let response = http::Response::builder();
                        let response = response.status(status.load(Ordering::SeqCst));
                        Ok::<_, hyper::Error>(response.body(Full::new(Bytes::new())).unwrap())
                    }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        receiver
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    pub(crate) async fn arrivals(&self, wanted: usize) -> Vec<Bytes> {
        let mut arrived = self.arrived.subscribe();
        let enough = arrived.wait_for(|bodies| bodies.len() >= wanted);
        let bodies = timeout(PATIENCE, enough).await.expect("they arrive");
        bodies.unwrap().clone()
    }
}
