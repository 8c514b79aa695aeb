//! Event queue in virtual time.

use std::collections::BTreeMap;

/// Events ordered by time; events of the same time in the order in which they were scheduled.
#[derive(Debug)]
pub struct EventQueue<E> {
    now_ms: u64,
    planned: u64,
    events: BTreeMap<(u64, u64), E>,
}

impl<E> Default for EventQueue<E> {
    fn default() -> EventQueue<E> {
        EventQueue {
            now_ms: 0,
            planned: 0,
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
    pub fn plan(&mut self, delay_ms: u64, event: E) {
        self.planned += 1;
        let at = self.now_ms.saturating_add(delay_ms);
        self.events.insert((at, self.planned), event);
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
    fn events_come_in_order_and_time_goes_with_them() {
        let mut agenda = EventQueue::default();
        agenda.plan(20, "late");
        agenda.plan(10, "first");
        agenda.plan(10, "second");
        assert_eq!(agenda.advance(15), Some("first"));
        assert_eq!(agenda.advance(15), Some("second"));
        assert_eq!((agenda.advance(15), agenda.now_ms()), (None, 15));
        agenda.plan(1, "between");
        assert_eq!(
            (agenda.advance(100), agenda.now_ms()),
            (Some("between"), 16)
        );
        assert_eq!((agenda.advance(100), agenda.now_ms()), (Some("late"), 20));
    }
}
