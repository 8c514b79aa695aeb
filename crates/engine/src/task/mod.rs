//! The engine task: it owns the dispatcher.
//!
//! [`EngineTask`] takes messages from the inbox, passes them to the dispatcher as inputs, and executes the commands
//! that the dispatcher returns. It never waits for the store or the network: each slow operation runs in its own task
//! and reports back through the inbox.
//!
//! | module | purpose |
//! |---|---|
//! | [`in_flight`] | attempts in flight, until their results are recorded |
//! | [`endpoints`] | endpoint configurations and statuses |
//! | [`ownership`] | shards and the lease |

mod endpoints;
mod in_flight;
mod ownership;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use posthaste_core::address::EgressRules;
use posthaste_core::delivery::DeadReason;
use posthaste_core::dispatcher::{
    Command, Dispatcher, DispatcherLimits, Input, LaneView, Ticket, Wake,
};
use posthaste_core::id::{DeliveryId, EndpointId, TenantId};
use posthaste_core::lane::{EndpointLimits, EndpointStatus, Protection};
use posthaste_core::rng::Rng;
use posthaste_core::time::{Now, Span};
use posthaste_egress::Client;
use posthaste_store::{HandedOver, Lease, Store, StoreError, StoreSettings};
use posthaste_system::clock::Clock;
use posthaste_telemetry::metrics::Metrics;
use posthaste_telemetry::traces::Telemetry;
use rustc_hash::FxHashMap;
use tokio::time::{sleep, timeout};

use self::in_flight::InFlightDetails;
use self::ownership::{BacklogQuery, Release};
use crate::attempt_reporter::AttemptReporter;
use crate::concurrency_share;
use crate::context::{AttemptContext, STORE_RETRY_PAUSE};
use crate::endpoint_cache::{EndpointCache, EndpointLoader};
use crate::handle::{Engine, EnginePhase, Shared, StopGuard};
use crate::inbox::Message;
use crate::owned_shards::OwnedShards;
use crate::payload_cache::{CachedPayload, PayloadCache};
use crate::pending_status_writes::PendingStatusWrites;
use crate::reply::{CancelResult, EngineError, Reply};
use crate::tokens::TokenCache;
use crate::vault::Vault;
use crate::waiting_callers::WaitingCallers;

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
    pub metrics: Arc<Metrics>,
    /// Exports spans of attempts.
    pub telemetry: Telemetry,
    /// The clock.
    pub clock: Clock,
    /// The RNG.
    pub rng: Rng,
    /// Limits of the dispatcher.
    pub limits: DispatcherLimits,
    /// Limits of endpoints for which neither the endpoint nor its tenant sets any.
    pub endpoint_defaults: EndpointLimits,
    /// Thresholds of endpoints for which neither the endpoint nor its tenant sets any.
    pub protection: Protection,
    /// Longest `Retry-After` that is honoured.
    pub retry_after_cap: Span,
    /// The lease that limits sending, if other nodes share the store. `None` means that this node owns all shards for
    /// ever.
    pub lease: Option<Lease>,
}

impl Engine {
    /// Reads the stored backlog, then sends until the engine is shut down.
    pub async fn run(&self, settings: EngineSettings) -> Result<(), StoreError> {
        let _guard = StopGuard(self.shared.clone());
        let mut task = match settings.lease {
            // The backlog of a shard is read when the shard is granted.
            Some(_) => {
                let cluster = settings.store.cluster();
                let task = EngineTask::new(self, settings);
                if let Some(cluster) = cluster {
                    tokio::spawn(concurrency_share::share_limits(self.clone(), cluster));
                }
                task.schedule_backlog_query();
                task
            }
            None => {
                let unfinished = settings.store.unfinished_work().await?;
                let mut task = EngineTask::new(self, settings);
                task.start_work(unfinished);
                task
            }
        };
        self.shared.phase.send_replace(EnginePhase::Running);
        task.run().await;
        Ok(())
    }
}
/// State of the engine task.
struct EngineTask {
    shared: Arc<Shared>,
    context: Arc<AttemptContext>,
    dispatcher: Dispatcher,
    reporter: AttemptReporter,
    endpoints: EndpointCache,
    payloads: PayloadCache,
    callers: WaitingCallers,
    pending_status_writes: PendingStatusWrites,
    in_flight: FxHashMap<Ticket, InFlightDetails>,
    /// Buffer for the dispatcher's commands, reused to avoid allocations.
    commands: Vec<Command>,
    /// Nothing that was sent is in flight, and no attempt will start.
    is_drained: bool,
    /// Shutdown was requested: no caller needs an answer any more.
    is_shutting_down: bool,
    /// The last record could not be written.
    is_record_failing: bool,
    /// Other nodes share the store.
    is_shared: bool,
    /// The lease does not allow new attempts.
    is_suspended: bool,
    /// Number of lease losses that this task has processed.
    lease_losses: u64,
    /// Revoked shards that are not released yet.
    releases: Vec<Release>,
    /// State of the query for unfinished work.
    backlog_query: BacklogQuery,
    /// Endpoint statuses that are already persisted and must not be written again.
    persisted_status: FxHashMap<EndpointId, EndpointStatus>,
}

