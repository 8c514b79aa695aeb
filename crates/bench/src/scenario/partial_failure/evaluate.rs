//! The verdicts: compares the counts of each row with its target.
//!
//! [`RowCounts`] are counted from the answers that the receiver gave and from the observed health of the endpoint.
//! [`Target::evaluate`] is a pure function of them, so that the same counts always give the same [`Verdict`].

use std::collections::HashMap;
use std::ops::Range;

use serde::Serialize;

use super::watch::HealthWatch;
use crate::faults::{Answer, Faults};
use crate::statistics::{busiest_window, ratio, series};

const SECOND_NS: u64 = 1_000_000_000;
/// Time after an observed trip in which answers may still belong to requests from before: a request, and one look.
const TRIP_TOLERANCE_NS: u64 = SECOND_NS;

/// The target of one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// The row that others are compared with: everything is accepted.
    Clean,
    /// The delivered share of what is offered.
    OfOffered(f64),
    /// The rate of deliveries, as a share of that of the clean row.
    OfClean(f64),
    /// The receiver takes a limited number of requests.
    AtCapacity {
        /// Minimum rate of deliveries.
        min_per_second: f64,
        /// Maximum share of requests that are refused.
        max_refused: f64,
    },
    /// A wave of refusals passes: few events are refused, the others are held and then delivered.
    HeldThroughWave {
        /// Maximum number of refused requests.
        max_refused: u64,
    },
    /// The breaker trips on refusals, and single probes follow.
    TripsOnRefusals {
        /// Maximum number of requests before the trip.
        max_before: u64,
    },
    /// Exhausted deliveries never trip the breaker, and all other events are delivered.
    NeverTrips {
        /// Minimum number of exhausted deliveries, without which the row shows nothing.
        min_exhausted: u64,
    },
}

/// The counts of one row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RowCounts {
    /// Measured time.
    pub seconds: f64,
    /// Events sent to the server.
    pub offered: u64,
    /// Events that the receiver refuses each time.
    pub poison: u64,
    /// Requests that reached the receiver.
    pub requests: u64,
    /// Requests that the receiver refused.
    pub refused: u64,
    /// Events that the receiver accepted.
    pub delivered: u64,
    /// Events of which no request reached the receiver.
    pub never_sent: u64,
    /// Events that used up all attempts of their policy.
    pub exhausted: u64,
    /// Times that the breaker tripped.
    pub trips: u64,
    /// Reasons for which it tripped.
    pub trip_reasons: Vec<String>,
    /// Requests until the first trip.
    pub requests_before_trip: Option<u64>,
    /// Most requests in any second after the first trip.
    pub busiest_second_after_trip: Option<u64>,
    /// Status of the endpoint at the end.
    pub status: String,
    /// Requests in each second.
    pub requests_each_second: Vec<u64>,
    /// Deliveries in each second.
    pub delivered_each_second: Vec<u64>,
}

/// The measured part of a row, in nanoseconds since the recorder was created, and the events of the row.
#[derive(Clone, Debug)]
pub struct RowScope {
    /// Numbers of the offered events.
    pub events: Range<usize>,
    /// Start and end of the measurement.
    pub times: Range<u64>,
    /// Maximum number of attempts, if the row's policy has few.
    pub max_attempts: Option<u32>,
}

impl RowCounts {
    /// Counts one row. `status` is the endpoint's at the end.
    pub fn new(
        scope: &RowScope,
        faults: &Faults,
        answers: &[Answer],
        watch: &HealthWatch,
        status: &str,
    ) -> RowCounts {
        let within = |answer: &&Answer| scope.times.contains(&answer.arrived_at);
        let answers: Vec<Answer> = answers.iter().filter(within).copied().collect();
        let mut events: HashMap<usize, (u32, bool)> = HashMap::new();
        for answer in &answers {
            let (requests, delivered) = events.entry(answer.number).or_default();
            *requests += 1;
            *delivered |= answer.accepted;
        }
        let delivered = events.values().filter(|(_, delivered)| *delivered).count();
        let exhausted = events.values().filter(|(requests, delivered)| {
            !delivered && scope.max_attempts.is_some_and(|most| *requests >= most)
        });
        let times: Vec<u64> = answers.iter().map(|answer| answer.arrived_at).collect();
        let accepted = answers.iter().filter(|answer| answer.accepted);
        let accepted_times: Vec<u64> = accepted.map(|answer| answer.arrived_at).collect();
        let (before, after) = match watch.first_trip_at() {
            Some(tripped_at) => {
                let end = tripped_at.saturating_add(TRIP_TOLERANCE_NS);
                let (before, after) = times.split_at(times.partition_point(|time| *time < end));
                (
                    Some(before.len() as u64),
                    Some(busiest_window(after, SECOND_NS) as u64),
                )
            }
            None => (None, None),
        };
        let poison = scope
            .events
            .clone()
            .filter(|event| faults.is_poison(*event));
        RowCounts {
            seconds: (scope.times.end - scope.times.start) as f64 / 1e9,
            offered: scope.events.len() as u64,
            poison: poison.count() as u64,
            requests: answers.len() as u64,
            refused: (answers.len() - accepted_times.len()) as u64,
            delivered: delivered as u64,
            never_sent: (scope.events.len() - events.len()) as u64,
            exhausted: exhausted.count() as u64,
            trips: watch.trips(),
            trip_reasons: watch.trip_reasons(),
            requests_before_trip: before,
            busiest_second_after_trip: after,
            status: status.to_owned(),
            requests_each_second: series(&times, scope.times.start, SECOND_NS),
            delivered_each_second: series(&accepted_times, scope.times.start, SECOND_NS),
        }
    }

