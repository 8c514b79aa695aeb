//! Arrivals at a receiver that was down and came back, as a picture.
//!
//! Two panels share one axis of time, posthaste above and the naive sender below, each with a scale
//! of its own: the herd may be hundreds of times higher, and on one scale nothing else would show.
//! Heights are the busiest second of each stretch of time, never a mean. Where the naive sender
//! goes on long after the rest is over, the picture ends and says so.

mod svg;
mod terminal;

pub use svg::svg;
pub use terminal::terminal;

use posthaste_sim::recovery::{Course, NAIVE_INTERVAL, Recovery, Scenario};

use super::series::{self, Bucket};
use super::{ticks, words};

/// The least a picture shows.
const LEAST_MS: u64 = 10_000;
/// A capacity further above the arrivals than this many times would flatten them.
const FAR_ABOVE: u64 = 4;

/// What is drawn, before it is clear how.
#[derive(Clone, Debug)]
struct Chart {
    /// What each bucket spans.
    step_ms: u64,
    /// Where the axis of time ends.
    end_ms: u64,
    outage_ms: u64,
    capacity: u64,
    panels: [Panel; 2],
}

/// One sender's arrivals.
#[derive(Clone, Debug)]
struct Panel {
    name: &'static str,
    /// How it goes about it, if that needs saying.
    habit: Option<String>,
    /// How busy it was.
    note: String,
    buckets: Vec<Bucket>,
    /// The busiest second after recovery: when, and how busy.
    peak: Option<(u64, u64)>,
    /// The highest value its scale must show.
    highest: u64,
    /// When it ends, if that lies beyond the picture.
    goes_on_until_ms: Option<u64>,
}

impl Chart {
    /// Lays the two courses out in at most `most` buckets each.
    fn new(scenario: &Scenario, recovery: &Recovery, most: usize) -> Chart {
        let wanted_ms = shown_until_ms(scenario, recovery);
        let step_ms = ticks::time_step_ms(wanted_ms, most);
        let end_ms = wanted_ms.div_ceil(step_ms) * step_ms;
        let capacity = scenario.capacity_per_second as u64;
        let outage_ms = scenario.outage.as_millis();
        let panel = |name, habit, course: &Course| {
            let buckets = series::until(&course.arrivals, step_ms, end_ms);
            let goes_on = series::end_ms(course) > end_ms;
            Panel {
                name,
                habit,
                note: note(course, capacity),
                peak: peak(course, outage_ms),
                highest: highest(&buckets, capacity),
                goes_on_until_ms: goes_on.then_some(course.drained_ms),
                buckets,
            }
        };
        let every = words::duration(NAIVE_INTERVAL.as_millis());
        let habit = format!("everything again every {every}");
        Chart {
            step_ms,
            end_ms,
            outage_ms,
            capacity,
            panels: [
                panel("posthaste", None, &recovery.posthaste),
                panel("naive sender", Some(habit), &recovery.naive),
            ],
        }
    }
}

/// Where the picture ends: when posthaste is done, and when the naive sender is if that is not much later.
fn shown_until_ms(scenario: &Scenario, recovery: &Recovery) -> u64 {
    let outage_ms = scenario.outage.as_millis();
    let posthaste_ms = series::end_ms(&recovery.posthaste);
    let naive_ms = series::end_ms(&recovery.naive);
    let centre_ms = LEAST_MS
        .max(outage_ms + outage_ms / 4)
        .max(posthaste_ms + posthaste_ms / 8);
    if naive_ms <= 2 * centre_ms {
        centre_ms.max(naive_ms)
    } else {
        centre_ms
    }
}

fn peak(course: &Course, outage_ms: u64) -> Option<(u64, u64)> {
    let after = course.arrivals.range(outage_ms / 1_000..);
    after
        .map(|(second, seen)| (*second, seen.total))
        .find(|(_, total)| *total == course.peak_per_second)
        .map(|(second, total)| (second * 1_000, total))
}

