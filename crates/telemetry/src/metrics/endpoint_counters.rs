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
const QUIET: Span = Span::from_hours(1);
/// Minimum interval between two searches for inactive endpoints.
const LOOK_EVERY: Span = Span::from_mins(1);

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
pub struct Counted {
    /// The endpoint's tenant.
    pub tenant: TenantId,
    /// Its attempts.
    pub outcomes: Outcomes,
    last_at: Timestamp,
}

/// Counts attempts by endpoint.
#[derive(Debug, Default)]
pub struct EndpointCounters {
    most: usize,
    places: FxHashMap<EndpointId, Counted>,
    others: Outcomes,
    looked_at: Timestamp,
}

impl EndpointCounters {
    /// Creates counters with `most` slots. With zero slots nothing is counted.
    pub fn new(most: usize) -> EndpointCounters {
        EndpointCounters {
            most,
            ..EndpointCounters::default()
        }
    }

    /// Counts an attempt.
    pub fn count(&mut self, now: Timestamp, tenant: &TenantId, endpoint: EndpointId, ok: bool) {
        if self.most == 0 {
            return;
        }
        if let Some(counted) = self.places.get_mut(&endpoint) {
            counted.last_at = now;
            counted.outcomes.count(ok);
            return;
        }
        self.make_room(now);
        if self.places.len() >= self.most {
            self.others.count(ok);
            return;
        }
        let mut counted = Counted {
            tenant: tenant.clone(),
            outcomes: Outcomes::default(),
            last_at: now,
        };
        counted.outcomes.count(ok);
        self.places.insert(endpoint, counted);
    }

    /// Returns the endpoints that have a slot, and the sum of all others. `None` if the operator has not enabled these
    /// counters.
    pub fn told(&self) -> Option<(Vec<(EndpointId, Counted)>, Outcomes)> {
        if self.most == 0 {
            return None;
        }
        let mut told: Vec<(EndpointId, Counted)> = self
            .places
            .iter()
            .map(|(endpoint, counted)| (*endpoint, counted.clone()))
            .collect();
        told.sort_unstable_by_key(|(endpoint, _)| *endpoint);
        Some((told, self.others))
    }

    fn make_room(&mut self, now: Timestamp) {
        let full = self.places.len() >= self.most;
        if full && now.since(self.looked_at) >= LOOK_EVERY {
            self.looked_at = now;
            self.places
                .retain(|_, counted| now.since(counted.last_at) < QUIET);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(busy: &EndpointCounters) -> (Vec<(u128, u64, u64)>, u64) {
        let (told, others) = busy.told().expect("it counts");
        let told = told.into_iter().map(|(endpoint, counted)| {
            let Outcomes {
                successes,
                failures,
            } = counted.outcomes;
            (endpoint.0, successes, failures)
        });
        (told.collect(), others.successes + others.failures)
    }

    #[test]
    fn places_are_few_and_whoever_is_quiet_makes_room() {
        let acme: TenantId = "acme".parse().expect("a name");
        let mut busy = EndpointCounters::new(2);
        let count = |busy: &mut EndpointCounters, minute: u64, endpoint: u128, ok: bool| {
            let now = Timestamp(1_794_744_000_000 + minute * 60_000);
            busy.count(now, &acme, EndpointId(endpoint), ok);
        };
        for endpoint in [1, 2, 3, 1, 3] {
            count(&mut busy, 0, endpoint, endpoint != 1);
        }
        assert_eq!(told(&busy), (vec![(1, 0, 2), (2, 1, 0)], 2));
        count(&mut busy, 59, 1, true);
        count(&mut busy, 59, 3, true);
        assert_eq!(told(&busy).1, 3, "nobody was quiet for an hour");
        count(&mut busy, 60, 3, true);
        // The count of the others stays: a counter that decreases looks like a restart.
        assert_eq!(told(&busy), (vec![(1, 1, 2), (3, 1, 0)], 3));
        let mut nobody = EndpointCounters::new(0);
        count(&mut nobody, 0, 1, true);
        assert!(nobody.told().is_none());
    }
}
