//! The targets of a replay: a list of events and endpoints, fixed when the replay starts.
//!
//! [`ReplaySearch`] finds them page by page. They are stored with the replay in a packed form, [`TARGET_BYTES`] per
//! [`ReplayTarget`].

use std::sync::Arc;

use posthaste_core::id::{EndpointId, EventId, TenantId};
use posthaste_core::subscription::{EventType, wants};

use super::directory::live_tenant;
use super::endpoints::{self, endpoint_of};
use super::lists::endpoints_numbered;
use super::readers::Readers;
use super::search::{SearchFilter, ended_source};
use crate::codes::{ms, sql_limit};
use crate::postgres::connection::PgConnection;
use crate::postgres::db_error::DbError;
use crate::postgres::schema::clock_skew::ids_between;
use crate::postgres::schema::columns::{Id, parse};
use crate::postgres::schema::event_rows::read_list;
use crate::postgres::schema::meta;
use crate::read_duration::ReadDuration;
use crate::{Done, ReplayFilter, ReplayScope, StoreError};

/// Maximum number of deliveries or events that one page examines.
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

/// The start of the next page.
#[derive(Clone, Copy, Debug)]
enum SearchPosition {
    /// At the deliveries with lesser ids; without an id, at the newest one.
    Deliveries(Option<u128>),
    /// At the events with lesser ids; without an id, at the newest one.
    Events(Option<u128>),
}

/// A page of a search: what to read.
#[derive(Clone)]
struct SearchPage {
    tenant: TenantId,
    /// The number of the tenant, once it is known.
    tenant_no: Option<i64>,
    filter: ReplayFilter,
    position: SearchPosition,
}

/// The result of a page.
struct FoundTargets {
    tenant_no: Option<i64>,
    targets: Vec<ReplayTarget>,
    /// `None` after the last page.
    next: Option<SearchPosition>,
}

/// A search for the targets of a replay, page by page. Each page is a read of its own, so the connection serves others
/// between two pages, and no snapshot lasts longer than a statement.
pub(in crate::postgres) struct ReplaySearch {
    page: SearchPage,
    targets: Vec<ReplayTarget>,
}

impl ReplaySearch {
    /// Starts a search.
    pub(in crate::postgres) fn new(tenant: TenantId, filter: ReplayFilter) -> ReplaySearch {
        ReplaySearch {
            page: SearchPage {
                tenant,
                tenant_no: None,
                filter,
                position: SearchPosition::Deliveries(None),
            },
            targets: Vec::new(),
        }
    }

    /// Reads the pages, and passes the targets to `done`.
    pub(in crate::postgres) fn run(mut self, readers: Arc<Readers>, done: Done<ReplayTargets>) {
        let page = self.page.clone();
        let read = async move |conn: &PgConnection| page.read(conn).await;
        let next = readers.clone();
        let continued = move |found: Result<FoundTargets, StoreError>| {
            let found = match found {
                Ok(found) => found,
                Err(why) => return done(Err(why)),
            };
            self.page.tenant_no = found.tenant_no;
            self.targets.extend(found.targets);
            match found.next {
                Some(position) => {
                    self.page.position = position;
                    self.run(next, done);
                }
                None => done(Ok(self.finish())),
            }
        };
        readers.read(ReadDuration::Endless, false, read, Box::new(continued));
    }

    fn finish(mut self) -> ReplayTargets {
        self.targets.sort_unstable();
        // The pages see different snapshots, so a delivery that changes during the search may be found twice.
        self.targets.dedup();
        ReplayTargets {
            tenant_no: self.page.tenant_no,
            targets: self.targets,
        }
    }
}

