//! [`Shared`]: the parts of the store that its thread and its callers both use.

use std::sync::Arc;

use super::read::due_watermarks::DueWatermarks;
use super::read::payload_cache::FetchedPayloadCache;
use super::read::readers::Readers;
use super::write::write_queue::WriteQueue;
use crate::closed::Closed;
use crate::{ClusterEvents, HandOver};

/// State that the thread shares with its callers.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) queue: Arc<WriteQueue>,
    /// Events of limited tenants. They may have to wait for other nodes, so they have a queue of their own.
    pub(super) metered: Arc<WriteQueue>,
    pub(super) readers: Arc<Readers>,
    pub(super) closed: Arc<Closed>,
    pub(super) due_watermarks: Arc<DueWatermarks>,
    pub(super) contents: Arc<FetchedPayloadCache>,
    pub(super) hand_over: Arc<dyn HandOver>,
    /// Receives ownership changes from the membership.
    pub(super) orders: Arc<dyn ClusterEvents>,
}

impl Shared {
    /// Closes both write queues. Operations that wait already are still written.
    pub(super) fn close_queues(&self) {
        self.queue.close();
        self.metered.close();
    }
}
