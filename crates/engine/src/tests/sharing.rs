//! Tests of engines that share a store: grants, revocations, lease losses, and routing of requests to the owner.

use std::sync::Mutex;

use posthaste_core::cluster::Shard;
use posthaste_core::cluster::{FormatLevel, ShareGrant, share};
use posthaste_core::dispatcher::TenantDemand;
use posthaste_core::lane::HeldBackBy;
use posthaste_core::time::Tick;
use posthaste_store::{Answer, Cluster, NodeInfo, NodeNo, Owner, SubjectScope, Written};
use posthaste_telemetry::metrics::window::StatsWindow;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::*;
use crate::owner_router::OwnerRouter;

const NEVER: Tick = Tick(u64::MAX - 1);

/// Hands over to every engine. Each ignores what it does not own.
struct ToAll(Vec<Arc<dyn HandOver>>);

impl HandOver for ToAll {
    fn accepted(&self, deliveries: Vec<HandedOver>) {
        for hand_over in &self.0 {
            hand_over.accepted(deliveries.clone());
        }
    }

    fn broken(&self, why: &StoreError) {
        panic!("{why}");
    }
}

/// Two nodes on one store.
struct Pair {
    fixture: Fixture,
    other: Engine,
    lease: Lease,
}

impl Pair {
    async fn start() -> Pair {
        let (engine, other) = (Engine::new(), Engine::new());
        let hand_over = ToAll(vec![engine.hand_over(), other.hand_over()]);
        let lease = Lease::until(NEVER, NEVER);
        let leased = Some(lease.clone());
        let fixture = Fixture::start_with(engine, Arc::new(hand_over), leased).await;
        let others = Some(Lease::until(NEVER, NEVER));
        fixture.run(&other, &Arc::new(Metrics::new()), others);
        Pair {
            fixture,
            other,
            lease,
        }
    }

    fn engine(&self) -> &Engine {
        &self.fixture.engine
    }
}

fn everything() -> Vec<Shard> {
    Shard::all().collect()
}

/// Revokes all shards. The answer arrives when nothing is in flight.
fn revoke(engine: &Engine) -> oneshot::Receiver<Result<(), StoreError>> {
    let (sender, answer) = oneshot::channel();
    let done = Box::new(move |result| drop(sender.send(result)));
    engine.revoked(everything(), done);
    answer
}

/// Waits until the engine has processed all earlier messages.
async fn settled(engine: &Engine) {
    engine.breakers().await.unwrap();
}

#[tokio::test]
async fn only_granted_shards_are_sent() {
    let pair = Pair::start().await;
    let receiver = Receiver::start().await;
    let endpoint = pair.fixture.endpoint(receiver.url()).await;
    let before = pair.fixture.events(5).await;
    let looked = pair.engine().lane(endpoint).await;
    assert_eq!(looked, Err(EngineError::NotOwner));
    assert_eq!(receiver.count(), 0);
    pair.engine().granted(vec![Shard::of(endpoint)]);
    settled(pair.engine()).await;
    let after = pair.fixture.events(5).await;
    for delivery in before.into_iter().chain(after) {
        pair.fixture.until(delivery, Status::Succeeded).await;
    }
    assert_eq!(receiver.count(), 10);
    assert_eq!(pair.other.lane(endpoint).await, Err(EngineError::NotOwner));
}

