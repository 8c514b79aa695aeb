//! How ids become keys.
//!
//! One mint makes the ids of events, deliveries and replays, so their moments alone tell them apart: 60
//! bits that fit into SQLite's own row id, grow with time, and need no index. The last 64 bits lie
//! beside them, and a row is only found if they match too.

use posthaste_core::dice::Dice;
use posthaste_core::id::{Mint, id_of, moment_of};
use posthaste_core::time::Timestamp;

/// Where a row is: the moment of its id.
pub(super) type Key = i64;

/// A key that lies past every other.
pub(super) const PAST_ALL: Key = i64::MAX;

/// The key of an id that one of our mints made.
pub(super) fn key_of(id: u128) -> Key {
    moment_of(id) as Key
}

/// The part of an id that its key does not tell.
pub(super) fn tail_of(id: u128) -> i64 {
    id as u64 as i64
}

/// The id that was taken apart.
pub(super) fn id_at(key: Key, tail: i64) -> u128 {
    id_of(key as u64, tail as u64)
}

/// The key and tail of an id that somebody gave us, which may be none that a mint could make.
pub(super) fn look_up(id: u128) -> Option<(Key, i64)> {
    let (key, tail) = (key_of(id), tail_of(id));
    (id_at(key, tail) == id).then_some((key, tail))
}

/// A time as it is stored. What lies beyond 292 million years is stored as that.
pub(super) fn ms(at: Timestamp) -> i64 {
    i64::try_from(at.0).unwrap_or(i64::MAX)
}

/// A stored time.
pub(super) fn at(ms: i64) -> Timestamp {
    Timestamp(ms.max(0) as u64)
}

/// A limit as SQL takes it.
pub(super) fn most(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// An id made elsewhere, as it is stored: its order is the order of its bytes.
pub(super) fn id_bytes(id: u128) -> [u8; 16] {
    id.to_be_bytes()
}

/// A mint that knows the last moment it gave out.
pub(super) struct Presses {
    mint: Mint,
    last: Key,
}

impl Presses {
    /// Goes on after `last`.
    pub(super) fn resume(dice: Dice, last: Key) -> Presses {
        Presses {
            mint: Mint::resume(dice, id_at(last, 0)),
            last,
        }
    }

    /// The next id.
    pub(super) fn next<T: From<u128>>(&mut self, now: Timestamp) -> T {
        let id: u128 = self.mint.next(now);
        self.last = key_of(id);
        T::from(id)
    }

    /// The key of the last id made.
    pub(super) fn last(&self) -> Key {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_found_again_by_its_key_and_tail() {
        let mut presses = Presses::resume(Dice::seeded(1), 0);
        let id: u128 = presses.next(Timestamp(1_700_000_000_000));
        let (key, tail) = look_up(id).unwrap();
        assert_eq!(id_at(key, tail), id);
        assert_eq!(presses.last(), key);
        assert!(key > 0, "a key is a row id");
    }

    #[test]
    fn what_no_mint_makes_has_no_place() {
        assert_eq!(look_up(77), None);
        assert_eq!(look_up(u128::MAX), None);
    }
}
