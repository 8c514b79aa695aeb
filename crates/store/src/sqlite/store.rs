//! [`SqliteStore`], the implementation of [`Store`] in one file.
//!
//! Every call becomes an operation in the write queue, or a read for the reader threads. The modules beside this one
//! contain the SQL of each operation; `start` opens the file and starts the threads.

use std::future::ready;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use posthaste_core::delivery::DeadReason;
use posthaste_core::dispatcher::Record;
use posthaste_core::id::{DeliveryId, EndpointId, EventId, KeyId, ReplayId, SessionId, TenantId};
use posthaste_core::lane::{EndpointStatus, Fetched, Health};
use posthaste_core::time::Timestamp;
use rusqlite::Connection;
use tokio::sync::Notify;

use super::accept::AcceptTask;
use super::counts::DeliveryCounts;
use super::group_commit::{Task, WriteContext, set_number};
use super::readers::Readers;
use super::replay_targets::{ReplaySearch, ReplayTargets};
use super::row_keys::Key;
use super::schema::meta;
use super::write_queue::WriteQueue;
use super::{
    directory, endpoints, event_rows, fetch, origins, record, replays, retention, sessions,
    tenant_lookup, usage,
};
use crate::codes::ms;
use crate::fair_queue::QueueClass;
use crate::read_duration::ReadDuration;
use crate::reply::{reply_channel, watched_reply_channel};
use crate::thread_end::ThreadEnd;
use crate::{
    AcceptResult, Answer, ApiKey, AttemptDetail, Content, Counts, CreateResult, DisabledReason,
    Done, Endpoint, EndpointRow, KeyHash, LoginSession, NewEvent, Page, PageRequest, Quotas,
    ReplaceResult, Replay, ReplayFilter, ReplayStep, Retention, RetentionStepResult, RetryResult,
    SessionIdentity, Store, StoreError, SweepResult, Tenant, TenantObject, TenantSelection, Usage,
    WriteQueueState, Written,
};

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste_store::sqlite::store";

/// Cost of a row that is changed long after it was stored, compared with that of a new row: its page is rarely in the
/// cache, and its index entries move.
const SCATTERED_ROW_COST: u64 = 4;

/// A store in one SQLite file.
pub struct SqliteStore {
    pub(super) path: PathBuf,
    pub(super) queue: Arc<WriteQueue>,
    pub(super) readers: Arc<Readers>,
    pub(super) delivery_counts: Arc<DeliveryCounts>,
    /// Notifies the scheduler of changed schedules.
    pub(super) schedule_changes: Arc<Notify>,
    pub(super) closed: Arc<ThreadEnd>,
    pub(super) writer: Mutex<Option<JoinHandle<()>>>,
}

