//! A bounded map that evicts the least recently used entries.

use std::collections::hash_map::Entry;
use std::hash::Hash;

use rustc_hash::FxHashMap;

/// Divisor of the capacity: the number of entries that one eviction removes, so that not every new key causes a search.
const EVICTED_SHARE: usize = 8;

/// A map with a maximum number of entries.
#[derive(Debug)]
pub(super) struct LruMap<K, V> {
    capacity: usize,
    /// Counts every use.
    uses: u64,
    entries: FxHashMap<K, (u64, V)>,
}

impl<K: Hash + Eq + Clone, V: Default> LruMap<K, V> {
    /// Creates an empty map for at most `capacity` entries.
    ///
    /// # Panics
    /// If `capacity` is zero.
    pub(super) fn new(capacity: usize) -> LruMap<K, V> {
        assert!(capacity > 0, "the capacity is at least 1");
        LruMap {
            capacity,
            uses: 0,
            entries: FxHashMap::default(),
        }
    }

    /// Returns the value of a key and marks it as used. Inserts a default value if there was none.
    pub(super) fn get_or_default(&mut self, key: &K) -> &mut V {
        self.uses += 1;
        if self.entries.len() >= self.capacity && !self.entries.contains_key(key) {
            self.evict();
        }
        let (used, value) = match self.entries.entry(key.clone()) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert((0, V::default())),
        };
        *used = self.uses;
        value
    }

    /// Returns the value of a key, if there is one. Does not count as use.
    pub(super) fn peek(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|(_, value)| value)
    }

    /// Iterates over all entries in arbitrary order. Does not count as use.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter().map(|(key, (_, value))| (key, value))
    }

    fn evict(&mut self) {
        let share = (self.capacity / EVICTED_SHARE).max(1);
        let mut uses: Vec<u64> = self.entries.values().map(|(used, _)| *used).collect();
        let (_, &mut newest_evicted, _) = uses.select_nth_unstable(share - 1);
        self.entries.retain(|_, (used, _)| *used > newest_evicted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_entry_is_evicted_first() {
        let mut map: LruMap<u32, u32> = LruMap::new(16);
        for key in 0..16 {
            *map.get_or_default(&key) += 1;
        }
        *map.get_or_default(&0) += 1;
        *map.get_or_default(&99) += 1;
        assert_eq!(map.peek(&0), Some(&2), "used again just now");
        assert_eq!((map.peek(&1), map.peek(&2)), (None, None));
        assert_eq!(map.peek(&3), Some(&1));
        assert_eq!(map.peek(&99), Some(&1));
    }

    #[test]
    fn it_never_exceeds_its_capacity() {
        for most in [1, 2, 7, 100] {
            let mut map: LruMap<usize, ()> = LruMap::new(most);
            for key in 0..10 * most {
                map.get_or_default(&key);
                assert!(map.entries.len() <= most);
                assert!(map.peek(&key).is_some());
            }
        }
    }
}
