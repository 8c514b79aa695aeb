//! Where a value falls on a line.

/// An even scale: from zero to `most`, along `length`.
#[derive(Clone, Copy, Debug)]
pub struct Even {
    most: f64,
    length: f64,
}

impl Even {
    /// A scale that puts `most` at `length`. A scale of nothing puts everything at its beginning.
    pub fn new(most: f64, length: f64) -> Even {
        Even { most, length }
    }

    /// Where `value` falls; beyond the end, at the end.
    pub fn place(&self, value: f64) -> f64 {
        if self.most <= 0.0 {
            return 0.0;
        }
        (value / self.most).clamp(0.0, 1.0) * self.length
    }
}

/// A scale of time on which seconds and days both show, and on which zero has a place.
///
/// Up to the *knee* it is nearly even; beyond it each doubling takes the same length.
#[derive(Clone, Copy, Debug)]
pub struct Stretched {
    knee_ms: f64,
    most_ms: f64,
    length: f64,
}

impl Stretched {
    /// A scale that puts `most_ms` at `length`, and begins to compress at `knee_ms`.
    pub fn new(knee_ms: u64, most_ms: u64, length: f64) -> Stretched {
        Stretched {
            knee_ms: knee_ms.max(1) as f64,
            most_ms: most_ms.max(1) as f64,
            length,
        }
    }

    /// Where a time falls; beyond the end, at the end.
    pub fn place(&self, ms: u64) -> f64 {
        let ms = (ms as f64).min(self.most_ms);
        (ms / self.knee_ms).ln_1p() / (self.most_ms / self.knee_ms).ln_1p() * self.length
    }

    /// The last time on the scale.
    pub fn most_ms(&self) -> u64 {
        self.most_ms as u64
    }

    /// The time at which the scale begins to compress.
    pub fn knee_ms(&self) -> u64 {
        self.knee_ms as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_even_scale_is_even_and_stays_on_its_line() {
        let scale = Even::new(200.0, 50.0);
        assert_eq!(scale.place(0.0), 0.0);
        assert_eq!(scale.place(100.0), 25.0);
        assert_eq!(scale.place(200.0), 50.0);
        assert_eq!(scale.place(900.0), 50.0);
        assert_eq!(scale.place(-1.0), 0.0);
        assert_eq!(Even::new(0.0, 50.0).place(1.0), 0.0);
    }

    #[test]
    fn a_stretched_scale_shows_seconds_and_days() {
        let scale = Stretched::new(5_000, 259_200_000, 100.0);
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
        let scale = Stretched::new(1, 1 << 40, 40.0);
        let step = |power: u32| scale.place(1 << (power + 1)) - scale.place(1 << power);
        assert!((step(20) - step(35)).abs() < 1e-3);
    }
}
