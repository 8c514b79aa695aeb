//! [`PostgresStore`], the implementation of [`Store`].
//!
//! Every call becomes either an operation in a write queue or a read for the readers. The modules beside this one
//! contain the SQL of each operation.

mod alerts;
mod audit_log;
mod enqueue;
mod lists;
mod master_keys;
mod notifications;
mod open;
mod owner_emails;
mod schedules;
mod stats;

use std::future::ready;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use posthaste_core::delivery::DeadReason;
use posthaste_core::dispatcher::Record;
use posthaste_core::id::{DeliveryId, EndpointId, EventId, KeyId, ReplayId, SessionId, TenantId};
use posthaste_core::lane::{EndpointStatus, Fetched, Health};
use posthaste_core::time::Timestamp;
use tokio::time::Instant;

use crate::codes::ms;
use crate::fair_queue::QueueClass;
use crate::postgres::cluster::membership::Membership;
use crate::postgres::connection::PgConnection;
use crate::postgres::read;
use crate::postgres::read::{counts, fetch, tenant_lookup};
use crate::postgres::retention::run;
use crate::postgres::round_trips::FetchRoundTrip;
use crate::postgres::schema::meta;
use crate::postgres::shared::Shared;
use crate::postgres::write::operation::{AcceptOperation, Operation, Task};
use crate::postgres::write::replays::{ReplaySearch, ReplayTargets};
use crate::postgres::write::write_context::WriteContext;
use crate::postgres::write::{directory, endpoints, record, replays, sessions, usage};
use crate::read_duration::ReadDuration;
use crate::reply::{AcceptReply, Reply, reply_channel, watched_reply_channel};
use crate::{
    AcceptResult, Answer, ApiKey, AttemptDetail, Cluster, Content, Counts, CreateResult,
    DisabledReason, Done, Endpoint, EndpointRow, KeyHash, LoginSession, NewEvent, Page,
    PageRequest, Quotas, ReplaceResult, Replay, ReplayFilter, ReplayStep, Retention,
    RetentionStepResult, RetryResult, SessionIdentity, Store, StoreError, SweepResult, Tenant,
    TenantObject, TenantSelection, Usage, WriteQueueState, Written,
};

/// Bytes that an event counts for in addition to its payload, so that batches of empty events are bounded too.
const EVENT_BYTES: usize = 1_024;

/// A store in a PostgreSQL database, which other nodes may share.
pub struct PostgresStore {
    pub(super) shared: Shared,
    pub(super) membership: Arc<Membership>,
    pub(super) thread: Mutex<Option<JoinHandle<()>>>,
}

impl Store for PostgresStore {
    fn create_tenant(&self, _now: Timestamp, tenant: Tenant) -> Answer<CreateResult> {
        self.write_of(
            &tenant.id.clone(),
            async move |context: &mut WriteContext| {
                directory::create_tenant(context, &tenant).await
            },
        )
    }

    fn replace_tenant(&self, _now: Timestamp, tenant: Tenant) -> Answer<ReplaceResult> {
        self.write_of(
            &tenant.id.clone(),
            async move |context: &mut WriteContext| {
                directory::replace_tenant(context, &tenant).await
            },
        )
    }

    fn delete_tenant(&self, _now: Timestamp, tenant: TenantId) -> Answer<Option<Vec<EndpointId>>> {
        self.write_of(&tenant.clone(), async move |context: &mut WriteContext| {
            directory::delete_tenant(context, &tenant).await
        })
    }

    fn tenant(&self, tenant: TenantId) -> Answer<Option<Tenant>> {
        self.read(ReadDuration::Quick, async move |conn: &PgConnection| {
            read::directory::tenant(conn, &tenant).await
        })
    }

    fn tenants(
        &self,
        page: PageRequest<(Timestamp, TenantId)>,
    ) -> Answer<Page<Tenant, (Timestamp, TenantId)>> {
        self.read(ReadDuration::Long, async move |conn: &PgConnection| {
            read::directory::tenants(conn, &page).await
        })
    }

    fn create_key(&self, _now: Timestamp, key: ApiKey) -> Answer<CreateResult> {
        self.write_of(
            key.tenant.clone().as_ref(),
            async move |context: &mut WriteContext| directory::create_key(context, &key).await,
        )
    }

    fn revoke_key(&self, _now: Timestamp, tenant: Option<TenantId>, key: KeyId) -> Answer<bool> {
        self.write_of(
            tenant.clone().as_ref(),
            async move |context: &mut WriteContext| {
                directory::revoke_key(context, tenant.as_ref(), key).await
            },
        )
    }

