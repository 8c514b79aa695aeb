//! Searches deliveries in the order of their ids, the newest first.
//!
//! Waiting and ended deliveries are in two tables, so a search merges several [`SearchSource`]s. It reads a source in
//! steps: the server examines a limited number of rows and returns the matching ones and the last id it examined. No
//! step reads more rows than requested.
//!
//! To read the rows of one tenant or endpoint in order, the statements compare and sort by owner *and* id, although
//! there is only one owner. Otherwise the planner may use the index on id alone and read the rows of all tenants.

use posthaste_core::classify::FailureKind;
use posthaste_core::id::{DeliveryId, EventId};
use posthaste_core::subscription::EventType;
use posthaste_core::time::Timestamp;
use tokio_postgres::types::ToSql;

use crate::StoredStatus;
use crate::codes::{Coded, RowStatus, ms, sql_limit};
use crate::postgres::connection::PgConnection;
use crate::postgres::db_error::DbError;
use crate::postgres::schema::clock_skew::IdRange;
use crate::postgres::schema::columns::{EnumCode, Id};

/// Maximum number of endpoints whose indexes are merged. Above it, scanning everything costs less.
const MAX_MERGED: usize = 1_000;
/// Maximum number of waiting deliveries that are all read, within a few milliseconds. Above it, a scan finds matches soon
/// enough.
const MAX_GATHERED: usize = 2_000;

/// The deliveries of a tenant or of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::postgres) enum SearchScope {
    /// All deliveries of the tenant with this number.
    Tenant(i64),
    /// The deliveries to the endpoint with this number.
    Endpoint(i64),
}

/// The conditions of a search.
#[derive(Clone, Debug, Default)]
pub(super) struct SearchFilter {
    pub(in crate::postgres) tenant_no: i64,
    pub(in crate::postgres) endpoint_no: Option<i64>,
    pub(in crate::postgres) status: Option<StoredStatus>,
    pub(in crate::postgres) event_type: Option<EventType>,
    pub(in crate::postgres) error_kind: Option<FailureKind>,
    pub(in crate::postgres) since: Option<Timestamp>,
    pub(in crate::postgres) until: Option<Timestamp>,
}

impl SearchFilter {
    /// Returns the scope to search.
    pub(in crate::postgres) fn scope(&self) -> SearchScope {
        self.endpoint_no
            .map_or(SearchScope::Tenant(self.tenant_no), SearchScope::Endpoint)
    }
}

/// A delivery that matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hit {
    pub(in crate::postgres) id: DeliveryId,
    pub(in crate::postgres) event: EventId,
    pub(in crate::postgres) endpoint_no: i64,
}

/// A set of deliveries to search.
#[derive(Clone, Debug)]
pub(super) enum SearchSource {
    /// A complete list of matches, the newest first.
    Listed(Vec<Hit>),
    /// All waiting deliveries, of every tenant.
    Waiting,
    /// Ended deliveries.
    Ended,
    /// Failed deliveries of these endpoints.
    Dead(Vec<i64>),
}

/// The result of one step over a source.
#[derive(Clone, Debug, Default)]
pub(super) struct Piece {
    /// Number of examined rows.
    pub(in crate::postgres) examined: usize,
    /// The last examined id; `None` at the end of the source.
    pub(super) down_to: Option<u128>,
    /// The matching deliveries, the newest first.
    pub(super) hits: Vec<Hit>,
}

/// Parameter value for the status `held`.
const HELD: i16 = 99;

/// The condition on examined rows `l`, with parameters 1 to 6. The shown status of a waiting row also depends on its
/// endpoint.
const WANTED: &str = "($1::bigint IS NULL OR l.endpoint_no = $1) AND ($2::text IS NULL OR l.type = $2) \
    AND ($3::smallint IS NULL OR l.kind = $3) AND l.created_at >= $4 AND l.created_at < $5";
