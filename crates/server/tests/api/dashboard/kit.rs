//! Fixture: a whole server without sockets, a client for its pages, and receivers.

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
use posthaste_api::{self as api, ApiSettings, App};
use posthaste_core::address::EgressRules;
use posthaste_core::dice::Dice;
use posthaste_core::dispatcher::Limits;
use posthaste_core::lane::{BreakerSettings, RETRY_AFTER_CAP};
use posthaste_core::time::{Now, Tick, Timestamp};
use posthaste_dashboard::{self as dashboard, Dashboard, DashboardSettings};
use posthaste_egress::{Client, ClientSettings, Lookup, Resolve, Roots};
use posthaste_engine::replayer::Replayer;
use posthaste_engine::vault::{KeySource, Vault};
use posthaste_engine::{Engine, EngineSettings, Phase};
use posthaste_store::StoreSettings;
use posthaste_store_testing::model::ModelStore;
use posthaste_system::clock::Clock;
use posthaste_telemetry::metrics::Metrics;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;
use tower::ServiceExt;

use super::seen::HtmlPage;

pub(crate) const ADMIN: &str = "ph_admin";
/// 2026-11-15T12:00:00Z.
pub(crate) const NOON: Timestamp = Timestamp(1_794_744_000_000);
/// Maximum time to wait for a condition.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A server with the tenant `acme`.
pub(crate) struct World {
    pub(crate) app: Arc<App>,
    router: Router,
    /// Time of the manual clock, where the test uses one.
    wall_ms: Arc<AtomicU64>,
    /// Dropping it would stop the server.
    stopping: watch::Sender<bool>,
}

/// A response of the API.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Bytes,
}

impl Answer {
    /// Returns the JSON body. Panics if the status is not this one.
    #[track_caller]
    pub(crate) fn ok(&self, status: u16) -> Value {
        let text = String::from_utf8_lossy(&self.bytes);
        assert_eq!(self.status.as_u16(), status, "{text}");
        serde_json::from_slice(&self.bytes).unwrap_or_else(|_| panic!("JSON, not {text}"))
    }
}

/// A page that is followed as an event stream.
pub(crate) struct EventStream {
    pub(crate) status: StatusCode,
    body: Body,
    /// All text received so far.
    pub(crate) said: String,
}

impl EventStream {
    /// Waits for more data. Returns false at the end of the stream.
    async fn more(&mut self) -> bool {
        let Some(frame) = self.body.frame().await else {
            return false;
        };
        let data = frame.unwrap().into_data().unwrap();
        self.said.push_str(&String::from_utf8_lossy(&data));
        true
    }

    /// Waits until this text was received.
    pub(crate) async fn until(&mut self, wanted: &str) {
        let listening = async {
            while !self.said.contains(wanted) {
                assert!(self.more().await, "never {wanted}, only {}", self.said);
            }
        };
        timeout(PATIENCE, listening).await.expect(wanted);
    }

    /// Waits until the stream ends.
    pub(crate) async fn end(&mut self) {
        let listening = async { while self.more().await {} };
        timeout(PATIENCE, listening).await.expect("it ends");
    }
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
    /// A server with the system clock.
    pub(crate) async fn new() -> World {
        World::with(Clock::system(), Arc::default()).await
    }

    /// A server with a manual clock that starts at [`NOON`].
    pub(crate) async fn with_manual_clock() -> World {
        let wall_ms = Arc::new(AtomicU64::new(NOON.0));
        let told = wall_ms.clone();
        let clock = Clock::told(move || {
            let wall = Timestamp(told.load(Ordering::SeqCst));
            Now {
                wall,
                tick: Tick(wall.0 - NOON.0),
            }
        });
        World::with(clock, wall_ms).await
    }

    async fn with(clock: Clock, wall_ms: Arc<AtomicU64>) -> World {
        let engine = Engine::new();
        let store_settings = StoreSettings::new(Dice::seeded(1));
        let store = Arc::new(ModelStore::new(store_settings.clone(), engine.hand_over()));
        let settings = ApiSettings {
            admin_keys: vec![hash_key(ADMIN)],
            egress_rules: rules(),
            ..ApiSettings::default()
        };
        let app = Arc::new(App::new(
            store.clone(),
            engine,
            vault(),
            Arc::new(Metrics::new()),
            clock,
            Dice::seeded(3),
            settings,
        ));
        run(&app, store.clone(), store_settings).await;
        let (stopping, stopped) = watch::channel(false);
        let dashboard = Dashboard::new(app.clone(), DashboardSettings::default(), stopped);
        let pages = dashboard::router(Arc::new(dashboard));
        let world = World {
            router: api::router(app.clone()).merge(pages),
            app,
            wall_ms,
            stopping,
        };
        world.tenant("acme").await;
        world
    }

    /// Advances the manual clock.
    pub(crate) fn pass_ms(&self, ms: u64) {
        self.wall_ms.fetch_add(ms, Ordering::SeqCst);
    }

    /// Asks the server to stop.
    pub(crate) fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Follows the page at a path, with a bearer key if one is given.
    pub(crate) async fn follow(&self, path: &str, key: Option<&str>) -> EventStream {
        let mut request = Request::get(path).header("accept", "text/event-stream");
        if let Some(key) = key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let request = request.body(Body::empty()).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        EventStream {
            status: response.status(),
            body: response.into_body(),
            said: String::new(),
        }
    }

