//! A bounded cache of store reads, so that a typical request needs no store read.
//!
//! [`Cache`] is never stale after a change by this process: the writer calls [`Cache::forget`] after the
//! commit and before the response, and a value that was read before that cannot be inserted afterwards. A
//! change by another node is removed when the store reports it; the caller must not use the cache while
//! reports may be missing. The cache evicts entries that were not used for the longest time. It has two
//! halves: an entry that is used moves to the young half, and when that is full, the old half is dropped.

use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

/// A bounded cache with approximate LRU eviction.
pub struct Cache<K, V> {
    generations: Mutex<Generations<K, V>>,
    half_size: usize,
}

struct Generations<K, V> {
    young: FxHashMap<K, V>,
    old: FxHashMap<K, V>,
    generation: u64,
}

/// The generation of the cache before a store read. The value can be inserted only if nothing was removed since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation(u64);

impl<K: Hash + Eq + Clone, V: Clone> Cache<K, V> {
    /// Creates a cache of at most `size` entries.
    pub fn new(size: usize) -> Cache<K, V> {
        Cache {
            generations: Mutex::new(Generations {
                young: FxHashMap::default(),
                old: FxHashMap::default(),
                generation: 0,
            }),
            half_size: (size / 2).max(1),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Generations<K, V>> {
        // No operation on the halves panics before it is complete.
        self.generations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the cached value, or the generation to pass to [`put`](Cache::put) after a store read.
    pub fn find<Q>(&self, key: &Q) -> Result<V, Generation>
    where
        K: std::borrow::Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let mut generations = self.lock();
        if let Some(value) = generations.young.get(key) {
            return Ok(value.clone());
        }
        match generations.old.remove_entry(key) {
            Some((key, value)) => {
                self.insert_young(&mut generations, key, value.clone());
                Ok(value)
            }
            None => Err(Generation(generations.generation)),
        }
    }

    /// Returns the generation to pass to [`put`](Cache::put), without looking at the cache.
    pub fn generation(&self) -> Generation {
        Generation(self.lock().generation)
    }

    /// Inserts a value that was read from the store, unless something was removed since `read_at`.
    pub fn put(&self, read_at: Generation, key: K, value: V) {
        let mut generations = self.lock();
        if generations.generation == read_at.0 {
            self.insert_young(&mut generations, key, value);
        }
    }

    fn insert_young(&self, generations: &mut Generations<K, V>, key: K, value: V) {
        if generations.young.len() >= self.half_size {
            generations.old = std::mem::take(&mut generations.young);
        }
        generations.young.insert(key, value);
    }

    /// Removes all entries that `unwanted` matches.
    pub fn forget(&self, unwanted: impl Fn(&K, &V) -> bool) {
        let mut generations = self.lock();
        generations.generation += 1;
        generations.young.retain(|key, value| !unwanted(key, value));
        generations.old.retain(|key, value| !unwanted(key, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(cache: &Cache<u32, &'static str>, key: u32) -> Option<&'static str> {
        cache.find(&key).ok()
    }

    fn put(cache: &Cache<u32, &'static str>, key: u32, value: &'static str) {
        let generation = match cache.find(&key) {
            Ok(_) => panic!("{key} is known already"),
            Err(generation) => generation,
        };
        cache.put(generation, key, value);
    }

    #[test]
    fn value_read_before_a_removal_is_not_inserted() {
        let cache = Cache::new(10);
        let generation = cache.find(&1).expect_err("nothing yet");
        cache.forget(|key, _| *key == 1);
        cache.put(generation, 1, "stale");
        assert_eq!(known(&cache, 1), None);
        put(&cache, 1, "fresh");
        assert_eq!(known(&cache, 1), Some("fresh"));
        cache.forget(|key, _| *key == 1);
        assert_eq!(known(&cache, 1), None);
    }

    #[test]
    fn cache_is_bounded_and_keeps_used_entries() {
        let cache = Cache::new(8);
        put(&cache, 0, "used");
        for key in 1..100 {
            put(&cache, key, "once");
            assert_eq!(known(&cache, 0), Some("used"), "after {key}");
            let generations = cache.lock();
            assert!(generations.young.len() + generations.old.len() <= 8);
        }
        assert_eq!(known(&cache, 5), None);
    }
}
