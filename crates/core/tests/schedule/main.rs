//! Occurrences of schedules, compared with an independent implementation and with a plain scan of time.
//!
//! `tests/vectors/schedules.tsv` lists what Python's zoneinfo says for thirteen zones and ten years; `schedules.py` beside
//! it makes the table.

mod random_expressions;
mod table;

use posthaste_core::schedule::{CronExpression, Zone};
use posthaste_core::time::Timestamp;

fn cron(text: &str) -> CronExpression {
    CronExpression::parse(text).unwrap_or_else(|errors| panic!("{text}: {errors:?}"))
}

fn zone(name: &str) -> Zone {
    Zone::find(name).unwrap_or_else(|error| panic!("{error}"))
}

fn at(text: &str) -> Timestamp {
    text.parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Returns the occurrences from `start` up to but not including `end`.
fn occurrences(
    expression: &CronExpression,
    zone: &Zone,
    start: Timestamp,
    end: Timestamp,
) -> Vec<Timestamp> {
    let mut found = Vec::new();
    let mut after = Timestamp(start.0 - 1);
    while let Some(next) = expression
        .next_after(after, zone)
        .filter(|next| *next < end)
    {
        found.push(next);
        after = next;
    }
    found
}
