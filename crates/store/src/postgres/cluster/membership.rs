//! The cluster as this node sees it: [`Membership`] implements [`Cluster`] and can be used from any thread.
//!
//! It holds the last known nodes and owners, the lease, and the channels to the tasks that keep them current:
//! `membership_task` (ownership), `listener` (`NOTIFY` messages), `poller` (change log and work of other nodes),
//! `rpc_exchange` (node RPC) and `concurrency_shares`.

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use posthaste_core::cluster::{
    FormatLevel, NodeNo, OwnedShard, SHARD_COUNT, Shard, ShareGrant, TableView, Timings,
};
use posthaste_core::dispatcher::TenantDemand;
use posthaste_core::id::{DeliveryId, EndpointId};
use posthaste_core::lane::EndpointStatus;
use posthaste_core::time::{Tick, Timestamp};
use serde_json::Value;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;

use super::cluster_table::ClusterTable;
use super::concurrency_shares::ShareRequest;
use super::database_clock::DatabaseClock;
use super::membership_task::{MembershipInput, MembershipTask};
use super::node_rpc::NodeRpc;
use super::{concurrency_shares, listener, node_list, poller, rpc_exchange, upgrade};
use crate::fair_queue::QueueClass;
use crate::postgres::connection::PgConnection;
use crate::postgres::schema::FORMAT;
use crate::postgres::settings::PostgresSettings;
use crate::postgres::shared::Shared;
use crate::postgres::write::operation::Task;
use crate::postgres::write::owned_shards::OwnedShards;
use crate::postgres::write::unowned;
use crate::postgres::write::write_context::WriteContext;
use crate::read_duration::ReadDuration;
use crate::reply::{Reply, reply_channel};
use crate::{
    Answer, Cluster, DisabledReason, Lease, NodeInfo, OpenError, Owner, StoreError, Written,
};

/// Time after a complete read of the changes during which this node counts as informed, in milliseconds.
const INFORMED_PERIOD_MS: u64 = 1_000;
/// Maximum time that opening waits for the first shards.
const JOIN_TIMEOUT: Duration = Duration::from_secs(10);

/// This node's view of the cluster.
pub(in crate::postgres) struct Membership {
    pub(in crate::postgres) shared: Shared,
    pub(in crate::postgres) owned_shards: Arc<OwnedShards>,
    clock: Arc<dyn Fn() -> Tick + Send + Sync>,
    pub(in crate::postgres) lease: Lease,
    known: Mutex<Known>,
    inputs: mpsc::UnboundedSender<MembershipInput>,
    pub(super) node_rpc: NodeRpc,
    share_requests: mpsc::UnboundedSender<ShareRequest>,
    /// Start of the last read that returned all changes, in ticks, plus one. 0 before the first.
    informed_at: AtomicU64,
    /// Set while `NOTIFY` messages arrive. Otherwise all tasks poll more often.
    receives_notify: AtomicBool,
    /// Signalled when a `NOTIFY` message reports a change.
    pub(in crate::postgres) changed: Notify,
    /// Signalled when a `NOTIFY` message reports work for this node without naming the endpoints.
    pub(in crate::postgres) work: Notify,
    /// Signalled when this node gets a new number.
    pub(super) renumbered: Notify,
    closing: AtomicBool,
}

/// The nodes and owners that the last heartbeat returned.
struct Known {
    nodes: Vec<NodeNo>,
    owners: Vec<Option<NodeNo>>,
}

impl Membership {
    /// Joins the cluster: starts the tasks, and waits until this node has a number and the shards that are free. Fails if the
    /// database needs nodes that know a later version.
    pub(in crate::postgres) async fn begin(
        shared: &Shared,
        owned_shards: &Arc<OwnedShards>,
        settings: &Rc<PostgresSettings>,
        timings: Timings,
        database_clock: DatabaseClock,
    ) -> Result<(Arc<Membership>, Vec<JoinHandle<()>>), OpenError> {
        let (inputs, inbox) = mpsc::unbounded_channel();
        let (share_requests, questions) = mpsc::unbounded_channel();
        let membership = Arc::new(Membership {
            shared: shared.clone(),
            owned_shards: owned_shards.clone(),
            clock: settings.clock.clone(),
            lease: Lease::until(Tick::START, Tick::START),
            known: Mutex::new(Known {
                nodes: Vec::new(),
                owners: vec![None; usize::from(SHARD_COUNT)],
            }),
            inputs,
            node_rpc: NodeRpc::default(),
            share_requests,
            informed_at: AtomicU64::new(0),
            receives_notify: AtomicBool::new(false),
            changed: Notify::new(),
            work: Notify::new(),
            renumbered: Notify::new(),
            closing: AtomicBool::new(false),
        });
        let (entered, enters) = oneshot::channel();
        let table = ClusterTable::new(shared, settings.clone(), timings, database_clock);
        let member =
            MembershipTask::new(membership.clone(), settings, timings, table, inbox, entered);
        let mut tasks = vec![tokio::task::spawn_local(member.run())];
        // If joining takes longer, it completes in the background.
        let entered = tokio::time::timeout(JOIN_TIMEOUT, enters).await;
        if matches!(entered, Ok(Ok(false))) {
            return Err(too_new(shared, settings));
        }
        tasks.extend([
            tokio::task::spawn_local(listener::listen(membership.clone(), settings.clone())),
            tokio::task::spawn_local(poller::follow_change_log(membership.clone())),
            tokio::task::spawn_local(poller::look_for_work(membership.clone())),
            tokio::task::spawn_local(rpc_exchange::exchange_messages(
                membership.clone(),
                settings.clone(),
            )),
            tokio::task::spawn_local(upgrade::finish(membership.clone(), settings.clone())),
            tokio::task::spawn_local(concurrency_shares::answer(
                owned_shards.clone(),
                settings.clone(),
                questions,
            )),
        ]);
        Ok((membership, tasks))
    }

