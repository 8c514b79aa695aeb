//! The row after which the next batch of an outbox is looked for.
//!
//! A scan of the whole table finds every waiting row, also one of a transaction that took long to commit and has a
//! smaller id than rows that were accepted already. Usually such a scan costs less than a millisecond, and every batch
//! makes one. It is slow if many rows stay in the table for a tenant that waits, or if the database cannot remove deleted
//! rows yet. Then [`ScanPosition`] lets batches continue after the last row, and limits full scans to a tenth of the
//! time.

use crate::time::{Span, Tick};

/// A full scan that takes longer is not made for every batch.
pub const SLOW_SCAN: Span = Span::from_millis(20);
/// Longest time without a full scan, and thus the longest additional delay of a row that was committed late.
pub const MAX_FULL_SCAN_PAUSE: Span = Span::from_secs(1);
/// Pause after a full scan, as a multiple of its duration.
const PAUSE_FACTOR: u64 = 9;

/// The row after which the next batch begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScanPosition {
    /// At the first row.
    #[default]
    First,
    /// After this row, until the next full scan.
    After {
        /// Id of the last row that was read.
        id: i64,
        /// Time of the next full scan.
        full_scan_at: Tick,
    },
}

impl ScanPosition {
    /// Returns the id after which the next batch begins.
    pub fn start(&mut self, now: Tick) -> i64 {
        match self {
            ScanPosition::First => i64::MIN,
            ScanPosition::After { full_scan_at, .. } if now >= *full_scan_at => {
                *self = ScanPosition::First;
                i64::MIN
            }
            ScanPosition::After { id, .. } => *id,
        }
    }

    /// Notes a batch that was read in this time and whose last row has this id. All rows before it must be accepted,
    /// refused, or of waiting tenants.
    pub fn advance(&mut self, now: Tick, took: Span, last_id: i64) {
        match self {
            ScanPosition::First if took <= SLOW_SCAN => {}
            ScanPosition::First => {
                let pause = Span::from_millis(took.as_millis().saturating_mul(PAUSE_FACTOR));
                *self = ScanPosition::After {
                    id: last_id,
                    full_scan_at: now.after(pause.min(MAX_FULL_SCAN_PAUSE)),
                };
            }
            ScanPosition::After { id, .. } => *id = last_id.max(*id),
        }
    }

    /// Makes the next scan a full one.
    pub fn reset(&mut self) {
        *self = ScanPosition::First;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fast_scans_always_begin_at_the_first_row() {
        let mut position = ScanPosition::default();
        position.advance(Tick(100), SLOW_SCAN, 77);
        assert_eq!(position.start(Tick(100)), i64::MIN);
    }

    #[test]
    fn slow_full_scans_take_a_tenth_of_the_time() {
        let mut position = ScanPosition::default();
        position.advance(Tick(1_000), Span::from_millis(50), 77);
        assert_eq!(position.start(Tick(1_000)), 77);
        position.advance(Tick(1_200), Span::from_millis(90), 99);
        assert_eq!(position.start(Tick(1_449)), 99);
        assert_eq!(position.start(Tick(1_450)), i64::MIN, "the pause is over");
        position.advance(Tick(2_000), Span::from_secs(5), 7);
        assert_eq!(position.start(Tick(2_999)), 7);
        assert_eq!(position.start(Tick(3_000)), i64::MIN, "the longest pause");
    }

    #[test]
    fn a_reset_makes_the_next_scan_a_full_one() {
        let mut position = ScanPosition::default();
        position.advance(Tick(0), Span::from_secs(1), 77);
        position.reset();
        assert_eq!(position.start(Tick(1)), i64::MIN);
    }
}
