//! Attempt counters of single endpoints, for operators that enable them.
//!
//! A series costs memory in Prometheus for as long as it is kept, so [`EndpointCounters`] has a fixed number of slots,
//! used by active endpoints. An endpoint without attempts for an hour can lose its slot to another. Attempts of
//! endpoints without a slot are counted together. Counters never decrease, so that rates stay correct: an endpoint that
//! gets a slot starts at zero.

use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::time::{Span, Timestamp};
use rustc_hash::FxHashMap;

/// Time without attempts after which an endpoint may lose its slot.
const INACTIVE_AFTER: Span = Span::from_hours(1);
/// Minimum interval between two searches for inactive endpoints.
const MIN_SEARCH_INTERVAL: Span = Span::from_mins(1);

/// Number of attempts that succeeded and failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// Successful attempts.
    pub successes: u64,
    /// Failed attempts.
    pub failures: u64,
}

impl Outcomes {
    fn count(&mut self, succeeded: bool) {
        match succeeded {
            true => self.successes += 1,
            false => self.failures += 1,
        }
    }
}

/// Counters of an endpoint that has a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointCount {
    /// The endpoint's tenant.
    pub tenant: TenantId,
    /// Its attempts.
    pub outcomes: Outcomes,
    last_at: Timestamp,
}

/// Counts attempts by endpoint.
#[derive(Debug, Default)]
pub(super) struct EndpointCounters {
    capacity: usize,
    slots: FxHashMap<EndpointId, EndpointCount>,
    without_slot: Outcomes,
    searched_at: Timestamp,
}

impl EndpointCounters {
    /// Creates counters with `capacity` slots. With zero slots nothing is counted.
    pub(super) fn new(capacity: usize) -> EndpointCounters {
        EndpointCounters {
            capacity,
            ..EndpointCounters::default()
        }
    }

    /// Counts an attempt.
    pub(super) fn count(
        &mut self,
        now: Timestamp,
        tenant: &TenantId,
        endpoint: EndpointId,
        ok: bool,
    ) {
        if self.capacity == 0 {
            return;
        }
        if let Some(counted) = self.slots.get_mut(&endpoint) {
            counted.last_at = now;
            counted.outcomes.count(ok);
            return;
        }
        self.free_inactive_slots(now);
        if self.slots.len() >= self.capacity {
            self.without_slot.count(ok);
            return;
        }
        let mut counted = EndpointCount {
            tenant: tenant.clone(),
            outcomes: Outcomes::default(),
            last_at: now,
        };
        counted.outcomes.count(ok);
        self.slots.insert(endpoint, counted);
    }

    /// Returns the endpoints that have a slot, and the sum of all others. `None` if the operator has not enabled these
    /// counters.
    pub(super) fn snapshot(&self) -> Option<(Vec<(EndpointId, EndpointCount)>, Outcomes)> {
        if self.capacity == 0 {
            return None;
        }
        let mut counted: Vec<(EndpointId, EndpointCount)> = self
            .slots
            .iter()
            .map(|(endpoint, counted)| (*endpoint, counted.clone()))
            .collect();
        counted.sort_unstable_by_key(|(endpoint, _)| *endpoint);
        Some((counted, self.without_slot))
    }

    fn free_inactive_slots(&mut self, now: Timestamp) {
        let full = self.slots.len() >= self.capacity;
        if full && now.since(self.searched_at) >= MIN_SEARCH_INTERVAL {
            self.searched_at = now;
            self.slots
                .retain(|_, counted| now.since(counted.last_at) < INACTIVE_AFTER);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(counters: &EndpointCounters) -> (Vec<(u128, u64, u64)>, u64) {
        let (counted, others) = counters.snapshot().expect("counting is enabled");
        let counted = counted.into_iter().map(|(endpoint, counted)| {
            let Outcomes {
                successes,
                failures,
            } = counted.outcomes;
            (endpoint.0, successes, failures)
        });
        (counted.collect(), others.successes + others.failures)
    }

    #[test]
    fn an_endpoint_that_was_inactive_for_an_hour_loses_its_slot() {
        let acme: TenantId = "acme".parse().expect("a name");
        let mut counters = EndpointCounters::new(2);
        let count = |counters: &mut EndpointCounters, minute: u64, endpoint: u128, ok: bool| {
            let now = Timestamp(1_794_744_000_000 + minute * 60_000);
            counters.count(now, &acme, EndpointId(endpoint), ok);
        };
        for endpoint in [1, 2, 3, 1, 3] {
            count(&mut counters, 0, endpoint, endpoint != 1);
        }
        assert_eq!(snapshot(&counters), (vec![(1, 0, 2), (2, 1, 0)], 2));
        count(&mut counters, 59, 1, true);
        count(&mut counters, 59, 3, true);
        assert_eq!(
            snapshot(&counters).1,
            3,
            "every endpoint was active within the hour"
        );
        count(&mut counters, 60, 3, true);
        // The count of the others stays: a counter that decreases looks like a restart.
        assert_eq!(snapshot(&counters), (vec![(1, 1, 2), (3, 1, 0)], 3));
        let mut disabled = EndpointCounters::new(0);
        count(&mut disabled, 0, 1, true);
        assert!(disabled.snapshot().is_none());
    }
}
