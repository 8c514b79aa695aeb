//! Snapshots of all endpoints, each derived from the previous one.

use posthaste_core::lane::TripReason;
use posthaste_core::time::{Span, Timestamp};

use super::ledger::Counted;
use super::script::Role;

/// Number of snapshots whose arrival rates are shown.
pub const RECENT: usize = 8;
/// Maximum number of arrival rates of a drain that are kept.
const MAX_PACES: usize = 32;
/// A backlog up to this size counts as drained, because some deliveries are always pending.
const SETTLED: u64 = 10;

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

    /// Returns the reason of the trip, unless the breaker passes.
    pub fn reason(self) -> Option<TripReason> {
        match self {
            Breaker::Passing => None,
            Breaker::Tripped { reason, .. } | Breaker::Probing { reason } => Some(reason),
        }
    }
}

/// A count that may be incomplete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// The number counted.
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
pub struct Look {
    /// Role of its receiver.
    pub role: Role,
    /// Counts of its receiver.
    pub counted: Counted,
    /// Deliveries that are not finished.
    pub pending: u64,
    /// Attempts in flight.
    pub in_flight: u64,
    /// Deliveries that wait for a retry and are not held.
    pub retrying: Count,
    /// Consecutive failures.
    pub failures_in_a_row: u64,
    /// State of its breaker.
    pub breaker: Breaker,
    /// Number of dead letters.
    pub dead: Count,
    /// The newest dead letters, newest first.
    pub dead_letters: Vec<DeadLetter>,
}

/// The drain of an endpoint's backlog after a recovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drain {
    /// Start of the drain.
    pub since: Span,
    /// Arrivals per second, by snapshot.
    pub paces: Vec<u64>,
}

/// An endpoint in a snapshot, with its recent history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Current state.
    pub look: Look,
    /// Arrivals per second over the last snapshots, newest last.
    pub recent: Vec<u64>,
    /// The drain of its backlog, if there is one.
    pub drain: Option<Drain>,
}

/// The state of the demo at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Time since the start.
    pub at: Span,
    /// Wall-clock time.
    pub wall: Timestamp,
    /// Number of accepted events.
    pub accepted: u64,
    /// The endpoints.
    pub endpoints: Vec<Endpoint>,
}

impl Snapshot {
    /// Creates the first snapshot.
    pub fn first(at: Span, wall: Timestamp, accepted: u64, looks: Vec<Look>) -> Snapshot {
        let endpoints = looks.into_iter().map(|look| Endpoint {
            look,
            recent: Vec::new(),
            drain: None,
        });
        Snapshot {
            at,
            wall,
            accepted,
            endpoints: endpoints.collect(),
        }
    }

    /// Creates the next snapshot from a new look at the same endpoints.
    pub fn next(&self, at: Span, wall: Timestamp, accepted: u64, looks: Vec<Look>) -> Snapshot {
        let elapsed_ms = at.as_millis().saturating_sub(self.at.as_millis()).max(1);
        let endpoints = self.endpoints.iter().zip(looks);
        Snapshot {
            at,
            wall,
            accepted,
            endpoints: endpoints
                .map(|(before, look)| before.next(look, at, elapsed_ms))
                .collect(),
        }
    }
}

impl Endpoint {
    fn next(&self, look: Look, at: Span, elapsed_ms: u64) -> Endpoint {
        let arrived = look.counted.arrived - self.look.counted.arrived.min(look.counted.arrived);
        let pace = (arrived * 1_000 + elapsed_ms / 2) / elapsed_ms;
        let skipped = (self.recent.len() + 1).saturating_sub(RECENT);
        let mut recent = self.recent[skipped..].to_vec();
        recent.push(pace);
        let drain = self.drain_next(&look, at, pace);
        Endpoint {
            look,
            recent,
            drain,
        }
    }