fn highest(buckets: &[Bucket], capacity: u64) -> u64 {
    let busiest = buckets.iter().map(|bucket| bucket.peak_per_second).max();
    let busiest = busiest.unwrap_or(0);
    if capacity <= busiest.saturating_mul(FAR_ABOVE) {
        busiest.max(capacity)
    } else {
        busiest.max(1)
    }
}

fn note(course: &Course, capacity: u64) -> String {
    if course.attempts == 0 {
        return "no requests".to_owned();
    }
    let peak = course.peak_per_second;
    if peak == 0 {
        return "no requests after recovery".to_owned();
    }
    let highest = format!("at most {}/s after recovery", words::count(peak));
    if peak > capacity {
        let ratio = words::times(peak as f64 / capacity as f64);
        format!("{highest}, {ratio} the capacity")
    } else {
        highest
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use posthaste_core::lane::RateLimit;
    use posthaste_core::policy::Preset;
    use posthaste_core::time::Span;
    use posthaste_sim::recovery::play;

    pub(crate) fn scenario(pending: u32, outage: Span) -> Scenario {
        Scenario {
            policy: Preset::Recommended.policy(),
            pending,
            outage,
            capacity_per_second: 50.0,
            max_in_flight: 10,
            rate: RateLimit::default(),
            seed: 1,
        }
    }

    #[test]
    fn the_picture_shows_recovery_and_tells_of_what_it_cuts() {
        let scenario = scenario(10_000, Span::from_mins(30));
        let recovery = play(&scenario);
        let chart = Chart::new(&scenario, &recovery, 144);
        assert!(chart.end_ms > recovery.posthaste.drained_ms);
        assert_eq!(chart.step_ms, 20_000);
        let [posthaste, naive] = &chart.panels;
        assert!(posthaste.buckets.len() <= 144 && naive.buckets.len() <= 144);
        assert_eq!(posthaste.goes_on_until_ms, None);
        assert_eq!(naive.goes_on_until_ms, Some(recovery.naive.drained_ms));
        assert_eq!(
            posthaste.highest,
            recovery.posthaste.peak_per_second.max(50)
        );
        assert_eq!(naive.highest, 10_000);
        assert_eq!(naive.peak, Some((1_800_000, 10_000)));
        let shown: u64 = posthaste.buckets.iter().map(|bucket| bucket.arrivals).sum();
        assert_eq!(shown, recovery.posthaste.attempts);
        assert!(
            naive.note.contains("200 times the capacity"),
            "{}",
            naive.note
        );
    }

    #[test]
    fn a_naive_sender_that_ends_soon_is_shown_whole() {
        let scenario = scenario(500, Span::from_mins(10));
        let recovery = play(&scenario);
        let chart = Chart::new(&scenario, &recovery, 144);
        let [_, naive] = &chart.panels;
        let shown: u64 = naive.buckets.iter().map(|bucket| bucket.arrivals).sum();
        assert_eq!(shown, recovery.naive.attempts);
        assert!(recovery.naive.drained_ms > scenario.outage.as_millis() * 3 / 2);
        assert_eq!(naive.goes_on_until_ms, None);
    }

    #[test]
    fn a_capacity_out_of_reach_does_not_flatten_the_arrivals() {
        let mut scenario = scenario(100, Span::from_secs(30));
        scenario.capacity_per_second = 90_000.0;
        let chart = Chart::new(&scenario, &play(&scenario), 144);
        assert_eq!(chart.panels[1].highest, 100);
    }

    #[test]
    fn nothing_pending_still_makes_a_chart() {
        let scenario = scenario(0, Span::ZERO);
        let chart = Chart::new(&scenario, &play(&scenario), 144);
        assert_eq!(chart.end_ms, LEAST_MS);
        assert_eq!(chart.panels[0].note, "no requests");
        assert_eq!(chart.panels[0].peak, None);
    }
}
