//! How much room the store has left, beside that on its disk.

/// The free share of what the store may take up.
pub fn free_share_of_limit(stored_bytes: u64, limit_bytes: u64) -> f64 {
    1.0 - (stored_bytes as f64 / limit_bytes.max(1) as f64).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_past_its_limit_has_nothing_free() {
        assert_eq!(free_share_of_limit(25, 100), 0.75);
        assert_eq!(free_share_of_limit(200, 100), 0.0);
        assert_eq!(free_share_of_limit(0, 0), 1.0);
    }
}
