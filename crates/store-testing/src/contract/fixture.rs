//! Fixtures and helpers of the cases.
//!
//! [`StoreFixture`] is an open store with functions for what cases do often: create tenants and endpoints, accept
//! events, make attempts, list, sweep, run retention, reopen. The functions outside of it make tenants, endpoints,
//! events and records with fixed contents. Every case starts at the same time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use posthaste_core::classify::{FailureKind, HttpStatus, Outcome, TransportError};
use posthaste_core::delivery::{DeadReason, Delivery, OrderingKey, RetrySettings, Status};
use posthaste_core::dispatcher::{AttemptRecord, Record};
use posthaste_core::id::{DeliveryId, EndpointId, EventId, KeyId, TenantId};
use posthaste_core::ingest::Fingerprint;
use posthaste_core::lane::{
    BreakerOverrides, DisableOverrides, EndpointStatus, Fetched, LimitOverrides,
    ProtectionOverrides, RETRY_AFTER_CAP, RateLimit,
};
use posthaste_core::policy::RetryPolicy;
use posthaste_core::rng::Rng;
use posthaste_core::sign::SignatureStyle;
use posthaste_core::subscription::EventType;
use posthaste_core::time::{Span, Timestamp};
use posthaste_core::trace::TraceContext;
use serde_json::Value;
use tokio::sync::oneshot;

use super::{Harness, Recorder};
use posthaste_store::{
    AcceptResult, AcceptedEvent, AcceptedOrStored, ApiKey, AttemptDetail, AttemptEntry, Content,
    CreateResult, DeliveryFilter, DisabledReason, Endpoint, EventFilter, Idempotency, KeyHash,
    NewEvent, Page, PageRequest, Retention, RetentionStepResult, Store, StoreError, StoreSettings,
    StoredDelivery, StoredEvent, Tenant, Written,
};

/// The time at which every case starts.
const START: u64 = 1_700_000_000_000;

/// Returns the time `ms` milliseconds after the start.
pub(super) fn at(ms: u64) -> Timestamp {
    Timestamp(START + ms)
}

pub(super) const HOUR: u64 = 3_600_000;
pub(super) const DAY: u64 = 24 * HOUR;

pub(super) fn id(tenant: &str) -> TenantId {
    tenant.parse().expect("the tenant id is valid")
}

/// Returns the settings that every case starts with.
pub(super) fn settings() -> StoreSettings {
    StoreSettings::new(Rng::seeded(1))
}

pub(super) fn kind(name: &str) -> EventType {
    name.parse().expect("the event type is valid")
}

pub(super) fn tenant(name: &str) -> Tenant {
    Tenant::new(id(name), format!("The {name} company"), at(0))
}

pub(super) fn key(number: u128, tenant: Option<&str>) -> ApiKey {
    ApiKey {
        id: KeyId(number),
        tenant: tenant.map(id),
        name: format!("key {number}"),
        hash: KeyHash([number as u8; 32]),
        created_at: at(number as u64),
    }
}

pub(super) fn endpoint(number: u128, tenant: &str, patterns: &[&str]) -> Endpoint {
    Endpoint {
        event_types: patterns
            .iter()
            .map(|text| text.parse().expect("the pattern is valid"))
            .collect(),
        sealed_headers: vec![1, 2, 3],
        sealed_keys: vec![0, 255, 7],
        signature_style: SignatureStyle::GitHub,
        sealed_credentials: vec![8, 0, 9],
        owner_email_confirmed: true,
        ..Endpoint::new(
            EndpointId(number),
            id(tenant),
            format!("https://{number}.example.com/hook"),
            at(number as u64),
        )
    }
}

/// Returns some limits; one is inherited.
pub(super) fn limits() -> LimitOverrides {
    LimitOverrides {
        timeout: None,
        max_in_flight: Some(7),
        rate_limit: Some(RateLimit {
            per_second: 0.25,
            burst: 3,
        }),
    }
}

/// Returns some thresholds of either kind.
pub(super) fn protection() -> ProtectionOverrides {
    ProtectionOverrides {
        disable: DisableOverrides {
            after: Some(Span::from_days(2)),
            on_gone: Some(false),
            ..DisableOverrides::default()
        },
        breaker: BreakerOverrides {
            failure_ratio: Some(0.1),
            refusals: Some(3),
            longest_wait: Some(Span::from_secs(90)),
            ..BreakerOverrides::default()
        },
    }
}

