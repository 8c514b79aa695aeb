//! Counters that are not in the store yet, by minute.
//!
//! [`PendingCounters`] is bounded and hands out its content in numbered pieces, see [`flush`](super::flush).

use std::collections::BTreeMap;
use std::hash::Hash;

use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::time::Timestamp;
use posthaste_store::{BucketWidth, StatCounters, StatEntry, SubjectScope};
use rustc_hash::FxHashMap;

/// Maximum number of counter rows of tenants and endpoints that wait: about 10 MB. Reached only if the store is
/// unavailable for long, or with very many endpoints. Then existing rows and the totals are still counted, but no new
/// rows are added.
pub(super) const MAX_PENDING: usize = 50_000;
/// Maximum number of minutes that wait; no window is longer. The oldest minute is dropped first.
const MAX_MINUTES: usize = 24 * 60;

/// Counters that wait to be written.
#[derive(Debug, Default)]
pub(super) struct PendingCounters {
    minutes: BTreeMap<Timestamp, Minute>,
    /// Number of rows of tenants and endpoints.
    count: usize,
    /// Number of counts that were dropped because of [`MAX_PENDING`].
    dropped: u64,
    /// The piece that is being written. It is not known yet whether the store has it.
    in_write: Option<Piece>,
    /// Number of pieces taken out so far.
    pieces: u64,
}

/// Counters that are written together.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    /// Sequence number, starting at 1.
    pub number: u64,
    /// The counters.
    pub entries: Vec<StatEntry>,
}

/// Counters of one minute.
#[derive(Debug, Default)]
struct Minute {
    everything: StatCounters,
    tenants: FxHashMap<TenantId, StatCounters>,
    endpoints: FxHashMap<EndpointId, StatCounters>,
}

impl Minute {
    fn is_empty(&self) -> bool {
        self.everything == StatCounters::default()
            && self.tenants.is_empty()
            && self.endpoints.is_empty()
    }
}

impl PendingCounters {
    /// Adds the counters of an attempt to an endpoint, its tenant and the totals.
    pub(super) fn add(
        &mut self,
        at: Timestamp,
        tenant: &TenantId,
        endpoint: EndpointId,
        totals: &StatCounters,
    ) {
        self.minute(at).0.everything.add(totals);
        self.add_without_totals(at, tenant, endpoint, totals);
    }

    /// Adds the counters of an attempt to an endpoint and its tenant, but not to the totals.
    pub(super) fn add_without_totals(
        &mut self,
        at: Timestamp,
        tenant: &TenantId,
        endpoint: EndpointId,
        totals: &StatCounters,
    ) {
        let (minute, mut free_rows) = self.minute(at);
        let counted = [
            add_to_row(&mut minute.tenants, tenant, totals, &mut free_rows),
            add_to_row(&mut minute.endpoints, &endpoint, totals, &mut free_rows),
        ];
        self.count = MAX_PENDING - free_rows;
        let missed = counted.into_iter().filter(|counted| !counted).count();
        self.dropped += missed as u64;
    }

    /// Returns the next piece to write, at most `most` rows. Returns the same piece until [`PendingCounters::confirm`]
    /// is called.
    pub(super) fn piece(&mut self, most: usize) -> Option<Piece> {
        if self.in_write.is_none() {
            let entries = self.take(most);
            if entries.is_empty() {
                return None;
            }
            self.pieces += 1;
            let number = self.pieces;
            self.in_write = Some(Piece { number, entries });
        }
        self.in_write.clone()
    }

    /// Marks the current piece as written.
    pub(super) fn confirm(&mut self) {
        self.in_write = None;
    }

    /// Removes the oldest rows, at most `most`.
    fn take(&mut self, most: usize) -> Vec<StatEntry> {
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some(mut entry) = self.minutes.first_entry()
        {
            let at = *entry.key();
            let minute = entry.get_mut();
            let row = |(scope, totals)| StatEntry {
                scope,
                at,
                counters: totals,
            };
            if minute.everything != StatCounters::default() {
                let totals = std::mem::take(&mut minute.everything);
                taken.push(row((SubjectScope::Everything, totals)));
            }
            let tenants = take_some(&mut minute.tenants, most - taken.len());
            let tenants = tenants.into_iter();
            let tenants = tenants.map(|(tenant, totals)| (SubjectScope::Tenant(tenant), totals));
            let before = taken.len();
            taken.extend(tenants.map(row));
            let endpoints = take_some(&mut minute.endpoints, most - taken.len());
            let endpoints = endpoints.into_iter();
            let endpoints =
                endpoints.map(|(endpoint, totals)| (SubjectScope::Endpoint(endpoint), totals));
            taken.extend(endpoints.map(row));
            self.count -= taken.len() - before;
            if minute.is_empty() {
                entry.remove();
            }
        }
        taken
    }

