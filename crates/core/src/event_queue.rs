//! Event queue in virtual time, for the outage forecast and the simulator.
//!
//! [`EventQueue`] returns events in the order of their time and advances its own time to each. Events of the same time
//! keep the order in which they were scheduled, so a run can be repeated exactly.

use std::collections::BTreeMap;

/// Events ordered by time; events of the same time in the order in which they were scheduled.
#[derive(Debug)]
pub struct EventQueue<E> {
    now_ms: u64,
    scheduled: u64,
    events: BTreeMap<(u64, u64), E>,
}

impl<E> Default for EventQueue<E> {
    fn default() -> EventQueue<E> {
        EventQueue {
            now_ms: 0,
            scheduled: 0,
            events: BTreeMap::new(),
        }
    }
}

impl<E> EventQueue<E> {
    /// Returns the virtual time that has passed, in milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Schedules an event `delay_ms` from now.
    pub fn schedule(&mut self, delay_ms: u64, event: E) {
        self.scheduled += 1;
        let at = self.now_ms.saturating_add(delay_ms);
        self.events.insert((at, self.scheduled), event);
    }

    /// Advances to the next event and returns it. If there is none up to `until_ms`, advances to `until_ms`.
    pub fn advance(&mut self, until_ms: u64) -> Option<E> {
        match self.events.first_entry() {
            Some(entry) if entry.key().0 <= until_ms => {
                self.now_ms = entry.key().0;
                Some(entry.remove())
            }
            Some(_) | None => {
                self.now_ms = self.now_ms.max(until_ms);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_ordered_and_advance_the_time() {
        let mut queue = EventQueue::default();
        queue.schedule(20, "late");
        queue.schedule(10, "first");
        queue.schedule(10, "second");
        assert_eq!(queue.advance(15), Some("first"));
        assert_eq!(queue.advance(15), Some("second"));
        assert_eq!((queue.advance(15), queue.now_ms()), (None, 15));
        queue.schedule(1, "between");
        assert_eq!((queue.advance(100), queue.now_ms()), (Some("between"), 16));
        assert_eq!((queue.advance(100), queue.now_ms()), (Some("late"), 20));
    }
}
