//! Telling owners of work: one notice for each of them and commit.

use posthaste_core::cluster::Shard;
use posthaste_core::id::EndpointId;
use posthaste_core::time::Timestamp;
use rustc_hash::FxHashMap;

use super::columns::{Id, ms};
use super::notice::{EVERYBODY, WORK_AGGREGATE};

/// Tells the owners of these shards, but for one. Takes shards, endpoints, due times, and this node.
pub(super) fn tell() -> String {
    format!(
        "SELECT pg_notify('{EVERYBODY}_' || owner, {WORK_AGGREGATE}) \
         FROM unnest($1::smallint[], $2::uuid[], $3::bigint[]) AS g (shard, id, due) \
         JOIN shards s ON s.no = g.shard WHERE s.owner <> $4 GROUP BY s.owner"
    )
}

/// Work for endpoints, the earliest of each.
#[derive(Debug, Default)]
pub(super) struct Work {
    earliest: FxHashMap<EndpointId, Timestamp>,
}

impl Work {
    /// Something is due.
    pub(super) fn add(&mut self, endpoint: EndpointId, due: Timestamp) {
        let earliest = self.earliest.entry(endpoint).or_insert(due);
        *earliest = due.min(*earliest);
    }

    /// What is due where.
    pub(super) fn iter(&self) -> impl Iterator<Item = (EndpointId, Timestamp)> {
        self.earliest
            .iter()
            .map(|(endpoint, due)| (*endpoint, *due))
    }

    /// As [`tell`] takes it, but for what `mine` says is this node's; nothing if there is nothing to tell.
    pub(super) fn columns(
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
