//! Decides which changes between two snapshots are worth a message. A pure function.
//!
//! Messages are kept few. Frequent changes are reported only the first time, and dead letters less and less often;
//! the table shows the rest.

use posthaste_core::lane::TripReason;
use posthaste_core::time::Span;
use serde_json::{Value, json};

use super::request_counts::RetrySuccess;
use super::scenario::ReceiverKind;
use super::snapshot::{Breaker, Count, DeadLetter, DemoEndpoint, DemoSnapshot};

/// Number of dead letters of an endpoint that are reported one by one.
const DEAD_LETTERS_REPORTED_SINGLY: u64 = 3;
/// After those, one in this number of dead letters is reported.
const DEAD_LETTER_REPORT_INTERVAL: u64 = 20;
/// A drain is reported once it has this number of rates.
const RATES_BEFORE_REPORT: usize = 4;
/// Maximum number of rates in a message.
const MAX_RATES_IN_MESSAGE: usize = 8;
/// Two times count as the same if they differ by no more than this. The breaker's time is kept by a monotonic clock
/// and reported by the wall clock, so it varies between snapshots.
const SAME_TIME: Span = Span::from_millis(50);

/// A change at an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The endpoint's receiver.
    pub receiver: ReceiverKind,
    /// The change.
    pub change: TransitionKind,
}

/// The kinds of changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransitionKind {
    /// For the first time a delivery succeeded after a failed attempt.
    Retried(RetrySuccess),
    /// For the first time the receiver answered 429, with this `Retry-After`.
    Throttled(Span),
    /// The breaker tripped.
    Tripped {
        /// The reason.
        reason: TripReason,
        /// Number of consecutive failures.
        consecutive_failures: u64,
        /// Number of deliveries that are now held.
        held: u64,
    },
    /// A probe failed.
    ProbeFailed {
        /// Time until the next probe.
        next_in: Span,
        /// Number of deliveries that are held.
        held: u64,
    },
    /// A probe succeeded.
    Recovered {
        /// Number of deliveries that now wait.
        waiting: u64,
    },
    /// The backlog is being sent, at an increasing rate.
    Draining {
        /// Arrivals per second, by snapshot.
        rates: Vec<u64>,
        /// Number of deliveries that still wait.
        waiting: u64,
    },
    /// The backlog has been delivered.
    Drained {
        /// Arrivals per second, by snapshot.
        rates: Vec<u64>,
        /// Duration of the drain.
        took: Span,
    },
    /// A delivery was dead-lettered.
    DeadLettered {
        /// The delivery.
        dead_letter: DeadLetter,
        /// Number of dead letters so far.
        dead: Count,
    },
}

/// Returns the changes between two snapshots, in the order of the endpoints.
pub fn transitions(before: &DemoSnapshot, now: &DemoSnapshot) -> Vec<Transition> {
    let pairs = before.endpoints.iter().zip(&now.endpoints);
    pairs
        .flat_map(|(was, is)| {
            let receiver = is.state.kind;
            let changes = [
                retried(was, is),
                throttled(was, is),
                breaker_change(was, is, now),
                draining(was, is),
                drained(was, is, now),
                died(was, is),
            ];
            let changes = changes.into_iter().flatten();
            changes.map(move |change| Transition { receiver, change })
        })
        .collect()
}

fn retried(was: &DemoEndpoint, is: &DemoEndpoint) -> Option<TransitionKind> {
    let success = is.state.counts.first_retry_success.clone()?;
    let first = was.state.counts.first_retry_success.is_none();
    first.then_some(TransitionKind::Retried(success))
}

fn throttled(was: &DemoEndpoint, is: &DemoEndpoint) -> Option<TransitionKind> {
    let wait = is.state.counts.first_retry_after?;
    let first = was.state.counts.first_retry_after.is_none();
    first.then_some(TransitionKind::Throttled(wait))
}

