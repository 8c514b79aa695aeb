//! Row keys, derived from ids.
//!
//! One id generator makes the ids of events, deliveries and replays, so the time part of an id is unique: 60 bits
//! that fit into SQLite's row id, grow with time, and need no index. The other 64 bits, the tail, are stored in a
//! column, and a row is found only if they match too.

use posthaste_core::id::{IdGenerator, id_of, sequence_of};
use posthaste_core::rng::Rng;
use posthaste_core::time::Timestamp;

/// The row id: the time part of an id.
pub(super) type Key = i64;

/// A key greater than every other.
pub(super) const AFTER_ALL_KEYS: Key = i64::MAX;

/// Returns the key of an id made by the id generator.
pub(super) fn key_of(id: u128) -> Key {
    sequence_of(id) as Key
}

/// Returns the tail: the part of an id that is not in its key.
pub(super) fn tail_of(id: u128) -> i64 {
    id as u64 as i64
}

/// Restores an id from its key and tail.
pub(super) fn id_at(key: Key, tail: i64) -> u128 {
    id_of(key as u64, tail as u64)
}

/// Returns the key and tail of an id from a caller; `None` if the id generator cannot have made it.
pub(super) fn look_up(id: u128) -> Option<(Key, i64)> {
    let (key, tail) = (key_of(id), tail_of(id));
    (id_at(key, tail) == id).then_some((key, tail))
}

/// Converts an id made outside the store to its stored form, whose byte order is the order of ids.
pub(super) fn id_bytes(id: u128) -> [u8; 16] {
    id.to_be_bytes()
}

/// An id generator that remembers the last key.
pub(super) struct KeyGenerator {
    id_generator: IdGenerator,
    last: Key,
}

impl KeyGenerator {
    /// Creates a generator that continues after `last`.
    pub(super) fn resume(rng: Rng, last: Key) -> KeyGenerator {
        KeyGenerator {
            id_generator: IdGenerator::resume(rng, id_at(last, 0)),
            last,
        }
    }

    /// Generates the next id.
    pub(super) fn next<T: From<u128>>(&mut self, now: Timestamp) -> T {
        let id: u128 = self.id_generator.next(now);
        self.last = key_of(id);
        T::from(id)
    }

    /// Returns the key of the last id.
    pub(super) fn last(&self) -> Key {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_found_again_by_its_key_and_tail() {
        let mut key_generator = KeyGenerator::resume(Rng::seeded(1), 0);
        let id: u128 = key_generator.next(Timestamp(1_700_000_000_000));
        let (key, tail) = look_up(id).unwrap();
        assert_eq!(id_at(key, tail), id);
        assert_eq!(key_generator.last(), key);
        assert!(key > 0, "a key is a row id");
    }

    #[test]
    fn ids_of_no_generator_have_no_row_key() {
        assert_eq!(look_up(77), None);
        assert_eq!(look_up(u128::MAX), None);
    }
}
