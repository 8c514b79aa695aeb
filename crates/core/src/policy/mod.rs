//! When to try again, and when to stop.
//!
//! A [`RetryPolicy`] is plain data: a [`Backoff`] shape, a [`Jitter`], a limit of attempts, a limit
//! of time, and the endpoint's own rules. It promises:
//!
//! - the delay before a retry follows from the retry's number, the delay before it, and the dice;
//! - every delay stays within its jitter's interval, and every value of the interval is as likely
//!   as any other;
//! - nothing overflows, at any attempt number, base or factor.

mod backoff;
mod explain;
mod jitter;
mod preset;
mod prose;
mod read;

pub use backoff::{Backoff, DEFAULT_CAP, MAX_DELAY, MIN_DELAY};
pub use explain::{AttemptWindow, Explanation};
pub use jitter::Jitter;
pub use preset::{Preset, UnknownPreset};
pub use read::{MAX_ATTEMPTS, MAX_GIVE_UP_AFTER, MAX_SCHEDULE};

use serde::Serialize;

use crate::classify::Rule;
use crate::dice::Dice;
use crate::time::Span;

/// When to try again, and when to stop.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RetryPolicy {
    /// How delays grow.
    pub backoff: Backoff,
    /// How delays are spread.
    pub jitter: Jitter,
    /// The most attempts one delivery gets, the first one included.
    pub max_attempts: u32,
    /// The longest a delivery is tried for, from when it was due. No retry is set beyond it.
    pub give_up_after: Span,
    /// What the endpoint wants done with certain answers, before the default table.
    pub rules: Vec<Rule>,
}

impl Default for RetryPolicy {
    fn default() -> RetryPolicy {
        Preset::Recommended.policy()
    }
}

impl RetryPolicy {
    /// The policy that holds: the endpoint's own, or its tenant's, or the server's.
    pub fn most_specific<'a>(
        endpoint: Option<&'a RetryPolicy>,
        tenant: Option<&'a RetryPolicy>,
        server: &'a RetryPolicy,
    ) -> &'a RetryPolicy {
        endpoint.or(tenant).unwrap_or(server)
    }

    /// The delay before retry number `retry` (the first is 1), given the delay before the last one.
    pub fn delay(&self, retry: u32, previous: Option<Span>, dice: &mut Dice) -> Span {
        let (least, most) = self.delay_range(retry, previous);
        let delay = Span::from_millis(dice.between(least.as_millis(), most.as_millis()));
        debug_assert!(least <= delay && delay <= most);
        delay
    }

    /// The interval from which the delay before retry number `retry` is drawn, both ends included.
    pub fn delay_range(&self, retry: u32, previous: Option<Span>) -> (Span, Span) {
        self.jitter.range(&self.backoff, retry, previous)
    }
}
