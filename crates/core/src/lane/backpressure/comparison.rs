//! The results before and after the rate was lowered, compared.
//!
//! [`log_odds`] tells which of two explanations fits them better: the receiver was overloaded, so that hardly any
//! request fails at the lower rate, or at most a third of the share that failed before; or failures do not depend on the rate.
//! The share that failed before is known only from a sample, and often from an unlucky one, because a trial starts
//! when many requests of an interval fail. So the odds are averaged over all shares, each weighted by how well it explains
//! the sample.

use super::LoadResult;

/// The smallest share of failures that is taken into account.
const MIN_SHARE: f64 = 0.1;
/// Number of shares that the odds are averaged over.
const SHARES: u32 = 30;
/// The part of the failing share that remains at most if the receiver was overloaded.
const SHARE_IF_OVERLOADED: f64 = 1.0 / 3.0;
/// The share that remains at least: a few requests fail for other reasons.
const MIN_SHARE_IF_OVERLOADED: f64 = 0.03;
/// The number of results for which the sample before counts at most. For larger samples the shares are too far apart.
const MAX_RESULTS_BEFORE: f64 = 100.0;
/// The logarithm of the weight of each of the two shares that can remain.
const HALF_LOG: f64 = -std::f64::consts::LN_2;

/// Numbers of results.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Results {
    pub(super) accepted: u32,
    pub(super) failed: u32,
}

impl Results {
    pub(super) fn total(self) -> u32 {
        self.accepted + self.failed
    }

    pub(super) fn add(&mut self, result: LoadResult) {
        match result {
            LoadResult::Accepted => self.accepted += 1,
            LoadResult::Failed | LoadResult::Overloaded => self.failed += 1,
        }
    }

    pub(super) fn plus(self, other: Results) -> Results {
        Results {
            accepted: self.accepted + other.accepted,
            failed: self.failed + other.failed,
        }
    }

    /// Returns the share of failures.
    pub(super) fn failed_share(self) -> f64 {
        f64::from(self.failed) / f64::from(self.total().max(1))
    }

    fn log_likelihood(self, share: f64) -> f64 {
        f64::from(self.failed) * share.ln() + f64::from(self.accepted) * (1.0 - share).ln()
    }
}

/// Returns the logarithm of the odds for overload: positive if it explains the results before and after the rate was
/// lowered better than failures that do not depend on the rate.
pub(super) fn log_odds(before: Results, after: Results) -> f64 {
    let weight = (MAX_RESULTS_BEFORE / f64::from(before.total().max(1))).min(1.0);
    let (mut overloaded, mut independent) = (LogSum::default(), LogSum::default());
    for index in 0..SHARES {
        let part = (f64::from(index) + 0.5) / f64::from(SHARES);
        let share = MIN_SHARE + part * (1.0 - MIN_SHARE);
        let before = weight * before.log_likelihood(share);
        let most_remaining = (share * SHARE_IF_OVERLOADED).max(MIN_SHARE_IF_OVERLOADED);
        for remaining in [MIN_SHARE_IF_OVERLOADED, most_remaining] {
            overloaded.add(before + HALF_LOG + after.log_likelihood(remaining));
        }
        independent.add(before + after.log_likelihood(share));
    }
    overloaded.log() - independent.log()
}

/// The logarithm of a sum whose terms are given by their logarithms, and may be too small for a number.
#[derive(Clone, Copy)]
struct LogSum {
    largest: f64,
    /// The sum, divided by its largest term.
    scaled: f64,
}

impl Default for LogSum {
    fn default() -> LogSum {
        LogSum {
            largest: f64::NEG_INFINITY,
            scaled: 0.0,
        }
    }
}

impl LogSum {
    fn add(&mut self, log: f64) {
        if log > self.largest {
            self.scaled *= (self.largest - log).exp();
            self.largest = log;
        }
        self.scaled += (log - self.largest).exp();
    }

    fn log(self) -> f64 {
        self.largest + self.scaled.ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(accepted: u32, failed: u32) -> Results {
        Results { accepted, failed }
    }

    #[test]
    fn failures_that_vanish_at_the_lower_rate_are_overload() {
        assert!(log_odds(results(40, 40), results(20, 0)) > 3.0);
        assert!(log_odds(results(60, 20), results(40, 1)) > 3.0);
        // Failures for other reasons remain.
        assert!(log_odds(results(40, 60), results(60, 8)) > 3.0);
    }

    #[test]
    fn failures_that_remain_do_not_depend_on_the_rate() {
        assert!(log_odds(results(64, 16), results(40, 10)) < -3.0);
        assert!(log_odds(results(40, 40), results(10, 10)) < -3.0);
    }

    #[test]
    fn an_unlucky_sample_before_the_trial_is_no_proof_of_overload() {
        // A fifth fails, but 12 of 36 failed when the trial started. A comparison with exactly a third would take the
        // lower share for overload.
        assert!(log_odds(results(24, 12), results(65, 15)) < 1.0);
        assert!(log_odds(results(0, 0), results(0, 0)).abs() < 1e-9);
    }

    #[test]
    fn many_results_give_finite_odds() {
        for (before, after) in [
            (results(0, u32::MAX / 2), results(u32::MAX / 2, 0)),
            (results(u32::MAX / 2, 0), results(0, u32::MAX / 2)),
        ] {
            assert!(log_odds(before, after).is_finite());
        }
    }
}
