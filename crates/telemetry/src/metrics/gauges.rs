//! Values that are read from other components at the time of the request.
//!
//! A value that cannot be read is left out, and so is its metric: a gap is more honest than a zero.

use std::collections::BTreeMap;

use posthaste_core::alert::AlertName;
use posthaste_core::dispatcher::BreakerCounts;
use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::lane::HeldBackBy;
use posthaste_core::time::Span;
use posthaste_store::{Counts, StatCounters};

use super::process_usage::Process;

/// Values read from other components.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gauges {
    /// Number of unfinished deliveries, and of dead letters that are still kept.
    pub counts: Option<Counts>,
    /// Attempts in flight.
    pub in_flight: u64,
    /// Number of breakers in each state, of endpoints that are in memory.
    pub breakers: Option<BreakerCounts>,
    /// Number of endpoints on this node whose due deliveries are held back, by reason. A missing reason means zero.
    pub held_back: Option<Vec<(HeldBackBy, usize)>>,
    /// Deliveries that have been in retry for longer than 24 hours.
    pub retrying_over_24h: Option<u64>,
    /// Milliseconds by which the clock of this machine is ahead of the reference clock.
    pub clock_offset_ms: Option<i64>,
    /// Shards that this node owns.
    pub shards: u64,
    /// Nodes that share the store, including this one.
    pub nodes: u64,
    /// Counters of all tenants over the last hour, on all nodes.
    pub hour: Option<StatCounters>,
    /// Time for which the oldest delivery that could be sent has been due.
    pub queue_age: Option<Span>,
    /// Free ratio of the store's disk, if the store is a file.
    pub store_free_ratio: Option<f64>,
    /// Resources that this process uses.
    pub process: Option<Process>,
    /// Number of open alerts by name. A missing name means zero.
    pub alerts: Option<BTreeMap<AlertName, u64>>,
    /// True if the caller may see single endpoints.
    pub shows_endpoints: bool,
    /// Waiting deliveries of single endpoints, if the operator has enabled these metrics.
    pub endpoints: Vec<EndpointPending>,
}

/// Number of deliveries that wait for an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointPending {
    /// The endpoint's tenant.
    pub tenant: TenantId,
    /// The endpoint.
    pub endpoint: EndpointId,
    /// Number of waiting deliveries.
    pub pending: u64,
}
