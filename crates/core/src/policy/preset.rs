//! Five named retry policies.
//!
//! [`Preset::policy`] returns the complete policy of a name; `recommended` is the default. Users name a preset
//! instead of writing a policy, or change some fields of one. [`UnknownPreset`] is the error for any other name and
//! lists the valid ones.

use std::str::FromStr;

use super::{Backoff, Jitter, RetryPolicy};
use crate::quoted::quoted;
use crate::time::Span;

/// A named retry policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// Nine attempts over a day and a half; the default.
    Recommended,
    /// Six attempts over most of a day: slow from the start.
    Patient,
    /// Ten attempts, the first retry within a second: short delays first, then very long ones.
    Swift,
    /// Sixteen attempts over ten hours, at most an hour apart.
    Steady,
    /// Five attempts in little more than an hour.
    Brisk,
}

/// No preset has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a preset; there are: recommended, patient, swift, steady, brisk")]
pub struct UnknownPreset(String);

impl Preset {
    /// Every preset, the default first.
    pub const ALL: [Preset; 5] = [
        Preset::Recommended,
        Preset::Patient,
        Preset::Swift,
        Preset::Steady,
        Preset::Brisk,
    ];

    /// Returns the preset's name.
    pub fn name(self) -> &'static str {
        match self {
            Preset::Recommended => "recommended",
            Preset::Patient => "patient",
            Preset::Swift => "swift",
            Preset::Steady => "steady",
            Preset::Brisk => "brisk",
        }
    }

    /// Returns the policy of the preset.
    pub fn policy(self) -> RetryPolicy {
        const MINUTE: u64 = 60;
        const HOUR: u64 = 60 * MINUTE;
        let three_days = Span::from_hours(72);
        let a_fifth = Jitter::Proportional { fraction: 0.2 };
        match self {
            Preset::Recommended => {
                let delays = [
                    10,
                    30,
                    2 * MINUTE,
                    10 * MINUTE,
                    30 * MINUTE,
                    2 * HOUR,
                    8 * HOUR,
                    24 * HOUR,
                ];
                policy(schedule(&delays), a_fifth, 9, three_days)
            }
            Preset::Patient => {
                let delays = [MINUTE, 5 * MINUTE, 30 * MINUTE, 2 * HOUR, 12 * HOUR];
                policy(schedule(&delays), a_fifth, 6, three_days)
            }
            Preset::Swift => {
                let backoff = Backoff::Exponential {
                    base: Span::from_secs(1),
                    factor: 6.0,
                    cap: Span::from_hours(24),
                };
                // 3.6 days.
                policy(backoff, Jitter::Full, 10, Span::from_mins(5_184))
            }
            Preset::Steady => {
                let backoff = Backoff::Exponential {
                    base: Span::from_mins(1),
                    factor: 2.0,
                    cap: Span::from_hours(1),
                };
                policy(backoff, Jitter::Equal, 16, three_days)
            }
            Preset::Brisk => {
                let delays = [30, 2 * MINUTE, 10 * MINUTE, HOUR];
                policy(schedule(&delays), a_fifth, 5, three_days)
            }
        }
    }
}

fn schedule(seconds: &[u64]) -> Backoff {
    Backoff::Schedule {
        delays: seconds.iter().copied().map(Span::from_secs).collect(),
    }
}

fn policy(backoff: Backoff, jitter: Jitter, max_attempts: u32, give_up_after: Span) -> RetryPolicy {
    RetryPolicy {
        backoff,
        jitter,
        max_attempts,
        give_up_after,
        rules: Vec::new(),
    }
}

impl FromStr for Preset {
    type Err = UnknownPreset;

    fn from_str(name: &str) -> Result<Preset, UnknownPreset> {
        Preset::ALL
            .into_iter()
            .find(|preset| preset.name() == name)
            .ok_or_else(|| UnknownPreset(quoted(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_presets_are_the_documented_ones() {
        let hours = |ms: u64| (ms as f64 / 3_600_000.0 * 10.0).round() / 10.0;
        for (preset, attempts, mean_hours, worst_hours, limit_hours) in [
            (Preset::Recommended, 9, 34.7, 41.7, 72.0),
            (Preset::Patient, 6, 14.6, 17.5, 72.0),
            (Preset::Swift, 10, 31.8, 63.6, 86.4),
            (Preset::Steady, 16, 7.5, 10.1, 72.0),
            (Preset::Brisk, 5, 1.2, 1.5, 72.0),
        ] {
            let policy = preset.policy();
            let explanation = policy.explain();
            let last = explanation
                .attempts
                .last()
                .expect("a policy has at least one attempt");
            assert_eq!(policy.max_attempts, attempts, "{preset:?}");
            assert_eq!(explanation.attempts.len(), attempts as usize, "{preset:?}");
            assert_eq!(hours(last.expected_ms), mean_hours, "{preset:?}");
            assert_eq!(hours(last.latest_ms), worst_hours, "{preset:?}");
            assert_eq!(
                hours(policy.give_up_after.as_millis()),
                limit_hours,
                "{preset:?}"
            );
        }
    }

    #[test]
    fn an_unknown_preset_names_the_known_ones() {
        let error = "eager"
            .parse::<Preset>()
            .expect_err("the preset does not exist");
        for preset in Preset::ALL {
            assert!(error.to_string().contains(preset.name()), "{error}");
            assert_eq!(preset.name().parse(), Ok(preset));
        }
    }
}
