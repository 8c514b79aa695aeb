//! Retry policies: when a delivery is retried, and when it fails for good.
//!
//! A [`RetryPolicy`] is plain data: a [`Backoff`] shape, a [`Jitter`], a maximum number of attempts, a maximum
//! duration, and the endpoint's own rules. It guarantees:
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

pub use backoff::{Backoff, DEFAULT_CAP, MAX_DELAY, MIN_DELAY};
pub use explain::{AttemptWindow, Explanation};
pub use jitter::Jitter;
pub use preset::{Preset, UnknownPreset};
pub use read::{MAX_ATTEMPTS, MAX_GIVE_UP_AFTER, MAX_SCHEDULE};

use serde::Serialize;

use crate::classify::Rule;
use crate::rng::Rng;
use crate::time::Span;

/// A retry policy: decides when a delivery is retried, and when it fails for good.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RetryPolicy {
    /// The growth of the delays.
    pub backoff: Backoff,
    /// The randomisation of the delays.
    pub jitter: Jitter,
    /// Maximum number of attempts of one delivery, including the first.
    pub max_attempts: u32,
    /// Maximum duration of the retries, counted from when the delivery was due. No retry is scheduled after it.
    pub give_up_after: Span,
    /// The endpoint's own classification rules, which are checked before the default table.
    pub rules: Vec<Rule>,
}

impl Default for RetryPolicy {
    fn default() -> RetryPolicy {
        Preset::Recommended.policy()
    }
}

impl RetryPolicy {
    /// Returns the policy in force: the endpoint's own, otherwise the tenant's, otherwise the server's.
    pub fn most_specific<'a>(
        endpoint: Option<&'a RetryPolicy>,
        tenant: Option<&'a RetryPolicy>,
        server: &'a RetryPolicy,
    ) -> &'a RetryPolicy {
        endpoint.or(tenant).unwrap_or(server)
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