    /// Returns the waiting counters of a scope, including those of the piece that is being written.
    pub(super) fn of(&self, scope: &SubjectScope) -> Vec<(Timestamp, StatCounters)> {
        let of = |minute: &Minute| match scope {
            SubjectScope::Everything => Some(minute.everything),
            SubjectScope::Tenant(tenant) => minute.tenants.get(tenant).copied(),
            SubjectScope::Endpoint(endpoint) => minute.endpoints.get(endpoint).copied(),
        };
        let mut found: BTreeMap<Timestamp, StatCounters> = BTreeMap::new();
        for (at, minute) in &self.minutes {
            if let Some(totals) = of(minute).filter(|totals| *totals != StatCounters::default()) {
                found.insert(*at, totals);
            }
        }
        for it in self.in_write() {
            if it.scope == *scope {
                found.entry(it.at).or_default().add(&it.counters);
            }
        }
        found.into_iter().collect()
    }

    fn in_write(&self) -> &[StatEntry] {
        let piece = self.in_write.as_ref();
        piece.map_or(&[], |piece| piece.entries.as_slice())
    }

    /// Returns the number of rows that wait, or slightly more.
    pub(super) fn count(&self) -> usize {
        self.minutes.len() + self.count + self.in_write().len()
    }

    /// Returns the number of counts dropped since the last call.
    pub(super) fn dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    /// Removes the counters of a tenant.
    pub(super) fn forget(&mut self, tenant: &TenantId) {
        for minute in self.minutes.values_mut() {
            self.count -= usize::from(minute.tenants.remove(tenant).is_some());
        }
        if let Some(piece) = &mut self.in_write {
            let is_of_tenant =
                |scope: &SubjectScope| matches!(scope, SubjectScope::Tenant(of) if of == tenant);
            piece.entries.retain(|it| !is_of_tenant(&it.scope));
        }
    }

    /// Returns the minute that contains `at`, and the number of rows that may still be added.
    fn minute(&mut self, at: Timestamp) -> (&mut Minute, usize) {
        let at = BucketWidth::Minute.begin(at);
        if self.minutes.len() >= MAX_MINUTES
            && !self.minutes.contains_key(&at)
            && let Some((_, oldest)) = self.minutes.pop_first()
        {
            self.count -= oldest.tenants.len() + oldest.endpoints.len();
        }
        let free_rows = MAX_PENDING - self.count;
        (self.minutes.entry(at).or_default(), free_rows)
    }
}

/// Adds to the row of a key. Creates the row if `free_rows` is above zero. Returns false if the row is
/// missing and cannot be created.
fn add_to_row<K: Hash + Eq + Clone>(
    buffered: &mut FxHashMap<K, StatCounters>,
    key: &K,
    totals: &StatCounters,
    free_rows: &mut usize,
) -> bool {
    if let Some(sum) = buffered.get_mut(key) {
        sum.add(totals);
        return true;
    }
    if *free_rows == 0 {
        return false;
    }
    *free_rows -= 1;
    buffered.insert(key.clone(), *totals);
    true
}