pub(super) fn event(tenant: &str, event_type: &str) -> NewEvent {
    NewEvent::new(
        id(tenant),
        Content::new(kind(event_type), Bytes::from_static(b"{\"amount\": 1.50}")),
    )
}

/// Creates the trace with this number, with or without vendor state.
pub(super) fn trace(number: u64, says_more: bool) -> TraceContext {
    let state = if says_more { " vendor=a b,other=1" } else { "" };
    let stored = format!("00-{number:032x}-{number:016x}-01{state}");
    stored.parse().expect("the trace context is valid")
}

/// Creates an event with an idempotency key. Another `content` gives another fingerprint.
pub(super) fn keyed(tenant: &str, key: &str, content: &str) -> NewEvent {
    NewEvent {
        idempotency: Some(Idempotency {
            key: key.to_owned(),
            fingerprint: Fingerprint::of(&[content.as_bytes()]),
        }),
        ..event(tenant, "a.b")
    }
}

/// Creates an event with an ordering key.
pub(super) fn ordered(tenant: &str, key: u64) -> NewEvent {
    NewEvent {
        ordering: Some(OrderingKey(key)),
        ..event(tenant, "a.b")
    }
}

pub(super) fn answered(code: u16) -> Outcome {
    Outcome::Answered {
        status: HttpStatus::new(code).expect("the status code is valid"),
        retry_after: None,
    }
}

/// Returns the record of an attempt that began at `now` and ended 10 ms later.
pub(super) fn attempt(delivery: &Delivery, now: Timestamp, outcome: Outcome) -> AttemptRecord {
    let mut delivery = delivery.clone();
    let mut rng = Rng::seeded(u64::from(delivery.facts().attempts));
    let policy = RetryPolicy::default();
    let terms = RetrySettings {
        policy: &policy,
        retry_after_cap: RETRY_AFTER_CAP,
    };
    delivery.begin(now, false).expect("the delivery is waiting");
    let settlement = delivery
        .settle(now.after(Span::from_millis(10)), outcome, terms, &mut rng)
        .expect("the attempt is in progress");
    AttemptRecord {
        delivery,
        settlement,
        health: None,
        disable: None,
        endpoint_changes: Vec::new(),
    }
}

pub(super) fn detail() -> AttemptDetail {
    AttemptDetail {
        latency: Duration::from_micros(10_500),
        detail: Some("it said no".to_owned()),
        response_snippet: Some("<h1>no</h1> ü".to_owned()),
        response_headers: vec![
            ("server".to_owned(), "\"teapot\" ü".to_owned()),
            ("content-type".to_owned(), "text/html".to_owned()),
        ],
    }
}

/// Writes a record and waits for the result.
pub(super) async fn record(
    store: &dyn Store,
    now: Timestamp,
    record: Record,
    detail: AttemptDetail,
) -> Result<Written, StoreError> {
    let (sender, receiver) = oneshot::channel();
    let done = Box::new(move |result| {
        let _ = sender.send(result);
    });
    store.record(now, record, detail, done);
    receiver.await.expect("every record is answered")
}

/// Reads all pages of a list and checks that no page is longer than requested.
pub(super) async fn all<T, K: Clone, F>(
    limit: usize,
    mut page: impl FnMut(PageRequest<K>) -> F,
) -> Vec<T>
where
    F: Future<Output = Result<Page<T, K>, StoreError>>,
{
    let mut items = Vec::new();
    let mut before = None;
    loop {
        let found = page(PageRequest { limit, before })
            .await
            .expect("the page can be read");
        assert!(
            found.items.len() <= limit,
            "the page is longer than requested"
        );
        items.extend(found.items);
        match found.next {
            Some(next) => before = Some(next),
            None => return items,
        }
    }
}

/// An open store under test.
pub(super) struct StoreFixture<'a> {
    harness: &'a dyn Harness,
    pub(super) store: Arc<dyn Store>,
    pub(super) recorder: Arc<Recorder>,
}

