//! The routing table: the endpoints of every tenant with their subscriptions, in memory.
//!
//! Only the writer owns and changes it, in the order of its transactions. So an event is routed exactly by what was
//! committed before it. Every change first saves the old value, and a rollback restores it.

use std::sync::Arc;

use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::lane::EndpointStatus;
use posthaste_core::subscription::{EventType, Pattern};
use posthaste_core::time::Span;
use rusqlite::Connection;
use rustc_hash::FxHashMap;
use serde_json::Value;

use super::codes::Code;
use super::delivery_rows::{endpoint_id, from_json, parse};
use crate::StoreSettings;
use crate::subscriber_index::{Subscriber, SubscriberIndex};

/// An endpoint that is not deleted.
#[derive(Clone, Debug)]
pub(super) struct EndpointRoute {
    pub(super) no: i64,
    pub(super) id: EndpointId,
    pub(super) status: EndpointStatus,
    /// True if only one-off requests are delivered to it.
    pub(super) is_origin: bool,
    pub(super) patterns: Vec<Pattern>,
    /// Its own retry policy, as the caller wrote it.
    pub(super) policy: Option<Value>,
    pub(super) give_up_after: Span,
}

impl EndpointRoute {
    /// Returns whether it can get deliveries: it is enabled or paused.
    pub(super) fn accepts_deliveries(&self) -> bool {
        match self.status {
            EndpointStatus::Enabled | EndpointStatus::Paused => true,
            EndpointStatus::Disabled | EndpointStatus::Deleted => false,
        }
    }
}

impl Subscriber for Arc<EndpointRoute> {
    fn patterns(&self) -> Option<&[Pattern]> {
        let gets_events = !self.is_origin && self.accepts_deliveries();
        gets_events.then_some(&self.patterns)
    }
}

/// A tenant and its endpoints, sorted by number, oldest first.
#[derive(Clone, Debug)]
pub(super) struct TenantRoutes {
    pub(super) no: i64,
    pub(super) policy: Option<Value>,
    pub(super) endpoints: Vec<Arc<EndpointRoute>>,
    index: SubscriberIndex,
}

impl TenantRoutes {
    /// Creates the routes of a tenant without endpoints.
    pub(super) fn new(no: i64, policy: Option<Value>) -> TenantRoutes {
        TenantRoutes {
            no,
            policy,
            endpoints: Vec::new(),
            index: SubscriberIndex::default(),
        }
    }

    /// Returns the endpoints that get events of this type.
    pub(super) fn routes(&self, event_type: &EventType) -> Vec<&Arc<EndpointRoute>> {
        self.index.find(&self.endpoints, event_type)
    }

    /// Returns the number of endpoints that get events of this type.
    pub(super) fn count_routes(&self, event_type: &EventType) -> u64 {
        self.index.count(&self.endpoints, event_type)
    }

    /// Returns the cost of the index if it was made since the last call, as the number of rows that take as long.
    pub(super) fn take_index_cost(&self) -> u64 {
        self.index.take_cost()
    }

    /// Returns the endpoint with this id, unless it is deleted.
    pub(super) fn endpoint(&self, id: EndpointId) -> Option<&Arc<EndpointRoute>> {
        self.endpoints.iter().find(|route| route.id == id)
    }

    /// Returns the endpoint with this number, unless it is deleted.
    pub(super) fn endpoint_no(&self, no: i64) -> Option<&Arc<EndpointRoute>> {
        let index = self.endpoints.binary_search_by_key(&no, |route| route.no);
        index.ok().map(|index| &self.endpoints[index])
    }
}

/// The routing table of all tenants.
#[derive(Debug)]
pub(super) struct RoutingTable {
    tenants: FxHashMap<TenantId, Arc<TenantRoutes>>,
    /// The values that the current transaction has replaced, one per tenant.
    replaced: Vec<(TenantId, Option<Arc<TenantRoutes>>)>,
}

