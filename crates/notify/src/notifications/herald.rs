//! Dispatches notifications in order.
//!
//! One round: failed deliveries are summarised ▸ alerts process each notification ▸ audit log ▸ operational events ▸
//! `tell`, which in one transaction advances the number of the last dispatched notification and adds lines to emails.
//! Every step before `tell` can be repeated without effect. So a crash at any point, or two nodes at once, still
//! dispatch each notification once.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::cluster::Shard;
use posthaste_core::id::EndpointId;
use posthaste_core::lane::Standing;
use posthaste_core::time::{Span, Timestamp};
use posthaste_engine::owner_router::OwnerRouter;
use posthaste_store::{CreateResult, Notification, Scope, Store, StoreError};
use posthaste_system::clock::Clock;
use posthaste_telemetry::metrics::Metrics;
use tokio::sync::watch;
use tokio::time::sleep;

use super::decide::{About, decide};
use super::events;
use super::settings::Audience;

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste::notices::herald";

/// Polling interval, used when there is no wake-up.
const LOOKING: Duration = Duration::from_secs(2);
/// Pause after an error.
const AFTER_TROUBLE: Duration = Duration::from_secs(2);
/// Maximum number of notifications per round, and of endpoints whose failures are summarised per round.
const ROUND: usize = 200;

/// Future that a [`NotificationObserver`] returns.
pub type Hearing<'a> = Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send + 'a>>;

/// Observer that processes every notification in order. May get one again after a crash.
pub trait NotificationObserver: Send + Sync {
    /// Processes a notification. It is dispatched when this has succeeded. After an error the whole round is repeated.
    fn heard<'a>(&'a self, notice: &'a Notification) -> Hearing<'a>;
}

/// Observer that does nothing.
#[derive(Clone, Copy, Debug)]
pub struct NoObserver;

impl NotificationObserver for NoObserver {
    fn heard<'a>(&'a self, _notice: &'a Notification) -> Hearing<'a> {
        Box::pin(async { Ok(()) })
    }
}

/// Returns the shard whose owner dispatches notifications. It is the second shard, to spread the load: the owner of the
/// first makes the retention runs.
pub(super) fn dispatching_shard() -> Shard {
    Shard::all().nth(1).expect("there are shards")
}

/// Dispatches notifications.
pub(super) struct NotificationDispatcher {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Clock,
    pub(super) switchboard: Arc<OwnerRouter>,
    pub(super) audience: Audience,
    pub(super) gather: Span,
    pub(super) hears: Arc<dyn NotificationObserver>,
    pub(super) observe: Arc<Metrics>,
}

impl NotificationDispatcher {
    /// Dispatches until `stopped` is true. A round in progress is completed.
    pub(super) async fn run(self, mut stopped: watch::Receiver<bool>) {
        loop {
            let mut pause = LOOKING;
            if self.switchboard.is_mine(dispatching_shard()) {
                match self.round().await {
                    Ok(true) => pause = Duration::ZERO,
                    Ok(false) => {}
                    Err(StoreError::Closed) => return,
                    Err(error) => {
                        tracing::warn!(target: LOG_TARGET, %error, "notices could not be told; they are kept, and told as soon as that works");
                        pause = AFTER_TROUBLE;
                    }
                }
            } else {
                self.observe.notices.nothing_waits();
            }
            let stopping = async {
                let _ = stopped.wait_for(|stopping| *stopping).await;
            };
            tokio::select! {
                biased;
                () = stopping => return,
                () = self.observe.notices.woken() => {}
                () = sleep(pause) => {}
            }
        }
    }

    /// Runs one round. Returns true if notifications were dispatched, because there may be more.
    pub(super) async fn round(&self) -> Result<bool, StoreError> {
        let now = self.clock.wall();
        let before = Timestamp(now.0.saturating_sub(self.gather.as_millis()));
        let gathered = self.store.gather_failures(now, before, ROUND).await;
        // Waiting notifications are dispatched and counted even if the failures could not be summarised.
        let told = self.dispatch_waiting(now).await?;
        gathered?;
        Ok(told)
    }

    async fn dispatch_waiting(&self, now: Timestamp) -> Result<bool, StoreError> {
        let from = self.store.told().await?;
        let notices = self.store.notices(from, ROUND).await?;
        self.observe.notices.wait(notices.len(), notices.first());
        let (Some(first), Some(last)) = (notices.first(), notices.last()) else {
            return Ok(false);
        };
        let lost = first.number.saturating_sub(from + 1);
        let up_to = last.number;
        let lines = self.dispatch_repeatable(&notices).await?;
        let due_at = now.after(self.gather);
        let moved = self.store.tell(now, from, up_to, lines, due_at).await?;
        if moved {
            self.observe.notices.told(notices.len() as u64);
            if lost > 0 {
                self.observe.notices.lost(lost);
                tracing::error!(target: LOG_TARGET,
                    lost,
                    "more notices came than can be kept, and the oldest are lost: nobody was told of them"
                );
            }
        }
        Ok(true)
    }

    /// Does every step that may be repeated. Returns the email lines.
    async fn dispatch_repeatable(
        &self,
        notices: &[Notification],
    ) -> Result<Vec<(String, posthaste_store::EmailLine)>, StoreError> {
        let mut known = BTreeMap::new();
        let (mut lines, mut operational) = (Vec::new(), Vec::new());
        for notice in notices {
            self.hears.heard(notice).await?;
            let about = self.about(&notice.scope, &mut known).await?;
            let telling = decide(notice, &about, &self.audience);
            if let Some(act) = telling.act {
                match self.store.keep_act(notice.number, act).await? {
                    CreateResult::Created
                    | CreateResult::Taken
                    | CreateResult::NoSuchTenant
                    | CreateResult::TooMany => {}
                }
            }
            if let (Some(payload), Some(tenant)) = (telling.event, &self.audience.tenant) {
                operational.extend(events::event_of(tenant, notice, &about, &payload));
            }
            lines.extend(telling.lines);
        }
        if let (Some(tenant), false) = (&self.audience.tenant, operational.is_empty()) {
            events::accept(&*self.store, &self.clock, tenant, operational).await?;
        }
        Ok(lines)
    }

    /// Reads the subject of a notification.
    async fn about(
        &self,
        scope: &Scope,
        known: &mut BTreeMap<EndpointId, About>,
    ) -> Result<About, StoreError> {
        let endpoint = match scope {
            Scope::Everything => return Ok(About::default()),
            Scope::Tenant(tenant) => {
                return Ok(About {
                    tenant: Some(tenant.clone()),
                    ..About::default()
                });
            }
            Scope::Endpoint(endpoint) => *endpoint,
        };
        if let Some(about) = known.get(&endpoint) {
            return Ok(about.clone());
        }
        let about = match self.store.endpoint(endpoint).await? {
            None => About {
                endpoint: Some(endpoint),
                is_gone: true,
                ..About::default()
            },
            Some(row) => About {
                tenant: Some(row.endpoint.tenant),
                endpoint: Some(endpoint),
                url: Some(row.endpoint.url),
                owner_email: row.endpoint.owner_email,
                is_gone: row.standing == Standing::Deleted,
            },
        };
        known.insert(endpoint, about.clone());
        Ok(about)
    }
}
