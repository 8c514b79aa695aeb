//! Tests of the engine on the model store, with real requests to a receiver on loopback.

mod credentials;
mod http_server;
mod internal_faults;
mod protection;
mod sharing;
mod token_server;
mod tokens;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use posthaste_core::address::EgressRules;
use posthaste_core::delivery::{DeadReason, Delivery, DeliveryData, Status};
use posthaste_core::dispatcher::DispatcherLimits;
use posthaste_core::id::{DeliveryId, EndpointId, IdGenerator, TenantId};
use posthaste_core::lane::{
    EndpointLimits, EndpointStatus, LimitOverrides, Protection, RETRY_AFTER_CAP, RateLimit,
};
use posthaste_core::rng::Rng;
use posthaste_core::sign::{SharedSecret, SigningKey};
use posthaste_core::time::{Span, Timestamp};
use posthaste_egress::{Client, ClientSettings, Lookup, Resolve, Roots};
use posthaste_store::{
    AcceptResult, Content, DisabledReason, Endpoint, HandOver, HandedOver, Lease, Lists, NewEvent,
    Store, StoreError, StoreSettings, StoredDelivery, Tenant,
};
use posthaste_store_testing::model::ModelStore;
use posthaste_system::clock::Clock;
use posthaste_telemetry::metrics::Metrics;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::timeout;

use self::http_server::serve;
use super::{CancelResult, Engine, EngineError, EnginePhase, EngineSettings};
use crate::signing_keys::SigningKeyring;
use crate::vault::{KeySource, Purpose, Vault};

const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// A receiver that keeps the delivery ids of requests, and answers 200 as soon as `answers` is true.
struct Receiver {
    address: SocketAddr,
    arrived: watch::Sender<Vec<String>>,
    answers: watch::Sender<bool>,
}

impl Receiver {
    async fn start() -> Receiver {
        let arrived = watch::Sender::new(Vec::new());
        let answers = watch::Sender::new(true);
        let (ids, answering) = (arrived.clone(), answers.subscribe());
        let address = serve(move |request| {
            let mut answers = answering.clone();
            let id = request.headers["webhook-id"].to_str().unwrap().to_owned();
            ids.send_modify(|ids: &mut Vec<String>| ids.push(id));
            async move {
                let _ = answers.wait_for(|answers| *answers).await;
                (200, Bytes::new())
            }
        });
        Receiver {
            address: address.await,
            arrived,
            answers,
        }
    }

    fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Waits until so many requests have arrived. Fails if none arrives for [`TEST_TIMEOUT`]: how long all of them take
    /// depends on the machine.
    async fn arrivals(&self, wanted: usize) -> Vec<String> {
        let mut arrived = self.arrived.subscribe();
        loop {
            let count = arrived.borrow_and_update().len();
            if count >= wanted {
                return arrived.borrow().clone();
            }
            let more = timeout(TEST_TIMEOUT, arrived.changed()).await;
            assert!(more.is_ok(), "only {count} have arrived");
        }
    }

    fn count(&self) -> usize {
        self.arrived.borrow().len()
    }
}

/// Resolves every name to loopback, or panics on request; counts the panics.
struct Loopback {
    resolver_panics: Arc<AtomicBool>,
    panics: watch::Sender<usize>,
}

impl Resolve for Loopback {
    fn resolve<'a>(&'a self, _: &'a str) -> Lookup<'a> {
        let panics = self.resolver_panics.load(Ordering::SeqCst);
        Box::pin(async move {
            if panics {
                self.panics.send_modify(|count| *count += 1);
                panic!("the resolver falls over");
            }
            Ok(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)])
        })
    }
}

struct Fixture {
    store: Arc<ModelStore>,
    engine: Engine,
    vault: Arc<Vault>,
    clock: Clock,
    /// Time by which the clock is ahead.
    ahead_ms: Arc<AtomicU64>,
    id_generator: Mutex<IdGenerator>,
    tenant: TenantId,
    resolver_panics: Arc<AtomicBool>,
    panics: watch::Sender<usize>,
    metrics: Arc<Metrics>,
}

