//! Concurrency shares: how many attempts of a limited tenant each node may have in flight.
//!
//! Nodes that ask for the same tenant take turns, and each asks for all its tenants together. Only nodes that are
//! still registered count. A share is therefore valid until the node asks again, or until its lease ends and with it
//! all its attempts. The shares use a connection of their own, so that they never wait for accepts and records, nor
//! the other way round.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::cluster::{NodeShare, ShareGrant, share as decide};
use posthaste_core::dispatcher::TenantDemand;
use rustc_hash::FxHashMap;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::postgres::connection::{Connector, PgConnection, QUICK_ANSWER_TIMEOUT};
use crate::postgres::db_error::{DbError, ErrorKind};
use crate::postgres::pipeline::Pipeline;
use crate::postgres::schema::lock;
use crate::postgres::settings::PostgresSettings;
use crate::postgres::write::owned_shards::OwnedShards;
use crate::reply::Reply;

/// Interval of deleting shares that no node or tenant needs any more.
const SWEEP: Duration = Duration::from_secs(60);

const NOTHING: ShareGrant = ShareGrant {
    slots: 0,
    usable: 0,
    fair: 0,
};

const NO_SHARE: NodeShare = NodeShare { slots: 0, wants: 0 };

/// Locks the shares of these tenants until the end of the transaction. All nodes lock in the same order, so they
/// cannot deadlock.
const HOLD: &str = "SELECT id, no, pg_advisory_xact_lock($1 + no) FROM \
    (SELECT id, no FROM tenants WHERE id = ANY ($2) AND NOT deleted ORDER BY no) AS t";

/// Reads the shares of all registered nodes. Every such node is among the rows.
const HELD: &str = "SELECT n.no, g.tenant_no, g.slots, g.wants FROM nodes n \
    LEFT JOIN grants g ON g.node = n.no AND g.tenant_no = ANY ($1)";

/// Writes the shares of this node.
const SET: &str = "INSERT INTO grants (tenant_no, node, slots, wants) \
    SELECT tenant_no, $4, slots, wants \
    FROM unnest($1::bigint[], $2::integer[], $3::integer[]) AS g (tenant_no, slots, wants) \
    ON CONFLICT (tenant_no, node) DO UPDATE SET slots = excluded.slots, wants = excluded.wants";

/// Deletes the shares that this node has given back.
const RELEASE_SHARES: &str = "DELETE FROM grants WHERE tenant_no = ANY ($1) AND node = $2";

/// Deletes the shares of nodes that are no longer registered, and of deleted tenants. Rows that another transaction
/// has locked are left for the next time.
const FORGET: &str = "DELETE FROM grants WHERE (tenant_no, node) IN (SELECT g.tenant_no, g.node FROM grants g \
    WHERE NOT EXISTS (SELECT 1 FROM nodes n WHERE n.no = g.node) \
    OR NOT EXISTS (SELECT 1 FROM tenants t WHERE t.no = g.tenant_no AND NOT t.deleted) \
    FOR UPDATE OF g SKIP LOCKED)";

/// A request of this node, and the caller that waits for the answer.
pub(super) struct ShareRequest {
    pub(super) demands: Vec<TenantDemand>,
    pub(in crate::postgres) reply: Reply<Vec<ShareGrant>>,
}

/// Answers requests one after the other. Connects when the first request arrives.
pub(in crate::postgres) async fn answer(
    owned_shards: Arc<OwnedShards>,
    settings: Rc<PostgresSettings>,
    mut questions: mpsc::UnboundedReceiver<ShareRequest>,
) {
    let mut connector = Connector::new(settings);
    let mut swept_at: Option<Instant> = None;
    while let Some(ShareRequest { demands, reply }) = questions.recv().await {
        let conn = match connector.conn().await {
            Ok(conn) => conn,
            Err(not_connected) => {
                reply.send(Err(not_connected.why));
                continue;
            }
        };
        conn.set_time_limit(QUICK_ANSWER_TIMEOUT);
        let me = owned_shards.me().0 as i64;
        let shared = match share(&conn, me, &demands).await {
            Ok((grants, gone)) if gone || swept_at.is_none_or(|at| at.elapsed() >= SWEEP) => {
                swept_at = Some(Instant::now());
                conn.execute(FORGET, &[]).await.map(|_| grants)
            }
            Ok((grants, _)) => Ok(grants),
            Err(fault) => Err(fault),
        };
        if let Err(fault) = &shared {
            let unfit = matches!(fault.kind(), ErrorKind::Lost | ErrorKind::Unprepared);
            if unfit || conn.batch("ROLLBACK").await.is_err() {
                connector.drop_connection();
            }
        }
        reply.send(shared.map_err(DbError::into_store_error));
    }
}

