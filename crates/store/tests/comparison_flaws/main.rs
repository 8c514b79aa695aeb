//! The comparison finds bugs: each of these stores has one planted mutation.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use posthaste_core::alert::AlertName;
use posthaste_core::delivery::DeadReason;
use posthaste_core::dispatcher::Record;
use posthaste_core::id::{
    AlertId, AuditId, DeliveryId, EndpointId, EventId, KeyId, ReplayId, SessionId, TenantId,
};
use posthaste_core::lane::{EndpointStatus, Fetched, Health};
use posthaste_core::time::{Span, Timestamp};
use posthaste_store::*;
use posthaste_store_testing::contract::comparison::compare;
use posthaste_store_testing::contract::{Harness, ModelHarness};

/// Methods without a mutation.
macro_rules! right {
    ($($name:ident($($arg:ident: $type:ty),*) -> $out:ty;)*) => {
        $(fn $name(&self, $($arg: $type),*) -> $out {
            self.inner.$name($($arg),*)
        })*
    };
}

mod flaws;
mod owner_emails;
mod schedules;

use flaws::{FLAWS, Flaw};

/// Number of seeds, one of which must find a mutation.
const SEEDS: u64 = 30;

#[test]
fn every_flaw_is_found() {
    for flaw in FLAWS.iter().copied() {
        let finds = |seed: &u64| compare(*seed, &FlawedHarness::new(flaw)).is_err();
        assert!(
            (0..SEEDS).any(|seed| finds(&seed)),
            "the comparison did not find {flaw:?}"
        );
    }
}

#[test]
fn a_difference_names_its_seed() {
    let flaw = Flaw::ForgetsDetail;
    let mut last_processed_notification =
        (0..SEEDS).filter_map(|seed| compare(seed, &FlawedHarness::new(flaw)).err());
    let last_processed_notification = last_processed_notification
        .next()
        .expect("it is found")
        .to_string();
    assert!(
        last_processed_notification.contains("POSTHASTE_SEED="),
        "{last_processed_notification}"
    );
    assert!(
        last_processed_notification.contains("Attempt"),
        "the operation is named: {last_processed_notification}"
    );
}

struct FlawedHarness {
    flaw: Flaw,
    model: Mutex<Arc<ModelHarness>>,
}

impl FlawedHarness {
    fn new(flaw: Flaw) -> FlawedHarness {
        FlawedHarness {
            flaw,
            model: Mutex::new(Arc::default()),
        }
    }
}

impl Harness for FlawedHarness {
    fn open(&self, settings: StoreSettings, hand_over: Arc<dyn HandOver>) -> Arc<dyn Store> {
        let mut model = self.model.lock().expect("the mutex is not poisoned");
        if self.flaw == Flaw::ForgetsAtARestart {
            *model = Arc::default();
        }
        let hand_over = if self.flaw == Flaw::SkipsHandOver {
            Arc::new(NoHandOver)
        } else {
            hand_over
        };
        Arc::new(Flawed {
            flaw: self.flaw,
            inner: model.open(settings, hand_over),
        })
    }
}

struct NoHandOver;

impl HandOver for NoHandOver {
    fn accepted(&self, _deliveries: Vec<HandedOver>) {}
    fn broken(&self, _why: &StoreError) {}
}

struct Flawed {
    flaw: Flaw,
    inner: Arc<dyn Store>,
}

impl Flawed {
    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == flaw
    }
}

/// Counts a dead letter that there is not. The model answers at once, so the answer need not be awaited.
fn count_once_more(store: &dyn Store, at: Timestamp) {
    let counters = StatCounters {
        failed: 1,
        ..StatCounters::default()
    };
    let scope = SubjectScope::Everything;
    drop(store.add_stats(vec![StatEntry {
        scope,
        at,
        counters,
    }]));
}

impl StatsStore for Flawed {
    fn stats(
        &self,
        scope: SubjectScope,
        width: BucketWidth,
        since: Timestamp,
    ) -> Answer<Vec<(Timestamp, StatCounters)>> {
        let stats = self.inner.stats(scope, width, since);
        if !self.has(Flaw::ShowsHalfHours) {
            return stats;
        }
        Box::pin(async move {
            let mut buckets = stats.await?;
            buckets.retain(|(began, _)| began.0 % 3_600_000 < 1_800_000);
            Ok(buckets)
        })
    }

    right! {
        add_stats(happened: Vec<StatEntry>) -> Answer<()>;
        failing_stats(width: BucketWidth, since: Timestamp, limit: usize) -> Answer<Vec<(SubjectScope, StatCounters)>>;
    }
}

impl Notifications for Flawed {
    right! {
        notifications(after: u64, limit: usize) -> Answer<Vec<Notification>>;
        last_processed_notification() -> Answer<u64>;
        audit_notification(notification: u64, act: AuditEntry) -> Answer<CreateResult>;
    }

