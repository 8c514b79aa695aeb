//! Stats by scope and time bucket.
//!
//! The transaction that records attempts or ends deliveries adds what it counts to the table `stats`, in the slot of its
//! writer ([`ChangeColumns`]), so that no node waits for another. A bucket is the sum over the slots, and over the table
//! `figures`, to which nodes of 0.1 add what they counted in memory. Two counters are estimated for these.

use posthaste_core::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::notifications;
use crate::codes::{at, ms, sql_limit};
use crate::postgres::connection::PgConnection;
use crate::postgres::db_error::DbError;
use crate::postgres::read::directory::live_tenant;
use crate::postgres::schema::columns::Id;
use crate::stats::{StatChanges, by_bucket};
use crate::{BucketWidth, StatCounters, StatEntry, SubjectScope};

/// The number of the scope of everything in stored rows.
pub(super) const EVERYTHING: i64 = 0;

/// Counters that a transaction adds to the stats, as the parameters of [`COUNT`].
#[derive(Default)]
pub(in crate::postgres) struct ChangeColumns {
    widths: Vec<i16>,
    began: Vec<i64>,
    scopes: Vec<i64>,
    counts: [Vec<i64>; StatCounters::COLUMNS],
}

impl ChangeColumns {
    /// Returns the parameters, or `None` if nothing was counted.
    pub(super) fn of(changes: StatChanges<i64>) -> Option<ChangeColumns> {
        if changes.is_empty() {
            return None;
        }
        let mut rows = ChangeColumns::default();
        for ((width, began, scope), counters) in changes.into_buckets() {
            rows.widths.push(width.code());
            rows.began.push(ms(began));
            rows.scopes.push(scope);
            for (column, count) in rows.counts.iter_mut().zip(counters.columns()) {
                column.push(count);
            }
        }
        Some(rows)
    }

    /// Adds the counters to the slot of a writer.
    pub(super) async fn add(&self, conn: &PgConnection, slot: i16) -> Result<(), DbError> {
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![&self.widths, &self.began, &self.scopes];
        params.extend(self.counts.iter().map(|it| it as &(dyn ToSql + Sync)));
        params.push(&slot);
        conn.execute(COUNT, &params).await?;
        Ok(())
    }
}

/// Adds counters to buckets, which must be sorted. Takes the columns of [`ChangeColumns`] and the slot.
pub(super) const COUNT: &str = "INSERT INTO stats AS s (width, bucket, scope, slot, attempts, retries, \
    second_attempts, second_successes, succeeded, failed, retried_deliveries, success_attempts, \
    latency_micros, slowest_micros, is_failing) \
    SELECT g.width, g.bucket, g.scope, $14, g.attempts, g.retries, g.second_attempts, g.second_successes, \
    g.succeeded, g.failed, g.retried_deliveries, g.success_attempts, g.latency_micros, g.slowest_micros, \
    g.retries + g.failed > 0 \
    FROM UNNEST($1::smallint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], \
    $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[]) \
    AS g (width, bucket, scope, attempts, retries, second_attempts, second_successes, \
    succeeded, failed, retried_deliveries, success_attempts, latency_micros, slowest_micros) \
    ON CONFLICT (width, bucket, scope, slot) DO UPDATE SET \
    attempts = s.attempts + EXCLUDED.attempts, \
    retries = s.retries + EXCLUDED.retries, \
    second_attempts = s.second_attempts + EXCLUDED.second_attempts, \
    second_successes = s.second_successes + EXCLUDED.second_successes, \
    succeeded = s.succeeded + EXCLUDED.succeeded, \
    failed = s.failed + EXCLUDED.failed, \
    retried_deliveries = s.retried_deliveries + EXCLUDED.retried_deliveries, \
    success_attempts = s.success_attempts + EXCLUDED.success_attempts, \
    latency_micros = s.latency_micros + EXCLUDED.latency_micros, \
    slowest_micros = greatest(s.slowest_micros, EXCLUDED.slowest_micros), \
    is_failing = s.is_failing OR EXCLUDED.is_failing";

