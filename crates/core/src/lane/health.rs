//! Long-term failure history of an endpoint, and when it is disabled.
//!
//! The breaker reacts within seconds; [`Health`] covers days and is stored with the endpoint. An endpoint is
//! disabled when its receiver answers 410, when 100 deliveries were permanently refused without a success in between,
//! or after five days in which every attempt failed. A warning precedes the last two. If deliveries are rare and the
//! warning about days of failure comes late, the endpoint still gets one day between the warning and the disabling.

use serde::{Deserialize, Serialize};

use super::breaker::TripReason;
use crate::classify::{Classification, Scope, Verdict};
use crate::time::{Span, Timestamp};

/// Number of permanently refused deliveries in a row that disables an endpoint.
pub const PERMANENT_FAILURES_TO_DISABLE: u32 = 100;
/// Number of permanently refused deliveries in a row that triggers the warning.
pub const PERMANENT_FAILURES_TO_WARN: u32 = 80;
/// Duration of uninterrupted failure that disables an endpoint.
pub const FAILING_TO_DISABLE: Span = Span::from_days(5);
/// Duration of uninterrupted failure that triggers the warning.
pub const FAILING_TO_WARN: Span = Span::from_days(4);
/// Minimum time between a warning about days of failure and the disabling.
pub const WARNING_LEAD: Span = Span::from_days(1);
/// Time for which a dead-lettered delivery counts towards tripping the breaker.
pub const EXHAUSTED_WINDOW: Span = Span::from_hours(24);
/// Maximum number of dead-lettered deliveries that are remembered, and so the highest threshold that can trip a
/// breaker.
pub const MAX_EXHAUSTED: u32 = 100;

/// The cause for which posthaste disables an endpoint, or is about to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DisableCause {
    /// The receiver answered 410.
    Gone,
    /// Too many deliveries in a row were permanently refused.
    PermanentFailures,
    /// Every attempt has failed for days.
    FailingForDays,
}

/// The consequence of a result for the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthVerdict {
    /// No consequence.
    Fine,
    /// The tenant should be warned.
    Warn(DisableCause),
    /// The endpoint should be disabled.
    Disable(DisableCause),
}

/// A tripped breaker, as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredTrip {
    /// The time from which a probe may be sent.
    pub until: Timestamp,
    /// The reason for the trip.
    pub reason: TripReason,
    /// Number of failed probes in a row.
    pub failed_probes: u32,
}

/// Failure history of an endpoint, as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Increases with every change. Records may be persisted in another order than they were made, so an older
    /// revision must not replace a newer one.
    pub revision: u64,
    /// Number of failures of the destination in a row.
    pub consecutive_failures: u32,
    /// Number of permanently refused deliveries since the last success.
    pub permanent_failures: u32,
    /// Time of the first failure since the last success.
    pub failing_since: Option<Timestamp>,
    /// Time at which the tenant was warned about days of failure.
    pub warned_of_days_at: Option<Timestamp>,
    /// True if the tenant was warned about too many refused deliveries.
    pub warned_of_refusals: bool,
    /// Times at which deliveries were dead-lettered recently, oldest first.
    pub exhausted_at: Vec<Timestamp>,
    /// The breaker, if it has tripped.
    pub trip: Option<StoredTrip>,
    /// End of the pause that the receiver asked for with `Retry-After`.
    pub quiet_until: Option<Timestamp>,
}

impl Health {
    /// Adds the result of an attempt and returns its consequence.
    pub fn note(&mut self, now: Timestamp, meaning: Classification) -> HealthVerdict {
        let failure = match meaning {
            Classification::Success => {
                self.consecutive_failures = 0;
                self.permanent_failures = 0;
                self.failing_since = None;
                self.warned_of_days_at = None;
                self.warned_of_refusals = false;
                return HealthVerdict::Fine;
            }
            Classification::Failure(failure) => failure,
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
            return HealthVerdict::Disable(DisableCause::Gone);
        }
        if self.permanent_failures >= PERMANENT_FAILURES_TO_DISABLE {
            return HealthVerdict::Disable(DisableCause::PermanentFailures);
        }
        if self.permanent_failures >= PERMANENT_FAILURES_TO_WARN && !self.warned_of_refusals {
            self.warned_of_refusals = true;
            return HealthVerdict::Warn(DisableCause::PermanentFailures);
        }
        let failing_for = now.since(failing_since);
        match self.warned_of_days_at {
            Some(warned_at) => {
                let warned_long_ago = now.since(warned_at) >= WARNING_LEAD;
                if failing_for >= FAILING_TO_DISABLE && warned_long_ago {
                    return HealthVerdict::Disable(DisableCause::FailingForDays);
                }
                HealthVerdict::Fine
            }
            None if failing_for >= FAILING_TO_WARN => {
                self.warned_of_days_at = Some(now);
                HealthVerdict::Warn(DisableCause::FailingForDays)
            }
            None => HealthVerdict::Fine,
        }
    }