/// Returns the change of the breaker. A probe in flight is not reported before its result is known.
fn breaker_change(
    was: &DemoEndpoint,
    is: &DemoEndpoint,
    now: &DemoSnapshot,
) -> Option<TransitionKind> {
    match (was.state.breaker, is.state.breaker) {
        (Breaker::Passing, Breaker::Tripped { reason, .. } | Breaker::Probing { reason }) => {
            Some(TransitionKind::Tripped {
                reason,
                consecutive_failures: is.state.consecutive_failures,
                held: is.held(),
            })
        }
        (Breaker::Tripped { until: old, .. }, Breaker::Tripped { until, .. })
            if until > old.after(SAME_TIME) =>
        {
            Some(probe_failed(is, until.since(now.wall)))
        }
        (Breaker::Probing { .. }, Breaker::Tripped { until, .. }) => {
            Some(probe_failed(is, until.since(now.wall)))
        }
        (Breaker::Tripped { .. } | Breaker::Probing { .. }, Breaker::Passing) => {
            Some(TransitionKind::Recovered {
                waiting: is.state.pending,
            })
        }
        (Breaker::Passing, Breaker::Passing)
        | (Breaker::Tripped { .. }, Breaker::Tripped { .. } | Breaker::Probing { .. })
        | (Breaker::Probing { .. }, Breaker::Probing { .. }) => None,
    }
}

fn probe_failed(is: &DemoEndpoint, next_in: Span) -> TransitionKind {
    TransitionKind::ProbeFailed {
        next_in,
        held: is.held(),
    }
}

fn draining(was: &DemoEndpoint, is: &DemoEndpoint) -> Option<TransitionKind> {
    let (before, drain) = (was.drain.as_ref()?, is.drain.as_ref()?);
    let is_due =
        before.rates.len() < RATES_BEFORE_REPORT && drain.rates.len() == RATES_BEFORE_REPORT;
    is_due.then(|| TransitionKind::Draining {
        rates: drain.rates.clone(),
        waiting: is.state.pending,
    })
}

fn drained(was: &DemoEndpoint, is: &DemoEndpoint, now: &DemoSnapshot) -> Option<TransitionKind> {
    let drain = was.drain.as_ref()?;
    let is_passing = is.state.breaker == Breaker::Passing;
    (is_passing && is.drain.is_none()).then(|| {
        let mut rates = drain.rates.clone();
        rates.push(is.rate());
        let took_ms = now.at.as_millis().saturating_sub(drain.since.as_millis());
        TransitionKind::Drained {
            rates,
            took: Span::from_millis(took_ms),
        }
    })
}

fn died(was: &DemoEndpoint, is: &DemoEndpoint) -> Option<TransitionKind> {
    let (old, dead) = (was.state.dead.number, is.state.dead);
    let is_due = old < dead.number.min(DEAD_LETTERS_REPORTED_SINGLY)
        || old / DEAD_LETTER_REPORT_INTERVAL < dead.number / DEAD_LETTER_REPORT_INTERVAL;
    let known = |dead_letter: &&DeadLetter| was.state.dead_letters.contains(dead_letter);
    let newest = is
        .state
        .dead_letters
        .iter()
        .find(|dead_letter| !known(dead_letter));
    newest
        .filter(|_| is_due)
        .map(|dead_letter| TransitionKind::DeadLettered {
            dead_letter: dead_letter.clone(),
            dead,
        })
}

