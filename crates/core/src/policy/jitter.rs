//! Five kinds of jitter.
//!
//! Jitter spreads retries, so that deliveries that failed together are not retried together. `range` returns the
//! interval from which a delay is drawn; the draw itself is uniform over the interval, both ends included. The
//! result depends only on the policy, the number of the retry and, for decorrelated jitter, on the previous delay.

use serde::Serialize;

use super::Backoff;
use crate::time::Span;

/// The way in which a nominal delay `d` is randomised.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Jitter {
    /// Exactly `d`.
    None,
    /// Uniform in `[0, d]`.
    Full,
    /// Uniform in `[d/2, d]`.
    Equal,
    /// Uniform in `[base, 3 × the previous delay]`, capped. It depends on the previous delay and not on the number
    /// of the retry: only the first delay (the base) and the cap of the shape are used.
    Decorrelated,
    /// Uniform within `fraction` of `d` in both directions.
    Proportional {
        /// Maximum deviation as a fraction of `d`, from 0 to 1.
        fraction: f64,
    },
}

impl Jitter {
    /// Returns the interval from which the delay before retry number `retry` is drawn, both ends included.
    pub(super) fn range(self, shape: &Backoff, retry: u32, previous: Option<Span>) -> (Span, Span) {
        let nominal = shape.nominal(retry);
        let ms = nominal.as_millis();
        match self {
            Jitter::None => (nominal, nominal),
            Jitter::Full => (Span::ZERO, nominal),
            Jitter::Equal => (Span::from_millis(ms / 2), nominal),
            Jitter::Decorrelated => {
                let base = shape.nominal(1).min(shape.cap());
                let last = previous.unwrap_or(base);
                (base, last.times(3).min(shape.cap()).max(base))
            }
            Jitter::Proportional { fraction } => {
                let reach = (ms as f64 * fraction).round() as u64;
                let least = Span::from_millis(ms.saturating_sub(reach));
                (least, nominal.plus(Span::from_millis(reach)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Preset, RetryPolicy};
    use crate::rng::Rng;
    use proptest::prelude::*;

    const ALL: [Jitter; 5] = [
        Jitter::None,
        Jitter::Full,
        Jitter::Equal,
        Jitter::Decorrelated,
        Jitter::Proportional { fraction: 0.2 },
    ];

    fn policy(interval_ms: u64, jitter: Jitter) -> RetryPolicy {
        RetryPolicy {
            backoff: Backoff::Fixed {
                interval: Span::from_millis(interval_ms),
            },
            jitter,
            ..Preset::Recommended.policy()
        }
    }

    #[test]
    fn each_jitter_interval_is_as_documented() {
        let previous = Some(Span::from_millis(2_000));
        for (jitter, least, most) in [
            (Jitter::None, 1_000, 1_000),
            (Jitter::Full, 0, 1_000),
            (Jitter::Equal, 500, 1_000),
            (Jitter::Decorrelated, 1_000, 6_000),
            (Jitter::Proportional { fraction: 0.2 }, 800, 1_200),
        ] {
            let range = policy(1_000, jitter).delay_range(4, previous);
            assert_eq!(
                range,
                (Span::from_millis(least), Span::from_millis(most)),
                "{jitter:?}"
            );
        }
    }

    #[test]
    fn decorrelated_starts_at_its_base_and_respects_its_cap() {
        let shape = Backoff::Exponential {
            base: Span::from_secs(10),
            factor: 2.0,
            cap: Span::from_secs(60),
        };
        let range = |previous| Jitter::Decorrelated.range(&shape, 9, previous);
        assert_eq!(range(None), (Span::from_secs(10), Span::from_secs(30)));
        assert_eq!(
            range(Some(Span::from_secs(15))),
            (Span::from_secs(10), Span::from_secs(45))
        );
        assert_eq!(
            range(Some(Span::from_secs(50))),
            (Span::from_secs(10), Span::from_secs(60))
        );
    }

    /// Chi-squared test: counts many delays in 20 equal cells and compares the counts with a uniform distribution.
    #[test]
    fn every_jitter_covers_its_whole_interval_evenly() {
        const CELLS: u64 = 20;
        const THROWS: u64 = 100_000;
        // The 99.99th percentile of chi-squared with 19 degrees of freedom.
        const LIMIT: f64 = 50.8;
        for (seed, jitter) in ALL.into_iter().enumerate() {
            let policy = policy(60_000, jitter);
            let (least, most) = policy.delay_range(1, None);
            if least == most {
                continue;
            }
            let mut rng = Rng::seeded(seed as u64);
            let mut cells = [0u64; CELLS as usize];
            let width = most.as_millis() - least.as_millis() + 1;
            for _ in 0..THROWS {
                let delay = policy.delay(1, None, &mut rng);
                let offset_ms = delay.as_millis() - least.as_millis();
                cells[(offset_ms * CELLS / width) as usize] += 1;
            }
            let expected = THROWS as f64 / CELLS as f64;
            let chi_squared: f64 = cells
                .iter()
                .map(|count| (*count as f64 - expected).powi(2) / expected)
                .sum();
            assert!(
                chi_squared < LIMIT,
                "{jitter:?} is not uniform: chi squared {chi_squared} from {cells:?}"
            );
        }
    }

    /// With a narrow interval every single value must occur, in particular both ends.
    #[test]
    fn every_jitter_reaches_both_ends() {
        for jitter in ALL {
            let policy = policy(20, jitter);
            let (least, most) = policy.delay_range(1, None);
            let mut rng = Rng::seeded(9);
            let mut seen: Vec<Span> = (0..5_000)
                .map(|_| policy.delay(1, None, &mut rng))
                .collect();
            seen.sort_unstable();
            seen.dedup();
            let every: Vec<Span> = (least.as_millis()..=most.as_millis())
                .map(Span::from_millis)
                .collect();
            assert_eq!(seen, every, "{jitter:?}");
        }
    }

    proptest! {
        #[test]
        fn delays_stay_within_bounds_at_any_size(
            interval_ms in 1u64..=u64::MAX / 4,
            retry in 1u32..,
            previous_ms: Option<u64>,
            fraction in 0.0..=1.0f64,
            seed: u64,
        ) {
            let mut rng = Rng::seeded(seed);
            let jitters = ALL.into_iter().chain([Jitter::Proportional { fraction }]);
            for jitter in jitters {
                let policy = policy(interval_ms, jitter);
                let previous = previous_ms.map(Span::from_millis);
                let (least, most) = policy.delay_range(retry, previous);
                prop_assert!(least <= most);
                let delay = policy.delay(retry, previous, &mut rng);
                prop_assert!(least <= delay && delay <= most, "{jitter:?}");
            }
        }
    }
}
