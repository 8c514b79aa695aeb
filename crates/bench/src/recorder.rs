//! Records when each event was sent, accepted and received, outside of the measured process.
//!
//! [`Ledger`] has one slot per event and endpoint, so no event is missed or counted twice. A second arrival is
//! counted separately and reported. Producers and receivers fill the slots without locks, because they write for
//! every single event.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::failure::Failure;
use super::figures::Percentiles;

/// Maximum number of wrong arrivals that are reported in detail; others are only counted.
const MAX_TOLD: usize = 5;

/// The record of one run. Times are nanoseconds since it was created.
pub struct Ledger {
    opened_at: Instant,
    endpoints: usize,
    events: usize,
    sent: Box<[AtomicU64]>,
    accepted: Box<[AtomicU64]>,
    arrived: Box<[AtomicU64]>,
    /// Number of first arrivals at each endpoint.
    arrivals: Box<[AtomicU64]>,
    wrong: Mutex<Wrong>,
}

/// Arrivals that should not have happened.
#[derive(Default)]
struct Wrong {
    repeats: u64,
    strays: u64,
    unsigned: u64,
    told: Vec<String>,
}

/// Creates empty slots. A slot holds its time plus one; zero means empty.
fn places(count: usize) -> Box<[AtomicU64]> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

fn moment(place: &AtomicU64) -> Option<u64> {
    place.load(Ordering::Relaxed).checked_sub(1)
}

impl Ledger {
    /// Creates an empty ledger for this number of endpoints and events.
    pub fn new(endpoints: usize, events: usize) -> Ledger {
        Ledger {
            opened_at: Instant::now(),
            endpoints,
            events,
            sent: places(events),
            accepted: places(events),
            arrived: places(events * endpoints),
            arrivals: places(endpoints),
            wrong: Mutex::default(),
        }
    }

    /// Returns the number of endpoints.
    pub fn endpoints(&self) -> usize {
        self.endpoints
    }

