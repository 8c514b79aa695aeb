//! The engine task: it owns the dispatcher.
//!
//! [`Shell`] takes messages from the inbox, passes them to the dispatcher as inputs, and executes the commands that the
//! dispatcher returns. It never waits for the store or the network: each slow operation runs in its own task and
//! reports back through the inbox.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use posthaste_core::address::EgressRules;
use posthaste_core::delivery::DeadReason;
use posthaste_core::dice::Dice;
use posthaste_core::dispatcher::{Command, Dispatcher, Input, Limits, Ticket, Wake};
use posthaste_core::id::{DeliveryId, EndpointId, TenantId};
use posthaste_core::lane::{BreakerSettings, Health, Standing};
use posthaste_core::time::{Now, Span};
use posthaste_egress::Client;
use posthaste_store::{DisabledReason, HandedOver, Lease, Store, StoreError, StoreSettings};
use posthaste_system::clock::Clock;
use posthaste_telemetry::metrics::Metrics;
use posthaste_telemetry::traces::Telemetry;
use rustc_hash::FxHashMap;
use tokio::time::{sleep, timeout};

use super::chronicle::AttemptReporter;
use super::concurrency_share;
use super::courier::AttemptContext;
use super::endpoint_cache::{EndpointCache, EndpointLoader, LoadedEndpoint};
use super::flights::Flight;
use super::handle::{Cancelled, Engine, EngineError, Phase, Shared, StopGuard};
use super::inbox::Message;
use super::owned_shards::{Holdings, Ownership};
use super::ownership::{BacklogQuery, Release};
use super::payload_cache::{Goods, PayloadCache};
use super::pending_status::{PendingStatusWrites, StatusChange};
use super::tokens::TokenCache;
use super::waiters::{StatusRequest, Waiting};
use crate::vault::Vault;

/// Pause before a failed read or write of the store is retried.
pub(super) const STORE_RETRY_PAUSE: Duration = Duration::from_millis(500);
/// Number of deliveries that are failed in one transaction when an endpoint is disabled.
const SWEEP_STEP: usize = 1_000;
/// Longest sleep before the clocks are read again, because the wall clock may have been changed.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Settings and dependencies of the engine.
pub struct EngineSettings {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The store's settings, used to compute the effective retry policies.
    pub store_settings: StoreSettings,
    /// The HTTP client for all outbound requests.
    pub client: Client,
    /// The client's rules for allowed destinations.
    pub rules: EgressRules,
    /// Decrypts secrets.
    pub vault: Arc<Vault>,
    /// Counts what happens.
    pub observe: Arc<Metrics>,
    /// Exports spans of attempts.
    pub telemetry: Telemetry,
    /// The clock.
    pub clock: Clock,
    /// The RNG.
    pub dice: Dice,
    /// Limits of the dispatcher.
    pub limits: Limits,
    /// Thresholds of the breakers.
    pub breaker: BreakerSettings,
    /// Longest `Retry-After` that is honoured.
    pub retry_after_cap: Span,
    /// The lease that limits sending, if other nodes share the store. `None` means that this node owns all shards for
    /// ever.
    pub lease: Option<Lease>,
}

