//! The rows of the table: the receiver, the load, the endpoint's settings and the target of each.
//!
//! [`full_speed`] compares receivers that fail in part with one that accepts everything, all at the same time and with 50
//! requests in flight each. [`paced`] has the rows whose load is small. Rows of a group share a server, not an endpoint.

use std::time::Duration;

use http::StatusCode;
use posthaste_core::lane::RateLimit;
use posthaste_core::policy::MAX_ATTEMPTS;
use serde_json::{Value, json};

use super::evaluate::Target;
use crate::api::Limits;
use crate::faults::Faults;
use crate::settings::Settings;

/// Events at full speed last for one second each, if all answers take 50 ms.
pub const EVENTS_PER_SECOND: usize = 1_000;
/// In-flight limit of the endpoints at full speed.
const IN_FLIGHT: u32 = 50;
/// Response time of the receivers at full speed.
const FAST_ANSWER: Duration = Duration::from_millis(50);
/// Response time of the others.
const PACED_ANSWER: Duration = Duration::from_millis(20);
/// Rate of the paced rows, in events per second.
const PACE: f64 = 20.0;
/// The capacity of limited receivers, in requests per second.
const CAPACITY: u32 = 10;
/// Duration of the wave of refusals.
const WAVE: Duration = Duration::from_secs(3);
/// Number of events that the wave meets.
const WAVE_EVENTS: usize = 500;
/// Refusals without a success that trip the breaker, and the requests in flight at that moment with default settings.
const MAX_REFUSED: u64 = 100 + 10;
/// Rate of the row with poison events, in events per second.
const POISON_PACE: f64 = 40.0;
/// Number of events of which one is poison.
const POISON_ONE_IN: usize = 20;
/// Number of attempts of the policy in that row.
const POISON_ATTEMPTS: u32 = 3;
/// Minimum number of exhausted deliveries in that row. So many used to trip the breaker.
const MIN_EXHAUSTED: u64 = 10;
/// Part of the measured time in which events are offered if all of them should end within it.
const OFFERED_PART: f64 = 0.8;

/// The events of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OfferedLoad {
    /// All at once.
    AtOnce(usize),
    /// At a rate.
    Paced {
        /// Number of events.
        events: usize,
        /// Events per second.
        per_second: f64,
    },
}

impl OfferedLoad {
    fn paced(per_second: f64, seconds: f64) -> OfferedLoad {
        OfferedLoad::Paced {
            events: (per_second * seconds).round() as usize,
            per_second,
        }
    }

    /// Returns the number of events.
    pub fn events(self) -> usize {
        match self {
            OfferedLoad::AtOnce(events) | OfferedLoad::Paced { events, .. } => events,
        }
    }
}

/// One row of the table.
#[derive(Clone, Debug)]
pub struct Row {
    /// Description of the receiver.
    pub receiver: String,
    /// Its faults.
    pub faults: Faults,
    /// Its response time.
    pub latency: Duration,
    /// The events.
    pub offer: OfferedLoad,
    /// Limits of the endpoint; the server's defaults if `None`.
    pub limits: Option<Limits>,
    /// Retry policy of the endpoint; the server's default if `None`.
    pub retry_policy: Option<Value>,
    /// Maximum number of attempts, if the policy has few.
    pub max_attempts: Option<u32>,
    /// The target.
    pub target: Target,
}

/// Returns the rows at full speed: the clean one first, then those that are compared with it.
pub fn full_speed(events: usize) -> Vec<Row> {
    let unavailable = StatusCode::SERVICE_UNAVAILABLE;
    let error = StatusCode::INTERNAL_SERVER_ERROR;
    let row = |receiver: &str, faults, target| Row {
        receiver: receiver.to_owned(),
        faults,
        latency: FAST_ANSWER,
        offer: OfferedLoad::AtOnce(events),
        limits: Some(Limits {
            max_in_flight: IN_FLIGHT,
            rate: Settings::unlimited(),
        }),
        retry_policy: Some(fixed_policy("1s", MAX_ATTEMPTS)),
        max_attempts: None,
        target,
    };
    let mut rows = vec![row("full speed, clean", Faults::NONE, Target::Clean)];
    for (percent, status, min) in [
        (1, unavailable, 0.95),
        (5, unavailable, 0.9),
        (20, unavailable, 0.7),
        (20, error, 0.7),
    ] {
        let receiver = format!("full speed, {percent} % {}", status.as_u16());
        let faults = Faults::Random { percent, status };
        rows.push(row(&receiver, faults, Target::OfClean(min)));
    }
    rows
}

