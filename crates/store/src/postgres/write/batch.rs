//! Writes a batch of hot operations with a few statements.
//!
//! [`Batch`] collects accepts and records. The writer plans a batch in memory and sends it as one pipeline: a guard,
//! one array statement for each kind of row, the commit. The guard and the statements check everything that the plan
//! relies on. If a check fails, the transaction is aborted and the batch is planned again with the new information.
//! Limited tenants never share a batch with others (see `usage`).

use posthaste_core::id::{DeliveryId, EndpointId, TenantId};
use posthaste_core::time::Month;
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::time::Instant;

use super::accept::{self, AcceptedRows, PlanContext, StoredEvents};
use super::advances;
use super::batch_statements::BatchStatements;
use super::count_changes::CountChanges;
use super::operation::{AcceptOperation, AdvanceOperation, RecordOperation};
use super::owned_shards::Ownership;
use super::record::RecordedRows;
use super::stats::{self, ChangeColumns};
use super::usage::UsageMeters;
use super::write_context::{GUARD, WriteContext};
use super::writer::{MAX_TRIES, RETRY_TIMEOUT, Writer};
use crate::postgres::connection::{NotConnected, PgConnection, QUICK_ANSWER_TIMEOUT};
use crate::postgres::db_error::{DbError, ErrorKind};
use crate::postgres::pipeline::Pipeline;
use crate::postgres::schema::columns::Id;
use crate::postgres::schema::partitions::Day;
use crate::stats::{CountedScopes, StatChanges, of_attempt};
use crate::{AcceptResult, HandedOver, ScheduleAdvance, StoreError, Written};

/// Number of batches that look up their idempotency keys first, after a batch met a key that was stored already.
const KEY_LOOKUP_BATCHES: u32 = 64;
/// Maximum number of endpoints whose scopes are cached.
const MAX_KNOWN_SCOPES: usize = 200_000;
/// After this number of directory changes during one batch, the batch locks the directory, so that the next change
/// waits for it.
pub(super) const MAX_OUTDATED: u32 = 3;
/// The scopes that endpoints are counted in, with their numbers.
type EndpointScopes = FxHashMap<EndpointId, CountedScopes<i64>>;

/// Hot operations that are written together.
#[derive(Default)]
pub(super) struct Batch {
    accepts: Vec<AcceptOperation>,
    records: Vec<RecordOperation>,
    recorded: FxHashSet<DeliveryId>,
    /// Records that are superseded: the delivery has changed, or this node does not own the shard any more.
    superseded: FxHashSet<DeliveryId>,
    /// Places of the decisions about schedules that are superseded, for the same reasons.
    superseded_advances: FxHashSet<usize>,
    /// Number of directory changes that made the plan of this batch invalid.
    outdated: u32,
}

impl Batch {
    /// Adds events to accept.
    pub(super) fn accept(&mut self, accepting: AcceptOperation) {
        self.accepts.push(accepting);
    }

    /// Returns whether the batch has an attempt of the same delivery. The second attempt must be written after the
    /// first.
    pub(super) fn records_already(&self, recording: &RecordOperation) -> bool {
        self.recorded.contains(&recording.attempt.delivery.id())
    }

    /// Returns whether the batch has a decision about the same schedule. The second decision must be written after the
    /// first.
    pub(super) fn advances_already(&self, accepting: &AcceptOperation) -> bool {
        let Some(second) = &accepting.advance else {
            return false;
        };
        let key = |it: &AdvanceOperation| (it.advance.tenant.clone(), it.advance.schedule.clone());
        let key_of_second = key(second);
        let firsts = self.accepts.iter().filter_map(|it| it.advance.as_deref());
        firsts.map(key).any(|key| key == key_of_second)
    }