impl EngineTask {
    fn new(engine: &Engine, settings: EngineSettings) -> EngineTask {
        let is_shared = settings.lease.is_some();
        let mut dispatcher = Dispatcher::new(settings.limits, settings.rng);
        if is_shared && settings.store.cluster().is_some() {
            dispatcher.limit_tenants_by_share();
        }
        let tokens = TokenCache::new(settings.client.clone(), settings.clock.clone());
        let context = AttemptContext {
            client: settings.client,
            tokens: Arc::new(tokens),
            store: settings.store,
            loader: EndpointLoader {
                store_settings: settings.store_settings,
                endpoint_defaults: settings.endpoint_defaults,
                protection: settings.protection,
                retry_after_cap: settings.retry_after_cap,
                rules: settings.rules,
                vault: settings.vault,
            },
            inbox: engine.shared.inbox.clone(),
            clock: settings.clock.clone(),
            telemetry: settings.telemetry.clone(),
            log_limiter: Mutex::default(),
            owned_shards: match is_shared {
                true => OwnedShards::none(),
                false => OwnedShards::all(),
            },
            lease_losses: engine.shared.lease_losses.clone(),
            lease: settings.lease.unwrap_or_else(Lease::endless),
        };
        EngineTask {
            shared: engine.shared.clone(),
            context: Arc::new(context),
            dispatcher,
            reporter: AttemptReporter {
                metrics: settings.metrics,
                clock: settings.clock,
                telemetry: settings.telemetry,
            },
            endpoints: EndpointCache::default(),
            payloads: PayloadCache::default(),
            callers: WaitingCallers::default(),
            pending_status_writes: PendingStatusWrites::default(),
            in_flight: FxHashMap::default(),
            commands: Vec::new(),
            is_drained: false,
            is_shutting_down: false,
            is_record_failing: false,
            is_shared,
            is_suspended: false,
            lease_losses: 0,
            releases: Vec::new(),
            backlog_query: BacklogQuery::Idle,
            persisted_status: FxHashMap::default(),
        }
    }

    async fn run(&mut self) {
        let mut messages = Vec::new();
        // A caller may have cancelled a delivery since the drain ended, so the number of flights is checked as well.
        while !(self.is_shutting_down && self.is_drained && self.dispatcher.in_flight_count() == 0)
        {
            if self.is_shared {
                self.check_lease(self.context.clock.now());
            }
            self.shared.inbox.empty_into(&mut messages);
            if messages.is_empty() {
                self.wait().await;
                self.dispatch(Input::Tick);
            }
            for message in messages.drain(..) {
                self.handle(message);
            }
            if !self.releases.is_empty() {
                self.release_drained();
            }
        }
    }

