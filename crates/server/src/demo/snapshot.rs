//! How everything stands at one look, and what it came from.

use posthaste_core::lane::TripReason;
use posthaste_core::time::{Span, Timestamp};

use super::ledger::Counted;
use super::script::Role;

/// How many looks back the arrivals are shown.
pub const RECENT: usize = 8;
/// How many paces of a recovery are remembered.
const MAX_PACES: usize = 32;
/// A backlog this small is none: something is always on its way.
const SETTLED: u64 = 10;

/// The breaker of an endpoint, as the API says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breaker {
    /// Everything may pass.
    Passing,
    /// Nothing may pass before `until`.
    Tripped {
        /// When a probe may go.
        until: Timestamp,
        /// Why it tripped.
        reason: TripReason,
    },
    /// One probe is out.
    Probing {
        /// Why it tripped.
        reason: TripReason,
    },
}

impl Breaker {
    /// Its state in the API's word.
    pub fn name(self) -> &'static str {
        match self {
            Breaker::Passing => "passing",
            Breaker::Tripped { .. } => "tripped",
            Breaker::Probing { .. } => "probing",
        }
    }

    /// Why it does not let everything pass, if it does not.
    pub fn reason(self) -> Option<TripReason> {
        match self {
            Breaker::Passing => None,
            Breaker::Tripped { reason, .. } | Breaker::Probing { reason } => Some(reason),
        }
    }
}

/// A number of things, as far as they were counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// So many,
    pub number: u64,
    /// or more.
    pub or_more: bool,
}

/// A delivery that was given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// The delivery.
    pub delivery: String,
    /// Its event.
    pub event: String,
    /// Why it was given up, in the API's word.
    pub reason: String,
    /// What the receiver answered last, if it did.
    pub status_code: Option<u64>,
}

/// What is known of an endpoint at one look: what the API says, and what its receiver counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// Whose endpoint it is.
    pub role: Role,
    /// What its receiver counted.
    pub counted: Counted,
    /// Deliveries that have not ended.
    pub pending: u64,
    /// Attempts under way.
    pub in_flight: u64,
    /// Deliveries that wait for another attempt, and are not held.
    pub retrying: Count,
    /// Failures in a row.
    pub failures_in_a_row: u64,
    /// Its breaker.
    pub breaker: Breaker,
    /// Deliveries that were given up.
    pub dead: Count,
    /// The newest of them, newest first.
    pub dead_letters: Vec<DeadLetter>,
}

/// What an endpoint's backlog does once its receiver is back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drain {
    /// When that was.
    pub since: Span,
    /// How many arrived in a second, look by look.
    pub paces: Vec<u64>,
}

/// An endpoint at one look, and what led there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// What is known.
    pub look: Look,
    /// How many arrived in a second, over the last looks; the newest last.
    pub recent: Vec<u64>,
    /// The drain of its backlog, while that lasts.
    pub drain: Option<Drain>,
}

/// Everything at one look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// When, since the play began.
    pub at: Span,
    /// The same by the wall clock.
    pub wall: Timestamp,
    /// How many events were accepted.
    pub accepted: u64,
    /// The endpoints.
    pub endpoints: Vec<Endpoint>,
}

impl Snapshot {
    /// The first look.
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

    /// What follows, with a new look at the same endpoints.
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

    /// How many arrived in the last second.
    pub fn pace(&self) -> u64 {
        self.recent.last().copied().unwrap_or(0)
    }

    /// Deliveries that are held back.
    pub fn held(&self) -> u64 {
        match self.look.breaker {
            Breaker::Passing => 0,
            Breaker::Tripped { .. } | Breaker::Probing { .. } => {
                self.look.pending.saturating_sub(self.look.in_flight)
            }
        }
    }

    /// Deliveries that wait for their turn: neither held, nor for another attempt.
    pub fn waiting(&self) -> u64 {
        match self.look.breaker {
            Breaker::Passing => self.look.pending.saturating_sub(self.look.retrying.number),
            Breaker::Tripped { .. } | Breaker::Probing { .. } => 0,
        }
    }
}

/// A look at an endpoint where nothing has happened, for tests.
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

    /// Looks half a second apart.
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
