//! Remembers that the store refused events of a tenant.
//!
//! While a [`Refusal`] holds, further events are refused without a store operation.

use std::sync::{Mutex, PoisonError};

use posthaste_core::time::{Span, Timestamp};
use posthaste_store::LimitName;

/// The last refusal of a tenant's events by the store. Dropped with every change of the tenant.
#[derive(Debug, Default)]
pub(super) struct Refusal {
    last: Mutex<Option<Refused>>,
}

/// A refusal of events by the store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused {
    pub(super) limit: LimitName,
    /// At least this many new events are refused,
    pub(super) events: u64,
    /// from this time
    pub(super) since: Timestamp,
    /// until this time.
    pub(super) until: Timestamp,
}

impl Refusal {
    /// Remembers a refusal, in place of an earlier one.
    pub(super) fn remember(&self, refused: Refused) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(refused);
    }

    /// Returns the limit that this many new events certainly exceed now, and the remaining wait.
    pub(super) fn of(&self, now: Timestamp, events: u64) -> Option<(LimitName, Span)> {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        // If the clock was set back, a refusal from the future does not apply.
        let holds = |last: &Refused| events >= last.events && last.since <= now && now < last.until;
        last.filter(holds)
            .map(|last| (last.limit, last.until.since(now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembered_refusal_applies_only_to_as_many_events() {
        let refusal = Refusal::default();
        assert_eq!(refusal.of(Timestamp(1_000), 5), None);
        refusal.remember(Refused {
            limit: LimitName::EventsPerSecond,
            events: 3,
            since: Timestamp(1_000),
            until: Timestamp(1_500),
        });
        let again = Some((LimitName::EventsPerSecond, Span::from_millis(100)));
        assert_eq!(refusal.of(Timestamp(1_400), 3), again);
        assert_eq!(refusal.of(Timestamp(1_400), 9), again);
        assert_eq!(refusal.of(Timestamp(1_400), 2), None, "fewer may fit");
        assert_eq!(refusal.of(Timestamp(1_500), 3), None, "the wait is over");
        assert_eq!(
            refusal.of(Timestamp(999), 3),
            None,
            "the clock was set back"
        );
    }
}