const ENDED_SO: &str = "AND ($6::smallint IS NULL OR l.status = $6)";
const SHOWN_SO: &str = "AND ($6::smallint IS NULL OR $6 = (SELECT CASE WHEN e.standing = 1 OR h.tripped \
    THEN 99 ELSE l.status END FROM endpoints e JOIN healths h ON h.endpoint_no = e.no \
    WHERE e.no = l.endpoint_no))";

/// The columns that a step examines.
const EXAMINED: &str = "id, event_id, endpoint_no, tenant_no, created_at, status, kind, type";

/// Returns the statement that examines the rows of `scanned` and returns at most `$7` matches.
fn examine(scanned: &str, wanted_so: &str) -> String {
    format!(
        "WITH looked AS MATERIALIZED ({scanned}), \
         hits AS (SELECT l.id, l.event_id, l.endpoint_no FROM looked l WHERE {WANTED} {wanted_so} \
         ORDER BY l.id DESC LIMIT $7) \
         SELECT (SELECT count(*) FROM looked), (SELECT id FROM looked ORDER BY id LIMIT 1), \
         array_agg(id ORDER BY id DESC), array_agg(event_id ORDER BY id DESC), \
         array_agg(endpoint_no ORDER BY id DESC) FROM hits"
    )
}

impl SearchSource {
    /// Examines the next `count` rows of a range, and returns at most `limit` matches.
    pub(super) async fn examine(
        &self,
        conn: &PgConnection,
        wanted: &SearchFilter,
        range: IdRange,
        count: usize,
        limit: usize,
    ) -> Result<Piece, DbError> {
        let none = None::<i64>;
        let count_so = sql_limit(count);
        let range_so = (Id(range.above), Id(range.below));
        let row = match self {
            SearchSource::Listed(hits) => return Ok(listed(hits, range, count)),
            SearchSource::Waiting => {
                let sql = examine(
                    &format!(
                        "SELECT {EXAMINED} FROM waiting WHERE id > $8 AND id < $9 \
                         ORDER BY id DESC LIMIT $10"
                    ),
                    &format!("{SHOWN_SO} AND l.tenant_no = $11"),
                );
                let params = Filter::of(wanted, wanted.endpoint_no, limit);
                let more: [&(dyn ToSql + Sync); 4] =
                    [&range_so.0, &range_so.1, &count_so, &wanted.tenant_no];
                conn.query_one(&sql, &params.with(&more)).await?
            }
            SearchSource::Ended => {
                let (column, no) = match wanted.scope() {
                    SearchScope::Tenant(no) => ("tenant_no", no),
                    SearchScope::Endpoint(no) => ("endpoint_no", no),
                };
                let sql = examine(
                    &format!(
                        "SELECT {EXAMINED} FROM ended WHERE ({column}, id) > ($11, $8) \
                         AND ({column}, id) < ($11, $9) AND id > $8 AND id < $9 \
                         ORDER BY {column} DESC, id DESC LIMIT $10"
                    ),
                    ENDED_SO,
                );
                let params = Filter::of(wanted, none, limit);
                let more: [&(dyn ToSql + Sync); 4] = [&range_so.0, &range_so.1, &count_so, &no];
                conn.query_one(&sql, &params.with(&more)).await?
            }
            SearchSource::Dead(endpoints) => {
                let sql = examine(
                    &format!(
                        "SELECT d.* FROM unnest($11::bigint[]) AS e (no) CROSS JOIN LATERAL \
                         (SELECT {EXAMINED} FROM ended WHERE (endpoint_no, id) > (e.no, $8) \
                         AND (endpoint_no, id) < (e.no, $9) AND status = 3 AND id > $8 AND id < $9 \
                         ORDER BY endpoint_no DESC, id DESC LIMIT $10) d ORDER BY d.id DESC LIMIT $10"
                    ),
                    ENDED_SO,
                );
                let params = Filter::of(wanted, none, limit);
                let more: [&(dyn ToSql + Sync); 4] =
                    [&range_so.0, &range_so.1, &count_so, endpoints];
                conn.query_one(&sql, &params.with(&more)).await?
            }
        };
        let examined = row.get::<_, i64>(0) as usize;
        let last: Option<Id> = row.get(1);
        Ok(Piece {
            examined,
            down_to: last.filter(|_| examined >= count).map(|id| id.0),
            hits: hits_in(&row, 2),
        })
    }
}

