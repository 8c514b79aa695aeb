//! Iterates over deliveries or events in key order.
//!
//! The keys come from a [`Source`]: a short list, the failed deliveries of some endpoints, or everything of a tenant
//! or an endpoint. The last one reads the history up to its mark, and after the mark the rows themselves.

use rusqlite::Connection;

use super::codes::RowStatus;
use super::group_commit::number;
use super::row_keys::Key;
use super::schema::meta;
use crate::codes::sql_limit;

/// Maximum number of endpoints that are looked up one by one. Above it, reading the history costs less.
const MAX_MERGED: usize = 1_000;
/// Maximum number of waiting deliveries that are read as a list. Above it, reading the history finds them fast enough.
const MAX_GATHERED: usize = 20_000;

/// The order of the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// Oldest first.
    Up,
    /// Newest first.
    Down,
}

/// The tenant or endpoint of the deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SearchScope {
    /// All of the tenant with this number.
    Tenant(i64),
    /// Those to the endpoint with this number.
    Endpoint(i64),
}

impl SearchScope {
    fn no(self) -> i64 {
        match self {
            SearchScope::Tenant(no) | SearchScope::Endpoint(no) => no,
        }
    }
}

/// The origin of keys.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// These keys, in no order.
    Listed(Vec<Key>),
    /// Failed deliveries to these endpoints.
    Dead(Vec<i64>),
    /// All deliveries of a tenant or an endpoint.
    Deliveries(SearchScope),
    /// All events of a tenant.
    Events(i64),
}

/// The keys above `above` and below `below`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub(super) above: Key,
    pub(super) below: Key,
}

impl Source {
    /// Returns the source that finds deliveries of this status fastest.
    pub(super) fn of_status(
        conn: &Connection,
        scope: SearchScope,
        status: Option<RowStatusGroup>,
    ) -> rusqlite::Result<Source> {
        let everything = Source::Deliveries(scope);
        let Some(status) = status else {
            return Ok(everything);
        };
        let endpoints = match scope {
            SearchScope::Endpoint(no) => vec![no],
            SearchScope::Tenant(no) => conn
                .prepare_cached("SELECT no FROM endpoints WHERE tenant_no = ?1 LIMIT ?2")?
                .query_map((no, sql_limit(MAX_MERGED + 1)), |row| row.get(0))?
                .collect::<rusqlite::Result<Vec<i64>>>()?,
        };
        if endpoints.len() > MAX_MERGED {
            return Ok(everything);
        }
        match status {
            RowStatusGroup::Failed => Ok(Source::Dead(endpoints)),
            RowStatusGroup::Waiting => {
                let waiting = gather_waiting(conn, &endpoints)?;
                Ok(waiting.map_or(everything, Source::Listed))
            }
            RowStatusGroup::Done => Ok(everything),
        }
    }

    /// Returns the next `count` keys of the range.
    pub(super) fn keys(
        &self,
        conn: &Connection,
        range: Range,
        direction: Direction,
        count: usize,
    ) -> rusqlite::Result<Vec<Key>> {
        let mut keys = match self {
            Source::Listed(keys) => keys
                .iter()
                .copied()
                .filter(|key| range.above < *key && *key < range.below)
                .collect(),
            Source::Dead(endpoints) => {
                let mut keys = Vec::new();
                for no in endpoints {
                    keys.extend(dead(conn, *no, range, direction, count)?);
                }
                keys
            }
            Source::Deliveries(scope) => {
                return history(conn, Table::Deliveries(*scope), range, direction, count);
            }
            Source::Events(tenant) => {
                return history(conn, Table::Events(*tenant), range, direction, count);
            }
        };
        match direction {
            Direction::Up => keys.sort_unstable(),
            Direction::Down => keys.sort_unstable_by(|a, b| b.cmp(a)),
        }
        keys.truncate(count);
        Ok(keys)
    }
}

/// Statuses that are found in the same index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowStatusGroup {
    /// Pending or retrying.
    Waiting,
    /// Failed.
    Failed,
    /// Succeeded or cancelled.
    Done,
}

