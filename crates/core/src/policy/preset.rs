//! Five named retry policies.
//!
//! [`Preset::policy`] returns the complete policy of a name; `recommended` is the default. A preset has its own delays
//! and its own rules about which failures are retried; `recommended` uses the default table. Users name a preset
//! instead of writing a policy, or change some fields of one. [`UnknownPreset`] is the error for any other name and
//! lists the valid ones.

use std::str::FromStr;

use super::{Backoff, Jitter, LateAction, RetryPolicy};
use crate::classify::{FailureKind, HttpStatus, Rule, RuleAction, RuleMatch};
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
#[error("{0} is not a preset; presets: recommended, patient, swift, steady, brisk")]
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
                self.with(schedule(&delays), a_fifth, 9, three_days)
            }
            Preset::Patient => {
                let delays = [MINUTE, 5 * MINUTE, 30 * MINUTE, 2 * HOUR, 12 * HOUR];
                self.with(schedule(&delays), a_fifth, 6, three_days)
            }
            Preset::Swift => {
                let backoff = Backoff::Exponential {
                    base: Span::from_secs(1),
                    factor: 6.0,
                    cap: Span::from_hours(24),
                };
                // 3.6 days.
                self.with(backoff, Jitter::Full, 10, Span::from_mins(5_184))
            }
            Preset::Steady => {
                let backoff = Backoff::Exponential {
                    base: Span::from_mins(1),
                    factor: 2.0,
                    cap: Span::from_hours(1),
                };
                self.with(backoff, Jitter::Equal, 16, three_days)
            }
            Preset::Brisk => {
                let delays = [30, 2 * MINUTE, 10 * MINUTE, HOUR];
                self.with(schedule(&delays), a_fifth, 5, three_days)
            }
        }
    }
}

impl Preset {
    fn with(
        self,
        backoff: Backoff,
        jitter: Jitter,
        max_attempts: u32,
        give_up_after: Span,
    ) -> RetryPolicy {
        RetryPolicy {
            backoff,
            jitter,
            max_attempts,
            give_up_after,
            rules: Vec::new(),
            preset_rules: self.rules(),
            late: LateAction::Send,
        }
    }

    /// Returns the rules by which the preset differs from the default table. The first that matches wins.
    fn rules(self) -> Vec<Rule> {
        let retry = RuleAction::Retry { limit: None };
        let class = |class, then| rule(RuleMatch::Class(class), then);
        match self {
            Preset::Recommended => Vec::new(),
            // 408 and 409 are often temporary, 429 asks to wait. Other 4xx are errors of the sender.
            Preset::Patient => vec![
                status(408, retry),
                status(409, retry),
                status(429, retry),
                class(4, RuleAction::Fail),
            ],
            // Whatever the answer is, unless it is 2xx.
            Preset::Swift => vec![rule(RuleMatch::Kind(FailureKind::Http), retry)],
            // When in doubt, retry: only these statuses are permanent.
            Preset::Steady => vec![
                status(400, RuleAction::Fail),
                status(401, RuleAction::Fail),
                status(403, RuleAction::Fail),
                status(410, RuleAction::Fail),
                status(422, RuleAction::Fail),
                rule(RuleMatch::Kind(FailureKind::Http), retry),
            ],
            Preset::Brisk => vec![
                status(404, RuleAction::Fail),
                class(3, RuleAction::Fail),
                rule(
                    RuleMatch::Kind(FailureKind::Dns),
                    RuleAction::Retry { limit: Some(3) },
                ),
            ],
        }
    }
}

fn rule(on: RuleMatch, then: RuleAction) -> Rule {
    Rule { on, then }
}

fn status(code: u16, then: RuleAction) -> Rule {
    let status = HttpStatus::new(code).expect("the status code is valid");
    rule(RuleMatch::Status(status), then)
}

fn schedule(seconds: &[u64]) -> Backoff {
    Backoff::Schedule {
        delays: seconds.iter().copied().map(Span::from_secs).collect(),
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
