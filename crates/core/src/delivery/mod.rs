//! A delivery: one event on its way to one endpoint, and its state machine.
//!
//! ```text
//!              ┌───────────── hold ─────────────┐
//!              ▼                                │
//!   schedule  held ── release ──▶ pending / retrying ◀── abandon (internal fault) ─┐
//!                                     │   ▲                                        │
//!                                   begin └──────────── settle: retry ───────── in_progress
//!                                     └────────────────────────────────────────▶   │
//!                                                                                  │ settle
//!   pending, retrying, held ── cancel ──▶ cancelled                                ▼
//!   pending, retrying, held ── disable, delete, expire ──▶ failed  succeeded or failed
//!
//!   pending, retrying, held ── make_due ──▶ the same state, due now
//!   succeeded, failed, cancelled ── replay ──▶ pending (a new round, the same id)
//! ```
//!
//! There is one function per arrow, and nothing else changes a state. A transition that does not exist returns
//! [`IllegalTransition`]; it is never ignored. Attempts are counted only in [`Delivery::settle`], so an internal
//! fault of posthaste does not use up an attempt.

mod expected_attempts;
mod request;
mod settle;
mod state;

pub use expected_attempts::ExpectedAttempt;
pub use request::{OneOffRequest, RequestMethod, UnknownMethod};
pub use settle::{RetrySettings, SettledAttempt};
pub use state::{DeadReason, ScheduledAttempt, State, Status, Trigger};

use std::borrow::Cow;
use std::sync::Arc;

use crate::classify::VerdictRow;
use crate::id::{DeliveryId, EndpointId, EventId};
use crate::policy::{LateAction, RetryPolicy};
use crate::time::{Span, Timestamp};

/// Deliveries with the same key to an ordered endpoint are sent one after the other. The key is a hash of the text
/// that the application chose. A collision reduces concurrency, but never breaks the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrderingKey(pub u64);

/// The data of a delivery apart from its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryData {
    /// The id, the same on every attempt and every replay.
    pub id: DeliveryId,
    /// The event that is delivered.
    pub event: EventId,
    /// The endpoint that it is delivered to.
    pub endpoint: EndpointId,
    /// The ordering key, if any.
    pub ordering: Option<OrderingKey>,
    /// Time at which the first attempt of this round was due. A replay starts a new round.
    pub due_at: Timestamp,
    /// No retry of this round is scheduled after this time.
    pub give_up_at: Timestamp,
    /// Number of attempts in all rounds. The next attempt has this number plus one.
    pub attempts: u32,
    /// Number of attempts in this round, which the retry policy limits.
    pub spent: u32,
    /// The last delay, which decorrelated jitter builds on.
    pub previous_delay: Option<Span>,
    /// Number of retries used in this round, by each classification row with its own retry limit.
    pub granted: Vec<(VerdictRow, u32)>,
    /// The request of a one-off delivery. Other deliveries are sent to the URL of their endpoint.
    pub request: Option<Arc<OneOffRequest>>,
}

/// One event on its way to one endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    facts: DeliveryData,
    state: State,
}

/// A transition that the delivery's state does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a delivery that is {from} cannot {verb}", from = from.name())]
pub struct IllegalTransition {
    /// The state that the delivery was in.
    pub from: Status,
    /// The transition that was tried.
    pub verb: &'static str,
}

impl Delivery {
    /// Creates a delivery that is due at `due_at` and has its deadline `give_up_after` later.
    pub fn schedule(
        id: DeliveryId,
        event: EventId,
        endpoint: EndpointId,
        ordering: Option<OrderingKey>,
        due_at: Timestamp,
        give_up_after: Span,
    ) -> Delivery {
        Delivery {
            facts: DeliveryData {
                id,
                event,
                endpoint,
                ordering,
                due_at,
                give_up_at: due_at.after(give_up_after),
                attempts: 0,
                spent: 0,
                previous_delay: None,
                granted: Vec::new(),
                request: None,
            },
            state: State::Pending(ScheduledAttempt {
                at: due_at,
                trigger: Trigger::Automatic,
            }),
        }
    }

    /// Makes a newly scheduled delivery a one-off delivery. The request's own retry policy decides its deadline.
    pub fn with_request(mut self, request: Option<Arc<OneOffRequest>>) -> Delivery {
        self.facts.request = request;
        if let Some(policy) = self.own_policy() {
            self.facts.give_up_at = self.facts.due_at.after(policy.give_up_after);
        }
        self
    }

