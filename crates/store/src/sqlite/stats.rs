//! Stats, in time buckets.
//!
//! A transaction sums what its records count, and changes each bucket once, before its commit. Rows are sorted by time. So adding stats touches a few pages at the end, independent of the number of scopes, and
//! a retention run a few pages at the beginning. Reading one scope needs one lookup per bucket.

use posthaste_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};

use super::directory::live_tenant;
use super::group_commit::WriteContext;
use super::notifications;
use super::row_keys::id_bytes;
use super::store::SqliteStore;
use crate::codes::{at, ms, sql_limit};
use crate::read_duration::ReadDuration;
use crate::stats::{CountedScopes, by_bucket};
use crate::{Answer, BucketWidth, StatCounters, StatEntry, StatsStore, SubjectScope};

/// The number of the scope of everything in stored rows.
const EVERYTHING: i64 = 0;
/// Maximum number of endpoints whose scopes are cached.
const MAX_KNOWN_SCOPES: usize = 200_000;

type Buckets = Vec<((BucketWidth, Timestamp, SubjectScope), StatCounters)>;

impl StatsStore for SqliteStore {
    fn add_stats(&self, happened: Vec<StatEntry>) -> Answer<()> {
        let buckets: Buckets = by_bucket(happened).into_iter().collect();
        self.write(move |context| add(context, &buckets))
    }

    fn stats(
        &self,
        scope: SubjectScope,
        width: BucketWidth,
        since: Timestamp,
    ) -> Answer<Vec<(Timestamp, StatCounters)>> {
        self.read(ReadDuration::Quick, move |conn| {
            read(conn, &scope, width, since)
        })
    }

    fn failing_stats(
        &self,
        width: BucketWidth,
        since: Timestamp,
        limit: usize,
    ) -> Answer<Vec<(SubjectScope, StatCounters)>> {
        self.read(ReadDuration::Long, move |conn| {
            failing(conn, width, since, limit)
        })
    }
}

/// Counts deliveries to an endpoint. [`write_changes`] writes them at the end of the transaction.
pub(super) fn count(
    context: &mut WriteContext<'_>,
    endpoint_no: i64,
    at: Timestamp,
    counters: &StatCounters,
) -> rusqlite::Result<()> {
    let scopes = match context.cache.counted_scopes.get(&endpoint_no) {
        Some(scopes) => *scopes,
        None => {
            let scopes = counted_scopes(context, endpoint_no)?;
            let known = &mut context.cache.counted_scopes;
            if known.len() >= MAX_KNOWN_SCOPES {
                known.clear();
            }
            known.insert(endpoint_no, scopes);
            scopes
        }
    };
    context.effects.stats.add(at, scopes, counters);
    Ok(())
}

