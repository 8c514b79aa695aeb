//! Tests of engines that share a store: grants, revocations, lease losses, and routing of requests to the owner.

use std::sync::Mutex;

use posthaste_core::cluster::Shard;
use posthaste_core::cluster::{ShareGrant, share};
use posthaste_core::dispatcher::TenantDemand;
use posthaste_core::time::Tick;
use posthaste_store::{Answer, Cluster, NodeNo, Owner, Scope, Written};
use posthaste_telemetry::metrics::window::Window;
use serde_json::Value;
use tokio::sync::oneshot;

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
    world: World,
    other: Engine,
    lease: Lease,
}

impl Pair {
    async fn start() -> Pair {
        let (engine, other) = (Engine::new(), Engine::new());
        let hand_over = ToAll(vec![engine.hand_over(), other.hand_over()]);
        let lease = Lease::until(NEVER, NEVER);
        let leased = Some(lease.clone());
        let world = World::start_with(engine, Arc::new(hand_over), leased).await;
        let others = Some(Lease::until(NEVER, NEVER));
        world.run(&other, &Arc::new(Metrics::new()), others);
        Pair {
            world,
            other,
            lease,
        }
    }

    fn engine(&self) -> &Engine {
        &self.world.engine
    }
}

fn everything() -> Vec<Shard> {
    Shard::all().collect()
}

/// Revokes all shards. The answer arrives when nothing is in flight.
fn recall(engine: &Engine) -> oneshot::Receiver<Result<(), StoreError>> {
    let (told, answer) = oneshot::channel();
    let done = Box::new(move |result| drop(told.send(result)));
    engine.recalled(everything(), done);
    answer
}

/// Waits until the engine has processed all earlier messages.
async fn heard(engine: &Engine) {
    engine.breakers().await.unwrap();
}

#[tokio::test]
async fn only_what_was_granted_is_sent() {
    let pair = Pair::start().await;
    let receiver = Receiver::start().await;
    let url = format!("http://{}/", receiver.address);
    let endpoint = pair.world.endpoint(url).await;
    let before = pair.world.events(5).await;
    let looked = pair.engine().lane(endpoint).await;
    assert_eq!(looked, Err(EngineError::NotOwner));
    assert_eq!(receiver.count(), 0);
    pair.engine().granted(vec![Shard::of(endpoint)]);
    heard(pair.engine()).await;
    let after = pair.world.events(5).await;
    for delivery in before.into_iter().chain(after) {
        pair.world.until(delivery, Status::Succeeded).await;
    }
    assert_eq!(receiver.count(), 10);
    assert_eq!(pair.other.lane(endpoint).await, Err(EngineError::NotOwner));
}

#[tokio::test]
async fn what_is_recalled_changes_hands_when_nothing_is_under_way() {
    let pair = Pair::start().await;
    let receiver = Receiver::start().await;
    receiver.answers.send_replace(false);
    let url = format!("http://{}/", receiver.address);
    let endpoint = pair.world.endpoint(url).await;
    pair.engine().granted(everything());
    heard(pair.engine()).await;
    let deliveries = pair.world.events(30).await;
    receiver.arrivals(10).await;
    let mut recalled = recall(pair.engine());
    heard(pair.engine()).await;
    assert!(recalled.try_recv().is_err(), "ten are in flight");
    // Until the release it still answers requests that only an owner can answer.
    let cancelled = pair.engine().cancel(endpoint, deliveries[29]).await;
    assert_eq!(cancelled, Ok(Cancelled::Done));
    let paused = pair.engine().stand(endpoint, Standing::Paused, None).await;
    assert_eq!(paused, Ok(()));
    receiver.answers.send_replace(true);
    let done = timeout(PATIENCE, recalled).await.expect("it is given up");
    assert_eq!(done.unwrap(), Ok(()));
    assert_eq!(receiver.count(), 10, "nothing began since");
    assert_eq!(pair.engine().flight_count(), 0);
    let asked = pair.engine().stand(endpoint, Standing::Enabled, None).await;
    assert_eq!(asked, Err(EngineError::NotOwner));
    pair.other.granted(everything());
    let resumed =
        async { while pair.other.stand(endpoint, Standing::Enabled, None).await != Ok(()) {} };
    timeout(PATIENCE, resumed).await.expect("it is the other's");
    for delivery in &deliveries[..29] {
        pair.world.until(*delivery, Status::Succeeded).await;
    }
    assert_eq!(receiver.count(), 29, "each once");
}

#[tokio::test]
async fn what_is_idle_changes_hands_at_once() {
    let pair = Pair::start().await;
    pair.engine().granted(everything());
    let recalled = timeout(PATIENCE, recall(pair.engine())).await;
    assert_eq!(recalled.expect("at once").unwrap(), Ok(()));
    pair.engine().shut_down().await;
    let recalled = timeout(PATIENCE, recall(pair.engine())).await;
    assert_eq!(recalled.expect("at once").unwrap(), Ok(()));
}