#[tokio::test]
async fn a_revoked_shard_is_released_when_nothing_is_in_flight() {
    let pair = Pair::start().await;
    let receiver = Receiver::start().await;
    receiver.answers.send_replace(false);
    let endpoint = pair.fixture.endpoint(receiver.url()).await;
    pair.engine().granted(everything());
    settled(pair.engine()).await;
    let deliveries = pair.fixture.events(30).await;
    receiver.arrivals(10).await;
    let mut revoked = revoke(pair.engine());
    settled(pair.engine()).await;
    assert!(revoked.try_recv().is_err(), "ten are in flight");
    // Until the release it still answers requests that only an owner can answer.
    let cancelled = pair.engine().cancel(endpoint, deliveries[29]).await;
    assert_eq!(cancelled, Ok(CancelResult::Done));
    let paused = pair
        .engine()
        .set_status(endpoint, EndpointStatus::Paused, None)
        .await;
    assert_eq!(paused, Ok(()));
    receiver.answers.send_replace(true);
    let done = timeout(TEST_TIMEOUT, revoked)
        .await
        .expect("it is given up");
    assert_eq!(done.unwrap(), Ok(()));
    assert_eq!(receiver.count(), 10, "nothing began since");
    assert_eq!(pair.engine().in_flight_count(), 0);
    let result = pair
        .engine()
        .set_status(endpoint, EndpointStatus::Enabled, None)
        .await;
    assert_eq!(result, Err(EngineError::NotOwner));
    pair.other.granted(everything());
    let resumed = async {
        while pair
            .other
            .set_status(endpoint, EndpointStatus::Enabled, None)
            .await
            != Ok(())
        {}
    };
    timeout(TEST_TIMEOUT, resumed)
        .await
        .expect("it is the other's");
    for delivery in &deliveries[..29] {
        pair.fixture.until(*delivery, Status::Succeeded).await;
    }
    assert_eq!(receiver.count(), 29, "each once");
}

#[tokio::test]
async fn an_idle_shard_is_released_at_once() {
    let pair = Pair::start().await;
    pair.engine().granted(everything());
    let revoked = timeout(TEST_TIMEOUT, revoke(pair.engine())).await;
    assert_eq!(revoked.expect("at once").unwrap(), Ok(()));
    pair.engine().shut_down().await;
    let revoked = timeout(TEST_TIMEOUT, revoke(pair.engine())).await;
    assert_eq!(revoked.expect("at once").unwrap(), Ok(()));
}

#[tokio::test]
async fn no_attempt_starts_without_a_valid_lease() {
    let pair = Pair::start().await;
    let receiver = Receiver::start().await;
    pair.fixture.endpoint(receiver.url()).await;
    pair.engine().granted(everything());
    let first = pair.fixture.events(1).await[0];
    pair.fixture.until(first, Status::Succeeded).await;
    pair.lease.set(Tick::START, NEVER);
    settled(pair.engine()).await;
    let second = pair.fixture.events(1).await[0];
    for _ in 0..10 {
        settled(pair.engine()).await;
    }
    assert_eq!(receiver.count(), 1);
    pair.lease.set(NEVER, NEVER);
    let sent = pair.fixture.until(second, Status::Succeeded).await;
    assert_eq!(sent.delivery.facts().attempts, 1);
}

#[tokio::test]
async fn a_new_lease_does_not_cover_attempts_of_the_old_one() {
    let pair = Pair::start().await;
    let receiver = Receiver::start().await;
    pair.fixture.endpoint(receiver.url()).await;
    pair.engine().granted(everything());
    settled(pair.engine()).await;
    // The store has counted the loss, and the engine has not processed it yet.
    pair.engine().shared.lease_losses.add();
    let delivery = pair.fixture.events(1).await[0];
    for _ in 0..10 {
        settled(pair.engine()).await;
    }
    assert_eq!(receiver.count(), 0);
    pair.engine().expired();
    pair.engine().granted(everything());
    let sent = pair.fixture.until(delivery, Status::Succeeded).await;
    assert_eq!(sent.delivery.facts().attempts, 1);
    assert_eq!(receiver.count(), 1);
}