impl Engine {
    /// Reads the stored backlog, then sends until the engine is shut down.
    pub async fn run(&self, settings: EngineSettings) -> Result<(), StoreError> {
        let _ending = StopGuard(self.shared.clone());
        let mut shell = match settings.lease {
            // The backlog of a shard is read when the shard is granted.
            Some(_) => {
                let cluster = settings.store.cluster();
                let shell = Shell::new(self, settings);
                if let Some(cluster) = cluster {
                    tokio::spawn(concurrency_share::share_limits(self.clone(), cluster));
                }
                shell.schedule_backlog_query();
                shell
            }
            None => {
                let unfinished = settings.store.unfinished_work().await?;
                let mut shell = Shell::new(self, settings);
                shell.work(unfinished);
                shell
            }
        };
        self.shared.phase.send_replace(Phase::Running);
        shell.run().await;
        Ok(())
    }
}
pub(super) struct Shell {
    pub(super) shared: Arc<Shared>,
    pub(super) depot: Arc<AttemptContext>,
    pub(super) dispatcher: Dispatcher,
    pub(super) chronicle: AttemptReporter,
    pub(super) cards: EndpointCache,
    pub(super) pantry: PayloadCache,
    pub(super) waiting: Waiting,
    pub(super) decrees: PendingStatusWrites,
    pub(super) flights: FxHashMap<Ticket, Flight>,
    pub(super) commands: Vec<Command>,
    /// Nothing that was sent is in flight, and no attempt will start.
    pub(super) drained: bool,
    /// Shutdown was requested: no caller needs an answer any more.
    pub(super) leaving: bool,
    /// The last record could not be written.
    pub(super) unwritten: bool,
    /// Other nodes share the store.
    pub(super) is_shared: bool,
    /// The lease does not allow new attempts.
    pub(super) suspended: bool,
    /// Number of lease losses that this task has processed.
    pub(super) losses: u64,
    /// Revoked shards that are not released yet.
    pub(super) recalls: Vec<Release>,
    /// State of the query for unfinished work.
    pub(super) search: BacklogQuery,
    /// Endpoint statuses that are already persisted and must not be written again.
    pub(super) heeded: FxHashMap<EndpointId, Standing>,
}

impl Shell {
    fn new(engine: &Engine, settings: EngineSettings) -> Shell {
        let house = EndpointLoader {
            store_settings: settings.store_settings,
            breaker: settings.breaker,
            retry_after_cap: settings.retry_after_cap,
            rules: settings.rules,
            vault: settings.vault,
        };
        let is_shared = settings.lease.is_some();
        let holdings = match is_shared {
            true => Holdings::nothing(),
            false => Holdings::everything(),
        };
        let mut dispatcher = Dispatcher::new(settings.limits, settings.dice);
        if is_shared && settings.store.cluster().is_some() {
            dispatcher.share_room();
        }
        Shell {
            shared: engine.shared.clone(),
            depot: Arc::new(AttemptContext {
                tokens: Arc::new(TokenCache::new(
                    settings.client.clone(),
                    settings.clock.clone(),
                )),
                client: settings.client,
                store: settings.store,
                house: Arc::new(house),
                inbox: engine.shared.inbox.clone(),
                clock: settings.clock.clone(),
                telemetry: settings.telemetry.clone(),
                complaints: Mutex::default(),
                holdings,
                losses: engine.shared.losses.clone(),
                lease: settings.lease.unwrap_or_else(Lease::endless),
            }),
            dispatcher,
            chronicle: AttemptReporter::new(settings.observe, settings.clock, settings.telemetry),
            cards: EndpointCache::default(),
            pantry: PayloadCache::default(),
            waiting: Waiting::default(),
            decrees: PendingStatusWrites::default(),
            flights: FxHashMap::default(),
            commands: Vec::new(),
            drained: false,
            leaving: false,
            unwritten: false,
            is_shared,
            suspended: false,
            losses: 0,
            recalls: Vec::new(),
            search: BacklogQuery::Idle,
            heeded: FxHashMap::default(),
        }
    }

    async fn run(&mut self) {
        let mut messages = Vec::new();
        // A caller may have cancelled a delivery since the drain ended, so the number of flights is checked as well.
        while !(self.leaving && self.drained && self.dispatcher.flight_count() == 0) {
            if self.is_shared {
                self.check_lease(self.depot.clock.now());
            }
            self.shared.inbox.empty_into(&mut messages);
            if messages.is_empty() {
                self.wait().await;
                self.dispatch(Input::Tick);
            }
            for message in messages.drain(..) {
                self.take(message);
            }
            if !self.recalls.is_empty() {
                self.release_drained();
            }
        }
    }

