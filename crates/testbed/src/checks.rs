//! Checks of the delivery guarantees, made from the requests that receivers recorded.
//!
//! Each check takes only the ledger of a [`Receiver`](crate::Receiver), never anything that a node reports about
//! itself. The error of a check names the broken guarantee and the delivery that broke it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::Arrival;

/// Length of the window in which the rate is counted.
const SECOND: Duration = Duration::from_secs(1);

/// Checks that each of these events has arrived at each of these endpoints.
pub fn check_nothing_lost<'a>(
    records: &[Arrival],
    events: impl IntoIterator<Item = &'a String>,
    endpoints: &[&str],
) -> Result<(), String> {
    let arrived: BTreeSet<(String, &str)> = records
        .iter()
        .map(|arrival| (arrival.event(), arrival.path.trim_start_matches('/')))
        .collect();
    let mut lost = Vec::new();
    for event in events {
        for endpoint in endpoints {
            if !arrived.contains(&(event.clone(), *endpoint)) {
                lost.push(format!("{event} at {endpoint}"));
            }
        }
    }
    match lost.as_slice() {
        [] => Ok(()),
        [first, ..] => Err(format!("{} never arrived, such as {first}", lost.len())),
    }
}

/// Checks that no delivery was attempted more often than its retry policy allows. Two arrivals of the same attempt
/// count once: [`duplicates_within`] limits those.
pub fn check_attempts(records: &[Arrival], most: u32) -> Result<(), String> {
    for (delivery, arrivals) in by_delivery(records) {
        let attempts: BTreeSet<u32> = arrivals.iter().map(|arrival| arrival.attempt()).collect();
        let past = attempts.last().is_some_and(|last| *last > most);
        if past || attempts.len() > most as usize {
            return Err(format!(
                "{delivery} had attempts {attempts:?}, more than {most}"
            ));
        }
    }
    Ok(())
}

/// Returns the arrivals of an attempt that had arrived before. Without faults there are none.
pub fn duplicates(records: &[Arrival]) -> Vec<&Arrival> {
    let mut seen = BTreeSet::new();
    let again = |arrival: &&Arrival| !seen.insert((arrival.delivery(), arrival.attempt()));
    records.iter().filter(again).collect()
}

/// Checks that there are at most `most` duplicates: the number of attempts in flight when a fault happened.
pub fn duplicates_within(records: &[Arrival], most: usize) -> Result<(), String> {
    let found = duplicates(records);
    match found.first() {
        Some(first) if found.len() > most => Err(format!(
            "{} duplicates, more than the {most} attempts in flight, such as {} (attempt {})",
            found.len(),
            first.delivery(),
            first.attempt()
        )),
        Some(_) | None => Ok(()),
    }
}

/// Returns the maximum number of requests that were in flight at once. A request without `left_at` is still in flight.
pub fn max_concurrent(records: &[Arrival]) -> usize {
    let mut moments = Vec::new();
    for arrival in records {
        moments.push((arrival.at, 1));
        if let Some(left_at) = arrival.left_at {
            moments.push((left_at, -1));
        }
    }
    // At the same instant an end sorts before a start, so the two do not overlap.
    moments.sort_unstable();
    let mut here = 0_i64;
    let mut most = 0;
    for (_, change) in moments {
        here += change;
        most = most.max(here);
    }
    usize::try_from(most).expect("as many ends as starts")
}

/// Checks that at most `cap` requests were in flight at once. The ledger is that of one endpoint.
pub fn check_in_flight(records: &[Arrival], cap: usize) -> Result<(), String> {
    let most = max_concurrent(records);
    if most <= cap {
        return Ok(());
    }
    // For the error message: the requests in flight when the limit was first exceeded.
    let here_with = |last: &Arrival| -> Vec<&Arrival> {
        let is_here = |other: &&Arrival| {
            other.at <= last.at && other.left_at.is_none_or(|left_at| left_at > last.at)
        };
        records.iter().filter(is_here).collect()
    };
    let here = records.iter().map(here_with).find(|here| here.len() > cap);
    let began = records.iter().map(|arrival| arrival.at).min();
    let since_began = |at: Instant| began.map(|began| at - began);
    let shown: Vec<String> = here
        .unwrap_or_default()
        .iter()
        .map(|arrival| {
            format!(
                "{} from {:?}, in flight from {:?} to {:?}",
                arrival.delivery(),
                arrival.sender,
                since_began(arrival.at),
                arrival.left_at.and_then(since_began)
            )
        })
        .collect();
    Err(format!(
        "{most} requests were in flight at once, more than {cap}:\n{}",
        shown.join("\n")
    ))
}

/// Checks that requests of two nodes never overlapped. The ledger is that of one endpoint. Requests without a known
/// sender are ignored: their node ended while they arrived.
pub fn check_single_sender(records: &[Arrival]) -> Result<(), String> {
    let mut arrivals: Vec<&Arrival> = records.iter().collect();
    arrivals.retain(|arrival| arrival.sender.is_some());
    arrivals.sort_unstable_by_key(|arrival| arrival.at);
    // The end of the latest request of each sender. `None`: a request of the sender is still in flight.
    let mut here: BTreeMap<Option<u32>, Option<Instant>> = BTreeMap::new();
    for arrival in arrivals {
        for (sender, left_at) in &here {
            let still_here = left_at.is_none_or(|left_at| left_at > arrival.at);
            if *sender != arrival.sender && still_here {
                return Err(format!(
                    "{} came from {:?} while a request of {sender:?} was in flight",
                    arrival.delivery(),
                    arrival.sender
                ));
            }
        }
        let left_at = here.entry(arrival.sender).or_insert(arrival.left_at);
        *left_at = left_at
            .zip(arrival.left_at)
            .map(|(one, other)| one.max(other));
    }
    Ok(())
}

