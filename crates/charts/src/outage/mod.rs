//! Chart of the requests that reach a receiver after an outage.
//!
//! Two panels share a time axis: posthaste above, a naive sender below. Each has its own vertical scale,
//! because the peak of the naive sender may be hundreds of times higher. The height of a bar is the busiest
//! second of its bucket, never a mean. If the naive sender continues long after posthaste has finished, the
//! chart ends earlier and shows a note.

mod bars;
mod svg;
mod terminal;

pub use svg::svg;
pub use terminal::terminal;

use posthaste_core::forecast::{Forecast, NAIVE_INTERVAL, OutageScenario, SenderOutcome};

use super::series::{self, Bucket};
use super::{format, ticks};

/// Minimum length of the time axis.
const MIN_AXIS_MS: u64 = 10_000;
/// A capacity higher than the peak by more than this factor is not part of the scale, because it would
/// flatten the bars.
const MAX_CAPACITY_RATIO: u64 = 4;

/// The data of the chart, independent of its form.
#[derive(Clone, Debug)]
struct Chart {
    /// Length of a bucket.
    step_ms: u64,
    /// End of the time axis.
    end_ms: u64,
    outage_ms: u64,
    /// Length of the outage as text.
    outage: String,
    /// Requests per second that the receiver accepts.
    capacity: f64,
    panels: [Panel; 2],
}

/// The requests of one sender.
#[derive(Clone, Debug)]
struct Panel {
    name: &'static str,
    /// Its retry behaviour as text, if that needs explanation.
    retry_behaviour: Option<String>,
    /// Summary of its peak rate.
    note: String,
    buckets: Vec<Bucket>,
    /// The busiest second after recovery: its time and its number of requests.
    peak: Option<(u64, u64)>,
    /// The highest value that the scale must show.
    highest: u64,
    /// The time of its last request as text, if that is beyond the chart.
    continues_until: Option<String>,
}

/// The times of a simulated scenario as text. Different times have different texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Times {
    /// Length of the outage.
    pub outage: String,
    /// Time of the last delivery, from the start of the outage.
    pub posthaste: String,
    /// The same for the naive sender.
    pub naive: String,
    /// Time of the last delivery, from recovery; `None` if it was before recovery.
    pub posthaste_since: Option<String>,
    /// The same for the naive sender.
    pub naive_since: Option<String>,
}

impl Times {
    /// Formats the length of an outage, and the time at which each sender finished.
    pub fn new(outage_ms: u64, posthaste_ms: u64, naive_ms: u64) -> Times {
        let since = |ms: u64| ms.checked_sub(outage_ms);
        let (posthaste_since, naive_since) = (since(posthaste_ms), since(naive_ms));
        let mut all_ms = vec![outage_ms, posthaste_ms, naive_ms];
        all_ms.extend(posthaste_since);
        all_ms.extend(naive_since);
        let mut texts = format::durations(&all_ms).into_iter();
        let mut next = || texts.next().unwrap_or_default();
        Times {
            outage: next(),
            posthaste: next(),
            naive: next(),
            posthaste_since: posthaste_since.map(|_| next()),
            naive_since: naive_since.map(|_| next()),
        }
    }
}

/// Returns the ratio of a peak to the capacity as text, or `None` if the capacity is not exceeded.
pub fn over_capacity(peak: u64, capacity: f64) -> Option<String> {
    // 1.5 requests per second are 2 requests in some seconds.
    let beyond = peak as f64 > capacity.ceil();
    beyond.then(|| format::times(peak as f64 / capacity))
}

impl Chart {
    /// Divides the requests of both senders into at most `max_buckets` buckets each.
    fn new(scenario: &OutageScenario, forecast: &Forecast, max_buckets: usize) -> Chart {
        let wanted_ms = shown_until_ms(scenario, forecast);
        let step_ms = ticks::time_step_ms(wanted_ms, max_buckets);
        let end_ms = wanted_ms.div_ceil(step_ms) * step_ms;
        let capacity = scenario.capacity_per_second;
        let outage_ms = scenario.outage.as_millis();
        let (posthaste, naive) = (&forecast.posthaste, &forecast.naive);
        let times = Times::new(outage_ms, posthaste.drained_ms, naive.drained_ms);
        let panel = |name, retry_behaviour, course: &SenderOutcome, drained: String| {
            let buckets = series::until(&course.arrivals, step_ms, end_ms);
            let continues = series::end_ms(course) > end_ms;
            Panel {
                name,
                retry_behaviour,
                note: note(course, capacity, outage_ms > 0),
                peak: peak(course, outage_ms),
                highest: highest(&buckets, capacity),
                continues_until: continues.then_some(drained),
                buckets,
            }
        };
        let every = format::every(NAIVE_INTERVAL.as_millis());
        let retry_behaviour = format!("retries every {every}");
        Chart {
            step_ms,
            end_ms,
            outage_ms,
            outage: times.outage,
            capacity,
            panels: [
                panel("posthaste", None, posthaste, times.posthaste),
                panel("naive sender", Some(retry_behaviour), naive, times.naive),
            ],
        }
    }
}

/// Returns the end of the time axis: when posthaste finishes, or when the naive sender does if that is not much later.
fn shown_until_ms(scenario: &OutageScenario, forecast: &Forecast) -> u64 {
    let outage_ms = scenario.outage.as_millis();
    let posthaste_ms = series::end_ms(&forecast.posthaste);
    let naive_ms = series::end_ms(&forecast.naive);
    let centre_ms = MIN_AXIS_MS
        .max(outage_ms + outage_ms / 4)
        .max(posthaste_ms + posthaste_ms / 8);
    if naive_ms <= 2 * centre_ms {
        centre_ms.max(naive_ms)
    } else {
        centre_ms
    }
}