impl Transition {
    /// Returns the kind of the change, for tools.
    pub fn kind(&self) -> &'static str {
        match self.change {
            TransitionKind::Retried(_) => "retry",
            TransitionKind::Throttled(_) => "throttle",
            TransitionKind::Tripped { .. } => "trip",
            TransitionKind::ProbeFailed { .. } => "failed_probe",
            TransitionKind::Recovered { .. } => "recovery",
            TransitionKind::Draining { .. } => "draining",
            TransitionKind::Drained { .. } => "drained",
            TransitionKind::DeadLettered { .. } => "dead_letter",
        }
    }

    /// Returns the id of the delivery, if the change is about one.
    pub fn delivery(&self) -> Option<&str> {
        match &self.change {
            TransitionKind::Retried(success) => Some(&success.delivery),
            TransitionKind::DeadLettered { dead_letter, .. } => Some(&dead_letter.delivery),
            TransitionKind::Throttled(_)
            | TransitionKind::Tripped { .. }
            | TransitionKind::ProbeFailed { .. }
            | TransitionKind::Recovered { .. }
            | TransitionKind::Draining { .. }
            | TransitionKind::Drained { .. } => None,
        }
    }

    /// Returns the change as a sentence, without its endpoint.
    pub fn message(&self) -> String {
        match &self.change {
            TransitionKind::Retried(success) => format!(
                "a delivery failed, was retried and succeeded on attempt {}",
                success.attempt
            ),
            TransitionKind::Throttled(wait) => format!(
                "429: backing off for {} (Retry-After), then sending more slowly",
                wait.about()
            ),
            TransitionKind::Tripped {
                reason,
                consecutive_failures,
                held,
            } => {
                let cause = match reason {
                    TripReason::ConsecutiveFailures => {
                        format!("breaker tripped after {consecutive_failures} consecutive failures")
                    }
                    TripReason::FailureRatio => {
                        "breaker tripped: at least half of the recent attempts failed".to_owned()
                    }
                    TripReason::Refusals => {
                        "breaker tripped: too many deliveries in a row were rejected".to_owned()
                    }
                    TripReason::ExhaustedDeliveries => {
                        "breaker tripped: too many deliveries failed".to_owned()
                    }
                };
                format!("{cause}; {}, none are lost", held_deliveries(*held))
            }
            TransitionKind::ProbeFailed { next_in, held } => format!(
                "probe failed, next one in {}; {}",
                next_in.about(),
                held_deliveries(*held)
            ),
            TransitionKind::Recovered { waiting } => {
                format!("probe succeeded; {waiting} held deliveries are sent gradually")
            }
            TransitionKind::Draining { rates, waiting } => {
                format!("recovering: {}; {waiting} still waiting", list_rates(rates))
            }
            TransitionKind::Drained { rates, took } => {
                format!("backlog drained in {}: {}", took.about(), list_rates(rates))
            }
            TransitionKind::DeadLettered { dead_letter, dead } => format!(
                "{}{}: a dead letter, {}",
                dead_letter.event,
                cause(dead_letter),
                ordinal(*dead)
            ),
        }
    }

    /// Returns the change as JSON.
    pub fn as_json(&self, at: Span) -> Value {
        let mut fields = json!({
            "moment": self.kind(),
            "at_ms": at.as_millis(),
            "endpoint": self.receiver.name(),
            "words": self.message(),
        });
        let more = match &self.change {
            TransitionKind::Retried(success) => {
                json!({"delivery_id": success.delivery, "attempt": success.attempt})
            }
            TransitionKind::Throttled(wait) => json!({"retry_after_ms": wait.as_millis()}),
            TransitionKind::Tripped {
                reason,
                consecutive_failures,
                held,
            } => {
                json!({"reason": reason, "consecutive_failures": consecutive_failures, "held": held})
            }
            TransitionKind::ProbeFailed { next_in, held } => {
                json!({"next_in_ms": next_in.as_millis(), "held": held})
            }
            TransitionKind::Recovered { waiting } => json!({"waiting": waiting}),
            TransitionKind::Draining { rates, waiting } => {
                json!({"per_second": rates, "waiting": waiting})
            }
            TransitionKind::Drained { rates, took } => {
                json!({"per_second": rates, "took_ms": took.as_millis()})
            }
            TransitionKind::DeadLettered { dead_letter, dead } => json!({
                "delivery_id": dead_letter.delivery,
                "event_id": dead_letter.event,
                "reason": dead_letter.reason,
                "status_code": dead_letter.status_code,
                "dead": dead.number,
            }),
        };
        if let (Value::Object(fields), Value::Object(more)) = (&mut fields, more) {
            fields.extend(more);
        }
        fields
    }
}

fn list_rates(rates: &[u64]) -> String {
    let shown = rates.iter().take(MAX_RATES_IN_MESSAGE);
    let shown: Vec<String> = shown.map(|rate| format!("{rate}/s")).collect();
    let more = if rates.len() > shown.len() { "…" } else { "" };
    format!("{}{more}", shown.join(", "))
}

fn held_deliveries(held: u64) -> String {
    match held {
        1 => "1 delivery is held".to_owned(),
        held => format!("{held} deliveries are held"),
    }
}

fn cause(dead_letter: &DeadLetter) -> String {
    match (dead_letter.reason.as_str(), dead_letter.status_code) {
        ("permanent", Some(status)) => format!(" was rejected with {status}"),
        ("exhausted", _) => " failed at every attempt".to_owned(),
        ("expired", _) => " reached its deadline".to_owned(),
        (reason, _) => format!(" failed ({reason})"),
    }
}

fn ordinal(dead: Count) -> String {
    match (dead.number, dead.or_more) {
        (1, false) => "the first".to_owned(),
        (number, false) => format!("{number} so far"),
        (number, true) => format!("more than {number} so far"),
    }
}

#[cfg(test)]
#[path = "transition_tests.rs"]
mod tests;
