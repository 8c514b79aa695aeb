//! The context of a write transaction: [`WriteContext`], and the side effects that are written with it.
//!
//! A cold operation first takes what it relies on, in this order: [`WriteContext::plan_directory_change`],
//! [`WriteContext::lock_directory_last`] or [`WriteContext::lock_directory`] if it changes tenants, endpoints or keys,
//! [`WriteContext::lock_directory_shared`] if it routes by them, [`WriteContext::guard`] if only the owner may do it. Then it reads through [`WriteContext::conn`],
//! and registers writes ([`WriteContext::write_last`]) and side effects ([`WriteContext::change`],
//! [`WriteContext::count`], [`WriteContext::notify_work`]), which are sent in one round trip with the commit (see
//! `commit`). So other nodes never wait for a lock of this one during its round trips, however slow its link is.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use posthaste_core::delivery::Delivery;
use posthaste_core::id::{EndpointId, IdGenerator, TenantId};
use posthaste_core::time::{Month, Timestamp};

use rustc_hash::FxHashMap;

use super::commit::LastStatements;
use super::count_changes::CountChanges;
use super::notify::NewWork;
use super::owned_shards::{OwnedShards, Ownership};
use super::routing_table::{RoutingTable, TenantRoutes};
use super::stats;
use super::writer_role::WriterRole;
use crate::codes::RowStatus;
use crate::postgres::connection::PgConnection;
use crate::postgres::db_error::DbError;
use crate::postgres::read::due_watermarks::DueWatermarks;
use crate::postgres::retention::run::RunProgress;
use crate::postgres::round_trips::RoundTripLog;
use crate::postgres::schema::delivery_rows::DeliveryRow;
use crate::postgres::schema::lock;
use crate::postgres::schema::partitions::{Day, Partitions};
use crate::postgres::shared::RequiredSchema;
use crate::stats::{CountedScopes, StatChanges, of_dead_letter};
use crate::{Change, StoreSettings};

/// The state of one writer that operations use.
pub(in crate::postgres) struct WriteContext {
    /// The writer's connection.
    pub(in crate::postgres) conn: Rc<PgConnection>,
    /// The routing table. Exact once the directory is locked, shared or exclusively.
    pub(in crate::postgres) routes: RoutingTable,
    /// The id generator. All writers share it, so ids grow in the order in which this node assigns them.
    pub(in crate::postgres) id_generator: Rc<RefCell<IdGenerator>>,
    pub(in crate::postgres) settings: StoreSettings,
    pub(in crate::postgres) owned_shards: Arc<OwnedShards>,
    /// Says what every node can read.
    pub(in crate::postgres) required_schema: RequiredSchema,
    pub(in crate::postgres) due_watermarks: Arc<DueWatermarks>,
    pub(in crate::postgres) partitions: Partitions,
    /// The scopes that deliveries to an endpoint are counted in, with the endpoint's number, by its id. They never
    /// change.
    pub(in crate::postgres) counted_scopes: FxHashMap<EndpointId, CountedScopes<i64>>,
    /// The clock skews of event ids and of delivery ids that are known to be stored (see `clock_skew`).
    pub(in crate::postgres) clock_skews: (i64, i64),
    pub(in crate::postgres) effects: SideEffects,
    pub(in crate::postgres) cache: WriterCache,
    /// Size from which a day's partition is dropped instead of deleted row by row.
    pub(in crate::postgres) large_day_bytes: u64,
    /// Durations of records, for the membership.
    pub(in crate::postgres) round_trips: Arc<RoundTripLog>,
    /// Statements to send with the commit.
    pub(in crate::postgres) last: LastStatements,
    /// The role of the writer.
    pub(in crate::postgres) role: WriterRole,
}

/// State of the writer that may be wrong without harm.
#[derive(Debug, Default)]
pub(in crate::postgres) struct WriterCache {
    /// Progress of the retention run.
    pub(in crate::postgres) retention_progress: RunProgress,
    /// The last origin endpoint that was examined for deliveries; 0 if it was the last one stored.
    pub(super) origins_up_to: i64,
    /// The month in which the usage of old months was last deleted.
    pub(super) forgot_in: Option<Month>,
}

