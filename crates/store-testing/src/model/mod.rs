//! The model: an in-memory store that implements the contract in the simplest possible way.
//!
//! [`ModelStore`] keeps everything in sorted maps behind one lock. A write has taken effect when its call
//! returns, and accepted deliveries are handed over before that. It is neither fast nor persistent. Other
//! stores are compared with it, tests of the server run on it, and it can be made to fail.
//!
//! Where the contract allows several behaviours, the model chooses one and documents it there.

mod access;
mod alerts;
mod buckets;
mod dead_letters;
mod deliveries;
mod directory;
mod events;
mod notifications;
mod owner_emails;
mod replays;
mod retention;
mod schedules;
mod tables;

use std::future::ready;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use posthaste_core::delivery::DeadReason;
use posthaste_core::dispatcher::Record;
use posthaste_core::id::{
    AuditId, DeliveryId, EndpointId, EventId, KeyId, ReplayId, SessionId, TenantId,
};
use posthaste_core::lane::{EndpointStatus, Fetched, Health};
use posthaste_core::time::Timestamp;

use posthaste_store::{
    AcceptResult, Answer, ApiKey, AttemptDetail, AttemptEntry, AuditCompletion, AuditEntry,
    AuditFilter, AuditLog, AuditOutcome, Content, Counts, CreateResult, DeadLetterGroup,
    DeadLetterGroupKey, DeliveryFilter, DisabledReason, Done, Endpoint, EndpointRow, EventFilter,
    HandOver, HandedOver, KeyHash, Lists, LoginSession, NewEvent, Page, PageRequest, Quotas,
    ReplaceResult, Replay, ReplayFilter, ReplayStep, Retention, RetentionStepResult, RetryResult,
    Store, StoreError, StoreSettings, StoredDelivery, StoredEvent, SweepResult, Tenant,
    TenantObject, TenantSelection, Usage, Written,
};
use tables::Tables;
use tokio::sync::Notify;

/// An in-memory store.
pub struct ModelStore {
    tables: Arc<Mutex<Tables>>,
    hand_over: Arc<dyn HandOver>,
    closed: AtomicBool,
    failing_writes: Mutex<Option<StoreError>>,
    refused_writes: AtomicUsize,
    failing_reads: Mutex<Option<StoreError>>,
    lost_answers: Mutex<Option<StoreError>>,
    schedule_changes: Arc<Notify>,
}

impl ModelStore {
    /// Creates an empty store.
    pub fn new(settings: StoreSettings, hand_over: Arc<dyn HandOver>) -> ModelStore {
        ModelStore::over(Arc::new(Mutex::new(Tables::new(settings))), hand_over)
    }

    /// Opens the same store again, as the next process would.
    pub fn reopen(&self, hand_over: Arc<dyn HandOver>) -> ModelStore {
        ModelStore::over(self.tables.clone(), hand_over)
    }

    /// Makes every following write fail with this error without changing anything; `None` ends this.
    pub fn fail_writes(&self, error: Option<StoreError>) {
        *lock(&self.failing_writes) = error;
    }

    /// Returns the number of failed writes.
    pub fn refused_writes(&self) -> usize {
        self.refused_writes.load(Ordering::SeqCst)
    }

    /// Makes every following write take effect and return this error, as if its response were lost; `None` ends
    /// this.
    pub fn lose_write_responses(&self, error: Option<StoreError>) {
        *lock(&self.lost_answers) = error;
    }

    /// Makes every following read fail with this error; `None` ends this.
    pub fn fail_reads(&self, error: Option<StoreError>) {
        *lock(&self.failing_reads) = error;
    }

    fn over(tables: Arc<Mutex<Tables>>, hand_over: Arc<dyn HandOver>) -> ModelStore {
        ModelStore {
            tables,
            hand_over,
            closed: AtomicBool::new(false),
            failing_writes: Mutex::new(None),
            refused_writes: AtomicUsize::new(0),
            failing_reads: Mutex::new(None),
            lost_answers: Mutex::new(None),
            schedule_changes: Arc::default(),
        }
    }