/// Rows to add, as columns.
#[derive(Default)]
pub(in crate::postgres) struct StatsColumns {
    widths: Vec<i16>,
    began: Vec<i64>,
    tenants: Vec<Option<String>>,
    endpoints: Vec<Option<Id>>,
    counts: [Vec<i64>; StatCounters::COLUMNS],
}

impl StatsColumns {
    pub(in crate::postgres) fn of(happened: Vec<StatEntry>) -> StatsColumns {
        let mut rows = StatsColumns::default();
        for ((width, began, scope), counters) in by_bucket(happened) {
            let (tenant, endpoint) = match scope {
                SubjectScope::Everything => (None, None),
                SubjectScope::Tenant(tenant) => (Some(tenant.to_string()), None),
                SubjectScope::Endpoint(endpoint) => (None, Some(Id(endpoint.0))),
            };
            rows.widths.push(width.code());
            rows.began.push(ms(began));
            rows.tenants.push(tenant);
            rows.endpoints.push(endpoint);
            for (column, count) in rows.counts.iter_mut().zip(counters.columns()) {
                column.push(count);
            }
        }
        rows
    }

    pub(in crate::postgres) async fn add(
        &self,
        conn: &PgConnection,
        slot: i16,
    ) -> Result<(), DbError> {
        let mut params: Vec<&(dyn ToSql + Sync)> =
            vec![&self.widths, &self.began, &self.tenants, &self.endpoints];
        params.extend(self.counts.iter().map(|it| it as &(dyn ToSql + Sync)));
        params.push(&slot);
        conn.execute(ADD, &params).await?;
        Ok(())
    }
}

/// Adds counters to the buckets of scopes that exist. Takes the columns of [`StatsColumns`] and the slot.
const ADD: &str = "INSERT INTO stats AS f (width, bucket, scope, slot, attempts, retries, \
    second_attempts, second_successes, succeeded, failed, retried_deliveries, success_attempts, \
    latency_micros, slowest_micros, is_failing) SELECT g.width, g.bucket, s.no, $15, g.attempts, g.retries, g.second_attempts, \
    g.second_successes, g.succeeded, g.failed, g.retried_deliveries, g.success_attempts, \
    g.latency_micros, g.slowest_micros, g.retries + g.failed > 0 \
    FROM UNNEST($1::smallint[], $2::bigint[], $3::text[], $4::uuid[], $5::bigint[], $6::bigint[], \
    $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[]) \
    AS g (width, bucket, tenant, endpoint, attempts, retries, second_attempts, second_successes, \
    succeeded, failed, retried_deliveries, success_attempts, latency_micros, slowest_micros) \
    CROSS JOIN LATERAL (SELECT CASE \
     WHEN g.tenant IS NOT NULL THEN (SELECT no FROM tenants WHERE id = g.tenant AND NOT deleted) \
     WHEN g.endpoint IS NOT NULL THEN \
      (SELECT no FROM endpoints WHERE id = g.endpoint AND standing <> 3) \
     ELSE 0 END AS no) s \
    WHERE s.no IS NOT NULL ORDER BY g.width, g.bucket, s.no \
    ON CONFLICT (width, bucket, scope, slot) DO UPDATE SET \
    attempts = f.attempts + EXCLUDED.attempts, \
    retries = f.retries + EXCLUDED.retries, \
    second_attempts = f.second_attempts + EXCLUDED.second_attempts, \
    second_successes = f.second_successes + EXCLUDED.second_successes, \
    succeeded = f.succeeded + EXCLUDED.succeeded, \
    failed = f.failed + EXCLUDED.failed, \
    retried_deliveries = f.retried_deliveries + EXCLUDED.retried_deliveries, \
    success_attempts = f.success_attempts + EXCLUDED.success_attempts, \
    latency_micros = f.latency_micros + EXCLUDED.latency_micros, \
    slowest_micros = greatest(f.slowest_micros, EXCLUDED.slowest_micros), \
    is_failing = f.is_failing OR EXCLUDED.is_failing";

