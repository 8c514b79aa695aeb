//! Decides which changes between two snapshots are worth a message. A pure function.
//!
//! Messages are kept few. Frequent changes are reported only the first time, and dead letters less and less often;
//! the table shows the rest.

use posthaste_core::lane::TripReason;
use posthaste_core::time::Span;
use serde_json::{Value, json};

use super::ledger::Rescue;
use super::script::Role;
use super::snapshot::{Breaker, Count, DeadLetter, Endpoint, Snapshot};

/// Number of dead letters of an endpoint that are reported one by one.
const DEAD_LETTERS_REPORTED_SINGLY: u64 = 3;
/// After those, one in this number of dead letters is reported.
const DEAD_LETTER_REPORT_INTERVAL: u64 = 20;
/// A drain is reported once it has this number of rates.
const RATES_BEFORE_REPORT: usize = 4;
/// Maximum number of rates in a message.
const MAX_PACES_TOLD: usize = 8;
/// Two times count as the same if they differ by no more than this. The breaker's time is kept by a monotonic clock
/// and reported by the wall clock, so it varies between snapshots.
const SAME_TIME: Span = Span::from_millis(50);

/// A change at an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The endpoint's receiver.
    pub role: Role,
    /// The change.
    pub what: What,
}

/// The kinds of changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// For the first time a delivery succeeded after a failed attempt.
    Retried(Rescue),
    /// For the first time the receiver answered 429, with this `Retry-After`.
    Throttled(Span),
    /// The breaker tripped.
    Tripped {
        /// The reason.
        reason: TripReason,
        /// Number of consecutive failures.
        in_a_row: u64,
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
        paces: Vec<u64>,
        /// Number of deliveries that still wait.
        waiting: u64,
    },
    /// The backlog has been delivered.
    Drained {
        /// Arrivals per second, by snapshot.
        paces: Vec<u64>,
        /// Duration of the drain.
        took: Span,
    },
    /// A delivery was dead-lettered.
    Died {
        /// The delivery.
        letter: DeadLetter,
        /// Number of dead letters so far.
        dead: Count,
    },
}

/// Returns the changes between two snapshots, in the order of the endpoints.
pub fn moments(before: &Snapshot, now: &Snapshot) -> Vec<Moment> {
    let pairs = before.endpoints.iter().zip(&now.endpoints);
    pairs
        .flat_map(|(was, is)| {
            let role = is.look.role;
            let seen = [
                retried(was, is),
                throttled(was, is),
                turned(was, is, now),
                draining(was, is),
                drained(was, is, now),
                died(was, is),
            ];
            let what = seen.into_iter().flatten();
            what.map(move |what| Moment { role, what })
        })
        .collect()
}

fn retried(was: &Endpoint, is: &Endpoint) -> Option<What> {
    let rescue = is.look.counted.rescued.clone()?;
    let first = was.look.counted.rescued.is_none();
    first.then_some(What::Retried(rescue))
}

fn throttled(was: &Endpoint, is: &Endpoint) -> Option<What> {
    let wait = is.look.counted.throttled?;
    let first = was.look.counted.throttled.is_none();
    first.then_some(What::Throttled(wait))
}

