//! Paginated lists of deliveries and events, and single ones.
//!
//! A page examines a bounded number of rows, in steps that grow when matches are rare. It may therefore end early, with
//! a cursor to continue from. Waiting and ended deliveries are in two tables, which are read in one snapshot.

use posthaste_core::id::{DeliveryId, EndpointId, EventId, TenantId};
use posthaste_core::subscription::EventType;
use rustc_hash::FxHashMap;
use tokio_postgres::Row;

use super::directory::live_tenant;
use super::endpoints::endpoint_of;
use super::search::{Hit, SearchFilter, SearchSource, among, sources};
use crate::codes::{ms, sql_limit};
use crate::postgres::connection::PgConnection;
use crate::postgres::db_error::DbError;
use crate::postgres::schema::clock_skew::{IdRange, ids_between};
use crate::postgres::schema::columns::{Id, from_json, parse};
use crate::postgres::schema::event_rows::{self, read_list};
use crate::postgres::schema::{delivery_rows, meta};
use crate::{
    AttemptEntry, DeliveryFilter, EventFilter, Page, PageRequest, StoredDelivery, StoredEvent,
};

/// Maximum number of rows that one page examines. Then the page ends with the matches so far, because a caller waits
/// for it. The next page continues from there.
const MAX_EXAMINED: usize = 5_000;
/// Minimum number of rows per step.
const MIN_LOOKED_AT: usize = 64;

/// The state of a search: matches so far, and the range that remains.
struct Search<T> {
    items: Vec<T>,
    range: IdRange,
    examined: usize,
    limit: usize,
}

/// The action after a step.
enum AfterStep {
    /// Continue.
    On,
    /// The page is full, or the limit of examined rows is reached. The next page continues below this id.
    Enough(u128),
    /// There are no more rows.
    EndReached,
}

impl<T> Search<T> {
    fn new(range: IdRange, limit: usize) -> Search<T> {
        Search {
            items: Vec::new(),
            range,
            examined: 0,
            limit,
        }
    }

    /// Returns the number of rows to examine next. It grows when matches are rare.
    fn count(&self) -> usize {
        self.limit
            .saturating_add(1)
            .max(MIN_LOOKED_AT)
            .max(self.examined)
            .min(MAX_EXAMINED)
    }

    /// Returns the number of matches that are missing to know that there is another page.
    fn remaining(&self) -> usize {
        self.limit.saturating_add(1) - self.items.len()
    }

    /// Adds the matches of a step that ended at `down_to`.
    fn take(
        &mut self,
        found: Vec<T>,
        examined: usize,
        down_to: Option<u128>,
        id: impl Fn(&T) -> u128,
    ) -> AfterStep {
        self.items.extend(found);
        self.examined += examined;
        if self.items.len() > self.limit {
            self.items.truncate(self.limit);
            return AfterStep::Enough(self.items.last().map_or(self.range.below, id));
        }
        match down_to {
            None => AfterStep::EndReached,
            Some(down_to) if self.examined >= MAX_EXAMINED => AfterStep::Enough(down_to),
            Some(down_to) => {
                self.range.below = down_to;
                AfterStep::On
            }
        }
    }
}

/// Searches deliveries, the newest first. Also returns the id below which the next page continues, if there may be
/// more.
async fn search(
    conn: &PgConnection,
    sources: &[SearchSource],
    wanted: &SearchFilter,
    range: IdRange,
    limit: usize,
) -> Result<(Vec<Hit>, Option<u128>), DbError> {
    let mut search = Search::new(range, limit);
    if limit == 0 {
        return Ok((Vec::new(), None));
    }
    loop {
        let mut found = Vec::new();
        let mut examined = 0;
        let mut down_to = None;
        for source in sources {
            let piece = source
                .examine(
                    conn,
                    wanted,
                    search.range,
                    search.count(),
                    search.remaining(),
                )
                .await?;
            examined += piece.examined;
            down_to = down_to.max(piece.down_to);
            found.extend(piece.hits);
        }
        // Below the id at which one source stopped, that source may have more matches.
        found.retain(|hit| down_to.is_none_or(|down_to| hit.id.0 >= down_to));
        found.sort_unstable_by_key(|hit| std::cmp::Reverse(hit.id));
        match search.take(found, examined, down_to, |hit| hit.id.0) {
            AfterStep::On => {}
            AfterStep::Enough(below) => return Ok((search.items, Some(below))),
            AfterStep::EndReached => return Ok((search.items, None)),
        }
    }
}