#[tokio::test]
async fn nothing_begins_while_the_lease_does_not_hold() {
    let pair = Pair::start().await;
    let receiver = Receiver::start().await;
    let url = format!("http://{}/", receiver.address);
    pair.world.endpoint(url).await;
    pair.engine().granted(everything());
    let first = pair.world.events(1).await[0];
    pair.world.until(first, Status::Succeeded).await;
    pair.lease.set(Tick::START, NEVER);
    heard(pair.engine()).await;
    let second = pair.world.events(1).await[0];
    for _ in 0..10 {
        heard(pair.engine()).await;
    }
    assert_eq!(receiver.count(), 1);
    pair.lease.set(NEVER, NEVER);
    let sent = pair.world.until(second, Status::Succeeded).await;
    assert_eq!(sent.delivery.facts().attempts, 1);
}

#[tokio::test]
async fn a_new_lease_is_none_for_what_was_lost_with_the_old_one() {
    let pair = Pair::start().await;
    let receiver = Receiver::start().await;
    let url = format!("http://{}/", receiver.address);
    pair.world.endpoint(url).await;
    pair.engine().granted(everything());
    heard(pair.engine()).await;
    // The store has counted the loss, and the engine has not processed it yet.
    pair.engine().shared.losses.add();
    let delivery = pair.world.events(1).await[0];
    for _ in 0..10 {
        heard(pair.engine()).await;
    }
    assert_eq!(receiver.count(), 0);
    pair.engine().expired();
    pair.engine().granted(everything());
    let sent = pair.world.until(delivery, Status::Succeeded).await;
    assert_eq!(sent.delivery.facts().attempts, 1);
    assert_eq!(receiver.count(), 1);
}

#[tokio::test]
async fn what_flies_when_the_lease_ends_is_cut_off_and_spends_no_attempt() {
    let pair = Pair::start().await;
    let receiver = Receiver::start().await;
    receiver.answers.send_replace(false);
    let url = format!("http://{}/", receiver.address);
    pair.world.endpoint(url).await;
    pair.engine().granted(everything());
    let delivery = pair.world.events(1).await[0];
    receiver.arrivals(1).await;
    pair.lease.set(Tick::START, Tick::START);
    let cut_off = async {
        while pair.engine().flight_count() > 0 {
            heard(pair.engine()).await;
        }
    };
    timeout(PATIENCE, cut_off).await.expect("it is cut off");
    receiver.answers.send_replace(true);
    pair.lease.set(NEVER, NEVER);
    let sent = pair.world.until(delivery, Status::Succeeded).await;
    assert_eq!(sent.delivery.facts().attempts, 1);
    assert_eq!(receiver.count(), 2);
}

#[tokio::test]
async fn what_is_lost_is_the_others_and_nothing_of_it_is_written_down() {
    let pair = Pair::start().await;
    let receiver = Receiver::start().await;
    receiver.answers.send_replace(false);
    let url = format!("http://{}/", receiver.address);
    let endpoint = pair.world.endpoint(url).await;
    pair.engine().granted(everything());
    let deliveries = pair.world.events(30).await;
    receiver.arrivals(10).await;
    let mut recalled = recall(pair.engine());
    pair.engine().expired();
    heard(pair.engine()).await;
    assert!(matches!(recalled.try_recv(), Ok(Err(_))), "it is lost");
    assert_eq!(pair.engine().flight_count(), 0);
    let asked = pair.engine().cancel(endpoint, deliveries[0]).await;
    assert_eq!(asked, Err(EngineError::NotOwner));
    receiver.answers.send_replace(true);
    pair.other.granted(everything());
    for delivery in &deliveries {
        let sent = pair.world.until(*delivery, Status::Succeeded).await;
        assert_eq!(sent.delivery.facts().attempts, 1);
    }
    assert_eq!(receiver.count(), 40, "ten of them twice");
    // Shards that are granted to it again are sent by it again.
    let recalled = timeout(PATIENCE, recall(&pair.other)).await;
    assert_eq!(recalled.expect("it is idle").unwrap(), Ok(()));
    pair.engine().granted(everything());
    let delivery = pair.world.events(1).await[0];
    pair.world.until(delivery, Status::Succeeded).await;
    assert!(pair.engine().lane(endpoint).await.unwrap().is_some());
}

