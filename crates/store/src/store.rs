//! The contract of a store.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use posthaste_core::delivery::DeadReason;
use posthaste_core::dispatcher::Record;
use posthaste_core::id::{
    AuditId, DeliveryId, EndpointId, EventId, KeyId, PassId, ReplayId, TenantId,
};
use posthaste_core::lane::{Fetched, Health, Standing};
use posthaste_core::time::Timestamp;

use crate::{
    Alerts, Allowance, ApiKey, AttemptDetail, AttemptEntry, AuditEntry, AuditFilter, AuditOutcome,
    Cluster, Completed, Content, Counts, DeadGroup, DeadGroupKey, DeliveryFilter, DisabledReason,
    Endpoint, EndpointRow, EventFilter, Figures, Ingest, Insertion, KeyHash, Named, NewEvent,
    Outbox, Page, PageRequest, Pass, Replaced, Replay, ReplayFilter, ReplayStep, Retention,
    Retried, StoreError, StoredDelivery, StoredEvent, Swept, Tenant, Tidied, Usage, Written,
};

/// What a call will answer.
pub type Answer<T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>;

/// Called once, when what was asked for has been done or has failed; from any thread, and it must not
/// block.
pub type Done<T> = Box<dyn FnOnce(Result<T, StoreError>) + Send>;

/// A place that keeps what it was given.
///
/// # Promises
///
/// 1. **Durable.** When a write is answered, it is on stable storage, and every later read sees it, in
///    this process or the next. An operating error means that nothing of it was written; only when the
///    process dies before the answer may either be the case.
/// 2. **Whole.** One call is one transaction: an event and all its deliveries, an attempt and all it
///    changes, a batch. Nobody ever sees half of it.
/// 3. **In order.** Writes take effect in the order of the calls of one caller, even if their answers
///    are never awaited: a write is under way as soon as the method returns.
/// 4. **Together.** Whatever gathered while one commit ran is written by the next. Nobody waits for a
///    timer, and nobody alone waits for a crowd.
/// 5. **Handed over.** What was accepted for endpoints of this node is handed to the
///    [`HandOver`](crate::HandOver) in commit order and before its caller is answered; the owners of the
///    others are told. Ids made by one node grow in commit order.
/// 6. **No moving back.** A record is applied only if its delivery still waits and has made one attempt
///    fewer; health only if it is newer than what is stored; a disabling never undoes a deletion. What
///    has ended changes only by [`retry`](Store::retry) and [`step_replay`](Store::step_replay), and is
///    removed only by [`tidy`](Store::tidy), which never touches what has not ended.
/// 7. **Out of the way.** Reads never keep a write waiting. Nothing costs more because much is stored,
///    but for what is documented to. Every queue is bounded: past it, [`StoreError::Overloaded`].
/// 8. **Without a clock.** Time and chance are given: `now` with every call that depends on it, dice at
///    the opening.
///
/// Tenants are apart: where a method takes a tenant, what belongs to another does not exist for it.
pub trait Store: Alerts + Figures + Outbox + Send + Sync {
    // Tenants and keys.

    /// Adds a tenant. Its revision is stored as 0.
    fn create_tenant(&self, now: Timestamp, tenant: Tenant) -> Answer<Insertion>;

    /// Changes a tenant's name, default policy and limits, if its revision is still `tenant.revision`.
    fn replace_tenant(&self, now: Timestamp, tenant: Tenant) -> Answer<Replaced>;

    /// Removes a tenant, revokes its keys, ends its passes and deletes its endpoints, and says which those are;
    /// nothing if there is no such tenant. A later tenant of the same id sees nothing of it.
    fn delete_tenant(&self, now: Timestamp, tenant: TenantId) -> Answer<Option<Vec<EndpointId>>>;

    /// A tenant.
    fn tenant(&self, tenant: TenantId) -> Answer<Option<Tenant>>;

