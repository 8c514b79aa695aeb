//! Checks for alerts: reads values, lets the core decide, raises and resolves.
//!
//! [`AlertChecker`] runs on the node that owns the first shard. A round reads the open alerts, resolves those whose
//! subject is deleted or healthy again, reads the value of every other alert, and applies the rules of
//! `posthaste_core::alert`. A value that cannot be read never counts as normal.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::alert::{AlertChange, AlertName, AlertPhase, Reading};
use posthaste_core::cluster::Shard;
use posthaste_core::id::{AlertId, IdGenerator, TenantId};
use posthaste_core::rng::Rng;
use posthaste_core::time::{Now, Span, Tick, Timestamp};
use posthaste_engine::owner_router::{LimitedEndpoints, OwnerRouter};
use posthaste_store::{
    Alert, AlertFilter, CreateResult, PageRequest, StatCounters, Store, StoreError, SubjectScope,
    TenantSelection,
};
use posthaste_system::clock::Clock;
use posthaste_system::random;
use posthaste_telemetry::metrics::process_usage;
use posthaste_telemetry::metrics::retrying::{LONG_IN_RETRY, counted_tenants, long_ago};
use posthaste_telemetry::queue_age::CachedQueueAge;
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::endpoint_alerts::EndpointAlertState;
use super::readings::{FROM_COUNTERS, buckets, from_counters};
use super::settings::{AlertSettings, SLOW_WRITES_TO_ALERT};
use super::{disk_space, endpoint_alerts, held_back};
use crate::alert_text;
use crate::notifications::Audience;
use crate::shard_owner_task::{ShardOwnerTask, run_while_shard_owner};

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste::alerts::watch";

/// Maximum number of failing tenants and endpoints per round, those that fail most first.
const MAX_FAILING: usize = 1_000;
/// Maximum number of failing tenants whose deliveries in retry are counted per round, besides those with an open alert.
const MAX_TENANTS_COUNTED: usize = 50;
/// Page size for reading open alerts.
const PAGE_SIZE: usize = 500;
/// Maximum number of open alerts per round that are compared with the state of their endpoint. The next round continues
/// after them.
const MAX_COMPARED: usize = 500;
/// Interval at which a node that does not own the first shard checks its ownership.
const OWNERSHIP_CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Returns the time for which the oldest delivery that could be sent has been due, if it is known.
pub(super) type QueueAge =
    Box<dyn Fn() -> Pin<Box<dyn Future<Output = Option<Span>> + Send>> + Send + Sync>;

/// Returns the endpoints of all nodes that limits have held back for at least this time.
pub(super) type LimitedSource =
    Box<dyn Fn(Span) -> Pin<Box<dyn Future<Output = LimitedEndpoints> + Send>> + Send + Sync>;
/// Returns the number of deliveries that are held after internal errors on all nodes that answer.
pub(super) type HeldCount =
    Box<dyn Fn() -> Pin<Box<dyn Future<Output = u64> + Send>> + Send + Sync>;
/// Returns the longest time for which a node has not been able to read one of its outboxes, over all nodes that answer.
pub(super) type OutboxSource =
    Box<dyn Fn() -> Pin<Box<dyn Future<Output = Option<Span>> + Send>> + Send + Sync>;

/// Checks for alerts.
pub struct AlertChecker {
    store: Arc<dyn Store>,
    clock: Clock,
    settings: AlertSettings,
    /// Recipients of notifications.
    audience: Audience,
    queue_age: QueueAge,
    limited_source: LimitedSource,
    /// The endpoints that limits held back in the last round.
    limited: LimitedEndpoints,
    held_count: HeldCount,
    unreachable_outboxes: OutboxSource,
    ids: IdGenerator,
    /// For open alerts, the time since which the value has been normal.
    normal_since: FxHashMap<AlertId, Tick>,
    /// For open alerts about a trip, the time since which the breaker has been passing.
    passing_since: FxHashMap<AlertId, Tick>,
    /// Duration of the last test writes, in seconds.
    write_seconds: VecDeque<f64>,
    /// The last alert that was compared with its endpoint.
    last_compared: Option<AlertId>,
}

