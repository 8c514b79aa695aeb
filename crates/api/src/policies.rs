//! Retry policies: explains the presets and custom policies, and simulates them.
//!
//! `GROUP` is the part of the route table, with its handlers. Simulations use much CPU: they have a maximum size, and
//! at most [`MAX_SIMULATIONS`] run in parallel.

use std::time::Duration;

use axum::body::Body;
use http::{Response, StatusCode};
use posthaste_core::forecast::{MAX_OUTAGE, OutageScenario, forecast};
use posthaste_core::lane::{
    DEFAULT_MAX_IN_FLIGHT, MAX_BURST, MAX_IN_FLIGHT, MAX_PER_SECOND, MIN_PER_SECOND, RateLimit,
};
use posthaste_core::policy::{Preset, RetryPolicy};
use posthaste_core::time::Span;
use posthaste_core::validation::{Fields, ValidationErrors, whole_number};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::body;
use super::code::Code;
use super::policy_schema;
use super::problem::Problem;
use super::resources::patterns;
use super::resources::schema::{described, integer, named, nullable, object, reference, span};
use super::resources::{Schema, rate_limit_schema};
use super::route::{Access, Call, Content, Group, RequestBody, Route, Verb, success};
use crate::rate::{self, MAX_CAPACITY, MIN_CAPACITY};
use crate::reports::{ExplanationReport, OutageReport, PolicyReport};

/// Maximum number of deliveries in a simulation. The command line allows more, because it does not share the
/// machine with a server.
pub const MAX_SIMULATED: u32 = 100_000;
/// Maximum number of parallel simulations, so that they do not delay deliveries.
pub const MAX_SIMULATIONS: usize = 1;
/// Maximum time that a simulation waits for others before it is refused, and `Retry-After` of the response.
const SIMULATION_WAIT: Span = Span::from_secs(2);

static SIMULATIONS: Semaphore = Semaphore::const_new(MAX_SIMULATIONS);

pub(super) static GROUP: Group = Group {
    name: "Policies",
    about: "Retry policies. Explain and simulate a policy before you use it.",
    routes: &[
        Route {
            verb: Verb::Get,
            path: "/v1/policies",
            name: "list_policies",
            summary: "Lists the presets with their complete policy and explanation, the default first.",
            access: Access::AnyKey,
            query: &[],
            request_body: RequestBody::Nothing,
            responses: &[success(200, "The presets.", Content::Json("Presets"))],
            fails: &[],
            handler: |call| Box::pin(list(call)),
        },
        Route {
            verb: Verb::Post,
            path: "/v1/policies/preview",
            name: "preview_policy",
            summary: "Explains a policy: the time of each attempt after the event is due, if every attempt fails immediately.",
            access: Access::AnyKey,
            query: &[],
            request_body: RequestBody::Json("RetryPolicy"),
            responses: &[success(
                200,
                "The policy, explained.",
                Content::Json("PolicyExplanation"),
            )],
            fails: &[],
            handler: |call| Box::pin(preview(call)),
        },
        Route {
            verb: Verb::Post,
            path: "/v1/policies/simulate",
            name: "simulate_policy",
            summary: "Simulates an outage of a receiver and its recovery.",
            access: Access::AnyKey,
            query: &[],
            request_body: RequestBody::Json("Simulation"),
            responses: &[success(
                200,
                "The simulated recovery with posthaste and with a naive sender.",
                Content::Json("SimulationReport"),
            )],
            fails: &[],
            handler: |call| Box::pin(simulate(call)),
        },
    ],
    schemas,
};

#[derive(Serialize)]
struct Presets {
    data: Vec<PresetView>,
}

#[derive(Serialize)]
struct PresetView {
    name: &'static str,
    #[serde(flatten)]
    report: ExplanationReport,
}

/// `GET /v1/policies`.
async fn list(_: Call) -> Result<Response<Body>, Problem> {
    let show = |preset: Preset| PresetView {
        name: preset.name(),
        report: explain(Some(preset), &preset.policy()),
    };
    let presets = Presets {
        data: Preset::ALL.into_iter().map(show).collect(),
    };
    Ok(body::answer(StatusCode::OK, &presets))
}