/// Returns the rows with a small load, measured for this time.
pub fn paced(seconds: f64) -> Vec<Row> {
    let row = |receiver: &str, faults, offer, target| Row {
        receiver: receiver.to_owned(),
        faults,
        latency: PACED_ANSWER,
        offer,
        limits: None,
        retry_policy: None,
        max_attempts: None,
        target,
    };
    let random = Faults::Random {
        percent: 20,
        status: StatusCode::SERVICE_UNAVAILABLE,
    };
    let limited = |status| Faults::Capacity {
        per_second: CAPACITY,
        status,
    };
    let wave = Faults::Wave {
        duration: WAVE,
        status: StatusCode::FORBIDDEN,
    };
    let missing = Faults::Always {
        status: StatusCode::NOT_FOUND,
    };
    let poison = Faults::Poison {
        one_in: POISON_ONE_IN,
        status: StatusCode::INTERNAL_SERVER_ERROR,
    };
    let at_pace = OfferedLoad::paced(PACE, seconds);
    let at_capacity = Target::AtCapacity {
        min_per_second: 8.0,
        max_refused: 0.15,
    };
    let held = Target::HeldThroughWave {
        max_refused: MAX_REFUSED,
    };
    let trips = Target::TripsOnRefusals {
        max_before: MAX_REFUSED,
    };
    let never_trips = Target::NeverTrips {
        min_exhausted: MIN_EXHAUSTED,
    };
    let too_many = limited(StatusCode::TOO_MANY_REQUESTS);
    let unavailable = limited(StatusCode::SERVICE_UNAVAILABLE);
    let backlog = OfferedLoad::AtOnce(at_pace.events());
    vec![
        row("20/s, 20 % 503", random, at_pace, Target::OfOffered(0.9)),
        row("20/s, 429 above 10/s", too_many, at_pace, at_capacity),
        row("20/s, 503 above 10/s", unavailable, at_pace, at_capacity),
        row(
            "all at once, 429 above 10/s",
            too_many,
            backlog,
            at_capacity,
        ),
        row("403 for 3 s", wave, OfferedLoad::AtOnce(WAVE_EVENTS), held),
        row("20/s, only 404", missing, at_pace, trips),
        Row {
            retry_policy: Some(fixed_policy("500ms", POISON_ATTEMPTS)),
            max_attempts: Some(POISON_ATTEMPTS),
            limits: Some(Limits {
                max_in_flight: 10,
                rate: RateLimit::default(),
            }),
            ..row(
                "40/s, 5 % poison (500)",
                poison,
                OfferedLoad::paced(POISON_PACE, seconds * OFFERED_PART),
                never_trips,
            )
        },
    ]
}

/// A policy with equal delays.
fn fixed_policy(interval: &str, max_attempts: u32) -> Value {
    json!({
        "backoff": {"kind": "fixed", "interval": interval},
        "jitter": {"kind": "full"},
        "max_attempts": max_attempts,
        "give_up_after": "1d",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_row_at_full_speed_is_clean_and_the_others_are_compared_with_it() {
        let rows = full_speed(50_000);
        assert_eq!(
            (rows[0].target, rows[0].faults),
            (Target::Clean, Faults::NONE)
        );
        let compared = |row: &Row| matches!(row.target, Target::OfClean(_));
        assert!(rows[1..].iter().all(compared), "{rows:?}");
        // Equal otherwise, so that only the faults differ.
        for row in &rows[1..] {
            assert_eq!((row.latency, row.limits), (rows[0].latency, rows[0].limits));
            assert_eq!(
                (row.offer, &row.retry_policy),
                (rows[0].offer, &rows[0].retry_policy)
            );
        }
    }

    #[test]
    fn paced_rows_offer_for_the_measured_time() {
        let rows = paced(50.0);
        assert_eq!(rows[0].offer.events(), 1_000);
        let poison = rows.last().expect("a row");
        assert_eq!(poison.offer.events(), 1_600);
        let many = poison.offer.events() / POISON_ONE_IN;
        assert!(many as u64 > 2 * MIN_EXHAUSTED, "{many}");
    }
}
