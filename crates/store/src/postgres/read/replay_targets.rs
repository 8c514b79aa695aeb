//! The targets of a replay: a list of events and endpoints, fixed when the replay starts.
//!
//! [`ReplayTargets`] is found by a reader in steps of bounded size, so no statement runs long. It is stored with the
//! replay in a packed form, [`TARGET_BYTES`] per [`ReplayTarget`].

use posthaste_core::id::{EndpointId, EventId, TenantId};
use posthaste_core::subscription::{EventType, wants};

use super::directory::live_tenant;
use super::endpoints::{self, endpoint_of};
use super::lists::endpoints_numbered;
use super::search::{SearchFilter, sources};
use crate::codes::{ms, sql_limit};
use crate::postgres::connection::PgConnection;
use crate::postgres::db_error::DbError;
use crate::postgres::schema::clock_skew::ids_between;
use crate::postgres::schema::columns::{Id, parse};
use crate::postgres::schema::event_rows::read_list;
use crate::postgres::schema::meta;
use crate::{ReplayFilter, ReplayScope};

/// Number of rows per step.
const MAX_EXAMINED: usize = 4_096;
/// Size of a stored target.
const TARGET_BYTES: usize = 24;

/// An event to send to an endpoint. The order is that of replaying.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::postgres) struct ReplayTarget {
    pub(in crate::postgres) event: EventId,
    pub(in crate::postgres) endpoint: EndpointId,
    pub(in crate::postgres) endpoint_no: i64,
}

impl ReplayTarget {
    /// Appends the target to a stored list.
    pub(in crate::postgres) fn pack(&self, packed: &mut Vec<u8>) {
        packed.extend_from_slice(&self.event.0.to_be_bytes());
        packed.extend_from_slice(&self.endpoint_no.to_be_bytes());
    }
}

/// Decodes a stored list into events and endpoint numbers.
pub(in crate::postgres) fn unpack(packed: &[u8]) -> impl Iterator<Item = (EventId, i64)> {
    packed.chunks_exact(TARGET_BYTES).map(|target| {
        let (event, endpoint_no) = target.split_at(16);
        (
            EventId(u128::from_be_bytes(
                event.try_into().expect("sixteen bytes"),
            )),
            i64::from_be_bytes(endpoint_no.try_into().expect("eight bytes")),
        )
    })
}

/// All targets of a replay.
pub(in crate::postgres) struct ReplayTargets {
    pub(in crate::postgres) tenant_no: Option<i64>,
    pub(in crate::postgres) targets: Vec<ReplayTarget>,
}

/// Searches the targets of a replay, in steps of [`MAX_EXAMINED`] rows, so that no single statement runs long. The store calls
/// it as a read with one snapshot, which stays open during the whole search.
pub(in crate::postgres) async fn plan(
    conn: &PgConnection,
    tenant: &TenantId,
    filter: &ReplayFilter,
) -> Result<ReplayTargets, DbError> {
    let mut plan = ReplayTargets {
        tenant_no: live_tenant(conn, tenant).await?,
        targets: Vec::new(),
    };
    let Some(tenant_no) = plan.tenant_no else {
        return Ok(plan);
    };
    let endpoint_no = match filter.endpoint {
        None => None,
        Some(endpoint) => match endpoint_of(conn, tenant_no, endpoint).await? {
            Some(no) => Some(no),
            None => return Ok(plan),
        },
    };
    let Some(status) = filter.ended_status() else {
        return Ok(plan);
    };
    let wanted = SearchFilter {
        tenant_no,
        endpoint_no,
        status: Some(status),
        event_type: filter.event_type.clone(),
        error_kind: filter.error_kind,
        since: filter.since,
        until: filter.until,
    };
    let mut targets = ended(conn, &wanted).await?;
    match (filter.scope, filter.endpoint, endpoint_no) {
        // An event without a delivery has no failure kind.
        (ReplayScope::Missed, Some(endpoint), Some(no)) if filter.error_kind.is_none() => {
            let events = events_without_delivery(conn, &wanted, (endpoint, no)).await?;
            targets.extend(events.into_iter().map(|event| (event, no)));
        }
        (ReplayScope::Missed | ReplayScope::Ended(_), _, _) => {}
    }
    let mut numbers: Vec<i64> = targets.iter().map(|(_, no)| *no).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let endpoints = endpoints_numbered(conn, &numbers).await?;
    let named = targets.into_iter().filter_map(|(event, endpoint_no)| {
        Some(ReplayTarget {
            event,
            endpoint: *endpoints.get(&endpoint_no)?,
            endpoint_no,
        })
    });
    plan.targets = named.collect();
    plan.targets.sort_unstable();
    // Without one snapshot for all steps, a delivery that ends during the search could be found twice.
    plan.targets.dedup();
    Ok(plan)
}

