//! The last rejection of a tenant's events because of a quota.
//!
//! The store decides if events fit into a quota. While its last rejection ([`LastRejection`]) still holds, the API rejects
//! further events itself, without a store operation. A change of the tenant drops it.

use std::sync::{Mutex, PoisonError};

use posthaste_core::time::{Span, Timestamp};
use posthaste_store::LimitName;

/// The last rejection of a tenant's events by the store. Dropped with every change of the tenant.
#[derive(Debug, Default)]
pub(super) struct LastRejection {
    last: Mutex<Option<QuotaRejection>>,
}

/// A rejection of events by the store.
#[derive(Clone, Copy, Debug)]
pub(super) struct QuotaRejection {
    pub(super) limit: LimitName,
    /// At least this many new events are rejected,
    pub(super) events: u64,
    /// from this time
    pub(super) since: Timestamp,
    /// until this time.
    pub(super) until: Timestamp,
}

impl LastRejection {
    /// Remembers a rejection, in place of an earlier one.
    pub(super) fn remember(&self, rejection: QuotaRejection) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(rejection);
    }

    /// Returns the limit that this many new events certainly exceed now, and the remaining wait.
    pub(super) fn of(&self, now: Timestamp, events: u64) -> Option<(LimitName, Span)> {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        // If the clock was set back, a rejection from the future does not apply.
        let holds =
            |last: &QuotaRejection| events >= last.events && last.since <= now && now < last.until;
        last.filter(holds)
            .map(|last| (last.limit, last.until.since(now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejection_applies_only_to_as_many_events() {
        let last_rejection = LastRejection::default();
        assert_eq!(last_rejection.of(Timestamp(1_000), 5), None);
        last_rejection.remember(QuotaRejection {
            limit: LimitName::EventsPerSecond,
            events: 3,
            since: Timestamp(1_000),
            until: Timestamp(1_500),
        });
        let again = Some((LimitName::EventsPerSecond, Span::from_millis(100)));
        assert_eq!(last_rejection.of(Timestamp(1_400), 3), again);
        assert_eq!(last_rejection.of(Timestamp(1_400), 9), again);
        assert_eq!(
            last_rejection.of(Timestamp(1_400), 2),
            None,
            "fewer may fit"
        );
        assert_eq!(
            last_rejection.of(Timestamp(1_500), 3),
            None,
            "the wait is over"
        );
        assert_eq!(
            last_rejection.of(Timestamp(999), 3),
            None,
            "the clock was set back"
        );
    }
}