    fn write<T>(&self, change: impl FnOnce(&mut Tables) -> T) -> Result<T, StoreError> {
        self.may(&self.failing_writes).inspect_err(|_| {
            self.refused_writes.fetch_add(1, Ordering::SeqCst);
        })?;
        let changed = change(&mut lock(&self.tables));
        lock(&self.lost_answers).clone().map_or(Ok(changed), Err)
    }

    fn read<T>(&self, query: impl FnOnce(&Tables) -> T) -> Result<T, StoreError> {
        self.may(&self.failing_reads)?;
        Ok(query(&lock(&self.tables)))
    }

    fn may(&self, failing: &Mutex<Option<StoreError>>) -> Result<(), StoreError> {
        if self.closed.load(Ordering::SeqCst) {
            return Err(StoreError::Closed);
        }
        lock(failing).clone().map_or(Ok(()), Err)
    }

    /// Hands over under the lock, so that the order is that of the commits.
    fn accept_and_hand_over(
        &self,
        tables: &mut Tables,
        now: Timestamp,
        events: Vec<NewEvent>,
        quotas: Quotas,
    ) -> AcceptResult {
        let (ingest, deliveries): (AcceptResult, Vec<HandedOver>) =
            tables.accept(now, events, quotas);
        if !deliveries.is_empty() {
            self.hand_over.accepted(deliveries);
        }
        ingest
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("the lock is not poisoned")
}

fn answer<T: Send + 'static>(result: Result<T, StoreError>) -> Answer<T> {
    Box::pin(ready(result))
}

impl AuditLog for ModelStore {
    fn begin_audit(&self, _now: Timestamp, entry: AuditEntry) -> Answer<CreateResult> {
        answer(self.write(|tables| tables.begin_audit(entry)))
    }

    fn finish_audit(
        &self,
        entry: AuditId,
        outcome: AuditOutcome,
        made: Option<String>,
    ) -> Answer<AuditCompletion> {
        answer(self.write(|tables| tables.finish_audit(entry, outcome, made)))
    }

    fn audit(
        &self,
        filter: AuditFilter,
        page: PageRequest<AuditId>,
    ) -> Answer<Page<AuditEntry, AuditId>> {
        answer(self.read(|tables| tables.audit(&filter, page)))
    }
}

impl Lists for ModelStore {
    fn event(&self, tenant: TenantId, event: EventId) -> Answer<Option<StoredEvent>> {
        answer(self.read(|tables| tables.event(&tenant, event)))
    }

    fn events(
        &self,
        tenant: TenantId,
        filter: EventFilter,
        page: PageRequest<EventId>,
    ) -> Answer<Page<StoredEvent, EventId>> {
        answer(self.read(|tables| tables.events(&tenant, &filter, page)))
    }

    fn delivery(
        &self,
        tenant: TenantId,
        delivery: DeliveryId,
    ) -> Answer<Option<(StoredDelivery, Vec<AttemptEntry>)>> {
        answer(self.read(|tables| tables.delivery(&tenant, delivery)))
    }

    fn deliveries(
        &self,
        tenant: TenantId,
        filter: DeliveryFilter,
        page: PageRequest<DeliveryId>,
    ) -> Answer<Page<StoredDelivery, DeliveryId>> {
        answer(self.read(|tables| tables.deliveries(&tenant, &filter, page)))
    }

    fn dead_letter_groups(
        &self,
        tenant: TenantId,
        endpoint: Option<EndpointId>,
        page: PageRequest<DeadLetterGroupKey>,
    ) -> Answer<Page<DeadLetterGroup, DeadLetterGroupKey>> {
        answer(self.read(|tables| tables.dead_letter_groups(&tenant, endpoint, page)))
    }
}

impl Store for ModelStore {
    fn create_tenant(&self, _now: Timestamp, tenant: Tenant) -> Answer<CreateResult> {
        answer(self.write(|tables| tables.create_tenant(tenant)))
    }

    fn replace_tenant(&self, _now: Timestamp, tenant: Tenant) -> Answer<ReplaceResult> {
        answer(self.write(|tables| tables.replace_tenant(tenant)))
    }

    fn delete_tenant(&self, _now: Timestamp, tenant: TenantId) -> Answer<Option<Vec<EndpointId>>> {
        answer(self.write(|tables| tables.delete_tenant(&tenant)))
    }

