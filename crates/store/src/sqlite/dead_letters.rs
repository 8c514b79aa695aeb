//! Groups dead letters by endpoint and failure kind.
//!
//! Nothing scans them: the index contains them by endpoint and kind. So one lookup finds the next kind of an
//! endpoint, or the oldest or newest dead letter of a group. Only the count reads more rows, up to [`MAX_GROUP_COUNT`].

use posthaste_core::classify::FailureKind;
use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::lane::EndpointStatus;
use rusqlite::{Connection, OptionalExtension, Row};

use super::codes::Code;
use super::delivery_rows::endpoint_id;
use super::directory::live_tenant;
use super::lists::{RowFilter, matching_row};
use super::row_keys::{Key, id_bytes};
use crate::codes::{Coded, sql_limit};
use crate::dead_letters::{FIRST_RANK, LAST_RANK, MAX_ENDPOINTS_SCANNED, Start, rank};
use crate::{
    BoundedCount, DeadLetterGroup, DeadLetterGroupKey, MAX_GROUP_COUNT, Page, PageRequest,
};

/// The dead letters `d` of an endpoint.
const DEAD: &str = "deliveries d INDEXED BY dead_by_kind WHERE d.endpoint_no = ?1 AND d.status = 3";

/// An endpoint that may have dead letters.
struct DeadEndpoint {
    no: i64,
    id: EndpointId,
    url: String,
    status: EndpointStatus,
}

const SELECT_ENDPOINT: &str = "SELECT no, id, url, standing FROM endpoints WHERE tenant_no = ?1";

fn read_dead_endpoint(row: &Row<'_>) -> rusqlite::Result<DeadEndpoint> {
    Ok(DeadEndpoint {
        no: row.get(0)?,
        id: endpoint_id(row, 1)?,
        url: row.get(2)?,
        status: row.get::<_, Code<EndpointStatus>>(3)?.0,
    })
}

/// A page in construction.
struct PageBuilder<'a> {
    conn: &'a Connection,
    tenant_no: i64,
    limit: usize,
    groups: Vec<DeadLetterGroup>,
}

/// Returns a page of groups, for one endpoint or for all.
pub(super) fn dead_letter_groups(
    conn: &Connection,
    tenant: &TenantId,
    endpoint: Option<EndpointId>,
    page: PageRequest<DeadLetterGroupKey>,
) -> rusqlite::Result<Page<DeadLetterGroup, DeadLetterGroupKey>> {
    let tenant_no = live_tenant(conn, tenant)?;
    let Some(tenant_no) = tenant_no.filter(|_| page.limit > 0) else {
        return Ok(Page {
            items: Vec::new(),
            next: None,
        });
    };
    let mut filling = PageBuilder {
        conn,
        tenant_no,
        limit: page.limit,
        groups: Vec::new(),
    };
    let next = filling.fill(Start::after(page.before, endpoint))?;
    Ok(Page {
        items: filling.groups,
        next,
    })
}

impl PageBuilder<'_> {
    /// Fills the page. Returns the start of the next one, if there may be one.
    fn fill(&mut self, start: Start) -> rusqlite::Result<Option<DeadLetterGroupKey>> {
        if let Some((endpoint, past)) = start.first {
            let found = self
                .conn
                .prepare_cached(&format!("{SELECT_ENDPOINT} AND id = ?2"))?
                .query_row((self.tenant_no, id_bytes(endpoint.0)), read_dead_endpoint)
                .optional()?;
            if let Some(dead_endpoint) = found
                && !self.take(&dead_endpoint, past)?
            {
                return Ok(self.last());
            }
        }
        let Some(below) = start.below else {
            return Ok(None);
        };
        let conn = self.conn;
        let mut statement = conn.prepare_cached(&format!(
            "{SELECT_ENDPOINT} AND id < ?2 ORDER BY id DESC LIMIT ?3"
        ))?;
        let limit = sql_limit(MAX_ENDPOINTS_SCANNED);
        let dead_endpoints = statement.query_map(
            (self.tenant_no, id_bytes(below.0), limit),
            read_dead_endpoint,
        )?;
        let mut examined = 0;
        let mut last = None;
        for dead_endpoint in dead_endpoints {
            let dead_endpoint = dead_endpoint?;
            if !self.take(&dead_endpoint, FIRST_RANK)? {
                return Ok(self.last());
            }
            examined += 1;
            last = Some((dead_endpoint.id, None));
        }
        Ok(last.filter(|_| examined >= MAX_ENDPOINTS_SCANNED))
    }

    /// Adds the groups of an endpoint whose rank is above `past`. Returns false if the page is full and there are
    /// more.
    fn take(&mut self, dead_endpoint: &DeadEndpoint, mut past: i16) -> rusqlite::Result<bool> {
        while let Some(kind) = next_kind(self.conn, dead_endpoint.no, past)? {
            if self.groups.len() == self.limit {
                return Ok(false);
            }
            self.groups
                .extend(group(self.conn, self.tenant_no, dead_endpoint, kind)?);
            past = rank(kind);
        }
        Ok(true)
    }

    fn last(&self) -> Option<DeadLetterGroupKey> {
        let last = self.groups.last()?;
        Some((last.endpoint, last.error_kind))
    }
}

