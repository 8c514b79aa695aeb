//! Checks for alerts: reads values, lets the core decide, raises and resolves.
//!
//! [`AlertChecker`] runs on the node that owns the first shard.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::alert::{AlertName, Change, Course, Seen};
use posthaste_core::cluster::Shard;
use posthaste_core::dice::Dice;
use posthaste_core::id::{AlertId, Mint, TenantId};
use posthaste_core::time::{Now, Span, Tick, Timestamp};
use posthaste_engine::owner_router::OwnerRouter;
use posthaste_store::{
    Alert, AlertFilter, CreateResult, PageRequest, Scope, Store, StoreError, Tally,
};
use posthaste_system::clock::Clock;
use posthaste_system::random;
use posthaste_telemetry::metrics::machine;
use posthaste_telemetry::metrics::retrying::{LONG_IN_RETRY, long_ago, retrying_of_everything};
use posthaste_telemetry::queue_age::CachedQueueAge;
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::hearing::AlertState;
use super::readings::{FROM_COUNTERS, buckets, of_tally};
use super::settings::{AlertSettings, SLOW_WRITES_TO_ALERT};
use super::{hearing, room, words};
use crate::notifications::Audience;

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste::alerts::watch";

/// Maximum number of failing tenants and endpoints per round, those that fail most first.
const MAX_FAILING: usize = 1_000;
/// Maximum number of failing tenants whose deliveries in retry are counted per round, besides those with an open alert.
const MAX_TENANTS_ASKED: usize = 50;
/// Page size for reading open alerts.
const PAGE: usize = 500;
/// Maximum number of open alerts per round that are compared with the state of their endpoint. The next round continues
/// after them.
const MAX_LOOKED_AT: usize = 500;
/// Interval at which a node that does not own the first shard checks its ownership.
const OWNERSHIP_CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Returns the time for which the oldest delivery that could be sent has been due, if it is known.
pub type QueueAge =
    Box<dyn Fn() -> Pin<Box<dyn Future<Output = Option<Span>> + Send>> + Send + Sync>;

/// Checks for alerts.
pub struct AlertChecker {
    store: Arc<dyn Store>,
    clock: Clock,
    settings: AlertSettings,
    /// Recipients of notifications.
    audience: Audience,
    queue_age: QueueAge,
    mint: Mint,
    /// For open alerts, the time since which the value has been normal.
    calm: FxHashMap<AlertId, Tick>,
    /// For open alerts about a trip, the time since which the breaker has been passing.
    passing: FxHashMap<AlertId, Tick>,
    /// Duration of the last test writes, in seconds.
    writes: VecDeque<f64>,
    /// The last alert that was compared with its endpoint.
    looked_at: Option<AlertId>,
}

/// Open alerts by name and scope.
type Open = FxHashMap<(AlertName, Scope), Alert>;

/// Values read in a round.
type Readings = Vec<(AlertName, Scope, Seen)>;

impl AlertChecker {
    /// Creates an instance without state.
    pub fn new(
        store: Arc<dyn Store>,
        clock: Clock,
        cached_queue_age: Arc<CachedQueueAge>,
        settings: AlertSettings,
        audience: Audience,
    ) -> AlertChecker {
        let queue_age: QueueAge = Box::new(move || {
            let cached = cached_queue_age.clone();
            Box::pin(async move { cached.read().await })
        });
        AlertChecker::with(store, clock, settings, queue_age, audience, random::seed())
    }

    /// Creates an instance with this source of the queue age and this RNG.
    pub(super) fn with(
        store: Arc<dyn Store>,
        clock: Clock,
        settings: AlertSettings,
        queue_age: QueueAge,
        audience: Audience,
        dice: Dice,
    ) -> AlertChecker {
        AlertChecker {
            store,
            clock,
            settings,
            audience,
            queue_age,
            mint: Mint::new(dice),
            calm: FxHashMap::default(),
            passing: FxHashMap::default(),
            writes: VecDeque::new(),
            looked_at: None,
        }
    }

