//! Usage of tenants: events per month, and the per-second quota.
//!
//! [`UsageCounters`] counts events in the transaction that stores them, with one write per tenant for the whole group.
//! So the count is exact and costs almost nothing. The state of the per-second quota is only in memory: one second
//! after a start there is no difference.

use std::collections::BTreeMap;

use posthaste_core::id::TenantId;
use posthaste_core::quota::{QuotaExceeded, QuotaUsage, Quotas};
use posthaste_core::time::{Month, Timestamp};
use rusqlite::{Connection, OptionalExtension};
use rustc_hash::FxHashMap;

use super::directory::live_tenant;
use crate::codes::sql_limit;
use crate::{MONTHS_KEPT, Usage};

/// Number of tenants with a per-second state from which idle tenants are removed.
const MAX_ARRIVALS: usize = 100_000;
const NS_PER_MS: u64 = 1_000_000;

/// The usage of tenants, by tenant number.
#[derive(Debug, Default)]
pub(super) struct UsageCounters {
    arrivals: FxHashMap<i64, u64>,
    /// The values that the current transaction has replaced, oldest first.
    replaced: Vec<(i64, Option<u64>)>,
    /// The events of the current transaction.
    counted: BTreeMap<(Month, i64), u64>,
}

impl UsageCounters {
    /// Counts `count` events of a tenant, or returns the quota that they exceed.
    pub(super) fn take(
        &mut self,
        conn: &Connection,
        tenant_no: i64,
        now: Timestamp,
        quotas: Quotas,
        count: u64,
    ) -> rusqlite::Result<Result<(), QuotaExceeded>> {
        if count == 0 {
            return Ok(Ok(()));
        }
        let month = Month::of(now);
        if quotas.is_limited() {
            match self.check(conn, tenant_no, now, quotas, count)? {
                Ok(used) if used.arrival_ns != 0 => {
                    let replaced = self.arrivals.insert(tenant_no, used.arrival_ns);
                    self.replaced.push((tenant_no, replaced));
                }
                Ok(_) => {}
                Err(over) => return Ok(Err(over)),
            }
            if self.arrivals.len() > MAX_ARRIVALS {
                let now_ns = now.0.saturating_mul(NS_PER_MS);
                self.arrivals.retain(|_, arrival_ns| *arrival_ns > now_ns);
            }
        }
        *self.counted.entry((month, tenant_no)).or_default() += count;
        Ok(Ok(()))
    }

    /// Returns the usage with `count` more events of a tenant, or the quota that they exceed, without counting them.
    pub(super) fn check(
        &self,
        conn: &Connection,
        tenant_no: i64,
        now: Timestamp,
        quotas: Quotas,
        count: u64,
    ) -> rusqlite::Result<Result<QuotaUsage, QuotaExceeded>> {
        let this_month = match quotas.per_month {
            Some(_) => self.this_month(conn, Month::of(now), tenant_no)?,
            None => 0,
        };
        let used = QuotaUsage {
            arrival_ns: self.arrivals.get(&tenant_no).copied().unwrap_or(0),
            this_month,
        };
        Ok(quotas.take(now, used, count))
    }

    fn this_month(&self, conn: &Connection, month: Month, tenant_no: i64) -> rusqlite::Result<u64> {
        let counted = self.counted.get(&(month, tenant_no)).copied();
        Ok(events(conn, month, tenant_no)? + counted.unwrap_or(0))
    }

    /// Writes the counts of the transaction: the last step before the commit.
    pub(super) fn write(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        for ((month, tenant_no), count) in std::mem::take(&mut self.counted) {
            let count = count as i64;
            let added = conn
                .prepare_cached(
                    "UPDATE usage SET events = events + ?3 WHERE month = ?1 AND tenant_no = ?2",
                )?
                .execute((month.0, tenant_no, count))?;
            if added == 0 {
                conn.prepare_cached(
                    "INSERT INTO usage (month, tenant_no, events) VALUES (?1, ?2, ?3)",
                )?
                .execute((month.0, tenant_no, count))?;
            }
        }
        Ok(())
    }

    /// Keeps the changes of a committed transaction.
    pub(super) fn keep(&mut self) {
        self.replaced.clear();
    }

    /// Undoes the changes of a transaction that was rolled back.
    pub(super) fn put_back(&mut self) {
        self.counted.clear();
        while let Some((tenant_no, arrival_ns)) = self.replaced.pop() {
            match arrival_ns {
                Some(arrival_ns) => self.arrivals.insert(tenant_no, arrival_ns),
                None => self.arrivals.remove(&tenant_no),
            };
        }
    }
}

fn events(conn: &Connection, month: Month, tenant_no: i64) -> rusqlite::Result<u64> {
    let events: Option<i64> = conn
        .prepare_cached("SELECT events FROM usage WHERE month = ?1 AND tenant_no = ?2")?
        .query_row((month.0, tenant_no), |row| row.get(0))
        .optional()?;
    Ok(events.unwrap_or(0) as u64)
}

/// Deletes a few expired monthly counts, of any tenant. Returns their number.
pub(super) fn delete_expired(
    conn: &Connection,
    now: Timestamp,
    limit: usize,
) -> rusqlite::Result<usize> {
    let oldest = Month::of(now).0.saturating_sub(MONTHS_KEPT);
    conn.prepare_cached(
        "DELETE FROM usage WHERE (tenant_no, month) IN \
         (SELECT tenant_no, month FROM usage WHERE month < ?1 ORDER BY month LIMIT ?2)",
    )?
    .execute((oldest, sql_limit(limit)))
}

/// Returns the usage of a tenant.
pub(super) fn usage(
    conn: &Connection,
    now: Timestamp,
    tenant: &TenantId,
) -> rusqlite::Result<Option<Usage>> {
    let Some(no) = live_tenant(conn, tenant)? else {
        return Ok(None);
    };
    let endpoints: i64 = conn
        .prepare_cached("SELECT count(*) FROM endpoints WHERE tenant_no = ?1 AND standing <> 3 AND is_origin = 0")?
        .query_row([no], |row| row.get(0))?;
    let schedules: i64 = conn
        .prepare_cached("SELECT schedules FROM tenants WHERE no = ?1")?
        .query_row([no], |row| row.get(0))?;
    Ok(Some(Usage {
        endpoints: endpoints as u64,
        events_this_month: events(conn, Month::of(now), no)?,
        schedules: schedules as u64,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_months_are_deleted_without_new_events() {
        let conn = Connection::open_in_memory().expect("it opens");
        conn.execute_batch("CREATE TABLE usage (tenant_no INTEGER, month INTEGER, events INTEGER)")
            .expect("a table");
        let now = Timestamp(1_794_744_000_000);
        let month = Month::of(now).0;
        for (tenant_no, ago) in [
            (1, 40),
            (1, MONTHS_KEPT + 1),
            (2, 20),
            (1, MONTHS_KEPT),
            (3, 0),
        ] {
            conn.execute(
                "INSERT INTO usage VALUES (?1, ?2, 1)",
                (tenant_no, month - ago),
            )
            .expect("a row");
        }
        assert_eq!(delete_expired(&conn, now, 2), Ok(2));
        assert_eq!(delete_expired(&conn, now, 2), Ok(1));
        let left: i64 = conn
            .query_row("SELECT count(*) FROM usage", [], |row| row.get(0))
            .expect("a count");
        assert_eq!(left, 2);
    }
}
