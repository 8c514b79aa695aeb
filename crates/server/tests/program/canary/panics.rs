//! Panics while secrets are on the stack.

use std::io;
use std::panic;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use http::Request;
use http_body_util::BodyExt;
use posthaste_api::hash_key;
use posthaste_api::{self as api, ApiSettings, App};
use posthaste_core::address::EgressRules;
use posthaste_core::dispatcher::DispatcherLimits;
use posthaste_core::lane::{EndpointLimits, Protection, RETRY_AFTER_CAP};
use posthaste_core::rng::Rng;
use posthaste_core::time::{Now, Span};
use posthaste_egress::{Client, ClientSettings, Lookup, Resolve, Roots};
use posthaste_engine::vault::{KeySource, Vault};
use posthaste_engine::{Engine, EngineSettings};
use posthaste_store::StoreSettings;
use posthaste_store_testing::model::ModelStore;
use posthaste_system::clock::Clock;
use posthaste_telemetry::metrics::Metrics;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tower::ServiceExt;
use tracing_subscriber::fmt::MakeWriter;

use super::canaries::Canaries;
use super::search::{NOTHING, Search};

/// Value of `clock_left` for a clock that never panics.
const FOREVER: u32 = u32::MAX;

/// All log lines and panic messages.
#[derive(Clone, Default)]
struct LogCapture(Arc<Mutex<Vec<u8>>>);

impl LogCapture {
    fn all(&self) -> Vec<u8> {
        let log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.clone()
    }

    fn count(&self, word: &str) -> usize {
        String::from_utf8_lossy(&self.all()).matches(word).count()
    }
}

impl io::Write for LogCapture {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'w> MakeWriter<'w> for LogCapture {
    type Writer = LogCapture;

    fn make_writer(&'w self) -> LogCapture {
        self.clone()
    }
}

/// A resolver that panics while `falls` is true.
struct PanickingResolver {
    falls: Arc<AtomicBool>,
    panicked: Arc<Notify>,
}

impl Resolve for PanickingResolver {
    fn resolve<'a>(&'a self, _: &'a str) -> Lookup<'a> {
        if self.falls.load(Ordering::SeqCst) {
            self.panicked.notify_one();
            panic!("the resolver falls");
        }
        Box::pin(async { Ok(vec!["127.0.0.1".parse().expect("an address")]) })
    }
}

/// A server without sockets, with a clock and a resolver that panic on request.
struct PanicFixture {
    router: Router,
    /// Number of clock reads before it panics.
    clock_left: Arc<AtomicU32>,
    resolver_panics: Arc<AtomicBool>,
    panicked: Arc<Notify>,
    /// Time by which the clock of the engine is ahead, in milliseconds.
    ahead_ms: Arc<AtomicU64>,
}

fn fixture(canaries: &Canaries) -> PanicFixture {
    let clock_left = Arc::new(AtomicU32::new(FOREVER));
    let resolver_panics = Arc::new(AtomicBool::new(false));
    let panicked = Arc::new(Notify::new());
    let left = clock_left.clone();
    let system = Clock::system();
    let api_clock = Clock::from_fn(move || {
        if left.load(Ordering::SeqCst) != FOREVER {
            let before = left.load(Ordering::SeqCst);
            assert!(before > 0, "the clock falls");
            left.store(before - 1, Ordering::SeqCst);
        }
        system.now()
    });
    let ahead_ms = Arc::new(AtomicU64::new(0));
    let (ahead, system) = (ahead_ms.clone(), Clock::system());
    let engine_clock = Clock::from_fn(move || {
        let ahead = Span::from_millis(ahead.load(Ordering::SeqCst));
        let now = system.now();
        Now {
            wall: now.wall.after(ahead),
            tick: now.tick.after(ahead),
        }
    });
    let engine = Engine::new();
    let store_settings = StoreSettings::new(Rng::seeded(1));
    let store = Arc::new(ModelStore::new(store_settings.clone(), engine.hand_over()));
    let vault = Vault::open_or_create(KeySource::Text {
        text: BASE64_STANDARD.encode(canaries.plant("master key")),
        origin: "the test".to_owned(),
    });
    let vault = Arc::new(vault.expect("a vault"));
    let rules = EgressRules {
        allow_networks: vec!["127.0.0.0/8".parse().expect("a network")],
        allow_http: true,
        ..EgressRules::default()
    };
    let observe = Arc::new(Metrics::new());
    let running = EngineSettings {
        store: store.clone(),
        store_settings,
        client: Client::new(ClientSettings {
            rules: rules.clone(),
            roots: Roots::none(),
            resolver: Arc::new(PanickingResolver {
                falls: resolver_panics.clone(),
                panicked: panicked.clone(),
            }),
            ..ClientSettings::default()
        }),
        rules: rules.clone(),
        vault: vault.clone(),
        metrics: observe.clone(),
        telemetry: posthaste_telemetry::traces::Telemetry::off(),
        clock: engine_clock,
        rng: Rng::seeded(2),
        limits: DispatcherLimits::default(),
        endpoint_defaults: EndpointLimits::default(),
        protection: Protection::default(),
        retry_after_cap: RETRY_AFTER_CAP,
        lease: None,
    };
    let sending = engine.clone();
    tokio::spawn(async move { sending.run(running).await });
    let settings = ApiSettings {
        admin_keys: vec![hash_key(canaries.plant("admin key"))],
        egress_rules: rules,
        ..ApiSettings::default()
    };
    let rng = Rng::seeded(3);
    let app = App::new(store, engine, vault, observe, api_clock, rng, settings);
    PanicFixture {
        router: api::router(Arc::new(app)),
        clock_left,
        resolver_panics,
        panicked,
        ahead_ms,
    }
}

impl PanicFixture {
    async fn post(&self, canaries: &Canaries, path: &str, body: &Value) -> (u16, Vec<u8>) {
        let request = Request::post(path)
            .header("idempotency-key", canaries.plant("idempotency key"))
            .body(Body::from(body.to_string()));
        self.call(canaries, request.expect("a request")).await
    }