    /// Returns the decisions about schedules that are not superseded, with their places.
    pub(super) fn current_advances(&self) -> impl Iterator<Item = (usize, &ScheduleAdvance)> {
        let late = &self.superseded_advances;
        let places = self.accepts.iter().enumerate();
        let advances =
            places.filter_map(|(place, it)| Some((place, &it.advance.as_ref()?.advance)));
        advances.filter(move |(place, _)| !late.contains(place))
    }

    /// Returns whether the first operation is a decision about a schedule.
    pub(super) fn is_advance(&self) -> bool {
        self.accepts.first().is_some_and(|it| it.advance.is_some())
    }

    /// Marks the decision at this place as superseded.
    pub(super) fn supersede(&mut self, place: usize) {
        self.superseded_advances.insert(place);
    }

    /// Returns the ownerships that the batch relies on.
    fn ownerships(&self) -> impl Iterator<Item = Ownership> {
        let records = self.current().map(|it| it.ownership);
        let advances = self.accepts.iter().enumerate();
        let advances = advances.filter(|(place, _)| !self.superseded_advances.contains(place));
        let advances = advances.filter_map(|(_, it)| it.advance.as_ref()?.ownership);
        records.chain(advances)
    }

    /// Adds an attempt.
    pub(in crate::postgres) fn record(&mut self, recording: RecordOperation) {
        self.recorded.insert(recording.attempt.delivery.id());
        self.records.push(recording);
    }

    /// The requests to accept events.
    pub(super) fn accepts(&self) -> &[AcceptOperation] {
        &self.accepts
    }

    /// The tenant of the first event.
    pub(super) fn tenant(&self) -> Option<&TenantId> {
        self.accepts.first()?.tenant()
    }

    /// Returns whether the batch has no operations.
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn len(&self) -> usize {
        self.accepts.len() + self.records.len()
    }

    /// Answers all operations with an error. If the connection was lost during the commit, they may have been
    /// committed all the same.
    pub(in crate::postgres) fn refuse(self, why: &StoreError) {
        for accepting in self.accepts {
            accepting.reply.send(Err(why.clone()));
        }
        for recording in self.records {
            recording.reply.send(Err(why.clone()));
        }
    }

    /// Answers all operations after the commit.
    pub(super) fn answer(self, ingests: Vec<AcceptResult>) {
        for (place, (accepting, ingest)) in self.accepts.into_iter().zip(ingests).enumerate() {
            if self.superseded_advances.contains(&place) {
                accepting.reply.supersede();
            } else {
                accepting.reply.send(Ok(ingest));
            }
        }
        for recording in self.records {
            let late = self.superseded.contains(&recording.attempt.delivery.id());
            recording.reply.send(Ok(if late {
                Written::Superseded
            } else {
                Written::Applied
            }));
        }
    }

    /// Splits the batch into batches of one operation each.
    fn one_by_one(self) -> Vec<Batch> {
        let mut singles = Vec::new();
        for accepting in self.accepts {
            let mut single = Batch::default();
            single.accept(accepting);
            singles.push(single);
        }
        for recording in self.records {
            let mut single = Batch::default();
            single.record(recording);
            singles.push(single);
        }
        singles
    }

    /// Returns whether an answer could be wrong because an event is already stored under its idempotency key. This
    /// concerns requests that the plan refuses: nothing of them is inserted, so no statement would detect the stored
    /// key.
    fn may_be_stored(&self, answers: &[AcceptResult]) -> bool {
        let keyed =
            |it: &AcceptOperation| it.events.iter().any(|event| event.idempotency.is_some());
        let mut answered = self.accepts.iter().zip(answers);
        answered.any(|(accepting, answer)| match answer {
            AcceptResult::Conflict(_)
            | AcceptResult::NoSuchEndpoint
            | AcceptResult::TooManyDeliveries { .. }
            | AcceptResult::OverLimit { .. } => keyed(accepting),
            AcceptResult::Done(_) | AcceptResult::NoSuchTenant => false,
        })
    }

