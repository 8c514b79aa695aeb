//! The course of an open alert: its current value, its peak, and when it clears. Pure.
//!
//! [`AlertCourse::of`] computes the value of each minute since the alert was raised, as the checker does, from the stats
//! buckets. Stats are kept for a limited time: of an older alert, the peak covers that time and the value that raised it.

use posthaste_core::alert::{AlertName, AlertRule, Bound, Reading};
use posthaste_core::time::{Span, Timestamp};
use posthaste_store::{BucketWidth, StatCounters};

use super::readings::{FROM_COUNTERS, buckets, from_counters};

/// The stats buckets to read for the course of an alert: their width, and the start of the first one.
pub fn buckets_of_course(
    now: Timestamp,
    raised_at: Timestamp,
    window: Span,
) -> (BucketWidth, Timestamp) {
    let (width, newest) = buckets(now, window);
    let of_raise = Timestamp(raised_at.0.saturating_sub(window.as_millis()));
    let since = width.begin(of_raise.min(newest)).max(width.first_kept(now));
    (width, since)
}

/// The course of an open alert.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AlertCourse {
    /// The current value; `None` if nothing was measured within the window.
    pub current: Option<f64>,
    /// The worst value since the alert was raised.
    pub peak: Option<f64>,
    /// The earliest time at which the alert is resolved, if the value stays normal; `None` while it is critical.
    pub clears_at: Option<Timestamp>,
}

impl AlertCourse {
    /// Computes the course of an alert from stats. `counters` are the buckets of its scope, oldest first, each with its
    /// start. An alert that is not computed from counters has no course.
    pub fn of(
        name: AlertName,
        rule: &AlertRule,
        (raised_at, raised_value): (Timestamp, Option<f64>),
        counters: &[(Timestamp, StatCounters)],
        (now, window): (Timestamp, Span),
    ) -> AlertCourse {
        let mut course = AlertCourse {
            peak: raised_value,
            ..AlertCourse::default()
        };
        if !FROM_COUNTERS.contains(&name) {
            return course;
        }
        let value_at = |at: Timestamp| reading_at(name, counters, (at, window));
        let step = buckets(now, window).0.bucket().as_millis();
        let first = raised_at.0.max(counters.first().map_or(now.0, |it| it.0.0));
        let mut critical_until = None;
        for at in (first..now.0).step_by(step as usize).chain([now.0]) {
            let Reading::Value { value, samples } = value_at(Timestamp(at)) else {
                continue;
            };
            if rule.bound.is_crossed(value) {
                critical_until = Some(Timestamp(at));
            }
            if samples >= rule.least_samples {
                course.peak = Some(worse(rule.bound, course.peak, value));
            }
        }
        let is_critical = match value_at(now) {
            Reading::Value { value, .. } => {
                course.current = Some(value);
                rule.bound.is_crossed(value)
            }
            Reading::Nothing | Reading::Unknown => false,
        };
        if !is_critical {
            let normal_since = critical_until.unwrap_or(raised_at);
            course.clears_at = Some(normal_since.after(rule.calm).max(now));
        }
        course
    }
}

/// Returns the reading of an alert at a time, as the checker makes it.
fn reading_at(
    name: AlertName,
    counters: &[(Timestamp, StatCounters)],
    (at, window): (Timestamp, Span),
) -> Reading {
    let (_, since) = buckets(at, window);
    let mut sum = StatCounters::default();
    for (_, bucket) in counters
        .iter()
        .filter(|(start, _)| *start >= since && *start <= at)
    {
        sum.add(bucket);
    }
    let readings = from_counters(&sum).into_iter();
    let mut own = readings.filter(|(read, _)| *read == name);
    own.next().map_or(Reading::Unknown, |(_, reading)| reading)
}