impl<'a> StoreFixture<'a> {
    pub(super) fn open(harness: &'a dyn Harness) -> StoreFixture<'a> {
        StoreFixture::seeded(harness, 1)
    }

    fn seeded(harness: &'a dyn Harness, seed: u64) -> StoreFixture<'a> {
        StoreFixture::open_with(harness, StoreSettings::new(Rng::seeded(seed)))
    }

    pub(super) fn open_with(harness: &'a dyn Harness, settings: StoreSettings) -> StoreFixture<'a> {
        let recorder = Arc::new(Recorder::default());
        StoreFixture {
            harness,
            store: harness.open(settings, recorder.clone()),
            recorder,
        }
    }

    /// Opens the store with the tenant `acme`.
    pub(super) async fn with_acme(harness: &'a dyn Harness) -> StoreFixture<'a> {
        let world = StoreFixture::open(harness);
        world.add_tenant("acme").await;
        world
    }

    /// Closes the store and opens it again, as the next process would.
    pub(super) async fn reopened(self) -> StoreFixture<'a> {
        self.store.close().await.expect("the store closes");
        let harness = self.harness;
        drop(self);
        StoreFixture::seeded(harness, 2)
    }

    pub(super) async fn add_tenant(&self, name: &str) {
        let made = self.store.create_tenant(at(0), tenant(name)).await;
        assert_eq!(made, Ok(CreateResult::Created));
    }

    pub(super) async fn add(&self, endpoint: Endpoint) -> EndpointId {
        let id = endpoint.id;
        let made = self.store.create_endpoint(at(0), endpoint, 1_000).await;
        assert_eq!(made, Ok(CreateResult::Created));
        id
    }

    /// Creates an endpoint of acme that subscribes to all event types.
    pub(super) async fn add_endpoint(&self, number: u128) -> EndpointId {
        self.add(endpoint(number, "acme", &[])).await
    }

    pub(super) async fn set_status(&self, endpoint: EndpointId, status: EndpointStatus) {
        let reason = (status == EndpointStatus::Disabled).then_some(DisabledReason::Manual);
        let changed = self
            .store
            .set_endpoint_status(at(0), endpoint, status, reason, None);
        assert_eq!(changed.await, Ok(true));
    }

    pub(super) async fn accept_all(
        &self,
        now: Timestamp,
        events: Vec<NewEvent>,
    ) -> Vec<AcceptedOrStored> {
        match self
            .store
            .accept(now, events)
            .await
            .expect("the store accepts events")
        {
            AcceptResult::Done(ingested) => ingested,
            refused @ (AcceptResult::Conflict(_)
            | AcceptResult::NoSuchTenant
            | AcceptResult::NoSuchEndpoint
            | AcceptResult::TooManyDeliveries { .. }
            | AcceptResult::OverLimit { .. }) => {
                panic!("the events were refused: {refused:?}")
            }
        }
    }

    pub(super) async fn accept(&self, now: Timestamp, event: NewEvent) -> AcceptedEvent {
        let mut ingested = self.accept_all(now, vec![event]).await;
        assert_eq!(ingested.len(), 1);
        ingested.remove(0).event
    }

    /// Accepts an event of acme that goes to one endpoint.
    pub(super) async fn send(&self, now: Timestamp, event_type: &str) -> DeliveryId {
        let event = self.accept(now, event("acme", event_type)).await;
        assert_eq!(event.deliveries.len(), 1, "the event has one delivery");
        event.deliveries[0].id
    }

    pub(super) async fn find(&self, delivery: DeliveryId) -> (StoredDelivery, Vec<AttemptEntry>) {
        let found = self.store.delivery(id("acme"), delivery).await;
        found
            .expect("the store can be read")
            .expect("the row exists")
    }

    pub(super) async fn delivery(&self, delivery: DeliveryId) -> Delivery {
        self.find(delivery).await.0.delivery
    }

    pub(super) async fn status(&self, delivery: DeliveryId) -> Status {
        self.find(delivery).await.0.shown_status()
    }

    pub(super) async fn record(&self, now: Timestamp, attempt: AttemptRecord) -> Written {
        let attempt = Record::Attempt(Box::new(attempt));
        let written = record(&*self.store, now, attempt, detail()).await;
        written.expect("the record is written")
    }

    /// Makes an attempt of a delivery of acme.
    pub(super) async fn try_once(&self, delivery: DeliveryId, now: Timestamp, outcome: Outcome) {
        let before = self.delivery(delivery).await;
        let written = self.record(now, attempt(&before, now, outcome)).await;
        assert_eq!(written, Written::Applied);
    }

    pub(super) async fn succeed(&self, delivery: DeliveryId, now: Timestamp) {
        self.try_once(delivery, now, answered(200)).await;
    }

    /// Makes an attempt that fails permanently.
    pub(super) async fn fail(&self, delivery: DeliveryId, now: Timestamp) {
        self.try_once(delivery, now, answered(400)).await;
        assert_eq!(self.status(delivery).await, Status::Failed);
    }

    /// Makes an attempt that fails and is retried.
    pub(super) async fn fail_retryably(&self, delivery: DeliveryId, now: Timestamp) {
        self.try_once(delivery, now, Outcome::Failed(TransportError::Timeout))
            .await;
    }

    pub(super) async fn cancel(&self, delivery: DeliveryId, now: Timestamp) -> Written {
        let cancel = Record::Cancel { delivery, at: now };
        let written = record(&*self.store, now, cancel, AttemptDetail::default()).await;
        written.expect("the record is written")
    }

    /// Drops a delivery as the dispatcher knew it, because it was late at `now`.
    pub(super) async fn expire(&self, known: &Delivery, now: Timestamp) -> Written {
        let mut expired = known.clone();
        expired.expire(now).expect("the delivery is late");
        let expire = Record::Expire(Box::new(expired));
        let written = record(&*self.store, now, expire, AttemptDetail::default()).await;
        written.expect("the record is written")
    }

    pub(super) async fn fetch(
        &self,
        endpoint: EndpointId,
        due_by: Timestamp,
        limit: usize,
        ordered: bool,
    ) -> Fetched {
        let fetched = self.store.fetch(endpoint, due_by, limit, ordered).await;
        fetched.expect("the store can be read")
    }

    pub(super) async fn deliveries(
        &self,
        tenant: &str,
        filter: DeliveryFilter,
    ) -> Vec<StoredDelivery> {
        all(3, |page| {
            self.store.deliveries(id(tenant), filter.clone(), page)
        })
        .await
    }

    /// Returns the matching deliveries of acme, and checks the order of the list.
    pub(super) async fn listed(&self, filter: DeliveryFilter) -> Vec<DeliveryId> {
        let found = self.deliveries("acme", filter).await;
        let ids: Vec<DeliveryId> = found.iter().map(|found| found.delivery.id()).collect();
        assert!(
            ids.is_sorted_by(|a, b| a > b),
            "the list is newest first without duplicates"
        );
        ids
    }

    pub(super) async fn events(&self, tenant: &str, filter: EventFilter) -> Vec<StoredEvent> {
        all(3, |page| {
            self.store.events(id(tenant), filter.clone(), page)
        })
        .await
    }

    pub(super) async fn event_ids(&self, tenant: &str, filter: EventFilter) -> Vec<EventId> {
        let found = self.events(tenant, filter).await;
        found.iter().map(|found| found.event.id).collect()
    }

    pub(super) async fn sweep(&self, now: Timestamp, endpoint: EndpointId, reason: DeadReason) {
        while self
            .store
            .sweep(now, endpoint, reason, Arc::new([]), 10)
            .await
            .expect("the sweep succeeds")
            .more
        {}
    }

    pub(super) async fn retention_step(
        &self,
        now: Timestamp,
        keep_ms: u64,
        step: usize,
    ) -> RetentionStepResult {
        let retention = Retention::all(Span::from_millis(keep_ms), step);
        self.store
            .step_retention(now, retention)
            .await
            .expect("the retention step succeeds")
    }

    /// Makes retention runs until everything has been checked, and returns the number of removed events.
    pub(super) async fn step_retention(&self, now: Timestamp, keep_ms: u64) -> usize {
        let retention = Retention::all(Span::from_millis(keep_ms), 4);
        self.run_retention_as(now, &retention).await.events
    }

    /// The same, and returns all counts.
    pub(super) async fn run_retention_as(
        &self,
        now: Timestamp,
        retention: &Retention,
    ) -> RetentionStepResult {
        let mut sum = RetentionStepResult::default();
        for _ in 0..3 {
            loop {
                let step = self.store.step_retention(now, retention.clone()).await;
                let step = step.expect("the retention step succeeds");
                sum.events += step.events;
                sum.payloads += step.payloads;
                sum.attempts += step.attempts;
                if !step.more {
                    break;
                }
            }
        }
        sum
    }
}

/// Collects the items into a set, so that order does not matter.
pub(super) fn set<T: Ord>(items: impl IntoIterator<Item = T>) -> BTreeSet<T> {
    items.into_iter().collect()
}

pub(super) fn policy(give_up_after: &str) -> Value {
    serde_json::json!({
        "backoff": {"kind": "fixed", "interval": "1s"},
        "jitter": {"kind": "none"},
        "max_attempts": 5,
        "give_up_after": give_up_after,
    })
}

/// The failure kinds that attempts can have in these cases.
pub(super) const KINDS: [FailureKind; 3] = [
    FailureKind::Http,
    FailureKind::Timeout,
    FailureKind::WebhookDisabled,
];