/// `POST /v1/policies/preview`.
async fn preview(mut call: Call) -> Result<Response<Body>, Problem> {
    let document = call.take_json().await?;
    let policy = RetryPolicy::from_json(&document)?;
    let report = explain(preset_of(&document), &policy);
    Ok(body::answer(StatusCode::OK, &report))
}

fn explain(preset: Option<Preset>, policy: &RetryPolicy) -> ExplanationReport {
    ExplanationReport {
        explanation: policy.explain(),
        policy: PolicyReport::new(preset, policy),
    }
}

/// Returns the preset that a document names, if it contains nothing else.
fn preset_of(document: &Value) -> Option<Preset> {
    let object = document.as_object()?;
    let name = object.get("preset")?.as_str()?;
    (object.len() == 1).then(|| name.parse().ok()).flatten()
}

/// `POST /v1/policies/simulate`.
async fn simulate(mut call: Call) -> Result<Response<Body>, Problem> {
    let document = call.take_json().await?;
    let mut errors = ValidationErrors::default();
    let policy = match document.get("policy").filter(|policy| !policy.is_null()) {
        None => Some(RetryPolicy::default()),
        Some(policy) => RetryPolicy::from_json(policy)
            .map_err(|wrong| {
                for error in wrong.iter() {
                    let field = match error.field.as_str() {
                        "" => "policy".to_owned(),
                        field => format!("policy.{field}"),
                    };
                    errors.add(field, error.message.clone());
                }
            })
            .ok(),
    };
    let preset = match document.get("policy").filter(|policy| !policy.is_null()) {
        None => Some(Preset::Recommended),
        Some(policy) => preset_of(policy),
    };
    let rest = Fields::open(&document, "", &mut errors).and_then(|mut fields| {
        let rest = read(&mut fields);
        fields.finish();
        rest
    });
    let scenario = policy
        .zip(rest)
        .map(|(policy, rest)| OutageScenario { policy, ..rest });
    let scenario = errors.into_result(scenario)?;
    let wait = Duration::from_millis(SIMULATION_WAIT.as_millis());
    let Ok(Ok(permit)) = timeout(wait, SIMULATIONS.acquire()).await else {
        let detail = "Too many simulations are running. Send the request again shortly.";
        return Err(Problem::new(Code::Overloaded, detail).after(SIMULATION_WAIT));
    };
    let played = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        let forecast = forecast(&scenario);
        OutageReport::new(preset, &scenario, &forecast)
    });
    let report = played.await.map_err(|error| Problem::internal(&error))?;
    Ok(body::answer(StatusCode::OK, &report))
}

/// Reads all fields except the policy.
fn read(fields: &mut Fields<'_, '_>) -> Option<OutageScenario> {
    fields.value("policy");
    for name in ["pending", "outage", "capacity"] {
        fields.need(name);
    }
    let pending = fields.count("pending", 0, MAX_SIMULATED);
    let outage = fields.span("outage", Span::ZERO, MAX_OUTAGE);
    let capacity = capacity(fields);
    let max_in_flight = fields.count("max_in_flight", 1, MAX_IN_FLIGHT);
    let mut rate = RateLimit::default();
    if let Some(mut limit) = fields.object("rate_limit") {
        if let Some(per_second) = limit.number("per_second", MIN_PER_SECOND, MAX_PER_SECOND) {
            rate.per_second = per_second;
        }
        if let Some(burst) = limit.count("burst", 1, MAX_BURST) {
            rate.burst = burst;
        }
        limit.finish();
    }
    let seed = fields.value("seed").map(|value| {
        let seed = whole_number(value);
        if seed.is_none() {
            fields.wrong("seed", "must be a whole number of at least 0");
        }
        seed
    });
    Some(OutageScenario {
        policy: RetryPolicy::default(),
        pending: pending?,
        outage: outage?,
        capacity_per_second: capacity?,
        max_in_flight: max_in_flight.unwrap_or(DEFAULT_MAX_IN_FLIGHT),
        rate,
        seed: seed.unwrap_or(Some(1))?,
    })
}

/// Reads a number per second, or a rate as text: `"600/m"`.
fn capacity(fields: &mut Fields<'_, '_>) -> Option<f64> {
    let text = fields.value("capacity")?.as_str();
    match text.map(rate::capacity) {
        None => fields.number("capacity", MIN_CAPACITY, MAX_CAPACITY),
        Some(Ok(per_second)) => Some(per_second),
        Some(Err(message)) => {
            fields.wrong("capacity", message);
            None
        }
    }
}

