//! [`Shared`]: the parts of the store that its thread and its callers both use.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use posthaste_core::cluster::FormatLevel;

use tokio::sync::Notify;

use super::read::due_watermarks::DueWatermarks;
use super::read::payload_cache::FetchedPayloadCache;
use super::read::readers::Readers;
use super::round_trips::RoundTripLog;
use super::write::write_queue::WriteQueue;
use crate::thread_end::ThreadEnd;
use crate::{ClusterEvents, HandOver, StoreError};

/// State that the thread shares with its callers.
#[derive(Clone)]
pub(super) struct Shared {
    /// The queue of the first writer.
    pub(super) queue: Arc<WriteQueue>,
    /// Events of limited tenants. They may have to wait for other nodes, so they have a queue of their own.
    pub(super) metered: Arc<WriteQueue>,
    /// Events that make many deliveries. The first two writers pass them on.
    pub(super) large: Arc<WriteQueue>,
    /// Long operations that no request waits for.
    pub(super) background: Arc<WriteQueue>,
    pub(super) readers: Arc<Readers>,
    pub(super) closed: Arc<ThreadEnd>,
    pub(super) due_watermarks: Arc<DueWatermarks>,
    pub(super) contents: Arc<FetchedPayloadCache>,
    /// Durations of fetches and records, for the membership.
    pub(super) round_trips: Arc<RoundTripLog>,
    pub(super) hand_over: Arc<dyn HandOver>,
    /// The schema version that a node must know to use the database.
    pub(super) required_schema: RequiredSchema,
    /// Notifies the scheduler of changed schedules.
    pub(super) schedule_changes: Arc<Notify>,
    /// Receives ownership changes from the membership.
    pub(super) cluster_events: Arc<dyn ClusterEvents>,
}

/// The schema version that a node must know to use the database. It only rises, when an upgrade is finished. Clones share
/// the number.
#[derive(Clone, Debug, Default)]
pub(super) struct RequiredSchema(Arc<AtomicU32>);

impl RequiredSchema {
    /// Returns the version.
    pub(super) fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Raises the version.
    pub(super) fn raise(&self, required: u32) {
        self.0.fetch_max(required, Ordering::Relaxed);
    }

    /// Returns what every node can read.
    pub(super) fn level(&self) -> FormatLevel {
        FormatLevel::of_required(self.get())
    }
}

impl Shared {
    /// Closes the write queues. Operations that wait already are still written. The queue for large accepts is closed
    /// when no writer passes any on any more.
    pub(super) fn close_queues(&self) {
        self.queue.close();
        self.metered.close();
        self.background.close();
    }

    /// Shuts all write queues with this error.
    pub(super) fn fail_queues(&self, why: &StoreError) {
        for queue in [&self.queue, &self.metered, &self.large, &self.background] {
            queue.fail(why);
        }
    }
}