    /// Sends a request unchanged.
    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        Answer {
            status: parts.status,
            headers: parts.headers,
            bytes: body.collect().await.unwrap().to_bytes(),
        }
    }

    /// Calls the API as an admin.
    pub(crate) async fn call(&self, verb: &str, path: &str, body: Option<&Value>) -> Answer {
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        let request = Request::builder().method(verb).uri(path);
        let request = request.header("authorization", format!("Bearer {ADMIN}"));
        self.send(request.body(body).unwrap()).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call("GET", path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.call("POST", path, Some(body)).await
    }

    /// Creates a tenant and returns a key of it.
    pub(crate) async fn tenant(&self, id: &str) -> String {
        self.post("/v1/tenants", &json!({"id": id})).await.ok(201);
        let keys = format!("/v1/tenants/{id}/keys");
        let made = self.post(&keys, &json!({"name": "test"})).await.ok(201);
        made["key"].as_str().unwrap().to_owned()
    }

    /// Creates an endpoint of `acme` and returns its id.
    pub(crate) async fn endpoint(&self, endpoint: Value) -> String {
        let made = self.post("/v1/tenants/acme/endpoints", &endpoint).await;
        made.ok(201)["id"].as_str().unwrap().to_owned()
    }

    /// Sends an event of `acme` and returns the ids of its deliveries.
    pub(crate) async fn event(&self, event: &Value) -> Vec<String> {
        let sent = self.post("/v1/tenants/acme/events", event).await.ok(202);
        let deliveries = sent["deliveries"].as_array().unwrap().iter();
        let id = |delivery: &Value| delivery["id"].as_str().unwrap().to_owned();
        deliveries.map(id).collect()
    }

    /// Waits until a delivery of `acme` has this status, and returns it.
    pub(crate) async fn until(&self, delivery: &str, status: &str) -> Value {
        let path = format!("/v1/tenants/acme/deliveries/{delivery}");
        self.until_shown(&path, |shown| shown["status"] == status)
            .await
    }

    /// Waits until the response at this path is as wanted, and returns it.
    pub(crate) async fn until_shown(&self, path: &str, is: impl Fn(&Value) -> bool) -> Value {
        let asking = async {
            loop {
                let shown = self.get(path).await.ok(200);
                if is(&shown) {
                    return shown;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        match timeout(PATIENCE, asking).await {
            Ok(shown) => shown,
            Err(_) => panic!("still {}", self.get(path).await.ok(200)),
        }
    }

    /// Returns the page at this path, as an admin.
    pub(crate) async fn page(&self, path: &str) -> HtmlPage {
        self.page_as(ADMIN, path).await
    }

    /// Returns the page at this path, with this key.
    pub(crate) async fn page_as(&self, key: &str, path: &str) -> HtmlPage {
        let request = Request::get(path).header("authorization", format!("Bearer {key}"));
        HtmlPage::of(self.send(request.body(Body::empty()).unwrap()).await)
    }

    /// Submits a form as an admin and returns the response.
    pub(crate) async fn submit(&self, path: &str, fields: &[(&str, &str)]) -> HtmlPage {
        self.submit_as(ADMIN, path, fields).await
    }

    /// Submits a form with this key and returns the response.
    pub(crate) async fn submit_as(
        &self,
        key: &str,
        path: &str,
        fields: &[(&str, &str)],
    ) -> HtmlPage {
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        form.extend_pairs(fields);
        let request = Request::post(path)
            .header("authorization", format!("Bearer {key}"))
            .header("content-type", "application/x-www-form-urlencoded");
        HtmlPage::of(
            self.send(request.body(Body::from(form.finish())).unwrap())
                .await,
        )
    }
}

/// Starts the engine and the replays, and waits until they run.
async fn run(app: &Arc<App>, store: Arc<ModelStore>, store_settings: StoreSettings) {
    let settings = EngineSettings {
        store: store.clone(),
        store_settings,
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
        store,
        app.clock.clone(),
        app.replay_bell.clone(),
        Box::new(move |endpoint, due| engine.work(endpoint, due)),
    );
    tokio::spawn(replayer.run());
    while app.engine.phase() != Phase::Running {
        tokio::task::yield_now().await;
    }
}

/// A receiver with a configurable status.
pub(crate) struct Receiver {
    address: SocketAddr,
    status: Arc<AtomicU16>,
    arrived: watch::Sender<usize>,
}

impl Receiver {
    /// Starts a receiver that answers with this status and text.
    pub(crate) async fn answering(status: u16, text: &'static str) -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let receiver = Receiver {
            address: listener.local_addr().unwrap(),
            status: Arc::new(AtomicU16::new(status)),
            arrived: watch::Sender::new(0),
        };
        let (status, arrived) = (receiver.status.clone(), receiver.arrived.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (status, arrived) = (status.clone(), arrived.clone());
                let service = service_fn(move |request: Request<hyper::body::Incoming>| {
                    let (status, arrived) = (status.clone(), arrived.clone());
                    async move {
                        request.into_body().collect().await?;
                        arrived.send_modify(|count| *count += 1);
                        let response = http::Response::builder()
                            .status(status.load(Ordering::SeqCst))
                            .header("x-receiver", "one of the test's");
                        let body = Full::new(Bytes::from_static(text.as_bytes()));
                        Ok::<_, hyper::Error>(response.body(body).unwrap())
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

    /// Answers with this status from now on.
    pub(crate) fn answer(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }

    /// Waits until `wanted` requests have arrived.
    pub(crate) async fn arrivals(&self, wanted: usize) {
        let mut arrived = self.arrived.subscribe();
        let enough = arrived.wait_for(|count| *count >= wanted);
        timeout(PATIENCE, enough)
            .await
            .expect("they arrive")
            .expect("it is there");
    }
}