    fn collect_failures(&self, now: Timestamp, before: Timestamp, limit: usize) -> Answer<usize> {
        let before = match self.has(Flaw::GathersTooEarly) {
            true => before.after(Span::from_hours(2)),
            false => before,
        };
        self.inner.collect_failures(now, before, limit)
    }

    fn complete_notifications(
        &self,
        now: Timestamp,
        from: u64,
        up_to: u64,
        mut lines: Vec<(String, EmailLine)>,
        due_at: Timestamp,
    ) -> Answer<bool> {
        if self.has(Flaw::LosesALine) && lines.len() > 2 {
            lines.pop();
        }
        self.inner
            .complete_notifications(now, from, up_to, lines, due_at)
    }

    fn claim_emails(
        &self,
        now: Timestamp,
        until: Timestamp,
        longest: MaxEmailDelay,
        limit: usize,
    ) -> Answer<Vec<PendingEmail>> {
        let until = match self.has(Flaw::ClaimsWithoutDuration) {
            true => now,
            false => until,
        };
        self.inner.claim_emails(now, until, longest, limit)
    }

    fn record_email_result(
        &self,
        recipient: String,
        revision: u64,
        posted: EmailResult,
    ) -> Answer<bool> {
        // Lines added since then are removed with those that were sent.
        let revision = match self.has(Flaw::LosesWhatCameSince) {
            true => revision + 1,
            false => revision,
        };
        self.inner.record_email_result(recipient, revision, posted)
    }
}

impl Alerts for Flawed {
    fn alerts(
        &self,
        mut filter: AlertFilter,
        page: PageRequest<AlertId>,
    ) -> Answer<Page<Alert, AlertId>> {
        if self.has(Flaw::ShowsOthersAlerts) {
            filter.tenant = None;
        }
        self.inner.alerts(filter, page)
    }

    fn resolve_alert(&self, now: Timestamp, alert: AlertId) -> Answer<Option<Alert>> {
        match self.has(Flaw::NeverResolves) {
            true => Box::pin(std::future::ready(Ok(None))),
            false => self.inner.resolve_alert(now, alert),
        }
    }

    right! {
        raise_alert(now: Timestamp, alert: Alert) -> Answer<CreateResult>;
        open_alerts() -> Answer<BTreeMap<AlertName, u64>>;
        stored_bytes() -> Answer<Option<u64>>;
        oldest_pending_notification() -> Answer<Option<Timestamp>>;
        unsent_since(recipients: Vec<String>) -> Answer<Option<Timestamp>>;
    }
}

impl AuditLog for Flawed {
    fn finish_audit(
        &self,
        entry: AuditId,
        outcome: AuditOutcome,
        made: Option<String>,
    ) -> Answer<AuditCompletion> {
        let finished = self.inner.finish_audit(entry, outcome, made);
        match self.has(Flaw::ChangesWhatIsComplete) {
            true => Box::pin(async { finished.await.map(|_| AuditCompletion::Done) }),
            false => finished,
        }
    }

    fn audit(
        &self,
        mut filter: AuditFilter,
        page: PageRequest<AuditId>,
    ) -> Answer<Page<AuditEntry, AuditId>> {
        if let AuditScope::Tenant(tenant) = &filter.of
            && self.has(Flaw::ShowsOthersAudit)
        {
            filter.of = AuditScope::AnyWithId(tenant.clone());
        }
        self.inner.audit(filter, page)
    }

    right! {
        begin_audit(now: Timestamp, entry: AuditEntry) -> Answer<CreateResult>;
    }
}

impl Lists for Flawed {
    fn deliveries(
        &self,
        tenant: TenantId,
        mut filter: DeliveryFilter,
        page: PageRequest<DeliveryId>,
    ) -> Answer<Page<StoredDelivery, DeliveryId>> {
        if self.has(Flaw::ForgetsAFilter) {
            filter.error_kind = None;
        }
        let found = self.inner.deliveries(tenant, filter, page);
        let loses = self.has(Flaw::LosesTheEndOfAPage);
        Box::pin(async move {
            let mut found = found.await?;
            if loses && found.items.len() > 7 {
                found.items.pop();
            }
            Ok(found)
        })
    }

    fn events(
        &self,
        tenant: TenantId,
        filter: EventFilter,
        page: PageRequest<EventId>,
    ) -> Answer<Page<StoredEvent, EventId>> {
        let mut tenant = tenant;
        if self.has(Flaw::ShowsOthersEvents) {
            let lower = tenant.as_str().to_ascii_lowercase();
            tenant = lower.parse().expect("a tenant's id");
        }
        self.inner.events(tenant, filter, page)
    }

