//! The targets of a replay: events and endpoints, fixed when the replay starts.
//!
//! [`ReplaySearch`] finds them page by page. Each page is a read of its own, so the reader serves others between two pages.
//! A delivery that changes during the search may be found or not. A step of the replay skips targets that have not ended
//! as the filter says.

use std::sync::Arc;

use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::subscription::{EventType, wants};
use rusqlite::{Connection, OptionalExtension};

use super::delivery_rows::parse;
use super::directory::live_tenant;
use super::endpoints;
use super::event_rows::DeliveryList;
use super::key_scan::{Direction, SearchScope, Source};
use super::lists::{self, RowFilter, endpoint_of, group_of, keys_between};
use super::readers::Readers;
use super::row_keys::Key;
use super::schema::meta;
use crate::codes::ms;
use crate::read_duration::ReadDuration;
use crate::{Done, ReplayFilter, ReplayScope, StoreError, StoredStatus};

/// Maximum number of deliveries or events that one page examines.
const MAX_EXAMINED: usize = 1_024;
/// Size of a stored target.
pub(super) const TARGET_BYTES: usize = 16;
/// A key below every other.
const BEFORE_ALL_KEYS: Key = -1;

/// One item of a replay: an event to an endpoint. Sorted in the order of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ReplayTarget {
    pub(super) event: Key,
    pub(super) endpoint: EndpointId,
    pub(super) endpoint_no: i64,
}

/// Everything that a replay will send.
#[derive(Default)]
pub(super) struct ReplayTargets {
    /// The number of the tenant; `None` if it does not exist.
    pub(super) tenant_no: Option<i64>,
    pub(super) targets: Vec<ReplayTarget>,
}

impl ReplayTargets {
    /// The size of the packed targets, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.targets.len() * TARGET_BYTES
    }
}

/// The start of the next page.
#[derive(Clone, Copy, Debug)]
enum SearchPosition {
    /// At the deliveries with greater keys.
    Deliveries(Key),
    /// At the events with greater keys.
    Events(Key),
}

/// A search for the targets of a replay.
pub(super) struct ReplaySearch {
    tenant: TenantId,
    filter: ReplayFilter,
    position: SearchPosition,
    found: ReplayTargets,
}

impl ReplaySearch {
    /// Starts a search.
    pub(super) fn new(tenant: TenantId, filter: ReplayFilter) -> ReplaySearch {
        ReplaySearch {
            tenant,
            filter,
            position: SearchPosition::Deliveries(BEFORE_ALL_KEYS),
            found: ReplayTargets::default(),
        }
    }

    /// Reads the pages, and passes the targets to `done`.
    pub(super) fn run(mut self, readers: Arc<Readers>, done: Done<ReplayTargets>) {
        let next = readers.clone();
        let page = move |conn: &Connection| {
            let is_last = self.read_page(conn)?;
            Ok((self, is_last))
        };
        let continued = move |page: Result<(ReplaySearch, bool), StoreError>| match page {
            Ok((search, false)) => search.run(next, done),
            Ok((search, true)) => done(Ok(search.finish())),
            Err(why) => done(Err(why)),
        };
        readers.read(ReadDuration::Endless, page, Box::new(continued));
    }

    fn finish(mut self) -> ReplayTargets {
        self.found.targets.sort_unstable();
        // Another replay may have made the missing delivery of an event meanwhile, and it has failed.
        self.found.targets.dedup();
        self.found
    }

