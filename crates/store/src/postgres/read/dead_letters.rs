//! Dead letters, grouped by endpoint and failure kind.
//!
//! No query scans all dead letters. The table `counters` knows which endpoints have some. An index on group and id then
//! finds the next group of an endpoint in one step, and also the oldest and the newest delivery of a group. Only the
//! count of a group reads more rows, up to [`MAX_GROUP_COUNT`].
//!
//! A group has a number (`plot` in SQL): endpoint number and failure kind combined, so that no other index
//! starts with the same column. With several such indexes the planner may choose the wrong one and sort all rows. For
//! the same reason rows are compared and sorted by group number *and* id.

use posthaste_core::classify::FailureKind;
use posthaste_core::id::{DeliveryId, EndpointId, TenantId};
use posthaste_core::lane::EndpointStatus;
use rustc_hash::FxHashMap;
use tokio_postgres::Row;

use super::directory::live_tenant;
use super::endpoints::endpoint_of;
use super::lists::stored;
use crate::codes::{Coded, at, sql_limit};
use crate::dead_letters::{FIRST_RANK, MAX_ENDPOINTS_SCANNED, Start, rank};
use crate::postgres::connection::PgConnection;
use crate::postgres::db_error::DbError;
use crate::postgres::schema::columns::{Id, word};
use crate::{
    BoundedCount, DeadLetterGroup, DeadLetterGroupKey, MAX_GROUP_COUNT, Page, PageRequest,
};

/// An endpoint with dead letters.
struct DeadEndpoint {
    no: i64,
    id: EndpointId,
    url: String,
    status: EndpointStatus,
}

/// A group without its details.
struct Found<'a> {
    dead_endpoint: &'a DeadEndpoint,
    group_no: i64,
    kind: Option<FailureKind>,
}

/// The details of a group.
struct GroupDetails {
    newest: DeliveryId,
    oldest_at: i64,
    counted: i64,
}

/// Lists groups, of one endpoint or of all.
pub(in crate::postgres) async fn dead_letter_groups(
    conn: &PgConnection,
    tenant: &TenantId,
    endpoint: Option<EndpointId>,
    page: PageRequest<DeadLetterGroupKey>,
) -> Result<Page<DeadLetterGroup, DeadLetterGroupKey>, DbError> {
    let nothing = Page {
        items: Vec::new(),
        next: None,
    };
    let tenant_no = live_tenant(conn, tenant).await?;
    let Some(tenant_no) = tenant_no.filter(|_| page.limit > 0) else {
        return Ok(nothing);
    };
    let start = Start::after(page.before, endpoint);
    let wanted = page.limit.saturating_add(1);
    let (dead_endpoints, stopped_at) = dead_endpoints(conn, tenant_no, start, wanted).await?;
    let mut found = kinds(conn, &dead_endpoints, start).await?;
    let more = found.len() > page.limit;
    found.truncate(page.limit);
    let next = match (more, found.last()) {
        (true, Some(last)) => Some((last.dead_endpoint.id, last.kind)),
        (_, _) => stopped_at.map(|endpoint| (endpoint, None)),
    };
    let items = groups(conn, tenant, tenant_no, &found).await?;
    Ok(Page { items, next })
}

