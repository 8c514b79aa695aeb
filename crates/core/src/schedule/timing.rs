//! The occurrences of a schedule, without its start and end.

use super::cron::{CronError, CronExpression};
use super::definition::{MIN_INTERVAL, ScheduleTiming};
use super::zone::{UnknownZone, Zone};
use crate::time::{Span, Timestamp};

/// Number of distances between occurrences that [`Timing::shortest_gap`] compares.
const GAPS_CHECKED: usize = 200;

/// A timing that is ready for arithmetic.
#[derive(Clone, Debug)]
pub enum Timing {
    /// At the times that match, in this zone.
    Cron(Box<CronExpression>, Zone),
    /// At every multiple of the interval after the anchor.
    Every(Span),
    /// At these times, ascending.
    At(Vec<Timestamp>),
}

/// The timing cannot be computed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimingError {
    /// The cron expression has mistakes; the first is shown.
    #[error("the cron expression cannot be used: {}", first(.0))]
    Cron(Vec<CronError>),
    /// The zone is not known.
    #[error(transparent)]
    Zone(#[from] UnknownZone),
}

fn first(errors: &[CronError]) -> String {
    errors.first().map(CronError::to_string).unwrap_or_default()
}

impl Timing {
    /// Prepares a timing. The time zone matters only for cron expressions.
    pub fn new(timing: &ScheduleTiming, timezone: &str) -> Result<Timing, TimingError> {
        match timing {
            ScheduleTiming::Cron(text) => {
                let expression = CronExpression::parse(text).map_err(TimingError::Cron)?;
                Ok(Timing::Cron(Box::new(expression), Zone::find(timezone)?))
            }
            ScheduleTiming::Every(interval) => Ok(Timing::Every((*interval).max(MIN_INTERVAL))),
            ScheduleTiming::At(times) => Ok(Timing::At(times.clone())),
        }
    }

    /// Returns the first occurrence after `after`. Fixed intervals are counted from `anchor`, which is an occurrence itself.
    pub fn next_after(&self, after: Timestamp, anchor: Timestamp) -> Option<Timestamp> {
        match self {
            Timing::Cron(expression, zone) => expression.next_after(after, zone),
            Timing::Every(_) if after < anchor => Some(anchor),
            Timing::Every(interval) => {
                let passed = after.since(anchor).as_millis() / interval.as_millis();
                Some(anchor.after(interval.times(passed + 1)))
            }
            Timing::At(times) => times.iter().copied().find(|at| *at > after),
        }
    }

    /// Returns the shortest duration between two of the next occurrences after `after`, or `None` if there are less than two.
    /// Looks at the next `GAPS_CHECKED`: expressions repeat their shortest distance early.
    pub fn shortest_gap(&self, after: Timestamp) -> Option<Span> {
        let mut occurrences = Vec::new();
        let mut next = self.next_after(after, after);
        while let Some(at) = next.filter(|_| occurrences.len() <= GAPS_CHECKED) {
            occurrences.push(at);
            next = self.next_after(at, after);
        }
        let gaps = occurrences.windows(2).map(|pair| pair[1].since(pair[0]));
        gaps.min()
    }

    /// Returns the timing in words, such as `At 09:00, Monday through Friday (Europe/Berlin)`.
    pub fn description(&self) -> String {
        match self {
            Timing::Cron(expression, zone) => format!("{} ({})", expression.words(), zone.name()),
            Timing::Every(interval) => format!("Every {}", words_of_span(*interval)),
            Timing::At(times) => match times.as_slice() {
                [] => "Never".to_owned(),
                [once] => format!("Once, at {once}"),
                [first, .., last] => {
                    format!("At {} times, from {first} to {last}", times.len())
                }
            },
        }
    }
}

/// Returns a duration in words: `15 minutes`, `1 hour and 30 minutes`, `second`.
fn words_of_span(span: Span) -> String {
    const UNITS: [(u64, &str); 5] = [
        (86_400_000, "day"),
        (3_600_000, "hour"),
        (60_000, "minute"),
        (1_000, "second"),
        (1, "millisecond"),
    ];
    let mut rest = span.as_millis();
    let mut parts = Vec::new();
    for (size, unit) in UNITS {
        let count = rest / size;
        rest %= size;
        match count {
            0 => {}
            1 => parts.push(format!("1 {unit}")),
            count => parts.push(format!("{count} {unit}s")),
        }
    }
    match parts.as_slice() {
        [only] => only.strip_prefix("1 ").unwrap_or(only).to_owned(),
        [] | [_, _, ..] => parts.join(" and "),
    }
}
