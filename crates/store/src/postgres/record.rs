//! Writing down what became of a delivery, where that takes more than a row.

use std::sync::Arc;

use posthaste_core::delivery::DeadReason;
use posthaste_core::dispatcher::Record;
use posthaste_core::id::{DeliveryId, EndpointId, TenantId};
use posthaste_core::time::Timestamp;

use super::fault::Fault;
use super::scene::{Scene, missing};
use crate::{AttemptDetail, Retried, Swept, Written};

/// Writes a record, if its row still stands where it stood.
pub(super) async fn record(
    _scene: &mut Scene,
    _now: Timestamp,
    _record: &Record,
    _detail: &AttemptDetail,
) -> Result<Written, Fault> {
    missing()
}

/// Asks for another attempt by hand.
pub(super) async fn retry(
    _scene: &mut Scene,
    _now: Timestamp,
    _tenant: &TenantId,
    _delivery: DeliveryId,
) -> Result<Retried, Fault> {
    missing()
}

/// Fails some of what waits for an endpoint.
pub(super) async fn sweep(
    _scene: &mut Scene,
    _now: Timestamp,
    _endpoint: EndpointId,
    _reason: DeadReason,
    _except: &Arc<[DeliveryId]>,
    _limit: usize,
) -> Result<Swept, Fault> {
    missing()
}