impl Fixture {
    async fn start() -> Fixture {
        let engine = Engine::new();
        let hand_over = engine.hand_over();
        Fixture::start_with(engine, hand_over, None).await
    }

    /// Starts a fixture whose store hands over to `hand_over`, and whose engine shares the store if there is a lease.
    async fn start_with(
        engine: Engine,
        hand_over: Arc<dyn HandOver>,
        lease: Option<Lease>,
    ) -> Fixture {
        let (clock, ahead_ms) = internal_faults::adjustable_clock();
        let settings = StoreSettings::new(Rng::seeded(1));
        let store = Arc::new(ModelStore::new(settings.clone(), hand_over));
        let vault = Vault::open_or_create(KeySource::Text {
            text: "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=".to_owned(),
            origin: "the test".to_owned(),
        });
        let vault = Arc::new(vault.unwrap());
        let resolver_panics = Arc::new(AtomicBool::new(false));
        let panics = watch::Sender::new(0);
        let metrics = Arc::new(Metrics::new());
        let tenant: TenantId = "acme".parse().unwrap();
        let fixture = Fixture {
            store,
            engine,
            vault,
            clock,
            ahead_ms,
            id_generator: Mutex::new(IdGenerator::new(Rng::seeded(3))),
            tenant,
            resolver_panics,
            panics,
            metrics,
        };
        fixture.run(&fixture.engine, &fixture.metrics, lease);
        let created = fixture.store.create_tenant(
            fixture.clock.wall(),
            Tenant::new(
                fixture.tenant.clone(),
                "Acme".to_owned(),
                fixture.clock.wall(),
            ),
        );
        created.await.unwrap();
        fixture
    }

    /// Starts an engine on this fixture's store.
    fn run(&self, engine: &Engine, metrics: &Arc<Metrics>, lease: Option<Lease>) {
        let rules = EgressRules {
            allow_networks: vec!["127.0.0.0/8".parse().unwrap()],
            allow_http: true,
            ..EgressRules::default()
        };
        let client = Client::new(ClientSettings {
            rules: rules.clone(),
            roots: Roots::none(),
            resolver: Arc::new(Loopback {
                resolver_panics: self.resolver_panics.clone(),
                panics: self.panics.clone(),
            }),
            ..ClientSettings::default()
        });
        let engine_settings = EngineSettings {
            store: self.store.clone(),
            store_settings: StoreSettings::new(Rng::seeded(1)),
            client,
            rules,
            vault: self.vault.clone(),
            metrics: metrics.clone(),
            telemetry: posthaste_telemetry::traces::Telemetry::off(),
            clock: self.clock.clone(),
            rng: Rng::seeded(2),
            limits: DispatcherLimits::default(),
            endpoint_defaults: EndpointLimits::default(),
            protection: Protection::default(),
            retry_after_cap: RETRY_AFTER_CAP,
            lease,
        };
        let running = engine.clone();
        tokio::spawn(async move { running.run(engine_settings).await });
    }

    async fn endpoint(&self, url: String) -> EndpointId {
        self.endpoint_with(url, |_| {}).await
    }

    async fn endpoint_with(&self, url: String, adjust: impl FnOnce(&mut Endpoint)) -> EndpointId {
        let now = self.clock.wall();
        let id: EndpointId = self.id_generator.lock().unwrap().next(now);
        let secret = SigningKey::Shared(SharedSecret::from_random([7; 24]));
        let keys = SigningKeyring::new(secret).to_stored();
        let seal = |purpose, plain: &[u8]| self.vault.seal(&self.tenant, id, purpose, plain);
        let mut endpoint = Endpoint {
            retry_policy: Some(json!({
                "backoff": {"kind": "fixed", "interval": "20ms"},
                "jitter": {"kind": "none"},
                "max_attempts": 4,
            })),
            limits: LimitOverrides {
                rate_limit: Some(RateLimit {
                    per_second: 10_000.0,
                    burst: 10_000,
                }),
                ..LimitOverrides::default()
            },
            sealed_headers: seal(Purpose::Headers, b"{}"),
            sealed_keys: seal(Purpose::SigningKeys, &keys),
            signature_style: posthaste_core::sign::SignatureStyle::Standard,
            owner_email_confirmed: true,
            ..Endpoint::new(id, self.tenant.clone(), url, now)
        };
        adjust(&mut endpoint);
        self.store.create_endpoint(now, endpoint, 10).await.unwrap();
        id
    }