/// Returns the scopes that deliveries to an endpoint are counted in.
fn counted_scopes(
    context: &WriteContext<'_>,
    endpoint_no: i64,
) -> rusqlite::Result<CountedScopes<i64>> {
    let (tenant_no, tenant): (i64, String) = context
        .conn
        .prepare_cached(
            "SELECT t.no, t.id FROM endpoints e JOIN tenants t ON t.no = e.tenant_no WHERE e.no = ?1",
        )?
        .query_row([endpoint_no], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let operational = context.settings.operational_tenant.as_ref();
    let is_operational = operational.is_some_and(|operational| operational.as_str() == tenant);
    Ok(CountedScopes {
        everything: (!is_operational).then_some(EVERYTHING),
        tenant: tenant_no,
        endpoint: endpoint_no,
    })
}

/// Writes the stats of the transaction, and clears them.
pub(super) fn write_changes(context: &mut WriteContext<'_>) -> rusqlite::Result<()> {
    let changes = std::mem::take(&mut context.effects.stats);
    if changes.is_empty() {
        return Ok(());
    }
    let mut add = context.conn.prepare_cached(ADD)?;
    for ((width, began, scope), counters) in changes.into_buckets() {
        let key = [i64::from(width.code()), ms(began), scope];
        add.execute(params_from_iter(key.into_iter().chain(counters.columns())))?;
    }
    Ok(())
}

/// Adds counters to a bucket.
const ADD: &str = "INSERT INTO figures (width, bucket, scope, attempts, retries, second_attempts, \
         second_successes, succeeded, failed, retried_deliveries, success_attempts, latency_micros, \
         slowest_micros) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13) \
         ON CONFLICT (width, bucket, scope) DO UPDATE SET \
         attempts = attempts + excluded.attempts, \
         retries = retries + excluded.retries, \
         second_attempts = second_attempts + excluded.second_attempts, \
         second_successes = second_successes + excluded.second_successes, \
         succeeded = succeeded + excluded.succeeded, \
         failed = failed + excluded.failed, \
         retried_deliveries = retried_deliveries + excluded.retried_deliveries, \
         success_attempts = success_attempts + excluded.success_attempts, \
         latency_micros = latency_micros + excluded.latency_micros, \
         slowest_micros = max(slowest_micros, excluded.slowest_micros)";

fn add(context: &mut WriteContext<'_>, buckets: &Buckets) -> rusqlite::Result<()> {
    let mut add = context.conn.prepare_cached(ADD)?;
    for ((width, began, scope), counters) in buckets {
        if let Some(no) = number(context.conn, scope)? {
            let key = [i64::from(width.code()), ms(*began), no];
            add.execute(params_from_iter(key.into_iter().chain(counters.columns())))?;
        }
    }
    Ok(())
}

/// Returns the number of a scope, if its tenant or endpoint exists.
fn number(conn: &Connection, scope: &SubjectScope) -> rusqlite::Result<Option<i64>> {
    match scope {
        SubjectScope::Everything => Ok(Some(EVERYTHING)),
        SubjectScope::Tenant(tenant) => live_tenant(conn, tenant),
        SubjectScope::Endpoint(endpoint) => conn
            .prepare_cached("SELECT no FROM endpoints WHERE id = ?1 AND standing <> 3")?
            .query_row([id_bytes(endpoint.0)], |row| row.get(0))
            .optional(),
    }
}

/// All buckets of width ?1 that start at ?2 or later, found with one index lookup per bucket.
const BUCKETS: &str = "buckets (began) AS (\
     SELECT min(bucket) FROM figures WHERE width = ?1 AND bucket >= ?2 \
     UNION ALL SELECT (SELECT min(bucket) FROM figures WHERE width = ?1 AND bucket > began) \
     FROM buckets WHERE began IS NOT NULL)";

fn read(
    conn: &Connection,
    scope: &SubjectScope,
    width: BucketWidth,
    since: Timestamp,
) -> rusqlite::Result<Vec<(Timestamp, StatCounters)>> {
    let Some(no) = number(conn, scope)? else {
        return Ok(Vec::new());
    };
    conn.prepare_cached(&format!(
        "WITH RECURSIVE {BUCKETS} SELECT f.attempts, f.retries, f.second_attempts, \
         f.second_successes, f.succeeded, f.failed, f.retried_deliveries, f.success_attempts, \
         f.latency_micros, f.slowest_micros, f.bucket \
         FROM buckets b CROSS JOIN figures f \
         ON f.width = ?1 AND f.bucket = b.began AND f.scope = ?3 ORDER BY f.bucket"
    ))?
    .query_map(params![width.code(), ms(since), no], |row| {
        Ok((at(row.get(StatCounters::COLUMNS)?), counters(row)?))
    })?
    .collect()
}

/// Reads the counters from the first columns.
fn counters(row: &Row<'_>) -> rusqlite::Result<StatCounters> {
    let mut columns = [0; StatCounters::COLUMNS];
    for (index, column) in columns.iter_mut().enumerate() {
        *column = row.get(index)?;
    }
    Ok(StatCounters::from_columns(columns))
}

fn failing(
    conn: &Connection,
    width: BucketWidth,
    since: Timestamp,
    limit: usize,
) -> rusqlite::Result<Vec<(SubjectScope, StatCounters)>> {
    conn.prepare_cached(&format!(
        "WITH RECURSIVE {BUCKETS}, \
         bad AS (SELECT scope, sum(retries + failed) AS much FROM figures \
          INDEXED BY figures_failing WHERE width = ?1 AND bucket >= ?2 AND retries + failed > 0 \
          GROUP BY scope), \
         worst AS MATERIALIZED (SELECT b.scope, b.much, e.id AS endpoint, t.id AS tenant FROM bad b \
          LEFT JOIN endpoints e ON e.no = b.scope AND e.standing <> 3 \
          LEFT JOIN tenants t ON t.no = b.scope AND t.deleted = 0 \
          WHERE b.scope = 0 OR e.no IS NOT NULL OR t.no IS NOT NULL \
          ORDER BY b.much DESC, b.scope LIMIT ?3) \
         SELECT sum(f.attempts), sum(f.retries), sum(f.second_attempts), sum(f.second_successes), \
         sum(f.succeeded), sum(f.failed), sum(f.retried_deliveries), sum(f.success_attempts), \
         sum(f.latency_micros), max(f.slowest_micros), w.endpoint, w.tenant FROM buckets b CROSS JOIN worst w CROSS JOIN figures f \
         ON f.width = ?1 AND f.bucket = b.began AND f.scope = w.scope \
         GROUP BY w.scope ORDER BY w.much DESC, w.scope"
    ))?
    .query_map(params![width.code(), ms(since), sql_limit(limit)], |row| {
        Ok((notifications::scope(row, StatCounters::COLUMNS)?, counters(row)?))
    })?
    .collect()
}

/// Deletes expired buckets, a few of each width. Returns the greatest number deleted for one width.
pub(super) fn delete_expired(
    conn: &Connection,
    now: Timestamp,
    limit: usize,
) -> rusqlite::Result<usize> {
    let mut removed = 0;
    for width in BucketWidth::ALL {
        let gone = conn
            .prepare_cached(
                "DELETE FROM figures WHERE (width, bucket, scope) IN \
                 (SELECT width, bucket, scope FROM figures WHERE width = ?1 AND bucket < ?2 \
                 ORDER BY bucket, scope LIMIT ?3)",
            )?
            .execute(params![
                width.code(),
                ms(width.first_kept(now)),
                sql_limit(limit)
            ])?;
        removed = removed.max(gone);
    }
    Ok(removed)
}