    /// Waits until a message arrives or the dispatcher's wake-up time is reached.
    async fn wait(&mut self) {
        let now = self.depot.clock.now();
        let pause = until(self.dispatcher.wake(), now);
        let pause = pause.min(self.until_lease(now)).min(LONGEST_SLEEP);
        if !pause.is_zero() {
            let _ = timeout(pause, self.shared.inbox.rung()).await;
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Hear(input) => self.dispatch(input),
            Message::HandedOver(handed_over) => self.handed_over(handed_over),
            Message::Returned(returned) => self.returned(returned),
            Message::Recorded { ticket, result } => self.recorded(ticket, result),
            Message::Loaded(loaded) => self.loaded(*loaded),
            Message::Changed(endpoint) => self.reload(endpoint),
            Message::TenantChanged(tenant) => {
                for endpoint in self.cards.of_tenant(&tenant) {
                    self.reload(endpoint);
                }
            }
            Message::Missed => {
                for endpoint in self.cards.all() {
                    self.reload(endpoint);
                }
            }
            Message::UnderWay { tenant, reply } => {
                let _ = reply.send(Ok(self.dispatcher.under_way(&tenant)));
            }
            Message::Crowds { reply } => {
                let _ = reply.send(Ok((self.losses, self.dispatcher.crowds())));
            }
            Message::Room { losses, rooms } => self.make_room(losses, &rooms),
            Message::Work(work) => self.work(work),
            Message::Found(found) => self.found(found),
            Message::Poll => self.polled(),
            Message::Granted(shards) => self.granted(shards),
            Message::Recalled { shards, done } => self.recalled(shards, done),
            Message::Expired { losses } => self.expired(losses),
            Message::Stand {
                endpoint, reply, ..
            } if !self.depot.holdings.owns(endpoint) => {
                let _ = reply.send(Err(EngineError::NotOwner));
            }
            Message::Cancel {
                endpoint, reply, ..
            } if !self.depot.holdings.owns(endpoint) => {
                let _ = reply.send(Err(EngineError::NotOwner));
            }
            Message::Look { endpoint, reply } if !self.depot.holdings.owns(endpoint) => {
                let _ = reply.send(Err(EngineError::NotOwner));
            }
            Message::Stand {
                endpoint,
                standing,
                reason,
                reply,
            } => {
                let petition = StatusRequest {
                    standing,
                    reason,
                    reply,
                };
                self.waiting.for_standing(endpoint, petition);
                self.dispatch(Input::Stand { endpoint, standing });
                self.disown_again(endpoint);
            }
            Message::Cancel {
                endpoint,
                delivery,
                reply,
            } => {
                self.waiting.for_cancel(endpoint, delivery, reply);
                self.dispatch(Input::Cancel { endpoint, delivery });
                self.disown_again(endpoint);
            }
            Message::Look { endpoint, reply } => {
                let _ = reply.send(Ok(self.dispatcher.lane(endpoint)));
            }
            Message::Census { reply } => {
                let _ = reply.send(Ok(self.dispatcher.breakers()));
            }
            Message::Stood {
                endpoint,
                decree,
                result,
            } => {
                if self.decrees.stood(&self.depot, endpoint, decree, result) {
                    // A read that is in progress may have started before this write.
                    self.cards.mark_load_stale(endpoint);
                }
            }
            Message::StandAgain { endpoint, decree } => {
                self.decrees
                    .persist(&self.depot, endpoint, decree, Vec::new());
            }
            Message::CalmDown => self.dispatch(Input::Shutdown),
            Message::Shutdown => {
                self.leaving = true;
                self.dispatch(Input::Shutdown);
            }
        }
    }

    /// Passes an input to the dispatcher and executes the resulting commands.
    pub(super) fn dispatch(&mut self, input: Input) {
        let now = self.depot.clock.now();
        let mut commands = std::mem::take(&mut self.commands);
        self.dispatcher.handle(now, input, &mut commands);
        for command in commands.drain(..) {
            self.execute(now, command);
        }
        self.commands = commands;
        if self.dispatcher.lacks_room() {
            self.shared.room_bell.notify_one();
        }
    }