    /// Returns the deliveries per second.
    pub fn delivered_per_second(&self) -> f64 {
        ratio(self.delivered as f64, self.seconds).unwrap_or(0.0)
    }

    /// Returns the refused share of all requests.
    pub fn refused_share(&self) -> f64 {
        ratio(self.refused as f64, self.requests as f64).unwrap_or(0.0)
    }
}

/// The result of the comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// The share that the target is about, if it is about one.
    pub ratio: Option<f64>,
    /// The ways in which the row misses its target; none if it meets it.
    pub misses: Vec<String>,
}

impl Verdict {
    /// Returns true if the row meets its target.
    pub fn is_met(&self) -> bool {
        self.misses.is_empty()
    }
}

impl Target {
    /// Returns the target as text.
    pub fn text(&self) -> String {
        match self {
            Target::Clean => "–".to_owned(),
            Target::OfOffered(share) => format!("≥ {share:.2} offered"),
            Target::OfClean(share) => format!("≥ {share:.2} clean"),
            Target::AtCapacity {
                min_per_second,
                max_refused,
            } => format!("≥ {min_per_second}/s, ≤ {:.0} %", max_refused * 100.0),
            Target::HeldThroughWave { max_refused } => format!("≤ {max_refused}, rest held"),
            Target::TripsOnRefusals { max_before } => format!("trip by {max_before}"),
            Target::NeverTrips { .. } => "no trip".to_owned(),
        }
    }

    /// Compares counts with the target. `clean` are the counts of the clean row that was measured at the same time.
    pub fn evaluate(&self, counts: &RowCounts, clean: Option<&RowCounts>) -> Verdict {
        let mut misses = Vec::new();
        let mut require = |holds: bool, miss: String| {
            if !holds {
                misses.push(miss);
            }
        };
        let of_offered = ratio(counts.delivered as f64, counts.offered as f64);
        let share = match self {
            Target::OfClean(_) => clean.and_then(|clean| {
                ratio(counts.delivered_per_second(), clean.delivered_per_second())
            }),
            Target::OfOffered(_)
            | Target::HeldThroughWave { .. }
            | Target::TripsOnRefusals { .. }
            | Target::NeverTrips { .. } => of_offered,
            Target::Clean | Target::AtCapacity { .. } => None,
        };
        match *self {
            Target::Clean => {
                require(counts.delivered > 0, "nothing was delivered".to_owned());
                require(counts.refused == 0, format!("{} refused", counts.refused));
            }
            Target::OfOffered(min) | Target::OfClean(min) => {
                let share = share.unwrap_or(0.0);
                require(share >= min, format!("{share:.3} is below {min:.2}"));
            }
            Target::AtCapacity {
                min_per_second,
                max_refused,
            } => {
                let (rate, refused) = (counts.delivered_per_second(), counts.refused_share());
                require(
                    rate >= min_per_second,
                    format!("{rate:.1}/s is below {min_per_second}/s"),
                );
                require(
                    refused <= max_refused,
                    format!("{:.1} % refused", refused * 100.0),
                );
            }
            Target::HeldThroughWave { max_refused } => {
                let lost = counts.offered - counts.delivered;
                require(
                    counts.refused <= max_refused,
                    format!("{} refused", counts.refused),
                );
                require(
                    counts.never_sent == 0,
                    format!("{} not yet sent", counts.never_sent),
                );
                require(
                    lost <= counts.refused,
                    format!("{lost} not delivered, but only {} refused", counts.refused),
                );
                require(
                    counts.status == "enabled",
                    format!("the endpoint is {}", counts.status),
                );
            }
            Target::TripsOnRefusals { max_before } => {
                let on_refusals = counts.trip_reasons.iter().any(|why| why == "refusals");
                require(on_refusals, "no trip with reason refusals".to_owned());
                if let Some(before) = counts.requests_before_trip {
                    require(
                        before <= max_before,
                        format!("{before} requests before the trip"),
                    );
                }
                if let Some(after) = counts.busiest_second_after_trip {
                    require(after <= 1, format!("{after} requests in a second after it"));
                }
                require(
                    counts.status == "enabled",
                    format!("the endpoint is {}", counts.status),
                );
            }
            Target::NeverTrips { min_exhausted } => {
                let healthy = counts.offered - counts.poison;
                require(counts.trips == 0, format!("{} trips", counts.trips));
                require(
                    counts.exhausted >= min_exhausted,
                    format!("only {} exhausted", counts.exhausted),
                );
                require(
                    counts.delivered == healthy,
                    format!("{} of {healthy} healthy delivered", counts.delivered),
                );
            }
        }
        Verdict {
            ratio: share,
            misses,
        }
    }
}

#[cfg(test)]
#[path = "evaluate_tests.rs"]
mod tests;