#[tokio::test]
async fn attempts_in_flight_are_aborted_when_the_lease_ends() {
    let pair = Pair::start().await;
    let receiver = Receiver::start().await;
    receiver.answers.send_replace(false);
    pair.fixture.endpoint(receiver.url()).await;
    pair.engine().granted(everything());
    let delivery = pair.fixture.events(1).await[0];
    receiver.arrivals(1).await;
    pair.lease.set(Tick::START, Tick::START);
    let cut_off = async {
        while pair.engine().in_flight_count() > 0 {
            settled(pair.engine()).await;
        }
    };
    timeout(TEST_TIMEOUT, cut_off).await.expect("it is cut off");
    receiver.answers.send_replace(true);
    pair.lease.set(NEVER, NEVER);
    let sent = pair.fixture.until(delivery, Status::Succeeded).await;
    assert_eq!(sent.delivery.facts().attempts, 1);
    assert_eq!(receiver.count(), 2);
}

#[tokio::test]
async fn nothing_is_recorded_for_a_lost_shard() {
    let pair = Pair::start().await;
    let receiver = Receiver::start().await;
    receiver.answers.send_replace(false);
    let endpoint = pair.fixture.endpoint(receiver.url()).await;
    pair.engine().granted(everything());
    let deliveries = pair.fixture.events(30).await;
    receiver.arrivals(10).await;
    let mut revoked = revoke(pair.engine());
    pair.engine().expired();
    settled(pair.engine()).await;
    assert!(matches!(revoked.try_recv(), Ok(Err(_))), "it is lost");
    assert_eq!(pair.engine().in_flight_count(), 0);
    let result = pair.engine().cancel(endpoint, deliveries[0]).await;
    assert_eq!(result, Err(EngineError::NotOwner));
    receiver.answers.send_replace(true);
    pair.other.granted(everything());
    for delivery in &deliveries {
        let sent = pair.fixture.until(*delivery, Status::Succeeded).await;
        assert_eq!(sent.delivery.facts().attempts, 1);
    }
    assert_eq!(receiver.count(), 40, "ten of them twice");
    // Shards that are granted to it again are sent by it again.
    let revoked = timeout(TEST_TIMEOUT, revoke(&pair.other)).await;
    assert_eq!(revoked.expect("it is idle").unwrap(), Ok(()));
    pair.engine().granted(everything());
    let delivery = pair.fixture.events(1).await[0];
    pair.fixture.until(delivery, Status::Succeeded).await;
    assert!(pair.engine().lane(endpoint).await.unwrap().is_some());
}

#[tokio::test]
async fn a_status_written_by_another_node_is_applied() {
    let pair = Pair::start().await;
    let receiver = Receiver::start().await;
    let endpoint = pair.fixture.endpoint(receiver.url()).await;
    pair.engine().granted(everything());
    let delivery = pair.fixture.events(1).await[0];
    pair.fixture.until(delivery, Status::Succeeded).await;
    // Acts like a node that does not know yet that it is no longer the owner.
    let now = pair.fixture.clock.wall();
    let reason = Some(DisabledReason::Manual);
    let store = &pair.fixture.store;
    let changed = store.set_endpoint_status(now, endpoint, EndpointStatus::Disabled, reason, None);
    assert_eq!(changed.await, Ok(true));
    pair.engine().missed();
    let shut = async {
        loop {
            let lane = pair.engine().lane(endpoint).await.unwrap();
            if lane.unwrap().status == EndpointStatus::Disabled {
                return;
            }
        }
    };
    timeout(TEST_TIMEOUT, shut).await.expect("it is shut");
    let row = store.endpoint(endpoint).await.unwrap().unwrap();
    assert_eq!(row.disabled_reason, reason);
}

/// A cluster of two nodes whose owner the test sets.
struct FixedOwnerCluster {
    me: NodeNo,
    owner: Arc<Mutex<Option<NodeNo>>>,
    peers: Arc<Mutex<Vec<Option<Arc<OwnerRouter>>>>>,
    store: Arc<ModelStore>,
}

impl Cluster for FixedOwnerCluster {
    fn me(&self) -> NodeNo {
        self.me
    }

    fn nodes(&self) -> Vec<NodeNo> {
        vec![NodeNo(0), NodeNo(1)]
    }

