//! The targets of a replay: events and endpoints, fixed when the replay starts.
//!
//! [`ReplaySearch`] finds them page by page. Each page is a read of its own, so the reader serves others between two pages.
//! A delivery that changes during the search may be found or not, but none is found that was accepted after the request. A step of
//! the replay skips targets that have not ended as the filter says.
//!
//! A search waits for one of the [`SearchSlots`](crate::search_slots::SearchSlots), which it holds until its targets are
//! stored. It takes 32 bytes of memory per target. A search that only counts keeps no targets, unless it looks for events
//! that an endpoint missed.

use std::sync::Arc;

use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::subscription::{EventType, wants};
use rusqlite::{Connection, OptionalExtension};

use super::delivery_rows::parse;
use super::directory::live_tenant;
use super::endpoints;
use super::event_rows::DeliveryList;
use super::key_scan::{Direction, Range, SearchScope, Source};
use super::lists::{self, RowFilter, endpoint_of, group_of, keys_between};
use super::readers::Readers;
use super::row_keys::{AFTER_ALL_KEYS, Key, id_bytes};
use super::schema::meta;
use crate::codes::{ms, sql_limit};
use crate::read_duration::ReadDuration;
use crate::reply::CallerPresence;
use crate::search_slots::SearchSlot;
use crate::{Done, ReplayFilter, ReplayScope, StoreError, StoredStatus};

/// Maximum number of deliveries or events that one page examines.
const MAX_EXAMINED: usize = 1_024;
/// Maximum number of endpoints whose failed deliveries one page looks up.
const MAX_ENDPOINTS: usize = 1_024;
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
    /// Held as long as the targets are in memory.
    slot: Option<SearchSlot>,
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
    /// At the failed deliveries to this endpoint with greater keys, then at those to endpoints with greater ids.
    Failed { endpoint: EndpointId, above: Key },
    /// At the deliveries with greater keys.
    Deliveries(Key),
    /// At the events with greater keys.
    Events(Key),
}

/// The purpose of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SearchPurpose {
    /// To store the targets.
    List,
    /// To count them.
    Count,
}

/// A search for the targets of a replay.
pub(super) struct ReplaySearch {
    tenant: TenantId,
    filter: ReplayFilter,
    caller: CallerPresence,
    position: SearchPosition,
    /// The greatest key at the time of the request. Without one, the first page sets it.
    newest: Option<Key>,
    found: ReplayTargets,
    /// Number of targets that were counted and not kept.
    counted: u64,
}

impl ReplaySearch {
    /// Creates a search.
    pub(super) fn new(
        tenant: TenantId,
        filter: ReplayFilter,
        caller: CallerPresence,
    ) -> ReplaySearch {
        let position = match (filter.endpoint, filter.ended_status()) {
            (None, Some(StoredStatus::Failed)) => SearchPosition::Failed {
                endpoint: EndpointId(0),
                above: BEFORE_ALL_KEYS,
            },
            (Some(_) | None, _) => SearchPosition::Deliveries(BEFORE_ALL_KEYS),
        };
        ReplaySearch {
            tenant,
            filter,
            caller,
            position,
            newest: None,
            found: ReplayTargets::default(),
            counted: 0,
        }
    }

    /// Finds the targets whose keys are not greater than `newest`, and passes them to `done`.
    pub(super) fn list(mut self, newest: Key, readers: Arc<Readers>, done: Done<ReplayTargets>) {
        self.newest = Some(newest);
        let found = |search: Result<ReplaySearch, StoreError>| done(search.map(|it| it.found));
        self.start(SearchPurpose::List, readers, Box::new(found));
    }

    /// Counts the targets, and passes their number to `done`.
    pub(super) fn count(self, readers: Arc<Readers>, done: Done<u64>) {
        let found = |search: Result<ReplaySearch, StoreError>| {
            done(search.map(|it| it.counted + it.found.targets.len() as u64));
        };
        self.start(SearchPurpose::Count, readers, Box::new(found));
    }

    /// Waits for a slot, and reads the pages.
    fn start(mut self, purpose: SearchPurpose, readers: Arc<Readers>, done: Done<ReplaySearch>) {
        let (slots, caller) = (readers.search_slots.clone(), self.caller.clone());
        let tenant = self.tenant.clone();
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
        let next = readers.clone();
        let page = move |conn: &Connection| {
            let is_last = self.read_page(conn)?;
            Ok((self, is_last))
        };
        let continued = move |page: Result<(ReplaySearch, bool), StoreError>| match page {
            Ok((mut search, is_last)) => {
                search.end_page(purpose, is_last);
                if is_last {
                    done(Ok(search));
                } else {
                    search.run(purpose, next, done);
                }
            }
            Err(why) => done(Err(why)),
        };
        readers.read(ReadDuration::Endless, page, Box::new(continued));
    }

