//! Counts the runs of a schedule that failed one after the other.
//!
//! The last run is judged when the next occurrence is decided about. With short intervals its deliveries may not have ended
//! then, and the deliveries of no later run have either: their retries can last for days. So one unfinished run is watched
//! ([`WatchedRun`]), and counts as failed when its deliveries have failed or have not ended for [`UNFINISHED_AFTER`].
//! Then the run that is the last one by that time is watched. A success of the last run ends the streak at once.

use posthaste_core::schedule::WatchedRun;
use posthaste_core::time::{Span, Timestamp};
use posthaste_store::EventProgress;

/// A run whose deliveries have not ended for this long counts as failed.
pub(crate) const UNFINISHED_AFTER: Span = Span::from_mins(15);

/// The states of the deliveries of earlier runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunProgress {
    /// Of the last run that made an event.
    pub(crate) last: EventProgress,
    /// Of the watched run; that of the last one if none is watched.
    pub(crate) watched: EventProgress,
}

/// The failed runs of a schedule, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FailureStreak {
    /// Their number.
    pub(crate) failed_runs: u32,
    /// The watched run. Without one it is the last run.
    pub(crate) watched: Option<WatchedRun>,
}

impl FailureStreak {
    /// Returns the streak after a decision at `now`. `last` is the last run that made an event before the decision, and
    /// `makes_event` tells that the decision makes another one.
    pub(crate) fn after(
        self,
        now: Timestamp,
        last: Option<WatchedRun>,
        progress: RunProgress,
        makes_event: bool,
    ) -> FailureStreak {
        let failed = FailureStreak {
            failed_runs: self.failed_runs.saturating_add(1),
            watched: None,
        };
        match (progress.last, progress.watched) {
            (EventProgress::Finished, _) | (EventProgress::Unfinished, EventProgress::Finished) => {
                FailureStreak {
                    failed_runs: 0,
                    watched: None,
                }
            }
            (EventProgress::Failed, _) if makes_event => failed,
            // The decision that makes the next event counts it.
            (EventProgress::Failed, _) => FailureStreak {
                watched: None,
                ..self
            },
            (EventProgress::Unfinished, EventProgress::Failed) => failed,
            (EventProgress::Unfinished, EventProgress::Unfinished) => {
                let Some(watched) = self.watched.or(last) else {
                    return self;
                };
                if now.since(watched.since) < UNFINISHED_AFTER {
                    let watched = Some(watched);
                    return FailureStreak { watched, ..self };
                }
                // If no run follows, the last one counts again after the same time.
                let again = last.map(|last| WatchedRun { since: now, ..last });
                FailureStreak {
                    watched: again.filter(|_| !makes_event),
                    ..failed
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::EventProgress::{Failed, Finished, Unfinished};
    use super::*;
    use posthaste_core::id::EventId;

    const NOON: Timestamp = Timestamp(1_800_014_400_000);

    fn run(event: u128, since: Timestamp) -> WatchedRun {
        WatchedRun {
            event: EventId(event),
            since,
        }
    }

    fn streak(failed_runs: u32, watched: Option<WatchedRun>) -> FailureStreak {
        FailureStreak {
            failed_runs,
            watched,
        }
    }

    #[test]
    fn a_run_that_has_ended_is_judged_by_the_next_one() {
        let before = streak(2, None);
        let last = Some(run(7, NOON));
        let after = |progress, makes_event| {
            let progress = RunProgress {
                last: progress,
                watched: progress,
            };
            before.after(NOON, last, progress, makes_event)
        };
        assert_eq!(after(Failed, true), streak(3, None));
        assert_eq!(after(Failed, false), streak(2, None));
        assert_eq!(after(Finished, true), streak(0, None));
        assert_eq!(after(Unfinished, true), streak(2, last));
        let first = before.after(
            NOON,
            None,
            RunProgress {
                last: Finished,
                watched: Finished,
            },
            true,
        );
        assert_eq!(first, streak(0, None));
    }

    /// Every minute a run is made whose deliveries are retried for days.
    #[test]
    fn retries_that_last_longer_than_the_interval_count() {
        let retried = RunProgress {
            last: Unfinished,
            watched: Unfinished,
        };
        let mut state = streak(0, None);
        let mut failed_at = Vec::new();
        for minute in 1..=50 {
            let now = NOON.after(Span::from_mins(minute));
            let last = run(u128::from(minute), NOON.after(Span::from_mins(minute - 1)));
            let after = state.after(now, Some(last), retried, true);
            if after.failed_runs > state.failed_runs {
                failed_at.push(minute);
            }
            state = after;
        }
        assert_eq!(failed_at, [15, 30, 45]);
        // One success ends the streak, also while earlier runs are retried.
        let recovered = RunProgress {
            last: Finished,
            watched: Unfinished,
        };
        let now = NOON.after(Span::from_mins(51));
        let ended = state.after(now, Some(run(51, NOON)), recovered, true);
        assert_eq!(ended, streak(0, None));
    }

    #[test]
    fn occurrences_that_are_skipped_because_of_an_unfinished_run_count() {
        let unfinished = RunProgress {
            last: Unfinished,
            watched: Unfinished,
        };
        let last = Some(run(7, NOON));
        let mut state = streak(0, None);
        for minute in 1..=60 {
            let now = NOON.after(Span::from_mins(minute));
            state = state.after(now, last, unfinished, false);
            assert_eq!(u64::from(state.failed_runs), minute / 15, "minute {minute}");
        }
    }

    #[test]
    fn an_earlier_run_that_failed_counts_while_the_last_one_is_unfinished() {
        let watched = Some(run(6, NOON));
        let last = Some(run(9, NOON));
        for (of_watched, failed_runs) in [(Failed, 2), (Finished, 0)] {
            let progress = RunProgress {
                last: Unfinished,
                watched: of_watched,
            };
            let after = streak(1, watched).after(NOON, last, progress, true);
            assert_eq!(after, streak(failed_runs, None));
        }
    }
}