    /// Returns the records that are not superseded.
    fn current(&self) -> impl Iterator<Item = &RecordOperation> {
        let late = &self.superseded;
        let records = self.records.iter();
        records.filter(move |it| !late.contains(&it.attempt.delivery.id()))
    }

    fn drop_if(&mut self, late: impl Fn(&RecordOperation) -> bool) {
        for recording in &self.records {
            if late(recording) {
                self.superseded.insert(recording.attempt.delivery.id());
            }
        }
    }

    fn drop_advances_if(&mut self, late: impl Fn(Ownership) -> bool) {
        for (place, accepting) in self.accepts.iter().enumerate() {
            let advance = accepting.advance.as_ref();
            if advance.and_then(|it| it.ownership).is_some_and(&late) {
                self.superseded_advances.insert(place);
            }
        }
    }
}

impl Writer {
    /// Writes a batch, and answers all its operations. Fails if the database cannot be reached.
    pub(super) async fn write_batch(&mut self, mut batch: Batch) -> Result<(), NotConnected> {
        if batch.is_empty() {
            return Ok(());
        }
        let until = Instant::now() + RETRY_TIMEOUT;
        let mut blocked = false;
        for _ in 0..MAX_TRIES {
            if blocked && Instant::now() >= until {
                break;
            }
            if let Err(failed) = self.connect().await {
                self.context.round_trips.add_unwritten(batch.records.len());
                batch.refuse(&failed.why);
                return Err(failed);
            }
            self.context.conn.set_time_limit(QUICK_ANSWER_TIMEOUT);
            let fault = match self.try_batch(&mut batch).await {
                Ok((ingests, handed_over)) => {
                    if !handed_over.is_empty() {
                        self.hand_over.accepted(handed_over);
                    }
                    let month = batch.accepts.last().map(|it| Month::of(it.now));
                    batch.answer(ingests);
                    self.delete_old_usage(month).await;
                    return Ok(());
                }
                Err(fault) => fault,
            };
            self.roll_back(&fault).await;
            let kind = fault.kind();
            blocked = kind == ErrorKind::Blocked;
            let again = match kind {
                ErrorKind::Outdated => {
                    batch.outdated += 1;
                    self.context.routes.mark_stale();
                    Ok(())
                }
                ErrorKind::Duplicate => {
                    self.key_lookups = KEY_LOOKUP_BATCHES;
                    Ok(())
                }
                ErrorKind::Blocked | ErrorKind::NoPartition | ErrorKind::Unprepared => Ok(()),
                ErrorKind::Fenced => {
                    self.context.owned_shards.report_fenced();
                    drop_lost_shards(&self.context, &mut batch).await
                }
                ErrorKind::Superseded => drop_superseded(&self.context, &mut batch).await,
                ErrorKind::Lost | ErrorKind::Refused => Err(fault),
            };
            match again {
                Ok(()) => {}
                Err(fault) if fault.kind() == ErrorKind::Lost || batch.len() == 1 => {
                    if fault.kind() == ErrorKind::Lost {
                        self.context.round_trips.add_unwritten(batch.records.len());
                    }
                    batch.refuse(&fault.into_store_error());
                    return Ok(());
                }
                Err(_) => break,
            }
        }
        // A lock that blocks the whole batch blocks each of its operations too.
        if batch.len() == 1 || blocked {
            let why = "lock timeout".to_owned();
            batch.refuse(&StoreError::Unavailable(why));
            return Ok(());
        }
        // One of the operations is at fault, and only that one must fail.
        let mut singles = batch.one_by_one().into_iter();
        while let Some(single) = singles.next() {
            if let Err(failed) = Box::pin(self.write_batch(single)).await {
                singles.for_each(|rest| rest.refuse(&failed.why));
                return Err(failed);
            }
        }
        Ok(())
    }