/// Lists deliveries of a tenant.
pub(in crate::postgres) async fn deliveries(
    conn: &PgConnection,
    tenant: &TenantId,
    filter: &DeliveryFilter,
    page: PageRequest<DeliveryId>,
) -> Result<Page<StoredDelivery, DeliveryId>, DbError> {
    let nothing = Page {
        items: Vec::new(),
        next: None,
    };
    let Some(tenant_no) = live_tenant(conn, tenant).await? else {
        return Ok(nothing);
    };
    let endpoint_no = match filter.endpoint {
        None => None,
        Some(endpoint) => match endpoint_of(conn, tenant_no, endpoint).await? {
            Some(no) => Some(no),
            None => return Ok(nothing),
        },
    };
    let mut range =
        ids_between(conn, meta::DELIVERY_CLOCK_SKEW, filter.since, filter.until).await?;
    if let Some(before) = page.before {
        range.below = range.below.min(before.0);
    }
    let wanted = SearchFilter {
        tenant_no,
        endpoint_no,
        status: filter.status,
        event_type: filter.event_type.clone(),
        error_kind: filter.error_kind,
        since: filter.since,
        until: filter.until,
    };
    let sources = match filter.event {
        Some(event) => {
            let ids = deliveries_of(conn, tenant_no, event).await?;
            vec![among(conn, &wanted, &ids).await?]
        }
        None => sources(conn, &wanted).await?,
    };
    let (hits, next) = search(conn, &sources, &wanted, range, page.limit).await?;
    let ids: Vec<DeliveryId> = hits.iter().map(|hit| hit.id).collect();
    Ok(Page {
        items: stored(conn, tenant, tenant_no, &ids).await?,
        next: next.map(DeliveryId),
    })
}

/// Returns the deliveries with these ids, if they belong to the tenant, the newest first.
pub(super) async fn stored(
    conn: &PgConnection,
    tenant: &TenantId,
    tenant_no: i64,
    ids: &[DeliveryId],
) -> Result<Vec<StoredDelivery>, DbError> {
    let mut ids: Vec<Id> = ids.iter().map(|id| Id(id.0)).collect();
    ids.sort_unstable();
    let (Some(first), Some(last)) = (ids.first(), ids.last()) else {
        return Ok(Vec::new());
    };
    let part = |columns: &str, table: &str, row: &str| {
        format!(
            "SELECT {columns}, (e.standing = 1 OR h.tripped) FROM {table} {row} \
             JOIN endpoints e ON e.no = {row}.endpoint_no JOIN healths h ON h.endpoint_no = e.no \
             WHERE {row}.id = ANY($1) AND {row}.id >= $2 AND {row}.id <= $3 AND {row}.tenant_no = $4"
        )
    };
    let waiting = part(delivery_rows::WAITING, "waiting", "w");
    let ended = part(delivery_rows::ENDED, "ended", "d");
    let sql = format!("{waiting} UNION ALL {ended}");
    let found = conn.query(&sql, &[&ids, first, last, &tenant_no]).await?;
    let mut deliveries = found
        .iter()
        .map(|row| read_stored(row, tenant))
        .collect::<Result<Vec<_>, _>>()?;
    deliveries.sort_unstable_by_key(|found| std::cmp::Reverse(found.delivery.id()));
    Ok(deliveries)
}

fn read_stored(row: &Row, tenant: &TenantId) -> Result<StoredDelivery, DbError> {
    let found = delivery_rows::read(row)?;
    Ok(StoredDelivery {
        last_attempt: found.last_attempt()?,
        delivery: found.delivery,
        tenant: tenant.clone(),
        event_type: parse(&found.event_type)?,
        created_at: found.created_at,
        is_held_by_endpoint: row.get(delivery_rows::COLUMN_COUNT),
    })
}

/// Returns a delivery of a tenant, with its attempts.
pub(in crate::postgres) async fn delivery(
    conn: &PgConnection,
    tenant: &TenantId,
    id: DeliveryId,
) -> Result<Option<(StoredDelivery, Vec<AttemptEntry>)>, DbError> {
    let Some(tenant_no) = live_tenant(conn, tenant).await? else {
        return Ok(None);
    };
    let Some(found) = stored(conn, tenant, tenant_no, &[id]).await?.pop() else {
        return Ok(None);
    };
    let rows = conn
        .query(
            "SELECT entry FROM attempts WHERE delivery_id = $1 ORDER BY number",
            &[&Id(id.0)],
        )
        .await?;
    let mut attempts = rows
        .iter()
        .map(|row| from_json(row.get(0)))
        .collect::<Result<Vec<AttemptEntry>, DbError>>()?;
    // The last attempt of a waiting delivery is stored in both tables.
    if let Some(last) = &found.last_attempt
        && attempts
            .last()
            .is_none_or(|known| known.number < last.number)
    {
        attempts.push(last.clone());
    }
    Ok(Some((found, attempts)))
}