    /// The monotonic clock.
    pub(in crate::postgres) fn now(&self) -> Tick {
        (self.clock)()
    }

    /// Sends an input to the membership task. Ignored after the task has ended.
    pub(super) fn send(&self, input: MembershipInput) {
        let _ = self.inputs.send(input);
    }

    /// Notes that all changes before this time have been read.
    pub(super) fn set_informed_at(&self, since: Tick) {
        self.informed_at
            .store(since.0.saturating_add(1), Ordering::SeqCst);
    }

    /// Returns whether `NOTIFY` messages arrive.
    pub(super) fn receives_notify(&self) -> bool {
        self.receives_notify.load(Ordering::SeqCst)
    }

    /// Sets whether `NOTIFY` messages arrive.
    pub(super) fn set_receives_notify(&self, receives_notify: bool) {
        self.receives_notify
            .store(receives_notify, Ordering::SeqCst);
    }

    /// Leaves the cluster. Called when the store is being closed and all writes are done.
    pub(in crate::postgres) fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
        self.send(MembershipInput::Close);
        self.changed.notify_one();
        self.work.notify_one();
        self.renumbered.notify_one();
        self.node_rpc.close();
    }

    /// Returns whether the store is being closed.
    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    /// Stores what a heartbeat returned.
    pub(super) fn update_view(&self, view: &TableView) {
        let mut known = self.known();
        known.nodes = view.nodes.iter().map(|seen| seen.node).collect();
        for owned in &view.shards {
            known.owners[usize::from(owned.ownership.shard.number())] = owned.owner;
        }
    }

    /// Notes that these shards were released.
    pub(super) fn mark_released(&self, holdings: &[OwnedShard]) {
        let mut known = self.known();
        for holding in holdings {
            known.owners[usize::from(holding.shard.number())] = None;
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write<T, F>(&self, run: F) -> Answer<T>
    where
        T: Send + 'static,
        F: AsyncFnMut(&mut WriteContext) -> Result<T, crate::postgres::db_error::DbError>
            + Send
            + 'static,
    {
        let (done, answer) = reply_channel();
        let operation = Task::boxed(run, done);
        self.shared.queue.push(QueueClass::Internal, operation);
        answer
    }
}

/// The error of a node that does not know the version that the database needs.
pub(super) fn too_new(shared: &Shared, settings: &PostgresSettings) -> OpenError {
    OpenError::DatabaseTooNew {
        server: settings.server.to_string(),
        found: shared.required_schema.get(),
        known: FORMAT,
    }
}

impl Cluster for Membership {
    fn me(&self) -> NodeNo {
        self.owned_shards.me()
    }

    fn nodes(&self) -> Vec<NodeNo> {
        let me = self.me();
        let mut nodes = self.known().nodes.clone();
        if !nodes.contains(&me) {
            nodes.push(me);
        }
        nodes
    }

    fn format_level(&self) -> FormatLevel {
        self.shared.required_schema.level()
    }

    fn owner(&self, shard: Shard) -> Owner {
        if self.owned_shards.epoch(shard).is_some() {
            return Owner::Me;
        }
        let me = self.me();
        match self.known().owners[usize::from(shard.number())] {
            Some(other) if other != me => Owner::Other(other),
            Some(_) | None => Owner::None,
        }
    }

    fn lease(&self) -> Lease {
        self.lease.clone()
    }

    fn is_up_to_date(&self) -> bool {
        let informed_at = self.informed_at.load(Ordering::SeqCst);
        informed_at > 0 && self.now().0 < informed_at.saturating_add(INFORMED_PERIOD_MS)
    }

    fn ask(&self, node: NodeNo, question: Value, within: Duration) -> Answer<Value> {
        self.node_rpc.ask(node, &question, within)
    }

    fn set_unowned_status(
        &self,
        _now: Timestamp,
        endpoint: EndpointId,
        status: EndpointStatus,
        reason: Option<DisabledReason>,
    ) -> Answer<Option<bool>> {
        self.write(async move |context: &mut WriteContext| {
            unowned::set_status(context, endpoint, status, reason).await
        })
    }

    fn cancel_unowned(
        &self,
        now: Timestamp,
        endpoint: EndpointId,
        delivery: DeliveryId,
    ) -> Answer<Option<Written>> {
        self.write(async move |context: &mut WriteContext| {
            unowned::cancel(context, now, endpoint, delivery).await
        })
    }

    fn request_shares(&self, demands: Vec<TenantDemand>) -> Answer<Vec<ShareGrant>> {
        let (done, answer) = reply_channel();
        let reply = Reply::new(done);
        // After the task has ended, dropping the reply answers the caller.
        let _ = self.share_requests.send(ShareRequest { demands, reply });
        answer
    }

    fn list_nodes(&self) -> Answer<Vec<NodeInfo>> {
        let (done, answer) = reply_channel();
        let read = async |conn: &PgConnection| node_list::list(conn).await;
        self.shared
            .readers
            .read(ReadDuration::Quick, false, read, done);
        answer
    }

    fn retire(&self) -> Answer<()> {
        let (done, answer) = reply_channel();
        if let Err(refused) = self.inputs.send(MembershipInput::Retire(done))
            && let MembershipInput::Retire(done) = refused.0
        {
            done(Err(StoreError::Closed));
        }
        answer
    }
}
