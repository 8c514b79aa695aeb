//! Skip ranges: key ranges in which nothing can expire before a known time.
//!
//! A retention run scans everything that is stored, in key order. If a part of the scan found that nothing in it can
//! expire before some time, [`SkipRanges`] remembers that, and later runs skip the range until then. So data that is
//! kept for a month is examined a few times in that month instead of in every run.

use std::collections::BTreeMap;

use posthaste_core::time::{Span, Timestamp};

/// Adjacent ranges are merged if their times differ by no more than this.
const MAX_MERGE_DISTANCE: Span = Span::from_mins(5);
/// Maximum number of ranges. When it is reached, all are dropped and the next run scans everything.
const MAX_SKIP_RANGES: usize = 100_000;

/// Skip ranges by their lower bound. The lower bound is exclusive, the upper bound inclusive.
#[derive(Debug)]
pub(crate) struct SkipRanges<K> {
    ranges: BTreeMap<K, SkipRange<K>>,
}

#[derive(Clone, Copy, Debug)]
struct SkipRange<K> {
    up_to: K,
    /// Nothing in the range can expire before this time.
    until: Timestamp,
}

impl<K> Default for SkipRanges<K> {
    fn default() -> SkipRanges<K> {
        SkipRanges {
            ranges: BTreeMap::new(),
        }
    }
}

impl<K: Ord + Copy> SkipRanges<K> {
    /// Returns the key after which the scan continues, starting from `above`.
    pub(crate) fn pass_over(&self, above: K, now: Timestamp) -> K {
        self.passed(above, now).0
    }

    /// Returns the same key, and the earliest time at which something in the skipped ranges can expire.
    pub(crate) fn passed(&self, above: K, now: Timestamp) -> (K, Option<Timestamp>) {
        let (mut above, mut soonest) = (above, None::<Timestamp>);
        while let Some(range) = self.ranges.get(&above)
            && range.until > now
        {
            above = range.up_to;
            soonest = Some(soonest.map_or(range.until, |soonest| soonest.min(range.until)));
        }
        (above, soonest)
    }

    /// Returns the number of ranges.
    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Records that all keys above `above` up to `up_to` were examined. With `until`, nothing in this range can
    /// expire before that time; without it, the range is not skipped.
    pub(crate) fn examined(&mut self, above: K, up_to: K, until: Option<Timestamp>) {
        if up_to <= above {
            return;
        }
        let stale: Vec<K> = self.ranges.range(above..up_to).map(|it| *it.0).collect();
        for key in stale {
            let known = self.ranges.remove(&key);
            // The rest of the old range is still valid. Without it, the next scan would end within the following
            // range and cut that one as well, and so on: after each deletion everything behind it would be scanned
            // again.
            if let Some(rest) = known.filter(|known| known.up_to > up_to) {
                self.ranges.insert(up_to, rest);
            }
        }
        let Some(until) = until else {
            return;
        };
        if self.ranges.len() >= MAX_SKIP_RANGES {
            self.ranges.clear();
        }
        if let Some((_, before)) = self.ranges.range_mut(..above).next_back()
            && before.up_to == above
            && before.until.0.abs_diff(until.0) <= MAX_MERGE_DISTANCE.as_millis()
        {
            before.up_to = up_to;
            before.until = before.until.min(until);
            return;
        }
        self.ranges.insert(above, SkipRange { up_to, until });
    }

    /// Drops the range that contains this key, because the data of the key has changed.
    pub(crate) fn invalidate_at(&mut self, key: K) {
        let before = self.ranges.range(..key).next_back();
        if let Some((above, range)) = before
            && range.up_to >= key
        {
            let above = *above;
            self.ranges.remove(&above);
        }
    }