fn worse(bound: Bound, peak: Option<f64>, value: f64) -> f64 {
    match (bound, peak) {
        (_, None) => value,
        (Bound::Above(_), Some(peak)) => peak.max(value),
        (Bound::Below(_), Some(peak)) => peak.min(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000;
    const START: Timestamp = Timestamp(1_700_000_040_000);
    const WINDOW: Span = Span::from_mins(5);

    fn rule() -> AlertRule {
        AlertRule {
            bound: Bound::Above(0.1),
            least_samples: 20,
            calm: Span::from_mins(5),
        }
    }

    /// Buckets of one minute each, with 100 first attempts of which so many are retried.
    fn minutes(retried: &[u64]) -> Vec<(Timestamp, StatCounters)> {
        let bucket = |(minute, retried): (usize, &u64)| {
            let counters = StatCounters {
                attempts: 100,
                retried_deliveries: *retried,
                ..StatCounters::default()
            };
            (Timestamp(START.0 + minute as u64 * MINUTE), counters)
        };
        retried.iter().enumerate().map(bucket).collect()
    }

    fn course(retried: &[u64], now_minute: u64) -> AlertCourse {
        let raised = (Timestamp(START.0 + 2 * MINUTE), Some(0.2));
        let now = Timestamp(START.0 + now_minute * MINUTE + 1);
        AlertCourse::of(
            AlertName::RetryRatio,
            &rule(),
            raised,
            &minutes(retried),
            (now, WINDOW),
        )
    }

    #[test]
    fn critical_alert_has_a_current_value_and_a_peak_and_no_end() {
        let retried = [20, 20, 20, 80, 80, 80, 80, 80, 80, 80, 30, 30, 30];
        let critical = course(&retried, 12);
        assert_eq!(critical.clears_at, None);
        assert_eq!(critical.peak, Some(0.8));
        let current = critical.current.expect("a value");
        assert!((0.3..0.8).contains(&current), "{current}");
    }

    #[test]
    fn normal_value_clears_the_alert_after_the_calm_time() {
        let mut retried = vec![50; 5];
        retried.extend([0; 20]);
        let normal = course(&retried, 20);
        assert_eq!(normal.current, Some(0.0));
        assert_eq!(normal.peak, Some(0.5));
        // It was critical until the window had no retry any more but the calm time is over.
        assert_eq!(
            normal.clears_at,
            Some(Timestamp(START.0 + 20 * MINUTE + 1)),
            "the next check resolves it"
        );
        let early = course(&retried, 12);
        let clears_at = early.clears_at.expect("a time");
        assert!(clears_at > Timestamp(START.0 + 12 * MINUTE), "{clears_at}");
    }

    #[test]
    fn few_samples_are_no_peak_and_no_traffic_is_normal() {
        let mut few = minutes(&[20, 20, 20]);
        few.push((
            Timestamp(START.0 + 10 * MINUTE),
            StatCounters {
                attempts: 2,
                retried_deliveries: 2,
                ..StatCounters::default()
            },
        ));
        let raised = (Timestamp(START.0 + 2 * MINUTE), Some(0.2));
        let now = Timestamp(START.0 + 10 * MINUTE + 1);
        let name = AlertName::RetryRatio;
        let course = AlertCourse::of(name, &rule(), raised, &few, (now, WINDOW));
        assert_eq!((course.current, course.peak), (Some(1.0), Some(0.2)));
        let quiet = Timestamp(START.0 + 60 * MINUTE);
        let course = AlertCourse::of(name, &rule(), raised, &few, (quiet, WINDOW));
        assert_eq!(course.current, None);
        assert!(course.clears_at.is_some());
    }

    #[test]
    fn alert_without_counters_has_only_the_value_that_raised_it() {
        let raised = (START, Some(700.0));
        let now = (Timestamp(START.0 + MINUTE), WINDOW);
        let course = AlertCourse::of(AlertName::QueueAge, &rule(), raised, &[], now);
        assert_eq!(course.peak, Some(700.0));
        assert_eq!((course.current, course.clears_at), (None, None));
    }

    #[test]
    fn buckets_of_an_old_alert_are_bounded() {
        let now = Timestamp(START.0 + 10 * 24 * 60 * MINUTE);
        let (width, since) = buckets_of_course(now, START, Span::from_hours(1));
        assert_eq!(width, BucketWidth::Minute);
        assert!(now.since(since) <= width.kept());
        let (_, since) = buckets_of_course(now, now, WINDOW);
        assert!(now.since(since) >= WINDOW);
    }
}