/// Returns the next failure kind of which an endpoint has dead letters.
fn next_kind(
    conn: &Connection,
    endpoint_no: i64,
    past: i16,
) -> rusqlite::Result<Option<Option<FailureKind>>> {
    if past == LAST_RANK {
        return Ok(None);
    }
    let next = conn
        .prepare_cached(&next_kind_sql())?
        .query_row((endpoint_no, past), |row| {
            row.get::<_, Code<FailureKind>>(0)
        })
        .optional()?;
    if let Some(Code(kind)) = next {
        return Ok(Some(Some(kind)));
    }
    let without = edge(conn, endpoint_no, None, "ASC")?;
    Ok(without.map(|_| None))
}

fn next_kind_sql() -> String {
    format!("SELECT d.kind FROM {DEAD} AND d.kind > ?2 ORDER BY d.kind LIMIT 1")
}

/// Returns the oldest or the newest dead letter of a group.
fn edge(
    conn: &Connection,
    endpoint_no: i64,
    kind: Option<FailureKind>,
    order: &str,
) -> rusqlite::Result<Option<Key>> {
    conn.prepare_cached(&edge_sql(order))?
        .query_row((endpoint_no, kind.map(Coded::code)), |row| row.get(0))
        .optional()
}

fn edge_sql(order: &str) -> String {
    format!("SELECT d.key FROM {DEAD} AND d.kind IS ?2 ORDER BY d.key {order} LIMIT 1")
}

fn count_sql() -> String {
    format!("SELECT count(*) FROM (SELECT 1 FROM {DEAD} AND d.kind IS ?2 LIMIT ?3)")
}

fn group(
    conn: &Connection,
    tenant_no: i64,
    dead_endpoint: &DeadEndpoint,
    error_kind: Option<FailureKind>,
) -> rusqlite::Result<Option<DeadLetterGroup>> {
    let row_filter = RowFilter {
        tenant_no,
        ..RowFilter::default()
    };
    let edge_at = |order| match edge(conn, dead_endpoint.no, error_kind, order)? {
        Some(key) => matching_row(conn, key, &row_filter),
        None => Ok(None),
    };
    let (Some(oldest), Some(newest)) = (edge_at("ASC")?, edge_at("DESC")?) else {
        return Ok(None);
    };
    let kind = error_kind.map(Coded::code);
    let counted: i64 = conn.prepare_cached(&count_sql())?.query_row(
        (dead_endpoint.no, kind, sql_limit(MAX_GROUP_COUNT + 1)),
        |row| row.get(0),
    )?;
    Ok(Some(DeadLetterGroup {
        endpoint: dead_endpoint.id,
        url: dead_endpoint.url.clone(),
        status: dead_endpoint.status,
        error_kind,
        count: BoundedCount::of(counted as usize),
        newest,
        oldest_at: oldest.created_at,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::schema::MIGRATIONS;

    /// Every statement searches the index by all its parameters, so the number of rows it reads does not depend on
    /// the number of dead letters.
    #[test]
    fn dead_letters_are_not_scanned() {
        let conn = Connection::open_in_memory().expect("memory");
        for step in MIGRATIONS {
            conn.execute_batch(step).expect("a step");
        }
        let by_kind = "SEARCH d USING COVERING INDEX dead_by_kind (endpoint_no=? AND kind=?)";
        let past_kind = "SEARCH d USING COVERING INDEX dead_by_kind (endpoint_no=? AND kind>?)";
        for (sql, expected) in [
            (next_kind_sql(), past_kind),
            (edge_sql("ASC"), by_kind),
            (edge_sql("DESC"), by_kind),
            (count_sql(), by_kind),
        ] {
            let mut statement = conn
                .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
                .expect("a plan");
            let params = vec![0_i64; statement.parameter_count()];
            let plan: Vec<String> = statement
                .query_map(rusqlite::params_from_iter(params), |row| row.get(3))
                .expect("it is told")
                .collect::<Result<_, _>>()
                .expect("words");
            assert!(plan.iter().any(|line| line == expected), "{sql}: {plan:?}");
            let sorts = plan.iter().any(|line| line.contains("TEMP B-TREE"));
            assert!(!sorts, "{sql}: {plan:?}");
        }
    }
}