    /// Runs rounds until `stopped` is true, if this node owns the first shard.
    pub fn start(
        mut self,
        switchboard: Arc<OwnerRouter>,
        mut stopped: watch::Receiver<bool>,
    ) -> JoinHandle<()> {
        let mine = Shard::all().next().expect("there are shards");
        let every = Duration::from_millis(self.settings.every.as_millis());
        tokio::spawn(async move {
            loop {
                let pause = match switchboard.is_mine(mine) {
                    false => {
                        self.reset();
                        OWNERSHIP_CHECK_INTERVAL.min(every)
                    }
                    true => match self.round().await {
                        Ok(()) => every,
                        Err(StoreError::Closed) => return,
                        Err(error) => {
                            tracing::warn!(target: LOG_TARGET, %error, "alerts could not be looked after; it is tried again");
                            every
                        }
                    },
                };
                let stopping = stopped.wait_for(|stopping| *stopping);
                if timeout(pause, stopping).await.is_ok() {
                    return;
                }
            }
        })
    }

    /// Clears the state in memory. It is outdated when this node checks again.
    fn reset(&mut self) {
        self.calm.clear();
        self.passing.clear();
        self.writes.clear();
    }

    /// Runs one round.
    pub async fn round(&mut self) -> Result<(), StoreError> {
        let now = self.clock.now();
        let open = self.read_open().await?;
        let open = self.end_what_is_over(now, open).await?;
        let readings = self.read(now, &open).await;
        self.judge(now, open, readings).await
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
                limit: PAGE,
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
    async fn end_what_is_over(&mut self, now: Now, all: Vec<Alert>) -> Result<Open, StoreError> {
        let mut open = Open::default();
        // Continues after the last alert of the previous round, and wraps around.
        let place = all.iter().position(|alert| Some(alert.id) < self.looked_at);
        let (first, rest) = all.split_at(place.unwrap_or(0));
        for (number, alert) in rest.iter().chain(first).enumerate() {
            let is_off = self.settings.bound(alert.name).is_none();
            let looks = number < MAX_LOOKED_AT;
            if looks {
                self.looked_at = Some(alert.id);
            }
            // A deleted tenant or endpoint may share its id with a new one, and must not hide the new one's alert.
            let ends = is_off || alert.is_gone;
            if ends || looks && self.is_over(now.tick, alert).await? {
                self.resolve(now.wall, alert).await?;
            } else {
                open.insert((alert.name, alert.scope.clone()), alert.clone());
            }
        }
        let known: FxHashSet<AlertId> = all.iter().map(|alert| alert.id).collect();
        self.calm.retain(|id, _| known.contains(id));
        self.passing.retain(|id, _| known.contains(id));
        Ok(open)
    }

    /// Returns true if the endpoint of an alert is deleted, or well again. Some alerts require that it has been well
    /// for a while.
    async fn is_over(&mut self, now: Tick, alert: &Alert) -> Result<bool, StoreError> {
        match stage(&*self.store, alert).await? {
            AlertState::Over => Ok(true),
            AlertState::Calm => {
                let since = *self.passing.entry(alert.id).or_insert(now);
                Ok(now.since(since) >= self.settings.calm)
            }
            AlertState::GoesOn => {
                self.passing.remove(&alert.id);
                Ok(false)
            }
        }
    }

    async fn read(&mut self, now: Now, open: &Open) -> Readings {
        let mut readings = Readings::new();
        if let Err(error) = self.read_counters(now.wall, open, &mut readings).await {
            tracing::warn!(target: LOG_TARGET, %error, "figures could not be read");
        }
        if let Err(error) = self.read_retrying(now.wall, open, &mut readings).await {
            tracing::warn!(target: LOG_TARGET, %error, "what has been in retry for long could not be counted");
        }
        let everything = [
            (AlertName::QueueAge, self.read_queue_age().await),
            (AlertName::StoreSlow, self.read_write_time(now.wall).await),
            (AlertName::StoreNearlyFull, self.read_room().await),
            (
                AlertName::NotificationsStuck,
                self.read_undispatched_age(now.wall).await,
            ),
        ];
        readings.extend(everything.map(|(name, seen)| (name, Scope::Everything, seen)));
        readings
    }

    /// Reads the counters of all tenants together, of failing scopes, and of scopes with an open alert.
    async fn read_counters(
        &self,
        now: Timestamp,
        open: &Open,
        readings: &mut Readings,
    ) -> Result<(), StoreError> {
        let (width, since) = buckets(now, self.settings.window);
        let failing = self
            .store
            .failing_figures(width, since, MAX_FAILING)
            .await?;
        let mut tallies: FxHashMap<Scope, Tally> = failing.into_iter().collect();
        let of_open = open.keys().filter(|(name, _)| FROM_COUNTERS.contains(name));
        let mut others: FxHashSet<Scope> = of_open.map(|(_, scope)| scope.clone()).collect();
        others.insert(Scope::Everything);
        others.retain(|scope| !tallies.contains_key(scope));
        for scope in others {
            let mut tally = Tally::default();
            for (_, bucket) in self.store.figures(scope.clone(), width, since).await? {
                tally.add(&bucket);
            }
            tallies.insert(scope, tally);
        }
        for (scope, tally) in tallies {
            let seen = of_tally(&tally).into_iter();
            readings.extend(seen.map(|(name, seen)| (name, scope.clone(), seen)));
        }
        Ok(())
    }

    /// Reads the number of deliveries in retry for more than 24 hours: in total, of tenants with an open alert, and of
    /// the operational tenant. If the total crosses the threshold, also of the tenants that fail most.
    async fn read_retrying(
        &self,
        now: Timestamp,
        open: &Open,
        readings: &mut Readings,
    ) -> Result<(), StoreError> {
        let name = AlertName::RetryingOver24h;
        let Some(bound) = self.settings.bound(name) else {
            return Ok(());
        };
        let since = long_ago(now);
        // Counts only as far as needed to compare with the threshold.
        let limit = (bound.limit().max(0.0) as usize).saturating_add(1);
        let apart = self.audience.tenant.as_ref();
        let all = retrying_of_everything(&*self.store, apart, since, limit).await?;
        let all = Seen::value(all as f64);
        readings.push((name, Scope::Everything, all));
        let mut tenants: FxHashSet<TenantId> = open
            .keys()
            .filter(|(other, _)| *other == name)
            .filter_map(|(_, scope)| tenant_of(scope))
            .collect();
        // A tenant's count never exceeds the total, so other tenants are counted only if the total crosses the
        // threshold. The operational tenant is not part of the total, so it is always counted.
        tenants.extend(apart.cloned());
        if matches!(all, Seen::Value { value, .. } if bound.is_crossed(value)) {
            let (width, since) = buckets(now, LONG_IN_RETRY);
            let failing = self
                .store
                .failing_figures(width, since, MAX_FAILING)
                .await?;
            let failing = failing.iter().filter_map(|(scope, _)| tenant_of(scope));
            tenants.extend(failing.take(MAX_TENANTS_ASKED));
        }
        for tenant in tenants {
            let counted = self
                .store
                .retrying_since(Some(tenant.clone()), since, limit);
            let seen = Seen::value(counted.await? as f64);
            readings.push((name, Scope::Tenant(tenant), seen));
        }
        Ok(())
    }

    async fn read_queue_age(&self) -> Seen {
        let age = (self.queue_age)().await;
        age.map_or(Seen::Unknown, |age| Seen::value(age.as_secs_f64()))
    }

    /// Makes a test write, and returns the shortest duration of the last few.
    async fn read_write_time(&mut self, now: Timestamp) -> Seen {
        let begun = self.clock.now().tick;
        if self.store.probe(now).await.is_err() {
            // An unavailable store is not a slow one: the readiness check reports it.
            return Seen::Unknown;
        }
        let took = self.clock.now().tick.since(begun);
        self.writes.push_back(took.as_secs_f64());
        if self.writes.len() > SLOW_WRITES_TO_ALERT {
            self.writes.pop_front();
        }
        Seen::Value {
            value: self.writes.iter().copied().fold(f64::INFINITY, f64::min),
            samples: self.writes.len() as u64,
        }
    }

    async fn read_room(&self) -> Seen {
        let of_disk = match self.store.path() {
            None => Seen::Nothing,
            Some(path) => machine::free_ratio(path).map_or(Seen::Unknown, Seen::value),
        };
        let of_limit = match self.settings.database_bytes {
            None => Seen::Nothing,
            Some(limit) => match self.store.stored_bytes().await {
                Err(_) => Seen::Unknown,
                Ok(None) => Seen::Nothing,
                Ok(Some(stored)) => Seen::value(room::free_share_of_limit(stored, limit)),
            },
        };
        match self.settings.bound(AlertName::StoreNearlyFull) {
            None => Seen::Nothing,
            Some(bound) => room::least(bound, [of_disk, of_limit]),
        }
    }

    /// Returns the age of the oldest notification or email to the operator that waits. An email that an owner's mail
    /// server refuses is the owner's problem, and is not included.
    async fn read_undispatched_age(&self, now: Timestamp) -> Seen {
        // Without a mail server no email can be stuck.
        let operator = self.audience.letters.clone().unwrap_or_default();
        let asked = [
            self.store.untold_since().await,
            self.store.unsent_since(operator).await,
        ];
        let [Ok(untold), Ok(unsent)] = asked else {
            return Seen::Unknown;
        };
        let oldest = [untold, unsent].into_iter().flatten().min();
        oldest.map_or(Seen::Nothing, |at| Seen::value(now.since(at).as_secs_f64()))
    }

    async fn judge(&mut self, now: Now, open: Open, readings: Readings) -> Result<(), StoreError> {
        let mut read: FxHashSet<AlertId> = FxHashSet::default();
        for (name, scope, seen) in readings {
            let Some(rule) = self.settings.rule(name) else {
                continue;
            };
            let known = open.get(&(name, scope.clone()));
            let course = match known {
                None => Course::Quiet,
                Some(alert) => Course::Raised {
                    calm_since: self.calm.get(&alert.id).copied(),
                },
            };
            read.extend(known.map(|alert| alert.id));
            let (next, change) = course.after(now.tick, &rule, seen);
            match change {
                Some(Change::Raise) => self.raise(now.wall, name, scope, seen).await?,
                Some(Change::Resolve) => {
                    let alert = known.expect("only what goes on ends");
                    self.resolve(now.wall, alert).await?;
                }
                None => {}
            }
            if let Some(alert) = known {
                match next {
                    Course::Raised {
                        calm_since: Some(since),
                    } => self.calm.insert(alert.id, since),
                    Course::Raised { calm_since: None } | Course::Quiet => {
                        self.calm.remove(&alert.id)
                    }
                };
            }
        }
        // A value that could not be read does not count as normal.
        self.calm.retain(|id, _| read.contains(id));
        Ok(())
    }

    async fn raise(
        &mut self,
        now: Timestamp,
        name: AlertName,
        scope: Scope,
        seen: Seen,
    ) -> Result<(), StoreError> {
        let Seen::Value { value, samples } = seen else {
            return Ok(());
        };
        let threshold = self.settings.bound(name).map(|bound| bound.limit());
        let mut detail = json!({ "value": value, "threshold": threshold });
        if FROM_COUNTERS.contains(&name) {
            detail["window"] = json!(self.settings.window.to_string());
        }
        if samples < u64::MAX && name != AlertName::StoreSlow {
            detail["samples"] = json!(samples);
        }
        let alert = Alert {
            id: self.mint.next(now),
            name,
            scope,
            tenant: None,
            is_gone: false,
            raised_at: now,
            resolved_at: None,
            detail,
        };
        if self.store.raise_alert(now, alert.clone()).await? == CreateResult::Created {
            let (about, why) = (about(&alert.scope), words::message(&alert));
            tracing::warn!(target: LOG_TARGET, alert = name.name(), %about, why, "an alert was raised");
        }
        Ok(())
    }

    async fn resolve(&self, now: Timestamp, alert: &Alert) -> Result<(), StoreError> {
        if self.store.resolve_alert(now, alert.id).await?.is_some() {
            let about = about(&alert.scope);
            tracing::info!(target: LOG_TARGET, alert = alert.name.name(), %about, "an alert was resolved");
        }
        Ok(())
    }
}

fn tenant_of(scope: &Scope) -> Option<TenantId> {
    match scope {
        Scope::Tenant(tenant) => Some(tenant.clone()),
        Scope::Everything | Scope::Endpoint(_) => None,
    }
}

/// Returns the state of an alert, as far as its subject determines it.
async fn stage(store: &dyn Store, alert: &Alert) -> Result<AlertState, StoreError> {
    match &alert.scope {
        Scope::Everything | Scope::Tenant(_) => Ok(AlertState::GoesOn),
        Scope::Endpoint(endpoint) => {
            let row = store.endpoint(*endpoint).await?;
            Ok(row.map_or(AlertState::Over, |row| hearing::stage(alert.name, &row)))
        }
    }
}

/// Formats the scope for a log line.
fn about(scope: &Scope) -> String {
    match scope {
        Scope::Everything => "everything".to_owned(),
        Scope::Tenant(tenant) => format!("tenant {tenant}"),
        Scope::Endpoint(endpoint) => format!("endpoint {endpoint}"),
    }
}
