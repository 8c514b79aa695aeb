//! Snapshots of all endpoints, each derived from the previous one.
//!
//! A snapshot is made from the answers of the API and from the counts of the receivers. `transition` compares two of
//! them. Everything here is pure.

use posthaste_core::lane::TripReason;
use posthaste_core::time::{Span, Timestamp};

use super::request_counts::RequestCounts;
use super::scenario::ReceiverKind;

/// Number of snapshots whose arrival rates are shown.
pub const RECENT: usize = 128;
/// Maximum number of arrival rates of a drain that are kept.
const MAX_RATES: usize = 32;
/// A backlog up to this size counts as drained, because some deliveries are always pending.
const MAX_PENDING_WHEN_DRAINED: u64 = 10;

/// The breaker of an endpoint, as the API reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breaker {
    /// Attempts pass.
    Passing,
    /// No attempt passes before `until`.
    Tripped {
        /// Time of the next probe.
        until: Timestamp,
        /// Reason of the trip.
        reason: TripReason,
    },
    /// A probe is in flight.
    Probing {
        /// Reason of the trip.
        reason: TripReason,
    },
}

impl Breaker {
    /// Returns the state as the API names it.
    pub fn name(self) -> &'static str {
        match self {
            Breaker::Passing => "passing",
            Breaker::Tripped { .. } => "tripped",
            Breaker::Probing { .. } => "probing",
        }
    }
}

/// A count that may be incomplete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// The number counts.
    pub number: u64,
    /// True if there may be more.
    pub or_more: bool,
}

/// A dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// Id of the delivery.
    pub delivery: String,
    /// Id of its event.
    pub event: String,
    /// The reason, as the API names it.
    pub reason: String,
    /// Status of the last response, if there was one.
    pub status_code: Option<u64>,
}

/// The state of an endpoint at one time: from the API, and from its receiver's counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointState {
    /// Kind of its receiver.
    pub kind: ReceiverKind,
    /// Counts of its receiver.
    pub counts: RequestCounts,
    /// Deliveries that are not finished.
    pub pending: u64,
    /// Attempts in flight.
    pub in_flight: u64,
    /// Deliveries that wait for a retry and are not held.
    pub retrying: Count,
    /// Consecutive failures.
    pub consecutive_failures: u64,
    /// State of its breaker.
    pub breaker: Breaker,
    /// Number of dead letters.
    pub dead: Count,
    /// The newest dead letters, newest first.
    pub dead_letters: Vec<DeadLetter>,
}

/// The drain of an endpoint's backlog after a recovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BacklogDrain {
    /// Start of the drain.
    pub since: Span,
    /// Arrivals per second, by snapshot.
    pub rates: Vec<u64>,
}

/// An endpoint in a snapshot, with its recent history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DemoEndpoint {
    /// Current state.
    pub state: EndpointState,
    /// Arrivals per second over the last snapshots, newest last.
    pub recent: Vec<u64>,
    /// The drain of its backlog, if there is one.
    pub drain: Option<BacklogDrain>,
}

/// The state of the demo at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DemoSnapshot {
    /// Time since the start.
    pub at: Span,
    /// Wall-clock time.
    pub wall: Timestamp,
    /// Number of accepted events.
    pub accepted: u64,
    /// The endpoints.
    pub endpoints: Vec<DemoEndpoint>,
}

impl DemoSnapshot {
    /// Creates the first snapshot.
    pub fn first(
        at: Span,
        wall: Timestamp,
        accepted: u64,
        states: Vec<EndpointState>,
    ) -> DemoSnapshot {
        let endpoints = states.into_iter().map(|state| DemoEndpoint {
            state,
            recent: Vec::new(),
            drain: None,
        });
        DemoSnapshot {
            at,
            wall,
            accepted,
            endpoints: endpoints.collect(),
        }
    }

    /// Creates the next snapshot from new states of the same endpoints.
    pub fn next(
        &self,
        at: Span,
        wall: Timestamp,
        accepted: u64,
        states: Vec<EndpointState>,
    ) -> DemoSnapshot {
        let elapsed_ms = at.as_millis().saturating_sub(self.at.as_millis()).max(1);
        let endpoints = self.endpoints.iter().zip(states);
        DemoSnapshot {
            at,
            wall,
            accepted,
            endpoints: endpoints
                .map(|(before, state)| before.next(state, at, elapsed_ms))
                .collect(),
        }
    }
}

impl DemoEndpoint {
    fn next(&self, state: EndpointState, at: Span, elapsed_ms: u64) -> DemoEndpoint {
        let arrived = state.counts.arrived - self.state.counts.arrived.min(state.counts.arrived);
        let rate = (arrived * 1_000 + elapsed_ms / 2) / elapsed_ms;
        let skipped = (self.recent.len() + 1).saturating_sub(RECENT);
        let mut recent = self.recent[skipped..].to_vec();
        recent.push(rate);
        let drain = self.next_drain(&state, at, rate);
        DemoEndpoint {
            state,
            recent,
            drain,
        }
    }