/// Returns deliveries that have ended as wanted.
async fn ended(conn: &PgConnection, wanted: &SearchFilter) -> Result<Vec<(EventId, i64)>, DbError> {
    let mut targets = Vec::new();
    let range = ids_between(conn, meta::DELIVERY_CLOCK_SKEW, wanted.since, wanted.until).await?;
    for source in sources(conn, wanted).await? {
        let mut range = range;
        loop {
            let piece = source
                .examine(conn, wanted, range, MAX_EXAMINED, MAX_EXAMINED)
                .await?;
            targets.extend(piece.hits.iter().map(|hit| (hit.event, hit.endpoint_no)));
            match piece.down_to {
                Some(down_to) => range.below = down_to,
                None => break,
            }
        }
    }
    Ok(targets)
}

/// Returns events that the endpoint subscribes to now and that have no delivery to it. Test events of other endpoints
/// are left out.
async fn events_without_delivery(
    conn: &PgConnection,
    wanted: &SearchFilter,
    (endpoint, endpoint_no): (EndpointId, i64),
) -> Result<Vec<EventId>, DbError> {
    let Some(row) = endpoints::endpoint(conn, endpoint).await? else {
        return Ok(Vec::new());
    };
    let patterns = row.endpoint.event_types;
    let mut missed = Vec::new();
    let mut range = ids_between(conn, meta::EVENT_CLOCK_SKEW, wanted.since, wanted.until).await?;
    loop {
        let rows = conn
            .query(
                "SELECT l.id, l.type, l.deliveries, NOT l.test AND ($5::text IS NULL OR l.type = $5) \
                 AND l.created_at >= $6 AND l.created_at < $7 AND NOT EXISTS \
                 (SELECT 1 FROM added a WHERE a.event_id = l.id AND a.endpoint_no = $8) \
                 FROM (SELECT id, type, created_at, test, deliveries FROM events \
                 WHERE (tenant_no, id) > ($1, $2) AND (tenant_no, id) < ($1, $3) AND id > $2 AND id < $3 \
                 ORDER BY tenant_no DESC, id DESC LIMIT $4) l ORDER BY l.id DESC",
                &[
                    &wanted.tenant_no,
                    &Id(range.above),
                    &Id(range.below),
                    &sql_limit(MAX_EXAMINED),
                    &wanted.event_type.as_ref().map(EventType::as_str),
                    &wanted.since.map_or(0, ms),
                    &wanted.until.map_or(i64::MAX, ms),
                    &endpoint_no,
                ],
            )
            .await?;
        for row in rows.iter().filter(|row| row.get(3)) {
            let event_type: EventType = parse(row.get(1))?;
            let accepted = read_list(row.get(2));
            let tried = accepted
                .iter()
                .any(|delivery| delivery.endpoint == endpoint);
            if !tried && wants(&patterns, &event_type) {
                missed.push(EventId(row.get::<_, Id>(0).0));
            }
        }
        match rows.last() {
            Some(last) if rows.len() == MAX_EXAMINED => range.below = last.get::<_, Id>(0).0,
            Some(_) | None => return Ok(missed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_unpacked_as_it_was_packed() {
        let targets = [(7 << 100, 3), (u128::MAX, i64::MAX), (0, 1)];
        let mut packed = Vec::new();
        for (event, endpoint_no) in targets {
            let target = ReplayTarget {
                event: EventId(event),
                endpoint: EndpointId(9),
                endpoint_no,
            };
            target.pack(&mut packed);
        }
        let unpacked: Vec<(u128, i64)> = unpack(&packed).map(|(event, no)| (event.0, no)).collect();
        assert_eq!(unpacked, targets);
    }
}