impl From<RowStatus> for RowStatusGroup {
    fn from(status: RowStatus) -> RowStatusGroup {
        match status {
            RowStatus::Pending | RowStatus::Retrying => RowStatusGroup::Waiting,
            RowStatus::Failed => RowStatusGroup::Failed,
            RowStatus::Succeeded | RowStatus::Cancelled => RowStatusGroup::Done,
        }
    }
}

/// Returns the waiting deliveries of these endpoints, unless there are more than [`MAX_GATHERED`].
fn gather_waiting(conn: &Connection, endpoints: &[i64]) -> rusqlite::Result<Option<Vec<Key>>> {
    let mut statement = conn.prepare_cached(
        "SELECT key FROM deliveries INDEXED BY due WHERE endpoint_no = ?1 AND due IS NOT NULL LIMIT ?2",
    )?;
    let mut keys = Vec::new();
    for no in endpoints {
        let remaining = MAX_GATHERED + 1 - keys.len();
        for key in statement.query_map((no, sql_limit(remaining)), |row| row.get(0))? {
            keys.push(key?);
        }
        if keys.len() > MAX_GATHERED {
            return Ok(None);
        }
    }
    Ok(Some(keys))
}

fn dead(
    conn: &Connection,
    endpoint_no: i64,
    range: Range,
    direction: Direction,
    count: usize,
) -> rusqlite::Result<Vec<Key>> {
    let order = order(direction);
    conn.prepare_cached(&format!(
        "SELECT key FROM deliveries INDEXED BY dead WHERE endpoint_no = ?1 AND status = 3 \
         AND key > ?2 AND key < ?3 ORDER BY key {order} LIMIT ?4"
    ))?
    .query_map(
        (endpoint_no, range.above, range.below, sql_limit(count)),
        |row| row.get(0),
    )?
    .collect()
}

fn order(direction: Direction) -> &'static str {
    match direction {
        Direction::Up => "ASC",
        Direction::Down => "DESC",
    }
}

/// The table of a history, with its scope.
#[derive(Clone, Copy)]
enum Table {
    Deliveries(SearchScope),
    Events(i64),
}

impl Table {
    fn mark(self) -> &'static str {
        match self {
            Table::Deliveries(_) => meta::DELIVERIES_UP_TO,
            Table::Events(_) => meta::EVENTS_UP_TO,
        }
    }

    fn scope(self) -> i64 {
        match self {
            Table::Deliveries(scope) => scope.no(),
            Table::Events(tenant) => tenant,
        }
    }

    fn indexed(self) -> &'static str {
        match self {
            Table::Deliveries(_) => "delivery_history WHERE scope = ?1",
            Table::Events(_) => "event_history WHERE scope = ?1",
        }
    }

    fn recent(self) -> &'static str {
        match self {
            Table::Deliveries(SearchScope::Endpoint(_)) => "deliveries WHERE endpoint_no = ?1",
            Table::Deliveries(SearchScope::Tenant(_)) => {
                "deliveries WHERE +endpoint_no IN (SELECT no FROM endpoints WHERE tenant_no = ?1)"
            }
            Table::Events(_) => "events WHERE tenant_no = ?1",
        }
    }
}

fn history(
    conn: &Connection,
    table: Table,
    range: Range,
    direction: Direction,
    count: usize,
) -> rusqlite::Result<Vec<Key>> {
    let mark = number(conn, table.mark())?;
    let indexed = Range {
        above: range.above,
        below: range.below.min(mark.saturating_add(1)),
    };
    let recent = Range {
        above: range.above.max(mark),
        below: range.below,
    };
    let parts = match direction {
        Direction::Up => [(table.indexed(), indexed), (table.recent(), recent)],
        Direction::Down => [(table.recent(), recent), (table.indexed(), indexed)],
    };
    let order = order(direction);
    let mut keys = Vec::new();
    for (part, range) in parts {
        let remaining = count - keys.len();
        if remaining == 0 || range.above.saturating_add(1) >= range.below {
            continue;
        }
        let mut statement = conn.prepare_cached(&format!(
            "SELECT key FROM {part} AND key > ?2 AND key < ?3 ORDER BY key {order} LIMIT ?4"
        ))?;
        let found = statement.query_map(
            (
                table.scope(),
                range.above,
                range.below,
                sql_limit(remaining),
            ),
            |row| row.get(0),
        )?;
        for key in found {
            keys.push(key?);
        }
    }
    Ok(keys)
}
