//! Enforces the limits of a tenant.
//!
//! If waiting helps, the response is 429 with `Retry-After`. If only a change of the tenant or its plan
//! helps, it is 403. If a payload is too large, it is 413. Each response names the limit in its text and in
//! its member `limit`.
//!
//! The store decides exactly, for all nodes together, whether events are within the limits. A rejection is
//! remembered until the store could accept events again, so that repeated requests need no store operation.
//! This is never stricter than the store: only events without an idempotency key are certainly new, and they
//! are refused directly only if there are at least as many as all events that the store refused together.
//!
//! `TenantRates` are enforced by each node on its own, in memory: the limit `deliveries_per_second`, and the server's
//! default of `events_per_second` where no such limit is set. They are charged after the store has accepted events,
//! because only then the number of deliveries is known. While a tenant has spent more than it had, its events are
//! refused.

use std::sync::Arc;

use http::StatusCode;
use posthaste_core::cluster::Feature;
use posthaste_core::id::TenantId;
use posthaste_core::policy::{LateAction, RetryPolicy};
use posthaste_core::time::{Span, Timestamp};
use posthaste_core::validation::ValidationErrors;
use posthaste_store::{AcceptedOrStored, LimitName, Limits, Quotas, Tenant};
use serde_json::Value;

use super::App;
use super::auth::CachedTenant;
use super::code::Code;
use super::problem::Problem;
use super::quota_rejection::QuotaRejection;
use super::tenant_rates::TenantRates;

/// `Retry-After` of what waits for the end of an upgrade.
const UPGRADE_WAIT: Span = Span::from_secs(10);

impl App {
    /// Returns the limits of a tenant: its own, else its plan's, else the server's.
    pub fn limits_of(&self, tenant: &Tenant) -> Limits {
        self.settings.plans.limits_of(tenant)
    }

    /// Returns the state of the rates of a tenant on this node.
    pub(super) fn rates_of(&self, tenant: &TenantId) -> Arc<TenantRates> {
        match self.tenant_rates.find(tenant) {
            Ok(known) => known,
            Err(generation) => {
                let rates = Arc::new(TenantRates::default());
                self.tenant_rates
                    .put(generation, tenant.clone(), rates.clone());
                rates
            }
        }
    }

    /// Fails if the tenant has spent more of a rate that this node enforces than it had.
    fn check_rates(&self, tenant: &CachedTenant, limits: &Limits) -> Result<(), Problem> {
        let plans = &self.settings.plans;
        let rates = plans.node_rates(limits);
        let spent = &tenant.rates;
        let now = self.clock.now().tick;
        for (limit, per_second, limiter) in [
            (
                LimitName::EventsPerSecond,
                rates.events_per_second,
                &spent.events,
            ),
            (
                LimitName::DeliveriesPerSecond,
                rates.deliveries_per_second,
                &spent.deliveries,
            ),
        ] {
            let wait = match per_second {
                None => None,
                // Waiting does not help.
                Some(0) => Some(None),
                Some(_) => limiter.wait(now).map(Some),
            };
            if let Some(wait) = wait {
                let shown = plans.with_default_rates(limits);
                return Err(too_many_events(&shown, limit, wait));
            }
        }
        Ok(())
    }

    /// Charges a tenant for new events and their deliveries.
    pub(super) fn charge(&self, tenant: &CachedTenant, accepted: &[AcceptedOrStored]) {
        let rates = self
            .settings
            .plans
            .node_rates(&self.limits_of(&tenant.tenant));
        let fresh = accepted.iter().filter(|ingested| ingested.is_new);
        let (mut events, mut deliveries) = (0, 0);
        for ingested in fresh {
            events += 1;
            deliveries += ingested.event.delivery_count as u64;
        }
        let now = self.clock.now().tick;
        if let Some(per_second) = rates.events_per_second {
            tenant.rates.events.charge(now, per_second, events);
        }
        if let Some(per_second) = rates.deliveries_per_second {
            tenant.rates.deliveries.charge(now, per_second, deliveries);
        }
    }