    fn execute(&mut self, now: Now, command: Command) {
        match command {
            Command::Introduce(endpoint) => self.load(endpoint),
            Command::Fetch { .. } => self.fetch(command),
            Command::Send(attempt) => self.send(attempt),
            Command::Record { ticket, record } => self.record(now, ticket, record),
            Command::Stands {
                endpoint,
                standing,
                health,
            } => self.persist_status(endpoint, standing, health),
            Command::TooLateToCancel(delivery) => {
                self.waiting
                    .answer_cancel(delivery, &Ok(Cancelled::TooLate));
            }
            Command::Sweep {
                ticket,
                endpoint,
                reason,
                except,
            } => self.sweep(ticket, endpoint, reason, except),
            Command::Notify(notice) => {
                let tenant = self.tenant_of(notice.endpoint);
                self.chronicle.notice(tenant.as_ref(), &notice);
            }
            Command::Disowned(endpoint) => self.disowned(endpoint),
            Command::Drained => self.drained = true,
        }
    }

    fn handed_over(&mut self, handed_over: Vec<HandedOver>) {
        let now = self.depot.clock.wall();
        let mut deliveries = Vec::with_capacity(handed_over.len());
        for HandedOver {
            delivery,
            accepted_at,
            content,
            received,
        } in handed_over
        {
            let facts = delivery.facts();
            // The shard was revoked since. The next owner reads the delivery from the store.
            if !self.depot.holdings.may_start(facts.endpoint) {
                continue;
            }
            // The payload of a delivery that is due later is read from the store when it is due.
            if facts.due_at <= now {
                let goods = Goods {
                    accepted_at,
                    content,
                    received,
                };
                self.pantry.insert(facts.event, goods);
            }
            deliveries.push(delivery);
        }
        self.dispatch(Input::Accepted(deliveries));
    }

    pub(super) fn tenant_of(&self, endpoint: EndpointId) -> Option<TenantId> {
        Some(self.cards.get(endpoint)?.tenant.clone())
    }

    /// Reads an endpoint because the dispatcher asked for its configuration.
    fn load(&mut self, endpoint: EndpointId) {
        if self.cards.begin_load(endpoint) {
            self.read_endpoint(endpoint);
        }
    }

    /// Reads an endpoint because it was changed, if it is cached or has a lane.
    fn reload(&mut self, endpoint: EndpointId) {
        if self.cards.contains(endpoint) || self.dispatcher.lane(endpoint).is_some() {
            self.load(endpoint);
        }
    }

    fn read_endpoint(&self, endpoint: EndpointId) {
        let depot = self.depot.clone();
        tokio::spawn(async move {
            let loaded = loop {
                match depot.house.load(&*depot.store, endpoint).await {
                    Ok(loaded) => break loaded,
                    Err(StoreError::Closed) => return,
                    Err(_) => sleep(STORE_RETRY_PAUSE).await,
                }
            };
            depot.inbox.put(Message::Loaded(Box::new(loaded)));
        });
    }

    fn loaded(&mut self, loaded: LoadedEndpoint) {
        let LoadedEndpoint { endpoint, found } = loaded;
        let owned_since = match self.depot.holdings.of_endpoint(endpoint) {
            Ownership::Owned(since) | Ownership::Releasing(since) => since,
            Ownership::NotOwned => {
                self.cards.discard_load(endpoint);
                return;
            }
        };
        let Some((mut introduction, card)) = found else {
            if self.cards.end_load(endpoint, None) {
                self.read_endpoint(endpoint);
                return;
            }
            for petition in self.waiting.take_standing(endpoint) {
                let gone = StoreError::Unavailable(format!("{endpoint} is not in it"));
                let _ = petition.reply.send(Err(gone.into()));
            }
            self.dispatch(Input::NoSuchEndpoint(endpoint));
            return;
        };
        let before = self.cards.get(endpoint);
        if let Some(before) = before.filter(|before| !before.looks_same_to_receiver(&card)) {
            self.depot.forget(&before);
        }
        if self.cards.end_load(endpoint, Some(card)) {
            self.read_endpoint(endpoint);
        } else {
            self.decrees.overlay(&mut introduction);
            introduction.owned_since = owned_since;
            // Before the lane receives the introduction: what the lane decides after that is newer than what was read.
            self.apply_stored_status(endpoint, introduction.standing);
            self.dispatch(Input::Introduced(introduction));
        }
    }