/// Returns the change of the breaker. A probe in flight is not reported before its result is known.
fn turned(was: &Endpoint, is: &Endpoint, now: &Snapshot) -> Option<What> {
    match (was.look.breaker, is.look.breaker) {
        (Breaker::Passing, Breaker::Tripped { reason, .. } | Breaker::Probing { reason }) => {
            Some(What::Tripped {
                reason,
                in_a_row: is.look.failures_in_a_row,
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
            Some(What::Recovered {
                waiting: is.look.pending,
            })
        }
        (Breaker::Passing, Breaker::Passing)
        | (Breaker::Tripped { .. }, Breaker::Tripped { .. } | Breaker::Probing { .. })
        | (Breaker::Probing { .. }, Breaker::Probing { .. }) => None,
    }
}

fn probe_failed(is: &Endpoint, next_in: Span) -> What {
    What::ProbeFailed {
        next_in,
        held: is.held(),
    }
}

fn draining(was: &Endpoint, is: &Endpoint) -> Option<What> {
    let (before, drain) = (was.drain.as_ref()?, is.drain.as_ref()?);
    let tells =
        before.paces.len() < RATES_BEFORE_REPORT && drain.paces.len() == RATES_BEFORE_REPORT;
    tells.then(|| What::Draining {
        paces: drain.paces.clone(),
        waiting: is.look.pending,
    })
}

fn drained(was: &Endpoint, is: &Endpoint, now: &Snapshot) -> Option<What> {
    let drain = was.drain.as_ref()?;
    let back = is.look.breaker == Breaker::Passing;
    (back && is.drain.is_none()).then(|| {
        let mut paces = drain.paces.clone();
        paces.push(is.pace());
        let took_ms = now.at.as_millis().saturating_sub(drain.since.as_millis());
        What::Drained {
            paces,
            took: Span::from_millis(took_ms),
        }
    })
}

fn died(was: &Endpoint, is: &Endpoint) -> Option<What> {
    let (old, dead) = (was.look.dead.number, is.look.dead);
    let worth_telling = old < dead.number.min(DEAD_LETTERS_REPORTED_SINGLY)
        || old / DEAD_LETTER_REPORT_INTERVAL < dead.number / DEAD_LETTER_REPORT_INTERVAL;
    let known = |letter: &&DeadLetter| was.look.dead_letters.contains(letter);
    let new = is.look.dead_letters.iter().find(|letter| !known(letter));
    new.filter(|_| worth_telling).map(|letter| What::Died {
        letter: letter.clone(),
        dead,
    })
}

impl Moment {
    /// Returns the kind of the change, for tools.
    pub fn kind(&self) -> &'static str {
        match self.what {
            What::Retried(_) => "retry",
            What::Throttled(_) => "throttle",
            What::Tripped { .. } => "trip",
            What::ProbeFailed { .. } => "failed_probe",
            What::Recovered { .. } => "recovery",
            What::Draining { .. } => "draining",
            What::Drained { .. } => "drained",
            What::Died { .. } => "dead_letter",
        }
    }

    /// Returns the id of the delivery, if the change is about one.
    pub fn delivery(&self) -> Option<&str> {
        match &self.what {
            What::Retried(rescue) => Some(&rescue.delivery),
            What::Died { letter, .. } => Some(&letter.delivery),
            What::Throttled(_)
            | What::Tripped { .. }
            | What::ProbeFailed { .. }
            | What::Recovered { .. }
            | What::Draining { .. }
            | What::Drained { .. } => None,
        }
    }

    /// Returns the change in words, without its endpoint.
    pub fn words(&self) -> String {
        match &self.what {
            What::Retried(rescue) => format!(
                "a delivery failed, was tried again and got through at attempt {}",
                rescue.attempt
            ),
            What::Throttled(wait) => format!(
                "429: it asked for {} of peace, and gets it; the pace drops until it copes",
                wait.about()
            ),
            What::Tripped {
                reason,
                in_a_row,
                held,
            } => {
                let why = match reason {
                    TripReason::ConsecutiveFailures => {
                        format!("its breaker tripped after {in_a_row} failures in a row")
                    }
                    TripReason::FailureRatio => {
                        "its breaker tripped: half of what it was sent lately failed".to_owned()
                    }
                    TripReason::ExhaustedDeliveries => {
                        "its breaker tripped: too many deliveries were given up".to_owned()
                    }
                };
                format!("{why}; {}, none is lost", are_held(*held))
            }
            What::ProbeFailed { next_in, held } => format!(
                "a probe failed, the next one goes in {}; {}",
                next_in.about(),
                are_held(*held)
            ),
            What::Recovered { waiting } => {
                format!("a probe got through: it is back; the {waiting} that wait will come gently")
            }
            What::Draining { paces, waiting } => {
                format!("draining gently: {}; {waiting} still wait", listed(paces))
            }
            What::Drained { paces, took } => {
                format!("caught up in {}: {}", took.about(), listed(paces))
            }
            What::Died { letter, dead } => format!(
                "{}{}: a dead letter, {}",
                letter.event,
                cause(letter),
                which(*dead)
            ),
        }
    }

    /// Returns the change as JSON.
    pub fn as_json(&self, at: Span) -> Value {
        let mut shown = json!({
            "moment": self.kind(),
            "at_ms": at.as_millis(),
            "endpoint": self.role.name(),
            "words": self.words(),
        });
        let more = match &self.what {
            What::Retried(rescue) => {
                json!({"delivery_id": rescue.delivery, "attempt": rescue.attempt})
            }
            What::Throttled(wait) => json!({"retry_after_ms": wait.as_millis()}),
            What::Tripped {
                reason,
                in_a_row,
                held,
            } => json!({"reason": reason, "consecutive_failures": in_a_row, "held": held}),
            What::ProbeFailed { next_in, held } => {
                json!({"next_in_ms": next_in.as_millis(), "held": held})
            }
            What::Recovered { waiting } => json!({"waiting": waiting}),
            What::Draining { paces, waiting } => {
                json!({"per_second": paces, "waiting": waiting})
            }
            What::Drained { paces, took } => {
                json!({"per_second": paces, "took_ms": took.as_millis()})
            }
            What::Died { letter, dead } => json!({
                "delivery_id": letter.delivery,
                "event_id": letter.event,
                "reason": letter.reason,
                "status_code": letter.status_code,
                "dead": dead.number,
            }),
        };
        if let (Value::Object(shown), Value::Object(more)) = (&mut shown, more) {
            shown.extend(more);
        }
        shown
    }
}

fn listed(paces: &[u64]) -> String {
    let told = paces.iter().take(MAX_PACES_TOLD);
    let told: Vec<String> = told.map(|pace| format!("{pace}/s")).collect();
    let more = if paces.len() > told.len() { "…" } else { "" };
    format!("{}{more}", told.join(", "))
}

fn are_held(held: u64) -> String {
    match held {
        1 => "1 delivery is held".to_owned(),
        held => format!("{held} deliveries are held"),
    }
}

fn cause(letter: &DeadLetter) -> String {
    match (letter.reason.as_str(), letter.status_code) {
        ("permanent", Some(status)) => format!(" was refused with {status}"),
        ("exhausted", _) => " failed at every attempt".to_owned(),
        ("expired", _) => " ran out of time".to_owned(),
        (reason, _) => format!(" was given up ({reason})"),
    }
}

fn which(dead: Count) -> String {
    match (dead.number, dead.or_more) {
        (1, false) => "the first".to_owned(),
        (number, false) => format!("{number} by now"),
        (number, true) => format!("more than {number} by now"),
    }
}

#[cfg(test)]
#[path = "moment_tests.rs"]
mod tests;