    /// Returns the number of events that the store may accept for a tenant. Fails if the last rejection
    /// shows that this many new events exceed a limit, or if the tenant has exceeded a rate on this node.
    pub fn quotas(
        &self,
        tenant: &CachedTenant,
        now: Timestamp,
        surely_new: u64,
    ) -> Result<Quotas, Problem> {
        let limits = self.limits_of(&tenant.tenant);
        self.check_rates(tenant, &limits)?;
        match tenant.last_rejection.of(now, surely_new) {
            Some((limit, wait)) => Err(too_many_events(&limits, limit, Some(wait))),
            None => Ok(Quotas {
                per_second: limits.events_per_second,
                per_month: limits.events_per_month,
            }),
        }
    }

    /// Returns the problem after the store has rejected `count` events, and remembers the rejection. The store
    /// does not report how many of them were new; it is at most all of them, so `count` events that are
    /// certainly new do not fit either.
    pub fn over_limit(
        &self,
        tenant: &CachedTenant,
        now: Timestamp,
        count: u64,
        (limit, wait): (LimitName, Option<Span>),
    ) -> Problem {
        if let Some(wait) = wait {
            tenant.last_rejection.remember(QuotaRejection {
                limit,
                events: count,
                since: now,
                until: now.after(wait),
            });
        }
        too_many_events(&self.limits_of(&tenant.tenant), limit, wait)
    }

    /// Returns the maximum payload size of a tenant.
    pub fn payload_bytes(&self, tenant: &Tenant) -> u64 {
        let allowed = self.limits_of(tenant).payload_bytes;
        allowed.unwrap_or(self.settings.body_bytes)
    }

    /// Returns the maximum number of endpoints of a tenant.
    pub fn endpoints_allowed(&self, tenant: &Tenant) -> u32 {
        self.limits_of(tenant).endpoints.unwrap_or(u32::MAX)
    }

    /// Fails while nodes of an earlier version, which cannot do this, may still run.
    pub fn check_feature(&self, feature: Feature, name: &str) -> Result<(), Problem> {
        if self.store.format_level().allows(feature) {
            return Ok(());
        }
        let detail = format!(
            "{name} cannot be used until all nodes run this version: nodes of an earlier version may still be running"
        );
        Err(Problem::new(Code::UpgradeInProgress, detail).after(UPGRADE_WAIT))
    }

    /// Removes what nodes of an earlier version cannot read from a policy that [`App::check_policy`] has checked, while
    /// they may still run. The meaning is the same.
    pub fn make_readable(&self, policy: &mut Option<Value>) {
        if let Some(Value::Object(fields)) = policy
            && !self.store.format_level().allows(Feature::LatePolicies)
        {
            fields.remove("late");
        }
    }

    /// Reports a policy with more attempts than the tenant is allowed, or one that nodes of an earlier version could not
    /// read while they may still run.
    pub fn check_policy(
        &self,
        policy: &RetryPolicy,
        tenant: &Tenant,
        field: &str,
        errors: &mut ValidationErrors,
    ) {
        let level = self.store.format_level();
        if policy.late == LateAction::Drop && !level.allows(Feature::LatePolicies) {
            let message = "cannot be \"drop\" until all nodes run this version: nodes of an earlier version may still be running";
            errors.add(format!("{field}.late"), message);
        }
        let Some(allowed) = self.limits_of(tenant).max_attempts else {
            return;
        };
        if policy.max_attempts > allowed {
            let message = format!(
                "must be at most {allowed}, the tenant's limit max_attempts; the policy has {}",
                policy.max_attempts
            );
            errors.add(format!("{field}.max_attempts"), message);
        }
    }
}

