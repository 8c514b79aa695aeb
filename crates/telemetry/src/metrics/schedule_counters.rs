//! Counters of the runs of schedules that this node has decided about.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use posthaste_store::RunStatus;

use super::histogram::Histogram;
use super::metric::{Labelled, Metric, Values};

const ALL: [RunStatus; 3] = [RunStatus::Created, RunStatus::Skipped, RunStatus::Missed];

/// Counters of runs.
#[derive(Debug, Default)]
pub struct ScheduleCounters {
    runs: [AtomicU64; ALL.len()],
    lag: Histogram,
}

impl ScheduleCounters {
    /// Counts a run.
    pub fn count(&self, outcome: RunStatus) {
        self.runs[outcome as usize].fetch_add(1, Relaxed);
    }

    /// Adds the time from an occurrence to the commit of its event.
    pub fn started(&self, lag: Duration) {
        self.lag.observe(lag);
    }

    /// Returns the counters as metrics.
    pub fn metrics(&self) -> [Metric; 2] {
        let runs = ALL.map(|outcome| Labelled {
            labels: vec![("outcome", name(outcome).into())],
            value: self.runs[outcome as usize].load(Relaxed).into(),
        });
        [
            Metric {
                name: "posthaste_schedule_runs_total",
                help: "Runs of schedules handled by this node, by outcome: created an event, skipped because the previous run was unfinished or the event was rejected, or missed.",
                values: Values::Counter(runs.into()),
            },
            Metric::histogram(
                "posthaste_schedule_lag_seconds",
                "Time from the occurrence of a schedule to the commit of its event, on this node. Without missed occurrences.",
                self.lag.snapshot(),
            ),
        ]
    }
}

fn name(outcome: RunStatus) -> &'static str {
    match outcome {
        RunStatus::Created => "created",
        RunStatus::Skipped => "skipped",
        RunStatus::Missed => "missed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::exposition::render;

    #[test]
    fn runs_are_counted_by_outcome() {
        let counters = ScheduleCounters::default();
        counters.count(RunStatus::Created);
        counters.count(RunStatus::Missed);
        counters.count(RunStatus::Missed);
        counters.started(Duration::from_millis(3));
        let text = render(&counters.metrics());
        for line in [
            "posthaste_schedule_runs_total{outcome=\"created\"} 1",
            "posthaste_schedule_runs_total{outcome=\"skipped\"} 0",
            "posthaste_schedule_runs_total{outcome=\"missed\"} 2",
            "posthaste_schedule_lag_seconds_count 1",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}