    /// Plans a batch and commits it.
    async fn try_batch(
        &mut self,
        batch: &mut Batch,
    ) -> Result<(Vec<AcceptResult>, Vec<HandedOver>), DbError> {
        let conn = self.context.conn.clone();
        let mut begun = false;
        if batch.outdated >= MAX_OUTDATED {
            conn.batch("BEGIN").await?;
            begun = true;
            // Takes the quota locks before the directory lock, so that a transaction that waits for a quota lock
            // never blocks the one that holds it. The locks are taken again below, which has no effect.
            UsageMeters::hold(&conn, begun, &self.context.routes, &batch.accepts).await?;
            self.context.lock_directory_shared().await?;
        } else if self.context.routes.is_stale() {
            self.context
                .routes
                .refresh(&conn, &self.context.settings)
                .await?;
        }
        let owned_shards = self.context.owned_shards.clone();
        batch.drop_if(|it| !owned_shards.is_current(it.ownership));
        batch.drop_advances_if(|ownership| !owned_shards.is_current(ownership));
        let mut known = self.known_keys(&conn, batch).await?;
        let scopes = self.counted_scopes(&conn, batch).await?;
        let held = UsageMeters::hold(&conn, begun, &self.context.routes, &batch.accepts).await?;
        begun |= held.is_some();
        let meters = held.unwrap_or_default();
        let plan = loop {
            let is_looked_up = known.is_some();
            let known_now = known.unwrap_or_default();
            let plan = plan(&mut self.context, batch, &scopes, known_now, meters.clone());
            if is_looked_up || !batch.may_be_stored(&plan.accepted.answers) {
                break plan;
            }
            known = Some(accept::look_up(&conn, &self.context.routes, &batch.accepts).await?);
        };
        if make_partitions(&mut self.context, &plan.accepted, begun).await? {
            // The rollback released the quota locks, so another node may have changed the quotas since.
            return Box::pin(self.try_batch(batch)).await;
        }
        let began = Instant::now();
        commit(&self.context, batch, &plan, begun).await?;
        let round_trips = &self.context.round_trips;
        round_trips.add_written(batch.records.len(), began);
        let mut accepted = plan.accepted;
        let due_watermarks = &self.context.due_watermarks;
        for it in batch.current() {
            if let Some(due) = it.attempt.delivery.next_attempt_at() {
                due_watermarks.lower(it.attempt.delivery.facts().endpoint, due);
            }
        }
        let answers = std::mem::take(&mut accepted.answers);
        Ok((answers, apply_accepted(&mut self.context, accepted)))
    }

    /// Returns the events that are stored under the idempotency keys of a batch, if there probably are some.
    async fn known_keys(
        &mut self,
        conn: &PgConnection,
        batch: &Batch,
    ) -> Result<Option<StoredEvents>, DbError> {
        if self.key_lookups == 0 || batch.accepts.is_empty() {
            return Ok(None);
        }
        self.key_lookups -= 1;
        let known = accept::look_up(conn, &self.context.routes, &batch.accepts).await?;
        Ok(Some(known))
    }

