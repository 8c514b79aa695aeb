//! Sends events at random intervals, with bursts.
//!
//! `EventTimes` decides when: the intervals are exponentially distributed, as between independent events, from a
//! seeded generator.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use posthaste_core::rng::Rng;
use serde_json::json;

use super::scenario::{DemoScenario, EVENT_TYPES, TENANT};
use crate::client::{ApiClient, ApiRequest, ClientError};

/// Maximum interval between two events, as a multiple of the mean.
const MAX_INTERVAL: f64 = 5.0;

/// Sends events forever, and counts the accepted ones.
pub async fn send(
    scenario: DemoScenario,
    mut client: ApiClient,
    mut rng: Rng,
    accepted: &AtomicU64,
) -> Result<(), ClientError> {
    let started_at = Instant::now();
    let mut times = EventTimes::new(scenario);
    for number in 1_u64.. {
        let due = times.next(&mut rng);
        tokio::time::sleep(due.saturating_sub(started_at.elapsed())).await;
        let request = event(number, &mut rng);
        match client.send(&request).await {
            Ok(_) => {
                accepted.fetch_add(1, Ordering::Relaxed);
            }
            // For example a full disk: the event is not accepted, and so not counted.
            Err(ClientError::Refused(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The times of the events: single ones, and a burst now and then.
struct EventTimes {
    scenario: DemoScenario,
    last: Duration,
    burst: (Duration, u32),
}

impl EventTimes {
    fn new(scenario: DemoScenario) -> EventTimes {
        EventTimes {
            scenario,
            last: Duration::ZERO,
            burst: scenario.next_burst(Duration::ZERO),
        }
    }

    fn next(&mut self, rng: &mut Rng) -> Duration {
        let due = self.last + interval(self.scenario.traffic(self.last), rng);
        let (burst_at, left) = self.burst;
        self.last = match (due < burst_at, left.checked_sub(1)) {
            (true, _) => due,
            (false, Some(left)) => {
                self.burst.1 = left;
                burst_at
            }
            (false, None) => {
                self.burst = self.scenario.next_burst(burst_at);
                due
            }
        };
        self.last
    }
}

/// Returns a random interval, exponentially distributed as between independent events.
fn interval(per_second: f64, rng: &mut Rng) -> Duration {
    // Never zero, because the logarithm of zero is infinite.
    let share = rng.between(1, 1_000_000) as f64 / 1_000_000.0;
    Duration::from_secs_f64((-share.ln()).min(MAX_INTERVAL) / per_second)
}

fn event(number: u64, rng: &mut Rng) -> ApiRequest {
    let event_type = *rng.pick(&EVENT_TYPES);
    let body = json!({
        "type": event_type,
        "payload": {
            "number": number,
            "customer": format!("cus_{:04}", rng.between(1, 500)),
            "amount_cents": rng.between(100, 99_900),
            "currency": "EUR",
        },
    });
    ApiRequest::post(format!("/v1/tenants/{TENANT}/events"), body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_increase_and_bursts_are_complete() {
        let scenario = DemoScenario {
            speed: 1.0,
            events_per_second: 20.0,
        };
        let mut rng = Rng::seeded(5);
        let mut times = EventTimes::new(scenario);
        let times: Vec<Duration> = (0..1_000).map(|_| times.next(&mut rng)).collect();
        assert!(times.is_sorted());
        for second in [5, 15, 25] {
            let at = Duration::from_secs(second);
            let together = times.iter().filter(|time| **time == at).count();
            assert_eq!(together, 25, "at {second} s");
        }
        let first_10_s = times.iter().filter(|time| time.as_secs() < 10).count();
        assert!((180..270).contains(&first_10_s), "{first_10_s}");
    }

    #[test]
    fn the_mean_rate_is_the_configured_one() {
        let mut rng = Rng::seeded(3);
        let total: Duration = (0..10_000).map(|_| interval(20.0, &mut rng)).sum();
        let per_second = 10_000.0 / total.as_secs_f64();
        assert!((19.0..21.0).contains(&per_second), "{per_second}/s");
    }
}