/// Returns the number of a scope, or `None` if the tenant or endpoint does not exist.
async fn number(conn: &PgConnection, scope: &SubjectScope) -> Result<Option<i64>, DbError> {
    match scope {
        SubjectScope::Everything => Ok(Some(EVERYTHING)),
        SubjectScope::Tenant(tenant) => live_tenant(conn, tenant).await,
        SubjectScope::Endpoint(endpoint) => {
            let sql = "SELECT no FROM endpoints WHERE id = $1 AND standing <> 3";
            let row = conn.query_opt(sql, &[&Id(endpoint.0)]).await?;
            Ok(row.map(|row| row.get(0)))
        }
    }
}

/// Every bucket of width $1 that starts at $2 or later, found by jumping from one to the next.
const BUCKETS: &str = "buckets (began) AS (SELECT least(\
     (SELECT min(bucket) FROM figures WHERE width = $1 AND bucket >= $2), \
     (SELECT min(bucket) FROM stats WHERE width = $1 AND bucket >= $2)) \
     UNION ALL SELECT least(\
     (SELECT min(bucket) FROM figures WHERE width = $1 AND bucket > began), \
     (SELECT min(bucket) FROM stats WHERE width = $1 AND bucket > began)) \
     FROM buckets WHERE began IS NOT NULL)";

/// The sums of the counters of rows `f`, in the order of [`StatCounters::from_columns`].
const SUMS: &str = "sum(f.attempts)::bigint, sum(f.retries)::bigint, sum(f.second_attempts)::bigint, \
     sum(f.second_successes)::bigint, sum(f.succeeded)::bigint, sum(f.failed)::bigint, \
     sum(f.retried_deliveries)::bigint, sum(f.success_attempts)::bigint, \
     sum(f.latency_micros)::bigint, max(f.slowest_micros)";

/// The counters that nodes of 0.1 do not write, estimated: the deliveries that needed a retry by their second attempts, and
/// the attempts of deliveries that succeeded by all attempts, so that attempts per success does not change.
const ESTIMATES: &str = "CASE WHEN retried_deliveries = 0 AND success_attempts = 0 \
     THEN least(second_attempts, greatest(attempts - retries, 0)) ELSE retried_deliveries END, \
     CASE WHEN success_attempts = 0 AND succeeded > 0 \
     THEN greatest(attempts, succeeded) ELSE success_attempts END";

/// Returns the rows of one bucket and scope in both tables, as a subquery.
fn rows_of(scope: &str) -> String {
    let of = |table: &str, added: &str| {
        format!(
            "SELECT attempts, retries, second_attempts, second_successes, succeeded, failed, {added}, \
             latency_micros, slowest_micros \
             FROM {table} WHERE width = $1 AND bucket = b.began AND scope = {scope}"
        )
    };
    let stats = of("stats", "retried_deliveries, success_attempts");
    // The names of the columns come from the first subquery.
    format!("({stats} UNION ALL {})", of("figures", ESTIMATES))
}

pub(in crate::postgres) async fn read(
    conn: &PgConnection,
    scope: &SubjectScope,
    width: BucketWidth,
    since: Timestamp,
) -> Result<Vec<(Timestamp, StatCounters)>, DbError> {
    let Some(no) = number(conn, scope).await? else {
        return Ok(Vec::new());
    };
    let rows = rows_of("$3");
    let sql = format!(
        "WITH RECURSIVE {BUCKETS} SELECT {SUMS}, b.began FROM buckets b CROSS JOIN LATERAL {rows} f \
         GROUP BY b.began ORDER BY b.began"
    );
    let rows = conn.query(&sql, &[&width.code(), &ms(since), &no]).await?;
    let bucket = |row: &Row| (at(row.get(StatCounters::COLUMNS)), counters(row));
    Ok(rows.iter().map(bucket).collect())
}

