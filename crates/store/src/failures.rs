//! Counts of failed deliveries that no notification has reported yet.
//!
//! [`Failures`] sums the deliveries that fail in one transaction, in memory, and the transaction writes the sums: one
//! row per endpoint and [`FailureCause`]. The number of rows is bounded, so a thousand dead letters cost as little as
//! one. Deliveries swept because their endpoint was deleted are not counted: the caller who deletes an endpoint
//! accepts that its waiting deliveries are lost.

use std::collections::BTreeMap;

use posthaste_core::classify::FailureKind;
use posthaste_core::delivery::{DeadReason, Delivery};
use posthaste_core::id::DeliveryId;
use posthaste_core::time::Timestamp;
use serde_json::{Map, Value, json};

use crate::codes::Coded;

/// The name of the notification that reports the counts.
pub const DELIVERY_FAILED: &str = "delivery.failed";

/// The code for a cause without a failure kind.
const NO_KIND: i64 = -1;

/// The cause of a failure, as two codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FailureCause {
    /// The code of the reason.
    pub reason: i64,
    /// The code of the failure kind, or −1.
    pub kind: i64,
}

impl FailureCause {
    fn words(self) -> (Option<&'static str>, Option<&'static str>) {
        (
            DeadReason::decode(self.reason).map(DeadReason::name),
            FailureKind::decode(self.kind).map(FailureKind::name),
        )
    }
}

/// Number of failed deliveries, with times and an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureCount {
    /// Number of failed deliveries.
    pub count: u64,
    /// The time of the first failure.
    pub first_at: Timestamp,
    /// The time of the last failure.
    pub last_at: Timestamp,
    /// The delivery with the smallest id.
    pub example: DeliveryId,
}

impl FailureCount {
    fn join(&mut self, other: FailureCount) {
        self.count += other.count;
        self.first_at = self.first_at.min(other.first_at);
        self.last_at = self.last_at.max(other.last_at);
        self.example = self.example.min(other.example);
    }
}

/// Counts of failed deliveries, sorted by endpoint and cause.
#[derive(Debug)]
pub struct Failures<E> {
    sums: BTreeMap<(E, FailureCause), FailureCount>,
}

impl<E> Default for Failures<E> {
    fn default() -> Failures<E> {
        Failures {
            sums: BTreeMap::new(),
        }
    }
}

impl<E: Ord + Copy> Failures<E> {
    /// Counts a delivery if it has failed for a reason that is reported.
    pub fn note(&mut self, endpoint: E, delivery: &Delivery, kind: Option<FailureKind>) {
        let state = delivery.state();
        let (Some(reason), Some(at)) = (state.dead_reason(), state.ended_at()) else {
            return;
        };
        match reason {
            DeadReason::EndpointDeleted => return,
            DeadReason::Permanent
            | DeadReason::Exhausted
            | DeadReason::Expired
            | DeadReason::EndpointDisabled
            | DeadReason::UnsafeDestination => {}
        }
        let cause = FailureCause {
            reason: reason.code(),
            kind: kind.map_or(NO_KIND, FailureKind::code),
        };
        let sum = FailureCount {
            count: 1,
            first_at: at,
            last_at: at,
            example: delivery.id(),
        };
        self.add(endpoint, cause, sum);
    }

    /// Adds a count from another source.
    pub fn add(&mut self, endpoint: E, cause: FailureCause, sum: FailureCount) {
        self.sums
            .entry((endpoint, cause))
            .and_modify(|known| known.join(sum))
            .or_insert(sum);
    }

    /// Returns whether nothing has failed.
    pub fn is_empty(&self) -> bool {
        self.sums.is_empty()
    }

    /// Iterates over each endpoint and cause with its count.
    pub fn iter(&self) -> impl Iterator<Item = (E, FailureCause, FailureCount)> {
        self.sums
            .iter()
            .map(|((endpoint, cause), sum)| (*endpoint, *cause, *sum))
    }

    /// Returns one notification for each endpoint: its time and detail. Sorted by the time of the first failure.
    pub fn notifications(&self) -> Vec<(E, Timestamp, Value)> {
        let mut endpoints: BTreeMap<E, Vec<(FailureCause, FailureCount)>> = BTreeMap::new();
        for (endpoint, cause, sum) in self.iter() {
            endpoints.entry(endpoint).or_default().push((cause, sum));
        }
        let mut notifications: Vec<(Timestamp, E, Timestamp, Value)> = endpoints
            .into_iter()
            .map(|(endpoint, causes)| {
                let (all, detail) = summary(&causes);
                (all.first_at, endpoint, all.last_at, detail)
            })
            .collect();
        notifications.sort_by_key(|(first_at, endpoint, ..)| (*first_at, *endpoint));
        notifications
            .into_iter()
            .map(|(_, endpoint, at, detail)| (endpoint, at, detail))
            .collect()
    }
}

