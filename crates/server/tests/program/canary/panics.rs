//! Panics while secrets are on the stack.

use std::io;
use std::panic;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Body;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use http::Request;
use http_body_util::BodyExt;
use posthaste_api::hash_key;
use posthaste_api::{self as api, ApiSettings, App};
use posthaste_core::address::EgressRules;
use posthaste_core::dispatcher::Limits;
use posthaste_core::lane::{EndpointLimits, Protection, RETRY_AFTER_CAP};
use posthaste_core::rng::Rng;
use posthaste_egress::{Client, ClientSettings, Lookup, Resolve, Roots};
use posthaste_engine::vault::{KeySource, Vault};
use posthaste_engine::{Engine, EngineSettings};
use posthaste_store::StoreSettings;
use posthaste_store_testing::model::ModelStore;
use posthaste_system::clock::Clock;
use posthaste_telemetry::metrics::Metrics;
use serde_json::{Value, json};
use tokio::sync::Notify;
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
        let heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        heard.clone()
    }

    fn count(&self, word: &str) -> usize {
        String::from_utf8_lossy(&self.all()).matches(word).count()
    }
}

impl io::Write for LogCapture {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        heard.extend_from_slice(bytes);
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
        observe: observe.clone(),
        telemetry: posthaste_telemetry::traces::Telemetry::off(),
        clock: Clock::system(),
        rng: Rng::seeded(2),
        limits: Limits::default(),
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
    }
}

impl PanicFixture {
    async fn post(&self, canaries: &Canaries, path: &str, body: &Value) -> (u16, Vec<u8>) {
        let request = Request::post(path)
            .header(
                "authorization",
                format!("Bearer {}", canaries.plant("admin key")),
            )
            .header("idempotency-key", canaries.plant("idempotency key"))
            .body(Body::from(body.to_string()))
            .expect("a request");
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

// On one thread, because the test's log subscriber applies to its own thread only.
#[tokio::test]
async fn panic_messages_contain_no_secrets() {
    let canaries = Canaries::new();
    let heard = LogCapture::default();
    let lines = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(heard.clone())
        .finish();
    let _listening = tracing::subscriber::set_default(lines);
    let hook = heard.clone();
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
        let before = heard.count("PANIC");
        // Authentication reads the clock first, so one read is allowed.
        fixture.clock_left.store(1, Ordering::SeqCst);
        let (status, told) = fixture.post(&canaries, path, body).await;
        assert!(heard.count("PANIC") > before, "{path} did not fall");
        assert_eq!(status, 500, "{path}");
        search.look(&canaries, path, &told, NOTHING);
    }
    fixture.clock_left.store(FOREVER, Ordering::SeqCst);

    // A panic while an attempt is made.
    fixture.resolver_panics.store(true, Ordering::SeqCst);
    let (status, _) = fixture.post(&canaries, events, &event).await;
    assert_eq!(status, 202);
    fixture.panicked.notified().await;
    // The attempt is made again. By then the engine has handled the first panic.
    fixture.panicked.notified().await;
    assert!(heard.count("the resolver falls") > 0);
    let _ = panic::take_hook();
    search.look(&canaries, "the log and the panics", &heard.all(), NOTHING);
    search.assert_clean();
}