/// Returns the maximum number of arrivals in any window of one second. The window includes its start and excludes its
/// end.
pub fn max_per_second(records: &[Arrival]) -> usize {
    let mut moments: Vec<_> = records.iter().map(|arrival| arrival.at).collect();
    moments.sort_unstable();
    let mut oldest = 0;
    let mut most = 0;
    for (index, moment) in moments.iter().enumerate() {
        while *moment - moments[oldest] >= SECOND {
            oldest += 1;
        }
        most = most.max(index + 1 - oldest);
    }
    most
}

/// Checks that no window of one second has more arrivals than the rate limit plus the burst. The ledger is that of one
/// endpoint.
pub fn check_rate(records: &[Arrival], per_second: usize, burst: usize) -> Result<(), String> {
    let most = max_per_second(records);
    if most > per_second + burst {
        return Err(format!(
            "{most} requests within a second, more than {per_second} plus a burst of {burst}"
        ));
    }
    Ok(())
}

fn by_delivery(records: &[Arrival]) -> BTreeMap<String, Vec<&Arrival>> {
    let mut deliveries: BTreeMap<String, Vec<&Arrival>> = BTreeMap::new();
    for arrival in records {
        let arrivals = deliveries.entry(arrival.delivery()).or_default();
        arrivals.push(arrival);
    }
    deliveries
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds arrivals from time in ms, delivery and attempt. Each is answered after 100 ms.
    fn records(arrivals: &[(u64, &str, u32)]) -> Vec<Arrival> {
        let start = Instant::now();
        let of = |(number, (at_ms, delivery, attempt)): (usize, &(u64, &str, u32))| {
            let mut headers = http::HeaderMap::new();
            let mut set = |name: &'static str, value: String| {
                headers.insert(name, value.parse().expect("a header"));
            };
            set("webhook-id", format!("dlv_{delivery}"));
            set("posthaste-event-id", format!("evt_{delivery}"));
            set("posthaste-attempt", attempt.to_string());
            let at = start + Duration::from_millis(*at_ms);
            Arrival {
                number: number + 1,
                method: "POST".to_owned(),
                path: "/hook".to_owned(),
                query: None,
                headers,
                body: bytes::Bytes::new(),
                sender: None,
                at,
                left_at: Some(at + Duration::from_millis(100)),
            }
        };
        arrivals.iter().enumerate().map(of).collect()
    }

    #[test]
    fn a_missing_event_is_lost_at_that_endpoint() {
        let records = records(&[(0, "a", 1)]);
        let (a, b) = ("evt_a".to_owned(), "evt_b".to_owned());
        assert_eq!(check_nothing_lost(&records, [&a], &["hook"]), Ok(()));
        assert!(check_nothing_lost(&records, [&a, &b], &["hook"]).is_err());
        let elsewhere = check_nothing_lost(&records, [&a], &["hook", "other"]);
        assert_eq!(
            elsewhere.unwrap_err(),
            "1 never arrived, such as evt_a at other"
        );
    }

    #[test]
    fn too_many_attempts_are_found_and_a_repeated_attempt_counts_once() {
        let thrice = records(&[(0, "a", 1), (1, "a", 2), (2, "a", 2)]);
        assert_eq!(check_attempts(&thrice, 2), Ok(()));
        assert!(check_attempts(&thrice, 1).is_err());
        assert!(check_attempts(&records(&[(0, "a", 3)]), 2).is_err());
    }

    #[test]
    fn only_the_same_attempt_again_is_a_duplicate() {
        let records = records(&[
            (0, "a", 1),
            (1, "b", 1),
            (2, "a", 2),
            (3, "a", 1),
            (4, "a", 1),
        ]);
        assert_eq!(duplicates(&records).len(), 2);
        assert_eq!(duplicates_within(&records, 2), Ok(()));
        assert!(duplicates_within(&records, 1).is_err());
    }

    #[test]
    fn an_answered_request_is_no_longer_in_flight() {
        let mut records = records(&[(0, "a", 1), (50, "b", 1), (100, "c", 1), (400, "d", 1)]);
        assert_eq!(max_concurrent(&records), 2);
        assert_eq!(check_in_flight(&records, 2), Ok(()));
        assert!(check_in_flight(&records, 1).is_err());
        // A request without an answer stays in flight until the end.
        records[0].left_at = None;
        assert_eq!(max_concurrent(&records), 3);
        assert_eq!(max_concurrent(&[]), 0);
    }

    #[test]
    fn requests_of_two_senders_may_not_overlap() {
        let mut records = records(&[(0, "a", 1), (50, "b", 1), (200, "c", 1)]);
        for (arrival, sender) in records.iter_mut().zip([1, 1, 2]) {
            arrival.sender = Some(sender);
        }
        assert_eq!(check_single_sender(&records), Ok(()));
        records[1].sender = Some(2);
        assert!(check_single_sender(&records).is_err());
        records[1].sender = None;
        assert_eq!(check_single_sender(&records), Ok(()));
        records[0].left_at = None;
        assert!(check_single_sender(&records).is_err());
    }

    #[test]
    fn the_busiest_second_is_found_wherever_it_begins() {
        let records = records(&[
            (900, "a", 1),
            (950, "b", 1),
            (1_100, "c", 1),
            (1_899, "d", 1),
            (1_900, "e", 1),
        ]);
        assert_eq!(max_per_second(&records), 4);
        assert_eq!(check_rate(&records, 3, 1), Ok(()));
        assert!(check_rate(&records, 2, 1).is_err());
        assert_eq!(max_per_second(&[]), 0);
    }
}