impl SqliteStore {
    /// Enqueues an internal operation.
    pub(super) fn write<T, F>(&self, run: F) -> Answer<T>
    where
        T: Send + 'static,
        F: FnMut(&mut WriteContext<'_>) -> rusqlite::Result<T> + Send + 'static,
    {
        self.write_as(QueueClass::Internal, run)
    }

    /// Enqueues a step of internal work that changes rows all over the file.
    fn write_step<T, F>(&self, run: F) -> Answer<T>
    where
        T: Send + 'static,
        F: FnMut(&mut WriteContext<'_>) -> rusqlite::Result<T> + Send + 'static,
    {
        let (done, answer) = reply_channel();
        let task = Task::new(0, run, done).with_row_cost(SCATTERED_ROW_COST);
        self.queue.push(QueueClass::Internal, Box::new(task));
        answer
    }

    /// Enqueues an operation of a tenant; without one, an internal operation.
    pub(super) fn write_of<'t, T, F>(
        &self,
        tenant: impl Into<Option<&'t TenantId>>,
        run: F,
    ) -> Answer<T>
    where
        T: Send + 'static,
        F: FnMut(&mut WriteContext<'_>) -> rusqlite::Result<T> + Send + 'static,
    {
        self.write_as(QueueClass::of(tenant.into()), run)
    }

    fn write_as<T, F>(&self, class: QueueClass, run: F) -> Answer<T>
    where
        T: Send + 'static,
        F: FnMut(&mut WriteContext<'_>) -> rusqlite::Result<T> + Send + 'static,
    {
        let (done, answer) = reply_channel();
        self.queue.push(class, Box::new(Task::new(0, run, done)));
        answer
    }

    pub(super) fn read<T, F>(&self, duration: ReadDuration, read: F) -> Answer<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let (done, answer) = reply_channel();
        self.readers.read(duration, read, done);
        answer
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.queue.close();
        let writer = self
            .writer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(writer) = writer
            && writer.thread().id() != std::thread::current().id()
            && writer.join().is_err()
        {
            tracing::error!(target: LOG_TARGET, "the writer panicked");
        }
    }
}

impl Store for SqliteStore {
    fn create_tenant(&self, _now: Timestamp, tenant: Tenant) -> Answer<CreateResult> {
        self.write_of(&tenant.id.clone(), move |context| {
            directory::create_tenant(context, &tenant)
        })
    }

    fn replace_tenant(&self, _now: Timestamp, tenant: Tenant) -> Answer<ReplaceResult> {
        self.write_of(&tenant.id.clone(), move |context| {
            directory::replace_tenant(context, &tenant)
        })
    }

    fn delete_tenant(&self, _now: Timestamp, tenant: TenantId) -> Answer<Option<Vec<EndpointId>>> {
        self.write_of(&tenant.clone(), move |context| {
            directory::delete_tenant(context, &tenant)
        })
    }

    fn tenant(&self, tenant: TenantId) -> Answer<Option<Tenant>> {
        self.read(ReadDuration::Quick, move |conn| {
            directory::tenant(conn, &tenant)
        })
    }

    fn tenants(
        &self,
        page: PageRequest<(Timestamp, TenantId)>,
    ) -> Answer<Page<Tenant, (Timestamp, TenantId)>> {
        self.read(ReadDuration::Long, move |conn| {
            directory::tenants(conn, &page)
        })
    }

    fn create_key(&self, _now: Timestamp, key: ApiKey) -> Answer<CreateResult> {
        self.write_of(key.tenant.clone().as_ref(), move |context| {
            directory::create_key(context, &key)
        })
    }

    fn revoke_key(&self, _now: Timestamp, tenant: Option<TenantId>, key: KeyId) -> Answer<bool> {
        self.write_of(tenant.clone().as_ref(), move |context| {
            directory::revoke_key(context, tenant.as_ref(), key)
        })
    }

    fn key(&self, hash: KeyHash) -> Answer<Option<ApiKey>> {
        self.read(ReadDuration::Quick, move |conn| directory::key(conn, hash))
    }

    fn keys(
        &self,
        tenant: Option<TenantId>,
        page: PageRequest<KeyId>,
    ) -> Answer<Page<ApiKey, KeyId>> {
        self.read(ReadDuration::Long, move |conn| {
            directory::keys(conn, tenant.as_ref(), page)
        })
    }

    fn create_session(&self, _now: Timestamp, new: LoginSession) -> Answer<CreateResult> {
        let tenant = match &new.holder {
            SessionIdentity::Tenant(tenant) => Some(tenant.clone()),
            SessionIdentity::Key(_) => None,
        };
        self.write_of(tenant.as_ref(), move |context| {
            sessions::create(context, &new)
        })
    }

    fn session(&self, now: Timestamp, hash: KeyHash) -> Answer<Option<LoginSession>> {
        self.read(ReadDuration::Quick, move |conn| {
            sessions::find(conn, now, hash)
        })
    }

    fn sessions(
        &self,
        now: Timestamp,
        tenant: TenantId,
        page: PageRequest<SessionId>,
    ) -> Answer<Page<LoginSession, SessionId>> {
        self.read(ReadDuration::Long, move |conn| {
            sessions::list(conn, now, &tenant, page)
        })
    }

    fn end_session(&self, now: Timestamp, tenant: Option<TenantId>, id: SessionId) -> Answer<bool> {
        self.write_of(tenant.clone().as_ref(), move |context| {
            sessions::end(context, now, tenant.as_ref(), id)
        })
    }

    fn tenant_of(&self, named: TenantObject) -> Answer<Option<TenantId>> {
        self.read(ReadDuration::Quick, move |conn| {
            tenant_lookup::tenant_of(conn, named)
        })
    }

    fn create_endpoint(
        &self,
        _now: Timestamp,
        endpoint: Endpoint,
        at_most: u32,
    ) -> Answer<CreateResult> {
        self.write_of(&endpoint.tenant.clone(), move |context| {
            endpoints::create(context, &endpoint, at_most)
        })
    }

    fn replace_endpoint(&self, _now: Timestamp, endpoint: Endpoint) -> Answer<ReplaceResult> {
        self.write_of(&endpoint.tenant.clone(), move |context| {
            endpoints::replace(context, &endpoint)
        })
    }

    fn endpoint(&self, endpoint: EndpointId) -> Answer<Option<EndpointRow>> {
        self.read(ReadDuration::Quick, move |conn| {
            endpoints::endpoint(conn, endpoint)
        })
    }

    fn origin_endpoint(&self, tenant: TenantId, url: String) -> Answer<Option<EndpointId>> {
        self.read(ReadDuration::Quick, move |conn| {
            origins::origin_endpoint(conn, &tenant, &url)
        })
    }

    fn endpoints(
        &self,
        tenant: TenantId,
        page: PageRequest<EndpointId>,
    ) -> Answer<Page<EndpointRow, EndpointId>> {
        self.read(ReadDuration::Long, move |conn| {
            endpoints::endpoints(conn, &tenant, page)
        })
    }

    fn attention_list(&self, tenant: Option<TenantId>, limit: usize) -> Answer<Vec<EndpointRow>> {
        self.read(ReadDuration::Long, move |conn| {
            endpoints::attention_list(conn, tenant.as_ref(), limit)
        })
    }

    fn set_endpoint_status(
        &self,
        _now: Timestamp,
        endpoint: EndpointId,
        status: EndpointStatus,
        reason: Option<DisabledReason>,
        health: Option<Health>,
    ) -> Answer<bool> {
        self.write(move |context| {
            endpoints::set_endpoint_status(context, endpoint, status, reason, health.as_ref())
        })
    }

    fn accept_within(
        &self,
        now: Timestamp,
        events: Vec<NewEvent>,
        quotas: Quotas,
    ) -> Answer<AcceptResult> {
        let one_tenant = events.windows(2).all(|two| two[0].tenant == two[1].tenant);
        assert!(one_tenant, "events of one list belong to one tenant");
        let class = QueueClass::of(events.first().map(|event| &event.tenant));
        let (done, answer) = reply_channel();
        let task = AcceptTask::new(now, events, quotas, done);
        self.queue.push(class, Box::new(task));
        answer
    }

    fn usage(&self, now: Timestamp, tenant: TenantId) -> Answer<Option<Usage>> {
        self.read(ReadDuration::Quick, move |conn| {
            usage::usage(conn, now, &tenant)
        })
    }

    fn content(&self, event: EventId) -> Answer<Option<(Timestamp, Arc<Content>)>> {
        self.read(ReadDuration::Quick, move |conn| {
            event_rows::content(conn, event)
        })
    }

    fn retry(&self, now: Timestamp, tenant: TenantId, delivery: DeliveryId) -> Answer<RetryResult> {
        self.write_of(&tenant.clone(), move |context| {
            record::retry(context, now, &tenant, delivery)
        })
    }

    fn record(&self, now: Timestamp, record: Record, detail: AttemptDetail, done: Done<Written>) {
        let run =
            move |context: &mut WriteContext<'_>| record::record(context, now, &record, &detail);
        let task = Box::new(Task::new(0, run, done));
        self.queue.push(QueueClass::Internal, task);
    }

    fn unfinished_work(&self) -> Answer<Vec<(EndpointId, Timestamp)>> {
        self.read(ReadDuration::Long, fetch::unfinished)
    }

    fn fetch(
        &self,
        endpoint: EndpointId,
        due_by: Timestamp,
        limit: usize,
        ordered: bool,
    ) -> Answer<Fetched> {
        self.read(ReadDuration::Quick, move |conn| {
            fetch::fetch(conn, endpoint, due_by, limit, ordered)
        })
    }

    fn sweep(
        &self,
        now: Timestamp,
        endpoint: EndpointId,
        reason: DeadReason,
        except: Arc<[DeliveryId]>,
        limit: usize,
    ) -> Answer<SweepResult> {
        self.write_step(move |context| {
            record::sweep(context, now, endpoint, reason, &except, limit)
        })
    }

    fn create_replay(
        &self,
        now: Timestamp,
        tenant: TenantId,
        filter: ReplayFilter,
    ) -> Answer<Replay> {
        // A reader searches for the deliveries, so that the search does not block the writer. A first operation makes
        // the search start after everything that was requested earlier for the tenant, and returns the greatest key so far.
        let (done, answer, caller) = watched_reply_channel();
        let class = QueueClass::of(Some(&tenant));
        let create_class = class.clone();
        let (queue, readers) = (self.queue.clone(), self.readers.clone());
        let plan = move |newest: Result<Key, StoreError>| {
            let newest = match newest {
                Ok(newest) => newest,
                Err(why) => return done(Err(why)),
            };
            let (of, by) = (tenant.clone(), filter.clone());
            let insert = move |found: Result<ReplayTargets, StoreError>| match found {
                Err(why) => done(Err(why)),
                Ok(plan) => {
                    let bytes = plan.bytes();
                    let run = move |context: &mut WriteContext<'_>| {
                        replays::create(context, now, &tenant, &filter, &plan)
                    };
                    let task = Box::new(Task::new(bytes, run, done));
                    queue.push(create_class, task);
                }
            };
            ReplaySearch::new(of, by, caller).list(newest, readers, Box::new(insert));
        };
        let barrier = Task::new(
            0,
            |context: &mut WriteContext<'_>| Ok(context.key_generator.last()),
            Box::new(plan),
        );
        self.queue.push(class, Box::new(barrier));
        answer
    }

    fn count_replay(&self, tenant: TenantId, filter: ReplayFilter) -> Answer<u64> {
        let (done, answer, caller) = watched_reply_channel();
        ReplaySearch::new(tenant, filter, caller).count(self.readers.clone(), done);
        answer
    }

    fn step_replay(
        &self,
        now: Timestamp,
        replay: ReplayId,
        limit: usize,
    ) -> Answer<Option<ReplayStep>> {
        self.write_step(move |context| replays::step(context, now, replay, limit))
    }

    fn cancel_replay(
        &self,
        now: Timestamp,
        tenant: TenantId,
        replay: ReplayId,
    ) -> Answer<Option<Replay>> {
        self.write_of(&tenant.clone(), move |context| {
            replays::cancel(context, now, &tenant, replay)
        })
    }

    fn replay(&self, tenant: TenantId, replay: ReplayId) -> Answer<Option<Replay>> {
        self.read(ReadDuration::Quick, move |conn| {
            replays::replay(conn, &tenant, replay)
        })
    }

    fn replays(
        &self,
        tenant: TenantId,
        page: PageRequest<ReplayId>,
    ) -> Answer<Page<Replay, ReplayId>> {
        self.read(ReadDuration::Long, move |conn| {
            replays::replays(conn, &tenant, page)
        })
    }

    fn running_replays(&self) -> Answer<Vec<ReplayId>> {
        self.read(ReadDuration::Long, replays::running)
    }

    fn counts(&self) -> Answer<Counts> {
        Box::pin(ready(Ok(self.delivery_counts.counts())))
    }

    fn pending(&self, endpoint: EndpointId) -> Answer<u64> {
        Box::pin(ready(Ok(self.delivery_counts.pending(endpoint))))
    }

    fn retrying_since(
        &self,
        tenants: TenantSelection,
        since: Timestamp,
        limit: usize,
    ) -> Answer<u64> {
        self.read(ReadDuration::Long, move |conn| {
            fetch::retrying_since(conn, &tenants, since, limit)
        })
    }

    fn step_retention(&self, now: Timestamp, retention: Retention) -> Answer<RetentionStepResult> {
        self.write(move |context| retention::step(context, now, &retention))
    }

    fn delete_idle_origins(
        &self,
        _now: Timestamp,
        created_before: Timestamp,
        limit: usize,
    ) -> Answer<Vec<EndpointId>> {
        self.write(move |context| origins::delete_idle(context, created_before, limit))
    }

    fn write_queue_state(&self) -> WriteQueueState {
        self.queue.state()
    }

    fn probe(&self, now: Timestamp) -> Answer<()> {
        self.write(move |context| set_number(context.conn, meta::PROBED_AT, ms(now)))
    }

    fn close(&self) -> Answer<()> {
        let (done, answer) = reply_channel();
        if self.queue.is_closed() {
            done(Err(StoreError::Closed));
            return answer;
        }
        self.closed.when_closed(done);
        self.queue.close();
        self.readers.close();
        answer
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.path)
    }
}
