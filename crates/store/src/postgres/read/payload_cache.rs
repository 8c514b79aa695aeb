//! Cache of payloads that a fetch has read.
//!
//! A fetch also reads the payloads of its deliveries, so that sending them needs no further read.
//! [`FetchedPayloadCache`] holds at most 16 MiB and evicts the oldest entries first.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use posthaste_core::id::EventId;
use posthaste_core::time::Timestamp;
use rustc_hash::FxHashMap;

use crate::Content;

/// Capacity of the cache, in bytes.
const MAX_BYTES: usize = 16 * 1_024 * 1_024;
/// Size of an entry in addition to its payload.
const ENTRY_BYTES: usize = 256;

/// An event's payload, and the time at which the event was accepted.
pub(super) type CachedPayload = (Timestamp, Arc<Content>);

/// Payloads by event id.
#[derive(Default)]
pub(in crate::postgres) struct FetchedPayloadCache {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    contents: FxHashMap<EventId, CachedPayload>,
    /// Insertion order, oldest first.
    order: VecDeque<EventId>,
    bytes: usize,
}

impl FetchedPayloadCache {
    /// Returns the payload of an event, if it is cached.
    pub(in crate::postgres) fn get(&self, event: EventId) -> Option<CachedPayload> {
        self.lock().contents.get(&event).cloned()
    }

    /// Returns whether the payload of an event is cached.
    pub(in crate::postgres) fn has(&self, event: EventId) -> bool {
        self.lock().contents.contains_key(&event)
    }

    /// Adds the payload of an event.
    pub(in crate::postgres) fn keep(&self, event: EventId, carried: CachedPayload) {
        let cost = cost(&carried);
        if cost > MAX_BYTES {
            return;
        }
        let mut inner = self.lock();
        if inner.contents.insert(event, carried).is_some() {
            return;
        }
        inner.order.push_back(event);
        inner.bytes += cost;
        while inner.bytes > MAX_BYTES {
            let oldest = inner
                .order
                .pop_front()
                .expect("the bytes belong to an entry");
            if let Some(gone) = inner.contents.remove(&oldest) {
                inner.bytes -= self::cost(&gone);
            }
        }
    }

    /// Clears the cache, because cached payloads may have been deleted from the store.
    pub(in crate::postgres) fn forget(&self) {
        *self.lock() = Inner::default();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn cost((_, content): &CachedPayload) -> usize {
    ENTRY_BYTES + content.payload.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carried(bytes: usize) -> CachedPayload {
        let content = Content::new("a.b".parse().expect("a type"), vec![0; bytes].into());
        (Timestamp(1), Arc::new(content))
    }

    #[test]
    fn the_oldest_entry_is_evicted() {
        let contents = FetchedPayloadCache::default();
        for number in 0..20 {
            contents.keep(EventId(number), carried(1_024 * 1_024));
        }
        assert!(!contents.has(EventId(0)) && contents.get(EventId(19)).is_some());
        assert!(contents.lock().bytes <= MAX_BYTES);
        contents.keep(EventId(99), carried(MAX_BYTES));
        assert!(!contents.has(EventId(99)) && contents.has(EventId(19)));
    }
}