/// Removes at most `most` rows.
fn take_some<K: Hash + Eq + Clone>(
    buffered: &mut FxHashMap<K, StatCounters>,
    most: usize,
) -> Vec<(K, StatCounters)> {
    if buffered.len() <= most {
        return buffered.drain().collect();
    }
    let keys: Vec<K> = buffered.keys().take(most).cloned().collect();
    let taken = keys.into_iter();
    taken
        .filter_map(|key| buffered.remove_entry(&key))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::attempts;

    const MINUTE: u64 = 60_000;

    fn tenant(number: u64) -> TenantId {
        format!("t{number}").parse().expect("a valid tenant id")
    }

    fn attempts_of(pending: &PendingCounters, scope: &SubjectScope) -> Vec<(u64, u64)> {
        let counters = pending.of(scope).into_iter();
        counters
            .map(|(at, totals)| (at.0, totals.attempts))
            .collect()
    }

    #[test]
    fn pieces_contain_every_counter_once() {
        for most in [1, 2, 7, 1_000] {
            let mut pending = PendingCounters::default();
            for number in 0..30 {
                let at = Timestamp(number * MINUTE / 10);
                let endpoint = EndpointId(u128::from(number % 7));
                pending.add(at, &tenant(number % 3), endpoint, &attempts(1));
            }
            let mut sums: BTreeMap<SubjectScope, u64> = BTreeMap::new();
            let mut pieces = 0;
            while let Some(piece) = pending.piece(most) {
                pieces += 1;
                assert_eq!(piece.number, pieces);
                assert!(piece.entries.len() <= most, "{most}");
                for it in piece.entries {
                    *sums.entry(it.scope).or_default() += it.counters.attempts;
                }
                pending.confirm();
            }
            assert_eq!(pending.count(), 0);
            assert_eq!(sums.remove(&SubjectScope::Everything), Some(30), "{most}");
            assert_eq!(sums.len(), 3 + 7);
            assert_eq!(sums.values().sum::<u64>(), 60);
        }
    }

    #[test]
    fn an_unconfirmed_piece_is_returned_again_unchanged() {
        let mut pending = PendingCounters::default();
        pending.add(Timestamp(5), &tenant(1), EndpointId(1), &attempts(1));
        let piece = pending.piece(10).expect("there are counters");
        assert_eq!((piece.number, piece.entries.len()), (1, 3));
        pending.add(Timestamp(9), &tenant(1), EndpointId(1), &attempts(10));
        pending.add(Timestamp(MINUTE), &tenant(2), EndpointId(1), &attempts(100));
        assert_eq!(pending.count(), 3 + 2 + 4);
        assert_eq!(
            attempts_of(&pending, &SubjectScope::Everything),
            [(0, 11), (MINUTE, 100)]
        );
        assert_eq!(
            attempts_of(&pending, &SubjectScope::Tenant(tenant(1))),
            [(0, 11)]
        );
        let one = SubjectScope::Endpoint(EndpointId(1));
        assert_eq!(attempts_of(&pending, &one), [(0, 11), (MINUTE, 100)]);
        let again = pending.piece(10).expect("the piece is not confirmed");
        assert_eq!((again.number, again.entries), (1, piece.entries));
        // A later tenant with the same id must not inherit these counters.
        pending.forget(&tenant(1));
        assert_eq!(attempts_of(&pending, &SubjectScope::Tenant(tenant(1))), []);
        assert_eq!(
            attempts_of(&pending, &SubjectScope::Everything),
            [(0, 11), (MINUTE, 100)]
        );
        let again = pending.piece(10).expect("the piece is not confirmed");
        assert_eq!((again.number, again.entries.len()), (1, 2));
        pending.confirm();
        assert_eq!(
            attempts_of(&pending, &SubjectScope::Everything),
            [(0, 10), (MINUTE, 100)]
        );
        let next = pending.piece(10).expect("there are more counters");
        assert_eq!((next.number, next.entries.len()), (2, 5));
    }

    #[test]
    fn rows_and_minutes_are_bounded() {
        let mut pending = PendingCounters::default();
        let most = MAX_PENDING as u64;
        for number in 0..most + 10 {
            let endpoint = EndpointId(number.into());
            pending.add(Timestamp(0), &tenant(1), endpoint, &attempts(1));
        }
        assert_eq!(pending.count(), MAX_PENDING + 1);
        assert_eq!(pending.dropped(), 11);
        assert_eq!(pending.dropped(), 0);
        assert_eq!(
            attempts_of(&pending, &SubjectScope::Everything),
            [(0, most + 10)]
        );
        assert_eq!(
            attempts_of(&pending, &SubjectScope::Tenant(tenant(1))),
            [(0, most + 10)]
        );
        for minute in 1..=MAX_MINUTES as u64 {
            let at = Timestamp(minute * MINUTE);
            pending.add(at, &tenant(1), EndpointId(1), &attempts(1));
        }
        assert!(pending.minutes.len() <= MAX_MINUTES);
        assert!(
            !pending.minutes.contains_key(&Timestamp(0)),
            "the oldest minute is dropped"
        );
    }
}
