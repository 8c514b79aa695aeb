//! The data of the model.
//!
//! [`Tables`] holds every row in sorted maps, keyed by id, behind the one lock of the store. It also holds the id
//! generator and the positions of retention runs. Functions that several parts of the model need are here.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use posthaste_core::delivery::{Delivery, OneOffRequest, OrderingKey};
use posthaste_core::id::{
    AlertId, AuditId, DeliveryId, EndpointId, EventId, IdGenerator, KeyId, ReplayId, SessionId,
    TenantId,
};
use posthaste_core::ingest::Fingerprint;
use posthaste_core::policy::RetryPolicy;
use posthaste_core::time::{Month, Span, Timestamp};

use posthaste_store::for_other_stores::StoredEmail;
use posthaste_store::for_other_stores::{EmailUsage, Failures, StoredConfirmation};
use posthaste_store::{
    AcceptedDelivery, Alert, ApiKey, AttemptEntry, AuditEntry, BucketWidth, Content, EndpointRow,
    LoginSession, Notification, Page, PageRequest, Replay, StatCounters, StoreSettings, StoredRun,
    StoredSchedule, Tenant,
};

/// Distinguishes a tenant from an earlier tenant with the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TenantVersion(pub(super) u64);

#[derive(Debug)]
pub(super) struct TenantRow {
    pub(super) owner: TenantVersion,
    pub(super) tenant: Tenant,
}

#[derive(Debug)]
pub(super) struct OwnedEndpoint {
    pub(super) owner: TenantVersion,
    pub(super) row: EndpointRow,
}

#[derive(Debug)]
pub(super) struct EventRow {
    pub(super) owner: TenantVersion,
    pub(super) tenant: TenantId,
    pub(super) created_at: Timestamp,
    pub(super) content: Arc<Content>,
    pub(super) payload_removed_at: Option<Timestamp>,
    pub(super) deliver_at: Option<Timestamp>,
    pub(super) ordering: Option<OrderingKey>,
    pub(super) only: Option<EndpointId>,
    pub(super) request: Option<Arc<OneOffRequest>>,
    pub(super) idempotency_key: Option<String>,
    /// The deliveries that were made on acceptance. Deliveries that a replay added later are not included, so
    /// that the response to the same idempotency key stays the same.
    pub(super) accepted: Vec<AcceptedDelivery>,
}

#[derive(Debug)]
pub(super) struct DeliveryRow {
    pub(super) delivery: Delivery,
    pub(super) attempts: Vec<AttemptEntry>,
}

/// A delivery that a replay will send, or an event that has no delivery to the endpoint yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Target {
    pub(super) event: EventId,
    pub(super) endpoint: EndpointId,
}

#[derive(Debug)]
pub(super) struct ReplayRow {
    pub(super) owner: TenantVersion,
    pub(super) replay: Replay,
    /// Targets that are not processed yet.
    pub(super) left: VecDeque<Target>,
}

#[derive(Debug)]
pub(super) struct SessionRow {
    /// The tenant that the session is for; `None` for a session of a key.
    pub(super) owner: Option<TenantVersion>,
    pub(super) session: LoginSession,
}

#[derive(Debug)]
pub(super) struct AuditRow {
    /// The tenant that had the id when the entry was written.
    pub(super) owner: Option<TenantVersion>,
    pub(super) entry: AuditEntry,
}

/// The subject of stats, with the tenant distinguished from an earlier one with the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StatsSubject {
    Everything,
    Tenant(TenantVersion),
    Endpoint(EndpointId),
}

#[derive(Debug)]
pub(super) struct AlertRow {
    /// The tenant that it belongs to; `None` if it is about the whole installation.
    pub(super) owner: Option<TenantVersion>,
    pub(super) alert: Alert,
}

#[derive(Debug)]
pub(super) struct NotificationRow {
    /// The tenant that it is about; `None` if it is about the whole installation.
    pub(super) owner: Option<TenantVersion>,
    pub(super) notification: Notification,
}

/// A schedule with its runs, oldest first.
#[derive(Debug)]
pub(super) struct ScheduleRow {
    pub(super) owner: TenantVersion,
    pub(super) schedule: StoredSchedule,
    /// The time at which the scheduler decides about it.
    pub(super) due_at: Option<Timestamp>,
    pub(super) runs: Vec<StoredRun>,
    /// Number of runs that were recorded, including deleted ones.
    pub(super) recorded: u64,
}