    fn tenant(&self, tenant: TenantId) -> Answer<Option<Tenant>> {
        answer(self.read(|tables| tables.tenant(&tenant)))
    }

    fn tenants(
        &self,
        page: PageRequest<(Timestamp, TenantId)>,
    ) -> Answer<Page<Tenant, (Timestamp, TenantId)>> {
        answer(self.read(|tables| tables.tenants(page)))
    }

    fn create_key(&self, _now: Timestamp, key: ApiKey) -> Answer<CreateResult> {
        answer(self.write(|tables| tables.create_key(key)))
    }

    fn revoke_key(&self, _now: Timestamp, tenant: Option<TenantId>, key: KeyId) -> Answer<bool> {
        answer(self.write(|tables| tables.revoke_key(tenant.as_ref(), key)))
    }

    fn key(&self, hash: KeyHash) -> Answer<Option<ApiKey>> {
        answer(self.read(|tables| tables.key(hash)))
    }

    fn keys(
        &self,
        tenant: Option<TenantId>,
        page: PageRequest<KeyId>,
    ) -> Answer<Page<ApiKey, KeyId>> {
        answer(self.read(|tables| tables.keys(tenant.as_ref(), page)))
    }

    fn create_session(&self, _now: Timestamp, session: LoginSession) -> Answer<CreateResult> {
        answer(self.write(|tables| tables.create_session(session)))
    }

    fn session(&self, now: Timestamp, hash: KeyHash) -> Answer<Option<LoginSession>> {
        answer(self.read(|tables| tables.session(now, hash)))
    }

    fn sessions(
        &self,
        now: Timestamp,
        tenant: TenantId,
        page: PageRequest<SessionId>,
    ) -> Answer<Page<LoginSession, SessionId>> {
        answer(self.read(|tables| tables.sessions(now, &tenant, page)))
    }

    fn end_session(&self, now: Timestamp, tenant: Option<TenantId>, id: SessionId) -> Answer<bool> {
        answer(self.write(|tables| tables.end_session(now, tenant.as_ref(), id)))
    }

    fn tenant_of(&self, named: TenantObject) -> Answer<Option<TenantId>> {
        answer(self.read(|tables| tables.tenant_of(named)))
    }

    fn create_endpoint(
        &self,
        _now: Timestamp,
        endpoint: Endpoint,
        at_most: u32,
    ) -> Answer<CreateResult> {
        answer(self.write(|tables| tables.create_endpoint(endpoint, at_most)))
    }

    fn replace_endpoint(&self, _now: Timestamp, endpoint: Endpoint) -> Answer<ReplaceResult> {
        answer(self.write(|tables| tables.replace_endpoint(endpoint)))
    }

    fn endpoint(&self, endpoint: EndpointId) -> Answer<Option<EndpointRow>> {
        answer(self.read(|tables| tables.endpoint(endpoint)))
    }

    fn origin_endpoint(&self, tenant: TenantId, url: String) -> Answer<Option<EndpointId>> {
        answer(self.read(|tables| tables.origin_endpoint(&tenant, &url)))
    }

    fn endpoints(
        &self,
        tenant: TenantId,
        page: PageRequest<EndpointId>,
    ) -> Answer<Page<EndpointRow, EndpointId>> {
        answer(self.read(|tables| tables.endpoints(&tenant, page)))
    }

    fn attention_list(&self, tenant: Option<TenantId>, limit: usize) -> Answer<Vec<EndpointRow>> {
        answer(self.read(|tables| tables.attention_list(tenant.as_ref(), limit)))
    }

    fn set_endpoint_status(
        &self,
        _now: Timestamp,
        endpoint: EndpointId,
        status: EndpointStatus,
        reason: Option<DisabledReason>,
        health: Option<Health>,
    ) -> Answer<bool> {
        answer(self.write(|tables| tables.set_endpoint_status(endpoint, status, reason, health)))
    }

    fn accept_within(
        &self,
        now: Timestamp,
        events: Vec<NewEvent>,
        quotas: Quotas,
    ) -> Answer<AcceptResult> {
        answer(self.write(|tables| self.accept_and_hand_over(tables, now, events, quotas)))
    }

    fn usage(&self, now: Timestamp, tenant: TenantId) -> Answer<Option<Usage>> {
        answer(self.read(|tables| tables.usage(now, &tenant)))
    }

