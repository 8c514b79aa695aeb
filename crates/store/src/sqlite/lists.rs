//! Lists deliveries and events, one page at a time.
//!
//! A page examines a bounded number of rows, and may therefore end early, with a cursor to continue from. [`RowFilter`]
//! has the conditions that the keys of an index do not decide.

use posthaste_core::classify::FailureKind;
use posthaste_core::id::{DeliveryId, EndpointId, EventId, TenantId, first_sequence};
use posthaste_core::subscription::EventType;
use posthaste_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row};

use super::codes::Code;
use super::delivery_rows::{self, COLUMN_COUNT, COLUMNS, from_json, parse};
use super::directory::live_tenant;
use super::group_commit::number;
use super::key_scan::{Direction, Range, RowStatusGroup, SearchScope, Source};
use super::replay_targets::ReplayTarget;
use super::row_keys::{AFTER_ALL_KEYS, Key, id_at, key_of, look_up};
use super::schema::meta;
use super::store::SqliteStore;
use super::{dead_letters, endpoints, event_rows};
use crate::codes::{at, ms};
use crate::read_duration::ReadDuration;
use crate::{
    Answer, AttemptEntry, DeadLetterGroup, DeadLetterGroupKey, DeliveryFilter, EventFilter, Lists,
    Page, PageRequest, StoredDelivery, StoredEvent, StoredStatus,
};

/// Maximum number of rows that one page examines. Then the page ends, with the items found so far, because the caller
/// is waiting. The caller can continue from there.
const MAX_EXAMINED: usize = 5_000;
/// Minimum number of keys read at once.
const MIN_KEYS: usize = 64;

impl Lists for SqliteStore {
    fn event(&self, tenant: TenantId, event: EventId) -> Answer<Option<StoredEvent>> {
        self.read(ReadDuration::Quick, move |conn| {
            event_rows::event(conn, &tenant, event)
        })
    }

    fn events(
        &self,
        tenant: TenantId,
        filter: EventFilter,
        page: PageRequest<EventId>,
    ) -> Answer<Page<StoredEvent, EventId>> {
        self.read(ReadDuration::Long, move |conn| {
            events(conn, &tenant, &filter, page)
        })
    }

    fn delivery(
        &self,
        tenant: TenantId,
        id: DeliveryId,
    ) -> Answer<Option<(StoredDelivery, Vec<AttemptEntry>)>> {
        self.read(ReadDuration::Quick, move |conn| delivery(conn, &tenant, id))
    }

    fn deliveries(
        &self,
        tenant: TenantId,
        filter: DeliveryFilter,
        page: PageRequest<DeliveryId>,
    ) -> Answer<Page<StoredDelivery, DeliveryId>> {
        self.read(ReadDuration::Long, move |conn| {
            deliveries(conn, &tenant, filter, page)
        })
    }

    fn dead_letter_groups(
        &self,
        tenant: TenantId,
        endpoint: Option<EndpointId>,
        page: PageRequest<DeadLetterGroupKey>,
    ) -> Answer<Page<DeadLetterGroup, DeadLetterGroupKey>> {
        self.read(ReadDuration::Long, move |conn| {
            dead_letters::dead_letter_groups(conn, &tenant, endpoint, page)
        })
    }
}

/// A delivery row joined with its event and its endpoint.
struct Candidate<'row, 'stmt> {
    row: &'row Row<'stmt>,
}

const ADDED: &str = "v.type, v.created_at, (e.standing = 1 OR e.tripped), d.kind, t.id, e.tenant_no \
    FROM deliveries d JOIN endpoints e ON e.no = d.endpoint_no JOIN events v ON v.key = d.event_key \
    JOIN tenants t ON t.no = e.tenant_no WHERE d.key = ?1";

/// The conditions for a delivery, besides its position.
#[derive(Clone, Debug, Default)]
pub(super) struct RowFilter {
    pub(super) tenant_no: i64,
    pub(super) endpoint_no: Option<i64>,
    pub(super) status: Option<StoredStatus>,
    pub(super) event_type: Option<EventType>,
    pub(super) error_kind: Option<FailureKind>,
    pub(super) since: Option<Timestamp>,
    pub(super) until: Option<Timestamp>,
}