    /// Drops all ranges, so that everything is scanned again.
    pub(crate) fn forget(&mut self) {
        self.ranges.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(10_000_000_000);

    fn later(secs: u64) -> Option<Timestamp> {
        Some(NOW.after(Span::from_secs(secs)))
    }

    #[test]
    fn ranges_are_skipped_until_they_can_expire() {
        let mut ranges = SkipRanges::default();
        ranges.examined(0, 10, later(3_600));
        ranges.examined(10, 20, later(7_200));
        assert_eq!(ranges.pass_over(0, NOW), 20);
        assert_eq!(ranges.pass_over(10, NOW), 20);
        assert_eq!(ranges.pass_over(20, NOW), 20);
        let hour = NOW.after(Span::from_secs(3_600));
        assert_eq!(ranges.pass_over(0, hour), 0);
        assert_eq!(ranges.pass_over(10, hour), 20);
    }

    #[test]
    fn unknown_ranges_are_examined() {
        let mut ranges = SkipRanges::default();
        ranges.examined(0, 10, None);
        ranges.examined(10, 20, later(60));
        assert_eq!(ranges.pass_over(0, NOW), 0);
        // A newer result replaces an older one where they overlap; the rest of the older one stays valid.
        ranges.examined(5, 15, later(30));
        assert_eq!(ranges.pass_over(5, NOW), 20);
        assert_eq!(ranges.pass_over(5, NOW.after(Span::from_secs(30))), 5);
        assert_eq!(ranges.pass_over(15, NOW.after(Span::from_secs(30))), 20);
        assert_eq!(ranges.pass_over(10, NOW), 10);
    }

    #[test]
    fn skipping_returns_the_earliest_expiry() {
        let mut ranges = SkipRanges::default();
        assert_eq!(ranges.passed(0, NOW), (0, None));
        ranges.examined(0, 10, later(7_200));
        ranges.examined(10, 20, later(3_600));
        assert_eq!(ranges.passed(0, NOW), (20, later(3_600)));
        assert_eq!(ranges.passed(0, NOW.after(Span::from_secs(3_600))).0, 10);
    }

    /// Simulates one new key per second, each kept for a day, with a retention run every ten seconds. Returns the
    /// maximum number of steps of a run, and whether everything that had expired was deleted.
    fn looks_per_round(step: usize) -> (usize, bool) {
        const KEPT: u64 = 86_400;
        let mut ranges = SkipRanges::default();
        let mut there: std::collections::BTreeSet<u64> = (1..=KEPT).collect();
        let (mut most, mut exact) = (0, true);
        for round in 0..500 {
            let (secs, mut above, mut looks) = (KEPT + 10 * round, 0, 0);
            let now = Timestamp(secs * 1_000);
            there.extend(secs - 9..=secs);
            loop {
                above = ranges.pass_over(above, now);
                let piece: Vec<u64> = there.range(above + 1..).take(step).copied().collect();
                let last = piece.last().copied().unwrap_or(above);
                let (gone, left): (Vec<u64>, Vec<u64>) =
                    piece.iter().partition(|made| **made + KEPT <= secs);
                for made in gone {
                    there.remove(&made);
                }
                let first = left.first().map(|made| Timestamp((made + KEPT) * 1_000));
                ranges.examined(above, last, first);
                looks += 1;
                if piece.len() < step {
                    break;
                }
                above = last;
            }
            exact &= there.first().is_some_and(|first| first + KEPT > secs);
            if round > 0 {
                most = most.max(looks);
            }
        }
        (most, exact)
    }

    #[test]
    fn deleting_keys_does_not_invalidate_the_ranges_after_them() {
        for step in [50, 500] {
            let (looks, exact) = looks_per_round(step);
            assert!(exact, "what is due is not passed over");
            // The keys that expire within a few minutes, the new ones, and the ends of ranges.
            assert!(looks <= 2 * 300 / step + 5, "{looks} of {step}");
        }
    }

    #[test]
    fn adjacent_ranges_merge_with_the_earlier_expiry() {
        let mut ranges = SkipRanges::default();
        for piece in 0..100_u64 {
            ranges.examined(piece, piece + 1, later(60 + piece % 2));
        }
        assert_eq!(ranges.ranges.len(), 1);
        assert_eq!(ranges.pass_over(0, NOW.after(Span::from_secs(59))), 100);
        assert_eq!(ranges.pass_over(0, NOW.after(Span::from_secs(60))), 0);
    }

    #[test]
    fn changed_keys_are_examined_again() {
        let mut ranges = SkipRanges::default();
        ranges.examined(0, 10, later(3_600));
        ranges.examined(10, 20, later(7_200));
        ranges.invalidate_at(21);
        assert_eq!(ranges.pass_over(0, NOW), 20);
        ranges.invalidate_at(10);
        assert_eq!(ranges.pass_over(0, NOW), 0);
        assert_eq!(ranges.pass_over(10, NOW), 20);
        ranges.invalidate_at(11);
        assert_eq!(ranges.pass_over(10, NOW), 10);
    }

    #[test]
    fn the_number_of_ranges_is_bounded() {
        let mut ranges = SkipRanges::default();
        for piece in 0..2 * MAX_SKIP_RANGES as u64 {
            ranges.examined(piece, piece + 1, later(3_600 * (piece + 1)));
        }
        assert!(ranges.ranges.len() <= MAX_SKIP_RANGES);
    }
}
