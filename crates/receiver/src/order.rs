//! The order in which events were accepted.
//!
//! Webhooks can arrive in another order than their events happened in: a retry comes later than what was sent after it.
//! [`EventOrder`] compares two events by `posthaste-event-time`, and by their ids if the times are equal. An application that
//! keeps the newest state of an object stores the order of the event it applied last, and skips older ones.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Shape of `posthaste-event-time`: RFC 3339 in UTC with milliseconds. `0` stands for a digit.
const TIME_SHAPE: &[u8; 24] = b"0000-00-00T00:00:00.000Z";
/// Maximum length of an event id, in bytes.
const MAX_EVENT_ID_BYTES: usize = 255;

/// The place of an event among the others of its sender: a later event is greater.
///
/// Its text is the time, a space and the id of the event. Texts of the same sender sort like the orders themselves, so a
/// database can compare them (in PostgreSQL with `COLLATE "C"`).
///
/// ```
/// use posthaste_receiver::EventOrder;
///
/// let created: EventOrder = "2026-03-01T09:00:00.000Z evt_01kjm1".parse()?;
/// let cancelled: EventOrder = "2026-03-01T09:00:02.500Z evt_01kjm7".parse()?;
/// // The cancellation was applied already: the late creation must not undo it.
/// assert!(!created.is_after(Some(&cancelled)));
/// assert!(cancelled.is_after(Some(&created)));
/// assert!(created.is_after(None));
/// # Ok::<(), posthaste_receiver::OrderError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventOrder(String);

/// A text is no event order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("an event order is a time like 2026-03-01T09:00:00.000Z, a space, and the id of an event")]
pub struct OrderError;

impl EventOrder {
    /// Creates the order from `posthaste-event-time` and `posthaste-event-id`. Returns `None` if one of them is malformed.
    pub fn new(event_time: &str, event_id: &str) -> Option<EventOrder> {
        let matches_shape = |(byte, shape): (u8, &u8)| match shape {
            b'0' => byte.is_ascii_digit(),
            _ => byte == *shape,
        };
        let is_time = event_time.len() == TIME_SHAPE.len()
            && event_time.bytes().zip(TIME_SHAPE).all(matches_shape);
        let is_id = (1..=MAX_EVENT_ID_BYTES).contains(&event_id.len())
            && event_id.bytes().all(|byte| byte.is_ascii_graphic());
        (is_time && is_id).then(|| EventOrder(format!("{event_time} {event_id}")))
    }

    /// Returns whether the event comes after the one that was applied last, if there is one. It does not come after itself.
    pub fn is_after(&self, last_applied: Option<&EventOrder>) -> bool {
        last_applied.is_none_or(|last| self > last)
    }

    /// Returns the text, to be stored.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EventOrder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl FromStr for EventOrder {
    type Err = OrderError;

    fn from_str(text: &str) -> Result<EventOrder, OrderError> {
        let (time, id) = text.split_once(' ').ok_or(OrderError)?;
        EventOrder::new(time, id).ok_or(OrderError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(time: &str, id: &str) -> EventOrder {
        EventOrder::new(time, id).expect("an order")
    }

    #[test]
    fn the_time_decides_then_the_id() {
        let first = order("2026-03-01T09:00:00.000Z", "evt_z");
        let second = order("2026-03-01T09:00:00.001Z", "evt_a");
        let third = order("2026-03-01T09:00:00.001Z", "evt_b");
        assert!(first < second && second < third);
        assert!(third.is_after(Some(&second)));
        assert!(!second.is_after(Some(&second)));
        assert!(!first.is_after(Some(&third)));
        assert!(first.is_after(None));
    }

    #[test]
    fn a_text_round_trips() {
        let stored = order("2026-03-01T09:00:00.000Z", "evt_1").to_string();
        assert_eq!(stored, "2026-03-01T09:00:00.000Z evt_1");
        assert_eq!(
            stored.parse(),
            Ok(order("2026-03-01T09:00:00.000Z", "evt_1"))
        );
    }

    #[test]
    fn other_spellings_of_a_time_are_refused() {
        for time in [
            "",
            "2026-03-01T09:00:00Z",
            "2026-03-01T09:00:00.000+00:00",
            "2026-03-01 09:00:00.000Z",
            "2026-03-01T09:00:00.0000Z",
            "２026-03-01T09:00:00.00Z",
        ] {
            assert_eq!(EventOrder::new(time, "evt_1"), None, "{time}");
        }
        for id in ["", "evt 1", "evt_\n"] {
            assert_eq!(EventOrder::new("2026-03-01T09:00:00.000Z", id), None);
        }
        assert_eq!(
            "2026-03-01T09:00:00.000Z".parse::<EventOrder>(),
            Err(OrderError)
        );
    }
}
