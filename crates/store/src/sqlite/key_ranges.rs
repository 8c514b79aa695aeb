//! Ranges of adjacent keys.

use super::row_keys::Key;

/// A range of keys, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) first: Key,
    pub(super) last: Key,
}

impl Run {
    /// Returns the range of one key.
    pub(super) fn of(key: Key) -> Run {
        Run {
            first: key,
            last: key,
        }
    }

    /// Returns whether it contains a key.
    pub(super) fn holds(self, key: Key) -> bool {
        self.first <= key && key <= self.last
    }

    /// Returns the keys of a sorted list that are in the range, or its first key if the list has none of them.
    pub(super) fn keys(self, sorted: &[Key]) -> Vec<Key> {
        let from = sorted.partition_point(|key| *key < self.first);
        let within = sorted[from..].iter().copied();
        let held: Vec<Key> = within.take_while(|key| *key <= self.last).collect();
        if held.is_empty() {
            vec![self.first]
        } else {
            held
        }
    }
}

/// Returns the longest ranges of sorted keys that contain only wanted keys of the list.
pub(super) fn runs(sorted: &[Key], wanted: impl Fn(Key) -> bool) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut open = false;
    for key in sorted {
        if !wanted(*key) {
            open = false;
            continue;
        }
        match runs.last_mut() {
            Some(run) if open => run.last = *key,
            Some(_) | None => runs.push(Run::of(*key)),
        }
        open = true;
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_end_where_something_stays() {
        let keys = [1, 3, 4, 8, 9, 12];
        let found = |stays: &[Key]| runs(&keys, |key| !stays.contains(&key));
        let run = |first, last| Run { first, last };
        assert_eq!(found(&[]), [run(1, 12)]);
        assert_eq!(found(&[4]), [run(1, 3), run(8, 12)]);
        assert_eq!(found(&[1, 12]), [run(3, 9)]);
        assert_eq!(found(&[3, 8]), [run(1, 1), run(4, 4), run(9, 12)]);
        assert_eq!(found(&keys), []);
        assert_eq!(run(3, 8).keys(&keys), [3, 4, 8]);
        assert_eq!(Run::of(7).keys(&keys), [7]);
    }
}
