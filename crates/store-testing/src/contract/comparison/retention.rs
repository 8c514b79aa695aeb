//! Retention periods and retention runs of the comparison.
//!
//! A run is repeated until everything has been checked, because the steps of the stores may differ. Only the total
//! of what was removed is compared. Each step must respect its limit.

use std::collections::BTreeMap;

use posthaste_core::time::{Span, Timestamp};

use super::operation::PLANS;
use super::side::Side;
use posthaste_store::{Limits, Retention, RetentionStepResult};

/// Number of retention runs that are enough to check everything.
const RETENTION_ROUNDS: usize = 3;

impl Side<'_> {
    /// Makes retention runs until everything has been checked.
    pub(super) async fn step_retention(&self, now: Timestamp, retention: &Retention) -> String {
        let (mut removed, mut payloads) = (0, 0);
        for _ in 0..RETENTION_ROUNDS {
            loop {
                let step = self.store.step_retention(now, retention.clone()).await;
                let step: RetentionStepResult = step.expect("the retention step succeeds");
                let acted_on = step.events + step.payloads;
                assert!(acted_on <= retention.step, "the step exceeded its limit");
                removed += step.events;
                payloads += step.payloads;
                if !step.more {
                    break;
                }
            }
        }
        format!("{removed} removed, {payloads} emptied")
    }
}

/// Returns limits with these retention periods, in hours.
pub(super) fn kept_for(
    deliveries: Option<u64>,
    payloads: Option<u64>,
    attempts: Option<u64>,
) -> Limits {
    Limits {
        retention: deliveries.map(Span::from_hours),
        payload_retention: payloads.map(Span::from_hours),
        attempt_retention: attempts.map(Span::from_hours),
        ..Limits::default()
    }
}

/// Returns the limits of the plans.
pub(super) fn plans() -> BTreeMap<String, Limits> {
    let small = kept_for(Some(18), Some(6), None);
    let large = kept_for(Some(100), None, Some(30));
    let limits = PLANS.iter().zip([small, large]);
    limits.map(|(name, it)| ((*name).to_owned(), it)).collect()
}