    fn fetch(&self, command: Command) {
        let Command::Fetch {
            ticket,
            endpoint,
            due_by,
            limit,
            ordered,
        } = command
        else {
            unreachable!("only fetches are fetched");
        };
        let depot = self.depot.clone();
        tokio::spawn(async move {
            let found = depot.store.fetch(endpoint, due_by, limit, ordered).await;
            let input = match found {
                Ok(fetched) => Input::Fetched {
                    ticket,
                    endpoint,
                    fetched,
                },
                Err(_) => Input::FetchFailed { ticket, endpoint },
            };
            depot.inbox.put(Message::Hear(input));
        });
    }

    fn sweep(
        &self,
        ticket: u64,
        endpoint: EndpointId,
        reason: DeadReason,
        except: Vec<DeliveryId>,
    ) {
        let depot = self.depot.clone();
        let chronicle = self.chronicle.clone();
        let tenant = self.tenant_of(endpoint);
        let except: Arc<[DeliveryId]> = except.into();
        let hold = depot.holdings.of_endpoint(endpoint);
        let kept = depot.holdings.may_start(endpoint);
        tokio::spawn(async move {
            // If the shard is revoked meanwhile, its next owner continues the sweep. If the shard is granted again, the
            // endpoint may have been enabled since, so this sweep must not continue.
            while kept && depot.holdings.of_endpoint(endpoint) == hold {
                let now = depot.clock.wall();
                let step = depot
                    .store
                    .sweep(now, endpoint, reason, except.clone(), SWEEP_STEP);
                match step.await {
                    Ok(swept) => {
                        chronicle.swept(tenant.as_ref(), endpoint, swept.ended);
                        if !swept.more {
                            break;
                        }
                    }
                    Err(StoreError::Closed) => return,
                    Err(_) => sleep(STORE_RETRY_PAUSE).await,
                }
            }
            let swept = Input::Swept { ticket, endpoint };
            depot.inbox.put(Message::Hear(swept));
        });
    }

    /// Persists the status of an endpoint, then answers the callers that requested it.
    fn persist_status(&mut self, endpoint: EndpointId, standing: Standing, health: Option<Health>) {
        if self.heeded.get(&endpoint) == Some(&standing) {
            return;
        }
        let petitions = self.waiting.take_standing(endpoint);
        let reason = match standing {
            Standing::Disabled => {
                let last = petitions.iter().rev();
                let asked = last.filter(|petition| petition.standing == standing);
                let asked = asked.filter_map(|petition| petition.reason).next();
                Some(asked.unwrap_or(DisabledReason::Manual))
            }
            Standing::Enabled | Standing::Paused | Standing::Deleted => None,
        };
        if standing == Standing::Deleted
            && let Some(card) = self.cards.get(endpoint)
        {
            self.depot.forget(&card);
        }
        let decree = StatusChange {
            standing,
            reason,
            health,
        };
        let number = self.decrees.issue(endpoint, decree);
        self.decrees
            .persist(&self.depot, endpoint, number, petitions);
    }
}

/// Returns the time until the dispatcher's next wake-up.
fn until(wake: Wake, now: Now) -> Duration {
    let tick = wake.tick.map(|tick| tick.since(now.tick));
    let wall = wake.wall.map(|wall| wall.since(now.wall));
    let soonest = [tick, wall].into_iter().flatten().min();
    soonest.map_or(LONGEST_SLEEP, |span| {
        Duration::from_millis(span.as_millis())
    })
}