    /// Returns the scopes that the endpoints of all records are counted in, with the numbers of the endpoints. They
    /// never change.
    async fn counted_scopes(
        &mut self,
        conn: &PgConnection,
        batch: &Batch,
    ) -> Result<EndpointScopes, DbError> {
        let known = &mut self.context.counted_scopes;
        let mut found = EndpointScopes::default();
        let mut missing: Vec<Id> = Vec::new();
        for it in batch.current() {
            let endpoint = it.attempt.delivery.facts().endpoint;
            match known.get(&endpoint) {
                Some(scopes) => {
                    found.insert(endpoint, *scopes);
                }
                None => missing.push(Id(endpoint.0)),
            }
        }
        if missing.is_empty() {
            return Ok(found);
        }
        if known.len() >= MAX_KNOWN_SCOPES {
            known.clear();
        }
        let operational = self.context.settings.operational_tenant.as_ref();
        let sql = "SELECT e.id, e.no, t.no, t.id FROM endpoints e JOIN tenants t ON t.no = e.tenant_no \
                   WHERE e.id = ANY ($1)";
        for row in conn.query(sql, &[&missing]).await? {
            let endpoint = EndpointId(row.get::<_, Id>(0).0);
            let tenant: &str = row.get(3);
            let is_operational = operational.is_some_and(|it| it.as_str() == tenant);
            let scopes = CountedScopes {
                everything: (!is_operational).then_some(stats::EVERYTHING),
                tenant: row.get(2),
                endpoint: row.get(1),
            };
            known.insert(endpoint, scopes);
            found.insert(endpoint, scopes);
        }
        if missing
            .iter()
            .any(|id| !found.contains_key(&EndpointId(id.0)))
        {
            return Err(DbError::Corrupt(
                "a record is about an endpoint that never was".to_owned(),
            ));
        }
        Ok(found)
    }
}

/// The rows of a batch.
pub(super) struct BatchPlan<'a> {
    pub(super) accepted: AcceptedRows<'a>,
    pub(super) recorded: RecordedRows,
    pub(super) count_changes: CountChanges,
    pub(super) stats: Option<ChangeColumns>,
    pub(super) meters: UsageMeters,
}

/// Applies accepted events to memory after the commit. Returns the deliveries to hand over to this node.
pub(super) fn apply_accepted(
    context: &mut WriteContext,
    mut accepted: AcceptedRows<'_>,
) -> Vec<HandedOver> {
    let known = &mut context.clock_skews;
    known.0 = known.0.max(accepted.clock_skews.0);
    known.1 = known.1.max(accepted.clock_skews.1);
    for (endpoint, due) in accepted.work.iter() {
        context.due_watermarks.lower(endpoint, due);
    }
    accepted.own(|endpoint| context.owned_shards.owns(endpoint))
}

/// Turns a batch into rows.
pub(super) fn plan<'a>(
    context: &mut WriteContext,
    batch: &'a Batch,
    scopes: &EndpointScopes,
    known: StoredEvents,
    mut meters: UsageMeters,
) -> BatchPlan<'a> {
    let mut count_changes = CountChanges::default();
    let mut recorded = RecordedRows::default();
    let mut stats = StatChanges::default();
    let level = context.required_schema.level();
    for it in batch.current() {
        let scopes = scopes[&it.attempt.delivery.facts().endpoint];
        let endpoint_no = scopes.endpoint;
        let counters = of_attempt(&it.attempt, it.detail.latency);
        stats.add(it.attempt.settlement.finished_at, scopes, &counters);
        recorded.add(
            &mut count_changes,
            it.now,
            endpoint_no,
            &it.attempt,
            &it.detail,
            level,
        );
    }
    let mut accepted = AcceptedRows::default();
    let mut plan_context = PlanContext {
        routes: &context.routes,
        id_generator: &mut context.id_generator.borrow_mut(),
        count_changes: &mut count_changes,
        meters: &mut meters,
        max_deliveries: context.settings.max_deliveries_per_request,
        known,
    };
    for (place, accepting) in batch.accepts.iter().enumerate() {
        if batch.superseded_advances.contains(&place) {
            accepted.pass_over();
        } else {
            accepted.add(&mut plan_context, accepting);
        }
    }
    BatchPlan {
        accepted,
        recorded,
        count_changes,
        stats: ChangeColumns::of(stats),
        meters,
    }
}

/// Creates the partitions for the new rows. Returns whether this ended a transaction that was `begun` before.
pub(super) async fn make_partitions(
    context: &mut WriteContext,
    accepted: &AcceptedRows<'_>,
    begun: bool,
) -> Result<bool, DbError> {
    let missing = |day: &&Day| !context.partitions.has(**day);
    let missing: Vec<Day> = accepted.days.iter().filter(missing).copied().collect();
    if missing.is_empty() {
        return Ok(false);
    }
    if begun {
        context.conn.batch("ROLLBACK").await?;
    }
    context.conn.batch("BEGIN").await?;
    for day in missing {
        context.partitions.make(&context.conn, day).await?;
    }
    context.conn.batch("COMMIT").await?;
    context.partitions.settle();
    Ok(begun)
}

