//! Sends events at random intervals, with bursts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::Method;
use posthaste_core::dice::Dice;
use serde_json::json;

use super::script::{EVENT_TYPES, Script, TENANT};
use crate::cli::failure::Failure;
use crate::cli::remote::ApiCommandError;
use crate::cli::remote::client::{Call, Client};

/// Maximum interval between two events, as a multiple of the mean.
const LONGEST_GAP: f64 = 5.0;

/// Sends events forever, and counts the accepted ones.
pub async fn send(
    script: Script,
    mut client: Client,
    mut dice: Dice,
    accepted: &AtomicU64,
) -> Result<(), Failure> {
    let begun_at = Instant::now();
    let mut timetable = EventTimes::new(script);
    for number in 1_u64.. {
        let due = timetable.next(&mut dice);
        tokio::time::sleep(due.saturating_sub(begun_at.elapsed())).await;
        let call = event(number, &mut dice);
        match client.ask(&call).await {
            Ok(_) => {
                accepted.fetch_add(1, Ordering::Relaxed);
            }
            // For example a full disk: the event is not accepted, and so not counted.
            Err(ApiCommandError::Refused(_)) => {}
            Err(trouble) => return Err(trouble.into()),
        }
    }
    Ok(())
}

/// The times of the events: single ones, and a burst now and then.
struct EventTimes {
    script: Script,
    last: Duration,
    bunch: (Duration, u32),
}

impl EventTimes {
    fn new(script: Script) -> EventTimes {
        EventTimes {
            script,
            last: Duration::ZERO,
            bunch: script.next_burst(Duration::ZERO),
        }
    }

    fn next(&mut self, dice: &mut Dice) -> Duration {
        let due = self.last + gap(self.script.traffic(self.last), dice);
        let (bunch_at, left) = self.bunch;
        self.last = match (due < bunch_at, left.checked_sub(1)) {
            (true, _) => due,
            (false, Some(left)) => {
                self.bunch.1 = left;
                bunch_at
            }
            (false, None) => {
                self.bunch = self.script.next_burst(bunch_at);
                due
            }
        };
        self.last
    }
}

/// Returns a random interval, exponentially distributed as between independent events.
fn gap(per_second: f64, dice: &mut Dice) -> Duration {
    // Never zero, because the logarithm of zero is infinite.
    let share = dice.between(1, 1_000_000) as f64 / 1_000_000.0;
    Duration::from_secs_f64((-share.ln()).min(LONGEST_GAP) / per_second)
}

fn event(number: u64, dice: &mut Dice) -> Call {
    let event_type = *dice.pick(&EVENT_TYPES);
    let body = json!({
        "type": event_type,
        "payload": {
            "number": number,
            "customer": format!("cus_{:04}", dice.between(1, 500)),
            "amount_cents": dice.between(100, 99_900),
            "currency": "EUR",
        },
    });
    Call {
        method: Method::POST,
        target: format!("/v1/tenants/{TENANT}/events"),
        body: Some(body.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_and_bunches_come_whole() {
        let script = Script {
            tempo: 1.0,
            per_second: 20.0,
        };
        let mut dice = Dice::seeded(5);
        let mut timetable = EventTimes::new(script);
        let times: Vec<Duration> = (0..1_000).map(|_| timetable.next(&mut dice)).collect();
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
    fn on_average_there_are_as_many_as_asked_for() {
        let mut dice = Dice::seeded(3);
        let total: Duration = (0..10_000).map(|_| gap(20.0, &mut dice)).sum();
        let per_second = 10_000.0 / total.as_secs_f64();
        assert!((19.0..21.0).contains(&per_second), "{per_second}/s");
    }
}