    /// Waits until a message arrives or the dispatcher's wake-up time is reached.
    async fn wait(&mut self) {
        let now = self.context.clock.now();
        let pause = until(self.dispatcher.wake(), now);
        let pause = pause.min(self.until_lease_check(now)).min(LONGEST_SLEEP);
        if !pause.is_zero() {
            let _ = timeout(pause, self.shared.inbox.message_arrived()).await;
        }
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Input(input) => self.dispatch(input),
            Message::HandedOver(handed_over) => self.handed_over(handed_over),
            Message::AttemptEnded(result) => self.attempt_ended(result),
            Message::Recorded { ticket, result } => self.recorded(ticket, result),
            Message::Loaded(loaded) => self.loaded(*loaded),
            Message::EndpointChanged(endpoint) => self.reload(endpoint),
            Message::TenantChanged(tenant) => self.reload_all(self.endpoints.of_tenant(&tenant)),
            Message::ChangesMissed => self.reload_all(self.endpoints.all()),
            Message::TenantInFlight { tenant, reply } => {
                let _ = reply.send(Ok(self.dispatcher.in_flight_of(&tenant)));
            }
            Message::TenantDemand { reply } => {
                let _ = reply.send(Ok((self.lease_losses, self.dispatcher.tenant_demands())));
            }
            Message::ConcurrencyShares { losses, shares } => self.apply_shares(losses, &shares),
            Message::Work(work) => self.start_work(work),
            Message::BacklogFound(found) => self.backlog_found(found),
            Message::PollBacklog => self.poll_backlog(),
            Message::Granted(shards) => self.granted(shards),
            Message::Revoked { shards, done } => self.revoked(shards, done),
            Message::LeaseLost { losses } => self.lease_lost(losses),
            Message::SetStatus { endpoint, request } => self.set_status(endpoint, request),
            Message::Cancel {
                endpoint,
                delivery,
                reply,
            } => self.cancel(endpoint, delivery, reply),
            Message::ViewLane { endpoint, reply } => {
                let lane = match self.context.owned_shards.owns(endpoint) {
                    true => Ok(self.view_lanes(&[endpoint]).pop().map(|(_, lane)| lane)),
                    false => Err(EngineError::NotOwner),
                };
                let _ = reply.send(lane);
            }
            Message::ViewLanes { endpoints, reply } => {
                let _ = reply.send(Ok(self.view_lanes(&endpoints)));
            }
            Message::CountHeldBack { reply } => {
                self.dispatch(Input::Tick);
                let counts = self.dispatcher.held_back_counts(self.context.clock.now());
                let _ = reply.send(Ok(counts.to_vec()));
            }
            Message::ViewLimited {
                at_least,
                max_endpoints,
                reply,
            } => {
                self.dispatch(Input::Tick);
                let now = self.context.clock.now();
                let limited = self.dispatcher.limited(now, at_least, max_endpoints);
                let _ = reply.send(Ok(limited));
            }
            Message::CountBreakers { reply } => {
                let _ = reply.send(Ok(self.dispatcher.breakers()));
            }
            Message::StatusWritten {
                endpoint,
                version,
                result,
            } => self.status_written(endpoint, version, result),
            Message::RetryStatusWrite { endpoint, version } => {
                self.pending_status_writes
                    .persist(&self.context, endpoint, version, Vec::new());
            }
            Message::StopStarting => self.dispatch(Input::Shutdown),
            Message::Shutdown => {
                self.is_shutting_down = true;
                self.dispatch(Input::Shutdown);
            }
        }
    }

    /// Returns snapshots of the lanes that these endpoints have on this node.
    fn view_lanes(&mut self, endpoints: &[EndpointId]) -> Vec<(EndpointId, LaneView)> {
        // Starts what is due now, so that no delivery is shown as held back that is about to be sent.
        self.dispatch(Input::Tick);
        let now = self.context.clock.now();
        let mut lanes = Vec::with_capacity(endpoints.len());
        for endpoint in endpoints {
            if self.context.owned_shards.owns(*endpoint)
                && let Some(lane) = self.dispatcher.lane(now, *endpoint)
            {
                lanes.push((*endpoint, lane));
            }
        }
        lanes
    }

    fn reload_all(&mut self, endpoints: Vec<EndpointId>) {
        for endpoint in endpoints {
            self.reload(endpoint);
        }
    }

    /// Passes an input to the dispatcher and executes the resulting commands.
    fn dispatch(&mut self, input: Input) {
        let now = self.context.clock.now();
        let mut commands = std::mem::take(&mut self.commands);
        self.dispatcher.handle(now, input, &mut commands);
        for command in commands.drain(..) {
            self.execute(now, command);
        }
        self.commands = commands;
        if self.dispatcher.take_quarantine_changed() {
            self.held_changed();
        }
        if self.dispatcher.has_unmet_demand() {
            self.shared.share_wanted.notify_one();
        }
    }

    fn execute(&mut self, now: Now, command: Command) {
        match command {
            Command::LoadEndpoint(endpoint) => self.load(endpoint),
            Command::Fetch { .. } => self.fetch(command),
            Command::Send(attempt) => self.send(attempt),
            Command::Record { ticket, record } => self.record(now, ticket, record),
            Command::PersistStatus {
                endpoint,
                status,
                health,
            } => self.persist_status(endpoint, status, health),
            Command::TooLateToCancel(delivery) => {
                self.callers
                    .answer_cancel(delivery, &Ok(CancelResult::TooLate));
            }
            Command::Sweep {
                ticket,
                endpoint,
                reason,
                except,
            } => self.sweep(ticket, endpoint, reason, except),
            Command::Notify(notification) => {
                let tenant = self.tenant_of(notification.endpoint);
                self.reporter.notification(tenant.as_ref(), &notification);
            }
            Command::CountEnded(endpoint) => self.count_ended(now, endpoint),
            Command::ReadyToRelease(endpoint) => self.ready_to_release(endpoint),
            Command::Drained => self.is_drained = true,
        }
    }

    /// Publishes the deliveries that are held after internal faults.
    fn held_changed(&self) {
        let mut held = self.shared.quarantine();
        held.set(self.dispatcher.quarantined());
        held.retain(|endpoint| self.context.owned_shards.owns(endpoint));
        self.reporter.held_after_faults(held.count());
    }

    fn handed_over(&mut self, handed_over: Vec<HandedOver>) {
        let now = self.context.clock.wall();
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
            if !self.context.owned_shards.may_start(facts.endpoint) {
                continue;
            }
            // The payload of a delivery that is due later is read from the store when it is due.
            if facts.due_at <= now {
                let payload = CachedPayload {
                    accepted_at,
                    content,
                    received,
                };
                self.payloads.insert(facts.event, payload);
            }
            deliveries.push(delivery);
        }
        self.dispatch(Input::Accepted(deliveries));
    }

    /// Cancels a delivery, as a caller requests.
    fn cancel(&mut self, endpoint: EndpointId, delivery: DeliveryId, reply: Reply<CancelResult>) {
        if !self.context.owned_shards.owns(endpoint) {
            let _ = reply.send(Err(EngineError::NotOwner));
            return;
        }
        self.callers.wait_for_cancel(delivery, reply);
        self.dispatch(Input::Cancel { endpoint, delivery });
        self.revoke_again(endpoint);
    }

    /// Applies the concurrency shares that the store granted.
    fn apply_shares(&mut self, losses: u64, shares: &[(TenantId, u32)]) {
        // After a lease loss, shares granted before it belong to other nodes.
        if losses != self.lease_losses {
            return;
        }
        for (tenant, usable) in shares {
            self.dispatcher.grant(tenant, *usable);
        }
        self.dispatch(Input::Tick);
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
            unreachable!("only a fetch command is passed");
        };
        let context = self.context.clone();
        let (shared, reporter) = (self.shared.clone(), self.reporter.clone());
        tokio::spawn(async move {
            let found = context.store.fetch(endpoint, due_by, limit, ordered).await;
            let input = match found {
                Ok(fetched) => {
                    let complete = fetched.next_due.is_none();
                    let is_owned = context.owned_shards.owns(endpoint);
                    let mut held = shared.quarantine();
                    if is_owned && held.fetched(endpoint, &fetched.unreadable, complete) {
                        reporter.held_after_faults(held.count());
                    }
                    drop(held);
                    Input::Fetched {
                        ticket,
                        endpoint,
                        fetched,
                    }
                }
                Err(_) => Input::FetchFailed { ticket, endpoint },
            };
            context.inbox.put(Message::Input(input));
        });
    }

    fn sweep(
        &self,
        ticket: u64,
        endpoint: EndpointId,
        reason: DeadReason,
        except: Vec<DeliveryId>,
    ) {
        let context = self.context.clone();
        let reporter = self.reporter.clone();
        let tenant = self.tenant_of(endpoint);
        let except: Arc<[DeliveryId]> = except.into();
        let ownership = context.owned_shards.of_endpoint(endpoint);
        let may_start = context.owned_shards.may_start(endpoint);
        tokio::spawn(async move {
            // If the shard is revoked meanwhile, its next owner continues the sweep. If the shard is granted again, the
            // endpoint may have been enabled since, so this sweep must not continue.
            while may_start && context.owned_shards.of_endpoint(endpoint) == ownership {
                let now = context.clock.wall();
                let step = context
                    .store
                    .sweep(now, endpoint, reason, except.clone(), SWEEP_STEP);
                match step.await {
                    Ok(swept) => {
                        reporter.dead_lettered(tenant.as_ref(), swept.ended);
                        if !swept.more {
                            break;
                        }
                    }
                    Err(StoreError::Closed) => return,
                    Err(_) => sleep(STORE_RETRY_PAUSE).await,
                }
            }
            let swept = Input::Swept { ticket, endpoint };
            context.inbox.put(Message::Input(swept));
        });
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
