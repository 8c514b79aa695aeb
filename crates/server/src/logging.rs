//! Stand-in.
use posthaste_core::{classify::*, delivery::*, id::*, time::*};
/// x
#[allow(missing_docs)]
pub struct AttemptLine<'a> {
    pub tenant: Option<&'a TenantId>,
    pub endpoint: EndpointId,
    pub delivery: DeliveryId,
    pub event: EventId,
    pub attempt: u32,
    pub trigger: Trigger,
    pub status: Option<u16>,
    pub error_kind: Option<FailureKind>,
    pub latency_ms: u64,
    pub next_attempt_at: Option<Timestamp>,
}
/// x
pub fn log_attempt(_: &AttemptLine<'_>) {}
