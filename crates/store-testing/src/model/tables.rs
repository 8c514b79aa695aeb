//! Everything the model knows.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use posthaste_core::delivery::{Delivery, OrderingKey};
use posthaste_core::id::{
    AlertId, AuditId, DeliveryId, EndpointId, EventId, KeyId, Mint, PassId, ReplayId, TenantId,
};
use posthaste_core::ingest::Fingerprint;
use posthaste_core::policy::RetryPolicy;
use posthaste_core::time::{Month, Span, Timestamp};

use posthaste_store::rules::Failures;
use posthaste_store::rules::KeptLetter;
use posthaste_store::{
    AcceptedDelivery, Alert, ApiKey, AttemptEntry, AuditEntry, Content, EndpointRow, NoticeEntry,
    Page, PageRequest, Pass, Replay, StoreSettings, Tally, Tenant, Width,
};

/// Tells a tenant from an earlier one of the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Owner(pub(super) u64);

#[derive(Debug)]
pub(super) struct TenantRow {
    pub(super) owner: Owner,
    pub(super) tenant: Tenant,
}

#[derive(Debug)]
pub(super) struct OwnedEndpoint {
    pub(super) owner: Owner,
    pub(super) row: EndpointRow,
}

#[derive(Debug)]
pub(super) struct EventRow {
    pub(super) owner: Owner,
    pub(super) tenant: TenantId,
    pub(super) created_at: Timestamp,
    pub(super) content: Arc<Content>,
    pub(super) payload_removed_at: Option<Timestamp>,
    pub(super) deliver_at: Option<Timestamp>,
    pub(super) ordering: Option<OrderingKey>,
    pub(super) only: Option<EndpointId>,
    pub(super) idempotency_key: Option<String>,
    /// The deliveries it was accepted with. What a replay adds later is not among them, so that the
    /// answer to the same event sent again stays the same.
    pub(super) accepted: Vec<AcceptedDelivery>,
}

#[derive(Debug)]
pub(super) struct DeliveryRow {
    pub(super) delivery: Delivery,
    pub(super) attempts: Vec<AttemptEntry>,
}

/// What a replay will send: a delivery, or an event that none was made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Target {
    pub(super) event: EventId,
    pub(super) endpoint: EndpointId,
}

#[derive(Debug)]
pub(super) struct ReplayRow {
    pub(super) owner: Owner,
    pub(super) replay: Replay,
    /// What it has not come to yet.
    pub(super) left: VecDeque<Target>,
}

#[derive(Debug)]
pub(super) struct PassRow {
    /// As whose it lets in, unless it is a key's.
    pub(super) owner: Option<Owner>,
    pub(super) pass: Pass,
}

#[derive(Debug)]
pub(super) struct AuditRow {
    /// Who stood behind the id of its tenant then.
    pub(super) owner: Option<Owner>,
    pub(super) entry: AuditEntry,
}

/// What something is about, told from an earlier tenant of the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Whole {
    Everything,
    Tenant(Owner),
    Endpoint(EndpointId),
}

#[derive(Debug)]
pub(super) struct AlertRow {
    /// Whose it is, unless it is about everything.
    pub(super) owner: Option<Owner>,
    pub(super) alert: Alert,
}

#[derive(Debug)]
pub(super) struct NoticeRow {
    /// Whose it is about, unless it is about everything.
    pub(super) owner: Option<Owner>,
    pub(super) notice: NoticeEntry,
}

#[derive(Debug)]
pub(super) struct Tables {
    pub(super) settings: StoreSettings,
    pub(super) mint: Mint,
    pub(super) last_owner: Owner,
    pub(super) tenants: BTreeMap<TenantId, TenantRow>,
    pub(super) keys: BTreeMap<KeyId, ApiKey>,
    pub(super) passes: BTreeMap<PassId, PassRow>,
    pub(super) audit: BTreeMap<AuditId, AuditRow>,
    pub(super) endpoints: BTreeMap<EndpointId, OwnedEndpoint>,
    pub(super) events: BTreeMap<EventId, EventRow>,
    pub(super) idempotency: BTreeMap<(Owner, String), (EventId, Fingerprint)>,
    pub(super) deliveries: BTreeMap<DeliveryId, DeliveryRow>,
    pub(super) replays: BTreeMap<ReplayId, ReplayRow>,
    /// How fast events come, and how many came in which month.
    pub(super) arrivals: BTreeMap<Owner, u64>,
    pub(super) usage: BTreeMap<(Owner, Month), u64>,
    pub(super) alerts: BTreeMap<AlertId, AlertRow>,
    pub(super) notices: Vec<NoticeRow>,
    pub(super) figures: BTreeMap<(Width, Timestamp, Whole), Tally>,
    pub(super) last_notice: u64,
    /// People have been told of notices up to this number.
    pub(super) told: u64,
    /// What failed and became no notice yet.
    pub(super) failures: Failures<EndpointId>,
    pub(super) letters: BTreeMap<String, KeptLetter>,
    /// The last event that tidying looked at.
    pub(super) tidied_to: Option<EventId>,
}

impl Tables {
    pub(super) fn new(settings: StoreSettings) -> Tables {
        Tables {
            mint: Mint::new(settings.dice.clone()),
            settings,
            last_owner: Owner(0),
            tenants: BTreeMap::new(),
            keys: BTreeMap::new(),
            passes: BTreeMap::new(),
            audit: BTreeMap::new(),
            endpoints: BTreeMap::new(),
            events: BTreeMap::new(),
            idempotency: BTreeMap::new(),
            deliveries: BTreeMap::new(),
            replays: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            usage: BTreeMap::new(),
            alerts: BTreeMap::new(),
            notices: Vec::new(),
            figures: BTreeMap::new(),
            last_notice: 0,
            told: 0,
            failures: Failures::default(),
            letters: BTreeMap::new(),
            tidied_to: None,
        }
    }

    /// Who stands behind the id of a tenant now, if anybody does.
    pub(super) fn owner(&self, tenant: &TenantId) -> Option<Owner> {
        self.tenants.get(tenant).map(|row| row.owner)
    }

    /// The policy that holds for an endpoint now.
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

    /// Deliveries that wait for an endpoint, the earliest first; of several due at once, the least
    /// id first.
    pub(super) fn waiting(&self, endpoint: EndpointId) -> Vec<(Timestamp, &Delivery)> {
        let mut waiting: Vec<(Timestamp, &Delivery)> = self
            .deliveries
            .values()
            .map(|row| &row.delivery)
            .filter(|delivery| delivery.facts().endpoint == endpoint)
            .filter_map(|delivery| Some((delivery.wanted_at()?, delivery)))
            .collect();
        waiting.sort_by_key(|(at, delivery)| (*at, delivery.id()));
        waiting
    }

    /// The delivery of an event to an endpoint. There is at most one.
    pub(super) fn delivery_of(&self, event: EventId, endpoint: EndpointId) -> Option<&Delivery> {
        self.deliveries
            .values()
            .map(|row| &row.delivery)
            .find(|delivery| {
                delivery.facts().event == event && delivery.facts().endpoint == endpoint
            })
    }
}

/// Cuts a page out of rows that come newest first.
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

/// Rows newest first, from where the last page ended.
pub(super) fn older<K: Ord + Copy, T>(
    rows: &BTreeMap<K, T>,
    before: Option<K>,
) -> impl Iterator<Item = (&K, &T)> {
    let end = before.map_or(Bound::Unbounded, Bound::Excluded);
    rows.range((Bound::Unbounded, end)).rev()
}