fn listed(hits: &[Hit], range: IdRange, count: usize) -> Piece {
    let in_range = hits.iter().filter(|hit| range.contains(hit.id.0));
    let hits: Vec<Hit> = in_range.take(count).copied().collect();
    Piece {
        examined: hits.len(),
        down_to: hits
            .last()
            .filter(|_| hits.len() >= count)
            .map(|hit| hit.id.0),
        hits,
    }
}

/// Reads matches from three array columns, starting at this one. Null arrays mean no match.
fn hits_in(row: &tokio_postgres::Row, column: usize) -> Vec<Hit> {
    let ids: Option<Vec<Id>> = row.get(column);
    let events: Option<Vec<Id>> = row.get(column + 1);
    let endpoints: Option<Vec<i64>> = row.get(column + 2);
    let ids = ids.unwrap_or_default().into_iter();
    let rest = events
        .unwrap_or_default()
        .into_iter()
        .zip(endpoints.unwrap_or_default());
    ids.zip(rest)
        .map(|(id, (event, endpoint_no))| Hit {
            id: DeliveryId(id.0),
            event: EventId(event.0),
            endpoint_no,
        })
        .collect()
}

/// The parameters of [`WANTED`].
struct Filter<'a> {
    endpoint_no: Option<i64>,
    event_type: Option<&'a str>,
    kind: Option<EnumCode<FailureKind>>,
    since: i64,
    until: i64,
    status: Option<i16>,
    limit: i64,
}

