//! Opening a [`PostgresStore`].
//!
//! All connections of the store run on one thread, which [`PostgresStore::open`] starts.

use std::sync::{Arc, Mutex};

use super::PostgresStore;
use crate::postgres::read::due_watermarks::DueWatermarks;
use crate::postgres::read::payload_cache::FetchedPayloadCache;
use crate::postgres::read::readers::Readers;
use crate::postgres::settings::PostgresSettings;
use crate::postgres::shared::{RequiredSchema, Shared};
use crate::postgres::thread;
use crate::postgres::write::write_queue::WriteQueue;
use crate::thread_end::ThreadEnd;
use crate::{ClusterEvents, HandOver, OpenError, StoreSettings};

/// Capacity of the queue for large accepts, in requests. A tenant may hold half of it.
const MAX_WAITING_LARGE_ACCEPTS: usize = 64;

impl PostgresStore {
    /// Opens a store and creates or migrates its tables as needed. Blocks the calling thread until the store is open,
    /// so do not call it on an async runtime's thread. Needs no runtime.
    pub fn open(
        settings: PostgresSettings,
        store: StoreSettings,
        hand_over: Arc<dyn HandOver>,
        cluster_events: Arc<dyn ClusterEvents>,
    ) -> Result<PostgresStore, OpenError> {
        let shared = Shared {
            queue: Arc::new(WriteQueue::new(store.max_waiting_writes)),
            metered: Arc::new(WriteQueue::new(store.max_waiting_writes)),
            large: Arc::new(WriteQueue::new(MAX_WAITING_LARGE_ACCEPTS)),
            background: Arc::new(WriteQueue::new(store.max_waiting_writes)),
            readers: Arc::new(Readers::new()),
            closed: Arc::new(ThreadEnd::default()),
            due_watermarks: Arc::new(DueWatermarks::default()),
            contents: Arc::new(FetchedPayloadCache::default()),
            required_schema: RequiredSchema::default(),
            round_trips: Arc::default(),
            hand_over,
            schedule_changes: Arc::default(),
            cluster_events,
        };
        let (thread, membership) = thread::start(settings, store, shared.clone())?;
        Ok(PostgresStore {
            shared,
            membership,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Returns the shards that this node owns now. For tests and tools.
    #[doc(hidden)]
    pub fn owned_shards(&self) -> Vec<posthaste_core::cluster::Shard> {
        self.membership.owned_shards.shards()
    }
}