/// Values that are read from other components.
pub(super) struct Sources {
    pub(super) queue_age: QueueAge,
    pub(super) limited: LimitedSource,
    pub(super) held_count: HeldCount,
    pub(super) unreachable_outboxes: OutboxSource,
}

/// Open alerts by name and scope.
type OpenAlerts = FxHashMap<(AlertName, SubjectScope), Alert>;

/// Values read in a round.
type Readings = Vec<(AlertName, SubjectScope, Reading)>;

impl ShardOwnerTask for AlertChecker {
    fn interval(&self) -> Duration {
        Duration::from_millis(self.settings.every.as_millis())
    }

    async fn round(&mut self) -> Result<bool, StoreError> {
        let now = self.clock.now();
        let open = self.read_open().await?;
        let open = self.resolve_finished(now, open).await?;
        let readings = self.read_values(now, &open).await;
        self.apply_rules(now, open, readings).await?;
        Ok(false)
    }

    fn log_error(&self, error: &StoreError) {
        tracing::warn!(target: LOG_TARGET, %error, "cannot update alerts; retrying");
    }

    /// Clears the state in memory, which is outdated when this node checks again.
    fn skip_round(&mut self) -> Duration {
        self.normal_since.clear();
        self.passing_since.clear();
        self.write_seconds.clear();
        OWNERSHIP_CHECK_INTERVAL.min(self.interval())
    }
}

impl AlertChecker {
    /// Creates an instance without state.
    pub fn new(
        store: Arc<dyn Store>,
        clock: Clock,
        cached_queue_age: Arc<CachedQueueAge>,
        owner_router: Arc<OwnerRouter>,
        settings: AlertSettings,
        audience: Audience,
    ) -> AlertChecker {
        let queue_age: QueueAge = Box::new(move || {
            let cached = cached_queue_age.clone();
            Box::pin(async move { cached.read().await })
        });
        let held_router = owner_router.clone();
        let held_count: HeldCount = Box::new(move || {
            let owner_router = held_router.clone();
            Box::pin(async move { owner_router.quarantined_count().await })
        });
        let outbox_router = owner_router.clone();
        let unreachable_outboxes: OutboxSource = Box::new(move || {
            let owner_router = outbox_router.clone();
            Box::pin(async move { owner_router.longest_unreadable_outbox().await })
        });
        let limited_source: LimitedSource = Box::new(move |at_least| {
            let owner_router = owner_router.clone();
            Box::pin(async move { owner_router.limited(at_least).await })
        });
        let sources = Sources {
            queue_age,
            limited: limited_source,
            held_count,
            unreachable_outboxes,
        };
        AlertChecker::with_rng(store, clock, settings, sources, audience, random::seed())
    }

    /// Creates an instance with these sources of values and this RNG.
    pub(super) fn with_rng(
        store: Arc<dyn Store>,
        clock: Clock,
        settings: AlertSettings,
        sources: Sources,
        audience: Audience,
        rng: Rng,
    ) -> AlertChecker {
        AlertChecker {
            store,
            clock,
            settings,
            audience,
            queue_age: sources.queue_age,
            limited_source: sources.limited,
            limited: LimitedEndpoints::default(),
            held_count: sources.held_count,
            unreachable_outboxes: sources.unreachable_outboxes,
            ids: IdGenerator::new(rng),
            normal_since: FxHashMap::default(),
            passing_since: FxHashMap::default(),
            write_seconds: VecDeque::new(),
            last_compared: None,
        }
    }

    /// Starts rounds on the node that owns the first shard. They run until `stopped` is true.
    pub fn start(
        self,
        owner_router: Arc<OwnerRouter>,
        stopped: watch::Receiver<bool>,
    ) -> JoinHandle<()> {
        let shard = Shard::all().next().expect("the cluster has shards");
        tokio::spawn(
            async move { run_while_shard_owner(self, &owner_router, shard, stopped).await },
        )
    }