    fn format_level(&self) -> FormatLevel {
        FormatLevel::NEWEST
    }

    fn owner(&self, _: Shard) -> Owner {
        match *self.owner.lock().unwrap() {
            None => Owner::None,
            Some(owner) if owner == self.me => Owner::Me,
            Some(owner) => Owner::Other(owner),
        }
    }

    fn lease(&self) -> Lease {
        Lease::until(NEVER, NEVER)
    }

    fn is_up_to_date(&self) -> bool {
        true
    }

    fn ask(&self, node: NodeNo, question: Value, _: Duration) -> Answer<Value> {
        let peer = self.peers.lock().unwrap()[node.0 as usize].clone();
        Box::pin(async move {
            let silent = || StoreError::Unavailable("no node answers".to_owned());
            Ok(peer.ok_or_else(silent)?.answer(question).await)
        })
    }

    fn set_unowned_status(
        &self,
        now: Timestamp,
        endpoint: EndpointId,
        status: EndpointStatus,
        reason: Option<DisabledReason>,
    ) -> Answer<Option<bool>> {
        let unowned = self.owner.lock().unwrap().is_none();
        let changed = self
            .store
            .set_endpoint_status(now, endpoint, status, reason, None);
        Box::pin(async move {
            match unowned {
                true => changed.await.map(Some),
                false => Ok(None),
            }
        })
    }

    fn cancel_unowned(
        &self,
        _: Timestamp,
        _: EndpointId,
        _: DeliveryId,
    ) -> Answer<Option<Written>> {
        Box::pin(async { Ok(Some(Written::Applied)) })
    }

    fn request_shares(&self, demands: Vec<TenantDemand>) -> Answer<Vec<ShareGrant>> {
        let grant = |demand: &TenantDemand| share(demand.most, 0, demand.ask, &[]);
        let grants = demands.iter().map(grant).collect();
        Box::pin(async { Ok(grants) })
    }

    fn list_nodes(&self) -> Answer<Vec<NodeInfo>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn retire(&self) -> Answer<()> {
        Box::pin(async { Ok(()) })
    }
}

/// Two nodes with their owner routers.
struct RoutedPair {
    pair: Pair,
    owner: Arc<Mutex<Option<NodeNo>>>,
    routers: [Arc<OwnerRouter>; 2],
}

impl RoutedPair {
    async fn start() -> RoutedPair {
        let pair = Pair::start().await;
        let owner = Arc::new(Mutex::new(None));
        let peers = Arc::new(Mutex::new(vec![None, None]));
        let router = |number: u64, engine: &Engine, metrics: &Arc<Metrics>| {
            let cluster = FixedOwnerCluster {
                me: NodeNo(number),
                owner: owner.clone(),
                peers: peers.clone(),
                store: pair.fixture.store.clone(),
            };
            let clock = pair.fixture.clock.clone();
            Arc::new(OwnerRouter::new(
                engine.clone(),
                metrics.clone(),
                clock,
                pair.fixture.store.clone(),
                Some(Arc::new(cluster)),
            ))
        };
        let elsewhere = Arc::new(Metrics::new());
        let routers = [
            router(0, &pair.fixture.engine, &pair.fixture.metrics),
            router(1, &pair.other, &elsewhere),
        ];
        *peers.lock().unwrap() = routers.iter().cloned().map(Some).collect();
        RoutedPair {
            pair,
            owner,
            routers,
        }
    }

    /// Grants all shards to the first node.
    async fn grant(&self) {
        self.pair.engine().granted(everything());
        settled(self.pair.engine()).await;
        *self.owner.lock().unwrap() = Some(NodeNo(0));
    }
}

