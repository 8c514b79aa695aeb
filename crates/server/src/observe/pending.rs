//! What happened and is not in the store yet, by minute.

use std::collections::BTreeMap;
use std::hash::Hash;

use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::time::Timestamp;
use posthaste_store::{Happened, Scope, Tally, Width};
use rustc_hash::FxHashMap;

/// So many tallies of tenants and endpoints wait at most: some 10 MB. It takes a store that is away for long, or very
/// many endpoints; then only what is counted already is counted on, and everything together.
pub const MAX_PENDING: usize = 50_000;
/// So many minutes wait at most: no window is longer. What is older goes first.
const MAX_MINUTES: usize = 24 * 60;

/// What waits to be written.
#[derive(Debug, Default)]
pub struct Pending {
    minutes: BTreeMap<Timestamp, Minute>,
    /// How many tallies of tenants and endpoints there are.
    count: usize,
    /// How often something could not be counted.
    passed_over: u64,
    /// What was taken out to be written. Nobody knows yet whether it is.
    unsettled: Option<Piece>,
    /// How many pieces were taken out.
    pieces: u64,
}

/// What is written at once.
#[derive(Clone, Debug)]
pub struct Piece {
    /// How many were taken out before, and this one.
    pub number: u64,
    /// What happened.
    pub happened: Vec<Happened>,
}

/// What happened within a minute.
#[derive(Debug, Default)]
struct Minute {
    everything: Tally,
    tenants: FxHashMap<TenantId, Tally>,
    endpoints: FxHashMap<EndpointId, Tally>,
}

impl Minute {
    fn is_empty(&self) -> bool {
        self.everything == Tally::default() && self.tenants.is_empty() && self.endpoints.is_empty()
    }
}

impl Pending {
    /// Counts what happened to an endpoint of a tenant.
    pub fn add(&mut self, at: Timestamp, tenant: &TenantId, endpoint: EndpointId, tally: &Tally) {
        self.minute(at).0.everything.add(tally);
        self.add_apart(at, tenant, endpoint, tally);
    }

    /// The same, but for what it comes to with everybody else's.
    pub fn add_apart(
        &mut self,
        at: Timestamp,
        tenant: &TenantId,
        endpoint: EndpointId,
        tally: &Tally,
    ) {
        let (minute, mut room) = self.minute(at);
        let counted = [
            count(&mut minute.tenants, tenant, tally, &mut room),
            count(&mut minute.endpoints, &endpoint, tally, &mut room),
        ];
        self.count = MAX_PENDING - room;
        let missed = counted.into_iter().filter(|counted| !counted).count();
        self.passed_over += missed as u64;
    }

    /// What is to be written next, at most so many tallies: the same until it is settled, then another.
    pub fn piece(&mut self, most: usize) -> Option<Piece> {
        if self.unsettled.is_none() {
            let happened = self.take(most);
            if happened.is_empty() {
                return None;
            }
            self.pieces += 1;
            let number = self.pieces;
            self.unsettled = Some(Piece { number, happened });
        }
        self.unsettled.clone()
    }

    /// That is written.
    pub fn settle(&mut self) {
        self.unsettled = None;
    }

    /// Takes the oldest out, at most so many tallies.
    fn take(&mut self, most: usize) -> Vec<Happened> {
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some(mut entry) = self.minutes.first_entry()
        {
            let at = *entry.key();
            let minute = entry.get_mut();
            let happened = |(scope, tally)| Happened { scope, at, tally };
            if minute.everything != Tally::default() {
                let tally = std::mem::take(&mut minute.everything);
                taken.push(happened((Scope::Everything, tally)));
            }
            let tenants = some(&mut minute.tenants, most - taken.len());
            let tenants = tenants.into_iter();
            let tenants = tenants.map(|(tenant, tally)| (Scope::Tenant(tenant), tally));
            let before = taken.len();
            taken.extend(tenants.map(happened));
            let endpoints = some(&mut minute.endpoints, most - taken.len());
            let endpoints = endpoints.into_iter();
            let endpoints = endpoints.map(|(endpoint, tally)| (Scope::Endpoint(endpoint), tally));
            taken.extend(endpoints.map(happened));
            self.count -= taken.len() - before;
            if minute.is_empty() {
                entry.remove();
            }
        }
        taken
    }