    /// Tenants, the newest first; of several made in the same millisecond, the greatest id first.
    fn tenants(
        &self,
        page: PageRequest<(Timestamp, TenantId)>,
    ) -> Answer<Page<Tenant, (Timestamp, TenantId)>>;

    /// Adds a key.
    fn create_key(&self, now: Timestamp, key: ApiKey) -> Answer<Insertion>;

    /// Revokes a tenant's key, or an admin key of nobody, and ends the passes made with it. Says false if there is
    /// none.
    fn revoke_key(&self, now: Timestamp, tenant: Option<TenantId>, key: KeyId) -> Answer<bool>;

    /// The key with this hash.
    fn key(&self, hash: KeyHash) -> Answer<Option<ApiKey>>;

    /// The keys of a tenant, or the admin keys of nobody.
    fn keys(
        &self,
        tenant: Option<TenantId>,
        page: PageRequest<KeyId>,
    ) -> Answer<Page<ApiKey, KeyId>>;

    // Passes. One whose time is up does not exist any more, whether it has been removed or not.

    /// Adds a pass. One of a key is added whether the key is stored or not.
    fn create_pass(&self, now: Timestamp, pass: Pass) -> Answer<Insertion>;

    /// The pass with this hash.
    fn pass(&self, now: Timestamp, hash: KeyHash) -> Answer<Option<Pass>>;

    /// The passes that let in as a tenant.
    fn passes(
        &self,
        now: Timestamp,
        tenant: TenantId,
        page: PageRequest<PassId>,
    ) -> Answer<Page<Pass, PassId>>;

    /// Ends a pass that lets in as a tenant, or anybody's. Says false if there is none.
    fn end_pass(&self, now: Timestamp, tenant: Option<TenantId>, pass: PassId) -> Answer<bool>;

    // Who did what.

    /// Writes down what is about to be done. Texts are cut to [`MAX_AUDIT_CHARS`](crate::MAX_AUDIT_CHARS).
    fn begin_audit(&self, now: Timestamp, entry: AuditEntry) -> Answer<Insertion>;

    /// Writes down what came of it, once: an entry that is complete stays as it is. What was made takes the place of
    /// what it was made of, such as a tenant's endpoint of its endpoints.
    fn finish_audit(
        &self,
        entry: AuditId,
        outcome: AuditOutcome,
        made: Option<String>,
    ) -> Answer<Completed>;

    /// Entries, by their ids.
    fn audit(
        &self,
        filter: AuditFilter,
        page: PageRequest<AuditId>,
    ) -> Answer<Page<AuditEntry, AuditId>>;

    /// Whose something is, if it is there and its tenant too. A deleted endpoint is nobody's.
    fn whose(&self, named: Named) -> Answer<Option<TenantId>>;

    // Endpoints.

    /// Adds an endpoint, enabled, if its tenant then has at most `at_most` that are not deleted. Its
    /// revision is stored as 0.
    fn create_endpoint(
        &self,
        now: Timestamp,
        endpoint: Endpoint,
        at_most: u32,
    ) -> Answer<Insertion>;

    /// Changes how an endpoint is configured, if its revision is still `endpoint.revision`. Its tenant
    /// and its time of creation stay.
    fn replace_endpoint(&self, now: Timestamp, endpoint: Endpoint) -> Answer<Replaced>;

    /// An endpoint, deleted ones too.
    fn endpoint(&self, endpoint: EndpointId) -> Answer<Option<EndpointRow>>;

    /// The endpoints of a tenant that are not deleted.
    fn endpoints(
        &self,
        tenant: TenantId,
        page: PageRequest<EndpointId>,
    ) -> Answer<Page<EndpointRow, EndpointId>>;

    /// Endpoints, of one tenant or of all, that somebody should look at, at most `limit`: the newest first
    /// of those that are tripped or that posthaste has disabled, then of those that are paused, so that
    /// however many are paused, they hide none that fails. One that a person has disabled is not among
    /// them. Costs a look at each of them, and none at the others.
    fn troubled(&self, tenant: Option<TenantId>, limit: usize) -> Answer<Vec<EndpointRow>>;

