//! Notifies owners of new work: one `NOTIFY` message per owner and commit.

use posthaste_core::cluster::Shard;
use posthaste_core::id::EndpointId;
use posthaste_core::time::Timestamp;
use rustc_hash::FxHashMap;

use super::notify_message::{CLUSTER_CHANNEL, WORK_PAYLOAD_SQL};
use crate::codes::ms;
use crate::postgres::schema::columns::Id;

/// The statement that notifies the owners of these shards, except this node. Takes shards, endpoints, due times, and
/// this node's number.
pub(super) fn notify_sql() -> String {
    format!(
        "SELECT pg_notify('{CLUSTER_CHANNEL}_' || owner, {WORK_PAYLOAD_SQL}) \
         FROM unnest($1::smallint[], $2::uuid[], $3::bigint[]) AS g (shard, id, due) \
         JOIN shards s ON s.no = g.shard WHERE s.owner <> $4 GROUP BY s.owner"
    )
}

/// The earliest due time of new work, by endpoint.
#[derive(Debug, Default)]
pub(in crate::postgres) struct NewWork {
    earliest: FxHashMap<EndpointId, Timestamp>,
}

impl NewWork {
    /// Adds a due time.
    pub(in crate::postgres) fn add(&mut self, endpoint: EndpointId, due: Timestamp) {
        let earliest = self.earliest.entry(endpoint).or_insert(due);
        *earliest = due.min(*earliest);
    }

    /// Returns the endpoints and their due times.
    pub(in crate::postgres) fn iter(&self) -> impl Iterator<Item = (EndpointId, Timestamp)> {
        self.earliest
            .iter()
            .map(|(endpoint, due)| (*endpoint, *due))
    }

    /// Returns the parameters for [`notify_sql`], without the endpoints for which `mine` returns true. Returns `None` if
    /// none remain.
    pub(in crate::postgres) fn columns(
        &self,
        mine: impl Fn(EndpointId) -> bool,
    ) -> Option<(Vec<i16>, Vec<Id>, Vec<i64>)> {
        let mut columns = (Vec::new(), Vec::new(), Vec::new());
        for (endpoint, due) in self.iter().filter(|(endpoint, _)| !mine(*endpoint)) {
            columns.0.push(Shard::of(endpoint).number() as i16);
            columns.1.push(Id(endpoint.0));
            columns.2.push(ms(due));
        }
        (!columns.0.is_empty()).then_some(columns)
    }
}