    /// Returns all open alerts, newest first.
    async fn read_open(&self) -> Result<Vec<Alert>, StoreError> {
        let filter = AlertFilter {
            open: Some(true),
            ..AlertFilter::default()
        };
        let mut open = Vec::new();
        let mut before = None;
        loop {
            let page = PageRequest {
                limit: PAGE_SIZE,
                before,
            };
            let page = self.store.alerts(filter.clone(), page).await?;
            open.extend(page.items);
            before = page.next;
            if before.is_none() {
                return Ok(open);
            }
        }
    }

    /// Resolves alerts about deleted tenants and endpoints, alerts about endpoints that are well again, and alerts that
    /// the operator has turned off. Returns the alerts that stay open.
    async fn resolve_finished(
        &mut self,
        now: Now,
        all: Vec<Alert>,
    ) -> Result<OpenAlerts, StoreError> {
        let mut open = OpenAlerts::default();
        // Continues after the last alert of the previous round, and wraps around.
        let start = all
            .iter()
            .position(|alert| Some(alert.id) < self.last_compared);
        let (first, rest) = all.split_at(start.unwrap_or(0));
        for (number, alert) in rest.iter().chain(first).enumerate() {
            let is_off = self.settings.bound(alert.name).is_none();
            let is_compared = number < MAX_COMPARED;
            if is_compared {
                self.last_compared = Some(alert.id);
            }
            // A deleted tenant or endpoint may share its id with a new one, and must not hide the new one's alert.
            let is_obsolete = is_off || alert.is_gone;
            if is_obsolete || is_compared && self.is_finished(now.tick, alert).await? {
                self.resolve(now.wall, alert).await?;
            } else {
                open.insert((alert.name, alert.scope.clone()), alert.clone());
            }
        }
        let open_ids: FxHashSet<AlertId> = all.iter().map(|alert| alert.id).collect();
        self.normal_since.retain(|id, _| open_ids.contains(id));
        self.passing_since.retain(|id, _| open_ids.contains(id));
        Ok(open)
    }

    /// Returns true if the endpoint of an alert is deleted, or well again. Some alerts require that it has been well
    /// for a while.
    async fn is_finished(&mut self, now: Tick, alert: &Alert) -> Result<bool, StoreError> {
        match state_of(&*self.store, alert).await? {
            EndpointAlertState::Finished => Ok(true),
            EndpointAlertState::Normal => {
                let since = *self.passing_since.entry(alert.id).or_insert(now);
                Ok(now.since(since) >= self.settings.calm)
            }
            EndpointAlertState::Ongoing => {
                self.passing_since.remove(&alert.id);
                Ok(false)
            }
        }
    }

    /// Reads the values of all alerts except those of endpoints. A value that cannot be read is left out or unknown.
    async fn read_values(&mut self, now: Now, open: &OpenAlerts) -> Readings {
        let mut readings = Readings::new();
        if let Err(error) = self.read_counters(now.wall, open, &mut readings).await {
            tracing::warn!(target: LOG_TARGET, %error, "cannot read stats for alerts");
        }
        if let Err(error) = self.read_retrying(now.wall, open, &mut readings).await {
            tracing::warn!(target: LOG_TARGET, %error, "cannot count deliveries that have been retrying for over 24 hours");
        }
        readings.extend(self.read_limited(open).await);
        let everything = [
            (AlertName::QueueAge, self.read_queue_age().await),
            (AlertName::StoreSlow, self.read_write_time(now.wall).await),
            (AlertName::StoreNearlyFull, self.read_free_space().await),
            (
                AlertName::NotificationsStuck,
                self.read_undispatched_age(now.wall).await,
            ),
            (AlertName::HeldAfterFaults, self.read_held().await),
            (AlertName::OutboxUnreachable, self.read_outboxes().await),
            (AlertName::SchedulesFailing, self.read_schedules().await),
        ];
        readings.extend(everything.map(|(name, seen)| (name, SubjectScope::Everything, seen)));
        readings
    }