/// Side effects of a transaction, besides its rows.
#[derive(Debug, Default)]
pub(in crate::postgres) struct SideEffects {
    /// Changes of the counts of waiting and failed deliveries.
    pub(in crate::postgres) count_changes: CountChanges,
    /// Counters that the operation adds to the stats.
    pub(in crate::postgres) stats: StatChanges<i64>,
    /// Entries for the change log.
    pub(in crate::postgres) changes: Vec<Change>,
    /// Endpoints that have new work.
    pub(in crate::postgres) work: NewWork,
    /// Progress of the retention run, if this transaction is a step of one.
    pub(in crate::postgres) retention_progress: Option<RunProgress>,
}

/// Checks the directory version and the ownership that a transaction relies on.
pub(super) const GUARD: &str = "SELECT guard($1, $2, $3, $4)";

/// Locks the directory exclusively until the end of the transaction. A node that freezes or is cut off meanwhile is
/// disconnected after two seconds, because the accepts of all nodes wait.
pub(super) const LOCK_DIRECTORY: &str = "SELECT set_config('idle_in_transaction_session_timeout', '2000', true), \
     pg_advisory_xact_lock($1)";

impl WriteContext {
    /// Locks the directory exclusively and brings the routing table up to date. Until the commit no other transaction
    /// changes the directory or routes events by it. Must be the first lock of a transaction, so that no other
    /// transaction waits for locks that this one holds while it waits for the directory.
    pub(in crate::postgres) async fn lock_directory(&mut self) -> Result<(), DbError> {
        self.conn
            .execute(LOCK_DIRECTORY, &[&lock::DIRECTORY])
            .await?;
        self.routes.refresh(&self.conn, &self.settings).await
    }

    /// Locks the directory against changes until the commit, and brings the routing table up to date.
    pub(super) async fn lock_directory_shared(&mut self) -> Result<(), DbError> {
        let sql = "SELECT pg_advisory_xact_lock_shared($1)";
        self.conn.execute(sql, &[&lock::DIRECTORY]).await?;
        self.routes.refresh(&self.conn, &self.settings).await
    }

    /// Returns true if the directory is checked with the commit, and is not locked now.
    pub(super) fn plans_directory_change(&self) -> bool {
        self.last.directory.is_some()
    }

    /// Checks that this node owns the endpoint, and keeps it so until the commit. Otherwise the operation ends with
    /// its answer for a lost ownership.
    pub(super) async fn guard(&self, endpoint: EndpointId) -> Result<(), DbError> {
        self.guard_ownership(self.owned_shards.ownership(endpoint))
            .await
    }

    /// The same for an ownership at an earlier time. Fails if that ownership has ended, even if this node owns the
    /// shard again.
    pub(in crate::postgres) async fn guard_ownership(
        &self,
        ownership: Ownership,
    ) -> Result<(), DbError> {
        let me = Some(ownership.me.0 as i64);
        let held = vec![ownership.shard.number() as i16];
        let epochs = vec![ownership.epoch.unwrap_or(-1)];
        self.conn
            .execute(GUARD, &[&None::<i64>, &me, &held, &epochs])
            .await?;
        Ok(())
    }

    /// The same, together with the commit.
    pub(in crate::postgres) fn guard_ownership_last(&mut self, ownership: Ownership) {
        let me = Some(ownership.me.0 as i64);
        let held = vec![ownership.shard.number() as i16];
        let epochs = vec![ownership.epoch.unwrap_or(-1)];
        self.write_last(GUARD, move |conn| async move {
            conn.execute(GUARD, &[&None::<i64>, &me, &held, &epochs])
                .await?;
            Ok(())
        });
    }

    /// The slot in which this writer counts. The writers of a node have different slots, so they never wait for each
    /// other.
    pub(in crate::postgres) fn slot(&self) -> i16 {
        self.owned_shards.slot(self.role)
    }

    /// Returns a tenant, unless it is deleted.
    pub(super) fn tenant(&self, tenant: &TenantId) -> Option<Arc<TenantRoutes>> {
        self.routes.tenant(tenant).cloned()
    }