    /// Adds a delivery that was dead-lettered after all its attempts. Returns true if there are now `enough` of
    /// them within a day.
    pub fn note_exhausted(&mut self, now: Timestamp, enough: u32) -> bool {
        let enough = enough.clamp(1, MAX_EXHAUSTED) as usize;
        self.exhausted_at.push(now);
        self.exhausted_at
            .retain(|at| now.since(*at) < EXHAUSTED_WINDOW);
        let spare = self.exhausted_at.len().saturating_sub(enough);
        self.exhausted_at.drain(..spare);
        self.exhausted_at.len() == enough
    }

    /// Clears the state that kept the breaker tripped.
    pub fn note_recovered(&mut self) {
        self.revision += 1;
        self.consecutive_failures = 0;
        self.exhausted_at.clear();
        self.trip = None;
    }

    /// Clears the whole history, as for a new endpoint.
    pub fn start_afresh(&mut self) {
        *self = Health {
            revision: self.revision + 1,
            ..Health::default()
        };
    }

    /// Replaces this health by `newer` if its revision is higher.
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

    fn answer(code: u16) -> Classification {
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
    fn one_hundred_consecutive_refusals_warn_and_then_disable() {
        let mut health = Health::default();
        let concerns: Vec<HealthVerdict> =
            (0..100).map(|_| health.note(START, answer(401))).collect();
        let warned = HealthVerdict::Warn(DisableCause::PermanentFailures);
        for (index, concern) in concerns.iter().enumerate() {
            let expected = match index + 1 {
                PERMANENT_WARN => warned,
                PERMANENT_END => HealthVerdict::Disable(DisableCause::PermanentFailures),
                1.. | 0 => HealthVerdict::Fine,
            };
            assert_eq!(*concern, expected, "after refusal {}", index + 1);
        }
    }
    const PERMANENT_WARN: usize = PERMANENT_FAILURES_TO_WARN as usize;
    const PERMANENT_END: usize = PERMANENT_FAILURES_TO_DISABLE as usize;

    #[test]
    fn one_success_resets_the_count() {
        let mut health = Health::default();
        for _ in 0..99 {
            health.note(START, answer(401));
        }
        health.note(START, answer(200));
        assert_eq!(health, Health::default());
        assert_eq!(health.note(START, answer(401)), HealthVerdict::Fine);
    }

    #[test]
    fn five_days_of_failures_warn_and_then_disable() {
        let mut health = Health::default();
        let mut concerns = Vec::new();
        for hour in 0..=5 * 24 {
            let concern = health.note(hours(hour), answer(503));
            if concern != HealthVerdict::Fine {
                concerns.push((hour, concern));
            }
        }
        assert_eq!(
            concerns,
            [
                (96, HealthVerdict::Warn(DisableCause::FailingForDays)),
                (120, HealthVerdict::Disable(DisableCause::FailingForDays)),
            ]
        );
    }

    #[test]
    fn the_warning_precedes_the_disable_by_a_day_after_an_idle_time() {
        let mut health = Health::default();
        assert_eq!(health.note(hours(0), answer(503)), HealthVerdict::Fine);
        let warned = HealthVerdict::Warn(DisableCause::FailingForDays);
        assert_eq!(health.note(hours(24 * 9), answer(503)), warned);
        assert_eq!(
            health.note(hours(24 * 9 + 23), answer(503)),
            HealthVerdict::Fine
        );
        let disabled = HealthVerdict::Disable(DisableCause::FailingForDays);
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
    fn a_410_disables_at_once() {
        let gone = HealthVerdict::Disable(DisableCause::Gone);
        assert_eq!(Health::default().note(START, answer(410)), gone);
    }

    #[test]
    fn dead_letters_count_for_a_day() {
        let mut health = Health::default();
        for hour in 0..9 {
            assert!(!health.note_exhausted(hours(hour), 10));
        }
        // One day after the first one, only nine are left.
        assert!(!health.note_exhausted(hours(24), 10));
        assert!(health.note_exhausted(hours(24), 10));
        for _ in 0..1_000 {
            assert!(health.note_exhausted(hours(24), 10));
        }
        assert_eq!(health.exhausted_at.len(), 10);
    }

    #[test]
    fn each_cause_has_its_own_warning() {
        let mut health = Health::default();
        health.note(hours(0), answer(503));
        let of_days = HealthVerdict::Warn(DisableCause::FailingForDays);
        assert_eq!(health.note(hours(96), answer(503)), of_days);
        let concerns: Vec<HealthVerdict> = (0..80)
            .map(|_| health.note(hours(97), answer(401)))
            .collect();
        assert_eq!(
            concerns[79],
            HealthVerdict::Warn(DisableCause::PermanentFailures)
        );
    }
}
