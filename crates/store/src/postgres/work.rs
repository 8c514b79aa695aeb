//! What is still to be done.

use std::sync::Arc;

use posthaste_core::id::{EndpointId, EventId};
use posthaste_core::lane::Fetched;
use posthaste_core::time::Timestamp;

use super::fault::Fault;
use super::floors::Floors;
use super::link::Link;
use super::scene::missing;
use crate::Content;

/// Every endpoint for which something waits, and when the earliest of it is due.
pub(super) async fn unfinished(
    _link: &Link,
    _floors: &Floors,
) -> Result<Vec<(EndpointId, Timestamp)>, Fault> {
    missing()
}

/// What waits for an endpoint and is due.
pub(super) async fn fetch(
    _link: &Link,
    _endpoint: EndpointId,
    _due_by: Timestamp,
    _limit: usize,
    _ordered: bool,
) -> Result<Fetched, Fault> {
    missing()
}

/// What an event carries, and when it was accepted.
pub(super) async fn content(
    _link: &Link,
    _event: EventId,
) -> Result<Option<(Timestamp, Arc<Content>)>, Fault> {
    missing()
}