/// The tenant sends more events than allowed. Without a `wait`, a retry cannot succeed.
fn too_many_events(limits: &Limits, limit: LimitName, wait: Option<Span>) -> Problem {
    let name = limit.name();
    let most = match limit {
        LimitName::EventsPerSecond => limits.events_per_second.map(u64::from),
        LimitName::DeliveriesPerSecond => limits.deliveries_per_second.map(u64::from),
        LimitName::EventsPerMonth => limits.events_per_month,
        LimitName::Endpoints
        | LimitName::PayloadBytes
        | LimitName::MaxAttempts
        | LimitName::Retention
        | LimitName::PayloadRetention
        | LimitName::AttemptRetention
        | LimitName::InFlight
        | LimitName::Schedules
        | LimitName::ShortestScheduleInterval => None,
    };
    let most = most.unwrap_or(0);
    let Some(wait) = wait else {
        let detail = match most {
            0 => format!("The limit {name} is 0: this tenant may not send events."),
            most => format!(
                "The limit {name} is {most}, and this request has more events. Nothing was accepted; send fewer events per request, or ask the operator to raise the limit."
            ),
        };
        return refused(name, detail);
    };
    let detail = match limit {
        LimitName::EventsPerMonth => format!(
            "The limit {name} of {most} events is reached for this calendar month (UTC). Nothing was accepted; send the request again next month, or ask the operator to raise the limit."
        ),
        LimitName::DeliveriesPerSecond => format!(
            "This tenant's recent events exceed the limit {name} of {most}. Nothing was accepted; send the request again after the time in Retry-After."
        ),
        LimitName::EventsPerSecond
        | LimitName::Endpoints
        | LimitName::PayloadBytes
        | LimitName::MaxAttempts
        | LimitName::Retention
        | LimitName::PayloadRetention
        | LimitName::AttemptRetention
        | LimitName::InFlight
        | LimitName::Schedules
        | LimitName::ShortestScheduleInterval => format!(
            "The limit {name} of {most} is exceeded. Nothing was accepted; send the request again after the time in Retry-After."
        ),
    };
    Problem::new(Code::QuotaExceeded, detail)
        .limited_by(name)
        .after(wait)
}

/// A limit was exceeded and waiting does not help, so there is no `Retry-After`.
fn refused(limit: &'static str, detail: String) -> Problem {
    Problem::new(Code::QuotaExceeded, detail)
        .limited_by(limit)
        .with_status(StatusCode::FORBIDDEN)
}

/// A payload is larger than the tenant is allowed.
pub fn payload_too_large(limit_bytes: u64) -> Problem {
    let detail = format!("The limit payload_bytes is {limit_bytes}. Send a smaller payload.");
    Problem::new(Code::QuotaExceeded, detail)
        .limited_by(LimitName::PayloadBytes.name())
        .with_status(StatusCode::PAYLOAD_TOO_LARGE)
}

/// The tenant has the maximum number of endpoints.
pub fn too_many_endpoints(limit: u32) -> Problem {
    let detail = format!(
        "The limit endpoints is {limit}. Delete an endpoint, or ask the operator to raise the limit."
    );
    refused(LimitName::Endpoints.name(), detail)
}

/// The tenant has the maximum number of schedules.
pub fn too_many_schedules(limit: u32) -> Problem {
    let detail = format!(
        "The limit schedules is {limit}. Delete a schedule, or ask the operator to raise the limit."
    );
    refused(LimitName::Schedules.name(), detail)
}

/// The tenant has the maximum number of keys.
pub fn too_many_keys(limit: usize) -> Problem {
    let detail = format!("A tenant may have {limit} keys. Revoke an unused one.");
    refused("keys", detail)
}

/// The tenant has sent one-off requests to the maximum number of origins.
pub fn too_many_origins(limit: u32) -> Problem {
    let detail = format!(
        "The one-off requests of a tenant may go to {limit} origins (scheme, host and port). An origin is removed when retention has deleted all deliveries to it. Create an endpoint for a URL that you use often."
    );
    refused("request_origins", detail)
}

/// The tenant has the maximum number of portal links.
pub fn too_many_links(limit: usize) -> Problem {
    let detail = format!(
        "A tenant may have {limit} active portal links. Revoke an unused one, or wait until one expires."
    );
    refused("portal_links", detail)
}