fn peak(course: &SenderOutcome, outage_ms: u64) -> Option<(u64, u64)> {
    let after = course.arrivals.range(outage_ms / 1_000..);
    after
        .map(|(second, requests)| (*second, requests.total))
        .find(|(_, total)| *total == course.peak_per_second)
        .map(|(second, total)| (second * 1_000, total))
}

fn highest(buckets: &[Bucket], capacity: f64) -> u64 {
    let capacity = capacity.ceil() as u64;
    let busiest = buckets.iter().map(|bucket| bucket.peak_per_second).max();
    let busiest = busiest.unwrap_or(0);
    if capacity <= busiest.saturating_mul(MAX_CAPACITY_RATIO) {
        busiest.max(capacity)
    } else {
        busiest.max(1)
    }
}

fn note(course: &SenderOutcome, capacity: f64, was_down: bool) -> String {
    if course.attempts == 0 {
        return "no requests".to_owned();
    }
    let when = if was_down { " after recovery" } else { "" };
    let peak = course.peak_per_second;
    if peak == 0 {
        return format!("no requests{when}");
    }
    let highest = format!("peak {}/s{when}", format::count(peak));
    match over_capacity(peak, capacity) {
        Some(ratio) => format!("{highest}, {ratio} the capacity"),
        None => highest,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use posthaste_core::forecast::forecast;
    use posthaste_core::time::Span;

    #[test]
    fn the_chart_shows_the_recovery_and_notes_requests_beyond_its_end() {
        let scenario = OutageScenario::with_defaults(10_000, Span::from_mins(30));
        let forecast = forecast(&scenario);
        let chart = Chart::new(&scenario, &forecast, 144);
        assert!(chart.end_ms > forecast.posthaste.drained_ms);
        assert_eq!(chart.step_ms, 20_000);
        let [posthaste, naive] = &chart.panels;
        assert!(posthaste.buckets.len() <= 144 && naive.buckets.len() <= 144);
        assert_eq!(posthaste.continues_until, None);
        assert_eq!(naive.continues_until.as_deref(), Some("3h 49m"));
        assert_eq!(
            posthaste.highest,
            forecast.posthaste.peak_per_second.max(50)
        );
        assert_eq!(naive.highest, 10_000);
        assert_eq!(naive.peak, Some((1_800_000, 10_000)));
        let total: u64 = posthaste.buckets.iter().map(|bucket| bucket.arrivals).sum();
        assert_eq!(total, forecast.posthaste.attempts);
        assert!(
            naive.note.contains("200 times the capacity"),
            "{}",
            naive.note
        );
    }

    #[test]
    fn a_naive_sender_that_ends_soon_is_shown_completely() {
        let scenario = OutageScenario::with_defaults(500, Span::from_mins(10));
        let forecast = forecast(&scenario);
        let chart = Chart::new(&scenario, &forecast, 144);
        let [_, naive] = &chart.panels;
        let total: u64 = naive.buckets.iter().map(|bucket| bucket.arrivals).sum();
        assert_eq!(total, forecast.naive.attempts);
        assert!(forecast.naive.drained_ms > scenario.outage.as_millis() * 3 / 2);
        assert_eq!(naive.continues_until, None);
    }

    #[test]
    fn a_capacity_far_above_the_peak_does_not_flatten_the_bars() {
        let mut scenario = OutageScenario::with_defaults(100, Span::from_secs(30));
        scenario.capacity_per_second = 90_000.0;
        let chart = Chart::new(&scenario, &forecast(&scenario), 144);
        assert_eq!(chart.panels[1].highest, 100);
    }

    #[test]
    fn different_times_have_different_texts() {
        let day_ms = Span::from_days(1).as_millis();
        let times = Times::new(day_ms, day_ms + 269_000, day_ms - 1);
        assert_eq!(times.outage, "1d");
        assert_eq!(times.posthaste, "1d 4m");
        assert_eq!(times.naive, "23h 59m 59.999s");
        assert_eq!(times.posthaste_since.as_deref(), Some("4m 29s"));
        assert_eq!(times.naive_since, None);
    }

    #[test]
    fn a_fraction_of_a_request_does_not_exceed_the_capacity() {
        assert_eq!(over_capacity(2, 1.5), None);
        assert_eq!(over_capacity(1, 0.01), None);
        assert_eq!(over_capacity(3, 1.5).as_deref(), Some("2 times"));
        assert_eq!(over_capacity(50, 50.0), None);
    }

    #[test]
    fn without_an_outage_no_recovery_is_mentioned() {
        let scenario = OutageScenario::with_defaults(200, Span::ZERO);
        let chart = Chart::new(&scenario, &forecast(&scenario), 144);
        assert_eq!(chart.panels[1].note, "peak 200/s, 4 times the capacity");
        assert!(!chart.panels[0].note.contains("recovery"));
    }

    #[test]
    fn no_requests_make_a_chart_too() {
        let scenario = OutageScenario::with_defaults(0, Span::ZERO);
        let chart = Chart::new(&scenario, &forecast(&scenario), 144);
        assert_eq!(chart.end_ms, MIN_AXIS_MS);
        assert_eq!(chart.panels[0].note, "no requests");
        assert_eq!(chart.panels[0].peak, None);
    }
}
