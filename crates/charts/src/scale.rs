//! Scales: map a value to a position on a line.

/// A linear scale from zero to `most`, along `length`.
#[derive(Clone, Copy, Debug)]
pub struct LinearScale {
    most: f64,
    length: f64,
}

impl LinearScale {
    /// Creates a scale with `most` at `length`. If `most` is zero, every value is at the start.
    pub fn new(most: f64, length: f64) -> LinearScale {
        LinearScale { most, length }
    }

    /// Returns the position of `value`. Values beyond the end are at the end.
    pub fn place(&self, value: f64) -> f64 {
        if self.most <= 0.0 {
            return 0.0;
        }
        (value / self.most).clamp(0.0, 1.0) * self.length
    }
}

/// A logarithmic time scale that includes zero and shows both seconds and days.
///
/// It is nearly linear up to the *knee*. Beyond it each doubling has the same length.
#[derive(Clone, Copy, Debug)]
pub struct LogScale {
    knee_ms: f64,
    most_ms: f64,
    length: f64,
}

impl LogScale {
    /// Creates a scale with `most_ms` at `length` that becomes logarithmic at `knee_ms`.
    pub fn new(knee_ms: u64, most_ms: u64, length: f64) -> LogScale {
        LogScale {
            knee_ms: knee_ms.max(1) as f64,
            most_ms: most_ms.max(1) as f64,
            length,
        }
    }

    /// Returns the position of a time. Times beyond the end are at the end.
    pub fn place(&self, ms: u64) -> f64 {
        let ms = (ms as f64).min(self.most_ms);
        (ms / self.knee_ms).ln_1p() / (self.most_ms / self.knee_ms).ln_1p() * self.length
    }

    /// Returns the last time on the scale.
    pub fn most_ms(&self) -> u64 {
        self.most_ms as u64
    }

    /// Returns the time at which the scale becomes logarithmic.
    pub fn knee_ms(&self) -> u64 {
        self.knee_ms as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_even_scale_is_even_and_stays_on_its_line() {
        let scale = LinearScale::new(200.0, 50.0);
        assert_eq!(scale.place(0.0), 0.0);
        assert_eq!(scale.place(100.0), 25.0);
        assert_eq!(scale.place(200.0), 50.0);
        assert_eq!(scale.place(900.0), 50.0);
        assert_eq!(scale.place(-1.0), 0.0);
        assert_eq!(LinearScale::new(0.0, 50.0).place(1.0), 0.0);
    }

    #[test]
    fn a_stretched_scale_shows_seconds_and_days() {
        let scale = LogScale::new(5_000, 259_200_000, 100.0);
        assert_eq!(scale.place(0), 0.0);
        assert!((scale.place(259_200_000) - 100.0).abs() < 1e-9);
        assert!((scale.place(u64::MAX) - 100.0).abs() < 1e-9);
        let places: Vec<f64> = [0, 10_000, 60_000, 3_600_000, 86_400_000, 259_200_000]
            .map(|ms| scale.place(ms))
            .to_vec();
        for pair in places.windows(2) {
            assert!(pair[1] - pair[0] > 9.0, "{places:?}");
        }
    }

    #[test]
    fn each_doubling_beyond_the_knee_takes_the_same_length() {
        let scale = LogScale::new(1, 1 << 40, 40.0);
        let step = |power: u32| scale.place(1 << (power + 1)) - scale.place(1 << power);
        assert!((step(20) - step(35)).abs() < 1e-3);
    }
}