    right! {
        event(tenant: TenantId, event: EventId) -> Answer<Option<StoredEvent>>;
        delivery(tenant: TenantId, delivery: DeliveryId) -> Answer<Option<(StoredDelivery, Vec<AttemptEntry>)>>;
        dead_letter_groups(tenant: TenantId, endpoint: Option<EndpointId>, page: PageRequest<DeadLetterGroupKey>) -> Answer<Page<DeadLetterGroup, DeadLetterGroupKey>>;
    }
}

impl Store for Flawed {
    fn accept_within(
        &self,
        now: Timestamp,
        mut events: Vec<NewEvent>,
        mut quotas: Quotas,
    ) -> Answer<AcceptResult> {
        if self.has(Flaw::ForgetsQuotas) {
            quotas = Quotas::UNLIMITED;
        }
        for event in &mut events {
            if self.has(Flaw::ForgetsIdempotencyKeys) {
                event.idempotency = None;
            }
            if self.has(Flaw::ForgetsDeliverAt) {
                event.deliver_at = None;
            }
            if self.has(Flaw::ForgetsTraces) {
                let content = Arc::make_mut(&mut event.content);
                content.trace = None;
            }
            if self.has(Flaw::RoutesTestsToEverybody) {
                event.only = None;
            }
        }
        self.inner.accept_within(now, events, quotas)
    }

    fn fetch(
        &self,
        endpoint: EndpointId,
        due_by: Timestamp,
        limit: usize,
        ordered: bool,
    ) -> Answer<Fetched> {
        let ordered = ordered && !self.has(Flaw::IgnoresOrder);
        let limit = limit - usize::from(self.has(Flaw::FetchesOneTooFew));
        let fetched = self.inner.fetch(endpoint, due_by, limit, ordered);
        let flaw = self.flaw;
        Box::pin(async move {
            let mut fetched = fetched.await?;
            fetched.blocked &= flaw != Flaw::NeverSaysBlocked;
            if flaw == Flaw::NamesNoNextDue {
                fetched.next_due = None;
            }
            Ok(fetched)
        })
    }

    fn record(
        &self,
        now: Timestamp,
        mut record: Record,
        mut detail: AttemptDetail,
        done: Done<Written>,
    ) {
        if self.has(Flaw::ForgetsDetail) {
            detail.response_snippet = None;
        }
        if let Record::Attempt(attempt) = &mut record
            && self.has(Flaw::ForgetsEndpointChanges)
        {
            attempt.endpoint_changes.pop();
        }
        let always = self.has(Flaw::SaysAppliedAlways);
        let done: Done<Written> = match always {
            true => Box::new(|result| done(result.map(|_| Written::Applied))),
            false => done,
        };
        if !self.has(Flaw::CountsSuperseded) {
            return self.inner.record(now, record, detail, done);
        }
        let inner = self.inner.clone();
        let counting: Done<Written> = Box::new(move |result| {
            if result == Ok(Written::Superseded) {
                count_once_more(&*inner, now);
            }
            done(result);
        });
        self.inner.record(now, record, detail, counting);
    }

    fn set_endpoint_status(
        &self,
        now: Timestamp,
        endpoint: EndpointId,
        status: EndpointStatus,
        reason: Option<DisabledReason>,
        mut health: Option<Health>,
    ) -> Answer<bool> {
        if let Some(health) = &mut health
            && self.has(Flaw::TakesOlderHealth)
        {
            health.revision += 100;
        }
        self.inner
            .set_endpoint_status(now, endpoint, status, reason, health)
    }

    fn sweep(
        &self,
        now: Timestamp,
        endpoint: EndpointId,
        reason: DeadReason,
        except: Arc<[DeliveryId]>,
        limit: usize,
    ) -> Answer<SweepResult> {
        let except = if self.has(Flaw::SweepsWhatIsInFlight) {
            Arc::new([])
        } else {
            except
        };
        let swept = self.inner.sweep(now, endpoint, reason, except, limit);
        if self.has(Flaw::CountsSweepsTwice) {
            count_once_more(&*self.inner, now);
        }
        swept
    }

    fn retry(&self, now: Timestamp, tenant: TenantId, delivery: DeliveryId) -> Answer<RetryResult> {
        let mut tenant = tenant;
        if self.has(Flaw::RetriesForOtherTenants) {
            tenant = "acme".parse().expect("a tenant's id");
        }
        let retried = self.inner.retry(now, tenant, delivery);
        if !self.has(Flaw::SendsWhatIsGone) {
            return retried;
        }
        Box::pin(async {
            let retried = retried.await?;
            Ok(if retried == RetryResult::PayloadDeleted {
                RetryResult::Replayed {
                    endpoint: EndpointId(1),
                }
            } else {
                retried
            })
        })
    }