impl<'a> Filter<'a> {
    fn of(wanted: &'a SearchFilter, endpoint_no: Option<i64>, limit: usize) -> Filter<'a> {
        Filter {
            endpoint_no,
            event_type: wanted.event_type.as_ref().map(EventType::as_str),
            kind: wanted.error_kind.map(EnumCode),
            since: wanted.since.map_or(0, ms),
            until: wanted.until.map_or(i64::MAX, ms),
            status: wanted.status.map(status_code),
            limit: sql_limit(limit),
        }
    }

    fn with<'b>(&'b self, more: &[&'b (dyn ToSql + Sync)]) -> Vec<&'b (dyn ToSql + Sync)> {
        let mut params: Vec<&'b (dyn ToSql + Sync)> = vec![
            &self.endpoint_no,
            &self.event_type,
            &self.kind,
            &self.since,
            &self.until,
            &self.status,
            &self.limit,
        ];
        params.extend_from_slice(more);
        params
    }
}

/// Returns the parameter value for a status.
fn status_code(status: StoredStatus) -> i16 {
    let row = match status {
        StoredStatus::Pending => RowStatus::Pending,
        StoredStatus::Retrying => RowStatus::Retrying,
        StoredStatus::Held => return HELD,
        StoredStatus::Succeeded => RowStatus::Succeeded,
        StoredStatus::Failed => RowStatus::Failed,
        StoredStatus::Cancelled => RowStatus::Cancelled,
    };
    row.code() as i16
}

/// Returns the sources in which the wanted deliveries are found fastest.
pub(super) async fn sources(
    conn: &PgConnection,
    wanted: &SearchFilter,
) -> Result<Vec<SearchSource>, DbError> {
    Ok(match wanted.status {
        None => vec![waiting(conn, wanted).await?, SearchSource::Ended],
        Some(StoredStatus::Pending | StoredStatus::Retrying | StoredStatus::Held) => {
            vec![waiting(conn, wanted).await?]
        }
        Some(StoredStatus::Failed | StoredStatus::Succeeded | StoredStatus::Cancelled) => {
            vec![ended_source(conn, wanted).await?]
        }
    })
}

/// Returns the source in which ended deliveries with the wanted status are found fastest.
pub(super) async fn ended_source(
    conn: &PgConnection,
    wanted: &SearchFilter,
) -> Result<SearchSource, DbError> {
    match wanted.status == Some(StoredStatus::Failed) {
        true => dead(conn, wanted.scope()).await,
        false => Ok(SearchSource::Ended),
    }
}

/// Returns the endpoints whose sum of a `counters` column is not 0, and the total.
async fn counted(
    conn: &PgConnection,
    scope: SearchScope,
    column: &str,
) -> Result<(Vec<i64>, i64), DbError> {
    let (condition, no) = match scope {
        SearchScope::Tenant(no) => ("e.tenant_no = $1", no),
        SearchScope::Endpoint(no) => ("e.no = $1", no),
    };
    let sql = format!(
        "SELECT t.endpoint_no, sum(t.{column})::bigint FROM endpoints e JOIN tally t ON t.endpoint_no = e.no \
         WHERE {condition} GROUP BY t.endpoint_no HAVING sum(t.{column}) <> 0 LIMIT $2"
    );
    let rows = conn.query(&sql, &[&no, &sql_limit(MAX_MERGED + 1)]).await?;
    let endpoints = rows.iter().map(|row| row.get(0)).collect();
    Ok((endpoints, rows.iter().map(|row| row.get::<_, i64>(1)).sum()))
}

async fn dead(conn: &PgConnection, scope: SearchScope) -> Result<SearchSource, DbError> {
    let endpoints = match scope {
        SearchScope::Endpoint(no) => vec![no],
        SearchScope::Tenant(_) => counted(conn, scope, "dead").await?.0,
    };
    Ok(if endpoints.len() > MAX_MERGED {
        SearchSource::Ended
    } else {
        SearchSource::Dead(endpoints)
    })
}

/// Returns all wanted waiting deliveries as a list, or a scan if many deliveries wait.
async fn waiting(conn: &PgConnection, wanted: &SearchFilter) -> Result<SearchSource, DbError> {
    let (endpoints, count) = counted(conn, wanted.scope(), "waiting").await?;
    if endpoints.len() > MAX_MERGED || count > MAX_GATHERED as i64 {
        return Ok(SearchSource::Waiting);
    }
    // Sorted like the index, so that only rows of these endpoints are read.
    let sql = examine(
        &format!(
            "SELECT w.* FROM unnest($8::bigint[]) AS e (no) CROSS JOIN LATERAL \
             (SELECT {EXAMINED} FROM waiting WHERE endpoint_no = e.no ORDER BY due, id LIMIT $9) w"
        ),
        SHOWN_SO,
    );
    let params = Filter::of(wanted, None, MAX_GATHERED);
    let at_most = sql_limit(MAX_GATHERED);
    let row = conn
        .query_one(&sql, &params.with(&[&endpoints, &at_most]))
        .await?;
    Ok(SearchSource::Listed(hits_in(&row, 2)))
}

/// Returns the wanted ones of some deliveries.
pub(super) async fn among(
    conn: &PgConnection,
    wanted: &SearchFilter,
    ids: &[DeliveryId],
) -> Result<SearchSource, DbError> {
    let mut ids: Vec<Id> = ids.iter().map(|id| Id(id.0)).collect();
    ids.sort_unstable();
    let (Some(first), Some(last)) = (ids.first(), ids.last()) else {
        return Ok(SearchSource::Listed(Vec::new()));
    };
    let mut hits = Vec::new();
    for (table, wanted_so) in [("waiting", SHOWN_SO), ("ended", ENDED_SO)] {
        let sql = examine(
            &format!(
                "SELECT {EXAMINED} FROM {table} WHERE id = ANY($8) AND id >= $9 AND id <= $10 \
                 AND tenant_no = $11"
            ),
            wanted_so,
        );
        let params = Filter::of(wanted, wanted.endpoint_no, ids.len());
        let row = conn
            .query_one(&sql, &params.with(&[&ids, first, last, &wanted.tenant_no]))
            .await?;
        hits.extend(hits_in(&row, 2));
    }
    hits.sort_unstable_by_key(|hit| std::cmp::Reverse(hit.id));
    Ok(SearchSource::Listed(hits))
}