impl RoutingTable {
    /// Loads the table from the file.
    pub(super) fn load(
        conn: &Connection,
        settings: &StoreSettings,
    ) -> rusqlite::Result<RoutingTable> {
        let mut by_no: FxHashMap<i64, (TenantId, TenantRoutes)> = FxHashMap::default();
        let mut tenants = conn.prepare("SELECT no, id, policy FROM tenants WHERE deleted = 0")?;
        let mut rows = tenants.query([])?;
        while let Some(row) = rows.next()? {
            let no: i64 = row.get(0)?;
            let policy = policy(row.get_ref(2)?.as_str_or_null()?)?;
            let tenant = TenantRoutes::new(no, policy);
            by_no.insert(no, (parse(row.get_ref(1)?.as_str()?)?, tenant));
        }
        let mut endpoints = conn.prepare(
            "SELECT no, id, standing, event_types, policy, tenant_no, is_origin FROM endpoints \
             WHERE standing <> 3 ORDER BY no",
        )?;
        let mut rows = endpoints.query([])?;
        while let Some(row) = rows.next()? {
            let Some((_, tenant)) = by_no.get_mut(&row.get(5)?) else {
                continue;
            };
            let own = policy(row.get_ref(4)?.as_str_or_null()?)?;
            tenant.endpoints.push(Arc::new(EndpointRoute {
                no: row.get(0)?,
                id: endpoint_id(row, 1)?,
                status: row.get::<_, Code<EndpointStatus>>(2)?.0,
                is_origin: row.get(6)?,
                patterns: read_patterns(row.get_ref(3)?.as_str()?)?,
                give_up_after: settings
                    .policy_for(own.as_ref(), tenant.policy.as_ref())
                    .give_up_after,
                policy: own,
            }));
        }
        Ok(RoutingTable {
            tenants: by_no
                .into_values()
                .map(|(id, tenant)| (id, Arc::new(tenant)))
                .collect(),
            replaced: Vec::new(),
        })
    }

    /// Returns a tenant.
    pub(super) fn tenant(&self, tenant: &TenantId) -> Option<&Arc<TenantRoutes>> {
        self.tenants.get(tenant)
    }

    /// Adds a tenant.
    pub(super) fn add(&mut self, tenant: TenantId, routes: TenantRoutes) {
        self.save_for_rollback(&tenant);
        self.tenants.insert(tenant, Arc::new(routes));
    }

    /// Removes a tenant.
    pub(super) fn remove(&mut self, tenant: &TenantId) {
        self.save_for_rollback(tenant);
        self.tenants.remove(tenant);
    }

    /// Changes a tenant, if it exists.
    pub(super) fn change(&mut self, tenant: &TenantId, change: impl FnOnce(&mut TenantRoutes)) {
        self.save_for_rollback(tenant);
        if let Some(routes) = self.tenants.get_mut(tenant) {
            let routes = Arc::make_mut(routes);
            change(routes);
            routes.index = SubscriberIndex::default();
        }
    }

    /// Changes an endpoint, if it is not deleted.
    pub(super) fn change_endpoint(
        &mut self,
        tenant: &TenantId,
        no: i64,
        change: impl FnOnce(&mut EndpointRoute),
    ) {
        self.change(tenant, |routes| {
            let index = routes.endpoints.binary_search_by_key(&no, |route| route.no);
            if let Ok(index) = index {
                change(Arc::make_mut(&mut routes.endpoints[index]));
            }
        });
    }

    /// Keeps the changes of a committed transaction.
    pub(super) fn keep(&mut self) {
        self.replaced.clear();
    }

    /// Undoes the changes of a transaction that was rolled back.
    pub(super) fn put_back(&mut self) {
        for (tenant, routes) in self.replaced.drain(..) {
            match routes {
                Some(routes) => self.tenants.insert(tenant, routes),
                None => self.tenants.remove(&tenant),
            };
        }
    }

    fn save_for_rollback(&mut self, tenant: &TenantId) {
        if !self.replaced.iter().any(|(id, _)| id == tenant) {
            let routes = self.tenants.get(tenant).cloned();
            self.replaced.push((tenant.clone(), routes));
        }
    }
}

/// Parses stored subscription patterns.
pub(super) fn read_patterns(text: &str) -> rusqlite::Result<Vec<Pattern>> {
    from_json::<Vec<String>>(text)?
        .iter()
        .map(|pattern| parse(pattern))
        .collect()
}

/// Parses a stored retry policy.
pub(super) fn policy(text: Option<&str>) -> rusqlite::Result<Option<Value>> {
    text.map(from_json).transpose()
}
