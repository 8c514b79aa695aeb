//! The occurrences of a schedule, without its start and end.

use super::definition::{MIN_INTERVAL, ScheduleTiming};
use crate::time::{Span, Timestamp};

/// A timing that is ready for arithmetic.
#[derive(Clone, Debug)]
pub(super) enum Timing {
    /// At every multiple of the interval after the anchor.
    Every(Span),
    /// At these times, ascending.
    At(Vec<Timestamp>),
}

/// The timing cannot be computed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimingError {
    /// The cron expression has mistakes.
    #[error("the cron expression cannot be read")]
    Cron,
}

impl Timing {
    pub(super) fn new(timing: &ScheduleTiming, _timezone: &str) -> Result<Timing, TimingError> {
        match timing {
            ScheduleTiming::Cron(_) => Err(TimingError::Cron),
            ScheduleTiming::Every(interval) => Ok(Timing::Every((*interval).max(MIN_INTERVAL))),
            ScheduleTiming::At(times) => Ok(Timing::At(times.clone())),
        }
    }

    /// Returns the first occurrence after `after`. Fixed intervals are counted from `anchor`.
    pub(super) fn next_after(&self, after: Timestamp, anchor: Timestamp) -> Option<Timestamp> {
        match self {
            Timing::Every(_) if after < anchor => Some(anchor),
            Timing::Every(interval) => {
                let passed = after.since(anchor).as_millis() / interval.as_millis();
                Some(anchor.after(interval.times(passed + 1)))
            }
            Timing::At(times) => times.iter().copied().find(|at| *at > after),
        }
    }
}
