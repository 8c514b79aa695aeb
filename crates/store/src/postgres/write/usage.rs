//! Usage of tenants: events per month, and the per-second quota.
//!
//! Every node counts events in its own slot, in the transaction that accepts them, so that none waits for another.
//! The usage is the sum over the slots. A limited tenant also has a row in `meters`. A node that accepts its events
//! locks that row first, reads the usage, decides, and writes. So nodes take turns for each limited tenant, and the
//! limits are exact across nodes. Each node has a second writer for limited tenants, with its own connection and
//! slots. So a tenant without limits never waits for these locks.

use std::collections::{BTreeMap, BTreeSet};

use posthaste_core::id::TenantId;
use posthaste_core::quota::{QuotaExceeded, QuotaUsage, Quotas};
use posthaste_core::time::{Month, Timestamp};
use rustc_hash::FxHashMap;

use super::operation::AcceptOperation;
use super::routing_table::RoutingTable;
use super::writer::Writer;
use crate::postgres::connection::PgConnection;
use crate::postgres::db_error::DbError;
use crate::postgres::pipeline::Pipeline;
use crate::postgres::read::directory::live_tenant;
use crate::{MONTHS_KEPT, Usage};

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste_store::postgres::usage";

/// Creates the missing `meters` rows of tenants. The order is the same on all nodes.
const MAKE: &str = "INSERT INTO meters (tenant_no, arrival_ns) \
    SELECT tenant_no, 0 FROM unnest($1::bigint[]) AS g (tenant_no) ORDER BY tenant_no \
    ON CONFLICT (tenant_no) DO NOTHING";

/// Locks `meters` rows until the end of the transaction, in the same order.
const HOLD: &str = "SELECT tenant_no, arrival_ns FROM meters WHERE tenant_no = ANY ($1) \
    ORDER BY tenant_no FOR UPDATE";

/// Sums the usage over all nodes.
const SUM: &str = "SELECT month, tenant_no, sum(events)::bigint FROM usage \
    WHERE month = ANY ($1) AND tenant_no = ANY ($2) GROUP BY month, tenant_no";

/// Sets locked `meters` rows.
pub(in crate::postgres) const SET: &str = "UPDATE meters m SET arrival_ns = g.arrival_ns \
    FROM unnest($1::bigint[], $2::bigint[]) AS g (tenant_no, arrival_ns) \
    WHERE m.tenant_no = g.tenant_no";

/// Counts accepted events, in the slot of this writer.
pub(super) const COUNT: &str = "INSERT INTO usage AS u (month, tenant_no, slot, events) \
    SELECT month, tenant_no, $4, events \
    FROM unnest($1::integer[], $2::bigint[], $3::bigint[]) AS g (month, tenant_no, events) \
    ON CONFLICT (month, tenant_no, slot) DO UPDATE SET events = u.events + excluded.events";

/// Usage of tenants, by tenant number: as it was read, and with the events of a batch added.
#[derive(Clone, Debug, Default)]
pub(super) struct UsageMeters {
    arrivals: FxHashMap<i64, u64>,
    months: FxHashMap<(Month, i64), u64>,
    set: BTreeMap<i64, u64>,
    counted: BTreeMap<(Month, i64), u64>,
}

/// Rows to add to `usage`: months, tenants, events.
pub(super) type UsageColumns = (Vec<i32>, Vec<i64>, Vec<i64>);

impl UsageMeters {
    /// Locks the meters of the limited tenants among these requests, and reads their usage. Begins a transaction
    /// unless one is `begun`. Returns `None` if no tenant is limited.
    pub(in crate::postgres) async fn hold(
        conn: &PgConnection,
        begun: bool,
        routes: &RoutingTable,
        accepts: &[AcceptOperation],
    ) -> Result<Option<UsageMeters>, DbError> {
        let (mut tenants, mut months) = (BTreeSet::new(), BTreeSet::new());
        for accepting in accepts.iter().filter(|it| it.quotas.is_limited()) {
            if let Some(tenant) = accepting.tenant().and_then(|id| routes.tenant(id)) {
                tenants.insert(tenant.no);
                months.insert(Month::of(accepting.now).0 as i32);
            }
        }
        if tenants.is_empty() {
            return Ok(None);
        }
        let tenants: Vec<i64> = tenants.into_iter().collect();
        let months: Vec<i32> = months.into_iter().collect();
        conn.prepare_all(&[MAKE, HOLD, SUM]).await?;
        let mut meters = UsageMeters::default();
        let (arrivals, sums) = (&mut meters.arrivals, &mut meters.months);
        // Each statement sees everything that was committed before it, so the sum is read while the meter is locked.
        let mut pipeline = Pipeline::default();
        if !begun {
            pipeline.then(conn.batch("BEGIN"));
        }
        pipeline.then(async {
            conn.execute(MAKE, &[&tenants]).await?;
            Ok(())
        });
        pipeline.then(async {
            for row in conn.query(HOLD, &[&tenants]).await? {
                arrivals.insert(row.get(0), row.get::<_, i64>(1) as u64);
            }
            Ok(())
        });
        pipeline.then(async {
            for row in conn.query(SUM, &[&months, &tenants]).await? {
                let month = Month(row.get::<_, i32>(0) as u32);
                sums.insert((month, row.get(1)), row.get::<_, i64>(2) as u64);
            }
            Ok(())
        });
        pipeline.await?;
        Ok(Some(meters))
    }