#[tokio::test]
async fn every_node_routes_requests_to_the_owner() {
    let pair = RoutedPair::start().await;
    let fixture = &pair.pair.fixture;
    let receiver = Receiver::start().await;
    receiver.answers.send_replace(false);
    let endpoint = fixture.endpoint(receiver.url()).await;
    pair.grant().await;
    let deliveries = fixture.events(12).await;
    receiver.arrivals(10).await;
    let router = &pair.routers[1];
    let in_flight = fixture.engine.deliveries_in_flight();
    assert_eq!(router.all_in_flight().await, in_flight);
    let mut stored = Vec::new();
    for delivery in &deliveries {
        stored.push(fixture.stored(*delivery).await);
    }
    let found = router.in_flight(&stored).await;
    assert_eq!(found.len(), 10);
    assert!(in_flight.iter().all(|id| found.contains(id)));
    // Asked about many endpoints at once, the other node reports the same as about one.
    let lanes = router.lanes(&[endpoint, EndpointId(7)]).await;
    assert_eq!(lanes.len(), 1, "only one of them has a lane");
    let held_back = lanes[&endpoint].held_back.expect("two wait");
    assert_eq!(held_back.by, HeldBackBy::InFlight);
    let limits = lanes[&endpoint].limits.expect("the endpoint is loaded");
    assert_eq!((limits.in_flight, limits.per_second), (10, 10_000.0));
    let limited = router.limited(Span::ZERO).await;
    assert!(limited.is_complete);
    assert_eq!(limited.endpoints[&endpoint].by, HeldBackBy::InFlight);
    let waiting = *deliveries
        .iter()
        .find(|id| !in_flight.contains(id))
        .unwrap();
    let too_late = router.cancel(endpoint, in_flight[0], None).await;
    assert_eq!(too_late, Ok(CancelResult::TooLate));
    assert_eq!(
        router.cancel(endpoint, waiting, None).await,
        Ok(CancelResult::Done)
    );
    let (lane, _) = router.lane_and_stats(endpoint).await.unwrap();
    assert_eq!(lane.unwrap().in_flight, 10);
    let reason = Some(DisabledReason::Manual);
    let disabled = router
        .set_status(endpoint, EndpointStatus::Disabled, reason, None)
        .await;
    assert_eq!(disabled, Ok(()));
    receiver.answers.send_replace(true);
    for delivery in &in_flight {
        fixture.until(*delivery, Status::Succeeded).await;
    }
    assert_eq!(receiver.count(), 10, "nothing began after the answer");
    let (_, stats) = router.lane_and_stats(endpoint).await.unwrap();
    assert!(stats.p50_ms.is_some(), "the owner reports its stats");
    let whole = SubjectScope::Tenant(fixture.tenant.clone());
    let hour = async || {
        router
            .counters(&whole, StatsWindow::Hour)
            .await
            .expect("the stats are readable")
    };
    let counted = async { while hour().await.succeeded < 10 {} };
    timeout(TEST_TIMEOUT, counted)
        .await
        .expect("the owner's are counted");
    let one = SubjectScope::Endpoint(endpoint);
    let day = router
        .counters_of(&one)
        .await
        .expect("the stats are readable")(StatsWindow::Day);
    assert_eq!(day.succeeded, 10);
    for whole in [SubjectScope::Everything, whole, one] {
        let series = router
            .series(&whole, StatsWindow::Hour)
            .await
            .expect("the stats are readable");
        let counted: u64 = series.buckets.iter().map(|(_, it)| it.succeeded).sum();
        assert_eq!(counted, 10, "{whole:?}");
    }
    let recent = router.lately(None, &[endpoint]).await;
    assert_eq!(recent[&endpoint].attempts, 10);
}

#[tokio::test]
async fn the_store_changes_an_unowned_endpoint() {
    let pair = RoutedPair::start().await;
    let fixture = &pair.pair.fixture;
    let receiver = Receiver::start().await;
    let endpoint = fixture.endpoint(receiver.url()).await;
    let disabled = pair.routers[1].set_status(endpoint, EndpointStatus::Disabled, None, None);
    assert_eq!(disabled.await, Ok(()));
    let row = fixture.store.endpoint(endpoint).await.unwrap().unwrap();
    assert_eq!(row.status, EndpointStatus::Disabled);
}

