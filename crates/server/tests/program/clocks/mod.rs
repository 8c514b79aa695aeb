//! Clocks that are wrong, jump and are set back, with the built program: nodes agree on the time, and nothing is late.
//!
//! The receiver measures by its own monotonic clock. The test's own wall clock is the real time.

mod one_node;
mod several_nodes;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use posthaste_testbed::{Api, Arrival, Receiver};
use serde_json::{Value, json};
use tokio::time::Instant;

const HOUR_SECS: i64 = 3_600;

/// Maximum lateness of an attempt: a heartbeat, and a busy machine.
const MAX_LATENESS: Duration = Duration::from_millis(2_500);

/// Returns the real time in seconds.
fn real_secs() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("a clock after 1970").as_secs() as i64
}

/// Returns a retry policy with this pause before each retry.
fn pause_of(pause: Duration) -> Value {
    json!({
        "backoff": {"kind": "fixed", "interval": format!("{}ms", pause.as_millis())},
        "jitter": {"kind": "none"}, "max_attempts": 3, "give_up_after": "1d",
    })
}

/// Checks that the second attempt of each delivery came after the pause, and not later than that and the lateness.
fn assert_retries_on_time(arrivals: &[Arrival], pause: Duration) {
    let first = arrivals.iter().filter(|arrival| arrival.attempt() == 1);
    for first in first {
        let second = arrivals
            .iter()
            .find(|other| other.attempt() == 2 && other.delivery() == first.delivery())
            .expect("every delivery has a second attempt");
        let waited = second.at.duration_since(first.at);
        assert!(
            waited + Duration::from_millis(50) >= pause,
            "{waited:?} of {pause:?}"
        );
        assert!(waited <= pause + MAX_LATENESS, "{waited:?} of {pause:?}");
    }
}

/// Waits until each of these deliveries has had this attempt.
async fn until_attempt(receiver: &Receiver, deliveries: usize, attempt: u32) -> Vec<Arrival> {
    let reached = |arrivals: &[Arrival]| {
        let of_number = arrivals
            .iter()
            .filter(|arrival| arrival.attempt() == attempt);
        of_number.count() >= deliveries
    };
    receiver.until(reached).await
}

/// Returns the offset that a node reports, in seconds.
async fn reported_offset(api: &mut Api) -> f64 {
    let text = api.get("/metrics").await.text;
    let name = "posthaste_clock_offset_seconds ";
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let value = line.unwrap_or_else(|| panic!("no {name} in {text}"));
    value.parse().expect("a number")
}

/// Sends an event and waits until it has arrived. Returns the arrival, and the time from the request to it.
async fn deliver(
    api: &mut Api,
    receiver: &Receiver,
    tenant: &str,
    event: Value,
) -> (Arrival, Duration) {
    let sent_at = Instant::now();
    let id = api.deliver(tenant, event).await;
    let is_it = |arrival: &&Arrival| arrival.delivery() == id;
    let arrivals = receiver.until(|arrivals| arrivals.iter().any(|arrival| is_it(&arrival)));
    let arrival = arrivals
        .await
        .iter()
        .find(is_it)
        .cloned()
        .expect("it arrived");
    let took = arrival.at.duration_since(sent_at.into_std());
    (arrival, took)
}

fn timestamp_of(arrival: &Arrival) -> i64 {
    let text = arrival.header("webhook-timestamp");
    text.parse().expect("whole seconds")
}
