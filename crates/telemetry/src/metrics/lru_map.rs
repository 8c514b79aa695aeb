//! A bounded map that evicts the least recently used entries.

use std::collections::hash_map::Entry;
use std::hash::Hash;

use rustc_hash::FxHashMap;

/// One eviction removes the capacity divided by this number, so that a stream of new keys does not pay for a search
/// each.
const FORGET_SHARE: usize = 8;

/// A map with a maximum number of entries.
#[derive(Debug)]
pub struct LruMap<K, V> {
    most: usize,
    /// Counts every use.
    clock: u64,
    known: FxHashMap<K, (u64, V)>,
}

impl<K: Hash + Eq + Clone, V: Default> LruMap<K, V> {
    /// Creates an empty map for at most `most` entries.
    ///
    /// # Panics
    /// If `most` is zero.
    pub fn new(most: usize) -> LruMap<K, V> {
        assert!(most > 0, "there must be room for one");
        LruMap {
            most,
            clock: 0,
            known: FxHashMap::default(),
        }
    }

    /// Returns the value of a key and marks it as used. Inserts a default value if there was none.
    pub fn of(&mut self, key: &K) -> &mut V {
        self.clock += 1;
        if self.known.len() >= self.most && !self.known.contains_key(key) {
            self.forget_some();
        }
        let (used, value) = match self.known.entry(key.clone()) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert((0, V::default())),
        };
        *used = self.clock;
        value
    }

    /// Returns the value of a key, if there is one. Does not count as use.
    pub fn peek(&self, key: &K) -> Option<&V> {
        self.known.get(key).map(|(_, value)| value)
    }

    /// Iterates over all entries in arbitrary order. Does not count as use.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.known.iter().map(|(key, (_, value))| (key, value))
    }

    /// Removes a key.
    pub fn forget(&mut self, key: &K) {
        self.known.remove(key);
    }

    fn forget_some(&mut self) {
        let share = (self.most / FORGET_SHARE).max(1);
        let mut uses: Vec<u64> = self.known.values().map(|(used, _)| *used).collect();
        let (_, &mut last_to_go, _) = uses.select_nth_unstable(share - 1);
        self.known.retain(|_, (used, _)| *used > last_to_go);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_was_quiet_longest_is_forgotten_first() {
        let mut seen: LruMap<u32, u32> = LruMap::new(16);
        for key in 0..16 {
            *seen.of(&key) += 1;
        }
        *seen.of(&0) += 1;
        *seen.of(&99) += 1;
        assert_eq!(seen.peek(&0), Some(&2), "used again just now");
        assert_eq!((seen.peek(&1), seen.peek(&2)), (None, None));
        assert_eq!(seen.peek(&3), Some(&1));
        assert_eq!(seen.peek(&99), Some(&1));
    }

    #[test]
    fn it_never_grows_beyond_its_bound() {
        for most in [1, 2, 7, 100] {
            let mut seen: LruMap<usize, ()> = LruMap::new(most);
            for key in 0..10 * most {
                seen.of(&key);
                assert!(seen.known.len() <= most);
                assert!(seen.peek(&key).is_some());
            }
        }
    }
}
