//! Retention periods and retention runs of the comparison.
//!
//! A run is repeated until everything has been checked, because the steps of the stores may differ. Only the total
//! of what was removed is compared. Each step must respect its limit.

use std::collections::BTreeMap;

use posthaste_core::time::{Span, Timestamp};

use super::operation::{PLANS, RetentionDraft};
use super::side::ComparedStore;
use crate::contract::fixture::{limits, policy, protection, tenant};
use posthaste_store::{Limits, Quotas, Retention, RetentionStepResult, Tenant};

/// Number of retention runs that are enough to check everything.
const RETENTION_ROUNDS: usize = 3;

impl ComparedStore<'_> {
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

/// Returns a tenant with these retention periods, and with policy, limits and protection of its own or without.
pub(super) fn a_tenant(
    name: &str,
    revision: u64,
    own_policy: bool,
    kept: RetentionDraft,
) -> Tenant {
    Tenant {
        default_retry_policy: own_policy.then(|| policy("5h")),
        endpoint_defaults: own_policy.then(limits).unwrap_or_default(),
        protection: own_policy.then(protection).unwrap_or_default(),
        plan: kept.plan.map(str::to_owned),
        limits: kept_for(kept.deliveries, kept.payloads, kept.attempts),
        revision,
        ..tenant(name)
    }
}

/// Returns limits with these retention periods, in hours.
fn kept_for(deliveries: Option<u64>, payloads: Option<u64>, attempts: Option<u64>) -> Limits {
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

/// Returns the quota of a tenant at a time. Rates other than 0 are not compared, because a store may forget the
/// rate limit state when it is opened again.
pub(super) fn quotas(now: Timestamp) -> Quotas {
    Quotas {
        per_second: now.0.is_multiple_of(41).then_some(0),
        per_month: now.0.is_multiple_of(3).then_some(now.0 / 3 % 40),
    }
}
