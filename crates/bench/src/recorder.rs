//! Records when each event was sent, accepted and received, outside of the measured process.
//!
//! [`Recorder`] has one slot per event and endpoint, so no event is missed or counted twice. A second arrival is
//! counted separately and reported. Producers and receivers fill the slots without locks, because they write for
//! every single event.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::error::BenchError;
use super::statistics::Percentiles;

/// Maximum number of wrong arrivals that are reported in detail; others are only counted.
const MAX_EXAMPLES: usize = 5;

/// The record of one run. Times are nanoseconds since it was created.
pub struct Recorder {
    created_at: Instant,
    endpoints: usize,
    events: usize,
    sent: Box<[AtomicU64]>,
    accepted: Box<[AtomicU64]>,
    arrived: Box<[AtomicU64]>,
    /// Number of first arrivals at each endpoint.
    arrivals: Box<[AtomicU64]>,
    wrong: Mutex<WrongArrivals>,
}

/// Arrivals that should not have happened.
#[derive(Default)]
struct WrongArrivals {
    repeats: u64,
    unexpected: u64,
    bad_signatures: u64,
    examples: Vec<String>,
}

/// Creates empty slots. A slot holds its time plus one; zero means empty.
fn slots(count: usize) -> Box<[AtomicU64]> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

fn recorded_at(slot: &AtomicU64) -> Option<u64> {
    slot.load(Ordering::Relaxed).checked_sub(1)
}

impl Recorder {
    /// Creates an empty recorder for this number of endpoints and events.
    pub fn new(endpoints: usize, events: usize) -> Recorder {
        Recorder {
            created_at: Instant::now(),
            endpoints,
            events,
            sent: slots(events),
            accepted: slots(events),
            arrived: slots(events * endpoints),
            arrivals: slots(endpoints),
            wrong: Mutex::default(),
        }
    }

    /// Returns the number of endpoints.
    pub fn endpoints(&self) -> usize {
        self.endpoints
    }

