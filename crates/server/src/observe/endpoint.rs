//! How one endpoint answered lately.

use std::time::Duration;

/// So many of the last attempts count.
pub const ATTEMPTS_SEEN: usize = 128;

/// How an endpoint answered lately.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EndpointFigures {
    /// The share of the last attempts that succeeded; 1 where there was none.
    pub success_ratio: f64,
    /// Half of the last attempts took at most so long.
    pub p50_ms: Option<f64>,
    /// All but one in a hundred took at most so long.
    pub p99_ms: Option<f64>,
}

/// The last attempts to one endpoint.
#[derive(Clone, Debug)]
pub struct LatelySeen {
    /// Latencies, written round and round.
    micros: Box<[u32; ATTEMPTS_SEEN]>,
    /// A bit for each, set if it succeeded.
    succeeded: u128,
    /// How many attempts were seen at all.
    count: u64,
}

impl Default for LatelySeen {
    fn default() -> LatelySeen {
        LatelySeen {
            micros: Box::new([0; ATTEMPTS_SEEN]),
            succeeded: 0,
            count: 0,
        }
    }
}

impl LatelySeen {
    /// Takes note of an attempt.
    pub fn add(&mut self, latency: Duration, succeeded: bool) {
        let place = (self.count % ATTEMPTS_SEEN as u64) as usize;
        self.micros[place] = u32::try_from(latency.as_micros()).unwrap_or(u32::MAX);
        self.succeeded &= !(1 << place);
        self.succeeded |= u128::from(succeeded) << place;
        self.count += 1;
    }

    /// What it comes to.
    pub fn figures(&self) -> EndpointFigures {
        let seen = self.count.min(ATTEMPTS_SEEN as u64) as usize;
        let mut micros = self.micros[..seen].to_vec();
        micros.sort_unstable();
        let success_ratio = match seen {
            0 => 1.0,
            seen => f64::from(self.succeeded.count_ones()) / seen as f64,
        };
        EndpointFigures {
            success_ratio,
            p50_ms: percentile_ms(&micros, 50),
            p99_ms: percentile_ms(&micros, 99),
        }
    }
}

/// The least value that so many percent are not above.
fn percentile_ms(sorted_micros: &[u32], percent: usize) -> Option<f64> {
    let rank = (sorted_micros.len() * percent).div_ceil(100);
    let micros = sorted_micros.get(rank.checked_sub(1)?)?;
    Some(f64::from(*micros) / 1_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn nothing_seen_is_nothing_wrong() {
        let none = LatelySeen::default().figures();
        assert_eq!(none.success_ratio, 1.0);
        assert_eq!((none.p50_ms, none.p99_ms), (None, None));
    }

    #[test]
    fn percentiles_are_values_that_were_seen() {
        let mut lately = LatelySeen::default();
        lately.add(Duration::from_micros(1_500), true);
        let one = lately.figures();
        assert_eq!((one.p50_ms, one.p99_ms), (Some(1.5), Some(1.5)));
        for latency in 1..=100 {
            lately.add(ms(latency), latency % 4 != 0);
        }
        let many = lately.figures();
        assert_eq!((many.p50_ms, many.p99_ms), (Some(50.0), Some(99.0)));
        assert!((many.success_ratio - 76.0 / 101.0).abs() < 1e-9);
    }

    #[test]
    fn only_the_last_attempts_count() {
        let mut lately = LatelySeen::default();
        for _ in 0..ATTEMPTS_SEEN {
            lately.add(ms(9_000), false);
        }
        assert_eq!(lately.figures().success_ratio, 0.0);
        for _ in 0..ATTEMPTS_SEEN {
            lately.add(ms(2), true);
        }
        let figures = lately.figures();
        assert_eq!(figures.success_ratio, 1.0);
        assert_eq!(figures.p99_ms, Some(2.0));
    }
}