    async fn get(&self, canaries: &Canaries, path: &str) -> Value {
        let request = Request::get(path).body(Body::empty());
        let (status, body) = self.call(canaries, request.expect("a request")).await;
        assert_eq!(status, 200, "{path}");
        serde_json::from_slice(&body).expect("JSON")
    }

    async fn call(&self, canaries: &Canaries, mut request: Request<Body>) -> (u16, Vec<u8>) {
        let key = format!("Bearer {}", canaries.plant("admin key"));
        let key = key.parse().expect("a header");
        request.headers_mut().insert("authorization", key);
        let answer = self
            .router
            .clone()
            .oneshot(request)
            .await
            .expect("an answer");
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.expect("a body");
        (status, body.to_bytes().to_vec())
    }
}

/// A delivery whose attempts panic is shown as held, without the message of the panic, and can be cancelled.
#[tokio::test]
async fn a_delivery_whose_attempts_panic_is_shown_as_held() {
    let canaries = Canaries::new();
    let fixture = fixture(&canaries);
    fixture.resolver_panics.store(true, Ordering::SeqCst);
    let acme = "/v1/tenants/acme";
    let post = async |path: &str, body: Value| {
        let (status, response) = fixture.post(&canaries, path, &body).await;
        assert!(status < 300, "{path}: {status}");
        serde_json::from_slice::<Value>(&response).expect("JSON")
    };
    post("/v1/tenants", json!({"id": "acme"})).await;
    let endpoint = json!({"url": "http://hooks.example.com:8080/"});
    let endpoint = post(&format!("{acme}/endpoints"), endpoint).await;
    let endpoint = endpoint["id"].as_str().expect("an id");
    let event = json!({"type": "a", "payload": {}});
    let event = post(&format!("{acme}/events"), event).await;
    let id = event["deliveries"][0]["id"].as_str().expect("an id");
    let delivery = format!("{acme}/deliveries/{id}");
    let until_held = async {
        loop {
            let shown = fixture.get(&canaries, &delivery).await;
            if shown["status"] == "held" {
                return shown;
            }
            fixture.ahead_ms.fetch_add(31_000, Ordering::SeqCst);
            // A change of the endpoint would release it; the question only wakes the engine.
            fixture
                .get(&canaries, &format!("{acme}/endpoints/{endpoint}/health"))
                .await;
            sleep(Duration::from_millis(2)).await;
        }
    };
    let held = timeout(Duration::from_secs(20), until_held).await;
    let held = held.expect("it is held");
    assert_eq!(held["attempt_count"], 0);
    assert_eq!(held["next_attempt_at"], Value::Null);
    assert_eq!(held["last_error"]["kind"], "unknown");
    let detail = held["last_error"]["detail"].as_str().expect("a detail");
    assert!(detail.starts_with("held after 10 consecutive internal errors"));
    for (status, count) in [("held", 1), ("pending", 0)] {
        let listed = format!("{acme}/deliveries?status={status}");
        let listed = fixture.get(&canaries, &listed).await;
        let items = listed["data"].as_array().expect("a list");
        assert_eq!(items.len(), count, "{status}");
    }
    let cancelled = post(&format!("{delivery}/cancel"), json!({})).await;
    assert_eq!(cancelled["status"], "cancelled");
}

// On one thread, because the test's log subscriber applies to its own thread only.
#[tokio::test]
async fn panic_messages_contain_no_secrets() {
    let canaries = Canaries::new();
    let log = LogCapture::default();
    let lines = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(log.clone())
        .finish();
    let _listening = tracing::subscriber::set_default(lines);
    let hook = log.clone();
    panic::set_hook(Box::new(move |info| {
        use io::Write;
        let mut hook = hook.clone();
        let _ = writeln!(hook, "PANIC {info} {info:?}");
    }));

    let fixture = fixture(&canaries);
    let secret = format!(
        "whsec_{}",
        BASE64_STANDARD.encode(canaries.plant("brought secret"))
    );
    let endpoint = json!({
        "url": format!("http://hooks.example.com:8080/?{}", canaries.plant("URL query")),
        "secret": secret,
        "headers": {"Authorization": canaries.plant("authorization header")},
    });
    let event = json!({"type": "a", "payload": canaries.plant("JSON payload"),
        "ordering_key": canaries.plant("ordering key")});
    let (status, _) = fixture
        .post(&canaries, "/v1/tenants", &json!({"id": "acme"}))
        .await;
    assert_eq!(status, 201);
    let endpoints = "/v1/tenants/acme/endpoints";
    let events = "/v1/tenants/acme/events";
    let (status, made) = fixture.post(&canaries, endpoints, &endpoint).await;
    assert_eq!(status, 201);
    let made: Value = serde_json::from_slice(&made).expect("JSON");
    let id = made["id"].as_str().expect("an id");

    // A panic while a request is handled.
    let mut search = Search::default();
    let rotate = format!("{endpoints}/{id}/secret/rotate");
    for (path, body) in [
        (endpoints, &endpoint),
        (events, &event),
        ("/v1/tenants/acme/events/batch", &json!({"events": [event]})),
        (rotate.as_str(), &json!({"secret": secret})),
        (
            "/v1/tenants/acme/keys",
            &json!({"name": canaries.plant("misplaced secret")}),
        ),
    ] {
        let before = log.count("PANIC");
        // Authentication reads the clock first, so one read is allowed.
        fixture.clock_left.store(1, Ordering::SeqCst);
        let (status, response) = fixture.post(&canaries, path, body).await;
        assert!(log.count("PANIC") > before, "{path} did not fall");
        assert_eq!(status, 500, "{path}");
        search.look(&canaries, path, &response, NOTHING);
    }
    fixture.clock_left.store(FOREVER, Ordering::SeqCst);

    // A panic while an attempt is made.
    fixture.resolver_panics.store(true, Ordering::SeqCst);
    let (status, _) = fixture.post(&canaries, events, &event).await;
    assert_eq!(status, 202);
    fixture.panicked.notified().await;
    // The attempt is made again. By then the engine has handled the first panic.
    fixture.panicked.notified().await;
    assert!(log.count("the resolver falls") > 0);
    let _ = panic::take_hook();
    search.look(&canaries, "the log and the panics", &log.all(), NOTHING);
    search.assert_clean();
}