impl<E: Ord + Copy> Failures<E> {
    /// Removes and returns the endpoints whose first failure is before `before` or after `after`, up to `limit` of
    /// them, those with the oldest first failure first.
    pub fn take_outside(
        &mut self,
        before: Timestamp,
        after: Timestamp,
        limit: usize,
    ) -> Failures<E> {
        let mut first: BTreeMap<E, Timestamp> = BTreeMap::new();
        for (endpoint, _, sum) in self.iter() {
            let known = first.entry(endpoint).or_insert(sum.first_at);
            *known = sum.first_at.min(*known);
        }
        let mut old: Vec<(Timestamp, E)> = first
            .into_iter()
            .filter(|(_, first_at)| *first_at < before || *first_at > after)
            .map(|(endpoint, first_at)| (first_at, endpoint))
            .collect();
        old.sort();
        old.truncate(limit);
        let mut taken = Failures::default();
        let sums = std::mem::take(&mut self.sums);
        for ((endpoint, cause), sum) in sums {
            let of = match old.iter().any(|(_, it)| *it == endpoint) {
                true => &mut taken,
                false => &mut *self,
            };
            of.add(endpoint, cause, sum);
        }
        taken
    }
}

/// Combines all causes of an endpoint into one count and the notification's detail.
fn summary(causes: &[(FailureCause, FailureCount)]) -> (FailureCount, Value) {
    let mut all = causes[0].1;
    for (_, sum) in &causes[1..] {
        all.join(*sum);
    }
    let (mut reasons, mut kinds) = (Map::new(), Map::new());
    for (cause, sum) in causes {
        let (reason, kind) = cause.words();
        for (words, word) in [(&mut reasons, reason), (&mut kinds, kind)] {
            if let Some(word) = word {
                let known = words.get(word).and_then(Value::as_u64).unwrap_or(0);
                words.insert(word.to_owned(), json!(known + sum.count));
            }
        }
    }
    let detail = json!({
        "count": all.count,
        "first_at": all.first_at.to_string(),
        "last_at": all.last_at.to_string(),
        "reasons": reasons,
        "error_kinds": kinds,
        "delivery_id": all.example.to_string(),
    });
    (all, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(count: u64, first: u64, last: u64, example: u128) -> FailureCount {
        FailureCount {
            count,
            first_at: Timestamp(first),
            last_at: Timestamp(last),
            example: DeliveryId(example),
        }
    }

    #[test]
    fn an_endpoint_makes_one_notification_with_all_causes() {
        let mut failures = Failures::default();
        let permanent = |kind: FailureKind| FailureCause {
            reason: DeadReason::Permanent.code(),
            kind: kind.code(),
        };
        failures.add(7, permanent(FailureKind::Http), sum(2, 10, 20, 5));
        failures.add(7, permanent(FailureKind::Http), sum(1, 8, 9, 6));
        failures.add(7, permanent(FailureKind::Tls), sum(4, 15, 30, 3));
        failures.add(3, permanent(FailureKind::Dns), sum(1, 9, 9, 9));
        let notifications = failures.notifications();
        assert_eq!(notifications.len(), 2);
        let (endpoint, at, detail) = &notifications[0];
        assert_eq!((*endpoint, *at), (7, Timestamp(30)));
        assert_eq!(detail["count"], 7);
        assert_eq!(detail["reasons"], json!({"permanent": 7}));
        assert_eq!(detail["error_kinds"], json!({"http": 3, "tls": 4}));
        assert_eq!(detail["delivery_id"], DeliveryId(3).to_string());
        assert_eq!(detail["first_at"], Timestamp(8).to_string());
        assert_eq!(notifications[1].0, 3);
    }

    #[test]
    fn endpoints_with_the_oldest_failures_are_taken_first() {
        let mut failures = Failures::default();
        let causes = [0, 1].map(|reason| FailureCause { reason, kind: 0 });
        failures.add(1, causes[0], sum(1, 50, 50, 1));
        failures.add(2, causes[0], sum(1, 60, 60, 1));
        failures.add(2, causes[1], sum(1, 40, 40, 1));
        failures.add(3, causes[0], sum(1, 45, 45, 1));
        const LATER: Timestamp = Timestamp(1_000);
        let taken = failures.take_outside(Timestamp(50), LATER, 1);
        assert_eq!(taken.iter().map(|it| it.0).collect::<Vec<_>>(), [2, 2]);
        assert_eq!(
            failures
                .take_outside(Timestamp(50), LATER, 9)
                .notifications()[0]
                .0,
            3
        );
        assert!(failures.take_outside(Timestamp(50), LATER, 9).is_empty());
        assert!(!failures.is_empty());
    }
}