/// Reads stats from the first columns.
fn counters(row: &Row) -> StatCounters {
    let mut columns = [0; StatCounters::COLUMNS];
    for (index, column) in columns.iter_mut().enumerate() {
        *column = row.get(index);
    }
    StatCounters::from_columns(columns)
}

pub(in crate::postgres) async fn failing(
    conn: &PgConnection,
    width: BucketWidth,
    since: Timestamp,
    limit: usize,
) -> Result<Vec<(SubjectScope, StatCounters)>, DbError> {
    let rows = rows_of("w.scope");
    let sql = format!(
        "WITH RECURSIVE {BUCKETS}, \
         bad AS (SELECT scope, sum(much) AS much FROM (\
          SELECT scope, retries + failed AS much FROM figures \
          WHERE width = $1 AND bucket >= $2 AND retries + failed > 0 \
          UNION ALL SELECT scope, retries + failed FROM stats \
          WHERE width = $1 AND bucket >= $2 AND is_failing) r GROUP BY scope), \
         worst AS MATERIALIZED (SELECT b.scope, b.much, e.id AS endpoint, t.id AS tenant FROM bad b \
          LEFT JOIN endpoints e ON e.no = b.scope AND e.standing <> 3 \
          LEFT JOIN tenants t ON t.no = b.scope AND NOT t.deleted \
          WHERE b.scope = 0 OR e.no IS NOT NULL OR t.no IS NOT NULL \
          ORDER BY b.much DESC, b.scope LIMIT $3) \
         SELECT {SUMS}, w.endpoint, w.tenant \
         FROM buckets b CROSS JOIN worst w CROSS JOIN LATERAL {rows} f \
         GROUP BY w.scope, w.much, w.endpoint, w.tenant ORDER BY w.much DESC, w.scope"
    );
    let params: [&(dyn ToSql + Sync); 3] = [&width.code(), &ms(since), &sql_limit(limit)];
    let rows = conn.query(&sql, &params).await?;
    let failing = |row: &Row| {
        Ok((
            notifications::scope(row, StatCounters::COLUMNS)?,
            counters(row),
        ))
    };
    rows.iter().map(failing).collect()
}

/// Deletes expired buckets, at most `limit` of each width. Returns the greatest number that was deleted of one width.
/// Rows that another node is deleting are skipped.
pub(in crate::postgres) async fn delete_expired(
    conn: &PgConnection,
    now: Timestamp,
    limit: usize,
) -> Result<usize, DbError> {
    let mut removed = 0;
    for width in BucketWidth::ALL {
        let figures = "DELETE FROM figures WHERE (width, bucket, scope) IN \
                       (SELECT width, bucket, scope FROM figures WHERE width = $1 AND bucket < $2 \
                       ORDER BY bucket, scope LIMIT $3 FOR UPDATE SKIP LOCKED)";
        let stats = "DELETE FROM stats WHERE (width, bucket, scope, slot) IN \
                     (SELECT width, bucket, scope, slot FROM stats WHERE width = $1 AND bucket < $2 \
                     ORDER BY bucket, scope, slot LIMIT $3 FOR UPDATE SKIP LOCKED)";
        let before = ms(width.first_kept(now));
        let params: [&(dyn ToSql + Sync); 3] = [&width.code(), &before, &sql_limit(limit)];
        for sql in [figures, stats] {
            removed = removed.max(conn.execute(sql, &params).await? as usize);
        }
    }
    // Nodes of 0.1 number what they add. A number must be kept as long as its stats, so that they are not added again.
    let sql = "DELETE FROM flushes WHERE flusher IN (SELECT flusher FROM flushes WHERE at < $1 \
               LIMIT $2 FOR UPDATE SKIP LOCKED)";
    let before = ms(BucketWidth::Quarter.first_kept(now));
    conn.execute(sql, &[&before, &sql_limit(limit)]).await?;
    Ok(removed)
}
