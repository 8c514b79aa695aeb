//! Explains a policy before it is used: the earliest, expected and latest time of each attempt.
//!
//! [`RetryPolicy::explain`] assumes that every attempt fails at once and returns an [`Explanation`] with one
//! [`AttemptWindow`] per attempt. [`RetryPolicy::windows`] does the same for a delivery that has already been
//! attempted.
//!
//! The mean of a decorrelated delay is computed from a sample of its distribution; all other values are computed
//! directly.

use serde::Serialize;

use super::{Jitter, RetryPolicy, VerdictGroup};
use crate::time::Span;

/// The times of one attempt, in milliseconds. In an [`Explanation`] they count from when the delivery is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct AttemptWindow {
    /// Number of the attempt; the first is 1.
    pub number: u32,
    /// Earliest time.
    pub earliest_ms: u64,
    /// Expected time, on average.
    pub expected_ms: u64,
    /// Latest time.
    pub latest_ms: u64,
}

/// The explanation of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The attempts to expect if each one fails at once.
    pub attempts: Vec<AttemptWindow>,
    /// Latest time at which the delivery is dead-lettered.
    pub gives_up_ms: u64,
    /// The deadline: no retry is scheduled after it.
    pub deadline_ms: u64,
    /// The verdict on every failure, grouped.
    pub verdicts: Vec<VerdictGroup>,
    /// The same in words.
    pub words: String,
}

impl RetryPolicy {
    /// Explains when each attempt is made if every attempt fails at once.
    pub fn explain(&self) -> Explanation {
        let first = AttemptWindow {
            number: 1,
            earliest_ms: 0,
            expected_ms: 0,
            latest_ms: 0,
        };
        let deadline_ms = self.give_up_after.as_millis();
        let attempts = self.windows(first, 0, None, deadline_ms);
        let cut_short = attempts.len() < self.max_attempts as usize;
        let gives_up_ms = match attempts.last() {
            Some(last) if !cut_short => last.latest_ms,
            Some(_) | None => deadline_ms,
        };
        let words = self.words(&attempts);
        Explanation {
            attempts,
            gives_up_ms,
            deadline_ms,
            verdicts: self.verdicts(),
            words,
        }
    }

    /// Returns the times of a scheduled attempt and of the attempts that may follow it.
    ///
    /// `spent` attempts were made before `first`, and `previous` was the delay before it. The list ends before the
    /// first attempt whose expected time is after `deadline_ms`.
    pub fn windows(
        &self,
        first: AttemptWindow,
        spent: u32,
        previous: Option<Span>,
        deadline_ms: u64,
    ) -> Vec<AttemptWindow> {
        let mut walk = Walk::new(self, previous);
        let mut windows = vec![first];
        let mut last = first;
        for retry in spent + 1..self.max_attempts {
            let delay = walk.step(retry);
            last = AttemptWindow {
                number: last.number + 1,
                earliest_ms: last.earliest_ms.saturating_add(delay.earliest_ms),
                expected_ms: last.expected_ms.saturating_add(delay.expected_ms),
                latest_ms: last.latest_ms.saturating_add(delay.latest_ms),
            };
            if last.expected_ms > deadline_ms {
                break;
            }
            windows.push(AttemptWindow {
                latest_ms: last.latest_ms.min(deadline_ms),
                ..last
            });
        }
        windows
    }
}

/// The bounds and the mean of one delay.
struct DelayWindow {
    earliest_ms: u64,
    expected_ms: u64,
    latest_ms: u64,
}

/// Iterates over a policy's delays and keeps the state of the last one that decorrelated jitter needs.
struct Walk<'a> {
    policy: &'a RetryPolicy,
    shortest: Option<Span>,
    longest: Option<Span>,
    /// A sample of [`LIKELY_VALUES`] equally likely values of the last delay.
    likely_ms: Vec<f64>,
    settled_ms: Option<u64>,
}

/// Number of sample values that represent the distribution of a decorrelated delay.
const LIKELY_VALUES: usize = 128;
/// Number of values that each sample value branches into at the next retry.
const BRANCHES: usize = 8;
/// Number of retries after which the distribution of a decorrelated delay no longer changes.
const SETTLED_AFTER: u32 = 64;