    /// Returns the nanoseconds since the ledger was created.
    pub fn now(&self) -> u64 {
        u64::try_from(self.opened_at.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Records that an event is about to be sent.
    pub fn send(&self, number: usize) {
        self.sent[number].store(self.now() + 1, Ordering::Relaxed);
    }

    /// Records that an event was accepted.
    pub fn accept(&self, number: usize) {
        self.accepted[number].store(self.now() + 1, Ordering::Relaxed);
    }

    /// Records that an event has reached an endpoint.
    pub fn arrive(&self, endpoint: usize, number: usize) {
        if endpoint >= self.endpoints || number >= self.events {
            return self.stray("an event that was never sent");
        }
        let place = &self.arrived[endpoint * self.events + number];
        let earlier =
            place.compare_exchange(0, self.now() + 1, Ordering::Relaxed, Ordering::Relaxed);
        match earlier {
            Ok(_) => {
                self.arrivals[endpoint].fetch_add(1, Ordering::Release);
            }
            Err(_) => self.wrong(|wrong| {
                wrong.repeats += 1;
                format!("event {number} came to endpoint {endpoint} again")
            }),
        }
    }

    /// Records an arrival that does not belong to the run.
    pub fn stray(&self, what: &str) {
        self.wrong(|wrong| {
            wrong.strays += 1;
            what.to_owned()
        });
    }

    /// Records a signature that did not verify.
    pub fn unsigned(&self, why: &str) {
        self.wrong(|wrong| {
            wrong.unsigned += 1;
            format!("a signature is wrong: {why}")
        });
    }

    fn wrong(&self, note: impl FnOnce(&mut Wrong) -> String) {
        let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        let told = note(&mut wrong);
        if wrong.told.len() < MAX_TOLD {
            wrong.told.push(told);
        }
    }

    /// Returns the number of arrivals at these endpoints, each event counted once.
    pub fn arrivals(&self, endpoints: Range<usize>) -> u64 {
        let counts = self.arrivals[endpoints].iter();
        counts.map(|count| count.load(Ordering::Acquire)).sum()
    }

    /// Checks that each of these events reached each of these endpoints exactly once, and that nothing else arrived.
    pub fn check(&self, endpoints: Range<usize>, events: Range<usize>) -> Result<(), Failure> {
        let mut missing = 0_u64;
        let mut told = Vec::new();
        for endpoint in endpoints {
            for number in events.clone() {
                if moment(&self.arrived[endpoint * self.events + number]).is_none() {
                    missing += 1;
                    if told.len() < MAX_TOLD {
                        told.push(format!("event {number} never came to endpoint {endpoint}"));
                    }
                }
            }
        }
        let wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        told.extend(wrong.told.iter().cloned());
        if missing + wrong.repeats + wrong.strays + wrong.unsigned == 0 {
            return Ok(());
        }
        Err(Failure::Astray {
            missing,
            repeated: wrong.repeats,
            strays: wrong.strays,
            unsigned: wrong.unsigned,
            told,
        })
    }

    /// Returns the time from sending to acceptance of these events.
    pub fn accept_latency(&self, events: Range<usize>) -> Option<Percentiles> {
        let of = |number: usize| {
            let accepted = moment(&self.accepted[number])?;
            Some(accepted.saturating_sub(moment(&self.sent[number])?))
        };
        Percentiles::of_nanos(events.filter_map(of).collect())
    }

    /// Returns the time from sending to receipt of these events.
    pub fn lag(&self, endpoints: Range<usize>, events: Range<usize>) -> Option<Percentiles> {
        let arrived = |endpoint: usize, number: usize| {
            let arrived = moment(&self.arrived[endpoint * self.events + number])?;
            Some(arrived.saturating_sub(moment(&self.sent[number])?))
        };
        let lags = endpoints.flat_map(|endpoint| {
            let events = events.clone();
            events.filter_map(move |number| arrived(endpoint, number))
        });
        Percentiles::of_nanos(lags.collect())
    }

    /// Returns the accepted events per second, from the first send to the last acceptance.
    pub fn events_per_second(&self, events: Range<usize>) -> Option<f64> {
        let first = self.sent[events.clone()].iter().filter_map(moment).min()?;
        let last = self.accepted[events.clone()]
            .iter()
            .filter_map(moment)
            .max()?;
        per_second(events.len(), first, last)
    }

    /// Returns the deliveries per second, from the first send to the last arrival. It does not start at the first
    /// acceptance, because a few events may all arrive before the first response to the producer does.
    pub fn deliveries_per_second(&self, events: Range<usize>) -> Option<f64> {
        let first = self.sent[events.clone()].iter().filter_map(moment).min()?;
        let last = (0..self.endpoints)
            .flat_map(|endpoint| {
                let start = endpoint * self.events;
                self.arrived[start + events.start..start + events.end].iter()
            })
            .filter_map(moment)
            .max()?;
        per_second(events.len() * self.endpoints, first, last)
    }
}

fn per_second(count: usize, first: u64, last: u64) -> Option<f64> {
    let seconds = last.checked_sub(first)? as f64 / 1e9;
    (seconds > 0.0).then(|| count as f64 / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(ledger: &Ledger) -> String {
        match ledger.check(0..ledger.endpoints, 0..ledger.events) {
            Ok(()) => "all well".to_owned(),
            Err(failure) => failure.to_string(),
        }
    }

    #[test]
    fn each_event_must_come_to_each_endpoint_once() {
        let ledger = Ledger::new(2, 2);
        for (endpoint, number) in [(0, 0), (0, 1), (1, 0)] {
            ledger.arrive(endpoint, number);
        }
        assert!(told(&ledger).contains("event 1 never came to endpoint 1"));
        ledger.arrive(1, 1);
        assert_eq!(told(&ledger), "all well");
        assert_eq!(ledger.arrivals(0..2), 4);
        assert_eq!(ledger.arrivals(1..2), 2);
    }

    #[test]
    fn what_comes_twice_is_told_and_counted_once() {
        let ledger = Ledger::new(1, 1);
        ledger.arrive(0, 0);
        ledger.arrive(0, 0);
        assert_eq!(ledger.arrivals(0..1), 1);
        assert!(told(&ledger).contains("event 0 came to endpoint 0 again"));
    }

    #[test]
    fn strangers_are_no_arrivals() {
        let ledger = Ledger::new(1, 1);
        ledger.arrive(0, 0);
        for (endpoint, number) in [(0, 1), (1, 0)] {
            ledger.arrive(endpoint, number);
        }
        assert_eq!(ledger.arrivals(0..1), 1);
        assert!(told(&ledger).contains("2 that were never sent"));
    }

    #[test]
    fn many_faults_are_told_in_few_lines() {
        let ledger = Ledger::new(1, 1_000);
        let told = told(&ledger);
        assert!(told.contains("1,000 missing"), "{told}");
        assert_eq!(told.lines().count(), 1 + MAX_TOLD);
    }

    #[test]
    fn rates_count_from_the_first_to_the_last() {
        assert_eq!(per_second(10, 1_000_000_000, 3_000_000_000), Some(5.0));
        assert_eq!(per_second(10, 5, 5), None);
        assert_eq!(per_second(10, 6, 5), None);
    }

    #[test]
    fn few_that_arrive_before_the_first_answer_have_a_speed() {
        let ledger = Ledger::new(1, 1);
        ledger.send(0);
        ledger.arrive(0, 0);
        ledger.accept(0);
        assert!(ledger.deliveries_per_second(0..1).is_some());
    }

    #[test]
    fn a_lag_is_told_only_of_what_arrived() {
        let ledger = Ledger::new(1, 2);
        assert_eq!(ledger.lag(0..1, 0..2), None);
        ledger.send(0);
        ledger.accept(0);
        ledger.arrive(0, 0);
        assert!(ledger.lag(0..1, 0..2).is_some());
        assert!(ledger.accept_latency(0..2).is_some());
        assert_eq!(ledger.lag(0..1, 1..2), None);
    }
}
