//! Writes the change log.
//!
//! Tenants, endpoints, keys and replays, which nodes cache, are changed only while holding the directory lock. Each
//! change gets the next number. Numbers therefore follow the commit order, and a node that has read up to a number
//! has missed nothing before it. `changes` reads the log.

use posthaste_core::id::TenantId;

use super::notify_message::{CHANGES, CLUSTER_CHANNEL};
use crate::postgres::connection::PgConnection;
use crate::postgres::pipeline::Pipeline;
use crate::{Change, KeyHash};

/// Number of changes that are kept for nodes that were disconnected.
pub(in crate::postgres) const MAX_CHANGES: i64 = 10_000;

/// The kind of a change of a tenant.
pub(in crate::postgres) const TENANT: i16 = 0;

/// Returns the stored form of a change.
pub(super) fn written(change: &Change) -> (i16, String) {
    match change {
        Change::Tenant(tenant) => (TENANT, tenant.to_string()),
        Change::Endpoint(endpoint) => (1, endpoint.to_string()),
        Change::Key(KeyHash(hash)) => {
            let hex = hash.iter().map(|byte| format!("{byte:02x}"));
            (2, hex.collect())
        }
        Change::Replay(replay) => (3, replay.to_string()),
    }
}

/// Parses a stored change. Returns `None` for a kind that a later version wrote.
pub(in crate::postgres) fn read(kind: i16, id: &str) -> Option<Change> {
    match kind {
        TENANT => id.parse::<TenantId>().ok().map(Change::Tenant),
        1 => id.parse().ok().map(Change::Endpoint),
        2 => {
            let byte = |index: usize| {
                let digits = id.get(2 * index..2 * index + 2)?;
                u8::from_str_radix(digits, 16).ok()
            };
            let mut hash = [0; 32];
            for (index, to) in hash.iter_mut().enumerate() {
                *to = byte(index)?;
            }
            Some(Change::Key(KeyHash(hash)))
        }
        3 => id.parse().ok().map(Change::Replay),
        _ => None,
    }
}

/// Appends changes.
pub(super) const APPEND: &str = "WITH last AS (UPDATE directory SET last_change = last_change + $3 RETURNING last_change), \
     trimmed AS (DELETE FROM changes WHERE no <= (SELECT last_change FROM last) - $4) \
     INSERT INTO changes (no, kind, id) SELECT last_change - $3 + place, kind, id \
     FROM last, unnest($1::smallint[], $2::text[]) WITH ORDINALITY AS c (kind, id, place)";
/// Notifies the other nodes.
pub(super) const NOTIFY: &str = "SELECT pg_notify($1, $2)";

/// Adds the statements that append changes. The transaction must hold the directory exclusively.
pub(super) fn append<'a>(
    conn: &'a PgConnection,
    changes: &'a [Change],
    pipeline: &mut Pipeline<'a>,
) {
    let (kinds, ids): (Vec<i16>, Vec<String>) = changes.iter().map(written).unzip();
    let count = changes.len() as i64;
    pipeline.then(async move {
        conn.execute(APPEND, &[&kinds, &ids, &count, &MAX_CHANGES])
            .await?;
        Ok(())
    });
    pipeline.then(async move {
        conn.execute(NOTIFY, &[&CLUSTER_CHANNEL, &CHANGES]).await?;
        Ok(())
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_core::id::{EndpointId, ReplayId};

    #[test]
    fn changes_read_as_they_were_written() {
        for change in [
            Change::Tenant("acme".parse().expect("a name")),
            Change::Endpoint(EndpointId(77)),
            Change::Key(KeyHash([0xa7; 32])),
            Change::Replay(ReplayId(5)),
        ] {
            let (kind, id) = written(&change);
            assert_eq!(read(kind, &id), Some(change));
        }
        assert_eq!(read(9, "x"), None);
        assert_eq!(read(2, "zz"), None);
    }
}