    /// Reads the counters of all tenants together, of failing scopes, and of scopes with an open alert.
    async fn read_counters(
        &self,
        now: Timestamp,
        open: &OpenAlerts,
        readings: &mut Readings,
    ) -> Result<(), StoreError> {
        let (width, since) = buckets(now, self.settings.window);
        let failing = self.store.failing_stats(width, since, MAX_FAILING).await?;
        let mut counters_by_scope: FxHashMap<SubjectScope, StatCounters> =
            failing.into_iter().collect();
        let of_open = open.keys().filter(|(name, _)| FROM_COUNTERS.contains(name));
        let mut others: FxHashSet<SubjectScope> = of_open.map(|(_, scope)| scope.clone()).collect();
        others.insert(SubjectScope::Everything);
        others.retain(|scope| !counters_by_scope.contains_key(scope));
        for scope in others {
            let mut counters = StatCounters::default();
            for (_, bucket) in self.store.stats(scope.clone(), width, since).await? {
                counters.add(&bucket);
            }
            counters_by_scope.insert(scope, counters);
        }
        for (scope, counters) in counters_by_scope {
            let seen = from_counters(&counters).into_iter();
            readings.extend(seen.map(|(name, seen)| (name, scope.clone(), seen)));
        }
        Ok(())
    }

    /// Reads the number of deliveries in retry for more than 24 hours: in total, of tenants with an open alert, and of
    /// the operational tenant. If the total crosses the threshold, also of the tenants that fail most.
    async fn read_retrying(
        &self,
        now: Timestamp,
        open: &OpenAlerts,
        readings: &mut Readings,
    ) -> Result<(), StoreError> {
        let name = AlertName::RetryingOver24h;
        let Some(bound) = self.settings.bound(name) else {
            return Ok(());
        };
        let since = long_ago(now);
        // Counts only as far as needed to compare with the threshold.
        let limit = (bound.limit().max(0.0) as usize).saturating_add(1);
        let operational = self.audience.tenant.as_ref();
        let counted = counted_tenants(operational);
        let all = self.store.retrying_since(counted, since, limit).await?;
        let all = Reading::value(all as f64);
        readings.push((name, SubjectScope::Everything, all));
        let mut tenants: FxHashSet<TenantId> = open
            .keys()
            .filter(|(other, _)| *other == name)
            .filter_map(|(_, scope)| tenant_of(scope))
            .collect();
        // A tenant's count never exceeds the total, so other tenants are counted only if the total crosses the
        // threshold. The operational tenant is not part of the total, so it is always counted.
        tenants.extend(operational.cloned());
        if matches!(all, Reading::Value { value, .. } if bound.is_crossed(value)) {
            let (width, since) = buckets(now, LONG_IN_RETRY);
            let failing = self.store.failing_stats(width, since, MAX_FAILING).await?;
            let failing = failing.iter().filter_map(|(scope, _)| tenant_of(scope));
            tenants.extend(failing.take(MAX_TENANTS_COUNTED));
        }
        for tenant in tenants {
            let only = TenantSelection::Only(tenant.clone());
            let counted = self.store.retrying_since(only, since, limit);
            let seen = Reading::value(counted.await? as f64);
            readings.push((name, SubjectScope::Tenant(tenant), seen));
        }
        Ok(())
    }

    /// Reads for how long limits have held endpoints back.
    async fn read_limited(&mut self, open: &OpenAlerts) -> Readings {
        let name = AlertName::HeldBack;
        let Some(bound) = self.settings.bound(name) else {
            return Readings::new();
        };
        let at_least = Span::from_millis((bound.limit().max(0.0) * 1_000.0) as u64);
        self.limited = (self.limited_source)(at_least).await;
        let of_open = open.keys().filter(|(other, _)| *other == name);
        let of_open = of_open.filter_map(|(_, scope)| match scope {
            SubjectScope::Endpoint(endpoint) => Some(*endpoint),
            SubjectScope::Everything | SubjectScope::Tenant(_) => None,
        });
        held_back::readings(&self.limited, &of_open.collect())
            .into_iter()
            .map(|(endpoint, seen)| (name, SubjectScope::Endpoint(endpoint), seen))
            .collect()
    }