    /// Counts the targets of the page if they need not be kept. Sorts all targets after the last page.
    fn end_page(&mut self, purpose: SearchPurpose, is_last: bool) {
        let found = &mut self.found;
        // Only events that an endpoint missed can be found twice.
        if purpose == SearchPurpose::Count && self.filter.scope != ReplayScope::Missed {
            self.counted += found.targets.len() as u64;
            found.targets.clear();
        }
        if is_last {
            found.targets.sort_unstable();
            // Another replay may have made the missing delivery of an event meanwhile, and it has failed.
            found.targets.dedup();
        }
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
        if self.newest.is_none() {
            self.newest = Some(newest_key(conn)?);
        }
        let next = match self.position {
            SearchPosition::Failed { endpoint, above } => {
                self.read_failed(conn, &row_filter, endpoint, above)?
            }
            SearchPosition::Deliveries(above) => {
                match self.read_ended(conn, &row_filter, status, above)? {
                    Some(last) => Some(SearchPosition::Deliveries(last)),
                    None => missed.map(|_| SearchPosition::Events(BEFORE_ALL_KEYS)),
                }
            }
            SearchPosition::Events(above) => match missed {
                Some(endpoint) => self
                    .read_missed(conn, &row_filter, endpoint, above)?
                    .map(SearchPosition::Events),
                None => None,
            },
        };
        self.position = next.unwrap_or(self.position);
        Ok(next.is_none())
    }

    /// Returns the keys of the time range of the filter, up to the newest one at the time of the request.
    fn range(
        &self,
        conn: &Connection,
        clock_skew: &str,
        row_filter: &RowFilter,
        above: Key,
    ) -> rusqlite::Result<Range> {
        let range = keys_between(conn, clock_skew, row_filter.since, row_filter.until)?;
        let newest = self.newest.unwrap_or(AFTER_ALL_KEYS);
        Ok(Range {
            above: range.above.max(above),
            below: range.below.min(newest.saturating_add(1)),
        })
    }

    /// Finds failed deliveries of a tenant, endpoint by endpoint, so that a page reads no more keys than it examines.
    /// Returns the start of the next page.
    fn read_failed(
        &mut self,
        conn: &Connection,
        row_filter: &RowFilter,
        first: EndpointId,
        above: Key,
    ) -> rusqlite::Result<Option<SearchPosition>> {
        let every = self.range(conn, meta::DELIVERY_CLOCK_SKEW, row_filter, BEFORE_ALL_KEYS)?;
        let endpoints = conn
            .prepare_cached(
                "SELECT no, id FROM endpoints WHERE tenant_no = ?1 AND id >= ?2 ORDER BY id LIMIT ?3",
            )?
            .query_map(
                (row_filter.tenant_no, id_bytes(first.0), sql_limit(MAX_ENDPOINTS)),
                |row| Ok((row.get(0)?, EndpointId(u128::from_be_bytes(row.get(1)?)))),
            )?
            .collect::<rusqlite::Result<Vec<(i64, EndpointId)>>>()?;
        let mut remaining = MAX_EXAMINED;
        for (no, endpoint) in &endpoints {
            let mut range = every;
            if *endpoint == first {
                range.above = range.above.max(above);
            }
            let source = Source::Dead(vec![*no]);
            let keys = source.keys(conn, range, Direction::Up, remaining)?;
            for key in &keys {
                let target = lists::target_at(conn, *key, row_filter)?;
                self.found.targets.extend(target);
            }
            remaining -= keys.len();
            if let Some(last) = keys.last().filter(|_| remaining == 0) {
                return Ok(Some(SearchPosition::Failed {
                    endpoint: *endpoint,
                    above: *last,
                }));
            }
        }
        let last = endpoints
            .last()
            .filter(|_| endpoints.len() == MAX_ENDPOINTS);
        Ok(last.map(|(_, endpoint)| SearchPosition::Failed {
            endpoint: *endpoint,
            above: AFTER_ALL_KEYS,
        }))
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
        let range = self.range(conn, meta::DELIVERY_CLOCK_SKEW, row_filter, above)?;
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
        let range = self.range(conn, meta::EVENT_CLOCK_SKEW, row_filter, above)?;
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

/// Returns the greatest key of an event or a delivery.
fn newest_key(conn: &Connection) -> rusqlite::Result<Key> {
    conn.prepare_cached(
        "SELECT max(ifnull((SELECT max(key) FROM events), 0), ifnull((SELECT max(key) FROM deliveries), 0))",
    )?
    .query_row([], |row| row.get(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::watched_reply_channel;
    use crate::sqlite::SqliteStore;
    use crate::{HandOver, HandedOver, StoreSettings};
    use posthaste_core::rng::Rng;

    struct NoHandOver;

    impl HandOver for NoHandOver {
        fn accepted(&self, _: Vec<HandedOver>) {}
        fn broken(&self, _: &StoreError) {}
    }

    #[test]
    fn a_search_stops_when_its_caller_has_left() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("posthaste.db");
        let settings = StoreSettings::new(Rng::seeded(5));
        let store = SqliteStore::open(path, settings, Arc::new(NoHandOver)).expect("it opens");
        let filter = ReplayFilter {
            endpoint: None,
            event_type: None,
            error_kind: None,
            since: None,
            until: None,
            scope: ReplayScope::Ended(StoredStatus::Failed),
        };
        for has_left in [false, true] {
            let (_, answer, caller) = watched_reply_channel::<u64>();
            if has_left {
                drop(answer);
            } else {
                // The caller waits as long as the answer exists.
                std::mem::forget(answer);
            }
            let (sent, counted) = std::sync::mpsc::channel();
            let done = Box::new(move |count| sent.send(count).expect("the test waits"));
            let tenant = "acme".parse().expect("a name");
            ReplaySearch::new(tenant, filter.clone(), caller).count(store.readers.clone(), done);
            let expected = if has_left {
                Err(std::sync::mpsc::RecvError)
            } else {
                Ok(Ok(0))
            };
            assert_eq!(counted.recv(), expected);
        }
    }
}