    /// Returns the nanoseconds since the recorder was created.
    pub fn now(&self) -> u64 {
        u64::try_from(self.created_at.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Records that an event is about to be sent.
    pub fn record_sent(&self, number: usize) {
        self.sent[number].store(self.now() + 1, Ordering::Relaxed);
    }

    /// Records that an event was accepted.
    pub fn record_accepted(&self, number: usize) {
        self.accepted[number].store(self.now() + 1, Ordering::Relaxed);
    }

    /// Records that an event has reached an endpoint.
    pub fn record_arrival(&self, endpoint: usize, number: usize) {
        if endpoint >= self.endpoints || number >= self.events {
            return self.record_unexpected("an event that was never sent");
        }
        let slot = &self.arrived[endpoint * self.events + number];
        let earlier =
            slot.compare_exchange(0, self.now() + 1, Ordering::Relaxed, Ordering::Relaxed);
        match earlier {
            Ok(_) => {
                self.arrivals[endpoint].fetch_add(1, Ordering::Release);
            }
            Err(_) => self.record_wrong(|wrong| {
                wrong.repeats += 1;
                format!("event {number} came to endpoint {endpoint} again")
            }),
        }
    }

    /// Records an arrival that does not belong to the run.
    pub fn record_unexpected(&self, what: &str) {
        self.record_wrong(|wrong| {
            wrong.unexpected += 1;
            what.to_owned()
        });
    }

    /// Records a signature that did not verify.
    pub fn record_bad_signature(&self, why: &str) {
        self.record_wrong(|wrong| {
            wrong.bad_signatures += 1;
            format!("a signature is wrong: {why}")
        });
    }

    fn record_wrong(&self, note: impl FnOnce(&mut WrongArrivals) -> String) {
        let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        let example = note(&mut wrong);
        if wrong.examples.len() < MAX_EXAMPLES {
            wrong.examples.push(example);
        }
    }

    /// Returns the number of arrivals at these endpoints, each event counted once.
    pub fn arrivals(&self, endpoints: Range<usize>) -> u64 {
        let counts = self.arrivals[endpoints].iter();
        counts.map(|count| count.load(Ordering::Acquire)).sum()
    }

    /// Checks that each of these events reached each of these endpoints exactly once, and that nothing else arrived.
    pub fn check(&self, endpoints: Range<usize>, events: Range<usize>) -> Result<(), BenchError> {
        let mut missing = 0_u64;
        let mut examples = Vec::new();
        for endpoint in endpoints {
            for number in events.clone() {
                if recorded_at(&self.arrived[endpoint * self.events + number]).is_none() {
                    missing += 1;
                    if examples.len() < MAX_EXAMPLES {
                        examples.push(format!("event {number} never came to endpoint {endpoint}"));
                    }
                }
            }
        }
        let wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        examples.extend(wrong.examples.iter().cloned());
        if missing + wrong.repeats + wrong.unexpected + wrong.bad_signatures == 0 {
            return Ok(());
        }
        Err(BenchError::Inconsistent {
            missing,
            repeated: wrong.repeats,
            unexpected: wrong.unexpected,
            bad_signatures: wrong.bad_signatures,
            examples,
        })
    }

    /// Returns the time from sending to acceptance of these events.
    pub fn accept_latency(&self, events: Range<usize>) -> Option<Percentiles> {
        let of = |number: usize| {
            let accepted = recorded_at(&self.accepted[number])?;
            Some(accepted.saturating_sub(recorded_at(&self.sent[number])?))
        };
        Percentiles::of_nanos(events.filter_map(of).collect())
    }

    /// Returns the time from sending to receipt of these events.
    pub fn lag(&self, endpoints: Range<usize>, events: Range<usize>) -> Option<Percentiles> {
        let arrived = |endpoint: usize, number: usize| {
            let arrived = recorded_at(&self.arrived[endpoint * self.events + number])?;
            Some(arrived.saturating_sub(recorded_at(&self.sent[number])?))
        };
        let lags = endpoints.flat_map(|endpoint| {
            let events = events.clone();
            events.filter_map(move |number| arrived(endpoint, number))
        });
        Percentiles::of_nanos(lags.collect())
    }

    /// Returns the accepted events per second, from the first send to the last acceptance.
    pub fn events_per_second(&self, events: Range<usize>) -> Option<f64> {
        let first = self.sent[events.clone()]
            .iter()
            .filter_map(recorded_at)
            .min()?;
        let last = self.accepted[events.clone()]
            .iter()
            .filter_map(recorded_at)
            .max()?;
        per_second(events.len(), first, last)
    }

    /// Returns the deliveries per second, from the first send to the last arrival. It does not start at the first
    /// acceptance, because a few events may all arrive before the first response to the producer does.
    pub fn deliveries_per_second(&self, events: Range<usize>) -> Option<f64> {
        let first = self.sent[events.clone()]
            .iter()
            .filter_map(recorded_at)
            .min()?;
        let last = (0..self.endpoints)
            .flat_map(|endpoint| {
                let start = endpoint * self.events;
                self.arrived[start + events.start..start + events.end].iter()
            })
            .filter_map(recorded_at)
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

    fn check_result(recorder: &Recorder) -> String {
        match recorder.check(0..recorder.endpoints, 0..recorder.events) {
            Ok(()) => "all well".to_owned(),
            Err(failure) => failure.to_string(),
        }
    }

    #[test]
    fn each_event_must_reach_each_endpoint_once() {
        let recorder = Recorder::new(2, 2);
        for (endpoint, number) in [(0, 0), (0, 1), (1, 0)] {
            recorder.record_arrival(endpoint, number);
        }
        assert!(check_result(&recorder).contains("event 1 never came to endpoint 1"));
        recorder.record_arrival(1, 1);
        assert_eq!(check_result(&recorder), "all well");
        assert_eq!(recorder.arrivals(0..2), 4);
        assert_eq!(recorder.arrivals(1..2), 2);
    }

    #[test]
    fn a_duplicate_is_reported_and_counted_once() {
        let recorder = Recorder::new(1, 1);
        recorder.record_arrival(0, 0);
        recorder.record_arrival(0, 0);
        assert_eq!(recorder.arrivals(0..1), 1);
        assert!(check_result(&recorder).contains("event 0 came to endpoint 0 again"));
    }

    #[test]
    fn unexpected_requests_are_no_arrivals() {
        let recorder = Recorder::new(1, 1);
        recorder.record_arrival(0, 0);
        for (endpoint, number) in [(0, 1), (1, 0)] {
            recorder.record_arrival(endpoint, number);
        }
        assert_eq!(recorder.arrivals(0..1), 1);
        assert!(check_result(&recorder).contains("2 that were never sent"));
    }

    #[test]
    fn many_errors_are_reported_in_few_lines() {
        let recorder = Recorder::new(1, 1_000);
        let text = check_result(&recorder);
        assert!(text.contains("1,000 missing"), "{text}");
        assert_eq!(text.lines().count(), 1 + MAX_EXAMPLES);
    }

    #[test]
    fn rates_count_from_the_first_to_the_last_event() {
        assert_eq!(per_second(10, 1_000_000_000, 3_000_000_000), Some(5.0));
        assert_eq!(per_second(10, 5, 5), None);
        assert_eq!(per_second(10, 6, 5), None);
    }

    #[test]
    fn events_that_arrive_before_the_first_response_have_a_rate() {
        let recorder = Recorder::new(1, 1);
        recorder.record_sent(0);
        recorder.record_arrival(0, 0);
        recorder.record_accepted(0);
        assert!(recorder.deliveries_per_second(0..1).is_some());
    }

    #[test]
    fn lag_covers_only_events_that_arrived() {
        let recorder = Recorder::new(1, 2);
        assert_eq!(recorder.lag(0..1, 0..2), None);
        recorder.record_sent(0);
        recorder.record_accepted(0);
        recorder.record_arrival(0, 0);
        assert!(recorder.lag(0..1, 0..2).is_some());
        assert!(recorder.accept_latency(0..2).is_some());
        assert_eq!(recorder.lag(0..1, 1..2), None);
    }
}
