//! Retry policies: when a delivery is retried, and when it fails for good.
//!
//! A [`RetryPolicy`] is plain data: a [`Backoff`] shape, a [`Jitter`], a maximum number of attempts, a maximum
//! duration, rules that say which failures are retried, and what happens to deliveries that were held back past
//! their deadline ([`LateAction`]). It guarantees:
//!
//! - The delay before a retry depends only on the number of the retry, the previous delay and the random number
//!   generator.
//! - Every delay is within the interval of its jitter, and all values of the interval are equally likely.
//! - Nothing overflows, for any attempt number, base or factor.

mod backoff;
mod describe;
mod explain;
mod jitter;
mod preset;
mod read;
mod verdicts;

pub use backoff::{Backoff, DEFAULT_CAP, MAX_DELAY, MIN_DELAY};
pub use explain::{AttemptWindow, Explanation};
pub use jitter::Jitter;
pub use preset::{Preset, UnknownPreset};
pub use read::{MAX_ATTEMPTS, MAX_FACTOR, MAX_GIVE_UP_AFTER, MAX_SCHEDULE};
pub use verdicts::{FailureAction, VerdictGroup};

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::classify::{Rule, Rules};
use crate::rng::Rng;
use crate::time::Span;

/// The fate of a delivery that was held back past its deadline by a pause, the breaker, a limit or a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LateAction {
    /// It is sent when its turn comes.
    #[default]
    Send,
    /// It fails as expired when its turn comes, without another attempt.
    Drop,
}

/// A retry policy: decides when a delivery is retried, and when it fails for good.
#[derive(Clone, Debug, PartialEq)]
pub struct RetryPolicy {
    /// The growth of the delays.
    pub backoff: Backoff,
    /// The randomisation of the delays.
    pub jitter: Jitter,
    /// Maximum number of attempts of one delivery, including the first.
    pub max_attempts: u32,
    /// Maximum duration of the retries, counted from when the delivery was due. No retry is scheduled after it.
    pub give_up_after: Span,
    /// The policy's own classification rules, which are checked first.
    pub rules: Vec<Rule>,
    /// The rules of the preset that the policy names, which are checked next, before the default table.
    pub preset_rules: Vec<Rule>,
    /// The fate of a delivery that was held back past its deadline.
    pub late: LateAction,
}

impl Serialize for RetryPolicy {
    /// Writes the complete policy. It names no preset, so its `rules` include those of the preset.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut policy = serializer.serialize_struct("RetryPolicy", 6)?;
        policy.serialize_field("backoff", &self.backoff)?;
        policy.serialize_field("jitter", &self.jitter)?;
        policy.serialize_field("max_attempts", &self.max_attempts)?;
        policy.serialize_field("give_up_after", &self.give_up_after)?;
        let rules: Vec<&Rule> = self.rules.iter().chain(&self.preset_rules).collect();
        policy.serialize_field("rules", &rules)?;
        policy.serialize_field("late", &self.late)?;
        policy.end()
    }
}

impl Default for RetryPolicy {
    fn default() -> RetryPolicy {
        Preset::Recommended.policy()
    }
}

impl RetryPolicy {
    /// Returns the classification rules, in the order in which they are checked.
    pub fn rules(&self) -> Rules<'_> {
        Rules {
            own: &self.rules,
            preset: &self.preset_rules,
        }
    }

    /// Returns a random delay before retry number `retry` (the first is 1), given the previous delay.
    pub fn delay(&self, retry: u32, previous: Option<Span>, rng: &mut Rng) -> Span {
        let (least, most) = self.delay_range(retry, previous);
        let delay = Span::from_millis(rng.between(least.as_millis(), most.as_millis()));
        debug_assert!(least <= delay && delay <= most);
        delay
    }

    /// Returns the interval from which the delay before retry number `retry` is drawn, both ends included.
    pub fn delay_range(&self, retry: u32, previous: Option<Span>) -> (Span, Span) {
        self.jitter.range(&self.backoff, retry, previous)
    }
}