    fn step_retention(
        &self,
        now: Timestamp,
        mut retention: Retention,
    ) -> Answer<RetentionStepResult> {
        let mut now = now;
        if self.has(Flaw::DeletesTooEarly) {
            now = now.after(Span::from_hours(12));
        }
        if self.has(Flaw::KeepsWhatIsOld) {
            retention.deliveries = Span::from_days(1_000);
        }
        if self.has(Flaw::KeepsPayloads) {
            retention.payloads = None;
        }
        if self.has(Flaw::KeepsAttempts) {
            retention.attempts = None;
        }
        if self.has(Flaw::KnowsNoPlans) {
            retention.plans = Arc::default();
        }
        self.inner.step_retention(now, retention)
    }

    fn create_replay(
        &self,
        now: Timestamp,
        tenant: TenantId,
        mut filter: ReplayFilter,
    ) -> Answer<Replay> {
        if self.has(Flaw::MissesNothing) && filter.scope == ReplayScope::Missed {
            filter.until = Some(Timestamp(0));
        }
        self.inner.create_replay(now, tenant, filter)
    }

    fn pending(&self, endpoint: EndpointId) -> Answer<u64> {
        let pending = self.inner.pending(endpoint);
        if self.has(Flaw::MiscountsPending) {
            Box::pin(async { Ok(pending.await?.min(3)) })
        } else {
            pending
        }
    }

    fn revoke_key(&self, now: Timestamp, tenant: Option<TenantId>, key: KeyId) -> Answer<bool> {
        if self.has(Flaw::KeepsRevokedKeys) {
            return Box::pin(async { Ok(true) });
        }
        self.inner.revoke_key(now, tenant, key)
    }

    right! {
        create_tenant(now: Timestamp, tenant: Tenant) -> Answer<CreateResult>;
        replace_tenant(now: Timestamp, tenant: Tenant) -> Answer<ReplaceResult>;
        delete_tenant(now: Timestamp, tenant: TenantId) -> Answer<Option<Vec<EndpointId>>>;
        tenant(tenant: TenantId) -> Answer<Option<Tenant>>; tenants(page: PageRequest<(Timestamp, TenantId)>) -> Answer<Page<Tenant, (Timestamp, TenantId)>>;
        create_key(now: Timestamp, key: ApiKey) -> Answer<CreateResult>;
        key(hash: KeyHash) -> Answer<Option<ApiKey>>;
        keys(tenant: Option<TenantId>, page: PageRequest<KeyId>) -> Answer<Page<ApiKey, KeyId>>;
        create_session(now: Timestamp, session: LoginSession) -> Answer<CreateResult>;
        session(now: Timestamp, hash: KeyHash) -> Answer<Option<LoginSession>>;
        sessions(now: Timestamp, tenant: TenantId, page: PageRequest<SessionId>) -> Answer<Page<LoginSession, SessionId>>;
        end_session(now: Timestamp, tenant: Option<TenantId>, id: SessionId) -> Answer<bool>;
        tenant_of(named: TenantObject) -> Answer<Option<TenantId>>;
        create_endpoint(now: Timestamp, endpoint: Endpoint, at_most: u32) -> Answer<CreateResult>;
        replace_endpoint(now: Timestamp, endpoint: Endpoint) -> Answer<ReplaceResult>;
        endpoint(endpoint: EndpointId) -> Answer<Option<EndpointRow>>;
        origin_endpoint(tenant: TenantId, url: String) -> Answer<Option<EndpointId>>; delete_idle_origins(now: Timestamp, created_before: Timestamp, limit: usize) -> Answer<Vec<EndpointId>>;
        endpoints(tenant: TenantId, page: PageRequest<EndpointId>) -> Answer<Page<EndpointRow, EndpointId>>;
        attention_list(tenant: Option<TenantId>, limit: usize) -> Answer<Vec<EndpointRow>>;
        usage(now: Timestamp, tenant: TenantId) -> Answer<Option<Usage>>;
        content(event: EventId) -> Answer<Option<(Timestamp, Arc<Content>)>>;
        unfinished_work() -> Answer<Vec<(EndpointId, Timestamp)>>;
        count_replay(tenant: TenantId, filter: ReplayFilter) -> Answer<u64>; running_replays() -> Answer<Vec<ReplayId>>;
        step_replay(now: Timestamp, replay: ReplayId, limit: usize) -> Answer<Option<ReplayStep>>;
        cancel_replay(now: Timestamp, tenant: TenantId, replay: ReplayId) -> Answer<Option<Replay>>;
        replay(tenant: TenantId, replay: ReplayId) -> Answer<Option<Replay>>;
        replays(tenant: TenantId, page: PageRequest<ReplayId>) -> Answer<Page<Replay, ReplayId>>;
        counts() -> Answer<Counts>;
        retrying_since(tenants: TenantSelection, since: Timestamp, limit: usize) -> Answer<u64>;
        probe(now: Timestamp) -> Answer<()>;
        close() -> Answer<()>;
        path() -> Option<&Path>;
    }
}
