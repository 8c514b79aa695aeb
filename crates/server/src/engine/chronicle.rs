//! What is told of the engine's work: counted, and logged in the words of the API.
//!
//! Told only what is on disk: a figure never runs ahead of the truth.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::classify::{FailureKind, HttpStatus, Meaning};
use posthaste_core::delivery::{Settlement, Status};
use posthaste_core::dispatcher::{AttemptRecord, News, Notice};
use posthaste_core::id::{DeliveryId, EndpointId, EventId, TenantId};
use posthaste_store::StoreError;

use crate::clock::Clock;
use crate::logging::{AttemptLine, log_attempt, trigger_name};
use crate::observe::{AttemptSeen, Observatory};
use crate::telemetry::{AttemptTold, AttemptTrace, Telemetry};

/// One attempt, as it will be told.
pub(super) struct Story {
    /// Known of whatever was sent; only what could not be sent has none.
    tenant: Option<TenantId>,
    endpoint: EndpointId,
    delivery: DeliveryId,
    event: EventId,
    settlement: Settlement,
    /// Which attempt of its round it was.
    spent: u32,
    status: Status,
    latency: Duration,
    first_attempt_lag: Option<Duration>,
    /// Its place in the trace of its event, if that has one.
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

    /// The same, at its place in a trace.
    pub(super) fn within(mut self, trace: Option<Box<AttemptTrace>>) -> Story {
        self.trace = trace;
        self
    }

    fn failure(&self) -> Option<FailureKind> {
        match self.settlement.meaning {
            Meaning::Success => None,
            Meaning::Failure(failure) => Some(failure.kind),
        }
    }
}

/// Tells what happened. Clones tell it in the same place.
#[derive(Clone)]
pub(super) struct Chronicle {
    observe: Arc<Observatory>,
    clock: Clock,
    telemetry: Telemetry,
}

impl Chronicle {
    pub(super) fn new(observe: Arc<Observatory>, clock: Clock, telemetry: Telemetry) -> Chronicle {
        Chronicle {
            observe,
            clock,
            telemetry,
        }
    }

    /// An attempt was made and is on disk.
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

    /// It took the store so long to say what became of a record.
    pub(super) fn committed(&self, took: Duration) {
        self.observe.committed(took);
    }

    /// A fault of our own kept an attempt from being made.
    pub(super) fn not_made(&self) {
        self.observe.not_made();
    }

    /// Deliveries to an endpoint were given up otherwise than by an attempt.
    pub(super) fn swept(&self, tenant: Option<&TenantId>, endpoint: EndpointId, given_up: usize) {
        if let Some(tenant) = tenant {
            let now = self.clock.now();
            self.observe.swept(now, tenant, endpoint, given_up as u64);
        }
    }

    /// A delivery was called off.
    pub(super) fn called_off(&self) {
        self.observe.called_off();
    }

    /// There is news of an endpoint.
    pub(super) fn notice(&self, tenant: Option<&TenantId>, notice: &Notice) {
        let (tenant_id, endpoint_id) = (tenant.map(TenantId::as_str), notice.endpoint);
        let news = notice.news.name();
        match notice.news {
            News::Recovered => {
                tracing::info!(tenant_id, %endpoint_id, news, "news of an endpoint");
            }
            News::BreakerTripped(_) | News::DisableWarning(_) | News::Disabled(_) => {
                tracing::warn!(tenant_id, %endpoint_id, news, "news of an endpoint");
            }
        }
        self.observe.notices.ring();
    }

    /// Records cannot be written any more.
    pub(super) fn record_failed(&self, error: &StoreError) {
        tracing::error!(%error, "results cannot be written down; they are kept and will be written as soon as that works");
    }
}
