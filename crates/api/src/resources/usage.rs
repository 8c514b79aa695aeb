//! The limits of a tenant and their usage, and plans.

use std::collections::BTreeMap;

use posthaste_store::{LimitName, LimitSource, Limits};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::limits;
use super::schema::{
    Schema, choice, described, named, nullable_text, object, reference, text, with_examples,
};

/// The limits of a tenant and their usage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Name of the tenant's plan.
    pub plan: Option<String>,
    /// True if the configuration has that plan.
    pub plan_found: bool,
    /// The limits, by name.
    pub limits: BTreeMap<String, LimitUsage>,
}

/// A limit and its usage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitUsage {
    /// The limit: a number, a duration, or null if there is none.
    pub limit: Value,
    /// The used amount, if the limit can be used up.
    pub used: Option<u64>,
    /// The origin of the limit: `tenant`, `plan` or `server`.
    pub source: String,
    /// The time at which the used amount becomes 0 again.
    pub resets_at: Option<String>,
}

/// The plans of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plans {
    /// The limits without a plan.
    pub default: Limits,
    /// The plans.
    pub data: Vec<Plan>,
}

/// A plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Its name.
    pub name: String,
    /// Its limits.
    pub limits: Limits,
}

/// Returns the name of the origin of a limit.
pub(crate) fn source_name(source: LimitSource) -> &'static str {
    match source {
        LimitSource::Tenant => "tenant",
        LimitSource::Plan => "plan",
        LimitSource::Server => "server",
    }
}

/// Returns the schemas of [`Usage`] and [`Plans`].
pub(crate) fn schemas() -> Vec<Schema> {
    let by_limit = |value: &Value| {
        let names = LimitName::ALL.map(|limit| (limit.name().to_owned(), value.clone()));
        Value::Object(names.into_iter().collect::<Map<String, Value>>())
    };
    let limit_example = json!({"limit": 100, "used": null, "source": "plan", "resets_at": null});
    let usage = object(json!({
        "plan": nullable_text(),
        "plan_found": {"type": "boolean", "description": "True if the tenant's plan is in the configuration. Otherwise the server's limits apply."},
        "limits": named("LimitUsages", object(by_limit(&limit_usage_schema()))),
    }));
    let usage_example =
        json!({"plan": "pro", "plan_found": true, "limits": by_limit(&limit_example)});
    let plan = named(
        "Plan",
        object(json!({"name": text(), "limits": reference("Limits")})),
    );
    let plans = object(json!({
        "default": reference("Limits"),
        "data": {"type": "array", "items": plan},
    }));
    let plans_example = json!({
        "default": limits::example(), "data": [{"name": "pro", "limits": limits::example()}],
    });
    vec![
        Schema {
            name: "Usage",
            shape: with_examples(usage, json!([usage_example])),
        },
        Schema {
            name: "Plans",
            shape: with_examples(plans, json!([plans_example])),
        },
    ]
}

fn limit_usage_schema() -> Value {
    let shape = object(json!({
        "limit": {"type": ["integer", "string", "null"], "description": "The limit: a number, or a duration such as `30d`; `null` if there is no limit."},
        "used": {"type": ["integer", "null"], "description": "Current usage, if the limit can be used up. Events of a month include deleted events and test events. `in_flight` counts the attempts in progress on all nodes that respond."},
        "source": described(choice("LimitSource", ["tenant", "plan", "server"]), "Source of the limit. The server's default of `events_per_second` and every `deliveries_per_second` apply to each node; all other limits apply to all nodes together."),
        "resets_at": {"type": ["string", "null"], "format": "date-time", "description": "Time at which the usage resets to 0."},
    }));
    named("LimitUsage", shape)
}
