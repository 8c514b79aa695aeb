//! Long-term failure history of an endpoint, and when it is disabled.
//!
//! The breaker reacts within seconds; [`Health`] covers days and is stored with the endpoint. An endpoint is
//! disabled when its receiver answers 410, or after days in which every attempt failed ([`DisableSettings`]). A
//! warning precedes the latter. If deliveries are rare and the warning comes late, the endpoint still gets the whole
//! time between the warning and the disabling.

use serde::{Deserialize, Serialize};

use super::breaker::TripReason;
use crate::classify::{Classification, FailureScope};
use crate::time::{Span, Timestamp};

/// Time for which a dead-lettered delivery counts towards tripping the breaker.
pub const EXHAUSTED_WINDOW: Span = Span::from_hours(24);
/// Maximum number of dead-lettered deliveries that are remembered, and so the highest threshold that can trip a
/// breaker.
pub const MAX_EXHAUSTED: u32 = 100;

/// Thresholds at which posthaste disables an endpoint by itself.
#[derive(Clone, Debug, PartialEq)]
pub struct DisableSettings {
    /// Duration of uninterrupted failure that disables the endpoint.
    pub after: Span,
    /// Minimum time between the warning and the disabling.
    pub warn_before: Span,
    /// True if a 410 of the receiver disables the endpoint at once.
    pub on_gone: bool,
}

impl Default for DisableSettings {
    fn default() -> DisableSettings {
        DisableSettings {
            after: Span::from_days(5),
            warn_before: Span::from_days(1),
            on_gone: true,
        }
    }
}

/// The cause for which posthaste disables an endpoint, or is about to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DisableCause {
    /// The receiver answered 410.
    Gone,
    /// Too many deliveries in a row were permanently refused. Only versions before 0.2 disabled for this cause.
    PermanentFailures,
    /// Every attempt has failed for days.
    FailingForDays,
}

/// The consequence of a result for the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthVerdict {
    /// No consequence.
    Healthy,
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
    /// Number of refusals since the last success: responses that say nothing about the destination's availability, such
    /// as 403 or 404.
    #[serde(rename = "permanent_failures")]
    pub refusals: u32,
    /// Time of the first failure since the last success.
    pub failing_since: Option<Timestamp>,
    /// Time at which the tenant was warned about days of failure.
    pub warned_of_days_at: Option<Timestamp>,
    /// Always false. Nodes of version 0.1 cannot read a health without this field.
    pub warned_of_refusals: bool,
    /// Times at which deliveries were dead-lettered recently, oldest first.
    pub exhausted_at: Vec<Timestamp>,
    /// The breaker, if it has tripped.
    pub trip: Option<StoredTrip>,
    /// End of the pause that the receiver asked for with `Retry-After`.
    pub quiet_until: Option<Timestamp>,
    /// True if no notification of the trip is stored yet, because it happened without an attempt. The next record of an
    /// attempt carries it. Left out if false, so that nodes of earlier versions can read the health.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_trip_unannounced: bool,
}