    async fn read_queue_age(&self) -> Reading {
        let age = (self.queue_age)().await;
        age.map_or(Reading::Unknown, |age| Reading::value(age.as_secs_f64()))
    }

    async fn read_held(&self) -> Reading {
        Reading::value((self.held_count)().await as f64)
    }

    /// Counts the failing schedules.
    async fn read_schedules(&self) -> Reading {
        let bound = self.settings.bound(AlertName::SchedulesFailing);
        let limit = bound.map_or(0.0, |bound| bound.limit().max(0.0)) as usize + MAX_FAILING;
        let seen = self.store.failing_schedules(limit).await;
        seen.map_or(Reading::Unknown, |count| Reading::value(count as f64))
    }

    async fn read_outboxes(&self) -> Reading {
        let longest = (self.unreachable_outboxes)().await;
        longest.map_or(Reading::Nothing, |time| Reading::value(time.as_secs_f64()))
    }

    /// Makes a test write, and returns the shortest duration of the last few.
    async fn read_write_time(&mut self, now: Timestamp) -> Reading {
        let started = self.clock.now().tick;
        if self.store.probe(now).await.is_err() {
            // An unavailable store is not a slow one: the readiness check reports it.
            return Reading::Unknown;
        }
        let duration = self.clock.now().tick.since(started);
        self.write_seconds.push_back(duration.as_secs_f64());
        if self.write_seconds.len() > SLOW_WRITES_TO_ALERT {
            self.write_seconds.pop_front();
        }
        Reading::Value {
            value: self
                .write_seconds
                .iter()
                .copied()
                .fold(f64::INFINITY, f64::min),
            samples: self.write_seconds.len() as u64,
        }
    }

    async fn read_free_space(&self) -> Reading {
        let of_disk = match self.store.path() {
            None => Reading::Nothing,
            Some(path) => process_usage::free_ratio(path).map_or(Reading::Unknown, Reading::value),
        };
        let of_limit = match self.settings.database_bytes {
            None => Reading::Nothing,
            Some(limit) => match self.store.stored_bytes().await {
                Err(_) => Reading::Unknown,
                Ok(None) => Reading::Nothing,
                Ok(Some(stored)) => Reading::value(disk_space::free_ratio_of_limit(stored, limit)),
            },
        };
        match self.settings.bound(AlertName::StoreNearlyFull) {
            None => Reading::Nothing,
            Some(bound) => disk_space::lowest(bound, [of_disk, of_limit]),
        }
    }

    /// Returns the age of the oldest notification or email to the operator that waits. An email that an owner's mail
    /// server refuses is the owner's problem, and is not included.
    async fn read_undispatched_age(&self, now: Timestamp) -> Reading {
        // Without a mail server no email can be stuck.
        let operator = self.audience.operator_emails.clone().unwrap_or_default();
        let waiting_since = [
            self.store.oldest_pending_notification().await,
            self.store.unsent_since(operator).await,
        ];
        let [Ok(undispatched), Ok(unsent)] = waiting_since else {
            return Reading::Unknown;
        };
        let oldest = [undispatched, unsent].into_iter().flatten().min();
        oldest.map_or(Reading::Nothing, |at| {
            Reading::value(now.since(at).as_secs_f64())
        })
    }