impl SearchPage {
    /// Reads the page.
    async fn read(&self, conn: &PgConnection) -> Result<FoundTargets, DbError> {
        let tenant_no = live_tenant(conn, &self.tenant).await?;
        // A tenant with the same id may have been created meanwhile.
        let is_same = self.tenant_no.is_none() || self.tenant_no == tenant_no;
        let last_page = |targets| FoundTargets {
            tenant_no: self.tenant_no.or(tenant_no),
            targets,
            next: None,
        };
        let Some(tenant_no) = tenant_no.filter(|_| is_same) else {
            return Ok(last_page(Vec::new()));
        };
        let endpoint = match self.filter.endpoint {
            None => None,
            Some(endpoint) => match endpoint_of(conn, tenant_no, endpoint).await? {
                Some(no) => Some((endpoint, no)),
                None => return Ok(last_page(Vec::new())),
            },
        };
        let Some(status) = self.filter.ended_status() else {
            return Ok(last_page(Vec::new()));
        };
        let wanted = SearchFilter {
            tenant_no,
            endpoint_no: endpoint.map(|(_, no)| no),
            status: Some(status),
            event_type: self.filter.event_type.clone(),
            error_kind: self.filter.error_kind,
            since: self.filter.since,
            until: self.filter.until,
        };
        let missed = match (self.filter.scope, endpoint) {
            // An event without a delivery has no failure kind.
            (ReplayScope::Missed, Some(endpoint)) if self.filter.error_kind.is_none() => {
                Some(endpoint)
            }
            (ReplayScope::Missed | ReplayScope::Ended(_), _) => None,
        };
        let (targets, next) = match (self.position, missed) {
            (SearchPosition::Deliveries(below), missed) => {
                let (targets, below) = read_ended(conn, &wanted, below).await?;
                let next = match below {
                    Some(below) => Some(SearchPosition::Deliveries(Some(below))),
                    None => missed.map(|_| SearchPosition::Events(None)),
                };
                (targets, next)
            }
            (SearchPosition::Events(below), Some(endpoint)) => {
                let (targets, below) = read_missed(conn, &wanted, endpoint, below).await?;
                let next = below.map(|below| SearchPosition::Events(Some(below)));
                (targets, next)
            }
            (SearchPosition::Events(_), None) => (Vec::new(), None),
        };
        Ok(FoundTargets {
            next,
            ..last_page(targets)
        })
    }
}

/// Finds deliveries below an id that have ended as wanted. Also returns the last id that was examined, unless the search is
/// complete.
async fn read_ended(
    conn: &PgConnection,
    wanted: &SearchFilter,
    below: Option<u128>,
) -> Result<(Vec<ReplayTarget>, Option<u128>), DbError> {
    let mut range =
        ids_between(conn, meta::DELIVERY_CLOCK_SKEW, wanted.since, wanted.until).await?;
    range.below = below.map_or(range.below, |below| range.below.min(below));
    let source = ended_source(conn, wanted).await?;
    let piece = source
        .examine(conn, wanted, range, MAX_EXAMINED, MAX_EXAMINED)
        .await?;
    let mut numbers: Vec<i64> = piece.hits.iter().map(|hit| hit.endpoint_no).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let endpoints = endpoints_numbered(conn, &numbers).await?;
    let targets = piece.hits.iter().filter_map(|hit| {
        Some(ReplayTarget {
            event: hit.event,
            endpoint: *endpoints.get(&hit.endpoint_no)?,
            endpoint_no: hit.endpoint_no,
        })
    });
    Ok((targets.collect(), piece.down_to))
}

/// Finds events below an id that the endpoint subscribes to now and that have no delivery to it. Test events of other
/// endpoints are left out. Also returns the last id that was examined, unless the search is complete.
async fn read_missed(
    conn: &PgConnection,
    wanted: &SearchFilter,
    (endpoint, endpoint_no): (EndpointId, i64),
    below: Option<u128>,
) -> Result<(Vec<ReplayTarget>, Option<u128>), DbError> {
    let Some(row) = endpoints::endpoint(conn, endpoint).await? else {
        return Ok((Vec::new(), None));
    };
    let patterns = row.endpoint.event_types;
    let mut range = ids_between(conn, meta::EVENT_CLOCK_SKEW, wanted.since, wanted.until).await?;
    range.below = below.map_or(range.below, |below| range.below.min(below));
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
    let mut missed = Vec::new();
    for row in rows.iter().filter(|row| row.get(3)) {
        let event_type: EventType = parse(row.get(1))?;
        let accepted = read_list(row.get(2));
        let tried = accepted
            .iter()
            .any(|delivery| delivery.endpoint == endpoint);
        if !tried && wants(&patterns, &event_type) {
            missed.push(ReplayTarget {
                event: EventId(row.get::<_, Id>(0).0),
                endpoint,
                endpoint_no,
            });
        }
    }
    let last = rows.last().filter(|_| rows.len() == MAX_EXAMINED);
    Ok((missed, last.map(|last| last.get::<_, Id>(0).0)))
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