/// Returns the endpoints with dead letters, the newest first, and the endpoint at which the search stopped if there
/// may be more.
async fn dead_endpoints(
    conn: &PgConnection,
    tenant_no: i64,
    start: Start,
    wanted: usize,
) -> Result<(Vec<DeadEndpoint>, Option<EndpointId>), DbError> {
    let mut numbers: Vec<i64> = Vec::new();
    if let Some((first, _)) = start.first {
        numbers.extend(endpoint_of(conn, tenant_no, first).await?);
    }
    let mut last = None;
    if let Some(below) = start.below {
        let row = conn
            .query_one(
                &endpoints_sql(),
                &[
                    &tenant_no,
                    &Id(0),
                    &Id(below.0),
                    &sql_limit(MAX_ENDPOINTS_SCANNED),
                    &sql_limit(wanted),
                ],
            )
            .await?;
        numbers.extend(row.get::<_, Vec<i64>>(0));
        last = row.get::<_, Option<Id>>(1).map(|id| EndpointId(id.0));
    }
    let rows = conn
        .query(
            "SELECT no, id, url, standing FROM endpoints WHERE no = ANY($1) ORDER BY id DESC",
            &[&numbers],
        )
        .await?;
    let dead_endpoints = rows
        .iter()
        .map(read_dead_endpoint)
        .collect::<Result<Vec<_>, _>>()?;
    // Each endpoint has at least one group, so this number of endpoints fills the page. Otherwise the search
    // continues after the last examined endpoint.
    let full = dead_endpoints
        .last()
        .filter(|_| dead_endpoints.len() >= wanted);
    let stopped_at = full.map(|dead_endpoint| dead_endpoint.id).or(last);
    Ok((dead_endpoints, stopped_at.filter(|_| start.below.is_some())))
}

/// The statement that returns the numbers of endpoints with dead letters, and the last examined endpoint if there may
/// be more.
fn endpoints_sql() -> String {
    let scanned_endpoints = "FROM endpoints WHERE (tenant_no, id) >= ($1, $2) AND (tenant_no, id) < ($1, $3) \
        ORDER BY tenant_no DESC, id DESC";
    format!(
        "SELECT ARRAY(SELECT l.no FROM (SELECT no, tenant_no, id {scanned_endpoints} LIMIT $4) l \
         WHERE coalesce((SELECT sum(t.dead) FROM tally t WHERE t.endpoint_no = l.no), 0) <> 0 \
         ORDER BY l.tenant_no DESC, l.id DESC LIMIT $5), \
         (SELECT id {scanned_endpoints} OFFSET $4 - 1 LIMIT 1)"
    )
}

fn read_dead_endpoint(row: &Row) -> Result<DeadEndpoint, DbError> {
    Ok(DeadEndpoint {
        no: row.get(0),
        id: EndpointId(row.get::<_, Id>(1).0),
        url: row.get(2),
        status: word(row, 3)?,
    })
}

/// Returns the groups of these endpoints in order, from the start of the page.
async fn kinds<'a>(
    conn: &PgConnection,
    dead_endpoints: &'a [DeadEndpoint],
    start: Start,
) -> Result<Vec<Found<'a>>, DbError> {
    let numbers: Vec<i64> = dead_endpoints
        .iter()
        .map(|dead_endpoint| dead_endpoint.no)
        .collect();
    if numbers.is_empty() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for row in conn.query(&group_numbers_sql(), &[&numbers]).await? {
        let dead_endpoint = &dead_endpoints[row.get::<_, i64>(0) as usize - 1];
        let group_no: i64 = row.get(1);
        let kind = FailureKind::decode(group_no % GROUPS_PER_ENDPOINT);
        let past = start.first.filter(|(first, _)| *first == dead_endpoint.id);
        if rank(kind) > past.map_or(FIRST_RANK, |(_, past_rank)| past_rank) {
            found.push(Found {
                dead_endpoint,
                group_no,
                kind,
            });
        }
    }
    Ok(found)
}

/// Number of groups of an endpoint: one for each failure kind, and the last for deliveries without one.
const GROUPS_PER_ENDPOINT: i64 = 16;
/// The group number of a dead letter `d`, as in the index.
const GROUP_EXPRESSION: &str = "d.endpoint_no * 16 + coalesce(d.kind, 15)";
/// The condition for rows in the group `e.plot`.
const IN_GROUP: &str = ">= (e.plot, '00000000-0000-0000-0000-000000000000'::uuid) AND \
    (d.endpoint_no * 16 + coalesce(d.kind, 15), d.id) <= (e.plot, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)";

