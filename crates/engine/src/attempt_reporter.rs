//! Reports the engine's work: metrics, log lines and spans.
//!
//! [`AttemptReporter`] reports only what is persisted, so metrics never count an attempt that could still be lost.
//! [`attempt_event`] describes an attempt once, for all three.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::classify::{Classification, HttpStatus};
use posthaste_core::dispatcher::{AttemptRecord, EndpointChange, EndpointNotification};
use posthaste_core::id::TenantId;
use posthaste_store::StoreError;
use posthaste_system::clock::Clock;
use posthaste_telemetry::AttemptEvent;
use posthaste_telemetry::logging::log_attempt;
use posthaste_telemetry::metrics::Metrics;
use posthaste_telemetry::traces::{AttemptTrace, Telemetry};

use super::attempt_result::CompletedAttempt;

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste::engine::chronicle";

/// Describes an attempt that is being recorded.
pub(super) fn attempt_event(
    record: &AttemptRecord,
    completed: &CompletedAttempt,
    first_attempt_lag: Option<Duration>,
) -> AttemptEvent {
    let (facts, settlement) = (record.delivery.facts(), &record.settlement);
    let status = record.delivery.status();
    let trace = completed.trace.as_ref();
    AttemptEvent {
        tenant: completed.tenant.clone(),
        endpoint: facts.endpoint,
        delivery: facts.id,
        event: facts.event,
        number: settlement.number,
        round_number: (!settlement.is_refused_probe()).then_some(facts.spent),
        trigger: settlement.trigger,
        status_code: settlement.outcome.status().map(HttpStatus::code),
        failure: match settlement.meaning {
            Classification::Success => None,
            Classification::Failure(failure) => Some(failure.kind),
        },
        detail: completed.detail.detail.clone(),
        latency: completed.latency,
        first_attempt_lag,
        ended: status.is_terminal().then_some(status),
        next_attempt_at: settlement.next_attempt_at,
        trace_id: trace.map(|trace| trace.context.trace_id),
    }
}

/// Reports what happened. Clones report to the same destinations.
#[derive(Clone)]
pub(super) struct AttemptReporter {
    pub(super) metrics: Arc<Metrics>,
    pub(super) clock: Clock,
    pub(super) telemetry: Telemetry,
}

impl AttemptReporter {
    /// Reports an attempt that was made and recorded.
    pub(super) fn attempted(&self, attempt: &AttemptEvent, trace: Option<Box<AttemptTrace>>) {
        self.metrics.attempt(self.clock.now(), attempt);
        log_attempt(attempt);
        if let Some(trace) = trace {
            self.telemetry.attempted(*trace, attempt);
        }
    }

    /// Reports the time that the store took to commit a record.
    pub(super) fn committed(&self, took: Duration) {
        self.metrics.committed(took);
    }

    /// Reports an attempt that an internal error prevented.
    pub(super) fn prevented(&self) {
        self.metrics.attempt_prevented();
    }

    /// Reports the number of deliveries that this node holds after internal faults, or cannot read.
    pub(super) fn held_after_faults(&self, deliveries: usize) {
        self.metrics.held_after_faults(deliveries as u64);
    }

    /// Reports deliveries of a tenant that were dead-lettered without an attempt.
    pub(super) fn dead_lettered(&self, tenant: Option<&TenantId>, deliveries: usize) {
        if let Some(tenant) = tenant {
            self.metrics.dead_lettered(tenant, deliveries as u64);
        }
    }

    /// Reports a cancelled delivery.
    pub(super) fn cancelled(&self) {
        self.metrics.cancelled();
    }

    /// Reports an endpoint notification of the dispatcher.
    pub(super) fn notification(
        &self,
        tenant: Option<&TenantId>,
        notification: &EndpointNotification,
    ) {
        let (tenant_id, endpoint_id) = (tenant.map(TenantId::as_str), notification.endpoint);
        let change = notification.change.name();
        match notification.change {
            EndpointChange::Recovered => {
                tracing::info!(target: LOG_TARGET, tenant_id, %endpoint_id, news = change, "endpoint status changed");
            }
            EndpointChange::BreakerTripped(_)
            | EndpointChange::DisableWarning(_)
            | EndpointChange::Disabled(_) => {
                tracing::warn!(target: LOG_TARGET, tenant_id, %endpoint_id, news = change, "endpoint status changed");
            }
        }
        self.metrics.notifications.ring();
    }

    /// Reports that records cannot be written.
    pub(super) fn record_failed(&self, error: &StoreError) {
        tracing::error!(target: LOG_TARGET, %error, "cannot persist results; keeping them in memory and retrying");
    }
}