    /// What waits of one scope, and what may be written or not.
    pub fn of(&self, scope: &Scope) -> Vec<(Timestamp, Tally)> {
        let of = |minute: &Minute| match scope {
            Scope::Everything => Some(minute.everything),
            Scope::Tenant(tenant) => minute.tenants.get(tenant).copied(),
            Scope::Endpoint(endpoint) => minute.endpoints.get(endpoint).copied(),
        };
        let mut theirs: BTreeMap<Timestamp, Tally> = BTreeMap::new();
        for (at, minute) in &self.minutes {
            if let Some(tally) = of(minute).filter(|tally| *tally != Tally::default()) {
                theirs.insert(*at, tally);
            }
        }
        for it in self.unsettled() {
            if it.scope == *scope {
                theirs.entry(it.at).or_default().add(&it.tally);
            }
        }
        theirs.into_iter().collect()
    }

    fn unsettled(&self) -> &[Happened] {
        let piece = self.unsettled.as_ref();
        piece.map_or(&[], |piece| piece.happened.as_slice())
    }

    /// How many tallies wait, at least.
    pub fn count(&self) -> usize {
        self.minutes.len() + self.count + self.unsettled().len()
    }

    /// How often something could not be counted since this was last asked.
    pub fn passed_over(&mut self) -> u64 {
        std::mem::take(&mut self.passed_over)
    }

    /// Forgets what happened to a tenant.
    pub fn forget(&mut self, tenant: &TenantId) {
        for minute in self.minutes.values_mut() {
            self.count -= usize::from(minute.tenants.remove(tenant).is_some());
        }
        if let Some(piece) = &mut self.unsettled {
            let is_its = |scope: &Scope| matches!(scope, Scope::Tenant(of) if of == tenant);
            piece.happened.retain(|it| !is_its(&it.scope));
        }
    }

    /// The minute of this moment, and how many more tallies there may be.
    fn minute(&mut self, at: Timestamp) -> (&mut Minute, usize) {
        let at = Width::Minute.begin(at);
        if self.minutes.len() >= MAX_MINUTES
            && !self.minutes.contains_key(&at)
            && let Some((_, oldest)) = self.minutes.pop_first()
        {
            self.count -= oldest.tenants.len() + oldest.endpoints.len();
        }
        let room = MAX_PENDING - self.count;
        (self.minutes.entry(at).or_default(), room)
    }
}

/// Counts under a key, if there is one or room for it.
fn count<K: Hash + Eq + Clone>(
    tallies: &mut FxHashMap<K, Tally>,
    key: &K,
    tally: &Tally,
    room: &mut usize,
) -> bool {
    if let Some(sum) = tallies.get_mut(key) {
        sum.add(tally);
        return true;
    }
    if *room == 0 {
        return false;
    }
    *room -= 1;
    tallies.insert(key.clone(), *tally);
    true
}

