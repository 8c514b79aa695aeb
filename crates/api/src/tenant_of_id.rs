//! Finds the tenant of an id. Customers often report only an id, so the operator must find out whose it is.

use axum::body::Body;
use http::{Response, StatusCode};
use posthaste_core::validation::ValidationErrors;
use posthaste_store::TenantObject;

use super::body;
use super::code::Code;
use super::problem::Problem;
use super::resources::patterns;
use super::resources::schema::matching;
use super::resources::{TenantOfId, tenant_of_id_schemas};
use super::route::{Access, Call, Content, Group, Parameter, RequestBody, Route, Verb, success};

pub(super) static GROUP: Group = Group {
    name: "Find",
    about: "Finds the tenant of an id.",
    routes: &[Route {
        verb: Verb::Get,
        path: "/v1/find",
        name: "find",
        summary: "Returns the kind of resource that an id names, and its tenant.",
        access: Access::Admin,
        query: &[Parameter {
            name: "id",
            about: "The id of a delivery, an event or an endpoint.",
            shape: || matching(patterns::id_of_any(&["dlv", "evt", "ep"])),
            is_required: true,
        }],
        request_body: RequestBody::Nothing,
        responses: &[success(
            200,
            "The kind of resource and its tenant.",
            Content::Json("Found"),
        )],
        fails: &[(404, Code::NotFound)],
        handler: |call| Box::pin(find(call)),
    }],
    schemas: tenant_of_id_schemas,
};

/// `GET /v1/find`.
async fn find(call: Call) -> Result<Response<Body>, Problem> {
    let mut query = call.query();
    let given = query.text("id");
    query.finish()?;
    let Some(id) = given else {
        return Err(wrong("is required"));
    };
    let Some((kind, named)) = read(&id) else {
        let message =
            "must be the id of a delivery (dlv_…), an event (evt_…) or an endpoint (ep_…)";
        return Err(wrong(message));
    };
    let Some(tenant) = call.app.store.tenant_of(named).await? else {
        let detail = format!("No such {kind}. It or its tenant may have been deleted.");
        return Err(Problem::new(Code::NotFound, detail));
    };
    let found = TenantOfId {
        kind: kind.to_owned(),
        id,
        tenant_id: tenant.to_string(),
    };
    Ok(body::answer(StatusCode::OK, &found))
}

fn wrong(message: &str) -> Problem {
    let mut errors = ValidationErrors::default();
    errors.add("id", message);
    Problem::invalid(errors)
}

/// Returns the resource that an id names, by its prefix.
fn read(id: &str) -> Option<(&'static str, TenantObject)> {
    let (prefix, _) = id.split_once('_')?;
    Some(match prefix {
        "dlv" => ("delivery", TenantObject::Delivery(id.parse().ok()?)),
        "evt" => ("event", TenantObject::Event(id.parse().ok()?)),
        "ep" => ("endpoint", TenantObject::Endpoint(id.parse().ok()?)),
        _ => return None,
    })
}
