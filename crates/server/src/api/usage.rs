//! What tenants are allowed, and how much of it they use.

use axum::body::Body;
use http::{Response, StatusCode};
use posthaste_store::Limits;
use serde::Serialize;
use serde_json::json;

use super::body;
use super::call::Call;
use super::problem::Problem;
use super::route::{Access, Content, Gives, Group, Route, Schema, Takes, Verb};
use crate::limits;

pub(super) static GROUP: Group = Group {
    name: "Limits",
    about: "What tenants are allowed, and how much of it they use. A limit is the tenant's own, else its plan's, else the server's. Plans stand in the configuration.",
    routes: &[Route {
        verb: Verb::Get,
        path: "/v1/plans",
        name: "list_plans",
        summary: "Lists the plans that the configuration names, and what is allowed without one.",
        access: Access::Admin,
        query: &[],
        takes: Takes::Nothing,
        gives: &[Gives {
            status: 200,
            about: "The plans.",
            content: Content::Json("Plans"),
        }],
        fails: &[],
        handler: |call| Box::pin(list_plans(call)),
    }],
    schemas,
};

#[derive(Serialize)]
struct PlansView<'a> {
    default: Limits,
    data: Vec<PlanView<'a>>,
}

#[derive(Serialize)]
struct PlanView<'a> {
    name: &'a str,
    limits: Limits,
}

/// `GET /v1/plans`.
async fn list_plans(call: Call) -> Result<Response<Body>, Problem> {
    let plans = &call.app.settings.plans;
    let named = plans.named.iter();
    let shown = PlansView {
        default: plans.server,
        data: named
            .map(|(name, limits)| PlanView {
                name,
                limits: *limits,
            })
            .collect(),
    };
    Ok(body::answer(StatusCode::OK, &shown))
}

fn schemas() -> Vec<Schema> {
    let limits = json!({"$ref": "#/components/schemas/Limits"});
    vec![Schema {
        name: "Plans",
        shape: json!({
            "type": "object",
            "required": ["default", "data"],
            "properties": {
                "default": limits,
                "data": {"type": "array", "items": {
                    "type": "object",
                    "required": ["name", "limits"],
                    "properties": {"name": {"type": "string"}, "limits": limits},
                    "additionalProperties": false,
                }},
            },
            "additionalProperties": false,
            "examples": [{"default": limits::example(), "data": [{"name": "pro", "limits": limits::example()}]}],
        }),
    }]
}
