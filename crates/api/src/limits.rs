//! Reads the limits of tenants (API) and of plans (configuration).
//!
//! Both use the same rules, so a tenant can have any limit that a plan can have. An absent field leaves a limit
//! unchanged, and `null` removes it. Every limit has a named maximum.

use std::collections::BTreeMap;
use std::sync::Arc;

use posthaste_core::policy::MAX_ATTEMPTS;
use posthaste_core::time::{MAX_SPAN, Span};
use posthaste_core::validation::Fields;
use posthaste_store::{Limits, PageRequest, Plans, Store, StoreError};
use serde_json::Value;

use crate::body_fields::{large_count, take_option};

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste::limits";

/// Maximum value of the endpoint limit.
pub const MAX_ENDPOINTS: u32 = 1_000_000;
/// Maximum value of the events-per-second quota.
pub const MAX_EVENTS_PER_SECOND: u32 = 1_000_000;
/// Maximum value of the deliveries-per-second quota.
pub const MAX_DELIVERIES_PER_SECOND: u32 = 100_000_000;
/// Maximum value of the events-per-month quota.
pub const MAX_EVENTS_PER_MONTH: u64 = 1_000_000_000_000;
/// Maximum value of the in-flight limit.
pub const MAX_IN_FLIGHT: u32 = 1_000_000;
/// Minimum retention period.
pub const MIN_RETENTION: Span = Span::from_secs(1);

/// Reads the limits in `document` into `limits`. An absent field leaves a limit unchanged; `null` removes it.
pub fn read(
    document: &Value,
    mut fields: Fields<'_, '_>,
    most_payload_bytes: u64,
    limits: &mut Limits,
) {
    let mut count = |name, least, most, target: &mut Option<u32>| {
        let read = fields.count(name, least, most);
        take_option(document, name, read, target);
    };
    count("endpoints", 0, MAX_ENDPOINTS, &mut limits.endpoints);
    let rate = &mut limits.events_per_second;
    count("events_per_second", 0, MAX_EVENTS_PER_SECOND, rate);
    let rate = &mut limits.deliveries_per_second;
    count("deliveries_per_second", 0, MAX_DELIVERIES_PER_SECOND, rate);
    count("max_attempts", 1, MAX_ATTEMPTS, &mut limits.max_attempts);
    count("in_flight", 1, MAX_IN_FLIGHT, &mut limits.in_flight);
    let mut large = |name, least, most, target: &mut Option<u64>| {
        let read = large_count(&mut fields, name, least, most);
        take_option(document, name, read, target);
    };
    let per_month = &mut limits.events_per_month;
    large("events_per_month", 0, MAX_EVENTS_PER_MONTH, per_month);
    let payload = &mut limits.payload_bytes;
    large("payload_bytes", 1, most_payload_bytes, payload);
    let mut span = |name, target: &mut Option<Span>| {
        let read = fields.span(name, MIN_RETENTION, MAX_SPAN);
        take_option(document, name, read, target);
    };
    span("retention", &mut limits.retention);
    span("payload_retention", &mut limits.payload_retention);
    span("attempt_retention", &mut limits.attempt_retention);
    fields.finish();
}

/// Page size for reading tenants.
const PAGE: usize = 250;

/// Checks in the background for tenants whose plan does not exist. Runs in the background because there may be very
/// many tenants.
pub fn look_for_lost_plans(store: Arc<dyn Store>, plans: Arc<Plans>) {
    tokio::spawn(async move {
        if let Err(error) = log_missing_plans(&*store, &plans).await {
            tracing::warn!(target: LOG_TARGET, %error, "cannot check whether the tenants' plans exist");
        }
    });
}

/// Logs the plans of tenants that the configuration does not have. The server's limits apply to these tenants, which
/// may be more than they pay for.
async fn log_missing_plans(store: &dyn Store, plans: &Plans) -> Result<(), StoreError> {
    let mut lost: BTreeMap<String, u64> = BTreeMap::new();
    let mut page = PageRequest {
        limit: PAGE,
        before: None,
    };
    loop {
        let found = store.tenants(page).await?;
        for tenant in found.items {
            if plans.lacks_plan_of(&tenant) {
                *lost.entry(tenant.plan.unwrap_or_default()).or_default() += 1;
            }
        }
        if found.next.is_none() {
            break;
        }
        page = PageRequest {
            limit: PAGE,
            before: found.next,
        };
    }
    for (plan, tenants) in lost {
        tracing::warn!(target: LOG_TARGET,
            plan,
            tenants,
            "tenants have a plan that is not in the configuration; the server's limits apply to them"
        );
    }
    Ok(())
}
