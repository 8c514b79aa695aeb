//! Scales: map a value to a position on a line.
//!
//! [`LinearScale`] is for counts and short times, [`LogScale`] for times from seconds to days. Positions never leave the
//! line.

/// A time limit beyond this multiple of the last attempt is not drawn, because it would compress the rest.
const MAX_LIMIT_RATIO: u64 = 10;

/// Returns true if a time limit is near enough to the last attempt to be drawn.
pub fn is_limit_near(limit_ms: u64, last_attempt_ms: u64) -> bool {
    last_attempt_ms == 0 || limit_ms <= last_attempt_ms.saturating_mul(MAX_LIMIT_RATIO)
}

/// A linear scale from zero to `max`, along `length`.
#[derive(Clone, Copy, Debug)]
pub struct LinearScale {
    max: f64,
    length: f64,
}

impl LinearScale {
    /// Creates a scale with `max` at `length`. If `max` is zero, every value is at the start.
    pub fn new(max: f64, length: f64) -> LinearScale {
        LinearScale { max, length }
    }

    /// Returns the position of `value`. Values beyond the end are at the end.
    pub fn position(&self, value: f64) -> f64 {
        if self.max <= 0.0 {
            return 0.0;
        }
        (value / self.max).clamp(0.0, 1.0) * self.length
    }
}

/// A logarithmic time scale that includes zero and shows both seconds and days.
///
/// It is nearly linear up to the *knee*. Beyond it each doubling has the same length.
#[derive(Clone, Copy, Debug)]
pub struct LogScale {
    knee_ms: f64,
    max_ms: f64,
    length: f64,
}

impl LogScale {
    /// Creates a scale with `max_ms` at `length` that becomes logarithmic at `linear_until_ms`.
    pub fn new(knee_ms: u64, max_ms: u64, length: f64) -> LogScale {
        LogScale {
            knee_ms: knee_ms.max(1) as f64,
            max_ms: max_ms.max(1) as f64,
            length,
        }
    }

    /// Returns the position of a time. Times beyond the end are at the end.
    pub fn position(&self, ms: u64) -> f64 {
        let ms = (ms as f64).min(self.max_ms);
        (ms / self.knee_ms).ln_1p() / (self.max_ms / self.knee_ms).ln_1p() * self.length
    }

    /// Returns the last time on the scale.
    pub fn max_ms(&self) -> u64 {
        self.max_ms as u64
    }

    /// Returns the time at which the scale becomes logarithmic.
    pub fn linear_until_ms(&self) -> u64 {
        self.knee_ms as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_scale_is_linear_and_clamped() {
        let scale = LinearScale::new(200.0, 50.0);
        assert_eq!(scale.position(0.0), 0.0);
        assert_eq!(scale.position(100.0), 25.0);
        assert_eq!(scale.position(200.0), 50.0);
        assert_eq!(scale.position(900.0), 50.0);
        assert_eq!(scale.position(-1.0), 0.0);
        assert_eq!(LinearScale::new(0.0, 50.0).position(1.0), 0.0);
    }

    #[test]
    fn a_log_scale_shows_seconds_and_days() {
        let scale = LogScale::new(5_000, 259_200_000, 100.0);
        assert_eq!(scale.position(0), 0.0);
        assert!((scale.position(259_200_000) - 100.0).abs() < 1e-9);
        assert!((scale.position(u64::MAX) - 100.0).abs() < 1e-9);
        let positions: Vec<f64> = [0, 10_000, 60_000, 3_600_000, 86_400_000, 259_200_000]
            .map(|ms| scale.position(ms))
            .to_vec();
        for pair in positions.windows(2) {
            assert!(pair[1] - pair[0] > 9.0, "{positions:?}");
        }
    }

    #[test]
    fn each_doubling_beyond_the_knee_has_the_same_length() {
        let scale = LogScale::new(1, 1 << 40, 40.0);
        let step = |power: u32| scale.position(1 << (power + 1)) - scale.position(1 << power);
        assert!((step(20) - step(35)).abs() < 1e-3);
    }
}