    fn key(&self, hash: KeyHash) -> Answer<Option<ApiKey>> {
        self.read(ReadDuration::Quick, async move |conn: &PgConnection| {
            read::directory::key(conn, hash).await
        })
    }

    fn keys(
        &self,
        tenant: Option<TenantId>,
        page: PageRequest<KeyId>,
    ) -> Answer<Page<ApiKey, KeyId>> {
        self.read(ReadDuration::Long, async move |conn: &PgConnection| {
            read::directory::keys(conn, tenant.as_ref(), page).await
        })
    }

    fn create_session(&self, _now: Timestamp, new: LoginSession) -> Answer<CreateResult> {
        let tenant = match &new.holder {
            SessionIdentity::Tenant(tenant) => Some(tenant.clone()),
            SessionIdentity::Key(_) => None,
        };
        self.write_of(tenant.as_ref(), async move |context: &mut WriteContext| {
            sessions::create(context, &new).await
        })
    }

    fn session(&self, now: Timestamp, hash: KeyHash) -> Answer<Option<LoginSession>> {
        self.read(ReadDuration::Quick, async move |conn: &PgConnection| {
            sessions::find(conn, now, hash).await
        })
    }

    fn sessions(
        &self,
        now: Timestamp,
        tenant: TenantId,
        page: PageRequest<SessionId>,
    ) -> Answer<Page<LoginSession, SessionId>> {
        self.read(ReadDuration::Long, async move |conn: &PgConnection| {
            sessions::list(conn, now, &tenant, page).await
        })
    }

    fn end_session(&self, now: Timestamp, tenant: Option<TenantId>, id: SessionId) -> Answer<bool> {
        self.write_of(
            tenant.clone().as_ref(),
            async move |context: &mut WriteContext| {
                sessions::end(context, now, tenant.as_ref(), id).await
            },
        )
    }

    fn tenant_of(&self, named: TenantObject) -> Answer<Option<TenantId>> {
        self.read(ReadDuration::Quick, async move |conn: &PgConnection| {
            tenant_lookup::tenant_of(conn, named).await
        })
    }

    fn create_endpoint(
        &self,
        _now: Timestamp,
        endpoint: Endpoint,
        at_most: u32,
    ) -> Answer<CreateResult> {
        self.write_of(
            &endpoint.tenant.clone(),
            async move |context: &mut WriteContext| {
                endpoints::create(context, &endpoint, at_most).await
            },
        )
    }

    fn replace_endpoint(&self, _now: Timestamp, endpoint: Endpoint) -> Answer<ReplaceResult> {
        self.write_of(
            &endpoint.tenant.clone(),
            async move |context: &mut WriteContext| endpoints::replace(context, &endpoint).await,
        )
    }

    fn endpoint(&self, endpoint: EndpointId) -> Answer<Option<EndpointRow>> {
        self.read(ReadDuration::Quick, async move |conn: &PgConnection| {
            read::endpoints::endpoint(conn, endpoint).await
        })
    }

    fn origin_endpoint(&self, tenant: TenantId, url: String) -> Answer<Option<EndpointId>> {
        self.read(ReadDuration::Quick, async move |conn: &PgConnection| {
            read::endpoints::origin_endpoint(conn, &tenant, &url).await
        })
    }

    fn endpoints(
        &self,
        tenant: TenantId,
        page: PageRequest<EndpointId>,
    ) -> Answer<Page<EndpointRow, EndpointId>> {
        self.read(ReadDuration::Long, async move |conn: &PgConnection| {
            read::endpoints::endpoints(conn, &tenant, page).await
        })
    }