    /// Writes down how an endpoint stands, and its health if that is newer. A deleted endpoint stays
    /// deleted. Says false if there is no such endpoint.
    ///
    /// From then on events make deliveries for it, or do not: an enabled or paused endpoint gets one of
    /// each event it wants, a disabled or deleted one none.
    ///
    /// Where nodes share the store, only the endpoint's owner may write that down: another is refused.
    fn set_standing(
        &self,
        now: Timestamp,
        endpoint: EndpointId,
        standing: Standing,
        reason: Option<DisabledReason>,
        health: Option<Health>,
    ) -> Answer<bool>;

    // Events.

    /// Accepts events of one tenant, all or none: stores each with one delivery for each endpoint that
    /// wants it, or finds it by its idempotency key. Of two in one list with the same key, the second
    /// is judged against the first.
    fn accept(&self, now: Timestamp, events: Vec<NewEvent>) -> Answer<Ingest> {
        self.accept_within(now, events, Allowance::UNLIMITED)
    }

    /// The same, if those that are not found fit into what the tenant is allowed, together with all that were accepted for it
    /// before, on whichever node: exactly, but that a process which begins with a file of its own knows nothing of the
    /// second before. They are counted whether they are limited or not.
    fn accept_within(
        &self,
        now: Timestamp,
        events: Vec<NewEvent>,
        allowance: Allowance,
    ) -> Answer<Ingest>;

    /// How much a tenant uses of what it is allowed, over all nodes, in the month that `now` is in.
    fn usage(&self, now: Timestamp, tenant: TenantId) -> Answer<Option<Usage>>;

    /// An event.
    fn event(&self, tenant: TenantId, event: EventId) -> Answer<Option<StoredEvent>>;

    /// Events of a tenant.
    fn events(
        &self,
        tenant: TenantId,
        filter: EventFilter,
        page: PageRequest<EventId>,
    ) -> Answer<Page<StoredEvent, EventId>>;

    /// What an event carries and when it was accepted, for sending it; nothing if what it carried has been removed.
    fn content(&self, event: EventId) -> Answer<Option<(Timestamp, Arc<Content>)>>;

    // Deliveries.

    /// A delivery, and its attempts in order.
    fn delivery(
        &self,
        tenant: TenantId,
        delivery: DeliveryId,
    ) -> Answer<Option<(StoredDelivery, Vec<AttemptEntry>)>>;

    /// Deliveries of a tenant.
    fn deliveries(
        &self,
        tenant: TenantId,
        filter: DeliveryFilter,
        page: PageRequest<DeliveryId>,
    ) -> Answer<Page<StoredDelivery, DeliveryId>>;

    /// The dead letters of a tenant by endpoint and cause, of one endpoint or of all, deleted ones too: the
    /// endpoint with the greatest id first, and of each the causes in the order of their kinds, those
    /// without a kind last. A group is counted up to [`MAX_COUNTED`](crate::MAX_COUNTED).
    ///
    /// Costs a look at each endpoint on the way and some for each group, however many dead letters there
    /// are.
    fn dead_groups(
        &self,
        tenant: TenantId,
        endpoint: Option<EndpointId>,
        page: PageRequest<DeadGroupKey>,
    ) -> Answer<Page<DeadGroup, DeadGroupKey>>;

    /// Asks for another attempt by hand: one that waits is due now, one that has ended begins all over, if what it
    /// carries is still there.
    fn retry(&self, now: Timestamp, tenant: TenantId, delivery: DeliveryId) -> Answer<Retried>;

    /// Writes down what became of a delivery, with its attempt, its endpoint's health and standing, and
    /// the news about it. `detail` is what the sender knows of an attempt.
    fn record(&self, now: Timestamp, record: Record, detail: AttemptDetail, done: Done<Written>);

    // Work.

    /// Every endpoint for which something waits, and when the earliest of it is due. Reads none of the
    /// deliveries themselves.
    fn unfinished_work(&self) -> Answer<Vec<(EndpointId, Timestamp)>>;

