//! The targets of a replay: a list of events and endpoints, fixed when the replay starts.
//!
//! [`ReplaySearch`] finds them page by page. They are stored with the replay in a packed form, [`TARGET_BYTES`] per
//! [`ReplayTarget`].
//!
//! A search waits for one of the [`SearchSlots`](crate::search_slots::SearchSlots), which it holds until its targets are
//! stored. It takes 48 bytes of memory per target. A search that only counts keeps no targets, unless it looks for events
//! that an endpoint missed. Events that were accepted after the request are not found.

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
use crate::reply::CallerPresence;
use crate::search_slots::SearchSlot;
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
    /// Held as long as the targets are in memory.
    slot: Option<SearchSlot>,
}

/// The purpose of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SearchPurpose {
    /// To store the targets.
    List,
    /// To count them.
    Count,
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
    /// The greatest id of an event at the time of the request. Without one, the first page reads it.
    newest: Option<EventId>,
    position: SearchPosition,
}

/// The result of a page.
struct FoundTargets {
    tenant_no: Option<i64>,
    newest: Option<EventId>,
    targets: Vec<ReplayTarget>,
    /// `None` after the last page.
    next: Option<SearchPosition>,
}

/// A search for the targets of a replay, page by page. Each page is a read of its own, so the connection serves others
/// between two pages, and no snapshot lasts longer than a statement.
pub(in crate::postgres) struct ReplaySearch {
    page: SearchPage,
    caller: CallerPresence,
    found: ReplayTargets,
    /// Number of targets that were counted and not kept.
    counted: u64,
}

impl ReplaySearch {
    /// Creates a search.
    pub(in crate::postgres) fn new(
        tenant: TenantId,
        filter: ReplayFilter,
        caller: CallerPresence,
    ) -> ReplaySearch {
        ReplaySearch {
            page: SearchPage {
                tenant,
                tenant_no: None,
                filter,
                newest: None,
                position: SearchPosition::Deliveries(None),
            },
            caller,
            found: ReplayTargets {
                tenant_no: None,
                targets: Vec::new(),
                slot: None,
            },
            counted: 0,
        }
    }

    /// Finds the targets whose events have no greater id than `newest`, and passes them to `done`.
    pub(in crate::postgres) fn list(
        mut self,
        newest: EventId,
        readers: Arc<Readers>,
        done: Done<ReplayTargets>,
    ) {
        self.page.newest = Some(newest);
        let found = |search: Result<ReplaySearch, StoreError>| done(search.map(|it| it.found));
        self.start(SearchPurpose::List, readers, Box::new(found));
    }

    /// Counts the targets, and passes their number to `done`.
    pub(in crate::postgres) fn count(self, readers: Arc<Readers>, done: Done<u64>) {
        let found = |search: Result<ReplaySearch, StoreError>| {
            done(search.map(|it| it.counted + it.found.targets.len() as u64));
        };
        self.start(SearchPurpose::Count, readers, Box::new(found));
    }

    /// Waits for a slot, and reads the pages.
    fn start(mut self, purpose: SearchPurpose, readers: Arc<Readers>, done: Done<ReplaySearch>) {
        let (slots, caller) = (readers.search_slots.clone(), self.caller.clone());
        let tenant = self.page.tenant.clone();
        let start = move |slot: Result<SearchSlot, StoreError>| match slot {
            Ok(slot) => {
                self.found.slot = Some(slot);
                self.run(purpose, readers, done);
            }
            Err(why) => done(Err(why)),
        };
        slots.acquire(tenant, caller, Box::new(start));
    }

    /// Reads the remaining pages. Stops if the caller does not wait any more.
    fn run(mut self, purpose: SearchPurpose, readers: Arc<Readers>, done: Done<ReplaySearch>) {
        if !self.caller.is_waiting() {
            return;
        }
        let page = self.page.clone();
        let read = async move |conn: &PgConnection| page.read(conn).await;
        let next = readers.clone();
        let continued = move |found: Result<FoundTargets, StoreError>| {
            let found = match found {
                Ok(found) => found,
                Err(why) => return done(Err(why)),
            };
            let position = found.next;
            self.end_page(purpose, found);
            match position {
                Some(position) => {
                    self.page.position = position;
                    self.run(purpose, next, done);
                }
                None => done(Ok(self)),
            }
        };
        readers.read(ReadDuration::Endless, false, read, Box::new(continued));
    }

    /// Adds the targets of a page, or counts them if they need not be kept. Sorts all targets after the last page.
    fn end_page(&mut self, purpose: SearchPurpose, page: FoundTargets) {
        (self.page.tenant_no, self.page.newest) = (page.tenant_no, page.newest);
        self.found.tenant_no = page.tenant_no;
        // Only events that an endpoint missed can be found twice.
        if purpose == SearchPurpose::Count && self.page.filter.scope != ReplayScope::Missed {
            self.counted += page.targets.len() as u64;
        } else {
            self.found.targets.extend(page.targets);
        }
        if page.next.is_none() {
            self.found.targets.sort_unstable();
            // The pages see different snapshots, so a delivery that changes during the search may be found twice.
            self.found.targets.dedup();
        }
    }
}

impl SearchPage {
    /// Reads the page.
    async fn read(&self, conn: &PgConnection) -> Result<FoundTargets, DbError> {
        let tenant_no = live_tenant(conn, &self.tenant).await?;
        let newest = match self.newest {
            Some(newest) => newest,
            None => newest_event(conn).await?,
        };
        // A tenant with the same id may have been created meanwhile.
        let is_same = self.tenant_no.is_none() || self.tenant_no == tenant_no;
        let last_page = |targets| FoundTargets {
            tenant_no: self.tenant_no.or(tenant_no),
            newest: Some(newest),
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
                let (mut targets, below) = read_ended(conn, &wanted, below).await?;
                targets.retain(|target| target.event <= newest);
                let next = match below {
                    Some(below) => Some(SearchPosition::Deliveries(Some(below))),
                    None => missed.map(|_| SearchPosition::Events(None)),
                };
                (targets, next)
            }
            (SearchPosition::Events(below), Some(endpoint)) => {
                let below = below.unwrap_or(newest.0.saturating_add(1));
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

/// Returns the greatest id of a stored event.
pub(in crate::postgres) async fn newest_event(conn: &PgConnection) -> Result<EventId, DbError> {
    let sql = "SELECT id FROM events ORDER BY id DESC LIMIT 1";
    let newest = conn.query_opt(sql, &[]).await?;
    // Without an event, one that is accepted during the search may be found.
    Ok(EventId(
        newest.map_or(u128::MAX, |row| row.get::<_, Id>(0).0),
    ))
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
    below: u128,
) -> Result<(Vec<ReplayTarget>, Option<u128>), DbError> {
    let Some(row) = endpoints::endpoint(conn, endpoint).await? else {
        return Ok((Vec::new(), None));
    };
    let patterns = row.endpoint.event_types;
    let mut range = ids_between(conn, meta::EVENT_CLOCK_SKEW, wanted.since, wanted.until).await?;
    range.below = range.below.min(below);
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