#[tokio::test]
async fn a_request_follows_a_change_of_the_owner() {
    let pair = RoutedPair::start().await;
    let fixture = &pair.pair.fixture;
    let receiver = Receiver::start().await;
    let endpoint = fixture.endpoint(receiver.url()).await;
    // Both nodes believe that the first node is the owner, but it owns nothing yet.
    *pair.owner.lock().unwrap() = Some(NodeNo(0));
    let router = pair.routers[1].clone();
    let asking = tokio::spawn(async move {
        router
            .set_status(endpoint, EndpointStatus::Paused, None, None)
            .await
    });
    settled(&fixture.engine).await;
    assert!(!asking.is_finished());
    pair.pair.other.granted(everything());
    settled(&pair.pair.other).await;
    *pair.owner.lock().unwrap() = Some(NodeNo(1));
    let result = timeout(TEST_TIMEOUT, asking).await.expect("it is done");
    assert_eq!(result.unwrap(), Ok(()));
    let row = fixture.store.endpoint(endpoint).await.unwrap().unwrap();
    assert_eq!(row.status, EndpointStatus::Paused);
}

#[tokio::test]
async fn no_owner_is_asked_after_the_caller_got_an_error() {
    let pair = RoutedPair::start().await;
    let fixture = &pair.pair.fixture;
    let receiver = Receiver::start().await;
    let endpoint = fixture.endpoint(receiver.url()).await;
    let later = fixture.clock.wall().after(Span::from_hours(1));
    let delivery = fixture.events_at(1, Some(later)).await[0];
    pair.pair.other.granted(everything());
    settled(&pair.pair.other).await;
    let late = Some(Instant::now());
    // Asked by the owner itself, by another node, and without an owner.
    for (router, owner) in [(1, Some(NodeNo(1))), (0, Some(NodeNo(1))), (0, None)] {
        *pair.owner.lock().unwrap() = owner;
        let router = &pair.routers[router];
        let paused = router.set_status(endpoint, EndpointStatus::Paused, None, late);
        assert_eq!(paused.await, Err(EngineError::NotOwner));
        let cancelled = router.cancel(endpoint, delivery, late).await;
        assert_eq!(cancelled, Err(EngineError::NotOwner));
    }
    settled(&pair.pair.other).await;
    let row = fixture.store.endpoint(endpoint).await.unwrap().unwrap();
    assert_eq!(row.status, EndpointStatus::Enabled);
    assert_eq!(
        fixture.stored(delivery).await.shown_status(),
        Status::Pending
    );
}

#[tokio::test]
async fn the_wait_for_an_owner_is_limited() {
    let pair = RoutedPair::start().await;
    let endpoint = EndpointId(7);
    *pair.owner.lock().unwrap() = Some(NodeNo(0));
    let cluster = FixedOwnerCluster {
        me: NodeNo(1),
        owner: pair.owner.clone(),
        peers: Arc::new(Mutex::new(vec![None, None])),
        store: pair.pair.fixture.store.clone(),
    };
    let (engine, clock) = (pair.pair.other.clone(), pair.pair.fixture.clock.clone());
    let metrics = Arc::new(Metrics::new());
    let store = pair.pair.fixture.store.clone();
    let router = OwnerRouter::new(engine, metrics, clock, store, Some(Arc::new(cluster)));
    let router = router.with_short_timeout();
    let result = router
        .set_status(endpoint, EndpointStatus::Paused, None, None)
        .await;
    assert_eq!(result, Err(EngineError::NotOwner));
    let (lane, stats) = pair.routers[1].lane_and_stats(endpoint).await.unwrap();
    assert!(lane.is_none() && stats.p50_ms.is_none());
}
