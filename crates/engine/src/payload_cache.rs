//! In-memory payload cache for first attempts.
//!
//! The engine inserts the payload of every committed event that is due, so that the first attempt needs no store read.
//! [`PayloadCache`] holds at most [`MAX_BYTES`] and evicts the oldest entries first. An evicted payload is read from
//! the store when its delivery is sent.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use posthaste_core::id::EventId;
use posthaste_core::time::Timestamp;
use posthaste_store::Content;
use rustc_hash::FxHashMap;

/// Capacity of the cache, in bytes.
pub(super) const MAX_BYTES: usize = 16 * 1_024 * 1_024;
/// Assumed memory per entry besides the payload, in bytes.
const ENTRY_BYTES: usize = 256;

/// Payloads of committed events, by event id, until every delivery has taken its copy.
#[derive(Default)]
pub(super) struct PayloadCache {
    entries: FxHashMap<EventId, Entry>,
    /// Insertion order, oldest first. May contain ids that are no longer in `entries`.
    insertion_order: VecDeque<EventId>,
    bytes: usize,
}

/// A cached payload.
#[derive(Clone)]
pub(super) struct CachedPayload {
    /// Time at which the event was accepted.
    pub(super) accepted_at: Timestamp,
    /// The payload and its metadata.
    pub(super) content: Arc<Content>,
    /// Time at which the event arrived, by the monotonic clock, if still known.
    pub(super) received: Option<Instant>,
}

struct Entry {
    payload: CachedPayload,
    /// Number of deliveries that have not taken their copy.
    remaining: usize,
}

impl PayloadCache {
    /// Inserts a payload for one more delivery of the event.
    pub(super) fn insert(&mut self, event: EventId, payload: CachedPayload) {
        let entry = self.entries.entry(event).or_insert_with(|| {
            self.insertion_order.push_back(event);
            self.bytes += cost(&payload.content);
            Entry {
                payload,
                remaining: 0,
            }
        });
        entry.remaining += 1;
        self.evict();
    }

    /// Takes one delivery's copy, if the event is still cached.
    pub(super) fn take(&mut self, event: EventId) -> Option<CachedPayload> {
        let entry = self.entries.get_mut(&event)?;
        entry.remaining -= 1;
        let copy = entry.payload.clone();
        if entry.remaining == 0 {
            self.remove(event);
        }
        Some(copy)
    }

    fn evict(&mut self) {
        while self.bytes > MAX_BYTES
            && let Some(oldest) = self.insertion_order.pop_front()
        {
            self.remove(oldest);
        }
        // Most entries are removed because all copies were taken. Their ids stay in `insertion_order` until this compaction.
        if self.insertion_order.len() > 2 * self.entries.len() + 1_024 {
            let entries = &self.entries;
            self.insertion_order
                .retain(|event| entries.contains_key(event));
        }
    }

    fn remove(&mut self, event: EventId) {
        if let Some(entry) = self.entries.remove(&event) {
            self.bytes -= cost(&entry.payload.content);
        }
    }
}

fn cost(content: &Content) -> usize {
    ENTRY_BYTES + content.payload.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn payload(bytes: usize) -> CachedPayload {
        CachedPayload {
            accepted_at: Timestamp(7),
            content: Arc::new(Content::new(
                "a.b".parse().unwrap(),
                Bytes::from(vec![b'x'; bytes]),
            )),
            received: None,
        }
    }

    #[test]
    fn entry_is_removed_after_every_delivery_took_it() {
        let mut cache = PayloadCache::default();
        for _ in 0..3 {
            cache.insert(EventId(1), payload(10));
        }
        for _ in 0..3 {
            assert_eq!(cache.take(EventId(1)).unwrap().accepted_at, Timestamp(7));
        }
        assert!(cache.take(EventId(1)).is_none());
        assert_eq!(cache.bytes, 0);
        assert!(cache.entries.is_empty());
    }

    #[test]
    fn the_oldest_entry_is_evicted_first() {
        let mut cache = PayloadCache::default();
        let size = MAX_BYTES / 8;
        for id in 0..100 {
            cache.insert(EventId(id), payload(size));
            assert!(cache.bytes <= MAX_BYTES);
        }
        assert!(cache.take(EventId(0)).is_none());
        assert!(cache.take(EventId(99)).is_some());
    }

    #[test]
    fn the_insertion_order_does_not_grow_with_removed_entries() {
        let mut cache = PayloadCache::default();
        for id in 0..50_000 {
            cache.insert(EventId(id), payload(1));
            cache.take(EventId(id)).unwrap();
        }
        assert!(
            cache.insertion_order.len() <= 1_025,
            "{}",
            cache.insertion_order.len()
        );
    }
}