    /// Raises and resolves alerts by their rules.
    async fn apply_rules(
        &mut self,
        now: Now,
        open: OpenAlerts,
        readings: Readings,
    ) -> Result<(), StoreError> {
        let mut read: FxHashSet<AlertId> = FxHashSet::default();
        for (name, scope, seen) in readings {
            let Some(rule) = self.settings.rule(name) else {
                continue;
            };
            let open_alert = open.get(&(name, scope.clone()));
            let phase = match open_alert {
                None => AlertPhase::Quiet,
                Some(alert) => AlertPhase::Raised {
                    calm_since: self.normal_since.get(&alert.id).copied(),
                },
            };
            read.extend(open_alert.map(|alert| alert.id));
            let (next, change) = phase.after(now.tick, &rule, seen);
            match change {
                Some(AlertChange::Raise) => self.raise(now.wall, name, scope, seen).await?,
                Some(AlertChange::Resolve) => {
                    let alert = open_alert.expect("an alert that is resolved is open");
                    self.resolve(now.wall, alert).await?;
                }
                None => {}
            }
            if let Some(alert) = open_alert {
                match next {
                    AlertPhase::Raised {
                        calm_since: Some(since),
                    } => self.normal_since.insert(alert.id, since),
                    AlertPhase::Raised { calm_since: None } | AlertPhase::Quiet => {
                        self.normal_since.remove(&alert.id)
                    }
                };
            }
        }
        // A value that could not be read does not count as normal.
        self.normal_since.retain(|id, _| read.contains(id));
        Ok(())
    }

    async fn raise(
        &mut self,
        now: Timestamp,
        name: AlertName,
        scope: SubjectScope,
        seen: Reading,
    ) -> Result<(), StoreError> {
        let Reading::Value { value, samples } = seen else {
            return Ok(());
        };
        // Nodes of an earlier version could list no alerts. It is raised later if its cause lasts.
        let level = self.store.format_level();
        if !name.since().is_none_or(|feature| level.allows(feature)) {
            return Ok(());
        }
        let threshold = self.settings.bound(name).map(|bound| bound.limit());
        let mut detail = json!({ "value": value, "threshold": threshold });
        if FROM_COUNTERS.contains(&name) {
            detail["window"] = json!(self.settings.window.to_string());
        }
        if samples < u64::MAX && name != AlertName::StoreSlow {
            detail["samples"] = json!(samples);
        }
        if let (AlertName::HeldBack, SubjectScope::Endpoint(endpoint)) = (name, &scope)
            && let Some(limited) = self.limited.endpoints.get(endpoint)
        {
            detail["held_back_by"] = json!(limited.by.name());
        }
        let alert = Alert {
            id: self.ids.next(now),
            name,
            scope,
            tenant: None,
            is_gone: false,
            raised_at: now,
            resolved_at: None,
            detail,
        };
        if self.store.raise_alert(now, alert.clone()).await? == CreateResult::Created {
            let (about, why) = (
                alert_text::scope_text(&alert.scope),
                alert_text::message(&alert),
            );
            tracing::warn!(target: LOG_TARGET, alert = name.name(), %about, why, "alert raised");
        }
        Ok(())
    }

    async fn resolve(&self, now: Timestamp, alert: &Alert) -> Result<(), StoreError> {
        if self.store.resolve_alert(now, alert.id).await?.is_some() {
            let about = alert_text::scope_text(&alert.scope);
            tracing::info!(target: LOG_TARGET, alert = alert.name.name(), %about, "alert resolved");
        }
        Ok(())
    }
}

fn tenant_of(scope: &SubjectScope) -> Option<TenantId> {
    match scope {
        SubjectScope::Tenant(tenant) => Some(tenant.clone()),
        SubjectScope::Everything | SubjectScope::Endpoint(_) => None,
    }
}

/// Returns the state of an alert, as far as its subject determines it.
async fn state_of(store: &dyn Store, alert: &Alert) -> Result<EndpointAlertState, StoreError> {
    match &alert.scope {
        SubjectScope::Everything | SubjectScope::Tenant(_) => Ok(EndpointAlertState::Ongoing),
        SubjectScope::Endpoint(endpoint) => {
            let row = store.endpoint(*endpoint).await?;
            Ok(row.map_or(EndpointAlertState::Finished, |row| {
                endpoint_alerts::state_of(alert.name, &row)
            }))
        }
    }
}