    /// Counts `count` events of a tenant, or returns the limit that they exceed.
    pub(in crate::postgres) fn take(
        &mut self,
        tenant_no: i64,
        now: Timestamp,
        quotas: Quotas,
        count: u64,
    ) -> Result<(), QuotaExceeded> {
        if count == 0 {
            return Ok(());
        }
        let at = (Month::of(now), tenant_no);
        let counted = self.counted.entry(at).or_default();
        if quotas.is_limited() {
            let read = self.months.get(&at).copied().unwrap_or(0);
            let arrival_ns = self.arrivals.entry(tenant_no).or_default();
            let used = QuotaUsage {
                arrival_ns: *arrival_ns,
                this_month: read + *counted,
            };
            let used = quotas.take(now, used, count)?;
            if used.arrival_ns != *arrival_ns {
                *arrival_ns = used.arrival_ns;
                self.set.insert(tenant_no, used.arrival_ns);
            }
        }
        *counted += count;
        Ok(())
    }

    /// Returns the parameters of [`SET`], or `None` if there is nothing to set.
    pub(super) fn to_set(&self) -> Option<(Vec<i64>, Vec<i64>)> {
        let set = self.set.iter().map(|(no, ns)| (*no, *ns as i64));
        (!self.set.is_empty()).then(|| set.unzip())
    }

    /// Returns the parameters of [`COUNT`], sorted, or `None` if no event was accepted.
    pub(super) fn to_count(&self) -> Option<UsageColumns> {
        let mut columns = UsageColumns::default();
        for ((month, tenant_no), events) in &self.counted {
            if *events > 0 {
                columns.0.push(month.0 as i32);
                columns.1.push(*tenant_no);
                columns.2.push(*events as i64);
            }
        }
        (!columns.0.is_empty()).then_some(columns)
    }
}

/// Deletes the usage of months that are not reported any more, and the meters of deleted tenants.
async fn forget(conn: &PgConnection, month: Month) -> Result<(), DbError> {
    let oldest = month.0.saturating_sub(MONTHS_KEPT) as i32;
    conn.execute("DELETE FROM usage WHERE month < $1", &[&oldest])
        .await?;
    let sql = "DELETE FROM meters WHERE tenant_no IN (SELECT no FROM tenants WHERE deleted)";
    conn.execute(sql, &[]).await?;
    Ok(())
}

impl Writer {
    /// Deletes old usage once a month, after events were accepted. A failure does no harm: the next month deletes
    /// more.
    pub(super) async fn delete_old_usage(&mut self, month: Option<Month>) {
        let Some(month) = month.filter(|month| self.context.cache.forgot_in != Some(*month)) else {
            return;
        };
        self.context.cache.forgot_in = Some(month);
        let conn = self.context.conn.clone();
        if let Err(fault) = forget(&conn, month).await {
            tracing::warn!(target: LOG_TARGET, %fault, "cannot remove usage of past months");
            self.roll_back(&fault).await;
        }
    }
}

/// Returns the usage of a tenant.
pub(in crate::postgres) async fn usage(
    conn: &PgConnection,
    now: Timestamp,
    tenant: &TenantId,
) -> Result<Option<Usage>, DbError> {
    let Some(no) = live_tenant(conn, tenant).await? else {
        return Ok(None);
    };
    let month = Month::of(now).0 as i32;
    let row = conn
        .query_one(
            "SELECT (SELECT count(*) FROM endpoints WHERE tenant_no = $1 AND standing <> 3 AND NOT is_origin), \
             (SELECT coalesce(sum(events), 0)::bigint FROM usage WHERE month = $2 AND tenant_no = $1), \
             (SELECT schedules FROM tenants WHERE no = $1)",
            &[&no, &month],
        )
        .await?;
    Ok(Some(Usage {
        endpoints: row.get::<_, i64>(0) as u64,
        events_this_month: row.get::<_, i64>(1) as u64,
        schedules: row.get::<_, i64>(2) as u64,
    }))
}
