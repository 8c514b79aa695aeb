//! Forecast of the remaining attempts of a delivery.
//!
//! [`Delivery::expected_attempts`] returns the earliest, expected and latest time of each attempt that may still be
//! made ([`ExpectedAttempt`]), under the assumption that every attempt fails at once. It is computed from the retry
//! policy and changes nothing. A delivery that has ended has no upcoming attempts.

use super::{Delivery, State};
use crate::policy::{AttemptWindow, LateAction, RetryPolicy};
use crate::time::Timestamp;

/// One attempt that may still be made, if those before it fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpectedAttempt {
    /// Number of the attempt, over all rounds.
    pub number: u32,
    /// Earliest time of the attempt.
    pub earliest_at: Timestamp,
    /// Expected time of the attempt, on average.
    pub expected_at: Timestamp,
    /// Latest time of the attempt, unless the endpoint is held.
    pub latest_at: Timestamp,
}

impl Delivery {
    /// Returns the attempts that may still be made under this policy, as of `now`. None of them is before `not_before`,
    /// until when the endpoint is held back, nor in the past.
    ///
    /// The list is empty if the policy drops the delivery at its turn, because its deadline is over.
    ///
    /// While an attempt is in progress, the list starts with the one that follows if it fails now.
    pub fn expected_attempts(
        &self,
        policy: &RetryPolicy,
        now: Timestamp,
        not_before: Timestamp,
    ) -> Vec<ExpectedAttempt> {
        let not_before = not_before.max(now);
        let (first_at, in_progress) = match self.state {
            State::Pending(turn) | State::Retrying(turn) | State::Held(turn) => {
                (turn.at.max(not_before), false)
            }
            State::InProgress { .. } => (now, true),
            State::Succeeded { .. } | State::Failed { .. } | State::Cancelled { .. } => {
                return Vec::new();
            }
        };
        if self.is_dropped_at(first_at, policy) {
            return Vec::new();
        }
        let facts = &self.facts;
        let first = AttemptWindow {
            number: self.attempt_number(),
            earliest_ms: first_at.0,
            expected_ms: first_at.0,
            latest_ms: first_at.0,
        };
        policy
            .windows(first, facts.spent, facts.previous_delay, facts.give_up_at.0)
            .into_iter()
            .skip(usize::from(in_progress))
            .map(|window| ExpectedAttempt {
                number: window.number,
                earliest_at: Timestamp(window.earliest_ms).max(not_before),
                expected_at: Timestamp(window.expected_ms).max(not_before),
                latest_at: Timestamp(window.latest_ms).max(not_before),
            })
            .filter(|upcoming| {
                let is_possible = upcoming.expected_at <= facts.give_up_at;
                upcoming.number == first.number || policy.late == LateAction::Send || is_possible
            })
            .collect()
    }
}
