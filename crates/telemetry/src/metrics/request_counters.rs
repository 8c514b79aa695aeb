//! Counters of the API's connections, of request bodies in memory, and of accepts.
//!
//! [`RequestCounters`] is shared by the listener and the API. Labels name the setting that limited something, never a
//! peer or a tenant.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::histogram::Histogram;
use super::metric::{Labelled, Metric, Values};

/// The limit that keeps a connection from a regular slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionLimit {
    /// The number of connections of the server.
    Server,
    /// The number of connections of one peer.
    Peer,
}

impl ConnectionLimit {
    const ALL: [ConnectionLimit; 2] = [ConnectionLimit::Server, ConnectionLimit::Peer];

    /// Returns the value of the metric's label: the name of the setting.
    pub fn name(self) -> &'static str {
        match self {
            ConnectionLimit::Server => "connections",
            ConnectionLimit::Peer => "connections_per_peer",
        }
    }
}

/// A budget for the memory of request bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyBudgetScope {
    /// The budget of the server.
    Server,
    /// The budget of one tenant.
    Tenant,
}

impl BodyBudgetScope {
    const ALL: [BodyBudgetScope; 2] = [BodyBudgetScope::Server, BodyBudgetScope::Tenant];

    /// Returns the value of the metric's label.
    pub fn name(self) -> &'static str {
        match self {
            BodyBudgetScope::Server => "server",
            BodyBudgetScope::Tenant => "tenant",
        }
    }
}

/// The class of a tenant, by the origin of its limit for events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TenantClass {
    /// The tenant or its plan sets the limit.
    Limited,
    /// The server's limit applies.
    Default,
}

impl TenantClass {
    const ALL: [TenantClass; 2] = [TenantClass::Limited, TenantClass::Default];

    fn name(self) -> &'static str {
        match self {
            TenantClass::Limited => "limited",
            TenantClass::Default => "default",
        }
    }
}

/// Counters of this node.
#[derive(Debug, Default)]
pub struct RequestCounters {
    open_connections: AtomicU64,
    refused_connections: [AtomicU64; ConnectionLimit::ALL.len()],
    body_bytes: AtomicU64,
    budget_refusals: [AtomicU64; BodyBudgetScope::ALL.len()],
    accept_seconds: [Histogram; TenantClass::ALL.len()],
}

impl RequestCounters {
    /// Counts an opened connection.
    pub fn connection_opened(&self) {
        self.open_connections.fetch_add(1, Relaxed);
    }

    /// Counts the end of a connection.
    pub fn connection_closed(&self) {
        self.open_connections.fetch_sub(1, Relaxed);
    }

    /// Counts a connection that was not served because of this limit.
    pub fn connection_refused(&self, limit: ConnectionLimit) {
        self.refused_connections[limit as usize].fetch_add(1, Relaxed);
    }

    /// Sets the memory that request bodies have reserved.
    pub fn body_bytes(&self, bytes: u64) {
        self.body_bytes.store(bytes, Relaxed);
    }

    /// Counts a request that was refused because of this budget.
    pub fn budget_refused(&self, scope: BodyBudgetScope) {
        self.budget_refusals[scope as usize].fetch_add(1, Relaxed);
    }

    /// Records the time from when events were handed to the store until they were committed.
    pub fn accept_committed(&self, class: TenantClass, took: Duration) {
        self.accept_seconds[class as usize].observe(took);
    }

    /// Returns the counters as metrics.
    pub(crate) fn metrics(&self) -> Vec<Metric> {
        let refused = ConnectionLimit::ALL.map(|limit| {
            let count = self.refused_connections[limit as usize].load(Relaxed);
            (limit.name(), count)
        });
        let budget_refusals = BodyBudgetScope::ALL.map(|scope| {
            let count = self.budget_refusals[scope as usize].load(Relaxed);
            (scope.name(), count)
        });
        let accepts = TenantClass::ALL.map(|class| {
            let snapshot = self.accept_seconds[class as usize].snapshot();
            Labelled::with("class", class.name(), snapshot)
        });
        vec![
            Metric::gauge(
                "posthaste_open_connections",
                "Open connections to the API of this node.",
                self.open_connections.load(Relaxed),
            ),
            Metric::counters(
                "posthaste_connections_refused_total",
                "Connections on which this node served only health checks, by the limit that was reached.",
                "reason",
                refused,
            ),
            Metric::gauge(
                "posthaste_body_bytes_reserved",
                "Memory of this node reserved by request bodies until their events are committed.",
                self.body_bytes.load(Relaxed),
            ),
            Metric::counters(
                "posthaste_budget_refusals_total",
                "Requests that this node refused because a memory budget for request bodies was used up, by budget.",
                "budget",
                budget_refusals,
            ),
            Metric {
                name: "posthaste_accept_seconds",
                help: "Time at this node from handing a request's events to the store until they were committed, by class of the tenant.",
                values: Values::Histogram(accepts.into()),
            },
        ]
    }
}
