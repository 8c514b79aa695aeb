//! Reads the nodes, for operators.

use posthaste_core::cluster::{Capacity, NodeNo, RoundTrips};
use posthaste_core::time::Span;
use tokio_postgres::Row;

use crate::NodeInfo;
use crate::codes::at;
use crate::postgres::connection::PgConnection;
use crate::postgres::db_error::DbError;

/// Reads every registered node with its last heartbeat and the number of its shards.
const LIST: &str = "SELECT n.no, n.name, coalesce(n.role_name, CASE n.role WHEN 0 THEN 'api' ELSE 'all' END), \
     n.version, n.started_at, b.at, \
     greatest((extract(epoch FROM clock_timestamp()) * 1000)::bigint - b.at, 0), \
     b.lease_ms, b.capacity, b.heartbeat_ms, b.fetch_ms, b.record_ms, b.offset_ms, \
     (SELECT count(*) FROM shards s WHERE s.owner = n.no) \
     FROM nodes n JOIN beats b ON b.node = n.no ORDER BY n.no";

/// Returns every registered node, by number.
pub(super) async fn list(conn: &PgConnection) -> Result<Vec<NodeInfo>, DbError> {
    let rows = conn.query(LIST, &[]).await?;
    Ok(rows.iter().map(node).collect())
}

fn node(row: &Row) -> NodeInfo {
    let number = |column: usize| row.get::<_, Option<i64>>(column);
    let span = |column: usize| number(column).map(|ms| Span::from_millis(ms.max(0) as u64));
    let capacity = row.get::<_, Option<i16>>(8);
    NodeInfo {
        node: NodeNo(row.get::<_, i64>(0) as u64),
        name: row.get(1),
        role: row.get(2),
        version: row.get(3),
        started_at: number(4).map(at),
        last_heartbeat_at: number(5).map(at),
        heartbeat_age: span(6),
        lease: Span::from_millis(row.get::<_, i64>(7) as u64),
        capacity: capacity.map(|quarters| Capacity::of_quarters(quarters.max(0) as u8)),
        round_trips: RoundTrips {
            heartbeat: span(9),
            fetch: span(10),
            record: span(11),
        },
        clock_offset_ms: number(12),
        shards: row.get::<_, i64>(13) as u64,
    }
}
