//! Bars for a terminal.
//!
//! A cell is divided into quarters, two bars per column, so that bursts one minute apart stay separate.
//! Accepted requests are solid and refused ones dotted, so that they differ without colour.

use anstyle::Style;

use crate::scale::LinearScale;
use crate::series::Bucket;
use crate::terminal::{BAD, GOOD, dotted_quarters, quarters};

/// A bar, in half lines: solid up to `accepted`, dotted from there to `height`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bar {
    pub(super) accepted: usize,
    pub(super) height: usize,
}

impl Bar {
    /// Returns the bar for the busiest second of a bucket, on a scale of half lines.
    pub(super) fn new(bucket: &Bucket, scale: &LinearScale) -> Bar {
        let (total, failed) = (bucket.peak_per_second, bucket.peak_failed);
        let halves = |count: u64| scale.position(count as f64).round() as usize;
        // A single request is visible.
        let height = halves(total).max(usize::from(total > 0));
        let accepted = match failed {
            0 => height,
            _ if height < 2 => usize::from(2 * failed < total),
            // A refused request is visible.
            _ => halves(total - failed).min(height - 1),
        };
        Bar { accepted, height }
    }
}

/// Returns the character for two bars in one cell. A cell cannot be both solid and dotted, so it gets the
/// form of its larger part.
pub(super) fn cell(bars: [Bar; 2], lower: usize) -> Option<(char, Style)> {
    let reaches = |of: fn(Bar) -> usize| {
        let [left, right] = bars.map(of);
        [
            left > lower + 1,
            right > lower + 1,
            left > lower,
            right > lower,
        ]
    };
    let solid = reaches(|bar| bar.accepted);
    let all = reaches(|bar| bar.height);
    let count = |filled: [bool; 4]| filled.into_iter().filter(|on| *on).count();
    match (count(solid), count(all)) {
        (_, 0) => None,
        (accepted, filled) if 2 * accepted > filled => Some((quarters(solid), GOOD)),
        (_, _) => Some((dotted_quarters(all), BAD)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_split_like_its_busiest_second() {
        let scale = LinearScale::new(60.0, 12.0);
        let bar = |peak_per_second, peak_failed| {
            let bucket = Bucket {
                from_ms: 0,
                to_ms: 10_000,
                arrivals: 10_000,
                failed: 5_000,
                peak_per_second,
                peak_failed,
            };
            let bar = Bar::new(&bucket, &scale);
            (bar.accepted, bar.height)
        };
        assert_eq!(bar(60, 0), (12, 12));
        assert_eq!(bar(60, 60), (0, 12));
        assert_eq!(bar(60, 50), (2, 12));
        assert_eq!(bar(51, 1), (9, 10), "refused requests are visible");
        assert_eq!(bar(1, 0), (1, 1));
        assert_eq!(bar(1, 1), (0, 1));
        assert_eq!(bar(0, 0), (0, 0));
    }

    #[test]
    fn a_cell_is_solid_if_most_of_it_was_accepted() {
        let bar = |accepted, height| Bar { accepted, height };
        let drawn = |left, right| cell([left, right], 2).map(|(character, _)| character);
        assert_eq!(drawn(bar(4, 4), bar(4, 4)), Some('█'));
        assert_eq!(drawn(bar(0, 4), bar(0, 0)), Some('⡇'));
        assert_eq!(drawn(bar(3, 4), bar(3, 4)), Some('⣿'), "half and half");
        assert_eq!(drawn(bar(4, 4), bar(3, 4)), Some('▙'));
        assert_eq!(drawn(bar(2, 2), bar(1, 2)), None);
    }
}
