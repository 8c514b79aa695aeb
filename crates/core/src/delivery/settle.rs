//! The end of an attempt: decides whether the delivery succeeded, is retried or is dead-lettered.
//!
//! [`Delivery::settle`] classifies the outcome, counts the attempt and computes the next state from the retry
//! policy ([`RetrySettings`]). It returns a [`SettledAttempt`], which is what the store records of the attempt.
//!
//! A delivery is dead-lettered if the failure is permanent, if the attempts or the retries of the failure's own
//! limit are used up, or if the next retry would fall after the deadline. The wait is the longer of backoff and
//! `Retry-After`.
//!
//! A probe that the receiver refuses does not fail its delivery and uses up none of the policy's attempts: the breaker
//! chose this delivery to test the destination, and the answer may be the same for every delivery.

use super::{DeadReason, Delivery, IllegalTransition, ScheduledAttempt, State, Trigger};
use crate::classify::{Classification, Failure, Outcome, Verdict, classify};
use crate::policy::RetryPolicy;
use crate::rng::Rng;
use crate::time::{Span, Timestamp};

/// Maximum wait of a delivery after it was used as a probe and refused. It may be the only one that waits, and then the
/// next probe as well: the breaker's own waits decide when that is sent.
const MAX_WAIT_AFTER_REFUSED_PROBE: Span = Span::from_mins(5);

/// The retry settings of an endpoint.
#[derive(Clone, Copy, Debug)]
pub struct RetrySettings<'a> {
    /// The retry policy.
    pub policy: &'a RetryPolicy,
    /// Maximum `Retry-After` that is honoured.
    pub retry_after_cap: Span,
}

/// The recorded result of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettledAttempt {
    /// Number of the attempt, over all rounds.
    pub number: u32,
    /// The trigger of the attempt.
    pub trigger: Trigger,
    /// Start time of the attempt.
    pub started_at: Timestamp,
    /// End time of the attempt.
    pub finished_at: Timestamp,
    /// The outcome of the attempt.
    pub outcome: Outcome,
    /// The classification of the outcome.
    pub meaning: Classification,
    /// Time of the next attempt, if there is one.
    pub next_attempt_at: Option<Timestamp>,
    /// The wait that the receiver asked for, limited to the maximum.
    pub retry_after: Option<Span>,
}

impl SettledAttempt {
    /// Returns true for a probe that the receiver refused, which is not one of the attempts of its round.
    pub fn is_refused_probe(&self) -> bool {
        match self.meaning {
            Classification::Success => false,
            Classification::Failure(failure) => is_refused_probe(self.trigger, failure),
        }
    }
}

fn is_refused_probe(trigger: Trigger, failure: Failure) -> bool {
    trigger == Trigger::Probe && failure.is_refusal()
}

impl Delivery {
    /// Ends the attempt in progress with its outcome, and counts it.
    ///
    /// A retry that would fall after the deadline is not scheduled: the delivery expires. An attempt that is
    /// already scheduled is made even if it is late. So a pause, a tripped breaker or a restart of posthaste cannot
    /// expire a delivery.
    pub fn settle(
        &mut self,
        now: Timestamp,
        outcome: Outcome,
        terms: RetrySettings<'_>,
        rng: &mut Rng,
    ) -> Result<SettledAttempt, IllegalTransition> {
        let (trigger, started_at) = match self.state {
            State::InProgress {
                trigger,
                started_at,
                ..
            } => (trigger, started_at),
            State::Pending(_)
            | State::Retrying(_)
            | State::Held(_)
            | State::Succeeded { .. }
            | State::Failed { .. }
            | State::Cancelled { .. } => return self.illegal("be settled"),
        };
        let number = self.attempt_number();
        self.facts.attempts = number;
        let meaning = classify(outcome, terms.policy.rules());
        let (state, retry_after) = match meaning {
            Classification::Success => {
                self.facts.spent = self.facts.spent.saturating_add(1);
                (State::Succeeded { at: now }, None)
            }
            Classification::Failure(failure) => {
                let asked = failure
                    .retry_after
                    .map(|asked| asked.min(terms.retry_after_cap));
                let state = if is_refused_probe(trigger, failure) {
                    self.after_refused_probe(now, asked, terms.policy, rng)
                } else {
                    self.facts.spent = self.facts.spent.saturating_add(1);
                    self.after_failure(now, failure, asked, terms.policy, rng)
                };
                (state, asked)
            }
        };
        self.state = state;
        Ok(SettledAttempt {
            number,
            trigger,
            started_at,
            finished_at: now,
            outcome,
            meaning,
            next_attempt_at: self.next_attempt_at(),
            retry_after,
        })
    }

    fn after_failure(
        &mut self,
        now: Timestamp,
        failure: Failure,
        asked: Option<Span>,
        policy: &RetryPolicy,
        rng: &mut Rng,
    ) -> State {
        let dead = |reason| State::Failed { at: now, reason };
        match failure.verdict {
            Verdict::Fail if failure.unsafe_destination => {
                return dead(DeadReason::UnsafeDestination);
            }
            Verdict::Fail => return dead(DeadReason::Permanent),
            Verdict::RetryUpTo(limit) => {
                if !self.grant(failure, limit) {
                    return dead(DeadReason::Exhausted);
                }
            }
            Verdict::Retry => {}
        }
        if self.facts.spent >= policy.max_attempts {
            return dead(DeadReason::Exhausted);
        }
        let drawn = policy.delay(self.facts.spent, self.facts.previous_delay, rng);
        self.facts.previous_delay = Some(drawn);
        let wait = match asked {
            Some(asked) => asked.max(drawn),
            None if failure.throttled => drawn.times(2),
            None => drawn,
        };
        let at = now.after(wait);
        if at > self.facts.give_up_at {
            return dead(DeadReason::Expired);
        }
        State::Retrying(ScheduledAttempt {
            at,
            trigger: Trigger::Automatic,
        })
    }

    /// Returns the waiting state after a probe that the receiver refused. The delivery waits, so that the next probe uses
    /// another delivery if there is one, but not past its deadline: the probe must not end it.
    fn after_refused_probe(
        &self,
        now: Timestamp,
        asked: Option<Span>,
        policy: &RetryPolicy,
        rng: &mut Rng,
    ) -> State {
        let retry = self.facts.spent.max(1);
        let drawn = policy.delay(retry, self.facts.previous_delay, rng);
        let wait = drawn.min(MAX_WAIT_AFTER_REFUSED_PROBE);
        let at = now.after(asked.map_or(wait, |asked| asked.max(wait)));
        State::Retrying(ScheduledAttempt {
            at: at.min(self.facts.give_up_at.max(now)),
            trigger: Trigger::Automatic,
        })
    }

    /// Uses up one of the retries that the failure's row allows. Returns false if none is left.
    fn grant(&mut self, failure: Failure, limit: u32) -> bool {
        let granted = &mut self.facts.granted;
        let index = granted
            .iter()
            .position(|(row, _)| *row == failure.row)
            .unwrap_or_else(|| {
                granted.push((failure.row, 0));
                granted.len() - 1
            });
        let used = &mut granted[index].1;
        if *used >= limit {
            return false;
        }
        *used += 1;
        true
    }
}
