//! The results of a replay: how many of its deliveries were delivered, failed again, or wait.
//!
//! A replay keeps no list of its deliveries once all are started. So the deliveries that match its filter and were
//! accepted before it began are counted: those that ended after it began, and those that have not ended. At most
//! [`MAX_COUNTED`] of each status are read; beyond that the number is a minimum.

use posthaste_api::problem::Problem;
use posthaste_api::resources::{DeliverySummary, ListPage, Replay};
use posthaste_charts::format::count;
use posthaste_core::delivery::Status;

use crate::page_request::PageRequest;
use crate::urls::query_string;

/// Maximum number of deliveries of one status that are counted.
const MAX_COUNTED: usize = 500;
/// Number of deliveries that are read at once: the most that the API returns.
const PER_READ: usize = 250;

/// A number that may be a minimum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counted {
    number: u64,
    is_minimum: bool,
}

impl Counted {
    fn add(&mut self, other: Counted) {
        self.number += other.number;
        self.is_minimum |= other.is_minimum;
    }

    fn text(self) -> String {
        match self.is_minimum {
            true => format!("at least {}", count(self.number)),
            false => count(self.number),
        }
    }
}

/// The results of a replay.
pub(super) struct Outcome {
    delivered: Counted,
    failed: Counted,
    /// Started, and not finished.
    waiting: Counted,
    /// Not started.
    left: u64,
}

impl Outcome {
    /// Counts the results of a replay.
    pub(super) async fn load(request: &PageRequest, replay: &Replay) -> Result<Outcome, Problem> {
        let mut outcome = Outcome {
            delivered: Counted::default(),
            failed: Counted::default(),
            waiting: Counted::default(),
            left: replay.total.saturating_sub(replay.replayed),
        };
        if replay.replayed == 0 {
            return Ok(outcome);
        }
        outcome.delivered = count_of(request, replay, Status::Succeeded).await?;
        outcome.failed = count_of(request, replay, Status::Failed).await?;
        for status in [
            Status::Pending,
            Status::InProgress,
            Status::Retrying,
            Status::Held,
        ] {
            outcome
                .waiting
                .add(count_of(request, replay, status).await?);
        }
        // Deliveries that were waiting before match the filter too.
        let started = replay.replayed.saturating_sub(replay.skipped);
        outcome.delivered.number = outcome.delivered.number.min(started);
        let rest = started - outcome.delivered.number;
        outcome.failed.number = outcome.failed.number.min(rest);
        outcome.waiting.number = outcome.waiting.number.min(rest - outcome.failed.number);
        Ok(outcome)
    }

    /// Returns whether the results can no longer change, apart from later replays.
    pub(super) fn is_final(&self, replay: &Replay) -> bool {
        replay.finished_at.is_some() && self.waiting.number + self.left == 0
    }

    /// Returns the results in words.
    pub(super) fn text(&self, skipped: u64) -> String {
        let mut waiting = self.waiting;
        waiting.number += self.left;
        let mut text = format!(
            "{} delivered, {} failed, {} waiting",
            self.delivered.text(),
            self.failed.text(),
            waiting.text()
        );
        if skipped > 0 {
            text.push_str(&format!(", {} skipped", count(skipped)));
        }
        text
    }
}

/// Counts the deliveries of a status that match the filter of a replay.
async fn count_of(
    request: &PageRequest,
    replay: &Replay,
    status: Status,
) -> Result<Counted, Problem> {
    let filter = &replay.filter;
    let value = |field: &Option<String>| field.clone().unwrap_or_default();
    let since = filter.missed_since.as_ref().or(filter.since.as_ref());
    let until = filter.until.as_ref().unwrap_or(&replay.created_at);
    let is_its_result = |delivery: &&DeliverySummary| match &delivery.finished_at {
        Some(at) => *at >= replay.created_at,
        None => true,
    };
    let mut counted = Counted::default();
    let mut cursor = String::new();
    for _ in 0..MAX_COUNTED / PER_READ {
        let fields = [
            ("status", status.name().to_owned()),
            ("endpoint", value(&filter.endpoint)),
            ("event_type", value(&filter.event_type)),
            ("since", since.cloned().unwrap_or_default()),
            ("until", until.clone()),
            ("limit", PER_READ.to_string()),
            ("cursor", cursor),
        ];
        let query = query_string(fields.iter().map(|(name, text)| (*name, text.as_str())));
        let listed: ListPage<DeliverySummary> =
            request.tenant_get(&format!("/deliveries{query}")).await?;
        counted.number += listed.data.iter().filter(is_its_result).count() as u64;
        match listed.next_cursor {
            None => return Ok(counted),
            Some(next) => cursor = next,
        }
    }
    counted.is_minimum = true;
    Ok(counted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcome_names_what_was_delivered_failed_and_waits() {
        let counted = |number, is_minimum| Counted { number, is_minimum };
        let outcome = Outcome {
            delivered: counted(1_000, true),
            failed: counted(3, false),
            waiting: counted(2, false),
            left: 40,
        };
        assert_eq!(
            outcome.text(0),
            "at least 1,000 delivered, 3 failed, 42 waiting"
        );
        assert!(outcome.text(7).ends_with(", 7 skipped"));
    }
}
