//! The schedules that are being decided about, and their limits.

use std::collections::HashMap;
use std::sync::Arc;

use posthaste_core::id::{ScheduleId, TenantId};

/// Maximum number of schedules that are read at once.
pub(crate) const BATCH: usize = 256;
/// Maximum number of schedules that are being decided about.
const MAX_IN_FLIGHT: usize = 2 * BATCH;
/// Number of schedules of one tenant that are being decided about, from which no more of them are read. Others run beside
/// them.
const MAX_IN_FLIGHT_OF_TENANT: usize = BATCH;
/// Maximum size of the definitions that are read at once, unless a single one is larger.
pub(crate) const MAX_BATCH_BYTES: usize = 4 << 20;
/// Maximum size of the definitions that are being decided about, unless a single one is larger. A decision also holds its
/// definition in parsed form, and its payload.
const MAX_IN_FLIGHT_BYTES: usize = 4 * MAX_BATCH_BYTES;

/// Identifies a schedule.
pub(crate) type ScheduleKey = (TenantId, ScheduleId);

struct Entry {
    /// The number of notifications of changed schedules when the decision began.
    changes: u64,
    /// Size of the definition.
    bytes: usize,
}

/// The schedules that are being decided about.
#[derive(Default)]
pub(crate) struct InFlight {
    entries: HashMap<ScheduleKey, Entry>,
    bytes: usize,
}

impl InFlight {
    /// Returns whether another batch may be decided about.
    pub(crate) fn has_room(&self) -> bool {
        self.entries.len() + BATCH <= MAX_IN_FLIGHT
            && self.bytes + MAX_BATCH_BYTES <= MAX_IN_FLIGHT_BYTES
    }

    /// Adds a schedule whose definition has this size.
    pub(crate) fn insert(&mut self, key: ScheduleKey, changes: u64, bytes: usize) {
        self.bytes += bytes;
        let before = self.entries.insert(key, Entry { changes, bytes });
        self.bytes -= before.map_or(0, |before| before.bytes);
    }

    /// Removes a schedule. Returns the number of changes when its decision began.
    pub(crate) fn remove(&mut self, key: &ScheduleKey) -> Option<u64> {
        let entry = self.entries.remove(key)?;
        self.bytes -= entry.bytes;
        Some(entry.changes)
    }

    /// Removes all schedules.
    pub(crate) fn clear(&mut self) {
        *self = InFlight::default();
    }

    /// Returns the schedules.
    pub(crate) fn keys(&self) -> Arc<[ScheduleKey]> {
        self.entries.keys().cloned().collect()
    }

    /// Returns the tenants of which many schedules are in flight.
    pub(crate) fn busy_tenants(&self) -> Arc<[TenantId]> {
        let mut counts: HashMap<&TenantId, usize> = HashMap::new();
        for (tenant, _) in self.entries.keys() {
            *counts.entry(tenant).or_default() += 1;
        }
        let busy = counts
            .into_iter()
            .filter(|(_, count)| *count >= MAX_IN_FLIGHT_OF_TENANT);
        busy.map(|(tenant, _)| tenant.clone()).collect()
    }

    /// Returns whether few schedules of a tenant that was busy are in flight, so that more of them may be read.
    pub(crate) fn has_caught_up(&self, tenant: &TenantId) -> bool {
        let of_tenant = self.entries.keys().filter(|(other, _)| other == tenant);
        of_tenant.count() <= MAX_IN_FLIGHT_OF_TENANT / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> ScheduleKey {
        let id = format!("s{number}");
        ("acme".parse().expect("an id"), id.parse().expect("an id"))
    }

    #[test]
    fn large_definitions_are_bounded_in_bytes() {
        let mut in_flight = InFlight::default();
        let mut count = 0;
        while in_flight.has_room() {
            in_flight.insert(key(count), 0, 1 << 20);
            count += 1;
        }
        assert_eq!(count, 13, "three batches, and the first one too many");
        assert_eq!(in_flight.remove(&key(3)), Some(0));
        assert!(in_flight.has_room());
        // A panic may lead to a second decision about the same schedule.
        in_flight.insert(key(0), 1, 1 << 20);
        assert!(in_flight.has_room());
        in_flight.clear();
        assert_eq!((in_flight.bytes, in_flight.keys().len()), (0, 0));
    }

    #[test]
    fn small_definitions_are_bounded_in_number() {
        let mut in_flight = InFlight::default();
        for number in 0..=BATCH {
            assert!(in_flight.has_room(), "{number}");
            in_flight.insert(key(number), 0, 100);
        }
        assert!(!in_flight.has_room());
        let acme = key(0).0;
        assert_eq!(&*in_flight.busy_tenants(), std::slice::from_ref(&acme));
        assert!(!in_flight.has_caught_up(&acme));
        for number in 0..=BATCH / 2 {
            in_flight.remove(&key(number));
        }
        assert!(in_flight.has_caught_up(&acme));
    }
}
