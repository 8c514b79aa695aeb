//! What a tenant's plan allows, and what it is told when it wants more.
//!
//! Where waiting helps the answer is 429 with `Retry-After`; where it does not, 403; where the payload
//! is too large, 413. Each names the limit.

use http::StatusCode;
use posthaste_core::mistakes::Mistakes;
use posthaste_core::policy::RetryPolicy;
use posthaste_store::Tenant;

use super::App;
use super::auth::KnownTenant;
use super::code::Code;
use super::problem::Problem;
use super::settings::Pace;

impl App {
    /// Spends `count` of the tenant's events per second.
    pub fn admit_events(&self, tenant: &KnownTenant, count: u32) -> Result<(), Problem> {
        let limits = &tenant.tenant.limits;
        let default = self.settings.limits.events_per_second;
        let Some(per_second) = limits.events_per_second.or(default) else {
            return Ok(());
        };
        if per_second == 0 {
            let detail = "The limit events_per_second is 0: this tenant may send no events.";
            let problem = Problem::new(Code::QuotaExceeded, detail);
            return Err(problem.with_status(StatusCode::FORBIDDEN));
        }
        let pace = Pace {
            per_second,
            burst: per_second,
        };
        let now = self.clock.now().tick;
        tenant.meter.spend(now, pace, count).map_err(|wait| {
            let detail = format!(
                "The limit events_per_second is {per_second}. Nothing was accepted; send it again after Retry-After."
            );
            Problem::new(Code::QuotaExceeded, detail).after(wait)
        })
    }

    /// How large a payload of this tenant may be.
    pub fn payload_bytes(&self, tenant: &Tenant) -> u64 {
        let own = tenant.limits.payload_bytes;
        own.unwrap_or(self.settings.body_bytes)
    }

    /// How many endpoints a tenant may have.
    pub fn endpoints_allowed(&self, tenant: &Tenant) -> u32 {
        let own = tenant.limits.endpoints;
        own.unwrap_or(self.settings.limits.endpoints)
    }

    /// Notes a mistake if a policy asks for more attempts than the tenant's plan allows.
    pub fn check_policy(
        &self,
        policy: &RetryPolicy,
        allowed: Option<u32>,
        field: &str,
        mistakes: &mut Mistakes,
    ) {
        let Some(allowed) = allowed.or(self.settings.limits.max_attempts) else {
            return;
        };
        if policy.max_attempts > allowed {
            let message = format!(
                "must be at most {allowed}, which is the limit max_attempts of this tenant; the policy asks for {}",
                policy.max_attempts
            );
            mistakes.note(format!("{field}.max_attempts"), message);
        }
    }
}

/// A payload of a tenant is larger than its plan allows.
pub fn payload_too_large(limit_bytes: u64) -> Problem {
    let detail = format!("The limit payload_bytes is {limit_bytes}. Send a smaller payload.");
    Problem::new(Code::QuotaExceeded, detail).with_status(StatusCode::PAYLOAD_TOO_LARGE)
}

/// A tenant has as many endpoints as it may have.
pub fn too_many_endpoints(limit: u32) -> Problem {
    let detail = format!(
        "The limit endpoints is {limit}. Delete an endpoint, or have the limit raised; waiting does not help."
    );
    Problem::new(Code::QuotaExceeded, detail).with_status(StatusCode::FORBIDDEN)
}
