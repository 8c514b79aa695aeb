//! The description of one attempt that log, metrics and traces share.

use std::time::Duration;

use posthaste_core::classify::FailureKind;
use posthaste_core::delivery::{Status, Trigger};
use posthaste_core::id::{DeliveryId, EndpointId, EventId, TenantId};
use posthaste_core::time::Timestamp;
use posthaste_core::trace::TraceId;

/// One attempt that was made and recorded. It deliberately has no field for a URL or a response, which could contain
/// an address or a secret.
#[derive(Clone, Debug)]
pub struct AttemptEvent {
    /// The tenant.
    pub tenant: TenantId,
    /// The endpoint.
    pub endpoint: EndpointId,
    /// The delivery.
    pub delivery: DeliveryId,
    /// The event.
    pub event: EventId,
    /// Number of the attempt, over all rounds.
    pub number: u32,
    /// Number of the attempt within its round, starting at 1. A replay starts a new round. `None` for a refused probe,
    /// which its round does not count.
    pub round_number: Option<u32>,
    /// Trigger of the attempt.
    pub trigger: Trigger,
    /// HTTP status of the response, if there was one.
    pub status_code: Option<u16>,
    /// Kind of the failure; `None` for a success.
    pub failure: Option<FailureKind>,
    /// The failure, in the words of the API; never contains an address or a secret.
    pub detail: Option<String>,
    /// Duration of the attempt.
    pub latency: Duration,
    /// Time from the acceptance of the event, or from the due time, to the first byte sent. Only for a first attempt.
    pub first_attempt_lag: Option<Duration>,
    /// Final status of the delivery, if this attempt ended it.
    pub ended: Option<Status>,
    /// Time of the next attempt, if there is one.
    pub next_attempt_at: Option<Timestamp>,
    /// Trace of the event, if it has one.
    pub trace_id: Option<TraceId>,
}

impl AttemptEvent {
    /// Returns the name of the trigger in the API.
    pub(crate) fn trigger_name(&self) -> &'static str {
        match self.trigger {
            Trigger::Automatic => "automatic",
            Trigger::Manual => "manual",
            Trigger::Probe => "probe",
        }
    }

    /// Returns an attempt that failed and will be retried, for tests.
    #[cfg(test)]
    pub(crate) fn example() -> AttemptEvent {
        AttemptEvent {
            tenant: "acme".parse().expect("a valid tenant id"),
            endpoint: EndpointId(1),
            delivery: DeliveryId(2),
            event: EventId(3),
            number: 4,
            round_number: Some(4),
            trigger: Trigger::Automatic,
            status_code: Some(503),
            failure: Some(FailureKind::Http),
            detail: Some("the receiver responded with 503 Service Unavailable".to_owned()),
            latency: Duration::from_millis(12),
            first_attempt_lag: None,
            ended: None,
            next_attempt_at: Some(Timestamp(1_700_000_010_000)),
            trace_id: TraceId::new([0xab; 16]),
        }
    }
}
