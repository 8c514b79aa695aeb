//! What is remembered of an endpoint from day to day, and when enough is enough.
//!
//! The breaker lives by the second; this lives by the day and is stored with the endpoint. An
//! endpoint is disabled when its receiver says it is gone, when a hundred deliveries in a row were
//! refused for good, or after five days of nothing but failure. Where it can still be helped a warning comes
//! first: where the days ran by unnoticed between two rare events, the endpoint gets one more day from it.

use serde::{Deserialize, Serialize};

use super::breaker::TripReason;
use crate::classify::{Meaning, Scope, Verdict};
use crate::time::{Span, Timestamp};

/// So many deliveries refused for good, in a row, disable an endpoint.
pub const PERMANENT_FAILURES_TO_DISABLE: u32 = 100;
/// So many of them bring the warning.
pub const PERMANENT_FAILURES_TO_WARN: u32 = 80;
/// So long nothing but failure disables an endpoint.
pub const FAILING_TO_DISABLE: Span = Span::from_days(5);
/// So long of it brings the warning.
pub const FAILING_TO_WARN: Span = Span::from_days(4);
/// At least so long passes between a warning about days of failure and the end.
pub const WARNING_LEAD: Span = Span::from_days(1);
/// How long a delivery given up counts towards tripping the breaker.
pub const EXHAUSTED_WINDOW: Span = Span::from_hours(24);
/// How many of them are remembered at most, and so the highest number that can trip a breaker.
pub const MAX_EXHAUSTED: u32 = 100;

/// Why an endpoint is, or is about to be, disabled by posthaste.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DisableCause {
    /// The receiver answered 410.
    Gone,
    /// Too many deliveries in a row were refused for good.
    PermanentFailures,
    /// Nothing but failure for days.
    FailingForDays,
}

/// What a result means for the endpoint's future.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concern {
    /// Nothing.
    Fine,
    /// Its owner should be warned.
    Warn(DisableCause),
    /// It should be disabled.
    Disable(DisableCause),
}

/// A tripped breaker, as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredTrip {
    /// When a probe may go.
    pub until: Timestamp,
    /// Why it tripped.
    pub reason: TripReason,
    /// How many probes in a row have failed.
    pub failed_probes: u32,
}

/// What is remembered of an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Grows with every change. Records may reach the disk in another order than they were made, so
    /// one that is older than what is stored must not replace it.
    pub revision: u64,
    /// Failures of the destination in a row.
    pub consecutive_failures: u32,
    /// Deliveries refused for good, with no success in between.
    pub permanent_failures: u32,
    /// Since when there has been nothing but failure.
    pub failing_since: Option<Timestamp>,
    /// When its owner was warned of days of failure.
    pub warned_of_days_at: Option<Timestamp>,
    /// Its owner was warned of too many refusals.
    pub warned_of_refusals: bool,
    /// When deliveries were given up lately, oldest first.
    pub exhausted_at: Vec<Timestamp>,
    /// The breaker, if it has tripped.
    pub trip: Option<StoredTrip>,
    /// Until when it asked to be left alone.
    pub quiet_until: Option<Timestamp>,
}

impl Health {
    /// Takes in how an attempt ended.
    pub fn note(&mut self, now: Timestamp, meaning: Meaning) -> Concern {
        let failure = match meaning {
            Meaning::Success => {
                self.consecutive_failures = 0;
                self.permanent_failures = 0;
                self.failing_since = None;
                self.warned_of_days_at = None;
                self.warned_of_refusals = false;
                return Concern::Fine;
            }
            Meaning::Failure(failure) => failure,
        };
        match failure.scope {
            Scope::Destination => {
                self.consecutive_failures = self.consecutive_failures.saturating_add(1);
            }
            Scope::Delivery => {}
        }
        let failing_since = *self.failing_since.get_or_insert(now);
        match failure.verdict {
            Verdict::GiveUp => self.permanent_failures = self.permanent_failures.saturating_add(1),
            Verdict::Retry | Verdict::RetryUpTo(_) => {}
        }
        if failure.gone {
            return Concern::Disable(DisableCause::Gone);
        }
        if self.permanent_failures >= PERMANENT_FAILURES_TO_DISABLE {
            return Concern::Disable(DisableCause::PermanentFailures);
        }
        if self.permanent_failures >= PERMANENT_FAILURES_TO_WARN && !self.warned_of_refusals {
            self.warned_of_refusals = true;
            return Concern::Warn(DisableCause::PermanentFailures);
        }
        let failing_for = now.since(failing_since);
        match self.warned_of_days_at {
            Some(warned_at) => {
                let warned_long_ago = now.since(warned_at) >= WARNING_LEAD;
                if failing_for >= FAILING_TO_DISABLE && warned_long_ago {
                    return Concern::Disable(DisableCause::FailingForDays);
                }
                Concern::Fine
            }
            None if failing_for >= FAILING_TO_WARN => {
                self.warned_of_days_at = Some(now);
                Concern::Warn(DisableCause::FailingForDays)
            }
            None => Concern::Fine,
        }
    }