#[derive(Debug)]
pub(super) struct Tables {
    pub(super) settings: StoreSettings,
    pub(super) id_generator: IdGenerator,
    pub(super) last_owner: TenantVersion,
    pub(super) tenants: BTreeMap<TenantId, TenantRow>,
    pub(super) keys: BTreeMap<KeyId, ApiKey>,
    pub(super) sessions: BTreeMap<SessionId, SessionRow>,
    pub(super) audit: BTreeMap<AuditId, AuditRow>,
    pub(super) endpoints: BTreeMap<EndpointId, OwnedEndpoint>,
    pub(super) events: BTreeMap<EventId, EventRow>,
    pub(super) idempotency: BTreeMap<(TenantVersion, String), (EventId, Fingerprint)>,
    pub(super) deliveries: BTreeMap<DeliveryId, DeliveryRow>,
    pub(super) replays: BTreeMap<ReplayId, ReplayRow>,
    /// The rate limit state of each tenant; the next field counts events per month.
    pub(super) arrivals: BTreeMap<TenantVersion, u64>,
    pub(super) usage: BTreeMap<(TenantVersion, Month), u64>,
    pub(super) alerts: BTreeMap<AlertId, AlertRow>,
    pub(super) notifications: Vec<NotificationRow>,
    pub(super) stats: BTreeMap<(BucketWidth, Timestamp, StatsSubject), StatCounters>,
    pub(super) last_notification: u64,
    /// The number of the last notification that was dispatched.
    pub(super) last_processed_notification: u64,
    /// Failures that are not part of a notification yet.
    pub(super) failures: Failures<EndpointId>,
    pub(super) emails: BTreeMap<String, StoredEmail>,
    /// Confirmations of owner addresses, by tenant and address.
    pub(super) confirmations: BTreeMap<(TenantVersion, String), StoredConfirmation>,
    /// Emails to owners, by tenant and day.
    pub(super) email_usage: BTreeMap<(TenantVersion, u64), EmailUsage>,
    /// Schedules, in the order of their creation.
    pub(super) schedules: Vec<ScheduleRow>,
    /// The last event that the retention run has checked.
    pub(super) retention_position: Option<EventId>,
}

impl Tables {
    pub(super) fn new(settings: StoreSettings) -> Tables {
        Tables {
            id_generator: IdGenerator::new(settings.rng.clone()),
            settings,
            last_owner: TenantVersion(0),
            tenants: BTreeMap::new(),
            keys: BTreeMap::new(),
            sessions: BTreeMap::new(),
            audit: BTreeMap::new(),
            endpoints: BTreeMap::new(),
            events: BTreeMap::new(),
            idempotency: BTreeMap::new(),
            deliveries: BTreeMap::new(),
            replays: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            usage: BTreeMap::new(),
            alerts: BTreeMap::new(),
            notifications: Vec::new(),
            stats: BTreeMap::new(),
            last_notification: 0,
            last_processed_notification: 0,
            failures: Failures::default(),
            emails: BTreeMap::new(),
            confirmations: BTreeMap::new(),
            email_usage: BTreeMap::new(),
            schedules: Vec::new(),
            retention_position: None,
        }
    }

    /// Returns the tenant that has this id now.
    pub(super) fn owner(&self, tenant: &TenantId) -> Option<TenantVersion> {
        self.tenants.get(tenant).map(|row| row.owner)
    }

    /// Returns the retry policy that applies to an endpoint now.
    pub(super) fn policy(&self, endpoint: EndpointId) -> RetryPolicy {
        let endpoint = self.endpoints.get(&endpoint);
        let tenant = endpoint
            .and_then(|endpoint| self.tenants.get(&endpoint.row.endpoint.tenant))
            .and_then(|row| row.tenant.default_retry_policy.as_ref());
        let own = endpoint.and_then(|endpoint| endpoint.row.endpoint.retry_policy.as_ref());
        self.settings.policy_for(own, tenant)
    }

    pub(super) fn give_up_after(&self, endpoint: EndpointId) -> Span {
        self.policy(endpoint).give_up_after
    }

    /// Returns the waiting deliveries of an endpoint, the earliest first; for the same due time, the smallest
    /// id first.
    pub(super) fn waiting(&self, endpoint: EndpointId) -> Vec<(Timestamp, &Delivery)> {
        let mut waiting: Vec<(Timestamp, &Delivery)> = self
            .deliveries
            .values()
            .map(|row| &row.delivery)
            .filter(|delivery| delivery.facts().endpoint == endpoint)
            .filter_map(|delivery| Some((delivery.next_attempt_at()?, delivery)))
            .collect();
        waiting.sort_by_key(|(at, delivery)| (*at, delivery.id()));
        waiting
    }

    /// Returns the delivery of an event to an endpoint. There is at most one.
    pub(super) fn delivery_of(&self, event: EventId, endpoint: EndpointId) -> Option<&Delivery> {
        self.deliveries
            .values()
            .map(|row| &row.delivery)
            .find(|delivery| {
                delivery.facts().event == event && delivery.facts().endpoint == endpoint
            })
    }
}

/// Returns a page of rows that are ordered newest first.
pub(super) fn page<T, K: Ord + Clone>(
    rows: impl Iterator<Item = (K, T)>,
    request: PageRequest<K>,
) -> Page<T, K> {
    let mut rows = rows
        .filter(|(key, _)| request.before.as_ref().is_none_or(|before| key < before))
        .peekable();
    let mut items = Vec::new();
    let mut last = None;
    while items.len() < request.limit
        && let Some((key, item)) = rows.next()
    {
        items.push(item);
        last = Some(key);
    }
    let next = rows.peek().is_some().then_some(last).flatten();
    Page { items, next }
}

/// Returns rows, newest first, from the end of the last page on.
pub(super) fn older<K: Ord + Copy, T>(
    rows: &BTreeMap<K, T>,
    before: Option<K>,
) -> impl Iterator<Item = (&K, &T)> {
    let end = before.map_or(Bound::Unbounded, Bound::Excluded);
    rows.range((Bound::Unbounded, end)).rev()
}
