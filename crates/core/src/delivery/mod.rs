//! The life of a delivery: one event on its way to one endpoint.
//!
//! ```text
//!              ┌───────────── hold ─────────────┐
//!              ▼                                │
//!   schedule  held ── release ──▶ pending / retrying ◀── abandon (our own fault) ──┐
//!                                     │   ▲                                        │
//!                                   begin └──────────── settle: try again ───── in_progress
//!                                     └────────────────────────────────────────▶   │
//!                                                                                  │ settle
//!   pending, retrying, held ── cancel ──▶ cancelled                                ▼
//!   pending, retrying, held ── disable, delete ──▶ failed          succeeded or failed
//!
//!   succeeded, failed, cancelled ── replay ──▶ pending
//! ```
//!
//! There is one function per arrow, and nothing else changes a state. An arrow that does not exist
//! is an [`IllegalTransition`], never ignored. An attempt is counted in [`Delivery::settle`] and
//! nowhere else, so a fault of posthaste itself cannot spend one.

mod settle;
mod state;
mod upcoming;

pub use settle::{Settlement, Terms};
pub use state::{DeadReason, State, Status, Trigger, Turn};
pub use upcoming::Upcoming;

use crate::classify::Row;
use crate::id::{DeliveryId, EndpointId, EventId};
use crate::time::{Span, Timestamp};

/// Deliveries with the same key to an ordered endpoint go one after the other. The key is a hash of
/// what the application chose; a collision costs concurrency, never order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrderingKey(pub u64);

/// What is known of a delivery besides its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Its id, the same on every attempt and every replay.
    pub id: DeliveryId,
    /// The event it carries.
    pub event: EventId,
    /// Where it goes.
    pub endpoint: EndpointId,
    /// What it must stay in order with.
    pub ordering: Option<OrderingKey>,
    /// When it was first due, in this round.
    pub due_at: Timestamp,
    /// No retry of this round is set beyond this.
    pub give_up_at: Timestamp,
    /// Attempts made in all rounds; the next one is numbered one more.
    pub attempts: u32,
    /// Attempts made in this round, which is what the policy limits.
    pub spent: u32,
    /// The last delay drawn, which a decorrelated jitter builds upon.
    pub previous_delay: Option<Span>,
    /// How often each row with a limit of its own has granted a retry in this round.
    pub granted: Vec<(Row, u32)>,
}

/// One event on its way to one endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    facts: Facts,
    state: State,
}

/// A change that the delivery's state does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a delivery that is {from} cannot {verb}", from = from.name())]
pub struct IllegalTransition {
    /// The state it was in.
    pub from: Status,
    /// What was tried.
    pub verb: &'static str,
}

impl Delivery {
    /// A new delivery, due at `due_at` and to be given up `give_up_after` later.
    pub fn schedule(
        id: DeliveryId,
        event: EventId,
        endpoint: EndpointId,
        ordering: Option<OrderingKey>,
        due_at: Timestamp,
        give_up_after: Span,
    ) -> Delivery {
        Delivery {
            facts: Facts {
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
            },
            state: State::Pending(Turn {
                at: due_at,
                trigger: Trigger::Automatic,
            }),
        }
    }

    /// A delivery as it was stored.
    pub fn restore(facts: Facts, state: State) -> Delivery {
        Delivery { facts, state }
    }

    /// Its id.
    pub fn id(&self) -> DeliveryId {
        self.facts.id
    }

    /// What is known of it besides its state.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Its state.
    pub fn state(&self) -> State {
        self.state
    }

    /// The state's name.
    pub fn status(&self) -> Status {
        self.state.status()
    }

    /// The status to show: a delivery that waits for an endpoint which holds is held, whatever is
    /// written in its row. So holding a million costs no write.
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

    /// The number the next attempt will have, or the current one has.
    pub fn attempt_number(&self) -> u32 {
        self.facts.attempts.saturating_add(1)
    }

    /// When it wants to be sent; nothing once it is being sent or has ended.
    pub fn wanted_at(&self) -> Option<Timestamp> {
        match self.state {
            State::Pending(turn) | State::Retrying(turn) | State::Held(turn) => Some(turn.at),
            State::InProgress { .. }
            | State::Succeeded { .. }
            | State::Failed { .. }
            | State::Cancelled { .. } => None,
        }
    }

    /// Holds a waiting delivery back: its endpoint is paused or its breaker has tripped.
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

    /// Lets a held delivery go on waiting for its turn.
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

    /// Begins an attempt. `probe` says that it tests a tripped breaker.
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

    /// Takes back an attempt that a fault of our own ended. Nothing is spent, nothing is delayed.
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

    /// Ends a waiting delivery at its sender's wish. One that is being sent cannot be called back.
    pub fn cancel(&mut self, now: Timestamp) -> Result<(), IllegalTransition> {
        self.end_waiting(State::Cancelled { at: now }, "be cancelled")
    }

    /// Ends a waiting delivery because its endpoint was disabled.
    pub fn disable(&mut self, now: Timestamp) -> Result<(), IllegalTransition> {
        let reason = DeadReason::EndpointDisabled;
        self.end_waiting(
            State::Failed { at: now, reason },
            "be failed by a disabled endpoint",
        )
    }

    /// Ends a waiting delivery because its endpoint was deleted.
    pub fn delete(&mut self, now: Timestamp) -> Result<(), IllegalTransition> {
        let reason = DeadReason::EndpointDeleted;
        self.end_waiting(
            State::Failed { at: now, reason },
            "be failed by a deleted endpoint",
        )
    }

    /// Brings the next attempt of a waiting delivery forward to now, by hand.
    pub fn hasten(&mut self, now: Timestamp) -> Result<(), IllegalTransition> {
        let turn = Turn {
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
            | State::Cancelled { .. } => return self.illegal("be hastened"),
        };
        Ok(())
    }

    /// Starts a delivery that has ended all over: same id, same body, a new round of attempts.
    pub fn replay(&mut self, now: Timestamp, give_up_after: Span) -> Result<(), IllegalTransition> {
        match self.state {
            State::Succeeded { .. } | State::Failed { .. } | State::Cancelled { .. } => {}
            State::Pending(_) | State::Retrying(_) | State::Held(_) | State::InProgress { .. } => {
                return self.illegal("be replayed");
            }
        }
        self.facts.due_at = now;
        self.facts.give_up_at = now.after(give_up_after);
        self.facts.spent = 0;
        self.facts.previous_delay = None;
        self.facts.granted.clear();
        self.state = State::Pending(Turn {
            at: now,
            trigger: Trigger::Manual,
        });
        Ok(())
    }

    /// Waiting for `turn`: for the first attempt of the round, or for another.
    fn waiting(&self, turn: Turn) -> State {
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
