//! The checker's records of deliveries and endpoints.
//!
//! [`DeliveryRecord`] counts what happened to a delivery: attempts sent, results received, results recorded, faults
//! that excuse a missing one. [`EndpointRecord`] holds what limits an endpoint: settings, status, breaker, attempts
//! in flight. Both are kept from observations alone, never from the state of the dispatcher.

use std::collections::VecDeque;
use std::sync::Arc;

use posthaste_core::classify::Classification;
use posthaste_core::delivery::{DeadReason, Delivery, State, Trigger};
use posthaste_core::dispatcher::AttemptRecord;
use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::lane::LaneSettings;
use posthaste_core::time::Timestamp;

use crate::disk::Epoch;
use crate::scenario::SimEndpoint;

/// The record of a delivery.
#[derive(Clone, Debug)]
pub(crate) struct DeliveryRecord {
    pub(crate) endpoint: EndpointId,
    pub(crate) give_up_at: Timestamp,
    pub(crate) spent: u32,
    pub(crate) sends: u32,
    pub(crate) results: u32,
    pub(crate) recorded: u32,
    pub(crate) excuses: u32,
    pub(crate) is_in_flight: bool,
    pub(crate) last_write: Option<(Epoch, u32)>,
    pub(crate) replayed: bool,
    pub(crate) handed_over_ms: Option<u64>,
    /// The endpoint's settings when the last attempt ended.
    pub(crate) settled_under: Arc<LaneSettings>,
    /// Its final state, if it has ended.
    pub(crate) ended: Option<State>,
}

/// The record of an endpoint.
#[derive(Clone, Debug)]
pub(crate) struct EndpointRecord {
    pub(crate) tenant: TenantId,
    pub(crate) settings: Arc<LaneSettings>,
    pub(crate) most_attempts: u32,
    pub(crate) watched: bool,
    pub(crate) shut: bool,
    pub(crate) tripped: bool,
    pub(crate) probe_in_flight: bool,
    pub(crate) quiet_until_ms: u64,
    pub(crate) in_flight: u32,
    pub(crate) sends_ms: VecDeque<u64>,
    pub(crate) recovered_ms: Option<u64>,
    pub(crate) sends_since_recovery: u32,
}

impl EndpointRecord {
    /// Creates the record of a new endpoint.
    pub(crate) fn of(site: &SimEndpoint) -> EndpointRecord {
        EndpointRecord {
            tenant: site.tenant.clone(),
            settings: site.settings.clone(),
            most_attempts: site.settings.policy.max_attempts,
            watched: site.watched,
            shut: false,
            tripped: false,
            probe_in_flight: false,
            quiet_until_ms: 0,
            in_flight: 0,
            sends_ms: VecDeque::new(),
            recovered_ms: None,
            sends_since_recovery: 0,
        }
    }
}

/// Returns true if the attempt was a probe that the receiver refused. It uses up no attempt of the policy.
pub(crate) fn is_refused_probe(record: &AttemptRecord) -> bool {
    let settlement = &record.settlement;
    let is_refusal = match settlement.meaning {
        Classification::Success => false,
        Classification::Failure(failure) => failure.is_refusal(),
    };
    settlement.trigger == Trigger::Probe && is_refusal
}

/// Returns true if an attempt failed the delivery for good, not a change of its endpoint.
pub(crate) fn is_failed_by_attempt(delivery: &Delivery) -> bool {
    match delivery.state().dead_reason() {
        Some(DeadReason::Permanent | DeadReason::Exhausted | DeadReason::Expired) => true,
        Some(
            DeadReason::EndpointDisabled
            | DeadReason::EndpointDeleted
            | DeadReason::UnsafeDestination,
        )
        | None => false,
    }
}
