//! Reports the engine's work: metrics, log lines and spans.
//!
//! [`AttemptReporter`] reports only what is persisted, so metrics never count an attempt that could still be lost.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::classify::{Classification, FailureKind, HttpStatus};
use posthaste_core::delivery::{SettledAttempt, Status};
use posthaste_core::dispatcher::{AttemptRecord, EndpointNotification, News};
use posthaste_core::id::{DeliveryId, EndpointId, EventId, TenantId};
use posthaste_store::StoreError;
use posthaste_system::clock::Clock;
use posthaste_telemetry::logging::{AttemptLine, log_attempt, trigger_name};
use posthaste_telemetry::metrics::{AttemptSeen, Metrics};
use posthaste_telemetry::traces::{AttemptTold, AttemptTrace, Telemetry};

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste::engine::chronicle";

/// One attempt, to be reported once it is recorded.
pub(super) struct Story {
    /// The tenant. `None` only for an attempt that could not be sent.
    tenant: Option<TenantId>,
    endpoint: EndpointId,
    delivery: DeliveryId,
    event: EventId,
    settlement: SettledAttempt,
    /// Number of the attempt within its round.
    spent: u32,
    status: Status,
    latency: Duration,
    first_attempt_lag: Option<Duration>,
    /// The attempt's span in the trace of its event, if the event has a trace.
    pub(super) trace: Option<Box<AttemptTrace>>,
}

impl Story {
    pub(super) fn new(
        record: &AttemptRecord,
        tenant: Option<TenantId>,
        latency: Duration,
        first_attempt_lag: Option<Duration>,
    ) -> Story {
        let facts = record.delivery.facts();
        Story {
            tenant,
            endpoint: facts.endpoint,
            delivery: facts.id,
            event: facts.event,
            settlement: record.settlement,
            spent: facts.spent,
            status: record.delivery.status(),
            latency,
            first_attempt_lag,
            trace: None,
        }
    }

    /// Sets the attempt's span.
    pub(super) fn with_trace(mut self, trace: Option<Box<AttemptTrace>>) -> Story {
        self.trace = trace;
        self
    }

    fn failure(&self) -> Option<FailureKind> {
        match self.settlement.meaning {
            Classification::Success => None,
            Classification::Failure(failure) => Some(failure.kind),
        }
    }
}

/// Reports what happened. Clones report to the same destinations.
#[derive(Clone)]
pub(super) struct AttemptReporter {
    observe: Arc<Metrics>,
    clock: Clock,
    telemetry: Telemetry,
}

impl AttemptReporter {
    pub(super) fn new(
        observe: Arc<Metrics>,
        clock: Clock,
        telemetry: Telemetry,
    ) -> AttemptReporter {
        AttemptReporter {
            observe,
            clock,
            telemetry,
        }
    }

    /// Reports an attempt that was made and recorded.
    pub(super) fn attempted(&self, story: Story) {
        let Some(tenant) = &story.tenant else {
            return;
        };
        let failure = story.failure();
        let seen = AttemptSeen {
            tenant,
            endpoint: story.endpoint,
            round_number: story.spent,
            failure,
            status_code: story.settlement.outcome.status().map(HttpStatus::code),
            latency: story.latency,
            first_attempt_lag: story.first_attempt_lag,
            ended: story.status.is_terminal().then_some(story.status),
        };
        self.observe.attempt(self.clock.now(), &seen);
        log_attempt(&AttemptLine {
            tenant: Some(tenant),
            endpoint: story.endpoint,
            delivery: story.delivery,
            event: story.event,
            attempt: story.settlement.number,
            trigger: story.settlement.trigger,
            status: story.settlement.outcome.status().map(HttpStatus::code),
            error_kind: failure,
            latency_ms: u64::try_from(story.latency.as_millis()).unwrap_or(u64::MAX),
            next_attempt_at: story.settlement.next_attempt_at,
            trace: story.trace.as_ref().map(|trace| trace.context.trace_id),
        });
        if let Some(trace) = story.trace {
            let told = AttemptTold {
                tenant,
                endpoint: story.endpoint,
                delivery: story.delivery,
                event: story.event,
                attempt: story.settlement.number,
                trigger: trigger_name(story.settlement.trigger),
                status: seen.status_code,
                failure,
                latency: story.latency,
            };
            self.telemetry.attempted(*trace, &told);
        }
    }

    /// Reports the time that the store took to commit a record.
    pub(super) fn committed(&self, took: Duration) {
        self.observe.committed(took);
    }

    /// Reports an attempt that an internal error prevented.
    pub(super) fn not_made(&self) {
        self.observe.not_made();
    }

    /// Reports deliveries to an endpoint that were dead-lettered without an attempt.
    pub(super) fn swept(&self, tenant: Option<&TenantId>, endpoint: EndpointId, given_up: usize) {
        if let Some(tenant) = tenant {
            let now = self.clock.now();
            self.observe.swept(now, tenant, endpoint, given_up as u64);
        }
    }

    /// Reports a cancelled delivery.
    pub(super) fn called_off(&self) {
        self.observe.called_off();
    }

    /// Reports an endpoint notification of the dispatcher.
    pub(super) fn notice(&self, tenant: Option<&TenantId>, notice: &EndpointNotification) {
        let (tenant_id, endpoint_id) = (tenant.map(TenantId::as_str), notice.endpoint);
        let news = notice.news.name();
        match notice.news {
            News::Recovered => {
                tracing::info!(target: LOG_TARGET, tenant_id, %endpoint_id, news, "news of an endpoint");
            }
            News::BreakerTripped(_) | News::DisableWarning(_) | News::Disabled(_) => {
                tracing::warn!(target: LOG_TARGET, tenant_id, %endpoint_id, news, "news of an endpoint");
            }
        }
        self.observe.notices.ring();
    }

    /// Reports that records cannot be written.
    pub(super) fn record_failed(&self, error: &StoreError) {
        tracing::error!(target: LOG_TARGET, %error, "results cannot be written down; they are kept and will be written as soon as that works");
    }
}