#[tokio::test]
async fn what_another_node_shut_on_disk_is_shut_here_too() {
    let pair = Pair::start().await;
    let receiver = Receiver::start().await;
    let url = format!("http://{}/", receiver.address);
    let endpoint = pair.world.endpoint(url).await;
    pair.engine().granted(everything());
    let delivery = pair.world.events(1).await[0];
    pair.world.until(delivery, Status::Succeeded).await;
    // Acts like a node that does not know yet that it is no longer the owner.
    let now = pair.world.clock.wall();
    let reason = Some(DisabledReason::Manual);
    let store = &pair.world.store;
    let stood = store.set_standing(now, endpoint, Standing::Disabled, reason, None);
    assert_eq!(stood.await, Ok(true));
    pair.engine().missed();
    let shut = async {
        loop {
            let lane = pair.engine().lane(endpoint).await.unwrap();
            if lane.unwrap().standing == Standing::Disabled {
                return;
            }
        }
    };
    timeout(PATIENCE, shut).await.expect("it is shut");
    let row = store.endpoint(endpoint).await.unwrap().unwrap();
    assert_eq!(row.disabled_reason, reason);
}

/// A cluster of two nodes whose owner the test sets.
struct Told {
    me: NodeNo,
    owner: Arc<Mutex<Option<NodeNo>>>,
    peers: Arc<Mutex<Vec<Option<Arc<OwnerRouter>>>>>,
    store: Arc<ModelStore>,
}

impl Cluster for Told {
    fn me(&self) -> NodeNo {
        self.me
    }

