//! Dispatches notifications in order.
//!
//! One round: failed deliveries are summarised ▸ alerts process each notification ▸ audit log ▸ operational events ▸
//! `complete_notifications`, which in one transaction advances the number of the last dispatched notification and adds
//! lines to emails. Every step before `complete_notifications` can be repeated without effect. So a crash at any point,
//! or two nodes at once, still dispatch each notification once.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::cluster::Shard;
use posthaste_core::id::EndpointId;
use posthaste_core::lane::EndpointStatus;
use posthaste_core::time::{Span, Timestamp};
use posthaste_store::{CreateResult, Notification, Store, StoreError, SubjectScope};
use posthaste_system::clock::Clock;
use posthaste_telemetry::metrics::Metrics;

use super::events;
use super::outputs::{Outputs, Subject};
use super::settings::Audience;
use crate::shard_owner_task::ShardOwnerTask;

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste::notices::herald";

/// Interval between rounds, if no new notification wakes the dispatcher earlier.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Maximum number of notifications per round, and of endpoints whose failures are summarised per round.
const MAX_PER_ROUND: usize = 200;

/// Future that a [`NotificationObserver`] returns.
pub type ObserverFuture<'a> = Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send + 'a>>;

/// Observer that processes every notification in order. May get one again after a crash.
pub trait NotificationObserver: Send + Sync {
    /// Processes a notification. It is dispatched when this has succeeded. After an error the whole round is repeated.
    fn observe<'a>(&'a self, notification: &'a Notification) -> ObserverFuture<'a>;
}

/// Returns the shard whose owner dispatches notifications. It is the second shard, to spread the load: the owner of the
/// first makes the retention runs.
pub(super) fn dispatching_shard() -> Shard {
    Shard::all().nth(1).expect("the cluster has several shards")
}

/// Dispatches notifications.
pub(super) struct NotificationDispatcher {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Clock,
    pub(super) audience: Audience,
    pub(super) gather: Span,
    pub(super) observer: Arc<dyn NotificationObserver>,
    pub(super) metrics: Arc<Metrics>,
}

impl ShardOwnerTask for NotificationDispatcher {
    fn interval(&self) -> Duration {
        POLL_INTERVAL
    }

    /// Returns true if notifications were dispatched, because there may be more.
    async fn round(&mut self) -> Result<bool, StoreError> {
        let now = self.clock.wall();
        let before = Timestamp(now.0.saturating_sub(self.gather.as_millis()));
        let summarised = self
            .store
            .collect_failures(now, before, MAX_PER_ROUND)
            .await;
        // Waiting notifications are dispatched and counted even if the failures could not be summarised.
        let has_dispatched = self.dispatch_waiting(now).await?;
        summarised?;
        Ok(has_dispatched)
    }

    fn log_error(&self, error: &StoreError) {
        tracing::warn!(target: LOG_TARGET, %error, "cannot dispatch notifications; keeping them and retrying");
    }

    fn skip_round(&mut self) -> Duration {
        self.metrics.notifications.clear_waiting();
        POLL_INTERVAL
    }

    async fn woken(&self) {
        self.metrics.notifications.woken().await;
    }
}

impl NotificationDispatcher {
    async fn dispatch_waiting(&self, now: Timestamp) -> Result<bool, StoreError> {
        let from = self.store.last_processed_notification().await?;
        let notifications = self.store.notifications(from, MAX_PER_ROUND).await?;
        self.metrics.notifications.wait(notifications.len());
        let (Some(first), Some(last)) = (notifications.first(), notifications.last()) else {
            return Ok(false);
        };
        let lost = first.number.saturating_sub(from + 1);
        let up_to = last.number;
        let lines = self.dispatch_repeatable(&notifications).await?;
        let due_at = now.after(self.gather);
        let moved = self
            .store
            .complete_notifications(now, from, up_to, lines, due_at)
            .await?;
        if moved {
            self.metrics
                .notifications
                .processed(notifications.len() as u64);
            if lost > 0 {
                self.metrics.notifications.lost(lost);
                tracing::error!(target: LOG_TARGET,
                    lost,
                    "too many pending notifications; the oldest were dropped"
                );
            }
        }
        Ok(true)
    }

    /// Does every step that may be repeated. Returns the email lines.
    async fn dispatch_repeatable(
        &self,
        notifications: &[Notification],
    ) -> Result<Vec<(String, posthaste_store::EmailLine)>, StoreError> {
        let mut known = BTreeMap::new();
        let (mut lines, mut operational) = (Vec::new(), Vec::new());
        for notification in notifications {
            self.observer.observe(notification).await?;
            let subject = self.read_subject(&notification.scope, &mut known).await?;
            let outputs = Outputs::of(notification, &subject, &self.audience);
            if let Some(entry) = outputs.audit_entry {
                match self
                    .store
                    .audit_notification(notification.number, entry)
                    .await?
                {
                    CreateResult::Created
                    | CreateResult::Taken
                    | CreateResult::NoSuchTenant
                    | CreateResult::TooMany => {}
                }
            }
            if let (Some(payload), Some(tenant)) = (outputs.event, &self.audience.tenant) {
                operational.extend(events::event_of(tenant, notification, &subject, &payload));
            }
            lines.extend(outputs.email_lines);
        }
        if let (Some(tenant), false) = (&self.audience.tenant, operational.is_empty()) {
            events::accept(&*self.store, &self.clock, tenant, operational).await?;
        }
        Ok(lines)
    }

    /// Reads the subject of a notification.
    async fn read_subject(
        &self,
        scope: &SubjectScope,
        known: &mut BTreeMap<EndpointId, Subject>,
    ) -> Result<Subject, StoreError> {
        let endpoint = match scope {
            SubjectScope::Everything => return Ok(Subject::default()),
            SubjectScope::Tenant(tenant) => {
                return Ok(Subject {
                    tenant: Some(tenant.clone()),
                    ..Subject::default()
                });
            }
            SubjectScope::Endpoint(endpoint) => *endpoint,
        };
        if let Some(subject) = known.get(&endpoint) {
            return Ok(subject.clone());
        }
        let subject = match self.store.endpoint(endpoint).await? {
            None => Subject {
                endpoint: Some(endpoint),
                is_gone: true,
                ..Subject::default()
            },
            Some(row) => Subject {
                tenant: Some(row.endpoint.tenant),
                endpoint: Some(endpoint),
                url: Some(row.endpoint.url),
                owner_email: row.endpoint.owner_email.filter(|owner| {
                    row.endpoint.owner_email_confirmed
                        || self.audience.allowed_domains.allows(owner)
                }),
                is_gone: row.status == EndpointStatus::Deleted,
            },
        };
        known.insert(endpoint, subject.clone());
        Ok(subject)
    }
}