    /// Reads the next page. Returns whether it was the last.
    fn read_page(&mut self, conn: &Connection) -> rusqlite::Result<bool> {
        let tenant_no = live_tenant(conn, &self.tenant)?;
        let before = self.found.tenant_no;
        // A tenant with the same id may have been created meanwhile.
        let is_same = before.is_none() || before == tenant_no;
        let Some(tenant_no) = tenant_no.filter(|_| is_same) else {
            return Ok(true);
        };
        self.found.tenant_no = Some(tenant_no);
        let endpoint = match self.filter.endpoint {
            None => None,
            Some(endpoint) => match endpoint_of(conn, tenant_no, endpoint)? {
                Some(no) => Some((endpoint, no)),
                None => return Ok(true),
            },
        };
        let Some(status) = self.filter.ended_status() else {
            return Ok(true);
        };
        let row_filter = RowFilter {
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
        match (self.position, missed) {
            (SearchPosition::Deliveries(above), missed) => {
                match self.read_ended(conn, &row_filter, status, above)? {
                    Some(last) => self.position = SearchPosition::Deliveries(last),
                    None => self.position = SearchPosition::Events(BEFORE_ALL_KEYS),
                }
                let is_at_events = matches!(self.position, SearchPosition::Events(_));
                Ok(is_at_events && missed.is_none())
            }
            (SearchPosition::Events(above), Some(endpoint)) => {
                let last = self.read_missed(conn, &row_filter, endpoint, above)?;
                self.position = SearchPosition::Events(last.unwrap_or(above));
                Ok(last.is_none())
            }
            (SearchPosition::Events(_), None) => Ok(true),
        }
    }

    /// Finds deliveries above a key that ended with the wanted status. Returns the last key that was examined.
    fn read_ended(
        &mut self,
        conn: &Connection,
        row_filter: &RowFilter,
        status: StoredStatus,
        above: Key,
    ) -> rusqlite::Result<Option<Key>> {
        let scope = row_filter.endpoint_no.map_or(
            SearchScope::Tenant(row_filter.tenant_no),
            SearchScope::Endpoint,
        );
        let source = Source::of_status(conn, scope, Some(group_of(status)))?;
        let (since, until) = (row_filter.since, row_filter.until);
        let mut range = keys_between(conn, meta::DELIVERY_CLOCK_SKEW, since, until)?;
        range.above = range.above.max(above);
        let keys = source.keys(conn, range, Direction::Up, MAX_EXAMINED)?;
        for key in &keys {
            let target = lists::target_at(conn, *key, row_filter)?;
            self.found.targets.extend(target);
        }
        Ok(keys.last().copied())
    }

    /// Finds events above a key that the endpoint subscribes to now and that have no delivery to it. Skips test events,
    /// which were sent to one endpoint only. Returns the last key that was examined.
    fn read_missed(
        &mut self,
        conn: &Connection,
        row_filter: &RowFilter,
        (endpoint, endpoint_no): (EndpointId, i64),
        above: Key,
    ) -> rusqlite::Result<Option<Key>> {
        let Some(row) = endpoints::endpoint(conn, endpoint)? else {
            return Ok(None);
        };
        let patterns = row.endpoint.event_types;
        let (since, until) = (row_filter.since, row_filter.until);
        let only = row_filter.event_type.as_ref().map(EventType::as_str);
        let mut statement = conn.prepare_cached(
            "SELECT type, deliveries FROM events WHERE key = ?1 AND test = 0 \
             AND created_at >= ?2 AND created_at < ?3 AND (?4 IS NULL OR type = ?4)",
        )?;
        let mut range = keys_between(conn, meta::EVENT_CLOCK_SKEW, since, until)?;
        range.above = range.above.max(above);
        let (since, until) = (since.map_or(0, ms), until.map_or(i64::MAX, ms));
        let source = Source::Events(row_filter.tenant_no);
        let keys = source.keys(conn, range, Direction::Up, MAX_EXAMINED)?;
        for key in &keys {
            let missed = statement
                .query_row((key, since, until, only), |row| {
                    let list = DeliveryList::from_bytes(row.get(1)?);
                    let event_type: EventType = parse(row.get_ref(0)?.as_str()?)?;
                    let tried = list.iter().any(|listed| listed.endpoint_no == endpoint_no);
                    Ok(!tried && wants(&patterns, &event_type))
                })
                .optional()?;
            if missed == Some(true) {
                self.found.targets.push(ReplayTarget {
                    event: *key,
                    endpoint,
                    endpoint_no,
                });
            }
        }
        Ok(keys.last().copied())
    }
}