    /// Takes in that a delivery was given up after all its attempts. Says whether that makes
    /// `enough` of them within a day.
    pub fn note_exhausted(&mut self, now: Timestamp, enough: u32) -> bool {
        let enough = enough.clamp(1, MAX_EXHAUSTED) as usize;
        self.exhausted_at.push(now);
        self.exhausted_at
            .retain(|at| now.since(*at) < EXHAUSTED_WINDOW);
        let spare = self.exhausted_at.len().saturating_sub(enough);
        self.exhausted_at.drain(..spare);
        self.exhausted_at.len() == enough
    }

    /// Forgets what spoke for keeping the breaker tripped.
    pub fn note_recovered(&mut self) {
        self.revision += 1;
        self.consecutive_failures = 0;
        self.exhausted_at.clear();
        self.trip = None;
    }

    /// Forgets everything: the endpoint starts afresh.
    pub fn start_afresh(&mut self) {
        *self = Health {
            revision: self.revision + 1,
            ..Health::default()
        };
    }

    /// Takes over `newer`, unless that is older than what we have.
    pub fn update(&mut self, newer: &Health) {
        if newer.revision > self.revision {
            *self = newer.clone();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classify::{HttpStatus, Outcome, classify};

    const START: Timestamp = Timestamp(1_000_000_000);

    fn answer(code: u16) -> Meaning {
        let status = HttpStatus::new(code).unwrap();
        classify(
            Outcome::Answered {
                status,
                retry_after: None,
            },
            &[],
        )
    }

    fn hours(count: u64) -> Timestamp {
        START.after(Span::from_hours(count))
    }

    #[test]
    fn a_hundred_refusals_in_a_row_disable_with_a_warning_first() {
        let mut health = Health::default();
        let concerns: Vec<Concern> = (0..100).map(|_| health.note(START, answer(401))).collect();
        let warned = Concern::Warn(DisableCause::PermanentFailures);
        for (index, concern) in concerns.iter().enumerate() {
            let expected = match index + 1 {
                PERMANENT_WARN => warned,
                PERMANENT_END => Concern::Disable(DisableCause::PermanentFailures),
                1.. | 0 => Concern::Fine,
            };
            assert_eq!(*concern, expected, "refusal {}", index + 1);
        }
    }
    const PERMANENT_WARN: usize = PERMANENT_FAILURES_TO_WARN as usize;
    const PERMANENT_END: usize = PERMANENT_FAILURES_TO_DISABLE as usize;

    #[test]
    fn one_success_ends_the_row() {
        let mut health = Health::default();
        for _ in 0..99 {
            health.note(START, answer(401));
        }
        health.note(START, answer(200));
        assert_eq!(health, Health::default());
        assert_eq!(health.note(START, answer(401)), Concern::Fine);
    }

    #[test]
    fn five_days_of_nothing_but_failure_disable_with_a_warning_first() {
        let mut health = Health::default();
        let mut told = Vec::new();
        for hour in 0..=5 * 24 {
            let concern = health.note(hours(hour), answer(503));
            if concern != Concern::Fine {
                told.push((hour, concern));
            }
        }
        assert_eq!(
            told,
            [
                (96, Concern::Warn(DisableCause::FailingForDays)),
                (120, Concern::Disable(DisableCause::FailingForDays)),
            ]
        );
    }

    #[test]
    fn where_days_passed_unnoticed_the_warning_still_comes_a_day_ahead() {
        let mut health = Health::default();
        assert_eq!(health.note(hours(0), answer(503)), Concern::Fine);
        let warned = Concern::Warn(DisableCause::FailingForDays);
        assert_eq!(health.note(hours(24 * 9), answer(503)), warned);
        assert_eq!(health.note(hours(24 * 9 + 23), answer(503)), Concern::Fine);
        let disabled = Concern::Disable(DisableCause::FailingForDays);
        assert_eq!(health.note(hours(24 * 10), answer(503)), disabled);
    }

    #[test]
    fn an_older_record_does_not_undo_a_newer_one() {
        let mut stored = Health::default();
        let mut older = Health::default();
        older.note_recovered();
        let mut newer = older.clone();
        newer.permanent_failures = 5;
        newer.start_afresh();
        assert_eq!(newer.permanent_failures, 0);
        stored.update(&newer);
        stored.update(&older);
        assert_eq!(stored, newer);
    }

    #[test]
    fn gone_is_gone() {
        let gone = Concern::Disable(DisableCause::Gone);
        assert_eq!(Health::default().note(START, answer(410)), gone);
    }

    #[test]
    fn deliveries_given_up_count_for_a_day() {
        let mut health = Health::default();
        for hour in 0..9 {
            assert!(!health.note_exhausted(hours(hour), 10));
        }
        // A day after the first only nine are left.
        assert!(!health.note_exhausted(hours(24), 10));
        assert!(health.note_exhausted(hours(24), 10));
        for _ in 0..1_000 {
            assert!(health.note_exhausted(hours(24), 10));
        }
        assert_eq!(health.exhausted_at.len(), 10);
    }

    #[test]
    fn each_cause_has_a_warning_of_its_own() {
        let mut health = Health::default();
        health.note(hours(0), answer(503));
        let of_days = Concern::Warn(DisableCause::FailingForDays);
        assert_eq!(health.note(hours(96), answer(503)), of_days);
        let concerns: Vec<Concern> = (0..80)
            .map(|_| health.note(hours(97), answer(401)))
            .collect();
        assert_eq!(concerns[79], Concern::Warn(DisableCause::PermanentFailures));
    }
}
