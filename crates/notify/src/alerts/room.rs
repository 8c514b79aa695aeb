//! Free space of the store.

use posthaste_core::alert::{Bound, Seen};

/// Returns the free ratio of the store's size limit.
pub fn free_share_of_limit(stored_bytes: u64, limit_bytes: u64) -> f64 {
    1.0 - (stored_bytes as f64 / limit_bytes.max(1) as f64).min(1.0)
}

/// Returns the smallest ratio that could be read. If another one could not be read, the result is unknown, unless the
/// smallest already crosses the threshold.
pub fn least(bound: Bound, rooms: [Seen; 2]) -> Seen {
    let shares = rooms.iter().filter_map(|room| match room {
        Seen::Value { value, .. } => Some(*value),
        Seen::Unknown | Seen::Nothing => None,
    });
    match shares.reduce(f64::min) {
        Some(share) if bound.is_crossed(share) => Seen::value(share),
        Some(_) | None if rooms.contains(&Seen::Unknown) => Seen::Unknown,
        Some(share) => Seen::value(share),
        None => Seen::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_read_is_not_in_order() {
        let (full, free) = (Seen::value(0.05), Seen::value(0.5));
        let (unknown, nothing) = (Seen::Unknown, Seen::Nothing);
        for (rooms, expected) in [
            ([full, free], full),
            ([free, full], full),
            ([free, nothing], free),
            ([full, unknown], full),
            ([unknown, free], unknown),
            ([unknown, nothing], unknown),
            ([nothing, nothing], nothing),
        ] {
            assert_eq!(least(Bound::Below(0.1), rooms), expected, "{rooms:?}");
        }
    }

    #[test]
    fn a_store_past_its_limit_has_nothing_free() {
        assert_eq!(free_share_of_limit(25, 100), 0.75);
        assert_eq!(free_share_of_limit(200, 100), 0.0);
        assert_eq!(free_share_of_limit(0, 0), 1.0);
    }
}
