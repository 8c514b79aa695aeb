//! The routing table: the endpoints of every tenant in memory, with the number of the last directory change that it
//! includes.
//!
//! An event is routed by this table, and its transaction checks that no later change exists. So routing is exact,
//! although accepting an event reads no directory rows.

use std::sync::Arc;

use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::lane::EndpointStatus;
use posthaste_core::subscription::{EventType, Pattern};
use posthaste_core::time::Span;
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::Value;
use tokio_postgres::Row;

use super::changelog;
use crate::postgres::connection::PgConnection;
use crate::postgres::db_error::DbError;
use crate::postgres::schema::columns::{Id, parse, policy, read_patterns, word};
use crate::subscriber_index::{Subscriber, SubscriberIndex};
use crate::{Change, StoreSettings};

/// An endpoint that is not deleted.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct EndpointRoute {
    pub(in crate::postgres) no: i64,
    pub(in crate::postgres) id: EndpointId,
    pub(in crate::postgres) status: EndpointStatus,
    /// True if only one-off requests are delivered to it.
    pub(in crate::postgres) is_origin: bool,
    pub(in crate::postgres) patterns: Vec<Pattern>,
    pub(super) give_up_after: Span,
}

impl EndpointRoute {
    /// Returns whether events make deliveries for this endpoint at all.
    pub(super) fn accepts_deliveries(&self) -> bool {
        match self.status {
            EndpointStatus::Enabled | EndpointStatus::Paused => true,
            EndpointStatus::Disabled | EndpointStatus::Deleted => false,
        }
    }
}

impl Subscriber for EndpointRoute {
    fn patterns(&self) -> Option<&[Pattern]> {
        let gets_events = !self.is_origin && self.accepts_deliveries();
        gets_events.then_some(&self.patterns)
    }
}

/// A tenant and its endpoints, sorted by id.
#[derive(Clone, Debug)]
pub(super) struct TenantRoutes {
    pub(in crate::postgres) no: i64,
    pub(in crate::postgres) policy: Option<Value>,
    pub(in crate::postgres) endpoints: Vec<EndpointRoute>,
    index: SubscriberIndex,
}

/// Compares all that routing depends on.
impl PartialEq for TenantRoutes {
    fn eq(&self, other: &TenantRoutes) -> bool {
        (self.no, &self.endpoints) == (other.no, &other.endpoints)
    }
}

impl TenantRoutes {
    /// Returns the endpoints that get events of this type.
    pub(super) fn routes(&self, event_type: &EventType) -> Vec<&EndpointRoute> {
        self.index.find(&self.endpoints, event_type)
    }

    /// Returns the number of endpoints that get events of this type.
    pub(super) fn count_routes(&self, event_type: &EventType) -> u64 {
        self.index.count(&self.endpoints, event_type)
    }

    /// Returns the endpoint with this id, unless it is deleted.
    pub(in crate::postgres) fn endpoint(&self, id: EndpointId) -> Option<&EndpointRoute> {
        let index = self.endpoints.binary_search_by_key(&id, |route| route.id);
        index.ok().map(|index| &self.endpoints[index])
    }
}

/// The routing table of all tenants.
#[derive(Debug, Default)]
pub(in crate::postgres) struct RoutingTable {
    tenants: FxHashMap<TenantId, Arc<TenantRoutes>>,
    /// The number of the last change that is included; `None` before the first read.
    known: Option<i64>,
    /// Set when this node knows of a later change.
    stale: bool,
}

impl RoutingTable {
    /// Returns a tenant.
    pub(super) fn tenant(&self, tenant: &TenantId) -> Option<&Arc<TenantRoutes>> {
        self.tenants.get(tenant)
    }

    /// The number of the last change that is included, or -1.
    pub(in crate::postgres) fn known(&self) -> i64 {
        self.known.unwrap_or(-1)
    }

    /// Returns whether the table must be brought up to date before use.
    pub(super) fn is_stale(&self) -> bool {
        self.stale || self.known.is_none()
    }

    /// Notes that the directory has changed.
    pub(super) fn mark_stale(&mut self) {
        self.stale = true;
    }

    /// Invalidates the table. The server may be another one, which never had the data that was read.
    pub(in crate::postgres) fn forget(&mut self) {
        self.known = None;
    }