    async fn events(&self, count: usize) -> Vec<DeliveryId> {
        self.events_at(count, None).await
    }

    async fn events_at(&self, count: usize, deliver_at: Option<Timestamp>) -> Vec<DeliveryId> {
        let event = NewEvent {
            deliver_at,
            ..NewEvent::new(
                self.tenant.clone(),
                Content::new("a.b".parse().unwrap(), Bytes::from_static(b"{}")),
            )
        };
        let accepted = self.store.accept(self.clock.wall(), vec![event; count]);
        let accepted = accepted.await.unwrap();
        let AcceptResult::Done(events) = accepted else {
            panic!("{accepted:?}");
        };
        events.iter().map(|e| e.event.deliveries[0].id).collect()
    }

    async fn stored(&self, delivery: DeliveryId) -> StoredDelivery {
        let stored = self.store.delivery(self.tenant.clone(), delivery).await;
        stored.unwrap().expect("the delivery exists").0
    }

    async fn until(&self, delivery: DeliveryId, status: Status) -> StoredDelivery {
        let asking = async {
            loop {
                let stored = self.stored(delivery).await;
                if stored.shown_status() == status {
                    return stored;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        timeout(TEST_TIMEOUT, asking)
            .await
            .expect("the delivery gets the status")
    }
}

#[tokio::test]
async fn everything_accepted_is_delivered_once() {
    let fixture = Fixture::start().await;
    let receiver = Receiver::start().await;
    fixture.endpoint(receiver.url()).await;
    // More than a lane keeps in memory, so most are read from the store.
    let deliveries = fixture.events(500).await;
    for delivery in &deliveries {
        fixture.until(*delivery, Status::Succeeded).await;
    }
    let mut arrived = receiver.arrivals(500).await;
    arrived.sort();
    arrived.dedup();
    assert_eq!((arrived.len(), receiver.count()), (500, 500));
    assert_eq!(fixture.engine.in_flight_count(), 0);
}

#[tokio::test]
async fn more_deliveries_than_the_inbox_holds_are_all_delivered() {
    let fixture = Fixture::start().await;
    let receiver = Receiver::start().await;
    fixture.endpoint(receiver.url()).await;
    let count = super::inbox::MAX_HANDED_OVER + 2_000;
    // Commits that together exceed the bound, before the engine processes any of them. One request may not.
    let first = fixture.events(super::inbox::MAX_HANDED_OVER / 2);
    let second = fixture.events(super::inbox::MAX_HANDED_OVER / 2);
    let third = fixture.events(2_000);
    let (mut deliveries, second, third) = tokio::join!(first, second, third);
    deliveries.extend(second);
    deliveries.extend(third);
    let mut arrived = receiver.arrivals(count).await;
    fixture
        .until(deliveries[count - 1], Status::Succeeded)
        .await;
    fixture.until(deliveries[0], Status::Succeeded).await;
    arrived.sort();
    arrived.dedup();
    assert_eq!(arrived.len(), count);
}

#[tokio::test]
async fn no_attempt_starts_after_a_disable_was_acknowledged() {
    let fixture = Fixture::start().await;
    let receiver = Receiver::start().await;
    receiver.answers.send_replace(false);
    let endpoint = fixture.endpoint(receiver.url()).await;
    let deliveries = fixture.events(50).await;
    receiver.arrivals(10).await;
    let disabled = fixture
        .engine
        .set_status(endpoint, EndpointStatus::Disabled, None);
    disabled.await.unwrap();
    let begun = fixture.engine.deliveries_in_flight();
    receiver.answers.send_replace(true);
    for delivery in &deliveries {
        // Attempts in flight complete and count; the other deliveries have failed.
        let status = match begun.contains(delivery) {
            true => Status::Succeeded,
            false => Status::Failed,
        };
        fixture.until(*delivery, status).await;
    }
    assert_eq!(receiver.count(), 10);
    let row = fixture.store.endpoint(endpoint).await.unwrap().unwrap();
    assert_eq!(row.status, EndpointStatus::Disabled);
}

#[tokio::test]
async fn a_waiting_delivery_can_be_cancelled_and_one_in_flight_cannot() {
    let fixture = Fixture::start().await;
    let receiver = Receiver::start().await;
    receiver.answers.send_replace(false);
    let endpoint = fixture.endpoint(receiver.url()).await;
    let later = fixture.clock.wall().after(Span::from_hours(1));
    let waiting = fixture.events_at(1, Some(later)).await[0];
    let flying = fixture.events(1).await[0];
    receiver.arrivals(1).await;
    let cancel = |delivery| fixture.engine.cancel(endpoint, delivery);
    assert!(fixture.engine.is_in_flight(flying));
    assert_eq!(cancel(flying).await, Ok(CancelResult::TooLate));
    assert_eq!(cancel(waiting).await, Ok(CancelResult::Done));
    assert_eq!(
        fixture.stored(waiting).await.shown_status(),
        Status::Cancelled
    );
    assert_eq!(cancel(waiting).await, Ok(CancelResult::Ended));
    receiver.answers.send_replace(true);
    fixture.until(flying, Status::Succeeded).await;
}

#[tokio::test]
async fn results_are_kept_until_they_can_be_recorded() {
    let fixture = Fixture::start().await;
    let receiver = Receiver::start().await;
    receiver.answers.send_replace(false);
    fixture.endpoint(receiver.url()).await;
    let deliveries = fixture.events(3).await;
    receiver.arrivals(3).await;
    fixture.store.fail_writes(Some(StoreError::Full));
    receiver.answers.send_replace(true);
    let refused = async {
        while fixture.store.refused_writes() < 3 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(TEST_TIMEOUT, refused)
        .await
        .expect("all three are refused");
    fixture.store.fail_writes(None);
    for delivery in deliveries {
        let stored = fixture.until(delivery, Status::Succeeded).await;
        assert_eq!(stored.delivery.facts().attempts, 1);
    }
    assert_eq!(receiver.count(), 3, "nothing was sent again");
}

#[tokio::test]
async fn an_unpersisted_status_is_in_force_and_written_later() {
    let fixture = Fixture::start().await;
    let receiver = Receiver::start().await;
    let endpoint = fixture.endpoint(receiver.url()).await;
    fixture.store.fail_writes(Some(StoreError::Full));
    let disabled = fixture
        .engine
        .set_status(endpoint, EndpointStatus::Disabled, None);
    // It is written later, so the answer must not be that nothing was changed.
    let unknown = EngineError::not_persisted_yet(StoreError::Full);
    assert_eq!(disabled.await, Err(unknown));
    fixture.store.fail_writes(None);
    // The store still has it as enabled.
    let delivery = fixture.events(1).await[0];
    let failed = fixture.until(delivery, Status::Failed).await;
    let reason = failed.delivery.state().dead_reason();
    assert_eq!(reason, Some(DeadReason::EndpointDisabled));
    let written = async {
        loop {
            let row = fixture.store.endpoint(endpoint).await.unwrap().unwrap();
            if row.status == EndpointStatus::Disabled {
                return row.disabled_reason;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let reason = timeout(TEST_TIMEOUT, written).await.expect("it is written");
    assert_eq!(reason, Some(DisabledReason::Manual));
    assert_eq!(receiver.count(), 0);
}

#[tokio::test]
async fn callers_of_a_stopped_engine_get_an_error() {
    let fixture = Fixture::start().await;
    let receiver = Receiver::start().await;
    let endpoint = fixture.endpoint(receiver.url()).await;
    let delivery = fixture.events(1).await[0];
    let ended = fixture.until(delivery, Status::Succeeded).await;
    // A delivery that has ended is never handed over: this broken invariant ends the engine.
    fixture.engine.hand_over().accepted(vec![HandedOver {
        delivery: Delivery::restore(
            DeliveryData {
                id: DeliveryId(1),
                ..ended.delivery.facts().clone()
            },
            ended.delivery.state(),
        ),
        accepted_at: ended.created_at,
        content: Arc::new(Content::new(ended.event_type, Bytes::new())),
        received: None,
    }]);
    let answered = async {
        assert_eq!(
            fixture.engine.lane(endpoint).await,
            Err(EngineError::Stopped)
        );
        assert_eq!(fixture.engine.phase(), EnginePhase::Stopped);
        fixture.engine.shut_down().await;
    };
    timeout(TEST_TIMEOUT, answered)
        .await
        .expect("every caller is answered");
}

#[tokio::test]
async fn a_changed_url_is_used_at_once() {
    let fixture = Fixture::start().await;
    let (old, new) = (Receiver::start().await, Receiver::start().await);
    let endpoint = fixture.endpoint(old.url()).await;
    let first = fixture.events(1).await[0];
    fixture.until(first, Status::Succeeded).await;
    let row = fixture.store.endpoint(endpoint).await.unwrap().unwrap();
    let mut changed = row.endpoint;
    changed.url = new.url();
    let now = fixture.clock.wall();
    fixture.store.replace_endpoint(now, changed).await.unwrap();
    fixture.engine.changed(endpoint);
    // Messages arrive in order: the change first, then this request.
    let lane = fixture.engine.lane(endpoint).await.unwrap();
    assert!(lane.is_some());
    let changed = async {
        while new.count() == 0 {
            let next = fixture.events(1).await[0];
            fixture.until(next, Status::Succeeded).await;
        }
    };
    timeout(TEST_TIMEOUT, changed)
        .await
        .expect("it is followed");
    let old_count = old.count();
    let last = fixture.events(1).await[0];
    fixture.until(last, Status::Succeeded).await;
    assert_eq!(old.count(), old_count);
}

#[tokio::test]
async fn a_shutdown_waits_for_attempts_in_flight_only() {
    let fixture = Fixture::start().await;
    let receiver = Receiver::start().await;
    receiver.answers.send_replace(false);
    fixture.endpoint(receiver.url()).await;
    let deliveries = fixture.events(30).await;
    receiver.arrivals(10).await;
    let stopping = tokio::spawn({
        let engine = fixture.engine.clone();
        async move { engine.shut_down().await }
    });
    receiver.answers.send_replace(true);
    timeout(TEST_TIMEOUT, stopping)
        .await
        .expect("it stops")
        .unwrap();
    let mut ended = 0;
    for delivery in deliveries {
        let status = fixture.stored(delivery).await.shown_status();
        ended += usize::from(status == Status::Succeeded);
    }
    assert_eq!(ended, receiver.count(), "what was sent is written down");
    assert!(ended < 30, "nothing new was begun");
}

#[tokio::test]
async fn after_stop_starting_requests_are_still_answered() {
    let fixture = Fixture::start().await;
    let receiver = Receiver::start().await;
    receiver.answers.send_replace(false);
    let endpoint = fixture.endpoint(receiver.url()).await;
    let first = fixture.events(10).await;
    receiver.arrivals(10).await;
    fixture.engine.stop_starting();
    let later = fixture.events(5).await;
    receiver.answers.send_replace(true);
    for delivery in first {
        fixture.until(delivery, Status::Succeeded).await;
    }
    let cancelled = fixture.engine.cancel(endpoint, later[0]).await;
    assert_eq!(cancelled, Ok(CancelResult::Done));
    let paused = fixture
        .engine
        .set_status(endpoint, EndpointStatus::Paused, None);
    assert_eq!(paused.await, Ok(()));
    let stopped = timeout(TEST_TIMEOUT, fixture.engine.shut_down());
    stopped.await.expect("it stops");
    assert_eq!(receiver.count(), 10);
    let left = fixture.stored(later[1]).await;
    assert_eq!(left.delivery.facts().attempts, 0);
}