impl Candidate<'_, '_> {
    fn matches(&self, row_filter: &RowFilter) -> rusqlite::Result<bool> {
        let row = self.row;
        if row.get::<_, i64>(COLUMN_COUNT + 5)? != row_filter.tenant_no {
            return Ok(false);
        }
        if let Some(no) = row_filter.endpoint_no
            && row.get::<_, i64>(17)? != no
        {
            return Ok(false);
        }
        if let Some(status) = row_filter.status {
            let holds = row.get(COLUMN_COUNT + 2)?;
            let found = row.get::<_, Code<super::codes::RowStatus>>(4)?.0;
            if found.shown(holds) != status {
                return Ok(false);
            }
        }
        if let Some(event_type) = &row_filter.event_type
            && row.get_ref(COLUMN_COUNT)?.as_str()? != event_type.as_str()
        {
            return Ok(false);
        }
        if let Some(kind) = row_filter.error_kind {
            let found: Option<Code<FailureKind>> = row.get(COLUMN_COUNT + 3)?;
            if found.map(|found| found.0) != Some(kind) {
                return Ok(false);
            }
        }
        let created_at: i64 = row.get(COLUMN_COUNT + 1)?;
        Ok(row_filter.since.is_none_or(|since| created_at >= ms(since))
            && row_filter.until.is_none_or(|until| created_at < ms(until)))
    }

    fn read(&self) -> rusqlite::Result<StoredDelivery> {
        let found = delivery_rows::read(self.row)?;
        Ok(StoredDelivery {
            last_attempt: found.last_attempt()?,
            delivery: found.delivery,
            tenant: parse(self.row.get_ref(COLUMN_COUNT + 4)?.as_str()?)?,
            event_type: parse(self.row.get_ref(COLUMN_COUNT)?.as_str()?)?,
            created_at: at(self.row.get(COLUMN_COUNT + 1)?),
            is_held_by_endpoint: self.row.get(COLUMN_COUNT + 2)?,
        })
    }
}