    fn drain_next(&self, look: &Look, at: Span, pace: u64) -> Option<Drain> {
        let settled = look.pending <= SETTLED.max(pace / 2);
        match (self.look.breaker, look.breaker, &self.drain) {
            (_, Breaker::Tripped { .. } | Breaker::Probing { .. }, _) => None,
            (Breaker::Tripped { .. } | Breaker::Probing { .. }, Breaker::Passing, _) => {
                Some(Drain {
                    since: at,
                    paces: vec![pace],
                })
            }
            (Breaker::Passing, Breaker::Passing, Some(drain)) if !settled => {
                let mut drain = drain.clone();
                if drain.paces.len() < MAX_PACES {
                    drain.paces.push(pace);
                }
                Some(drain)
            }
            (Breaker::Passing, Breaker::Passing, Some(_) | None) => None,
        }
    }

    /// Returns the arrivals per second since the last snapshot.
    pub fn pace(&self) -> u64 {
        self.recent.last().copied().unwrap_or(0)
    }

    /// Returns the number of held deliveries.
    pub fn held(&self) -> u64 {
        match self.look.breaker {
            Breaker::Passing => 0,
            Breaker::Tripped { .. } | Breaker::Probing { .. } => {
                self.look.pending.saturating_sub(self.look.in_flight)
            }
        }
    }

    /// Returns the number of deliveries that wait to be sent: neither held nor waiting for a retry.
    pub fn waiting(&self) -> u64 {
        match self.look.breaker {
            Breaker::Passing => self.look.pending.saturating_sub(self.look.retrying.number),
            Breaker::Tripped { .. } | Breaker::Probing { .. } => 0,
        }
    }
}

/// Returns the state of an endpoint without any activity, for tests.
#[cfg(test)]
pub(super) fn nothing(role: Role) -> Look {
    Look {
        role,
        counted: Counted::default(),
        pending: 0,
        in_flight: 0,
        retrying: Count::default(),
        failures_in_a_row: 0,
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

    fn look(arrived: u64, pending: u64, breaker: Breaker) -> Look {
        let mut look = nothing(Role::Flaky);
        look.counted.arrived = arrived;
        Look {
            pending,
            breaker,
            ..look
        }
    }

    /// Builds snapshots half a second apart.
    fn play(looks: Vec<Look>) -> Snapshot {
        let wall = Timestamp(0);
        let mut looks = looks.into_iter();
        let first = Snapshot::first(Span::ZERO, wall, 0, vec![looks.next().unwrap()]);
        looks.fold(first, |before, look| {
            let at = before.at.plus(Span::from_millis(500));
            before.next(at, wall, 0, vec![look])
        })
    }

    #[test]
    fn arrivals_are_counted_by_the_second() {
        let looks = [0, 5, 15, 15].map(|arrived| look(arrived, 0, Breaker::Passing));
        let seen = play(looks.to_vec());
        assert_eq!(seen.endpoints[0].recent, [10, 20, 0]);
        let many = (0..50).map(|n| look(n, 0, Breaker::Passing)).collect();
        assert_eq!(play(many).endpoints[0].recent, [2; RECENT]);
    }

    #[test]
    fn a_drain_lasts_from_the_recovery_until_the_backlog_is_gone() {
        let mut looks = vec![
            look(0, 90, TRIPPED),
            look(5, 100, Breaker::Passing),
            look(15, 60, Breaker::Passing),
        ];
        let drain = play(looks.clone()).endpoints[0].drain.clone();
        let drain = drain.expect("a drain");
        assert_eq!(drain.since, Span::from_millis(500));
        assert_eq!(drain.paces, [10, 20]);
        looks.push(look(25, SETTLED, Breaker::Passing));
        assert_eq!(play(looks).endpoints[0].drain, None);
    }

    #[test]
    fn what_is_pending_is_held_or_waits_or_is_retried() {
        let tripped = play(vec![Look {
            in_flight: 1,
            ..look(0, 40, TRIPPED)
        }]);
        let endpoint = &tripped.endpoints[0];
        assert_eq!((endpoint.held(), endpoint.waiting()), (39, 0));
        let passing = play(vec![Look {
            retrying: Count {
                number: 7,
                or_more: false,
            },
            ..look(0, 40, Breaker::Passing)
        }]);
        let endpoint = &passing.endpoints[0];
        assert_eq!((endpoint.held(), endpoint.waiting()), (0, 33));
    }
}