    fn next_drain(&self, state: &EndpointState, at: Span, rate: u64) -> Option<BacklogDrain> {
        let is_drained = state.pending <= MAX_PENDING_WHEN_DRAINED.max(rate / 2);
        match (self.state.breaker, state.breaker, &self.drain) {
            (_, Breaker::Tripped { .. } | Breaker::Probing { .. }, _) => None,
            (Breaker::Tripped { .. } | Breaker::Probing { .. }, Breaker::Passing, _) => {
                Some(BacklogDrain {
                    since: at,
                    rates: vec![rate],
                })
            }
            (Breaker::Passing, Breaker::Passing, Some(drain)) if !is_drained => {
                let mut drain = drain.clone();
                if drain.rates.len() < MAX_RATES {
                    drain.rates.push(rate);
                }
                Some(drain)
            }
            (Breaker::Passing, Breaker::Passing, Some(_) | None) => None,
        }
    }

    /// Returns the arrivals per second since the last snapshot.
    pub fn rate(&self) -> u64 {
        self.recent.last().copied().unwrap_or(0)
    }

    /// Returns the number of held deliveries.
    pub fn held(&self) -> u64 {
        match self.state.breaker {
            Breaker::Passing => 0,
            Breaker::Tripped { .. } | Breaker::Probing { .. } => {
                self.state.pending.saturating_sub(self.state.in_flight)
            }
        }
    }

    /// Returns the number of deliveries that wait to be sent: neither held nor waiting for a retry.
    pub fn waiting(&self) -> u64 {
        match self.state.breaker {
            Breaker::Passing => self
                .state
                .pending
                .saturating_sub(self.state.retrying.number),
            Breaker::Tripped { .. } | Breaker::Probing { .. } => 0,
        }
    }
}

/// Returns the state of an endpoint without any activity, for tests.
#[cfg(test)]
pub(crate) fn idle(kind: ReceiverKind) -> EndpointState {
    EndpointState {
        kind,
        counts: RequestCounts::default(),
        pending: 0,
        in_flight: 0,
        retrying: Count::default(),
        consecutive_failures: 0,
        breaker: Breaker::Passing,
        dead: Count::default(),
        dead_letters: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIPPED: Breaker = Breaker::Tripped {
        until: Timestamp(9_000),
        reason: TripReason::ConsecutiveFailures,
    };

    fn state(arrived: u64, pending: u64, breaker: Breaker) -> EndpointState {
        let mut state = idle(ReceiverKind::Flaky);
        state.counts.arrived = arrived;
        EndpointState {
            pending,
            breaker,
            ..state
        }
    }

    /// Builds snapshots half a second apart and returns the last one.
    fn last_snapshot(states: Vec<EndpointState>) -> DemoSnapshot {
        let wall = Timestamp(0);
        let mut states = states.into_iter();
        let first = DemoSnapshot::first(Span::ZERO, wall, 0, vec![states.next().unwrap()]);
        states.fold(first, |before, state| {
            let at = before.at.plus(Span::from_millis(500));
            before.next(at, wall, 0, vec![state])
        })
    }

    #[test]
    fn arrivals_are_counted_by_the_second() {
        let states = [0, 5, 15, 15].map(|arrived| state(arrived, 0, Breaker::Passing));
        let last = last_snapshot(states.to_vec());
        assert_eq!(last.endpoints[0].recent, [10, 20, 0]);
        let many = (0..2 * RECENT as u64)
            .map(|n| state(n, 0, Breaker::Passing))
            .collect();
        assert_eq!(last_snapshot(many).endpoints[0].recent, [2; RECENT]);
    }

    #[test]
    fn a_drain_lasts_from_the_recovery_until_the_backlog_is_empty() {
        let mut states = vec![
            state(0, 90, TRIPPED),
            state(5, 100, Breaker::Passing),
            state(15, 60, Breaker::Passing),
        ];
        let drain = last_snapshot(states.clone()).endpoints[0].drain.clone();
        let drain = drain.expect("the backlog is being drained");
        assert_eq!(drain.since, Span::from_millis(500));
        assert_eq!(drain.rates, [10, 20]);
        states.push(state(25, MAX_PENDING_WHEN_DRAINED, Breaker::Passing));
        assert_eq!(last_snapshot(states).endpoints[0].drain, None);
    }

    #[test]
    fn pending_deliveries_are_held_waiting_or_retrying() {
        let tripped = last_snapshot(vec![EndpointState {
            in_flight: 1,
            ..state(0, 40, TRIPPED)
        }]);
        let endpoint = &tripped.endpoints[0];
        assert_eq!((endpoint.held(), endpoint.waiting()), (39, 0));
        let passing = last_snapshot(vec![EndpointState {
            retrying: Count {
                number: 7,
                or_more: false,
            },
            ..state(0, 40, Breaker::Passing)
        }]);
        let endpoint = &passing.endpoints[0];
        assert_eq!((endpoint.held(), endpoint.waiting()), (0, 33));
    }
}