/// Takes some out, at most so many.
fn some<K: Hash + Eq + Clone>(tallies: &mut FxHashMap<K, Tally>, most: usize) -> Vec<(K, Tally)> {
    if tallies.len() <= most {
        return tallies.drain().collect();
    }
    let keys: Vec<K> = tallies.keys().take(most).cloned().collect();
    let taken = keys.into_iter();
    taken.filter_map(|key| tallies.remove_entry(&key)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000;

    fn attempts(count: u64) -> Tally {
        Tally {
            attempts: count,
            ..Tally::default()
        }
    }

    fn tenant(number: u64) -> TenantId {
        format!("t{number}").parse().expect("a name")
    }

    fn told(pending: &Pending, scope: &Scope) -> Vec<(u64, u64)> {
        let told = pending.of(scope).into_iter();
        told.map(|(at, tally)| (at.0, tally.attempts)).collect()
    }

    #[test]
    fn what_is_taken_piece_by_piece_is_everything_once() {
        for most in [1, 2, 7, 1_000] {
            let mut pending = Pending::default();
            for number in 0..30 {
                let at = Timestamp(number * MINUTE / 10);
                let endpoint = EndpointId(u128::from(number % 7));
                pending.add(at, &tenant(number % 3), endpoint, &attempts(1));
            }
            let mut sums: BTreeMap<Scope, u64> = BTreeMap::new();
            let mut pieces = 0;
            while let Some(piece) = pending.piece(most) {
                pieces += 1;
                assert_eq!(piece.number, pieces);
                assert!(piece.happened.len() <= most, "{most}");
                for it in piece.happened {
                    *sums.entry(it.scope).or_default() += it.tally.attempts;
                }
                pending.settle();
            }
            assert_eq!(pending.count(), 0);
            assert_eq!(sums.remove(&Scope::Everything), Some(30), "{most}");
            assert_eq!(sums.len(), 3 + 7);
            assert_eq!(sums.values().sum::<u64>(), 60);
        }
    }

    #[test]
    fn what_may_be_written_is_written_again_as_it_was_with_what_came_since_after_it() {
        let mut pending = Pending::default();
        pending.add(Timestamp(5), &tenant(1), EndpointId(1), &attempts(1));
        let piece = pending.piece(10).expect("something happened");
        assert_eq!((piece.number, piece.happened.len()), (1, 3));
        pending.add(Timestamp(9), &tenant(1), EndpointId(1), &attempts(10));
        pending.add(Timestamp(MINUTE), &tenant(2), EndpointId(1), &attempts(100));
        assert_eq!(pending.count(), 3 + 2 + 4);
        assert_eq!(told(&pending, &Scope::Everything), [(0, 11), (MINUTE, 100)]);
        assert_eq!(told(&pending, &Scope::Tenant(tenant(1))), [(0, 11)]);
        let one = Scope::Endpoint(EndpointId(1));
        assert_eq!(told(&pending, &one), [(0, 11), (MINUTE, 100)]);
        let again = pending.piece(10).expect("it is not settled");
        assert_eq!((again.number, again.happened), (1, piece.happened));
        // A later tenant of that id has nothing to do with it.
        pending.forget(&tenant(1));
        assert_eq!(told(&pending, &Scope::Tenant(tenant(1))), []);
        assert_eq!(told(&pending, &Scope::Everything), [(0, 11), (MINUTE, 100)]);
        let again = pending.piece(10).expect("it is not settled");
        assert_eq!((again.number, again.happened.len()), (1, 2));
        pending.settle();
        assert_eq!(told(&pending, &Scope::Everything), [(0, 10), (MINUTE, 100)]);
        let next = pending.piece(10).expect("there is more");
        assert_eq!((next.number, next.happened.len()), (2, 5));
    }

    #[test]
    fn it_never_grows_beyond_its_bounds() {
        let mut pending = Pending::default();
        let most = MAX_PENDING as u64;
        for number in 0..most + 10 {
            let endpoint = EndpointId(number.into());
            pending.add(Timestamp(0), &tenant(1), endpoint, &attempts(1));
        }
        assert_eq!(pending.count(), MAX_PENDING + 1);
        assert_eq!(pending.passed_over(), 11);
        assert_eq!(pending.passed_over(), 0);
        assert_eq!(told(&pending, &Scope::Everything), [(0, most + 10)]);
        assert_eq!(told(&pending, &Scope::Tenant(tenant(1))), [(0, most + 10)]);
        for minute in 1..=MAX_MINUTES as u64 {
            let at = Timestamp(minute * MINUTE);
            pending.add(at, &tenant(1), EndpointId(1), &attempts(1));
        }
        assert!(pending.minutes.len() <= MAX_MINUTES);
        assert!(
            !pending.minutes.contains_key(&Timestamp(0)),
            "the oldest went"
        );
    }
}