    fn nodes(&self) -> Vec<NodeNo> {
        vec![NodeNo(0), NodeNo(1)]
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

    fn is_informed(&self) -> bool {
        true
    }

    fn ask(&self, node: NodeNo, question: Value, _: Duration) -> Answer<Value> {
        let peer = self.peers.lock().unwrap()[node.0 as usize].clone();
        Box::pin(async move {
            let silent = || StoreError::Unavailable("nobody answers".to_owned());
            Ok(peer.ok_or_else(silent)?.answer(question).await)
        })
    }

    fn stand_unowned(
        &self,
        now: Timestamp,
        endpoint: EndpointId,
        standing: Standing,
        reason: Option<DisabledReason>,
    ) -> Answer<Option<bool>> {
        let unowned = self.owner.lock().unwrap().is_none();
        let stood = self
            .store
            .set_standing(now, endpoint, standing, reason, None);
        Box::pin(async move {
            match unowned {
                true => stood.await.map(Some),
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

    fn share_room(&self, crowds: Vec<TenantDemand>) -> Answer<Vec<ShareGrant>> {
        let room = |crowd: &TenantDemand| share(crowd.most, 0, crowd.ask, &[]);
        let rooms = crowds.iter().map(room).collect();
        Box::pin(async { Ok(rooms) })
    }

    fn retire(&self) -> Answer<()> {
        Box::pin(async { Ok(()) })
    }
}

/// Two nodes with their owner routers.
struct Town {
    pair: Pair,
    owner: Arc<Mutex<Option<NodeNo>>>,
    boards: [Arc<OwnerRouter>; 2],
}

impl Town {
    async fn start() -> Town {
        let pair = Pair::start().await;
        let owner = Arc::new(Mutex::new(None));
        let peers = Arc::new(Mutex::new(vec![None, None]));
        let board = |number: u64, engine: &Engine, observe: &Arc<Metrics>| {
            let cluster = Told {
                me: NodeNo(number),
                owner: owner.clone(),
                peers: peers.clone(),
                store: pair.world.store.clone(),
            };
            let clock = pair.world.clock.clone();
            Arc::new(OwnerRouter::new(
                engine.clone(),
                observe.clone(),
                clock,
                pair.world.store.clone(),
                Some(Arc::new(cluster)),
            ))
        };
        let elsewhere = Arc::new(Metrics::new());
        let boards = [
            board(0, &pair.world.engine, &pair.world.observe),
            board(1, &pair.other, &elsewhere),
        ];
        *peers.lock().unwrap() = boards.iter().cloned().map(Some).collect();
        Town {
            pair,
            owner,
            boards,
        }
    }

    /// Grants all shards to the first node.
    async fn grant(&self) {
        self.pair.engine().granted(everything());
        heard(self.pair.engine()).await;
        *self.owner.lock().unwrap() = Some(NodeNo(0));
    }
}

#[tokio::test]
async fn whichever_node_is_asked_the_owner_does_it() {
    let town = Town::start().await;
    let world = &town.pair.world;
    let receiver = Receiver::start().await;
    receiver.answers.send_replace(false);
    let url = format!("http://{}/", receiver.address);
    let endpoint = world.endpoint(url).await;
    town.grant().await;
    let deliveries = world.events(12).await;
    receiver.arrivals(10).await;
    let asked = &town.boards[1];
    let flying = world.engine.flights();
    assert_eq!(asked.flights().await, flying);
    let mut shown = Vec::new();
    for delivery in &deliveries {
        shown.push(world.show(*delivery).await);
    }
    let aloft = asked.aloft(&shown).await;
    assert_eq!(aloft.len(), 10);
    assert!(flying.iter().all(|id| aloft.contains(id)));
    let waiting = *deliveries.iter().find(|id| !flying.contains(id)).unwrap();
    let too_late = asked.cancel(endpoint, flying[0]).await;
    assert_eq!(too_late, Ok(Cancelled::TooLate));
    assert_eq!(asked.cancel(endpoint, waiting).await, Ok(Cancelled::Done));
    let (lane, _) = asked.look(endpoint).await.unwrap();
    assert_eq!(lane.unwrap().in_flight, 10);
    let reason = Some(DisabledReason::Manual);
    let disabled = asked.stand(endpoint, Standing::Disabled, reason).await;
    assert_eq!(disabled, Ok(()));
    receiver.answers.send_replace(true);
    for delivery in &flying {
        world.until(*delivery, Status::Succeeded).await;
    }
    assert_eq!(receiver.count(), 10, "nothing began after the answer");
    let (_, figures) = asked.look(endpoint).await.unwrap();
    assert!(figures.p50_ms.is_some(), "the owner's figures are shown");
    let whole = Scope::Tenant(world.tenant.clone());
    let hour = async || asked.tally(&whole, Window::Hour).await.expect("it reads");
    let seen = async { while hour().await.succeeded < 10 {} };
    timeout(PATIENCE, seen)
        .await
        .expect("the owner's are counted");
    let one = Scope::Endpoint(endpoint);
    let day = asked.tallies(&one).await.expect("it reads")(Window::Day);
    assert_eq!(day.succeeded, 10);
    for whole in [Scope::Everything, whole, one] {
        let series = asked.series(&whole, Window::Hour).await.expect("it reads");
        let counted: u64 = series.buckets.iter().map(|(_, it)| it.succeeded).sum();
        assert_eq!(counted, 10, "{whole:?}");
    }
    let lately = asked.lately(None, &[endpoint]).await;
    assert_eq!(lately[&endpoint].attempts, 10);
}

#[tokio::test]
async fn what_nobody_owns_is_written_down_by_the_store() {
    let town = Town::start().await;
    let world = &town.pair.world;
    let receiver = Receiver::start().await;
    let url = format!("http://{}/", receiver.address);
    let endpoint = world.endpoint(url).await;
    let disabled = town.boards[1].stand(endpoint, Standing::Disabled, None);
    assert_eq!(disabled.await, Ok(()));
    let row = world.store.endpoint(endpoint).await.unwrap().unwrap();
    assert_eq!(row.standing, Standing::Disabled);
}

#[tokio::test]
async fn an_owner_who_is_none_any_more_sends_one_on_to_the_next() {
    let town = Town::start().await;
    let world = &town.pair.world;
    let receiver = Receiver::start().await;
    let url = format!("http://{}/", receiver.address);
    let endpoint = world.endpoint(url).await;
    // Both nodes believe that the first node is the owner, but it owns nothing yet.
    *town.owner.lock().unwrap() = Some(NodeNo(0));
    let board = town.boards[1].clone();
    let asking = tokio::spawn(async move { board.stand(endpoint, Standing::Paused, None).await });
    heard(&world.engine).await;
    assert!(!asking.is_finished());
    town.pair.other.granted(everything());
    heard(&town.pair.other).await;
    *town.owner.lock().unwrap() = Some(NodeNo(1));
    let asked = timeout(PATIENCE, asking).await.expect("it is done");
    assert_eq!(asked.unwrap(), Ok(()));
    let row = world.store.endpoint(endpoint).await.unwrap().unwrap();
    assert_eq!(row.standing, Standing::Paused);
}

#[tokio::test]
async fn an_owner_who_never_answers_is_not_waited_for_for_ever() {
    let town = Town::start().await;
    let endpoint = EndpointId(7);
    *town.owner.lock().unwrap() = Some(NodeNo(0));
    let cluster = Told {
        me: NodeNo(1),
        owner: town.owner.clone(),
        peers: Arc::new(Mutex::new(vec![None, None])),
        store: town.pair.world.store.clone(),
    };
    let (engine, clock) = (town.pair.other.clone(), town.pair.world.clock.clone());
    let observe = Arc::new(Metrics::new());
    let store = town.pair.world.store.clone();
    let board = OwnerRouter::new(engine, observe, clock, store, Some(Arc::new(cluster)));
    let board = board.impatient();
    let asked = board.stand(endpoint, Standing::Paused, None).await;
    assert_eq!(asked, Err(EngineError::NotOwner));
    let (lane, figures) = town.boards[1].look(endpoint).await.unwrap();
    assert!(lane.is_none() && figures.p50_ms.is_none());
}
