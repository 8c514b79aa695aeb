//! Free space of the store: on its disk, and within its size limit. Pure.
//!
//! Both are ratios from 0 (full) to 1 (empty). The alert uses the lower one, see [`lowest`]. An unreadable ratio never
//! counts as normal.

use posthaste_core::alert::{Bound, Reading};

/// Returns the free ratio of the store's size limit.
pub(super) fn free_ratio_of_limit(stored_bytes: u64, limit_bytes: u64) -> f64 {
    1.0 - (stored_bytes as f64 / limit_bytes.max(1) as f64).min(1.0)
}

/// Returns the smallest ratio that could be read. If another one could not be read, the result is unknown, unless the
/// smallest already crosses the threshold.
pub(super) fn lowest(bound: Bound, free_ratios: [Reading; 2]) -> Reading {
    let known = free_ratios.iter().filter_map(|seen| match seen {
        Reading::Value { value, .. } => Some(*value),
        Reading::Unknown | Reading::Nothing => None,
    });
    match known.reduce(f64::min) {
        Some(ratio) if bound.is_crossed(ratio) => Reading::value(ratio),
        Some(_) | None if free_ratios.contains(&Reading::Unknown) => Reading::Unknown,
        Some(ratio) => Reading::value(ratio),
        None => Reading::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreadable_ratio_makes_the_result_unknown() {
        let (full, free) = (Reading::value(0.05), Reading::value(0.5));
        let (unknown, nothing) = (Reading::Unknown, Reading::Nothing);
        for (ratios, expected) in [
            ([full, free], full),
            ([free, full], full),
            ([free, nothing], free),
            ([full, unknown], full),
            ([unknown, free], unknown),
            ([unknown, nothing], unknown),
            ([nothing, nothing], nothing),
        ] {
            assert_eq!(lowest(Bound::Below(0.1), ratios), expected, "{ratios:?}");
        }
    }

    #[test]
    fn a_store_beyond_its_limit_has_no_free_space() {
        assert_eq!(free_ratio_of_limit(25, 100), 0.75);
        assert_eq!(free_ratio_of_limit(200, 100), 0.0);
        assert_eq!(free_ratio_of_limit(0, 0), 1.0);
    }
}