fn schemas() -> Vec<Schema> {
    let explanation = || {
        json!({
            "attempts": {"type": "array", "items": named("PolicyAttempt", object(json!({
                "number": integer(),
                "earliest_ms": integer(),
                "expected_ms": integer(),
                "latest_ms": integer(),
            })))},
            "gives_up_ms": integer(),
            "deadline_ms": integer(),
            "verdicts": {
                "type": "array",
                "description": "Which failures are retried and which are permanent. Every failure is in exactly one group.",
                "items": named("PolicyVerdict", object(json!({
                    "on": {
                        "type": "array",
                        "items": {"type": "string"},
                        "description": "Statuses, classes of statuses (`4xx`) and failure kinds. A status that is listed in one group is an exception to its class in another.",
                    },
                    "then": policy_schema::rule_action(),
                    "limit": {"type": ["integer", "null"], "description": "Maximum number of retries after these failures; null for all retries of the policy."},
                    "words": {"type": "string"},
                }))),
            },
            "words": {"type": "string"},
            "policy": described_policy(),
        })
    };
    let mut with_name = explanation();
    with_name["name"] = policy_schema::preset();
    let rate_limit = json!({
        "type": "object",
        "description": "The same as for an endpoint.",
        "properties": {
            "per_second": {"type": ["number", "null"], "minimum": MIN_PER_SECOND, "maximum": MAX_PER_SECOND},
            "burst": {"type": ["integer", "null"], "minimum": 1, "maximum": MAX_BURST},
        },
        "additionalProperties": false,
    });
    let rate_limit = named("SimulatedRateLimit", rate_limit);
    vec![
        Schema {
            name: "PolicyExplanation",
            shape: object(explanation()),
        },
        Schema {
            name: "Presets",
            shape: object(
                json!({"data": {"type": "array", "items": named("Preset", object(with_name))}}),
            ),
        },
        Schema {
            name: "Simulation",
            shape: json!({
                "type": "object",
                "required": ["pending", "outage", "capacity"],
                "properties": {
                    "policy": described(nullable(reference("RetryPolicy")), "Default is the preset `recommended`."),
                    "pending": {"type": "integer", "minimum": 0, "maximum": MAX_SIMULATED, "description": "Deliveries due when the outage starts."},
                    "outage": described(span("OutageDuration", Span::ZERO, MAX_OUTAGE), "Duration of the outage."),
                    "capacity": {
                        "type": ["number", "string"], "minimum": MIN_CAPACITY, "maximum": MAX_CAPACITY, "pattern": patterns::CAPACITY,
                        "description": "Requests per second that the receiver can handle after the outage, or a rate such as `600/m`.",
                    },
                    "max_in_flight": {"type": ["integer", "null"], "minimum": 1, "maximum": MAX_IN_FLIGHT},
                    "rate_limit": nullable(rate_limit),
                    "seed": {"type": ["integer", "null"], "minimum": 0, "maximum": u64::MAX, "description": "Random seed."},
                },
                "additionalProperties": false,
                "examples": [{"pending": 10_000, "outage": "30m", "capacity": 50}],
            }),
        },
        Schema {
            name: "SimulationReport",
            shape: simulation_report(),
        },
    ]
}

fn described_policy() -> Value {
    described(policy_schema::complete_policy(), "The complete policy.")
}

fn simulation_report() -> Value {
    let course = || {
        let course = object(json!({
            "attempts": integer(),
            "delivered": integer(),
            "dead_lettered": integer(),
            "dead_letter_reasons": {"type": "object", "additionalProperties": {"type": "integer"}},
            "peak_arrivals_per_second": integer(),
            "drained_ms": integer(),
            "series": {"type": "array", "items": {"type": "object"}},
        }));
        named("SimulatedCourse", course)
    };
    object(json!({
        "policy": described_policy(),
        "pending": integer(),
        "outage_ms": integer(),
        "capacity_per_second": {"type": "number"},
        "limits": named("SimulatedLimits", object(json!({
            "max_in_flight": integer(),
            "rate_limit": rate_limit_schema(),
        }))),
        "seed": integer(),
        "posthaste": course(),
        "naive": course(),
        "words": {"type": "string", "description": "Summary in one sentence."},
    }))
}
