//! Ranges of adjacent keys.
//!
//! Rows with adjacent keys are deleted by one statement for each [`KeyRange`], which costs a fraction of one statement for
//! each row.

use super::row_keys::Key;

/// A range of keys, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyRange {
    pub(super) first: Key,
    pub(super) last: Key,
}

impl KeyRange {
    /// Returns the range of one key.
    pub(super) fn of(key: Key) -> KeyRange {
        KeyRange {
            first: key,
            last: key,
        }
    }

    /// Returns whether it contains a key.
    pub(super) fn contains(self, key: Key) -> bool {
        self.first <= key && key <= self.last
    }

    /// Returns the keys of a sorted list that are in the range, or its first key if the list has none of them.
    pub(super) fn keys(self, sorted: &[Key]) -> Vec<Key> {
        let from = sorted.partition_point(|key| *key < self.first);
        let within = sorted[from..].iter().copied();
        let contained: Vec<Key> = within.take_while(|key| *key <= self.last).collect();
        if contained.is_empty() {
            vec![self.first]
        } else {
            contained
        }
    }
}

/// Returns the longest ranges of sorted keys that contain only wanted keys of the list.
pub(super) fn ranges_of(sorted: &[Key], wanted: impl Fn(Key) -> bool) -> Vec<KeyRange> {
    let mut ranges: Vec<KeyRange> = Vec::new();
    let mut open = false;
    for key in sorted {
        if !wanted(*key) {
            open = false;
            continue;
        }
        match ranges.last_mut() {
            Some(range) if open => range.last = *key,
            Some(_) | None => ranges.push(KeyRange::of(*key)),
        }
        open = true;
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_end_where_something_stays() {
        let keys = [1, 3, 4, 8, 9, 12];
        let found = |stays: &[Key]| ranges_of(&keys, |key| !stays.contains(&key));
        let range = |first, last| KeyRange { first, last };
        assert_eq!(found(&[]), [range(1, 12)]);
        assert_eq!(found(&[4]), [range(1, 3), range(8, 12)]);
        assert_eq!(found(&[1, 12]), [range(3, 9)]);
        assert_eq!(found(&[3, 8]), [range(1, 1), range(4, 4), range(9, 12)]);
        assert_eq!(found(&keys), []);
        assert_eq!(range(3, 8).keys(&keys), [3, 4, 8]);
        assert_eq!(KeyRange::of(7).keys(&keys), [7]);
    }
}