/// Computes and stores this node's shares. Also returns whether one of the tenants is deleted.
async fn share(
    conn: &PgConnection,
    me: i64,
    demands: &[TenantDemand],
) -> Result<(Vec<ShareGrant>, bool), DbError> {
    let numbers = lock_tenants(conn, demands).await?;
    let tenants: Vec<i64> = numbers.values().copied().collect();
    let mut lives = false;
    let mut others: FxHashMap<i64, Vec<NodeShare>> = FxHashMap::default();
    let mut mine: FxHashMap<i64, NodeShare> = FxHashMap::default();
    for row in conn.query(HELD, &[&tenants]).await? {
        let is_mine = row.get::<_, i64>(0) == me;
        lives |= is_mine;
        let Some(tenant) = row.get::<_, Option<i64>>(1) else {
            continue;
        };
        let share = NodeShare {
            slots: row.get::<_, i32>(2) as u32,
            wants: row.get::<_, i32>(3) as u32,
        };
        if is_mine {
            mine.insert(tenant, share);
        } else {
            others.entry(tenant).or_default().push(share);
        }
    }
    let mut grants = Vec::with_capacity(demands.len());
    let mut changes = Changes::default();
    for demand in demands {
        // A deleted tenant gets no share: no attempt starts any more, and those in flight finish. A node that is no
        // longer registered gets no share either.
        let Some(no) = numbers.get(demand.tenant.as_str()).filter(|_| lives) else {
            grants.push(NOTHING);
            continue;
        };
        let beside = others.get(no).map_or(&[][..], Vec::as_slice);
        let before = mine.get(no).copied().unwrap_or(NO_SHARE);
        let grant = decide(demand.most, before.slots, demand.ask, beside);
        let after = NodeShare {
            slots: grant.slots,
            wants: demand.ask.wants,
        };
        changes.note(*no, before, after);
        grants.push(grant);
    }
    changes.commit(conn, me).await?;
    Ok((grants, numbers.len() < demands.len()))
}

/// Begins a transaction and locks the tenants that exist. Returns their numbers.
async fn lock_tenants(
    conn: &PgConnection,
    demands: &[TenantDemand],
) -> Result<FxHashMap<String, i64>, DbError> {
    let names: Vec<&str> = demands
        .iter()
        .map(|demand| demand.tenant.as_str())
        .collect();
    let mut numbers = FxHashMap::default();
    let held = &mut numbers;
    conn.prepare_all(&[HOLD]).await?;
    let mut pipeline = Pipeline::default();
    pipeline.then(conn.batch("BEGIN"));
    pipeline.then(async {
        for row in conn
            .query(HOLD, &[&lock::CONCURRENCY_SHARES, &names])
            .await?
        {
            held.insert(row.get(0), row.get(1));
        }
        Ok(())
    });
    pipeline.await?;
    Ok(numbers)
}

/// Changes of this node's shares that must be written.
#[derive(Default)]
struct Changes {
    set: (Vec<i64>, Vec<i32>, Vec<i32>),
    given_back: Vec<i64>,
}

impl Changes {
    /// Adds a change. A share that stays the same is not written.
    fn note(&mut self, tenant_no: i64, before: NodeShare, after: NodeShare) {
        if after == before {
            return;
        }
        if after == NO_SHARE {
            self.given_back.push(tenant_no);
            return;
        }
        self.set.0.push(tenant_no);
        self.set.1.push(after.slots as i32);
        self.set.2.push(after.wants as i32);
    }

    /// Writes the changes, and commits the transaction.
    async fn commit(&self, conn: &PgConnection, me: i64) -> Result<(), DbError> {
        let (tenants, slots, wants) = &self.set;
        conn.prepare_all(&[SET, RELEASE_SHARES]).await?;
        let mut pipeline = Pipeline::default();
        if !tenants.is_empty() {
            pipeline.then(async {
                conn.execute(SET, &[tenants, slots, wants, &me]).await?;
                Ok(())
            });
        }
        if !self.given_back.is_empty() {
            pipeline.then(async {
                conn.execute(RELEASE_SHARES, &[&self.given_back, &me])
                    .await?;
                Ok(())
            });
        }
        pipeline.then(conn.batch("COMMIT"));
        pipeline.await
    }
}