/// Returns all deliveries of an event, including those that were added later.
async fn deliveries_of(
    conn: &PgConnection,
    tenant_no: i64,
    event: EventId,
) -> Result<Vec<DeliveryId>, DbError> {
    let row = conn
        .query_opt(
            "SELECT deliveries, ARRAY(SELECT delivery_id FROM added WHERE event_id = $1) \
             FROM events WHERE id = $1 AND tenant_no = $2",
            &[&Id(event.0), &tenant_no],
        )
        .await?;
    let Some(row) = row else {
        return Ok(Vec::new());
    };
    let accepted = read_list(row.get(0)).into_iter();
    let accepted = accepted.map(|delivery| delivery.id);
    let added: Vec<Id> = row.get(1);
    let added = added.into_iter().map(|id| DeliveryId(id.0));
    Ok(accepted.chain(added).collect())
}

/// Returns the ids of the endpoints with these numbers.
pub(super) async fn endpoints_numbered(
    conn: &PgConnection,
    numbers: &[i64],
) -> Result<FxHashMap<i64, EndpointId>, DbError> {
    if numbers.is_empty() {
        return Ok(FxHashMap::default());
    }
    let rows = conn
        .query(
            "SELECT no, id FROM endpoints WHERE no = ANY($1)",
            &[&numbers],
        )
        .await?;
    Ok(rows
        .iter()
        .map(|row| (row.get(0), EndpointId(row.get::<_, Id>(1).0)))
        .collect())
}

/// Returns an event of a tenant.
pub(in crate::postgres) async fn event(
    conn: &PgConnection,
    tenant: &TenantId,
    event: EventId,
) -> Result<Option<StoredEvent>, DbError> {
    let Some(tenant_no) = live_tenant(conn, tenant).await? else {
        return Ok(None);
    };
    let sql = format!(
        "SELECT {} FROM events v WHERE v.id = $1 AND v.tenant_no = $2",
        event_rows::COLUMNS
    );
    let row = conn.query_opt(&sql, &[&Id(event.0), &tenant_no]).await?;
    row.as_ref().map(event_rows::read).transpose()
}

/// Lists events of a tenant.
pub(in crate::postgres) async fn events(
    conn: &PgConnection,
    tenant: &TenantId,
    filter: &EventFilter,
    page: PageRequest<EventId>,
) -> Result<Page<StoredEvent, EventId>, DbError> {
    let tenant_no = live_tenant(conn, tenant).await?;
    let Some(tenant_no) = tenant_no.filter(|_| page.limit > 0) else {
        return Ok(Page {
            items: Vec::new(),
            next: None,
        });
    };
    let mut range = ids_between(conn, meta::EVENT_CLOCK_SKEW, filter.since, filter.until).await?;
    if let Some(before) = page.before {
        range.below = range.below.min(before.0);
    }
    let mut search = Search::new(range, page.limit);
    let next = loop {
        let (found, examined, down_to) = look_at_events(conn, tenant_no, filter, &search).await?;
        match search.take(found, examined, down_to, |id| id.0) {
            AfterStep::On => {}
            AfterStep::Enough(below) => break Some(EventId(below)),
            AfterStep::EndReached => break None,
        }
    };
    let (Some(last), Some(first)) = (search.items.first(), search.items.last()) else {
        return Ok(Page {
            items: Vec::new(),
            next,
        });
    };
    let sql = format!(
        "SELECT {} FROM events v WHERE v.id = ANY($1) AND v.id >= $2 AND v.id <= $3 \
         ORDER BY v.id DESC",
        event_rows::COLUMNS_OF_LIST
    );
    let rows = conn.query(&sql, &[&search.items, first, last]).await?;
    Ok(Page {
        items: rows
            .iter()
            .map(event_rows::read)
            .collect::<Result<_, _>>()?,
        next,
    })
}

async fn look_at_events(
    conn: &PgConnection,
    tenant_no: i64,
    filter: &EventFilter,
    search: &Search<Id>,
) -> Result<(Vec<Id>, usize, Option<u128>), DbError> {
    let count = search.count();
    let row = conn
        .query_one(
            "WITH looked AS MATERIALIZED (SELECT id, type, created_at FROM events \
             WHERE (tenant_no, id) > ($1, $2) AND (tenant_no, id) < ($1, $3) AND id > $2 AND id < $3 \
             ORDER BY tenant_no DESC, id DESC LIMIT $4) \
             SELECT (SELECT count(*) FROM looked), (SELECT id FROM looked ORDER BY id LIMIT 1), \
             ARRAY(SELECT id FROM looked WHERE ($5::text IS NULL OR type = $5) \
             AND created_at >= $6 AND created_at < $7 ORDER BY id DESC LIMIT $8)",
            &[
                &tenant_no,
                &Id(search.range.above),
                &Id(search.range.below),
                &sql_limit(count),
                &filter.event_type.as_ref().map(EventType::as_str),
                &filter.since.map_or(0, ms),
                &filter.until.map_or(i64::MAX, ms),
                &sql_limit(search.remaining()),
            ],
        )
        .await?;
    let examined = row.get::<_, i64>(0) as usize;
    let last: Option<Id> = row.get(1);
    let down_to = last.filter(|_| examined >= count).map(|id| id.0);
    Ok((row.get(2), examined, down_to))
}