    /// Returns the retry policy of the delivery: that of its request, or else that of its endpoint.
    pub fn policy<'a>(&self, of_endpoint: &'a RetryPolicy) -> Cow<'a, RetryPolicy> {
        match self.own_policy() {
            Some(policy) => Cow::Owned(policy),
            None => Cow::Borrowed(of_endpoint),
        }
    }

    fn own_policy(&self) -> Option<RetryPolicy> {
        self.facts.request.as_ref()?.policy()
    }

    /// Restores a stored delivery.
    pub fn restore(facts: DeliveryData, state: State) -> Delivery {
        Delivery { facts, state }
    }

    /// Returns the id.
    pub fn id(&self) -> DeliveryId {
        self.facts.id
    }

    /// Returns the data apart from the state.
    pub fn facts(&self) -> &DeliveryData {
        &self.facts
    }

    /// Returns the state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Returns the name of the state.
    pub fn status(&self) -> Status {
        self.state.status()
    }

    /// Returns the status to show: a waiting delivery is shown as held if its endpoint holds deliveries,
    /// independently of its stored status. So holding a million deliveries needs no write.
    pub fn shown_status(&self, endpoint_holds: bool) -> Status {
        match self.status() {
            Status::Pending | Status::Retrying if endpoint_holds => Status::Held,
            status @ (Status::Pending
            | Status::Retrying
            | Status::Held
            | Status::InProgress
            | Status::Succeeded
            | Status::Failed
            | Status::Cancelled) => status,
        }
    }

    /// Returns the number of the next attempt, or of the one in progress.
    pub fn attempt_number(&self) -> u32 {
        self.facts.attempts.saturating_add(1)
    }

    /// Returns when the delivery is due; `None` if it is being sent or has ended.
    pub fn next_attempt_at(&self) -> Option<Timestamp> {
        match self.state {
            State::Pending(turn) | State::Retrying(turn) | State::Held(turn) => Some(turn.at),
            State::InProgress { .. }
            | State::Succeeded { .. }
            | State::Failed { .. }
            | State::Cancelled { .. } => None,
        }
    }

    /// Holds a waiting delivery: its endpoint is paused or its breaker has tripped.
    pub fn hold(&mut self) -> Result<(), IllegalTransition> {
        self.state = match self.state {
            State::Pending(turn) | State::Retrying(turn) => State::Held(turn),
            State::Held(_)
            | State::InProgress { .. }
            | State::Succeeded { .. }
            | State::Failed { .. }
            | State::Cancelled { .. } => return self.illegal("be held"),
        };
        Ok(())
    }

    /// Releases a held delivery, which then waits for its turn again.
    pub fn release(&mut self) -> Result<(), IllegalTransition> {
        self.state = match self.state {
            State::Held(turn) => self.waiting(turn),
            State::Pending(_)
            | State::Retrying(_)
            | State::InProgress { .. }
            | State::Succeeded { .. }
            | State::Failed { .. }
            | State::Cancelled { .. } => return self.illegal("be released"),
        };
        Ok(())
    }

    /// Starts an attempt. `probe` is true if it is the probe of a tripped breaker.
    pub fn begin(&mut self, now: Timestamp, probe: bool) -> Result<Trigger, IllegalTransition> {
        match self.state {
            State::Pending(turn) | State::Retrying(turn) => {
                let trigger = if probe { Trigger::Probe } else { turn.trigger };
                self.state = State::InProgress {
                    turn,
                    trigger,
                    started_at: now,
                };
                Ok(trigger)
            }
            State::Held(_)
            | State::InProgress { .. }
            | State::Succeeded { .. }
            | State::Failed { .. }
            | State::Cancelled { .. } => self.illegal("be sent"),
        }
    }

    /// Takes back an attempt that an internal fault ended. No attempt is counted and the due time stays the same.
    pub fn abandon(&mut self) -> Result<(), IllegalTransition> {
        self.state = match self.state {
            State::InProgress { turn, .. } => self.waiting(turn),
            State::Pending(_)
            | State::Retrying(_)
            | State::Held(_)
            | State::Succeeded { .. }
            | State::Failed { .. }
            | State::Cancelled { .. } => return self.illegal("be abandoned"),
        };
        Ok(())
    }

    /// Cancels a waiting delivery at the request of its sender. A delivery that is being sent cannot be cancelled.
    pub fn cancel(&mut self, now: Timestamp) -> Result<(), IllegalTransition> {
        self.end_waiting(State::Cancelled { at: now }, "be cancelled")
    }

    /// Fails a waiting delivery because its endpoint was disabled.
    pub fn disable(&mut self, now: Timestamp) -> Result<(), IllegalTransition> {
        let reason = DeadReason::EndpointDisabled;
        self.end_waiting(
            State::Failed { at: now, reason },
            "be failed by a disabled endpoint",
        )
    }

    /// Fails a waiting delivery because its endpoint was deleted.
    pub fn delete(&mut self, now: Timestamp) -> Result<(), IllegalTransition> {
        let reason = DeadReason::EndpointDeleted;
        self.end_waiting(
            State::Failed { at: now, reason },
            "be failed by a deleted endpoint",
        )
    }

    /// Returns true if the policy drops the waiting delivery when its turn comes at `at`, because that is after its
    /// deadline.
    ///
    /// The deadline counts from when the delivery was due, so a first attempt can be late as well. An attempt that was
    /// requested by hand after the deadline is never late.
    pub fn is_dropped_at(&self, at: Timestamp, policy: &RetryPolicy) -> bool {
        match policy.late {
            LateAction::Send => false,
            LateAction::Drop => self.is_late(at),
        }
    }

    fn is_late(&self, at: Timestamp) -> bool {
        match self.state {
            State::Pending(turn) | State::Retrying(turn) | State::Held(turn) => {
                let give_up_at = self.facts.give_up_at;
                let by_hand = turn.trigger == Trigger::Manual && turn.at > give_up_at;
                at > give_up_at && !by_hand
            }
            State::InProgress { .. }
            | State::Succeeded { .. }
            | State::Failed { .. }
            | State::Cancelled { .. } => false,
        }
    }

    /// Fails a waiting delivery whose turn came after its deadline, without another attempt. Illegal before the
    /// deadline, which a replay may have moved.
    pub fn expire(&mut self, now: Timestamp) -> Result<(), IllegalTransition> {
        let verb = "expire without an attempt";
        if !self.is_late(now) {
            return self.illegal(verb);
        }
        let reason = DeadReason::Expired;
        self.end_waiting(State::Failed { at: now, reason }, verb)
    }

    /// Makes a waiting delivery due now, at a manual request.
    pub fn make_due(&mut self, now: Timestamp) -> Result<(), IllegalTransition> {
        let turn = ScheduledAttempt {
            at: now,
            trigger: Trigger::Manual,
        };
        self.state = match self.state {
            State::Pending(_) => State::Pending(turn),
            State::Retrying(_) => State::Retrying(turn),
            State::Held(_) => State::Held(turn),
            State::InProgress { .. }
            | State::Succeeded { .. }
            | State::Failed { .. }
            | State::Cancelled { .. } => return self.illegal("be made due"),
        };
        Ok(())
    }

    /// Restarts a delivery that has ended: same id, same payload, a new round of attempts. `give_up_after` is that of its
    /// endpoint; a request with its own retry policy has its own.
    pub fn replay(&mut self, now: Timestamp, give_up_after: Span) -> Result<(), IllegalTransition> {
        match self.state {
            State::Succeeded { .. } | State::Failed { .. } | State::Cancelled { .. } => {}
            State::Pending(_) | State::Retrying(_) | State::Held(_) | State::InProgress { .. } => {
                return self.illegal("be replayed");
            }
        }
        let give_up_after = self
            .own_policy()
            .map_or(give_up_after, |policy| policy.give_up_after);
        self.facts.due_at = now;
        self.facts.give_up_at = now.after(give_up_after);
        self.facts.spent = 0;
        self.facts.previous_delay = None;
        self.facts.granted.clear();
        self.state = State::Pending(ScheduledAttempt {
            at: now,
            trigger: Trigger::Manual,
        });
        Ok(())
    }

    /// Returns the waiting state for `turn`: pending before the first attempt of the round, retrying after it.
    fn waiting(&self, turn: ScheduledAttempt) -> State {
        if self.facts.spent == 0 {
            State::Pending(turn)
        } else {
            State::Retrying(turn)
        }
    }

    fn end_waiting(&mut self, end: State, verb: &'static str) -> Result<(), IllegalTransition> {
        self.state = match self.state {
            State::Pending(_) | State::Retrying(_) | State::Held(_) => end,
            State::InProgress { .. }
            | State::Succeeded { .. }
            | State::Failed { .. }
            | State::Cancelled { .. } => return self.illegal(verb),
        };
        Ok(())
    }

    fn illegal<T>(&self, verb: &'static str) -> Result<T, IllegalTransition> {
        Err(IllegalTransition {
            from: self.status(),
            verb,
        })
    }
}

#[cfg(test)]
mod tests;