    /// What waits for an endpoint and is due by `due_by`, the earliest first, at most `limit`; and of
    /// the rest, when the earliest is due. If `ordered`, of each ordering key only the delivery with
    /// the least id that has not ended, and whether others wait behind one.
    fn fetch(
        &self,
        endpoint: EndpointId,
        due_by: Timestamp,
        limit: usize,
        ordered: bool,
    ) -> Answer<Fetched>;

    /// Fails at most `limit` of the deliveries that wait for an endpoint, but for `except`.
    fn sweep(
        &self,
        now: Timestamp,
        endpoint: EndpointId,
        reason: DeadReason,
        except: Arc<[DeliveryId]>,
        limit: usize,
    ) -> Answer<Swept>;

    // Replays.

    /// Begins a replay and counts what it will send: what matches now. Costs a look at each candidate.
    fn create_replay(
        &self,
        now: Timestamp,
        tenant: TenantId,
        filter: ReplayFilter,
    ) -> Answer<Replay>;

    /// Sets the next `limit` deliveries of a running replay going. Each is set going once, however often
    /// it ends in the meantime. One to an endpoint that is disabled or deleted is passed over and
    /// counted, and so is one that no longer is as it was asked for, since somebody has sent it again, and one of
    /// which it or what it carried has been removed.
    /// The last step says that the replay is done.
    fn step_replay(
        &self,
        now: Timestamp,
        replay: ReplayId,
        limit: usize,
    ) -> Answer<Option<ReplayStep>>;

    /// Stops a replay, if it is still running, and says what it is then.
    fn cancel_replay(
        &self,
        now: Timestamp,
        tenant: TenantId,
        replay: ReplayId,
    ) -> Answer<Option<Replay>>;

    /// A replay.
    fn replay(&self, tenant: TenantId, replay: ReplayId) -> Answer<Option<Replay>>;

    /// Replays of a tenant.
    fn replays(
        &self,
        tenant: TenantId,
        page: PageRequest<ReplayId>,
    ) -> Answer<Page<Replay, ReplayId>>;

    /// Replays of all tenants that are running.
    fn running_replays(&self) -> Answer<Vec<ReplayId>>;

    // Figures and housekeeping.

    /// How much there is, over all nodes. Costs next to nothing, however much that is.
    fn counts(&self) -> Answer<Counts>;

    /// How many deliveries wait for an endpoint. Costs as little.
    fn pending(&self, endpoint: EndpointId) -> Answer<u64>;

    /// How many deliveries, of one tenant or of all, have been waiting for another attempt since before
    /// `since`; counts no further than `limit`.
    fn retrying_since(
        &self,
        tenant: Option<TenantId>,
        since: Timestamp,
        limit: usize,
    ) -> Answer<u64>;

    /// Removes what has been finished for as long as its tenant, its plan or the server keeps it: events with all their
    /// deliveries, of others what they carried, all attempts but the last, and replays. Also passes whose time is up,
    /// figures that were kept for [long enough](crate::Width::kept), entries of the audit older than
    /// [`AUDIT_KEPT`](crate::AUDIT_KEPT), and alerts that were resolved before [`ALERTS_KEPT`](crate::ALERTS_KEPT). One
    /// small step; steps go round through all that is stored.
    ///
    /// An event goes, and what it carried goes, when its last delivery has ended that long ago; attempts when their own
    /// delivery has.
    fn tidy(&self, now: Timestamp, retention: Retention) -> Answer<Tidied>;

    /// Whether it can write: an empty transaction, all the way to the disk.
    fn probe(&self, now: Timestamp) -> Answer<()>;

    /// Writes what is still to be written, and closes. Everything after that is [`StoreError::Closed`].
    fn close(&self) -> Answer<()>;

    /// The other nodes on it, if it can be shared.
    fn cluster(&self) -> Option<Arc<dyn Cluster>> {
        None
    }

    /// Where it is, if it is a file on this machine.
    fn path(&self) -> Option<&Path>;
}