    /// Reads the changes. The data may be newer than the recorded change number, but never older.
    pub(in crate::postgres) async fn refresh(
        &mut self,
        conn: &PgConnection,
        settings: &StoreSettings,
    ) -> Result<(), DbError> {
        let row = conn
            .query_one("SELECT last_change FROM directory", &[])
            .await?;
        let last: i64 = row.get(0);
        match self.known {
            Some(known) if known == last => {}
            Some(known) if (1..=changelog::MAX_CHANGES).contains(&(last - known)) => {
                let touched = touched(conn, known, last).await?;
                self.reload(conn, settings, touched).await?;
            }
            Some(_) | None => self.reload(conn, settings, None).await?,
        }
        self.known = Some(last);
        self.stale = false;
        Ok(())
    }

    /// Reads some tenants, or all, with their endpoints.
    async fn reload(
        &mut self,
        conn: &PgConnection,
        settings: &StoreSettings,
        only: Option<Vec<String>>,
    ) -> Result<(), DbError> {
        if only.as_ref().is_some_and(Vec::is_empty) {
            return Ok(());
        }
        let tenants = conn
            .query(
                "SELECT no, id, policy FROM tenants WHERE NOT deleted \
                 AND ($1::text[] IS NULL OR id = ANY ($1))",
                &[&only],
            )
            .await?;
        let mut by_no: FxHashMap<i64, (TenantId, TenantRoutes)> = FxHashMap::default();
        for row in &tenants {
            let routes = TenantRoutes {
                no: row.get(0),
                policy: policy(row.get(2))?,
                endpoints: Vec::new(),
                index: SubscriberIndex::default(),
            };
            by_no.insert(routes.no, (parse(row.get(1))?, routes));
        }
        let numbers: Vec<i64> = by_no.keys().copied().collect();
        let endpoints = conn
            .query(
                "SELECT tenant_no, no, id, standing, event_types, policy, is_origin FROM endpoints \
                 WHERE standing <> 3 AND tenant_no = ANY ($1) ORDER BY id",
                &[&numbers],
            )
            .await?;
        for row in &endpoints {
            if let Some((_, tenant)) = by_no.get_mut(&row.get(0)) {
                tenant
                    .endpoints
                    .push(route(row, settings, tenant.policy.as_ref())?);
            }
        }
        match only {
            None => self.tenants.clear(),
            Some(only) => self
                .tenants
                .retain(|id, _| !only.iter().any(|gone| gone == id.as_str())),
        }
        let tenants = by_no.into_values();
        self.tenants
            .extend(tenants.map(|(id, routes)| (id, Arc::new(routes))));
        Ok(())
    }
}

/// Returns the tenants that these changes concern, or `None` if some of the changes have been trimmed.
async fn touched(
    conn: &PgConnection,
    known: i64,
    last: i64,
) -> Result<Option<Vec<String>>, DbError> {
    let rows = conn
        .query(
            "SELECT kind, id FROM changes WHERE no > $1 AND no <= $2",
            &[&known, &last],
        )
        .await?;
    if rows.len() as i64 != last - known {
        return Ok(None);
    }
    let mut tenants: FxHashSet<String> = FxHashSet::default();
    let mut endpoints: Vec<Id> = Vec::new();
    for row in &rows {
        match changelog::read(row.get(0), row.get(1)) {
            Some(Change::Tenant(tenant)) => {
                tenants.insert(tenant.to_string());
            }
            Some(Change::Endpoint(endpoint)) => endpoints.push(Id(endpoint.0)),
            Some(Change::Key(_) | Change::Replay(_)) | None => {}
        }
    }
    if !endpoints.is_empty() {
        let rows = conn
            .query(
                "SELECT DISTINCT t.id FROM endpoints e JOIN tenants t ON t.no = e.tenant_no \
                 WHERE e.id = ANY ($1)",
                &[&endpoints],
            )
            .await?;
        tenants.extend(rows.iter().map(|row| row.get::<_, String>(0)));
    }
    Ok(Some(tenants.into_iter().collect()))
}

fn route(
    row: &Row,
    settings: &StoreSettings,
    tenant: Option<&Value>,
) -> Result<EndpointRoute, DbError> {
    let own = policy(row.get(5))?;
    Ok(EndpointRoute {
        no: row.get(1),
        id: EndpointId(row.get::<_, Id>(2).0),
        status: word(row, 3)?,
        is_origin: row.get(6),
        patterns: read_patterns(row.get(4))?,
        give_up_after: settings.policy_for(own.as_ref(), tenant).give_up_after,
    })
}
