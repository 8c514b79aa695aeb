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
    shelf: FxHashMap<EventId, Portion>,
    /// Insertion order, oldest first. May contain ids that are no longer in `shelf`.
    order: VecDeque<EventId>,
    bytes: usize,
}

/// A cached payload.
#[derive(Clone)]
pub(super) struct Goods {
    /// Time at which the event was accepted.
    pub(super) accepted_at: Timestamp,
    /// The payload and its metadata.
    pub(super) content: Arc<Content>,
    /// Time at which the event arrived, by the monotonic clock, if still known.
    pub(super) received: Option<Instant>,
}

struct Portion {
    goods: Goods,
    /// Number of deliveries that have not taken their copy.
    left: usize,
}

impl PayloadCache {
    /// Inserts a payload for one more delivery of the event.
    pub(super) fn insert(&mut self, event: EventId, goods: Goods) {
        let portion = self.shelf.entry(event).or_insert_with(|| {
            self.order.push_back(event);
            self.bytes += cost(&goods.content);
            Portion { goods, left: 0 }
        });
        portion.left += 1;
        self.make_room();
    }

    /// Takes one delivery's copy, if the event is still cached.
    pub(super) fn take(&mut self, event: EventId) -> Option<Goods> {
        let portion = self.shelf.get_mut(&event)?;
        portion.left -= 1;
        let share = portion.goods.clone();
        if portion.left == 0 {
            self.drop_portion(event);
        }
        Some(share)
    }

    fn make_room(&mut self) {
        while self.bytes > MAX_BYTES
            && let Some(oldest) = self.order.pop_front()
        {
            self.drop_portion(oldest);
        }
        // Most entries are removed because all copies were taken. Their ids stay in `order` until this compaction.
        if self.order.len() > 2 * self.shelf.len() + 1_024 {
            let shelf = &self.shelf;
            self.order.retain(|event| shelf.contains_key(event));
        }
    }

    fn drop_portion(&mut self, event: EventId) {
        if let Some(portion) = self.shelf.remove(&event) {
            self.bytes -= cost(&portion.goods.content);
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

    fn goods(bytes: usize) -> Goods {
        Goods {
            accepted_at: Timestamp(7),
            content: Arc::new(Content {
                event_type: "a.b".parse().unwrap(),
                content_type: None,
                payload: Bytes::from(vec![b'x'; bytes]),
                trace: None,
            }),
            received: None,
        }
    }

    #[test]
    fn everybody_gets_their_share_and_then_it_is_gone() {
        let mut pantry = PayloadCache::default();
        for _ in 0..3 {
            pantry.insert(EventId(1), goods(10));
        }
        for _ in 0..3 {
            assert_eq!(pantry.take(EventId(1)).unwrap().accepted_at, Timestamp(7));
        }
        assert!(pantry.take(EventId(1)).is_none());
        assert_eq!(pantry.bytes, 0);
        assert!(pantry.shelf.is_empty());
    }

    #[test]
    fn the_oldest_leaves_first_and_the_bound_holds() {
        let mut pantry = PayloadCache::default();
        let size = MAX_BYTES / 8;
        for id in 0..100 {
            pantry.insert(EventId(id), goods(size));
            assert!(pantry.bytes <= MAX_BYTES);
        }
        assert!(pantry.take(EventId(0)).is_none());
        assert!(pantry.take(EventId(99)).is_some());
    }

    #[test]
    fn the_line_does_not_grow_with_what_was_used_up() {
        let mut pantry = PayloadCache::default();
        for id in 0..50_000 {
            pantry.insert(EventId(id), goods(1));
            pantry.take(EventId(id)).unwrap();
        }
        assert!(pantry.order.len() <= 1_025, "{}", pantry.order.len());
    }
}
