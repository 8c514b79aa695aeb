//! Finds the endpoints of a tenant that get an event type.
//!
//! [`SubscriberIndex`] is part of a tenant's routes in both stores. It makes a [`SubscriptionIndex`] of the core when it
//! is first needed, and only for tenants with many endpoints. Without it, a batch of events of many types to a
//! tenant with many endpoints would make the writer compare every type with every pattern of every endpoint.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use posthaste_core::subscription::{EventType, Pattern, SubscriptionIndex, wants};

/// Number of endpoints from which an index is faster than comparing all patterns.
const MIN_INDEXED_ENDPOINTS: usize = 16;

/// Number of patterns that are indexed in the time in which one row is written.
const PATTERNS_PER_ROW: u64 = 64;

/// An endpoint that may get events.
pub(crate) trait Subscriber {
    /// Returns its patterns, or `None` if it gets no events at all.
    fn patterns(&self) -> Option<&[Pattern]>;
}

/// An index of the subscriptions of a list of endpoints, made when it is first needed. It belongs to one state of the
/// list: a change of the list needs a new index, and a clone of the index is empty.
#[derive(Debug, Default)]
pub(crate) struct SubscriberIndex {
    index: OnceLock<SubscriptionIndex>,
    /// Number of indexed patterns, until [`take_cost`](SubscriberIndex::take_cost).
    unpaid_patterns: AtomicU64,
}

impl Clone for SubscriberIndex {
    fn clone(&self) -> SubscriberIndex {
        SubscriberIndex::default()
    }
}

impl SubscriberIndex {
    /// Returns the cost of the index if it was made since the last call, as the number of rows that take as long.
    pub(crate) fn take_cost(&self) -> u64 {
        self.unpaid_patterns.swap(0, Relaxed) / PATTERNS_PER_ROW
    }

    /// Returns the endpoints that get events of this type, in the order of the list.
    pub(crate) fn find<'s, S: Subscriber>(
        &self,
        endpoints: &'s [S],
        event_type: &EventType,
    ) -> Vec<&'s S> {
        if endpoints.len() < MIN_INDEXED_ENDPOINTS {
            return endpoints
                .iter()
                .filter(|it| gets(*it, event_type))
                .collect();
        }
        let indexes = self.of(endpoints).subscribers(event_type).into_iter();
        indexes.map(|index| &endpoints[index as usize]).collect()
    }

    /// Returns the number of endpoints that get events of this type.
    pub(crate) fn count<S: Subscriber>(&self, endpoints: &[S], event_type: &EventType) -> u64 {
        if endpoints.len() < MIN_INDEXED_ENDPOINTS {
            return endpoints.iter().filter(|it| gets(*it, event_type)).count() as u64;
        }
        self.of(endpoints).count(event_type) as u64
    }

    fn of<S: Subscriber>(&self, endpoints: &[S]) -> &SubscriptionIndex {
        self.index.get_or_init(|| {
            let mut index = SubscriptionIndex::default();
            let mut indexed = 0;
            for (number, endpoint) in (0..).zip(endpoints) {
                if let Some(patterns) = endpoint.patterns() {
                    index.insert(number, patterns);
                    indexed += patterns.len() as u64;
                }
            }
            self.unpaid_patterns.store(indexed, Relaxed);
            index
        })
    }
}

fn gets(endpoint: &impl Subscriber, event_type: &EventType) -> bool {
    endpoint
        .patterns()
        .is_some_and(|patterns| wants(patterns, event_type))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Sample(Option<Vec<Pattern>>);

    impl Subscriber for Sample {
        fn patterns(&self) -> Option<&[Pattern]> {
            self.0.as_deref()
        }
    }

    #[test]
    fn few_and_many_endpoints_give_the_same_result() {
        let paid: EventType = "invoice.paid".parse().expect("a type");
        let patterns = |texts: &[&str]| {
            let parsed = texts.iter().map(|text| text.parse().expect("a pattern"));
            Some(parsed.collect::<Vec<Pattern>>())
        };
        for count in [MIN_INDEXED_ENDPOINTS - 1, MIN_INDEXED_ENDPOINTS, 100] {
            let endpoints: Vec<Sample> = (0..count)
                .map(|number| match number % 4 {
                    0 => Sample(patterns(&["invoice.*", "invoice.paid"])),
                    1 => Sample(patterns(&["order.*"])),
                    2 => Sample(None),
                    _ => Sample(patterns(&[])),
                })
                .collect();
            let index = SubscriberIndex::default();
            let found = index.find(&endpoints, &paid);
            let expected: Vec<&Sample> = endpoints.iter().filter(|it| gets(*it, &paid)).collect();
            assert_eq!(found.len(), expected.len(), "{count}");
            assert!(
                found
                    .iter()
                    .zip(&expected)
                    .all(|(one, other)| std::ptr::eq(*one, *other))
            );
            assert_eq!(index.count(&endpoints, &paid), expected.len() as u64);
        }
    }

    #[test]
    fn the_cost_of_an_index_is_returned_once() {
        let patterns = || Some(vec!["a.b".parse().expect("a pattern"); 64]);
        let endpoints: Vec<Sample> = (0..20).map(|_| Sample(patterns())).collect();
        let index = SubscriberIndex::default();
        assert_eq!(index.take_cost(), 0);
        let paid = "a.b".parse().expect("a type");
        assert_eq!(index.count(&endpoints, &paid), 20);
        assert_eq!((index.take_cost(), index.take_cost()), (20, 0));
        assert_eq!(index.count(&endpoints, &paid), 20);
        assert_eq!(index.take_cost(), 0);
        assert_eq!(index.clone().count(&endpoints[1..], &paid), 19);
        assert_eq!(index.count(&endpoints[..15], &paid), 15);
        assert_eq!(index.take_cost(), 0, "few endpoints need no index");
    }
}
