//! Attempts counted for single endpoints, where the operator wants to see them one by one.
//!
//! A series in Prometheus costs memory there for as long as it is kept, so there are only so many: the endpoints that
//! have something to do. Whoever is quiet for long makes room for others. What happens to those without a place is
//! counted together. No count ever falls, so that rates can be believed: an endpoint that gets a place begins at zero.

use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::time::{Span, Timestamp};
use rustc_hash::FxHashMap;

/// Whoever was quiet for so long makes room.
const QUIET: Span = Span::from_hours(1);
/// How often somebody who is quiet is looked for.
const LOOK_EVERY: Span = Span::from_mins(1);

/// How many attempts succeeded, and how many did not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// Those that did.
    pub successes: u64,
    /// Those that did not.
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

/// The attempts of an endpoint that has a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Whose it is.
    pub tenant: TenantId,
    /// Its attempts.
    pub outcomes: Outcomes,
    last_at: Timestamp,
}

/// Counts attempts by endpoint.
#[derive(Debug, Default)]
pub struct Busy {
    most: usize,
    places: FxHashMap<EndpointId, Counted>,
    others: Outcomes,
    looked_at: Timestamp,
}

impl Busy {
    /// One with so many places. Without any it counts nothing.
    pub fn new(most: usize) -> Busy {
        Busy {
            most,
            ..Busy::default()
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

    /// Those that have a place, and all others together; nothing if nobody wants to see them.
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

    fn told(busy: &Busy) -> (Vec<(u128, u64, u64)>, u64) {
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
        let mut busy = Busy::new(2);
        let count = |busy: &mut Busy, minute: u64, endpoint: u128, ok: bool| {
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
        // What others had stays theirs: a count that falls looks like a restart.
        assert_eq!(told(&busy), (vec![(1, 1, 2), (3, 1, 0)], 3));
        let mut nobody = Busy::new(0);
        count(&mut nobody, 0, 1, true);
        assert!(nobody.told().is_none());
    }
}
