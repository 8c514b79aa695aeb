//! What deliveries carry, kept in memory between the commit and the first attempt.
//!
//! A delivery that goes out at once needs no read. The pantry is bounded in bytes; what has been in it
//! longest leaves first, and is read from the store when its turn comes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use posthaste_core::id::EventId;
use posthaste_core::time::Timestamp;
use posthaste_store::Content;
use rustc_hash::FxHashMap;

/// How much is kept.
pub(super) const MAX_BYTES: usize = 16 * 1_024 * 1_024;
/// What an entry costs besides its payload.
const ENTRY_BYTES: usize = 256;

/// What is at hand.
#[derive(Default)]
pub(super) struct Pantry {
    shelf: FxHashMap<EventId, Portion>,
    /// Oldest first. Those that were used up are still in it.
    order: VecDeque<EventId>,
    bytes: usize,
}

/// What a delivery carries.
#[derive(Clone)]
pub(super) struct Goods {
    /// When its event was accepted.
    pub(super) accepted_at: Timestamp,
    /// What it carries.
    pub(super) content: Arc<Content>,
    /// When its event arrived, by the steady clock, if that is still known.
    pub(super) received: Option<Instant>,
}

struct Portion {
    goods: Goods,
    /// Deliveries that have not taken theirs.
    left: usize,
}

impl Pantry {
    /// Puts one delivery's share of an event on the shelf.
    pub(super) fn stock(&mut self, event: EventId, goods: Goods) {
        let portion = self.shelf.entry(event).or_insert_with(|| {
            self.order.push_back(event);
            self.bytes += cost(&goods.content);
            Portion { goods, left: 0 }
        });
        portion.left += 1;
        self.make_room();
    }

    /// Takes one delivery's share, if it is still there.
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
        // Most leave the shelf by being used up, and are found in line long after.
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
        let mut pantry = Pantry::default();
        for _ in 0..3 {
            pantry.stock(EventId(1), goods(10));
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
        let mut pantry = Pantry::default();
        let size = MAX_BYTES / 8;
        for id in 0..100 {
            pantry.stock(EventId(id), goods(size));
            assert!(pantry.bytes <= MAX_BYTES);
        }
        assert!(pantry.take(EventId(0)).is_none());
        assert!(pantry.take(EventId(99)).is_some());
    }

    #[test]
    fn the_line_does_not_grow_with_what_was_used_up() {
        let mut pantry = Pantry::default();
        for id in 0..50_000 {
            pantry.stock(EventId(id), goods(1));
            pantry.take(EventId(id)).unwrap();
        }
        assert!(pantry.order.len() <= 1_025, "{}", pantry.order.len());
    }
}