/// Reads the delivery with this key with `read`, if it is wanted.
fn look_at<T>(
    conn: &Connection,
    key: Key,
    row_filter: &RowFilter,
    read: impl FnOnce(&Candidate<'_, '_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Option<T>> {
    let found = conn
        .prepare_cached(&format!("SELECT {COLUMNS}, {ADDED}"))?
        .query_row([key], |row| {
            let candidate = Candidate { row };
            if candidate.matches(row_filter)? {
                read(&candidate).map(Some)
            } else {
                Ok(None)
            }
        })
        .optional()?;
    Ok(found.flatten())
}

/// Returns the delivery with this key, if it is wanted.
pub(super) fn matching_row(
    conn: &Connection,
    key: Key,
    row_filter: &RowFilter,
) -> rusqlite::Result<Option<StoredDelivery>> {
    look_at(conn, key, row_filter, |candidate| candidate.read())
}

/// Returns the event and the endpoint of the delivery with this key, if it is wanted.
pub(super) fn target_at(
    conn: &Connection,
    key: Key,
    row_filter: &RowFilter,
) -> rusqlite::Result<Option<ReplayTarget>> {
    look_at(conn, key, row_filter, |candidate| {
        Ok(ReplayTarget {
            event: candidate.row.get(2)?,
            endpoint: delivery_rows::endpoint_id(candidate.row, 16)?,
            endpoint_no: candidate.row.get(17)?,
        })
    })
}

/// Returns a delivery of a tenant, and its attempts.
pub(super) fn delivery(
    conn: &Connection,
    tenant: &TenantId,
    id: DeliveryId,
) -> rusqlite::Result<Option<(StoredDelivery, Vec<AttemptEntry>)>> {
    let (Some(tenant_no), Some((key, _))) = (live_tenant(conn, tenant)?, look_up(id.0)) else {
        return Ok(None);
    };
    let row_filter = RowFilter {
        tenant_no,
        ..RowFilter::default()
    };
    let found = matching_row(conn, key, &row_filter)?.filter(|found| found.delivery.id() == id);
    let Some(found) = found else {
        return Ok(None);
    };
    let mut attempts = conn
        .prepare_cached("SELECT entry FROM attempts WHERE delivery_key = ?1 ORDER BY number")?
        .query_map([key], |row| from_json(row.get_ref(0)?.as_str()?))?
        .collect::<rusqlite::Result<Vec<AttemptEntry>>>()?;
    attempts.extend(found.last_attempt.clone());
    Ok(Some((found, attempts)))
}

/// Returns the range of keys that events accepted in this period, or their deliveries, can have.
pub(super) fn keys_between(
    conn: &Connection,
    clock_skew: &str,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
) -> rusqlite::Result<Range> {
    let below = match until {
        None => AFTER_ALL_KEYS,
        Some(until) => {
            let clock_skew = number(conn, clock_skew)? as u64;
            first_sequence(Timestamp(until.0.saturating_add(clock_skew))) as Key
        }
    };
    Ok(Range {
        above: since.map_or(-1, |since| first_sequence(since) as Key - 1),
        below,
    })
}

/// Returns the group of statuses that this status is found with.
pub(super) fn group_of(status: StoredStatus) -> RowStatusGroup {
    match status {
        StoredStatus::Pending | StoredStatus::Retrying | StoredStatus::Held => {
            RowStatusGroup::Waiting
        }
        StoredStatus::Failed => RowStatusGroup::Failed,
        StoredStatus::Succeeded | StoredStatus::Cancelled => RowStatusGroup::Done,
    }
}

/// Returns the number of an endpoint of a tenant.
pub(super) fn endpoint_of(
    conn: &Connection,
    tenant_no: i64,
    endpoint: EndpointId,
) -> rusqlite::Result<Option<i64>> {
    let found = endpoints::find(conn, endpoint)?;
    Ok(found
        .filter(|found| found.tenant_no == tenant_no)
        .map(|found| found.no))
}

/// Lists deliveries of a tenant.
pub(super) fn deliveries(
    conn: &Connection,
    tenant: &TenantId,
    filter: DeliveryFilter,
    page: PageRequest<DeliveryId>,
) -> rusqlite::Result<Page<StoredDelivery, DeliveryId>> {
    let nothing = Page {
        items: Vec::new(),
        next: None,
    };
    let Some(tenant_no) = live_tenant(conn, tenant)? else {
        return Ok(nothing);
    };
    let endpoint_no = match filter.endpoint {
        None => None,
        Some(endpoint) => match endpoint_of(conn, tenant_no, endpoint)? {
            Some(no) => Some(no),
            None => return Ok(nothing),
        },
    };
    let scope = endpoint_no.map_or(SearchScope::Tenant(tenant_no), SearchScope::Endpoint);
    let source = match filter.event {
        Some(event) => Source::Listed(event_rows::deliveries_of(conn, tenant_no, event)?),
        None => Source::of_status(conn, scope, filter.status.map(group_of))?,
    };
    let mut range = keys_between(conn, meta::DELIVERY_CLOCK_SKEW, filter.since, filter.until)?;
    if let Some(before) = page.before {
        range.below = range.below.min(key_of(before.0));
    }
    let row_filter = RowFilter {
        tenant_no,
        endpoint_no,
        status: filter.status,
        event_type: filter.event_type,
        error_kind: filter.error_kind,
        since: filter.since,
        until: filter.until,
    };
    let (items, next) = search(conn, &source, range, page.limit, |key| {
        matching_row(conn, key, &row_filter)
    })?;
    Ok(Page {
        items,
        next: next.map(|key| DeliveryId(id_at(key, 0))),
    })
}

/// Lists events of a tenant.
pub(super) fn events(
    conn: &Connection,
    tenant: &TenantId,
    filter: &EventFilter,
    page: PageRequest<EventId>,
) -> rusqlite::Result<Page<StoredEvent, EventId>> {
    let Some(tenant_no) = live_tenant(conn, tenant)? else {
        return Ok(Page {
            items: Vec::new(),
            next: None,
        });
    };
    let mut range = keys_between(conn, meta::EVENT_CLOCK_SKEW, filter.since, filter.until)?;
    if let Some(before) = page.before {
        range.below = range.below.min(key_of(before.0));
    }
    let event_type = filter.event_type.as_ref().map(EventType::as_str);
    let mut statement = conn.prepare_cached(&format!(
        "SELECT {} FROM events WHERE key = ?1 AND (?2 IS NULL OR type = ?2) \
         AND created_at >= ?3 AND created_at < ?4",
        event_rows::COLUMNS_OF_LIST
    ))?;
    let since = filter.since.map_or(0, ms);
    let until = filter.until.map_or(i64::MAX, ms);
    let source = Source::Events(tenant_no);
    let mut known_endpoints = event_rows::KnownEndpoints::default();
    let (items, next) = search(conn, &source, range, page.limit, |key| {
        statement
            .query_row((key, event_type, since, until), |row| {
                event_rows::read(conn, row, &mut known_endpoints)
            })
            .optional()
    })?;
    Ok(Page {
        items,
        next: next.map(|key| EventId(id_at(key, 0))),
    })
}

/// Collects the items that `find` returns, newest first. Also returns the key below which the next page starts, if
/// there may be more.
fn search<T>(
    conn: &Connection,
    source: &Source,
    mut range: Range,
    limit: usize,
    mut find: impl FnMut(Key) -> rusqlite::Result<Option<T>>,
) -> rusqlite::Result<(Vec<T>, Option<Key>)> {
    let mut items = Vec::new();
    let mut examined = 0;
    let mut last_found = None;
    if limit == 0 {
        return Ok((items, None));
    }
    loop {
        let count = limit
            .saturating_add(1)
            .max(MIN_KEYS)
            .max(examined)
            .min(MAX_EXAMINED);
        let keys = source.keys(conn, range, Direction::Down, count)?;
        let complete = keys.len() < count;
        for key in keys {
            range.below = key;
            examined += 1;
            if let Some(item) = find(key)? {
                if items.len() == limit {
                    return Ok((items, last_found));
                }
                items.push(item);
                last_found = Some(key);
            }
            if examined >= MAX_EXAMINED {
                return Ok((items, Some(key)));
            }
        }
        if complete {
            return Ok((items, None));
        }
    }
}
