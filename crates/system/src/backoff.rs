//! Exponential backoff: the pause before a failed operation is tried again.

use std::time::Duration;

/// Pauses that start at `first` and double with each failure, up to `longest`.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    /// Pause after the first failure.
    pub first: Duration,
    /// Longest pause.
    pub longest: Duration,
}

impl Backoff {
    /// Returns the pause after a failure that this number of failures preceded.
    pub fn pause(&self, earlier_failures: u32) -> Duration {
        let factor = 1_u32.checked_shl(earlier_failures).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let backoff = Backoff {
            first: Duration::from_millis(100),
            longest: Duration::from_secs(1),
        };
        let pauses = [0, 1, 2, 3, 4, 5, 31, 32, u32::MAX].map(|failures| backoff.pause(failures));
        let expected = [100, 200, 400, 800, 1_000, 1_000, 1_000, 1_000, 1_000];
        assert_eq!(pauses, expected.map(Duration::from_millis));
    }
}
