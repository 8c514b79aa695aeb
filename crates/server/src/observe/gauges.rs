//! What others know at the moment they are asked.
//!
//! What cannot be asked is left out, and so is its metric: a gap says more than a zero.

use std::collections::BTreeMap;

use posthaste_core::alert::AlertName;
use posthaste_core::dispatcher::BreakerCensus;
use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::time::Span;
use posthaste_store::{Counts, Tally};

use super::machine::Process;

/// What others know.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gauges {
    /// Deliveries that have not ended, and those that were given up and are still kept.
    pub counts: Option<Counts>,
    /// Attempts under way.
    pub in_flight: u64,
    /// How many breakers are in which state, of endpoints that are in memory.
    pub breakers: Option<BreakerCensus>,
    /// Deliveries that have been in retry for longer than a day.
    pub retrying_over_24h: Option<u64>,
    /// Shards of all endpoints that this node sends to.
    pub shards: u64,
    /// Nodes that share the store, this one too.
    pub nodes: u64,
    /// What happened to everything in the last hour, on all nodes.
    pub hour: Option<Tally>,
    /// How long the oldest delivery that could be sent has been waiting.
    pub queue_age: Option<Span>,
    /// The share of the store's disk that is free, if the store is a file.
    pub store_free_ratio: Option<f64>,
    /// What this process uses.
    pub process: Option<Process>,
    /// How many alerts of each name go on. One that is not named has none.
    pub alerts: Option<BTreeMap<AlertName, u64>>,
    /// Whoever asks may see single endpoints.
    pub shows_endpoints: bool,
    /// What waits for single endpoints, where the operator wants to see them one by one.
    pub endpoints: Vec<EndpointPending>,
}

/// How much waits for an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointPending {
    /// Whose it is.
    pub tenant: TenantId,
    /// The endpoint.
    pub endpoint: EndpointId,
    /// How many deliveries.
    pub pending: u64,
}