impl<'a> Walk<'a> {
    fn new(policy: &'a RetryPolicy, previous: Option<Span>) -> Walk<'a> {
        let last = previous.unwrap_or_else(|| policy.backoff.nominal(1));
        Walk {
            policy,
            shortest: previous,
            longest: previous,
            likely_ms: vec![last.as_millis() as f64; LIKELY_VALUES],
            settled_ms: None,
        }
    }

    fn step(&mut self, retry: u32) -> DelayWindow {
        let (least, _) = self.policy.delay_range(retry, self.shortest);
        let (_, most) = self.policy.delay_range(retry, self.longest);
        self.shortest = Some(least);
        self.longest = Some(most);
        let expected_ms = match self.policy.jitter {
            Jitter::Decorrelated => self.decorrelated_mean_ms(retry, least),
            Jitter::None | Jitter::Full | Jitter::Equal | Jitter::Proportional { .. } => {
                least.as_millis().midpoint(most.as_millis())
            }
        };
        DelayWindow {
            earliest_ms: least.as_millis(),
            expected_ms,
            latest_ms: most.as_millis(),
        }
    }

    /// Returns the mean of a decorrelated delay. The cap distorts the distribution, so the mean of the last delay
    /// is not enough. The whole distribution is tracked as a sample of equally likely values.
    fn decorrelated_mean_ms(&mut self, retry: u32, base: Span) -> u64 {
        if let (true, Some(settled)) = (retry > SETTLED_AFTER, self.settled_ms) {
            return settled;
        }
        let base_ms = base.as_millis() as f64;
        let cap_ms = self.policy.backoff.cap().as_millis() as f64;
        let mut branched: Vec<f64> = Vec::with_capacity(LIKELY_VALUES * BRANCHES);
        for last_ms in &self.likely_ms {
            let most_ms = (last_ms * 3.0).min(cap_ms).max(base_ms);
            for branch in 0..BRANCHES {
                let share = (branch as f64 + 0.5) / BRANCHES as f64;
                branched.push(base_ms + (most_ms - base_ms) * share);
            }
        }
        let mean = branched.iter().sum::<f64>() / branched.len() as f64;
        branched.sort_unstable_by(f64::total_cmp);
        self.likely_ms = branched
            .chunks(BRANCHES)
            .map(|chunk| chunk.iter().sum::<f64>() / chunk.len() as f64)
            .collect();
        let mean_ms = mean.round() as u64;
        self.settled_ms = Some(mean_ms);
        mean_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Backoff, LateAction, Preset};
    use crate::rng::Rng;

    #[test]
    fn the_recommended_policy_explained() {
        let explanation = Preset::Recommended.policy().explain();
        let expected: Vec<u64> = explanation
            .attempts
            .iter()
            .map(|a| a.expected_ms / 1_000)
            .collect();
        assert_eq!(
            expected,
            [0, 10, 40, 160, 760, 2_560, 9_760, 38_560, 124_960]
        );
        let second = explanation.attempts[1];
        assert_eq!((second.earliest_ms, second.latest_ms), (8_000, 12_000));
        assert_eq!(explanation.gives_up_ms, 149_952_000);
        assert_eq!(explanation.deadline_ms, 259_200_000);
    }

    #[test]
    fn no_attempt_is_listed_beyond_the_deadline() {
        let policy = RetryPolicy {
            backoff: Backoff::Fixed {
                interval: Span::from_secs(60),
            },
            jitter: Jitter::Proportional { fraction: 0.5 },
            max_attempts: 100,
            give_up_after: Span::from_secs(130),
            rules: Vec::new(),
            preset_rules: Vec::new(),
            late: LateAction::Send,
        };
        let explanation = policy.explain();
        // After 60 s and 120 s on average; a third retry at 180 s is not to be expected.
        let expected: Vec<u64> = explanation.attempts.iter().map(|a| a.expected_ms).collect();
        assert_eq!(expected, [0, 60_000, 120_000]);
        assert_eq!(explanation.attempts[2].latest_ms, 130_000);
        assert_eq!(explanation.gives_up_ms, 130_000);
    }

    #[test]
    fn a_deadline_does_not_squeeze_delays() {
        let policy = RetryPolicy {
            max_attempts: 20,
            ..Preset::Recommended.policy()
        };
        let attempts = policy.explain().attempts;
        let day_ms = Span::from_hours(24).as_millis();
        assert_eq!(attempts.len(), 10);
        assert_eq!(attempts[9].expected_ms - attempts[8].expected_ms, day_ms);
    }

    /// The explanation matches simulated histories: the mean of many is the expected time, and none is outside the
    /// window.
    #[test]
    fn simulated_delays_match_the_explanation() {
        let shape = Backoff::Exponential {
            base: Span::from_secs(2),
            factor: 2.0,
            cap: Span::from_secs(40),
        };
        for (seed, jitter) in [
            Jitter::None,
            Jitter::Full,
            Jitter::Equal,
            Jitter::Decorrelated,
            Jitter::Proportional { fraction: 0.3 },
        ]
        .into_iter()
        .enumerate()
        {
            const HISTORIES: u64 = 20_000;
            let policy = RetryPolicy {
                backoff: shape.clone(),
                jitter,
                max_attempts: 12,
                ..Preset::Recommended.policy()
            };
            let windows = policy.explain().attempts;
            let mut sums = vec![0u64; windows.len()];
            let mut rng = Rng::seeded(seed as u64);
            for _ in 0..HISTORIES {
                let (mut at, mut previous) = (0, None);
                for (retry, window) in windows.iter().enumerate().skip(1) {
                    let delay = policy.delay(retry as u32, previous, &mut rng);
                    previous = Some(delay);
                    at += delay.as_millis();
                    assert!(
                        (window.earliest_ms..=window.latest_ms).contains(&at),
                        "{jitter:?}"
                    );
                    sums[retry] += at;
                }
            }
            for (window, sum) in windows.iter().zip(sums).skip(1) {
                let mean = (sum / HISTORIES) as f64;
                let expected = window.expected_ms as f64;
                let error = (mean - expected).abs() / expected;
                assert!(
                    error < 0.02,
                    "{jitter:?} attempt {}: the mean is {mean}, expected {expected}",
                    window.number
                );
            }
        }
    }

    #[test]
    fn a_thousand_decorrelated_attempts_are_explained() {
        let policy = RetryPolicy {
            backoff: Backoff::Fixed {
                interval: Span::from_millis(1),
            },
            jitter: Jitter::Decorrelated,
            max_attempts: 1_000,
            give_up_after: Span::from_days(90),
            rules: Vec::new(),
            preset_rules: Vec::new(),
            late: LateAction::Send,
        };
        let explanation = policy.explain();
        assert!(explanation.attempts.len() > 64);
        assert_eq!(explanation.gives_up_ms, explanation.deadline_ms);
    }
}
