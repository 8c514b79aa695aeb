//! Counters of the rows that this node reads from outboxes.
//!
//! [`OutboxCounters`] has an entry for every configured outbox, so that each series exists from the start. The lag is
//! known only on the node that reads the outbox.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use posthaste_core::time::{Span, Tick};

use super::metric::{Labelled, Metric, Values};

/// Outcome of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutboxOutcome {
    /// A new event was made of it.
    Accepted,
    /// Its event was stored already, after a crash or because of its idempotency key.
    Repeated,
    /// It got an error.
    Refused,
}

impl OutboxOutcome {
    const ALL: [OutboxOutcome; 3] = [
        OutboxOutcome::Accepted,
        OutboxOutcome::Repeated,
        OutboxOutcome::Refused,
    ];

    /// Returns the value of the metric's label.
    fn name(self) -> &'static str {
        match self {
            OutboxOutcome::Accepted => "accepted",
            OutboxOutcome::Repeated => "repeated",
            OutboxOutcome::Refused => "refused",
        }
    }
}

/// Counters of all outboxes.
#[derive(Debug, Default)]
pub struct OutboxCounters {
    outboxes: Mutex<BTreeMap<String, OutboxCount>>,
}

#[derive(Debug, Default)]
struct OutboxCount {
    rows: [u64; OutboxOutcome::ALL.len()],
    /// Age of the oldest waiting row when the table was last read, and the time of that; absent if another node reads it.
    lag: Option<(Span, Tick)>,
    /// Set while the table cannot be read.
    unreadable_since: Option<Tick>,
}

impl OutboxCounters {
    /// Adds an outbox, with all counters at zero.
    pub fn add(&self, outbox: &str) {
        self.lock().entry(outbox.to_owned()).or_default();
    }

    /// Counts rows.
    pub fn rows(&self, outbox: &str, outcome: OutboxOutcome, count: u64) {
        if let Some(counted) = self.lock().get_mut(outbox) {
            counted.rows[outcome as usize] += count;
        }
    }

    /// Notes that the table was read, and the age of the oldest row that waits.
    pub fn read(&self, outbox: &str, now: Tick, oldest: Span) {
        if let Some(counted) = self.lock().get_mut(outbox) {
            counted.lag = Some((oldest, now));
            counted.unreadable_since = None;
        }
    }

    /// Notes that the table cannot be read. Its lag grows from now on.
    pub fn unreadable(&self, outbox: &str, now: Tick) {
        if let Some(counted) = self.lock().get_mut(outbox) {
            counted.unreadable_since.get_or_insert(now);
            counted.lag.get_or_insert((Span::ZERO, now));
        }
    }

    /// Notes that another node reads the outbox.
    pub fn not_mine(&self, outbox: &str) {
        if let Some(counted) = self.lock().get_mut(outbox) {
            counted.lag = None;
            counted.unreadable_since = None;
        }
    }

    /// Returns the longest time for which one of the outboxes that this node reads could not be read.
    pub fn longest_unreadable(&self, now: Tick) -> Option<Span> {
        let outboxes = self.lock();
        let since = outboxes.values().filter_map(|it| it.unreadable_since).min();
        since.map(|since| now.since(since))
    }

    /// Returns the counters as metrics, at this time; nothing if no outbox is configured.
    pub fn metrics(&self, now: Tick) -> Vec<Metric> {
        let outboxes = self.lock();
        if outboxes.is_empty() {
            return Vec::new();
        }
        let mut rows = Vec::new();
        let mut lags = Vec::new();
        for (name, counted) in &*outboxes {
            for outcome in OutboxOutcome::ALL {
                rows.push(Labelled {
                    labels: vec![
                        ("outbox", name.clone().into()),
                        ("outcome", outcome.name().into()),
                    ],
                    value: counted.rows[outcome as usize].into(),
                });
            }
            if let Some((oldest, read_at)) = counted.lag {
                let lag = match counted.unreadable_since {
                    None => oldest,
                    Some(_) => Span::from_millis(
                        oldest
                            .as_millis()
                            .saturating_add(now.since(read_at).as_millis()),
                    ),
                };
                lags.push(Labelled {
                    labels: vec![("outbox", name.clone().into())],
                    value: lag.as_secs_f64().into(),
                });
            }
        }
        let mut metrics = vec![Metric {
            name: "posthaste_outbox_rows_total",
            help: "Rows of outboxes that this node read, by outcome: accepted as a new event, repeated because the event was stored already, refused with an error.",
            values: Values::Counter(rows),
        }];
        if !lags.is_empty() {
            metrics.push(Metric {
                name: "posthaste_outbox_lag_seconds",
                help: "Age of the oldest row that waited when the outbox was last read, plus the time since then while it cannot be read. Only on the node that reads the outbox.",
                values: Values::Gauge(lags),
            });
        }
        metrics
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, OutboxCount>> {
        // No operation panics before it is complete.
        self.outboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::exposition::render;

    #[test]
    fn every_outbox_has_its_series_from_the_start() {
        let counters = OutboxCounters::default();
        assert!(counters.metrics(Tick(0)).is_empty());
        counters.add("orders");
        let text = render(&counters.metrics(Tick(0)));
        for outcome in ["accepted", "repeated", "refused"] {
            let line =
                format!("posthaste_outbox_rows_total{{outbox=\"orders\",outcome=\"{outcome}\"}} 0");
            assert!(text.contains(&line), "{text}");
        }
        assert!(!text.contains("lag_seconds"), "{text}");
    }

    #[test]
    fn the_lag_grows_while_the_outbox_cannot_be_read() {
        let counters = OutboxCounters::default();
        counters.add("orders");
        let lag = |now: u64| {
            let text = render(&counters.metrics(Tick(now)));
            let value = text.lines().find_map(|line| {
                line.strip_prefix("posthaste_outbox_lag_seconds{outbox=\"orders\"} ")
            });
            value.map(|value| value.parse::<f64>().expect("a number"))
        };
        counters.read("orders", Tick(1_000), Span::from_millis(500));
        assert_eq!(lag(9_000), Some(0.5));
        assert_eq!(counters.longest_unreadable(Tick(9_000)), None);
        counters.unreadable("orders", Tick(10_000));
        counters.unreadable("orders", Tick(11_000));
        assert_eq!(lag(12_000), Some(11.5));
        assert_eq!(
            counters.longest_unreadable(Tick(12_000)),
            Some(Span::from_secs(2))
        );
        counters.read("orders", Tick(13_000), Span::ZERO);
        assert_eq!(lag(14_000), Some(0.0));
        counters.not_mine("orders");
        assert_eq!(lag(15_000), None);
    }
}