    /// Returns a number that no tenant or endpoint has had. The caller must hold the directory exclusively.
    pub(super) async fn next_number(&self) -> Result<i64, DbError> {
        let sql = "UPDATE directory SET last_no = last_no + 1 RETURNING last_no";
        Ok(self.conn.query_one(sql, &[]).await?.get(0))
    }

    /// Registers an entry for the change log. The caller must hold the directory exclusively.
    pub(in crate::postgres) fn change(&mut self, change: Change) {
        self.effects.changes.push(change);
    }

    /// Registers that a delivery of an endpoint changed from one status to another.
    pub(in crate::postgres) fn count(
        &mut self,
        endpoint_no: i64,
        before: Option<RowStatus>,
        after: Option<RowStatus>,
    ) {
        self.effects.count_changes.count(endpoint_no, before, after);
    }

    /// Registers a delivery that was dead-lettered without an attempt, for the stats.
    pub(in crate::postgres) async fn count_dead_letter(
        &mut self,
        row: &DeliveryRow,
        after: &Delivery,
    ) -> Result<(), DbError> {
        if let Some((at, counters)) = of_dead_letter(after) {
            let scopes = self.scopes_of(row.endpoint_no, row.tenant_no).await?;
            self.effects.stats.add(at, scopes, &counters);
        }
        Ok(())
    }

    /// Returns the scopes that deliveries to an endpoint of a tenant are counted in.
    pub(super) async fn scopes_of(
        &self,
        endpoint_no: i64,
        tenant_no: i64,
    ) -> Result<CountedScopes<i64>, DbError> {
        let is_operational = match &self.settings.operational_tenant {
            None => false,
            Some(operational) => {
                let sql = "SELECT 1 FROM tenants WHERE no = $1 AND id = $2";
                let operational = operational.as_str();
                let found = self
                    .conn
                    .query_opt(sql, &[&tenant_no, &operational])
                    .await?;
                found.is_some()
            }
        };
        Ok(CountedScopes {
            everything: (!is_operational).then_some(stats::EVERYTHING),
            tenant: tenant_no,
            endpoint: endpoint_no,
        })
    }

    /// Registers that a delivery is due at an endpoint, so that the owner is notified.
    pub(super) fn notify_work(&mut self, endpoint: EndpointId, due: Timestamp) {
        self.effects.work.add(endpoint, due);
    }

    /// Creates the partitions for rows that are inserted now. Call before the first such insert.
    pub(in crate::postgres) async fn make_partitions(
        &mut self,
        now: Timestamp,
    ) -> Result<(), DbError> {
        // Ids never go back, so an id may be ahead of the time at which it is made.
        let ahead: u128 = self.id_generator.borrow().clone().next(now);
        self.partitions.make(&self.conn, Day::of(ahead)).await
    }

    /// Sets a number in the table `meta`.
    pub(in crate::postgres) fn set_number(&mut self, name: &'static str, value: i64) {
        let sql = "UPDATE meta SET value = $2 WHERE name = $1";
        self.write_last(sql, move |conn| async move {
            conn.execute(sql, &[&name, &value]).await?;
            Ok(())
        });
    }

    /// Applies the side effects to memory after the commit.
    pub(super) fn apply_effects(&mut self) {
        let effects = std::mem::take(&mut self.effects);
        self.partitions.settle();
        if !effects.changes.is_empty() {
            self.routes.mark_stale();
        }
        for (endpoint, due) in effects.work.iter() {
            self.due_watermarks.lower(endpoint, due);
        }
        if let Some(progress) = effects.retention_progress {
            self.cache.retention_progress = progress;
        }
    }

    /// Drops cached state after a reconnect. The new connection may lead to another server that lacks the last
    /// commits of the old one, so nothing that was read before is valid. Clearing the due watermarks also finds
    /// deliveries whose commit was never confirmed.
    pub(super) fn reset_caches(&mut self) {
        self.routes.forget();
        self.counted_scopes.clear();
        self.clock_skews = (0, 0);
        self.partitions.forget();
        self.due_watermarks.forget();
    }

    /// Drops the side effects after a rollback.
    pub(super) fn discard_effects(&mut self) {
        self.effects = SideEffects::default();
        self.last.clear();
        self.partitions.rolled_back();
    }
}