    fn content(&self, event: EventId) -> Answer<Option<(Timestamp, Arc<Content>)>> {
        answer(self.read(|tables| tables.content(event)))
    }

    fn retry(&self, now: Timestamp, tenant: TenantId, delivery: DeliveryId) -> Answer<RetryResult> {
        answer(self.write(|tables| tables.retry(now, &tenant, delivery)))
    }

    fn record(&self, now: Timestamp, record: Record, detail: AttemptDetail, done: Done<Written>) {
        done(self.write(|tables| tables.record(now, record, detail)));
    }

    fn unfinished_work(&self) -> Answer<Vec<(EndpointId, Timestamp)>> {
        answer(self.read(Tables::unfinished_work))
    }

    fn fetch(
        &self,
        endpoint: EndpointId,
        due_by: Timestamp,
        limit: usize,
        ordered: bool,
    ) -> Answer<Fetched> {
        answer(self.read(|tables| tables.fetch(endpoint, due_by, limit, ordered)))
    }

    fn sweep(
        &self,
        now: Timestamp,
        endpoint: EndpointId,
        reason: DeadReason,
        except: Arc<[DeliveryId]>,
        limit: usize,
    ) -> Answer<SweepResult> {
        answer(self.write(|tables| tables.sweep(now, endpoint, reason, &except, limit)))
    }

    fn create_replay(
        &self,
        now: Timestamp,
        tenant: TenantId,
        filter: ReplayFilter,
    ) -> Answer<Replay> {
        answer(self.write(|tables| tables.create_replay(now, tenant, filter)))
    }

    fn count_replay(&self, tenant: TenantId, filter: ReplayFilter) -> Answer<u64> {
        answer(self.read(|tables| tables.count_replay(&tenant, &filter)))
    }

    fn step_replay(
        &self,
        now: Timestamp,
        replay: ReplayId,
        limit: usize,
    ) -> Answer<Option<ReplayStep>> {
        answer(self.write(|tables| tables.step_replay(now, replay, limit)))
    }

    fn cancel_replay(
        &self,
        now: Timestamp,
        tenant: TenantId,
        replay: ReplayId,
    ) -> Answer<Option<Replay>> {
        answer(self.write(|tables| tables.cancel_replay(now, &tenant, replay)))
    }

    fn replay(&self, tenant: TenantId, replay: ReplayId) -> Answer<Option<Replay>> {
        answer(self.read(|tables| tables.replay(&tenant, replay)))
    }

    fn replays(
        &self,
        tenant: TenantId,
        page: PageRequest<ReplayId>,
    ) -> Answer<Page<Replay, ReplayId>> {
        answer(self.read(|tables| tables.replays(&tenant, page)))
    }

    fn running_replays(&self) -> Answer<Vec<ReplayId>> {
        answer(self.read(Tables::running_replays))
    }

    fn counts(&self) -> Answer<Counts> {
        Box::pin(ready(Ok(lock(&self.tables).counts())))
    }

    fn pending(&self, endpoint: EndpointId) -> Answer<u64> {
        Box::pin(ready(Ok(lock(&self.tables).pending(endpoint))))
    }

    fn retrying_since(
        &self,
        tenants: TenantSelection,
        since: Timestamp,
        limit: usize,
    ) -> Answer<u64> {
        answer(self.read(|tables| tables.retrying_since(&tenants, since, limit)))
    }

    fn step_retention(&self, now: Timestamp, retention: Retention) -> Answer<RetentionStepResult> {
        answer(self.write(|tables| tables.step_retention(now, &retention)))
    }

    fn delete_idle_origins(
        &self,
        _now: Timestamp,
        created_before: Timestamp,
        limit: usize,
    ) -> Answer<Vec<EndpointId>> {
        answer(self.write(|tables| tables.delete_idle_origins(created_before, limit)))
    }

    fn probe(&self, _now: Timestamp) -> Answer<()> {
        answer(self.write(|_| ()))
    }

    fn close(&self) -> Answer<()> {
        let first = !self.closed.swap(true, Ordering::SeqCst);
        answer(if first {
            Ok(())
        } else {
            Err(StoreError::Closed)
        })
    }

    fn path(&self) -> Option<&Path> {
        None
    }
}
