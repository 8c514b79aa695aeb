//! Reads the plans: `[plans.NAME]`, each a named set of limits.
//!
//! The operator chooses the names, so plans can be set only in the file, not by a variable or a flag.

use std::collections::BTreeMap;

use posthaste_api::limits;
use posthaste_core::validation::Fields;
use posthaste_store::{Limits, NodeRates, Plans};

use super::error::ConfigError;
use super::fields::MAX_BODY_BYTES;
use super::types::Config;

/// Events per second that each node accepts of a tenant where no limit is set.
const DEFAULT_EVENTS_PER_SECOND: u32 = 10_000;
/// Deliveries per second that each node makes for a tenant where no limit is set.
const DEFAULT_DELIVERIES_PER_SECOND: u32 = 50_000;
/// Maximum number of plans.
const MAX_PLANS: usize = 1_000;
/// Maximum length of a plan name.
const MAX_PLAN_NAME_CHARS: usize = 64;

/// Reads every plan, and reports the invalid ones.
pub(super) fn read(plans: &mut BTreeMap<String, Limits>, fields: &mut Fields<'_, '_>) {
    let Some(section) = fields.value("plans") else {
        return;
    };
    let Some(named) = section.as_object() else {
        let message = "must be sections such as [plans.free], each with limits";
        return fields.wrong("plans", message);
    };
    if named.len() > MAX_PLANS {
        let message = format!("has {} plans; the maximum is {MAX_PLANS}", named.len());
        return fields.wrong("plans", message);
    }
    for (name, document) in named {
        if !is_name(name) {
            let message = format!(
                "is not a valid plan name: use 1 to {MAX_PLAN_NAME_CHARS} lower-case letters, digits, - and _, starting with a letter or digit"
            );
            fields.wrong(&format!("plans.{name}"), message);
            continue;
        }
        let mut plan = Limits::default();
        if let Some(inner) = fields.section("plans", name, document) {
            limits::read(document, inner, MAX_BODY_BYTES.into(), &mut plan);
        }
        plans.insert(name.clone(), plan);
    }
}

fn is_name(name: &str) -> bool {
    let starts_valid = name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    starts_valid
        && name.len() <= MAX_PLAN_NAME_CHARS
        && name
            .bytes()
            .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_'))
}

impl Config {
    /// Returns the plans, and the limits that apply without a plan.
    pub fn plans(&self) -> Plans {
        let server = &self.tenant_limits;
        Plans {
            server: Limits {
                endpoints: Some(server.endpoints),
                events_per_second: server.events_per_second.limit(),
                deliveries_per_second: server.deliveries_per_second.limit(),
                events_per_month: server.events_per_month,
                payload_bytes: Some(self.limits.body_bytes.into()),
                max_attempts: Some(server.max_attempts),
                in_flight: server.in_flight,
                retention: Some(self.retention),
                payload_retention: self.payload_retention,
                attempt_retention: self.attempt_retention,
                schedules: Some(server.schedules),
                shortest_schedule_interval: Some(server.shortest_schedule_interval),
            },
            named: self.plans.clone(),
            default_rates: NodeRates {
                events_per_second: server
                    .events_per_second
                    .node_default(DEFAULT_EVENTS_PER_SECOND),
                deliveries_per_second: server
                    .deliveries_per_second
                    .node_default(DEFAULT_DELIVERIES_PER_SECOND),
            },
        }
    }

    /// Reports plans that contradict other settings.
    pub(super) fn check_plans(&self, error: &mut ConfigError) {
        let max = u64::from(self.limits.batch_body_bytes);
        for (name, limits) in &self.plans {
            if let Some(payload) = limits.payload_bytes.filter(|payload| *payload > max) {
                error.add(
                    format!("plans.{name}.payload_bytes"),
                    format!(
                        "is {payload}, and limits.batch_body_bytes allows {max}: change one of them"
                    ),
                );
            }
        }
    }
}
