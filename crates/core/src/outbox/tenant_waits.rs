//! Tenants of an outbox that are over a rate: their rows stay in the table until the wait is over.
//!
//! [`TenantWaits`] is bounded, and no wait is longer than [`MAX_WAIT`]: a quota may be exhausted for weeks, but the
//! operator can raise it at any time.

use std::collections::BTreeMap;

use crate::time::{Span, Tick};

/// Longest wait before a tenant's rows are tried again. A quota may be exhausted for weeks, but the operator can raise
/// it at any time.
pub const MAX_WAIT: Span = Span::from_secs(10);
/// Shortest wait, so that a tenant at its limit does not keep the reader busy.
const MIN_WAIT: Span = Span::from_millis(20);
/// Maximum number of waiting tenants. The rows of others are read, rejected in memory, and left in the table.
pub const MAX_WAITING_TENANTS: usize = 10_000;

/// The tenants that wait, and until when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantWaits {
    ends: BTreeMap<String, Tick>,
}

impl TenantWaits {
    /// Leaves the rows of a tenant in the table for this time. Returns false if too many tenants wait already.
    pub fn begin(&mut self, now: Tick, tenant: &str, wait: Span) -> bool {
        let has_room = self.ends.len() < MAX_WAITING_TENANTS || self.ends.contains_key(tenant);
        if has_room {
            let wait = wait.clamp(MIN_WAIT, MAX_WAIT);
            self.ends.insert(tenant.to_owned(), now.after(wait));
        }
        has_room
    }

    /// Removes the tenants whose wait is over. Returns true if there are any.
    pub fn end_expired(&mut self, now: Tick) -> bool {
        let before = self.ends.len();
        self.ends.retain(|_, end| *end > now);
        self.ends.len() < before
    }

    /// Returns the waiting tenants.
    pub fn tenants(&self) -> Vec<String> {
        self.ends.keys().cloned().collect()
    }

    /// Returns true if no tenant waits.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns true if the tenant waits.
    pub fn contains(&self, tenant: &str) -> bool {
        self.ends.contains_key(tenant)
    }

    /// Returns the time until the first wait is over.
    pub fn next_end(&self, now: Tick) -> Option<Span> {
        self.ends.values().min().map(|end| end.since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_and_is_bounded() {
        let mut waits = TenantWaits::default();
        waits.begin(Tick(1_000), "acme", Span::from_millis(500));
        waits.begin(Tick(1_000), "globex", Span::from_days(20));
        waits.begin(Tick(1_000), "initech", Span::ZERO);
        assert_eq!(waits.next_end(Tick(1_000)), Some(MIN_WAIT));
        assert!(waits.end_expired(Tick(1_020)));
        assert_eq!(waits.tenants(), ["acme", "globex"]);
        assert!(!waits.end_expired(Tick(1_499)));
        assert!(waits.end_expired(Tick(1_500)));
        assert!(waits.contains("globex") && !waits.contains("acme"));
        let last = Tick(1_000).after(MAX_WAIT);
        assert!(waits.end_expired(last));
        assert_eq!(waits.next_end(last), None);
    }

    #[test]
    fn the_number_of_waiting_tenants_is_bounded() {
        let mut waits = TenantWaits::default();
        for number in 0..=MAX_WAITING_TENANTS {
            let has_room = waits.begin(Tick(0), &number.to_string(), MAX_WAIT);
            assert_eq!(has_room, number < MAX_WAITING_TENANTS);
        }
        assert_eq!(waits.tenants().len(), MAX_WAITING_TENANTS);
        assert!(waits.begin(Tick(5_000), "0", MAX_WAIT));
        assert!(waits.end_expired(Tick(10_000)));
        assert_eq!(waits.tenants(), ["0"], "a waiting tenant can wait longer");
    }
}