impl Health {
    /// Adds the result of an attempt and returns its consequence. A failure that shows overload only
    /// ([`Gate::is_overload_only`](super::Gate::is_overload_only)) is no failure of the destination.
    pub fn note(
        &mut self,
        now: Timestamp,
        meaning: Classification,
        is_overload_only: bool,
        settings: &DisableSettings,
    ) -> HealthVerdict {
        let failure = match meaning {
            Classification::Success => {
                self.consecutive_failures = 0;
                self.refusals = 0;
                self.failing_since = None;
                self.warned_of_days_at = None;
                self.warned_of_refusals = false;
                return HealthVerdict::Healthy;
            }
            Classification::Failure(failure) => failure,
        };
        match failure.scope {
            FailureScope::Destination if is_overload_only => {}
            FailureScope::Destination => {
                self.consecutive_failures = self.consecutive_failures.saturating_add(1);
            }
            FailureScope::Delivery => {}
        }
        if failure.is_refusal() {
            self.refusals = self.refusals.saturating_add(1);
        }
        let failing_since = *self.failing_since.get_or_insert(now);
        if failure.gone && settings.on_gone {
            return HealthVerdict::Disable(DisableCause::Gone);
        }
        let failing_for = now.since(failing_since);
        match self.warned_of_days_at {
            Some(warned_at) => {
                let warned_long_ago = now.since(warned_at) >= settings.warn_before;
                if failing_for >= settings.after && warned_long_ago {
                    return HealthVerdict::Disable(DisableCause::FailingForDays);
                }
                HealthVerdict::Healthy
            }
            None if failing_for.plus(settings.warn_before) >= settings.after => {
                self.warned_of_days_at = Some(now);
                HealthVerdict::Warn(DisableCause::FailingForDays)
            }
            None => HealthVerdict::Healthy,
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

    /// Returns the number of deliveries that were dead-lettered within [`EXHAUSTED_WINDOW`], as far as they are remembered.
    pub fn exhausted_within_window(&self, now: Timestamp) -> u32 {
        let recent = self.exhausted_at.iter();
        recent
            .filter(|at| now.since(**at) < EXHAUSTED_WINDOW)
            .count() as u32
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
    use crate::classify::{HttpStatus, Outcome, Rules, classify};

    const START: Timestamp = Timestamp(1_000_000_000);

    fn answer(code: u16) -> Classification {
        let status = HttpStatus::new(code).unwrap();
        classify(
            Outcome::Answered {
                status,
                retry_after: None,
            },
            Rules::default(),
        )
    }

    fn hours(count: u64) -> Timestamp {
        START.after(Span::from_hours(count))
    }

    fn note(health: &mut Health, now: Timestamp, meaning: Classification) -> HealthVerdict {
        health.note(now, meaning, false, &DisableSettings::default())
    }

    #[test]
    fn refusals_are_counted_until_a_success_and_do_not_disable() {
        let mut health = Health::default();
        for code in [401, 403, 404, 409, 422].into_iter().cycle().take(1_000) {
            assert_eq!(
                note(&mut health, START, answer(code)),
                HealthVerdict::Healthy
            );
        }
        assert_eq!((health.refusals, health.consecutive_failures), (1_000, 0));
        note(&mut health, START, answer(503));
        assert_eq!((health.refusals, health.consecutive_failures), (1_000, 1));
        note(&mut health, START, answer(200));
        assert_eq!(health, Health::default());
    }

    #[test]
    fn five_days_of_failures_warn_and_then_disable() {
        let mut health = Health::default();
        let mut concerns = Vec::new();
        for hour in 0..=5 * 24 {
            let concern = note(&mut health, hours(hour), answer(503));
            if concern != HealthVerdict::Healthy {
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
        assert_eq!(
            note(&mut health, hours(0), answer(503)),
            HealthVerdict::Healthy
        );
        let warned = HealthVerdict::Warn(DisableCause::FailingForDays);
        assert_eq!(note(&mut health, hours(24 * 9), answer(503)), warned);
        assert_eq!(
            note(&mut health, hours(24 * 9 + 23), answer(503)),
            HealthVerdict::Healthy
        );
        let disabled = HealthVerdict::Disable(DisableCause::FailingForDays);
        assert_eq!(note(&mut health, hours(24 * 10), answer(503)), disabled);
    }

    #[test]
    fn an_older_record_does_not_undo_a_newer_one() {
        let mut stored = Health::default();
        let mut older = Health::default();
        older.note_recovered();
        let mut newer = older.clone();
        newer.refusals = 5;
        newer.start_afresh();
        assert_eq!(newer.refusals, 0);
        stored.update(&newer);
        stored.update(&older);
        assert_eq!(stored, newer);
    }

    #[test]
    fn a_410_disables_at_once() {
        let gone = HealthVerdict::Disable(DisableCause::Gone);
        let mut health = Health::default();
        assert_eq!(note(&mut health, START, answer(410)), gone);
        let keep = DisableSettings {
            on_gone: false,
            ..DisableSettings::default()
        };
        let verdict = Health::default().note(START, answer(410), false, &keep);
        assert_eq!(verdict, HealthVerdict::Healthy);
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
    fn a_shorter_limit_disables_earlier() {
        let settings = DisableSettings {
            after: Span::from_hours(3),
            warn_before: Span::from_hours(1),
            on_gone: true,
        };
        let mut health = Health::default();
        let verdicts: Vec<HealthVerdict> = (0..=3)
            .map(|hour| health.note(hours(hour), answer(503), false, &settings))
            .collect();
        let cause = DisableCause::FailingForDays;
        assert_eq!(
            verdicts,
            [
                HealthVerdict::Healthy,
                HealthVerdict::Healthy,
                HealthVerdict::Warn(cause),
                HealthVerdict::Disable(cause),
            ]
        );
    }
}