    fn attention_list(&self, tenant: Option<TenantId>, limit: usize) -> Answer<Vec<EndpointRow>> {
        self.read(ReadDuration::Long, async move |conn: &PgConnection| {
            read::endpoints::attention_list(conn, tenant.as_ref(), limit).await
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
        let ownership = self.membership.owned_shards.ownership(endpoint);
        self.write(async move |context: &mut WriteContext| {
            context.plan_directory_change().await?;
            // If this node has lost the shard since, it must not undo a status change that the next owner
            // acknowledged.
            context.guard_ownership_last(ownership);
            endpoints::set_endpoint_status(context, endpoint, status, reason, health.as_ref()).await
        })
    }

    fn usage(&self, now: Timestamp, tenant: TenantId) -> Answer<Option<Usage>> {
        self.read(ReadDuration::Quick, async move |conn: &PgConnection| {
            usage::usage(conn, now, &tenant).await
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
        let bytes = events
            .iter()
            .map(|event| EVENT_BYTES + event.content.payload.len())
            .sum();
        let (done, answer) = reply_channel();
        let queue = match quotas.is_limited() {
            true => &self.shared.metered,
            false => &self.shared.queue,
        };
        let class = QueueClass::of(events.first().map(|event| &event.tenant));
        let accepting = AcceptOperation {
            now,
            events: events.into(),
            quotas,
            bytes,
            advance: None,
            reply: AcceptReply::Accept(Reply::new(done)),
        };
        queue.push(class, Operation::Accept(accepting));
        answer
    }

    fn content(&self, event: EventId) -> Answer<Option<(Timestamp, Arc<Content>)>> {
        if let Some(carried) = self.shared.contents.get(event) {
            return Box::pin(ready(Ok(Some(carried))));
        }
        self.read(ReadDuration::Quick, async move |conn: &PgConnection| {
            fetch::content(conn, event).await
        })
    }

    fn retry(&self, now: Timestamp, tenant: TenantId, delivery: DeliveryId) -> Answer<RetryResult> {
        self.write_of(&tenant.clone(), async move |context: &mut WriteContext| {
            record::retry(context, now, &tenant, delivery).await
        })
    }

    fn record(&self, now: Timestamp, record: Record, detail: AttemptDetail, done: Done<Written>) {
        let owned_shards = &self.membership.owned_shards;
        let operation = record::operation(now, record, detail, owned_shards, done);
        self.shared.queue.push(QueueClass::Internal, operation);
    }

    fn unfinished_work(&self) -> Answer<Vec<(EndpointId, Timestamp)>> {
        let due_watermarks = self.shared.due_watermarks.clone();
        self.read(ReadDuration::Long, async move |conn: &PgConnection| {
            fetch::endpoints_with_work(conn, &due_watermarks).await
        })
    }

    fn fetch(
        &self,
        endpoint: EndpointId,
        due_by: Timestamp,
        limit: usize,
        ordered: bool,
    ) -> Answer<Fetched> {
        let (due_watermarks, contents) = (
            self.shared.due_watermarks.clone(),
            self.shared.contents.clone(),
        );
        let round_trip = FetchRoundTrip::new(self.shared.round_trips.clone());
        let (done, answer) = reply_channel();
        let ended = round_trip.clone();
        let answered = Box::new(move |fetched: Result<Fetched, StoreError>| {
            ended.ended(&fetched);
            done(fetched);
        });
        let fetch = async move |conn: &PgConnection| {
            let began = Instant::now();
            let fetched = fetch::fetch(
                conn,
                &due_watermarks,
                &contents,
                endpoint,
                due_by,
                limit,
                ordered,
            )
            .await;
            round_trip.tried(began, &fetched);
            fetched
        };
        let readers = &self.shared.readers;
        readers.read(ReadDuration::Quick, false, fetch, answered);
        answer
    }

    fn sweep(
        &self,
        now: Timestamp,
        endpoint: EndpointId,
        reason: DeadReason,
        except: Arc<[DeliveryId]>,
        limit: usize,
    ) -> Answer<SweepResult> {
        let (done, answer) = reply_channel();
        let ownership = self.membership.owned_shards.ownership(endpoint);
        // If this node lost the shard, the present owner sweeps the endpoint.
        let nothing = SweepResult {
            ended: 0,
            more: false,
        };
        let run = async move |context: &mut WriteContext| {
            if !context.owned_shards.is_current(ownership) {
                return Ok(nothing);
            }
            // The endpoint was disabled or deleted then, but a later owner may have enabled it since.
            context.guard_ownership(ownership).await?;
            record::sweep(context, now, endpoint, reason, &except, limit).await
        };
        let operation = Task::owners(Some(nothing), run, done);
        self.shared.background.push(QueueClass::Internal, operation);
        answer
    }

    fn create_replay(
        &self,
        now: Timestamp,
        tenant: TenantId,
        filter: ReplayFilter,
    ) -> Answer<Replay> {
        // A reader searches for the deliveries, and the background writer stores them, so that neither blocks the other
        // writes. The search starts only after every operation that was enqueued before it for the tenant.
        let (done, answer, caller) = watched_reply_channel();
        let class = QueueClass::of(Some(&tenant));
        let (background, readers) = (self.shared.background.clone(), self.shared.readers.clone());
        let plan = move |newest: Result<EventId, StoreError>| {
            let newest = match newest {
                Ok(newest) => newest,
                Err(why) => return done(Err(why)),
            };
            let (of, by) = (tenant.clone(), filter.clone());
            let insert = move |found: Result<ReplayTargets, StoreError>| match found {
                Err(why) => done(Err(why)),
                Ok(plan) => {
                    let run = async move |context: &mut WriteContext| {
                        replays::create(context, now, &tenant, &filter, &plan).await
                    };
                    background.push(QueueClass::Internal, Task::boxed(run, done));
                }
            };
            ReplaySearch::new(of, by, caller).list(newest, readers, Box::new(insert));
        };
        let barrier = async |context: &mut WriteContext| replays::newest_event(&context.conn).await;
        self.shared
            .queue
            .push(class, Task::boxed(barrier, Box::new(plan)));
        answer
    }

    fn count_replay(&self, tenant: TenantId, filter: ReplayFilter) -> Answer<u64> {
        let (done, answer, caller) = watched_reply_channel();
        ReplaySearch::new(tenant, filter, caller).count(self.shared.readers.clone(), done);
        answer
    }

    fn step_replay(
        &self,
        now: Timestamp,
        replay: ReplayId,
        limit: usize,
    ) -> Answer<Option<ReplayStep>> {
        self.write_in_background(async move |context: &mut WriteContext| {
            replays::step(context, now, replay, limit).await
        })
    }

    fn cancel_replay(
        &self,
        now: Timestamp,
        tenant: TenantId,
        replay: ReplayId,
    ) -> Answer<Option<Replay>> {
        self.write_of(&tenant.clone(), async move |context: &mut WriteContext| {
            replays::cancel(context, now, &tenant, replay).await
        })
    }

    fn replay(&self, tenant: TenantId, replay: ReplayId) -> Answer<Option<Replay>> {
        self.read(ReadDuration::Quick, async move |conn: &PgConnection| {
            replays::replay(conn, &tenant, replay).await
        })
    }

    fn replays(
        &self,
        tenant: TenantId,
        page: PageRequest<ReplayId>,
    ) -> Answer<Page<Replay, ReplayId>> {
        self.read(ReadDuration::Long, async move |conn: &PgConnection| {
            replays::replays(conn, &tenant, page).await
        })
    }

    fn running_replays(&self) -> Answer<Vec<ReplayId>> {
        self.read(ReadDuration::Long, async |conn: &PgConnection| {
            replays::running(conn).await
        })
    }

    fn counts(&self) -> Answer<Counts> {
        self.read(ReadDuration::Quick, async |conn: &PgConnection| {
            counts::counts(conn).await
        })
    }

    fn pending(&self, endpoint: EndpointId) -> Answer<u64> {
        self.read(ReadDuration::Quick, async move |conn: &PgConnection| {
            counts::pending(conn, endpoint).await
        })
    }

    fn retrying_since(
        &self,
        tenants: TenantSelection,
        since: Timestamp,
        limit: usize,
    ) -> Answer<u64> {
        self.read(ReadDuration::Long, async move |conn: &PgConnection| {
            counts::retrying_since(conn, &tenants, since, limit).await
        })
    }

    fn step_retention(&self, now: Timestamp, retention: Retention) -> Answer<RetentionStepResult> {
        let contents = self.shared.contents.clone();
        self.write_in_background(async move |context: &mut WriteContext| {
            let mut deleted = run::step(context, now, &retention).await?;
            deleted.more |= run::delete_expired_entries(&context.conn, now, retention.step).await?;
            if deleted.events + deleted.payloads > 0 {
                contents.forget();
            }
            Ok(deleted)
        })
    }

    fn delete_idle_origins(
        &self,
        _now: Timestamp,
        created_before: Timestamp,
        limit: usize,
    ) -> Answer<Vec<EndpointId>> {
        self.write_in_background(async move |context: &mut WriteContext| {
            endpoints::delete_idle_origins(context, created_before, limit).await
        })
    }

    fn write_queue_state(&self) -> WriteQueueState {
        // Large accepts and background operations may wait long while the store keeps up with everything else.
        self.shared
            .queue
            .state()
            .and(self.shared.metered.state())
            .and(self.shared.large.state().only_refused())
    }

    fn probe(&self, now: Timestamp) -> Answer<()> {
        self.write(async move |context: &mut WriteContext| {
            context.set_number(meta::PROBED_AT, ms(now));
            Ok(())
        })
    }

    fn close(&self) -> Answer<()> {
        let (done, answer) = reply_channel();
        if self.shared.queue.is_closed() {
            done(Err(StoreError::Closed));
            return answer;
        }
        self.shared.closed.when_closed(done);
        self.shared.close_queues();
        self.shared.readers.close();
        answer
    }

    fn cluster(&self) -> Option<Arc<dyn Cluster>> {
        Some(self.membership.clone())
    }

    fn path(&self) -> Option<&Path> {
        None
    }
}
