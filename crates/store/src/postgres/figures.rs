//! Figures and notices.

use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::time::Timestamp;

use super::fault::Fault;
use super::link::Link;
use super::scene::missing;
use crate::{Counts, NoticeEntry};

/// How much there is.
pub(super) async fn counts(_link: &Link) -> Result<Counts, Fault> {
    missing()
}

/// How many deliveries wait for an endpoint.
pub(super) async fn pending(_link: &Link, _endpoint: EndpointId) -> Result<u64, Fault> {
    missing()
}

/// How many deliveries have been waiting for another attempt since before `since`.
pub(super) async fn retrying_since(
    _link: &Link,
    _tenant: Option<&TenantId>,
    _since: Timestamp,
    _limit: usize,
) -> Result<u64, Fault> {
    missing()
}

/// Notices past a number.
pub(super) async fn notices(
    _link: &Link,
    _after: u64,
    _limit: usize,
) -> Result<Vec<NoticeEntry>, Fault> {
    missing()
}
