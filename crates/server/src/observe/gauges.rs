//! What others know at the moment they are asked.
//!
//! What cannot be asked is left out, and so is its metric: a gap says more than a zero.

use std::collections::BTreeMap;

use posthaste_core::alert::AlertName;
use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::time::Span;
use posthaste_store::Tally;

use super::machine::Process;

/// What others know.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gauges {
    /// Deliveries that have not ended.
    pub pending: u64,
    /// Attempts under way.
    pub in_flight: u64,
    /// Endpoints whose breaker lets everything pass, as far as they are in memory.
    pub breakers_passing: u64,
    /// Endpoints whose breaker has tripped.
    pub breakers_tripped: u64,
    /// Endpoints whose breaker is probing.
    pub breakers_probing: u64,
    /// Deliveries that were given up and are still kept.
    pub dead_letters: u64,
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
    pub alerts: BTreeMap<AlertName, u64>,
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