/// The statement that returns the non-empty groups of each endpoint, jumping from one to the next.
fn group_numbers_sql() -> String {
    format!(
        "SELECT e.place, f.plot FROM unnest($1::bigint[]) WITH ORDINALITY AS e (no, place) \
         CROSS JOIN LATERAL (WITH RECURSIVE f (plot) AS (SELECT e.no * {GROUPS_PER_ENDPOINT} - 1 UNION ALL SELECT \
         (SELECT {GROUP_EXPRESSION} FROM ended d WHERE {GROUP_EXPRESSION} > f.plot AND {GROUP_EXPRESSION} < e.no * {GROUPS_PER_ENDPOINT} + {GROUPS_PER_ENDPOINT} \
         AND d.status = 3 ORDER BY {GROUP_EXPRESSION} LIMIT 1) FROM f WHERE f.plot IS NOT NULL) \
         SELECT f.plot FROM f WHERE f.plot >= e.no * {GROUPS_PER_ENDPOINT}) f ORDER BY e.place, f.plot"
    )
}

/// The statement that returns the details of each group.
fn groups_sql() -> String {
    let lying = |columns: &str, order: &str, limit: &str| {
        format!(
            "SELECT {columns} FROM ended d WHERE ({GROUP_EXPRESSION}, d.id) {IN_GROUP} AND d.status = 3 \
             ORDER BY {GROUP_EXPRESSION} {order}, d.id {order} LIMIT {limit}"
        )
    };
    let newest = lying("d.id", "DESC", "1");
    let oldest = lying("d.created_at", "ASC", "1");
    let counted = lying("1", "ASC", "$2");
    format!(
        "SELECT e.place, n.id, o.created_at, (SELECT count(*) FROM ({counted}) c) \
         FROM unnest($1::bigint[]) WITH ORDINALITY AS e (plot, place) \
         CROSS JOIN LATERAL ({newest}) n CROSS JOIN LATERAL ({oldest}) o"
    )
}

/// Reads the details of groups. A group that has been deleted since is left out.
async fn groups(
    conn: &PgConnection,
    tenant: &TenantId,
    tenant_no: i64,
    found: &[Found<'_>],
) -> Result<Vec<DeadLetterGroup>, DbError> {
    let group_nos: Vec<i64> = found.iter().map(|found| found.group_no).collect();
    if group_nos.is_empty() {
        return Ok(Vec::new());
    }
    let rows = conn
        .query(
            &groups_sql(),
            &[&group_nos, &sql_limit(MAX_GROUP_COUNT + 1)],
        )
        .await?;
    let details: FxHashMap<usize, GroupDetails> = rows
        .iter()
        .map(|row| {
            let detail = GroupDetails {
                newest: DeliveryId(row.get::<_, Id>(1).0),
                oldest_at: row.get(2),
                counted: row.get(3),
            };
            (row.get::<_, i64>(0) as usize - 1, detail)
        })
        .collect();
    let ids: Vec<DeliveryId> = details.values().map(|detail| detail.newest).collect();
    let mut newest: FxHashMap<DeliveryId, _> = stored(conn, tenant, tenant_no, &ids)
        .await?
        .into_iter()
        .map(|stored| (stored.delivery.id(), stored))
        .collect();
    let groups = found.iter().enumerate().filter_map(|(index, found)| {
        let detail = details.get(&index)?;
        Some(DeadLetterGroup {
            endpoint: found.dead_endpoint.id,
            url: found.dead_endpoint.url.clone(),
            status: found.dead_endpoint.status,
            error_kind: found.kind,
            count: BoundedCount::of(detail.counted as usize),
            newest: newest.remove(&detail.newest)?,
            oldest_at: at(detail.oldest_at),
        })
    });
    Ok(groups.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_kind_has_a_group_number() {
        for kind in FailureKind::ALL {
            assert!(kind.code() < GROUPS_PER_ENDPOINT - 1);
        }
        assert_eq!(FailureKind::decode(GROUPS_PER_ENDPOINT - 1), None);
        let own = format!("coalesce(d.kind, {})", GROUPS_PER_ENDPOINT - 1);
        assert!(
            GROUP_EXPRESSION.ends_with(&own)
                && GROUP_EXPRESSION.contains(&format!("* {GROUPS_PER_ENDPOINT} +"))
        );
        let index =
            include_str!("../schema/second.sql").contains(&GROUP_EXPRESSION.replace("d.", ""));
        assert!(index, "the index is not by plot");
    }
}