/// Writes the plan in one transaction, sent as one pipeline.
async fn commit(
    context: &WriteContext,
    batch: &Batch,
    plan: &BatchPlan<'_>,
    begun: bool,
) -> Result<(), DbError> {
    let conn = &*context.conn;
    let statements = BatchStatements::of(context, plan);
    // Preparing a statement needs a round trip, so all statements are prepared before the pipeline starts.
    conn.prepare_all(&statements.sql()).await?;
    let mut pipeline = Pipeline::default();
    if !begun {
        pipeline.then(conn.batch("BEGIN"));
    }
    pipeline.then(guard(context, batch));
    statements.write_rows(conn, &mut pipeline);
    statements.write_effects(conn, &mut pipeline);
    pipeline.then(conn.batch("COMMIT"));
    pipeline.await
}

/// Checks what the plan relies on: the directory version if it routes events, this node's shards if it records
/// attempts.
pub(super) async fn guard(context: &WriteContext, batch: &Batch) -> Result<(), DbError> {
    let known = (!batch.accepts.is_empty()).then(|| context.routes.known());
    let mut held: FxHashMap<i16, i64> = FxHashMap::default();
    let mut me = None;
    // Checks the ownership of each record, not the present one: this node may have lost a shard and claimed it again
    // since.
    for ownership in batch.ownerships() {
        me = Some(ownership.me.0 as i64);
        held.insert(
            ownership.shard.number() as i16,
            ownership.epoch.unwrap_or(-1),
        );
    }
    let (shards, epochs): (Vec<i16>, Vec<i64>) = held.into_iter().unzip();
    context
        .conn
        .execute(GUARD, &[&known, &me, &shards, &epochs])
        .await?;
    Ok(())
}

/// Marks the records of shards that this node does not own according to the database as superseded.
async fn drop_lost_shards(context: &WriteContext, batch: &mut Batch) -> Result<(), DbError> {
    let me = context.owned_shards.me().0 as i64;
    let sql = "SELECT s.no, s.epoch FROM shards s JOIN nodes n ON n.no = s.owner WHERE n.no = $1";
    let rows = context.conn.query(sql, &[&me]).await?;
    let owned: FxHashMap<i16, i64> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let is_lost = |ownership: Ownership| {
        let Ownership { shard, epoch, .. } = ownership;
        epoch.is_none() || owned.get(&(shard.number() as i16)).copied() != epoch
    };
    batch.drop_if(|it| is_lost(it.ownership));
    batch.drop_advances_if(is_lost);
    Ok(())
}

/// Marks the records of deliveries that have changed since their attempts started as superseded, and the decisions about
/// schedules that have changed.
async fn drop_superseded(context: &WriteContext, batch: &mut Batch) -> Result<(), DbError> {
    let conn = &*context.conn;
    advances::drop_superseded(conn, &context.routes, batch).await?;
    let ids: Vec<Id> = batch
        .current()
        .map(|it| Id(it.attempt.delivery.id().0))
        .collect();
    let sql = "SELECT id, attempts FROM waiting WHERE id = ANY ($1)";
    let rows = conn.query(sql, &[&ids]).await?;
    let stored: FxHashMap<u128, i32> = rows
        .iter()
        .map(|row| (row.get::<_, Id>(0).0, row.get(1)))
        .collect();
    batch.drop_if(|it| {
        let facts = it.attempt.delivery.facts();
        stored.get(&facts.id.0).map(|attempts| attempts + 1) != Some(facts.attempts as i32)
    });
    Ok(())
}
